//! Verdicts on splits of huge pages' entries, in hindsight: did its thread do the same to the rest before anybody used any of it?

use super::env::{SimLog, SimWorld};
use crate::addr::PageRange;
use crate::call::{Asked, Call, ranges};
use crate::event::EventKind;
use crate::program::{Advice, Prot};
use crate::resolved::Visit;
use crate::verdict::{Judgement, Reason, Verdict};
use smallvec::{SmallVec, smallvec};

type Ranges = SmallVec<[PageRange; 2]>;

/// What calls have in common that, one after the other, do what one call about all of their pages does.
#[derive(Copy, Clone, Debug, PartialEq)]
enum Same {
    Unmap,
    Protect(Prot),
    Advise(Advice),
}

impl Same {
    /// `None`: one call would split huge pages as well, or it is not known whether others see a difference.
    fn of(call: &Call) -> Option<Same> {
        match *call {
            Asked::Unmap { .. } => Some(Same::Unmap),
            Asked::Protect { prot, .. } => Some(Same::Protect(prot)),
            Asked::Advise { advice, .. } | Asked::AdviseRanges { advice, .. } => match advice {
                Advice::DontNeed | Advice::HugePage | Advice::NoHugePage => {
                    Some(Same::Advise(advice))
                }
                _ => None,
            },
            _ => None,
        }
    }
}

/// The pages that a call is about, each range by itself.
fn parts(call: &Call) -> Ranges {
    match *call {
        Asked::AdviseRanges { pages, each, stride, done, .. } => {
            ranges(pages, each, stride, done).collect()
        }
        Asked::Remap { pages, to } => {
            smallvec![pages, PageRange::new(to.pages.start, pages.pages())]
        }
        _ => call.pages().into_iter().collect(),
    }
}

/// Whether it looks at all page tables of a process, as they are.
const fn looks_at_all(call: &Call) -> bool {
    matches!(call, Asked::Fork { .. } | Asked::Exec | Asked::ClearRefs { .. })
}

/// Whether a touch visits one of `pages`; one at random may.
fn visits(range: PageRange, visit: Visit, pages: PageRange) -> bool {
    let common = range.intersect(pages);
    match visit {
        Visit::Ascending { stride } if !common.is_empty() => {
            let before = common.start.since(range.start).next_multiple_of(stride);
            common.contains(range.start.add(before))
        }
        Visit::Ascending { .. } | Visit::Random { .. } => !common.is_empty(),
    }
}

/// A split without verdict yet.
#[derive(Debug)]
struct Waiting {
    /// The event.
    seq: u64,
    thread: usize,
    what: Same,
    /// The huge page's.
    pages: PageRange,
    /// What its thread did not do the same to yet.
    rest: Ranges,
}

impl Waiting {
    /// The same was done to `part`.
    fn did(&mut self, part: PageRange) {
        let without = |range: &PageRange| -> Ranges {
            let common = range.intersect(part);
            if common.is_empty() {
                return smallvec![*range];
            }
            let before = PageRange { start: range.start, end: common.start };
            let after = PageRange { start: common.end, end: range.end };
            [before, after].into_iter().filter(|range| !range.is_empty()).collect()
        };
        self.rest = self.rest.iter().flat_map(without).collect();
    }
}

/// The splits of a round that have no verdict yet.
#[derive(Debug, Default)]
pub(super) struct Splits {
    waiting: Vec<Waiting>,
}

impl Splits {
    /// A thread is about to visit pages.
    #[inline(always)]
    pub(super) fn touched(&mut self, log: &mut SimLog, pages: PageRange, visit: Visit) {
        if !self.waiting.is_empty() {
            self.used(log, |split| visits(pages, visit, split.pages));
        }
    }

    /// The round is over.
    pub(super) fn end(&mut self, log: &mut SimLog) {
        self.used(log, |_| true);
    }

    /// Nobody will do the rest, and none of it stays.
    pub(super) fn forget(&mut self, thread: usize) {
        self.waiting.retain(|split| split.thread != thread);
    }

    /// They were needed.
    #[cold]
    fn used(&mut self, log: &mut SimLog, which: impl Fn(&Waiting) -> bool) {
        let verdict = Verdict::new(Judgement::Needed, Reason::UsedInParts);
        self.waiting.retain(|split| {
            let used = which(split);
            if used {
                log.judge_split(split.seq, verdict);
            }
            !used
        });
    }

    /// A thread's call is done, which emitted the events from `first` on; not `done`: it waits for something, or goes on.
    #[cold]
    pub(super) fn called(
        &mut self,
        w: &mut SimWorld,
        (thread, call): (usize, &Call),
        first: u64,
        done: bool,
    ) {
        let what = Same::of(call).filter(|_| done);
        let same = |split: &Waiting| split.thread == thread && Some(split.what) == what;
        // 1. Whether it has done the rest, or was about something else.
        let about = parts(call);
        self.used(&mut w.log, |split| {
            let concerned = about.iter().any(|pages| pages.overlaps(split.pages));
            looks_at_all(call) || concerned && !same(split)
        });
        for split in self.waiting.iter_mut().filter(|split| same(split)) {
            about.iter().for_each(|part| split.did(*part));
        }
        // 2. What it has split itself.
        if let Some(what) = what {
            self.begin(w, (thread, what), &about, first);
        }
        let verdict = Verdict::new(Judgement::Needless, Reason::RestFollowed);
        let log = &mut w.log;
        self.waiting.retain(|split| {
            if split.rest.is_empty() {
                log.judge_split(split.seq, verdict);
            }
            !split.rest.is_empty()
        });
    }

    /// Splits among the events from `first` on wait for their verdict: of what nobody else maps, and a part of which the call is about.
    fn begin(
        &mut self,
        w: &SimWorld,
        (thread, what): (usize, Same),
        about: &[PageRange],
        first: u64,
    ) {
        let emitted = w.log.events.iter().rev().take_while(|event| event.seq >= first);
        for event in emitted {
            let EventKind::Split { page, shared: false, .. } = event.kind else { continue };
            let pages = PageRange::new(page, w.arch.table_pages(1));
            if !about.iter().any(|part| part.overlaps(pages)) {
                continue;
            }
            let mut split = Waiting { seq: event.seq, thread, what, pages, rest: smallvec![pages] };
            about.iter().for_each(|part| split.did(*part));
            self.waiting.push(split);
        }
    }
}

//! Verdicts on splits of huge pages' entries, in hindsight. A split was needless if its thread made
//! the same change to the rest before any part was used.

use super::env::{SimLog, SimWorld};
use crate::addr::PageRange;
use crate::call::{Asked, Call, ranges};
use crate::event::EventKind;
use crate::program::{Advice, Prot};
use crate::resolved::Visit;
use crate::verdict::{Judgement, Reason, Verdict};
use smallvec::{SmallVec, smallvec};

type Ranges = SmallVec<[PageRange; 2]>;

/// A kind of change for which several calls, one after the other, have the effect of one call about
/// all of their pages.
#[derive(Copy, Clone, Debug, PartialEq)]
enum Same {
    Unmap,
    Protect(Prot),
    Advise(Advice),
}

impl Same {
    /// The kind of a call. `None`: one call would split huge pages as well, or it is not known
    /// whether others would see a difference.
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

/// The pages that a call is about, range by range.
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

/// Whether the call looks at all page tables of a process in their present state.
const fn looks_at_all(call: &Call) -> bool {
    matches!(call, Asked::Fork { .. } | Asked::Exec | Asked::ClearRefs { .. })
}

/// Whether a touch visits any of `pages`. A random touch counts if it may.
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

/// A split without a verdict so far.
#[derive(Debug)]
struct Waiting {
    /// The number of its event.
    seq: u64,
    thread: usize,
    what: Same,
    /// The pages of the huge page.
    pages: PageRange,
    /// The pages to which its thread did not make the same change so far.
    rest: Ranges,
}

impl Waiting {
    /// Records that the same change was made to `part`.
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

/// The splits of a round that have no verdict so far.
#[derive(Debug, Default)]
pub(super) struct Splits {
    waiting: Vec<Waiting>,
}

impl Splits {
    /// Judges splits when a thread is about to visit pages.
    #[inline(always)]
    pub(super) fn touched(&mut self, log: &mut SimLog, pages: PageRange, visit: Visit) {
        if !self.waiting.is_empty() {
            self.used(log, |split| visits(pages, visit, split.pages));
        }
    }

    /// Judges splits at the end of a round.
    pub(super) fn end(&mut self, log: &mut SimLog) {
        self.used(log, |_| true);
    }

    /// Drops the splits of a thread that will not change the rest, because all of its memory goes
    /// away.
    pub(super) fn forget(&mut self, thread: usize) {
        self.waiting.retain(|split| split.thread != thread);
    }

    /// Gives the splits that `which` selects the verdict that they were needed.
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

    /// Judges splits after a thread's call that emitted the events from `first` on. `done` is false
    /// if the call waits, or continues later.
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
        // 1. The call made the same change to more of the rest, or was about something else.
        let about = parts(call);
        self.used(&mut w.log, |split| {
            let concerned = about.iter().any(|pages| pages.overlaps(split.pages));
            looks_at_all(call) || concerned && !same(split)
        });
        for split in self.waiting.iter_mut().filter(|split| same(split)) {
            about.iter().for_each(|part| split.did(*part));
        }
        // 2. The call may have split huge pages itself.
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

    /// Adds the splits among the events from `first` on that wait for a verdict: those of huge
    /// pages that nobody else maps and that the call is about.
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

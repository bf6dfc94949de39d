//! Counters: every per-round figure, declared once.
//!
//! The table at the end of this file is the only place that names a counter. Tables, JSON, help and
//! docs derive from it. A value is `None` if the target could not show it: a counter is never zero
//! because nobody looked.

use crate::addr::{CpuId, ProcessId, ThreadId};
use crate::event::{Event, EventKind, FaultClass, FlushReason};
use crate::program::Program;
use crate::run::{Round, TimedBlock};
use crate::sequence::{FlushPart, Operation, TraceOrder, is_send, operations};
use crate::site::Site;
use crate::verdict::{Finding, Needless, Reason, Verdict};
use serde::Serialize;
use std::collections::BTreeMap;

/// The key in a target's list of unseen things that says: faults cannot be classified.
pub const FAULTS_BY_CLASS: &str = "faults_by_class";

/// A kind of countable event in a round.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum What {
    /// An exception on one of the scenario's pages.
    Fault,
    /// A copy of a page.
    Copy,
    /// A frame filled with zeros.
    Zeroing,
    /// A page read from swap.
    PageIn,
    /// A page written to swap.
    PageOut,
    /// A flush that was sent to other CPUs.
    Shootdown,
    /// A flush on the initiator only.
    LocalFlush,
    /// A shootdown received by a CPU other than the initiator's.
    Interrupt,
    /// A page that a call reported as stored to.
    Told,
    /// A page for which a call returned its node, or the reason why it did not move.
    PageStatus,
    /// An interrupt of a CPU that might be walking a page table without a lock.
    TableSync,
    /// The replacement of a huge page's entry by one entry for each page.
    Split,
    /// A try of a fault that gave its lock back, to be tried again.
    Retry,
}

impl What {
    /// The kind of finding if the event is needless; `None` for events without verdicts.
    pub const fn needless(self) -> Option<Needless> {
        Some(match self {
            What::Fault => Needless::Fault,
            What::Copy => Needless::Copy,
            What::Shootdown => Needless::Shootdown,
            What::LocalFlush => Needless::LocalFlush,
            What::Interrupt => Needless::Interrupt,
            What::Split => Needless::Split,
            What::Retry => Needless::Retry,
            What::Zeroing
            | What::PageIn
            | What::PageOut
            | What::Told
            | What::PageStatus
            | What::TableSync => {
                return None;
            }
        })
    }
}

/// One countable event of a round.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Counted {
    /// The kind of event.
    pub what: What,
    /// [`Event::seq`] of the corresponding event; in an account, counted from the round's first
    /// event.
    pub seq: u64,
    /// The thread that caused the event or received the interrupt.
    pub thread: Option<ThreadId>,
    /// The kernel function, where known.
    pub site: Option<Site>,
    /// The class of the fault; `None` for other events and where the class was not visible.
    pub class: Option<FaultClass>,
    /// The verdict, where one was given.
    pub verdict: Option<Verdict>,
}

impl Counted {
    fn new(what: What, event: &Event) -> Counted {
        let Event { seq, thread, site, verdict, .. } = *event;
        Counted { what, seq, thread, site, class: None, verdict }
    }

    /// The finding: the event was needless, or the flush was too wide.
    pub fn finding(&self) -> Option<Finding> {
        let verdict = self.verdict?;
        let what = match (verdict.is_needless(), verdict.is_too_wide()) {
            (true, _) => self.what.needless()?,
            (false, true) => Needless::FullFlush,
            (false, false) => return None,
        };
        Some(Finding { what, site: self.site, reason: verdict.reason })
    }

    /// The reason for the verdict, where one was given.
    pub fn reason(&self) -> Option<Reason> {
        self.verdict.map(|verdict| verdict.reason)
    }
}

/// The countable events of a round, in the order of its events.
pub fn observe(program: &Program, events: &[Event], order: TraceOrder) -> Vec<Counted> {
    let mut seen: Vec<Counted> = Vec::new();
    seen.extend(operations(program, events, order).iter().filter_map(flush_observation));
    faults(program, events, &mut seen);
    let mut initiator: Option<CpuId> = None;
    for event in events {
        if is_send(event) {
            initiator = Some(event.cpu);
        }
        let what = match event.kind {
            EventKind::Copy { page, .. } if program.owns(page) => What::Copy,
            EventKind::Zero { page, .. } if program.owns(page) => What::Zeroing,
            EventKind::Split { page, .. } if program.owns(page) => What::Split,
            EventKind::FaultRetry { page, .. } if program.owns(page) => What::Retry,
            EventKind::PageIn { page, zero_filled, .. } if program.owns(page) => {
                match zero_filled {
                    true => What::Zeroing,
                    false => What::PageIn,
                }
            }
            EventKind::PageOut { page, zero_filled: false, .. } if program.owns(page) => {
                What::PageOut
            }
            // 5.10 also makes the initiator call its own handler, which is no interrupt
            // (kernel/smp.c: on_each_cpu_cond_mask).
            EventKind::Flush {
                reason: FlushReason::RemoteShootdown | FlushReason::RemoteWrongCpu,
                ..
            } if initiator != Some(event.cpu) => What::Interrupt,
            EventKind::TableSync { .. } if event.thread.is_some() => What::TableSync,
            EventKind::PageStatus { .. } => What::PageStatus,
            EventKind::Told { pages, .. } => {
                let told = Counted::new(What::Told, event);
                seen.extend(std::iter::repeat_n(told, pages as usize));
                continue;
            }
            _ => continue,
        };
        seen.push(Counted::new(what, event));
    }
    seen.sort_by_key(|observation| observation.seq);
    seen
}

fn flush_observation(operation: &Operation<'_>) -> Option<Counted> {
    let Operation::Flush(flush) = operation else { return None };
    let (what, event) = match *flush {
        FlushPart::Sent { send, .. } => (What::Shootdown, send),
        FlushPart::Local { local } => (What::LocalFlush, local),
        FlushPart::Tlbi { tlbi, operation } if operation.is_broadcast() => (What::Shootdown, tlbi),
        FlushPart::Tlbi { tlbi, .. } => (What::LocalFlush, tlbi),
    };
    Some(Counted::new(what, event))
}

/// Adds the exceptions, each joined with the end of its handler where that was visible. A real
/// kernel shows no copies, but it shows the class of each fault: a fault that copied counts as a
/// copy.
fn faults(program: &Program, events: &[Event], seen: &mut Vec<Counted>) {
    let mut open: BTreeMap<CpuId, usize> = BTreeMap::new();
    let mut copied: Option<CpuId> = None;
    for event in events.iter().filter(|event| event.thread.is_some()) {
        match event.kind {
            EventKind::Copy { .. } => copied = Some(event.cpu),
            EventKind::Fault { page, .. } => {
                open.remove(&event.cpu);
                copied = copied.filter(|cpu| *cpu != event.cpu);
                if program.owns(page) {
                    open.insert(event.cpu, seen.len());
                    seen.push(Counted::new(What::Fault, event));
                }
            }
            EventKind::FaultDone { class, exception: true, .. } => {
                if let Some(at) = open.remove(&event.cpu) {
                    let fault = &mut seen[at];
                    fault.class = Some(class);
                    fault.site = event.site.or(fault.site);
                    fault.verdict = event.verdict.or(fault.verdict);
                    if class == FaultClass::CowCopy && copied != Some(event.cpu) {
                        let copy = Counted::new(What::Copy, event);
                        seen.push(Counted { site: None, verdict: None, ..copy });
                    }
                }
            }
            _ => {}
        }
    }
}

/// The faults of a round by class; `None` if the target showed no class for any fault.
pub fn faults_by_class(seen: &[Counted]) -> Option<BTreeMap<FaultClass, u64>> {
    let mut classes = BTreeMap::new();
    let faults = || seen.iter().filter(|observation| observation.what == What::Fault);
    if faults().next().is_some() && faults().all(|fault| fault.class.is_none()) {
        return None;
    }
    for fault in faults() {
        *classes.entry(fault.class.unwrap_or(FaultClass::Unknown)).or_insert(0) += 1;
    }
    Some(classes)
}

/// How a counter gets its value.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Fold {
    /// The number of these events.
    Every(&'static [What]),
    /// The difference of a line of `/proc/vmstat` if the target has it, else the number of these
    /// events.
    Kernel(&'static str, What),
    /// The number of these events that were needless.
    Needless(What),
    /// `ru_minflt` of the round.
    MinorFaults,
    /// `ru_majflt` of the round.
    MajorFaults,
    /// The median of the round's `measure` blocks.
    Cycles,
}

impl Fold {
    /// The value in one round; `None` if the round does not show it.
    fn value(self, round: &Round, seen: &[Counted]) -> Option<u64> {
        match self {
            Fold::Kernel(line, what) => match round.kernel_counters.get(line) {
                Some(difference) => Some(*difference),
                None => {
                    Some(seen.iter().filter(|observation| observation.what == what).count() as u64)
                }
            },
            // A fault of unknown class may have copied.
            Fold::Every([What::Copy])
                if seen.iter().any(|seen| seen.class == Some(FaultClass::Unknown)) =>
            {
                None
            }
            Fold::Every(whats) => {
                Some(seen.iter().filter(|observation| whats.contains(&observation.what)).count()
                    as u64)
            }
            Fold::Needless(what) => seen
                .iter()
                .filter(|observation| observation.what == what)
                .map(|observation| Some(u64::from(observation.verdict?.is_needless())))
                .sum(),
            Fold::MinorFaults => round.minor_faults,
            Fold::MajorFaults => round.major_faults,
            Fold::Cycles => median_cycles(&round.cycles),
        }
    }
}

/// The median of the blocks' cycles (the upper one of two); `None` without blocks.
pub(crate) fn median_cycles(blocks: &[TimedBlock]) -> Option<u64> {
    let mut sorted: Vec<u64> = blocks.iter().map(|block| block.cycles).collect();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).copied()
}

/// Declares [`Counter`].
macro_rules! counters {
    ($($name:ident = $text:literal, $unit:literal, $column:expr, $fold:expr, $doc:literal;)*) => {
        /// A counter.
        #[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
        #[serde(rename_all = "snake_case")]
        pub enum Counter {
            $(#[doc = $doc] $name,)*
        }

        impl Counter {
            /// All counters, in the order of reports.
            pub const ALL: &'static [Counter] = &[$(Counter::$name),*];

            /// The name in JSON and docs.
            pub const fn name(self) -> &'static str {
                match self { $(Counter::$name => $text,)* }
            }

            /// The unit of what it counts.
            pub const fn unit(self) -> &'static str {
                match self { $(Counter::$name => $unit,)* }
            }

            /// The heading of its column in the compare table, if it has one.
            pub const fn column(self) -> Option<&'static str> {
                match self { $(Counter::$name => $column,)* }
            }

            /// How it gets its value.
            pub const fn fold(self) -> Fold {
                match self { $(Counter::$name => $fold,)* }
            }

            /// One line of explanation.
            pub const fn doc(self) -> &'static str {
                match self { $(Counter::$name => $doc,)* }
            }
        }
    };
}

counters! {
    Faults = "faults", "faults", Some("faults"), Fold::Every(&[What::Fault]),
        "page-fault exceptions of the scenario's threads on its pages";
    MinorFaults = "minor_faults", "faults", Some("minor\nfaults"), Fold::MinorFaults,
        "minor faults as getrusage counts them, those without exception included";
    MajorFaults = "major_faults", "faults", Some("major\nfaults"), Fold::MajorFaults,
        "major faults as getrusage counts them";
    Retries = "retries", "tries", Some("retries"), Fold::Every(&[What::Retry]),
        "tries of a fault that released its lock to be retried (VM_FAULT_RETRY)";
    Copies = "copies", "pages", Some("copies"), Fold::Every(&[What::Copy]),
        "pages copied by a fault";
    Zeroings = "zeroings", "pages", Some("zeroings"), Fold::Every(&[What::Zeroing]),
        "frames filled with zeros";
    PagesIn = "pages_in", "pages", None, Fold::Kernel("pswpin", What::PageIn),
        "pages read from swap";
    PagesOut = "pages_out", "pages", None, Fold::Kernel("pswpout", What::PageOut),
        "pages written to swap, not only marked as zeros";
    Flushes = "flushes", "flushes", Some("flushes"),
        Fold::Every(&[What::Shootdown, What::LocalFlush]),
        "TLB flushes that the scenario's threads issued";
    Shootdowns = "shootdowns", "flushes", Some("shootdowns"), Fold::Every(&[What::Shootdown]),
        "flushes sent to other CPUs (tlb_flush reason 4)";
    LocalFlushes = "local_flushes", "flushes", None, Fold::Every(&[What::LocalFlush]),
        "flushes on the initiator's CPU only";
    Interrupts = "interrupts", "interrupts", Some("interrupts"), Fold::Every(&[What::Interrupt]),
        "shootdowns received by CPUs other than the initiator's";
    TableSyncs = "table_syncs", "interrupts", None, Fold::Every(&[What::TableSync]),
        "interrupts to wait for lockless table walks (tlb_remove_table_sync_one)";
    ToldPages = "told_pages", "pages", None, Fold::Every(&[What::Told]),
        "pages reported as stored to (by scans, userfaultfd or SIGSEGV)";
    PageStatuses = "page_statuses", "pages", None, Fold::Every(&[What::PageStatus]),
        "pages for which move_pages answered with a node or an error";
    NeedlessFaults = "needless_faults", "faults", Some("needless\nfaults"), Fold::Needless(What::Fault),
        "faults that could have been avoided";
    NeedlessRetries = "needless_retries", "tries", None, Fold::Needless(What::Retry),
        "retries of faults whose earlier try had already mapped the page";
    NeedlessCopies = "needless_copies", "pages", Some("needless\ncopies"), Fold::Needless(What::Copy),
        "copies of pages that nobody else could observe";
    NeedlessShootdowns = "needless_shootdowns", "flushes", Some("needless\nshootdowns"),
        Fold::Needless(What::Shootdown),
        "shootdowns that covered no stale translation";
    NeedlessLocalFlushes = "needless_local_flushes", "flushes", None,
        Fold::Needless(What::LocalFlush),
        "local flushes that covered no stale translation";
    NeedlessInterrupts = "needless_interrupts", "interrupts", None,
        Fold::Needless(What::Interrupt),
        "interrupts of CPUs that could hold no stale translation";
    Cycles = "cycles", "cycles", Some("cycles"), Fold::Cycles,
        "cycles of one measure block (median of the round's blocks)";
}

impl Counter {
    /// The counter with this name.
    pub fn by_name(name: &str) -> Option<Counter> {
        Counter::ALL.iter().copied().find(|counter| counter.name() == name)
    }
}

/// The values of all counters in one round.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters([Option<u64>; Counter::ALL.len()]);

impl Counter {
    /// Whether the counter can be split by process. It can if it counts events, each caused by a
    /// thread. (An interrupt comes to a CPU.)
    pub const fn is_by_process(self) -> bool {
        match self.fold() {
            Fold::Every([What::Interrupt]) | Fold::Needless(What::Interrupt) => false,
            Fold::Every(_) | Fold::Needless(_) => true,
            Fold::Kernel(..) | Fold::MinorFaults | Fold::MajorFaults | Fold::Cycles => false,
        }
    }
}

impl Counters {
    /// The values of one process's part of a round; `None` also for counters that
    /// [`Counter::is_by_process`] excludes.
    pub fn of_process(program: &Program, process: ProcessId, seen: &[Counted]) -> Counters {
        let its = |counted: &&Counted| {
            let thread = counted.thread.and_then(|thread| program.threads.get(thread.index()));
            thread.is_some_and(|thread| thread.process == process)
        };
        let own: Vec<Counted> = seen.iter().filter(its).copied().collect();
        let mut counters = Counters::default();
        for &counter in Counter::ALL.iter().filter(|counter| counter.is_by_process()) {
            counters.set(counter, counter.fold().value(&Round::default(), &own));
        }
        counters
    }

    /// The values that `round` shows.
    pub fn of(round: &Round, seen: &[Counted]) -> Counters {
        let mut counters = Counters::default();
        for &counter in Counter::ALL {
            counters.set(counter, counter.fold().value(round, seen));
        }
        counters
    }

    /// One value; `None`: unknown.
    pub fn get(&self, counter: Counter) -> Option<u64> {
        self.0[counter as usize]
    }

    /// Replaces one value.
    pub fn set(&mut self, counter: Counter, value: Option<u64>) {
        self.0[counter as usize] = value;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::account::tests::{finding_round, program};
    use crate::addr::ThreadId;
    use crate::event::FaultCode;

    #[test]
    fn names_are_unique_and_resolve() {
        for &counter in Counter::ALL {
            assert_eq!(Counter::by_name(counter.name()), Some(counter));
        }
        assert_eq!(Counter::by_name("faulty"), None);
    }

    #[test]
    fn the_initiators_own_receive_is_no_interrupt() {
        let round = finding_round();
        let seen = observe(&program(), &round.events, TraceOrder::LocalFirst);
        let counters = Counters::of(&round, &seen);
        assert_eq!(counters.get(Counter::Shootdowns), Some(2));
        assert_eq!(counters.get(Counter::Interrupts), Some(2));
        assert_eq!(counters.get(Counter::LocalFlushes), Some(0));
        assert_eq!(counters.get(Counter::NeedlessShootdowns), Some(1));
    }

    #[test]
    fn a_real_kernels_copies_are_told_by_its_faults() {
        let counted = |class| {
            let code = FaultCode::user(true, true);
            let page = program().areas[0].range.start;
            let done = EventKind::FaultDone { page, class, major: false, exception: true };
            let kinds = [EventKind::Fault { page, code }, done];
            let mut events = finding_round().events[..2].to_vec();
            for (event, kind) in events.iter_mut().zip(kinds) {
                let thread = Some(ThreadId(0));
                *event = Event { kind, thread, verdict: None, site: None, ..*event };
            }
            let round = Round { events, ..Round::default() };
            let seen = observe(&program(), &round.events, TraceOrder::LocalFirst);
            let counters = Counters::of(&round, &seen);
            (counters.get(Counter::Copies), counters.get(Counter::NeedlessCopies))
        };
        assert_eq!(counted(FaultClass::CowCopy), (Some(1), None), "its verdict is not known");
        assert_eq!(counted(FaultClass::Reuse), (Some(0), Some(0)));
        assert_eq!(counted(FaultClass::Unknown).0, None, "it may have copied");
    }

    #[test]
    fn each_process_has_its_own_figures() {
        use crate::program::Thread;
        let mut round = finding_round();
        let seen = observe(&program(), &round.events, TraceOrder::LocalFirst);
        let mut program = program();
        let child = Thread { process: ProcessId(1), ..Thread::new("child", CpuId(1), vec![]) };
        program.threads = vec![Thread::new("main", CpuId(0), vec![]), child];
        let of = |process, seen: &[Counted]| Counters::of_process(&program, process, seen);
        let (main, other) = (of(ProcessId::FIRST, &seen), of(ProcessId(1), &seen));
        assert_eq!(main.get(Counter::Shootdowns), Some(2));
        assert_eq!(other.get(Counter::Shootdowns), Some(0));
        for counter in [Counter::MinorFaults, Counter::PagesIn, Counter::Interrupts] {
            assert_eq!(main.get(counter), None, "{}", counter.name());
        }
        round.events.iter_mut().for_each(|event| event.thread = Some(ThreadId(1)));
        let seen = observe(&program, &round.events, TraceOrder::LocalFirst);
        assert_eq!(of(ProcessId(1), &seen).get(Counter::Shootdowns), Some(2));
    }

    #[test]
    fn a_missing_verdict_makes_the_needless_count_unknown() {
        let mut round = finding_round();
        for event in &mut round.events {
            event.verdict = None;
        }
        let seen = observe(&program(), &round.events, TraceOrder::LocalFirst);
        let counters = Counters::of(&round, &seen);
        assert_eq!(counters.get(Counter::NeedlessShootdowns), None);
        assert_eq!(counters.get(Counter::NeedlessCopies), Some(0), "no copy, so none needless");
        assert_eq!(counters.get(Counter::Cycles), None);
    }
}

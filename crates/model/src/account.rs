//! Accounts: what a run amounts to, round by round and as a whole.
//!
//! An account is a pure fold of a target's events. It holds every counter of every round, the
//! rounds grouped by canonical sequence, the needless findings, and for each thing that is not
//! known the reason why.

use crate::addr::ThreadId;
use crate::counters::{
    Counter, Counters, FAULTS_BY_CLASS, Fold, Observation, What, faults_by_class, observe,
};
use crate::event::FaultClass;
use crate::program::Program;
use crate::run::{Round, TargetRun};
use crate::sequence::{Sequence, TraceOrder};
use crate::verdict::Finding;
use std::collections::BTreeMap;

/// Faults by class.
pub type Classes = BTreeMap<FaultClass, u64>;

/// One round, accounted for.
#[derive(Clone, Debug, PartialEq)]
pub struct RoundAccount {
    /// The round's number.
    pub index: u32,
    /// Its counters.
    pub counters: Counters,
    /// Its faults by class; `None`: unknown.
    pub classes: Option<Classes>,
    /// Its canonical sequence; `None` if the target has no events.
    pub sequence: Option<Sequence>,
    /// What happened, with verdicts.
    pub seen: Vec<Observation>,
    /// Cycles of each `measure` block.
    pub cycles: Vec<u64>,
}

/// A target's run, accounted for.
#[derive(Clone, Debug, PartialEq)]
pub struct Account {
    /// Its rounds.
    pub rounds: Vec<RoundAccount>,
    /// For each counter without value, why. Keys are counter names, [`FAULTS_BY_CLASS`] and
    /// [`SEQUENCE`].
    pub unknown: BTreeMap<String, String>,
}

/// The name under which targets list that they have no event sequence.
pub const SEQUENCE: &str = "sequence";

/// The name under which targets list that they have no events at all.
pub const EVENTS: &str = "events";

/// What a target that does not show `name` cannot show either.
fn hides(name: &str) -> Vec<&'static str> {
    let counters = |wanted: fn(&[What]) -> bool| {
        let counted = move |counter: &&Counter| match counter.fold() {
            Fold::Every(whats) => wanted(whats),
            Fold::Kernel(_, what) => wanted(&[what]),
            Fold::Needless(what) => wanted(&[what]),
            Fold::MinorFaults | Fold::MajorFaults | Fold::Cycles => false,
        };
        Counter::ALL.iter().filter(counted).map(|counter| counter.name())
    };
    match name {
        EVENTS => counters(|_| true).chain([FAULTS_BY_CLASS, SEQUENCE]).collect(),
        "faults" => {
            counters(|whats| whats == [What::Fault]).chain([FAULTS_BY_CLASS, SEQUENCE]).collect()
        }
        "flushes" | "shootdowns" => {
            const FLUSHES: [What; 3] = [What::Shootdown, What::LocalFlush, What::Interrupt];
            counters(|whats| whats.iter().any(|what| FLUSHES.contains(what)))
                .chain([SEQUENCE])
                .collect()
        }
        "copies" => vec![Counter::NeedlessCopies.name()],
        "interrupts" => vec![Counter::NeedlessInterrupts.name()],
        _ => Vec::new(),
    }
}

/// What the target cannot show, with what follows from that.
fn unseen(run: &TargetRun) -> BTreeMap<String, String> {
    let mut all = run.unseen.clone();
    for (name, reason) in &run.unseen {
        for hidden in hides(name) {
            if !counted_by_kernel(run, hidden) {
                all.entry(hidden.to_owned()).or_insert_with(|| reason.clone());
            }
        }
    }
    all
}

/// Whether every round has the counter from the kernel itself, without any event.
fn counted_by_kernel(run: &TargetRun, name: &str) -> bool {
    let Some(Fold::Kernel(line, _)) = Counter::by_name(name).map(Counter::fold) else {
        return false;
    };
    run.rounds.iter().all(|round| round.kernel_counters.contains_key(line))
}

/// How a figure is spread over the rounds.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Spread {
    /// The most frequent value (of equally frequent ones the smallest).
    pub mode: u64,
    /// Rounds that have it.
    pub equal: usize,
    /// Rounds in all.
    pub of: usize,
    /// The smallest value.
    pub min: u64,
    /// The largest value.
    pub max: u64,
    /// The middle value (the upper one of two).
    pub median: u64,
}

impl Spread {
    /// The spread of `values`; `None` without values.
    pub fn of(values: impl IntoIterator<Item = u64>) -> Option<Spread> {
        let mut sorted: Vec<u64> = values.into_iter().collect();
        sorted.sort_unstable();
        let (&min, &max) = (sorted.first()?, sorted.last()?);
        let runs = sorted.chunk_by(|a, b| a == b);
        let most = runs.rev().max_by_key(|run| run.len())?;
        let (mode, equal, of) = (most[0], most.len(), sorted.len());
        Some(Spread { mode, equal, of, min, max, median: sorted[of / 2] })
    }

    /// Whether every round has the same value.
    pub fn is_constant(&self) -> bool {
        self.min == self.max
    }
}

/// Rounds that share a value.
#[derive(Clone, Debug, PartialEq)]
pub struct Group<T> {
    /// What they share.
    pub value: T,
    /// Their positions in the account, ascending.
    pub rounds: Vec<usize>,
}

impl Account {
    /// The account of a run of `program`.
    pub fn of(program: &Program, run: &TargetRun) -> Account {
        let order = TraceOrder::of(run.rounds.iter().map(|round| round.events.as_slice()));
        let unknown = unseen(run);
        let account = |round| RoundAccount::of(program, round, order, &unknown);
        let mut account = Account { rounds: run.rounds.iter().map(account).collect(), unknown };
        account.explain_unknown();
        account
    }

    /// Names a reason for every counter that has no value in some round.
    fn explain_unknown(&mut self) {
        for &counter in Counter::ALL {
            let missing = self.rounds.iter().any(|round| round.counters.get(counter).is_none());
            if missing && !self.unknown.contains_key(counter.name()) {
                let reason = match counter.fold() {
                    Fold::Needless(_) => "the target gives no verdict",
                    Fold::Cycles => "nothing was timed",
                    _ => "the target does not show it",
                };
                self.unknown.insert(counter.name().to_owned(), reason.to_owned());
            }
        }
        if self.rounds.iter().any(|round| round.classes.is_none()) {
            let reason = "the target does not tell faults apart";
            self.unknown.entry(FAULTS_BY_CLASS.to_owned()).or_insert_with(|| reason.to_owned());
        }
    }

    /// The counter's spread over the rounds where it is known; `None` if there are none.
    /// [`Spread::of`] tells how many there are.
    pub fn spread(&self, counter: Counter) -> Option<Spread> {
        Spread::of(self.rounds.iter().filter_map(|round| round.counters.get(counter)))
    }

    /// The counter's most frequent value.
    pub fn typical(&self, counter: Counter) -> Option<u64> {
        self.spread(counter).map(|spread| spread.mode)
    }

    /// The most frequent faults by class, with the number of rounds that have it.
    pub fn typical_classes(&self) -> Option<(&Classes, usize)> {
        let classes = self.rounds.iter().filter_map(|round| round.classes.as_ref()).collect();
        let group = group(classes).into_iter().next()?;
        Some((group.value, group.rounds.len()))
    }

    /// The rounds by sequence, most frequent first; empty if the target has no events.
    pub fn sequences(&self) -> Vec<Group<&Sequence>> {
        let sequences: Option<Vec<&Sequence>> =
            self.rounds.iter().map(|round| round.sequence.as_ref()).collect();
        group(sequences.unwrap_or_default())
    }

    /// Every needless finding with how often it occurs in all rounds, most frequent first.
    pub fn findings(&self) -> Vec<(Finding, u64)> {
        let mut counts: BTreeMap<Finding, u64> = BTreeMap::new();
        for observation in self.rounds.iter().flat_map(|round| &round.seen) {
            if let Some(finding) = observation.finding() {
                *counts.entry(finding).or_insert(0) += 1;
            }
        }
        let mut findings: Vec<_> = counts.into_iter().collect();
        findings.sort_by_key(|(finding, count)| (finding.what, std::cmp::Reverse(*count)));
        findings
    }

    /// All cycles measured, in order.
    pub fn cycles(&self) -> Vec<u64> {
        self.rounds.iter().flat_map(|round| round.cycles.iter().copied()).collect()
    }
}

/// Positions of equal values, most frequent first, then in order of appearance.
fn group<T: Ord + Copy>(values: Vec<T>) -> Vec<Group<T>> {
    let mut groups: BTreeMap<T, Vec<usize>> = BTreeMap::new();
    for (at, value) in values.into_iter().enumerate() {
        groups.entry(value).or_default().push(at);
    }
    let mut groups: Vec<_> =
        groups.into_iter().map(|(value, rounds)| Group { value, rounds }).collect();
    groups.sort_by_key(|group| (std::cmp::Reverse(group.rounds.len()), group.rounds[0]));
    groups
}

impl RoundAccount {
    fn of(
        program: &Program,
        round: &Round,
        order: TraceOrder,
        unseen: &BTreeMap<String, String>,
    ) -> RoundAccount {
        let seen = observe(program, &round.events, order);
        let mut counters = Counters::of(round, &seen);
        for &counter in Counter::ALL {
            if unseen.contains_key(counter.name()) {
                counters.set(counter, None);
            }
        }
        let shows = |name: &str| !unseen.contains_key(name);
        RoundAccount {
            index: round.index,
            counters,
            classes: faults_by_class(&seen).filter(|_| shows(FAULTS_BY_CLASS) && shows("faults")),
            sequence: shows(SEQUENCE).then(|| Sequence::of(program, &round.events, order)),
            seen,
            cycles: round.cycles.clone(),
        }
    }

    /// Minor and major faults, where known.
    pub(crate) fn rusage(&self) -> Option<(u64, u64)> {
        Some((self.counters.get(Counter::MinorFaults)?, self.counters.get(Counter::MajorFaults)?))
    }

    /// Whether the two rounds agree in the sequence and, where both know them, minor and major
    /// faults. `None` if a sequence is missing.
    pub fn agrees(&self, other: &RoundAccount) -> Option<bool> {
        let same = |counter| match (self.counters.get(counter), other.counters.get(counter)) {
            (Some(a), Some(b)) => a == b,
            _ => true,
        };
        let sequences = self.sequence.as_ref()? == other.sequence.as_ref()?;
        Some(sequences && same(Counter::MinorFaults) && same(Counter::MajorFaults))
    }
}

/// The thread's name in the scenario; `-` for anybody else.
pub fn thread_name(program: &Program, thread: Option<ThreadId>) -> &str {
    thread.and_then(|id| program.threads.get(id.index())).map_or("-", |thread| &thread.name)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::addr::{CpuId, PageRange, Vpn};
    use crate::event::{Event, EventKind, FaultCode, FlushReason};
    use crate::program::{Area, MachineNeeds, PROGRAM_VERSION};
    use crate::site::Site;
    use crate::verdict::{Judgement, Needless, Reason, Verdict};

    /// A program with 64 pages at byte 0 and the marks of the captures.
    pub(crate) fn program() -> Program {
        Program {
            version: PROGRAM_VERSION,
            name: "made-up".into(),
            machine: MachineNeeds::default(),
            areas: vec![Area { name: "heap".into(), range: PageRange::new(Vpn(0), 64) }],
            threads: Vec::new(),
            marks: vec!["unmap".into(), "rw".into(), "w".into()],
            barriers: Vec::new(),
            op_texts: Vec::new(),
            slots: 0,
        }
    }

    /// Events from `cpu F reason pages` (`f`: of a stranger), `cpu P page code`, `cpu M mark`.
    pub(crate) fn events(raw: &str) -> Vec<Event> {
        let lines = raw.split(',').filter(|line| !line.trim().is_empty());
        lines.enumerate().map(|(seq, line)| event(seq as u64, line)).collect()
    }

    fn event(seq: u64, line: &str) -> Event {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |at: usize| words[at].parse::<i64>().unwrap();
        let kind = match words[1] {
            "P" => {
                EventKind::Fault { page: Vpn(number(2) as u64), code: FaultCode(number(3) as u8) }
            }
            "M" => EventKind::Mark { mark: number(2) as u16 },
            _ => EventKind::Flush {
                reason: FlushReason::from_number(number(2) as u32).unwrap(),
                pages: u32::try_from(number(3)).ok(),
                asked: None,
            },
        };
        let cpu = CpuId(number(0) as u16);
        let thread = (words[1] != "f").then_some(ThreadId(cpu.0));
        Event { seq, time_ns: 0, cpu, thread, op: None, site: None, kind, verdict: None }
    }

    /// Two shootdowns as 5.10 traces them, the first needless, each received by CPU 1.
    pub(crate) fn finding_round() -> Round {
        let mut events = events("0 F 3 -1, 0 F 4 -1, 1 F 1 -1, 0 F 3 1, 0 F 4 1, 1 F 1 1, 0 F 1 0");
        events[1].site = Some(Site::FlushTlbBatchedPending);
        events[1].verdict = Some(Verdict::new(Judgement::Needless, Reason::PendingAlreadyFlushed));
        events[4].verdict = Some(Verdict::new(Judgement::Needed, Reason::StaleTranslations));
        Round { events, ..Round::default() }
    }

    pub(crate) fn run(rounds: Vec<Round>) -> TargetRun {
        TargetRun { rounds, ..TargetRun::default() }
    }

    #[test]
    fn spread_finds_the_mode() {
        let spread = Spread::of([4, 2, 2, 9]).unwrap();
        assert_eq!((spread.mode, spread.equal, spread.of), (2, 2, 4));
        assert_eq!((spread.min, spread.max, spread.median), (2, 9, 4));
        assert_eq!(Spread::of([7, 5]).unwrap().mode, 5, "of equally frequent ones the smallest");
        assert_eq!(Spread::of([]), None);
    }

    #[test]
    fn what_the_target_cannot_show_is_unknown_with_its_reason() {
        let mut run = run(vec![finding_round()]);
        run.unseen.insert("copies".into(), "no tracepoint".into());
        let account = Account::of(&program(), &run);
        assert_eq!(account.typical(Counter::Copies), None);
        assert_eq!(account.unknown["copies"], "no tracepoint");
        assert_eq!(account.unknown["cycles"], "nothing was timed");
        assert_eq!(account.typical(Counter::Shootdowns), Some(2));
    }

    #[test]
    fn faults_without_class_are_not_classed() {
        let faults = Round { events: events("0 P 0 4, 0 P 1 4"), ..Round::default() };
        let account = Account::of(&program(), &run(vec![faults]));
        assert_eq!(account.typical(Counter::Faults), Some(2));
        assert_eq!(account.typical_classes(), None);
        assert!(account.unknown.contains_key(FAULTS_BY_CLASS));
    }

    #[test]
    fn findings_name_function_and_reason() {
        let account = Account::of(&program(), &run(vec![finding_round(), finding_round()]));
        let finding = Finding {
            what: Needless::Shootdown,
            site: Some(Site::FlushTlbBatchedPending),
            reason: Reason::PendingAlreadyFlushed,
        };
        assert_eq!(account.findings(), [(finding, 2)]);
    }

    #[test]
    fn a_target_without_events_knows_nothing_that_follows_from_them() {
        let mut blind = run(vec![Round { minor_faults: Some(1), ..Round::default() }]);
        blind.unseen.insert(EVENTS.into(), "not permitted".into());
        let account = Account::of(&program(), &blind);
        for &counter in Counter::ALL {
            let known = counter == Counter::MinorFaults;
            assert_eq!(account.typical(counter).is_some(), known, "{}", counter.name());
        }
        assert!(account.sequences().is_empty());
    }

    #[test]
    fn without_flushes_there_is_no_sequence() {
        let mut half = run(vec![Round { events: events("0 P 0 4"), ..Round::default() }]);
        half.unseen.insert("flushes".into(), "no tracepoint".into());
        let account = Account::of(&program(), &half);
        assert_eq!(account.typical(Counter::Faults), Some(1));
        assert_eq!(account.typical(Counter::Shootdowns), None);
        assert_eq!(account.unknown[SEQUENCE], "no tracepoint");
    }
}

//! Accounts: what a run amounts to, round by round and as a whole.
//!
//! An account is a pure fold of a target's events. It holds every counter of every round, the
//! rounds grouped by canonical sequence, the needless findings, and a reason for each value that is
//! not known.

use crate::addr::{ProcessId, ThreadId};
use crate::agreement::SwapCounts;
use crate::counters::{
    Counted, Counter, Counters, FAULTS_BY_CLASS, Fold, What, faults_by_class, median_cycles,
    observe,
};
use crate::event::{Event, EventKind, FaultClass};
use crate::fold::{Folded, Folding};
use crate::instructions::{Executed, Phases};
use crate::program::Program;
use crate::run::{Round, TargetRun, TimedBlock};
use crate::sequence::{Sequence, TraceOrder, operations};
use crate::verdict::Finding;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Faults by class.
pub type Classes = BTreeMap<FaultClass, u64>;

/// One round, accounted for.
#[derive(Clone, Debug, PartialEq)]
pub struct RoundAccount {
    /// The round's counters except [`Counter::Cycles`], which [`Account::value`] gives.
    pub counters: Counters,
    /// The counters of each process, in the program's order; empty if there is only one process.
    pub processes: Vec<Counters>,
    /// The round's faults by class; `None`: unknown.
    pub classes: Option<Classes>,
    /// The round's canonical sequence; `None` if the target has no events.
    pub sequence: Option<Sequence>,
    /// Whether the target shows the interrupts of [`crate::event::EventKind::TableSync`].
    pub syncs: bool,
    /// Positions in the sequence before which a processor may take a spurious fault
    /// ([`EventKind::MayFault`]).
    pub may_fault: Vec<usize>,
    /// What happened, with verdicts. Events are numbered from the round's first one.
    pub seen: Vec<Counted>,
    /// The counted instructions by phase; empty if nothing counts instructions.
    pub instructions: Phases,
    /// The instructions that flushes executed.
    pub executed: Executed,
    /// Pages swapped out and in, as a real kernel counted them.
    pub counted: SwapCounts,
    /// Pages swapped out and in, by the round's events.
    pub modelled: SwapCounts,
}

/// A kind of round: rounds whose accounts are equal.
#[derive(Clone, Debug, PartialEq)]
pub struct Kind<T = RoundAccount> {
    /// The account that these rounds share.
    pub account: T,
    /// The number of these rounds.
    pub rounds: usize,
    /// The position of the first of these rounds.
    pub first: usize,
    /// The round number of the first of these rounds.
    pub index: u32,
    /// [`Event::seq`] of the first event of the first of these rounds.
    pub first_seq: u64,
}

/// One round of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct RoundAt {
    /// The round's number.
    pub index: u32,
    /// The round's kind: a position in [`Account::kinds`].
    pub kind: usize,
    /// [`Event::seq`] of the round's first event.
    pub first_seq: u64,
    /// The time that each `measure` block took.
    pub cycles: Vec<TimedBlock>,
}

/// The account of a target's run.
#[derive(Clone, Debug, PartialEq)]
pub struct Account {
    /// The kinds of rounds, in the order of their first rounds.
    pub kinds: Vec<Kind>,
    /// The number of rounds.
    pub total: usize,
    /// Every round; empty if only kinds were asked for.
    pub rounds: Vec<RoundAt>,
    /// For each counter without a value, the reason. Keys are counter names, [`FAULTS_BY_CLASS`]
    /// and [`SEQUENCE`].
    pub unknown: BTreeMap<String, String>,
    /// Whether the target can show cycles.
    timed: bool,
}

/// The key in a target's list of unseen things that says: there is no event sequence.
pub const SEQUENCE: &str = "sequence";

/// The key in a target's list of unseen things that says: there are no events at all.
pub const EVENTS: &str = "events";

/// The other things that a target cannot show if it does not show `name`.
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
        "retries" => vec![Counter::NeedlessRetries.name()],
        "interrupts" => vec![Counter::NeedlessInterrupts.name()],
        _ => Vec::new(),
    }
}

/// Everything that the target cannot show: what it lists, and what follows from that.
fn unseen(told: &BTreeMap<String, String>, kinds: &[Folded]) -> BTreeMap<String, String> {
    let mut all = told.clone();
    for (name, reason) in told {
        for hidden in hides(name) {
            if !counted_by_kernel(kinds, hidden) {
                all.entry(hidden.to_owned()).or_insert_with(|| reason.clone());
            }
        }
    }
    all
}

/// Whether the kernel itself counts this in every round, so that no event is needed.
fn counted_by_kernel(kinds: &[Folded], name: &str) -> bool {
    let Some(Fold::Kernel(line, _)) = Counter::by_name(name).map(Counter::fold) else {
        return false;
    };
    kinds.iter().all(|kind| kind.round.kernel_counters.contains_key(line))
}

/// How a figure is spread over the rounds.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Spread {
    /// The most frequent value; the smallest one if several are equally frequent.
    pub mode: u64,
    /// The number of rounds that have the mode.
    pub equal: usize,
    /// The number of rounds.
    pub of: usize,
    /// The smallest value.
    pub min: u64,
    /// The largest value.
    pub max: u64,
    /// The middle value (the upper one of two).
    pub median: u64,
}

impl Spread {
    /// The spread of `values`; `None` if there are none.
    pub fn of(values: impl IntoIterator<Item = u64>) -> Option<Spread> {
        Spread::weighed(values.into_iter().map(|value| (value, 1)))
    }

    /// The spread of values, each with the number of rounds that have it.
    fn weighed(values: impl IntoIterator<Item = (u64, usize)>) -> Option<Spread> {
        let mut counts: BTreeMap<u64, usize> = BTreeMap::new();
        for (value, rounds) in values {
            *counts.entry(value).or_default() += rounds;
        }
        let (&min, &max) = (counts.keys().next()?, counts.keys().next_back()?);
        let (&mode, &equal) = counts.iter().rev().max_by_key(|(_, rounds)| **rounds)?;
        let of = counts.values().sum();
        let mut before = 0;
        let middle = counts.iter().find(|(_, rounds)| {
            before += **rounds;
            before > of / 2
        });
        Some(Spread { mode, equal, of, min, max, median: middle.map_or(max, |(value, _)| *value) })
    }

    /// Whether every round has the same value.
    pub fn is_constant(&self) -> bool {
        self.min == self.max
    }
}

/// Rounds that share a value.
#[derive(Clone, Debug, PartialEq)]
pub struct Group<T> {
    /// The shared value.
    pub value: T,
    /// The number of these rounds.
    pub rounds: usize,
    /// The position of the first of these rounds.
    pub first: usize,
}

impl Account {
    /// The account of a run of `program`, with every round kept.
    pub fn of(program: &Program, run: &TargetRun) -> Account {
        let mut folding = Folding::new(program, true);
        run.rounds.iter().for_each(|round| folding.add(round));
        folding.finish(&run.unseen)
    }

    pub(crate) fn of_kinds(
        program: &Program,
        kinds: Vec<Folded>,
        rounds: Vec<RoundAt>,
        total: usize,
        told: &BTreeMap<String, String>,
    ) -> Account {
        let order = kinds.iter().map(|kind| (kind.round.events.as_slice(), kind.place.rounds));
        let order = TraceOrder::weighed(order);
        let unknown = unseen(told, &kinds);
        let timed = !unknown.contains_key(Counter::Cycles.name());
        let kinds = kinds.into_iter().map(|Folded { round, place, .. }| {
            let account = RoundAccount::of(program, &round, order, &unknown);
            let Kind { rounds, first, index, first_seq, .. } = place;
            Kind { account, rounds, first, index, first_seq }
        });
        let mut account = Account { kinds: kinds.collect(), total, rounds, unknown, timed };
        account.explain_unknown();
        account
    }

    /// Adds a reason for every counter that has no value in some round.
    fn explain_unknown(&mut self) {
        for &counter in Counter::ALL {
            let missing = match counter {
                Counter::Cycles => {
                    self.rounds.len() < self.total
                        || self.rounds.iter().any(|round| round.cycles.is_empty())
                }
                _ => self.kinds.iter().any(|kind| kind.account.counters.get(counter).is_none()),
            };
            if missing && !self.unknown.contains_key(counter.name()) {
                let reason = match counter.fold() {
                    Fold::Needless(_) => "the target gives no verdict",
                    Fold::Cycles => "nothing was timed",
                    _ => "the target does not show it",
                };
                self.unknown.insert(counter.name().to_owned(), reason.to_owned());
            }
        }
        if self.kinds.iter().any(|kind| kind.account.classes.is_none()) {
            let reason = "the target does not distinguish faults";
            self.unknown.entry(FAULTS_BY_CLASS.to_owned()).or_insert_with(|| reason.to_owned());
        }
    }

    /// The account of the round at this position, if every round was kept.
    pub fn round(&self, at: usize) -> Option<&RoundAccount> {
        Some(&self.kinds[self.rounds.get(at)?.kind].account)
    }

    /// Whether the flush instructions of every round are known.
    pub fn counts_instructions(&self) -> bool {
        self.total > 0 && self.kinds.iter().all(|kind| !kind.account.executed.phases.is_empty())
    }

    /// The counter's value in a round.
    pub fn value(&self, round: &RoundAt, counter: Counter) -> Option<u64> {
        match counter {
            Counter::Cycles => median_cycles(&round.cycles).filter(|_| self.timed),
            _ => self.kinds[round.kind].account.counters.get(counter),
        }
    }

    /// The counter's spread over the rounds that have a value; `None` if no round has one. The
    /// result of [`Spread::of`] includes the number of these rounds.
    pub fn spread(&self, counter: Counter) -> Option<Spread> {
        if counter == Counter::Cycles {
            return Spread::of(self.rounds.iter().filter_map(|round| self.value(round, counter)));
        }
        let values = self.kinds.iter();
        Spread::weighed(values.filter_map(|k| Some((k.account.counters.get(counter)?, k.rounds))))
    }

    /// The spread of one process's share of the counter. `None` if the share is unknown or there is
    /// only one process.
    pub fn spread_of(&self, process: ProcessId, counter: Counter) -> Option<Spread> {
        let values = self.kinds.iter().filter_map(|kind| {
            let counters = kind.account.processes.get(process.index())?;
            Some((counters.get(counter)?, kind.rounds))
        });
        Spread::weighed(values)
    }

    /// The counter's most frequent value.
    pub fn typical(&self, counter: Counter) -> Option<u64> {
        self.spread(counter).map(|spread| spread.mode)
    }

    /// The most frequent faults by class, with the number of rounds that have them.
    pub fn typical_classes(&self) -> Option<(&Classes, usize)> {
        let classes =
            self.kinds.iter().filter_map(|kind| Some((kind.account.classes.as_ref()?, kind)));
        let group = group(classes).into_iter().next()?;
        Some((group.value, group.rounds))
    }

    /// The rounds by sequence, most frequent first; empty if the target has no events.
    pub fn sequences(&self) -> Vec<Group<&Sequence>> {
        let sequences = self.kinds.iter().map(|kind| Some((kind.account.sequence.as_ref()?, kind)));
        let sequences: Option<Vec<(&Sequence, &Kind)>> = sequences.collect();
        group(sequences.unwrap_or_default())
    }

    /// The kind of the first round that has the most frequent sequence.
    pub fn typical_kind(&self) -> Option<&Kind> {
        if self.unknown.contains_key(SEQUENCE) {
            return None;
        }
        let first = self.sequences().first()?.first;
        self.kinds.iter().find(|kind| kind.first == first)
    }

    /// Every needless finding with its count over all rounds, most frequent first.
    pub fn findings(&self) -> Vec<(Finding, u64)> {
        let mut counts: BTreeMap<Finding, u64> = BTreeMap::new();
        for kind in &self.kinds {
            for finding in kind.account.seen.iter().filter_map(Counted::finding) {
                *counts.entry(finding).or_insert(0) += kind.rounds as u64;
            }
        }
        let mut findings: Vec<_> = counts.into_iter().collect();
        findings.sort_by_key(|(finding, count)| (finding.what, std::cmp::Reverse(*count)));
        findings
    }

    /// All measured cycles, in order.
    pub fn cycles(&self) -> Vec<u64> {
        self.blocks().map(|block| block.cycles).collect()
    }

    /// The measured cycles of one process, in order.
    pub fn cycles_of(&self, process: ProcessId) -> Vec<u64> {
        self.blocks().filter(|block| block.process == process).map(|block| block.cycles).collect()
    }

    fn blocks(&self) -> impl Iterator<Item = &TimedBlock> {
        self.rounds.iter().flat_map(|round| &round.cycles)
    }
}

/// Groups rounds by value: most frequent first, then in order of appearance.
fn group<'a, T: Ord + Copy>(kinds: impl IntoIterator<Item = (T, &'a Kind)>) -> Vec<Group<T>> {
    let mut groups: BTreeMap<T, (usize, usize)> = BTreeMap::new();
    for (value, kind) in kinds {
        let (rounds, first) = groups.entry(value).or_insert((0, kind.first));
        (*rounds, *first) = (*rounds + kind.rounds, kind.first.min(*first));
    }
    let groups = groups.into_iter();
    let mut groups: Vec<_> =
        groups.map(|(value, (rounds, first))| Group { value, rounds, first }).collect();
    groups.sort_by_key(|group| (std::cmp::Reverse(group.rounds), group.first));
    groups
}

impl RoundAccount {
    fn of(
        program: &Program,
        round: &Round,
        order: TraceOrder,
        unseen: &BTreeMap<String, String>,
    ) -> RoundAccount {
        let mut seen = observe(program, &round.events, order);
        let mut counters = Counters::of(round, &seen);
        let mut processes: Vec<Counters> = match program.processes.len() {
            0 | 1 => Vec::new(),
            several => (0..several)
                .map(|process| Counters::of_process(program, ProcessId(process as u16), &seen))
                .collect(),
        };
        // The target cannot show flushes, so nothing can be said about what they caused.
        if unseen.contains_key("flushes") {
            seen.retain(|seen| {
                !matches!(seen.what, What::Shootdown | What::LocalFlush | What::Interrupt)
            });
        }
        for &counter in Counter::ALL {
            if unseen.contains_key(counter.name()) {
                counters.set(counter, None);
                processes.iter_mut().for_each(|counters| counters.set(counter, None));
            }
        }
        let shows = |name: &str| !unseen.contains_key(name);
        let may_fault = |event: &&Event| matches!(event.kind, EventKind::MayFault { .. });
        let may_fault: Vec<u64> = round.events.iter().filter(may_fault).map(|e| e.seq).collect();
        let may_fault = match may_fault.as_slice() {
            [] => Vec::new(),
            several => {
                let tokens = operations(program, &round.events, order);
                let before = |seq: &u64| tokens.partition_point(|token| token.seq() < *seq);
                several.iter().map(before).collect()
            }
        };
        RoundAccount {
            counters,
            processes,
            classes: faults_by_class(&seen).filter(|_| shows(FAULTS_BY_CLASS) && shows("faults")),
            sequence: shows(SEQUENCE).then(|| Sequence::of(program, &round.events, order)),
            syncs: shows(Counter::TableSyncs.name()),
            may_fault,
            seen,
            instructions: round.instructions.clone(),
            executed: Executed::of(program, round),
            counted: SwapCounts::counted(round),
            modelled: SwapCounts::modelled(round),
        }
    }

    /// Minor and major faults, where known.
    pub(crate) fn rusage(&self) -> Option<(u64, u64)> {
        Some((self.counters.get(Counter::MinorFaults)?, self.counters.get(Counter::MajorFaults)?))
    }

    /// The model's sequence as this target would show it, and the positions in it before which a
    /// processor may take a fault.
    pub fn shown_of<'m>(
        &self,
        model: &'m RoundAccount,
    ) -> Option<(Cow<'m, Sequence>, Cow<'m, [usize]>)> {
        let sequence = model.sequence.as_ref()?;
        Some(match self.syncs {
            true => (Cow::Borrowed(sequence), Cow::Borrowed(&model.may_fault)),
            false => {
                let (sequence, may_fault) = sequence.without_syncs(&model.may_fault);
                (Cow::Owned(sequence), Cow::Owned(may_fault))
            }
        })
    }

    /// Whether a real round agrees with the model's in the sequence and, where both sides know
    /// them, in minor faults, major faults and told pages. The processor chooses whether some
    /// spurious faults happen, so the real round may have any number of these. If the kernel shows
    /// no sequence, the flush instructions are compared instead. `None` if both are missing.
    pub fn agrees(&self, model: &RoundAccount) -> Option<bool> {
        self.chosen_faults(model).map(|chosen| chosen.is_some())
    }

    /// Compares as [`RoundAccount::agrees`] does. If the rounds agree, the result includes the
    /// number of spurious faults that the processor took.
    pub fn chosen_faults(&self, model: &RoundAccount) -> Option<Option<u64>> {
        let same = |counter, more| match (self.counters.get(counter), model.counters.get(counter)) {
            (Some(a), Some(b)) => a == b + more,
            _ => true,
        };
        let more = match (&self.sequence, self.shown_of(model)) {
            (Some(real), Some((expected, may_fault))) => real.more_than(&expected, &may_fault),
            _ => self.executed.agrees(&model.executed)?.then_some(0),
        };
        Some(more.filter(|more| {
            same(Counter::MinorFaults, *more)
                && same(Counter::MajorFaults, 0)
                && same(Counter::ToldPages, 0)
        }))
    }
}

/// The thread's name in the scenario; `-` for any other thread.
pub fn thread_name(program: &Program, thread: Option<ThreadId>) -> &str {
    thread.and_then(|id| program.threads.get(id.index())).map_or("-", |thread| &thread.name)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::addr::{CpuId, PageRange, Vpn};
    use crate::event::{Event, EventKind, FaultCode, FlushReason};
    use crate::program::Area;
    use crate::site::Site;
    use crate::verdict::{Judgement, Needless, Reason, Verdict};

    /// A program with 64 pages at byte 0 and the marks of the captures.
    pub(crate) fn program() -> Program {
        Program {
            name: "made-up".into(),
            areas: vec![Area::anonymous("heap", PageRange::new(Vpn(0), 64))],
            marks: vec!["unmap".into(), "rw".into(), "w".into()],
            ..Program::default()
        }
    }

    /// Events from `cpu F reason pages` (`f`: of a thread outside the scenario), `cpu P page code`,
    /// `cpu M mark`.
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

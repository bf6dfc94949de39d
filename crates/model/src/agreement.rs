//! Agreement: whether a real kernel did what the model predicts.
//!
//! Each round is compared by its canonical sequence. Minor and major faults and the pages swapped
//! out and in are compared where both sides know them. At the end, the state of each page is
//! compared. Where a kernel shows no sequence (arm64), the flush instructions are compared instead,
//! phase by phase; without them nothing is decided. `docs/agreement.md` says what is left out, and
//! why.

use crate::account::{Account, SEQUENCE};
use crate::event::EventKind;
use crate::run::{INSTRUCTIONS_OF_PROCESSES, Round, TargetRun};
use std::collections::{BTreeMap, BTreeSet};

/// How far a real run and the model's run of the same program agree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Agreement {
    /// The number of rounds compared.
    pub rounds: usize,
    /// Positions of rounds that differ.
    pub differing: Vec<usize>,
    /// The number of rounds that are equal except for faults that the processor chose to take
    /// ([`MayFault`](crate::event::EventKind::MayFault)).
    pub chosen: usize,
    /// Pages whose states differ at the end.
    pub final_pages: Vec<PageDifference>,
    /// Why no sequence could be compared; `None` if sequences were compared.
    pub undecided: Option<String>,
    /// The rounds with equal minor and major faults, and the rounds for which both sides know them.
    /// Without events, only these counts can be compared.
    pub rusage: (usize, usize),
}

/// A page whose states differ at the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageDifference {
    /// The page's name.
    pub page: String,
    /// The page's state on the real kernel.
    pub real: String,
    /// The page's state in the model.
    pub model: String,
}

/// One of the two runs that are compared.
#[derive(Copy, Clone, Debug)]
pub struct Side<'a> {
    /// The run.
    pub run: &'a TargetRun,
    /// The account of the run.
    pub account: &'a Account,
}

impl Agreement {
    /// Compares two runs of one program, round by round.
    pub fn between(real: Side<'_>, model: Side<'_>) -> Agreement {
        let rounds = real.account.total.min(model.account.total);
        let pairs = || {
            (0..rounds).filter_map(|at| Some((real.account.round(at)?, model.account.round(at)?)))
        };
        let known = pairs().filter_map(|(a, b)| Some(a.rusage()? == b.rusage()?));
        let known: Vec<bool> = known.collect();
        let rusage = (known.iter().filter(|equal| **equal).count(), known.len());
        let undecided = blind(real.account, model.account);
        let undecided = undecided.or_else(|| (rounds == 0).then(|| "no round was run".to_owned()));
        if undecided.is_some() {
            // If instructions were counted in some round, a difference in fault counts is still
            // reported.
            let counts = |account: &Account| {
                account.kinds.iter().any(|kind| !kind.account.instructions.is_empty())
            };
            let unequal = pairs().enumerate().filter(|(_, (a, b))| {
                let both = a.rusage().zip(b.rusage());
                both.is_some_and(|(real, expected)| real != expected)
            });
            let differing: Vec<usize> = unequal.map(|(at, _)| at).collect();
            if differing.is_empty() || !counts(real.account) {
                return Agreement { undecided, rusage, ..Agreement::default() };
            }
            return Agreement { rounds, differing, rusage, ..Agreement::default() };
        }
        let differing = pairs().enumerate().filter(|(_, (account, reference))| {
            account.agrees(reference) != Some(true) || !account.counted.agree(reference.modelled)
        });
        let differing = differing.map(|(at, _)| at).collect();
        let chosen = pairs().filter_map(|(account, reference)| account.chosen_faults(reference)?);
        let chosen = chosen.filter(|faults| *faults > 0).count();
        let final_pages = page_differences(&real.run.final_pages, &model.run.final_pages);
        Agreement { rounds, differing, chosen, final_pages, undecided, rusage }
    }

    /// The number of equal rounds.
    pub fn equal(&self) -> usize {
        self.rounds - self.differing.len()
    }

    /// Whether every round was compared and is equal, and every page ended in the same state.
    pub fn is_exact(&self) -> bool {
        self.undecided.is_none() && self.differing.is_empty() && self.final_pages.is_empty()
    }
}

/// Why the faults and flushes that a kernel shows decide nothing; `None` if they do.
fn blind(real: &Account, model: &Account) -> Option<String> {
    let several = real.kinds.iter().any(|kind| !kind.account.processes.is_empty());
    let mixed = real.unknown.get(INSTRUCTIONS_OF_PROCESSES).filter(|_| several);
    if let Some(reason) = mixed {
        return Some(reason.clone());
    }
    if real.counts_instructions() && model.counts_instructions() {
        return None;
    }
    let missing = |account: &Account| account.unknown.get(SEQUENCE).cloned();
    let reason = missing(real).or_else(|| missing(model))?;
    // Instructions were counted, but not only the scenario's own.
    let goes_on = real.kinds.iter().any(|kind| !kind.account.instructions.is_empty());
    Some(if goes_on {
        "a process goes on with another program, whose flushes are counted with the others"
            .to_owned()
    } else {
        reason
    })
}

/// Pages swapped in and out in a round.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct SwapCounts([Option<u64>; 4]);

impl SwapCounts {
    /// The lines of `/proc/vmstat` with these counts. Pages of zeros have their own lines.
    pub const NAMES: [&str; 4] = ["pswpin", "pswpout", "swpin_zero", "swpout_zero"];

    /// The counts of a real kernel.
    pub fn counted(round: &Round) -> SwapCounts {
        SwapCounts(SwapCounts::NAMES.map(|name| round.kernel_counters.get(name).copied()))
    }

    /// The counts of the model.
    pub fn modelled(round: &Round) -> SwapCounts {
        let mut counts = [0; 4];
        for event in &round.events {
            match event.kind {
                EventKind::PageIn { zero_filled, .. } => counts[usize::from(zero_filled) * 2] += 1,
                EventKind::PageOut { zero_filled, .. } => {
                    counts[usize::from(zero_filled) * 2 + 1] += 1;
                }
                _ => {}
            }
        }
        SwapCounts(counts.map(Some))
    }

    /// Whether the counts that both sides know are equal.
    pub fn agree(self, other: SwapCounts) -> bool {
        self.0.iter().zip(&other.0).all(|(a, b)| a.is_none() || b.is_none() || a == b)
    }

    /// Each count with its name; `None` means unknown.
    pub fn named(self) -> impl Iterator<Item = (&'static str, Option<u64>)> {
        SwapCounts::NAMES.into_iter().zip(self.0)
    }
}

/// The pages whose states differ; none if one side knows no states.
fn page_differences(
    real: &BTreeMap<String, String>,
    model: &BTreeMap<String, String>,
) -> Vec<PageDifference> {
    if real.is_empty() || model.is_empty() {
        return Vec::new();
    }
    let pages: BTreeSet<&String> = real.keys().chain(model.keys()).collect();
    let state = |states: &BTreeMap<String, String>, page| {
        states.get(page).map_or("not mapped".to_owned(), Clone::clone)
    };
    pages
        .into_iter()
        .map(|page| PageDifference {
            page: page.clone(),
            real: state(real, page),
            model: state(model, page),
        })
        .filter(|page| page.real != page.model)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::account::tests::{events, finding_round, program, run};

    fn between(real: &TargetRun, model: &TargetRun) -> Agreement {
        let (a, b) = (Account::of(&program(), real), Account::of(&program(), model));
        Agreement::between(Side { run: real, account: &a }, Side { run: model, account: &b })
    }

    #[test]
    fn agreement_is_by_round() {
        let other = Round { events: events("0 F 3 1, 0 F 4 1"), ..Round::default() };
        let model = run(vec![finding_round(), finding_round()]);
        let agreement = between(&run(vec![finding_round(), other]), &model);
        assert_eq!((agreement.rounds, agreement.equal()), (2, 1));
        assert_eq!(agreement.differing, [1]);
        assert!(!agreement.is_exact());
    }

    #[test]
    fn without_events_only_rusage_is_compared() {
        let faults = Round { minor_faults: Some(1), major_faults: Some(0), ..Round::default() };
        let mut blind = run(vec![faults]);
        blind.unseen.insert(SEQUENCE.into(), "not permitted".into());
        let agreement = between(&blind, &blind);
        assert_eq!(agreement.undecided.as_deref(), Some("not permitted"));
        assert!(!agreement.is_exact());
        assert_eq!(agreement.rusage, (1, 1));
    }

    #[test]
    fn where_instructions_are_counted_other_faults_are_a_difference() {
        let counted = |minor, phases: usize| {
            let instructions = vec![BTreeMap::from([("tlbi vale1is".to_owned(), 1)]); phases];
            let minor_faults = Some(minor);
            let mut run = run(vec![Round {
                minor_faults,
                major_faults: Some(0),
                instructions,
                ..Round::default()
            }]);
            run.unseen.insert(SEQUENCE.into(), "no tracepoint".into());
            run
        };
        // The model's flushes are not known, so only faults can be compared.
        let unequal = between(&counted(2, 1), &counted(1, 0));
        assert_eq!((unequal.differing, unequal.undecided), (vec![0], None));
        let equal = between(&counted(1, 1), &counted(1, 0));
        assert!(equal.undecided.is_some() && equal.differing.is_empty());
        assert!(between(&counted(1, 1), &counted(1, 1)).is_exact());
        assert!(!between(&counted(1, 2), &counted(1, 1)).is_exact());
    }

    #[test]
    fn minor_faults_count_in_agreement_only_if_both_are_known() {
        let with = |minor| run(vec![Round { minor_faults: minor, ..finding_round() }]);
        let agrees = |a, b| between(&with(a), &with(b)).is_exact();
        assert!(agrees(Some(1), Some(1)) && agrees(Some(1), None));
        assert!(!agrees(Some(1), Some(2)));
    }

    #[test]
    fn swap_counts_are_compared_where_the_kernel_has_them() {
        let mut model = finding_round();
        let (page, frame) = (crate::addr::Vpn(0), crate::addr::Pfn(1));
        for zero_filled in [true, false, false] {
            let kind = EventKind::PageOut { page, frame, zero_filled };
            model.events.push(crate::event::Event { seq: 99, kind, ..model.events[0] });
        }
        let counted = |name: &str, count| {
            let kernel_counters = BTreeMap::from([(name.to_owned(), count)]);
            let real = run(vec![Round { kernel_counters, ..finding_round() }]);
            between(&real, &run(vec![model.clone()])).is_exact()
        };
        assert!(counted("pswpout", 2) && counted("swpout_zero", 1) && counted("pswpin", 0));
        assert!(!counted("pswpout", 3) && !counted("swpin_zero", 1));
        assert!(counted("pgreuse", 7), "other counters are not compared");
    }

    #[test]
    fn pages_end_in_the_same_state() {
        let with = |states: &[(&str, &str)]| {
            let final_pages = states.iter().map(|(p, s)| ((*p).into(), (*s).into())).collect();
            TargetRun { final_pages, ..run(vec![finding_round()]) }
        };
        let model = with(&[("heap[0]", "present exclusive"), ("heap[1]", "swapped")]);
        assert!(between(&model, &model).is_exact());
        let real =
            with(&[("heap[0]", "present exclusive same-as:away[0]"), ("heap[1]", "swapped")]);
        assert!(!between(&real, &model).is_exact(), "every word counts");
        assert!(between(&with(&[]), &model).is_exact(), "what is not known is not compared");
        let real = with(&[("heap[0]", "present"), ("heap[2]", "none")]);
        let agreement = between(&real, &model);
        let different: Vec<_> = agreement.final_pages.iter().map(|p| p.page.as_str()).collect();
        assert_eq!(different, ["heap[0]", "heap[1]", "heap[2]"]);
        assert_eq!(agreement.final_pages[1].real, "not mapped");
        assert!(!agreement.is_exact());
    }
}

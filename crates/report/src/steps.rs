//! Finds the policy that explains the step from one kernel row to the next.
//!
//! It tries: each policy in which two rows differ is changed alone in the older row, and the result
//! is compared with the newer row's. If no single policy explains it, policies are left out of the
//! full set one by one as long as the result holds. The set that remains cannot be made smaller by
//! leaving one more out.

use needless_model::account::Account;
use needless_model::counters::Counter;
use needless_model::kernels::KernelRow;
use needless_model::policy::POLICIES;
use serde::Serialize;
use std::collections::BTreeMap;

/// The counters that steps explain. (Minor faults are explained only where they become major ones,
/// or the reverse. Otherwise they change as faults do.)
pub const EXPLAINED: [Counter; 8] = [
    Counter::Faults,
    Counter::MinorFaults,
    Counter::MajorFaults,
    Counter::Retries,
    Counter::Copies,
    Counter::Shootdowns,
    Counter::LocalFlushes,
    Counter::NeedlessShootdowns,
];

/// A policy in which two rows differ.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Difference {
    /// The policy's name.
    pub policy: String,
    /// The policy's value in the older row.
    pub from: String,
    /// The policy's value in the newer row.
    pub to: String,
}

/// A step from one row to the next.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Step {
    /// The older row.
    pub from: String,
    /// The newer row.
    pub to: String,
    /// The changes per round, with their explanations. Empty if nothing changed.
    pub changes: Vec<Change>,
}

/// Changes that have one explanation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    /// The counters, with their old and new values.
    pub counters: Vec<(Counter, u64, u64)>,
    /// The explanation of these changes.
    pub explanation: Explanation,
}

/// An explanation of a change.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(tag = "kind", content = "policies", rename_all = "snake_case")]
pub enum Explanation {
    /// Each of these policies explains it alone.
    Alone(Vec<Difference>),
    /// These policies explain it together, and none of them can be left out.
    Together(Vec<Difference>),
    /// No set of policies explains it.
    Unexplained,
}

/// A row that ran: its name as a target, and what its run amounts to.
pub type RowRan<'a> = (&'a KernelRow, &'a str, &'a Account);

/// What explains each step from one of `rows` to the next. `run` gives the account of the program
/// in another row (`None`: it cannot run there).
pub fn between(
    rows: &[RowRan<'_>],
    mut run: impl FnMut(&KernelRow) -> Option<Account>,
) -> Vec<Step> {
    let mut step = |pair: &[RowRan<'_>]| {
        let [(from, before, old), (to, after, new)] = pair else { return None };
        let (numbers, differences) = differences(from, to);
        let run_with = |changed: &[usize]| {
            let mut row = (*from).clone();
            for &at in changed {
                row.policies = row.policies.with_one_from(&to.policies, numbers[at]);
            }
            run(&row)
        };
        Some(explain((before, old), (after, new), &differences, run_with))
    };
    rows.windows(2).filter_map(&mut step).collect()
}

/// The policies in which two rows differ: their numbers, and what they are.
fn differences(from: &KernelRow, to: &KernelRow) -> (Vec<usize>, Vec<Difference>) {
    let words = from.policies.words().into_iter().zip(to.policies.words());
    let differing = words.enumerate().filter(|(_, (old, new))| old != new);
    differing
        .map(|(at, (old, new))| {
            let policy = POLICIES[at].name.to_owned();
            (at, Difference { policy, from: old.to_owned(), to: new.to_owned() })
        })
        .unzip()
}

/// The counters of a run that are known, with their most frequent value.
type Figures = BTreeMap<Counter, u64>;

fn figures(account: &Account) -> Figures {
    EXPLAINED.iter().filter_map(|&c| Some((c, account.typical(c)?))).collect()
}

/// Explains the step between two rows that differ in `differences`. `run_with` gives the account of
/// the older row with the policies of these numbers changed. It gives `None` if that row cannot
/// run.
pub fn explain(
    (from, before): (&str, &Account),
    (to, after): (&str, &Account),
    differences: &[Difference],
    mut run_with: impl FnMut(&[usize]) -> Option<Account>,
) -> Step {
    let (before, mut after) = (figures(before), figures(after));
    if before.get(&Counter::MajorFaults) == after.get(&Counter::MajorFaults) {
        after.remove(&Counter::MinorFaults);
    }
    let mut tried: BTreeMap<Vec<usize>, Figures> = BTreeMap::new();
    let mut outcome = |changed: &[usize], counter: Counter| {
        let figures = tried
            .entry(changed.to_vec())
            .or_insert_with(|| run_with(changed).map_or_else(Figures::new, |a| figures(&a)));
        figures.get(&counter).copied()
    };
    let mut changes: Vec<Change> = Vec::new();
    for (&counter, &new) in &after {
        let Some(&old) = before.get(&counter).filter(|old| **old != new) else { continue };
        let explanation = search(differences, |changed| outcome(changed, counter) == Some(new));
        let same = changes.iter_mut().find(|change| change.explanation == explanation);
        match same {
            Some(change) => change.counters.push((counter, old, new)),
            None => changes.push(Change { counters: vec![(counter, old, new)], explanation }),
        }
    }
    Step { from: from.to_owned(), to: to.to_owned(), changes }
}

/// The smallest explanation that `reaches` accepts.
fn search(differences: &[Difference], mut reaches: impl FnMut(&[usize]) -> bool) -> Explanation {
    let pick = |set: &[usize]| set.iter().map(|&at| differences[at].clone()).collect();
    let all: Vec<usize> = (0..differences.len()).collect();
    let alone: Vec<usize> = all.iter().copied().filter(|&at| reaches(&[at])).collect();
    if !alone.is_empty() {
        return Explanation::Alone(pick(&alone));
    }
    if !reaches(&all) {
        return Explanation::Unexplained;
    }
    let mut set = all.clone();
    for at in all {
        let smaller: Vec<usize> = set.iter().copied().filter(|&kept| kept != at).collect();
        if reaches(&smaller) {
            set = smaller;
        }
    }
    Explanation::Together(pick(&set))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn three() -> Vec<Difference> {
        ["a", "b", "c"]
            .map(|policy| Difference { policy: policy.into(), from: "0".into(), to: "1".into() })
            .into()
    }

    fn names(explanation: Explanation) -> (bool, Vec<String>) {
        let names = |set: Vec<Difference>| set.into_iter().map(|d| d.policy).collect();
        match explanation {
            Explanation::Alone(set) => (true, names(set)),
            Explanation::Together(set) => (false, names(set)),
            Explanation::Unexplained => (false, Vec::new()),
        }
    }

    #[test]
    fn a_single_policy_is_named_alone() {
        let found = search(&three(), |set| set.contains(&1));
        assert_eq!(names(found), (true, vec!["b".into()]));
    }

    #[test]
    fn two_that_are_needed_together_are_both_named() {
        let found = search(&three(), |set| set.contains(&0) && set.contains(&2));
        assert_eq!(names(found), (false, vec!["a".into(), "c".into()]));
    }

    #[test]
    fn what_no_policy_does_is_unexplained() {
        assert_eq!(search(&three(), |_| false), Explanation::Unexplained);
    }
}

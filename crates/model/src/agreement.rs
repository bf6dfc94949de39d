//! Agreement: whether a real kernel did what the model says.
//!
//! Compared are the canonical sequences and, where both sides know them, minor and major faults,
//! round by round. Without a sequence nothing is decided.

use crate::account::{Account, SEQUENCE};

/// How far a real run and the model's run of the same program agree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Agreement {
    /// Rounds compared.
    pub rounds: usize,
    /// Positions of rounds that differ.
    pub differing: Vec<usize>,
    /// Why no sequence could be compared, if so.
    pub undecided: Option<String>,
    /// Rounds with equal minor and major faults, of those where both sides know them: what is
    /// left to compare without events.
    pub rusage: (usize, usize),
}

impl Agreement {
    /// Compares two accounts of one program, round by round.
    pub fn between(real: &Account, model: &Account) -> Agreement {
        let pairs = || real.rounds.iter().zip(&model.rounds);
        let known = pairs().filter_map(|(a, b)| Some(a.rusage()? == b.rusage()?));
        let known: Vec<bool> = known.collect();
        let rusage = (known.iter().filter(|equal| **equal).count(), known.len());
        let blind = [real, model].iter().find_map(|account| account.unknown.get(SEQUENCE).cloned());
        let rounds = pairs().count();
        let undecided = blind.or_else(|| (rounds == 0).then(|| "no round was run".to_owned()));
        if undecided.is_some() {
            return Agreement { undecided, rusage, ..Agreement::default() };
        }
        let differing = pairs().enumerate().filter(|(_, (a, b))| a.agrees(b) != Some(true));
        let differing = differing.map(|(at, _)| at).collect();
        Agreement { rounds, differing, undecided, rusage }
    }

    /// Rounds that are equal.
    pub fn equal(&self) -> usize {
        self.rounds - self.differing.len()
    }

    /// Whether every round was compared and is equal.
    pub fn is_exact(&self) -> bool {
        self.undecided.is_none() && self.differing.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::account::tests::{events, finding_round, program, run};
    use crate::run::Round;

    #[test]
    fn agreement_is_by_round() {
        let other = Round { events: events("0 F 3 1, 0 F 4 1"), ..Round::default() };
        let model = Account::of(&program(), &run(vec![finding_round(), finding_round()]));
        let live = Account::of(&program(), &run(vec![finding_round(), other]));
        let agreement = Agreement::between(&live, &model);
        assert_eq!((agreement.rounds, agreement.equal()), (2, 1));
        assert_eq!(agreement.differing, [1]);
        assert!(!agreement.is_exact());
    }

    #[test]
    fn without_events_only_rusage_is_compared() {
        let faults = Round { minor_faults: Some(1), major_faults: Some(0), ..Round::default() };
        let mut blind = run(vec![faults]);
        blind.unseen.insert(SEQUENCE.into(), "not permitted".into());
        let blind = Account::of(&program(), &blind);
        let agreement = Agreement::between(&blind, &blind);
        assert_eq!(agreement.undecided.as_deref(), Some("not permitted"));
        assert!(!agreement.is_exact());
        assert_eq!(agreement.rusage, (1, 1));
    }

    #[test]
    fn minor_faults_count_in_agreement_only_if_both_are_known() {
        let with = |minor| Round { minor_faults: minor, ..finding_round() };
        let account = |minor| Account::of(&program(), &run(vec![with(minor)]));
        let agrees = |a, b| Agreement::between(&account(a), &account(b)).is_exact();
        assert!(agrees(Some(1), Some(1)) && agrees(Some(1), None));
        assert!(!agrees(Some(1), Some(2)));
    }
}

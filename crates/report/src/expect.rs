//! Expectations of a comparison, and whether it meets them.
//!
//! A target meets a condition if the condition holds in every round: one odd round is what the user
//! looks for. If a figure is not known in some round and no other round breaks the condition, the
//! condition is undecided.

use crate::compare::{Comparison, Outcome, Ran, Target};
use crate::style::Style;
use needless_model::account::Account;
use needless_model::counters::Counter;
use serde::Serialize;
use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// A condition for every target.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Expectation {
    /// A real kernel equals its model row in every round and in its pages at the end.
    Exact,
    /// A counter compares like this with a number in every round. For cycles, the median of all
    /// rounds counts.
    Counter {
        /// The counter that is compared.
        counter: Counter,
        /// How it is compared.
        relation: Relation,
        /// The number that it is compared with.
        value: u64,
    },
}

/// How two numbers compare.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Relation {
    /// At most, `<=`.
    AtMost,
    /// At least, `>=`.
    AtLeast,
    /// Different, `!=`.
    Other,
    /// Less than, `<`.
    Less,
    /// More than, `>`.
    More,
    /// Equal, `=`.
    Same,
}

/// The word for [`Expectation::Exact`].
pub const EXACT: &str = "exact";

impl Relation {
    /// All comparisons. A sign that another one begins with comes after it.
    const ALL: [Relation; 6] = [
        Relation::AtMost,
        Relation::AtLeast,
        Relation::Other,
        Relation::Less,
        Relation::More,
        Relation::Same,
    ];

    const fn sign(self) -> &'static str {
        match self {
            Relation::AtMost => "<=",
            Relation::AtLeast => ">=",
            Relation::Other => "!=",
            Relation::Less => "<",
            Relation::More => ">",
            Relation::Same => "=",
        }
    }

    fn holds(self, found: u64, value: u64) -> bool {
        match self {
            Relation::AtMost => found <= value,
            Relation::AtLeast => found >= value,
            Relation::Other => found != value,
            Relation::Less => found < value,
            Relation::More => found > value,
            Relation::Same => found == value,
        }
    }
}

/// Why a condition is not understood.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BadExpectation {
    /// The text is not a condition.
    #[error(
        "`{0}` is no condition; write COUNTER<=NUMBER (or <, =, !=, >, >=), as in 'shootdowns<=2', or {EXACT}"
    )]
    NoCondition(String),
    /// There is no such counter.
    #[error("there is no counter `{name}`; there are {}", names().join(", "))]
    NoCounter {
        /// The name that was asked for.
        name: String,
    },
    /// The number is not a number.
    #[error("`{0}` is no number from 0 to {max}", max = u64::MAX)]
    NoNumber(String),
}

fn names() -> Vec<&'static str> {
    Counter::ALL.iter().map(|counter| counter.name()).collect()
}

impl FromStr for Expectation {
    type Err = BadExpectation;

    /// Reads `shootdowns<=2` or `exact`.
    fn from_str(text: &str) -> Result<Expectation, BadExpectation> {
        if text == EXACT {
            return Ok(Expectation::Exact);
        }
        let none = || BadExpectation::NoCondition(text.to_owned());
        let at = text.find(['<', '>', '=', '!']).ok_or_else(none)?;
        let (name, rest) = (text[..at].trim(), &text[at..]);
        let relation = Relation::ALL.into_iter().find(|relation| rest.starts_with(relation.sign()));
        let relation = relation.ok_or_else(none)?;
        // Two signs of equality are clear enough.
        let number = rest[relation.sign().len()..].trim_start_matches('=').trim();
        if name.is_empty() || number.is_empty() {
            return Err(none());
        }
        let unknown = || BadExpectation::NoCounter { name: name.to_owned() };
        let counter = Counter::by_name(name).ok_or_else(unknown)?;
        let digits = number.bytes().all(|byte| byte.is_ascii_digit());
        let value = number.parse().ok().filter(|_| digits);
        let value = value.ok_or_else(|| BadExpectation::NoNumber(number.to_owned()))?;
        Ok(Expectation::Counter { counter, relation, value })
    }
}

impl fmt::Display for Expectation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Expectation::Exact => f.write_str(EXACT),
            Expectation::Counter { counter, relation, value } => {
                write!(f, "{}{}{value}", counter.name(), relation.sign())
            }
        }
    }
}

/// The result of an expectation, or of a target's run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "verdict", content = "reason")]
pub enum Verdict {
    /// The condition is met.
    Met,
    /// The condition is not met. The text says what was found.
    Missed(String),
    /// The condition is undecided. The text says why.
    Undecided(String),
    /// The target did not run, or its run does not count. The text says why.
    NotRun(String),
}

/// An expectation of one target, or that it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case<'a> {
    /// The target's name.
    pub target: &'a str,
    /// The expectation. `None`: that the target runs.
    pub expectation: Option<Expectation>,
    /// The result.
    pub verdict: Verdict,
}

impl Case<'_> {
    /// The case in words.
    pub fn name(&self) -> String {
        self.expectation.map_or_else(|| "runs".to_owned(), |expected| expected.to_string())
    }
}

/// The cases with an expectation, a line each.
pub fn text(cases: &[Case<'_>], style: Style) -> String {
    let line = |line: &String| style.wrap(line, 4) + "\n";
    let lines: String = lines(cases, style).iter().map(line).collect();
    match lines.is_empty() {
        true => lines,
        false => format!("\n{}\n{lines}", style.bold("expected")),
    }
}

/// What came of each expectation.
pub(crate) fn lines(cases: &[Case<'_>], style: Style) -> Vec<String> {
    let line = |case: &Case<'_>| {
        let (name, target) = (case.name(), case.target);
        let line = match &case.verdict {
            Verdict::Met => format!("{target}: {name}: yes"),
            Verdict::Missed(reason) => format!("{target}: {name}: {}: {reason}", style.warn("no")),
            Verdict::Undecided(reason) | Verdict::NotRun(reason) => {
                format!("{target}: {name}: {}: {reason}", style.warn("not decided"))
            }
        };
        style.charset(&line)
    };
    cases.iter().filter(|case| case.expectation.is_some()).map(line).collect()
}

/// The cases: every target's run and every expectation of it, in the order of the targets. If a
/// target did not run, its expectations are left out: nothing can be said about them.
pub fn cases<'a>(comparison: &'a Comparison, expected: &[Expectation]) -> Vec<Case<'a>> {
    let mut cases = Vec::new();
    for target in &comparison.targets {
        let case = |expectation, verdict| Case { target: &target.name, expectation, verdict };
        let verdict = ran(target);
        let runs = verdict == Verdict::Met;
        cases.push(case(None, verdict));
        let Some(ran) = target.ran().filter(|_| runs) else { continue };
        for expectation in expected {
            let verdict = judged(ran, expectation);
            cases.extend(verdict.map(|verdict| case(Some(*expectation), verdict)));
        }
    }
    cases
}

fn ran(target: &Target) -> Verdict {
    match &target.outcome {
        Outcome::Unavailable { reason, help } => {
            let help = help.as_ref().map_or(String::new(), |help| format!("; {help}"));
            Verdict::NotRun(format!("{reason}{help}"))
        }
        Outcome::Ran(ran) => match &ran.run.invalid {
            Some(reason) => Verdict::NotRun(format!("the run counts for nothing: {reason}")),
            None => Verdict::Met,
        },
    }
}

/// The result of an expectation. `None` if the expectation does not apply to such a target.
pub fn judged(ran: &Ran, expectation: &Expectation) -> Option<Verdict> {
    match expectation {
        Expectation::Exact => exactness(ran),
        Expectation::Counter { counter, relation, value } => {
            Some(counted(&ran.account, *counter, *relation, *value))
        }
    }
}

fn exactness(ran: &Ran) -> Option<Verdict> {
    let reference = ran.reference.as_ref()?;
    let (row, agreement) = (&reference.row, &reference.agreement);
    Some(match (ran.exact(), &agreement.undecided) {
        (Some(true), _) => Verdict::Met,
        (Some(false), _) => Verdict::Missed(format!(
            "equal to {row} in {} of {} rounds, with {} pages in another state at the end",
            agreement.equal(),
            agreement.rounds,
            agreement.final_pages.len()
        )),
        (None, Some(reason)) => Verdict::Undecided(reason.clone()),
        (None, None) => Verdict::Undecided(format!("{row} is not the kernel's own row")),
    })
}

fn counted(account: &Account, counter: Counter, relation: Relation, value: u64) -> Verdict {
    let unknown = || {
        let why = account.unknown.get(counter.name()).map_or("nobody counted", String::as_str);
        Verdict::Undecided(format!("{} is unknown: {why}", counter.name()))
    };
    let Some(spread) = account.spread(counter) else { return unknown() };
    if counter == Counter::Cycles {
        return match relation.holds(spread.median, value) {
            true => Verdict::Met,
            false => Verdict::Missed(format!("the median is {}", spread.median)),
        };
    }
    let kinds = account.kinds.iter();
    let broken = kinds.filter_map(|kind| {
        let found = kind.account.counters.get(counter)?;
        (!relation.holds(found, value)).then_some((found, kind.rounds))
    });
    let broken: Vec<(u64, usize)> = broken.collect();
    let rounds: usize = broken.iter().map(|(_, rounds)| rounds).sum();
    let values = || {
        let mut values: Vec<u64> = broken.iter().map(|(found, _)| *found).collect();
        values.sort_unstable();
        values.dedup();
        values.iter().map(u64::to_string).collect::<Vec<_>>().join(" or ")
    };
    match rounds {
        0 if spread.of < account.total => unknown(),
        0 => Verdict::Met,
        _ => Verdict::Missed(format!("it is {} in {rounds} of {} rounds", values(), account.total)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_are_written_as_they_are_read() {
        for text in [
            "exact",
            "shootdowns<=2",
            "copies=0",
            "faults>=1",
            "cycles<900",
            "flushes!=3",
            "flushes>0",
        ] {
            assert_eq!(text.parse::<Expectation>().unwrap().to_string(), text);
        }
        assert_eq!("shootdowns <= 2".parse::<Expectation>().unwrap().to_string(), "shootdowns<=2");
        assert_eq!("copies==0".parse::<Expectation>().unwrap().to_string(), "copies=0");
    }

    #[test]
    fn what_is_no_condition_is_told() {
        for text in ["", "cow-reuse", "<=2", "shootdowns<=", "shootdowns!2", "shootdowns", "=", "é"]
        {
            let refused = text.parse::<Expectation>().unwrap_err();
            assert!(matches!(refused, BadExpectation::NoCondition(_)), "{text}: {refused}");
        }
        for text in ["shootdowns<=x", "shootdowns<=-1", "copies=+1", "faults>99999999999999999999"]
        {
            let refused = text.parse::<Expectation>().unwrap_err();
            assert!(matches!(refused, BadExpectation::NoNumber(_)), "{text}: {refused}");
        }
        let refused = "shootdown<=2".parse::<Expectation>().unwrap_err().to_string();
        assert!(
            refused.contains("`shootdown`") && refused.contains("needless_shootdowns"),
            "{refused}"
        );
    }

    #[test]
    fn relations_are_what_their_signs_say() {
        let holds = |relation: Relation| [1, 2, 3].map(|found| relation.holds(found, 2));
        for (relation, expected) in [
            (Relation::AtMost, [true, true, false]),
            (Relation::AtLeast, [false, true, true]),
            (Relation::Other, [true, false, true]),
            (Relation::Less, [true, false, false]),
            (Relation::More, [false, false, true]),
            (Relation::Same, [false, true, false]),
        ] {
            assert_eq!(holds(relation), expected, "{}", relation.sign());
        }
    }
}

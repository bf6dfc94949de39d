//! The results of a study: published figures beside ours, relation by relation.
//!
//! Every relation holds, does not hold, or cannot be decided here; the last two have a reason. A
//! figure that could not be measured here has no value, and neither has anything that is computed
//! from it.

mod answer;
mod blocks;
mod contrast;
mod document;
mod markdown;
mod overview;
mod text;

pub use answer::{MatrixResult, Sentence};
pub(crate) use blocks::Block;
pub use contrast::{CaseResult, ContrastResult};
pub use document::{document, list_document};
pub use markdown::markdown;
pub use text::{list_text, text};

use crate::cost::Price;
use needless_model::counters::Counter;
use needless_model::verdict::Finding;
use needless_scenario::study::{Study, Sweep};
use serde::Serialize;
use std::collections::BTreeMap;

/// A study that was run.
#[derive(Clone, Debug)]
pub struct Studied {
    /// The study itself.
    pub study: Study,
    /// The results of the parts that were asked for.
    pub parts: Vec<PartResult>,
    /// Targets that lost runs for a reason that passes; and how many of how many, with the first
    /// reason.
    pub lost: Vec<(String, String)>,
    /// The machine that the study ran on.
    pub environment: BTreeMap<String, String>,
    /// The time that it took.
    pub seconds: f64,
}

/// How the reason begins why nothing is said about a relation that held only once of two times.
pub const NOT_DECIDED: &str = "not decided: measured twice";

/// Whether something holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "standing", content = "reason")]
pub enum Standing {
    /// It holds.
    Holds,
    /// It does not hold. The text says what was found.
    DoesNot(String),
    /// It cannot be decided here. The text says why.
    NotHere(String),
}

impl Standing {
    /// The word for this standing.
    pub const fn word(&self) -> &'static str {
        match self {
            Standing::Holds => "holds",
            Standing::DoesNot(_) => "DOES NOT HOLD",
            Standing::NotHere(_) => "not to be had here",
        }
    }

    /// The reason, if it does not hold or cannot be decided.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Standing::Holds => None,
            Standing::DoesNot(reason) | Standing::NotHere(reason) => Some(reason),
        }
    }
}

/// The results of a part.
#[derive(Clone, Debug, Default)]
pub struct PartResult {
    /// The part's name.
    pub name: String,
    /// What the part asks, one sentence each.
    pub doc: Vec<String>,
    /// The results of its runs.
    pub runs: Vec<RunResult>,
    /// The results of its cost tables.
    pub costs: Vec<CostsResult>,
    /// The results of the checker.
    pub checks: Vec<CheckResult>,
    /// The tables of runs, by target.
    pub tables: Vec<TableResult>,
    /// Cases that are run under two conditions each.
    pub contrasts: Vec<ContrastResult>,
    /// The figures of the part, with the cells of sweeps.
    pub figures: Vec<FigureResult>,
    /// The results of its sweeps.
    pub sweeps: Vec<Sweep>,
    /// The relations of the part, with those about findings.
    pub relations: Vec<RelationResult>,
}

/// A scenario on its targets.
#[derive(Clone, Debug)]
pub struct RunResult {
    /// The run's name.
    pub name: String,
    /// The scenario that ran, with its values: `cow-reuse, pages=8`.
    pub scenario: String,
    /// The counters that are shown.
    pub counters: Vec<Counter>,
    /// The results on each target.
    pub targets: Vec<TargetResult>,
}

/// A target of a run.
#[derive(Clone, Debug)]
pub struct TargetResult {
    /// The target's name.
    pub target: String,
    /// The release, if it is a real kernel.
    pub release: Option<String>,
    /// The figures per round, by counter.
    pub counts: Vec<Count>,
    /// The median cycles of the `measure` block, if there is only one and it was timed.
    pub cycles: Option<u64>,
    /// The number of rounds that equal those of the model's row, the number of all rounds, and the
    /// row.
    pub agreement: Option<(usize, usize, String)>,
    /// Why it is undecided whether the target equals that row, although everything expected was
    /// counted.
    pub undecided: Option<String>,
    /// What was wrong with the first run, if this is a second one that came out right.
    pub odd: Option<String>,
    /// TLB invalidations that an emulator saw in most rounds (arm64's TLBI). `None` if nothing
    /// counted them.
    pub tlbi: Option<u64>,
    /// The needless things, with their number in all rounds.
    pub findings: Vec<(Finding, u64)>,
    /// The number of rounds that were run.
    pub rounds: usize,
    /// Whether the target is as expected. `None` if nothing was expected.
    pub standing: Option<Standing>,
}

/// The value of one counter on one target.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Count {
    /// The counter's name.
    pub counter: Counter,
    /// The count that each round should have.
    pub expected: Option<u64>,
    /// The count of most rounds.
    pub found: Option<u64>,
    /// Whether that is the model's figure, for rounds with an equal sequence.
    pub transferred: bool,
}

/// A table of runs on one target.
#[derive(Clone, Debug)]
pub struct TableResult {
    /// What the table shows.
    pub text: String,
    /// The target's name.
    pub target: String,
    /// The counters of the columns.
    pub counters: Vec<Counter>,
    /// The number that cycles are divided by.
    pub per: f64,
    /// The rows of the table.
    pub rows: Vec<TableRow>,
}

/// A run in a table.
#[derive(Clone, Debug)]
pub struct TableRow {
    /// The run's name.
    pub run: String,
    /// The counts of most rounds, or the reason why there are none.
    pub counts: Result<Vec<Option<u64>>, String>,
    /// The cycles of all blocks of a round, divided: the median over the rounds.
    pub cycles: Option<f64>,
}

/// A cost table.
#[derive(Clone, Debug)]
pub struct CostsResult {
    /// The table's name.
    pub name: String,
    /// The target whose cycles it is fitted to.
    pub target: String,
    /// The prices, with each term's name and meaning, or the reason why there are none.
    pub prices: Result<Vec<(String, String, Price)>, String>,
    /// The samples: measured cycles, and what the prices predict.
    pub samples: Vec<SampleResult>,
}

impl CostsResult {
    /// The largest error of the fitted samples, or of those held out: `0.04` is 4 %.
    pub fn worst(&self, held_out: bool) -> Option<f64> {
        let those = self.samples.iter().filter(|sample| sample.held_out == held_out);
        those.map(SampleResult::error).max_by(f64::total_cmp)
    }
}

/// A timed block.
#[derive(Clone, Debug)]
pub struct SampleResult {
    /// The sample's name.
    pub name: String,
    /// The median of the measured cycles.
    pub measured: f64,
    /// The cycles that the prices predict.
    pub predicted: f64,
    /// Whether it was only predicted, and not fitted.
    pub held_out: bool,
}

impl SampleResult {
    /// The error of the prediction, in proportion.
    pub fn error(&self) -> f64 {
        (self.predicted / self.measured - 1.0).abs()
    }
}

/// A result of the checker.
#[derive(Clone, Debug)]
pub struct CheckResult {
    /// The check's name in the study.
    pub name: String,
    /// The litmus test, with its values.
    pub test: String,
    /// Where the result is argued. Empty if nowhere.
    pub shown: String,
    /// The kernel row.
    pub row: String,
    /// The expected result: `holds`, or the property that has to be violated.
    pub expected: String,
    /// The result.
    pub found: String,
    /// The number of states, if the test was explored.
    pub states: Option<usize>,
    /// Whether the result is as expected.
    pub standing: Standing,
}

/// A figure with its value.
#[derive(Clone, Debug)]
pub struct FigureResult {
    /// The figure's name.
    pub name: String,
    /// The value, or the reason why there is none.
    pub value: Result<f64, String>,
    /// The unit. Empty if it is a plain number.
    pub unit: String,
    /// The source of the figure: `published`, `stated: …`, `live`, `a / b`.
    pub origin: String,
    /// What the figure is.
    pub doc: String,
}

/// The result of a relation.
#[derive(Clone, Debug)]
pub struct RelationResult {
    /// The relation in words.
    pub text: String,
    /// The formula of the study: `new / old ~ published`.
    pub formula: String,
    /// The values of the two sides, if both have one.
    pub sides: Option<(f64, f64)>,
    /// The factor by which the sides may differ.
    pub within: Option<f64>,
    /// Whether the relation holds.
    pub standing: Standing,
    /// How far stated figures may move before the relation fails.
    pub margins: Vec<Margin>,
    /// What the relation follows from. Empty if it could fail by itself.
    pub follows: String,
}

/// How far a stated figure may move, by itself, before a relation fails.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Margin {
    /// The figure's name.
    pub name: String,
    /// The figure's value.
    pub value: f64,
    /// The least value with which the relation holds. `None`: it holds with a hundredth of the
    /// value.
    pub least: Option<f64>,
    /// The largest value with which the relation holds. `None`: it holds with a hundred times the
    /// value.
    pub most: Option<f64>,
}

/// How much of a report is printed.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum View {
    /// The answer, what failed and what could not be decided here.
    Overview,
    /// In addition, all figures, runs, relations and checks.
    Details,
}

/// The number of things of each standing.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Totals {
    /// The number that hold.
    pub hold: usize,
    /// The number that do not hold.
    pub do_not: usize,
    /// The number that could not be decided here.
    pub not_here: usize,
}

impl Totals {
    /// The number of all of them.
    pub const fn all(self) -> usize {
        self.hold + self.do_not + self.not_here
    }

    fn of<'a>(standings: impl Iterator<Item = &'a Standing>) -> Totals {
        let mut totals = Totals::default();
        for standing in standings {
            match standing {
                Standing::Holds => totals.hold += 1,
                Standing::DoesNot(_) => totals.do_not += 1,
                Standing::NotHere(_) => totals.not_here += 1,
            }
        }
        totals
    }
}

impl std::ops::Add for Totals {
    type Output = Totals;

    fn add(self, other: Totals) -> Totals {
        Totals {
            hold: self.hold + other.hold,
            do_not: self.do_not + other.do_not,
            not_here: self.not_here + other.not_here,
        }
    }
}

/// What was tested, by kind.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tested {
    /// Relations that could fail by themselves.
    pub relations: Totals,
    /// Relations that follow from others, and hold.
    pub follow: usize,
    /// Runs on targets for which something is expected.
    pub targets: Totals,
    /// Litmus tests on kernel rows.
    pub checks: Totals,
}

impl PartResult {
    /// Everything that is known of it.
    pub(crate) fn blocks(&self) -> Vec<Block> {
        let mut blocks = Vec::new();
        blocks::of_part(self, &mut blocks);
        blocks
    }

    /// The standing of everything that should hold.
    pub fn standings(&self) -> impl Iterator<Item = &Standing> {
        let checks = self.checks.iter().map(|check| &check.standing);
        self.of_targets().chain(checks).chain(self.relations.iter().map(|r| &r.standing))
    }

    fn of_targets(&self) -> impl Iterator<Item = &Standing> {
        let targets = self.runs.iter().flat_map(|run| &run.targets);
        targets.filter_map(|target| target.standing.as_ref())
    }

    /// How much was tested, and with what result.
    pub fn tested(&self) -> Tested {
        // A relation that follows from others is counted apart as long as it holds. A failure
        // counts in any case.
        let follows = |r: &&RelationResult| !r.follows.is_empty() && r.standing == Standing::Holds;
        let own = self.relations.iter().filter(|relation| !follows(relation));
        Tested {
            relations: Totals::of(own.map(|relation| &relation.standing)),
            follow: self.relations.iter().filter(follows).count(),
            targets: Totals::of(self.of_targets()),
            checks: Totals::of(self.checks.iter().map(|check| &check.standing)),
        }
    }
}

impl Studied {
    /// The standing of everything that should hold, in all parts.
    pub fn standings(&self) -> impl Iterator<Item = &Standing> {
        self.parts.iter().flat_map(PartResult::standings)
    }

    /// The number of things of each standing.
    pub fn totals(&self) -> Totals {
        Totals::of(self.standings())
    }

    /// How many relations were measured twice and held only once.
    pub fn undecided(&self) -> usize {
        let relations = self.parts.iter().flat_map(|part| &part.relations);
        let reasons = relations.filter_map(|relation| relation.standing.reason());
        reasons.filter(|reason| reason.starts_with(NOT_DECIDED)).count()
    }

    /// How much was tested in all parts.
    pub fn tested(&self) -> Tested {
        self.parts.iter().map(PartResult::tested).fold(Tested::default(), |sum, part| Tested {
            relations: sum.relations + part.relations,
            follow: sum.follow + part.follow,
            targets: sum.targets + part.targets,
            checks: sum.checks + part.checks,
        })
    }

    fn blocks(&self, view: View) -> Vec<Block> {
        match view {
            View::Overview => overview::blocks(self),
            View::Details => blocks::details(self),
        }
    }

    /// The answer, what was tested, what failed, and what is not to be had.
    pub(crate) fn results(&self) -> Vec<Block> {
        overview::results(self).into_iter().chain(overview::lost(self)).collect()
    }
}

/// A number as text. Whole numbers are written whole, others with four digits.
pub fn number(value: f64) -> String {
    if value.fract() == 0.0 && value.abs() < 1e15 {
        return format!("{value:.0}");
    }
    let before = value.abs().log10().floor() as i32 + 1;
    let digits = usize::try_from(4 - before).unwrap_or(0).min(12);
    format!("{value:.digits$}")
}

/// A relation with its numbers: `6.56 ~ 7.1 (within 1.3 times)`.
pub(crate) fn with_numbers(relation: &RelationResult) -> String {
    let Some((left, right)) = relation.sides else { return relation.formula.clone() };
    let sign = relation.formula.split(' ').find(|word| SIGNS.contains(word)).unwrap_or("?");
    let within = relation.within.map(|factor| match factor {
        ..1.1 => format!(" (within {:.0} %)", (factor - 1.0) * 100.0),
        _ => format!(" (within a factor of {factor})"),
    });
    format!("{} {sign} {}{}", number(left), number(right), within.unwrap_or_default())
}

/// The two sides of a relation, as it stands in the study.
pub(crate) fn sides(formula: &str) -> (&str, &str) {
    let words = formula.split(' ').scan(0, |at, word| {
        let start = *at;
        *at += word.len() + 1;
        Some((start, word))
    });
    let sign = words.into_iter().find(|(_, word)| SIGNS.contains(word));
    sign.map_or((formula, ""), |(at, word)| {
        (formula[..at].trim_end(), formula[at + word.len()..].trim_start())
    })
}

const SIGNS: [&str; 7] = ["=", "!=", "<", "<=", ">", ">=", "~"];

/// The properties of the machine that reports show.
pub(crate) const TOLD: [&str; 11] = [
    "kernel.release",
    "cpu.model-name",
    "cpu.cpu-family",
    "cpu.model",
    "cpu.stepping",
    "cpu.microcode",
    "cpu.flag.hypervisor",
    "cpu.flag.pcid",
    "cpu.online",
    "thp.enabled",
    "vm.lru_gen",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_relation_has_two_sides() {
        assert_eq!(sides("new / old ~ sends"), ("new / old", "sends"));
        assert_eq!(sides("a <= b + c"), ("a", "b + c"));
        assert_eq!(sides("no sign"), ("no sign", ""));
    }

    #[test]
    fn numbers_are_readable() {
        for (value, text) in [
            (3.0, "3"),
            (300_000.0, "300000"),
            (6.5591, "6.559"),
            (0.001_234_5, "0.001234"),
            (12_345.67, "12346"),
            (-1.5, "-1.500"),
            (0.0, "0"),
        ] {
            assert_eq!(number(value), text);
        }
    }
}

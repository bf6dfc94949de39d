//! What came of a study: published beside ours, relation by relation.
//!
//! Every relation holds, does not, or is not to be had here; the last two with their reason. A figure that is not to
//! be had has no value, and what is computed from it has none.

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
    /// The study.
    pub study: Study,
    /// What came of its parts, as far as they were asked for.
    pub parts: Vec<PartResult>,
    /// Real kernels that told nothing at all for a reason that passes, with the reason.
    pub lost: Vec<(String, String)>,
    /// This machine.
    pub environment: BTreeMap<String, String>,
    /// How long it took.
    pub seconds: f64,
}

/// Whether something holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "standing", content = "reason")]
pub enum Standing {
    /// It does.
    Holds,
    /// It does not: what was found.
    DoesNot(String),
    /// Nothing can be said here: why.
    NotHere(String),
}

impl Standing {
    /// The word for it.
    pub const fn word(&self) -> &'static str {
        match self {
            Standing::Holds => "holds",
            Standing::DoesNot(_) => "DOES NOT HOLD",
            Standing::NotHere(_) => "not to be had here",
        }
    }

    /// Why, if it does not hold or nothing can be said.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Standing::Holds => None,
            Standing::DoesNot(reason) | Standing::NotHere(reason) => Some(reason),
        }
    }
}

/// What came of a part.
#[derive(Clone, Debug, Default)]
pub struct PartResult {
    /// Its name.
    pub name: String,
    /// What it asks, a sentence each.
    pub doc: Vec<String>,
    /// Its runs.
    pub runs: Vec<RunResult>,
    /// Its cost tables.
    pub costs: Vec<CostsResult>,
    /// What the checker found.
    pub checks: Vec<CheckResult>,
    /// Runs side by side, by target.
    pub tables: Vec<TableResult>,
    /// Cases that are run under two conditions each.
    pub contrasts: Vec<ContrastResult>,
    /// Its figures; cells of sweeps are among them.
    pub figures: Vec<FigureResult>,
    /// Its sweeps.
    pub sweeps: Vec<Sweep>,
    /// Its relations, those about findings among them.
    pub relations: Vec<RelationResult>,
}

/// A scenario on its targets.
#[derive(Clone, Debug)]
pub struct RunResult {
    /// Its name.
    pub name: String,
    /// What ran, with its values: `cow-reuse, pages=8`.
    pub scenario: String,
    /// The counters that are shown.
    pub counters: Vec<Counter>,
    /// The targets.
    pub targets: Vec<TargetResult>,
}

/// A target of a run.
#[derive(Clone, Debug)]
pub struct TargetResult {
    /// As it is named.
    pub target: String,
    /// The kernel's release, of a real one.
    pub release: Option<String>,
    /// Its figures per round, by counter.
    pub counts: Vec<Count>,
    /// Median cycles of the only `measure` block, if there is one and it was timed.
    pub cycles: Option<u64>,
    /// Rounds that equal those of the model's row, of how many, and which row.
    pub agreement: Option<(usize, usize, String)>,
    /// Why it was not decided whether it equals that row, though all that is expected was counted.
    pub undecided: Option<String>,
    /// What was odd the first time, if it was run again and came out right.
    pub odd: Option<String>,
    /// TLB invalidations that an emulator saw in most rounds (arm64's TLBI); `None`: nothing counted them.
    pub tlbi: Option<u64>,
    /// What was needless, with how often in all rounds.
    pub findings: Vec<(Finding, u64)>,
    /// How many rounds were run.
    pub rounds: usize,
    /// Whether it is as expected; `None`: nothing was expected.
    pub standing: Option<Standing>,
}

/// One counter on one target.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Count {
    /// The counter that is expected.
    pub counter: Counter,
    /// What each round was to count.
    pub expected: Option<u64>,
    /// What most rounds counted.
    pub found: Option<u64>,
    /// Whether that is the model's figure, for rounds with an equal sequence.
    pub transferred: bool,
}

/// Runs side by side on one target.
#[derive(Clone, Debug)]
pub struct TableResult {
    /// What it shows.
    pub text: String,
    /// The target.
    pub target: String,
    /// What is counted.
    pub counters: Vec<Counter>,
    /// By what cycles are divided.
    pub per: f64,
    /// The runs.
    pub rows: Vec<TableRow>,
}

/// A run in a table.
#[derive(Clone, Debug)]
pub struct TableRow {
    /// The run's name.
    pub run: String,
    /// What most rounds counted, or why nothing was.
    pub counts: Result<Vec<Option<u64>>, String>,
    /// Cycles of all blocks of a round, divided: the median over the rounds.
    pub cycles: Option<f64>,
}

/// A cost table.
#[derive(Clone, Debug)]
pub struct CostsResult {
    /// Its name.
    pub name: String,
    /// Whose cycles it is fitted to.
    pub target: String,
    /// The prices, with each term's name and meaning; or why there are none.
    pub prices: Result<Vec<(String, String, Price)>, String>,
    /// What was measured, and what the prices give.
    pub samples: Vec<SampleResult>,
}

impl CostsResult {
    /// The largest error of those that were fitted, or held out: `0.04` is 4 %.
    pub fn worst(&self, held_out: bool) -> Option<f64> {
        let those = self.samples.iter().filter(|sample| sample.held_out == held_out);
        those.map(SampleResult::error).max_by(f64::total_cmp)
    }
}

/// A timed block.
#[derive(Clone, Debug)]
pub struct SampleResult {
    /// Its name.
    pub name: String,
    /// Median cycles.
    pub measured: f64,
    /// What the prices give.
    pub predicted: f64,
    /// Whether it was predicted only.
    pub held_out: bool,
}

impl SampleResult {
    /// How far the prediction is off, in proportion.
    pub fn error(&self) -> f64 {
        (self.predicted / self.measured - 1.0).abs()
    }
}

/// What the checker found.
#[derive(Clone, Debug)]
pub struct CheckResult {
    /// The study's name for it.
    pub name: String,
    /// The test, with its values.
    pub test: String,
    /// Where it is argued; empty if nowhere.
    pub shown: String,
    /// The kernel row.
    pub row: String,
    /// `holds`, or the property that has to be violated.
    pub expected: String,
    /// What was found.
    pub found: String,
    /// States, if it was explored.
    pub states: Option<usize>,
    /// Whether it is as expected.
    pub standing: Standing,
}

/// A figure.
#[derive(Clone, Debug)]
pub struct FigureResult {
    /// Its name.
    pub name: String,
    /// Its value, or why there is none.
    pub value: Result<f64, String>,
    /// Its unit; empty if it is a plain number.
    pub unit: String,
    /// Where it comes from: `published`, `stated: …`, `live`, `a / b`.
    pub origin: String,
    /// What it is.
    pub doc: String,
}

/// A relation.
#[derive(Clone, Debug)]
pub struct RelationResult {
    /// It in words.
    pub text: String,
    /// As it stands in the study: `new / old ~ published`.
    pub formula: String,
    /// The two sides, as far as they have values.
    pub sides: Option<(f64, f64)>,
    /// How far apart they may be, as a factor.
    pub within: Option<f64>,
    /// Whether it holds.
    pub standing: Standing,
    /// How far stated figures may move before it fails.
    pub margins: Vec<Margin>,
    /// From what it follows; empty if it could fail by itself.
    pub follows: String,
}

/// How far a stated figure may move, by itself, before a relation fails.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Margin {
    /// The figure.
    pub name: String,
    /// Its value.
    pub value: f64,
    /// The least with which the relation holds; `None`: a hundredth of it does.
    pub least: Option<f64>,
    /// The most; `None`: a hundred times as much does.
    pub most: Option<f64>,
}

/// How much of a report is printed.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum View {
    /// The answer, what failed and what is not to be had.
    Overview,
    /// All figures, runs, relations and checks as well.
    Details,
}

/// How many things there are of each standing.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Totals {
    /// Those that hold.
    pub hold: usize,
    /// Those that do not.
    pub do_not: usize,
    /// Those that are not to be had here.
    pub not_here: usize,
}

impl Totals {
    /// All of them.
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

/// What was tested, by its kind.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tested {
    /// Relations that could fail by themselves.
    pub relations: Totals,
    /// Relations that follow from others, and hold.
    pub follow: usize,
    /// Runs on targets of which something is expected.
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

    /// What was to hold, wherever it stands.
    pub fn standings(&self) -> impl Iterator<Item = &Standing> {
        let checks = self.checks.iter().map(|check| &check.standing);
        self.of_targets().chain(checks).chain(self.relations.iter().map(|r| &r.standing))
    }

    fn of_targets(&self) -> impl Iterator<Item = &Standing> {
        let targets = self.runs.iter().flat_map(|run| &run.targets);
        targets.filter_map(|target| target.standing.as_ref())
    }

    /// How much of it was tested, and how that ended.
    pub fn tested(&self) -> Tested {
        // One that follows is counted apart as long as it holds: a failure counts in any case.
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
    /// What was to hold, wherever it stands.
    pub fn standings(&self) -> impl Iterator<Item = &Standing> {
        self.parts.iter().flat_map(PartResult::standings)
    }

    /// How many of each there are.
    pub fn totals(&self) -> Totals {
        Totals::of(self.standings())
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

/// A number as people read it: whole numbers whole, others with four digits.
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

/// What is told of this machine, of all that was recorded.
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

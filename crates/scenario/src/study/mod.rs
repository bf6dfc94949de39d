//! Studies: a question, what was published about it, and what has to hold here.
//!
//! A study is data. Its runs name built-in scenarios and targets. Its figures are published,
//! stated, taken from runs or computed. Its relations compare figures. Everything that is needed to
//! run a study is in its text.

mod answer;
mod contrast;
mod formula;
mod read;
pub mod rules;
mod sweep;
mod tiers;
mod words;

pub use answer::{Answer, Matrix, MatrixColumn, MatrixRow, Piece, RunOf, Template};
pub use contrast::{Case, Contrast};
pub use formula::{Comparison, Formula, Operator};
pub use sweep::{Column, Sweep};

use crate::builtin::Builtin;
use crate::{ScenarioError, Settings, Source, error, file};
use needless_model::counters::Counter;
use needless_model::event::FaultClass;
use needless_model::program::ThpMode;
use needless_model::property::Property;
use needless_model::tiering::{Rate, Setup};
use needless_model::verdict::Needless;
use std::fmt;
use std::io::ErrorKind;

/// A study, as its text says it.
#[derive(Clone, Debug, PartialEq)]
pub struct Study {
    /// The study's name.
    pub name: String,
    /// The question, one sentence each.
    pub doc: Vec<String>,
    /// Who published the question, where and when.
    pub sources: Vec<String>,
    /// How long the study takes to run.
    pub takes: String,
    /// Figures that were published, and assumptions.
    pub given: Vec<Given>,
    /// What cannot be reproduced here.
    pub missing: Vec<Missing>,
    /// The sentences that are printed first.
    pub answers: Vec<Answer>,
    /// The tables that follow the sentences.
    pub matrices: Vec<Matrix>,
    /// The parts of the study.
    pub parts: Vec<Part>,
    /// How large its large areas are, if it can be run in another size.
    pub size: Option<Size>,
}

/// The size of a study: how large its large areas are.
#[derive(Clone, Debug, PartialEq)]
pub struct Size {
    /// The number of pages.
    pub pages: f64,
    /// The number of pages on real kernels, if the study has another size for them.
    pub live: Option<f64>,
    /// The reason for that other size.
    pub because: String,
    /// Whether the user asked for this size.
    pub asked: bool,
}

/// The name of the figure that says how large a study is.
const SIZE: &str = "size";

/// The name of the figure that says how large a study is on real kernels.
const LIVE_SIZE: &str = "live_size";

/// A figure that nobody measured here.
#[derive(Clone, Debug, PartialEq)]
pub struct Given {
    /// The figure's name in formulas.
    pub name: String,
    /// The figure's value.
    pub value: f64,
    /// The figure's unit. Empty if it is a plain number.
    pub unit: String,
    /// What the figure is.
    pub doc: String,
    /// The source of an assumption. `None`: the figure was published with the question.
    pub stated: Option<String>,
}

/// Something that cannot be reproduced here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// What is missing.
    pub what: String,
    /// The reason.
    pub why: String,
}

/// A part of a study.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Part {
    /// The part's name.
    pub name: String,
    /// What the part asks, one sentence each.
    pub doc: Vec<String>,
    /// Scenarios on targets.
    pub runs: Vec<Run>,
    /// Questions for the checker.
    pub checks: Vec<Check>,
    /// Cost tables.
    pub costs: Vec<Costs>,
    /// Machines with fast and slow memory.
    pub tiers: Vec<Tiers>,
    /// Figures, in the order of the text. They include the cells of sweeps.
    pub figures: Vec<Figure>,
    /// Formulas over a number.
    pub sweeps: Vec<Sweep>,
    /// Tables of runs side by side.
    pub tables: Vec<Table>,
    /// Two groups of runs, and what differs between them.
    pub contrasts: Vec<Contrast>,
    /// What has to be found needless.
    pub findings: Vec<Finding>,
    /// What has to hold.
    pub relations: Vec<Relation>,
}

/// A machine with fast and slow memory that runs over time.
#[derive(Clone, Debug, PartialEq)]
pub struct Tiers {
    /// The machine's name in the study.
    pub name: String,
    /// The machine and its work.
    pub setup: Setup,
}

/// A scenario with values of its parameters.
#[derive(Clone, Debug, PartialEq)]
pub struct Chosen {
    /// The scenario's name.
    pub scenario: String,
    /// The values of its parameters.
    pub settings: Settings,
    /// The number of rounds, if it is not the scenario's own.
    pub rounds: Option<u32>,
    /// The mode of transparent huge pages, if it is not the scenario's own.
    pub thp: Option<ThpMode>,
}

/// A scenario on targets.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// The run's name.
    pub name: String,
    /// The scenario that runs.
    pub chosen: Chosen,
    /// The targets on which it runs.
    pub targets: Vec<On>,
}

/// A target, and what each round must count there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct On {
    /// The target's name.
    pub target: String,
    /// What is expected, each from a release on. Empty if nothing is.
    pub expected: Vec<Expected>,
}

/// What each round must count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Expected {
    /// The first release of which this is expected. `None`: any release.
    pub since: Option<(u32, u32)>,
    /// The counters and their values.
    pub counts: Vec<(Counter, u64)>,
}

impl On {
    /// What is expected of a release. A target of unknown release has what is expected of any.
    pub fn expected(&self, release: Option<(u32, u32)>) -> Option<&Expected> {
        let from = |expected: &&Expected| expected.since.is_none() || expected.since <= release;
        self.expected.iter().filter(from).max_by_key(|expected| expected.since)
    }
}

/// A table of runs side by side.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// What the table shows.
    pub text: String,
    /// The runs, in the order of the table's rows.
    pub runs: Vec<String>,
    /// The counters of each round that the table shows.
    pub counters: Vec<Counter>,
    /// The number that cycles are divided by.
    pub per: f64,
}

/// A litmus test that the checker explores.
#[derive(Clone, Debug, PartialEq)]
pub struct Check {
    /// The check's name.
    pub name: String,
    /// The litmus test.
    pub chosen: Chosen,
    /// Where the result is argued. Empty if nowhere.
    pub shown: String,
    /// Kernel rows, each with the violation that must be found. `None`: the test must hold.
    pub rows: Vec<(String, Option<Property>)>,
}

/// A cost table that is fitted to measured cycles.
#[derive(Clone, Debug, PartialEq)]
pub struct Costs {
    /// The table's name.
    pub name: String,
    /// The real kernel whose cycles the table is fitted to.
    pub target: String,
    /// The terms, which get a price each.
    pub terms: Vec<Term>,
    /// The samples that the table is fitted to.
    pub samples: Vec<Sample>,
}

/// Work that has a price.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Term {
    /// The term's name.
    pub name: String,
    /// The counters that count the work. Empty: the work is `measure` blocks.
    pub counters: Vec<Counter>,
    /// What the work is.
    pub doc: String,
}

/// A `measure` block whose cycles a cost table is fitted to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The sample's name.
    pub name: String,
    /// The run's name.
    pub run: String,
    /// The block's number in a round, from 0.
    pub block: usize,
    /// Whether the block is predicted instead of fitted.
    pub held_out: bool,
}

/// A figure of a study.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// The figure's name in formulas.
    pub name: String,
    /// The figure's unit. Empty if it is a plain number.
    pub unit: String,
    /// What the figure is.
    pub doc: String,
    /// Where the figure comes from.
    pub from: From,
}

/// The source of a figure.
#[derive(Clone, Debug, PartialEq)]
pub enum From {
    /// A formula computes it.
    Formula(Formula),
    /// What a run shows on a target, divided by a number.
    Run {
        /// The run's name.
        run: String,
        /// The target's name.
        target: String,
        /// The value that is taken.
        shown: Shown,
        /// The divisor.
        per: f64,
    },
    /// The cycles that a cost table predicts for the `measure` blocks of a round, divided by a
    /// number.
    Costs {
        /// The name of the cost table.
        costs: String,
        /// The run's name.
        run: String,
        /// The target, a row of the model.
        target: String,
        /// The divisor.
        per: f64,
    },
    /// What a machine with fast and slow memory does in one second.
    Tiers {
        /// The machine's name.
        tiers: String,
        /// What is counted.
        rate: Rate,
    },
    /// A price in a cost table.
    Price {
        /// The name of the cost table.
        costs: String,
        /// The name of the term.
        term: String,
    },
}

/// The value that a figure takes from a run.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Shown {
    /// The counter's most frequent value.
    Counter(Counter),
    /// Faults of a class in the most frequent round.
    Class(FaultClass),
    /// The median of the cycles of `measure` blocks: of one block in each round, counted from 0, or
    /// of all blocks.
    Cycles(Option<usize>),
    /// Accessed bits that processors set in a round. Only the model shows them.
    Updates,
    /// Dirty bits that processors set in a round. Only the model shows them.
    DirtyUpdates,
    /// Page-table entries that the kernel set. Only the model shows them.
    Entries,
    /// Markers among the entries that the kernel set. Only the model shows them.
    MarkersSet,
    /// Pages on the active list after this many passes of the classic LRU. Only the model shows
    /// them.
    Active(usize),
    /// Pages in memory after this many passes.
    Resident(usize),
    /// Page tables that exist when the run ends, including those deposited for huge pages. Only the
    /// model shows them.
    Tables,
    /// Markers that exist when the run ends. Only the model shows them.
    Markers,
    /// Pages that pagemap reports as protected by userfaultfd when the run ends.
    Protected,
    /// TLB invalidations that an emulator saw in most rounds.
    Tlbi,
    /// Page tables of a real kernel's process when the run ends, beyond those that it began with.
    PageTables,
}

/// Needless work that has to be found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What the finding means.
    pub text: String,
    /// What is needless.
    pub what: Needless,
    /// The kernel function that does the work.
    pub function: String,
    /// The run's name.
    pub run: String,
    /// The target's name.
    pub target: String,
    /// How often it happens in a round.
    pub times: u64,
}

/// A statement that must hold.
#[derive(Clone, Debug, PartialEq)]
pub struct Relation {
    /// The statement in words.
    pub text: String,
    /// The comparison that must hold.
    pub is: Equation,
    /// A condition outside of which the comparison need not hold, and the reason.
    pub only: Option<(Equation, String)>,
    /// Stated figures for which the report says how far they may move before the relation fails.
    pub moves: Vec<String>,
    /// What the relation follows from. Empty if it could fail by itself.
    pub follows: String,
}

/// Two formulas and how they compare.
#[derive(Clone, Debug, PartialEq)]
pub struct Equation {
    /// The left formula.
    pub left: Formula,
    /// How the two compare.
    pub comparison: Comparison,
    /// The right formula.
    pub right: Formula,
}

impl fmt::Display for Equation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.left, self.comparison, self.right)
    }
}

/// The built-in studies.
pub static ALL: &[Builtin] = &[
    Builtin { name: "cow-reuse", text: include_str!("../../../../studies/cow-reuse.kdl") },
    Builtin { name: "fork-young", text: include_str!("../../../../studies/fork-young.kdl") },
    Builtin { name: "retried-fault", text: include_str!("../../../../studies/retried-fault.kdl") },
    Builtin {
        name: "wp-unpopulated",
        text: include_str!("../../../../studies/wp-unpopulated.kdl"),
    },
    Builtin {
        name: "dirty-tracking",
        text: include_str!("../../../../studies/dirty-tracking.kdl"),
    },
    Builtin {
        name: "migration-flush",
        text: include_str!("../../../../studies/migration-flush.kdl"),
    },
];

/// Loads the built-in study of this name, else the file at this path. `size` is the number of pages
/// of its large areas, if not its own.
///
/// # Errors
/// Returns an error if there is no such study, or if it has problems: what is wrong, and where.
pub fn load(name: &str, size: Option<u64>) -> Result<Study, ScenarioError> {
    if let Some(builtin) = ALL.iter().find(|builtin| builtin.name == name) {
        return parse(&Source::new(name, builtin.text), size);
    }
    match file::read(name) {
        Ok(text) => parse(&Source::new(name, text).plain()?, size),
        Err(file::Error::Refused(why)) => {
            Err(ScenarioError::Refused { path: name.to_owned(), why })
        }
        Err(file::Error::Failed(e)) if e.kind() == ErrorKind::NotFound => {
            let similar = error::similar(name, ALL.iter().map(|builtin| builtin.name));
            Err(ScenarioError::NoStudy { name: name.to_owned(), similar })
        }
        Err(file::Error::Failed(source)) => {
            Err(ScenarioError::Unreadable { path: name.to_owned(), source })
        }
    }
}

/// Reads a study.
///
/// # Errors
/// Returns all problems of the text, with their places.
pub fn parse(source: &Source, size: Option<u64>) -> Result<Study, ScenarioError> {
    read::study(&source.text, size)
        .map_err(|problems| ScenarioError::invalid(&source.name, &source.text, problems))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_in_studies_are_good_and_formatted() {
        for builtin in ALL {
            let study = load(builtin.name, None)
                .unwrap_or_else(|e| panic!("{}: {:?}", builtin.name, miette::Report::new(e)));
            assert_eq!(study.name, builtin.name);
            assert_eq!(builtin.doc(), study.doc[0]);
            let source = Source::new(builtin.name, builtin.text);
            assert_eq!(crate::format(&source).unwrap(), builtin.text, "{}", builtin.name);
        }
    }

    #[test]
    fn what_is_expected_depends_on_the_release() {
        let of = |since, faults| Expected { since, counts: vec![(Counter::Faults, faults)] };
        let on = On {
            target: "live".to_owned(),
            expected: vec![of(Some((6, 12)), 1), of(Some((5, 10)), 2)],
        };
        let faults = |release| Some(on.expected(release)?.counts[0].1);
        assert_eq!(faults(Some((6, 18))), Some(1));
        assert_eq!(faults(Some((6, 1))), Some(2));
        assert_eq!(faults(Some((5, 9))), None);
        assert_eq!(faults(None), None);
    }

    fn problems(text: &str) -> Vec<String> {
        let error = parse(&Source::new("bad", text), None).unwrap_err();
        error.problems().map(ToString::to_string).collect()
    }

    /// The text of a study that has one part.
    fn part(text: &str) -> String {
        format!(
            "study \"s\" {{\n doc \"d\"\n source \"x\"\n takes \"t\"\n published \"p\" 3 doc=\"d\"\n part \"a\" {{\n doc \"d\"\n{text}\n}} }}"
        )
    }

    #[test]
    fn cells_of_a_sweep_are_figures() {
        let text = part(
            "sweep \"s\" over=\"n\" values=\"2 5\" { column \"a\" is=\"n * p\" doc=\"d\"; column \"b\" is=\"a - n\" doc=\"d\" }\nrelation \"r\" is=\"b_5 = a_2 + 4\"",
        );
        let study = parse(&Source::new("s", &text), None).unwrap();
        let figures = study.parts[0].figures.iter().map(|figure| match &figure.from {
            From::Formula(formula) => format!("{} = {formula}", figure.name),
            other => panic!("{other:?}"),
        });
        let figures: Vec<String> = figures.collect();
        assert_eq!(figures, ["a_2 = 2 * p", "b_2 = a_2 - 2", "a_5 = 5 * p", "b_5 = a_5 - 5"]);
    }

    #[test]
    fn real_kernels_can_have_a_size_of_their_own() {
        let size = "size 8 doc=\"d\" live=4 because=\"b\"";
        let text = part("relation \"r\" is=\"size = live_size\"");
        let text = text.replace(" part \"a\"", &format!(" {size}\n part \"a\""));
        let sizes = |asked| {
            let size = parse(&Source::new("s", text.as_str()), asked).unwrap().size.unwrap();
            (size.pages, size.live, size.asked)
        };
        assert_eq!(sizes(None), (8.0, Some(4.0), false));
        assert_eq!(sizes(Some(16)), (16.0, Some(16.0), true));
        let text = text.replace(" because=\"b\"", "");
        assert!(problems(&text)[0].contains("live= and because= go together"));
    }

    #[test]
    fn bad_studies_are_pointed_at() {
        let run = "run \"one\" scenario=\"cow-reuse\" { on \"model:6.12\" shootdowns=2 }\n";
        for (text, said) in [
            ("relation \"r\" is=\"p = q\"", "there is no figure `q`"),
            ("relation \"r\" is=\"p ~ 3\"", "how far apart may they be?"),
            ("figure \"p\" doc=\"d\" is=\"3\"", "`p` is given already"),
            ("figure \"f\" doc=\"d\"", "a figure comes from exactly one source"),
            ("relation \"r\" is=\"p = 3\" because=\"b\"", "because= without where="),
            (
                "figure \"f\" doc=\"d\" is=\"3\" costs=\"c\"",
                "a figure comes from exactly one source",
            ),
            (
                "figure \"f\" doc=\"d\" run=\"two\" on=\"live\" counter=\"copies\"",
                "there is no run `two`",
            ),
            (
                "figure \"f\" doc=\"d\" run=\"one\" on=\"live\" counter=\"copies\"",
                "`one` does not run on `live`",
            ),
            (
                "figure \"f\" doc=\"d\" run=\"one\" on=\"model:6.12\" counter=\"copie\"",
                "there is no counter `copie`",
            ),
            (
                "figure \"f\" doc=\"d\" run=\"one\" on=\"model:6.12\" class=\"cow\"",
                "there is no class of faults `cow`",
            ),
            (
                "figure \"f\" doc=\"d\" costs=\"c\" run=\"one\" on=\"model:6.12\"",
                "there is no cost table `c`",
            ),
            ("run \"two\" scenario=\"cow-reuse\" { on \"model:6.13\" }", "there is no kernel row"),
            ("run \"two\" scenario=\"cow-reuse\" { on \"modl:6.12\" }", "is not a target"),
            ("run \"two\" scenario=\"cow-reuse\" { on \"live\" copy=1 }", "`on` has no property"),
            (
                "run \"two\" scenario=\"cow-reuse\" thp=\"on\" { on \"live\" }",
                "`on` is not a mode of huge pages",
            ),
            (
                "run \"two\" scenario=\"cow-reuse\" { set \"pages\" \"live_size\"; on \"live\" }",
                "the study has no such size",
            ),
            (
                "contrast \"c\" first=\"a\" second=\"b\" on=\"model:6.12\" { case \"c\" first=\"one\" second=\"one\" costs=\"1\" then=\"2\" }",
                "a contrast has two cases or more",
            ),
            (
                "contrast \"c\" first=\"a\" second=\"b\" on=\"live\" { case \"c\" first=\"one\" second=\"one\" costs=\"1\" then=\"2\" }",
                "`one` does not run on `live`",
            ),
            (
                "figure \"f\" doc=\"d\" run=\"one\" on=\"model:6.12\" left=\"pages\"",
                "the model does not show this",
            ),
            ("run \"two\" scenario=\"cow\" { on \"live\" }", "no built-in scenario named `cow`"),
            (
                "run \"two\" scenario=\"cow-reuse\" { set \"page\" 1; on \"live\" }",
                "has no parameter `page`",
            ),
            ("run \"one\" scenario=\"cow-reuse\" { on \"live\" }", "`one` is given already"),
            (
                "run \"two\" scenario=\"cow-reuse\" { on \"live\"; on \"live\" }",
                "the target is given already",
            ),
            ("relation \"r\" is=\"p = 3\" moves=\"p\"", "`p` is not a stated figure"),
            ("sweep \"s\" over=\"n\" values=\"1 x\" { }", "`x` is not a whole number"),
            (
                "sweep \"s\" over=\"p\" values=\"1\" { column \"a\" is=\"p\" doc=\"d\" }",
                "`p` is given already",
            ),
            (
                "sweep \"s\" over=\"n\" values=\"1\" { column \"a\" is=\"b\" doc=\"d\"; column \"b\" is=\"n\" doc=\"d\" }",
                "there is no figure `b` before this",
            ),
            (
                "sweep \"s\" over=\"n\" values=\"1\" { column \"a\" is=\"n\" doc=\"d\" }\nrelation \"r\" is=\"a_2 = 3\"",
                "there is no figure `a_2`",
            ),
            ("check \"c\" test=\"pageout-read\" { on \"6.12\" finds=\"P99\" }", "no property"),
            ("costs \"c\" on=\"model:6.12\" { }", "is not a real kernel"),
            (
                "finding \"f\" what=\"shot\" function=\"f\" run=\"one\" on=\"model:6.12\" times=1",
                "nothing needless is called `shot`",
            ),
        ] {
            let found = problems(&part(&format!("{run}{text}")));
            assert!(found.iter().any(|p| p.contains(said)), "{text}: {found:?}");
        }
        assert!(problems("study \"s\" { }").iter().any(|p| p.contains("has no `doc`")));
        assert!(problems("scenario \"s\" { }")[0].contains("unknown node"));
        assert!(problems("").iter().any(|p| p.contains("no study")));
    }
}

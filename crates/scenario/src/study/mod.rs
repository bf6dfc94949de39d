//! Studies: a question, what was published about it, and what has to hold here.
//!
//! A study is data. Its runs name built-in scenarios and targets, its figures are published, stated, taken from runs
//! or computed, and its relations compare them. Who runs a study asks nothing but what stands here.

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

/// A study.
#[derive(Clone, Debug, PartialEq)]
pub struct Study {
    /// Its name.
    pub name: String,
    /// The question, a sentence each.
    pub doc: Vec<String>,
    /// Who published it, where and when.
    pub sources: Vec<String>,
    /// How long it takes.
    pub takes: String,
    /// Figures that were published, and assumptions.
    pub given: Vec<Given>,
    /// What cannot be reproduced here.
    pub missing: Vec<Missing>,
    /// The sentences that are printed first.
    pub answers: Vec<Answer>,
    /// The tables that follow them.
    pub matrices: Vec<Matrix>,
    /// Its parts.
    pub parts: Vec<Part>,
    /// How large what is large in it is, if it can be run in another size.
    pub size: Option<Size>,
}

/// How large what is large in a study is.
#[derive(Clone, Debug, PartialEq)]
pub struct Size {
    /// Pages.
    pub pages: f64,
    /// Pages on real kernels, where the study has another size for them.
    pub live: Option<f64>,
    /// Why it has.
    pub because: String,
    /// Whether somebody asked for this size.
    pub asked: bool,
}

/// The figure that says how large a study is.
const SIZE: &str = "size";

/// The figure that says how large it is on real kernels.
const LIVE_SIZE: &str = "live_size";

/// A figure that nobody here measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Given {
    /// Its name in formulas.
    pub name: String,
    /// The figure.
    pub value: f64,
    /// Its unit; empty if it is a plain number.
    pub unit: String,
    /// What it is.
    pub doc: String,
    /// Where it is from, if it is an assumption; `None`: it was published with the question.
    pub stated: Option<String>,
}

/// What cannot be reproduced here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// What.
    pub what: String,
    /// Why.
    pub why: String,
}

/// A part of a study.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Part {
    /// Its name.
    pub name: String,
    /// What it asks, a sentence each.
    pub doc: Vec<String>,
    /// Scenarios on targets.
    pub runs: Vec<Run>,
    /// What the checker is asked.
    pub checks: Vec<Check>,
    /// Cost tables.
    pub costs: Vec<Costs>,
    /// Machines with fast and slow memory.
    pub tiers: Vec<Tiers>,
    /// Figures, in the order of the text; cells of sweeps are among them.
    pub figures: Vec<Figure>,
    /// Formulas over a number.
    pub sweeps: Vec<Sweep>,
    /// Runs side by side.
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
    /// Its name.
    pub name: String,
    /// The machine and its work.
    pub setup: Setup,
}

/// A scenario with values of its parameters.
#[derive(Clone, Debug, PartialEq)]
pub struct Chosen {
    /// Its name.
    pub scenario: String,
    /// The values.
    pub settings: Settings,
    /// Rounds, if not its own number.
    pub rounds: Option<u32>,
    /// The mode of transparent huge pages, if not its own.
    pub thp: Option<ThpMode>,
}

/// A scenario on targets.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// Its name.
    pub name: String,
    /// What runs.
    pub chosen: Chosen,
    /// Where.
    pub targets: Vec<On>,
}

/// A target, and what each round must count there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct On {
    /// The target.
    pub target: String,
    /// What is expected, by the release from which on it is; without any nothing is.
    pub expected: Vec<Expected>,
}

/// What each round must count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Expected {
    /// From this release on; `None`: on any.
    pub since: Option<(u32, u32)>,
    /// The counts.
    pub counts: Vec<(Counter, u64)>,
}

impl On {
    /// What is expected of a release; a target whose release is not known has what is expected of any.
    pub fn expected(&self, release: Option<(u32, u32)>) -> Option<&Expected> {
        let from = |expected: &&Expected| expected.since.is_none() || expected.since <= release;
        self.expected.iter().filter(from).max_by_key(|expected| expected.since)
    }
}

/// Runs side by side.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// What it shows.
    pub text: String,
    /// The runs, in the order of its rows.
    pub runs: Vec<String>,
    /// What of each round.
    pub counters: Vec<Counter>,
    /// What cycles are divided by.
    pub per: f64,
}

/// A litmus test that the checker explores.
#[derive(Clone, Debug, PartialEq)]
pub struct Check {
    /// Its name.
    pub name: String,
    /// The test.
    pub chosen: Chosen,
    /// Where it is argued; empty if nowhere.
    pub shown: String,
    /// Kernel rows, and what must be found: `None` if the test holds.
    pub rows: Vec<(String, Option<Property>)>,
}

/// A cost table that is fitted.
#[derive(Clone, Debug, PartialEq)]
pub struct Costs {
    /// Its name.
    pub name: String,
    /// The real kernel whose cycles it is fitted to.
    pub target: String,
    /// What has a price.
    pub terms: Vec<Term>,
    /// What it is fitted to.
    pub samples: Vec<Sample>,
}

/// What has a price.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Term {
    /// Its name.
    pub name: String,
    /// What it counts; nothing: `measure` blocks.
    pub counters: Vec<Counter>,
    /// What it is.
    pub doc: String,
}

/// A `measure` block whose cycles a cost table is fitted to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Its name.
    pub name: String,
    /// The run.
    pub run: String,
    /// Which block of a round, from 0.
    pub block: usize,
    /// Whether it is predicted instead.
    pub held_out: bool,
}

/// A figure.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// Its name in formulas.
    pub name: String,
    /// Its unit; empty if it is a plain number.
    pub unit: String,
    /// What it is.
    pub doc: String,
    /// Where it comes from.
    pub from: From,
}

/// Where a figure comes from.
#[derive(Clone, Debug, PartialEq)]
pub enum From {
    /// A formula.
    Formula(Formula),
    /// What a run shows on a target, divided by a number.
    Run {
        /// The run.
        run: String,
        /// The target.
        target: String,
        /// What is looked at.
        shown: Shown,
        /// What it is divided by.
        per: f64,
    },
    /// The cycles that a cost table predicts for the `measure` blocks of a round, divided by a number.
    Costs {
        /// The table.
        costs: String,
        /// The run.
        run: String,
        /// The model's row.
        target: String,
        /// What they are divided by.
        per: f64,
    },
    /// What a machine with fast and slow memory comes to in a second.
    Tiers {
        /// The machine.
        tiers: String,
        /// What is counted.
        rate: Rate,
    },
    /// A price of a cost table.
    Price {
        /// The table.
        costs: String,
        /// The term.
        term: String,
    },
}

/// What a figure looks at.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Shown {
    /// A counter's most frequent value.
    Counter(Counter),
    /// Faults of a class in the most frequent round.
    Class(FaultClass),
    /// The median of the cycles of `measure` blocks: of one in each round, counted from 0, or of all.
    Cycles(Option<usize>),
    /// Accessed bits that processors set in a round, in the model.
    Updates,
    /// Dirty bits that processors set in a round, in the model.
    DirtyUpdates,
    /// Page-table entries that the kernel set; only in the model.
    Entries,
    /// Markers among them.
    MarkersSet,
    /// Pages on the active list after so many passes of the classic LRU, in the model.
    Active(usize),
    /// Pages in memory after so many passes.
    Resident(usize),
    /// Page tables that the run leaves, those put by for huge pages among them; only in the model.
    Tables,
    /// Markers that it leaves; only in the model.
    Markers,
    /// Pages that pagemap says are protected by userfaultfd when the run ends.
    Protected,
    /// TLB invalidations that an emulator saw in most rounds.
    Tlbi,
    /// Page tables of a real kernel's process when the run ends, beyond those that it began with.
    PageTables,
}

/// Something needless that has to be found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What it means.
    pub text: String,
    /// What is needless.
    pub what: Needless,
    /// The kernel function that does it.
    pub function: String,
    /// The run.
    pub run: String,
    /// The target.
    pub target: String,
    /// How often in a round.
    pub times: u64,
}

/// Something that must hold.
#[derive(Clone, Debug, PartialEq)]
pub struct Relation {
    /// It in words.
    pub text: String,
    /// What must hold.
    pub is: Equation,
    /// Where alone it must, and why it is not to be had elsewhere.
    pub only: Option<(Equation, String)>,
    /// Stated figures of which is asked how far they may move before it fails.
    pub moves: Vec<String>,
    /// From what it follows; empty if it could fail by itself.
    pub follows: String,
}

/// Two formulas and how they compare.
#[derive(Clone, Debug, PartialEq)]
pub struct Equation {
    /// One side.
    pub left: Formula,
    /// How they compare.
    pub comparison: Comparison,
    /// The other side.
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

/// Loads a built-in study by its name, else a file by its path; `size`: the pages of what is large in it, if not its own.
///
/// # Errors
/// There is no such study, or it is a bad one: what is wrong and where.
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
/// All that is wrong with it, with its place.
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

    /// A study of one part.
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

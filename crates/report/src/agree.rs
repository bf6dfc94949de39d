//! Agreement of real kernels and the model, scenario by scenario.

mod document;
mod json;
mod text;

pub use document::document;
pub use json::{difference, json};
pub(crate) use text::{closing, remarks};
pub use text::{differences, text};

use crate::compare::{Ran, Reference};
use crate::groups::Group;
use std::collections::{BTreeMap, BTreeSet};

/// How a real kernel and its model row agree.
#[derive(Clone, Debug)]
pub struct TargetAgreement {
    /// The target as the user named it.
    pub target: String,
    /// The kernel's release, if any scenario ran.
    pub release: Option<String>,
    /// The model's row: `model:6.18`.
    pub row: String,
    /// Whether the row is the kernel's own.
    pub own_row: bool,
    /// The features that random scenarios were drawn without, because the target lacks them.
    pub drawn_without: Vec<String>,
    /// The scenarios that were compared.
    pub scenarios: Vec<ScenarioAgreement>,
}

/// One scenario on one real kernel.
#[derive(Clone, Debug)]
pub struct ScenarioAgreement {
    /// The scenario's name.
    pub name: String,
    /// The scenario's text.
    pub text: String,
    /// The features that the scenario uses.
    pub groups: BTreeSet<Group>,
    /// The result of the comparison.
    pub standing: Standing,
    /// The number of repetitions, because the run was undecided.
    pub retries: u32,
}

/// The result of comparing a scenario.
#[derive(Clone, Debug)]
pub enum Standing {
    /// Every round is equal.
    Exact {
        /// The number of rounds.
        rounds: usize,
        /// The number of rounds in which the processor took faults that are its choice.
        chosen: usize,
    },
    /// Something differs.
    Differing(Box<Difference>),
    /// It could not be compared, with the reason.
    Undecided(String),
    /// The kernel or the machine lacks this, which the scenario needs.
    NotApplicable(String),
}

/// What differs between a real kernel and its model row.
#[derive(Clone, Debug)]
pub enum Found {
    /// Both ran, and rounds or pages differ.
    Runs(Box<Ran>),
    /// One of them ran; an operation of the other one failed.
    Failure {
        /// How the real kernel failed, if it did.
        real: Option<String>,
        /// The model's row.
        row: String,
        /// How the model failed, if it did.
        model: Option<String>,
    },
}

/// A difference between a real kernel and the model.
#[derive(Clone, Debug)]
pub struct Difference {
    /// What differs between the kernel and the model.
    pub found: Found,
    /// How many repetitions differed, and how many there were. They show whether the scenario
    /// always differs.
    pub repeated: (u32, u32),
    /// The smallest scenario found that still differs.
    pub minimal: Option<Minimal>,
}

/// A smaller scenario that differs, too.
#[derive(Clone, Debug)]
pub struct Minimal {
    /// The smaller scenario's text.
    pub scenario: String,
    /// What differs in the smaller scenario.
    pub found: Found,
    /// The file that it was written to.
    pub file: Option<String>,
}

impl Difference {
    /// What differs in the smallest scenario, and that scenario's text. `whole` is the text of the
    /// scenario that ran.
    pub fn smallest<'a>(&'a self, whole: &'a str) -> (&'a Found, &'a str) {
        match &self.minimal {
            Some(minimal) => (&minimal.found, &minimal.scenario),
            None => (&self.found, whole),
        }
    }
}

impl Standing {
    /// The standing of a scenario that ran.
    pub fn of(ran: Ran) -> Standing {
        if let Some(reason) = &ran.run.invalid {
            return Standing::Undecided(format!("the run is invalid: {reason}"));
        }
        let Some(Reference { agreement, .. }) = &ran.reference else {
            return Standing::Undecided("there is no model row to compare with".to_owned());
        };
        match &agreement.undecided {
            Some(reason) => Standing::Undecided(reason.clone()),
            None if agreement.is_exact() => {
                Standing::Exact { rounds: agreement.rounds, chosen: agreement.chosen }
            }
            None => Standing::differing(Found::Runs(Box::new(ran))),
        }
    }

    /// The standing of a scenario that differs.
    pub fn differing(found: Found) -> Standing {
        Standing::Differing(Box::new(Difference { found, repeated: (1, 1), minimal: None }))
    }

    /// The word for this standing.
    pub const fn word(&self) -> &'static str {
        match self {
            Standing::Exact { .. } => "exact",
            Standing::Differing(_) => "differing",
            Standing::Undecided(_) => "undecided",
            Standing::NotApplicable(_) => "not-applicable",
        }
    }
}

/// The numbers of scenarios by standing.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Scenarios for which the kernel and the machine have everything.
    pub run: usize,
    /// Scenarios in which everything is equal.
    pub exact: usize,
    /// Scenarios in which something differs.
    pub differing: usize,
    /// Scenarios that could not be compared.
    pub undecided: usize,
    /// Scenarios that need what the kernel or the machine lacks. They were not run, and are not
    /// among those that were.
    pub not_applicable: usize,
}

impl Totals {
    /// The totals of some scenarios.
    pub fn of<'a>(scenarios: impl IntoIterator<Item = &'a ScenarioAgreement>) -> Totals {
        let mut totals = Totals::default();
        for scenario in scenarios {
            let count = match scenario.standing {
                Standing::Exact { .. } => &mut totals.exact,
                Standing::Differing(_) => &mut totals.differing,
                Standing::Undecided(_) => &mut totals.undecided,
                Standing::NotApplicable(_) => &mut totals.not_applicable,
            };
            *count += 1;
        }
        totals.run = totals.exact + totals.differing + totals.undecided;
        totals
    }

    /// Whether less than 2 % could not be compared: enough to say how far both agree. It is false
    /// where nothing was run.
    pub fn is_decided(&self) -> bool {
        self.undecided * 50 < self.run
    }
}

impl TargetAgreement {
    /// A heading: `live (6.18.44) and model:6.18`.
    fn heading(&self) -> String {
        let release = self.release.as_deref().unwrap_or("release not known");
        let nearest = if self.own_row { "" } else { " (nearest row: this kernel has none)" };
        format!("{} ({release}) and {}{nearest}", self.target, self.row)
    }

    /// The totals of each group that occurs. Last come those of all scenarios, under `all`.
    pub(crate) fn by_group(&self) -> Vec<(&'static str, Totals)> {
        let groups: BTreeSet<Group> =
            self.scenarios.iter().flat_map(|scenario| scenario.groups.iter().copied()).collect();
        let of = |group| self.scenarios.iter().filter(move |s| s.groups.contains(&group));
        let each = groups.into_iter().map(|group| (group.name(), Totals::of(of(group))));
        each.chain([("all", Totals::of(&self.scenarios))]).collect()
    }

    /// Repetitions of undecided runs, in all.
    fn retries(&self) -> u32 {
        self.scenarios.iter().map(|scenario| scenario.retries).sum()
    }

    /// Rounds in which the processor took faults that are its choice, in all.
    fn rounds_by_choice(&self) -> usize {
        let of = |scenario: &ScenarioAgreement| match scenario.standing {
            Standing::Exact { chosen, .. } => chosen,
            _ => 0,
        };
        self.scenarios.iter().map(of).sum()
    }

    /// What is lacking, and the scenarios that are not applicable for it.
    fn lacking(&self) -> BTreeMap<&str, Vec<&str>> {
        let mut lacking: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for scenario in &self.scenarios {
            if let Standing::NotApplicable(reason) = &scenario.standing {
                lacking.entry(reason).or_default().push(&scenario.name);
            }
        }
        lacking
    }

    /// The scenarios that differ.
    fn differences(&self) -> impl Iterator<Item = (&ScenarioAgreement, &Difference)> {
        self.scenarios.iter().filter_map(|scenario| match &scenario.standing {
            Standing::Differing(difference) => Some((scenario, &**difference)),
            _ => None,
        })
    }
}

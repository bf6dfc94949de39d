//! The scenarios that are run: named ones, and drawn ones, which can be made smaller.

use crate::failure::Failure;
use crate::source;
use crate::targets;
use needless_model::program::Program;
use needless_scenario::random::{self, Case, Target};
use needless_scenario::{Settings, Source, compile};

/// A scenario to be run.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The scenario's name.
    pub name: String,
    /// The scenario's text.
    pub text: String,
    /// The program that the text compiles to.
    pub program: Program,
    /// The case that the text was drawn as.
    pub(super) case: Option<Case>,
}

/// A built-in scenario or a file.
pub fn named(name: &str, rounds: Option<u32>) -> Result<Scenario, Failure> {
    let program = targets::program(name, &[], rounds)?;
    let text = source::load(name)?.text;
    Ok(Scenario { name: name.to_owned(), text, program, case: None })
}

/// The scenario of `seed` for `target`.
pub fn random(seed: u64, target: &Target) -> Result<Scenario, Failure> {
    Ok(written(random::generate(seed, target))?)
}

impl Scenario {
    /// Scenarios that are one reduction smaller; none for a scenario that was not drawn.
    pub fn smaller(&self) -> Vec<Scenario> {
        let smaller = self.case.iter().flat_map(Case::smaller);
        smaller.filter_map(|case| written(case).ok()).collect()
    }
}

fn written(case: Case) -> Result<Scenario, needless_scenario::ScenarioError> {
    let (name, text) = (case.name.clone(), case.text().unwrap_or_default());
    let program = compile(&Source::new(&name, &text), &Settings::default())?;
    Ok(Scenario { name, text, program, case: Some(case) })
}

//! The verbs. Each reads its arguments, asks targets, prints a report and returns an exit status.

pub mod agree;
pub mod bisect;
pub mod check;
pub mod compare;
pub mod doctor;
pub mod explain;
pub mod kernels;
pub mod manual;
pub mod policies;
pub mod scenario;
pub mod stat;
pub mod study;

use crate::args::ScenarioChoice;
use crate::failure::Failure;
use crate::targets;
use needless_model::program::Program;

/// The program of the scenario that the arguments name.
fn program(choice: &ScenarioChoice) -> Result<Program, Failure> {
    targets::program(&choice.scenario, &choice.settings, choice.rounds)
}

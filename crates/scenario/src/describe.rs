//! What a reader sees of a scenario: its description and its size.

use needless_model::addr::CpuId;
use needless_model::program::{MachineNeeds, Program};
use serde::Serialize;

/// A scenario's description of itself, with its parameters at their defaults.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Description {
    /// The scenario's name, or the alias that it was loaded by.
    pub name: String,
    /// The scenario's `doc` lines, joined.
    pub doc: String,
    /// The parameters, in the order of the text.
    pub parameters: Vec<Parameter>,
    /// What the scenario needs of the machine.
    pub machine: MachineNeeds,
    /// The threads, the first one first.
    pub threads: Vec<ThreadDescription>,
}

/// A parameter of a scenario.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Parameter {
    /// The name that `--set` takes.
    pub name: String,
    /// What the parameter is for. Empty if the scenario does not say.
    pub doc: String,
    /// The default, or the preset of the alias.
    pub value: i64,
    /// The least value that is allowed.
    pub min: Option<i64>,
    /// The greatest value that is allowed.
    pub max: Option<i64>,
}

/// A thread of a scenario.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ThreadDescription {
    /// The name that the text gives the thread.
    pub name: String,
    /// The CPU that the thread runs on.
    pub cpu: CpuId,
    /// The thread's `doc` lines, joined.
    pub doc: String,
}

/// The size of a compiled scenario.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// The scenario's name.
    pub name: String,
    /// The number of CPUs that the scenario needs.
    pub cpus: u16,
    /// Number of threads.
    pub threads: usize,
    /// Number of areas, neighbours included.
    pub areas: usize,
    /// Number of operations, bodies included.
    pub operations: usize,
}

impl Summary {
    /// Counts the parts of `program`.
    pub(crate) fn of(program: &Program) -> Summary {
        Summary {
            name: program.name.clone(),
            cpus: program.machine.cpus,
            threads: program.threads.len(),
            areas: program.areas.len(),
            operations: program.ops().count(),
        }
    }
}

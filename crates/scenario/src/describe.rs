//! What a reader is told of a scenario.

use needless_model::addr::CpuId;
use needless_model::program::{MachineNeeds, Program};
use serde::Serialize;

/// What a scenario says of itself, with its parameters at their defaults.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Description {
    /// Its name; that of the alias if it was loaded by one.
    pub name: String,
    /// Its `doc` lines, joined.
    pub doc: String,
    /// Its parameters, in the order of the text.
    pub parameters: Vec<Parameter>,
    /// What it needs of the machine.
    pub machine: MachineNeeds,
    /// Its threads, the first one first.
    pub threads: Vec<ThreadDescription>,
}

/// A parameter.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Parameter {
    /// Its name.
    pub name: String,
    /// What it is for; empty if the scenario does not say.
    pub doc: String,
    /// Its value: the default, or the preset of the alias.
    pub value: i64,
    /// The least value allowed.
    pub min: Option<i64>,
    /// The greatest value allowed.
    pub max: Option<i64>,
}

/// A thread.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ThreadDescription {
    /// Its name.
    pub name: String,
    /// Its CPU.
    pub cpu: CpuId,
    /// Its `doc` lines, joined.
    pub doc: String,
}

/// The size of a scenario that compiled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// Its name.
    pub name: String,
    /// CPUs that it needs.
    pub cpus: u16,
    /// Number of threads.
    pub threads: usize,
    /// Number of areas, neighbours included.
    pub areas: usize,
    /// Number of operations, bodies included.
    pub operations: usize,
}

impl Summary {
    /// Counts what is in `program`.
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

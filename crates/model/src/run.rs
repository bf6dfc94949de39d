//! What a target gives back, whichever it is: rounds with their events, and what it cannot show.

use crate::addr::{CpuId, ProcessId};
use crate::event::Event;
use crate::program::Program;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The result of one scenario on one target.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TargetRun {
    /// The target as it was asked for: `live`, `model:6.12`.
    pub target: String,
    /// The kernel release, on a real kernel.
    pub release: Option<String>,
    /// Its rounds, warm-up left out.
    pub rounds: Vec<Round>,
    /// Counters that this target cannot show, with the reason.
    pub unseen: BTreeMap<String, String>,
    /// Rounds marked because a witness failed, and what became of them.
    pub witness: Witness,
    /// Why the run counts for nothing, if so.
    pub invalid: Option<String>,
    /// The environment, by name. Empty for a model.
    pub environment: BTreeMap<String, String>,
    /// The state of each page of the scenario at the end, by name (`heap[3]`).
    pub final_pages: BTreeMap<String, String>,
    /// Page tables of a real kernel's process at the end, beyond those before the first round; with the runner's own few.
    #[serde(default)]
    pub page_tables: Option<u64>,
}

/// One round.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Round {
    /// Its number, from 0.
    pub index: u32,
    /// What happened in it, in order. Empty if events could not be had.
    pub events: Vec<Event>,
    /// Minor faults (`ru_minflt`) of all of the scenario's threads that act in the round.
    pub minor_faults: Option<u64>,
    /// Major faults (`ru_majflt`).
    pub major_faults: Option<u64>,
    /// What each `measure` block took, in the order in which they ended. Empty in the model.
    pub cycles: Vec<TimedBlock>,
    /// Differences of `/proc/vmstat` lines and the like, where the target has them per round.
    pub kernel_counters: BTreeMap<String, u64>,
    /// What an emulator saw the scenario's CPUs execute, by instruction (`tlbi vale1is`): one map per
    /// phase, of which marks part the round. Empty if nothing counts them.
    pub instructions: Vec<BTreeMap<String, u64>>,
}

/// What one `measure` block took.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimedBlock {
    /// Whose it is.
    pub process: ProcessId,
    /// Cycles of the time stamp counter.
    pub cycles: u64,
}

/// How the run watched over its own validity.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Witness {
    /// Rounds marked, by reason.
    pub marked: BTreeMap<String, u32>,
    /// Rounds run in all, the marked ones included.
    pub attempted: u32,
    /// Events lost in all, in rounds that were therefore marked.
    pub events_lost: u64,
    /// Shootdowns that others sent from the scenario's CPUs in rounds that count, by sender: none of them was
    /// seen to reach the scenario.
    pub others_sent: BTreeMap<String, u32>,
}

impl Witness {
    /// Rounds marked in all.
    pub fn marked_total(&self) -> u32 {
        self.marked.values().sum()
    }
}

/// The name under which targets list that nothing counted instructions.
pub const INSTRUCTIONS: &str = "instructions";

/// The name under which targets list that instructions of forked processes are not only the scenario's.
pub const INSTRUCTIONS_OF_PROCESSES: &str = "instructions_of_processes";

/// What the runner reads: the program and how to run it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunRequest {
    /// The scenario.
    pub program: Program,
    /// Whether to record events.
    pub events: bool,
    /// Pages of each CPU's event ring; a power of two.
    pub ring_pages: u32,
    /// The machine's CPUs that the scenario's CPUs 0, 1, … are; empty: those of the same number.
    pub cpus: Vec<u16>,
    /// The block device with the file system for files on disks, if the scenario has such.
    pub disk: Option<String>,
    /// The first round from which on all are alike ([`crate::sim::alike_from`]). What an earlier one does
    /// depends on those before it, so it cannot be repeated in the same process.
    pub alike_from: u32,
}

impl RunRequest {
    /// The machine's CPU for a CPU of the scenario.
    pub fn cpu(&self, scenario: CpuId) -> CpuId {
        self.cpus.get(scenario.index()).map_or(scenario, |&cpu| CpuId(cpu))
    }
}

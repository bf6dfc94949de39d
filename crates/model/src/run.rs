//! The result of a run on any target: its rounds with their events, and what the target cannot
//! show.

use crate::addr::{CpuId, ProcessId};
use crate::event::Event;
use crate::program::Program;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The result of one scenario on one target.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TargetRun {
    /// The target's name as the user gave it: `live`, `model:6.12`.
    pub target: String,
    /// The kernel release; `None` for a model.
    pub release: Option<String>,
    /// The rounds, without those of the warm-up.
    pub rounds: Vec<Round>,
    /// What this target cannot show, with the reason for each.
    pub unseen: BTreeMap<String, String>,
    /// The rounds that were marked because a witness failed.
    pub witness: Witness,
    /// Why the run is invalid; `None` if it is valid.
    pub invalid: Option<String>,
    /// The target's environment, by name. Empty for a model.
    pub environment: BTreeMap<String, String>,
    /// The state of each page of the scenario at the end, by name (`heap[3]`).
    pub final_pages: BTreeMap<String, String>,
    /// The page tables that a real kernel's process had at the end, minus those before the first
    /// round. The runner's own few are included.
    #[serde(default)]
    pub page_tables: Option<u64>,
}

/// One round.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Round {
    /// The round's number, from 0.
    pub index: u32,
    /// The events of the round, in order. Empty if the target has no events.
    pub events: Vec<Event>,
    /// Minor faults (`ru_minflt`) of all of the scenario's threads that act in the round.
    pub minor_faults: Option<u64>,
    /// Major faults (`ru_majflt`) of the same threads.
    pub major_faults: Option<u64>,
    /// The times of the `measure` blocks, in the order in which they ended. Empty in the model.
    pub cycles: Vec<TimedBlock>,
    /// Differences of `/proc/vmstat` lines and similar counters, where the target has them for each
    /// round.
    pub kernel_counters: BTreeMap<String, u64>,
    /// The instructions that an emulator saw on the scenario's CPUs, by name (`tlbi vale1is`).
    /// There is one map per phase; marks separate the phases. Empty if nothing counts instructions.
    pub instructions: Vec<BTreeMap<String, u64>>,
}

/// The time of one `measure` block.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimedBlock {
    /// The process that executed the block.
    pub process: ProcessId,
    /// The time in cycles of the time stamp counter.
    pub cycles: u64,
}

/// The run's own checks of its validity.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Witness {
    /// The number of marked rounds, by reason.
    pub marked: BTreeMap<String, u32>,
    /// The number of all rounds that were run, marked ones included.
    pub attempted: u32,
    /// The number of all lost events. The rounds in which events were lost are marked.
    pub events_lost: u64,
    /// Shootdowns by others from the scenario's CPUs in rounds that count, by sender. None of them
    /// was seen to reach the scenario.
    pub others_sent: BTreeMap<String, u32>,
}

impl Witness {
    /// The number of marked rounds.
    pub fn marked_total(&self) -> u32 {
        self.marked.values().sum()
    }
}

/// The key in a target's list of unseen things that says: nothing counts instructions.
pub const INSTRUCTIONS: &str = "instructions";

/// The key in a target's list of unseen things that says: the counted instructions of forked
/// processes are not only the scenario's.
pub const INSTRUCTIONS_OF_PROCESSES: &str = "instructions_of_processes";

/// The input of the runner: the program, and how to run it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunRequest {
    /// The scenario.
    pub program: Program,
    /// Whether the runner records events.
    pub events: bool,
    /// The number of pages of each CPU's event ring; a power of two.
    pub ring_pages: u32,
    /// The machine's CPUs that stand for the scenario's CPUs 0, 1, …. Empty: those with equal
    /// numbers.
    pub cpus: Vec<u16>,
    /// The block device with the file system for the scenario's files on disks, if it has any.
    pub disk: Option<String>,
    /// The first round from which on all rounds are alike ([`crate::sim::alike_from`]). An earlier
    /// round depends on those before it, so it cannot be repeated in one process.
    pub alike_from: u32,
}

impl RunRequest {
    /// The machine's CPU that stands for a CPU of the scenario.
    pub fn cpu(&self, scenario: CpuId) -> CpuId {
        self.cpus.get(scenario.index()).map_or(scenario, |&cpu| CpuId(cpu))
    }
}

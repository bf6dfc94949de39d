//! Finds out whether another task ran on a workload's CPUs during its rounds. Such a stranger moves
//! threads, switches address spaces and shares LRU batches, so that other counts are right.

use crate::sys;
use perf_event::events::Software;
use perf_event::{Builder, Clock, SampleFlag, Sampler};
use perf_event_open_sys::bindings::{
    PERF_RECORD_FORK, PERF_RECORD_LOST, PERF_RECORD_MISC_SWITCH_OUT, PERF_RECORD_SWITCH_CPU_WIDE,
};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::process;

/// The CPUs on which workloads run.
const CPUS: [usize; 2] = [0, 1];

const RING_BYTES: usize = 1 << 20;

/// Records the switches on the CPUs of workloads from its creation on.
pub struct Witness {
    rings: Vec<Sampler>,
}

/// A record of a ring.
#[derive(Debug, PartialEq, Eq)]
enum Told {
    /// A switch from one task to another.
    Switch {
        time: u64,
        from: u32,
        to: u32,
    },
    Fork {
        parent: u32,
        child: u32,
    },
    Lost,
}

impl Witness {
    /// Opens the rings. This needs the right to see the events of every task.
    pub fn open() -> io::Result<Witness> {
        let cpus = CPUS.into_iter().take(sys::online_cpus());
        let rings = cpus.map(|cpu| {
            let mut sampler = Builder::new(Software::DUMMY)
                .any_pid()
                .one_cpu(cpu)
                .sample(SampleFlag::TID | SampleFlag::TIME)
                .sample_id_all(true)
                .clockid(Clock::MONOTONIC_RAW)
                .context_switch(true)
                .task(true)
                .build()?
                .sampled(RING_BYTES)?;
            sampler.enable()?;
            Ok(sampler)
        });
        Ok(Witness { rings: rings.collect::<io::Result<_>>()? })
    }

    /// Names the other tasks that ran on the CPUs between the first time that `workload` came and
    /// the last time that it left: from one gate to the other.
    pub fn strangers(&mut self, workload: u32) -> BTreeSet<String> {
        let told: Vec<Vec<Told>> = self.rings.iter_mut().map(drain).collect();
        let mut ours = descendants(process::id());
        for fork in told.iter().flatten() {
            if let Told::Fork { parent, child } = fork
                && ours.contains(parent)
            {
                ours.insert(*child);
            }
        }
        strangers(&told, workload, &ours).into_iter().map(name).collect()
    }
}

/// Tasks that came or went during `workload`'s time and are not `ours`. `None` is an unknown task:
/// some records were lost.
fn strangers(told: &[Vec<Told>], workload: u32, ours: &BTreeSet<u32>) -> BTreeSet<Option<u32>> {
    let switches = || {
        told.iter().flatten().filter_map(|told| match *told {
            Told::Switch { time, from, to } => Some((time, from, to)),
            _ => None,
        })
    };
    let start = switches().filter(|(_, _, to)| *to == workload).map(|(time, ..)| time).min();
    let end = switches().filter(|(_, from, _)| *from == workload).map(|(time, ..)| time).max();
    let (Some(start), Some(end)) = (start, end) else { return BTreeSet::from([None]) };
    let within = switches().filter(|(time, ..)| (start + 1..end).contains(time));
    let tasks = within.flat_map(|(_, from, to)| [from, to]);
    let mut found: BTreeSet<Option<u32>> =
        tasks.filter(|task| *task != 0 && !ours.contains(task)).map(Some).collect();
    if told.iter().flatten().any(|told| *told == Told::Lost) {
        found.insert(None);
    }
    found
}

fn name(task: Option<u32>) -> String {
    let Some(task) = task else { return "somebody: records of switches were lost".to_owned() };
    let name = fs::read_to_string(format!("/proc/{task}/comm")).unwrap_or_default();
    match name.trim() {
        "" => "a task that is gone".to_owned(),
        name => name.to_owned(),
    }
}

/// A process, its threads, and all descendants that still exist.
fn descendants(process: u32) -> BTreeSet<u32> {
    let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for (pid, parent) in processes() {
        children.entry(parent).or_default().push(pid);
    }
    let (mut found, mut next) = (BTreeSet::new(), vec![process]);
    while let Some(pid) = next.pop() {
        found.extend(numbers(&format!("/proc/{pid}/task")));
        next.extend(children.remove(&pid).unwrap_or_default());
    }
    found
}

/// Every process with its parent.
fn processes() -> impl Iterator<Item = (u32, u32)> {
    numbers("/proc").filter_map(|pid| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // Behind the name, which may hold anything, come the state and the parent.
        let parent = stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()?;
        Some((pid, parent))
    })
}

/// The names in a folder that are numbers.
fn numbers(folder: &str) -> impl Iterator<Item = u32> + use<> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn drain(ring: &mut Sampler) -> Vec<Told> {
    let mut told = Vec::new();
    while let Some(record) = ring.next_record() {
        told.extend(decode(record.ty(), record.misc(), &record.data().concat()));
    }
    told
}

/// Source: perf_event_open(2), "MMAP layout", with a thread and a time at the end of each record.
fn decode(kind: u32, misc: u16, body: &[u8]) -> Option<Told> {
    let half = |at: usize| Some(u32::from_ne_bytes(body.get(at..at + 4)?.try_into().ok()?));
    match kind {
        PERF_RECORD_SWITCH_CPU_WIDE => {
            let (other, this) = (half(4)?, half(12)?);
            let time = u64::from_ne_bytes(body.get(16..24)?.try_into().ok()?);
            let out = u32::from(misc) & PERF_RECORD_MISC_SWITCH_OUT != 0;
            let (from, to) = if out { (this, other) } else { (other, this) };
            Some(Told::Switch { time, from, to })
        }
        // The child's thread, and the process that it came from.
        PERF_RECORD_FORK => Some(Told::Fork { parent: half(4)?, child: half(8)? }),
        PERF_RECORD_LOST => Some(Told::Lost),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORKLOAD: u32 = 10;
    const OTHER: u32 = 77;

    fn switch(time: u64, from: u32, to: u32) -> Told {
        Told::Switch { time, from, to }
    }

    fn found(first: Vec<Told>, second: Vec<Told>) -> Vec<Option<u32>> {
        let ours = BTreeSet::from([WORKLOAD, 11]);
        strangers(&[first, second], WORKLOAD, &ours).into_iter().collect()
    }

    #[test]
    fn who_runs_between_the_gates_is_a_stranger() {
        let quiet = || vec![switch(5, OTHER, WORKLOAD), switch(9, WORKLOAD, OTHER)];
        assert_eq!(found(quiet(), vec![switch(7, 0, 11), switch(12, 11, OTHER)]), []);
        assert_eq!(found(quiet(), vec![switch(7, 11, OTHER)]), [Some(OTHER)]);
        assert_eq!(found(quiet(), vec![switch(8, OTHER, 0)]), [Some(OTHER)]);
        let pushed = vec![switch(5, 0, WORKLOAD), switch(6, WORKLOAD, OTHER)];
        let pushed = pushed.into_iter().chain([switch(7, OTHER, WORKLOAD), switch(9, WORKLOAD, 0)]);
        assert_eq!(found(pushed.collect(), vec![]), [Some(OTHER)]);
    }

    #[test]
    fn what_was_not_seen_is_not_taken_for_quiet() {
        assert_eq!(found(vec![], vec![]), [None], "it never ran");
        let lost = vec![switch(5, 0, WORKLOAD), Told::Lost, switch(9, WORKLOAD, 0)];
        assert_eq!(found(lost, vec![]), [None]);
    }

    #[test]
    fn records_are_read_as_the_manual_says() {
        let words = |words: &[u32]| words.iter().flat_map(|w| w.to_ne_bytes()).collect::<Vec<_>>();
        let body = words(&[70, 77, 10, 10, 5, 0]);
        assert_eq!(decode(PERF_RECORD_SWITCH_CPU_WIDE, 0, &body), Some(switch(5, 77, 10)));
        let out = decode(PERF_RECORD_SWITCH_CPU_WIDE, PERF_RECORD_MISC_SWITCH_OUT as u16, &body);
        assert_eq!(out, Some(switch(5, 10, 77)));
        let fork = decode(PERF_RECORD_FORK, 0, &words(&[12, 10, 13, 11, 5, 0]));
        assert_eq!(fork, Some(Told::Fork { parent: 10, child: 13 }));
        assert_eq!(decode(PERF_RECORD_FORK, 0, &[1]), None);
    }
}

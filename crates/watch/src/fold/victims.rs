//! Who interrupted whom, and what it cost.
//!
//! A sender waits until every CPU it asked has answered, so at most one send per CPU is
//! outstanding, and it no longer is when its CPU goes on with something else, or after a while, since
//! of tasks that are not watched little is seen. Where several are, one of the interrupted thread's
//! own process is taken, and of these the newest.

use crate::record::{Record, What};
use needless_model::event::FlushReason;
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// A task in the matrix.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Task {
    /// A thread by its number.
    Thread(i32),
    /// A CPU without a task.
    Idle,
    /// Nobody that could be told.
    Unknown,
    /// All those beyond the number that is kept apart.
    Others,
}

/// Interrupts from one task to another.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct PairCount {
    /// How many.
    pub interrupts: u64,
    /// Of these, how many found nothing to flush.
    pub empty: u64,
    /// Of these, how many have their sender by guess.
    pub guessed: u64,
}

#[derive(Copy, Clone, Debug)]
struct Send {
    time: u64,
    pid: i32,
    tid: i32,
}

/// No answer takes so long, but where a virtual CPU does not run.
const STALE_NS: u64 = 20_000_000;

/// More pairs than this are counted together.
const MOST_PAIRS: usize = 4096;

/// More durations than this are not kept.
const MOST_TIMES: usize = 4096;

/// The matrix, and the durations of what interrupts called.
#[derive(Debug, Default)]
pub struct Victims {
    /// Interrupts by sender and receiver.
    pub pairs: FxHashMap<(Task, Task), PairCount>,
    /// How long functions called by these interrupts took, nanoseconds, as far as they were timed.
    pub times: Vec<u64>,
    names: FxHashMap<i32, (i32, Arc<str>)>,
    outstanding: FxHashMap<u16, Send>,
    begun: FxHashMap<u16, (u64, bool)>,
}

impl Victims {
    pub(super) fn sent(&mut self, record: &Record) {
        let (time, pid, tid) = (record.time, record.pid, record.tid);
        self.outstanding.insert(record.cpu, Send { time, pid, tid });
    }

    /// The CPU does something else than flush.
    pub(super) fn goes_on(&mut self, cpu: u16) {
        if !self.outstanding.is_empty() {
            self.outstanding.remove(&cpu);
        }
    }

    pub(super) fn sender_on(&self, cpu: u16) -> Option<i32> {
        self.outstanding.get(&cpu).map(|send| send.tid)
    }

    /// A CPU was interrupted. The sender's thread, or nothing if neither it nor the interrupted
    /// thread is watched.
    pub(super) fn received(
        &mut self,
        record: &Record,
        watched: &dyn Fn(i32) -> bool,
    ) -> Option<i32> {
        if let Some((_, flushed)) = self.begun.get_mut(&record.cpu) {
            *flushed = true;
        }
        let (sender, guessed) = self.sender_of(record);
        if !watched(record.tid) && !sender.is_some_and(|send| watched(send.tid)) {
            return None;
        }
        let from = sender.map_or(Task::Unknown, |send| Task::Thread(send.tid));
        let to = match record.tid {
            0 => Task::Idle,
            tid if tid < 0 => Task::Unknown,
            tid => Task::Thread(tid),
        };
        let mut pair = (from, to);
        if self.pairs.len() >= MOST_PAIRS && !self.pairs.contains_key(&pair) {
            pair = (Task::Others, Task::Others);
        }
        for tid in [Some(record.tid), sender.map(|send| send.tid)].into_iter().flatten() {
            if self.names.len() < 2 * MOST_PAIRS
                && tid != 0
                && !self.names.contains_key(&tid)
                && !watched(tid)
            {
                let comm = std::fs::read_to_string(format!("/proc/{tid}/comm")).unwrap_or_default();
                let comm = if comm.is_empty() { "ended" } else { comm.trim() };
                self.names.insert(tid, (0, comm.into()));
            }
        }
        let count = self.pairs.entry(pair).or_default();
        count.interrupts += 1;
        count.empty += u64::from(matches!(record.what, What::Flush { pages: 0, .. }));
        count.guessed += u64::from(guessed);
        Some(sender.map_or(0, |send| send.tid))
    }

    /// The send that interrupted a CPU, and whether it might have been another one.
    fn sender_of(&self, record: &Record) -> (Option<Send>, bool) {
        let others = self.outstanding.iter().filter(|(cpu, send)| {
            **cpu != record.cpu && record.time.saturating_sub(send.time) < STALE_NS
        });
        let mut candidates: Vec<Send> = others.map(|(_, send)| *send).collect();
        // A range is flushed for its own address space only.
        if matches!(record.what, What::Flush { reason: FlushReason::RemoteShootdown, pages: 1.. }) {
            candidates.retain(|send| send.pid == record.pid);
        }
        candidates.sort_by_key(|send| (send.pid != record.pid, std::cmp::Reverse(send.time)));
        let guessed = match candidates[..] {
            [first, second, ..] => (first.pid == record.pid) == (second.pid == record.pid),
            _ => false,
        };
        (candidates.first().copied(), guessed)
    }

    /// A function called by an interrupt begins or ends on a CPU.
    pub(super) fn call(&mut self, cpu: u16, time: u64, begins: bool) {
        if begins {
            self.begun.insert(cpu, (time, false));
        } else if let Some((start, true)) = self.begun.remove(&cpu)
            && self.times.len() < MOST_TIMES
        {
            self.times.push(time.saturating_sub(start));
        }
    }

    pub(super) fn named(&mut self, tid: i32, name: &str) {
        if self.names.len() < 2 * MOST_PAIRS {
            let pid = self.names.get(&tid).map_or(0, |(pid, _)| *pid);
            self.names.insert(tid, (pid, name.into()));
        }
    }

    pub(super) fn ended(&mut self, tid: i32, pid: i32, name: Arc<str>) {
        self.names.entry(tid).and_modify(|known| known.0 = pid).or_insert((pid, name));
    }

    pub(super) fn name_all(&mut self, threads: &FxHashMap<i32, (i32, Arc<str>)>) {
        for (tid, (pid, name)) in threads {
            self.ended(*tid, *pid, name.clone());
        }
    }

    pub(super) fn forget(&mut self) {
        self.outstanding.clear();
        self.begun.clear();
    }

    /// A task's name.
    pub fn name(&self, tid: i32) -> Arc<str> {
        self.names.get(&tid).map_or_else(|| "unknown".into(), |(_, name)| name.clone())
    }

    /// A task's process, 0 if unknown.
    pub fn process(&self, tid: i32) -> i32 {
        self.names.get(&tid).map_or(0, |(pid, _)| *pid)
    }
}

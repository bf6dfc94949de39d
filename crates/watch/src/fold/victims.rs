//! Who was interrupted by whom, what for, and what it cost.
//!
//! Where the kernel shows the call that a CPU was asked for (`csd:*`, 6.4 and later), sender and
//! interrupted CPU are joined by it: the same pointer comes with both. Elsewhere a rule takes its
//! place: a sender waits until every CPU it asked has answered, so at most one send per CPU is
//! outstanding, and it no longer is when its CPU goes on with something else, or after a while,
//! since of tasks that are not watched little is seen. Where several are, one of the interrupted
//! thread's own process is taken, and of these the newest.

use super::Cause;
use crate::functions::Asked;
use crate::record::{Record, What};
use needless_model::event::FlushReason;
use needless_model::foreign;
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// A task in the matrix.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Task {
    /// A thread by its number.
    Thread(i32),
    /// A CPU without a task.
    Idle,
    /// An interrupt, whatever task it came upon.
    Interrupt,
    /// The CPU's own timer.
    Timer,
    /// A device, by the number of its interrupt.
    Device(u32),
    /// Nobody that could be told.
    Unknown,
    /// All those beyond the number that is kept apart.
    Others,
}

impl Task {
    /// Whose a record is.
    pub(super) fn of(record: &Record) -> Task {
        match record.tid {
            0 => Task::Idle,
            tid if tid < 0 => Task::Unknown,
            tid => Task::Thread(tid),
        }
    }
}

/// What one task was interrupted for by another one.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Pair {
    /// What it was asked for.
    pub asked: Asked,
    /// The address of the function that was called; 0 if there was none or it is not shown.
    pub function: u64,
    /// Where in the kernel it was sent; 0 if that is not shown.
    pub site: u64,
    /// What the sender was doing.
    pub cause: Cause,
    /// Who sent it.
    pub from: Task,
    /// Who was interrupted.
    pub to: Task,
}

impl Pair {
    /// A pair with less detail, for pairs beyond the number that is kept.
    fn of_others(self) -> Pair {
        let (from, to) = (Task::Others, Task::Others);
        Pair { site: 0, cause: Cause::Unknown, from, to, ..self }
    }
}

/// How often.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct PairCount {
    /// How many interrupts.
    pub interrupts: u64,
    /// How often it came without one: the CPU was idle and looked for itself, or a kernel thread
    /// does it.
    pub uninterrupted: u64,
    /// Of the interrupts, how many found nothing to flush.
    pub empty: u64,
    /// Of both, how many have their sender by the call's own pointer.
    pub exact: u64,
    /// Of both, how many have their sender by guess.
    pub guessed: u64,
}

impl PairCount {
    /// Both together.
    pub fn all(&self) -> u64 {
        self.interrupts + self.uninterrupted
    }
}

#[derive(Copy, Clone, Debug)]
pub(super) struct Send {
    pub(super) time: u64,
    pub(super) pid: i32,
    pub(super) tid: i32,
    /// The sender has done its own part.
    own_done: bool,
}

/// No answer takes so long, but where a virtual CPU does not run.
const STALE_NS: u64 = 20_000_000;

/// More pairs than this are counted together.
const MOST_PAIRS: usize = 4096;

/// More durations than this of one cause are not kept.
const MOST_TIMES: usize = 4096;

/// The name of a task that had ended when it was to be looked up, and whose process is not known.
const ENDED: &str = "ended";

/// A task's process, its name, and whether it is the kernel's.
#[derive(Clone, Debug, Default)]
struct Name {
    pid: i32,
    name: Arc<str>,
    kernels: bool,
}

/// The matrix, and the durations of what interrupts called.
#[derive(Debug, Default)]
pub struct Victims {
    /// Interrupts by what they asked for, sender and receiver.
    pub pairs: FxHashMap<Pair, PairCount>,
    /// How long they took by what they asked for, nanoseconds, as far as they were timed.
    pub times: FxHashMap<Asked, Vec<u64>>,
    names: FxHashMap<i32, Name>,
    outstanding: FxHashMap<u16, Send>,
}

/// Whether a task is one of the kernel's own threads.
pub fn is_kernels(stat: &procfs::process::Stat) -> bool {
    /// include/linux/sched.h, 5.10 to 7.3.
    const PF_KTHREAD: u32 = 0x0020_0000;
    stat.flags & PF_KTHREAD != 0
}

impl Victims {
    pub(super) fn sent(&mut self, record: &Record) {
        let (time, pid, tid) = (record.time, record.pid, record.tid);
        self.outstanding.insert(record.cpu, Send { time, pid, tid, own_done: false });
    }

    /// The CPU does something else than flush.
    pub(super) fn goes_on(&mut self, cpu: u16) {
        if !self.outstanding.is_empty() {
            self.outstanding.remove(&cpu);
        }
    }

    /// Whoever sends does its own part once, after sending: whether this is it.
    pub(super) fn own_part(&mut self, record: &Record) -> bool {
        let send = self.outstanding.get_mut(&record.cpu).filter(|send| send.tid == record.tid);
        send.is_some_and(|send| !std::mem::replace(&mut send.own_done, true))
    }

    pub(super) fn sender_on(&self, cpu: u16) -> Option<i32> {
        self.outstanding.get(&cpu).map(|send| send.tid)
    }

    /// Counts what reached a task; where it is counted.
    pub(super) fn count(&mut self, pair: Pair, one: PairCount) -> Pair {
        let full = self.pairs.len() >= MOST_PAIRS && !self.pairs.contains_key(&pair);
        let pair = if full { pair.of_others() } else { pair };
        let count = self.pairs.entry(pair.clone()).or_default();
        count.interrupts += one.interrupts;
        count.uninterrupted += one.uninterrupted;
        count.empty += one.empty;
        count.exact += one.exact;
        count.guessed += one.guessed;
        pair
    }

    /// What was counted stands for something else.
    pub(super) fn recount(&mut self, pair: &Pair, one: PairCount, asked: Asked) -> Pair {
        if let Some(count) = self.pairs.get_mut(pair) {
            count.interrupts = count.interrupts.saturating_sub(one.interrupts);
            count.uninterrupted = count.uninterrupted.saturating_sub(one.uninterrupted);
            count.exact = count.exact.saturating_sub(one.exact);
            if count.all() == 0 {
                self.pairs.remove(pair);
            }
        }
        self.count(Pair { asked, ..pair.clone() }, one)
    }

    /// The last interrupt counted there found nothing to flush.
    pub(super) fn was_empty(&mut self, pair: &Pair) {
        self.pairs.entry(pair.clone()).or_default().empty += 1;
    }

    /// Learns the name of a task that has not told it.
    pub(super) fn meets(&mut self, tid: i32) {
        if tid <= 0 || self.names.len() >= 2 * MOST_PAIRS || self.names.contains_key(&tid) {
            return;
        }
        let stat = procfs::process::Process::new(tid).and_then(|process| process.stat());
        let name = match stat {
            Ok(stat) => {
                let kernels = is_kernels(&stat);
                Name { pid: 0, name: foreign::line(&stat.comm).into(), kernels }
            }
            Err(_) => Name { pid: 0, name: ENDED.into(), kernels: false },
        };
        self.names.insert(tid, name);
    }

    /// The send that interrupted a CPU by the rule, and whether it might have been another one.
    pub(super) fn sender_of(&self, record: &Record) -> (Option<Send>, bool) {
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

    /// An interrupt, or a function called by it, took so long.
    pub(super) fn timed(&mut self, asked: Asked, time_ns: u64) {
        let times = self.times.entry(asked).or_default();
        if times.len() < MOST_TIMES {
            times.push(time_ns);
        }
    }

    /// A task that runs already, and whether it is one of the kernel's own threads.
    pub(super) fn runs(&mut self, tid: i32, name: &str, kernels: bool) {
        self.named(tid, name);
        self.names.entry(tid).and_modify(|known| known.kernels = kernels);
    }

    pub(super) fn named(&mut self, tid: i32, name: &str) {
        if self.names.len() < 2 * MOST_PAIRS {
            self.names.entry(tid).or_default().name = name.into();
        }
    }

    pub(super) fn ended(&mut self, tid: i32, pid: i32, name: Arc<str>) {
        let known = self.names.entry(tid).or_default();
        known.pid = pid;
        if known.name.is_empty() || &*known.name == ENDED {
            known.name = if name.is_empty() { ENDED.into() } else { name };
        }
    }

    /// Names all that have none by their processes.
    pub(super) fn name_all(&mut self, threads: &FxHashMap<i32, (i32, Arc<str>)>) {
        for (tid, (pid, name)) in threads {
            let known = self.names.entry(*tid).or_default();
            known.pid = *pid;
            if !name.is_empty() && (known.name.is_empty() || &*known.name == ENDED) {
                known.name = name.clone();
            }
        }
    }

    /// All tasks that have names: the task, its process, its name.
    pub(super) fn all(&self) -> impl Iterator<Item = (i32, i32, &str)> {
        self.names.iter().map(|(tid, known)| (*tid, known.pid, &*known.name))
    }

    pub(super) fn forget(&mut self) {
        self.outstanding.clear();
    }

    /// A task's name.
    pub fn name(&self, tid: i32) -> Arc<str> {
        let known = self.names.get(&tid).filter(|known| !known.name.is_empty());
        known.map_or_else(|| "unknown".into(), |known| known.name.clone())
    }

    /// A task's process, 0 if unknown.
    pub fn process(&self, tid: i32) -> i32 {
        self.names.get(&tid).map_or(0, |known| known.pid)
    }

    /// Whether a task is one of the kernel's own threads.
    pub fn is_kernels(&self, tid: i32) -> bool {
        self.names.get(&tid).is_some_and(|known| known.kernels)
    }
}

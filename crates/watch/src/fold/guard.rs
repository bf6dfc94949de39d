//! What reached CPUs that are to be left alone: in order of time, with the stretches between.
//!
//! One interrupt may call several functions. It is one disturbance then, of the first one's cause,
//! and the others are told beside it. It lasts from the interrupt's first event to its last, which
//! is what the kernel shows of it.

use super::Cause;
use super::victims::{Pair, Task};
use crate::functions::Asked;
use rustc_hash::FxHashMap;
use serde::Serialize;
use std::collections::BTreeMap;

/// Disturbances that are kept one by one. Those that come later are only counted.
const MOST_KEPT: usize = 10_000;

/// How something reached a CPU.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum How {
    /// By an interrupt.
    Interrupt,
    /// By an interrupt that had come for something else.
    SameInterrupt,
    /// A kernel thread ran there.
    KernelThread,
    /// An idle CPU looked for itself: nobody was disturbed.
    Polled,
}

impl How {
    /// Whether the CPU was taken from what it did.
    pub fn disturbs(self) -> bool {
        match self {
            How::Interrupt | How::KernelThread => true,
            How::SameInterrupt | How::Polled => false,
        }
    }
}

/// One thing that reached a CPU.
#[derive(Clone, Debug)]
pub struct Disturbance {
    /// When, on the clock of the records.
    pub time: u64,
    /// The CPU that was reached.
    pub cpu: u16,
    /// In which way it came.
    pub how: How,
    /// What, from whom, to whom.
    pub pair: Pair,
    /// How long its CPU had been left alone, nanoseconds.
    pub gap_ns: u64,
    /// How long it took, nanoseconds; none where that is not visible.
    pub lost_ns: Option<u64>,
}

/// What reached CPUs, counted.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Reached {
    /// How many interrupts came.
    pub interrupts: u64,
    /// What came in interrupts for something else.
    pub same_interrupt: u64,
    /// Runs of kernel threads.
    pub kernel_threads: u64,
    /// What idle CPUs looked for themselves.
    pub polled: u64,
    /// How long the interrupts took that were timed, nanoseconds.
    pub lost_ns: u64,
    /// How many were timed.
    pub timed: u64,
}

impl Reached {
    fn add(&mut self, how: How) {
        *match how {
            How::Interrupt => &mut self.interrupts,
            How::SameInterrupt => &mut self.same_interrupt,
            How::KernelThread => &mut self.kernel_threads,
            How::Polled => &mut self.polled,
        } += 1;
    }

    fn lost(&mut self, lost_ns: u64) {
        self.lost_ns += lost_ns;
        self.timed += 1;
    }
}

/// One CPU.
#[derive(Copy, Clone, Debug, Default)]
pub struct OfCpu {
    /// What reached it.
    pub reached: Reached,
    /// The longest time that it was left alone: from and to.
    pub longest: (u64, u64),
    /// Since when it has been left alone.
    alone_since: u64,
}

impl OfCpu {
    /// Until then it was left alone; for how long.
    fn alone_until(&mut self, time: u64) -> u64 {
        let gap = time.saturating_sub(self.alone_since);
        if gap > self.longest.1 - self.longest.0 {
            self.longest = (self.alone_since, time);
        }
        gap
    }
}

/// An interrupt that is going on.
#[derive(Debug)]
struct Open {
    begin: u64,
    task: Task,
    /// What it was counted for, and where it is kept.
    told: Option<(Asked, Option<usize>)>,
}

/// The CPUs that are guarded.
#[derive(Debug)]
pub struct Guard {
    /// From when to when they are.
    pub window: (u64, u64),
    /// What reached them, in order of time.
    pub kept: Vec<Disturbance>,
    /// How many more there were.
    pub not_kept: u64,
    /// By what was asked for.
    pub causes: BTreeMap<Asked, Reached>,
    /// By CPU.
    pub cpus: BTreeMap<u16, OfCpu>,
    open: FxHashMap<u16, Open>,
}

impl Guard {
    /// Nothing is counted before [`Guard::begin`].
    pub fn of(cpus: &[u16]) -> Guard {
        Guard {
            window: (u64::MAX, u64::MAX),
            kept: Vec::new(),
            not_kept: 0,
            causes: BTreeMap::new(),
            cpus: cpus.iter().map(|cpu| (*cpu, OfCpu::default())).collect(),
            open: FxHashMap::default(),
        }
    }

    /// They are guarded from then on: what came before is the watching's own beginning.
    pub fn begin(&mut self, time: u64) {
        self.window.0 = time;
        for cpu in self.cpus.values_mut() {
            (cpu.alone_since, cpu.longest) = (time, (time, time));
        }
    }

    /// They are no longer. No record of later has been folded by then.
    pub fn end(&mut self, time: u64) {
        self.window.1 = time;
    }

    /// Whether a CPU is guarded at that time.
    pub(super) fn guards(&self, cpu: u16, time: u64) -> bool {
        (self.window.0..self.window.1).contains(&time) && self.cpus.contains_key(&cpu)
    }

    /// An interrupt begins.
    pub(super) fn enters(&mut self, cpu: u16, begin: u64, task: Task) {
        if self.guards(cpu, begin) {
            self.open.insert(cpu, Open { begin, task, told: None });
        }
    }

    /// It is for this, or a kernel thread comes, or an idle CPU looks for it.
    pub(super) fn reached(&mut self, cpu: u16, time: u64, pair: Pair, mut how: How) {
        if !self.guards(cpu, time) {
            return;
        }
        let (asked, mut since) = (pair.asked, time);
        let open = self.open.get_mut(&cpu).filter(|_| how == How::Interrupt);
        if let Some(open) = &open {
            since = open.begin;
            how = if open.told.is_some() { How::SameInterrupt } else { how };
        }
        let place = (self.kept.len() < MOST_KEPT).then_some(self.kept.len());
        if let Some(open) = open
            && open.told.is_none()
        {
            open.told = Some((asked, place));
        }
        let Some(of_cpu) = self.cpus.get_mut(&cpu) else { return };
        let mut gap_ns = 0;
        if how.disturbs() {
            gap_ns = of_cpu.alone_until(since);
            of_cpu.alone_since = since;
        }
        of_cpu.reached.add(how);
        self.causes.entry(asked).or_default().add(how);
        match place {
            Some(_) => {
                self.kept.push(Disturbance { time: since, cpu, how, pair, gap_ns, lost_ns: None })
            }
            None => self.not_kept += 1,
        }
    }

    /// An interrupt is over. One that called nothing that is shown is told as such.
    pub(super) fn leaves(&mut self, cpu: u16, time: u64) {
        if let Some(Open { begin, task, told: None }) = self.open.get(&cpu) {
            let (begin, to) = (*begin, task.clone());
            let (asked, from, cause) = (Asked::Unnamed, Task::Unknown, Cause::Unknown);
            let pair = Pair { asked, function: 0, site: 0, cause, from, to };
            self.reached(cpu, begin, pair, How::Interrupt);
        }
        let Some(Open { begin, told: Some((asked, place)), .. }) = self.open.remove(&cpu) else {
            return;
        };
        let lost_ns = time.saturating_sub(begin);
        if let Some(of_cpu) = self.cpus.get_mut(&cpu) {
            of_cpu.alone_since = time;
            of_cpu.reached.lost(lost_ns);
        }
        self.causes.entry(asked).or_default().lost(lost_ns);
        if let Some(kept) = place.and_then(|place| self.kept.get_mut(place)) {
            kept.lost_ns = Some(lost_ns);
        }
    }

    /// Records were lost: which interrupts go on is not known any more.
    pub(super) fn forget(&mut self) {
        self.open.clear();
    }

    /// Nothing more comes.
    pub(super) fn finish(&mut self) {
        let (begin, end) = self.window;
        if begin <= end && end != u64::MAX {
            for cpu in self.cpus.values_mut() {
                cpu.alone_until(end);
            }
        }
        // They were told when their cause was known, and began before.
        self.kept.sort_by_key(|kept| kept.time);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(asked: Asked) -> Pair {
        let (from, to, cause) = (Task::Thread(7), Task::Thread(9), Cause::Unknown);
        Pair { asked, function: 0, site: 0, cause, from, to }
    }

    fn guarded() -> Guard {
        let mut guard = Guard::of(&[2, 3]);
        guard.begin(1000);
        guard
    }

    #[test]
    fn an_interrupt_is_one_however_many_functions_it_calls() {
        let mut guard = guarded();
        guard.enters(2, 1100, Task::Idle);
        guard.reached(2, 1110, pair(Asked::TlbFlush), How::Interrupt);
        guard.reached(2, 1120, pair(Asked::TableSync), How::Interrupt);
        guard.leaves(2, 1150);
        guard.reached(2, 1500, pair(Asked::LruDrain), How::KernelThread);
        guard.end(2100);
        guard.finish();
        let hows: Vec<How> = guard.kept.iter().map(|kept| kept.how).collect();
        assert_eq!(hows, [How::Interrupt, How::SameInterrupt, How::KernelThread]);
        let first = &guard.kept[0];
        assert_eq!((first.time, first.gap_ns, first.lost_ns), (1100, 100, Some(50)));
        assert_eq!(guard.kept[2].gap_ns, 350, "from the end of the one before");
        let cpu = guard.cpus[&2];
        assert_eq!((cpu.reached.interrupts, cpu.reached.same_interrupt), (1, 1));
        assert_eq!((cpu.reached.kernel_threads, cpu.reached.lost_ns), (1, 50));
        assert_eq!(cpu.longest, (1500, 2100));
        assert_eq!(guard.cpus[&3].longest, (1000, 2100), "nothing came");
    }

    #[test]
    fn what_calls_nothing_that_is_shown_is_an_interrupt_as_well() {
        let mut guard = guarded();
        guard.enters(3, 1200, Task::Thread(9));
        guard.leaves(3, 1230);
        let reached = guard.causes[&Asked::Unnamed];
        assert_eq!((reached.interrupts, reached.lost_ns, reached.timed), (1, 30, 1));
        assert_eq!(guard.kept[0].pair.to, Task::Thread(9));
    }

    #[test]
    fn an_idle_cpu_that_looks_for_itself_was_not_disturbed() {
        let mut guard = guarded();
        guard.reached(2, 1200, pair(Asked::TableSync), How::Polled);
        guard.end(2000);
        guard.finish();
        assert_eq!(guard.cpus[&2].longest, (1000, 2000));
        assert_eq!(guard.causes[&Asked::TableSync].polled, 1);
    }

    #[test]
    fn only_these_cpus_and_only_meanwhile() {
        let mut guard = guarded();
        guard.end(3000);
        for (cpu, time) in [(2, 999), (1, 1500), (2, 3000)] {
            guard.enters(cpu, time, Task::Idle);
            guard.reached(cpu, time, pair(Asked::TlbFlush), How::Interrupt);
            guard.leaves(cpu, time + 10);
        }
        assert!(guard.kept.is_empty() && guard.causes.is_empty());
    }
}

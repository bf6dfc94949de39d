//! Watches each round: were events lost, and was the machine in the state that the scenario
//! describes?
//!
//! A round is marked for one of these reasons:
//!
//! - Events may be lost: a ring was full when it was drained, the kernel says that it dropped
//!   records, or the sentinel (a fault of the runner's own after the round) did not arrive.
//! - A thread that runs or spins lost its CPU to another task during the round, or was not on its
//!   CPU when the round started (a roll call waits for all spinning threads). A kernel thread in
//!   its place does no harm by itself: the CPU is lazy meanwhile, and only a flush shows that. So
//!   the round counts if no thread of the scenario flushed anything while the thread was away, and
//!   if its return did not flush. (Its return flushes if it was away between a change and the flush
//!   for it.) Where no event shows which task ran, a round counts if its threads waited for their
//!   CPUs for at most a hundredth of it ([`absence`]).
//! - Another task, even a kernel thread, pushed a thread out during a call that may take shared
//!   memory away. The thread flushes what it has taken away before it gives up the CPU, and the
//!   rest afterwards ([`calls::gathering`]).
//! - A thread that had served userfaultfd was about to fall asleep again when another thread
//!   flushed. If it is asleep when it answers, its CPU leaves the address space, although the flush
//!   did not ask for that ([`crate::flushes`]).
//! - A user task of another program has run on a sleeper's CPU since the sleeper fell asleep. The
//!   CPU no longer has the scenario's address space loaded lazily. A kernel thread does harm there
//!   only if flush records show that the CPU left the address space.
//! - Another task flushed one of the scenario's CPUs ([`crate::flushes`]), or the kernel reclaimed
//!   or moved pages by itself, which flushes too.
//! - The machine swapped more or less than the scenario did ([`crate::swapping`]).
//! - Since the LRU batches of an acting thread's CPU were drained, a user task of another program
//!   ran there, or the runner touched new memory of its own there. That memory shares the batches,
//!   which decide what is copied and reclaimed. Or a kernel thread drained them, as it does for a
//!   task that wants all CPUs' batches drained (khugepaged, compaction, drop_caches), unless the
//!   scenario itself did so (fadvise).
//! - The runner itself flushed the scenario's address space between the previous round and this
//!   one.
//! - NUMA balancing sampled pages at another time than the scenario asks for.
//! - This round or the next needs more room in the log than was set aside.

mod absence;
mod calls;
mod cpu;
mod machine;
mod reasons;
mod sentinels;
mod switches;
mod tasks;

use crate::flushes::{Flushes, Strangers};
use crate::log::{Kind, Log, Raw};
use crate::minders::Minders;
use crate::perf::Rings;
use crate::swap;
use crate::swapping::Majors;
use crate::sys::{self, Usage};
use crate::team::Team;
use crate::tids::Tids;
use absence::Absence;
use cpu::{Cpu, Seen, cpus};
use machine::Machine;
use needless_model::addr::{PageRange, Vpn};
use needless_model::event::FlushReason;
use needless_model::program::{Advice, Backing, Program};
use needless_model::run::Witness;
pub(crate) use reasons::EVENTS_LOST;
use reasons::{AWAKE, FLUSHED, LOG_GREW, LOST_CPU, LRU_SHARED, NOT_ON_CPU, OURSELVES, RESAMPLED};
use sentinels::Sentinels;
pub use sentinels::is_sentinel;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use switches::{flushes_of, spans_of};
use tasks::{Tasks, name};

/// The longest time that a round waits for threads that were switched out.
const LONGEST_ABSENCE: Duration = Duration::from_secs(1);

/// What is known about a round when it is over.
#[derive(Copy, Clone, Debug)]
pub struct Observed {
    /// Its start, on the clock of the events.
    pub start_ns: u64,
    /// Its end, on the clock of the events.
    pub end_ns: u64,
    /// What the scenario's processes used in it.
    pub used: Usage,
    /// Whether the round counts if nothing disturbed it.
    pub counts: bool,
    /// Whether NUMA balancing made a pass that the scenario did not ask for.
    pub resampled: bool,
}

impl Observed {
    fn contains(self, time: u64) -> bool {
        (self.start_ns..=self.end_ns).contains(&time)
    }
}

/// The watch of a run.
pub struct Watch {
    /// The witness so far.
    pub witness: Witness,
    /// Why the run gave up before it had all rounds.
    pub gave_up: Option<String>,
    machine: Machine,
    rings: Option<Rings>,
    flushes: Option<Flushes>,
    /// The scenario's memory that does not go to swap: shared memory and files, unless the scenario
    /// pages them out.
    unswapped: Vec<PageRange>,
    /// Whether there may be major faults that read nothing from swap and that no record shows. This
    /// is so for pages of files that are read without an exception, for accesses that waited for
    /// userfaultfd (mm/memory.c:mm_account_fault), and where shared memory or files may go to swap.
    untold_majors: bool,
    /// Whether each page that the scenario reads from swap is a major fault. It is not if system
    /// calls read swapped pages of shared memory.
    all_majors: bool,
    /// In the timing pass: whether threads of the scenario push each other out. A thread that
    /// serves userfaultfd does so if it goes on for a moment on the CPU of the thread that it has
    /// released. Then nothing shows whether another program pushed the thread out. We rely on the
    /// median to absorb that.
    hands_over: bool,
    /// The waiting times of the threads, where events are not recorded.
    absence: Option<Absence>,
    /// The operations that drain the LRU batches of all CPUs.
    draining: BTreeSet<u64>,
    /// The operations that flush twice if their thread gives up its CPU during them.
    gathering: BTreeSet<u64>,
    cpus: Vec<Cpu>,
    tasks: Tasks,
    sentinels: Sentinels,
    all_there: bool,
    /// The number of records that were looked at.
    seen: usize,
    lost: u64,
}

impl Watch {
    /// Watches `program`, whose threads have all started, in an address space that was made after
    /// `made_after`. `counts` is true in a pass whose rounds count, with or without events, and
    /// false in the timing pass.
    pub fn new(
        program: &Program,
        tids: Vec<i32>,
        counts: bool,
        rings: Option<Rings>,
        made_after: u64,
    ) -> Watch {
        let cpus = cpus(program);
        let minders = if rings.is_none() && stands_minders(program) {
            Minders::none()
        } else {
            Minders::find()
        };
        let absence = rings.is_none().then(|| Absence::new(tids.clone()));
        let tids = Tids::new(&tids);
        let unswapped = program.areas.iter().filter(|area| area.backing != Backing::Anonymous);
        let unswapped = unswapped.map(|area| area.range).collect();
        let numbers: Vec<u16> = cpus.iter().map(|cpu| cpu.number).collect();
        let flushes = rings.as_ref().filter(|rings| rings.flushes);
        let flushes = flushes.map(|_| {
            Flushes::new(
                tids.clone(),
                &numbers,
                calls::freeing_tables(program),
                made_after,
                sys::now_ns(),
            )
        });
        Watch {
            witness: Witness::default(),
            gave_up: None,
            machine: Machine::new(counts, program, minders),
            unswapped,
            untold_majors: program.populates_disks()
                || program.swaps_objects()
                || program.threads.iter().any(|thread| thread.serves().is_some()),
            all_majors: !(program.swaps_objects() && program.fills_files()),
            hands_over: !counts && hands_over(program),
            absence,
            draining: calls::draining(program),
            gathering: calls::gathering(program),
            flushes,
            sentinels: rings.as_ref().map_or_else(Sentinels::none, |_| Sentinels::map()),
            rings,
            cpus,
            tasks: Tasks::new(program, tids),
            all_there: true,
            seen: 0,
            lost: 0,
        }
    }

    /// Called before the first round.
    pub fn first_round(&mut self) {
        self.machine.first_round();
    }

    /// Called before each round. Notes the counters, drains the rings, and waits until the threads
    /// that have to run are on their CPUs.
    pub fn before(&mut self, team: &Team, log: &mut Log) {
        self.machine.before();
        self.catch_up(log);
        self.absence.iter_mut().for_each(Absence::begin);
        self.all_there = team.roll_call(LONGEST_ABSENCE);
    }

    /// Called after each round. Returns whether the round is undisturbed, and how the counters
    /// moved.
    pub fn after(&mut self, team: &Team, log: &mut Log, round: Observed) -> (bool, Vec<u64>) {
        let (now, moved) = self.machine.after();
        let lost = self.collect(log).then(|| EVENTS_LOST.to_owned());
        let disturbed = if self.rings.is_some() {
            self.disturbance(team, &log.records, round)
        } else {
            let lost = round.used.involuntary_switches > 0 && !self.hands_over;
            let length = Duration::from_nanos(round.end_ns.saturating_sub(round.start_ns));
            let long = || !self.absence.as_ref().is_some_and(|absence| absence.is_short(length));
            (lost && long()).then(|| LOST_CPU.to_owned())
        };
        let written = self.written(&log.records);
        let taken = round.used.major_faults;
        let unswapped = self.unswapped_majors(&log.records);
        let majors = Majors { taken, unswapped, all: self.all_majors };
        let memory = self.machine.others_memory(now, &moved, majors, written);
        let absent = (!self.all_there).then(|| NOT_ON_CPU.to_owned());
        let awake = team.stayed_awake().then(|| AWAKE.to_owned());
        let resampled = round.resampled.then(|| RESAMPLED.to_owned());
        let grown = log.has_grown().then(|| LOG_GREW.to_owned());
        let reason = lost.or(disturbed).or(memory).or(absent).or(awake).or(resampled).or(grown);
        let good = reason.is_none();
        let from = std::mem::replace(&mut self.seen, log.records.len());
        // A disturbed round of the warm-up is run again, like any other round.
        match reason {
            Some(reason) => self.mark(reason),
            None => {
                self.witness.attempted += u32::from(round.counts);
                self.note_others(&log.records[from..]);
            }
        }
        (good, moved)
    }

    /// Notes which other tasks sent shootdowns in the round.
    fn note_others(&mut self, records: &[Raw]) {
        let send = Some(FlushReason::RemoteSend);
        let sends = records.iter().filter(|r| r.kind == Kind::Flush && r.flush_reason() == send);
        for tid in sends.map(|r| r.tid).filter(|tid| !self.tasks.ours(*tid)) {
            *self.witness.others_sent.entry(name(tid)).or_default() += 1;
        }
    }

    /// Marks a round, with the reason.
    fn mark(&mut self, reason: String) {
        self.witness.attempted += 1;
        *self.witness.marked.entry(reason).or_default() += 1;
    }

    /// Called when this start ends because another task used the LRU batches between two rounds.
    pub fn ended_between_rounds(&mut self) {
        self.mark(LRU_SHARED.to_owned());
    }

    /// Whether the LRU batches of an acting thread may contain pages that are not the scenario's,
    /// or were drained by others.
    pub fn lru_shared(&mut self, log: &mut Log) -> bool {
        self.catch_up(log);
        self.cpus.iter().any(Cpu::lru_shared)
    }

    /// Called before the sleepers are woken to fall asleep again and the LRU batches are drained.
    /// It no longer matters which tasks ran on the CPUs up to now.
    pub fn forget(&mut self, log: &mut Log) {
        self.catch_up(log);
        self.cpus.iter_mut().for_each(Cpu::forget);
        self.flushes.iter_mut().for_each(|flushes| _ = flushes.take_own());
        self.machine.forget();
    }

    /// Drains the rings between rounds and follows which task runs where. Records that are lost
    /// here only make the history of pages unknown. The log has a record of the loss.
    fn catch_up(&mut self, log: &mut Log) {
        let Some(rings) = &mut self.rings else { return };
        rings.drain(&mut log.records);
        let new = &log.records[self.seen..];
        self.tasks.tids.learn(new);
        if let Some(flushes) = &mut self.flushes {
            // Strangers may flush between rounds. The next warm-up shows what such a flush left
            // behind.
            flushes.follow(new);
        }
        for record in new {
            self.cpus.iter_mut().for_each(|cpu| cpu.between_rounds(record, &mut self.tasks));
        }
        self.seen = log.records.len();
    }

    /// The names of the machine's counters.
    pub fn counter_names(&self) -> &[&'static str] {
        self.machine.names()
    }

    /// How much the machine's counters have moved since the first round.
    pub fn drift(&mut self) -> BTreeMap<String, u64> {
        self.machine.drift()
    }

    /// Whether flushes are among the events.
    pub fn sees_flushes(&self) -> bool {
        self.rings.as_ref().is_some_and(|rings| rings.flushes)
    }

    /// The number of pages that were written to swap since the last round, if events show them.
    fn written(&self, records: &[Raw]) -> Option<u64> {
        let tells = self.rings.as_ref().is_some_and(|rings| rings.writes);
        let writes = || records[self.seen..].iter().filter(|r| r.kind == Kind::Write).count();
        tells.then(|| writes() as u64)
    }

    /// The number of major faults since the last round on memory that never goes to swap, if known.
    fn unswapped_majors(&self, records: &[Raw]) -> Option<u64> {
        let unswapped = |address| {
            let page = Vpn::containing(address);
            self.unswapped.iter().any(|range| range.contains(page))
        };
        let major = |r: &&Raw| r.kind == Kind::FaultDone && r.extra == 1 && unswapped(r.value);
        let seen = || records[self.seen..].iter().filter(major).count() as u64;
        let known = self.unswapped.is_empty() || self.rings.is_some();
        (known && !self.untold_majors).then(seen)
    }

    /// Drains the rings after a round. Returns whether records may be missing.
    fn collect(&mut self, log: &mut Log) -> bool {
        let Some(rings) = &mut self.rings else { return false };
        let from = log.records.len();
        let full = rings.drain(&mut log.records);
        let fault = if rings.faults { Kind::Fault } else { Kind::FaultDone };
        let arrived = self.sentinels.read().is_none_or(|sentinel| {
            rings.drain(&mut log.records);
            let faults = log.records[from..].iter().filter(|r| r.kind == fault);
            faults.map(|r| Vpn::containing(r.value)).any(|page| page == sentinel)
        });
        let told: u64 =
            log.records[from..].iter().filter(|r| r.kind == Kind::Lost).map(|r| r.value).sum();
        if !full && arrived && told == 0 {
            return false;
        }
        let counted = rings.lost().map_or(0, |lost| lost - std::mem::replace(&mut self.lost, lost));
        self.witness.events_lost += told.max(counted).max(1);
        log.records.push(Raw {
            time: sys::now_ns(),
            value: 0,
            extra: 0,
            tid: 0,
            cpu: 0,
            kind: Kind::Lost,
        });
        true
    }

    /// Follows the records since the last round, and returns what disturbed this one.
    fn disturbance(&mut self, team: &Team, records: &[Raw], round: Observed) -> Option<String> {
        let records = &records[self.seen..];
        self.tasks.tids.learn(records);
        let strangers =
            self.flushes.as_mut().map_or_else(Strangers::default, |f| f.follow(records));
        let flushes = flushes_of(records, &self.tasks.tids);
        let draining = spans_of(records, &self.tasks.tids, &self.draining);
        let gathering = spans_of(records, &self.tasks.tids, &self.gathering);
        let (flushes, draining, gathering) = (&flushes[..], &draining[..], &gathering[..]);
        let seen = Seen { records, round, team, flushes, draining, gathering };
        let mut reason = None;
        for cpu in &mut self.cpus {
            let left = self.flushes.as_ref().and_then(|flushes| flushes.left(cpu.number));
            let disturbed = cpu.disturbance(&seen, &mut self.tasks, left);
            reason = reason.or(disturbed);
        }
        let own = self.flushes.as_mut().is_some_and(Flushes::take_own);
        reason
            .or_else(|| own.then(|| format!("{FLUSHED}: {OURSELVES}")))
            .or_else(|| strangers.flushed.then(|| flushed_by(strangers.sender)))
            .or_else(|| strangers.lost.map(str::to_owned))
    }
}

fn flushed_by(sender: Option<i32>) -> String {
    sender.map_or(FLUSHED.to_owned(), |tid| format!("{FLUSHED}: {}", name(tid)))
}

/// Whether DAMON cannot change any counted figure in a run without events. Clearing accessed bits
/// costs no fault on x86. It decides nothing if the scenario asks for no reclaim. Anonymous memory
/// cannot be reclaimed if no swap space is in use.
fn stands_minders(program: &Program) -> bool {
    cfg!(target_arch = "x86_64")
        && !swap::is_in_use()
        && program.areas.iter().all(|area| area.backing == Backing::Anonymous)
        && !program.advises(&[Advice::Cold, Advice::PageOut, Advice::Free])
}

/// Whether a thread that serves userfaultfd shares its CPU with another thread.
fn hands_over(program: &Program) -> bool {
    let threads = || program.threads.iter();
    threads()
        .filter(|thread| thread.serves().is_some())
        .any(|server| threads().filter(|other| other.cpu == server.cpu).count() > 1)
}

//! Watches over each round: were events lost, and was the machine in the state that the
//! scenario describes?
//!
//! A round is marked if
//! - a ring was full when it was drained, or the kernel says that it dropped records, or the
//!   sentinel (a fault of our own, taken after the round) did not arrive;
//! - a thread that runs or spins lost its CPU to somebody else during the round, or was not on
//!   its CPU when the round started (a roll call waits for all who spin);
//!   A kernel thread in its place does no harm by itself: the CPU is lazy meanwhile, which only a flush
//!   finds out. So the round counts if no thread of the scenario flushed anything between its going and
//!   its coming back, and its coming back did not flush, as it does if it left between a change and its flush;
//!   Where no event tells who ran, a round counts in which its threads waited for their CPUs for a hundredth of it at most ([`absence`]);
//! - a thread was pushed out, even by a kernel thread, amid a call that may take shared memory away: it flushes
//!   what it has taken before it makes room, and the rest afterwards ([`calls::gathering`]);
//! - a thread was about to fall asleep again, having served userfaultfd, when another one flushed: asleep it
//!   answers, and its CPU leaves the address space, which nothing asked it for ([`crate::flushes`]);
//! - a user task of somebody else ran on a sleeper's CPU since it fell asleep: the CPU does not
//!   hold the scenario's address space lazily any more. A kernel thread does harm there only if the
//!   records of flushes say that the CPU left the address space;
//! - somebody else flushed one of the scenario's CPUs ([`crate::flushes`]), or the kernel took or moved
//!   pages by itself, which flushes too;
//! - the machine swapped more or less than the scenario did ([`crate::swapping`]);
//! - a user task of somebody else ran on the CPU of a thread that acts since its LRU batches were
//!   emptied, or the runner touched new memory of its own there: it shares them, and they decide what
//!   is copied and reclaimed; or a kernel thread emptied them, as it does for whoever asks for all
//!   CPUs' (khugepaged, compaction, drop_caches), unless the scenario did so itself (fadvise);
//! - the runner itself flushed the scenario's address space between the round before and this one;
//! - NUMA balancing sampled pages at another time than the scenario asks for;
//! - it, or the one to come, needs more room in the log than was set aside.

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

/// How long a round waits for threads that were switched out.
const LONGEST_ABSENCE: Duration = Duration::from_secs(1);

/// What is known of a round when it is over.
#[derive(Copy, Clone, Debug)]
pub struct Observed {
    /// When it started.
    pub start_ns: u64,
    /// When it ended.
    pub end_ns: u64,
    /// What the process used in it.
    pub used: Usage,
    /// Whether it counts if nothing was wrong.
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
    /// Totals.
    pub witness: Witness,
    /// Why it stopped before its time.
    pub gave_up: Option<String>,
    machine: Machine,
    rings: Option<Rings>,
    flushes: Option<Flushes>,
    /// The scenario's memory that does not go to swap: what is shared, and files, unless the scenario pages them out.
    unswapped: Vec<PageRange>,
    /// Whether faults may count as major that read nothing from swap and that no record tells of: pages of files that are read without an
    /// exception, accesses that waited for userfaultfd (mm/memory.c:mm_account_fault); or where memory goes to swap that else never does.
    untold_majors: bool,
    /// Whether all that the scenario reads from swap is a major fault: not where calls read what shared memory has there.
    all_majors: bool,
    /// In the pass that takes the time: whether threads of the scenario push each other out, as one that serves userfaultfd does which goes on for a moment
    /// on the CPU of the one that it has let go on. Nothing tells then whether it was somebody else, and medians have to stand it.
    hands_over: bool,
    /// Where nothing is recorded.
    absence: Option<Absence>,
    /// The operations that have all CPUs empty their LRU batches.
    draining: BTreeSet<u64>,
    /// The operations that flush twice if their thread has to make room amid them.
    gathering: BTreeSet<u64>,
    cpus: Vec<Cpu>,
    tasks: Tasks,
    sentinels: Sentinels,
    all_there: bool,
    /// Records that were looked at.
    seen: usize,
    lost: u64,
}

impl Watch {
    /// Watches over `program`, whose threads are all there, in an address space that was made after
    /// `made_after`; `counts`: in a pass that counts, with or without events, not in one that takes
    /// the time.
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

    /// Called before each round: notes the counters, empties the rings, and waits until the
    /// threads that ought to run are on their CPUs.
    pub fn before(&mut self, team: &Team, log: &mut Log) {
        self.machine.before();
        self.catch_up(log);
        self.absence.iter_mut().for_each(Absence::begin);
        self.all_there = team.roll_call(LONGEST_ABSENCE);
    }

    /// Called after each round: whether it is good, and what the counters did.
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
        // A disturbed warm-up is run again, like a round.
        match reason {
            Some(reason) => self.mark(reason),
            None => {
                self.witness.attempted += u32::from(round.counts);
                self.note_others(&log.records[from..]);
            }
        }
        (good, moved)
    }

    /// Who else sent shootdowns meanwhile.
    fn note_others(&mut self, records: &[Raw]) {
        let send = Some(FlushReason::RemoteSend);
        let sends = records.iter().filter(|r| r.kind == Kind::Flush && r.flush_reason() == send);
        for tid in sends.map(|r| r.tid).filter(|tid| !self.tasks.ours(*tid)) {
            *self.witness.others_sent.entry(name(tid)).or_default() += 1;
        }
    }

    /// A round did not come about as it should, and why.
    fn mark(&mut self, reason: String) {
        self.witness.attempted += 1;
        *self.witness.marked.entry(reason).or_default() += 1;
    }

    /// Called when a start ends because of what happened between two rounds to the LRU batches.
    pub fn ended_between_rounds(&mut self) {
        self.mark(LRU_SHARED.to_owned());
    }

    /// Whether the LRU batches of an acting thread may hold what is not the scenario's, or have
    /// been emptied by others.
    pub fn lru_shared(&mut self, log: &mut Log) -> bool {
        self.catch_up(log);
        self.cpus.iter().any(Cpu::lru_shared)
    }

    /// Called before the sleepers are woken to fall asleep anew and the LRU batches are emptied:
    /// who ran on the CPUs up to now does not matter any more. Whoever runs there from now on does.
    pub fn forget(&mut self, log: &mut Log) {
        self.catch_up(log);
        self.cpus.iter_mut().for_each(Cpu::forget);
        self.flushes.iter_mut().for_each(|flushes| _ = flushes.take_own());
        self.machine.forget();
    }

    /// Empties the rings between rounds and follows who runs where. What is lost here only makes
    /// the history of pages unknown; the record of the loss is in the log.
    fn catch_up(&mut self, log: &mut Log) {
        let Some(rings) = &mut self.rings else { return };
        rings.drain(&mut log.records);
        let new = &log.records[self.seen..];
        self.tasks.tids.learn(new);
        if let Some(flushes) = &mut self.flushes {
            // Between rounds strangers may flush: what they left behind shows in the next warm-up.
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

    /// What the counters of the machine did since the first round.
    pub fn drift(&mut self) -> BTreeMap<String, u64> {
        self.machine.drift()
    }

    /// Whether flushes are among the events.
    pub fn sees_flushes(&self) -> bool {
        self.rings.as_ref().is_some_and(|rings| rings.flushes)
    }

    /// Pages that were seen to be written to swap since the last round, where that is seen.
    fn written(&self, records: &[Raw]) -> Option<u64> {
        let tells = self.rings.as_ref().is_some_and(|rings| rings.writes);
        let writes = || records[self.seen..].iter().filter(|r| r.kind == Kind::Write).count();
        tells.then(|| writes() as u64)
    }

    /// Major faults on memory that never goes to swap since the last round, where they are seen.
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

    /// Empties the rings after a round; whether records may be missing.
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

    /// Follows the records since the last round; tells what disturbed this one.
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

/// Whether DAMON changes nothing that is counted where no events are: taken accessed bits cost no fault on x86, and decide nothing where the scenario
/// asks for no reclaim; anonymous memory cannot be reclaimed where no swap space is in use.
fn stands_minders(program: &Program) -> bool {
    cfg!(target_arch = "x86_64")
        && !swap::is_in_use()
        && program.areas.iter().all(|area| area.backing == Backing::Anonymous)
        && !program.advises(&[Advice::Cold, Advice::PageOut, Advice::Free])
}

/// Whether a thread that serves userfaultfd is on the CPU of another one.
fn hands_over(program: &Program) -> bool {
    let threads = || program.threads.iter();
    threads()
        .filter(|thread| thread.serves().is_some())
        .any(|server| threads().filter(|other| other.cpu == server.cpu).count() > 1)
}

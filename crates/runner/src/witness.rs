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
//! - a user task of somebody else ran on a sleeper's CPU since it fell asleep: the CPU does not
//!   hold the scenario's address space lazily any more. A kernel thread does harm there only if the
//!   records of flushes say that the CPU left the address space;
//! - somebody else flushed one of the scenario's CPUs ([`crate::flushes`]), or the kernel took or moved
//!   pages by itself, which flushes too;
//! - the machine swapped more or less than the scenario did ([`crate::swapping`]);
//! - a user task of somebody else ran on the CPU of a thread that acts since its LRU batches were
//!   emptied: it shares them, and they decide what is copied and reclaimed; or a kernel thread emptied
//!   them, as it does for whoever asks for all CPUs' (khugepaged, compaction, drop_caches);
//! - it, or the one to come, needs more room in the log than was set aside.

use crate::flushes::{Flushes, Strangers};
use crate::log::{Kind, Log, Raw};
use crate::minders::Minders;
use crate::perf::Rings;
use crate::swapping;
use crate::sys::{self, Usage};
use crate::team::{Rest, Team};
use crate::tracefs;
use crate::vmstat::{self, Counters};
use needless_model::addr::{PageRange, Vpn};
use needless_model::event::FlushReason;
use needless_model::program::{Program, Prot};
use needless_model::run::Witness;
use std::collections::BTreeMap;
use std::time::Duration;

/// Reason: events were lost.
pub const EVENTS_LOST: &str = "events lost";
/// Reason: a running thread was switched out.
pub const LOST_CPU: &str = "a thread lost its CPU";
/// Reason: a running thread was not there.
pub const NOT_ON_CPU: &str = "a thread was not on its CPU";
/// Reason: nobody saw a sleeper asleep.
pub const AWAKE: &str = "a sleeper was not seen asleep";
/// Reason: a sleeper's CPU was used.
pub const CPU_USED: &str = "another task ran on a sleeper's CPU";

/// Reason: an acting thread's CPU was used.
pub const LRU_SHARED: &str = "another task shared the LRU batches";
/// Reason: an acting thread's LRU batches were emptied.
pub const LRU_EMPTIED: &str = "a kernel thread emptied the LRU batches";
/// Reason: somebody else sent a shootdown to the scenario's CPUs.
pub const FLUSHED: &str = "another task flushed the scenario's CPUs";
/// Reason: the kernel reclaimed or moved pages.
pub const KERNELS_OWN: &str = "the kernel reclaimed or moved pages";
/// Reason: a kernel thread that looks after memory ran.
pub const MINDED: &str = "the kernel looked after memory";
/// Reason: memory had to be found for the log.
pub const LOG_GREW: &str = "the log had to grow";

/// How long a round waits for threads that were switched out.
const LONGEST_ABSENCE: Duration = Duration::from_secs(1);

/// Pages for sentinels: one is read after each round. Address space only.
const SENTINELS: u64 = 1 << 20;

/// Where the sentinels lie, far from where scenarios are laid out and where Linux maps things.
const SENTINELS_AT: Vpn = Vpn(0x1000_0000_0000 / 4096);

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
}

struct CpuWatch {
    cpu: u16,
    threads: Vec<usize>,
    /// Who runs there, once it is known.
    running: Option<i32>,
    /// Whether a thread there does more than hold it.
    acts: bool,
    /// The stranger's user task that ran there since [`Watch::forget`].
    used: Option<String>,
    /// Whether a kernel thread has emptied its LRU batches since then.
    drained: bool,
}

impl CpuWatch {
    /// Whether one of its threads runs or spins.
    fn ought_to_run(&self, team: &Team) -> bool {
        self.threads.iter().any(|&thread| team.rest(thread) == Rest::Running)
    }

    /// Whether its threads sleep, so that it ought to hold the address space lazily.
    fn ought_to_be_lazy(&self, team: &Team) -> bool {
        !self.ought_to_run(team)
            && self.threads.iter().any(|&thread| team.rest(thread) == Rest::Sleeping)
    }
}

/// The watch of a run.
pub struct Watch {
    /// Totals.
    pub witness: Witness,
    /// Why it stopped before its time.
    pub gave_up: Option<String>,
    /// The counters of the machine.
    pub counters: Counters,
    /// What they showed before the first round.
    first_counters: Vec<u64>,
    first_interrupts: BTreeMap<String, u64>,
    round_counters: Vec<u64>,
    /// At the end of the round before, or when the state was last made anew.
    since_counters: Vec<u64>,
    /// Whether the counters are read around each round; not where time is taken.
    counts: bool,
    rings: Option<Rings>,
    flushes: Option<Flushes>,
    minders: Minders,
    cpus: Vec<CpuWatch>,
    tids: Vec<i32>,
    kernel_threads: Vec<(i32, bool)>,
    sentinels: PageRange,
    all_there: bool,
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
        let mut cpus: Vec<CpuWatch> = Vec::new();
        for (index, thread) in program.threads.iter().enumerate() {
            let acts = index == 0 || !thread.only_holds();
            match cpus.iter_mut().find(|watch| watch.cpu == thread.cpu.0) {
                Some(watch) => {
                    watch.threads.push(index);
                    watch.acts |= acts;
                }
                None => cpus.push(CpuWatch {
                    acts,
                    cpu: thread.cpu.0,
                    threads: vec![index],
                    running: None,
                    used: None,
                    drained: false,
                }),
            }
        }
        let numbers: Vec<u16> = cpus.iter().map(|watch| watch.cpu).collect();
        let flushes = rings.as_ref().filter(|rings| rings.flushes);
        let flushes =
            flushes.map(|_| Flushes::new(tids.clone(), &numbers, made_after, sys::now_ns()));
        Watch {
            witness: Witness::default(),
            gave_up: None,
            counters: Counters::open(),
            first_counters: Vec::new(),
            first_interrupts: BTreeMap::new(),
            round_counters: Vec::new(),
            since_counters: Vec::new(),
            counts,
            flushes,
            minders: Minders::find(),
            sentinels: if rings.is_some() { map_sentinels() } else { PageRange::new(Vpn(0), 0) },
            rings,
            cpus,
            tids,
            kernel_threads: Vec::with_capacity(4096),
            all_there: true,
            seen: 0,
            lost: 0,
        }
    }

    /// Called before the first round.
    pub fn first_round(&mut self) {
        self.first_counters = self.counters.read();
        self.first_interrupts = vmstat::tlb_interrupts();
    }

    /// Called before each round: notes the counters, empties the rings, and waits until the
    /// threads that ought to run are on their CPUs.
    pub fn before(&mut self, team: &Team, log: &mut Log) {
        if self.counts {
            self.round_counters = self.counters.read();
            if self.since_counters.is_empty() {
                self.since_counters.clone_from(&self.round_counters);
            }
        }
        self.catch_up(log);
        self.all_there = team.roll_call(LONGEST_ABSENCE);
    }

    /// Called after each round: whether it is good, and what the counters did.
    pub fn after(&mut self, team: &Team, log: &mut Log, round: Observed) -> (bool, Vec<u64>) {
        let now = if self.counts { self.counters.read() } else { Vec::new() };
        let counters = vmstat::difference(&self.round_counters, &now);
        let lost = self.collect(log).then(|| EVENTS_LOST.to_owned());
        let disturbed = if self.rings.is_some() {
            self.disturbance(team, &log.records, round)
        } else {
            (round.used.involuntary_switches > 0).then(|| LOST_CPU.to_owned())
        };
        let memory = self.others_memory(&log.records, round, &counters, &now);
        self.since_counters = now;
        let absent = (!self.all_there).then(|| NOT_ON_CPU.to_owned());
        let awake = team.stayed_awake().then(|| AWAKE.to_owned());
        let grown = log.has_grown().then(|| LOG_GREW.to_owned());
        let reason = lost.or(disturbed).or(memory).or(absent).or(awake).or(grown);
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
        (good, counters)
    }

    /// Who else sent shootdowns meanwhile.
    fn note_others(&mut self, records: &[Raw]) {
        let send = Some(FlushReason::RemoteSend);
        let sends = records.iter().filter(|r| r.kind == Kind::Flush && r.flush_reason() == send);
        for tid in sends.map(|r| r.tid).filter(|tid| !self.tids.contains(tid)) {
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
        self.cpus.iter().any(|watch| watch.acts && (watch.used.is_some() || watch.drained))
    }

    /// Called before the sleepers are woken to fall asleep anew and the LRU batches are emptied:
    /// who ran on the CPUs up to now does not matter any more. Whoever runs there from now on does.
    pub fn forget(&mut self, log: &mut Log) {
        self.catch_up(log);
        self.cpus.iter_mut().for_each(|watch| (watch.used, watch.drained) = (None, false));
        self.since_counters.clear();
        self.minders.ran();
    }

    /// Empties the rings between rounds and follows who runs where. What is lost here only makes
    /// the history of pages unknown; the record of the loss is in the log.
    fn catch_up(&mut self, log: &mut Log) {
        let Some(rings) = &mut self.rings else { return };
        rings.drain(&mut log.records);
        if let Some(flushes) = &mut self.flushes {
            // Between rounds strangers may flush: what they left behind shows in the next warm-up.
            flushes.follow(&log.records[self.seen..]);
        }
        for at in self.seen..log.records.len() {
            let record = log.records[at];
            self.note_drain(&record);
            if !is_switch(&record) {
                continue;
            }
            let next = record.value as i32;
            let user = (!self.harmless(next)).then(|| name(next));
            if let Some(watch) = self.cpus.iter_mut().find(|watch| watch.cpu == record.cpu) {
                watch.running = Some(next);
                watch.used = user.or(watch.used.take());
            }
        }
        self.seen = log.records.len();
    }

    /// What the counters of the machine did since the first round.
    pub fn drift(&mut self) -> BTreeMap<String, u64> {
        let moved = vmstat::difference(&self.first_counters, &self.counters.read());
        let names = self.counters.names().iter().map(|name| (*name).to_owned());
        let interrupts = vmstat::tlb_interrupts().into_iter().map(|(name, count)| {
            let before = self.first_interrupts.get(&name).copied().unwrap_or(count);
            (name, count.saturating_sub(before))
        });
        names.zip(moved).chain(interrupts).collect()
    }

    /// Whether flushes are among the events.
    pub fn sees_flushes(&self) -> bool {
        self.rings.as_ref().is_some_and(|rings| rings.flushes)
    }

    /// Empties the rings after a round; whether records may be missing.
    fn collect(&mut self, log: &mut Log) -> bool {
        let Some(rings) = &mut self.rings else { return false };
        let from = log.records.len();
        let full = rings.drain(&mut log.records);
        let sentinel = self.sentinels.start;
        let fault = if rings.faults { Kind::Fault } else { Kind::FaultDone };
        let mut arrived = true;
        if !self.sentinels.is_empty() {
            self.sentinels.start = sentinel.add(1);
            sys::load(sentinel);
            rings.drain(&mut log.records);
            arrived = log.records[from..]
                .iter()
                .any(|r| r.kind == fault && Vpn::containing(r.value) == sentinel);
        }
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

    /// Follows the context switches since the last round; tells what disturbed this one.
    fn disturbance(&mut self, team: &Team, records: &[Raw], round: Observed) -> Option<String> {
        let mut reason: Option<String> = None;
        let new = &records[self.seen..];
        let strangers = self.flushes.as_mut().map_or_else(Strangers::default, |f| f.follow(new));
        let flushes = flushes_of(new, &self.tids);
        for at in 0..self.cpus.len() {
            let cpu = self.cpus[at].cpu;
            self.cpus[at].drained |= new.iter().any(|r| r.kind == Kind::Drained && r.cpu == cpu);
            let mut at_start = self.cpus[at].running;
            let (came, came_later) = strangers_on(new, cpu, round, |tid| !self.harmless(tid));
            self.cpus[at].used = came.map(name).or(self.cpus[at].used.take());
            let switches = records[self.seen..].iter();
            for record in switches.filter(|r| is_switch(r) && r.cpu == cpu) {
                let next = record.value as i32;
                let in_round = record.time >= round.start_ns && record.time <= round.end_ns;
                if record.time < round.start_ns {
                    at_start = Some(next);
                }
                let pushed_out = record.extra == 1 && self.ours(record.tid) && !self.ours(next);
                let intruder = record.kind == Kind::SwitchIn && self.cpus[at].ought_to_run(team);
                if in_round && (intruder || pushed_out) && !self.harmless(next) {
                    reason = reason.or_else(|| Some(format!("{LOST_CPU} to {}", name(next))));
                }
                self.cpus[at].running = Some(next);
            }
            let absences = absences_of(new, cpu, round, &self.tids);
            let missed =
                |(gone, _): &&(Span, i32)| flushes.iter().any(|flush| flush.overlaps(*gone));
            if let Some((_, who)) = absences.iter().find(missed) {
                reason = reason.or_else(|| Some(format!("{LOST_CPU} to {}", name(*who))));
            }
            if !absences.is_empty() && new.iter().any(|r| flushed_by_switch(r, cpu, round)) {
                reason = reason.or_else(|| Some(LOST_CPU.to_owned()));
            }
            let stranger = at_start.filter(|tid| !self.ours(*tid));
            if self.cpus[at].ought_to_run(team)
                && let Some(tid) = stranger
            {
                reason = reason.or_else(|| Some(format!("{NOT_ON_CPU}, {} was", name(tid))));
            }
            let watch = &self.cpus[at];
            if watch.ought_to_be_lazy(team) {
                let used = watch.used.as_ref().map(|who| format!("{CPU_USED}: {who}"));
                let left = || self.flushes.as_ref()?.left(cpu).map(str::to_owned);
                reason = reason.or(used).or_else(left);
            }
            if watch.acts {
                let drained = watch.drained.then(|| LRU_EMPTIED.to_owned());
                let shared = || Some(format!("{LRU_SHARED}: {}", watch.used.as_ref()?));
                reason = reason.or(drained).or_else(shared);
            }
            // Whoever came after the round's end is the next one's concern.
            self.cpus[at].used = came_later.map(name).or(self.cpus[at].used.take());
        }
        reason.or_else(|| strangers.flushed.then(|| flushed_by(strangers.sender)))
    }

    /// Whether pages moved in this round that are not the scenario's, or not by its doing.
    fn others_memory(
        &mut self,
        records: &[Raw],
        round: Observed,
        moved: &[u64],
        now: &[u64],
    ) -> Option<String> {
        let names = self.counters.names();
        let tells = self.rings.as_ref().is_some_and(|rings| rings.writes);
        let written = records[self.seen..].iter().filter(|r| r.kind == Kind::Write).count() as u64;
        if !self.counts {
            return None;
        }
        let majors = round.used.major_faults;
        let swapped = swapping::strangers(names, moved, majors, tells.then_some(written));
        let own = vmstat::kernels_own(names, &vmstat::difference(&self.since_counters, now));
        let own = own.map(|counter| format!("{KERNELS_OWN} ({counter})"));
        let minder = self.minders.ran().map(|name| format!("{MINDED}: {name}"));
        swapped.map(str::to_owned).or(own).or(minder)
    }

    fn note_drain(&mut self, record: &Raw) {
        if record.kind == Kind::Drained
            && let Some(watch) = self.cpus.iter_mut().find(|watch| watch.cpu == record.cpu)
        {
            watch.drained = true;
        }
    }

    fn ours(&self, tid: i32) -> bool {
        self.tids.contains(&tid)
    }

    /// Whether a task leaves the loaded address space alone: the idle task, our own threads,
    /// and kernel threads. A task that is gone already is taken for a user's.
    fn harmless(&mut self, tid: i32) -> bool {
        if tid == 0 || self.ours(tid) {
            return true;
        }
        if let Some((_, kernel)) = self.kernel_threads.iter().find(|(known, _)| *known == tid) {
            return *kernel;
        }
        let stat = std::fs::read(format!("/proc/{tid}/stat")).unwrap_or_default();
        let kernel = tracefs::is_kernel_thread(&stat).unwrap_or(false);
        if self.kernel_threads.len() < self.kernel_threads.capacity() {
            self.kernel_threads.push((tid, kernel));
        }
        kernel
    }
}

fn flushed_by(sender: Option<i32>) -> String {
    sender.map_or(FLUSHED.to_owned(), |tid| format!("{FLUSHED}: {}", name(tid)))
}

/// The name of a task, for people.
fn name(tid: i32) -> String {
    let name = std::fs::read_to_string(format!("/proc/{tid}/comm")).unwrap_or_default();
    match name.trim() {
        "" => "a task that is gone".to_owned(),
        name => name.to_owned(),
    }
}

/// Whether a record tells who runs next. Leaving and coming are both looked at: kernels were seen
/// to leave out one of the two.
fn is_switch(record: &Raw) -> bool {
    matches!(record.kind, Kind::SwitchOut | Kind::SwitchIn)
}

/// A stretch of time, both ends included.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
struct Span {
    from: u64,
    to: u64,
}

impl Span {
    fn overlaps(self, other: Span) -> bool {
        self.from <= other.to && other.from <= self.to
    }
}

/// The stranger that came to a CPU last by the round's end, and the one that did after it.
fn strangers_on(
    records: &[Raw],
    cpu: u16,
    round: Observed,
    mut stranger: impl FnMut(i32) -> bool,
) -> (Option<i32>, Option<i32>) {
    let (mut came, mut came_later) = (None, None);
    for record in records.iter().filter(|r| is_switch(r) && r.cpu == cpu) {
        let next = record.value as i32;
        let last = if record.time <= round.end_ns { &mut came } else { &mut came_later };
        if stranger(next) {
            *last = Some(next);
        }
    }
    (came, came_later)
}

/// When one of the threads `tids` was pushed out of a CPU in a round, until one of them was back, and by
/// whom.
fn absences_of(records: &[Raw], cpu: u16, round: Observed, tids: &[i32]) -> Vec<(Span, i32)> {
    let mut absences = Vec::new();
    let mut open: Option<(Span, i32)> = None;
    for record in records.iter().filter(|r| is_switch(r) && r.cpu == cpu) {
        let next = record.value as i32;
        let in_round = record.time >= round.start_ns && record.time <= round.end_ns;
        if tids.contains(&next) {
            let back = |(gone, who)| (Span { to: record.time, ..gone }, who);
            absences.extend(open.take().map(back));
        } else if in_round && record.extra == 1 && tids.contains(&record.tid) {
            open = open.or(Some((Span { from: record.time, to: u64::MAX }, next)));
        }
    }
    absences.extend(open);
    absences
}

/// When the threads `tids` flushed: from a flush's record to the next thing that its thread did. Each thread's records come from one ring, so in their order.
fn flushes_of(records: &[Raw], tids: &[i32]) -> Vec<Span> {
    let mut spans = Vec::new();
    for &tid in tids {
        let mut open: Option<Span> = None;
        let own = |r: &&Raw| r.tid == tid && !is_switch(r) && r.kind != Kind::Lost;
        for record in records.iter().filter(own) {
            spans.extend(open.take().map(|span| Span { to: record.time, ..span }));
            let flush = record.flush_reason().filter(|_| record.kind == Kind::Flush);
            if flush.is_some_and(FlushReason::is_initiators) {
                open = Some(Span { from: record.time, to: u64::MAX });
            }
        }
        spans.extend(open);
    }
    spans
}

/// Whether a switch of tasks flushed this CPU during the round: it does so if flushes were due that
/// its slot of the TLB had not seen, and their own turn then finds nothing left to do.
fn flushed_by_switch(record: &Raw, cpu: u16, round: Observed) -> bool {
    let flush =
        record.kind == Kind::Flush && record.flush_reason() == Some(FlushReason::TaskSwitch);
    let in_round = record.time >= round.start_ns && record.time <= round.end_ns;
    flush && record.cpu == cpu && record.value != 0 && in_round
}

/// Address space whose reading faults map the zero page: a sentinel that leaves the LRU alone.
fn map_sentinels() -> PageRange {
    let range = PageRange::new(SENTINELS_AT, SENTINELS);
    if sys::map(range, Prot::Read).is_err() {
        return PageRange::new(SENTINELS_AT, 0);
    }
    sys::forbid_huge_pages(range);
    range
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flush_lasts_until_its_thread_goes_on() {
        let raw =
            |time, kind, reason: u64, tid| Raw { time, value: 1, extra: reason, tid, cpu: 0, kind };
        let send = FlushReason::RemoteSend as u64;
        let records = [
            raw(1, Kind::Op, 0, 7),
            raw(2, Kind::Flush, send, 7),
            raw(3, Kind::Flush, send, 99),
            raw(4, Kind::SwitchOut, 1, 7),
            raw(5, Kind::Flush, FlushReason::LocalMm as u64, 7),
            raw(6, Kind::Op, 0, 7),
            raw(8, Kind::Flush, FlushReason::RemoteShootdown as u64, 7),
            raw(9, Kind::Flush, FlushReason::LocalMm as u64, 8),
        ];
        let spans = flushes_of(&records, &[7, 8]);
        let span = |from, to| Span { from, to };
        assert_eq!(spans, [span(2, 5), span(5, 6), span(9, u64::MAX)]);
        let overlaps = |from, to| spans.iter().any(|flush| flush.overlaps(span(from, to)));
        assert!(overlaps(0, 2) && overlaps(4, 4) && overlaps(8, 20));
        assert!(!overlaps(0, 1) && !overlaps(7, 8));
    }

    #[test]
    fn who_was_pushed_out_is_absent_until_one_of_ours_is_back() {
        let used = Usage { minor_faults: 0, major_faults: 0, involuntary_switches: 0 };
        let round = Observed { start_ns: 10, end_ns: 20, used, counts: true };
        let switch = |time, kind, tid, next: u64, pushed| Raw {
            time,
            value: next,
            extra: pushed,
            tid,
            cpu: 0,
            kind,
        };
        let out = |time, tid, next, pushed| switch(time, Kind::SwitchOut, tid, next, pushed);
        let back = |time, tid: i32| switch(time, Kind::SwitchIn, tid, tid as u64, 0);
        let absent = |records: &[Raw]| -> Vec<(u64, u64, i32)> {
            let all = absences_of(records, 0, round, &[7, 8]).into_iter();
            all.map(|(gone, who)| (gone.from, gone.to, who)).collect()
        };
        // Two kernel threads, one after the other, in place of thread 7.
        let two = [out(11, 7, 30, 1), out(12, 30, 31, 1), out(14, 31, 7, 0), back(14, 7)];
        assert_eq!(absent(&two), [(11, 14, 30)]);
        assert_eq!(absent(&two[..2]), [(11, u64::MAX, 30)], "it did not come back");
        assert_eq!(absent(&[out(11, 7, 30, 0)]), [], "it went by itself");
        assert_eq!(absent(&[out(11, 7, 8, 1)]), [], "to one of ours");
        assert_eq!(absent(&[out(9, 7, 30, 1)]), [], "before the round");
    }

    /// Between a round's end and the look at its records somebody may come, too.
    #[test]
    fn who_comes_after_the_end_is_not_forgotten() {
        let used = Usage { minor_faults: 0, major_faults: 0, involuntary_switches: 0 };
        let round = Observed { start_ns: 10, end_ns: 20, used, counts: true };
        let switch = |time, next, cpu| Raw {
            time,
            value: next,
            extra: 0,
            tid: 0,
            cpu,
            kind: Kind::SwitchOut,
        };
        let on = |records: &[Raw]| strangers_on(records, 1, round, |tid| tid > 100);
        assert_eq!(on(&[switch(12, 500, 1), switch(13, 7, 1)]), (Some(500), None));
        assert_eq!(
            on(&[switch(20, 7, 1), switch(21, 500, 1), switch(22, 7, 1)]),
            (None, Some(500))
        );
        assert_eq!(on(&[switch(5, 400, 1), switch(25, 500, 1)]), (Some(400), Some(500)));
        assert_eq!(on(&[switch(12, 500, 0), switch(22, 500, 0)]), (None, None));
    }

    #[test]
    fn a_flush_by_a_switch_counts_on_its_cpu_in_its_round_if_it_flushed() {
        let used = Usage { minor_faults: 0, major_faults: 0, involuntary_switches: 0 };
        let round = Observed { start_ns: 10, end_ns: 20, used, counts: true };
        let flush = |time, value, reason: FlushReason, cpu| {
            let raw = Raw { time, value, extra: reason as u64, tid: 1, cpu, kind: Kind::Flush };
            flushed_by_switch(&raw, 0, round)
        };
        assert!(flush(15, u64::MAX, FlushReason::TaskSwitch, 0));
        assert!(!flush(15, 0, FlushReason::TaskSwitch, 0), "the slot was up to date");
        assert!(!flush(15, u64::MAX, FlushReason::LocalMm, 0));
        assert!(!flush(15, u64::MAX, FlushReason::TaskSwitch, 1));
        assert!(!flush(25, u64::MAX, FlushReason::TaskSwitch, 0));
    }
}

//! Finds out from flush records whether a stranger flushed one of the scenario's CPUs, and whether
//! the CPU of a sleeping thread still has the scenario's address space loaded.
//!
//! Every answer to a shootdown and every change of address space leaves a `tlb_flush` record on its
//! CPU (arch/x86/mm/tlb.c:flush_tlb_func, switch_mm_irqs_off; 5.10 to 7.3). A thread of ours that
//! sends a shootdown waits for the answers. So the answers to it lie between its send and its next
//! action. A stranger causes everything else:
//!
//! - An answer on one of our CPUs that no send of ours asked for. A flush of a mask of CPUs
//!   (reclaim, migration) may have raised our generation, so that our next flush becomes a full
//!   one. Or it brought a CPU up to our generation, so that our own flush finds nothing left to do.
//! - A change of address space on a sleeper's CPU. Kernel threads cause that without a user task:
//!   they borrow one (kernel/kthread.c:kthread_use_mm), patch code (arch/x86/kernel/alternative.c),
//!   or flush while the CPU is lazy. A deep idle state causes it too (tlb.c:leave_mm). Up to 6.12
//!   the CPU leaves `mm_cpumask` at once, in 7.3 at the next trimming.
//!
//! A flush of ours that frees tables, or that is one of a range (tlbflush.h:flush_tlb_range), makes
//! a lazy CPU leave as well. The scenario causes that itself. Other flushes do not interrupt lazy
//! CPUs. They may make a CPU leave that becomes lazy between the send and its answer
//! (tlb.c:tlb_is_not_lazy, flush_tlb_func). That happens only on the CPU of a thread that was woken
//! and has just fallen asleep again ([`FALLS_ASLEEP_NS`]): the thread that serves userfaultfd.
//!
//! In 7.3 the CPU stays in the mask until an interrupt finds that it has another address space
//! loaded (`RemoteWrongCpu`). That is the interrupt of the next flush that frees tables, which the
//! scenario decides, or of a flush that trims, about once a second, which the clock decides
//! (tlb.c:should_trim_cpumask).

use crate::log::{Kind, Raw};
use crate::sys::roomy;
use crate::tids::Tids;
use needless_model::event::FlushReason;
use needless_model::order::Rank;
use std::collections::BTreeSet;

/// The time between two trimmings (`HZ` jiffies), and how imprecise a time in jiffies may be.
const TRIM_INTERVAL_NS: u64 = 1_000_000_000;
const JIFFY_NS: u64 = 20_000_000;

/// The longest time from the record of a switch to the moment when the CPU is lazy. The record
/// comes a little earlier (kernel/sched/core.c:prepare_task_switch, context_switch). If a flush is
/// sent later than this after the record, the CPU was lazy when the flush asked it. A sleeper gets
/// more time than this to fall asleep ([`crate::team`]).
const FALLS_ASLEEP_NS: u64 = 100_000;

/// Whether a CPU has the scenario's address space loaded while its threads sleep.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Hold {
    /// The CPU has it loaded.
    Held,
    /// A flush of the scenario made the CPU leave.
    LeftByUs,
    /// Something else made the CPU leave.
    Gone,
    /// The clock or a stranger took the CPU out of the mask.
    Trimmed,
}

struct Cpu {
    number: u16,
    hold: Hold,
    /// The number of the last send that it answered.
    answered: u64,
    /// Whether it last switched to a thread of ours, or is about to.
    ours: bool,
    /// Whether the last operation that began there may free page tables.
    frees: bool,
    /// When a thread of ours last left it, in nanoseconds.
    slept: u64,
    /// Whether it left because a flush caught it falling asleep, and has not come back. The next
    /// flush misses it.
    caught: bool,
    /// Whether something else made it leave since the last stretch of records, even if it has come
    /// back.
    gone: bool,
}

/// A send of ours that may still be answered.
#[derive(Copy, Clone)]
struct Send {
    tid: i32,
    cpu: u16,
    time: u64,
    /// Whether the flush may be one that trims.
    may_trim: bool,
    /// Whether the flush may be one that frees page tables.
    may_free: bool,
}

/// Follows the records of a run's CPUs.
pub struct Flushes {
    tids: Tids,
    cpus: Vec<Cpu>,
    /// The operations that may free page tables.
    freeing: BTreeSet<u64>,
    open: Option<Send>,
    sends: u64,
    trimming: Trimming,
    /// Between rounds: the thread that runs them. It does nothing for the scenario there.
    resting: Option<i32>,
    /// Whether that thread flushed between rounds since the last [`Flushes::take_own`].
    own: bool,
    /// Records in the order of time. It is kept to reuse its memory.
    order: Vec<(u64, Rank, u32)>,
}

/// What a stretch of records shows about strangers.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Strangers {
    /// A stranger's flush arrived on one of the CPUs.
    pub flushed: bool,
    /// A task that is not ours and sent a shootdown from one of the CPUs.
    pub sender: Option<i32>,
    /// How a CPU left the address space or the mask although the scenario did not ask for it, even
    /// if the CPU has come back.
    pub lost: Option<&'static str>,
}

/// A flush reached a CPU that was not lazy when the flush was sent, and lazy when it answered.
const CAUGHT: &str = "a flush caught a sleeper's CPU falling asleep";
const GONE: &str = "a sleeper's CPU left the address space";
const TRIMMED: &str = "a sleeper's CPU was trimmed from mm_cpumask";

impl Flushes {
    /// Follows the threads `tids` on `cpus`. The operations `freeing` may free page tables. The
    /// address space was made between `made_after` and `now`.
    pub fn new(
        tids: Tids,
        cpus: &[u16],
        freeing: BTreeSet<u64>,
        made_after: u64,
        now: u64,
    ) -> Flushes {
        let cpu = |&number: &u16| Cpu {
            number,
            hold: Hold::Held,
            answered: 0,
            ours: false,
            frees: false,
            slept: 0,
            caught: false,
            gone: false,
        };
        Flushes {
            tids,
            cpus: cpus.iter().map(cpu).collect(),
            freeing,
            open: None,
            sends: 0,
            trimming: Trimming::new(made_after, now),
            resting: None,
            own: false,
            order: roomy(1 << 12, (0, Rank::RoundStart, 0)),
        }
    }

    /// Follows more records. They may be in any order, but come after those of the last call.
    pub fn follow(&mut self, records: &[Raw]) -> Strangers {
        self.tids.learn(records);
        let mut order = std::mem::take(&mut self.order);
        order.clear();
        let keyed = records.iter().enumerate().map(|(at, r)| (r.time, r.rank(), at as u32));
        order.extend(keyed);
        order.sort_unstable();
        let mut strangers = Strangers::default();
        self.cpus.iter_mut().for_each(|cpu| cpu.gone = false);
        for &(_, _, at) in &order {
            self.record(&records[at as usize], &mut strangers);
        }
        self.order = order;
        strangers
    }

    /// Whether the runner has flushed the scenario's address space between rounds since the last
    /// call. Such a flush completes what a round left to be flushed
    /// (mm/rmap.c:flush_tlb_batched_pending), and it changes the generation.
    pub fn take_own(&mut self) -> bool {
        std::mem::take(&mut self.own)
    }

    /// Why the CPU of a sleeper no longer has the scenario's address space loaded.
    pub fn left(&self, cpu: u16) -> Option<&'static str> {
        let cpu = self.cpus.iter().find(|known| known.number == cpu)?;
        match cpu.hold {
            Hold::Held | Hold::LeftByUs => cpu.gone.then_some(GONE),
            Hold::Gone => Some(GONE),
            Hold::Trimmed => Some(TRIMMED),
        }
    }

    fn record(&mut self, record: &Raw, strangers: &mut Strangers) {
        let ours = self.tids.ours(record.tid);
        if ours && record.kind == Kind::Op {
            let frees = self.freeing.contains(&record.value);
            self.of(record.cpu).into_iter().for_each(|cpu| cpu.frees = frees);
        }
        if matches!(record.kind, Kind::SwitchOut | Kind::SwitchIn) {
            let next = self.tids.ours(record.value as i32);
            if let Some(cpu) = self.of(record.cpu) {
                (cpu.ours, cpu.caught) = (next, cpu.caught && !next);
                if ours && !next {
                    cpu.slept = record.time;
                }
            }
        }
        match record.kind {
            Kind::RoundStart => self.resting = None,
            Kind::RoundEnd => self.resting = Some(record.tid),
            Kind::Flush => self.own |= self.is_own(record),
            _ => {}
        }
        match record.kind {
            Kind::Flush => self.flush(record, ours, strangers),
            Kind::SwitchOut | Kind::SwitchIn if ours => self.hold(record.cpu, Hold::Held),
            Kind::SwitchOut
            | Kind::SwitchIn
            | Kind::Write
            | Kind::Drained
            | Kind::Charged
            | Kind::Lost => {}
            // A thread that goes on has got its answers.
            _ if self.open.is_some_and(|send| send.tid == record.tid) => self.open = None,
            _ => {}
        }
    }

    fn flush(&mut self, record: &Raw, ours: bool, strangers: &mut Strangers) {
        match record.flush_reason() {
            Some(FlushReason::RemoteSend) if ours => {
                self.sends += 1;
                let Raw { tid, cpu, time, .. } = *record;
                let may_trim = self.trimming.may_be_at(time);
                // A full flush counts as one that may free tables
                // (arch/x86/include/asm/tlbflush.h:flush_tlb_mm).
                let may_free =
                    record.value == u64::MAX || self.of(cpu).is_some_and(|cpu| cpu.frees);
                self.open = Some(Send { tid, cpu, time, may_trim, may_free });
                strangers.lost = strangers.lost.or(self.misses());
            }
            Some(FlushReason::RemoteSend) => strangers.sender = Some(record.tid),
            Some(FlushReason::LocalMm) => {
                let send = self.open.filter(|send| send.tid == record.tid);
                if ours && send.is_none() {
                    strangers.lost = strangers.lost.or(self.misses());
                }
                send.into_iter().for_each(|send| self.trimming.flushed(send.time));
            }
            Some(FlushReason::RemoteShootdown) => strangers.flushed |= !self.asked(record),
            Some(FlushReason::TaskSwitch) => {
                let asked = self.asked(record);
                match self.holding(record.cpu) {
                    Some(Hold::Held) if asked => {
                        let caught = self.catches(record.cpu);
                        self.of(record.cpu).into_iter().for_each(|cpu| cpu.caught = caught);
                        self.hold(record.cpu, Hold::LeftByUs);
                    }
                    Some(Hold::Held) => {
                        self.of(record.cpu).into_iter().for_each(|cpu| cpu.gone |= !cpu.ours);
                        self.hold(record.cpu, Hold::Gone);
                    }
                    _ => {}
                }
            }
            Some(FlushReason::RemoteWrongCpu) => {
                strangers.lost = strangers.lost.or(self.found_elsewhere(record));
            }
            Some(FlushReason::LocalBatch) | None => {}
        }
    }

    /// Whether the thread that runs the rounds issued this flush between two of them.
    fn is_own(&self, record: &Raw) -> bool {
        let issued =
            matches!(record.flush_reason(), Some(FlushReason::RemoteSend | FlushReason::LocalMm));
        issued && self.resting == Some(record.tid)
    }

    /// An interrupt found another address space on a CPU, and the CPU leaves the mask, which may be
    /// that of our address space or another one. Returns what the scenario did not decide about it.
    fn found_elsewhere(&mut self, record: &Raw) -> Option<&'static str> {
        let by_us = self.asked(record);
        if let Some(send) = self.open.filter(|send| by_us && !send.may_free) {
            self.trimming.trimmed(send.time);
        }
        let by_the_clock = self.open.is_none_or(|send| send.may_trim);
        if self.holding(record.cpu) == Some(Hold::LeftByUs) && (by_the_clock || !by_us) {
            self.hold(record.cpu, Hold::Trimmed);
            return Some(TRIMMED);
        }
        None
    }

    /// Whether a flush may have caught the CPU before it was lazy, and made it leave. Only a flush
    /// that frees no tables counts. A CPU that switches to a thread of ours does not leave: it
    /// catches up with the flushes that it missed.
    fn catches(&mut self, cpu: u16) -> bool {
        let Some(send) = self.open.filter(|send| !send.may_free) else { return false };
        self.of(cpu).is_some_and(|cpu| !cpu.ours && cpu.slept + FALLS_ASLEEP_NS > send.time)
    }

    /// Whether a flush of ours misses a CPU that was caught falling asleep.
    fn misses(&self) -> Option<&'static str> {
        self.cpus.iter().any(|cpu| cpu.caught).then_some(CAUGHT)
    }

    /// Whether a send of ours asked this CPU to do what `record` shows. Each send asks a CPU once.
    /// Only 5.10 asks the sender itself, which then finds nothing left to flush
    /// (kernel/smp.c:on_each_cpu_cond_mask).
    fn asked(&mut self, record: &Raw) -> bool {
        let Some(send) = self.open else { return false };
        if send.cpu == record.cpu && record.value != 0 {
            return false;
        }
        let sends = self.sends;
        let cpu = self.of(record.cpu);
        cpu.is_some_and(|cpu| std::mem::replace(&mut cpu.answered, sends) != sends)
    }

    fn holding(&self, cpu: u16) -> Option<Hold> {
        self.cpus.iter().find(|known| known.number == cpu).map(|cpu| cpu.hold)
    }

    fn hold(&mut self, cpu: u16, hold: Hold) {
        self.of(cpu).into_iter().for_each(|cpu| cpu.hold = hold);
    }

    fn of(&mut self, cpu: u16) -> Option<&mut Cpu> {
        self.cpus.iter_mut().find(|known| known.number == cpu)
    }
}

/// The times at which the kernel may trim the mask next. From some moment on, the next flush of a
/// range trims. That moment lies in one of these intervals, which are in order.
struct Trimming {
    may_be: Vec<(u64, u64)>,
}

impl Trimming {
    /// For an address space that was made between `after` and `before`.
    fn new(after: u64, before: u64) -> Trimming {
        let mut may_be = roomy(1 << 6, (0, 0));
        may_be.push(Trimming::next(after, before));
        Trimming { may_be }
    }

    /// The interval in which the kernel trims next, if it last trimmed between `after` and
    /// `before`.
    fn next(after: u64, before: u64) -> (u64, u64) {
        ((after + TRIM_INTERVAL_NS).saturating_sub(JIFFY_NS), before + TRIM_INTERVAL_NS + JIFFY_NS)
    }

    /// Whether a flush sent at `time` may trim.
    fn may_be_at(&self, time: u64) -> bool {
        self.may_be.iter().any(|(from, _)| time >= *from)
    }

    /// A send at `time` flushed a range. It trimmed, unless the moment for that was still to come.
    fn flushed(&mut self, time: u64) {
        if !self.may_be_at(time) {
            return;
        }
        for (from, to) in &mut self.may_be {
            if *to >= time {
                *from = time.max(*from);
            }
        }
        self.may_be.retain(|(_, to)| *to >= time);
        let next = Trimming::next(time, time);
        match self.may_be.last_mut() {
            Some((from, to)) if next.0 <= *to => *to = next.1.max(*to),
            _ => self.may_be.push(next),
        }
    }

    /// The flush that was sent at `time` trimmed.
    fn trimmed(&mut self, time: u64) {
        self.may_be.clear();
        self.may_be.push(Trimming::next(time, time));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use needless_model::event::FlushReason::*;

    const MAIN: i32 = 10;
    const OTHER: i32 = 11;
    const SECOND: u64 = 1_000_000_000;
    const ALL: u64 = u64::MAX;
    /// An operation that may free tables.
    const FREES: u64 = 3;

    fn raw(time: u64, kind: Kind, value: u64, extra: u64, tid: i32, cpu: u16) -> Raw {
        Raw { time, value, extra, tid, cpu, kind }
    }

    fn flush(time: u64, reason: FlushReason, pages: u64, tid: i32, cpu: u16) -> Raw {
        raw(time, Kind::Flush, pages, reason as u64, tid, cpu)
    }

    fn op(time: u64) -> Raw {
        raw(time, Kind::Op, 0, 0, MAIN, 0)
    }

    /// Thread `MAIN` acts on CPU 0; `OTHER` spins or sleeps on CPU 1.
    fn flushes() -> Flushes {
        Flushes::new(Tids::new(&[MAIN, OTHER]), &[0, 1], BTreeSet::from([FREES]), 0, 0)
    }

    fn stranger(records: &[Raw]) -> bool {
        flushes().follow(records).flushed
    }

    #[test]
    fn an_answer_to_our_own_send_is_no_strangers() {
        let own = [
            op(1),
            flush(2, RemoteSend, 16, MAIN, 0),
            flush(3, RemoteShootdown, 16, OTHER, 1),
            flush(4, LocalMm, 16, MAIN, 0),
            op(5),
        ];
        assert!(!stranger(&own));
        // The rings of two CPUs are read one after the other, and the clock may be coarse.
        assert!(!stranger(&[own[1], own[3], own[0], own[4], own[2]]));
        assert!(!stranger(&own.map(|record| Raw { time: 7, ..record })[1..4]));
        // 5.10: the sender answers itself and finds nothing left to do.
        assert!(!stranger(&[own[0], own[1], flush(3, RemoteShootdown, 0, MAIN, 0), own[2]]));
    }

    #[test]
    fn a_strangers_flush_is_noticed() {
        // `IPI:MM(ALL/send16)`: reclaim on another CPU had raised the generation and flushes after
        // us.
        let behind = [
            op(1),
            flush(2, RemoteSend, 16, MAIN, 0),
            flush(3, RemoteShootdown, ALL, OTHER, 1),
            flush(4, LocalMm, ALL, MAIN, 0),
            raw(5, Kind::RoundEnd, 0, 0, MAIN, 0),
            flush(6, RemoteShootdown, 0, MAIN, 0),
        ];
        assert!(stranger(&behind));
        assert!(!stranger(&behind[..5]));
        // Our own flush finds its generation reached: a stranger's flush came between its two
        // halves.
        assert!(stranger(&[op(1), behind[1], flush(3, RemoteShootdown, ALL, MAIN, 0), behind[2]]));
        // No thread of ours asked, or the answer has come already.
        assert!(stranger(&[op(1), flush(2, RemoteShootdown, 0, OTHER, 1)]));
        assert!(stranger(&[op(1), behind[1], behind[2], flush(4, RemoteShootdown, 0, OTHER, 1)]));
        assert!(stranger(&[op(1), behind[1], op(3), flush(4, RemoteShootdown, ALL, OTHER, 1)]));
        let told = flushes().follow(&[flush(2, RemoteSend, ALL, 99, 1), behind[5]]);
        assert_eq!(told, Strangers { flushed: true, sender: Some(99), lost: None });
    }

    /// Before the first round the scenario prepares what it needs. In a round, flushes are the
    /// scenario's.
    #[test]
    fn the_runners_own_flush_between_rounds_is_noticed() {
        let send = |time| flush(time, RemoteSend, ALL, MAIN, 0);
        let start = |time| raw(time, Kind::RoundStart, 0, 0, MAIN, 0);
        let end = |time| raw(time, Kind::RoundEnd, 0, 0, MAIN, 0);
        let own = |records: &[Raw]| {
            let mut flushes = flushes();
            flushes.follow(records);
            (flushes.take_own(), flushes.take_own())
        };
        assert_eq!(
            own(&[send(1), start(2), send(3), end(4), start(6), send(7), end(8)]),
            (false, false)
        );
        assert_eq!(own(&[start(2), end(4), send(5), start(6), end(8)]), (true, false));
        assert_eq!(
            own(&[start(2), end(4), flush(5, LocalMm, 1, MAIN, 0), start(6)]),
            (true, false)
        );
        // Another thread's flush between rounds is the scenario's. An answer is not a flush of its
        // own.
        assert_eq!(
            own(&[start(2), end(4), flush(5, LocalMm, 1, OTHER, 1), start(6)]),
            (false, false)
        );
        assert_eq!(own(&[start(2), end(4), flush(5, RemoteShootdown, 1, MAIN, 0)]), (false, false));
    }

    /// Why CPU 1 has left, after `OTHER` fell asleep there and these records came.
    fn left(records: &[Raw]) -> Option<&'static str> {
        let mut flushes = flushes();
        flushes.follow(&[raw(1, Kind::SwitchOut, 0, 0, OTHER, 1)]);
        flushes.follow(records);
        flushes.left(1)
    }

    #[test]
    fn a_sleepers_cpu_leaves_without_any_user_task() {
        // The idle task, or a kernel thread (30) that runs there, loads another address space.
        let gone = flush(5, TaskSwitch, ALL, 0, 1);
        assert!(left(&[gone]).unwrap().contains("left the address space"));
        let worker = raw(4, Kind::SwitchIn, 30, 0, 30, 1);
        assert!(left(&[worker, Raw { tid: 30, ..gone }]).is_some());
        // A kernel thread that borrows no address space leaves no record, and does no harm.
        assert_eq!(left(&[worker, raw(6, Kind::SwitchIn, 0, 0, 0, 1)]), None);
        assert_eq!(left(&[Raw { cpu: 0, ..gone }]), None);
        // The sleeper woke up and fell asleep again.
        let woken = [
            raw(6, Kind::SwitchOut, OTHER as u64, 0, 0, 1),
            flush(7, TaskSwitch, ALL, 0, 1),
            raw(8, Kind::SwitchIn, OTHER as u64, 0, OTHER, 1),
        ];
        assert!(left(&[gone, woken[0], woken[1]]).is_some());
        let [turns, catches_up, back] = woken;
        assert_eq!(left(&[turns, catches_up, back]), None);
        // A flush in between missed that CPU.
        assert!(left(&[gone, turns, catches_up, back]).is_some());
        let mut later = flushes();
        later.follow(&[raw(1, Kind::SwitchOut, 0, 0, OTHER, 1)]);
        later.follow(&[gone]);
        later.follow(&[turns, catches_up, back]);
        assert_eq!(later.left(1), None);
    }

    #[test]
    fn a_flush_that_frees_no_tables_catches_who_falls_asleep() {
        let records = |op| {
            let begins = raw(2, Kind::Op, op, 0, MAIN, 0);
            [begins, flush(3, RemoteSend, 1, MAIN, 0), flush(4, TaskSwitch, 0, 0, 1)]
        };
        let asleep = || {
            let mut flushes = flushes();
            flushes.follow(&[raw(1, Kind::SwitchOut, 0, 0, OTHER, 1)]);
            flushes
        };
        let next = [raw(5, Kind::Op, FREES + 1, 0, MAIN, 0), flush(6, LocalMm, 1, MAIN, 0)];
        let lost = |op, between: &[Raw]| {
            let mut flushes = asleep();
            assert_eq!(flushes.follow(&records(op)), Strangers::default(), "nobody was missed yet");
            flushes.follow(between);
            flushes.follow(&next).lost
        };
        assert_eq!(lost(FREES + 1, &[]), Some(CAUGHT));
        assert_eq!(lost(FREES, &[]), None);
        let back = raw(5, Kind::SwitchIn, OTHER as u64, 0, OTHER, 1);
        assert_eq!(lost(FREES + 1, &[back]), None, "it was back before anybody flushed");
        // The local half of the flush that caught the CPU is not another flush.
        let mut flushes = asleep();
        let [begins, send, answer] = records(FREES + 1);
        let local = flush(5, LocalMm, 1, MAIN, 0);
        assert_eq!(flushes.follow(&[begins, send, answer, local]).lost, None);
        assert_eq!(flushes.follow(&[flush(7, RemoteSend, 1, MAIN, 0)]).lost, Some(CAUGHT));
        // The CPU has been asleep for long: it was asked because the kernel asks lazy CPUs, too.
        let later = |record: Raw| Raw { time: record.time + 2 * FALLS_ASLEEP_NS, ..record };
        let mut flushes = asleep();
        flushes.follow(&records(FREES + 1).map(later));
        assert_eq!(flushes.follow(&next.map(later)).lost, None);
        // The CPU switches to its thread, and makes up for the flushes that it missed.
        let mut flushes = asleep();
        let turns = raw(4, Kind::SwitchOut, OTHER as u64, 0, 0, 1);
        flushes.follow(&[begins, send, turns, Raw { time: 5, ..answer }]);
        assert_eq!(flushes.follow(&[next[0], Raw { time: 7, ..next[1] }]).lost, None);
    }

    #[test]
    fn what_a_flush_of_ours_does_to_a_sleepers_cpu_is_the_scenarios_own() {
        let send = flush(2, RemoteSend, 4, MAIN, 0);
        let leaves = flush(3, TaskSwitch, ALL, 0, 1);
        assert_eq!(left(&[op(1), send, leaves, op(5)]), None);
        assert!(left(&[op(1), send, op(3), Raw { time: 4, ..leaves }]).is_some());
    }

    #[test]
    fn trimming_by_the_clock_is_told_from_a_flush_that_frees_tables() {
        let mut flushes = flushes();
        let frees = |at| raw(at, Kind::Op, FREES, 0, MAIN, 0);
        flushes.follow(&[frees(1)]);
        let mut range = |at: u64, answer: Option<Raw>| {
            let send = flush(at, RemoteSend, 4, MAIN, 0);
            let local = flush(at + 20, LocalMm, 4, MAIN, 0);
            let answer = answer.map(|answer| Raw { time: at + 10, ..answer });
            let records = [Some(send), answer, Some(local), Some(frees(at + 30))];
            flushes.follow(&records.into_iter().flatten().collect::<Vec<_>>());
            flushes.left(1).is_some()
        };
        let leaves = flush(0, TaskSwitch, ALL, 0, 1);
        let wrong = flush(0, RemoteWrongCpu, 0, 0, 1);
        assert!(!range(100, Some(leaves)));
        assert!(!range(SECOND / 2, Some(wrong)), "too early for the clock");
        // The first flush after a second trims by the clock, and a new second begins.
        assert!(!range(SECOND + SECOND / 10, None));
        assert!(!range(SECOND + SECOND / 2, Some(wrong)));
        assert!(range(2 * SECOND + SECOND / 5, Some(wrong)));
    }

    #[test]
    fn flushes_at_a_doubtful_moment_leave_little_doubt() {
        let mut trimming = Trimming::new(0, 0);
        let mut at = 0;
        // One flush every millisecond: it is not known which of those around a full second trimmed.
        while at < 3 * SECOND + SECOND / 2 {
            at += SECOND / 1000;
            trimming.flushed(at);
        }
        assert_eq!(trimming.may_be.len(), 1);
        let (from, to) = trimming.may_be[0];
        assert!(from > 3 * SECOND + SECOND * 9 / 10 && to - from < SECOND / 5, "{from} {to}");
        assert!(!trimming.may_be_at(at));
        trimming.trimmed(4 * SECOND);
        assert_eq!(trimming.may_be, [(5 * SECOND - JIFFY_NS, 5 * SECOND + JIFFY_NS)]);
    }

    /// The thread on the CPU comes back, and the mask is whole again. The flushes in between were
    /// not sent to that CPU.
    #[test]
    fn a_cpu_that_was_trimmed_was_missed_even_if_its_thread_wakes() {
        let mut flushes = flushes();
        flushes.follow(&[flush(100, RemoteSend, ALL, MAIN, 0), flush(110, TaskSwitch, ALL, 0, 1)]);
        let at = 2 * SECOND;
        let trimmed = flush(at + 1, RemoteWrongCpu, 0, 0, 1);
        let wakes = raw(at + 2, Kind::SwitchIn, OTHER as u64, 0, OTHER, 1);
        let told = flushes.follow(&[flush(at, RemoteSend, 4, MAIN, 0), trimmed, wakes]);
        assert_eq!((told.lost, flushes.left(1)), (Some(TRIMMED), None));
    }

    #[test]
    fn a_strangers_interrupt_takes_a_cpu_that_we_sent_away_out_of_the_mask() {
        let wrong = flush(9, RemoteWrongCpu, 0, 0, 1);
        assert_eq!(left(&[wrong]), None, "another address space's mask: this CPU holds ours");
        let leaves = [op(1), flush(2, RemoteSend, 4, MAIN, 0), flush(3, TaskSwitch, ALL, 0, 1)];
        assert!(left(&[leaves[0], leaves[1], leaves[2], op(5), wrong]).is_some());
    }
}

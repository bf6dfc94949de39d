//! What the records of flushes tell about the scenario's CPUs: whether a stranger flushed them, and
//! whether the CPU of a sleeper still holds the scenario's address space.
//!
//! Every answer to a shootdown and every change of address space leaves a `tlb_flush` record on the
//! CPU that it happens on (arch/x86/mm/tlb.c:flush_tlb_func, switch_mm_irqs_off; 5.10 to 7.3). A
//! thread of ours that sends a shootdown waits for the answers, so what it asked for lies between its
//! send and the next thing that it does. Everything else is a stranger's:
//!
//! - An answer on a CPU of ours that no send of ours asked for. Whoever flushes a mask of CPUs
//!   (reclaim, migration) may have raised our generation, so that our next flush becomes a full one, or
//!   brought a CPU up to ours, so that our own flush finds nothing left to do.
//! - A change of address space on a sleeper's CPU. Kernel threads do that without a user task: they
//!   borrow one (kernel/kthread.c:kthread_use_mm), patch code (arch/x86/kernel/alternative.c), or
//!   flush while the CPU is lazy; a deep idle state does it too (tlb.c:leave_mm). Up to
//!   6.12 the CPU leaves `mm_cpumask` at once, in 7.3 at the next trimming.
//! - A flush of ours that frees tables, or is one of a range (tlbflush.h:flush_tlb_range), makes a lazy CPU leave as well: that is
//!   the scenario's own doing. No other flush interrupts a lazy CPU. It does so to one that is not lazy yet but is when it answers
//!   (tlb.c:tlb_is_not_lazy, flush_tlb_func), which only a thread does that was woken and has just fallen asleep again
//!   ([`FALLS_ASLEEP_NS`]): it serves userfaultfd.
//!   In 7.3 the CPU stays in the mask until an interrupt finds it elsewhere
//!   (`RemoteWrongCpu`): that of the next flush that frees tables, which the scenario decides, or one that
//!   trims, about once a second, which the clock does (tlb.c:should_trim_cpumask).

use crate::log::{Kind, Raw};
use crate::sys::roomy;
use crate::tids::Tids;
use needless_model::event::FlushReason;
use needless_model::order::Rank;
use std::collections::BTreeSet;

/// Between two trimmings (`HZ` jiffies), and how coarse jiffies may be.
const TRIM_INTERVAL_NS: u64 = 1_000_000_000;
const JIFFY_NS: u64 = 20_000_000;

/// A thread is said to be switched out a little before its CPU is lazy (kernel/sched/core.c:prepare_task_switch, context_switch): if it
/// was so much earlier that a flush was sent, the CPU was lazy when it was asked. Less than what a sleeper is given to fall asleep
/// ([`crate::team`]).
const FALLS_ASLEEP_NS: u64 = 100_000;

/// How a CPU stands to the scenario's address space while its threads sleep.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Hold {
    /// It holds it.
    Held,
    /// A flush of the scenario's made it leave.
    LeftByUs,
    /// Something else made it leave the address space.
    Gone,
    /// It was taken out of the mask by the clock, or by a stranger.
    Trimmed,
}

struct Cpu {
    number: u16,
    hold: Hold,
    /// The last send that it answered.
    answered: u64,
    /// Whether it turned to a thread of ours last, or is about to.
    ours: bool,
    /// Whether the operation that began there last may free page tables.
    frees: bool,
    /// When a thread of ours left it last.
    slept: u64,
    /// Whether it left when it was caught falling asleep, and has not come back: the next flush misses it.
    caught: bool,
    /// Whether something else made it leave since the last stretch of records, even if it has come back.
    gone: bool,
}

/// A send of ours whose answers may still come.
#[derive(Copy, Clone)]
struct Send {
    tid: i32,
    cpu: u16,
    time: u64,
    /// Whether it may be one that trims.
    may_trim: bool,
    /// Whether it may be one for page tables that are freed.
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
    /// Between rounds: the thread that runs them, which does nothing of the scenario's there.
    resting: Option<i32>,
    /// Whether that thread flushed between rounds, since [`Flushes::take_own`].
    own: bool,
    /// Records in the order of time; kept for its room.
    order: Vec<(u64, Rank, u32)>,
}

/// What a stretch of records showed.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Strangers {
    /// A stranger's flush arrived on one of the CPUs.
    pub flushed: bool,
    /// A task that is not ours and sent a shootdown from one of the CPUs.
    pub sender: Option<i32>,
    /// A CPU left the address space or the mask when the scenario did not ask for it, even if it has come back: how.
    pub lost: Option<&'static str>,
}

/// A flush came upon a CPU that was not lazy when it was asked and was when it answered.
const CAUGHT: &str = "a flush caught a sleeper's CPU falling asleep";
const GONE: &str = "a sleeper's CPU left the address space";
const TRIMMED: &str = "a sleeper's CPU was trimmed from mm_cpumask";

impl Flushes {
    /// For the threads `tids` on `cpus`, whose operations `freeing` may free page tables. The address space was made between
    /// `made_after` and now.
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

    /// Follows more records, which may be in any order but come after those of the last call.
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

    /// Whether the runner flushed the scenario's address space between rounds since this was last asked. What a round left to be
    /// flushed is then done already (mm/rmap.c:flush_tlb_batched_pending), and the generation is another one.
    pub fn take_own(&mut self) -> bool {
        std::mem::take(&mut self.own)
    }

    /// Why the CPU of a sleeper does not hold the scenario's address space any more.
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
            // Whoever goes on has its answers.
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
                // A full flush says that it may be (arch/x86/include/asm/tlbflush.h:flush_tlb_mm).
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

    /// A CPU that had left was interrupted and leaves the mask, of our address space or of another; what of it the scenario did
    /// not decide.
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

    /// Whether the CPU may not have been lazy when it was asked, and left by that for a flush for which none leaves that is. It does
    /// not leave if it turns to a thread of ours: it catches up with what it has missed.
    fn catches(&mut self, cpu: u16) -> bool {
        let Some(send) = self.open.filter(|send| !send.may_free) else { return false };
        self.of(cpu).is_some_and(|cpu| !cpu.ours && cpu.slept + FALLS_ASLEEP_NS > send.time)
    }

    /// Whether a flush of ours misses a CPU that was caught falling asleep.
    fn misses(&self) -> Option<&'static str> {
        self.cpus.iter().any(|cpu| cpu.caught).then_some(CAUGHT)
    }

    /// Whether a send of ours asked this CPU for what it did; each send asks once. The sender itself
    /// is asked by 5.10 alone, and finds nothing left to flush (kernel/smp.c:on_each_cpu_cond_mask).
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

/// When the kernel may trim the mask next: the moment from which on the next flush of a range trims lies in one of these
/// intervals, in their order.
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

    /// When the kernel trims next, having done so between `after` and `before`.
    fn next(after: u64, before: u64) -> (u64, u64) {
        ((after + TRIM_INTERVAL_NS).saturating_sub(JIFFY_NS), before + TRIM_INTERVAL_NS + JIFFY_NS)
    }

    /// Whether a flush sent at `time` may trim.
    fn may_be_at(&self, time: u64) -> bool {
        self.may_be.iter().any(|(from, _)| time >= *from)
    }

    /// A range was flushed by a send at `time`: it trimmed, or if the moment may be still to come, it did not.
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

    /// Thread `MAIN` acts on CPU 0, `OTHER` spins or sleeps on CPU 1.
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
        // The rings of two CPUs are emptied one after the other, and the clock may be coarse.
        assert!(!stranger(&[own[1], own[3], own[0], own[4], own[2]]));
        assert!(!stranger(&own.map(|record| Raw { time: 7, ..record })[1..4]));
        // 5.10: the sender answers itself, and finds nothing left to do.
        assert!(!stranger(&[own[0], own[1], flush(3, RemoteShootdown, 0, MAIN, 0), own[2]]));
    }

    #[test]
    fn a_strangers_flush_is_noticed() {
        // `IPI:MM(ALL/send16)`: reclaim on another CPU had raised the generation and flushes after us.
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
        // Our own flush finds its generation reached: by a stranger's, between its two halves.
        assert!(stranger(&[op(1), behind[1], flush(3, RemoteShootdown, ALL, MAIN, 0), behind[2]]));
        // Nobody of ours asked, or another answered already.
        assert!(stranger(&[op(1), flush(2, RemoteShootdown, 0, OTHER, 1)]));
        assert!(stranger(&[op(1), behind[1], behind[2], flush(4, RemoteShootdown, 0, OTHER, 1)]));
        assert!(stranger(&[op(1), behind[1], op(3), flush(4, RemoteShootdown, ALL, OTHER, 1)]));
        let told = flushes().follow(&[flush(2, RemoteSend, ALL, 99, 1), behind[5]]);
        assert_eq!(told, Strangers { flushed: true, sender: Some(99), lost: None });
    }

    /// Before the first round the scenario prepares what it needs; in a round what flushes is its own.
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
        // What another thread does between rounds is the scenario's; an answer is nobody's doing.
        assert_eq!(
            own(&[start(2), end(4), flush(5, LocalMm, 1, OTHER, 1), start(6)]),
            (false, false)
        );
        assert_eq!(own(&[start(2), end(4), flush(5, RemoteShootdown, 1, MAIN, 0)]), (false, false));
    }

    /// CPU 1 after `OTHER` fell asleep there and these records came.
    fn left(records: &[Raw]) -> Option<&'static str> {
        let mut flushes = flushes();
        flushes.follow(&[raw(1, Kind::SwitchOut, 0, 0, OTHER, 1)]);
        flushes.follow(records);
        flushes.left(1)
    }

    #[test]
    fn a_sleepers_cpu_leaves_without_any_user_task() {
        // The idle task, or a kernel thread (30) that runs there, loads something else.
        let gone = flush(5, TaskSwitch, ALL, 0, 1);
        assert!(left(&[gone]).unwrap().contains("left the address space"));
        let worker = raw(4, Kind::SwitchIn, 30, 0, 30, 1);
        assert!(left(&[worker, Raw { tid: 30, ..gone }]).is_some());
        // A kernel thread that borrows nothing leaves no record, and does no harm.
        assert_eq!(left(&[worker, raw(6, Kind::SwitchIn, 0, 0, 0, 1)]), None);
        assert_eq!(left(&[Raw { cpu: 0, ..gone }]), None);
        // The sleeper was woken and fell asleep anew.
        let woken = [
            raw(6, Kind::SwitchOut, OTHER as u64, 0, 0, 1),
            flush(7, TaskSwitch, ALL, 0, 1),
            raw(8, Kind::SwitchIn, OTHER as u64, 0, OTHER, 1),
        ];
        assert!(left(&[gone, woken[0], woken[1]]).is_some());
        let [turns, catches_up, back] = woken;
        assert_eq!(left(&[turns, catches_up, back]), None);
        // What was done in between was done without it.
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
        // The local half of the flush that caught it is no other one.
        let mut flushes = asleep();
        let [begins, send, answer] = records(FREES + 1);
        let local = flush(5, LocalMm, 1, MAIN, 0);
        assert_eq!(flushes.follow(&[begins, send, answer, local]).lost, None);
        assert_eq!(flushes.follow(&[flush(7, RemoteSend, 1, MAIN, 0)]).lost, Some(CAUGHT));
        // It has been asleep for long: it was asked because the kernel asks lazy CPUs, too.
        let later = |record: Raw| Raw { time: record.time + 2 * FALLS_ASLEEP_NS, ..record };
        let mut flushes = asleep();
        flushes.follow(&records(FREES + 1).map(later));
        assert_eq!(flushes.follow(&next.map(later)).lost, None);
        // It turns to its thread, and flushes what that has missed.
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
        // The clock's first turn goes to the first flush after a second; it starts again there.
        assert!(!range(SECOND + SECOND / 10, None));
        assert!(!range(SECOND + SECOND / 2, Some(wrong)));
        assert!(range(2 * SECOND + SECOND / 5, Some(wrong)));
    }

    #[test]
    fn flushes_at_a_doubtful_moment_leave_little_doubt() {
        let mut trimming = Trimming::new(0, 0);
        let mut at = 0;
        // One every millisecond: which of those around a full second trimmed is not known.
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

    /// The thread there comes back, and the mask is whole again; what was flushed in between was not sent there.
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

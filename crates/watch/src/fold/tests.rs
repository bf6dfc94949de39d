//! Scripts of records, as kernels issue them, and what the fold makes of them.

mod memory;
mod own_part;
mod told;

use super::*;
use crate::record::{Mapping, Switch, Vector};
use crate::stacks::For;
use needless_model::event::FlushReason::{
    self, LocalBatch, LocalMm, RemoteSend, RemoteShootdown, TaskSwitch,
};

const PID: i32 = 10;
const OTHER: i32 = 11;

struct Script {
    fold: Fold,
    time: u64,
}

impl Script {
    fn new(local_first: bool) -> Script {
        Script::of(local_first, false)
    }

    /// `forked`: the process may have forked before.
    fn of(local_first: bool, forked: bool) -> Script {
        let mut fold = Fold::new(Surroundings::default(), local_first, false);
        let mut maps = Maps::default();
        maps.map(&Mapping {
            start: 0x1000,
            end: 0x10_0000,
            offset: 0,
            shared: false,
            hugetlb: false,
            file: None,
            executable: false,
            named: None,
        });
        for tid in [PID, OTHER] {
            let (pid, name, userfaultfd) = (PID, "program", false);
            fold.introduce(&Present {
                pid,
                tid,
                name,
                maps: &maps,
                userfaultfd,
                forked,
                kernels: false,
            });
        }
        Script { fold, time: 0 }
    }

    fn on(&mut self, cpu: u16, tid: i32, what: What) -> &mut Script {
        self.time += 10;
        self.fold.record(Record { time: self.time, cpu, pid: PID, tid, what });
        self
    }

    /// What is left of it.
    fn folded(&mut self) -> Folded {
        std::mem::replace(&mut self.fold, Script::new(false).fold).finish()
    }

    fn then(&mut self, what: What) -> &mut Script {
        self.on(0, PID, what)
    }

    fn call(&mut self, number: libc::c_long, args: [u64; 4]) -> &mut Script {
        self.then(What::Enter { number: number as i32, args, from: None })
    }

    fn done(&mut self, number: libc::c_long) -> &mut Script {
        self.then(What::Exit { number: number as i32, result: 0 })
    }

    fn flush(&mut self, reason: FlushReason, pages: i64) -> &mut Script {
        self.then(What::Flush { reason, pages })
    }

    fn fault(
        &mut self,
        address: u64,
        code: u8,
        allocated: Option<bool>,
        major: bool,
    ) -> &mut Script {
        self.then(What::Fault { address, code: FaultCode(code), user: true, ip: 0 });
        if let Some(zeroed) = allocated {
            self.then(What::Alloc { pfn: 7, order: 0, zeroed });
        }
        self.then(What::FaultDone { address, major })
    }

    fn flushes(&self, cause: &Cause) -> (u64, u64) {
        self.fold.totals.flushes.get(cause).map_or((0, 0), |count| (count.sent, count.local))
    }

    fn found(&self, needless: Needless) -> (u64, u64) {
        let of = self.fold.totals.needless.iter().filter(|((what, _), _)| *what == needless);
        of.fold((0, 0), |sum, (_, count)| (sum.0 + count.times, sum.1 + count.certain))
    }
}

fn pageout() -> Cause {
    Cause::Call(libc::SYS_madvise as i32, 21)
}

/// One round of study 1 on 6.18: the pending flush, the batch, and a swap-in that maps writable.
fn round_6_18(script: &mut Script, pending: bool) {
    script.call(libc::SYS_madvise, [0x1000, 0x1000, 21, 0]);
    if pending {
        script.flush(RemoteSend, -1).flush(LocalMm, -1);
    }
    script.flush(RemoteSend, -1).flush(LocalBatch, -1);
    script.done(libc::SYS_madvise).fault(0x1000, 4, Some(false), true);
}

#[test]
fn the_second_full_flush_is_told_to_be_redundant() {
    let mut script = Script::new(false);
    round_6_18(&mut script, false);
    for _ in 0..5 {
        round_6_18(&mut script, true);
    }
    assert_eq!(script.flushes(&pageout()), (11, 0));
    assert_eq!(script.found(Needless::PendingFlush), (5, 5));
    assert_eq!(script.found(Needless::GatherAfterPageout), (0, 0));
    assert_eq!(script.fold.totals.faults[&Reason::SwapRead].faults, 6);
}

/// A round on 5.10: the local part comes first, accessed bits are flushed, and the write copies.
#[test]
fn the_older_kernels_flushes_and_its_copy() {
    let mut script = Script::new(true);
    for _ in 0..4 {
        script.call(libc::SYS_madvise, [0x1000, 0x1000, 21, 0]);
        script
            .flush(LocalMm, -1)
            .flush(RemoteSend, -1)
            .flush(LocalBatch, -1)
            .flush(RemoteSend, -1)
            .flush(LocalMm, 1)
            .flush(RemoteSend, 1);
        script.done(libc::SYS_madvise).fault(0x1000, 4, Some(false), true);
        script.then(What::Fault { address: 0x1000, code: FaultCode(7), user: true, ip: 0 });
        script.then(What::Alloc { pfn: 8, order: 0, zeroed: false });
        script.flush(LocalMm, 1).flush(RemoteSend, 1);
        script.then(What::FaultDone { address: 0x1000, major: false });
    }
    assert_eq!(script.flushes(&pageout()), (12, 0));
    assert_eq!(script.flushes(&Cause::Fault(FaultClass::CowCopy)), (4, 0));
    assert_eq!(script.found(Needless::PendingFlush), (3, 3));
    assert_eq!(script.found(Needless::GatherAfterPageout), (4, 0));
    assert_eq!(script.found(Needless::CopyAfterSwapIn), (4, 4));
}

/// Somebody may have unmapped in a batch whose flush no event told.
#[test]
fn where_flushes_are_hidden_none_is_certain_to_be_redundant() {
    let mut script = Script::new(false);
    script.fold.context.flushes_hidden = true;
    round_6_18(&mut script, false);
    round_6_18(&mut script, true);
    assert_eq!(script.found(Needless::PendingFlush), (1, 0));
}

#[test]
fn a_needed_full_flush_is_not_redundant() {
    let mut script = Script::new(false);
    script.call(libc::SYS_munmap, [0x1000, 0x40000, 0, 0]).flush(RemoteSend, -1).flush(LocalMm, -1);
    script.done(libc::SYS_munmap);
    assert_eq!(script.found(Needless::PendingFlush), (0, 0));
    assert_eq!(script.flushes(&Cause::Call(libc::SYS_munmap as i32, 0)), (1, 0));
}

#[test]
fn after_a_fork_a_copy_of_a_swapped_page_is_needed() {
    let mut script = Script::new(false);
    script.fault(0x1000, 4, Some(false), true);
    // A thread shares nothing that was not shared before.
    script.then(What::Fork { pid: PID, tid: 12, parent: PID });
    script.fault(0x1000, 7, Some(false), false);
    assert_eq!(script.found(Needless::CopyAfterSwapIn), (1, 1));
    script.fault(0x1000, 4, Some(false), true);
    script.then(What::Fork { pid: 13, tid: 13, parent: PID });
    script.fault(0x1000, 7, Some(false), false);
    assert_eq!(script.found(Needless::CopyAfterSwapIn), (1, 1));
}

#[test]
fn what_a_process_did_before_it_was_watched_leaves_copies_likely() {
    let mut script = Script::of(false, true);
    script.fault(0x1000, 4, Some(false), true).fault(0x1000, 7, Some(false), false);
    assert_eq!(script.found(Needless::CopyAfterSwapIn), (1, 0));
}

#[test]
fn a_copy_whose_old_page_is_freed_at_once_is_needless() {
    let mut script = Script::new(false);
    // Another page is freed in the first copy.
    script.fault(0x2000, 6, Some(true), false);
    script.then(What::Fault { address: 0x2000, code: FaultCode(7), user: true, ip: 0 });
    script.then(What::Alloc { pfn: 9, order: 0, zeroed: false });
    script.then(What::Free { pfn: 77 }).then(What::FaultDone { address: 0x2000, major: false });
    assert_eq!(script.found(Needless::CopyOfFreed), (0, 0));
    script.fault(0x1000, 6, Some(true), false);
    script.then(What::Fault { address: 0x1000, code: FaultCode(7), user: true, ip: 0 });
    script.then(What::Alloc { pfn: 8, order: 0, zeroed: false }).flush(LocalMm, 1);
    script.then(What::Free { pfn: 7 }).then(What::FaultDone { address: 0x1000, major: false });
    assert_eq!(script.found(Needless::CopyOfFreed), (1, 1));
    assert_eq!(script.flushes(&Cause::Fault(FaultClass::CowCopy)), (0, 1));
}

#[test]
fn who_interrupted_whom() {
    let mut script = Script::new(false);
    script.call(libc::SYS_munmap, [0x1000, 0x1000, 0, 0]).flush(RemoteSend, 1).flush(LocalMm, 1);
    script.on(1, OTHER, What::Interrupt { vector: Vector::Calls, begins: true });
    script.on(1, OTHER, What::Flush { reason: RemoteShootdown, pages: 1 });
    script.on(1, OTHER, What::Interrupt { vector: Vector::Calls, begins: false });
    script.done(libc::SYS_munmap);
    // Of a send that is over nobody is the sender.
    script.on(1, OTHER, What::Flush { reason: RemoteShootdown, pages: 0 });
    // An interrupt in which nothing is flushed was for something that this kernel does not name.
    script.on(1, OTHER, What::Interrupt { vector: Vector::Calls, begins: true });
    let Folded { totals, victims, .. } = script.folded();
    let rows = |asked, from: Task| -> Vec<PairCount> {
        let of = |pair: &&Pair| {
            (pair.asked, &pair.from, &pair.to) == (asked, &from, &Task::Thread(OTHER))
        };
        victims.pairs.iter().filter(|(pair, _)| of(pair)).map(|(_, count)| *count).collect()
    };
    let one = PairCount { interrupts: 1, ..PairCount::default() };
    assert_eq!(rows(Asked::TlbFlush, Task::Thread(PID)), [one]);
    let count = totals.flushes[&Cause::Call(libc::SYS_munmap as i32, 0)];
    assert_eq!(count.interrupts, 1);
    assert_eq!(rows(Asked::TlbFlush, Task::Unknown), [PairCount { empty: 1, ..one }]);
    assert_eq!(rows(Asked::Unnamed, Task::Unknown), [one]);
    assert_eq!(victims.times[&Asked::TlbFlush], [20]);
}

const FLUSH: u64 = 1;
const SYNC: u64 = 2;
const STRANGE: u64 = 3;

/// A script on a kernel that names functions.
fn named() -> Script {
    let mut script = Script::new(false);
    script.fold.functions_are_named(true);
    script.fold.functions = Functions::new(|address| {
        let names = ["flush_tlb_func", "tlb_remove_table_smp_sync", "a_driver_does_this"];
        names.get(address as usize - 1).map(|name| (*name).to_owned())
    });
    script
}

fn queue(function: u64, call: u64) -> What {
    What::Queue { function, site: 7, call, by_interrupt: false }
}

fn called(function: u64, call: u64, in_interrupt: bool) -> What {
    What::Call { begins: true, function, call, in_interrupt }
}

fn over(function: u64, call: u64) -> What {
    What::Call { begins: false, function, call, in_interrupt: true }
}

/// Where the rule would take the newest send of the process, the call's pointer tells.
#[test]
fn the_calls_own_pointer_joins_sender_and_victim() {
    const THIRD: i32 = 12;
    let mut script = named();
    script.then(What::Fork { pid: PID, tid: THIRD, parent: PID });
    script.call(libc::SYS_munmap, [0x1000, 0x1000, 0, 0]);
    script.flush(RemoteSend, 1).then(queue(FLUSH, 0xa));
    script.on(2, THIRD, What::Flush { reason: RemoteSend, pages: 1 });
    script.on(2, THIRD, queue(FLUSH, 0xb));
    script.on(1, OTHER, called(FLUSH, 0xa, true));
    script.on(1, OTHER, What::Flush { reason: RemoteShootdown, pages: 1 });
    script.on(1, OTHER, over(FLUSH, 0xa));
    script.on(1, OTHER, called(FLUSH, 0xb, true));
    script.on(1, OTHER, What::Flush { reason: RemoteShootdown, pages: 0 });
    // Its own part of the flush interrupts nobody, and neither does a CPU that asks itself.
    script.then(called(FLUSH, 0, false));
    let Folded { totals, victims, .. } = script.folded();
    let mut rows: Vec<_> = victims.pairs.iter().map(|(pair, count)| (&pair.from, *count)).collect();
    rows.sort_by_key(|(from, _)| (*from).clone());
    let one = PairCount { interrupts: 1, exact: 1, ..PairCount::default() };
    let expected =
        [(&Task::Thread(PID), one), (&Task::Thread(THIRD), PairCount { empty: 1, ..one })];
    assert_eq!(rows, expected);
    assert_eq!(totals.flushes[&Cause::Call(libc::SYS_munmap as i32, 0)].interrupts, 1);
    assert_eq!(victims.times[&Asked::TlbFlush], [20]);
    assert_eq!(totals.needless[&(Needless::EmptyInterrupt, Cause::Elsewhere)].times, 1);
}

/// Interrupts with nothing to flush are needless, but not where one page's protection is changed to
/// and fro: there they are what it is for.
#[test]
fn a_protection_that_is_changed_to_and_fro_is_told_apart() {
    let run = |changes: u64, pages: u64| {
        let mut script = named();
        for change in 0..changes {
            let args = [0x3000, pages << 12, if change % 2 == 0 { 0 } else { 3 }, 0];
            script.call(libc::SYS_mprotect, args).flush(RemoteSend, 1);
            script.then(queue(FLUSH, 0xc5d)).on(1, OTHER, called(FLUSH, 0xc5d, true));
            script.on(1, OTHER, What::Flush { reason: RemoteShootdown, pages: 0 });
            script.on(1, OTHER, over(FLUSH, 0xc5d)).flush(LocalMm, 1).done(libc::SYS_mprotect);
        }
        let folded = script.folded();
        let empty = folded.totals.needless.iter();
        let empty = empty.filter(|((what, _), _)| *what == Needless::EmptyInterrupt);
        (empty.map(|(_, count)| count.times).sum::<u64>(), folded.toggled)
    };
    let (needless, toggled) = run(20, 1);
    // Half of the calls only allow more, which would be needless as well.
    let count = ToggleCount { times: 20, sent: 20, local: 0, interrupts: 20, needless: 30 };
    assert_eq!(needless, 0);
    assert_eq!(toggled, [Toggled { pid: PID, pages: 1, likely_barrier: true, count }]);
    assert_eq!(run(4, 1), (4, vec![]), "not to and fro");
    assert_eq!(run(20, 2), (20, vec![]), "not one page");
}

#[test]
fn synchronisation_is_needless_where_nobody_can_walk_the_tables() {
    let mut script = named();
    script.call(libc::SYS_madvise, [0, 0, 25, 0]);
    let cause = Cause::Call(libc::SYS_madvise as i32, 25);
    let mut told = |pid, tid, in_interrupt| {
        script.then(queue(SYNC, 0xa));
        let (time, what) = (script.time, called(SYNC, 0xa, in_interrupt));
        script.fold.record(Record { time, cpu: 1, pid, tid, what });
        let found = script.fold.totals.needless.get(&(Needless::TableSync, cause.clone()));
        found.map_or((0, 0), |found| (found.times, found.certain))
    };
    assert_eq!(told(PID, OTHER, true), (0, 0), "it may walk them");
    assert_eq!(told(77, 77, true), (1, 0), "another process");
    assert_eq!(told(0, 0, false), (2, 1), "no task");
    let folded = script.folded();
    let count = |to| {
        let of = |pair: &&Pair| pair.asked == Asked::TableSync && pair.to == to;
        folded
            .victims
            .pairs
            .iter()
            .find(|(pair, _)| of(pair))
            .map(|(pair, count)| (pair.site, *count))
    };
    let one = PairCount { interrupts: 1, exact: 1, ..PairCount::default() };
    assert_eq!(count(Task::Thread(77)), Some((7, one)));
    assert_eq!(count(Task::Idle), Some((7, PairCount { interrupts: 0, uninterrupted: 1, ..one })));
}

#[test]
fn a_function_that_nobody_knows_keeps_its_name_and_an_interrupts_sender_is_no_task() {
    let mut script = named();
    script.then(What::Queue { function: STRANGE, site: 0, call: 0xa, by_interrupt: true });
    script.on(1, OTHER, called(STRANGE, 0xa, true));
    script.on(1, OTHER, called(9, 0xb, true));
    let Folded { victims, mut functions, .. } = script.folded();
    let of = |function| victims.pairs.keys().find(|pair| pair.function == function).unwrap();
    assert_eq!((of(STRANGE).asked, &of(STRANGE).from), (Asked::Other, &Task::Interrupt));
    assert_eq!(&*functions.at(STRANGE).name, "a_driver_does_this");
    assert_eq!((of(9).asked, &of(9).from), (Asked::Unnamed, &Task::Unknown));
}

/// Names are hidden from users without a privilege; what a flush is shows by itself.
#[test]
fn a_flush_is_known_without_its_functions_name() {
    let mut script = named();
    script.then(queue(0x99, 0xa)).on(1, OTHER, called(0x99, 0xa, true));
    script.on(1, OTHER, What::Flush { reason: RemoteShootdown, pages: 1 });
    script.then(queue(0x99, 0xb)).on(1, OTHER, called(0x99, 0xb, true));
    let victims = script.folded().victims;
    let rows: Vec<_> =
        victims.pairs.iter().map(|(pair, count)| (pair.asked, count.interrupts)).collect();
    assert_eq!(rows, [(Asked::TlbFlush, 2)]);
}

#[test]
fn rescheduling_interrupts_and_drains_have_their_senders() {
    let mut script = named();
    let send = What::Send { cpu: 1, site: 3, function: 0, by_interrupt: false };
    script.then(send).on(1, OTHER, What::Interrupt { vector: Vector::Reschedule, begins: true });
    script.on(1, OTHER, What::Interrupt { vector: Vector::Reschedule, begins: true });
    script.call(libc::SYS_mbind, [0; 4]);
    script.then(What::DrainQueued { work: 5, by_interrupt: false });
    let (time, pid, tid) = (script.time, 40, 40);
    script.fold.record(Record { time, cpu: 1, pid, tid, what: What::Drain { work: 5 } });
    let victims = script.folded().victims;
    let row = |asked, from: Task| {
        let of = |pair: &&Pair| pair.asked == asked && pair.from == from;
        victims
            .pairs
            .iter()
            .find(|(pair, _)| of(pair))
            .map(|(pair, count)| (pair.cause.clone(), *count))
    };
    let one = PairCount { interrupts: 1, ..PairCount::default() };
    assert_eq!(row(Asked::Reschedule, Task::Thread(PID)), Some((Cause::Elsewhere, one)));
    assert_eq!(row(Asked::Reschedule, Task::Unknown), Some((Cause::Unknown, one)));
    let drain = PairCount { uninterrupted: 1, exact: 1, ..PairCount::default() };
    let mbind = Cause::Call(libc::SYS_mbind as i32, 0);
    assert_eq!(row(Asked::LruDrain, Task::Thread(PID)), Some((mbind, drain)));
}

/// A guarded CPU: an interrupt of a neighbour's with two functions, the CPU's timer, and what
/// another CPU got.
#[test]
fn a_guarded_cpus_disturbances_have_cause_sender_and_length() {
    let mut script = named();
    let mut guard = Guard::of(&[1]);
    guard.begin(0);
    script.fold.guard = Some(guard);
    let calls = |begins| What::Interrupt { vector: Vector::Calls, begins };
    script.call(libc::SYS_munmap, [0x1000, 0x1000, 0, 0]);
    script.then(queue(FLUSH, 0xa)).then(queue(SYNC, 0xb)).then(queue(FLUSH, 0xc));
    script.on(1, OTHER, calls(true)).on(1, OTHER, called(FLUSH, 0xa, true));
    script.on(1, OTHER, called(SYNC, 0xb, true)).on(1, OTHER, calls(false));
    script.on(2, OTHER, calls(true)).on(2, OTHER, called(FLUSH, 0xc, true));
    let timer = |begins| What::Interrupt { vector: Vector::Timer, begins };
    script.on(1, OTHER, timer(true)).on(1, OTHER, timer(false));
    let kept = script.folded().guard.unwrap().kept;
    let told: Vec<_> = kept.iter().map(|kept| (kept.pair.asked, kept.how, kept.lost_ns)).collect();
    let lost = [
        (Asked::TlbFlush, How::Interrupt, Some(30)),
        (Asked::TableSync, How::SameInterrupt, None),
        (Asked::Timer, How::Interrupt, Some(10)),
    ];
    assert_eq!(told, lost);
    assert_eq!(kept[0].pair.from, Task::Thread(PID));
    assert_eq!(kept[0].pair.cause, Cause::Call(libc::SYS_munmap as i32, 0));
    assert_eq!((kept[2].pair.from.clone(), kept[2].gap_ns), (Task::Timer, 30));
}

#[test]
fn a_fault_waits_when_its_task_leaves_the_cpu_of_its_own_accord() {
    let mut script = Script::new(false);
    let switched = |to| What::Switched { to };
    script.then(What::Fault { address: 0x1000, code: FaultCode(6), user: true, ip: 0 });
    // 10 ns each: it waits for 10, is preempted, and waits for another task's time as well.
    script.then(switched(Switch::Waits)).then(switched(Switch::Runs));
    script.then(switched(Switch::Preempted)).on(0, OTHER, switched(Switch::Runs));
    script.then(switched(Switch::Runs));
    script.then(switched(Switch::Waits)).on(0, OTHER, switched(Switch::Waits));
    script.then(switched(Switch::Runs)).then(What::FaultDone { address: 0x1000, major: false });
    // Outside of faults nobody counts.
    script.then(switched(Switch::Waits)).then(switched(Switch::Runs));
    let folded = script.folded();
    let [count] = folded.totals.faults.values().copied().collect::<Vec<_>>()[..] else {
        panic!("{:?}", folded.totals.faults)
    };
    assert_eq!((count.faults, count.waits.waits, count.waits.waited_ns), (1, 2, 30));
}

#[test]
fn what_a_fault_waits_for_is_told_by_where_it_leaves_its_cpu() {
    let names = |address| {
        Some(if address == 1 { "__folio_lock_or_retry" } else { "handle_userfault" }.to_owned())
    };
    let mut script = Script::new(false);
    script.fold.stacks = Stacks::new(names);
    let waits = |script: &mut Script, stack: Option<u64>| {
        if let Some(address) = stack {
            script.then(What::Leaves([address].into()));
        }
        script.then(What::Switched { to: Switch::Waits }).then(What::Switched { to: Switch::Runs });
    };
    script.then(What::Fault { address: 0x1000, code: FaultCode(6), user: true, ip: 0 });
    waits(&mut script, Some(2));
    waits(&mut script, Some(1));
    // Who made room before was not waiting there.
    script.then(What::Leaves([2].into())).then(What::Switched { to: Switch::Preempted });
    waits(&mut script, None);
    script.then(What::Alloc { pfn: 5, order: 0, zeroed: false });
    waits(&mut script, Some(1));
    script.then(What::FaultDone { address: 0x1000, major: false });
    let folded = script.folded();
    let mut told: Vec<_> = folded
        .totals
        .waits
        .iter()
        .map(|((_, wait), count)| (wait.what, count.waits, count.waited_ns))
        .collect();
    told.sort();
    let each = [For::Userfaultfd, For::Read, For::PageLock, For::Unseen];
    assert_eq!(told, each.map(|what| (what, 1, 10)));
}

#[test]
fn a_fault_without_an_end_failed_and_lost_records_forget_everything() {
    let mut script = Script::new(false);
    script.then(What::Fault { address: 0, code: FaultCode(4), user: true, ip: 0 });
    script.fault(0x1000, 6, Some(true), false);
    assert_eq!(script.fold.totals.faults[&Reason::NoEnd].faults, 1);
    round_6_18(&mut script, false);
    script.then(What::Lost { records: 3 });
    round_6_18(&mut script, true);
    assert_eq!(script.found(Needless::PendingFlush), (0, 0));
    assert_eq!(script.fold.totals.lost_records, 3);
}

#[test]
fn answers_of_userfaultfd_belong_to_the_faults_that_waited() {
    let mut script = Script::new(false);
    script.then(What::Fault { address: 0x1000, code: FaultCode(6), user: true, ip: 0 });
    script.on(1, OTHER, What::Ioctl { request: 0xc028_aa03 });
    script.then(What::FaultDone { address: 0x1000, major: false });
    assert_eq!(script.fold.totals.faults[&Reason::Resolved].faults, 1);
}

/// A send, and a local flush of another address space after it, are two.
#[test]
fn what_execve_flushes_of_the_old_and_of_the_new_address_space() {
    let mut script = Script::new(false);
    script.call(libc::SYS_execve, [0; 4]).flush(RemoteSend, -1);
    script.then(What::Named { name: "other".into(), exec: true }).flush(LocalMm, 1);
    assert_eq!(script.flushes(&Cause::Call(libc::SYS_execve as i32, 0)), (1, 1));
}

/// The kernel says that a thread ended before it frees what the process had.
#[test]
fn a_process_flushes_when_it_has_ended_until_its_number_is_another_one() {
    let mut script = Script::new(false);
    script.then(What::Fork { pid: 13, tid: 13, parent: PID });
    script.on(0, 13, What::Enter { number: libc::SYS_exit_group as i32, args: [0; 4], from: None });
    script.on(0, 13, What::Ended).on(0, 13, What::Flush { reason: RemoteSend, pages: -1 });
    assert_eq!(script.flushes(&Cause::Exit), (1, 0));
    script.then(What::Fork { pid: 13, tid: 13, parent: PID });
    for tid in 100..100 + MOST_ENDED as i32 {
        script.then(What::Fork { pid: tid, tid, parent: PID }).on(0, tid, What::Ended);
    }
    script.on(0, 13, What::Flush { reason: RemoteSend, pages: -1 });
    assert_eq!(script.flushes(&Cause::Elsewhere), (1, 0));
    script.on(0, 100, What::Flush { reason: RemoteSend, pages: -1 });
    assert_eq!(script.flushes(&Cause::Exit), (2, 0));
    script.then(What::Fork { pid: 99, tid: 99, parent: PID }).on(0, 99, What::Ended);
    script.on(0, 100, What::Flush { reason: RemoteSend, pages: -1 });
    assert_eq!(script.flushes(&Cause::Exit), (2, 0), "the oldest is forgotten");
}

#[test]
fn reclaim_in_a_fault_is_not_the_faults() {
    let mut script = Script::new(false);
    script.then(What::Fault { address: 0x1000, code: FaultCode(6), user: true, ip: 0 });
    script.then(What::Reclaim { of: Reclaim::Machine, begins: true }).flush(LocalMm, 1);
    script.then(What::Alloc { pfn: 5, order: 0, zeroed: false });
    script.then(What::Reclaim { of: Reclaim::Machine, begins: false });
    script.then(What::Alloc { pfn: 6, order: 0, zeroed: true });
    script.then(What::FaultDone { address: 0x1000, major: false });
    assert_eq!(script.flushes(&Cause::Reclaim(Reclaim::Machine)), (0, 1));
    assert_eq!(script.fold.totals.faults[&Reason::Zeroed].faults, 1);
}

#[test]
fn only_switches_away_from_watched_threads_are_counted() {
    let mut script = Script::new(false);
    script.flush(TaskSwitch, -1).flush(TaskSwitch, 0).on(
        0,
        77,
        What::Flush { reason: TaskSwitch, pages: -1 },
    );
    assert_eq!(script.fold.totals.switches, (1, 1));
}

/// What a process flushes as it ends is no redundant flush of the call in which it was killed.
#[test]
fn the_end_of_a_killed_process_is_not_its_last_calls() {
    let mut script = Script::new(false);
    script
        .call(libc::SYS_madvise, [0x1000, 0x1000, 21, 0])
        .flush(RemoteSend, -1)
        .flush(LocalBatch, -1);
    script.then(What::Ended).flush(LocalMm, -1);
    assert_eq!(script.flushes(&Cause::Exit), (0, 1));
    assert_eq!(script.found(Needless::PendingFlush), (0, 0));
    assert_eq!(script.found(Needless::GatherAfterPageout), (0, 0));
}

/// Some events are recorded of every task, and count for those that are watched only.
#[test]
fn what_strangers_do_is_not_taken_for_the_programs() {
    const STRANGER: i32 = 99;
    let mut script = Script::new(false);
    let own = script.fold.totals.own_records;
    let copy = 0xc028_aa03;
    for what in
        [What::Reclaim { of: Reclaim::Machine, begins: true }, What::Ioctl { request: copy }]
    {
        let (time, cpu, pid, tid) = (1, 1, STRANGER, STRANGER);
        script.fold.record(Record { time, cpu, pid, tid, what });
    }
    assert_eq!(script.fold.totals.own_records, own);
    assert!(!script.fold.watches(STRANGER), "it is not made known by them");
    // An interrupt of a stranger is not among those that are timed.
    script.call(libc::SYS_munmap, [0x1000, 0x1000, 0, 0]).flush(RemoteSend, 1).flush(LocalMm, 1);
    for what in [
        What::Interrupt { vector: Vector::Calls, begins: true },
        What::Flush { reason: RemoteShootdown, pages: 1 },
        What::Interrupt { vector: Vector::Calls, begins: false },
    ] {
        let record = Record { time: 20, cpu: 1, pid: STRANGER, tid: STRANGER, what };
        script.fold.record(record);
    }
    assert_eq!(script.fold.interrupts_timed(), 0);
}

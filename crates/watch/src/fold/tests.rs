//! Scripts of records, as kernels issue them, and what the fold makes of them.

use super::*;
use crate::record::Mapping;
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
        });
        for tid in [PID, OTHER] {
            let (pid, name, userfaultfd) = (PID, "program", false);
            fold.introduce(&Present { pid, tid, name, maps: &maps, userfaultfd, forked });
        }
        Script { fold, time: 0 }
    }

    fn on(&mut self, cpu: u16, tid: i32, what: What) -> &mut Script {
        self.time += 10;
        self.fold.record(Record { time: self.time, cpu, pid: PID, tid, what });
        self
    }

    fn then(&mut self, what: What) -> &mut Script {
        self.on(0, PID, what)
    }

    fn call(&mut self, number: libc::c_long, args: [u64; 4]) -> &mut Script {
        self.then(What::Enter { number: number as i32, args })
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
        self.then(What::Fault { address, code: FaultCode(code), user: true });
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
        script.then(What::Fault { address: 0x1000, code: FaultCode(7), user: true });
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
    script.then(What::Fault { address: 0x2000, code: FaultCode(7), user: true });
    script.then(What::Alloc { pfn: 9, order: 0, zeroed: false });
    script.then(What::Free { pfn: 77 }).then(What::FaultDone { address: 0x2000, major: false });
    assert_eq!(script.found(Needless::CopyOfFreed), (0, 0));
    script.fault(0x1000, 6, Some(true), false);
    script.then(What::Fault { address: 0x1000, code: FaultCode(7), user: true });
    script.then(What::Alloc { pfn: 8, order: 0, zeroed: false }).flush(LocalMm, 1);
    script.then(What::Free { pfn: 7 }).then(What::FaultDone { address: 0x1000, major: false });
    assert_eq!(script.found(Needless::CopyOfFreed), (1, 1));
    assert_eq!(script.flushes(&Cause::Fault(FaultClass::CowCopy)), (0, 1));
}

#[test]
fn who_interrupted_whom() {
    let mut script = Script::new(false);
    script.call(libc::SYS_munmap, [0x1000, 0x1000, 0, 0]).flush(RemoteSend, 1).flush(LocalMm, 1);
    script.on(1, OTHER, What::Call { begins: true });
    script.on(1, OTHER, What::Flush { reason: RemoteShootdown, pages: 1 });
    script.on(1, OTHER, What::Call { begins: false });
    script.done(libc::SYS_munmap);
    // Of a send that is over nobody is the sender.
    script.on(1, OTHER, What::Flush { reason: RemoteShootdown, pages: 0 });
    let (totals, victims, _) =
        std::mem::replace(&mut script.fold, Script::new(false).fold).finish();
    let pair = |from| victims.pairs[&(from, Task::Thread(OTHER))];
    assert_eq!(pair(Task::Thread(PID)).interrupts, 1);
    let count = totals.flushes[&Cause::Call(libc::SYS_munmap as i32, 0)];
    assert_eq!(count.interrupts, 1);
    assert_eq!((pair(Task::Unknown).interrupts, pair(Task::Unknown).empty), (1, 1));
    assert_eq!(victims.times, [20]);
}

#[test]
fn a_fault_without_an_end_failed_and_lost_records_forget_everything() {
    let mut script = Script::new(false);
    script.then(What::Fault { address: 0, code: FaultCode(4), user: true });
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
    script.then(What::Fault { address: 0x1000, code: FaultCode(6), user: true });
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
    script.on(0, 13, What::Enter { number: libc::SYS_exit_group as i32, args: [0; 4] });
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
    script.then(What::Fault { address: 0x1000, code: FaultCode(6), user: true });
    script.then(What::Reclaim { begins: true }).flush(LocalMm, 1);
    script.then(What::Alloc { pfn: 5, order: 0, zeroed: false });
    script.then(What::Reclaim { begins: false });
    script.then(What::Alloc { pfn: 6, order: 0, zeroed: true });
    script.then(What::FaultDone { address: 0x1000, major: false });
    assert_eq!(script.flushes(&Cause::Reclaim), (0, 1));
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
    for what in [What::Reclaim { begins: true }, What::Ioctl { request: copy }] {
        let (time, cpu, pid, tid) = (1, 1, STRANGER, STRANGER);
        script.fold.record(Record { time, cpu, pid, tid, what });
    }
    assert_eq!(script.fold.totals.own_records, own);
    assert!(!script.fold.watches(STRANGER), "it is not made known by them");
    // An interrupt of a stranger is not among those that are timed.
    script.call(libc::SYS_munmap, [0x1000, 0x1000, 0, 0]).flush(RemoteSend, 1).flush(LocalMm, 1);
    for what in [
        What::Call { begins: true },
        What::Flush { reason: RemoteShootdown, pages: 1 },
        What::Call { begins: false },
    ] {
        let record = Record { time: 20, cpu: 1, pid: STRANGER, tid: STRANGER, what };
        script.fold.record(record);
    }
    assert_eq!(script.fold.interrupts_timed(), 0);
}

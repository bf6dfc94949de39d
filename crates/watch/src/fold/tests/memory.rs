//! Which memory faults are about, since when, and whose call took it.

use super::*;
use crate::fold::memory::{Since, Took};

fn madvise(script: &mut Script, start: u64, bytes: u64, advice: u64) {
    script.call(libc::SYS_madvise, [start, bytes, advice, 0]).done(libc::SYS_madvise);
}

/// What the calls of one kind took, and faults that brought it back.
fn taken(script: &Script, took: Took) -> (u64, u64, u64) {
    let rows = script.fold.memories.takers.iter().filter(|(key, _)| key.took == took);
    rows.fold((0, 0, 0), |sum, (_, count)| {
        (sum.0 + count.pages, sum.1 + count.back, sum.2 + count.most_away)
    })
}

#[test]
fn what_is_given_back_and_touched_again_is_known_with_its_call() {
    let mut script = Script::new(false);
    for _ in 0..3 {
        for page in 1..5 {
            script.fault(page << 12, 6, Some(true), false);
        }
        madvise(&mut script, 0x1000, 0x8000, 4);
    }
    assert_eq!(taken(&script, Took::GivenBack), (12, 8, 4), "all but the first round came back");
    let again = script.fold.memories.faults.iter();
    let again = again.filter(|(key, _)| matches!(key.since, Since::Taken(_)));
    assert_eq!(again.map(|(_, met)| met.faults).sum::<u64>(), 8);
}

#[test]
fn a_failed_call_takes_nothing() {
    let mut script = Script::new(false);
    script.fault(0x1000, 6, Some(true), false);
    script.call(libc::SYS_munmap, [0x1000, 0x1000, 0, 0]);
    script.then(What::Exit { number: libc::SYS_munmap as i32, result: -22 });
    assert_eq!(taken(&script, Took::Unmapped), (0, 0, 0));
}

#[test]
fn a_heap_that_shrinks_and_grows_is_given_back_by_brk() {
    let mut script = Script::new(false);
    let brk = |script: &mut Script, end: i64| {
        script.call(libc::SYS_brk, [end as u64, 0, 0, 0]);
        script.then(What::Exit { number: libc::SYS_brk as i32, result: end });
    };
    brk(&mut script, 0x20_0000);
    brk(&mut script, 0x20_4000);
    script.fault(0x20_1000, 6, Some(true), false);
    brk(&mut script, 0x20_0000);
    brk(&mut script, 0x20_4000);
    script.fault(0x20_1000, 6, Some(true), false);
    assert_eq!(taken(&script, Took::GivenBack), (1, 1, 1));
}

#[test]
fn reuse_after_a_fork_is_needless_where_the_child_has_gone() {
    let mut script = Script::new(false);
    script.fault(0x1000, 6, Some(true), false);
    // A child that shares the address space itself protects nothing.
    script.call(libc::SYS_clone3, [0; 4]).then(What::Fork { pid: 20, tid: 20, parent: PID });
    script.done(libc::SYS_clone3).fault(0x1000, 7, None, false);
    assert_eq!(script.found(Needless::ReuseAfterFork), (0, 0));
    script.call(libc::SYS_clone, [0; 4]).flush(LocalMm, -1);
    script.then(What::Fork { pid: 21, tid: 21, parent: PID }).done(libc::SYS_clone);
    script.fault(0x1000, 7, None, false);
    assert_eq!(script.found(Needless::ReuseAfterFork), (1, 1));
    script.fault(0x1000, 7, None, false);
    assert_eq!(script.found(Needless::ReuseAfterFork), (1, 1), "that one is no fork's");
}

#[test]
fn pages_that_come_back_without_a_fault_are_counted() {
    let mut script = Script::new(false);
    script.then(What::Fault { address: 0x1000, code: FaultCode(6), user: true, ip: 0 });
    script.then(What::FaultDone { address: 0x1000, major: false });
    madvise(&mut script, 0x1000, 0x1000, 4);
    madvise(&mut script, 0, 0x20_0000, 25);
    let back = script.fold.memories.takers.iter().map(|(_, count)| count.back_without_fault);
    assert_eq!(back.sum::<u64>(), 1);
}

/// Two threads on different addresses of one huge page: the loser zeroes 2 MiB for nothing.
#[test]
fn a_race_for_a_huge_page_makes_one() {
    let mut script = Script::new(false);
    let begins = |script: &mut Script, tid, address| {
        script.on(0, tid, What::Fault { address, code: FaultCode(6), user: true, ip: 0 });
        script.on(0, tid, What::Alloc { pfn: tid as u64, order: 9, zeroed: true });
    };
    begins(&mut script, PID, 0x2000);
    begins(&mut script, OTHER, 0x3000);
    script.on(0, PID, What::FaultDone { address: 0x2000, major: false });
    script.on(0, OTHER, What::FaultDone { address: 0x3000, major: false });
    let faults = |reason| script.fold.totals.faults.get(&reason).map_or(0, |count| count.faults);
    assert_eq!((faults(Reason::Huge), faults(Reason::RacedOverlap)), (1, 1));
    assert_eq!(script.found(Needless::RacedAllocation), (1, 0));
}

/// A batched flush names no address space: a CPU that runs another process is up to date, and did
/// not flush meanwhile.
#[test]
fn a_batched_flush_of_reclaim_met_another_process() {
    const STRANGER: i32 = 99;
    let answered = |pid, tid| {
        let mut script = named();
        script.then(What::Reclaim { of: Reclaim::Cgroup, begins: true });
        script.flush(RemoteSend, -1).then(queue(FLUSH, 0xa));
        for what in [called(FLUSH, 0xa, true), What::Flush { reason: RemoteShootdown, pages: 0 }] {
            script.time += 1;
            let record = Record { time: script.time, cpu: 1, pid, tid, what };
            script.fold.record(record);
        }
        (script.found(Needless::EmptyInterrupt).0, script.found(Needless::BatchElsewhere).0)
    };
    assert_eq!(answered(STRANGER, STRANGER), (0, 1));
    assert_eq!(answered(PID, OTHER), (1, 0), "its own process had flushed meanwhile");
}

/// Every command starts and ends its processes.
#[test]
fn the_start_and_the_end_of_a_process_are_no_finding() {
    let mut script = named();
    script.call(libc::SYS_execve, [0; 4]).flush(RemoteSend, -1).then(queue(FLUSH, 0xa));
    script.on(1, OTHER, called(FLUSH, 0xa, true));
    script.on(1, OTHER, What::Flush { reason: FlushReason::RemoteWrongCpu, pages: 0 });
    assert_eq!(script.found(Needless::WrongCpu), (0, 0));
    script.call(libc::SYS_munmap, [0x1000, 0x1000, 0, 0]).flush(RemoteSend, 1);
    script.then(queue(FLUSH, 0xb)).on(1, OTHER, called(FLUSH, 0xb, true));
    script.on(1, OTHER, What::Flush { reason: FlushReason::RemoteWrongCpu, pages: 0 });
    assert_eq!(script.found(Needless::WrongCpu), (1, 1), "the same in a call of the program");
}

#[test]
fn a_flush_that_only_grants_is_needless() {
    let mut script = Script::new(false);
    let protect = |script: &mut Script, protection| {
        script.call(libc::SYS_mprotect, [0x4000, 0x2000, protection, 0]).flush(LocalMm, 2);
        script.done(libc::SYS_mprotect);
    };
    protect(&mut script, 1);
    assert_eq!(script.found(Needless::Grant), (0, 0), "what it was before is not known");
    protect(&mut script, 3);
    assert_eq!(script.found(Needless::Grant), (1, 1));
    protect(&mut script, 5);
    assert_eq!(script.found(Needless::Grant), (1, 1), "it forbids stores");
}

#[test]
fn time_and_flushes_of_calls_are_exact() {
    let mut script = Script::new(false);
    script.call(libc::SYS_munmap, [0x1000, 0x1000, 0, 0]).flush(RemoteSend, 1).flush(LocalMm, 1);
    script.done(libc::SYS_munmap);
    let calls: Vec<_> = script.fold.memories.calls.values().collect();
    assert_eq!((calls.len(), calls[0].calls, calls[0].time_ns), (1, 1, 30));
    assert_eq!((calls[0].flushes.sent, calls[0].flushes.local, calls[0].flushes.pages), (1, 0, 1));
}

//! What is told by actor, and event by event.

use super::*;
use crate::counters::Machine;

#[test]
fn what_the_kernel_does_of_its_own_accord_has_its_actor() {
    const KHUGEPAGED: i32 = 50;
    let (mut script, maps) = (named(), Maps::default());
    let (pid, tid, name, maps) = (KHUGEPAGED, KHUGEPAGED, "khugepaged", &maps);
    let (userfaultfd, forked, kernels) = (false, true, true);
    script.fold.introduce(&Present { pid, tid, name, maps, userfaultfd, forked, kernels });
    script.on(0, KHUGEPAGED, What::Flush { reason: RemoteSend, pages: -1 });
    script.on(0, KHUGEPAGED, queue(SYNC, 0xa));
    script.on(1, OTHER, called(SYNC, 0xa, true)).on(1, OTHER, over(SYNC, 0xa));
    let folded = script.folded();
    assert!(folded.totals.needless.is_empty(), "for whom it collapses is not visible");
    let acted = crate::actors::acted(&folded, &Machine::default(), [true; 3]);
    let of = |actor| acted.iter().find(|row| row.actor == actor).unwrap();
    let row = of("khugepaged");
    assert_eq!((row.flushes, row.interrupts, row.interrupts_ns), (Some(1), Some(1), Some(10)));
    assert_eq!((row.faults, row.faults_at_most, row.active), (None, None, None));
    let row = of("kswapd");
    assert_eq!((row.flushes, row.interrupts, row.faults_at_most), (Some(0), Some(0), Some(0)));
}

#[test]
fn single_events_are_told_with_their_times() {
    let (mut script, (sender, moments)) = (named(), std::sync::mpsc::sync_channel(64));
    script.fold.timeline = Some(sender);
    script.fault(0x1000, 6, Some(true), false).then(queue(SYNC, 0xa));
    script.on(1, OTHER, called(SYNC, 0xa, true)).on(1, OTHER, over(SYNC, 0xa));
    script.then(queue(SYNC, 0xb)).on(1, OTHER, called(SYNC, 0xb, false));
    script.folded();
    let (mut faults, mut reached, mut named) = (Vec::new(), Vec::new(), 0);
    for moment in moments {
        match moment {
            Moment::Fault { tid, begin, end, address, .. } => {
                faults.push((tid, address, end - begin));
            }
            Moment::Reached { cpu, begin, end, interrupted, sent, .. } => {
                let wait = begin - sent.unwrap();
                reached.push((cpu, wait, end.map(|end| end - begin), interrupted));
            }
            Moment::Thread { .. } => named += 1,
        }
    }
    assert_eq!(faults, [(PID, 0x1000, 20)]);
    assert_eq!(reached, [(1, 10, Some(10), true), (1, 10, None, false)]);
    assert_eq!(named, 2);
}

#[test]
fn a_thread_that_ended_before_its_name_was_looked_up_has_its_process_name() {
    const GONE: i32 = i32::MAX;
    let mut script = named();
    script.then(What::Fork { pid: PID, tid: GONE, parent: PID }).then(queue(SYNC, 0xa));
    script.on(1, GONE, called(SYNC, 0xa, true)).on(1, GONE, over(SYNC, 0xa));
    script.on(1, GONE, What::Ended);
    let victims = script.folded().victims;
    assert_eq!((&*victims.name(GONE), victims.process(GONE)), ("program", PID));
}

#[test]
fn nobody_is_without_a_name() {
    const GONE: i32 = i32::MAX;
    const THERE: i32 = i32::MAX - 1;
    let mut script = Script::new(false);
    let of = |tid, what| Record { time: 1, cpu: 0, pid: tid, tid, what };
    for (tid, what) in [(GONE, What::FileFault), (THERE, What::FileFault), (GONE, What::Ended)] {
        script.fold.record(of(tid, what));
    }
    let victims = script.folded().victims;
    assert_eq!((&*victims.name(GONE), &*victims.name(THERE)), ("ended", "unknown"));
}

//! The CPU that flushes does a part of the flush itself: that part interrupts nobody, whatever it
//! finds.

use super::*;
use FlushReason::RemoteWrongCpu;

const WRONG: What = What::Flush { reason: RemoteWrongCpu, pages: 0 };

fn counts(folded: &Folded) -> Vec<PairCount> {
    folded.victims.pairs.values().copied().collect()
}

fn needless(folded: &Folded) -> u64 {
    folded.totals.needless.values().map(|count| count.times).sum()
}

/// A process that has ended flushes what it had, where its CPU has left it: as 6.18 tells it.
fn ends_elsewhere(script: &mut Script) -> &mut Script {
    script.then(What::Ended).flush(RemoteSend, -1).then(queue(FLUSH, 0xa));
    script.then(called(FLUSH, 0, false)).then(WRONG).then(over(FLUSH, 0))
}

#[test]
fn a_flush_for_an_address_space_that_its_own_cpu_left_interrupts_nobody() {
    let mut script = named();
    ends_elsewhere(&mut script);
    script.on(1, OTHER, called(FLUSH, 0xa, true)).on(1, OTHER, WRONG);
    script.on(1, OTHER, over(FLUSH, 0xa));
    let folded = script.folded();
    let one = PairCount { interrupts: 1, empty: 1, exact: 1, ..PairCount::default() };
    assert_eq!(counts(&folded), [one], "that of the other CPU");
    assert_eq!(needless(&folded), 0, "every process ends");
    let count = folded.totals.flushes[&Cause::Exit];
    assert_eq!((count.sent, count.local, count.interrupts), (1, 0, 1));
    assert_eq!(folded.tallies.of(0).answers, Times::default());
    assert_eq!(folded.tallies.of(1).answers.surely, 1);
}

/// What a CPU was asked to call before is over, with its end or, where ends are not recorded,
/// without.
#[test]
fn it_is_not_charged_to_the_interrupt_before() {
    for ends in [true, false] {
        let mut script = named();
        script.on(1, OTHER, queue(FLUSH, 0xb)).then(called(FLUSH, 0xb, true));
        script.flush(RemoteShootdown, 1);
        if ends {
            script.then(over(FLUSH, 0xb));
        }
        ends_elsewhere(&mut script);
        let folded = script.folded();
        let one = PairCount { interrupts: 1, exact: 1, ..PairCount::default() };
        assert_eq!((counts(&folded), needless(&folded)), (vec![one], 0), "{ends}");
    }
}

#[test]
fn a_call_tells_once_what_it_flushed() {
    let mut script = named();
    script.on(1, OTHER, queue(FLUSH, 0xb)).then(called(FLUSH, 0xb, true));
    script.then(WRONG).then(WRONG).then(over(FLUSH, 0xb)).then(WRONG);
    let folded = script.folded();
    let one = PairCount { interrupts: 1, empty: 1, exact: 1, ..PairCount::default() };
    assert_eq!((counts(&folded), needless(&folded)), (vec![one], 1));
}

#[test]
fn what_an_idle_cpu_looks_for_itself_is_no_needless_interrupt() {
    let mut script = named();
    script.flush(RemoteSend, -1).then(queue(FLUSH, 0xa));
    script.on(1, 0, called(FLUSH, 0xa, false)).on(1, 0, WRONG).on(1, 0, over(FLUSH, 0xa));
    let folded = script.folded();
    let one = PairCount { uninterrupted: 1, exact: 1, ..PairCount::default() };
    assert_eq!((counts(&folded), needless(&folded)), (vec![one], 0));
}

/// It is the second half of what was sent: the next local flush is one of its own.
#[test]
fn a_local_flush_after_it_counts() {
    let mut script = named();
    script.call(libc::SYS_munmap, [0x1000, 0x1000, 0, 0]).flush(RemoteSend, -1);
    script.then(called(FLUSH, 0, false)).then(WRONG).then(over(FLUSH, 0)).flush(LocalMm, 1);
    assert_eq!(script.flushes(&Cause::Call(libc::SYS_munmap as i32, 0)), (1, 1));
}

/// Where functions are not named, a sender's first answer after it has sent is its own part.
#[test]
fn without_names_it_is_known_by_what_was_sent_before() {
    let mut script = Script::new(false);
    script.flush(RemoteSend, -1).then(WRONG);
    assert!(script.folded().victims.pairs.is_empty());
    let mut script = Script::new(false);
    script.on(1, OTHER, What::Flush { reason: RemoteSend, pages: -1 });
    script.flush(RemoteSend, 1).flush(LocalMm, 1).then(WRONG);
    let folded = script.folded();
    let one = PairCount { interrupts: 1, empty: 1, ..PairCount::default() };
    assert_eq!((counts(&folded), needless(&folded)), (vec![one], 1));
}

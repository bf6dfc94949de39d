//! Tests of what must hold at any size, on a small machine with two tiers.

use super::*;

fn setup(row: &str) -> Setup {
    Setup {
        row: KernelRow::parse(row).unwrap(),
        cpus: 16,
        stream: StreamKind::XsBench,
        scale: 256,
        fast_mib: 1024,
        per_second: 1_754_778,
        warm_ms: 61_000,
        counted_ms: 6_000,
        pass_us: 0,
        seed: 1,
    }
}

fn counts(setup: &Setup) -> Counts {
    run(setup, &mut |_, _| ()).unwrap()
}

#[test]
fn what_is_deferred_and_what_is_not() {
    let [off, stock, kept, lost, luf] =
        ["6.12,migrate-batch=off", "6.12", "6.12+migrc", "6.12+migrc,split-remap=old", "6.12+luf"]
            .map(|row| counts(&setup(row)));
    assert_eq!(counts(&setup("6.12")), stock, "the same run, the same counts");
    assert!(stock.moves.promoted > 100 && stock.moves.demoted > 100, "{stock:?}");
    // Every send interrupts the other 15 CPUs, which all run.
    assert_eq!(stock.received, 15 * stock.sends);
    // Without batches each demotion causes a send; with batches several share one.
    assert!(off.sends >= off.moves.demoted, "{off:?}");
    assert!(stock.sends * 2 < off.sends, "{stock:?}");
    // All memory was stored to once, so MIGRC finds it dirty unless a move loses the dirty bit.
    assert_eq!((kept.sends, kept.moves.deferred), (stock.sends, 0));
    assert!(lost.moves.deferred * 10 > lost.moves.demoted * 9, "{lost:?}");
    assert!(lost.sends < stock.sends && luf.sends < stock.sends);
    // An allocation that finds no free memory flushes for the others.
    assert!(luf.moves.for_memory > 0 && luf.waiting > 0, "{luf:?}");
    assert_eq!((stock.moves.for_memory, stock.waiting), (0, 0));
}

#[test]
fn nobody_is_interrupted_by_an_instruction() {
    let [stock, invlpgb, coherent] =
        ["6.12", "6.12+invlpgb", "6.12+coherent"].map(|row| counts(&setup(row)));
    assert_eq!((invlpgb.sends, invlpgb.received), (0, 0));
    assert_eq!((stock.broadcasts, coherent.broadcasts, coherent.sends), (0, 0, 0));
    // The flushes are those that were sent, one for one; what moves is as it was.
    assert_eq!((invlpgb.broadcasts, invlpgb.moves), (stock.sends, stock.moves));
    // There the bits that reclaim clears are seen to be set again at once, so that others move.
    assert!(coherent.moves.demoted > 100, "{coherent:?}");
}

#[test]
fn cpus_that_flush_by_themselves_and_frames_that_stay_at_home() {
    let [stock, latr, luf, within] =
        ["6.12", "6.12+latr", "6.12+luf", "6.12+luf,recycle=within-mm"]
            .map(|row| counts(&setup(row)));
    // What still interrupts are the flushes by sampling. A tick comes as soon as it is waited for.
    assert_eq!((latr.batch_sends, latr.moves), (0, stock.moves));
    assert_eq!((latr.sends, latr.waiting), (stock.sends - stock.batch_sends, 0));
    // Whoever needs memory takes a frame that its own process has left.
    assert_eq!(within.moves.for_memory, 0);
    assert!(within.sends * 2 < luf.sends && within.waiting > 0, "{within:?}");
}

#[test]
fn a_slow_kswapd_keeps_pages_from_being_promoted() {
    let at_once = counts(&setup("6.12"));
    let slow = counts(&Setup { pass_us: 100, ..setup("6.12") });
    assert!(slow.moves.promoted < at_once.moves.promoted, "{slow:?}");
    assert!(slow.hint_faults > slow.moves.promoted * 2);
}

#[test]
fn too_small_a_machine_is_refused() {
    let small = Setup { fast_mib: 512, ..setup("6.12") };
    assert_eq!(run(&small, &mut |_, _| ()), Err(TieringError::TooSmall(256)));
}

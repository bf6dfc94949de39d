//! Whatever size a scenario has, no run of it takes more memory than it is given. One test, in a
//! process of its own: the peak of its memory is looked at.
#![allow(clippy::unwrap_used)]

use needless_model::rng::SplitMix64;
use needless_scenario::sizes::exercise_sizes;

/// Scenarios that are drawn, and bytes that each is drawn by.
const SCENARIOS: usize = 100;
const BYTES: usize = 24;

/// MiB that the process may take beside what it has: the run's own 16, the rehearsal's, what else
/// is copied, and what the allocator keeps.
const MOST: u64 = 160;

/// The process's peak so far, in MiB.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.split_whitespace().next().unwrap().parse::<u64>().unwrap() >> 10
}

#[test]
fn runs_of_any_size_keep_to_their_memory() {
    let (before, mut ran, mut random) = (peak(), 0, SplitMix64::new(48));
    for _ in 0..SCENARIOS {
        let bytes: Vec<u8> = (0..BYTES).map(|_| random.below(256) as u8).collect();
        ran += usize::from(exercise_sizes(&bytes));
        let taken = peak() - before;
        assert!(taken < MOST, "{taken} MiB: {bytes:?}");
    }
    assert!(ran > SCENARIOS / 8, "{ran} of {SCENARIOS} ran");
}

//! Whatever size a scenario has, no run of it takes more memory than it is given. It runs in processes of its own: the peak
//! of their memory is looked at.

use needless_model::rng::SplitMix64;
use needless_scenario::sizes::exercise_sizes;
use needless_testing::{again, each};

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

/// What one of so many processes runs: each has a peak of its own.
const PARTS: usize = 2;
const PART: &str = "NEEDLESS_PART";

/// No test of its own: the next one starts it. Prints how many ran.
#[test]
#[ignore = "started by the next test"]
fn one_part_keeps_to_its_memory() {
    let Some(part) = std::env::var_os(PART) else { return };
    let part: usize = part.to_str().unwrap().parse().unwrap();
    let (before, mut ran, mut random) = (peak(), 0, SplitMix64::new(48));
    for number in 0..SCENARIOS {
        let bytes: Vec<u8> = (0..BYTES).map(|_| random.below(256) as u8).collect();
        if number % PARTS != part {
            continue;
        }
        ran += usize::from(exercise_sizes(&bytes));
        let taken = peak() - before;
        assert!(taken < MOST, "{taken} MiB: {bytes:?}");
    }
    println!("\nran {ran}");
}

#[test]
fn runs_of_any_size_keep_to_their_memory() {
    let parts: Vec<usize> = (0..PARTS).collect();
    let ran = each(&parts, |part| {
        let mut again = again("sizes::one_part_keeps_to_its_memory");
        let output = again.env(PART, part.to_string()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
        let ran = said.lines().find_map(|line| line.strip_prefix("ran ")).unwrap();
        ran.parse::<usize>().unwrap()
    });
    let ran: usize = ran.iter().sum();
    assert!(ran > SCENARIOS / 8, "{ran} of {SCENARIOS} ran");
}

//! Whatever size a scenario has, no run of it takes more memory than it is given. The scenarios run
//! in processes of their own, whose peak memory is checked.

use needless_model::rng::SplitMix64;
use needless_scenario::sizes::exercise_sizes;
use needless_testing::{again, each};

/// The number of scenarios, and of bytes that each is drawn from.
const SCENARIOS: usize = 100;
const BYTES: usize = 24;

/// The MiB that the process may take in addition to what it has: 16 for the run, then the
/// rehearsal, other copies, and what the allocator keeps.
const MOST: u64 = 160;

/// The process's peak memory so far, in MiB.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.split_whitespace().next().unwrap().parse::<u64>().unwrap() >> 10
}

/// The scenarios are shared out among this many processes, each with a peak of its own.
const PARTS: usize = 2;
const PART: &str = "NEEDLESS_PART";

/// Not a test by itself: the next test starts it in a process. Prints how many scenarios ran.
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

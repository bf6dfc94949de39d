//! Our own kernels for arm64 (patches/), each compared with one without the patch.
//! `make kernels-own` builds them. Tests of kernels that are not built are skipped.

use super::arm64::runner;
use needless_guest::{GuestOptions, KernelTarget, kernels, run_batch};
use needless_model::kernels::KernelRow;
use needless_model::program::Program;
use needless_model::run::{Round, TargetRun};
use needless_model::sim::{self, SimOptions};
use needless_scenario::{Settings, Source, compile, load};
use needless_testing::{skip, turn};
use std::collections::BTreeMap;

const PAGES: u64 = 16;

fn is_built(kernel: &str) -> bool {
    kernels::cached().unwrap().iter().any(|name| name == kernel)
}

/// Runs a program on a kernel for arm64.
fn run(program: &Program, kernel: &str, processor: &str) -> Option<TargetRun> {
    let options = GuestOptions {
        processor: Some(processor.to_owned()),
        runner: Some(runner()?),
        ..GuestOptions::default()
    };
    let target = KernelTarget::named(kernel, options);
    let mut runs = run_batch(&target, std::slice::from_ref(program), &|_| {}).unwrap();
    Some(runs.remove(0).unwrap())
}

/// Minor and major faults of each round.
fn faults(run: &TargetRun) -> Vec<(Option<u64>, Option<u64>)> {
    run.rounds.iter().map(|round| (round.minor_faults, round.major_faults)).collect()
}

/// The faults of each round in the model.
fn predicted(program: &Program, row: &str) -> Vec<(Option<u64>, Option<u64>)> {
    let row = KernelRow::parse(row).unwrap();
    faults(&sim::run(program, &row, &SimOptions::default()).unwrap())
}

/// Tests patches/6.12/fork-young.patch, on a processor that leaves the accessed bit to a fault.
#[test]
fn a_child_whose_pages_stay_young_takes_no_fault_for_them() {
    const BUILT: &str = "6.12+fork-young/arm64";
    let _turn = turn();
    if !is_built(BUILT) {
        skip!("kernel {BUILT} is not built here: `make kernels-own`");
    }
    let pages = Settings::parse([&*format!("pages={PAGES}")]).unwrap();
    let program = compile(&load("fork-touch").unwrap(), &pages).unwrap();
    for (kernel, row, each) in [
        ("6.12/arm64", "6.12/arm64,cpu=cortex-a72", PAGES),
        (BUILT, "6.12/arm64+fork-young,cpu=cortex-a72", 0),
    ] {
        let Some(run) = run(&program, kernel, "cortex-a72") else { return };
        let found = faults(&run);
        assert_eq!(found, predicted(&program, row), "{kernel}");
        assert!(found.iter().all(|faults| *faults == (Some(each), Some(0))), "{kernel}: {found:?}");
    }
}

/// First stores to shared memory. The fault of each gives back the lock and is tried again
/// (mm/memory.c: fault_dirty_shared_page, 5.10). getrusage counts it as a major one.
const RETRIED: &str = "scenario \"retried\" {
    machine { cpus 2 }
    thread \"main\" cpu=0 {
        rounds 8 warmup=2 { map \"shm\" pages=16 backing=\"shared\"; write \"shm\"; munmap \"shm\" }
    }
}";

/// Invalidations of a round, by instruction.
fn invalidations(round: &Round) -> BTreeMap<String, u64> {
    let mut all = BTreeMap::new();
    for (name, count) in round.instructions.iter().flatten() {
        if let Some(name) = name.strip_prefix("tlbi ") {
            *all.entry(name.to_owned()).or_default() += count;
        }
    }
    all
}

/// Tests patches/5.10/retry-flush.patch: one more invalidation of a page for each fault that is
/// tried again, and nothing else. The archive has no complete stock kernel of 5.10 for arm64, so
/// both kernels are ours.
#[test]
fn the_old_rule_invalidates_for_each_fault_that_is_tried_again() {
    const BUILT: [&str; 2] = ["5.10+guest/arm64", "5.10+retry-flush/arm64"];
    let _turn = turn();
    for kernel in BUILT {
        if !is_built(kernel) {
            skip!("kernel {kernel} is not built here: `make kernels-own`");
        }
    }
    let shared = compile(&Source::new("retried", RETRIED), &Settings::default()).unwrap();
    let few = Settings::parse([&*format!("pages={PAGES}"), "rounds=8", "spinners=0"]).unwrap();
    let page_fault3 = compile(&load("b_pf3_ext4").unwrap(), &few).unwrap();
    [shared, page_fault3].iter().for_each(|program| held_against_each_other(program, BUILT));
}

/// Compares a program on the kernel without the patch and on the one with it, and both with their
/// rows.
fn held_against_each_other(program: &Program, built: [&str; 2]) {
    // Each invalidation is issued once on both. Without KASLR, which the minimal configuration
    // lacks, kernels assume that these processors need no page-table isolation
    // (arch/arm64/kernel/cpufeature.c:unmap_kernel_at_el0).
    for (processor, row) in [("max", "5.10/arm64"), ("cortex-a72", "5.10/arm64,cpu=cortex-a72")] {
        let [Some(new), Some(old)] = built.map(|kernel| run(program, kernel, processor)) else {
            return;
        };
        let before = format!("{row},dirty-retry=retry-flush,arm64-spurious=broadcast");
        for (row, run) in [(row, &new), (&*before, &old)] {
            assert_eq!(faults(run), predicted(program, row), "{row} on {processor}");
        }
        for (new, old) in new.rounds.iter().zip(&old.rounds) {
            assert_eq!(new.major_faults, Some(PAGES));
            let mut expected = invalidations(new);
            *expected.entry("vale1is".to_owned()).or_default() += PAGES;
            assert_eq!(invalidations(old), expected, "{processor}");
        }
    }
}

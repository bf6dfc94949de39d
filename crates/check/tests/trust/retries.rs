//! Second tries of faults: what they find, what is asked of them, and what other architectures make
//! of them.

use crate::{explore, litmus_test, row};
use needless_check::{Options, Property, Report, check};

fn explored(test: &str, row_name: &str) -> Report {
    explore(&litmus_test(test, &[]).program, row_name, &Options::default())
}

fn states(test: &str, row_name: &str) -> usize {
    explored(test, row_name).states
}

/// Where the processor sets the bits and the PTE that a second try finds is dirty or read-only, no
/// state tells whether it sets them as well: the merged rule, the one before and the proposal lead
/// to the same. (Where another CPU's load mapped the page writable and clean, the processor sets
/// the bit that the second try left: a step more.)
#[test]
fn the_rules_are_the_same_to_x86() {
    let rows = ["5.8", "5.10", "6.1", "6.12"];
    for (test, rows) in
        [("disk-writeback", &rows[..]), ("retry-spurious", &rows), ("retry-skip-ad", &rows[..3])]
    {
        for row in rows {
            let skips = format!("{row},retry-fault=skip-update");
            assert_eq!(states(test, row), states(test, &skips), "{test} on {row}");
        }
        assert_eq!(states(test, "5.10"), states(test, "5.10,dirty-retry=retry-flush"), "{test}");
    }
    assert_ne!(
        states("retry-skip-ad", "6.12"),
        states("retry-skip-ad", "6.12,retry-fault=skip-update")
    );
}

/// Where a second try ends makes no difference: before the entry is made dirty, after the block for
/// stores, or where the RFC ends it. All three change a copy of the entry that nobody else sees.
#[test]
fn the_rfc_and_both_texts_of_its_discussion_are_one_rule() {
    let rows = [
        "5.10",
        "6.12",
        "7.3",
        "5.10/ppc64-radix",
        "6.12/riscv64-svadu",
        "6.12/riscv64-svade,fault-lock=mmap",
        "6.12/arm64,cpu=cortex-a72,fault-lock=mmap",
    ];
    for (test, rows) in [("retry-skip-ad", &rows[..]), ("disk-writeback", &rows[..1])] {
        for row in rows {
            let of = |rule: &str| states(test, &format!("{row},retry-fault={rule}"));
            let rfc = of("skip-update");
            for rule in ["skip-before-dirty", "skip-after-write"] {
                assert_eq!(of(rule), rfc, "{test} on {row} by {rule}");
            }
        }
    }
}

/// Whether the first try has set the dirty bit: always where the fault is throttled; not where
/// another CPU's load mapped the page meanwhile.
#[test]
fn a_second_try_may_find_its_page_clean() {
    let of = |report: &Report| report.exercised.has(Property::DirtyAtRetry);
    let throttled = explored("retry-dirty", "5.10,ask=D");
    assert!(throttled.holds() && of(&throttled));
    let parallel = explored("retry-skip-ad", "6.12,ask=D").counterexample.unwrap().violation;
    assert_eq!(parallel.property, Property::DirtyAtRetry);
    assert!(parallel.what.contains("finds heap[0] clean"), "{}", parallel.what);
}

/// A rule that treats one of the things differently that a second try may find reaches other
/// states, so it does find them.
#[test]
fn a_second_try_finds_all_that_a_parallel_fault_leaves() {
    let differ = |test: &str, [one, other]: [&str; 2]| {
        assert_ne!(states(test, one), states(test, other), "{test} on {one} and {other}");
    };
    // Clean and read-only: after writeback, and after another CPU's load.
    differ("disk-writeback", ["5.10", "5.10,mutant=tried-first"]);
    differ("retry-skip-ad", ["5.10", "5.10,mutant=tried-first"]);
    // Clean and writable: after another CPU's load, on newer rows.
    let row = "6.12/riscv64-svade,fault-lock=mmap";
    differ("retry-skip-ad", [row, &format!("{row},retry-fault=skip-update")]);
    // Writable and dirty: where that is a flush of a spurious fault.
    let row = "5.10/riscv64-svade";
    differ("retry-spurious", [row, &format!("{row},dirty-retry=retry-flush")]);
}

/// R is judged where a row asks for it, and nowhere else.
#[test]
fn what_was_mapped_at_a_retry_is_asked_for() {
    let of = |report: &Report| report.exercised.has(Property::InstalledAtRetry);
    let asked = explored("retry-installed", "5.10,ask=R");
    assert!(asked.holds() && of(&asked));
    let unasked = explored("retry-installed", "5.10");
    assert!(unasked.holds() && !of(&unasked) && !unasked.to_string().contains("R a fault"));
    let never = explored("retry-installed", "6.12,ask=R");
    assert!(never.holds() && !of(&never) && never.to_string().contains("not exercised  R a fault"));
    assert!(explored("retry-anon-vma", "6.12").holds());
    let found = explored("retry-anon-vma", "6.12,ask=R").counterexample.unwrap().violation;
    assert_eq!(found.property, Property::InstalledAtRetry);
    assert!(found.what.contains("waits for mmap_lock"), "{}", found.what);
}

/// How many faults an access may take: one fewer is too few.
#[test]
fn faults_of_one_access_are_counted() {
    let most = |test: &str, row: &str| {
        let holds = |most: &u32| explored(test, &format!("{row},most-faults={most}")).holds();
        (0..6).find(holds)
    };
    assert_eq!(most("retry-spurious", "5.10"), Some(5));
    assert_eq!(most("retry-spurious", "6.12"), Some(5));
    assert_eq!(most("retry-spurious", "5.10/riscv64-svade"), Some(4));
    assert_eq!(most("retry-spurious", "5.10/arm64"), Some(3));
}

/// A row of another architecture is checked by its rules, whatever machine the options say.
#[test]
fn a_row_names_the_rules_of_its_architecture() {
    let program = litmus_test("retry-spurious", &[]).program;
    let of = |name| check(&program, &row(name), &Options::default()).unwrap().states;
    assert_ne!(of("5.10"), of("5.10/riscv64-svade"));
    assert_ne!(of("5.10/arm64"), of("5.10/arm64,cpu=cortex-a72"));
    assert_eq!(of("5.10"), of("5.10/x86-64"));
}

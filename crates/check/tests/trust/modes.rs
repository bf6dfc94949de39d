//! Ways to explore that must find the same: threads forget at checkpoints or never do, fills and
//! evictions of TLB entries are in sets or are steps, steps that lead nowhere new are left out or not,
//! one worker or several.

use crate::{explore, litmus_test, row};
use needless_check::litmus::cases;
use needless_check::{Choice, Options, Property, Report, Schedule, replay};
use needless_model::program::Program;

/// The violated property, if there is one.
fn violated(report: &Report) -> Option<Property> {
    report.counterexample.as_ref().map(|found| found.violation.property)
}

/// Calls `f` for every row that these litmus tests name.
fn each(names: &[&str], f: impl Fn(&Program, &str)) {
    for name in names {
        let test = litmus_test(name, &[]);
        for case in cases(&test.litmus) {
            f(&test.program, &case.row);
        }
    }
}

/// Litmus tests with few states, whatever the mode.
const SMALL: [&str; 10] = [
    "zero-cow",
    "gather-early-free",
    "asid-recycle",
    "lazy-wake",
    "lazy-table-free",
    "madv-nested",
    "swapin-race",
    "cow-stale",
    "pageout-write",
    "munmap-reclaim",
];

/// CPUs that are idle or away while something is mapped or taken away.
const AWAY: [&str; 4] = ["lazy-map", "switch-map", "switch-back", "switch-table"];

/// Every part of the world is in some race: batches, swap, LRU batches, page tables.
const RACES: [&str; 10] = [
    "switch-back",
    "switch-reclaim",
    "switch-table",
    "lazy-map",
    "free-drop",
    "cow-race",
    "first-read-race",
    "swap-redirty",
    "batch-two",
    "move-aged",
];

#[test]
fn nothing_is_lost_at_checkpoints() {
    let names = [&SMALL[..], &["gen-skip"]].concat();
    each(&names, |program, row| {
        let with = explore(program, row, &Options::default());
        let without = explore(program, row, &Options { checkpoints: false, ..Options::default() });
        let what = format!("{} on {row}", program.name);
        assert_eq!(violated(&with), violated(&without), "{what}");
        assert!(with.states <= without.states, "{what}");
        if violated(&with).is_none() {
            assert_eq!(with.exercised, without.exercised, "{what}");
        }
    });
}

/// Where the shortest counterexamples are to different properties, sets first; why.
const DIFFERENT: [(&str, &str, Property, Property); 1] = [
    // Two pages are mapped one after the other, the first of them is stored to. A load from the first,
    // which is in the set, loses the store at the end; a load from the second finds the old value.
    // Both are one step; in the set the first comes first, in an empty TLB there is the second only.
    ("swapin-race", "6.12,mutant=swapin-unchecked", Property::NoLostWrite, Property::Coherence),
];

#[test]
fn sets_find_what_fills_and_evictions_find() {
    let names = [&SMALL[..], &AWAY].concat();
    each(&names, |program, row| {
        let sets = explore(program, row, &Options::default());
        let steps = explore(program, row, &Options { explicit: true, ..Options::default() });
        let what = format!("{} on {row}", program.name);
        let different = DIFFERENT.iter().find(|(name, of, ..)| *name == program.name && *of == row);
        match different {
            None => assert_eq!(violated(&sets), violated(&steps), "{what}"),
            Some((_, _, in_sets, in_steps)) => {
                assert_eq!(violated(&sets), Some(*in_sets), "{what}");
                assert_eq!(violated(&steps), Some(*in_steps), "{what}");
            }
        }
        if violated(&sets).is_none() {
            assert_eq!(sets.exercised, steps.exercised, "{what}");
            assert!(steps.states > sets.states, "{what}: fills and evictions are steps");
        }
    });
}

/// The first of [`DIFFERENT`]: what the explicit mode finds is there with sets, too, just as short.
#[test]
fn the_other_way_of_the_same_step_violates_the_other_property() {
    let (name, row_name, in_sets, in_steps) = DIFFERENT[0];
    let program = litmus_test(name, &[]).program;
    let found = explore(&program, row_name, &Options::default()).counterexample.unwrap();
    let Some((&Choice::Go { thread, way: 0 }, before)) = found.schedule.0.split_last() else {
        panic!("{found}");
    };
    let mut other = before.to_vec();
    other.push(Choice::Go { thread, way: 1 });
    let options = Options::default();
    let (_, violation) = replay(&program, &row(row_name), &options, &Schedule(other)).unwrap();
    assert_eq!(found.violation.property, in_sets);
    assert_eq!(violation.map(|violation| violation.property), Some(in_steps));
}

#[test]
fn the_number_of_workers_changes_nothing() {
    each(&["swapin-race", "gen-skip", "pageout-write"], |program, row| {
        let report = |workers| explore(program, row, &Options { workers, ..Options::default() });
        assert_eq!(report(1), report(2), "{} on {row}", program.name);
    });
}

/// What is left out leads only where something else leads: all that is found is the same.
#[test]
fn nothing_is_lost_in_sleep() {
    let more = ["gen-skip", "pageout-read", "pending-flag", "mremap-move"];
    let names = [&SMALL[..], &more, &RACES].concat();
    each(&names, |program, row| {
        let report = |sleep| explore(program, row, &Options { sleep, ..Options::default() });
        assert_eq!(report(true), report(false), "{} on {row}", program.name);
    });
}

//! Ways to explore that must find the same: threads forget at checkpoints or never do, fills and
//! evictions of TLB entries are in sets or are steps, steps that lead nowhere new are left out or
//! not, one worker or several.

use crate::{explore, litmus_test, row};
use needless_check::litmus::cases;
use needless_check::{
    CheckError, Checkpoint, Choice, Options, Property, Report, Schedule, check, larger, replay,
};
use needless_model::program::Program;
use std::cell::Cell;
use std::path::PathBuf;
use std::time::Duration;

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
    // Two pages are mapped one after the other, the first of them is stored to. A load from the
    // first, which is in the set, loses the store at the end; a load from the second finds the old
    // value. Both are one step; in the set the first comes first, in an empty TLB there is the
    // second only.
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

/// Levels of more states than one worker takes at a time are among them.
#[test]
fn the_number_of_workers_changes_nothing() {
    each(&["swapin-race", "gen-skip", "pageout-write", "mremap-move"], |program, row| {
        let report = |workers| explore(program, row, &Options { workers, ..Options::default() });
        let one = report(1);
        for workers in [2, 5] {
            assert_eq!(one, report(workers), "{} on {row}", program.name);
        }
    });
}

/// What is looked up is what would be found out again.
#[test]
fn nothing_is_lost_by_recalling() {
    let more = ["gen-skip", "pageout-read", "pending-flag", "file-race", "uffd-moved-in"];
    let names = [&SMALL[..], &more, &RACES].concat();
    each(&names, |program, row| {
        let report = |recall| {
            let options = Options { recall, symmetry: false, ..Options::default() };
            explore(program, row, &options)
        };
        assert_eq!(report(true), report(false), "{} on {row}", program.name);
    });
}

/// What is left out leads only where something else leads: all that is found is the same.
#[test]
fn nothing_is_lost_in_sleep() {
    let more = ["gen-skip", "pageout-read", "pending-flag", "mremap-move"];
    let names = [&SMALL[..], &more, &RACES].concat();
    each(&names, |program, row| {
        let report = |sleep| {
            let report = explore(program, row, &Options { sleep, ..Options::default() });
            Report { steps: 0, ..report }
        };
        assert_eq!(report(true), report(false), "{} on {row}", program.name);
    });
}

/// Where a thread goes alone there are fewer states, and all that is found is the same.
#[test]
fn nothing_is_lost_where_threads_go_alone() {
    let more = ["gen-skip", "pageout-read", "pending-flag", "mremap-move"];
    let names = [&SMALL[..], &more, &RACES].concat();
    let fewer = Cell::new(0);
    each(&names, |program, row| {
        let what = format!("{} on {row}", program.name);
        let report = |persistent, workers| {
            explore(program, row, &Options { persistent, workers, ..Options::default() })
        };
        let (with, without) = (report(true, 1), report(false, 1));
        assert_eq!(with.counterexample, without.counterexample, "{what}");
        if without.holds() {
            let found = |report: &Report| (report.exercised, report.ends);
            assert_eq!(found(&with), found(&without), "{what}");
        }
        assert!(with.states <= without.states, "{what}");
        assert_eq!(with, report(true, 3), "{what}");
        fewer.set(fewer.get() + usize::from(with.states < without.states));
    });
    assert!(fewer.get() > 10, "{} cases have fewer states", fewer.get());
}

/// Each with one more thread that does what another one does.
const LARGER: [&str; 6] =
    ["zero-cow", "gather-early-free", "cow-stale", "first-read-race", "lazy-map", "cow-race"];

/// States that are mirror images of each other are explored once: what holds and what is violated,
/// and after how many steps, is the same.
#[test]
fn nothing_is_lost_by_symmetry() {
    let mut fewer = 0;
    for test in LARGER.map(|name| larger(&litmus_test(name, &[]))) {
        for case in cases(&test.litmus) {
            let what = format!("{} on {}", test.name, case.row);
            let report = |symmetry| {
                let options = Options { symmetry, ..Options::default() };
                explore(&test.program, &case.row, &options)
            };
            let (with, without) = (report(true), report(false));
            let steps = |report: &Report| report.counterexample.as_ref().map(|c| c.steps.len());
            assert_eq!(violated(&with), violated(&without), "{what}");
            assert_eq!(steps(&with), steps(&without), "{what}");
            if violated(&with).is_none() {
                assert_eq!((with.exercised, with.depth), (without.exercised, without.depth));
            }
            assert!(with.states <= without.states, "{what}");
            fewer += usize::from(with.states < without.states);
        }
    }
    assert!(fewer > 6, "{fewer} cases have fewer states");
}

/// A file of a test's own, removed at its end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let name = format!("needless-check-{name}-{}", std::process::id());
        Scratch(std::env::temp_dir().join(name))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        _ = std::fs::remove_file(&self.0);
    }
}

/// A run that was stopped goes on from its checkpoint, and ends as one that was not.
#[test]
fn a_stopped_run_goes_on() {
    let file = Scratch::new("goes-on");
    each(&["swapin-race", "pageout-write", "gen-skip"], |program, row| {
        let whole = explore(program, row, &Options::default());
        let checkpoint = Checkpoint { file: file.0.clone(), every: Duration::ZERO };
        let options = Options { checkpoint: Some(checkpoint), ..Options::default() };
        let mut bounded = Options { max_states: whole.states / 2, ..options.clone() };
        let stopped = check(program, &self::row(row), &bounded).unwrap();
        assert!(stopped.bound.is_some() && file.0.exists(), "{} on {row}", program.name);
        bounded.max_states = whole.states * 3 / 4;
        assert!(check(program, &self::row(row), &bounded).unwrap().bound.is_some());
        let options = Options { workers: 2, ..options };
        assert_eq!(explore(program, row, &options), whole, "{} on {row}", program.name);
        assert!(!file.0.exists(), "it is removed at the end");
    });
}

#[test]
fn a_checkpoint_of_something_else_is_refused() {
    let file = Scratch::new("refused");
    let (program, other) = (litmus_test("zero-cow", &[]).program, litmus_test("cow-stale", &[]));
    let checkpoint = Checkpoint { file: file.0.clone(), every: Duration::ZERO };
    let options = Options { checkpoint: Some(checkpoint), max_states: 20, ..Options::default() };
    assert!(check(&program, &row("6.12"), &options).unwrap().bound.is_some());
    let why = |program: &Program, row_name: &str, options: &Options<'_>| match check(
        program,
        &row(row_name),
        options,
    ) {
        Err(CheckError::Checkpoint { why, .. }) => why,
        other => panic!("{other:?}"),
    };
    assert!(why(&other.program, "6.12", &options).starts_with("it is of another"));
    assert!(why(&program, "6.1", &options).starts_with("it is of another"));
    let without = Options { sleep: false, ..options.clone() };
    assert!(why(&program, "6.12", &without).starts_with("it is of another"));
    let mut bytes = std::fs::read(&file.0).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&file.0, &bytes).unwrap();
    assert_eq!(why(&program, "6.12", &options), "it is damaged");
    std::fs::write(&file.0, &bytes[..bytes.len() / 2]).unwrap();
    assert_eq!(why(&program, "6.12", &options), "it is damaged");
    std::fs::write(&file.0, b"x").unwrap();
    assert_eq!(why(&program, "6.12", &options), "it ends too soon");
}

/// With too few bits states are missed, and the report says that this is likely.
#[test]
fn short_keys_say_what_they_may_miss() {
    let program = litmus_test("pageout-write", &[]).program;
    let report = |key_bits| explore(&program, "6.1", &Options { key_bits, ..Options::default() });
    let (whole, short, tiny) = (report(128), report(64), report(16));
    assert_eq!(Report { key_bits: 128, ..short.clone() }, whole);
    assert!(short.missed() < 1e-9 && whole.missed() < 1e-30);
    assert!(tiny.states < whole.states && tiny.missed() > 0.9, "{} states", tiny.states);
}

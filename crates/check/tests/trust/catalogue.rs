//! Every built-in litmus test, on every row that it names.

use crate::{compiled, explore, litmus_test};
use needless_check::litmus::{Case, CaseResult, Test, cases, run_all};
use needless_check::{Options, Property};
use needless_scenario::{Settings, Source, builtin};
use std::sync::Mutex;

/// Run by `needless check` only, as `.ci/run` does by these two names: with three CPUs it has a
/// million states.
pub const LONG: &str = "batched-pending";

/// Run by `needless check` only, too. It needs its three CPUs.
pub const LONGEST: &str = "pending-join";

/// The mutants of [`LONG`] that two CPUs do not show: two threads have to reclaim at once.
const THREE_CPUS: [&str; 2] =
    ["7.3+pending-cleared,mutant=cleared-all", "7.3+pending-cleared,mutant=counted-early"];

fn verdicts(tests: &[Test]) -> Vec<(String, Case, CaseResult)> {
    let done = Mutex::new(0);
    let options = Options::default();
    let verdicts = run_all(tests, &options, &|_, _| *done.lock().unwrap() += 1).unwrap();
    assert_eq!(*done.lock().unwrap(), verdicts.len());
    verdicts
}

fn assert_as_expected(tests: &[Test]) {
    let verdicts = verdicts(tests);
    assert_eq!(verdicts.len(), tests.iter().map(|test| cases(&test.litmus).len()).sum::<usize>());
    let unexpected = verdicts.iter().filter(|(_, _, verdict)| !verdict.unexpected.is_empty());
    let unexpected: Vec<String> = unexpected
        .map(|(name, case, verdict)| format!("{name} on {}: {:?}", case.row, verdict.unexpected))
        .collect();
    assert!(unexpected.is_empty(), "{unexpected:#?}");
}

/// Each test of the catalogue lies in one of these: who looks for the first that fails finds it
/// sooner.
const PARTS: usize = 8;

fn part(number: usize) {
    let names = builtin::litmus_names().filter(|name| ![LONG, LONGEST].contains(name));
    let mine = names.enumerate().filter(|(index, _)| index % PARTS == number);
    let tests: Vec<Test> = mine.map(|(_, name)| litmus_test(name, &[])).collect();
    assert!(tests.len() >= 4);
    assert_as_expected(&tests);
}

macro_rules! parts {
    ($($name:ident: $number:literal),*) => {
        $(#[test]
        fn $name() {
            part($number);
        })*
        const _: () = assert!([$($number),*].len() == PARTS);
    };
}

parts!(litmus_0: 0, litmus_1: 1, litmus_2: 2, litmus_3: 3, litmus_4: 4, litmus_5: 5, litmus_6: 6, litmus_7: 7);

#[test]
fn litmus_with_fewer_cpus() {
    let mut long = litmus_test(LONG, &[("cpus", "2")]);
    let all = cases(&long.litmus).len();
    long.litmus.fails.retain(|failing| !THREE_CPUS.contains(&failing.row.as_str()));
    assert_eq!(cases(&long.litmus).len() + THREE_CPUS.len(), all, "the catalogue checks these");
    assert_as_expected(&[long]);
}

/// A change here must be explained, not just pinned again: each kernel operation's steps, and what
/// counts as the same state, decide these numbers.
#[test]
fn state_counts_are_pinned() {
    let pinned = [
        ("zero-cow", "6.12", 151),
        ("gather-early-free", "5.10", 111),
        ("asid-recycle", "7.3", 319),
        ("swapin-race", "6.12", 160),
        ("pageout-write", "6.1", 2811),
        ("madv-nested", "6.12", 1722),
    ];
    let states = |(name, row, _)| {
        let program = litmus_test(name, &[]).program;
        (name, row, explore(&program, row, &Options::default()).states)
    };
    assert_eq!(pinned.map(states), pinned);
}

/// A fault is served, and the access goes on: the case of P11, which litmus tests do not name.
#[test]
fn progress_is_exercised() {
    for row in ["5.10", "6.1", "6.12", "7.3"] {
        let program = litmus_test("pageout-read", &[]).program;
        let report = explore(&program, row, &Options::default());
        assert!(report.holds() && report.ends > 0, "{row}: {report:?}");
        assert!(report.exercised.has(Property::Progress), "{row}");
    }
}

/// An expectation that is wrong is told: each of these differs from the truth in one thing.
#[test]
fn a_wrong_expectation_is_told() {
    let told = |change: &dyn Fn(&mut Test), row: &str| {
        let mut test = litmus_test("gather-early-free", &[]);
        change(&mut test);
        let verdicts = verdicts(&[test]);
        let (_, _, verdict) = verdicts.into_iter().find(|(_, case, _)| case.row == row).unwrap();
        verdict.unexpected.join("; ")
    };
    let mutant = "6.12,mutant=freed-unflushed";
    let safe = told(&|test| test.litmus.safe = vec![mutant.to_owned()], mutant);
    assert!(safe.starts_with("violates P1"), "{safe}");
    let fails = told(&|test| test.litmus.fails[0].row = "6.12".to_owned(), "6.12");
    assert_eq!(fails, "");
    let fails = told(
        &|test| (test.litmus.fails[0].row, test.litmus.safe) = ("6.12".to_owned(), vec![]),
        "6.12",
    );
    assert!(fails.contains("was to violate P1"), "{fails}");
    let other = told(&|test| test.litmus.fails[0].violates = Property::Coherence, mutant);
    assert!(other.contains("was to violate P2"), "{other}");
    let idle = told(&|test| test.litmus.forbid = vec![Property::NoLostDirty], "6.12");
    assert!(idle.contains("P4 was not exercised"), "{idle}");
}

/// What the language reference shows is true.
#[test]
fn the_example_of_the_reference_is_as_expected() {
    let reference = include_str!("../../../../docs/scenarios.md");
    let examples = reference.split("```kdl\n").skip(1).filter_map(|rest| rest.split("```").next());
    let examples = examples.filter(|example| example.contains("litmus {"));
    let sources = examples.map(|example| Source::new("example", example));
    let tests: Vec<Test> = sources.map(|source| compiled(&source, &Settings::default())).collect();
    assert!(!tests.is_empty());
    assert_as_expected(&tests);
}

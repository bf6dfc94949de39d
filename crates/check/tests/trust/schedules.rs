//! Schedules: written by hand, found, followed, refused.

use crate::{explore, litmus_test, row};
use needless_check::litmus::cases;
use needless_check::{CheckError, Options, Property, Schedule, replay};

/// The zero page is replaced without a flush while the reader has it cached. The reader's first
/// load comes early and finds zero, as it should; its second one comes after the store.
const BY_HAND: [(&str, &str); 5] = [
    ("0x10", "main maps and loads the page (9 steps); both pass the barrier"),
    ("1", "reader: the first load, of the zero page"),
    ("0x8", "main: its store faults, and maps a new page; the flush is left out"),
    ("0", "main: the store itself"),
    ("1", "reader: the second load still finds the zero page in the TLB"),
];

fn by_hand() -> Schedule {
    BY_HAND.map(|(part, _)| part).join(".").parse().unwrap()
}

#[test]
fn a_schedule_written_by_hand_violates_and_a_short_one_is_found() {
    let (program, mutant) = (litmus_test("zero-cow", &[]).program, "6.12,mutant=copy-unflushed");
    let options = Options::default();
    let (steps, violation) = replay(&program, &row(mutant), &options, &by_hand()).unwrap();
    let violation = violation.expect("it is known to violate");
    assert_eq!(violation.property, Property::Coherence);
    assert_eq!(steps[10].label, "load from heap[0] by TLB: f0");
    assert_eq!(steps[18].label, "folio_put");
    assert_eq!(steps[19].label, "store to heap[0] by TLB: f1");
    assert_eq!(steps[20].label, "load from heap[0] by TLB: f0");

    let found = explore(&program, mutant, &options).counterexample.expect("it is to be found");
    assert_eq!(found.violation.property, violation.property);
    assert!(found.steps.len() <= steps.len(), "{found}");
}

/// Without the mutant the step that was left out is there, so that nothing is violated.
#[test]
fn the_same_schedule_is_harmless_where_the_flush_is_done() {
    let program = litmus_test("zero-cow", &[]).program;
    let kernel = row("6.12");
    let (_, violation) = replay(&program, &kernel, &Options::default(), &by_hand()).unwrap();
    assert_eq!(violation, None);
}

#[test]
fn a_schedule_that_is_not_possible_is_refused_with_its_step() {
    let program = litmus_test("zero-cow", &[]).program;
    let refused = |schedule: &str| {
        let schedule = schedule.parse().unwrap();
        match replay(&program, &row("6.12"), &Options::default(), &schedule) {
            Err(CheckError::Schedule { step, word }) => (step, word),
            other => panic!("{schedule}: {other:?}"),
        }
    };
    assert_eq!(refused("1"), (1, "1".to_owned()), "the reader waits at the barrier");
    assert_eq!(refused("0.0b"), (2, "0b".to_owned()), "a fault is the only way");
    assert_eq!(refused("0x8.0.7"), (10, "7".to_owned()), "there is no such thread");
    assert_eq!(refused("0.f0:0"), (2, "f0:0".to_owned()), "fills are no steps here");
}

/// Every counterexample of the litmus tests can be followed, and ends in the same violation.
#[test]
fn what_is_found_can_be_followed() {
    for name in ["zero-cow", "asid-recycle", "lazy-table-free", "swapin-race", "mprotect-reclaim"] {
        let test = litmus_test(name, &[]);
        for case in cases(&test.litmus).iter().filter(|case| case.doc.is_some()) {
            let options = Options::default();
            let found = explore(&test.program, &case.row, &options).counterexample.unwrap();
            let schedule = found.schedule.to_string().parse().unwrap();
            let again = replay(&test.program, &row(&case.row), &options, &schedule).unwrap();
            assert_eq!(again, (found.steps, Some(found.violation)), "{name} on {}", case.row);
        }
    }
}

#[test]
fn a_counterexample_can_be_read() {
    let program = litmus_test("pageout-read", &[]).program;
    let report = explore(&program, "6.12,mutant=unmap-not-flushed", &Options::default());
    let found = report.counterexample.expect("the mutant must fail");
    let text = found.to_string();
    assert!(text.starts_with("VIOLATED  P1"), "{text}");
    assert!(text.lines().count() < 60, "tens of lines:\n{text}");
    assert!(found.steps.iter().any(|step| step.label == "try_to_unmap_one"), "{text}");
}

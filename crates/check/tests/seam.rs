//! The proof of the seam: the checker explores the simulator's own kernel functions.

use needless_check::{Options, Property, Report, check};
use needless_model::kernels::KernelRow;
use needless_scenario::{Settings, Source, compile};

fn explore(row: &str) -> Report {
    let text = include_str!("../../../scenarios/litmus/pageout-read.kdl");
    let program =
        compile(&Source::new("pageout-read", text), &Settings::default()).expect("it compiles");
    check(&program, &KernelRow::parse(row).expect("a row"), &Options::default())
        .expect("it can be explored")
}

#[test]
fn paging_out_under_a_reader_is_safe() {
    for row in ["5.10", "6.1", "6.12", "7.3"] {
        let report = explore(row);
        assert_eq!(report.counterexample, None, "{row}");
        assert!(report.holds() && report.ends > 0, "{row}: {report:?}");
        for property in [Property::NoUseAfterFree, Property::NoLostWrite, Property::Progress] {
            assert!(report.exercised.has(property), "{row}: {property} was not exercised");
        }
    }
}

#[test]
fn without_the_flush_after_unmap_a_freed_page_is_read() {
    let report = explore("6.12,mutant=unmap-not-flushed");
    let counterexample = report.counterexample.expect("the mutant must fail");
    assert_eq!(counterexample.violation.property, Property::NoUseAfterFree);
    let text = counterexample.to_string();
    assert!(text.lines().count() < 60, "tens of lines:\n{text}");
    assert!(text.starts_with("VIOLATED  P1"), "{text}");
    assert!(counterexample.steps.iter().any(|step| step.label == "try_to_unmap_one"));
}

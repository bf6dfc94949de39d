//! Why the checker can be trusted: litmus tests come out as expected, in every mode of the
//! explorer; what it finds can be followed; the simulator's run is one of those that it explores.
#![allow(clippy::unwrap_used)]

mod catalogue;
mod modes;
mod retries;
mod schedules;
mod simulator;
mod verdicts;

use needless_check::litmus::Test;
use needless_check::{Options, Report, check};
use needless_model::kernels::KernelRow;
use needless_model::program::Program;
use needless_scenario::{Settings, Source, litmus, load};

fn row(name: &str) -> KernelRow {
    KernelRow::parse(name).unwrap()
}

/// A built-in litmus test.
fn litmus_test(name: &str, settings: &[(&str, &str)]) -> Test {
    let settings: Settings = settings.iter().copied().collect();
    compiled(&load(name).unwrap(), &settings)
}

fn compiled(source: &Source, settings: &Settings) -> Test {
    let (program, litmus) = litmus(source, settings).unwrap();
    Test { name: source.name.clone(), program, litmus: litmus.unwrap() }
}

fn explore(program: &Program, row_name: &str, options: &Options<'_>) -> Report {
    let report = check(program, &row(row_name), options).unwrap();
    assert_eq!(report.bound, None, "{} on {row_name}", program.name);
    report
}

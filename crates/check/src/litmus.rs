//! Litmus tests: a scenario, the kernel rows that must pass it, and those that must fail.

use crate::error::CheckError;
use crate::explore::check;
use crate::report::Report;
use crate::setting::Options;
use needless_model::kernels::KernelRow;
use needless_model::program::Program;
use needless_model::property::Property;
use needless_scenario::{Expect, Litmus};
use rayon::prelude::*;
use std::time::{Duration, Instant};

/// What a row is expected to do.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Expected {
    /// Every property holds.
    Holds,
    /// The shortest counterexample is to this property.
    Violates(Property),
}

/// One row of a litmus test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    /// The row's name.
    pub row: String,
    /// What it is expected to do.
    pub expected: Expected,
    /// What is wrong with it, if it must fail.
    pub doc: Option<String>,
}

/// What became of it.
#[derive(Clone, Debug)]
pub struct CaseResult {
    /// The report, or why there is none.
    pub report: Result<Report, CheckError>,
    /// What is not as expected; empty if everything is.
    pub unexpected: Vec<String>,
    /// How long it took.
    pub took: Duration,
}

/// The rows of a litmus test, in its order.
pub fn cases(litmus: &Litmus) -> Vec<Case> {
    let safe = litmus.safe.iter();
    let safe = safe.map(|row| Case { row: row.clone(), expected: Expected::Holds, doc: None });
    let fails = litmus.fails.iter().map(|failing| Case {
        row: failing.row.clone(),
        expected: Expected::Violates(failing.violates),
        doc: Some(failing.doc.clone()),
    });
    safe.chain(fails).collect()
}

/// Runs one case.
pub fn run(program: &Program, litmus: &Litmus, case: &Case, options: &Options<'_>) -> CaseResult {
    let mut options = options.clone();
    for observation in &litmus.observations {
        let equations: Vec<_> = observation.clauses.iter().map(|c| (c.load, c.value)).collect();
        options.watching.add(&observation.name, &equations, program);
    }
    let start = Instant::now();
    let row = KernelRow::parse(&case.row).map_err(CheckError::from);
    let report = row.and_then(|row| check(program, &row, &options));
    let took = start.elapsed();
    let unexpected = match &report {
        Ok(report) => judge(report, litmus, case.expected),
        Err(error) => vec![error.to_string()],
    };
    CaseResult { report, unexpected, took }
}

/// What is not as expected.
fn judge(report: &Report, litmus: &Litmus, expected: Expected) -> Vec<String> {
    if let Some(bound) = report.bound {
        return vec![format!("inconclusive: {bound}")];
    }
    let violated = report.counterexample.as_ref().map(|found| found.violation.property);
    match (expected, violated) {
        (Expected::Holds, None) => {}
        (Expected::Holds, Some(property)) => return vec![format!("violates {property}")],
        (Expected::Violates(property), None) => {
            return vec![format!("holds, and was to violate {property}")];
        }
        (Expected::Violates(wanted), Some(property)) if wanted != property => {
            return vec![format!("violates {property}, and was to violate {}", wanted.number())];
        }
        (Expected::Violates(_), Some(_)) => return Vec::new(),
    }
    let missed = litmus.forbid.iter().filter(|property| !report.exercised.has(**property));
    let mut unexpected: Vec<String> = missed
        .map(|property| {
            format!(
                "{} was not exercised: it never happened that {}",
                property.number(),
                property.twin()
            )
        })
        .collect();
    for (observation, observed) in litmus.observations.iter().zip(&report.observed) {
        match (observation.expect, observed.made) {
            (Expect::Never, 0) => {}
            (Expect::Never, n) => {
                unexpected.push(format!("`{}` was observed at {n} ends", observation.name));
            }
            (Expect::Sometimes, 0) => {
                unexpected.push(format!("`{}` was never observed", observation.name));
            }
            (Expect::Sometimes, _) => {}
        }
    }
    unexpected
}

/// A litmus test that was compiled.
#[derive(Clone, Debug)]
pub struct Test {
    /// The scenario's name.
    pub name: String,
    /// What runs.
    pub program: Program,
    /// What is expected.
    pub litmus: Litmus,
}

/// Runs every case of `tests`, `options.workers` of them side by side, in the order of the tests.
pub fn run_all(
    tests: &[Test],
    options: &Options<'_>,
    done: &(dyn Fn(&Test, &Case) + Sync),
) -> Result<Vec<(String, Case, CaseResult)>, CheckError> {
    let all: Vec<(&Test, Case)> = tests
        .iter()
        .flat_map(|test| cases(&test.litmus).into_iter().map(move |c| (test, c)))
        .collect();
    let pool = rayon::ThreadPoolBuilder::new().num_threads(options.workers).build();
    let pool = pool.map_err(|error| CheckError::Workers(error.to_string()))?;
    let alone = Options { workers: 1, ..options.clone() };
    Ok(pool.install(|| {
        let verdict = |(test, case): (&Test, Case)| {
            let verdict = run(&test.program, &test.litmus, &case, &alone);
            done(test, &case);
            (test.name.clone(), case, verdict)
        };
        // One at a time: some take as long as all others together.
        all.into_par_iter().with_max_len(1).map(verdict).collect()
    }))
}

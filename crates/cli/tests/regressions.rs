//! Scenarios that once differed between a real kernel and the model (`tests/regressions/*.kdl`).
//!
//! In the model each has to run on the newest row; older kernels may refuse a call. On this kernel,
//! if it may be watched, each has to be exact.
#![allow(clippy::unwrap_used)]

use assert_cmd::Command;
use needless_live::{State, doctor};
use needless_model::kernels::KernelRow;
use needless_model::program::Program;
use needless_model::sim::{self, SimError, SimOptions};
use needless_scenario::{Settings, compile, load};
use needless_testing::{each, turn};
use serde_json::Value;
use std::path::{Path, PathBuf};

fn scenarios() -> Vec<PathBuf> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/regressions");
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let kdl = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "kdl");
    let mut scenarios: Vec<PathBuf> = entries.filter(kdl).collect();
    scenarios.sort();
    assert!(!scenarios.is_empty(), "{folder} holds scenarios");
    scenarios
}

fn program(path: &Path) -> Program {
    let source = load(path.to_str().unwrap()).unwrap();
    compile(&source, &Settings::default())
        .unwrap_or_else(|error| panic!("{:?}", miette::Report::new(error)))
}

#[test]
fn the_model_runs_them() {
    // In parallel with the other test, it would take the CPUs that are watched there.
    let _turn = turn();
    each(&scenarios(), |path| {
        let program = program(path);
        let rows = KernelRow::all();
        let newest = rows.iter().map(|row| row.release).max();
        for row in &rows {
            let options = SimOptions { paranoid: true, ..SimOptions::default() };
            let run = sim::run(&program, row, &options);
            let refused = match run {
                Err(SimError::Call { .. }) => Some(row.release) < newest,
                // Rows before 6.8 have no large folios by size.
                Err(SimError::Missing { .. }) => row.release < (6, 8),
                _ => false,
            };
            assert!(run.is_ok() || refused, "{} on {}: {run:?}", path.to_str().unwrap(), row.name);
        }
    });
}

#[test]
fn this_kernel_does_what_the_model_says() {
    if doctor().iter().any(|check| check.state == State::Missing) {
        needless_testing::skip!("`needless doctor` says what is missing");
    }
    let _turn = turn();
    let mut agree = Command::cargo_bin("needless").unwrap();
    agree.args(["agree", "-t", "live", "--format", "json"]).args(scenarios());
    let output = agree.output().unwrap();
    let document: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)));
    let all = &document["targets"][0]["groups"]["all"];
    let of = |name: &str| all[name].as_u64().unwrap();
    assert_eq!(of("run") + of("not_applicable"), scenarios().len() as u64, "{document:#}");
    assert_eq!(of("differing"), 0, "{document:#}");
    // A third CPU or soft-dirty bits may be lacking. Most scenarios can run all the same.
    assert!(of("not_applicable") * 4 < of("run"), "{document:#}");
    let undecided = document["targets"][0]["scenarios"].as_array().unwrap().iter();
    let undecided = undecided.filter(|scenario| scenario["standing"] == "undecided");
    let undecided = undecided.filter_map(|scenario| {
        Some(format!("{}: {}", scenario["scenario"].as_str()?, scenario["reason"].as_str()?))
    });
    let undecided: Vec<String> = undecided.collect();
    assert_eq!(of("undecided"), undecided.len() as u64, "{document:#}");
    // A few are disturbed each time on a busy machine. With more of them, the result is no test.
    if undecided.len() as u64 * 20 >= of("run") {
        needless_testing::skip!("{}", undecided.join("; "));
    }
}

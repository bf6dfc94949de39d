//! Scenarios that once differed between a real kernel and the model (`tests/regressions/*.kdl`).
//!
//! In the model each has to run on every row that has its operations. On this kernel, where it may
//! be looked at, each has to be exact.
#![allow(clippy::unwrap_used)]

use assert_cmd::Command;
use needless_live::{State, doctor};
use needless_model::kernels::KernelRow;
use needless_model::policy::{MoveRange, Populate};
use needless_model::program::Program;
use needless_model::sim::{self, SimOptions};
use needless_scenario::{Settings, compile, load};
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

fn program(path: &Path) -> (String, Program) {
    let source = load(path.to_str().unwrap()).unwrap();
    let program = compile(&source, &Settings::default())
        .unwrap_or_else(|error| panic!("{:?}", miette::Report::new(error)));
    (source.text, program)
}

/// Whether a kernel refuses what a scenario asks for.
fn lacks(row: &KernelRow, text: &str) -> bool {
    text.contains("populate") && row.policies.populate == Populate::No
        || text.contains("\"move-several\"") && row.policies.move_range == MoveRange::OneMapping
}

#[test]
fn the_model_runs_them() {
    for path in scenarios() {
        let (text, program) = program(&path);
        for row in KernelRow::all() {
            if lacks(&row, &text) {
                continue;
            }
            let options = SimOptions { paranoid: true, ..SimOptions::default() };
            let run = sim::run(&program, &row, &options);
            assert!(run.is_ok(), "{} on {}: {run:?}", path.display(), row.name);
        }
    }
}

#[test]
fn this_kernel_does_what_the_model_says() {
    if doctor().iter().any(|check| check.state == State::Missing) {
        eprintln!("skipped: `needless doctor` says what is missing");
        return;
    }
    let mut agree = Command::cargo_bin("needless").unwrap();
    agree.args(["agree", "-t", "live"]).args(scenarios());
    let output = agree.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(!text.contains("DIFFERS"), "{text}");
    assert!(text.contains("all"), "{text}{}", String::from_utf8_lossy(&output.stderr));
}

//! A skipped test is counted as skipped: it is neither passed nor lost.
#![allow(clippy::unwrap_used)]

use needless_testing::{SKIPPED, again, skip};
use std::fs;
use std::path::Path;
use std::process::Command;

/// These functions are not tests by themselves: the next tests run them.
#[test]
#[ignore = "started by the next tests"]
fn undecided() {
    skip!("every round was disturbed\nby {}", "somebody");
}

#[test]
#[ignore = "started by the next tests"]
fn broken() {
    panic!("on purpose");
}

/// The output of `scripts/totals.sh` for what the harness said.
fn totals(said: &[u8], skipped: &Path, status: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    fs::write(&log, said).unwrap();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/totals.sh");
    let output = Command::new(script).arg(log).arg(skipped).arg(status).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn what_was_skipped_is_told_and_counted() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let run = |function| again(function).env(SKIPPED, file.path()).output().unwrap();
    let (undecided, broken) = (run("undecided"), run("broken"));
    assert!(undecided.status.success() && !broken.status.success());
    let noted = fs::read_to_string(file.path()).unwrap();
    assert!(noted.ends_with("undecided: every round was disturbed by somebody\n"), "{noted}");
    let said = [undecided.stdout, broken.stdout].concat();
    let totals = totals(&said, file.path(), "1");
    assert!(totals.starts_with("skipped: "), "{totals}");
    assert!(totals.ends_with("\n0 passed, 1 failed, 1 skipped\n"), "{totals}");
}

/// A program of tests that dies reports no result.
#[test]
fn a_failure_without_a_result_is_a_failure() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let said = b"test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 2 filtered out\n";
    assert_eq!(totals(said, file.path(), "0"), "3 passed, 0 failed, 0 skipped\n");
    assert_eq!(totals(said, file.path(), "101"), "3 passed, 1 failed, 0 skipped\n");
}

//! Results as tables, in files that others read.

use assert_cmd::Command;
use needless_tables::{key, read};
use std::fs::{self, File};
use std::path::Path;

const TARGETS: [&str; 4] = ["-t", "model:5.10", "-t", "model:6.12"];

fn needless(args: &[&str]) -> Command {
    let mut command = Command::cargo_bin("needless").unwrap();
    command.args(args);
    command
}

/// What the command prints, in a file of this name.
fn printed(args: &[&str], path: &Path) -> File {
    let output = needless(args).assert().success().get_output().clone();
    fs::write(path, output.stdout).unwrap();
    File::open(path).unwrap()
}

#[test]
fn a_comparison_is_a_table_of_rounds() {
    let folder = tempfile::tempdir().unwrap();
    let table = |format: &str| {
        let args = [&["compare", "cow-reuse", "--rounds", "3", "--format", format], &TARGETS[..]];
        read(printed(&args.concat(), &folder.path().join("rounds"))).unwrap()
    };
    let [parquet, arrow] = ["parquet", "arrow"].map(table);
    assert_eq!(parquet.num_rows(), 6, "three rounds of two targets");
    assert_eq!(parquet.columns(), arrow.columns());
    assert_eq!(parquet.schema().metadata()[key::TABLE], "rounds");
    assert!(parquet.column_by_name("needless_shootdowns").is_some());
}

#[test]
fn events_go_to_a_table_if_the_file_is_named_so() {
    let folder = tempfile::tempdir().unwrap();
    let events = |name: &str| folder.path().join(name);
    for name in ["events.jsonl", "events.parquet", "events.arrow"] {
        let path = events(name).to_str().unwrap().to_owned();
        let args = [&["compare", "cow-reuse", "--rounds", "2", "--events", &path], &TARGETS[..]];
        needless(&args.concat()).assert().success();
    }
    let lines = fs::read_to_string(events("events.jsonl")).unwrap().lines().count();
    let parquet = read(File::open(events("events.parquet")).unwrap()).unwrap();
    let arrow = read(File::open(events("events.arrow")).unwrap()).unwrap();
    assert_eq!(parquet.num_rows(), lines - 1, "one line is the header");
    assert_eq!(parquet.columns(), arrow.columns());
}

#[test]
fn what_no_file_is_named_for_is_refused() {
    let stat = needless(&["stat", "--format", "parquet", "--", "true"]).assert().code(2);
    let told = String::from_utf8_lossy(&stat.get_output().stderr).into_owned();
    assert!(told.contains("-o FILE"), "{told}");
    needless(&["run", "dirty-tracking", "--format", "arrow"]).assert().code(2);
}

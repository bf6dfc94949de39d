//! Checks that programs cost what the model says about the scenario of the same shape.
//! `needless-workload check` shows that they cost that on a kernel.
#![allow(clippy::unwrap_used)]

mod common;

use needless_model::account::Account;
use needless_model::counters::Counter;
use needless_model::kernels::KernelRow;
use needless_model::sim::{self, SimOptions};
use needless_runner::environment::series;
use needless_scenario::{Settings, compile, load};
use needless_testing::skip;
use serde_json::{Map, Value, json};
use std::process::Command;

/// What a round of a workload costs on the running kernel.
fn table(name: &str) -> Value {
    let listed = Command::new(env!("CARGO_BIN_EXE_needless-workload"))
        .args(["list", "--json"])
        .output()
        .unwrap();
    let workloads: Vec<Value> = serde_json::from_slice(&listed.stdout).unwrap();
    workloads.into_iter().find(|workload| workload["name"] == name).unwrap()["per_round"].take()
}

/// What a round of a scenario that flushes in one call only costs in the model.
fn modelled(scenario: &str, settings: &[&str], row: &str, flushes_in: &str) -> Value {
    let settings = Settings::parse(settings.iter().copied()).unwrap();
    let program = compile(&load(scenario).unwrap(), &settings).unwrap();
    let row = KernelRow::parse(row).unwrap();
    let run = sim::run(&program, &row, &SimOptions::default()).unwrap();
    let account = Account::of(&program, &run);
    let (classes, rounds) = account.typical_classes().unwrap();
    assert_eq!(rounds, account.total, "every round is the same");
    let faults: Map<String, Value> =
        classes.iter().map(|(class, count)| (class.title().to_owned(), json!(count))).collect();
    let [flushes, sent] =
        [Counter::Flushes, Counter::Shootdowns].map(|counter| account.typical(counter).unwrap());
    json!({
        "faults": faults,
        "flushes": { flushes_in: { "sent": sent, "local": flushes - sent } },
        "without_exception": 0,
    })
}

#[test]
fn page_fault3_costs_what_its_scenario_does() {
    for row in ["5.10", "6.1", "6.12", "6.18", "7.3"] {
        for (name, spinners) in
            [("page_fault3_process", "spinners=0"), ("page_fault3_thread", "spinners=1")]
        {
            let said = modelled("b_pf3_ext4", &["pages=4", spinners], row, "munmap");
            assert_eq!(said, table(name), "{name} on {row}");
        }
    }
}

/// Several tasks at once, here on the running kernel. `long::page_fault3` does this in guests.
#[test]
fn faults_of_page_fault3_are_minor_or_major_as_its_scenario_says() {
    let (major, minor) = series();
    let Ok(row) = KernelRow::parse(&format!("{major}.{minor}")) else {
        skip!("the model has no row of {major}.{minor}");
    };
    for tasks_are in ["--processes", "--threads"] {
        let program = env!("CARGO_BIN_EXE_needless-workload");
        let done = Command::new(program).args(common::page_fault3(tasks_are)).output().unwrap();
        let errors = String::from_utf8_lossy(&done.stderr);
        if errors.contains("TMPDIR") {
            skip!("{errors}");
        }
        assert!(done.status.success(), "{errors}");
        common::faults_agree(&done.stdout, &row);
    }
}

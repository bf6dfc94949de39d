//! `needless-workload page-fault3` and `khugepaged`, compared with scenarios of the same shape.
#![allow(dead_code, reason = "each test uses one of the two")]

use needless_model::account::Account;
use needless_model::counters::Counter;
use needless_model::kernels::KernelRow;
use needless_model::sim::{self, SimOptions};
use needless_scenario::{Settings, Source, compile, load};
use serde_json::Value;

/// Arguments for two tasks with 20 rounds and 4 pages each.
pub fn page_fault3(tasks_are: &'static str) -> [&'static str; 9] {
    ["page-fault3", "--json", "--tasks", "2", "--pages", "4", "--rounds", "20", tasks_are]
}

/// Checks that each task's minor and major faults are those of as many rounds of the scenario on a
/// row.
///
/// # Panics
/// Panics if they are not.
pub fn faults_agree(printed: &[u8], row: &KernelRow) {
    let settings = Settings::parse(["pages=4", "spinners=0"]).unwrap();
    let program = compile(&load("b_pf3_ext4").unwrap(), &settings).unwrap();
    let run = sim::run(&program, row, &SimOptions::default()).unwrap();
    let account = Account::of(&program, &run);
    let report: Value = serde_json::from_slice(printed).unwrap();
    let tasks = report["tasks"].as_array().unwrap();
    assert_eq!(tasks.len(), 2, "{report}");
    let kinds = [("minor_faults", Counter::MinorFaults), ("major_faults", Counter::MajorFaults)];
    for (kind, counter) in kinds {
        let said = 20 * account.typical(counter).unwrap();
        assert!(tasks.iter().all(|task| task[kind] == said), "{kind}: {said}, {report}");
        assert_eq!(report["total"][kind], 2 * said, "{kind}: {report}");
    }
}

/// Arguments for all cases of khugepaged.
pub const KHUGEPAGED: [&str; 3] = ["khugepaged", "--hurry", "--json"];

/// Checks that a huge page was made exactly where the case's scenario has one on a row. Returns how
/// many cases were tried.
///
/// # Panics
/// Panics if the two differ.
pub fn khugepaged_agrees(printed: &[u8], row: &KernelRow) -> usize {
    let outcomes: Vec<Value> = serde_json::from_slice(printed).unwrap();
    let tried = outcomes.iter().filter(|outcome| !outcome["huge"].is_null());
    tried
        .map(|outcome| {
            let text = outcome["scenario"].as_str().unwrap();
            let program = compile(&Source::new("case", text), &Settings::default()).unwrap();
            let run = sim::run(&program, row, &SimOptions::default()).unwrap();
            let huge = run.final_pages.contains_key("AnonHugePages");
            assert_eq!(outcome["huge"], huge, "{}: {text}", outcome["name"]);
        })
        .count()
}

//! What khugepaged makes huge pages of here, against what the model says. `long::khugepaged` does
//! this in guests.
#![allow(clippy::unwrap_used)]

mod common;

use needless_model::kernels::KernelRow;
use needless_runner::environment::series;
use needless_testing::{skip, turn};
use std::process::Command;

#[test]
fn khugepaged_does_what_the_model_says() {
    let (major, minor) = series();
    let Ok(row) = KernelRow::parse(&format!("{major}.{minor}")) else {
        skip!("the model has no row of {major}.{minor}");
    };
    let _turn = turn();
    let program = env!("CARGO_BIN_EXE_needless-workload");
    let done = Command::new(program).args(common::KHUGEPAGED).output().unwrap();
    let errors = String::from_utf8_lossy(&done.stderr);
    if errors.contains("this needs") || errors.contains("did not come by") {
        skip!("{errors}");
    }
    assert!(done.status.success(), "{errors}");
    let tried = common::khugepaged_agrees(&done.stdout, &row);
    assert!(tried >= 11, "of 14 cases {tried} were tried: three need swap space");
}

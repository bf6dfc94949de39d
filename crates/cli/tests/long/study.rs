//! Studies on booted kernels.

use assert_cmd::Command;
use needless_testing::skip;
use serde_json::Value;

/// Every kernel that `cow-reuse` names counts what it must, and equals its model row in every
/// round.
#[test]
fn cow_reuse_on_every_kernel() {
    if std::env::var_os("NEEDLESS_NO_KERNELS").is_some() {
        skip!("NEEDLESS_NO_KERNELS is set");
    }
    let mut study = Command::cargo_bin("needless").unwrap();
    study.args(["study", "cow-reuse", "-t", "kernel", "--format", "json"]);
    let output = study.output().unwrap();
    let document: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)));
    let parts = document["parts"].as_array().unwrap().iter();
    let runs = parts.flat_map(|part| part["runs"].as_array().unwrap());
    let targets = runs.flat_map(|run| run["targets"].as_array().unwrap());
    let kernels = targets.filter(|target| target["target"].as_str().unwrap().starts_with("kernel"));
    let kernels: Vec<&Value> = kernels.collect();
    assert!(kernels.len() >= 15);
    for kernel in &kernels {
        assert_ne!(kernel["outcome"]["standing"], "does_not", "{kernel:#}");
    }
    if let Some(kernel) = kernels.iter().find(|kernel| kernel["outcome"]["standing"] != "holds") {
        skip!("{}: {}", kernel["target"], kernel["outcome"]["reason"]);
    }
    assert_eq!(output.status.code(), Some(0));
}

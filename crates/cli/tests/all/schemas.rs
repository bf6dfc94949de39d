//! Every JSON document follows the schema that is published for it.

use assert_cmd::Command;
use serde_json::Value;

/// How the output of a command violates the schema.
fn wrong(schema: &str, args: &[&str], status: i32) -> Vec<String> {
    let mut command = Command::cargo_bin("needless").unwrap();
    command.args(args).args(["--format", "json"]).env("LC_ALL", "C.UTF-8");
    // Without an archive its contents are unknown, with the reason.
    command.env("XDG_CACHE_HOME", env!("CARGO_TARGET_TMPDIR")).env("PATH", "");
    let output = command.assert().code(status).get_output().clone();
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let validator = jsonschema::validator_for(&serde_json::from_str(schema).unwrap()).unwrap();
    assert!(!validator.is_valid(&serde_json::json!({})), "a schema that refuses something");
    let wrong = validator.iter_errors(&document);
    wrong.map(|error| format!("{}: {error}", error.instance_path())).collect()
}

macro_rules! schema {
    ($name:literal) => {
        include_str!(concat!("../../../../docs/schema/", $name, ".schema.json"))
    };
}

#[test]
fn rounds_are_explained_as_published() {
    for scenario in
        ["cow-reuse", "a_pageout_zero", "z_mremap_16", "z_munmap_1_lazy", "track-soft-dirty"]
    {
        for target in ["model:5.10", "model:7.3"] {
            let args = ["explain", scenario, "-t", target];
            assert_eq!(wrong(schema!("explain"), &args, 0), [""; 0], "{args:?}");
        }
    }
}

#[test]
fn a_comparison_is_as_published() {
    let args = ["compare", "cow-reuse", "-t", "model:5.10", "-t", "model:6.12"];
    assert_eq!(wrong(schema!("compare"), &args, 0), [""; 0]);
    assert_eq!(wrong(schema!("compare"), &["run", "cow-reuse", "-t", "model:6.12"], 0), [""; 0]);
}

#[test]
fn listings_are_as_published() {
    assert_eq!(wrong(schema!("policies"), &["policies"], 0), [""; 0]);
    assert_eq!(wrong(schema!("scenarios"), &["scenario", "list"], 0), [""; 0]);
    assert_eq!(wrong(schema!("doctor"), &["doctor"], 0), [""; 0]);
    assert_eq!(wrong(schema!("study"), &["study"], 0), [""; 0]);
}

#[test]
fn studies_are_as_published() {
    // Parts that are left out have reasons; the others have figures.
    let args = ["study", "cow-reuse", "-t", "model"];
    assert_eq!(wrong(schema!("study"), &args, 0), [""; 0]);
    let args = ["study", "cow-reuse", "--part", "redundant", "-t", "check"];
    assert_eq!(wrong(schema!("study"), &args, 0), [""; 0]);
}

#[test]
fn tables_of_studies_are_as_published() {
    let args = ["run", "dirty-tracking", "-t", "model"];
    assert_eq!(wrong(schema!("study"), &args, 0), [""; 0]);
}

#[test]
fn saved_results_are_compared_as_published() {
    let saved = |name: &str, settings: &[&str]| {
        let path = format!("{}/{name}.json", env!("CARGO_TARGET_TMPDIR"));
        let mut command = Command::cargo_bin("needless").unwrap();
        command.args(["run", "wp-populate", "-t", "model:6.12", "--format", "json"]);
        let output = command.args(settings).assert().success().get_output().clone();
        std::fs::write(&path, output.stdout).unwrap();
        path
    };
    let (first, second) = (saved("first", &[]), saved("second", &["--set", "thp=1"]));
    let args = ["compare", &first, &second];
    assert_eq!(wrong(schema!("differences"), &args, 0), [""; 0]);
    let mut command = Command::cargo_bin("needless").unwrap();
    let output = command.args(args).assert().success().get_output().clone();
    let text = String::from_utf8(output.stdout).unwrap();
    let at = |what: &str| text.find(what).unwrap_or_else(|| panic!("no {what} in {text}"));
    assert!(at("parameter thp") < at("minor_faults"), "{text}");
    let mut command = Command::cargo_bin("needless").unwrap();
    let output =
        command.args(["compare", &first, "/dev/null"]).assert().code(2).get_output().clone();
    assert!(String::from_utf8(output.stderr).unwrap().contains("/dev/null"));
}

#[test]
fn kernels_are_listed_as_published() {
    let manifest = |name: &str, hashes: &str| {
        format!(
            r#"{{"name":"{name}","release":"{name}.1","modules":["zram.ko"],
            "packages":[{{"name":"linux","version":"1"}}]{hashes}}}"#
        )
    };
    let hashes = format!(r#","hashes":{{"vmlinuz":"{}"}}"#, "0".repeat(32));
    for (name, hashes) in [("6.12", hashes.as_str()), ("6.1", "")] {
        let folder = format!("{}/needless/kernels/{name}", env!("CARGO_TARGET_TMPDIR"));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(format!("{folder}/manifest.json"), manifest(name, hashes)).unwrap();
    }
    assert_eq!(wrong(schema!("kernels"), &["kernels", "list"], 0), [""; 0]);
}

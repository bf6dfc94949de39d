//! Two stock kernels, booted, against the model: scenarios that once differed on real kernels, and
//! 50 random scenarios. `NEEDLESS_NO_KERNELS=1` skips this where there is no emulator, or no
//! network to fetch kernels from.
#![allow(clippy::unwrap_used)]

use assert_cmd::Command;
use needless_testing::skip;
use serde_json::Value;
use std::fs;

const KERNELS: [&str; 2] = ["kernel:6.1", "kernel:7.3"];

#[test]
fn two_real_kernels_do_what_the_model_says() {
    if std::env::var_os("NEEDLESS_NO_KERNELS").is_some() {
        skip!("NEEDLESS_NO_KERNELS is set");
    }
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/regressions");
    let regressions = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut agree = Command::cargo_bin("needless").unwrap();
    agree.args(["agree", "--format", "json", "--random", "50", "--seed", "1", "cow-reuse"]);
    agree.args(KERNELS.iter().flat_map(|kernel| ["-t", kernel])).args(regressions);
    let output = agree.output().unwrap();
    let document: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)));
    let targets = document["targets"].as_array().unwrap();
    assert_eq!(targets.len(), KERNELS.len());
    for target in targets {
        let all = &target["groups"]["all"];
        let of = |name: &str| all[name].as_u64().unwrap();
        assert!(of("run") > 50);
        assert_eq!(of("differing"), 0, "{}", differing(target));
        assert_eq!(of("exact") + of("undecided"), of("run"), "{all:#}");
        // Some scenarios need newer kernels or more CPUs.
        assert!(of("not_applicable") * 2 < of("run"), "{all:#}");
        // A few stay undecided, on a quiet machine too: `make agree` says how many. With more of
        // them, the result is no test. Scenarios that both refuse do not count here: no round of
        // them could be disturbed.
        let reasons = undecided(target);
        let refused = reasons.iter().filter(|why| why.starts_with("neither can run it")).count();
        let left = reasons.len() - refused;
        if left as u64 * 20 >= of("run") {
            let reasons: std::collections::BTreeSet<_> = reasons.into_iter().collect();
            let reasons = reasons.into_iter().collect::<Vec<_>>().join("; ");
            skip!("{}: {left} of {} undecided: {reasons}", target["target"], of("run"));
        }
    }
}

/// The scenarios that differ, as a whole: what a machine elsewhere found cannot be looked at again.
fn differing(target: &Value) -> String {
    let scenarios = target["scenarios"].as_array().unwrap().iter();
    let those = scenarios.filter(|scenario| scenario["standing"] == "differing");
    those.map(|scenario| format!("{}: {scenario:#}\n", target["target"])).collect()
}

/// Why scenarios are undecided, one after the other.
fn undecided(target: &Value) -> Vec<&str> {
    let scenarios = target["scenarios"].as_array().unwrap().iter();
    let undecided = scenarios.filter(|scenario| scenario["standing"] == "undecided");
    undecided.map(|scenario| scenario["reason"].as_str().unwrap_or("no reason")).collect()
}

//! Two stock kernels, booted, against the model: what real kernels once did otherwise, and 50
//! random scenarios. `NEEDLESS_NO_KERNELS=1` leaves it out, where there is no emulator or no network
//! to fetch kernels by.
#![allow(clippy::unwrap_used)]

use assert_cmd::Command;
use serde_json::Value;

const KERNELS: [&str; 2] = ["kernel:6.1", "kernel:7.3"];

#[test]
fn two_real_kernels_do_what_the_model_says() {
    if std::env::var_os("NEEDLESS_NO_KERNELS").is_some() {
        eprintln!("skipped: NEEDLESS_NO_KERNELS is set");
        return;
    }
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/regressions");
    let regressions = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
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
        assert_eq!(of("differing"), 0, "{target:#}");
        // How many stay undecided depends on how busy the machine is; `make agree` tells it.
        assert!(of("exact") * 2 > of("run"), "{target:#}");
    }
}

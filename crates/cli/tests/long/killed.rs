//! `needless agree`, ended by a signal.

use needless_testing::{until, until_true};
use std::fs;
use std::process::{self, Stdio};
use std::time::Duration;

/// The processes with this word in their environment: all that were started, even indirectly.
fn processes_with(word: &str) -> Vec<u32> {
    let all = fs::read_dir("/proc").unwrap().flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let has = |pid: &u32| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        String::from_utf8_lossy(&environment).contains(word)
    };
    pids.filter(has).collect()
}

/// Swap devices, mounts and zram devices, by name.
fn traces() -> Vec<String> {
    let files = ["/proc/swaps", "/proc/mounts"].map(|path| fs::read_to_string(path).unwrap());
    let lines = files.iter().flat_map(|text| text.lines());
    let mut found: Vec<String> = lines.map(|line| line.split(' ').take(2).collect()).collect();
    let blocks = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    found.extend(blocks.map(|entry| entry.file_name().to_string_lossy().into_owned()));
    found.sort();
    found
}

/// Ends `agree` while it runs scenarios here, and while a kernel boots or runs them. The signal
/// goes to `agree` alone.
#[test]
fn ending_it_leaves_nothing_behind() {
    if std::env::var_os("NEEDLESS_NO_KERNELS").is_some() {
        needless_testing::skip!("NEEDLESS_NO_KERNELS is set");
    }
    let before = traces();
    for (target, seconds, signal, code) in [
        ("live", 3, "KILL", None),
        ("live", 3, "TERM", Some(143)),
        ("kernel:6.1", 3, "KILL", None),
        ("kernel:6.1", 20, "KILL", None),
        ("kernel:6.1", 20, "TERM", Some(143)),
    ] {
        let word = format!("NEEDLESS_TEST=ended-{}-{seconds}-{signal}", target.replace(':', "-"));
        let (name, value) = word.split_once('=').unwrap();
        let mut agree = process::Command::new("env")
            .arg("--default-signal=TERM")
            .arg(assert_cmd::cargo::cargo_bin!("needless"))
            .args(["agree", "--random", "5000", "-t", target])
            .env(name, value)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_secs(seconds));
        let kill =
            process::Command::new("kill").args(["-s", signal, &agree.id().to_string()]).status();
        assert!(kill.unwrap().success());
        let status = until("the end of agree", || agree.try_wait().unwrap());
        assert_eq!(status.code(), code, "{target}: {signal}");
        until_true(format!("{target}: nothing but {before:?}"), || {
            processes_with(&word).is_empty() && traces() == before
        });
    }
}

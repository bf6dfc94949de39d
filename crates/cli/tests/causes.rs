//! Errors whose cause lies outside: each names its cause, with a remedy. Root runs these, for live
//! runs and mounts.
#![allow(clippy::unwrap_used)]

use needless_testing::turn;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The output of a shell script, with the command as `$0`, and its exit status.
fn shell(script: &str, folder: &Path) -> (i32, String) {
    let output = Command::new("sh")
        .args(["-c", script])
        .arg(assert_cmd::cargo::cargo_bin!("needless"))
        .current_dir(folder)
        .env("XDG_CACHE_HOME", folder)
        .env("LC_ALL", "C.UTF-8")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned();
    let words = text.split_whitespace().filter(|word| *word != "│");
    (output.status.code().unwrap(), words.collect::<Vec<_>>().join(" "))
}

/// An image that looks like a kernel until it runs (Documentation/arch/x86/boot.rst).
fn image() -> Vec<u8> {
    let mut image = vec![0; 1 << 16];
    let fields: [(usize, &[u8]); 4] = [
        (0x202, b"HdrS"),
        (0x206, &[0x0c, 0x02]),             // version
        (0x211, &[1]),                      // loaded high
        (0x22c, &[0xff, 0xff, 0xff, 0x7f]), // highest address of the initrd
    ];
    for (at, bytes) in fields {
        image[at..at + bytes.len()].copy_from_slice(bytes);
    }
    image
}

/// A cache with a kernel for which QEMU gets no further than to opening its files.
fn cache() -> tempfile::TempDir {
    let cache = tempfile::tempdir().unwrap();
    let folder = cache.path().join("needless/kernels/6.12");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("vmlinuz"), image()).unwrap();
    let manifest = r#"{"name":"6.12","release":"6.12.1","packages":[],"modules":[]}"#;
    fs::write(folder.join("manifest.json"), manifest).unwrap();
    cache
}

const LIVE: &str = "exec \"$0\" run cow-reuse -t live --rounds 5";
const BOOTED: &str = "exec \"$0\" run cow-reuse -t kernel:6.12 --rounds 5";
const WATCHED: &str = "exec \"$0\" stat -- true";

#[test]
fn limits_are_named() {
    let _turn = turn();
    let cache = cache();
    for (limit, run) in [
        ("ulimit -n 6", LIVE),
        ("ulimit -n 10", LIVE),
        ("ulimit -n 6", BOOTED),
        ("ulimit -n 10", BOOTED),
        ("ulimit -n 10", WATCHED),
        ("ulimit -v 400000", BOOTED),
    ] {
        let (status, message) = shell(&format!("{limit}; {run}"), cache.path());
        assert_eq!(status, 125, "{limit}; {run}: {message}");
        let name = &limit[..9];
        assert!(message.contains(name), "{limit}; {run}: {message}");
        for wrong in ["together", "make build", "scenario's fault", "kernels remove", "install it"]
        {
            assert!(!message.contains(wrong), "{limit}; {run}: {message}");
        }
    }
}

#[test]
fn a_missing_proc_is_named() {
    let _turn = turn();
    let cache = cache();
    for run in [LIVE, BOOTED, WATCHED, "exec \"$0\" doctor"] {
        let script = format!("mount -t tmpfs none /proc && {run}");
        let script = format!("exec unshare -m sh -c '{script}' \"$0\"");
        let (status, message) = shell(&script, cache.path());
        let expected = if run.contains("doctor") { 0 } else { 125 };
        assert_eq!(status, expected, "{run}: {message}");
        assert!(message.contains("/proc is not mounted"), "{run}: {message}");
        assert!(message.contains("mount -t proc proc /proc"), "{run}: {message}");
    }
}

#[test]
fn a_runner_that_is_killed_is_told_as_such() {
    let _turn = turn();
    let folder = tempfile::tempdir().unwrap();
    let beside = assert_cmd::cargo::cargo_bin!("needless").with_file_name("needless-runner");
    let runner = std::env::var_os("NEEDLESS_RUNNER").map_or(beside, PathBuf::from);
    let killed = folder.path().join("killed");
    let script = format!(
        "#!/bin/sh\n[ \"$1\" = --watch ] && exec {} \"$@\"\nkill -9 $$\n",
        runner.to_str().unwrap()
    );
    fs::write(&killed, script).unwrap();
    fs::set_permissions(&killed, fs::Permissions::from_mode(0o755)).unwrap();
    let (status, message) = shell(&format!("NEEDLESS_RUNNER=./killed {LIVE}"), folder.path());
    assert_eq!(status, 125, "{message}");
    assert!(message.contains("signal: 9") && message.contains("ended"), "{message}");
    assert!(!message.contains("together"), "{message}");
}

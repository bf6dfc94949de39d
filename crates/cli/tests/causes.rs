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

/// The rings of `stat` take more files than its other parts. Without rings it has its counters.
#[test]
fn a_limit_that_hides_events_is_named() {
    let _turn = turn();
    let folder = tempfile::tempdir().unwrap();
    for limit in ["ulimit -n 20", "ulimit -n 64"] {
        let (status, message) = shell(&format!("{limit}; {WATCHED}"), folder.path());
        assert_eq!(status, 0, "{limit}: {message}");
        assert!(message.contains("ulimit -n"), "{limit}: {message}");
        assert!(!message.contains("unmount"), "{limit}: {message}");
    }
}

const HUGE: &str = "scenario \"huge\" { machine { cpus 1; thp \"always\"; }
    thread \"main\" cpu=0 { map \"heap\" pages=1; rounds 3 { write \"heap\"; } } }";

/// What is not permitted could be permitted: the kernel has it.
#[test]
fn a_lack_of_permission_is_told_as_such() {
    let _turn = turn();
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("huge.kdl"), HUGE).unwrap();
    let namespace = "unshare -Ur";
    if !Command::new("unshare").args(["-Ur", "true"]).status().is_ok_and(|done| done.success()) {
        needless_testing::skip!("there are no user namespaces here");
    }
    let reduced = "setpriv --bounding-set=-sys_admin --inh-caps=-sys_admin";
    for (how, scenario) in [
        (namespace, "f_holes"),
        (namespace, "cow-reuse"),
        (namespace, "huge.kdl"),
        (reduced, "f_holes"),
        (reduced, "cow-reuse"),
    ] {
        let script = format!("exec {how} \"$0\" run {scenario} -t live --rounds 3");
        let (status, message) = shell(&script, folder.path());
        assert_eq!(status, 120, "{how}, {scenario}: {message}");
    }
    let (_, doctor) = shell(&format!("exec {namespace} \"$0\" doctor"), folder.path());
    assert!(doctor.contains("a user namespace of its own"), "{doctor}");
    for wrong in ["ok privilege", "this user may read events"] {
        assert!(!doctor.contains(wrong), "{doctor}");
    }
}

/// The child that makes a file system has to be waited for.
#[test]
fn an_ignored_sigchld_changes_nothing() {
    let _turn = turn();
    let folder = tempfile::tempdir().unwrap();
    let run = "exec env --ignore-signal=CHLD \"$0\" run f_holes -t live --rounds 3";
    let (status, message) = shell(run, folder.path());
    if message.contains("could not be had undisturbed") {
        needless_testing::skip!("{message}");
    }
    assert_eq!(status, 0, "{message}");
}

const BOTH: &str =
    "scenario \"both\" { machine { cpus 1; mthp \"64KiB\" \"always\"; swap \"zram\" size=\"64M\"; }
    thread \"main\" cpu=0 { map \"heap\" pages=16; rounds 3 { write \"heap\";
    madvise \"heap\" advice=\"pageout\"; read \"heap\"; } } }";

/// What the model lacks runs on a real kernel, with its figures.
#[test]
fn what_only_a_real_kernel_runs_is_shown() {
    let _turn = turn();
    if !Path::new("/sys/kernel/mm/transparent_hugepage/hugepages-64kB").exists() {
        needless_testing::skip!("this kernel has no large folios of 64 KiB");
    }
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("both.kdl"), BOTH).unwrap();
    let (status, message) = shell("exec \"$0\" run both.kdl -t live", folder.path());
    if message.contains("could not be had undisturbed") {
        needless_testing::skip!("{message}");
    }
    assert_eq!(status, 0, "{message}");
    assert!(message.contains("rounds counted of"), "{message}");
    assert!(!message.contains("a real kernel does (`-t live`"), "{message}");
}

/// The zram devices of this machine.
fn devices() -> usize {
    let blocks = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    blocks.filter(|entry| entry.file_name().to_string_lossy().starts_with("zram")).count()
}

/// The keeper writes a list of what it changes. If it cannot, it changes nothing.
#[test]
fn a_list_that_cannot_be_written_leaves_no_device() {
    let _turn = turn();
    let folder = tempfile::tempdir().unwrap();
    let before = devices();
    for bytes in [100, 250, 300, 350, 400] {
        let script =
            format!("exec prlimit --fsize={bytes} \"$0\" run cow-reuse -t live --rounds 3");
        let (status, message) = shell(&script, folder.path());
        assert_eq!(devices(), before, "{bytes}: {message}");
        if status == 0 || message.contains("could not be had undisturbed") {
            continue;
        }
        assert_eq!(status, 125, "{bytes}: {message}");
        assert!(message.contains("ulimit -f"), "{bytes}: {message}");
        assert!(!message.contains("together"), "{bytes}: {message}");
    }
}

/// The scenarios may have run for an hour.
#[test]
fn a_report_is_written_even_if_the_result_cannot_be_printed() {
    let _turn = turn();
    let folder = tempfile::tempdir().unwrap();
    for unwritable in [">&-", ">/dev/full"] {
        let script = format!(
            "exec \"$0\" agree a_dontneed_w -t live --rounds 3 --report report.md {unwritable}"
        );
        let (status, message) = shell(&script, folder.path());
        assert_eq!(status, 125, "{script}: {message}");
        let report = fs::read_to_string(folder.path().join("report.md")).unwrap();
        assert!(report.contains("# Agreement"), "{script}: {report}");
        fs::remove_file(folder.path().join("report.md")).unwrap();
    }
}

#[test]
fn an_area_where_the_runner_lies_is_named_as_such() {
    let _turn = turn();
    let folder = tempfile::tempdir().unwrap();
    let text = HUGE.replace("pages=1", "pages=1 at=\"0x400000\"").replace("thp \"always\"; ", "");
    fs::write(folder.path().join("at.kdl"), text).unwrap();
    let (status, message) = shell("exec \"$0\" run at.kdl -t live", folder.path());
    assert_eq!(status, 121, "{message}");
    assert!(message.contains("has its own memory there") && message.contains("at="), "{message}");
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

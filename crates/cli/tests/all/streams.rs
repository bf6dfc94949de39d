//! Standard input, output and error, and files: full, closed or missing. Nothing here needs the
//! running kernel.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn needless(args: &[&str]) -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("needless"));
    command.args(args).env("LC_ALL", "C.UTF-8").env_remove("COLUMNS").stdin(Stdio::null());
    command
}

fn status(output: &Output) -> i32 {
    output.status.code().unwrap()
}

fn words(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    text.split_whitespace().filter(|word| *word != "│").collect::<Vec<_>>().join(" ")
}

/// Redirections that make a shell's standard error full or closed.
const UNWRITABLE: [&str; 2] = ["2>/dev/full", "2>&-"];

#[test]
fn statuses_are_the_same_where_nobody_can_be_told() {
    for (args, expected) in [
        (&["run", "cow-reuse", "-t", "model:6.12"][..], 0),
        (&["run", "no-such-scenario", "-t", "model:6.12"], 2),
        (&["run", "cow-reuse", "-t", "model:6.13"], 2),
        (&["no-such-verb"], 2),
        (&["run"], 2),
        (&["check", "gather-early-free", "-t", "model:6.12,mutant=freed-unflushed"], 1),
        (&["check", "gather-early-free", "-t", "model:6.12", "--max-states", "1"], 3),
        (&["scenario", "check", "cow-reuse"], 0),
        (&["kernels", "remove", "6.99"], 125),
    ] {
        for unwritable in UNWRITABLE {
            let script = format!("exec \"$0\" \"$@\" {unwritable}");
            let mut shell = Command::new("sh");
            shell.args(["-c", &script]).arg(assert_cmd::cargo::cargo_bin!("needless")).args(args);
            let output = shell.env("LC_ALL", "C.UTF-8").output().unwrap();
            assert_eq!(status(&output), expected, "{args:?} {unwritable}");
        }
    }
}

#[test]
fn a_full_standard_output_is_told() {
    let full = || File::options().write(true).open("/dev/full").unwrap();
    let output = needless(&["policies"]).stdout(full()).output().unwrap();
    assert_eq!(status(&output), 125);
    assert!(words(&output.stderr).contains("cannot write to standard output"));
    let output = needless(&["policies"]).stdout(full()).stderr(full()).output().unwrap();
    assert_eq!(status(&output), 125);
}

#[test]
fn files_are_written_even_if_the_result_cannot_be_printed() {
    let directory = tempfile::tempdir().unwrap();
    for (at, verb) in ["run", "compare"].into_iter().enumerate() {
        for unwritable in [">&-", ">/dev/full"] {
            let script = format!(
                "exec \"$0\" {verb} cow-reuse -t model:6.12 --rounds 3 --events events-{at} {unwritable}"
            );
            let output = shell(directory.path(), &script);
            assert_eq!(status(&output), 125, "{script}: {}", words(&output.stderr));
            let events = directory.path().join(format!("events-{at}"));
            assert!(fs::metadata(&events).unwrap().len() > 0, "{script}");
            fs::remove_file(events).unwrap();
        }
    }
}

#[test]
fn a_report_that_goes_to_standard_error_and_cannot_is_a_failure() {
    let full = File::options().write(true).open("/dev/full").unwrap();
    let output = needless(&["stat", "--", "true"]).stderr(full).output().unwrap();
    assert_eq!(status(&output), 125);
}

/// A run would take long, and none is begun: the scenario has a billion rounds.
#[test]
fn places_are_tried_before_anything_runs() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    fs::write(&file, "").unwrap();
    let file = file.to_str().unwrap();
    let nowhere = format!("{file}/nowhere");
    let long = ["cow-reuse", "--rounds", "1000000000"];
    for (args, place) in [
        (&["agree", "-t", "live", "--report", "/no/such/folder/report.md"][..], "report.md"),
        (&["agree", "-t", "live", "--report", "/proc"], "/proc"),
        (&["agree", "-t", "live", "--keep", "/proc/no/folder"], "/proc/no/folder"),
        (&["agree", "-t", "live", "--keep", file], file),
        (&["agree", "-t", "live", "--keep", &nowhere], &nowhere),
        (&["run", "-t", "model:6.12", "--events", "/no/such/folder/events"], "events"),
        (&["compare", "-t", "model:6.12", "--events", "/proc"], "/proc"),
    ] {
        let output = needless(&[args, &long].concat()).output().unwrap();
        assert_eq!(status(&output), 125, "{args:?}");
        let message = words(&output.stderr).replace(' ', "");
        assert!(message.contains("cannotwrite") && message.contains(place), "{args:?}: {message}");
        assert!(output.stdout.is_empty());
    }
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "nothing is left behind");
}

const SCENARIO: &str = "scenario \"mine\" { machine { cpus 1; }
    thread \"t\" cpu=0 { map \"heap\" pages=1; rounds 1 { write \"heap\"; } } }";

fn with_input(args: &[&str], input: &str) -> Output {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("input");
    fs::write(&path, input).unwrap();
    needless(args).stdin(File::open(path).unwrap()).output().unwrap()
}

#[test]
fn a_dash_is_standard_input() {
    for args in [
        &["run", "-", "-t", "model:6.12"][..],
        &["compare", "-", "-t", "model:6.1", "-t", "model:6.12"],
        &["explain", "-", "-t", "model:6.12"],
        &["check", "-", "-t", "model:6.12"],
        &["scenario", "check", "-"],
        &["scenario", "show", "-"],
        &["scenario", "fmt", "-"],
    ] {
        let output = with_input(args, SCENARIO);
        assert_eq!(status(&output), 0, "{args:?}: {}", words(&output.stderr));
        assert!(!output.stdout.is_empty());
        let output = with_input(args, &SCENARIO.replace("map ", "mapp "));
        // Formatting and showing take any text that is KDL.
        if !matches!(args[1], "show" | "fmt") {
            assert_eq!(status(&output), 2, "{args:?}");
            assert!(words(&output.stderr).contains("standard input"), "{args:?}");
        }
    }
}

#[test]
fn a_dash_is_no_file_to_write() {
    let output = with_input(&["scenario", "fmt", "--write", "-"], SCENARIO);
    assert_eq!(status(&output), 2);
    assert!(!Path::new("-").exists());
}

#[test]
fn input_without_end_is_refused() {
    let endless = File::open("/dev/zero").unwrap();
    let output = needless(&["scenario", "check", "-"]).stdin(endless).output().unwrap();
    assert_eq!(status(&output), 2, "{}", words(&output.stderr));
    assert!(words(&output.stderr).contains("standard input"));
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

/// Runs a shell script in a folder of its own, with the command as `$0`.
fn shell(folder: &Path, script: &str) -> Output {
    let needless = assert_cmd::cargo::cargo_bin!("needless");
    let mut shell = Command::new("sh");
    shell.args(["-c", script]).arg(needless).current_dir(folder).env("LC_ALL", "C.UTF-8");
    shell.output().unwrap()
}

#[test]
fn the_umask_holds_where_there_are_no_addresses() {
    let directory = tempfile::tempdir().unwrap();
    let folder = directory.path();
    shell(folder, "umask 022; \"$0\" run cow-reuse -t model:6.12 --events events");
    assert_eq!(mode(&folder.join("events")), 0o600, "events hold addresses");
    shell(folder, "umask 027; mkdir man; \"$0\" man man");
    assert_eq!(mode(&folder.join("man/needless-run.1")), 0o640);
    // Code that no file holds, such as the vDSO, is named by addresses.
    shell(folder, "umask 027; \"$0\" stat --format json -o report -- true");
    let report = fs::read_to_string(folder.join("report")).unwrap();
    // The environment has the processor's microcode as such a number, so only the runs are
    // searched.
    let runs = serde_json::from_str::<serde_json::Value>(&report).unwrap()["runs"].to_string();
    let expected = if runs.contains("\"0x") { 0o600 } else { 0o640 };
    assert_eq!(mode(&folder.join("report")), expected, "{report}");
    shell(
        folder,
        "\"$0\" scenario show cow-reuse | sed 's/    /  /' > mine.kdl; chmod 644 mine.kdl",
    );
    shell(folder, "umask 077; \"$0\" scenario fmt --write mine.kdl");
    assert_eq!(mode(&folder.join("mine.kdl")), 0o644, "a file keeps its mode");
}

/// The disk is ours alone and vanishes with the namespace that it is mounted in.
#[test]
fn a_full_disk_is_named_with_the_file() {
    if !rustix::process::geteuid().is_root() {
        needless_testing::skip!("root mounts a disk");
    }
    let directory = tempfile::tempdir().unwrap();
    fs::create_dir(directory.path().join("small")).unwrap();
    let script = "mount -t tmpfs -o size=64k none small || exit 99
        \"$0\" run cow-reuse -t model:6.12 --rounds 5000 --events small/x
        status=$?; ls small; exit $status";
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", script]).arg(assert_cmd::cargo::cargo_bin!("needless"));
    let output = command.current_dir(directory.path()).output().unwrap();
    let told = words(&output.stderr);
    assert_eq!(status(&output), 125, "{told}");
    assert!(told.contains("small/x") && told.contains("No space left on device"), "{told}");
    assert!(!told.contains("--max-memory"), "{told}");
    assert_eq!(words(&output.stdout), "", "nothing is left");
}

#[test]
fn a_write_that_fails_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let output = shell(
        directory.path(),
        "ulimit -f 1; exec \"$0\" run cow-reuse -t model:6.12 --events events",
    );
    assert_eq!(status(&output), 125, "{}", words(&output.stderr));
    assert!(words(&output.stderr).contains("too large"), "{}", words(&output.stderr));
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
}

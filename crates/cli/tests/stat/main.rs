//! `needless stat`: its statuses, its signals, where its report goes, and that nothing of it stays.
//! Root runs these, because they watch the running kernel.
#![allow(clippy::unwrap_used)]

mod cases;
mod formats;
mod names;
#[path = "../../../report/tests/page/mod.rs"]
mod page;
mod signals;

use rustix::thread::{CpuSet, sched_setaffinity};
use serde_json::Value;
use signals::{Started, alive, send};
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The longest time that a test waits, however busy the machine is.
const PATIENCE: Duration = Duration::from_secs(120);

fn binary() -> PathBuf {
    assert_cmd::cargo::cargo_bin("needless")
}

/// `needless stat` with signals as a terminal's shell leaves them. The shell of a background job
/// ignores `SIGINT`, and so do tests in such a job.
fn stat(args: &[&str]) -> Command {
    let mut command = Command::new("env");
    command.args(["--default-signal=INT,QUIT,HUP"]).arg(binary()).arg("stat").args(args);
    command.env("LC_ALL", "C.UTF-8").env("COLUMNS", "100").stdin(Stdio::null());
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// The exit status, standard output and standard error of `needless stat`.
fn ran(args: &[&str]) -> (i32, String, String) {
    told(&stat(args).output().unwrap())
}

fn told(output: &Output) -> (i32, String, String) {
    (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
}

/// The words of a text whose lines were wrapped.
fn words(text: &str) -> String {
    text.split_whitespace().filter(|word| *word != "│").collect::<Vec<_>>().join(" ")
}

/// The JSON that `needless stat` writes about a command, and the exit status.
fn json(options: &[&str], command: &[&str]) -> (i32, Value) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("report");
    let path = path.to_str().unwrap();
    let args = [options, &["--format", "json", "-o", path, "--"], command].concat();
    let (status, _, stderr) = ran(&args);
    let document = fs::read(path).unwrap_or_else(|error| panic!("{error}: {stderr}"));
    (status, serde_json::from_slice(&document).unwrap())
}

fn wrong(document: &Value) -> Vec<String> {
    let schema = include_str!("../../../../docs/schema/stat.schema.json");
    let validator = jsonschema::validator_for(&serde_json::from_str(schema).unwrap()).unwrap();
    let wrong = validator.iter_errors(document);
    wrong.map(|error| format!("{}: {error}", error.instance_path())).collect()
}

#[test]
fn the_status_is_the_commands() {
    for (script, status) in [("exit 7", 7), ("true", 0), ("kill -KILL $$", 137)] {
        let (given, _, stderr) = ran(&["--", "sh", "-c", script]);
        assert_eq!(given, status, "{script}: {stderr}");
        assert!(stderr.contains("elapsed"), "{script}: {stderr}");
        assert_eq!(stderr.contains("exit status"), status != 0, "{script}: {stderr}");
    }
}

#[test]
fn what_cannot_be_executed_is_told() {
    for (program, status, why) in [
        ("/no/such/program", 127, "No such file"),
        ("no-such-program", 127, "No such file"),
        ("/etc/passwd", 126, "Permission denied"),
        ("/", 126, "Permission denied"),
    ] {
        let (given, stdout, stderr) = ran(&["--", program]);
        assert_eq!(given, status, "{program}: {stderr}");
        assert_eq!(stdout, "");
        let stderr = words(&stderr);
        assert!(stderr.contains(&format!("cannot execute `{program}`: {why}")), "{stderr}");
        assert!(!stderr.contains("elapsed"), "no report of what did not run: {stderr}");
    }
}

#[test]
fn what_is_asked_wrongly_ends_with_status_2() {
    // Processes have numbers up to 2^22.
    for (args, part) in [
        (&[][..], "<COMMAND>"),
        (&["-p", "1", "-a"], "cannot be used with"),
        (&["-p", "4194999"], "process 4194999"),
        (&["-p", "0"], "0"),
        (&["--buffer", "3", "--", "true"], "power of two"),
        (&["--buffer", "2048", "--", "true"], "power of two"),
        (&["-r", "0", "--", "true"], "0"),
        (&["-r", "2", "-a"], "<COMMAND>"),
        (&["--victims", "0-", "--", "true"], "a list of CPUs"),
        (&["--victims", "60000", "--", "true"], "CPU 60000 is not online"),
        (&["--victims", "0", "-p", "1"], "cannot be used with"),
        (&["--fail-on", "interrupt", "--", "true"], "--victims"),
        (&["--victims", "0", "--fail-on", "faults", "--", "true"], "interrupt=CAUSE"),
        (&["--victims", "0", "--fail-on", "interrupt=ipi", "--", "true"], "tlb-flush"),
    ] {
        let (status, stdout, stderr) = ran(args);
        assert_eq!(status, 2, "{args:?}: {stderr}");
        assert!(words(&stderr).contains(part) && stdout.is_empty(), "{args:?}: {stderr}");
    }
}

#[test]
fn the_output_is_the_commands() {
    let (status, stdout, stderr) = ran(&["--", "sh", "-c", "echo out; echo err >&2"]);
    assert_eq!((status, &*stdout), (0, "out\n"));
    assert!(stderr.starts_with("err\n\nsh -c echo out; echo err >&2: "), "{stderr}");
    for part in ["first touch", "the kernel counted", "watching: ", "none lost"] {
        assert!(stderr.contains(part), "no {part}: {stderr}");
    }
    assert!(!stderr.contains('\u{1b}'), "no colour in a pipe: {stderr}");
}

#[test]
fn the_input_is_the_commands() {
    let mut cat = Started::new(stat(&["--", "cat"]).stdin(Stdio::piped()));
    Write::write_all(&mut cat.0.stdin.take().unwrap(), b"x\n").unwrap();
    let (status, stdout, stderr) = cat.end();
    assert_eq!((status, &*stdout), (0, "x\n"), "{stderr}");
}

#[test]
fn a_report_in_a_file_is_whole() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("report");
    let name = path.to_str().unwrap();
    let (status, stdout, stderr) = ran(&["-o", name, "--", "sh", "-c", "echo out; echo err >&2"]);
    assert_eq!((status, &*stdout, &*stderr), (0, "out\n", "err\n"));
    let report = fs::read_to_string(&path).unwrap();
    assert!(report.starts_with("sh -c ") && report.contains("\nwatching: "), "{report}");
    // Places in files are not addresses of the program.
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o700, 0o600);
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "nothing beside it");

    let (status, stdout, stderr) = ran(&["-o", "/no/such/directory/report", "--", "echo", "ran"]);
    assert_eq!(stdout, "", "told before the command runs");
    assert_eq!(status, 125, "{stderr}");
    assert!(words(&stderr).contains("cannot write `/no/such/directory/report`"), "{stderr}");
}

#[test]
fn what_is_no_file_is_written_to() {
    let (status, stdout, stderr) = ran(&["-o", "/dev/stdout", "--", "echo", "out"]);
    assert_eq!(status, 0, "{stderr}");
    assert!(stdout.starts_with("out\necho out: ") && stderr.is_empty(), "{stdout}{stderr}");
}

#[test]
fn json_follows_the_published_schema() {
    let (status, mut document) = json(&[], &["sh", "-c", "ls / > /dev/null; exit 3"]);
    assert_eq!(status, 3);
    assert_eq!(wrong(&document), Vec::<String>::new(), "{document:#}");
    assert_eq!(document["subject"], "sh -c ls / > /dev/null; exit 3");
    assert_eq!(document["runs"][0]["status"], 3);
    assert!(!document["runs"][0]["events"].is_null(), "{document:#}");
    // The schema does not accept everything.
    document["runs"][0]["events"]["watching"]["more"] = 1.into();
    assert_ne!(wrong(&document), Vec::<String>::new());
}

/// A neighbour with two threads, until it is dropped: one unmaps on CPU 0, and one computes on CPU
/// 1.
struct Neighbour {
    end: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

/// glibc maps and unmaps larger blocks than this in any case (malloc/malloc.c:
/// DEFAULT_MMAP_THRESHOLD_MAX).
const MAPPED_BYTES: usize = 40 << 20;

impl Neighbour {
    fn start() -> Neighbour {
        let end = Arc::new(AtomicBool::new(false));
        let on = |cpu: usize, work: fn()| {
            let end = end.clone();
            std::thread::spawn(move || {
                let mut set = CpuSet::new();
                set.set(cpu);
                sched_setaffinity(None, &set).unwrap();
                while !end.load(SeqCst) {
                    work();
                }
            })
        };
        let unmap = || {
            let mut area = vec![0_u8; MAPPED_BYTES];
            std::hint::black_box(&mut area)[0] = 1;
            drop(area);
            std::thread::sleep(Duration::from_millis(2));
        };
        let threads = vec![on(0, unmap), on(1, std::hint::spin_loop)];
        Neighbour { end, threads }
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        self.end.store(true, SeqCst);
        self.threads.drain(..).for_each(|thread| thread.join().unwrap());
    }
}

/// The guard names the task that unmaps, which breaks it. A disturbance that does not come does not
/// break it.
#[test]
fn a_guarded_cpu_is_disturbed_by_a_neighbour_that_unmaps() {
    let neighbour = Neighbour::start();
    let options = ["--victims", "1", "--fail-on", "interrupt=tlb-flush"];
    let (status, document) = json(&options, &["sleep", "1.5"]);
    drop(neighbour);
    assert_eq!(wrong(&document), Vec::<String>::new(), "{document:#}");
    assert_eq!(status, 1, "{document:#}");
    let guard = &document["runs"][0]["events"]["guard"];
    let all = guard["disturbances"].as_array().unwrap();
    let flush = |row: &&Value| {
        row["cause"] == "tlb-flush" && row["doing"] == "munmap" && row["how"] == "interrupt"
    };
    let flushes: Vec<_> = all.iter().filter(flush).collect();
    assert!(!flushes.is_empty(), "{guard:#}");
    assert!(flushes.iter().all(|row| row["cpu"] == 1), "{guard:#}");
    let ours = i64::from(std::process::id());
    assert!(flushes.iter().any(|row| row["from"]["pid"] == ours), "{guard:#}");
    assert!(flushes.iter().any(|row| row["lost_ns"].as_u64().is_some_and(|lost| lost > 0)));
    let times: Vec<u64> = all.iter().filter_map(|row| row["at_ns"].as_u64()).collect();
    assert!(times.is_sorted() && guard["watched_ns"].as_u64() > times.last().copied());
    let (status, stdout, stderr) =
        ran(&["--victims", "1", "--fail-on", "interrupt=thread-state", "--", "true"]);
    assert_eq!((status, &*stdout), (0, ""), "{stderr}");
    assert!(words(&stderr).contains("guarded CPU"), "{stderr}");
}

#[test]
fn three_runs_are_three_runs() {
    let (status, document) = json(&["-r", "3"], &["true"]);
    assert_eq!((status, document["runs"].as_array().unwrap().len()), (0, 3));
    assert_eq!(wrong(&document), Vec::<String>::new(), "{document:#}");
    for run in document["runs"].as_array().unwrap() {
        let usage = &run["usage"];
        let faults = usage["minor_faults"].as_u64().unwrap();
        assert!((20..2000).contains(&faults), "those of one run: {faults}");
    }
    let (_, _, stderr) = ran(&["-r", "3", "--", "true"]);
    assert!(words(&stderr).contains("3 runs, medians with their range"), "{stderr}");
}

/// Of several runs, the first status that is not 0 counts.
#[test]
fn a_failed_run_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let mark = directory.path().join("mark");
    let script = format!("test -e {0} && exit 4; touch {0}", mark.to_str().unwrap());
    let (status, document) = json(&["-r", "3"], &["sh", "-c", &script]);
    let runs = document["runs"].as_array().unwrap().iter();
    let statuses: Vec<&Value> = runs.map(|run| &run["status"]).collect();
    assert_eq!((status, statuses), (4, vec![&0.into(), &4.into(), &4.into()]));
}

#[test]
fn classes_add_up() {
    let sort = "seq 20000 | sort -R | sort -n > /dev/null";
    for command in [
        &["true"][..],
        &["sh", "-c", "ls / >/dev/null"],
        &["sh", "-c", sort],
        &["sort", "/etc/passwd"],
    ] {
        let (status, document) = json(&[], command);
        assert_eq!(status, 0);
        let run = &document["runs"][0];
        let (events, usage) = (&run["events"], &run["usage"]);
        let number = |value: &Value| value.as_u64().unwrap();
        let rows = events["faults"].as_array().unwrap().iter();
        let rows = rows.filter(|row| row["class"] != "signal or fix-up");
        let classes: u64 = rows.map(|row| number(&row["faults"])).sum();
        let counted = &events["counted"];
        assert_eq!(events["watching"]["lost"], 0, "{command:?}: {events:#}");
        assert_eq!(classes, number(&counted["faults"]), "{command:?}: {events:#}");
        assert_eq!(counted["faults"], counted["faults_seen"], "{command:?}: {events:#}");
        let task = number(&usage["minor_faults"]) + number(&usage["major_faults"]);
        let without = number(&events["faults_without_exception"]);
        assert_eq!(classes + without, task, "{command:?}: {document:#}");
    }
}

/// The report does not wait for processes that a command leaves behind.
#[test]
fn a_command_may_leave_others_behind() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pid");
    let script = format!("sleep 100 > /dev/null 2>&1 & echo $! > {}", path.to_str().unwrap());
    let (status, document) = json(&[], &["sh", "-c", &script]);
    let pid: u32 = fs::read_to_string(path).unwrap().trim().parse().unwrap();
    assert!(alive(pid));
    send("KILL", pid);
    assert_eq!(status, 0);
    assert!(document["runs"][0]["elapsed_ns"].as_u64().unwrap() < 90_000_000_000);
}

#[test]
fn closed_output_changes_no_status() {
    let script = "exec \"$0\" stat -- sh -c 'exit 6' >&- 2>&-";
    let status = Command::new("sh").args(["-c", script]).arg(binary()).status().unwrap();
    assert_eq!(status.code(), Some(6));
    let mut watching = Started::new(&mut stat(&["--", "sh", "-c", "read line; exit 6"]));
    drop((watching.0.stdout.take(), watching.0.stderr.take()));
    assert_eq!(watching.0.wait().unwrap().code(), Some(6), "nobody reads the report");
}

/// A copy of the command that everybody may execute.
fn for_everybody() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("needless");
    fs::copy(binary(), &path).unwrap();
    for path in [directory.path(), &path] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    (directory, path)
}

#[test]
fn without_privilege_the_counters_are_left() {
    let (_directory, needless) = for_everybody();
    let nobody = |options: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all"]);
        command.arg(&needless).arg("stat").args(options).args(["--", "sh", "-c", "exit 7"]);
        let output = command.env("LC_ALL", "C.UTF-8").current_dir("/").output().unwrap();
        told(&output)
    };
    let (status, stdout, stderr) = nobody(&[]);
    assert_eq!((status, &*stdout), (7, ""), "{stderr}");
    let stderr = words(&stderr);
    assert!(
        stderr.contains("the kernel counted ") && stderr.contains(" of them major"),
        "{stderr}"
    );
    let (_, missing) = stderr.split_once("not visible: ").unwrap_or_else(|| panic!("{stderr}"));
    let places: Vec<_> = ["tracefs is not mounted, or", "cap_perfmon", "perf_event_paranoid"]
        .map(|part| missing.find(part).unwrap_or_else(|| panic!("no {part}: {missing}")))
        .to_vec();
    assert!(places.is_sorted(), "least privilege first: {missing}");

    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all"]);
    let sleep = Started::new(Command::new("sleep").arg("0.3"));
    command.arg(&needless).args(["stat", "-p", &sleep.pid().to_string()]);
    let watching = Started::new(command.current_dir("/"));
    assert_eq!(sleep.end().0, 0);
    let (status, stdout, stderr) = watching.end();
    assert_eq!(status, 120, "{stdout} {stderr}");

    let (_, _, stderr) = nobody(&["--format", "json"]);
    let document: Value = serde_json::from_str(&stderr).unwrap();
    assert_eq!(wrong(&document), Vec::<String>::new(), "{document:#}");
    let run = &document["runs"][0];
    assert!(run["events"].is_null() && run["usage"]["minor_faults"].as_u64().unwrap() > 0);
    assert!(run["missing"][0]["remedy"].as_str().unwrap().contains("cap_perfmon"));
}

/// Rings are locked memory, which takes a privilege of its own. The command may not mount tracefs,
/// so tracefs is mounted where only the command can see it.
#[test]
fn rings_that_are_too_large_are_told() {
    if fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap().trim() == "-1" {
        needless_testing::skip!("kernel.perf_event_paranoid is -1: rings take no privilege");
    }
    let (_directory, needless) = for_everybody();
    let script = "set -e
        test -d /sys/kernel/tracing/events || mount -t tracefs none /sys/kernel/tracing
        ulimit -l 64; exec setpriv --reuid=65534 --regid=65534 --clear-groups \
        --inh-caps=-all,+perfmon,+dac_read_search --ambient-caps=-all,+perfmon,+dac_read_search \
        \"$0\" stat -- true";
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", script]).arg(needless).env("LC_ALL", "C.UTF-8");
    let (status, _, stderr) = told(&command.current_dir("/").output().unwrap());
    assert_eq!(status, 0, "{stderr}");
    let stderr = words(&stderr);
    assert!(stderr.contains("; a smaller --buffer; or give the command CAP_IPC_LOCK"), "{stderr}");
}

#[test]
fn tracefs_need_not_be_mounted() {
    let script = "for place in /sys/kernel/tracing /sys/kernel/debug/tracing; do
            while umount $place 2> /dev/null; do :; done
            test -e $place/events && exit 99
        done
        exec \"$0\" stat --format json -- true";
    let mut command = Command::new("unshare");
    let output = command.args(["-m", "sh", "-c", script]).arg(binary()).output().unwrap();
    let (status, _, stderr) = told(&output);
    assert_eq!(status, 0, "{stderr}");
    let document: Value = serde_json::from_str(&stderr).unwrap();
    let events = &document["runs"][0]["events"];
    assert!(events["counted"]["faults"].as_u64().unwrap_or(0) > 0, "{document:#}");
}

#[test]
fn help_and_manual_are_there() {
    let (status, help, _) = ran(&["--help"]);
    assert_eq!(status, 0);
    assert!(help.starts_with("Examples:\n  needless stat "), "{help}");
    let directory = tempfile::tempdir().unwrap();
    let made = Command::new(binary()).arg("man").arg(directory.path()).status().unwrap();
    assert!(made.success());
    let page = fs::read_to_string(directory.path().join("needless-stat.1")).unwrap();
    assert!(page.contains(".TH needless-stat 1") && page.contains("Write the report to a file"));
}

//! `needless stat`: statuses, signals, where its report goes, and that nothing of it stays. As root,
//! since it watches the live kernel.
#![allow(clippy::unwrap_used)]

use rustix::thread::{CpuSet, sched_setaffinity};
use serde_json::Value;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// No wait is longer, however busy the machine.
const PATIENCE: Duration = Duration::from_secs(120);

fn binary() -> PathBuf {
    assert_cmd::cargo::cargo_bin("needless")
}

/// `needless stat` with signals as a terminal's shell leaves them: that of a background job ignores
/// `SIGINT`, and so do tests in it.
fn stat(args: &[&str]) -> Command {
    let mut command = Command::new("env");
    command.args(["--default-signal=INT,QUIT,HUP"]).arg(binary()).arg("stat").args(args);
    command.env("LC_ALL", "C.UTF-8").env("COLUMNS", "100").stdin(Stdio::null());
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Its exit status, standard output and standard error.
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

/// What it writes as JSON about a command, and its status.
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
    let schema = include_str!("../../../docs/schema/stat.schema.json");
    let validator = jsonschema::validator_for(&serde_json::from_str(schema).unwrap()).unwrap();
    let wrong = validator.iter_errors(document);
    wrong.map(|error| format!("{}: {error}", error.instance_path())).collect()
}

/// What Prometheus' own parser makes of a sample: family by family its kind, unit, and samples with labels and value.
const PARSE: &str = "
import json, sys
from prometheus_client.openmetrics.parser import text_string_to_metric_families as families
print(json.dumps({f.name: [f.type, f.unit, [[s.name, s.labels, s.value] for s in f.samples]]
                  for f in families(sys.stdin.read())}))
";

/// A sample as that parser reads it; none where it is not installed.
fn parsed(sample: &str) -> Option<Value> {
    let python = "/usr/bin/python3";
    let known = Command::new(python).args(["-c", "import prometheus_client"]).output();
    if !known.is_ok_and(|known| known.status.success()) {
        return None;
    }
    let mut parser = Command::new(python)
        .args(["-c", PARSE])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    parser.stdin.take().unwrap().write_all(sample.as_bytes()).unwrap();
    let parsed = parser.wait_with_output().unwrap();
    assert!(parsed.status.success(), "{}\n{sample}", text(&parsed.stderr));
    Some(serde_json::from_slice(&parsed.stdout).unwrap())
}

/// One sample, of a command with quotes in its words; and of guarded CPUs.
#[test]
fn openmetrics_is_what_its_own_parser_reads() {
    let sample = |options: &[&str], command: &[&str]| {
        let args = [options, &["--format", "openmetrics", "--"], command].concat();
        let (status, _, sample) = ran(&args);
        assert_eq!(status, 0, "{sample}");
        sample
    };
    let Some(program) = parsed(&sample(&[], &["sh", "-c", "ls > /dev/null; : '\"\\'"])) else {
        needless_testing::skip!(
            "`apt-get install python3-prometheus-client` for Prometheus' parser"
        );
    };
    let value = |page: &Value, family: &str, label: (&str, &str)| -> f64 {
        let samples = page[family][2].as_array().unwrap_or_else(|| panic!("{family}: {page}"));
        let labelled = samples.iter().filter(|sample| sample[1][label.0] == label.1);
        labelled.map(|sample| sample[2].as_f64().unwrap()).sum()
    };
    let subject = &program["needless_run"][2][0][1]["subject"];
    assert_eq!(subject, "sh -c ls > /dev/null; : '\"\\'");
    assert_eq!(
        (&program["needless_task_cpu_seconds"][0], &program["needless_task_cpu_seconds"][1]),
        (&Value::from("counter"), &Value::from("seconds"))
    );
    let minor = value(&program, "needless_task_faults", ("kind", "minor"));
    assert!(minor > 50.0, "{program}");
    assert!(value(&program, "needless_faults", ("class", "first touch")) > 20.0, "{program}");
    assert!(value(&program, "needless_flushes", ("cause", "fault: COW copy")) > 0.0, "{program}");
    let guard = parsed(&sample(&["--victims", "0"], &["sleep", "0.2"])).unwrap();
    assert!(value(&guard, "needless_guarded_cpu_reached", ("cpu", "0")) > 0.0, "{guard}");
    assert_eq!(guard.get("needless_faults"), None, "a guard counts no faults");
    let (status, _, why) = ran(&["-r", "2", "--format", "openmetrics", "--", "true"]);
    assert_eq!((status, why.contains("leave out -r")), (2, true), "{why}");
}

/// What Perfetto's own messages make of a trace: the names of tracks, slices on tracks of threads and of CPUs by name, ends, and
/// flows by who has them.
const READ_TRACE: &str = "
import collections, json, sys
sys.path.insert(0, sys.argv[1])
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as proto
trace = proto.Trace()
with open(sys.argv[2], 'rb') as file:
    trace.ParseFromString(file.read())
tracks, events = {}, []
for packet in trace.packet:
    if packet.HasField('track_descriptor'):
        track = packet.track_descriptor
        tracks[track.uuid] = 'thread' if track.HasField('thread') else track.name or 'process'
    else:
        events.append((packet.timestamp, packet.track_event))
kinds = collections.Counter(event.type for _, event in events)
named = [(tracks[event.track_uuid], event) for _, event in events if event.type != 2]
count = lambda category: collections.Counter(e.name for _, e in named if list(e.categories) == [category])
print(json.dumps({
    'faults': count('fault'), 'interrupts': count('interrupt'),
    'begins': kinds[1], 'ends': kinds[2],
    'cpus': sorted({track for track, e in named if 'interrupt' in e.categories}),
    'sent': sorted(id for _, e in named for id in e.flow_ids),
    'came': sorted(id for _, e in named for id in e.terminating_flow_ids),
}))
";

/// Where scripts/setup.sh puts Perfetto's Python package.
fn perfetto_package() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    target
        .unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target"))
        .join("python")
}

/// Faults and interrupts one by one are as many as the report counts, class by class and cause by cause.
#[test]
fn a_perfetto_trace_is_what_the_report_counts() {
    let folder = tempfile::tempdir().unwrap();
    let (trace, report) = (folder.path().join("trace"), folder.path().join("report"));
    let (trace, report) = (trace.to_str().unwrap(), report.to_str().unwrap());
    let words = [
        "--perfetto",
        trace,
        "--format",
        "json",
        "-o",
        report,
        "--",
        "sh",
        "-c",
        "ls > /dev/null; ls > /dev/null",
    ];
    let (status, _, why) = ran(&words);
    assert_eq!(status, 0, "{why}");
    assert_eq!(fs::metadata(trace).unwrap().permissions().mode() & 0o777, 0o600);
    let package = perfetto_package();
    if !package.exists() {
        needless_testing::skip!("scripts/setup.sh installs Perfetto's Python package, if pip can");
    }
    let read =
        Command::new("/usr/bin/python3").args(["-c", READ_TRACE]).arg(package).arg(trace).output();
    let read = read.unwrap();
    assert!(read.status.success(), "{}", text(&read.stderr));
    let read: Value = serde_json::from_slice(&read.stdout).unwrap();
    let events: Value = serde_json::from_str(&fs::read_to_string(report).unwrap()).unwrap();
    let events = &events["runs"][0]["events"];
    let summed = |rows: &Value, of: &str, name: &str, figures: &[&str]| -> u64 {
        let rows = rows.as_array().unwrap().iter().filter(|row| row[of] == name);
        rows.flat_map(|row| figures.iter().map(|figure| row[*figure].as_u64().unwrap())).sum()
    };
    let faults = read["faults"].as_object().unwrap();
    assert!(faults["first touch"].as_u64() > Some(50), "{read}");
    for (label, times) in faults {
        assert_eq!(
            *times,
            summed(&events["faults"], "label", label, &["faults"]),
            "{label}: {events}"
        );
    }
    for (asked, times) in read["interrupts"].as_object().unwrap() {
        let counted =
            summed(&events["interrupts"], "asked", asked, &["interrupts", "uninterrupted"]);
        assert_eq!(*times, counted, "{asked}: {events}");
    }
    assert_eq!(read["begins"], read["ends"], "{read}");
    assert_eq!(read["sent"], read["came"], "each arrow has two ends: {read}");
    assert!(
        read["cpus"]
            .as_array()
            .unwrap()
            .iter()
            .all(|cpu| cpu.as_str().unwrap().starts_with("CPU ")),
        "{read}"
    );
}

/// A process that is gone when this is.
struct Started(Child);

impl Started {
    fn new(command: &mut Command) -> Started {
        Started(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Waits for the end; status, standard output and standard error.
    fn end(mut self) -> (i32, String, String) {
        until("it to end", || self.0.try_wait().unwrap());
        let mut texts = [String::new(), String::new()];
        std::io::Read::read_to_string(&mut self.0.stdout.take().unwrap(), &mut texts[0]).unwrap();
        std::io::Read::read_to_string(&mut self.0.stderr.take().unwrap(), &mut texts[1]).unwrap();
        let [stdout, stderr] = texts;
        (self.0.wait().unwrap().code().unwrap(), stdout, stderr)
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(start.elapsed() < PATIENCE, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn send(signal: &str, pid: u32) {
    let status = Command::new("sh").args(["-c", &format!("kill -{signal} {pid}")]).status();
    assert!(status.unwrap().success());
}

/// A line of a process's status: `Name`, `PPid` …
fn status_line(pid: u32, name: &str) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.map(|value| value.trim().to_owned())
}

/// Whether there is such a process, and it runs.
fn alive(pid: u32) -> bool {
    status_line(pid, "State").is_some_and(|state| !state.starts_with(['Z', 'X']))
}

/// The child of this name that a process has, or will have.
fn child_of(parent: u32, name: &str) -> u32 {
    until(&format!("{name}, child of {parent}"), || {
        let all = fs::read_dir("/proc").unwrap().flatten();
        let mut pids = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        pids.find(|pid| {
            status_line(*pid, "PPid") == Some(parent.to_string())
                && status_line(*pid, "Name").as_deref() == Some(name)
        })
    })
}

/// How many perf events a process holds open.
fn perf_events(pid: u32) -> usize {
    let Ok(folder) = fs::read_dir(format!("/proc/{pid}/fd")) else { return 0 };
    let links = folder.flatten().filter_map(|entry| fs::read_link(entry.path()).ok());
    links.filter(|link| link == Path::new("anon_inode:[perf_event]")).count()
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
fn a_report_in_a_file_is_whole_and_the_owners() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("report");
    let name = path.to_str().unwrap();
    let (status, stdout, stderr) = ran(&["-o", name, "--", "sh", "-c", "echo out; echo err >&2"]);
    assert_eq!((status, &*stdout, &*stderr), (0, "out\n", "err\n"));
    let report = fs::read_to_string(&path).unwrap();
    assert!(report.starts_with("sh -c ") && report.contains("\nwatching: "), "{report}");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
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
    // The schema is not one that everything follows.
    document["runs"][0]["events"]["watching"]["more"] = 1.into();
    assert_ne!(wrong(&document), Vec::<String>::new());
}

/// A neighbour with two threads, one that unmaps on CPU 0 and one that computes on CPU 1, until it is dropped.
struct Neighbour {
    end: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

/// glibc maps and unmaps what is larger than this, whatever came before (malloc/malloc.c: DEFAULT_MMAP_THRESHOLD_MAX).
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

/// The guard names who unmaps, and is broken by it; by what does not come it is not.
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

/// Of several runs the first status that is not 0.
#[test]
fn a_failed_run_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let mark = directory.path().join("mark");
    let script = format!("test -e {0} && exit 4; touch {0}", mark.display());
    let (status, document) = json(&["-r", "3"], &["sh", "-c", &script]);
    let runs = document["runs"].as_array().unwrap().iter();
    let statuses: Vec<&Value> = runs.map(|run| &run["status"]).collect();
    assert_eq!((status, statuses), (4, vec![&0.into(), &4.into(), &4.into()]));
}

#[test]
fn signals_reach_the_command() {
    for (signal, status) in [("TERM", 143), ("INT", 130), ("HUP", 129)] {
        let watching = Started::new(&mut stat(&["-r", "2", "--", "sleep", "100"]));
        let sleep = child_of(watching.pid(), "sleep");
        send(signal, watching.pid());
        let (given, stdout, stderr) = watching.end();
        assert!(!alive(sleep), "SIG{signal} ends the command");
        assert_eq!((given, &*stdout), (status, ""), "SIG{signal}: {stderr}");
        assert!(stderr.contains("sleep 100: "), "SIG{signal}, the report: {stderr}");
        assert!(!stderr.contains("2 runs"), "SIG{signal}, no further run: {stderr}");
    }
}

/// A command that goes on is waited for.
#[test]
fn a_command_may_ignore_signals() {
    let script = "trap '' INT; echo ready; read line; exit 5";
    let mut watching = Started::new(stat(&["--", "sh", "-c", script]).stdin(Stdio::piped()));
    let mut ready = [0; 6];
    std::io::Read::read_exact(watching.0.stdout.as_mut().unwrap(), &mut ready).unwrap();
    for _ in 0..3 {
        send("INT", watching.pid());
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(alive(watching.pid()));
    drop(watching.0.stdin.take());
    let (status, _, stderr) = watching.end();
    assert_eq!(status, 5, "{stderr}");
}

/// What is ignored when `stat` starts is ignored by the command, as without `stat`.
#[test]
fn ignored_signals_stay_ignored() {
    let ignored = |command: &mut Command| {
        let output = command.stdin(Stdio::null()).output().unwrap();
        let line = text(&output.stdout);
        let bits = line.strip_prefix("SigIgn:").unwrap_or_else(|| panic!("{output:?}")).trim();
        u64::from_str_radix(bits, 16).unwrap()
    };
    let look = ["grep", "SigIgn", "/proc/self/status"];
    let hup_int_quit = 0b111;
    for setting in ["--ignore-signal=INT,QUIT,HUP", "--default-signal=INT,QUIT,HUP"] {
        let mut watched = Command::new("env");
        watched.arg(setting).arg(binary()).args(["stat", "--"]).args(look);
        let without = ignored(Command::new("env").arg(setting).args(look));
        assert_eq!(ignored(&mut watched) & hup_int_quit, without & hup_int_quit, "{setting}");
    }
}

#[test]
fn a_watched_process_lives_on() {
    let sleep = Started::new(Command::new("sleep").arg("1000"));
    let watching = Started::new(&mut stat(&["-p", &sleep.pid().to_string()]));
    until("perf events", || (perf_events(watching.pid()) > 0).then_some(()));
    send("INT", watching.pid());
    let (status, stdout, stderr) = watching.end();
    assert_eq!((status, &*stderr), (0, ""));
    assert!(stdout.contains(&format!("process {}: ", sleep.pid())), "{stdout}");
    assert!(alive(sleep.pid()));
}

#[test]
fn a_watched_process_that_ends_ends_watching() {
    let mut sleep = Started::new(Command::new("sleep").arg("1000"));
    let watching = Started::new(&mut stat(&["-p", &sleep.pid().to_string()]));
    until("perf events", || (perf_events(watching.pid()) > 0).then_some(()));
    sleep.0.kill().unwrap();
    sleep.0.wait().unwrap();
    let (status, stdout, stderr) = watching.end();
    assert_eq!((status, &*stderr), (0, ""));
    assert!(stdout.starts_with("process "), "{stdout}");
}

/// What the two tests below watch: threads that touch memory, or that come and go.
#[test]
#[ignore = "is started by others"]
fn many_threads() {
    let Ok(how) = std::env::var("NEEDLESS_TEST_THREADS") else { return };
    let touch = |pause| {
        // Above the size that the C library keeps for the next time: it faults every time.
        let mut memory = vec![0_u8; 64 << 20];
        memory[..1 << 16].fill(1);
        std::hint::black_box(memory);
        std::thread::sleep(Duration::from_millis(pause));
    };
    if how == "many" {
        for _ in 0..100 {
            std::thread::spawn(move || {
                loop {
                    touch(100)
                }
            });
        }
    } else {
        for _ in 0..4 {
            std::thread::spawn(move || {
                loop {
                    let _ = std::thread::spawn(move || touch(5)).join();
                }
            });
        }
    }
    println!("\nready");
    std::thread::sleep(PATIENCE);
}

fn threads(how: &str) -> Started {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "many_threads", "--ignored", "--nocapture"]);
    let mut started = Started::new(command.env("NEEDLESS_TEST_THREADS", how));
    let lines = std::io::BufReader::new(started.0.stdout.as_mut().unwrap());
    let mut lines = std::io::BufRead::lines(lines).map(Result::unwrap);
    assert!(lines.any(|line| line == "ready"));
    started
}

/// Every thread has its own events, more than the limit of open files. It is the command's as ever.
#[test]
fn a_process_of_many_threads_is_watched() {
    let threads = threads("many");
    let script = "ulimit -Sn 256; exec \"$0\" stat --format json -p $1 -r 2 -- \
        sh -c 'ulimit -Sn; sleep 0.5'";
    let mut command = Command::new("sh");
    command.args(["-c", script]).arg(binary()).arg(threads.pid().to_string());
    let (status, stdout, stderr) = told(&command.output().unwrap());
    assert_eq!((status, &*stdout), (0, "256\n256\n"));
    let document: Value = serde_json::from_str(&stderr).unwrap();
    let run = &document["runs"][1];
    assert!(run["events"]["counted"]["faults"].as_u64().unwrap_or(0) > 100, "{document:#}");
    assert_eq!(wrong(&document), Vec::<String>::new(), "{document:#}");
}

#[test]
fn threads_that_come_and_go_are_no_obstacle() {
    let threads = threads("short");
    for _ in 0..3 {
        let (status, document) = json(&["-p", &threads.pid().to_string()], &["sleep", "0.1"]);
        assert_eq!(status, 0);
        assert!(!document["runs"][0]["events"].is_null(), "{document:#}");
    }
}

#[test]
fn everything_is_watched_for_a_while() {
    let (status, document) = json(&["-a"], &["sleep", "1"]);
    assert_eq!(status, 0);
    assert_eq!(wrong(&document), Vec::<String>::new(), "{document:#}");
    let run = &document["runs"][0];
    assert!(run["elapsed_ns"].as_u64().unwrap() >= 1_000_000_000 && run["usage"].is_null());
    assert!(run["events"]["counted"]["faults"].as_u64().unwrap() > 0, "sleep's at least");
    assert_eq!(document["subject"], "every task");
}

/// Tracing files that say whether anything is switched on, wherever tracefs is mounted.
fn switched_on() -> String {
    let script = "test -d /sys/kernel/tracing/events || mount -t tracefs none /sys/kernel/tracing
        cd /sys/kernel/tracing
        cat events/enable events/tlb/enable events/tlb/tlb_flush/enable \\
            events/exceptions/enable events/exceptions/page_fault_user/enable \\
            events/raw_syscalls/sys_enter/enable
        cat set_event tlb_flush/filter 2> /dev/null
        cat current_tracer";
    let output = Command::new("unshare").args(["-m", "sh", "-c", script]).output().unwrap();
    text(&output.stdout)
}

#[test]
fn nothing_stays_when_it_is_killed() {
    let off = "0\n0\n0\n0\n0\n0\nnop\n";
    assert_eq!(switched_on(), off, "somebody else is tracing");
    let mut watching = Started::new(&mut stat(&["--", "sleep", "100"]));
    let (pid, sleep) = (watching.pid(), child_of(watching.pid(), "sleep"));
    assert!(perf_events(pid) > 10);
    assert_eq!(switched_on(), off, "nothing is written to tracefs");
    watching.0.kill().unwrap();
    watching.0.wait().unwrap();
    assert!(!fs::exists(format!("/proc/{pid}")).unwrap() && perf_events(sleep) == 0);
    assert_eq!(switched_on(), off);
    assert!(alive(sleep), "the command is not the one that was killed");
    send("KILL", sleep);
    until("the end of sleep", || (!alive(sleep)).then_some(()));
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

/// The report does not wait for what a command leaves behind.
#[test]
fn a_command_may_leave_others_behind() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pid");
    let script = format!("sleep 100 > /dev/null 2>&1 & echo $! > {}", path.display());
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
    let places: Vec<_> = ["tracefs is not mounted, or", "CAP_PERFMON", "perf_event_paranoid"]
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
    assert!(run["missing"][0]["remedy"].as_str().unwrap().contains("CAP_PERFMON"));
}

/// Rings are locked memory, which takes a privilege of its own. The command may not mount tracefs, so it finds it
/// mounted, where only it can see that.
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

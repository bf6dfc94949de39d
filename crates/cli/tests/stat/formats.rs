//! The machine-readable formats, as other programs read them.

use super::*;

/// A Python script that parses a sample with Prometheus' own parser. For each family it prints the
/// kind, the unit, and the samples with labels and value.
const PARSE: &str = "
import json, sys
from prometheus_client.openmetrics.parser import text_string_to_metric_families as families
print(json.dumps({f.name: [f.type, f.unit, [[s.name, s.labels, s.value] for s in f.samples]]
                  for f in families(sys.stdin.read())}))
";

/// A sample as that parser reads it. `None` where the parser is not installed.
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

/// Two samples: one of a command with quotes in its words, and one of guarded CPUs.
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

/// A Python script that reads a trace with Perfetto's own messages. It prints the names of tracks,
/// slices by name on tracks of threads and of CPUs, ends, and flows by their owner.
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

/// Single faults and interrupts are as many as the report counts, class by class and cause by
/// cause.
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

/// A fault in a page that another process provides, after 10 ms. (Whether a fault waits for a disk
/// is up to the disk: some have read each page before anybody waits.)
const PROVIDED_LATE: &str = "
import ctypes, fcntl, mmap, os, struct, time
page = mmap.mmap(-1, 4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
start = ctypes.addressof(ctypes.c_char.from_buffer(page))
fd = ctypes.CDLL(None).syscall(323, 0) # userfaultfd
fcntl.ioctl(fd, 0xc018aa3f, struct.pack('3Q', 0xaa, 0, 0)) # UFFDIO_API
fcntl.ioctl(fd, 0xc020aa00, struct.pack('4Q', start, 4096, 1, 0)) # UFFDIO_REGISTER
if os.fork() == 0:
    os.read(fd, 32)
    time.sleep(0.01)
    fcntl.ioctl(fd, 0xc020aa04, struct.pack('4Q', start, 4096, 0, 0)) # UFFDIO_ZEROPAGE
    os._exit(0)
print(page[0])
";

#[test]
fn what_faults_waited_for_is_told_in_every_format() {
    let command = ["/usr/bin/python3", "-c", PROVIDED_LATE];
    let ran_as = |options: &[&str]| {
        let (status, output, report) = ran(&[&["--waits"], options, &["--"], &command].concat());
        assert_eq!((status, &*output), (0, "0\n"), "{report}");
        report
    };
    let report = ran_as(&[]);
    assert!(report.contains("waited for") && report.contains("userfaultfd's answer"), "{report}");
    let (_, document) = json(&["--waits"], &command);
    assert_eq!(wrong(&document), Vec::<String>::new());
    let faults = document["runs"][0]["events"]["faults"].as_array().unwrap();
    for row in faults {
        for figure in ["waits", "waited_ns"] {
            let parts = row["waited_for"].as_array().unwrap().iter();
            let sum: u64 = parts.map(|waited| waited[figure].as_u64().unwrap()).sum();
            assert_eq!(row[figure], sum, "{row}");
        }
    }
    let (_, without) = json(&[], &command);
    assert!(without["runs"][0]["events"]["faults"][0]["waited_for"].is_null(), "{without}");
    if let Some(page) = parsed(&ran_as(&["--format", "openmetrics"])) {
        let samples = page["needless_fault_waits"][2].as_array().unwrap().iter();
        let answered = samples.filter(|sample| sample[1]["waited_for"] == "userfaultfd's answer");
        let waits = answered.map(|sample| sample[2].as_f64().unwrap()).sum::<f64>();
        assert!((1.0..2.0).contains(&waits), "{page}");
    }
}

/// The page of a command whose words would be markup.
#[test]
fn a_page_has_the_figures_of_its_data_and_names_stay_text() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("stat.html");
    let command = ["sh", "-c", "ls > /dev/null", "<img src=x>"];
    let args = [&["--format", "html", "-o", path.to_str().unwrap(), "--"][..], &command].concat();
    let (status, _, stderr) = ran(&args);
    assert_eq!(status, 0, "{stderr}");
    let page = fs::read_to_string(&path).unwrap();
    let (data, figures) = page::checked(&page);
    let faults = data["runs"][0]["events"]["faults"].as_array().unwrap();
    assert!(!faults.is_empty() && figures >= 2 * faults.len(), "{figures} figures");
    assert_eq!(data["subject"], command.join(" "));
    assert!(!page.contains("<img") && page.contains("&lt;img src=x&gt;"));
    assert!(page::element(&page, "data").contains("\\u003cimg"));
}

/// Without a file a page would mix with what the command writes.
#[test]
fn a_page_of_a_command_needs_a_file() {
    let (status, _, stderr) = ran(&["--format", "html", "--", "true"]);
    assert_eq!(status, 2, "{stderr}");
    assert!(stderr.contains("-o"), "{stderr}");
}

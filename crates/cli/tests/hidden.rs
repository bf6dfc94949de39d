//! `needless stat` and `needless doctor` where parts of /proc and /sys are hidden, as containers
//! hide them. What cannot be seen is missing, and never zero. Root runs these, because they watch
//! the running kernel.
#![allow(clippy::unwrap_used)]

use serde_json::Value;
use std::fs;
use std::process::{Command, Output};

/// Runs the command where `places` are hidden: folders by an empty folder, files by an empty file.
fn hidden(places: &[&str], args: &[&str]) -> Output {
    let script = "for place in $PLACES; do
            if [ -d $place ]; then mount -t tmpfs none $place; else mount --bind /dev/null $place; fi ||
                exit 99
        done
        exec \"$0\" \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", script]).arg(assert_cmd::cargo::cargo_bin("needless"));
    command.args(args).env("PLACES", places.join(" ")).env("COLUMNS", "2000");
    command.env("LC_ALL", "C.UTF-8").output().unwrap()
}

/// The run of `stat` where these places are hidden, and the whole document.
fn stat(places: &[&str], command: &[&str]) -> (Value, Value) {
    let output = hidden(places, &[&["stat", "--format", "json", "--"], command].concat());
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let document: Value = serde_json::from_slice(&output.stderr).unwrap();
    let schema = include_str!("../../../docs/schema/stat.schema.json");
    let validator = jsonschema::validator_for(&serde_json::from_str(schema).unwrap()).unwrap();
    assert!(validator.is_valid(&document), "{document:#}");
    (document["runs"][0].clone(), document)
}

/// Why the report lacks something, if it says that it does.
fn missing(run: &Value, what: &str) -> Option<String> {
    let mut all = run["missing"].as_array().unwrap().iter();
    let found = all.find(|missing| missing["what"] == what)?;
    assert!(found["lacks"].as_str().is_some_and(|lacks| !lacks.is_empty()), "{found}");
    Some(found["why"].as_str().unwrap().to_owned())
}

/// Without the list of CPUs no ring is opened. There are no events, and no findings.
#[test]
fn without_the_list_of_cpus_nothing_was_watched() {
    let (run, document) = stat(&["/sys/devices/system/cpu"], &["true"]);
    let why = missing(&run, "events").unwrap_or_else(|| panic!("{document:#}"));
    assert!(
        why.contains("the CPUs to watch are not known: /sys/devices/system/cpu/online"),
        "{why}"
    );
    assert!(run["events"].is_null(), "{document:#}");
    assert!(run["usage"]["minor_faults"].as_u64().unwrap() > 0, "{document:#}");

    let output = hidden(&["/sys/devices/system/cpu"], &["stat", "--", "true"]);
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("not visible: classes, causes"), "{text}");
    assert!(!text.contains("no TLB flush") && !text.contains("no page fault"), "{text}");

    let output = hidden(&["/sys/devices/system/cpu"], &["stat", "-a", "--", "true"]);
    assert_eq!(output.status.code(), Some(0), "the command's");
    let doctor = hidden(&["/sys/devices/system/cpu"], &["doctor"]);
    let text = String::from_utf8(doctor.stdout).unwrap();
    let line = text.lines().find(|line| line.contains("needless stat")).unwrap();
    assert!(line.starts_with("missing") && line.contains("CPUs to watch"), "{text}");
}

/// Reads each page of fresh memory. The test below starts this.
#[test]
#[ignore = "is started by others"]
fn reads_fresh_memory() {
    let memory = vec![0_u8; 64 << 20];
    let sum: u64 = memory.iter().step_by(4096).map(|byte| u64::from(*byte)).sum();
    assert_eq!(std::hint::black_box(sum), 0);
}

/// The zero page is certain only where there is no swap and no NUMA balancing.
#[test]
fn settings_that_cannot_be_seen_make_classes_less_certain() {
    let own = std::env::current_exe().unwrap();
    let reads = [own.to_str().unwrap(), "--exact", "reads_fresh_memory", "--ignored", "-q"];
    let reads =
        ["sh", "-c", "\"$0\" \"$@\" > /dev/null", reads[0], reads[1], reads[2], reads[3], reads[4]];
    let certain = |run: &Value| {
        let rows = run["events"]["faults"].as_array().unwrap();
        rows.iter().any(|row| row["class"] == "zero page" && row["confidence"] == "certain")
    };
    let swap = fs::read_to_string("/proc/swaps").unwrap().lines().count() > 1;
    let balancing = fs::read_to_string("/proc/sys/kernel/numa_balancing");
    let balancing = balancing.is_ok_and(|value| value.trim() != "0");
    let (seen, document) = stat(&[], &reads);
    assert_eq!(certain(&seen), !swap && !balancing, "{document:#}");
    for place in ["/proc/swaps", "/proc/sys/kernel/numa_balancing"] {
        let (run, document) = stat(&[place], &reads);
        let why = missing(&run, place).unwrap_or_else(|| panic!("{place}: {document:#}"));
        assert!(why.contains("is not the kernel's"), "{why}");
        assert!(!certain(&run), "{place}: {document:#}");
    }
}

#[test]
fn counters_that_cannot_be_seen_are_missing() {
    for (place, counters) in [("/proc/vmstat", "vmstat"), ("/proc/interrupts", "tlb_interrupts")] {
        let (run, document) = stat(&[place], &["true"]);
        assert!(run["machine"][counters].is_null(), "{document:#}");
        assert!(missing(&run, place).is_some(), "{place}: {document:#}");
    }
    // Without all of /proc nothing can be watched.
    let output = hidden(&["/proc"], &["stat", "--", "true"]);
    assert_eq!(output.status.code(), Some(125), "{output:?}");
    assert!(String::from_utf8(output.stderr).unwrap().contains("/proc is not mounted"));
}

/// `doctor` distinguishes what it cannot see from what the kernel does not have.
#[test]
fn doctor_tells_what_is_hidden_from_what_is_not_there() {
    for (place, check) in [
        ("/proc/sys/kernel/numa_balancing", "NUMA balancing"),
        ("/sys/kernel/mm", "multi-generational LRU"),
        ("/sys/kernel/mm", "transparent huge pages"),
        ("/proc/swaps", "swap in use"),
        ("/proc/vmstat", "nr_tlb_* counters"),
        ("/sys/class", "zram"),
        ("/sys/bus", "hardware counters"),
    ] {
        let output = hidden(&[place], &["doctor", "--format", "json"]);
        let document: Value = serde_json::from_slice(&output.stdout).unwrap();
        let mut checks = document["checks"].as_array().unwrap().iter();
        let found = checks.find(|found| found["name"] == check).unwrap();
        let text = found["found"].as_str().unwrap();
        assert!(text.contains("is not the kernel's"), "{place}: {found}");
        assert_eq!(found["state"], "warning", "{place}: {found}");
    }
}

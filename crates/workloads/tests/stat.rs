//! Checks on the running kernel that watching counts exactly: `needless-workload check`.
#![allow(clippy::unwrap_used)]

use needless_live::child::Runner;
use needless_live::machine::Machine;
use needless_scenario::{Settings, compile, load};
use needless_testing::spinner::Spinner;
use needless_testing::{skip, turn};
use needless_watch::signals::Signals;
use needless_watch::tracepoints::Extent;
use needless_watch::{Options, Target, watch};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::process::Command;
use std::sync::MutexGuard;

const ROUNDS: u64 = 100;

/// Swap space, and the machine for this test alone: tests take turns. The machine is given back
/// first.
fn machine() -> (Machine, MutexGuard<'static, ()>) {
    let turn = turn();
    let seed = compile(&load("cow-reuse").unwrap(), &Settings::default()).unwrap();
    (Machine::prepare(&Runner::find().unwrap(), &seed).unwrap(), turn)
}

/// The results of these workloads, or of all.
fn check(names: &[&str]) -> Vec<Value> {
    let checked = Command::new(env!("CARGO_BIN_EXE_needless-workload"))
        .args(["check", "--json", "--rounds", &ROUNDS.to_string()])
        .args(names)
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&checked.stderr);
    serde_json::from_slice(&checked.stdout).unwrap_or_else(|_| panic!("{errors}"))
}

/// Pages of hugetlb. The old number is restored at the end.
struct HugePages(String);

const HUGE_PAGES: &str = "/proc/sys/vm/nr_hugepages";

impl HugePages {
    fn reserve() -> HugePages {
        let before = fs::read_to_string(HUGE_PAGES).unwrap();
        fs::write(HUGE_PAGES, "4").unwrap();
        HugePages(before)
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        fs::write(HUGE_PAGES, &self.0).unwrap();
    }
}

/// Whether a workload was exact, or was disturbed, or cannot run on a machine of one node whose
/// idle CPUs halt.
fn fine(outcome: &Value) -> bool {
    match outcome["skipped"].as_str() {
        Some(why) => why.contains("NUMA") || why.contains("idle=poll"),
        None => outcome["exact"] == true || outcome["undecided"].is_string(),
    }
}

/// The workloads that were disturbed, and by whom. Empty if none was.
fn undecided(outcomes: &[Value]) -> String {
    let told = outcomes.iter().filter_map(|outcome| {
        let why = outcome["undecided"].as_str()?;
        Some(format!("{}: {why}", outcome["name"].as_str()?))
    });
    told.collect::<Vec<String>>().join("; ")
}

#[test]
fn every_class_and_every_cause_is_counted_exactly() {
    let (_machine, _huge_pages) = (machine(), HugePages::reserve());
    let outcomes = check(&[]);
    assert!(outcomes.len() > 60, "{outcomes:?}");
    let wrong = outcomes.iter().filter(|outcome| !fine(outcome));
    let wrong: Vec<String> = wrong.map(Value::to_string).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let undecided = undecided(&outcomes);
    if !undecided.is_empty() {
        skip!("{undecided}");
    }
}

/// The shape of study 1: of two shootdowns in a round one is redundant, and MADV_PAGEOUT after a
/// batched unmap is its cause.
#[test]
fn the_seed_benchmark_has_one_redundant_shootdown_per_round() {
    let _machine = machine();
    let cause = "madvise(MADV_PAGEOUT)";
    let findings = |outcome: &Value| -> Vec<Value> {
        let all = outcome["needless"].as_array().unwrap().iter();
        all.filter(|finding| finding["cause"] == cause).cloned().collect()
    };
    // Interrupts that strangers cause may be found needless as well.
    let undisturbed = |outcome: &Value| outcome["quiet_attempts"] != 0;
    let outcomes = || (0..8).map(|_| check(&["swap_rw"]).remove(0));
    let only_one = |outcome: &Value| undisturbed(outcome) || findings(outcome).len() == 1;
    let Some(outcome) = outcomes().find(only_one) else {
        skip!("others took its CPUs eight times");
    };
    let undecided = undecided(std::slice::from_ref(&outcome));
    if !undecided.is_empty() {
        skip!("{undecided}");
    }
    assert_eq!(outcome["found"]["flushes"], json!({ cause: [2 * ROUNDS, 0] }), "{outcome}");
    // The reason for the first one lies before the beginning.
    let told = ROUNDS - 1;
    let needless = findings(&outcome);
    assert_eq!(needless.len(), 1, "{outcome}");
    assert_eq!(needless[0]["what"], "redundant full flush");
    assert_eq!((&needless[0]["times"], &needless[0]["certain"]), (&json!(told), &json!(told)));
}

/// A protection that is changed to and fro on one page, which no task touches, is told apart, and
/// nothing about it is needless.
#[test]
fn a_protection_used_as_a_barrier_is_not_called_needless() {
    let _machine = machine();
    let outcome = check(&["mprotect_toggle"]).remove(0);
    let undecided = undecided(std::slice::from_ref(&outcome));
    if !undecided.is_empty() {
        skip!("{undecided}");
    }
    assert_eq!(outcome["exact"], true, "{outcome}");
    let [toggled] = &outcome["toggled"].as_array().unwrap()[..] else { panic!("{outcome}") };
    let figures = ["pages", "times", "sent", "local"].map(|name| toggled[name].as_u64().unwrap());
    assert_eq!(figures, [1, 2 * ROUNDS, ROUNDS, 0], "{outcome}");
    assert_eq!(
        (&toggled["used_as"], &toggled["confidence"]),
        (&json!("a barrier"), &json!("likely"))
    );
    let needless = outcome["needless"].as_array().unwrap().iter();
    assert!(
        needless.map(|row| &row["cause"]).all(|cause| cause != "mprotect(PROT_NONE)"),
        "{outcome}"
    );
}

/// A fault that userfaultfd answers after a millisecond waits that long, once. A fault that is
/// answered at once does not wait a millisecond. Without the option, nothing is said about waiting.
#[test]
fn how_long_faults_waited_is_within_the_time_that_they_took() {
    let _machine = machine();
    let mut signals = Signals::catch().unwrap();
    let mut faults = |name: &str, waits: bool| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_needless-workload"));
        command.args(["run", name, "--rounds", "200"]);
        let (target, extent) = (Target::Command, Extent::Programs);
        let options = Options { target, ring_bytes: 8 << 20, extent, waits, timeline: None };
        let run = watch(&options, Some(command), &mut signals, &|_, _| {}).unwrap();
        assert_eq!(run.status, Some(0));
        run.events.unwrap().faults
    };
    for row in faults("uffd_late", true) {
        let (waits, waited) = (row.waits.unwrap(), row.waited_ns.unwrap());
        assert!(waited <= row.time_ns.unwrap() && (waits > 0 || waited == 0), "{row:?}");
        if row.class == "userfaultfd" {
            assert_eq!((row.faults, waits), (208, 208), "{row:?}");
            assert!(waited >= 208 * 1_000_000, "{row:?}");
        }
        if row.class == "zero page" {
            assert_eq!(waits, 0, "nothing has to be waited for: {row:?}");
        }
    }
    assert!(faults("uffd_missing", false).iter().all(|row| row.waits.is_none()));
}

/// Every interrupt is recorded and compared with the kernel's own count. None is seen that the
/// kernel did not count, and where CPUs are busy, the kernel writes an event for each that it
/// counts. (On an idle CPU it does not write every one, and a shared machine leaves its CPUs idle
/// at any time. So they are kept busy.)
#[test]
fn interrupts_are_those_that_the_kernel_counted() {
    let _machine = machine();
    let _busy = Spinner::on_every_cpu();
    let mut signals = Signals::catch().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_needless-workload"));
    command.args(["run", "collapse", "--rounds", "256"]);
    let (target, extent) = (Target::Command, Extent::EveryInterrupt);
    let options = Options { target, ring_bytes: 8 << 20, extent, waits: false, timeline: None };
    let run = watch(&options, Some(command), &mut signals, &|_, _| {}).unwrap();
    assert_eq!(run.status, Some(0));
    let events = run.events.unwrap();
    let synchronised = events.interrupts.iter().flatten();
    let synchronised = synchronised.filter(|row| row.asked == "page-table synchronisation");
    let times: u64 = synchronised.map(|row| row.exact).sum();
    assert!(times >= 256, "{:?}", events.interrupts);
    let held = events.counted_interrupts.unwrap();
    assert!(held.len() >= 8, "{held:?}");
    let (mut counted, mut all_seen) = (0, 0);
    for line in &held {
        let seen = line.seen.unwrap();
        assert!(seen - line.at_the_edge <= line.counted, "{line:?}");
        (counted, all_seen) = (counted + line.counted, all_seen + seen);
    }
    assert!(counted >= 256 && 50 * all_seen >= 49 * counted, "{held:?}");
}

/// The faults of `raced` by label, watched from its start: then nothing that is freed is recorded.
fn raced(rounds: u32, signals: &mut Signals) -> BTreeMap<&'static str, u64> {
    let mut command = Command::new("setarch");
    command.args(["--addr-no-randomize", env!("CARGO_BIN_EXE_needless-workload"), "run", "raced"]);
    command.args(["--rounds", &format!("{rounds:04}")]);
    let extent = Extent::Programs;
    let options = Options {
        target: Target::Command,
        ring_bytes: 8 << 20,
        extent,
        waits: false,
        timeline: None,
    };
    let run = watch(&options, Some(command), signals, &|_, _| {}).unwrap();
    assert_eq!(run.status, Some(0));
    let faults = run.events.unwrap().faults;
    faults.into_iter().map(|row| (row.label, row.faults)).collect()
}

/// When two threads write to a fresh page, one of them gets it, and every other fault on it is
/// needless.
#[test]
fn of_threads_that_race_for_pages_each_page_has_one_that_touched_it_first() {
    let _machine = machine();
    let mut signals = Signals::catch().unwrap();
    let (without, with) = (raced(0, &mut signals), raced(2000, &mut signals));
    let count = |faults: &BTreeMap<_, u64>, label| faults.get(label).copied().unwrap_or(0);
    // The start touches 147 to 149 pages first, mostly 148.
    let first = count(&with, "first touch") - count(&without, "first touch");
    assert!((1997..=2003).contains(&first), "{without:?} {with:?}");
    let lost = count(&with, "spurious, overlapping");
    assert!((1..=2010).contains(&lost), "nobody raced: {with:?}");
}

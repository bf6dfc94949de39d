//! Whether watching counts exactly what there is: N rounds of a workload are N times what its table
//! says, class by class and cause by cause, and every fault and flush event that the kernel counted
//! has been seen.
#![allow(clippy::unwrap_used)]

use needless_live::child::Runner;
use needless_live::machine::Machine;
use needless_scenario::{Settings, compile, load};
use needless_watch::signals::Signals;
use needless_watch::{Observation, Options, Target, watch};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

const ROUNDS: u64 = 100;

/// A round in which somebody else takes the second CPU has other flushes, so a measurement may be
/// repeated; it is never averaged, and no part of it left out.
const ATTEMPTS: u32 = 8;

/// Faults by class; flushes by cause, sent and local.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Counts {
    faults: BTreeMap<String, u64>,
    flushes: BTreeMap<String, (u64, u64)>,
    without_exception: u64,
}

impl Counts {
    fn of(run: &Observation) -> Counts {
        let events = run.events.as_ref().unwrap_or_else(|| panic!("no events: {:?}", run.missing));
        let mut counts = Counts::default();
        for row in &events.faults {
            *counts.faults.entry(row.class.to_owned()).or_default() += row.faults;
        }
        for row in &events.flushes {
            counts.flushes.insert(row.cause.clone(), (row.sent, row.local));
        }
        counts.without_exception = events.faults_without_exception.unwrap();
        counts
    }

    fn expected(per_round: &Value) -> Counts {
        let times = |value: &Value| value.as_u64().unwrap() * ROUNDS;
        let faults = per_round["faults"].as_object().unwrap();
        let flushes = per_round["flushes"].as_object().unwrap();
        let flush = |(cause, count): (&String, &Value)| {
            (cause.clone(), (times(&count["sent"]), times(&count["local"])))
        };
        Counts {
            faults: faults.iter().map(|(class, count)| (class.clone(), times(count))).collect(),
            flushes: flushes.iter().map(flush).collect(),
            without_exception: times(&per_round["without_exception"]),
        }
    }
}

/// Watches the rounds of a workload and nothing else: it waits at a gate before and after them,
/// and the command that says how long to watch opens the first and waits for the second.
fn rounds_of(name: &str, signals: &mut Signals) -> Observation {
    let mut workload = Command::new(env!("CARGO_BIN_EXE_needless-workload"))
        .args(["run", name, "--gate", "--rounds", &ROUNDS.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut told = workload.stdout.take().unwrap();
    let mut gate = workload.stdin.take().unwrap();
    let mut line = Vec::new();
    let mut byte = [0];
    while line.last() != Some(&b'\n') && told.read(&mut byte).unwrap() == 1 {
        line.push(byte[0]);
    }
    assert!(line.ends_with(b"\n"), "{name} did not start");
    let mut open = Command::new("sh");
    open.args(["-c", "echo; read -r line"]);
    open.stdin(told.as_fd().try_clone_to_owned().unwrap());
    open.stdout(gate.as_fd().try_clone_to_owned().unwrap());
    let target = Target::Process(workload.id() as i32);
    let options = Options { target, ring_bytes: 8 << 20 };
    let run = watch(&options, Some(open), signals, &|_, _| {}).unwrap();
    gate.write_all(b"\n").unwrap();
    drop((gate, told));
    assert!(workload.wait().unwrap().success(), "{name}");
    let counted = run.events.as_ref().unwrap().counted;
    assert_eq!(counted.faults, counted.faults_seen, "{name}: {counted:?}");
    assert_eq!(counted.flush_events, counted.flush_events_seen, "{name}: {counted:?}");
    run
}

/// Swap space, and the machine to oneself: tests take turns. The machine is given back first.
fn machine() -> (Machine, MutexGuard<'static, ()>) {
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let seed = compile(&load("cow-reuse").unwrap(), &Settings::default()).unwrap();
    (Machine::prepare(&Runner::find().unwrap(), &seed).unwrap(), turn)
}

fn workloads() -> Vec<Value> {
    let listed =
        Command::new(env!("CARGO_BIN_EXE_needless-workload")).args(["list", "--json"]).output();
    serde_json::from_slice(&listed.unwrap().stdout).unwrap()
}

#[test]
fn every_class_and_every_cause_is_counted_exactly() {
    let _machine = machine();
    let mut signals = Signals::catch().unwrap();
    let mut wrong = Vec::new();
    for workload in workloads() {
        let name = workload["name"].as_str().unwrap();
        let expected = Counts::expected(&workload["per_round"]);
        let mut found = Counts::default();
        let exact = (0..ATTEMPTS).any(|_| {
            found = Counts::of(&rounds_of(name, &mut signals));
            found == expected
        });
        if !exact {
            wrong.push(format!("{name}\n  found    {found:?}\n  expected {expected:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The shape of study 1: of two shootdowns per round one is redundant, and MADV_PAGEOUT after a
/// batched unmap is its cause.
#[test]
fn the_seed_benchmark_has_one_redundant_shootdown_per_round() {
    let _machine = machine();
    let mut signals = Signals::catch().unwrap();
    let found = (0..ATTEMPTS).map(|_| {
        let events = rounds_of("swap_rw", &mut signals).events.unwrap();
        let by_pageout = |cause: &str| cause == "madvise(MADV_PAGEOUT)";
        let sent = events.flushes.iter().filter(|row| by_pageout(&row.cause)).map(|row| row.sent);
        let needless = events.needless.unwrap();
        let told = needless.iter().filter(|row| by_pageout(&row.cause));
        let told = told.map(|row| (row.what, row.times, row.certain)).collect::<Vec<_>>();
        (sent.sum::<u64>(), told)
    });
    // Of the first one the reason lies before the beginning.
    let told = ROUNDS - 1;
    let expected = (2 * ROUNDS, vec![("redundant full flush", told, told)]);
    let found: Vec<_> = found.take_while(|found| *found != expected).collect();
    assert!(found.len() < ATTEMPTS as usize, "{found:?}");
}

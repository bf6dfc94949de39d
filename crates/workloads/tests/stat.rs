//! Whether watching counts exactly what there is: N rounds of a workload less none of them are N
//! times what its table says, class by class and cause by cause, and every fault and flush event
//! that the kernel counted has been seen.
#![allow(clippy::unwrap_used)]

use needless_live::Machine;
use needless_live::child::Runner;
use needless_scenario::{Settings, compile, load};
use needless_watch::signals::Signals;
use needless_watch::{Observation, Options, Target, watch};
use serde_json::Value;
use std::collections::BTreeMap;
use std::process::Command;

const ROUNDS: i64 = 100;

/// A round in which somebody else takes the second CPU has other flushes, so a measurement may be
/// repeated; it is never averaged, and no part of it left out.
const ATTEMPTS: u32 = 8;

/// Faults by class; flushes by cause, sent and local.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Counts {
    faults: BTreeMap<String, i64>,
    flushes: BTreeMap<String, (i64, i64)>,
    without_exception: i64,
}

impl Counts {
    fn of(run: &Observation) -> Counts {
        let events = run.events.as_ref().unwrap_or_else(|| panic!("no events: {:?}", run.missing));
        let mut counts = Counts::default();
        for row in &events.faults {
            *counts.faults.entry(row.class.to_owned()).or_default() += row.faults as i64;
        }
        for row in &events.flushes {
            counts.flushes.insert(row.cause.clone(), (row.sent as i64, row.local as i64));
        }
        // Starting a program is no part of a round, and whether its flush is sent is up to the
        // scheduler.
        counts.flushes.remove("execve");
        counts.without_exception = events.faults_without_exception.unwrap() as i64;
        counts
    }

    fn less(mut self, base: &Counts) -> Counts {
        for (class, count) in &base.faults {
            *self.faults.entry(class.clone()).or_default() -= count;
        }
        for (cause, (sent, local)) in &base.flushes {
            let own = self.flushes.entry(cause.clone()).or_default();
            *own = (own.0 - sent, own.1 - local);
        }
        self.faults.retain(|_, count| *count != 0);
        self.flushes.retain(|_, count| *count != (0, 0));
        self.without_exception -= base.without_exception;
        self
    }

    fn expected(per_round: &Value) -> Counts {
        let times = |value: &Value| value.as_i64().unwrap() * ROUNDS;
        let faults = per_round["faults"].as_object().unwrap();
        let flushes = per_round["flushes"].as_object().unwrap();
        Counts {
            faults: faults.iter().map(|(class, count)| (class.clone(), times(count))).collect(),
            flushes: flushes
                .iter()
                .map(|(cause, count)| {
                    (cause.clone(), (times(&count["sent"]), times(&count["local"])))
                })
                .collect(),
            without_exception: times(&per_round["without_exception"]),
        }
    }
}

struct Watcher {
    signals: Signals,
}

impl Watcher {
    fn run(&mut self, name: &str, rounds: i64) -> Observation {
        // Addresses decide how many page tables the start needs.
        let mut command = Command::new("setarch");
        command.args(["-R", env!("CARGO_BIN_EXE_needless-workload"), "run", name, "--rounds"]);
        command.arg(format!("{rounds:04}"));
        let options = Options { target: Target::Command, ring_bytes: 8 << 20 };
        let run = watch(&options, Some(command), &mut self.signals, &|_, _| {}).unwrap();
        assert_eq!(run.status, Some(0), "{name}");
        let counted = run.events.as_ref().unwrap().counted;
        assert_eq!(counted.faults, counted.faults_seen, "{name}: {counted:?}");
        assert_eq!(counted.flush_events, counted.flush_events_seen, "{name}: {counted:?}");
        run
    }

    /// The counts of the rounds alone, and the last observation of them.
    fn rounds(&mut self, name: &str) -> (Counts, Observation) {
        let base = Counts::of(&self.run(name, 0));
        let full = self.run(name, ROUNDS);
        (Counts::of(&full).less(&base), full)
    }
}

fn workloads() -> Vec<Value> {
    let listed =
        Command::new(env!("CARGO_BIN_EXE_needless-workload")).args(["list", "--json"]).output();
    serde_json::from_slice(&listed.unwrap().stdout).unwrap()
}

#[test]
fn every_class_and_every_cause_is_counted_exactly() {
    let seed = compile(&load("cow-reuse").unwrap(), &Settings::default()).unwrap();
    let _swap = Machine::prepare(&Runner::find().unwrap(), &seed).unwrap();
    let mut watcher = Watcher { signals: Signals::catch().unwrap() };
    let mut wrong = Vec::new();
    for workload in workloads() {
        let name = workload["name"].as_str().unwrap();
        let expected = Counts::expected(&workload["per_round"]);
        let mut found = Counts::default();
        let exact = (0..ATTEMPTS).any(|_| {
            found = watcher.rounds(name).0;
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
    let seed = compile(&load("cow-reuse").unwrap(), &Settings::default()).unwrap();
    let _swap = Machine::prepare(&Runner::find().unwrap(), &seed).unwrap();
    let mut watcher = Watcher { signals: Signals::catch().unwrap() };
    let redundant = |run: &Observation| {
        let found = run.events.as_ref().unwrap().needless.clone().unwrap();
        let of_pageout = found.into_iter().filter(|row| row.cause == "madvise(MADV_PAGEOUT)");
        let full = of_pageout.filter(|row| row.what == "redundant full flush");
        full.map(|row| (row.times as i64, row.certain as i64)).next().unwrap_or_default()
    };
    let found = (0..ATTEMPTS).map(|_| {
        let base = redundant(&watcher.run("swap_rw", 0));
        let full = watcher.run("swap_rw", ROUNDS);
        let sent = full.events.as_ref().unwrap().flushes.iter();
        let sent = sent.filter(|row| row.cause == "madvise(MADV_PAGEOUT)").map(|row| row.sent);
        let all = redundant(&full);
        (sent.sum::<u64>() as i64 / ROUNDS, (all.0 - base.0, all.1 - base.1))
    });
    let expected = (2, (ROUNDS, ROUNDS));
    let found: Vec<_> = found.take_while(|found| *found != expected).collect();
    assert!(found.len() < ATTEMPTS as usize, "{found:?}");
}

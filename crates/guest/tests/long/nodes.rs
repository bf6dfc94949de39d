//! Pages that move between NUMA nodes: in every round, kernels do what tests/captures-nodes.tsv
//! has.

use super::boot::usual;
use needless_guest::{KernelTarget, run_batch};
use needless_model::account::Account;
use needless_model::counters::Counter;
use needless_model::program::{OpKind, Program};
use needless_scenario::{Settings, compile, load};
use needless_testing::{skip, turn};

const ROUNDS: u32 = 5;

/// A row of the table: a scenario with its settings, kernels, faults, sequence.
fn rows() -> impl Iterator<Item = [&'static str; 4]> {
    let text = include_str!("../../../../tests/captures-nodes.tsv");
    text.lines().filter(|line| !line.starts_with('#')).map(|line| {
        let fields: Vec<&str> = line.split('\t').collect();
        fields.try_into().unwrap_or_else(|_| panic!("a row without four fields: {line}"))
    })
}

fn program(scenario: &str) -> Program {
    let mut words = scenario.split(' ');
    let name = words.next().unwrap();
    let settings: Settings = words.map(|word| word.split_once('=').unwrap()).collect();
    let mut program = compile(&load(name).unwrap(), &settings).unwrap();
    for op in &mut program.threads[0].body {
        if let OpKind::Rounds { count, .. } = &mut op.kind {
            *count = ROUNDS;
        }
    }
    program
}

fn check(kernel: &str) {
    let _turn = turn();
    let of_kernel = |row: &[&'static str; 4]| row[1].split(' ').any(|of| of == kernel);
    let rows: Vec<_> = rows().filter(of_kernel).collect();
    assert!(!rows.is_empty(), "{kernel}");
    let programs: Vec<Program> = rows.iter().map(|row| program(row[0])).collect();
    let results = run_batch(&KernelTarget::named(kernel, usual()), &programs, &|_| {}).unwrap();
    let mut undecided = Vec::new();
    for (([scenario, _, faults, sequence], program), run) in rows.iter().zip(&programs).zip(results)
    {
        let run = run.unwrap_or_else(|error| panic!("{kernel}: {scenario}: {error}"));
        if run.invalid.is_some() {
            undecided.push(*scenario);
            continue;
        }
        let account = Account::of(program, &run);
        for round in account.kinds.iter().map(|kind| &kind.account) {
            let count = |counter| round.counters.get(counter).unwrap_or(0);
            let found = format!("{}/{}", count(Counter::MinorFaults), count(Counter::MajorFaults));
            assert_eq!(found, *faults, "{kernel}: {scenario}");
            let found = round.sequence.as_ref().map_or(String::new(), ToString::to_string);
            assert_eq!(found, *sequence, "{kernel}: {scenario}");
        }
    }
    if !undecided.is_empty() {
        skip!("{kernel}: disturbed in {undecided:?}");
    }
}

#[test]
fn pages_move_as_they_did_on_5_10() {
    check("5.10");
}

#[test]
fn pages_move_as_they_did_on_6_1() {
    check("6.1");
}

#[test]
fn pages_move_as_they_did_on_6_12() {
    check("6.12");
}

#[test]
fn pages_move_as_they_did_on_6_18() {
    check("6.18");
}

#[test]
fn pages_move_as_they_did_on_7_3() {
    check("7.3");
}

//! Runs every built-in scenario on each of these arm64 kernels, and prints what its rounds have in
//! common: faults, and the instructions that QEMU's plugin counted.
//!
//! `cargo run -p needless-guest --example instructions -- 6.12/arm64 6.12/arm64,cpu=cortex-a72`
//!
//! If `ONLY` is set, it runs only scenarios whose names begin with one of the words in it.

use needless_guest::{KernelTarget, run_batch};
use needless_model::run::{Round, TargetRun};
use needless_scenario::{Settings, builtin, compile, load};
use std::collections::BTreeMap;

fn text(round: &Round) -> String {
    let phase = |phase: &BTreeMap<String, u64>| {
        let counts: Vec<String> = phase.iter().map(|(name, n)| format!("{name}={n}")).collect();
        if counts.is_empty() { "0".to_owned() } else { counts.join(" ") }
    };
    let count = |faults: Option<u64>| faults.map_or("?".to_owned(), |n| n.to_string());
    let phases: Vec<String> = round.instructions.iter().map(phase).collect();
    let (minor, major) = (count(round.minor_faults), count(round.major_faults));
    format!("{minor}/{major}\t{}", phases.join(" ¦ "))
}

fn print(name: &str, target: &KernelTarget, run: &TargetRun) {
    let mut groups: BTreeMap<String, usize> = BTreeMap::new();
    for round in &run.rounds {
        *groups.entry(text(round)).or_default() += 1;
    }
    for (text, rounds) in groups {
        println!("{name}\t{target}\t{text}\t{rounds} of {}", run.rounds.len());
    }
    if let Some(why) = &run.invalid {
        println!("{name}\t{target}\tinvalid: {why} {:?}", run.witness.marked);
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let only = std::env::var("ONLY").unwrap_or_default();
    let wanted = |name: &&str| only.is_empty() || only.split(' ').any(|w| name.starts_with(w));
    let names: Vec<&str> = builtin::names().filter(wanted).collect();
    let programs = names.iter().map(|name| Ok(compile(&load(name)?, &Settings::default())?));
    let programs = programs.collect::<Result<Vec<_>, Box<dyn std::error::Error>>>()?;
    for kernel in std::env::args().skip(1) {
        let target = KernelTarget::parse(&kernel)?;
        let results = run_batch(&target, &programs, &|_| {})?;
        for (name, result) in names.iter().zip(results) {
            match result {
                Ok(run) => print(name, &target, &run),
                Err(error) => println!("{name}\t{target}\t{error}"),
            }
        }
    }
    Ok(())
}

//! What the model makes of scenarios that once differed from a real kernel (`tests/regressions/*.kdl`), pinned: sequence,
//! faults, swap counts and last page states, as `needless agree tests/regressions/*.kdl` found them on those kernels.
#![allow(clippy::unwrap_used)]

mod common;

use common::fold;
use needless_model::agreement::SwapCounts;
use needless_model::kernels::KernelRow;
use needless_model::program::Program;
use needless_model::run::{Round, TargetRun};
use needless_model::sequence::{Sequence, TraceOrder};
use needless_model::sim::{self, SimOptions, alike_from};
use needless_scenario::{Settings, compile, load};
use std::path::{Path, PathBuf};

/// The rows of the kernels that are booted.
const ROWS: [&str; 5] = ["5.10", "6.1,la57=on", "6.12,la57=on", "6.18,la57=on", "7.3,la57=on"];

fn scenarios() -> Vec<PathBuf> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/regressions");
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

/// Faults (minor/major), sequence and swap counts of a round.
fn round(round: &Round, sequence: &str) -> String {
    let swapped = SwapCounts::modelled(round).named().filter(|(_, count)| *count != Some(0));
    let swapped = swapped.map(|(name, count)| format!(" {name}={}", count.unwrap()));
    let (minor, major) = (round.minor_faults.unwrap(), round.major_faults.unwrap());
    format!("[{minor}/{major} {sequence}{}]", swapped.collect::<String>())
}

fn told(program: &Program, run: &TargetRun) -> String {
    let order = TraceOrder::of(run.rounds.iter().map(|round| &round.events[..]));
    let sequence = |round: &Round| Sequence::of(program, &round.events, order).to_string();
    let rounds: Vec<String> = run.rounds.iter().map(|r| round(r, &sequence(r))).collect();
    let pages = run.final_pages.iter().map(|(page, state)| format!(" {page}:{state}"));
    fold(&rounds) + &pages.collect::<String>()
}

fn modelled(path: &Path, row: &str) -> String {
    let program = compile(&load(path.to_str().unwrap()).unwrap(), &Settings::default()).unwrap();
    let row = KernelRow::parse(row).unwrap();
    let alike = match alike_from(&program, &row) {
        u32::MAX => "never".to_owned(),
        round => round.to_string(),
    };
    let options = SimOptions { paranoid: true, ..SimOptions::default() };
    match sim::run(&program, &row, &options) {
        Ok(run) => format!("{}; alike from {alike}", told(&program, &run)),
        Err(error) => error.to_string(),
    }
}

#[test]
fn the_model_stays_with_what_kernels_did() {
    let mut lines = String::new();
    for path in scenarios() {
        let mut groups: Vec<(String, Vec<&str>)> = Vec::new();
        for row in ROWS {
            let text = modelled(&path, row);
            match groups.iter_mut().find(|(known, _)| *known == text) {
                Some((_, rows)) => rows.push(row),
                None => groups.push((text, vec![row])),
            }
        }
        let name = path.file_stem().unwrap().to_str().unwrap();
        for (text, rows) in groups {
            lines += &format!("{name} on {}\n    {text}\n", rows.join(" "));
        }
    }
    insta::assert_snapshot!("regressions", lines);
}

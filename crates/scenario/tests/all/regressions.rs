//! Pins what the model does with the scenarios in `tests/regressions/*.kdl`: sequences, faults,
//! swap counts and the last page states. These scenarios once differed from a real kernel, or
//! showed what kernels do with huge pages. The pinned values are what `needless agree
//! tests/regressions/*.kdl` found on those kernels.

use crate::common::told;
use needless_model::kernels::KernelRow;
use needless_model::sim::{self, SimOptions, alike_from};
use needless_scenario::{Settings, compile, load};
use needless_testing::each;
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
    let of = |path: &PathBuf| {
        let mut lines = String::new();
        let mut groups: Vec<(String, Vec<&str>)> = Vec::new();
        for row in ROWS {
            let text = modelled(path, row);
            match groups.iter_mut().find(|(known, _)| *known == text) {
                Some((_, rows)) => rows.push(row),
                None => groups.push((text, vec![row])),
            }
        }
        let name = path.file_stem().unwrap().to_str().unwrap();
        for (text, rows) in groups {
            lines += &format!("{name} on {}\n    {text}\n", rows.join(" "));
        }
        lines
    };
    insta::assert_snapshot!("regressions", each(&scenarios(), of).concat());
}

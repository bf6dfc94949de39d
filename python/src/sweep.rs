//! What workers of a sweep do: many points, or many random scenarios, in one call without the GIL.

use crate::error::{Failure, row_of};
use crate::run::{KINDS, memory, target};
use crate::source::{Source, drawn_for};
use crate::table::Table;
use needless_model::compared::told;
use needless_model::kernels::KernelRow;
use needless_model::program::Program;
use needless_model::sim::{self, SimOptions};
use needless_report::compare::{Comparison, Outcome, Target};
use needless_scenario::random::{self, Target as DrawnFor};
use needless_scenario::{Settings, Source as Text, compile};
use needless_tables::{Cells, Column};
use pyo3::prelude::*;
use std::collections::BTreeMap;
use xxhash_rust::xxh3::xxh3_64;

/// Runs a scenario in rows of the model with each of many sets of values; one row for each set and
/// target. What cannot run has a row that says why.
#[pyfunction]
pub fn points(
    py: Python<'_>,
    source: &Source,
    names: Vec<String>,
    values: Vec<Vec<i64>>,
    rounds: Option<u32>,
    targets: Vec<String>,
    max_memory: Option<u64>,
) -> PyResult<Table> {
    let run = || -> Result<Table, Failure> {
        let rows: Vec<KernelRow> =
            targets.iter().map(|name| row_of(name)).collect::<Result<_, _>>()?;
        let memory = memory(max_memory);
        let point = |values: &Vec<i64>| point(source, &names, values, rounds, &rows, memory);
        let comparisons = values.iter().map(point).collect::<Result<Vec<_>, Failure>>()?;
        Ok(needless_tables::summary(&comparisons)?.into())
    };
    Ok(py.detach(run)?)
}

fn point(
    source: &Source,
    names: &[String],
    values: &[i64],
    rounds: Option<u32>,
    rows: &[KernelRow],
    memory: u64,
) -> Result<Comparison, Failure> {
    let given = || names.iter().cloned().zip(values.iter().copied());
    let settings: BTreeMap<String, String> =
        given().map(|(name, value)| (name, value.to_string())).collect();
    let (program, targets) = match source.compiled(&settings, rounds) {
        Ok(program) => {
            let of = |row| target(&program, row, memory, KINDS);
            let targets = rows.iter().map(of).collect::<Result<Vec<Target>, Failure>>()?;
            (program, targets)
        }
        Err(error) => {
            let refused = |row: &KernelRow| Target {
                name: format!("model:{}", row.name),
                remark: None,
                outcome: Outcome::Unavailable { reason: error.to_string(), help: None },
            };
            let name = source.source.name.clone();
            let program = Program { name, parameters: given().collect(), ..Program::default() };
            (program, rows.iter().map(refused).collect())
        }
    };
    Ok(Comparison { program, targets, steps: Vec::new(), avoided: Vec::new() })
}

/// One random scenario in a row: its hash, its rounds, and why it did not run, if so.
struct Digest {
    hash: String,
    rounds: Option<u64>,
    reason: Option<String>,
}

/// The hash that `tests/agreed.tsv` has for a seed, too: of faults, flushes, swap and pages at the
/// end.
fn digest(seed: u64, drawn: &DrawnFor, row: &KernelRow) -> Result<Digest, Failure> {
    let text = random::generate(seed, drawn).text().unwrap_or_default();
    let program = compile(&Text::new("random", text), &Settings::default())?;
    let run = sim::run(&program, row, &SimOptions::default());
    let (words, rounds, reason) = match run {
        Ok(run) => (told(&program, &run), Some(run.rounds.len() as u64), None),
        Err(error) => (error.to_string(), None, Some(error.to_string())),
    };
    let hash = format!("{:08x}", xxh3_64(words.as_bytes()) >> 32);
    Ok(Digest { hash, rounds, reason })
}

/// Random scenarios of consecutive seeds in one row of the model, each as a hash of all that
/// agreement compares.
#[pyfunction]
pub fn digests(
    py: Python<'_>,
    first: u64,
    count: u64,
    target: &str,
    release: Option<(u32, u32)>,
    cpus: usize,
    without: Vec<String>,
) -> PyResult<Table> {
    let row = row_of(target)?;
    let drawn = drawn_for(release.unwrap_or(row.release), cpus, &without)?;
    let seeds = || first..first.saturating_add(count);
    let run = || -> Result<Vec<Digest>, Failure> {
        seeds().map(|seed| digest(seed, &drawn, &row)).collect()
    };
    let digests = py.detach(run)?;
    let rows = digests.len();
    let (major, minor) = drawn.release;
    let same = |text: String| Cells::Texts(vec![Some(text); rows]);
    let column = |name, doc| Column { name, unit: None, doc };
    let columns = vec![
        (column("seed", "the scenario's seed"), Cells::Numbers(seeds().map(Some).collect())),
        (column("target", "the model's row"), same(target.to_owned())),
        (column("release", "the release that it was drawn for"), same(format!("{major}.{minor}"))),
        (
            column("cpus", "the CPUs of the machine that it was drawn for"),
            Cells::Numbers(vec![Some(cpus as u64); rows]),
        ),
        (column("without", "what it was drawn without"), same(without.join(" "))),
        (
            column(
                "hash",
                "of rounds, sequences, swap and pages at the end, as in tests/agreed.tsv",
            ),
            Cells::Texts(digests.iter().map(|digest| Some(digest.hash.clone())).collect()),
        ),
        (
            Column { unit: Some("rounds"), ..column("rounds", "rounds that count") },
            Cells::Numbers(digests.iter().map(|digest| digest.rounds).collect()),
        ),
        (
            column("reason", "why the row does not run it"),
            Cells::Texts(digests.iter().map(|digest| digest.reason.clone()).collect()),
        ),
    ];
    Ok(needless_tables::table("digests", columns).map_err(Failure::from)?.into())
}

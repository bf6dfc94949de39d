//! Runs side by side.

use super::jobs::Jobs;
use needless_report::compare::Ran;
use needless_report::stats::median;
use needless_report::study::{TableResult, TableRow};
use needless_scenario::study::{Part, Run, Table};

/// The part's tables: one for each target that any of a table's runs names.
pub(super) fn all(part: &Part, jobs: &Jobs) -> Vec<TableResult> {
    part.tables.iter().flat_map(|table| of(table, part, jobs)).collect()
}

fn of(table: &Table, part: &Part, jobs: &Jobs) -> Vec<TableResult> {
    let named = table.runs.iter().filter_map(|name| part.runs.iter().find(|run| run.name == *name));
    let runs: Vec<&Run> = named.collect();
    let mut targets: Vec<&str> = Vec::new();
    for on in runs.iter().flat_map(|run| &run.targets) {
        if !targets.contains(&on.target.as_str()) {
            targets.push(&on.target);
        }
    }
    let on_target = |target: &str| TableResult {
        text: table.text.clone(),
        target: target.to_owned(),
        counters: table.counters.clone(),
        per: table.per,
        rows: runs.iter().map(|run| row(table, run, jobs.on_target(run, target))).collect(),
    };
    targets.into_iter().map(on_target).filter(|table| !nothing(table)).collect()
}

/// Whether nothing ran on the table's target.
fn nothing(table: &TableResult) -> bool {
    table.rows.iter().all(|row| row.counts.is_err())
}

fn row(table: &Table, run: &Run, ran: Result<&Ran, String>) -> TableRow {
    let cycles = ran.as_ref().ok().and_then(|ran| {
        let sums = ran.account.rounds.iter().filter(|round| !round.cycles.is_empty());
        let sums = sums.map(|round| round.cycles.iter().map(|block| block.cycles).sum());
        Some(median(&sums.collect::<Vec<u64>>())?.median as f64 / table.per)
    });
    let counts = ran.map(|ran| {
        table.counters.iter().map(|counter| ran.account.typical(*counter)).collect::<Vec<_>>()
    });
    TableRow { run: run.name.clone(), counts, cycles }
}

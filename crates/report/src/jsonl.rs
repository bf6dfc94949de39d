//! Event streams as JSON Lines: a header line, then one event per line.

use crate::SCHEMA_VERSION;
use needless_model::event::{EVENT_VERSION, Event};
use needless_model::run::TargetRun;
use serde::Serialize;
use std::io::{self, Write};

#[derive(Serialize)]
struct Header<'a> {
    schema_version: u32,
    event_version: u32,
    scenario: &'a str,
    targets: Vec<TargetHeader<'a>>,
}

#[derive(Serialize)]
struct TargetHeader<'a> {
    target: &'a str,
    release: Option<&'a str>,
    rounds: usize,
    events_lost: u64,
    invalid: Option<&'a str>,
}

#[derive(Serialize)]
struct Line<'a> {
    target: &'a str,
    round: u32,
    #[serde(flatten)]
    event: &'a Event,
}

/// Writes the events of all `runs` of `scenario`.
pub fn write(out: &mut impl Write, scenario: &str, runs: &[&TargetRun]) -> io::Result<()> {
    let targets = runs.iter().map(|run| TargetHeader {
        target: &run.target,
        release: run.release.as_deref(),
        rounds: run.rounds.len(),
        events_lost: run.witness.events_lost,
        invalid: run.invalid.as_deref(),
    });
    let header = Header {
        schema_version: SCHEMA_VERSION,
        event_version: EVENT_VERSION,
        scenario,
        targets: targets.collect(),
    };
    line(out, &header)?;
    for run in runs {
        for round in &run.rounds {
            for event in &round.events {
                line(out, &Line { target: &run.target, round: round.index, event })?;
            }
        }
    }
    Ok(())
}

fn line(out: &mut impl Write, value: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *out, value)?;
    out.write_all(b"\n")
}

//! Event streams as JSON Lines: a header line, then one event per line.

use crate::SCHEMA_VERSION;
use crate::compare::Ran;
use needless_model::event::{EVENT_VERSION, Event};
use needless_model::run::Round;
use serde::{Deserialize, Serialize};
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

/// Writes the line that comes before all events: the scenario and the targets that ran it.
pub fn header(out: &mut impl Write, scenario: &str, targets: &[&Ran]) -> io::Result<()> {
    let targets = targets.iter().map(|Ran { run, account, .. }| TargetHeader {
        target: &run.target,
        release: run.release.as_deref(),
        rounds: account.total,
        events_lost: run.witness.events_lost,
        invalid: run.invalid.as_deref(),
    });
    let header = Header {
        schema_version: SCHEMA_VERSION,
        event_version: EVENT_VERSION,
        scenario,
        targets: targets.collect(),
    };
    line(out, &header)
}

/// Writes the events of a round.
pub fn round(out: &mut impl Write, target: &str, round: &Round) -> io::Result<()> {
    let lines = round.events.iter().map(|event| Line { target, round: round.index, event });
    lines.into_iter().try_for_each(|event| line(out, &event))
}

/// An event as a line has it.
#[derive(Debug, Deserialize)]
pub struct Read {
    /// The target's name.
    pub target: String,
    /// The round's number.
    pub round: u32,
    /// The event.
    #[serde(flatten)]
    pub event: Event,
}

/// Reads the line of an event.
pub fn read(line: &str) -> io::Result<Read> {
    Ok(serde_json::from_str(line)?)
}

fn line(out: &mut impl Write, value: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *out, value)?;
    out.write_all(b"\n")
}

//! The page of `needless stat`: what the kernel's time went to, who interrupted whom, and where the
//! program was.

use super::chart::{Bar, Curve, Part, Row, bars, curves, flame, flow};
use super::frame::{Cell, LAID_OUT, LINES, Made, Page, laid_out, list, table};
use crate::stat::{Stat, answer, json, parts, party, time};
use maud::{Markup, html};
use needless_watch::Observation;
use needless_watch::attribution::Attribution;
use needless_watch::observation::Events;
use std::collections::BTreeMap;

/// What of the data may be left out, in this order.
const MAY_GO: &[&str] = &[
    "/runs/*/events/memory/faults",
    "/runs/*/events/memory/calls",
    "/runs/*/events/memory/sites",
    "/runs/*/events/memory",
    "/runs/*/events/guard/disturbances",
    "/runs/*/events/counted_interrupts",
];

/// Rows of interrupts that the page has.
const MOST_ROWS: usize = 200;

/// The page of what was watched. Of several runs the pictures show the last one.
pub fn stat(stat: &Stat<'_>, made: &Made) -> String {
    let sentences = parts(stat, LINES).into_iter().next().unwrap_or_default();
    let rest: Vec<String> = parts(stat, LAID_OUT).into_iter().skip(1).collect();
    let last = stat.runs.len().saturating_sub(1);
    let run = stat.runs.last();
    let events = run.and_then(|run| run.events.as_ref());
    Page {
        title: format!("{}: what the kernel did for it", stat.subject),
        answer: list(sentences.lines()),
        picture: html! {
            @if let Some(run) = run { (shares(run)) }
            @if let Some(events) = events { (pictures(events)) }
        },
        tables: html! {
            @if let Some(events) = events { (tables(events, last)) }
            h3 { "The report as text" }
            (laid_out(&rest.join("\n"), "The report as text"))
        },
        machines: vec![(stat.subject, stat.environment)],
        document: json(stat),
        may_go: MAY_GO,
        moves: false,
    }
    .render(made)
}

/// What the time went to.
fn shares(run: &Observation) -> Markup {
    let answer = answer(run);
    let findings = answer.iter().flat_map(|answer| &answer.findings).enumerate();
    let rows: Vec<Row> = findings
        .map(|(kind, item)| {
            let share = item.share.map(|share| format!(", {:.0} % of kernel time", 100.0 * share));
            let said = format!("{}{}", time(item.time_ns), share.unwrap_or_default());
            let part = Part { kind, value: item.time_ns as f64, said };
            let bar = Bar {
                name: "time".to_owned(),
                parts: vec![part],
                empty: String::new(),
                quiet: false,
            };
            Row { name: item.text.clone(), bars: vec![bar], most: None }
        })
        .collect();
    html! { @if !rows.is_empty() { (bars("What the time went to", &[], &rows)) } }
}

fn pictures(events: &Events) -> Markup {
    let interrupts = events.interrupts.iter().flatten();
    let links: Vec<(String, String, u64)> =
        interrupts.map(|row| (party(&row.from), party(&row.to), row.interrupts)).collect();
    html! {
        (flow("Who interrupted whom, how often", &links))
        (curves("Disturbances so far", "seconds", "disturbances", &over_time(events)))
        @if let Some(memory) = &events.memory {
            (flame("Where faults were taken, by their number", &stacks(memory, false)))
            (flame("Where memory calls were made, by their time", &stacks(memory, true)))
        }
    }
}

/// How many disturbances had reached each guarded CPU, by time.
fn over_time(events: &Events) -> Vec<Curve> {
    let mut points: BTreeMap<u16, Vec<(f64, f64)>> = BTreeMap::new();
    for disturbed in events.guard.iter().flat_map(|guard| &guard.disturbances) {
        let curve = points.entry(disturbed.cpu).or_default();
        let seconds = disturbed.at_ns as f64 / 1e9;
        curve.push((seconds, curve.len() as f64 + 1.0));
    }
    let curve = |(cpu, points): (u16, _)| Curve { name: format!("CPU {cpu}"), points };
    points.into_iter().map(curve).collect()
}

/// The call sites of faults with their number, or of calls with their time; the outermost function
/// first.
fn stacks(memory: &Attribution, calls: bool) -> Vec<(Vec<String>, u64)> {
    let mut times: BTreeMap<usize, u64> = BTreeMap::new();
    if calls {
        for row in &memory.calls {
            *times.entry(row.site.unwrap_or(usize::MAX)).or_default() += row.time_ns;
        }
    } else {
        for row in &memory.faults {
            *times.entry(row.site.unwrap_or(usize::MAX)).or_default() += row.faults;
        }
    }
    let stack = |(site, times): (usize, u64)| {
        let frames = memory.sites.get(site)?;
        let names = frames.iter().rev().map(|frame| frame.function.clone());
        Some((names.collect(), times)).filter(|(_, times)| *times > 0)
    };
    times.into_iter().filter_map(stack).collect()
}

fn tables(events: &Events, run: usize) -> Markup {
    let place = format!("/runs/{run}/events");
    let faults = events.faults.iter().enumerate().map(|(at, row)| {
        let at = format!("{place}/faults/{at}");
        vec![
            Cell::words(row.label),
            Cell::words(format!("{:?}", row.confidence).to_lowercase()),
            Cell::figure(Some(row.faults), format!("{at}/faults")),
            Cell::figure(row.time_ns, format!("{at}/time_ns")),
        ]
    });
    let flushes = events.flushes.iter().flatten().enumerate().map(|(at, row)| {
        let at = format!("{place}/flushes/{at}");
        let figure = |name: &str, value: u64| Cell::figure(Some(value), format!("{at}/{name}"));
        vec![
            Cell::words(&row.cause),
            figure("sent", row.sent),
            figure("local", row.local),
            figure("full", row.full),
            figure("interrupts", row.interrupts),
        ]
    });
    let interrupts = events.interrupts.iter().flatten().enumerate().take(MOST_ROWS);
    let interrupts = interrupts.map(|(at, row)| {
        let place = format!("{place}/interrupts/{at}/interrupts");
        vec![
            Cell::words(party(&row.from)),
            Cell::words(party(&row.to)),
            Cell::words(row.asked),
            Cell::words(&row.cause),
            Cell::figure(Some(row.interrupts), place),
        ]
    });
    let needless = events.needless.iter().flatten().enumerate().map(|(at, row)| {
        let at = format!("{place}/needless/{at}");
        vec![
            Cell::words(row.what),
            Cell::words(&row.cause),
            Cell::figure(Some(row.times), format!("{at}/times")),
            Cell::figure(Some(row.certain), format!("{at}/certain")),
            Cell::words(row.remedy),
        ]
    });
    html! {
        (filled("Needless", &["what", "by", "times", "certain", "what removes it"], needless))
        (filled("Faults", &["class", "confidence", "faults", "time, ns"], faults))
        (filled("Flushes", &["cause", "sent", "local", "full", "interrupts"], flushes))
        (filled("Interrupts", &["from", "to", "asked for", "doing", "interrupts"], interrupts))
    }
}

/// A table, if it has rows.
fn filled(caption: &str, head: &[&str], rows: impl Iterator<Item = Vec<Cell>>) -> Markup {
    let rows: Vec<Vec<Cell>> = rows.collect();
    let head: Vec<String> = head.iter().map(|name| (*name).to_owned()).collect();
    html! { @if !rows.is_empty() { (table(caption, &head, &rows)) } }
}

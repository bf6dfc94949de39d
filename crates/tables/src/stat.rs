//! One row for each thing that `needless stat` counted in a run: a class of fault, a cause of
//! flushes, a pair of which one interrupted the other, something needless, and what could not be
//! seen.

use crate::TableError;
use crate::columns::{Columns, counted, named};
use arrow_array::RecordBatch;
use needless_report::stat::Stat;
use needless_watch::observation::{Events, Faults, Finding, Flushes, Interrupts, Party};
use needless_watch::{Missing, Observation};

/// What a row is about.
enum Thing<'a> {
    Fault(&'a Faults),
    Flush(&'a Flushes),
    Interrupt(&'a Interrupts),
    Needless(&'a Finding),
    Missing(&'a Missing),
}

struct StatRow<'a> {
    run: usize,
    thing: Thing<'a>,
}

impl<'a> StatRow<'a> {
    fn kind(&self) -> &'static str {
        match self.thing {
            Thing::Fault(_) => "fault",
            Thing::Flush(_) => "flush",
            Thing::Interrupt(_) => "interrupt",
            Thing::Needless(_) => "needless",
            Thing::Missing(_) => "missing",
        }
    }

    fn what(&self) -> &'a str {
        match &self.thing {
            Thing::Fault(row) => row.label,
            Thing::Flush(row) => &row.cause,
            Thing::Interrupt(row) => row.asked,
            Thing::Needless(row) => row.what,
            Thing::Missing(row) => &row.lacks,
        }
    }

    fn cause(&self) -> Option<&'a str> {
        match &self.thing {
            Thing::Fault(_) => None,
            Thing::Flush(row) => Some(&row.cause),
            Thing::Interrupt(row) => Some(&row.cause),
            Thing::Needless(row) => Some(&row.cause),
            Thing::Missing(row) => Some(&row.why),
        }
    }

    fn times(&self) -> Option<u64> {
        match &self.thing {
            Thing::Fault(row) => Some(row.faults),
            Thing::Flush(row) => Some(row.sent + row.local),
            Thing::Interrupt(row) => Some(row.interrupts),
            Thing::Needless(row) => Some(row.times),
            Thing::Missing(_) => None,
        }
    }

    fn certain(&self) -> Option<u64> {
        match &self.thing {
            Thing::Needless(row) => Some(row.certain),
            _ => None,
        }
    }

    fn fault(&self) -> Option<&'a Faults> {
        if let Thing::Fault(row) = &self.thing { Some(row) } else { None }
    }

    fn flush(&self) -> Option<&'a Flushes> {
        if let Thing::Flush(row) = &self.thing { Some(row) } else { None }
    }

    fn interrupt(&self) -> Option<&'a Interrupts> {
        if let Thing::Interrupt(row) = &self.thing { Some(row) } else { None }
    }

    fn time_ns(&self) -> Option<u64> {
        match &self.thing {
            Thing::Fault(row) => row.time_ns,
            Thing::Interrupt(row) => row.lost_ns,
            _ => None,
        }
    }

    fn evidence(&self) -> Option<&'a str> {
        match &self.thing {
            Thing::Fault(row) => Some(row.rule),
            Thing::Needless(row) => Some(row.evidence),
            _ => None,
        }
    }

    fn remedy(&self) -> Option<&'a str> {
        match &self.thing {
            Thing::Interrupt(row) => row.remedy,
            Thing::Needless(row) => Some(row.remedy),
            Thing::Missing(row) => row.remedy.as_deref(),
            Thing::Fault(_) | Thing::Flush(_) => None,
        }
    }
}

fn of_events(events: &Events) -> impl Iterator<Item = Thing<'_>> {
    let flushes = events.flushes.iter().flatten().map(Thing::Flush);
    let interrupts = events.interrupts.iter().flatten().map(Thing::Interrupt);
    let needless = events.needless.iter().flatten().map(Thing::Needless);
    events.faults.iter().map(Thing::Fault).chain(flushes).chain(interrupts).chain(needless)
}

fn rows_of((run, observation): (usize, &Observation)) -> impl Iterator<Item = StatRow<'_>> {
    let events = observation.events.iter().flat_map(of_events);
    let things = events.chain(observation.missing.iter().map(Thing::Missing));
    things.map(move |thing| StatRow { run, thing })
}

/// `name (pid)`
fn party(party: &Party) -> String {
    match party.tid {
        Some(tid) => format!("{} ({tid})", party.name),
        None => party.name.clone(),
    }
}

/// All runs. `document` is the JSON document of the same report.
pub fn stat(stat: &Stat<'_>) -> Result<RecordBatch, TableError> {
    let rows: Vec<StatRow<'_>> = stat.runs.iter().enumerate().flat_map(rows_of).collect();
    let mut columns = Columns::default();
    columns.texts(
        named("subject", "the command, or what else was watched"),
        rows.iter().map(|_| Some(stat.subject)),
    );
    columns.numbers(
        named("run", "the run's number, from 0"),
        rows.iter().map(|row| Some(row.run as u64)),
    );
    columns.numbers(
        counted("elapsed_ns", "nanoseconds", "how long the run took"),
        rows.iter().map(|row| Some(stat.runs[row.run].elapsed_ns)),
    );
    columns.texts(
        named("kind", "fault, flush, interrupt, needless; missing: what could not be seen"),
        rows.iter().map(|row| Some(row.kind())),
    );
    columns.texts(
        named(
            "what",
            "the class of fault, the cause of flushes, what was asked for, or was needless",
        ),
        rows.iter().map(|row| Some(row.what())),
    );
    columns.texts(
        named("cause", "what made the kernel do it; of what is missing, why"),
        rows.iter().map(StatRow::cause),
    );
    columns.numbers(
        counted("times", "times", "how often: faults, flushes, interrupts, needless events"),
        rows.iter().map(StatRow::times),
    );
    columns.numbers(
        counted(
            "certain",
            "times",
            "of what was needless, how often nothing else can be the reason",
        ),
        rows.iter().map(StatRow::certain),
    );
    columns.texts(
        named("confidence", "how sure the class of a fault is"),
        rows.iter().map(|row| Some(format!("{:?}", row.fault()?.confidence).to_lowercase())),
    );
    columns.numbers(
        counted("time_ns", "nanoseconds", "of faults, from exception to end; of interrupts, lost"),
        rows.iter().map(StatRow::time_ns),
    );
    columns.numbers(
        counted("waited_ns", "nanoseconds", "of faults, away from their CPU"),
        rows.iter().map(|row| row.fault()?.waited_ns),
    );
    columns.numbers(
        counted("sent", "flushes", "flushes that asked other CPUs"),
        rows.iter().map(|row| Some(row.flush()?.sent)),
    );
    columns.numbers(
        counted("local", "flushes", "flushes of the CPU itself alone"),
        rows.iter().map(|row| Some(row.flush()?.local)),
    );
    columns.numbers(
        counted("full", "flushes", "of both, those of everything"),
        rows.iter().map(|row| Some(row.flush()?.full)),
    );
    columns.numbers(
        counted("pages", "pages", "pages that the other flushes covered"),
        rows.iter().map(|row| Some(row.flush()?.pages)),
    );
    columns.numbers(
        counted("interrupts", "interrupts", "interrupts that flushes caused"),
        rows.iter().map(|row| Some(row.flush()?.interrupts)),
    );
    columns.texts(
        named("from", "who asked for an interrupt, with the thread's number"),
        rows.iter().map(|row| Some(party(&row.interrupt()?.from))),
    );
    columns.texts(
        named("to", "who was interrupted"),
        rows.iter().map(|row| Some(party(&row.interrupt()?.to))),
    );
    columns.texts(
        named("evidence", "by what the class, or that it was needless, is known"),
        rows.iter().map(StatRow::evidence),
    );
    columns.texts(named("remedy", "what removes it"), rows.iter().map(StatRow::remedy));
    columns.finish("stat", Some(&needless_report::stat::json(stat)))
}

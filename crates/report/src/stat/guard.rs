//! Disturbances that reached CPUs that nothing should disturb.

use super::interrupts::party;
use super::{Stat, number, time};
use crate::style::{Style, count};
use crate::table::plain_table;
use needless_watch::fold::{Asked, How};
use needless_watch::guarded::{Came, Disturbed, Guarded};

/// The largest number of disturbances that the text shows.
const MOST_ROWS: usize = 40;

/// Whether CPUs were guarded.
pub(super) fn is_guard(stat: &Stat<'_>) -> bool {
    stat.runs.iter().any(|run| run.events.as_ref().is_some_and(|events| events.guard.is_some()))
}

/// This part of the report, for the last run.
pub(super) fn guard(stat: &Stat<'_>, style: Style) -> Vec<String> {
    let events = stat.runs.last().and_then(|run| run.events.as_ref());
    let Some(events) = events else { return Vec::new() };
    let Some(guard) = &events.guard else { return Vec::new() };
    let mut parts = vec![cpus(guard, events.watching.lost, style)];
    if !guard.causes.is_empty() {
        parts.push(causes(guard, style));
        parts.push(in_order(guard, stat.breaks, style));
    }
    parts.push(super::interrupts::told_apart(events, style));
    parts
}

fn lost(came: &Came) -> String {
    match came.lost_ns {
        Some(lost) if came.timed < came.interrupts => format!("at least {}", time(lost)),
        Some(lost) => time(lost),
        None if came.interrupts == 0 => "-".to_owned(),
        None => "?".to_owned(),
    }
}

fn cpus(guard: &Guarded, records_lost: u64, style: Style) -> String {
    let cells = guard.cpus.iter().map(|cpu| {
        vec![
            cpu.cpu.to_string(),
            number(cpu.came.interrupts),
            number(cpu.came.kernel_threads),
            format!("{:.1}", cpu.per_second),
            format!("{} (from {})", time(cpu.longest_ns), time(cpu.longest_at_ns)),
            lost(&cpu.came),
        ]
    });
    let header = [
        "guarded CPU",
        "interrupts",
        "kernel threads",
        "disturbances/s",
        "longest undisturbed",
        "time lost",
    ];
    let mut text = plain_table(&header, cells.collect(), 0..1, style) + "\n";
    let all: u64 = guard.cpus.iter().map(|cpu| cpu.came.disturbances()).sum();
    let line = match (all, records_lost) {
        (0, 0) => format!("nothing disturbed them for {}", time(guard.watched_ns)),
        (_, 0) => format!("{} in {}", count(all as usize, "disturbance"), time(guard.watched_ns)),
        (_, lost) => format!(
            "at least {} in {}: {} records were lost, and stretches may have been shorter",
            count(all as usize, "disturbance"),
            time(guard.watched_ns),
            number(lost)
        ),
    };
    text += &(style.bold(style.wrap(&line, 2)) + "\n");
    text
}

fn causes(guard: &Guarded, style: Style) -> String {
    let cells = guard.causes.iter().map(|cause| {
        let came = &cause.came;
        vec![
            cause.asked.to_owned(),
            cause.cause.to_owned(),
            number(came.interrupts),
            number(came.same_interrupt),
            number(came.kernel_threads),
            number(came.polled),
            lost(came),
        ]
    });
    let header =
        ["what for", "cause", "interrupts", "in others", "kernel threads", "without", "time lost"];
    let mut text = plain_table(&header, cells.collect(), 0..2, style) + "\n";
    let how = "cause: as --fail-on interrupt= takes it. in others: done in an interrupt that had come for something else. without: an idle CPU looked for itself, and nobody was disturbed";
    text += &(style.dim(style.wrap(how, 2)) + "\n");
    for cause in guard.causes.iter().filter(|cause| cause.came.disturbances() > 0) {
        let line = format!("against {}: {}", cause.asked, cause.remedy);
        text += &(style.dim(style.wrap(&line, 2)) + "\n");
    }
    text
}

/// Single disturbances: all, or those that break the guard.
fn in_order(guard: &Guarded, breaks: Option<&[Asked]>, style: Style) -> String {
    let listed = |disturbed: &&Disturbed| {
        breaks.is_none_or(|breaks| breaks.iter().any(|asked| asked.slug() == disturbed.cause))
    };
    let row = |disturbed: &Disturbed| {
        let what = match &disturbed.function {
            Some(function) => format!("{}, {function}", disturbed.asked),
            None => disturbed.asked.to_owned(),
        };
        let by = match (&disturbed.doing, &disturbed.call_site) {
            (Some(doing), _) => format!("{} in {doing}", party(&disturbed.from)),
            (None, Some(site)) => format!("{} in {site}", party(&disturbed.from)),
            (None, None) => party(&disturbed.from),
        };
        let lost = match disturbed.how {
            How::Interrupt => disturbed.lost_ns.map_or_else(|| "?".to_owned(), time),
            How::SameInterrupt => "same interrupt".to_owned(),
            How::KernelThread => "kernel thread".to_owned(),
            How::Polled => "no interrupt".to_owned(),
        };
        vec![
            time(disturbed.at_ns),
            disturbed.cpu.to_string(),
            disturbed.gap_ns.map_or_else(|| "-".to_owned(), time),
            what,
            by,
            party(&disturbed.to),
            lost,
        ]
    };
    let listed: Vec<&Disturbed> = guard.disturbances.iter().filter(listed).collect();
    if listed.is_empty() {
        let what = match guard.not_kept {
            0 => "nothing broke the guard\n",
            _ => "nothing that breaks the guard is among those that were kept one by one\n",
        };
        return what.to_owned();
    }
    let cells = listed.iter().take(MOST_ROWS).map(|disturbed| row(disturbed));
    let header = ["at", "CPU", "left alone for", "what for", "by", "whom", "took"];
    let mut text = plain_table(&header, cells.collect(), 3..6, style) + "\n";
    if breaks.is_some() {
        text += &(style.dim("only what breaks the guard; --format json has all") + "\n");
    }
    let more = listed.len().saturating_sub(MOST_ROWS);
    if more > 0 {
        text += &format!("and {}, in --format json\n", count(more, "more row"));
    }
    if guard.not_kept > 0 {
        text += &format!("and {} that were counted and not kept\n", number(guard.not_kept));
    }
    text
}

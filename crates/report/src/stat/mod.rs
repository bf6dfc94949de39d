//! The report of `needless stat`, as text. The figures of several runs are medians with their
//! range.

mod actors;
mod answer;
mod compare;
mod guard;
mod interrupts;
mod memory;
mod openmetrics;

pub(crate) use answer::answer;
pub use compare::{SavedStat, stat_differences, stat_document, stat_text};
pub(crate) use interrupts::party;
pub use memory::By;
pub use openmetrics::openmetrics;

use crate::stats::median;
use crate::style::{Style, count, number};
use crate::table::plain_table;
use needless_watch::fold::Asked;
use needless_watch::observation::{Counted, Events, Faults, Finding};
use needless_watch::{Missing, Observation};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The observations of a command or of something else, from one or several runs.
pub struct Stat<'a> {
    /// The command, or what else was watched.
    pub subject: &'a str,
    /// One observation per run.
    pub runs: &'a [Observation],
    /// The machine.
    pub environment: &'a BTreeMap<String, String>,
    /// Whether the text shows what the kernel does of its own accord, by actor.
    pub by_actor: bool,
    /// Whether the text has rules, start-up classes and cross-checks.
    pub verbose: bool,
    /// The part of the key by which figures are summed in one table, which replaces the others.
    pub by: Option<By>,
    /// The causes that break a guard, if not all do. The text lists their disturbances one by one.
    pub breaks: Option<&'a [Asked]>,
}

impl Stat<'_> {
    /// Whether the report holds addresses of the program: frames in code that no file holds have no
    /// other name.
    pub fn holds_addresses(&self) -> bool {
        let events = self.runs.iter().filter_map(|run| run.events.as_ref());
        let memory = events.filter_map(|events| events.memory.as_ref());
        let mut frames = memory.flat_map(|memory| memory.sites.iter().flatten());
        frames.any(|frame| frame.function.starts_with("0x"))
    }
}

/// The report as JSON.
pub fn json(stat: &Stat<'_>) -> Value {
    json!({
        "schema_version": needless_watch::observation::SCHEMA_VERSION,
        "subject": stat.subject,
        "environment": stat.environment,
        "runs": stat.runs.iter().map(run).collect::<Vec<_>>(),
    })
}

/// A run with its answer.
fn run(run: &Observation) -> Value {
    let mut value = json!(run);
    value["answer"] = json!(answer(run));
    value
}

/// The report as text.
pub fn text(stat: &Stat<'_>, style: Style) -> String {
    parts(stat, style).join("\n")
}

/// The parts of the text: the answer, or what was watched, then the tables.
pub(crate) fn parts(stat: &Stat<'_>, style: Style) -> Vec<String> {
    let seen: Vec<&Events> = stat.runs.iter().filter_map(|run| run.events.as_ref()).collect();
    let summary = summary(stat, style);
    let answer = stat.runs.last().and_then(answer);
    let mut parts = vec![match &answer {
        Some(answer) => answer::lines(answer, &summary, style),
        None => summary,
    }];
    let last = if seen.len() > 1 { " (last run)" } else { "" };
    if guard::is_guard(stat) {
        parts.extend(guard::guard(stat, style));
    } else if let (Some(by), Some(events)) = (stat.by, seen.last()) {
        parts.push(memory::by(events, by, last, style));
    } else if seen.is_empty() {
        parts.push(counted(stat, " faults"));
    } else {
        parts.push(
            seen.last().map_or_else(String::new, |events| memory::memory(events, last, style)),
        );
        parts.push(faults(&seen, stat, style));
        parts.push(flushes(&seen, stat.verbose, style));
        if stat.verbose {
            let events = seen.last();
            parts.push(
                events.map_or_else(String::new, |events| memory::stacks(events, last, style)),
            );
        }
        parts.push(interrupts::interrupts(&seen, stat, style));
        if stat.by_actor {
            parts.push(actors::actors(&seen, style));
        }
        parts.push(needless(&seen, style));
        parts.push(interrupts::toggles(&seen, style));
    }
    if !guard::is_guard(stat) && stat.verbose || seen.is_empty() {
        parts.push(counters(stat, style));
    }
    parts.push(missing(stat, style));
    parts.extend(watching(&seen, stat, style));
    parts.retain(|part| !part.is_empty());
    parts
}

fn summary(stat: &Stat<'_>, style: Style) -> String {
    let runs = stat.runs;
    let elapsed: Vec<u64> = runs.iter().map(|run| run.elapsed_ns).collect();
    let mut line = format!("{}: {}", style.bold(stat.subject), spread(&elapsed, time));
    let cpu: Vec<u64> = usages(runs).map(|usage| usage.user_ns + usage.system_ns).collect();
    if !cpu.is_empty() {
        let system: Vec<u64> = usages(runs).map(|usage| usage.system_ns).collect();
        line += &format!(
            " elapsed, {} of CPU time, of it {} in the kernel",
            spread(&cpu, time),
            spread(&system, time)
        );
    }
    if runs.len() > 1 {
        line += &format!("; {}, medians with their range", count(runs.len(), "run"));
    }
    let mut failed: Vec<u8> =
        runs.iter().filter_map(|run| run.status).filter(|s| *s != 0).collect();
    failed.dedup();
    if let [status, ..] = failed[..] {
        line += &format!("; {}", style.warn(format!("exit status {status}")));
    }
    style.wrap(&line, 2) + "\n"
}

fn usages(runs: &[Observation]) -> impl Iterator<Item = needless_watch::counters::Usage> {
    runs.iter().filter_map(|run| run.usage)
}

/// Rows of several runs put together. A run without the row counts as zero in its figures.
fn together<K: Clone + PartialEq, const N: usize>(
    runs: impl Iterator<Item = Vec<(K, [u64; N])>>,
) -> Vec<(K, [Vec<u64>; N])> {
    let mut rows: Vec<(K, [Vec<u64>; N])> = Vec::new();
    let mut done = 0;
    for run in runs {
        for (key, figures) in run {
            let at = rows.iter().position(|(known, _)| *known == key).unwrap_or_else(|| {
                rows.push((key, std::array::from_fn(|_| vec![0; done])));
                rows.len() - 1
            });
            for (column, figure) in rows[at].1.iter_mut().zip(figures) {
                column.push(figure);
            }
        }
        done += 1;
        for column in rows.iter_mut().flat_map(|(_, columns)| columns) {
            column.resize(done, 0);
        }
    }
    rows
}

fn faults(seen: &[&Events], stat: &Stat<'_>, style: Style) -> String {
    let rows = together(seen.iter().map(|events| {
        let key = |row: &Faults| (row.label, row.rule, row.confidence);
        let waited = |row: &Faults| {
            [Some(row.faults), row.time_ns, row.waits, row.waited_ns].map(Option::unwrap_or_default)
        };
        events.faults.iter().map(|row| (key(row), waited(row))).collect()
    }));
    let waits = seen.iter().flat_map(|events| &events.faults).any(|row| row.waits.is_some());
    let mut cells = Vec::new();
    let mut rules = Vec::new();
    for ((label, rule, confidence), [faults, times, waits, waited]) in &rows {
        let mean = |(faults, time): (&u64, &u64)| time.checked_div(*faults);
        let means: Vec<u64> = faults.iter().zip(times).filter_map(mean).collect();
        let sure = format!("{confidence:?}").to_lowercase();
        let mean =
            if means.iter().all(|mean| *mean == 0) { "-".into() } else { spread(&means, time) };
        let row = vec![(*label).to_owned(), sure, spread(faults, number), mean];
        cells.push([row, vec![spread(waits, number), spread(waited, time)]].concat());
        rules.push(style.wrap(&format!("  {label}: {rule}"), 4));
    }
    let without: Vec<u64> =
        seen.iter().filter_map(|events| events.faults_without_exception).collect();
    if without.len() == seen.len() && without.iter().any(|faults| *faults > 0) {
        let told = vec![
            "without an exception".into(),
            "certain".into(),
            spread(&without, number),
            "-".into(),
            "-".into(),
            "-".into(),
        ];
        cells.push(told);
        let rule = "  without an exception: counted by the kernel, but no processor took it (populate, mlock, get_user_pages, execve)";
        rules.push(style.wrap(rule, 4));
    }
    if cells.is_empty() {
        return "no page fault\n".to_owned();
    }
    // The table by mapping has the classes of one run as well.
    let by_mapping = seen.iter().all(|events| events.memory.is_some());
    if !stat.verbose && !waits && seen.len() == 1 && by_mapping {
        let without = match without[..] {
            [faults] if faults > 0 => {
                format!(
                    "{} of them without an exception (populate, mlock, execve)\n",
                    number(faults)
                )
            }
            _ => String::new(),
        };
        return counted(stat, "") + &without;
    }
    let header = ["faults", "confidence", "count", "mean time", "waits", "waited"];
    let columns = if waits { 6 } else { 4 };
    cells.iter_mut().for_each(|row| row.truncate(columns));
    let mut text = plain_table(&header[..columns], cells, 0..2, style);
    text.push('\n');
    text += &counted(stat, "");
    if stat.verbose {
        text += &(style.dim(rules.join("\n")) + "\n");
    }
    text + &waited_for(seen, style)
}

/// What faults waited for, if switches were recorded.
fn waited_for(seen: &[&Events], style: Style) -> String {
    let rows = together(seen.iter().map(|events| {
        let of = |row: &Faults| {
            let label = row.label;
            let each = row.waited_for.iter().flatten().map(move |waited| {
                let function = waited.function.clone().unwrap_or_else(|| "-".to_owned());
                ((waited.what, function, label), [waited.waits, waited.waited_ns])
            });
            each.collect::<Vec<_>>()
        };
        events.faults.iter().flat_map(of).collect()
    }));
    if rows.is_empty() {
        return String::new();
    }
    let cells = rows.into_iter().map(|((what, function, label), [waits, waited])| {
        vec![what.into(), function, label.into(), spread(&waits, number), spread(&waited, time)]
    });
    let header = ["waited for", "in", "faults", "waits", "waited"];
    let table = plain_table(&header, cells.collect(), 0..3, style);
    format!("\n{table}\n")
}

/// The number of faults that the kernel counted, which is known without events.
fn counted(stat: &Stat<'_>, what: &str) -> String {
    let counted: Vec<u64> = usages(stat.runs).map(|u| u.minor_faults + u.major_faults).collect();
    if counted.is_empty() {
        return String::new();
    }
    let major: Vec<u64> = usages(stat.runs).map(|usage| usage.major_faults).collect();
    format!(
        "the kernel counted {}{what} for the task, {} of them major\n",
        spread(&counted, number),
        spread(&major, number)
    )
}

fn flushes(seen: &[&Events], verbose: bool, style: Style) -> String {
    let shown: Vec<_> = seen.iter().filter_map(|events| events.flushes.as_ref()).collect();
    if shown.len() < seen.len() {
        return String::new();
    }
    let rows = together(shown.iter().map(|flushes| {
        let figures = |row: &needless_watch::observation::Flushes| {
            [row.sent, row.interrupts, row.local, row.full, row.pages]
        };
        // One row for the work that every command has.
        let cause = |row: &needless_watch::observation::Flushes| match row.of_start_or_end {
            true if !verbose => memory::START.to_owned(),
            _ => row.cause.clone(),
        };
        let mut rows: Vec<(String, [u64; 5])> = Vec::new();
        for row in flushes.iter() {
            let (cause, figures) = (cause(row), figures(row));
            match rows.iter_mut().find(|(known, _)| *known == cause) {
                Some((_, sum)) => sum.iter_mut().zip(figures).for_each(|(sum, more)| *sum += more),
                None => rows.push((cause, figures)),
            }
        }
        rows
    }));
    let cell = |column: &Vec<u64>| spread(column, number);
    let mut cells: Vec<Vec<String>> = rows
        .iter()
        .map(|(cause, columns)| {
            std::iter::once(cause.clone()).chain(columns.iter().map(cell)).collect()
        })
        .collect();
    let switched: Vec<u64> = seen.iter().filter_map(|events| events.switches_flushed).collect();
    if switched.iter().any(|times| *times > 0) {
        let name = "context switch".to_owned();
        let none = || "0".to_owned();
        cells.push(vec![name, none(), none(), cell(&switched), cell(&switched), none()]);
    }
    let at_least = seen.iter().any(|events| events.flushes_at_least);
    if cells.is_empty() {
        let none = if at_least { "no TLB flush was seen\n" } else { "no TLB flush\n" };
        return none.to_owned();
    }
    let title = if at_least { "flushes by cause, at least" } else { "flushes by cause" };
    let header = [title, "sent", "interrupts", "local", "full", "pages of the others"];
    let how = "sent: other CPUs were asked; those that were idle by then, ran a kernel thread or (from 6.14 on) another address space were not interrupted. full: of both, those of everything";
    let table = plain_table(&header, cells, 0..1, style) + "\n";
    if verbose { table + &style.dim(style.wrap(how, 2)) + "\n" } else { table }
}

/// A C++ function's name without parameters and template arguments. JSON has the full name.
fn brief(name: &str) -> String {
    let (mut text, mut depth) = (String::new(), 0_u32);
    for (at, letter) in name.char_indices() {
        match letter {
            '<' if at > 0 && !name[..at].ends_with("operator") => depth += 1,
            // A receiver of a Go method is not such a list: `runtime.(*pageAlloc).scavenge`.
            '(' if at > 0 && !name[..at].ends_with('.') => depth += 1,
            '>' | ')' if depth > 0 => depth -= 1,
            _ if depth == 0 => text.push(letter),
            _ => {}
        }
    }
    text
}

fn needless(seen: &[&Events], style: Style) -> String {
    let told: Vec<&Vec<Finding>> =
        seen.iter().filter_map(|events| events.needless.as_ref()).collect();
    if told.len() < seen.len() {
        let lost = seen.iter().any(|events| events.watching.lost > 0);
        let why = if lost { "events were lost" } else { "not all evidence is visible" };
        return format!("needless: {}\n", style.warn(format!("not told, since {why}")));
    }
    let rows = together(told.iter().map(|findings| {
        let key =
            |row: &Finding| ((row.what, row.evidence, row.remedy, row.policy), row.cause.clone());
        findings.iter().map(|row| (key(row), [row.times, row.certain])).collect()
    }));
    let usual = |times: &[u64]| median(times).is_some_and(|median| median.median > 0);
    let rows: Vec<_> = rows.into_iter().filter(|(_, [times, _])| usual(times)).collect();
    if rows.is_empty() {
        return "needless: nothing for which there is evidence\n".to_owned();
    }
    let mut text = String::new();
    let mut done = Vec::new();
    for ((kind, _), _) in &rows {
        if done.contains(kind) {
            continue;
        }
        done.push(*kind);
        let (what, evidence, remedy, policy) = kind;
        let of_kind = rows.iter().filter(|((other, _), _)| other == kind);
        let causes = of_kind.map(|((_, cause), [times, certain])| {
            format!("{} x by {cause} ({})", spread(times, number), sureness(times, certain))
        });
        let line = format!("needless: {what}, {}", causes.collect::<Vec<_>>().join(", "));
        text += &(style.bold(style.wrap(&line, 4)) + "\n");
        text += &(style.wrap(&format!("  evidence: {evidence}"), 4) + "\n");
        let policy = policy.map(|policy| format!(" (policy {policy}: needless policies)"));
        text +=
            &(style.wrap(&format!("  remedy: {remedy}{}", policy.unwrap_or_default()), 4) + "\n");
    }
    text
}

fn sureness(times: &[u64], certain: &[u64]) -> String {
    if times == certain {
        "certain".to_owned()
    } else if certain.iter().all(|certain| *certain == 0) {
        "likely".to_owned()
    } else {
        format!("{} of them certain", spread(certain, number))
    }
}

/// Counters of the machine that are not zero.
fn counters(stat: &Stat<'_>, style: Style) -> String {
    let rows = together(stat.runs.iter().map(|run| {
        let interrupts = run.machine.tlb_interrupts.iter().flatten().enumerate();
        let interrupts =
            interrupts.map(|(cpu, times)| (format!("TLB interrupts, CPU {cpu}"), [*times]));
        let vmstat =
            run.machine.vmstat.iter().flatten().map(|(name, value)| (name.clone(), [*value]));
        vmstat.chain(interrupts).collect()
    }));
    let moved = rows.iter().filter(|(_, [values])| values.iter().any(|value| *value > 0));
    let told: Vec<String> =
        moved.map(|(name, [values])| format!("{name} {}", spread(values, number))).collect();
    if told.is_empty() {
        return String::new();
    }
    let line = format!("the machine meanwhile, whoever caused it: {}", told.join(", "));
    style.wrap(&line, 2) + "\n"
}

fn missing(stat: &Stat<'_>, style: Style) -> String {
    // What is missing, with the reasons and the remedies.
    let mut lines: Vec<(&str, Vec<String>, Option<&str>)> = Vec::new();
    for Missing { what, why, lacks, remedy } in stat.runs.iter().flat_map(|run| &run.missing) {
        let why = format!("{what}: {why}");
        match lines.iter_mut().find(|(known, ..)| known == lacks) {
            Some((_, reasons, _)) if reasons.contains(&why) => {}
            Some((_, reasons, _)) => reasons.push(why),
            None => lines.push((lacks, vec![why], remedy.as_deref())),
        }
    }
    let line = |(lacks, reasons, remedy): &(&str, Vec<String>, Option<&str>)| {
        let helps = remedy.map_or_else(String::new, |helps| format!("; {helps}"));
        let line = format!("not visible: {lacks} ({}){helps}", reasons.join("; "));
        style.warn(style.wrap(&line, 2)) + "\n"
    };
    lines.iter().map(line).collect()
}

fn watching(seen: &[&Events], stat: &Stat<'_>, style: Style) -> Option<String> {
    let last = seen.last()?.watching;
    let mut line = format!("watching: {} records", number(last.records));
    if let Some(each) = last.record_ns {
        let spent = each * last.own_records;
        line += &format!(" of {} each, {} of the watched CPUs' time", time(each), time(spent));
        let cpu = stat.runs.last().and_then(|run| run.usage).map(|u| u.user_ns + u.system_ns);
        if let Some(cpu) = cpu.filter(|cpu| *cpu > 0) {
            line += &format!(" ({:.1}%)", 100.0 * spent as f64 / cpu as f64);
        }
    }
    line += &format!("; {} of the reader's", time(last.reader_ns));
    line += &match (last.lost, last.lost_frees) {
        (0, 0) => "; none lost".to_owned(),
        (0, frees) => format!("; {} about freed pages lost, nothing else", number(frees)),
        (lost, frees) => format!("; {} lost", number(lost + frees)),
    };
    let mut text = style.wrap(&line, 2) + "\n";
    for events in seen {
        text += &unaccounted(&events.counted).map_or(String::new(), |line| {
            style.warn(style.wrap(&format!("incomplete: {line}"), 2)) + "\n"
        });
    }
    Some(text)
}

/// Events that the kernel counted and no record showed.
fn unaccounted(counted: &Counted) -> Option<String> {
    let unseen = |all: Option<u64>, seen: Option<u64>, noun| {
        let (all, seen) = all.zip(seen)?;
        let unseen = all.checked_sub(seen).filter(|unseen| *unseen > 0)?;
        Some(count(usize::try_from(unseen).unwrap_or(usize::MAX), noun))
    };
    let faults = unseen(counted.faults, Some(counted.faults_seen), "fault");
    let flushes = unseen(counted.flush_events, counted.flush_events_seen, "flush event");
    let parts: Vec<String> = faults.into_iter().chain(flushes).collect();
    let told = format!("the kernel counted {} that no record told", parts.join(" and "));
    (!parts.is_empty()).then_some(told)
}

fn spread(values: &[u64], show: impl Fn(u64) -> String) -> String {
    let Some(median) = median(values) else { return "?".to_owned() };
    let (min, max) = (values.iter().min(), values.iter().max());
    match (min, max) {
        (Some(min), Some(max)) if min != max => {
            format!("{} ({}..{})", show(median.median), show(*min), show(*max))
        }
        _ => show(median.median),
    }
}

/// Nanoseconds with the unit that fits.
pub(crate) fn time(ns: u64) -> String {
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{:.2} us", ns as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.2} ms", ns as f64 / 1e6),
        _ => format!("{:.3} s", ns as f64 / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_grouped_and_have_units() {
        assert_eq!((number(999), number(1_234_567)), ("999".into(), "1,234,567".into()));
        assert_eq!(time(1_500), "1.50 us");
        assert_eq!(spread(&[3, 1, 2], number), "2 (1..3)");
        assert_eq!(spread(&[3, 3], number), "3");
    }

    #[test]
    fn what_was_counted_and_not_seen_is_told() {
        let all = Counted { faults: Some(7), faults_seen: 7, ..Counted::default() };
        assert_eq!(unaccounted(&all), None);
        let lacking =
            Counted { faults_seen: 5, flush_events: Some(1), flush_events_seen: Some(0), ..all };
        let told = "the kernel counted 2 faults and 1 flush event that no record told";
        assert_eq!(unaccounted(&lacking).as_deref(), Some(told));
        let told = "the kernel counted 1 flush event that no record told";
        assert_eq!(unaccounted(&Counted { faults: None, ..lacking }).as_deref(), Some(told));
    }

    #[test]
    fn names_are_brief() {
        let long = "std::vector<int, std::allocator<int>>::push_back(int const&)";
        assert_eq!(brief(long), "std::vector::push_back");
        assert_eq!(brief("<alloc::vec::Vec<T> as Drop>::drop"), "<alloc::vec::Vec as Drop>::drop");
        assert_eq!(brief("main"), "main");
        assert_eq!(brief("runtime.(*pageAlloc).scavenge"), "runtime.(*pageAlloc).scavenge");
    }

    #[test]
    fn a_row_that_a_run_lacks_counts_zero_there() {
        let runs = [vec![("a", [1])], vec![("b", [5])], vec![("a", [3]), ("b", [6])]];
        let rows = together(runs.into_iter());
        assert_eq!(rows, [("a", [vec![1, 0, 3]]), ("b", [vec![0, 5, 6]])]);
    }
}

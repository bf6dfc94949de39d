//! Who interrupts whom and why, and the kernel's own count. Threads differ from run to run, so all
//! of this is about the last run.

use super::{Stat, number, time};
use crate::style::{Style, count};
use crate::table::plain_table;
use needless_watch::interrupts::{Held, Line};
use needless_watch::observation::{Events, Interrupts, Joined, Party};

/// How the senders are known, and the kernel's own count.
pub(super) fn told_apart(events: &Events, style: Style) -> String {
    let joined = events.joined.filter(|joined| *joined != Joined::default());
    joined.map(|joined| senders(&joined, style)).unwrap_or_default()
        + &held(events.counted_interrupts.as_deref().unwrap_or_default(), "", style)
}

/// The largest number of rows that the text shows.
const MOST_ROWS: usize = 12;

/// This part of the report.
pub(super) fn interrupts(seen: &[&Events], stat: &Stat<'_>, style: Style) -> String {
    let Some(events) = seen.last() else { return String::new() };
    let last = if seen.len() > 1 { " (last run)" } else { "" };
    let rows = events.interrupts.as_deref().unwrap_or_default();
    let mut text = String::new();
    if !rows.is_empty() {
        if stat.verbose {
            text += &causes(rows, last, style);
            text += &remedies(rows, style);
            text.push('\n');
        }
        text += &victims(rows, last, style);
        if stat.verbose {
            text += &style.dim(style.wrap(&prices(events, stat), 2));
            text.push('\n');
            text += &events.joined.map(|joined| senders(&joined, style)).unwrap_or_default();
        }
    }
    // If there is no difference, nobody needs the kernel's own count.
    let differ = |held: &&Held| stat.verbose || held.agrees == Some(false);
    let counted = events.counted_interrupts.iter().flatten().filter(differ).cloned();
    text + &held(&counted.collect::<Vec<_>>(), last, style)
}

/// Who it is: a thread with its process, or a part of the kernel.
pub(crate) fn party(party: &Party) -> String {
    let kind = if party.kernel_thread { "kernel thread " } else { "" };
    match (party.tid, party.pid) {
        (Some(tid), Some(pid)) if tid != pid => format!("{} ({pid}, thread {tid})", party.name),
        (Some(tid), _) => format!("{} ({kind}{tid})", party.name),
        (None, _) => party.name.clone(),
    }
}

/// Protections of single pages that are changed to and fro. Processes differ from run to run, so
/// these are from the last run.
pub(super) fn toggles(seen: &[&Events], style: Style) -> String {
    let rows = seen.last().and_then(|events| events.toggled.as_deref()).unwrap_or_default();
    let mut text = String::new();
    for row in rows {
        let line = format!(
            "told apart, not called needless: the protection of {} changed alone, {} x by {}: {} sent, {} local, {} \
             interrupts; used as {}? ({})",
            count(usize::try_from(row.pages).unwrap_or(usize::MAX), "page"),
            number(row.times),
            party(&row.process),
            number(row.sent),
            number(row.local),
            number(row.interrupts),
            row.used_as,
            format!("{:?}", row.confidence).to_lowercase(),
        );
        text += &(style.bold(style.wrap(&line, 4)) + "\n");
        text += &(style.wrap(&format!("  evidence: {}", row.evidence), 4) + "\n");
        text += &(style.wrap(&format!("  remedy: {}", row.remedy), 4) + "\n");
    }
    text
}

/// Sums of rows with the same `key`, the most frequent first.
fn summed<const N: usize>(
    rows: &[Interrupts],
    key: impl Fn(&Interrupts) -> Vec<String>,
    figures: impl Fn(&Interrupts) -> [u64; N],
) -> Vec<(Vec<String>, [u64; N])> {
    let mut sums: Vec<(Vec<String>, [u64; N])> = Vec::new();
    for row in rows {
        let (key, figures) = (key(row), figures(row));
        match sums.iter_mut().find(|(known, _)| *known == key) {
            Some((_, sum)) => sum.iter_mut().zip(figures).for_each(|(sum, figure)| *sum += figure),
            None => sums.push((key, figures)),
        }
    }
    sums.sort_by(|a, b| (b.1, &a.0).cmp(&(a.1, &b.0)));
    sums
}

fn more(rows: usize) -> String {
    match rows.checked_sub(MOST_ROWS).filter(|more| *more > 0) {
        Some(more) => format!("and {}, in --format json\n", count(more, "more row")),
        None => String::new(),
    }
}

/// The requests to CPUs, and what caused them.
fn causes(rows: &[Interrupts], last: &str, style: Style) -> String {
    let key = |row: &Interrupts| {
        let function = row.function.clone().unwrap_or_else(|| "-".to_owned());
        let doing = match (row.from.tid, row.from.kernel_thread) {
            (Some(_), true) => row.from.name.clone(),
            (None, _) => row.from.name.clone(),
            (Some(_), false) => row.cause.clone(),
        };
        vec![row.asked.to_owned(), function, doing]
    };
    let sums = summed(rows, key, |row| [row.interrupts, row.uninterrupted]);
    let cells = sums.iter().take(MOST_ROWS).map(|(names, figures)| {
        names.iter().cloned().chain(figures.iter().map(|figure| number(*figure))).collect()
    });
    let header = [&*format!("interrupts{last}"), "function", "by", "interrupts", "without"];
    let text = plain_table(&header, cells.collect(), 0..3, style) + "\n" + &more(sums.len());
    let how = "without: done without an interrupt, by an idle CPU that looked for itself or by a kernel thread";
    text + &style.dim(style.wrap(how, 2)) + "\n"
}

/// Remedies for interrupts for which no other verdict names one.
fn remedies(rows: &[Interrupts], style: Style) -> String {
    let mut told: Vec<(&str, &str)> = Vec::new();
    let mut text = String::new();
    for row in rows.iter().filter(|row| row.interrupts + row.uninterrupted > 0) {
        let Some(remedy) = row.remedy else { continue };
        if !told.contains(&(row.asked, remedy)) {
            told.push((row.asked, remedy));
            let line = format!("against {} by {}: {remedy}", row.asked, row.cause);
            text += &(style.dim(style.wrap(&line, 2)) + "\n");
        }
    }
    text
}

fn victims(rows: &[Interrupts], last: &str, style: Style) -> String {
    let key = |row: &Interrupts| vec![party(&row.from), party(&row.to), row.asked.to_owned()];
    let figures = |row: &Interrupts| {
        let lost = row.lost_ns.map_or([0, 0], |lost| [lost, 1]);
        [row.interrupts, row.uninterrupted, row.empty, lost[0], lost[1]]
    };
    let sums = summed(rows, key, figures);
    let cells =
        sums.iter().take(MOST_ROWS).map(|(names, [interrupts, without, empty, lost, known])| {
            let lost = if *known > 0 { time(*lost) } else { "?".to_owned() };
            let figures = [number(*interrupts), number(*without), number(*empty), lost];
            names.iter().cloned().chain(figures).collect()
        });
    let header = [
        &*format!("who interrupts{last}"),
        "whom",
        "what for",
        "interrupts",
        "without",
        "nothing to flush",
        "time lost",
    ];
    plain_table(&header, cells.collect(), 0..3, style) + "\n" + &more(sums.len())
}

fn prices(events: &Events, stat: &Stat<'_>) -> String {
    let missing = stat.runs.last().into_iter().flat_map(|run| &run.missing);
    let untimed = missing.into_iter().any(|missing| missing.what.contains(":call_function"));
    match events.interrupt_ns {
        Some(each) => format!(
            "time lost: {} for a flush, the median of {} timed from the called function's begin to its end; entering and leaving the interrupt comes on top",
            time(each),
            number(events.interrupts_timed)
        ),
        None if !untimed => "time lost: none of these interrupts that flushed was timed".to_owned(),
        None => "time lost: not visible, this kernel does not show when functions called by interrupts begin and end".to_owned(),
    }
}

/// How the senders are known, and for what share.
fn senders(joined: &Joined, style: Style) -> String {
    let Joined { by_pointer, by_rule, by_guess, unknown } = *joined;
    let all = by_pointer + by_rule + by_guess + unknown;
    let part = |figure: u64, how: &str| {
        (figure > 0).then(|| format!("{} of {} {how}", number(figure), number(all)))
    };
    let parts = [
        part(by_pointer, "by the call's own pointer"),
        part(by_rule, "as the only one that was sending"),
        part(by_guess, "by guess, since several were sending"),
        part(unknown, "not known"),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    style.wrap(&format!("senders: {}", parts.join(", ")), 2) + "\n"
}

/// The kernel's own count, CPU by CPU.
fn held(held: &[Held], last: &str, style: Style) -> String {
    let mut text = String::new();
    let mut cpus: Vec<u16> = held.iter().map(|held| held.cpu).collect();
    cpus.dedup();
    for cpu in cpus {
        let of_cpu = || held.iter().filter(|held| held.cpu == cpu && held.counted > 0);
        let parts: Vec<String> = of_cpu().map(line).collect();
        if !parts.is_empty() {
            let line = format!("/proc/interrupts{last}, CPU {cpu}: {}", parts.join("; "));
            text += &(style.wrap(&(line + &reasons(of_cpu())), 2) + "\n");
        }
    }
    text
}

/// Why lines of a CPU differ from what was seen, or may differ. Each reason is given once.
fn reasons<'a>(of_cpu: impl Iterator<Item = &'a Held>) -> String {
    let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
    for held in of_cpu {
        let (Some(why), name) = (held.why, held.line.name()) else { continue };
        match reasons.iter_mut().find(|(known, _)| *known == why) {
            Some((_, names)) => names.push(name),
            None => reasons.push((why, vec![name])),
        }
    }
    reasons.iter().map(|(why, names)| format!(". {}: {why}", names.join(", "))).collect()
}

fn line(held: &Held) -> String {
    let Held { line, counted, seen, at_the_edge, agrees, functions, .. } = held;
    let (name, counted) = (line.name(), number(*counted));
    let edge = match at_the_edge {
        0 => String::new(),
        edge => format!(", {} of them while the file was being read", number(*edge)),
    };
    let mut text = match (agrees, seen) {
        (Some(true), Some(seen)) if number(*seen) == counted => {
            format!("{name} {counted}, all seen")
        }
        (_, Some(seen)) => format!("{name} {counted}, seen {}{edge}", number(*seen)),
        (_, None) => format!("{name} {counted}"),
    };
    if *line == Line::Cal && !functions.is_empty() {
        let functions: Vec<String> =
            functions.iter().map(|(title, calls)| format!("{title} {}", number(*calls))).collect();
        text += &format!(" (functions called: {})", functions.join(", "));
    }
    text
}

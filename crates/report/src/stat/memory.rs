//! Tables about memory: faults by mapping and history, calls by site, and any figure by a part of
//! its key.

use super::answer::{bytes, frame_name, mapping_name, place};
use super::{number, time};
use crate::style::{Style, count};
use crate::table::plain_table;
use needless_watch::attribution::{Attribution, How, SinceWhen};
use needless_watch::observation::Events;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// The largest number of rows that a table shows.
const MOST_ROWS: usize = 8;

/// The part of the key by which faults and calls are summed.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum By {
    /// The mapping.
    Mapping,
    /// The call site, or the instruction that faulted.
    Site,
    /// The thread.
    Thread,
    /// The process.
    Process,
    /// The system call that took the page, or that was made.
    Call,
}

/// This part of the report.
pub(super) fn memory(events: &Events, last: &str, style: Style) -> String {
    let Some(memory) = &events.memory else { return String::new() };
    faults(memory, last, style) + &taken(memory, last, style) + &calls(memory, last, style)
}

#[derive(Default)]
struct Figures {
    faults: u64,
    faults_ns: u64,
    calls: u64,
    calls_ns: u64,
    flushes: u64,
    interrupts: u64,
}

/// Faults and calls, summed by one part of their key.
pub(super) fn by(events: &Events, by: By, last: &str, style: Style) -> String {
    let Some(memory) = &events.memory else { return String::new() };
    let mut sums: BTreeMap<String, Figures> = BTreeMap::new();
    let thread = |at: Option<usize>| at.and_then(|at| memory.threads.get(at));
    let of_thread = |at: Option<usize>| match (by, thread(at)) {
        (By::Process, Some(party)) => {
            format!("{} ({})", party.name, party.pid.or(party.tid).unwrap_or_default())
        }
        (_, Some(party)) => super::interrupts::party(party),
        (_, None) => "threads put together".to_owned(),
    };
    let of_mapping = |at: Option<usize>| {
        at.map_or_else(|| "no mapping".to_owned(), |at| mapping_name(at, memory))
    };
    let of_site = |at: Option<usize>, call: &str| {
        place(at, call, memory).unwrap_or_else(|| "no stack".to_owned())
    };
    for row in &memory.faults {
        let key = match by {
            By::Mapping if row.starting => START.to_owned(),
            By::Site if row.starting => START.to_owned(),
            By::Mapping => of_mapping(row.mapping),
            By::Site => of_site(row.site, ""),
            By::Thread | By::Process => of_thread(row.thread),
            By::Call => match row.taken.and_then(|taken| memory.taken.get(taken)) {
                Some(taken) => taken.call.clone(),
                None => "no call".to_owned(),
            },
        };
        let sum = sums.entry(key).or_default();
        sum.faults += row.faults;
        sum.faults_ns += row.time_ns;
    }
    for row in &memory.calls {
        let key = match by {
            By::Mapping if row.starting => START.to_owned(),
            By::Site if row.starting => START.to_owned(),
            By::Mapping => of_mapping(row.mapping),
            By::Site => of_site(row.site, row.call.split('(').next().unwrap_or_default()),
            By::Thread | By::Process => of_thread(row.thread),
            By::Call => row.call.clone(),
        };
        let sum = sums.entry(key).or_default();
        sum.calls += row.calls;
        sum.calls_ns += row.time_ns;
        sum.flushes += row.sent + row.local;
        sum.interrupts += row.interrupts;
    }
    let mut rows: Vec<_> = sums.into_iter().collect();
    rows.sort_by_key(|(key, sum)| (Reverse(sum.faults_ns + sum.calls_ns), key.clone()));
    let cells = rows.into_iter().map(|(key, sum)| {
        let Figures { faults, faults_ns, calls, calls_ns, flushes, interrupts } = sum;
        vec![
            key,
            number(faults),
            time(faults_ns),
            number(calls),
            time(calls_ns),
            number(flushes),
            number(interrupts),
        ]
    });
    let name = match by {
        By::Mapping => "mapping",
        By::Site => "site",
        By::Thread => "thread",
        By::Process => "process",
        By::Call => "call",
    };
    let title = format!("by {name}{last}");
    let header = [&*title, "faults", "their time", "calls", "their time", "flushes", "interrupts"];
    plain_table(&header, cells.collect(), 0..1, style) + "\n"
}

/// The title for the common work at the start and the end of programs.
pub(super) const START: &str = "start and end of programs";

fn since(since: SinceWhen) -> &'static str {
    match since {
        SinceWhen::New => "never touched",
        SinceWhen::Taken => "taken by a call",
        SinceWhen::ReclaimedMachine => "reclaimed: the machine's memory",
        SinceWhen::ReclaimedCgroup => "reclaimed: a memory cgroup's limit",
        SinceWhen::TakenAway => "taken away by the kernel",
        SinceWhen::WrittenBack => "written back by the kernel",
        SinceWhen::There => "there",
        SinceWhen::Unknown => "mapped before watching",
    }
}

fn how(how: How) -> &'static str {
    match how {
        How::GivenBack => "given back",
        How::Unmapped => "unmapped",
        How::PagedOut => "paged out",
        How::Fork => "shared by a fork",
        How::Protected => "protected",
        How::Writeback => "written back",
        How::NoReadahead => "no readahead",
    }
}

fn more(rows: usize) -> String {
    match rows.checked_sub(MOST_ROWS).filter(|more| *more > 0) {
        Some(more) => format!("and {}, in --format json\n", count(more, "more row")),
        None => String::new(),
    }
}

fn faults(memory: &Attribution, last: &str, style: Style) -> String {
    let mut sums: BTreeMap<(String, String, &str), (u64, u64)> = BTreeMap::new();
    for row in &memory.faults {
        let key = match row.is_of_start(memory) {
            true => ("start, and the program's own files".to_owned(), "-".to_owned(), "-"),
            false => {
                let mapping = row.mapping.map(|at| mapping_name(at, memory));
                let before = match row.taken.and_then(|taken| memory.taken.get(taken)) {
                    Some(taken) => format!("{} by {}", how(taken.how), taken.call),
                    None => since(row.since).to_owned(),
                };
                (mapping.unwrap_or_else(|| "unknown memory".to_owned()), before, row.label)
            }
        };
        let sum = sums.entry(key).or_default();
        *sum = (sum.0 + row.faults, sum.1 + row.time_ns);
    }
    let mut rows: Vec<_> = sums.into_iter().collect();
    if rows.is_empty() {
        return String::new();
    }
    rows.sort_by_key(|(key, (_, ns))| (Reverse(*ns), key.clone()));
    let cells = rows.iter().take(MOST_ROWS).map(|((mapping, before, label), (faults, ns))| {
        vec![mapping.clone(), before.clone(), (*label).to_owned(), number(*faults), time(*ns)]
    });
    let title = format!("faults by mapping{last}");
    let header = [&*title, "before", "class", "count", "time"];
    let table = plain_table(&header, cells.collect(), 0..3, style);
    format!("{table}\n{}\n", more(rows.len()))
}

/// The cost of keeping memory, next to the cost of giving it back.
fn taken(memory: &Attribution, last: &str, style: Style) -> String {
    let touched = |row: &&needless_watch::attribution::Taken| {
        row.faults + row.back_without_fault > 0 && row.how != How::NoReadahead
    };
    let mut rows: Vec<_> = memory.taken.iter().filter(touched).collect();
    rows.sort_by_key(|row| Reverse((row.faults_ns, row.back_without_fault)));
    if rows.is_empty() {
        return String::new();
    }
    let cells = rows.iter().take(MOST_ROWS).map(|row| {
        let at = place(row.site, row.call.split('(').next().unwrap_or_default(), memory);
        let away = row.away_ns.checked_div(row.faults).map_or_else(|| "-".to_owned(), time);
        vec![
            format!("{} by {}", how(row.how), row.call),
            at.unwrap_or_else(|| "no stack".to_owned()),
            number(row.pages),
            number(row.faults),
            time(row.faults_ns),
            away,
            bytes(row.most_away << 12),
        ]
    });
    let title = format!("pages taken{last}");
    let header = [&*title, "at", "pages", "touched again", "time of that", "away for", "most away"];
    let table = plain_table(&header, cells.collect(), 0..2, style);
    format!("{table}\n{}\n", more(rows.len()))
}

fn calls(memory: &Attribution, last: &str, style: Style) -> String {
    let mut sums: BTreeMap<(String, String), [u64; 5]> = BTreeMap::new();
    for row in &memory.calls {
        let key = match row.starting {
            true => (START.to_owned(), "-".to_owned()),
            false => {
                let call = row.call.split('(').next().unwrap_or_default();
                let at = place(row.site, call, memory).unwrap_or_else(|| "no stack".to_owned());
                (row.call.clone() + if row.waits { ", waits included" } else { "" }, at)
            }
        };
        let figures = [row.calls, row.time_ns, row.sent, row.local, row.interrupts];
        let sum = sums.entry(key).or_default();
        sum.iter_mut().zip(figures).for_each(|(sum, figure)| *sum += figure);
    }
    let mut rows: Vec<_> = sums.into_iter().collect();
    if rows.is_empty() {
        return String::new();
    }
    rows.sort_by_key(|(key, figures)| (Reverse(figures[1]), key.clone()));
    let cells = rows.iter().take(MOST_ROWS).map(|((call, at), [calls, ns, sent, local, hit])| {
        let figures = [number(*calls), time(*ns), number(*sent), number(*local), number(*hit)];
        [call.clone(), at.clone()].into_iter().chain(figures).collect()
    });
    let title = format!("calls{last}");
    let header = [&*title, "at", "count", "time", "sent", "local", "interrupts"];
    let table = plain_table(&header, cells.collect(), 0..2, style);
    format!("{table}\n{}\n", more(rows.len()))
}

/// The stacks of calls that flushed, for `-v`.
pub(super) fn stacks(events: &Events, last: &str, style: Style) -> String {
    let Some(memory) = &events.memory else { return String::new() };
    let flushed = memory.calls.iter().filter(|row| row.sent + row.local > 0);
    let mut text = String::new();
    for row in flushed.take(MOST_ROWS) {
        let Some(stack) = row.site.and_then(|site| memory.sites.get(site)) else { continue };
        let names: Vec<String> = stack.iter().map(frame_name).collect();
        let line = format!("  {:>3} x {}: {}", row.sent + row.local, row.call, names.join(" < "));
        text += &(style.wrap(&line, 8) + "\n");
    }
    if text.is_empty() { text } else { format!("call sites of flushes{last}\n{text}\n") }
}

//! The answer: what the kernel's time went to, which memory, whose call, who was interrupted, and
//! what to change. It has at most [`MOST_LINES`] lines, the longest time first. Tables come after
//! it.

use super::interrupts::party;
use super::{number, time};
use crate::style::Style;
use needless_watch::attribution::{Attribution, FaultsOf, How, SinceWhen, Taken};
use needless_watch::observation::{Events, Explained, Finding};
use needless_watch::remedies::{self, Remedy, Situation};
use needless_watch::sites::Frame;
use needless_watch::{Observation, counters::Usage};
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// The largest number of lines of the answer, including the summary above it.
pub(super) const MOST_LINES: usize = 12;

/// The largest number of findings of the answer.
const MOST_ITEMS: usize = 3;

/// A finding with a smaller share of the kernel's time and fewer than [`LEAST_EVENTS`] events is
/// left to the tables.
const LEAST_SHARE: f64 = 0.03;

/// A finding with this many faults, flushes or interrupts is named, whatever its share of the time.
const LEAST_EVENTS: u64 = 100;

/// From this many pages of a call on, its protection is one of many pages.
const MANY_PAGES: u64 = 8;

/// The answer about one run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Answer {
    /// Findings, the longest time first.
    pub findings: Vec<Item>,
    /// Faults of the program's start and on its own files.
    pub start_faults: u64,
    /// The time of these faults, in nanoseconds.
    pub start_ns: u64,
    /// The needless things, in one line.
    pub needless: String,
    /// How much of the kernel's time is explained, in one line. `None` if that is not known.
    pub explained: Option<String>,
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Item {
    /// What happened.
    pub text: String,
    /// The changes that are known to help.
    pub remedies: Vec<&'static Remedy>,
    /// The memory that keeping it would hold at most, in bytes. `None` if keeping it is no remedy.
    pub keeping_bytes: Option<u64>,
    /// The time of the finding's faults and calls, in nanoseconds.
    pub time_ns: u64,
    /// The finding's share of the kernel's time. `None` if that is not known, or if the calls may
    /// wait.
    pub share: Option<f64>,
    /// The number of faults.
    pub faults: u64,
    /// The number of calls.
    pub calls: u64,
    /// The number of flushes that interrupted other CPUs.
    pub sent: u64,
    /// The number of flushes of the own CPU only.
    pub local: u64,
    /// The number of interrupts.
    pub interrupts: u64,
    /// The number of times that kernel threads drained LRU batches on other CPUs.
    pub drains: u64,
}

/// The subject of a finding: a system call at a place, or memory that no call explains.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Subject {
    /// Calls of one name in one function about one mapping.
    Call { name: String, function: String, mapping: Option<String> },
    /// Faults on a mapping with one history.
    Memory { since: SinceWhen, mapping: Option<String> },
}

/// The sums for a finding.
#[derive(Default)]
struct Sum<'a> {
    faults: u64,
    faults_ns: u64,
    away_ns: u64,
    raced: u64,
    labels: BTreeMap<&'a str, u64>,
    faults_at: BTreeMap<usize, u64>,
    mappings: BTreeMap<usize, u64>,
    taken: Vec<&'a Taken>,
    /// Calls by name and place: their number and their time.
    calls: BTreeMap<(&'a str, Option<usize>), (u64, u64)>,
    calls_ns: u64,
    waits: bool,
    sent: u64,
    local: u64,
    full: u64,
    pages: u64,
    interrupts: u64,
}

/// The answer for one run. `None` without events, or if CPUs were guarded.
pub fn answer(run: &Observation) -> Option<Answer> {
    let events = run.events.as_ref()?;
    let memory = events.memory.as_ref()?;
    let kernel_ns = run.usage.map(|usage: Usage| usage.system_ns).filter(|ns| *ns > 0);
    let (mut sums, mut start) = (BTreeMap::<Subject, Sum<'_>>::new(), (0, 0));
    for row in &memory.faults {
        if row.is_of_start(memory) {
            start = (start.0 + row.faults, start.1 + row.time_ns);
            continue;
        }
        let raced = row.class == "spurious" && row.since == SinceWhen::There;
        let unread = row.taken.is_some_and(|at| memory.taken[at].how == How::NoReadahead);
        // A race is about the memory that the other faults were on. For a file that does not fit
        // into memory, the first read is not what matters.
        let subject = match () {
            () if raced => raced_subject(row, memory),
            () if unread => evicted_subject(row, memory),
            () => None,
        };
        let subject = subject.unwrap_or_else(|| subject_of_faults(row, memory));
        let sum = sums.entry(subject).or_default();
        sum.faults += row.faults;
        sum.faults_ns += row.time_ns;
        sum.away_ns += row.away_ns;
        sum.raced += if row.class == "spurious" { row.faults } else { 0 };
        *sum.labels.entry(row.label).or_default() += row.faults;
        if let Some(site) = row.site {
            *sum.faults_at.entry(site).or_default() += row.faults;
        }
        if let Some(mapping) = row.mapping {
            *sum.mappings.entry(mapping).or_default() += row.faults;
        }
        if let Some(taken) = row.taken.and_then(|taken| memory.taken.get(taken))
            && !sum.taken.contains(&taken)
            && (!unread || sum.taken.is_empty())
        {
            sum.taken.push(taken);
        }
    }
    for row in memory.calls.iter().filter(|row| !row.starting) {
        let sum =
            sums.entry(subject_of_call(&row.call, row.site, row.mapping, memory)).or_default();
        let calls = sum.calls.entry((&row.call, row.site)).or_default();
        *calls = (calls.0 + row.calls, calls.1 + row.time_ns);
        sum.calls_ns += row.time_ns.saturating_sub(row.faults_ns);
        sum.waits |= row.waits;
        sum.sent += row.sent;
        sum.local += row.local;
        sum.full += row.full;
        sum.pages += row.pages;
        sum.interrupts += row.interrupts;
    }
    let mut findings: Vec<Item> = sums
        .into_iter()
        .map(|(subject, sum)| item(&subject, &sum, (events, memory), kernel_ns))
        .collect();
    let all: u64 = findings.iter().map(|item| item.time_ns).sum();
    findings.retain(|item| item.matters(kernel_ns.unwrap_or(all)));
    findings.sort_by_key(|item| (Reverse(item.time_ns), item.text.clone()));
    findings.truncate(MOST_ITEMS);
    Some(Answer {
        findings,
        start_faults: start.0,
        start_ns: start.1,
        needless: needless(events),
        explained: events.explained.map(|explained| explained_line(&explained, run)),
    })
}

impl Item {
    /// Whether the finding took a large enough share of this time, or happened often enough.
    fn matters(&self, kernel_ns: u64) -> bool {
        let events = self.faults.max(self.sent + self.local).max(self.interrupts).max(self.drains);
        let share = self.time_ns as f64 / kernel_ns.max(1) as f64;
        share >= LEAST_SHARE && events > 1 || events >= LEAST_EVENTS
    }
}

fn base(call: &str) -> &str {
    call.split('(').next().unwrap_or(call)
}

/// The call's name. For a protection, its arguments are left out, so that the change to and the
/// change back are one kind.
fn kind(call: &str) -> &str {
    if base(call).ends_with("mprotect") { base(call) } else { call }
}

fn subject_of_call(
    call: &str,
    site: Option<usize>,
    mapping: Option<usize>,
    memory: &Attribution,
) -> Subject {
    let function = frame_of_user(site, memory).map(|(frame, _)| frame.function.clone());
    let mapping = mapping.map(|mapping| mapping_name(mapping, memory));
    // The arguments of these calls do not name the heap, or the mapping that is made.
    let about = if matches!(base(call), "brk" | "mmap") { None } else { mapping };
    Subject::Call {
        name: kind(call).to_owned(),
        function: function.unwrap_or_default(),
        mapping: about,
    }
}

fn subject_of_faults(row: &FaultsOf, memory: &Attribution) -> Subject {
    if let Some(taken) = row.taken.and_then(|taken| memory.taken.get(taken)) {
        return subject_of_call(&taken.call, taken.site, taken.mapping, memory);
    }
    let mapping = row.mapping.map(|mapping| mapping_name(mapping, memory));
    Subject::Memory { since: row.since, mapping }
}

/// The subject of most other faults on the mapping.
fn raced_subject(row: &FaultsOf, memory: &Attribution) -> Option<Subject> {
    let others = memory.faults.iter();
    let others = others.filter(|other| other.mapping == row.mapping && other.class != row.class);
    let most = others.max_by_key(|other| other.faults)?;
    Some(subject_of_faults(most, memory))
}

/// The subject of faults on pages of the mapping that had been there and were taken away.
fn evicted_subject(row: &FaultsOf, memory: &Attribution) -> Option<Subject> {
    let evicted = |other: &&FaultsOf| {
        let paged_out = other.taken.is_some_and(|at| memory.taken[at].how == How::PagedOut);
        let reclaimed = [SinceWhen::ReclaimedMachine, SinceWhen::ReclaimedCgroup];
        other.mapping == row.mapping && (paged_out || reclaimed.contains(&other.since))
    };
    let most = memory.faults.iter().filter(evicted).max_by_key(|other| other.faults)?;
    (most.faults * 10 > row.faults).then(|| subject_of_faults(most, memory))
}

/// A mapping in words: its size, and the call that made it.
pub(super) fn mapping_name(at: usize, memory: &Attribution) -> String {
    let Some(mapping) = memory.mappings.get(at) else { return "unknown memory".to_owned() };
    let size = mapping.bytes.map(bytes);
    let made = mapping.mapped_at.and_then(|site| place(Some(site), "mmap", memory));
    let made = made.map(|made| format!("mapped at {made}"));
    let more: Vec<String> = size.into_iter().chain(made).collect();
    match more.is_empty() {
        true => mapping.name.clone(),
        false => format!("{} ({})", mapping.name, more.join(", ")),
    }
}

/// A size in words: `1048576` is `1.0 MiB`.
pub(super) fn bytes(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} bytes"),
        1024..1_048_576 => format!("{} KiB", bytes / 1024),
        1_048_576..1_073_741_824 => format!("{:.1} MiB", bytes as f64 / 1_048_576.0),
        _ => format!("{:.1} GiB", bytes as f64 / 1_073_741_824.0),
    }
}

/// The innermost frame that is not the C library's, and the library's function that it called.
fn frame_of_user(site: Option<usize>, memory: &Attribution) -> Option<(&Frame, Option<&Frame>)> {
    let stack = memory.sites.get(site?)?;
    let at = stack.iter().position(|frame| !frame.is_of_libc()).unwrap_or(0);
    Some((stack.get(at)?, at.checked_sub(1).and_then(|at| stack.get(at))))
}

/// The name without the prefixes of the C library.
fn plain(name: &str) -> &str {
    let name = name.strip_prefix("__GI_").unwrap_or(name);
    let name = name.strip_prefix("__libc_").unwrap_or(name).trim_start_matches('_');
    // One function has versions for processors: memset_avx2_unaligned_erms.
    let versions = ["_avx", "_evex", "_sse", "_erms"];
    versions.iter().fold(name, |name, version| name.split(version).next().unwrap_or(name))
}

/// The place of a call or a fault: function, file and line.
pub(super) fn place(site: Option<usize>, call: &str, memory: &Attribution) -> Option<String> {
    let (frame, through) = frame_of_user(site, memory)?;
    let wraps = |name: &&str| call.is_empty() || name.trim_end_matches("64") != call;
    let through = through.map(|frame| plain(&frame.function)).filter(wraps);
    if frame.is_of_libc() {
        return Some(format!("{} in the C library", plain(&frame.function)));
    }
    let through = through.map_or_else(String::new, |name| format!(", in {name}"));
    Some(format!("{}{through}", frame_name(frame)))
}

pub(super) fn frame_name(frame: &Frame) -> String {
    let name = super::brief(&frame.function);
    match (&frame.line, frame.offset) {
        (Some(line), _) => format!("{name} ({line})"),
        (None, Some(offset)) if offset > 0 => format!("{name}+{offset:#x}"),
        _ => name,
    }
}

fn item(
    subject: &Subject,
    sum: &Sum<'_>,
    (events, memory): (&Events, &Attribution),
    kernel_ns: Option<u64>,
) -> Item {
    let mut parts = Vec::new();
    if sum.faults > 0 {
        parts.push(faults_text(subject, sum, memory));
    }
    let calls: u64 = sum.calls.values().map(|(calls, _)| calls).sum();
    if calls > 0 {
        parts.push(calls_text(subject, sum, calls, (events, memory)));
    }
    let (time_ns, situations) = (sum.faults_ns + sum.calls_ns, situations(subject, sum, events));
    let major = sum.labels.keys().any(|label| label.contains("major") || *label == "swap-in");
    let share = kernel_ns.filter(|_| !sum.waits && !major);
    let gone = |taken: &&&Taken| matches!(taken.how, How::GivenBack | How::Unmapped);
    let most_away: u64 = sum.taken.iter().filter(gone).map(|taken| taken.most_away).sum();
    Item {
        text: parts.join("; "),
        remedies: situations.into_iter().map(remedies::of).collect(),
        keeping_bytes: (most_away > 0).then_some(most_away << 12),
        time_ns,
        share: share.map(|all| time_ns as f64 / all as f64),
        faults: sum.faults,
        calls,
        sent: sum.sent,
        local: sum.local,
        interrupts: sum.interrupts,
        drains: drains(&sum.calls, events),
    }
}

/// The most frequent of some numbered things, if it makes up more than half.
fn most(counts: &BTreeMap<usize, u64>) -> Option<usize> {
    let all: u64 = counts.values().sum();
    counts.iter().find(|(_, count)| 2 * **count > all).map(|(at, _)| *at)
}

fn faults_text(subject: &Subject, sum: &Sum<'_>, memory: &Attribution) -> String {
    let label = sum.labels.iter().max_by_key(|(_, count)| **count).map_or("", |(label, _)| *label);
    let plural = plural(label, sum.faults);
    let each = time(sum.faults_ns / sum.faults.max(1));
    let upon = mappings(sum, memory);
    let by = most(&sum.faults_at).and_then(|site| place(Some(site), "", memory));
    let by = by.map_or_else(String::new, |by| format!(" at {by}"));
    let mut text = format!("{} {plural} ({each} each){by}", number(sum.faults));
    let raced = if sum.raced > 0 && !label.starts_with("spurious") {
        format!(", {} of them spurious", number(sum.raced))
    } else {
        String::new()
    };
    text += &raced;
    let away = time(sum.away_ns / sum.faults.max(1));
    let of_calls = sum.taken.first().map(|taken| {
        let at = place(taken.site, base(&taken.call), memory);
        let at = at.map_or_else(String::new, |at| format!(" at {at}"));
        format!("{}{at}", taken.call)
    });
    let history = match (subject, sum.taken.first().zip(of_calls)) {
        (_, Some((taken, call))) => match taken.how {
            How::GivenBack => format!("of {upon} that {call} had given back, {away} before"),
            How::Unmapped if base(&taken.call) == "munmap" => {
                format!("of {upon} that {call} had unmapped, {away} before")
            }
            How::Unmapped => format!("of {upon} that {call} had mapped over, {away} before"),
            How::PagedOut => format!("of {upon} that {call} had paged out, {away} before"),
            How::Fork => {
                format!("of {upon} that a fork ({call}) had made read-only, {away} before")
            }
            How::Protected => format!("of {upon} that {call} had made read-only, {away} before"),
            How::Writeback => format!("of {upon} that {call} had written back, {away} before"),
            How::NoReadahead => {
                format!("of {upon}, which {call} has the kernel read without readahead")
            }
        },
        (Subject::Memory { since, .. }, None) => match since {
            SinceWhen::ReclaimedMachine => {
                format!("of {upon} that reclaim of the machine's memory had taken")
            }
            SinceWhen::ReclaimedCgroup => {
                format!("of {upon} that reclaim in a memory cgroup at its limit had taken")
            }
            SinceWhen::TakenAway => format!("of {upon} that the kernel had taken away"),
            SinceWhen::WrittenBack => format!("of {upon} that the kernel had written back"),
            SinceWhen::New => format!("of {upon}, never touched before"),
            _ => format!("of {upon}"),
        },
        (Subject::Call { .. }, None) => format!("of {upon}"),
    };
    format!("{text} {history}")
}

/// The mapping of most faults. It is in short form if the call that takes its pages also made it.
fn mappings(sum: &Sum<'_>, memory: &Attribution) -> String {
    let most = sum.mappings.iter().max_by_key(|(_, faults)| **faults);
    let Some((at, _)) = most else { return "unknown memory".to_owned() };
    let by_taker =
        memory.mappings.get(*at).zip(sum.taken.first()).filter(|(mapping, taken)| {
            mapping.mapped_at.is_some() && mapping.mapped_at == taken.site
        });
    let name = match by_taker {
        Some((mapping, _)) => {
            let size = mapping.bytes.map(|size| format!(" ({})", bytes(size)));
            format!("{}{}", mapping.name, size.unwrap_or_default())
        }
        None => mapping_name(*at, memory),
    };
    match sum.mappings.len() - 1 {
        0 => name,
        more => format!("{name} and {more} more"),
    }
}

fn plural(label: &str, count: u64) -> String {
    match label {
        _ if count == 1 => label.to_owned(),
        "first touch" => "first touches".to_owned(),
        "COW copy" => "COW copies".to_owned(),
        "huge page" => "huge pages".to_owned(),
        "file map, major" => "major faults".to_owned(),
        "swap-in" => "swap-ins".to_owned(),
        "reuse after write-protect" => "reuses after write-protect".to_owned(),
        _ => format!("faults ({label})"),
    }
}

fn calls_text(
    subject: &Subject,
    sum: &Sum<'_>,
    calls: u64,
    (events, memory): (&Events, &Attribution),
) -> String {
    let Subject::Call { name, .. } = subject else { return String::new() };
    let mut rows: Vec<_> = sum.calls.iter().collect();
    rows.sort_by_key(|(key, (calls, ns))| (Reverse((*ns, *calls)), **key));
    let known = !sum.taken.is_empty();
    let named = rows.iter().take(2).map(|((call, site), _)| {
        let at = place(*site, base(call), memory);
        format!("{call}{}", at.map_or_else(String::new, |at| format!(" at {at}")))
    });
    let named: Vec<String> = named.collect();
    let spent: u64 = rows.iter().map(|(_, (_, ns))| ns).sum();
    let what = match known && rows.len() == 1 {
        true if calls == 1 => "its call".to_owned(),
        true => format!("its {} calls", number(calls)),
        false if calls == 1 => format!("1 call of {}", named.join(" and ")),
        false => format!("{} calls of {}", number(calls), named.join(" and ")),
    };
    let mut text = format!("{what} took {}", time(spent));
    if sum.waits {
        text += ", waits included";
    }
    let flushes = sum.sent + sum.local;
    let everything = match sum.full {
        0 => String::new(),
        full if full == flushes => " of everything".to_owned(),
        full => format!(" ({} of everything)", number(full)),
    };
    if flushes > 0 {
        text += &format!(", with {} flushes{everything}", number(flushes));
        text += &match sum.sent {
            0 => ", all on their own CPU".to_owned(),
            sent => format!(", {} of them sent{}", number(sent), victims(sum, events)),
        };
    }
    let back: u64 = if name.contains("COLLAPSE") {
        memory.taken.iter().map(|taken| taken.back_without_fault).sum()
    } else {
        0
    };
    if back > 0 {
        text += &format!(
            "; {} pages ({}) that had been given back came back in them without a fault",
            number(back),
            bytes(back << 12)
        );
    }
    match drains(&sum.calls, events) {
        0 => text,
        runs => {
            let runs = number(runs);
            format!("{text}; a kernel thread ran {runs} times on other CPUs for them (LRU drain)")
        }
    }
}

/// The tasks that an item's flushes interrupted.
fn victims(sum: &Sum<'_>, events: &Events) -> String {
    let named = |cause: &str| sum.calls.keys().any(|(call, _)| *call == cause);
    let rows = events.interrupts.iter().flatten();
    let rows =
        rows.filter(|row| row.asked == "TLB flush" && row.interrupts > 0 && named(&row.cause));
    let mut whom: BTreeMap<String, u64> = BTreeMap::new();
    rows.for_each(|row| *whom.entry(party(&row.to)).or_default() += row.interrupts);
    let most = whom.iter().max_by_key(|(_, times)| **times);
    match most {
        Some((victim, times)) if *times == sum.interrupts => {
            format!(", which interrupted {victim} {} times", number(*times))
        }
        Some((victim, times)) => {
            let all = number(sum.interrupts);
            format!(", which interrupted {all} times, {victim} {} of them", number(*times))
        }
        None => ", which interrupted nobody".to_owned(),
    }
}

/// The work that kernel threads had to do on other CPUs.
fn drains(calls: &BTreeMap<(&str, Option<usize>), (u64, u64)>, events: &Events) -> u64 {
    let named = |cause: &str| calls.keys().any(|(call, _)| *call == cause);
    let drains = events.interrupts.iter().flatten();
    let drains = drains.filter(|row| row.asked == "LRU drain" && named(&row.cause));
    drains.map(|row| row.uninterrupted).sum()
}

fn situations(subject: &Subject, sum: &Sum<'_>, events: &Events) -> Vec<Situation> {
    let mostly = |label: &str| sum.labels.get(label).is_some_and(|count| 2 * count > sum.faults);
    let called = |part: &str| sum.calls.keys().any(|(call, _)| call.contains(part));
    let mut found = Vec::new();
    if 20 * sum.raced > sum.faults {
        found.push(Situation::Raced);
    }
    if let Some(taken) = sum.taken.first() {
        found.extend(match taken.how {
            How::GivenBack if base(&taken.call) == "brk" => of_brk(taken, events),
            How::GivenBack => Some(Situation::GivenBack),
            How::Unmapped if base(&taken.call) == "munmap" => Some(Situation::Unmapped),
            How::Unmapped => Some(Situation::MappedOver),
            How::PagedOut => Some(Situation::PagedOut),
            How::Fork if mostly("COW copy") => Some(Situation::CopiedAfterFork),
            How::Fork => Some(Situation::ReusedAfterFork),
            How::Protected => None,
            How::Writeback => Some(Situation::Writeback),
            How::NoReadahead => Some(Situation::NoReadahead),
        });
        // For large pieces of new memory each time, populate and huge pages help.
        let large = taken.pages / taken.calls.max(1) >= 256;
        if large && taken.how == How::Unmapped && mostly("first touch") {
            found.push(Situation::NewMemory);
        }
        return found;
    }
    let flushes = sum.sent + sum.local;
    match subject {
        Subject::Memory { since: SinceWhen::ReclaimedMachine, .. } => {
            found.push(Situation::ReclaimedMachine);
        }
        Subject::Memory { since: SinceWhen::ReclaimedCgroup, .. } => {
            found.push(Situation::ReclaimedCgroup);
        }
        Subject::Memory { since: SinceWhen::WrittenBack, .. } => found.push(Situation::Writeback),
        Subject::Memory { since: SinceWhen::New, .. } if mostly("first touch") => {
            found.push(Situation::NewMemory);
        }
        Subject::Memory { since: SinceWhen::New, .. } if mostly("file map, major") => {
            found.push(Situation::ColdFile);
        }
        Subject::Call { .. } if called("MADV_COLLAPSE") => found.push(Situation::Collapsed),
        Subject::Call { name, .. } if name.ends_with("mprotect") && flushes > 0 => {
            let each = sum.pages / (flushes - sum.full).max(1);
            let many = 2 * sum.full > flushes || each >= MANY_PAGES;
            found.push(if many { Situation::ProtectedMany } else { Situation::ProtectedFew });
        }
        Subject::Call { .. } if called("POSIX_FADV_DONTNEED") && drains(&sum.calls, events) > 0 => {
            found.push(Situation::FileAdviceDrains);
        }
        _ => {}
    }
    found
}

/// Whether the C library lowered the program break, or the program did so itself.
fn of_brk(taken: &Taken, events: &Events) -> Option<Situation> {
    let memory = events.memory.as_ref()?;
    let stack = memory.sites.get(taken.site?)?;
    let by_libc = stack.iter().any(|frame| plain(&frame.function).contains("systrim"))
        || stack.iter().any(|frame| plain(&frame.function) == "free");
    Some(if by_libc { Situation::Trimmed } else { Situation::HeapShrunk })
}

fn needless(events: &Events) -> String {
    let Some(findings) = &events.needless else {
        let lost = events.watching.lost > 0;
        let why = if lost { "events were lost" } else { "not all evidence is visible" };
        return format!("Needless: not told, since {why}.");
    };
    let mut kinds: Vec<(&str, u64, u64)> = Vec::new();
    for Finding { what, times, certain, .. } in findings {
        match kinds.iter_mut().find(|(known, ..)| known == what) {
            Some((_, all, sure)) => (*all, *sure) = (*all + times, *sure + certain),
            None => kinds.push((what, *times, *certain)),
        }
    }
    if kinds.is_empty() {
        return "Nothing that the kernel did is known to be needless.".to_owned();
    }
    kinds.sort_by_key(|(what, times, _)| (Reverse(*times), *what));
    let more = kinds.len().saturating_sub(2);
    let told = kinds.iter().take(2).map(|(what, times, certain)| {
        let sure = match certain {
            0 => "likely".to_owned(),
            certain if certain == times => "certain".to_owned(),
            certain => format!("{} certain", number(*certain)),
        };
        format!("{} x {what} ({sure})", number(*times))
    });
    let told = told.collect::<Vec<_>>().join(", ");
    let more = if more > 0 { format!(", and {more} more") } else { String::new() };
    format!("Needless: {told}{more}.")
}

fn explained_line(explained: &Explained, run: &Observation) -> String {
    let Explained { kernel_ns, faults_ns, calls_ns } = *explained;
    let mut unseen = Vec::new();
    let memory = run.events.as_ref().and_then(|events| events.memory.as_ref());
    if memory.is_some_and(|memory| memory.forks > 0) {
        unseen.push("copies inside fork");
    }
    let split = run.machine.vmstat.as_ref().and_then(|all| all.get("thp_split_pmd"));
    if split.is_some_and(|split| *split > 0) {
        unseen.push("a guest's faults (EPT)");
    }
    unseen.push("locks, other calls");
    let unseen = format!("Not seen: {}.", unseen.join(", "));
    let (faults, calls) = (time(faults_ns), time(calls_ns));
    match kernel_ns.filter(|ns| *ns > 0) {
        None => format!("Faults took {faults}, calls {calls}. {unseen}"),
        Some(all) if faults_ns + calls_ns > all => format!(
            "Faults took {faults} and calls {calls} by the clock, the kernel {} of CPU time. {unseen}",
            time(all)
        ),
        Some(all) => format!(
            "Explained: {:.0} % of {} in the kernel. {unseen}",
            100.0 * (faults_ns + calls_ns) as f64 / all as f64,
            time(all),
        ),
    }
}

/// The answer as lines, with the summary above it.
pub(super) fn lines(answer: &Answer, summary: &str, style: Style) -> String {
    let Answer { findings, start_faults, start_ns, needless, explained } = answer;
    let start = format!(
        "start and end, and the program's own files: {} faults, {}",
        number(*start_faults),
        time(*start_ns)
    );
    if findings.is_empty() {
        let nothing = needless.starts_with("Nothing");
        let rest = if nothing { String::new() } else { format!(" {needless}") };
        let line = format!("Nothing to change: {start}.{rest}");
        return format!("{summary}{}\n", style.wrap(&line, 2));
    }
    let mut last = format!("{}\n", style.wrap(needless, 2));
    if let Some(explained) = explained {
        last += &format!("{}\n", style.wrap(explained, 2));
    }
    let room = MOST_LINES.saturating_sub(summary.lines().count() + last.lines().count());
    let mut body: Vec<String> = Vec::new();
    for (at, item) in findings.iter().enumerate() {
        // The text is shortened rather than left out; JSON has all of it.
        let long = one(at + 1, item, Remedies::Whole, style);
        let short = one(at + 1, item, Remedies::Change, style);
        let none = one(at + 1, item, Remedies::None, style);
        let fits = |text: &&String| body.len() + text.lines().count() <= room;
        match [&long, &short, &none].into_iter().take(if at == 0 { 2 } else { 3 }).find(fits) {
            Some(text) => body.extend(text.lines().map(str::to_owned)),
            None if at == 0 => body.extend(short.lines().map(str::to_owned)),
            None => break,
        }
    }
    format!("{summary}{}\n{last}", body.join("\n"))
}

/// The part of a finding's remedy that is printed.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Remedies {
    Whole,
    Change,
    None,
}

fn one(number: usize, item: &Item, remedies: Remedies, style: Style) -> String {
    let share = match item.share {
        Some(share) => format!("{:.0} % of kernel time, ", (100.0 * share).min(100.0)),
        None => String::new(),
    };
    let line = format!("{number}. {}, {share}{}.", item.text, time(item.time_ns));
    let mut text = style.bold(style.wrap(&line, 3)) + "\n";
    if let Some(first) = item.remedies.first().filter(|_| remedies != Remedies::None) {
        let also =
            item.remedies.get(1).map_or_else(String::new, |more| format!("; or {}", more.change));
        let keeping = item.keeping_bytes.map_or_else(String::new, |held| {
            format!("; keeping the memory holds {} more", bytes(held))
        });
        let leaves = format!(" Leaves {}{keeping}.", first.leaves);
        let leaves = if remedies == Remedies::Whole { leaves } else { String::new() };
        let line = format!("   change: {}{also}.{leaves}", first.change);
        text += &(style.wrap(&line, 6) + "\n");
    }
    text
}

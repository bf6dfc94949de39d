//! Checks that watching counts exactly what a workload costs. N rounds are N times what the table
//! says, class by class and cause by cause, and every fault and flush event that the kernel counted
//! was seen. If other tasks take the workload's CPUs in every attempt, the result is undecided.

use crate::numa;
use crate::rounds;
use crate::sys::{self, PAGE};
use crate::table::{self, Asks, Counted, Need, Waits, Workload, class};
use crate::witness::Witness;
use needless_runner::environment::series;
use needless_watch::counters::Machine;
use needless_watch::functions::Asked;
use needless_watch::interrupts::{Held, Line};
use needless_watch::observation::{Events, Interrupts, Toggles};
use needless_watch::rings::{Rings, Tasks};
use needless_watch::signals::Signals;
use needless_watch::tracefs::Tracefs;
use needless_watch::tracepoints::Extent;
use needless_watch::{Finding, Missing, Observation, Options, Target, watch};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::process::{self, Command, ExitCode, Stdio};
use std::time::Instant;

/// The most undisturbed attempts. In a round in which another task takes the second CPU, the
/// flushes are others, so a measurement may be repeated. It is never averaged, and no part of it is
/// left out.
const QUIET_ATTEMPTS: u32 = 4;

/// The most attempts in all.
const ATTEMPTS: u32 = 16;

/// The largest number of disturbing tasks that a reason names.
const STRANGERS_NAMED: usize = 5;

/// The exit status if no workload is wrong and at least one is undecided.
const UNDECIDED: u8 = 3;

/// The size of a ring, in bytes.
pub const RING_BYTES: usize = 8 << 20;

/// Faults by class; flushes by cause, sent and local.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
struct Counts {
    faults: BTreeMap<String, u64>,
    flushes: BTreeMap<String, (u64, u64)>,
    /// Faults that the kernel counts without an exception. `None` if they are not known.
    without_exception: Option<u64>,
    /// Switches away that flushed, and those that did not. `None` if the workload is about
    /// something else, or if they are not known.
    switches: Option<(u64, u64)>,
    /// How often the workload asked other CPUs for each thing that it is about.
    asks: BTreeMap<String, u64>,
    /// How often faults waited, by what they waited for. `None` if the workload is about something
    /// else.
    waits: Option<BTreeMap<String, u64>>,
}

impl Counts {
    fn found(workload: &Workload, process_id: i32, run: &Observation) -> io::Result<Counts> {
        let events = run
            .events
            .as_ref()
            .ok_or_else(|| io::Error::other(format!("there are no events: {:?}", run.missing)))?;
        let mut counts = Counts::default();
        for row in &events.faults {
            *counts.faults.entry(row.class.to_owned()).or_default() += row.faults;
        }
        for row in events.flushes.iter().flatten() {
            counts.flushes.insert(row.cause.clone(), (row.sent, row.local));
        }
        counts.without_exception = events.faults_without_exception;
        if workload.per_round(series()).switches.is_some() {
            counts.switches = events.switches_flushed.zip(events.switches_kept);
        }
        if workload.per_round(series()).waits.is_some() {
            counts.waits = events.faults.iter().try_fold(BTreeMap::new(), |mut waits, row| {
                for waited in row.waited_for.as_ref()? {
                    *waits.entry(waited.what.to_owned()).or_default() += waited.waits;
                }
                Some(waits)
            });
        }
        let process = Some(process_id);
        for asks in workload.per_round(series()).asks {
            let title = asks.asked.title();
            let rows = asked(events, title, process).filter(|row| asks.is_about(&row.to));
            let times: u64 = rows.map(|row| row.interrupts + row.uninterrupted).sum();
            if times > 0 {
                counts.asks.insert(title.to_owned(), times);
            }
        }
        Ok(counts)
    }

    fn expected(workload: &Workload, rounds: u32) -> Counts {
        let rounds = u64::from(rounds);
        let cost = workload.per_round(series());
        let faults = cost.faults.iter().map(|(class, count)| ((*class).to_owned(), count * rounds));
        let flushes = cost.flushes.iter();
        let flushes = flushes
            .map(|(cause, sent, local)| ((*cause).to_owned(), (sent * rounds, local * rounds)));
        Counts {
            faults: faults.collect(),
            flushes: flushes.collect(),
            without_exception: Some(cost.without_exception * rounds),
            switches: cost.switches.map(|(flushed, kept)| (flushed * rounds, kept * rounds)),
            waits: match cost.waits {
                None => None,
                Some(Waits::Always(what, waits)) => {
                    Some([(what.title().to_owned(), waits * rounds)].into())
                }
                Some(Waits::AtTimes(what)) => {
                    Some(what.iter().map(|what| (what.title().to_owned(), 1)).collect())
                }
            },
            asks: cost
                .asks
                .iter()
                .map(|asks| {
                    (asks.asked.title().to_owned(), asks.times(sys::online_cpus()) * rounds)
                })
                .collect(),
        }
    }

    /// Replaces the counts that only the kernel decides.
    fn decided(mut self, workload: &Workload, machine: &Machine) -> io::Result<Counts> {
        let of = |name: &str| {
            let count = machine.vmstat.as_ref().and_then(|vmstat| vmstat.get(name).copied());
            count.ok_or_else(|| io::Error::other(format!("/proc/vmstat does not tell {name}")))
        };
        for counted in workload.counted {
            match *counted {
                Counted::Faults(class, name) => {
                    self.faults.insert(class.to_owned(), of(name)?);
                }
                Counted::Sent(cause, name) => {
                    self.flushes.entry(cause.to_owned()).or_default().0 = of(name)?;
                }
                Counted::Local(cause, name) => {
                    self.flushes.entry(cause.to_owned()).or_default().1 = of(name)?;
                }
            }
        }
        Ok(self)
    }

    /// Replaces the counts that depend on timing by those that were found.
    fn timed(mut self, workload: &Workload, found: &Counts) -> Counts {
        if !workload.per_round(series()).varies() {
            return self;
        }
        let waits = self.waits.iter_mut().flatten();
        for (waits, found) in waits.zip(found.waits.iter().flatten()) {
            if waits.0 == found.0 {
                *waits.1 = *found.1;
            }
        }
        Counts { waits: self.waits, ..found.clone() }
    }
}

/// What a process asked other CPUs for.
fn asked<'a>(
    events: &'a Events,
    title: &'static str,
    process: Option<i32>,
) -> impl Iterator<Item = &'a Interrupts> {
    let rows = events.interrupts.iter().flatten();
    rows.filter(move |row| row.asked == title && row.from.pid == process)
}

/// How often CPUs did what the workload asked for without an interrupt.
fn uninterrupted(workload: &Workload, process: i32, run: &Observation) -> BTreeMap<String, u64> {
    let Some(events) = &run.events else { return BTreeMap::new() };
    let of = |asks: &Asks| {
        let title = asks.asked.title();
        let times = asked(events, title, Some(process)).map(|row| row.uninterrupted).sum();
        (title.to_owned(), times)
    };
    workload.per_round(series()).asks.iter().map(of).collect()
}

/// The expected counts that can be seen where the kernel does not show everything. The report says
/// what is missing.
fn visible(mut expected: Counts, run: &Observation) -> Counts {
    let missing = |what: &str| run.missing.iter().any(|missing| missing.what == what);
    let faults = &mut expected.faults;
    if missing("filemap:mm_filemap_map_pages")
        && let Some(around) = faults.remove(class::FAULT_AROUND)
    {
        *faults.entry(class::FILE_MAP.to_owned()).or_default() += around;
    }
    if missing("exceptions:page_fault_user") {
        // The kernel shows the ends of faults, and a failed fault has none.
        faults.remove(class::FAILED);
        let all: u64 = std::mem::take(faults).into_values().sum();
        faults.extend((all > 0).then(|| (class::UNKNOWN.to_owned(), all)));
        // It is not known either when a task is in a fault.
        expected.waits = None;
    }
    if missing("tlb:tlb_flush") {
        expected.flushes.clear();
        expected.switches = None;
    }
    if missing("csd:csd_queue_cpu") {
        // Drains are works, which every kernel shows.
        expected.asks.retain(|title, _| title == Asked::LruDrain.title());
    }
    expected
}

/// The result for one workload.
#[derive(Debug, Serialize)]
struct Outcome {
    name: &'static str,
    /// Why the workload cannot run here.
    skipped: Option<String>,
    /// What failed.
    failed: Option<String>,
    exact: bool,
    /// Why the result is undecided: which tasks disturbed every attempt.
    undecided: Option<String>,
    attempts: u32,
    /// How long all attempts took together.
    took_ms: u64,
    /// Attempts that no task is known to have disturbed.
    quiet_attempts: u32,
    /// Tasks that ran on the workload's CPUs meanwhile.
    strangers: BTreeSet<String>,
    expected: Counts,
    /// The counts of the last attempt.
    found: Counts,
    /// What the last attempt showed to be needless.
    needless: Vec<Finding>,
    /// Protections of single pages that were changed to and fro.
    toggled: Vec<Toggles>,
    /// How often CPUs did what was asked without an interrupt, by what was asked.
    uninterrupted: BTreeMap<String, u64>,
    /// The kernel's own count of interrupts meanwhile, for a workload that is about interrupts.
    counted_interrupts: Vec<Held>,
    /// What this kernel does not show.
    missing: Vec<Missing>,
    /// Whether attempts found different counts.
    #[serde(skip)]
    varies: bool,
}

impl Outcome {
    fn untried(workload: &Workload, rounds: u32) -> Outcome {
        Outcome {
            name: workload.name,
            skipped: rounds::unusable(workload),
            failed: None,
            exact: false,
            undecided: None,
            attempts: 0,
            took_ms: 0,
            quiet_attempts: 0,
            strangers: BTreeSet::new(),
            expected: Counts::expected(workload, rounds),
            found: Counts::default(),
            needless: Vec::new(),
            toggled: Vec::new(),
            uninterrupted: BTreeMap::new(),
            counted_interrupts: Vec::new(),
            missing: Vec::new(),
            varies: false,
        }
    }

    fn wants_more(&self) -> bool {
        let done = self.skipped.is_some() || self.failed.is_some() || self.exact;
        !done && self.quiet_attempts < QUIET_ATTEMPTS && self.attempts < ATTEMPTS
    }

    /// Decides the result after the last attempt. If every attempt was disturbed and the counts
    /// vary, they are the disturbance's. If the same wrong counts come again and again, they are
    /// the workload's.
    fn conclude(&mut self) {
        let decided = self.skipped.is_some() || self.failed.is_some() || self.exact;
        if !decided && self.quiet_attempts == 0 && self.varies {
            let named = self.strangers.iter().take(STRANGERS_NAMED).map(String::as_str);
            let mut who = named.collect::<Vec<&str>>().join(", ");
            if self.strangers.len() > STRANGERS_NAMED {
                who = format!("{who} and {} more", self.strangers.len() - STRANGERS_NAMED);
            }
            let attempts = self.attempts;
            self.undecided =
                Some(format!("in all {attempts} attempts others took its CPUs: {who}"));
        }
    }

    fn is_wrong(&self) -> bool {
        !self.exact && self.skipped.is_none() && self.undecided.is_none()
    }

    /// Whether the counts are those of the table. A thread that loses a race may or may not have
    /// faulted.
    fn as_expected(&self, workload: &Workload, rounds: u32) -> bool {
        let mut found = self.found.clone();
        let all = |counts: &Counts| counts.faults.values().sum::<u64>();
        let lost = all(&found).saturating_sub(all(&self.expected));
        if workload.races && lost > 0 && lost <= u64::from(rounds) {
            let unknown = found.faults.contains_key(class::UNKNOWN);
            let class = if unknown { class::UNKNOWN } else { class::SPURIOUS };
            let left = found.faults.remove(class).and_then(|count| count.checked_sub(lost));
            found.faults.extend(left.filter(|left| *left > 0).map(|left| (class.to_owned(), left)));
        }
        found == self.expected
    }

    fn attempt(
        &mut self,
        workload: &Workload,
        rounds: u32,
        signals: &mut Signals,
    ) -> io::Result<()> {
        let (run, process, strangers) = watched(workload, rounds, signals)?;
        self.attempts += 1;
        self.quiet_attempts += u32::from(strangers.is_empty());
        self.strangers.extend(strangers);
        let found = Counts::found(workload, process, &run)?;
        self.varies |= self.attempts > 1 && found != self.found;
        self.found = found;
        let expected = Counts::expected(workload, rounds).decided(workload, &run.machine)?;
        let expected = visible(expected, &run);
        self.expected = expected.timed(workload, &self.found);
        self.exact = self.as_expected(workload, rounds) && all_seen(workload, &run);
        self.uninterrupted = uninterrupted(workload, process, &run);
        if let Some(events) = run.events {
            self.counted_interrupts = events.counted_interrupts.unwrap_or_default();
            self.needless = events.needless.unwrap_or_default();
            self.toggled = events.toggled.unwrap_or_default();
        }
        self.missing = run.missing;
        Ok(())
    }
}

/// Checks these workloads, or all, and prints the results. The exit status is 1 if one is not
/// exact.
pub fn check(names: &[String], rounds: u32, json: bool) -> io::Result<ExitCode> {
    let named: io::Result<Vec<_>> = names.iter().map(|name| table::find(name)).collect();
    let workloads = if names.is_empty() { table::all().collect() } else { named? };
    let mut signals = Signals::catch()?;
    // The kernel counts samples for the whole machine.
    numa::forbid_sampling();
    let _held = hold_events();
    let mut outcomes = Vec::new();
    for workload in workloads {
        let outcome = check_one(workload, rounds, &mut signals);
        if !json {
            print(&outcome)?;
        }
        outcomes.push(outcome);
    }
    if json {
        serde_json::to_writer(io::stdout().lock(), &outcomes)?;
    }
    let undecided = outcomes.iter().any(|outcome| outcome.undecided.is_some());
    Ok(match outcomes.iter().any(Outcome::is_wrong) {
        true => ExitCode::FAILURE,
        false if undecided => ExitCode::from(UNDECIDED),
        false => ExitCode::SUCCESS,
    })
}

fn check_one(workload: &'static Workload, rounds: u32, signals: &mut Signals) -> Outcome {
    let _balancing =
        workload.needs.contains(&Need::NumaBalancing).then(numa::Balancing::on).flatten();
    let mut outcome = Outcome::untried(workload, rounds);
    let start = Instant::now();
    while outcome.wants_more() {
        if let Err(error) = outcome.attempt(workload, rounds, signals) {
            outcome.failed = Some(error.to_string());
        }
    }
    outcome.took_ms = start.elapsed().as_millis() as u64;
    outcome.conclude();
    outcome
}

/// Opens every event that watching opens, and leaves it idle. The kernel patches itself for the
/// first event of a kind and waits for the last, which otherwise takes most of the time. If the
/// events cannot be opened, watching says why.
pub fn hold_events() -> Option<Rings> {
    let tracefs = Tracefs::find().ok()?;
    let own = Tasks::Running(vec![process::id() as i32]);
    let (target, extent) = (Target::All, Extent::EveryInterrupt);
    let options = Options { target, ring_bytes: PAGE, extent, waits: false, timeline: None };
    Rings::open(&own, &options, tracefs.path()).ok()
}

/// Whether the rings had everything that the kernel counted, including interrupts if the workload
/// is about them.
fn all_seen(workload: &Workload, run: &Observation) -> bool {
    let about_interrupts = !workload.per_round(series()).asks.is_empty();
    run.events.as_ref().is_some_and(|events| {
        let counted = events.counted;
        let held = events.counted_interrupts.iter().flatten();
        let mut calls = held.filter(|held| about_interrupts && held.line == Line::Cal);
        counted.faults == Some(counted.faults_seen)
            && counted.flush_events == counted.flush_events_seen
            && calls.all(|held| held.agrees != Some(false))
    })
}

/// Watches the rounds of a workload and nothing else. The workload waits at a gate before and after
/// its rounds. The command whose run is watched opens the first gate and waits at the second.
/// Returns what was seen, the workload's process, and the tasks that ran on its CPUs meanwhile. No
/// tasks are returned where they cannot be seen.
fn watched(
    workload: &Workload,
    rounds: u32,
    signals: &mut Signals,
) -> io::Result<(Observation, i32, BTreeSet<String>)> {
    let mut process = Command::new("/proc/self/exe")
        .args(["run", workload.name, "--gate", "--rounds", &rounds.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let (Some(mut told), Some(mut gate)) = (process.stdout.take(), process.stdin.take()) else {
        return Err(io::Error::other("a process without pipes"));
    };
    let mut byte = [0];
    while byte != *b"\n" {
        if told.read(&mut byte)? == 0 {
            let status = process.wait()?;
            return Err(io::Error::other(format!("{} did not start: {status}", workload.name)));
        }
    }
    let mut open = Command::new("/proc/self/exe");
    open.arg("gate").stdin(told.as_fd().try_clone_to_owned()?);
    open.stdout(gate.as_fd().try_clone_to_owned()?);
    let target = Target::Process(process.id() as i32);
    let extent = match workload.per_round(series()).asks.is_empty() {
        true => Extent::Programs,
        false => Extent::EveryInterrupt,
    };
    let waits = workload.per_round(series()).waits.is_some();
    let options = Options { target, ring_bytes: RING_BYTES, extent, waits, timeline: None };
    let witness = Witness::open();
    // If the watching process were on the workload's CPU, opening the gate would be a switch away
    // from it.
    let anywhere = rustix::thread::sched_getaffinity(None)?;
    if workload.per_round(series()).switches.is_some() {
        let _ = sys::pin(1);
    }
    let run = watch(&options, Some(open), signals, &|_, _| {}).map_err(io::Error::other);
    rustix::thread::sched_setaffinity(None, &anywhere)?;
    let run = run?;
    let strangers = witness.map_or(BTreeSet::new(), |mut witness| witness.strangers(process.id()));
    gate.write_all(b"\n")?;
    drop((gate, told));
    match process.wait()? {
        status if status.success() => Ok((run, process.id() as i32, strangers)),
        status => Err(io::Error::other(format!("{}: {status}", workload.name))),
    }
}

/// Opens the first gate and waits at the second.
pub fn open_gate() -> io::Result<()> {
    io::stdout().write_all(b"\n")?;
    io::stdout().flush()?;
    let mut line = String::new();
    io::stdin().read_line(&mut line).map(|_| ())
}

fn print(outcome: &Outcome) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let Outcome { name, attempts, took_ms, expected, found, .. } = outcome;
    if let Some(why) = &outcome.undecided {
        return writeln!(out, "{name:24} undecided: {why}");
    }
    match (&outcome.skipped, outcome.exact) {
        (Some(why), _) => writeln!(out, "{name:24} skipped: {why}"),
        _ if outcome.failed.is_some() => writeln!(out, "{name:24} failed: {:?}", outcome.failed),
        (None, true) => writeln!(out, "{name:24} exact ({attempts}, {took_ms} ms)"),
        (None, false) => {
            writeln!(out, "{name:24} differs\n  found    {found:?}\n  expected {expected:?}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The result after this many attempts that are not exact.
    fn concluded(attempts: u32, quiet_attempts: u32, varies: bool) -> Outcome {
        let workload = table::all().next().unwrap();
        let strangers = BTreeSet::from(["cc1".to_owned()]);
        let mut outcome = Outcome::untried(workload, 1);
        outcome = Outcome { skipped: None, attempts, quiet_attempts, varies, strangers, ..outcome };
        assert!(!outcome.wants_more());
        outcome.conclude();
        outcome
    }

    #[test]
    fn only_what_others_may_have_changed_is_undecided() {
        let disturbed = concluded(ATTEMPTS, 0, true);
        assert!(!disturbed.is_wrong());
        assert!(disturbed.undecided.unwrap().ends_with("others took its CPUs: cc1"));
        assert!(concluded(ATTEMPTS, 0, false).is_wrong(), "the same again and again");
        assert!(concluded(ATTEMPTS, 1, true).is_wrong(), "once undisturbed");
        assert!(concluded(QUIET_ATTEMPTS, QUIET_ATTEMPTS, true).is_wrong());
    }
}

//! The events while they come: read, put in order, folded.

use super::{Options, Target};
use crate::counters::{Machine, Usage};
use crate::fold::{Fold, Guard, Surroundings};
use crate::interrupts::{Count, Recorded};
use crate::missing::Missing;
use crate::observation::{self, Visible, Watching};
use crate::present;
use crate::price;
use crate::record::{Record, What};
use crate::rings::{PerfError, Rings, Tasks};
use crate::tracefs::Tracefs;
use crate::tracepoints::{self, Extent, Point};
use crate::unseen;
use needless_runner::environment::series;
use rustix::thread::{sched_getaffinity, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};
use std::io;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

/// Interrupts that are timed per second.
const TIMED_PER_SECOND: usize = 256;

/// The clock that records are stamped with.
fn now() -> u64 {
    let time = clock_gettime(ClockId::MonotonicRaw);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The events while they come.
pub(super) struct Events {
    rings: Rings,
    extent: Extent,
    /// The kernel's count of interrupts when watching began.
    interrupts: Option<Count>,
    fold: Fold,
    waiting: Vec<Record>,
    /// Records from before this are complete.
    complete: u64,
    record_ns: Option<u64>,
    reader: Duration,
    timed: (Instant, usize),
    /// Freed pages are not recorded yet.
    frees_wait: bool,
    /// Stacks of faults are not sampled yet.
    samples_wait: bool,
    /// Flushes are sent that no event tells.
    flushes_hidden: bool,
    missing: Vec<Missing>,
}

impl Events {
    /// Opens them, or says why not.
    pub(super) fn open(options: &Options, tasks: &Tasks) -> Result<Events, Missing> {
        let opened = Tracefs::find().map_err(PerfError::from).and_then(|tracefs| {
            let rings = Rings::open(tasks, options, tracefs.path())?;
            let hidden = unseen::unseen(tracefs.path());
            Ok((rings, hidden, price::of_an_event(tracefs.path()).ok()))
        });
        let (mut rings, hidden, price) = opened.map_err(|error| {
            let lacks = "classes, causes, who interrupts whom, needless flushes and copies";
            Missing::new("events", &error, lacks, error.remedy())
        })?;
        let mut missing = std::mem::take(&mut rings.missing);
        let flushes_hidden = !hidden.is_empty();
        missing.extend(hidden);
        let context = Surroundings { flushes_hidden, ..present::context(&rings, &mut missing) };
        let all = matches!(options.target, Target::All);
        let mut fold = Fold::new(context, series() < (6, 1), all);
        fold.waits = options.waits;
        fold.timeline = options.timeline.clone();
        fold.functions_are_named(rings.has(Point::CallBegin));
        if let Extent::Guard(cpus) = &options.extent {
            fold.guard = Some(Guard::of(cpus));
            missing.extend(keep_off(cpus));
        }
        present::introduce(tasks, &mut fold, &mut missing);
        let frees_wait = matches!(tasks, Tasks::Starting(_));
        if frees_wait {
            fold.frees_from(u64::MAX);
        }
        Ok(Events {
            rings,
            extent: options.extent.clone(),
            interrupts: None,
            fold,
            waiting: Vec::new(),
            complete: 0,
            record_ns: price.map(|price| price.as_nanos() as u64),
            reader: Duration::ZERO,
            timed: (Instant::now(), 0),
            frees_wait,
            samples_wait: frees_wait,
            flushes_hidden,
            missing,
        })
    }

    /// Starts recording.
    pub(super) fn begin(&mut self, tasks: &Tasks) -> io::Result<()> {
        self.rings.enable(tasks)?;
        self.interrupts = self.count_interrupts();
        if let Some(count) = &self.interrupts {
            self.fold.tallies.begin(count.reading);
        }
        if let Some(guard) = &mut self.fold.guard {
            guard.begin(self.interrupts.as_ref().map_or_else(now, |count| count.reading.1));
        }
        Ok(())
    }

    /// What the kernel has counted by now.
    fn count_interrupts(&mut self) -> Option<Count> {
        let count = Count::read(now);
        let lacks = "the kernel's own count of interrupts";
        count.map_err(|unseen| Missing::unseen(&unseen, lacks).tell(&mut self.missing)).ok()
    }

    /// Waits for more.
    pub(super) fn wait(&self, limit: Duration, also: Option<BorrowedFd<'_>>) {
        self.rings.wait(limit, also);
    }

    /// Records read, and records lost.
    pub(super) fn so_far(&self) -> (u64, u64) {
        (self.fold.totals.records, self.fold.totals.lost_records)
    }

    /// Reads what there is, and folds what is complete: a record of one CPU may become visible
    /// after a younger one of another CPU, but not after a whole round of reading.
    pub(super) fn read(&mut self) {
        let start = thread_time();
        let complete = std::mem::replace(&mut self.complete, now());
        self.rings.drain(&mut self.waiting);
        self.await_sharing();
        self.fold_until(complete);
        self.await_start();
        self.time_some_interrupts();
        self.reader += thread_time().saturating_sub(start);
    }

    fn fold_until(&mut self, limit: u64) {
        self.waiting.sort_by_key(|record| (record.time, record.what.rank()));
        let complete = self.waiting.partition_point(|record| record.time < limit);
        self.waiting.drain(..complete).for_each(|record| self.fold.record(record));
    }

    /// A copy can only be needless, or not, where pages are shared between processes, and only
    /// userfaultfd provides a page in place of the one that a fault allocated. One record in four
    /// is a page's freeing, so programs with neither do without.
    fn await_sharing(&mut self) {
        let shares = |record: &Record| match record.what {
            What::Fork { pid, parent, .. } => pid != parent,
            What::Ioctl { .. } => self.fold.watches(record.tid),
            _ => false,
        };
        if self.frees_wait && self.waiting.iter().any(shares) {
            self.frees_wait = false;
            match self.rings.record_frees() {
                Ok(()) => self.fold.frees_from(now()),
                Err(error) => {
                    let lacks = tracepoints::lacks(Point::Free);
                    self.missing.push(Missing::new("pages that are freed", &error, lacks, None));
                }
            }
        }
    }

    /// A program's start is its loader's: samples of stacks begin when its own code runs.
    fn await_start(&mut self) {
        if self.samples_wait && self.fold.started {
            self.samples_wait = false;
            if let Err(error) = self.rings.sample_faults() {
                let lacks = "who called the functions that take faults";
                self.missing.push(Missing::new("stacks of faults", &error, lacks, None));
            }
        }
    }

    fn time_some_interrupts(&mut self) {
        // Switching them interrupts every CPU; and where single events are wanted, all of their
        // ends are.
        if matches!(self.extent, Extent::Guard(_)) || self.fold.timeline.is_some() {
            return;
        }
        let (since, before) = self.timed;
        let timed = self.fold.interrupts_timed();
        if since.elapsed() > Duration::from_secs(1) {
            self.timed = (Instant::now(), timed);
            self.rings.time_calls(true);
        } else if timed - before >= TIMED_PER_SECOND {
            self.rings.time_calls(false);
        }
    }

    /// Reads the rest.
    pub(super) fn end(
        mut self,
        target: &Target,
        (usage, machine): (Option<Usage>, &Machine),
    ) -> (observation::Events, Vec<Missing>) {
        let start = thread_time();
        let interrupts = self.count_interrupts();
        if let Some(count) = &interrupts {
            self.fold.tallies.end(count.reading);
        }
        if let Some(guard) = &mut self.fold.guard {
            guard.end(interrupts.as_ref().map_or_else(now, |count| count.reading.0));
        }
        self.rings.disable();
        self.rings.drain(&mut self.waiting);
        self.fold_until(u64::MAX);
        self.reader += thread_time().saturating_sub(start);
        let lost = self.rings.lost();
        let expected = match target {
            Target::Command | Target::Process(_) => {
                usage.map(|usage| usage.minor_faults + usage.major_faults)
            }
            Target::All => None,
        };
        let counted = self.counted();
        let visible = Visible {
            faults: self.rings.has(Point::FaultUser),
            flushes: self.rings.has(Point::Flush),
            cpus: self.all_cpus(),
            all_flushes: !self.flushes_hidden,
        };
        let recorded = Recorded {
            functions: self.rings.has(Point::CallBegin),
            calls: self.rings.has(Point::Calls),
            others: self.rings.has(Point::Reschedule) && self.rings.has(Point::IrqWork),
            timers: self.rings.has(Point::Timer),
        };
        // Closing each tracepoint takes the kernel tens of milliseconds, which nobody has to wait
        // for.
        let rings = self.rings;
        std::thread::spawn(move || drop(rings));
        let folded = self.fold.finish();
        let totals = &folded.totals;
        let watching = Watching {
            records: totals.records,
            own_records: totals.own_records,
            lost: lost.main.max(totals.lost_records),
            lost_frees: lost.frees,
            record_ns: self.record_ns,
            reader_ns: self.reader.as_nanos() as u64,
        };
        if watching.lost > 0 {
            let why = format!("{} records were lost", watching.lost);
            let lacks = "verdicts; counts are too low";
            let remedy = Some("a larger --buffer");
            self.missing.push(Missing::new("all events", &why, lacks, remedy));
        }
        let kernels = observation::Kernels {
            faults: expected,
            system_ns: usage.map(|usage| usage.system_ns),
            events: counted,
            interrupts: self.interrupts.zip(interrupts),
            recorded,
            machine: machine.clone(),
        };
        (observation::events(folded, &kernels, watching, visible), self.missing)
    }

    /// What the kernel counted without the rings.
    fn counted(&mut self) -> Option<(u64, u64)> {
        let counted = self.rings.counted();
        counted
            .map_err(|error| {
                let lacks = "whether everything that the kernel counted was seen";
                self.missing.push(Missing::new("counts of events", &error, lacks, None));
            })
            .ok()
    }

    /// Whether every CPU was watched to the end.
    fn all_cpus(&mut self) -> bool {
        let why = match self.rings.unwatched() {
            Ok(cpus) if cpus.is_empty() => return true,
            Ok(cpus) => format!("CPUs {cpus:?} came online meanwhile"),
            Err(error) => error.to_string(),
        };
        let lacks = "verdicts, and what happened on CPUs that came online; counts may be too low";
        self.missing.push(Missing::new("CPUs", &why, lacks, Some("watch again")));
        false
    }
}

/// Keeps the reader, which is this thread, away from CPUs that are guarded.
fn keep_off(cpus: &[u16]) -> Option<Missing> {
    let lacks = "what reaches these CPUs without us: our own reading is among it";
    let kept_off = sched_getaffinity(None).and_then(|mut set| {
        cpus.iter().for_each(|cpu| set.unset(usize::from(*cpu)));
        sched_setaffinity(None, &set)
    });
    let error = kept_off.err()?;
    let remedy = "guard fewer CPUs, so that one is left to read on";
    Some(Missing::new("a CPU that is not guarded", &io::Error::from(error), lacks, Some(remedy)))
}

fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

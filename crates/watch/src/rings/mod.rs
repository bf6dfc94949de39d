//! The event rings: per CPU one for everything that must be in order, one for freed pages, which
//! come in bursts, and one for sampled stacks, which are large.
//!
//! All events of one ring are in the kernel's order. A full ring drops records; the kernel counts
//! them from 6.0 on (`PERF_FORMAT_LOST`), and before that a ring that was too full to take another
//! record when it was drained counts as one that lost some.

mod error;
mod open;

pub use error::PerfError;

use crate::missing::Missing;
use crate::record::{self, Record, Source, What};
use crate::session::Options;
use crate::sites;
use crate::tracepoints::{self, Extent, Found, Point, Ring as Which, Row, TABLE, Whose};
use error::{ONLINE, THE_RING};
use needless_runner::ioctl::set_output;
use needless_runner::look::look;
use needless_runner::tracefs::TracefsError;
use open::{Open, there};
use perf_event::events::Software;
use perf_event::{Counter, Sampler};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::Path;
use std::time::Duration;

/// No record is larger: a mapping's path may have 4096 bytes, a stack more.
const LARGEST: usize = sites::STACK_BYTES as usize + 4096;

/// Which tasks are watched.
#[derive(Clone, Debug)]
pub enum Tasks {
    /// These threads and whatever they start, from the first one's next `execve` on.
    Starting(i32),
    /// These threads and whatever they start, from now on.
    Running(Vec<i32>),
    /// Every task.
    All,
    /// No task: only what reaches CPUs.
    Nobody,
}

/// What the rings of one kind lost.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// Records in the main rings.
    pub main: u64,
    /// Records about freed pages.
    pub frees: u64,
    /// Sampled stacks.
    pub sites: u64,
}

/// The rings of all CPUs.
#[derive(Default)]
pub struct Rings {
    rings: Vec<Ring>,
    cpus: Vec<u16>,
    /// Per tracepoint that is missing: its name, why, and what the report lacks.
    pub missing: Vec<Missing>,
    present: Vec<Point>,
}

struct Ring {
    cpu: u16,
    which: Which,
    sampler: Sampler,
    others: Vec<Counter>,
    /// Events that are switched on and off while the rest goes on.
    calls: Vec<Counter>,
    sources: Vec<(u64, Source)>,
    capacity: usize,
    overfull: u64,
}

impl Rings {
    /// Opens the rings.
    pub fn open(tasks: &Tasks, options: &Options, tracefs: &Path) -> Result<Rings, PerfError> {
        let extent = &options.extent;
        let mut rings = Rings::default();
        let mut rows = Vec::new();
        for row in TABLE.iter().filter(|row| row.is_of(extent)) {
            match tracepoints::find(row, tracefs) {
                Ok(found) => rows.push((row, found)),
                Err(error @ (TracefsError::NoTracepoint(_) | TracefsError::NeverIssued(_))) => {
                    rings.miss(row, &error);
                }
                Err(error) => return Err(error.into()),
            }
        }
        rings.choose(&mut rows, extent);
        rings.present = rows.iter().map(|(_, found)| found.point).collect();
        let fault =
            rows.iter().find(|(row, _)| row.point == Point::FaultUser).map(|(_, found)| found);
        let kinds: &[Which] = match extent {
            Extent::Guard(_) => &[Which::Main],
            Extent::Programs | Extent::EveryInterrupt => &[Which::Main, Which::Frees, Which::Sites],
        };
        for cpu in online()? {
            rings.cpus.push(cpu);
            for which in kinds {
                let rows = rows.iter().filter(|(row, _)| row.ring == *which);
                let rows = rows.filter(|(row, _)| row.wanted(extent, cpu));
                let mut ring = Ring::open((cpu, *which), (tasks, options), rows)?;
                if *which == Which::Sites {
                    ring.sample_sites((tasks, options), fault)?;
                }
                rings.rings.push(ring);
            }
        }
        Ok(rings)
    }

    /// Functions that CPUs are made to call, or else the interrupts that make them; both only where
    /// every interrupt is wanted.
    fn choose(&mut self, rows: &mut Vec<(&Row, Found)>, extent: &Extent) {
        let named = rows.iter().any(|(row, _)| row.point == Point::CallBegin);
        let guarded = matches!(extent, Extent::Guard(_));
        rows.retain(|(row, _)| match row.point {
            Point::Calls => !named || *extent != Extent::Programs,
            Point::CallsEnd => !named || guarded,
            _ => true,
        });
        self.missing.retain(|missing| {
            let calls = missing.what.contains(":call_function");
            !calls || !named && *extent != Extent::Programs
        });
    }

    fn miss(&mut self, row: &Row, why: &dyn ToString) {
        let what = format!("{}:{}", row.system, row.name);
        match self.missing.iter_mut().find(|missing| missing.what == what) {
            Some(known) if known.lacks.contains(row.lacks) => {}
            Some(known) => known.lacks = format!("{}; {}", known.lacks, row.lacks),
            None => {
                let newer = matches!(row.system, "filemap" | "csd" | "ipi");
                let remedy = newer.then_some("a newer kernel: 6.12 has it");
                self.missing.push(Missing::new(&what, why, row.lacks, remedy));
            }
        }
    }

    /// CPUs that are online now and have no rings.
    pub fn unwatched(&self) -> Result<Vec<u16>, PerfError> {
        let now = online()?;
        Ok(now.into_iter().filter(|cpu| !self.cpus.contains(cpu)).collect())
    }

    /// Whether this kernel has a tracepoint.
    pub fn has(&self, point: Point) -> bool {
        self.present.contains(&point)
    }

    /// Starts recording. With tasks that are [`Tasks::Starting`] only strangers' events begin now,
    /// and freed pages wait for [`Rings::record_frees`].
    pub fn enable(&mut self, tasks: &Tasks) -> io::Result<()> {
        for ring in &mut self.rings {
            for (counter, source) in ring.others.iter_mut().zip(ring.sources.iter().skip(1)) {
                let everybodys =
                    matches!(&source.1, Source::Point(found) if whose(found) == Whose::Everybody);
                if everybodys || !matches!(tasks, Tasks::Starting(_)) {
                    counter.enable()?;
                }
            }
            ring.calls.iter_mut().try_for_each(Counter::enable)?;
            if !matches!(tasks, Tasks::Starting(_)) {
                ring.sampler.enable()?;
            }
        }
        Ok(())
    }

    /// Stops recording.
    pub fn disable(&mut self) {
        for ring in &mut self.rings {
            let counters = ring.others.iter_mut().chain(&mut ring.calls);
            for counter in counters.chain([ring.sampler.as_counter_mut()]) {
                // A counter that cannot be stopped ends with its descriptor.
                let _ = counter.disable();
            }
        }
    }

    /// Starts recording freed pages.
    pub fn record_frees(&mut self) -> io::Result<()> {
        self.start(Which::Frees)
    }

    /// Starts sampling stacks of faults.
    pub fn sample_faults(&mut self) -> io::Result<()> {
        self.start(Which::Sites)
    }

    fn start(&mut self, which: Which) -> io::Result<()> {
        let rings = self.rings.iter_mut().filter(|ring| ring.which == which);
        rings.flat_map(|ring| &mut ring.others).try_for_each(Counter::enable)
    }

    /// Switches the events of [`Point::CallEnd`] and [`Point::CallsEnd`].
    pub fn time_calls(&mut self, on: bool) {
        for counter in self.rings.iter_mut().flat_map(|ring| &mut ring.calls) {
            // Without them fewer interrupts are timed, which the report tells.
            let _ = if on { counter.enable() } else { counter.disable() };
        }
    }

    /// Waits until a ring is a quarter full, `also` is ready or `limit` is over.
    pub fn wait(&self, limit: Duration, also: Option<BorrowedFd<'_>>) {
        let fds = self.rings.iter().map(|ring| {
            // SAFETY: the rings hold the descriptors open while they are borrowed here.
            unsafe { BorrowedFd::borrow_raw(ring.sampler.as_raw_fd()) }
        });
        let mut polled: Vec<PollFd<'_>> =
            fds.chain(also).map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        let limit = rustix::event::Timespec::try_from(limit).ok();
        // A signal ends the wait as well as anything.
        let _ = poll(&mut polled, limit.as_ref());
        // Rings whose tasks are gone are always ready.
        if polled.iter().any(|fd| fd.revents().contains(PollFlags::HUP)) {
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Moves all records to `records`, CPU by CPU.
    pub fn drain(&mut self, records: &mut Vec<Record>) {
        for ring in &mut self.rings {
            ring.drain(records);
        }
    }

    /// Records lost so far.
    pub fn lost(&mut self) -> Lost {
        let mut lost = Lost::default();
        for ring in &mut self.rings {
            let total = ring.lost();
            match ring.which {
                Which::Main => lost.main += total,
                Which::Frees => lost.frees += total,
                Which::Sites => lost.sites += total,
            }
        }
        lost
    }

    /// What the kernel counted: faults of the watched tasks, and flushes and switches of address
    /// spaces as events of `tlb:tlb_flush`.
    pub fn counted(&mut self) -> io::Result<(u64, u64)> {
        let (mut faults, mut flushes) = (0, 0);
        for ring in &mut self.rings {
            for (counter, (_, source)) in ring.others.iter_mut().zip(ring.sources.iter().skip(1)) {
                let total = match source {
                    Source::FaultDone { .. } => &mut faults,
                    Source::Point(Found { point: Point::Flush | Point::Switch, .. }) => {
                        &mut flushes
                    }
                    _ => continue,
                };
                *total += counter.read()?;
            }
        }
        Ok((faults, flushes))
    }
}

fn whose(found: &Found) -> Whose {
    TABLE.iter().find(|row| row.point == found.point).map_or(Whose::Watched, |row| row.whose)
}

/// The CPUs that are online.
pub fn online() -> Result<Vec<u16>, PerfError> {
    let text = look(ONLINE)?.unwrap_or_default();
    cpus(text.trim()).ok_or_else(|| PerfError::OddCpus(text.trim().to_owned()))
}

/// CPUs as the kernel lists them: `0-3,5`.
pub fn cpus(text: &str) -> Option<Vec<u16>> {
    let mut cpus = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        cpus.extend(first.parse::<u16>().ok()?..=last.parse().ok()?);
    }
    Some(cpus)
}

impl Ring {
    fn open<'a>(
        (cpu, which): (u16, Which),
        (tasks, options): (&Tasks, &Options),
        rows: impl Iterator<Item = &'a (&'a Row, Found)> + Clone,
    ) -> Result<Ring, PerfError> {
        let failed = |event: &str, error| PerfError::Open { event: event.to_owned(), error };
        let pids = tasks.pids();
        let (open, bytes) = (Open::new(cpu, tasks, options), options.ring_bytes);
        // Only the main ring's tells about tasks; the others' need not be inherited.
        let owners = if which == Which::Main { &pids[..] } else { &[None] };
        let leaders = owners.iter().map(|pid| open.tasks(*pid, which));
        let mut leaders = leaders.filter(there).collect::<Vec<_>>().into_iter();
        let leader = leaders.next().unwrap_or_else(|| Err(Errno::SRCH.into()));
        let leader = leader.map_err(|error| failed("tasks", error))?;
        let mut ring = Ring {
            cpu,
            which,
            sources: vec![(leader.id(), Source::Tasks)],
            sampler: leader.sampled(bytes).map_err(|error| failed(THE_RING, error))?,
            others: Vec::new(),
            calls: Vec::new(),
            capacity: bytes,
            overfull: 0,
        };
        for leader in leaders {
            let leader = leader.map_err(|error| failed("tasks", error))?;
            ring.add("tasks", Source::Tasks, leader)?;
        }
        for (row, found) in rows {
            let pids = if row.whose == Whose::Everybody { &[None][..] } else { &pids };
            for pid in pids {
                let counter = open.point(row, found, *pid);
                if !there(&counter) {
                    continue;
                }
                let counter = counter.map_err(|error| failed(&found.name, error))?;
                ring.add(&found.name, Source::Point(found.clone()), counter)?;
            }
        }
        if which == Which::Main && !matches!(options.extent, Extent::Guard(_)) {
            for pid in pids {
                for (major, event) in
                    [(false, Software::PAGE_FAULTS_MIN), (true, Software::PAGE_FAULTS_MAJ)]
                {
                    let counter = open.fault_done(event, pid);
                    if !there(&counter) {
                        continue;
                    }
                    let counter = counter.map_err(|error| failed("ends of faults", error))?;
                    ring.add("ends of faults", Source::FaultDone { major }, counter)?;
                }
                let leaves = options.waits.then(|| open.leaves(pid)).filter(there);
                if let Some(counter) = leaves {
                    let counter = counter.map_err(|error| failed("stacks of waits", error))?;
                    ring.add("stacks of waits", Source::Leaves, counter)?;
                }
            }
        }
        Ok(ring)
    }

    /// Adds samples of the stacks of whoever takes faults.
    fn sample_sites(
        &mut self,
        (tasks, options): (&Tasks, &Options),
        fault: Option<&Found>,
    ) -> Result<(), PerfError> {
        let Some(fault) = fault else { return Ok(()) };
        let open = Open::new(self.cpu, tasks, options);
        for pid in tasks.pids() {
            let counter = open.sites(fault, pid);
            if !there(&counter) {
                continue;
            }
            let failed = |error| PerfError::Open { event: "call sites".to_owned(), error };
            self.add("call sites", Source::Site, counter.map_err(failed)?)?;
        }
        Ok(())
    }

    /// Makes `counter` write into this ring.
    fn add(&mut self, name: &str, source: Source, counter: Counter) -> Result<(), PerfError> {
        let failed = |error| PerfError::Open { event: name.to_owned(), error };
        set_output(&counter, self.sampler.as_counter()).map_err(failed)?;
        let switched =
            matches!(&source, Source::Point(Found { point: Point::CallEnd | Point::CallsEnd, .. }));
        if switched {
            // Sources after the leader's go with `others`; these are looked up by identifier only.
            self.calls.push(counter);
            let id = self.calls.last().map_or(0, Counter::id);
            self.sources.push((id, source));
        } else {
            self.sources.insert(1 + self.others.len(), (counter.id(), source));
            self.others.push(counter);
        }
        Ok(())
    }

    fn drain(&mut self, records: &mut Vec<Record>) {
        let mut drained = 0;
        let mut room = Vec::new();
        // No more than what was there: who fills a ring as fast as it is read must not hold us.
        while drained < self.capacity {
            let Some(record) = self.sampler.next_record() else { break };
            drained += record.len() + 8;
            let body = match record.data() {
                [one] => *one,
                parts => {
                    room.clear();
                    parts.iter().for_each(|part| room.extend_from_slice(part));
                    &room
                }
            };
            match record::decode(record.ty(), record.misc(), body, self.cpu, &self.sources) {
                Some(Record { what: What::Other, .. }) => {}
                Some(record) => records.push(record),
                None => records.push(Record::lost(self.cpu)),
            }
        }
        self.overfull += u64::from(drained + LARGEST > self.capacity);
    }

    fn lost(&mut self) -> u64 {
        let mut total = 0;
        let counters = self.others.iter_mut().chain(&mut self.calls);
        for counter in counters.chain([self.sampler.as_counter_mut()]) {
            match counter.read_full().ok().and_then(|full| full.lost()) {
                Some(lost) => total += lost,
                None => return self.overfull,
            }
        }
        total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_are_listed_in_ranges() {
        assert_eq!(cpus("0-3,5"), Some(vec![0, 1, 2, 3, 5]));
        assert_eq!(cpus("0"), Some(vec![0]));
        for odd in ["", "0-", "0-3,,5", "all"] {
            assert_eq!(cpus(odd), None, "{odd}");
        }
    }

    #[test]
    fn a_cpu_without_rings_is_told() {
        let all = online().unwrap();
        let rings = Rings { cpus: all[1..].to_vec(), ..Rings::default() };
        assert_eq!(rings.unwatched().unwrap(), all[..1]);
    }
}

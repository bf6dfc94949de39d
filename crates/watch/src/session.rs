//! One time of watching: a command from its start to its end, a process, or everything.

use crate::child::{self, Held};
use crate::counters::{Machine, Usage};
use crate::fold::{Fold, Surroundings};
use crate::missing::Missing;
use crate::observation::{self, Observation, Visible, Watching};
use crate::present;
use crate::price;
use crate::record::{Record, What};
use crate::rings::{PerfError, Rings, Tasks};
use crate::signals::Signals;
use crate::tracefs::Tracefs;
use crate::tracepoints::{self, Point};
use crate::unseen;
use needless_runner::environment::series;
use needless_runner::look::look;
use needless_runner::sys::shell_status;
use procfs::process::Process;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Resource, Rlimit, getrlimit, pidfd_open, setrlimit};
use rustix::time::{ClockId, clock_gettime};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command};
use std::time::{Duration, Instant};
use thiserror::Error;

/// What is watched.
#[derive(Clone, Debug)]
pub enum Target {
    /// What the command starts, from its `execve` to its end.
    Command,
    /// A process that runs.
    Process(i32),
    /// Every task.
    All,
}

/// How to watch.
#[derive(Clone, Debug)]
pub struct Options {
    /// What is watched.
    pub target: Target,
    /// Bytes per ring, a power of two pages.
    pub ring_bytes: usize,
}

/// Why there is no observation.
#[derive(Debug, Error)]
pub enum WatchError {
    /// The command cannot be executed.
    #[error("cannot execute `{program}`: {error}")]
    NotExecuted {
        /// What was to be executed.
        program: String,
        /// Why not.
        error: io::Error,
    },
    /// There is no such process, or we may not look at it.
    #[error("process {pid}: {why}")]
    NoProcess {
        /// Its number.
        pid: i32,
        /// What is wrong.
        why: String,
    },
    /// Something else.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// How often rings are read at least.
const TICK: Duration = Duration::from_millis(50);

/// Interrupts that are timed per second.
const TIMED_PER_SECOND: usize = 256;

/// Watches until the command or the process ends, or until a signal says so. `progress` is called
/// now and then with the records read and lost so far.
pub fn watch(
    options: &Options,
    command: Option<Command>,
    signals: &mut Signals,
    progress: &dyn Fn(u64, u64),
) -> Result<Observation, WatchError> {
    let program =
        command.as_ref().map(|command| command.get_program().to_string_lossy().into_owned());
    // From before anything else, so that its end is seen however early it comes.
    let process = match options.target {
        Target::Process(pid) => Some(pid_descriptor(pid).map_err(|error| {
            WatchError::NoProcess { pid, why: io::Error::from(error).to_string() }
        })?),
        _ => None,
    };
    let held = command.map(|command| child::hold(command, signals.ignored())).transpose()?;
    // The command has been started and keeps the limit that we had.
    let _limit = FileLimit::raise();
    let tasks = tasks(&options.target, held.as_ref())?;
    let (events, mut missing) = match Events::open(options, &tasks) {
        Ok(events) => (Some(events), Vec::new()),
        Err(missing) => (None, vec![missing]),
    };
    let before = Before::now(&options.target, held.as_ref());
    let mut watched = Watched { events, child: None, process, signals, progress };
    if let Some(events) = &mut watched.events {
        events.rings.enable(&tasks)?;
    }
    if let Some(held) = held {
        let pid = held.pid;
        let program = program.unwrap_or_default();
        let child = held.go().map_err(|error| WatchError::NotExecuted { program, error })?;
        watched.process = pid_descriptor(pid).ok();
        watched.child = Some(child);
    }
    let status = watched.until_the_end()?;
    let mut observation = before.observation(&options.target, status);
    if let Some(events) = watched.events {
        let (events, lacking) = events.end(&options.target, observation.usage);
        observation.events = Some(events);
        missing.extend(lacking);
    }
    missing.append(&mut observation.missing);
    observation.missing = missing;
    Ok(observation)
}

/// The limit of open files as it was, raised while this lives: every watched thread has its events
/// on every CPU.
struct FileLimit(Rlimit);

impl FileLimit {
    fn raise() -> FileLimit {
        let found = getrlimit(Resource::Nofile);
        // Without it fewer threads can be watched, which the report tells.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: found.maximum, ..found });
        FileLimit(found)
    }
}

impl Drop for FileLimit {
    fn drop(&mut self) {
        let _ = setrlimit(Resource::Nofile, self.0);
    }
}

fn pid_descriptor(pid: i32) -> Result<OwnedFd, Errno> {
    pidfd_open(Pid::from_raw(pid).ok_or(Errno::SRCH)?, PidfdFlags::empty())
}

fn tasks(target: &Target, held: Option<&Held>) -> Result<Tasks, WatchError> {
    match (target, held) {
        (Target::Command, Some(held)) => Ok(Tasks::Starting(held.pid)),
        (Target::Command, None) => Ok(Tasks::Running(Vec::new())),
        (Target::All, _) => Ok(Tasks::All),
        (Target::Process(pid), _) => {
            let no =
                |why: procfs::ProcError| WatchError::NoProcess { pid: *pid, why: why.to_string() };
            let threads = Process::new(*pid).and_then(|process| process.tasks()).map_err(no)?;
            Ok(Tasks::Running(threads.flatten().map(|thread| thread.tid).collect()))
        }
    }
}

/// The clock that records are stamped with.
fn now() -> u64 {
    let time = clock_gettime(ClockId::MonotonicRaw);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// What was counted when watching began.
struct Before {
    start: Instant,
    usage: Option<Usage>,
    machine: Machine,
    missing: Vec<Missing>,
}

impl Before {
    fn now(target: &Target, held: Option<&Held>) -> Before {
        let usage = match (target, held) {
            // What the process did before it executed the program is not the program's.
            (Target::Command, Some(held)) => Usage::of_process(held.pid).map(|own| {
                let others = Usage::of_children();
                Usage {
                    minor_faults: own.minor_faults + others.minor_faults,
                    major_faults: own.major_faults + others.major_faults,
                    ..others
                }
            }),
            (Target::Process(pid), _) => Usage::of_process(*pid),
            _ => None,
        };
        let mut missing = Vec::new();
        let pid = match target {
            Target::Process(pid) => Some(*pid),
            _ => held.map(|held| held.pid),
        };
        // A process that has ended has no such file.
        if let Some(Err(unseen)) = pid.map(|pid| look(format!("/proc/{pid}/stat"))) {
            let lacks = "the task's faults and times as the kernel counted them";
            missing.push(Missing::unseen(&unseen, lacks));
        }
        let machine = Machine::now(&mut missing);
        Before { start: Instant::now(), usage, machine, missing }
    }

    fn observation(mut self, target: &Target, status: Option<u8>) -> Observation {
        let usage = match target {
            Target::Command => Some(Usage::of_children()),
            // Its last counters went with it if it has ended.
            Target::Process(pid) => Usage::of_process(*pid),
            Target::All => None,
        };
        Observation {
            status,
            elapsed_ns: self.start.elapsed().as_nanos() as u64,
            usage: usage.zip(self.usage).map(|(now, then)| now.since(then)),
            machine: Machine::now(&mut self.missing).since(&self.machine),
            events: None,
            missing: self.missing,
        }
    }
}

/// What runs and is watched.
struct Watched<'a> {
    events: Option<Events>,
    child: Option<Child>,
    process: Option<OwnedFd>,
    signals: &'a mut Signals,
    progress: &'a dyn Fn(u64, u64),
}

impl Watched<'_> {
    /// Reads events until it is over; the command's exit status.
    fn until_the_end(&mut self) -> Result<Option<u8>, WatchError> {
        let mut told = Instant::now();
        loop {
            let pid = self.child.as_ref().map(|child| child.id() as i32);
            let end = self.signals.handle(pid);
            match &mut self.child {
                Some(child) => {
                    if let Some(status) = child.try_wait()? {
                        return Ok(Some(shell_status(status)));
                    }
                    if end {
                        return Ok(Some(128 + libc::SIGINT as u8));
                    }
                }
                None if end || self.process.as_ref().is_some_and(ended) => return Ok(None),
                None => {}
            }
            match &mut self.events {
                Some(events) => {
                    events.rings.wait(TICK, self.process.as_ref().map(OwnedFd::as_fd));
                    events.read();
                    if told.elapsed() > Duration::from_millis(500) {
                        told = Instant::now();
                        (self.progress)(
                            events.fold.totals.records,
                            events.fold.totals.lost_records,
                        );
                    }
                }
                None => std::thread::sleep(TICK),
            }
        }
    }
}

/// Whether the process of a descriptor has ended.
fn ended(process: &OwnedFd) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let mut polled = [PollFd::new(process, PollFlags::IN)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut polled, Some(&at_once)).is_ok_and(|ready| ready > 0)
}

/// The events while they come.
struct Events {
    rings: Rings,
    fold: Fold,
    waiting: Vec<Record>,
    /// Records from before this are complete.
    complete: u64,
    record_ns: Option<u64>,
    reader: Duration,
    timed: (Instant, usize),
    /// Freed pages are not recorded yet.
    frees_wait: bool,
    /// Flushes are sent that no event tells.
    flushes_hidden: bool,
    missing: Vec<Missing>,
}

impl Events {
    /// Opens them, or says why not.
    fn open(options: &Options, tasks: &Tasks) -> Result<Events, Missing> {
        let opened = Tracefs::find().map_err(PerfError::from).and_then(|tracefs| {
            let rings = Rings::open(tasks, options.ring_bytes, tracefs.path())?;
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
        present::introduce(tasks, &mut fold, &mut missing);
        let frees_wait = matches!(tasks, Tasks::Starting(_));
        if frees_wait {
            fold.frees_from(u64::MAX);
        }
        Ok(Events {
            rings,
            fold,
            waiting: Vec::new(),
            complete: 0,
            record_ns: price.map(|price| price.as_nanos() as u64),
            reader: Duration::ZERO,
            timed: (Instant::now(), 0),
            frees_wait,
            flushes_hidden,
            missing,
        })
    }

    /// Reads what there is, and folds what is complete: a record of one CPU may become visible
    /// after a younger one of another CPU, but not after a whole round of reading.
    fn read(&mut self) {
        let start = thread_time();
        let complete = std::mem::replace(&mut self.complete, now());
        self.rings.drain(&mut self.waiting);
        self.await_sharing();
        self.fold_until(complete);
        self.time_some_interrupts();
        self.reader += thread_time().saturating_sub(start);
    }

    fn fold_until(&mut self, limit: u64) {
        self.waiting.sort_by_key(|record| (record.time, record.what.rank()));
        let complete = self.waiting.partition_point(|record| record.time < limit);
        self.waiting.drain(..complete).for_each(|record| self.fold.record(record));
    }

    /// A copy can only be needless, or not, where pages are shared between processes, and only
    /// userfaultfd provides a page in place of the one that a fault allocated. One record in four is a
    /// page's freeing, so programs with neither do without.
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

    fn time_some_interrupts(&mut self) {
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
    fn end(mut self, target: &Target, usage: Option<Usage>) -> (observation::Events, Vec<Missing>) {
        let start = thread_time();
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
        // Closing each tracepoint takes the kernel tens of milliseconds, which nobody has to wait for.
        let rings = self.rings;
        std::thread::spawn(move || drop(rings));
        let (totals, victims, call_sites) = self.fold.finish();
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
        let events =
            observation::events(totals, &victims, call_sites, expected, counted, watching, visible);
        (events, self.missing)
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

fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

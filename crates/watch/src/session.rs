//! One time of watching: a command from its start to its end, a process, or everything.

use crate::child::{self, Held};
use crate::counters::{Machine, Usage};
use crate::fold::{Context, Fold};
use crate::maps::Maps;
use crate::observation::{self, Observation, Visible, Watching};
use crate::price;
use crate::record::{Mapping, Record, What};
use crate::rings::{Missing, PerfError, Rings, Tasks};
use crate::signals::Signals;
use crate::tracefs::Tracefs;
use crate::tracepoints::Point;
use needless_runner::environment::series;
use needless_runner::sys::shell_status;
use procfs::process::{MMPermissions, MMapPath, Process};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Resource, Rlimit, getrlimit, pidfd_open, setrlimit};
use rustix::time::{ClockId, clock_gettime};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
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
    let mut missing = Vec::new();
    let events = Events::open(options, &tasks, &mut missing);
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
        observation.events = Some(events.end(&options.target, observation.usage, &mut missing));
    }
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
}

impl Before {
    fn now(target: &Target, held: Option<&Held>) -> Before {
        let usage = match (target, held) {
            // What the process did before it executed the program is not the program's.
            (Target::Command, Some(held)) => {
                let own = Usage::of_process(held.pid).unwrap_or_default();
                let others = Usage::of_children();
                Some(Usage {
                    minor_faults: own.minor_faults + others.minor_faults,
                    major_faults: own.major_faults + others.major_faults,
                    ..others
                })
            }
            (Target::Process(pid), _) => Usage::of_process(*pid),
            _ => None,
        };
        Before { start: Instant::now(), usage, machine: Machine::now() }
    }

    fn observation(self, target: &Target, status: Option<u8>) -> Observation {
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
            machine: Machine::now().since(&self.machine),
            events: None,
            missing: Vec::new(),
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
}

impl Events {
    /// Opens them, or says why not.
    fn open(options: &Options, tasks: &Tasks, missing: &mut Vec<Missing>) -> Option<Events> {
        let opened = Tracefs::find().map_err(PerfError::from).and_then(|tracefs| {
            let rings = Rings::open(tasks, options.ring_bytes, tracefs.path())?;
            Ok((rings, price::of_an_event(tracefs.path()).ok()))
        });
        let (rings, price) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                missing.push(Missing {
                    what: "events".to_owned(),
                    why: error.to_string(),
                    lacks: "classes, causes, who interrupts whom, needless flushes and copies"
                        .to_owned(),
                    remedy: error.remedy().map(str::to_owned),
                });
                return None;
            }
        };
        missing.extend(rings.missing.iter().cloned());
        let context = Context {
            swap: swap_in_use(),
            numa_balancing: numa_balancing(),
            file_points: rings.has(Point::FileFault) && rings.has(Point::MapPages),
            dirties_twice: series() < (6, 1),
        };
        let all = matches!(options.target, Target::All);
        let mut fold = Fold::new(context, series() < (6, 1), all);
        introduce(tasks, &mut fold);
        let frees_wait = matches!(tasks, Tasks::Starting(_));
        if frees_wait {
            fold.frees_from(u64::MAX);
        }
        Some(Events {
            rings,
            fold,
            waiting: Vec::new(),
            complete: 0,
            record_ns: price.map(|price| price.as_nanos() as u64),
            reader: Duration::ZERO,
            timed: (Instant::now(), 0),
            frees_wait,
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
        self.waiting.sort_by_key(|record| (record.time, rank(&record.what)));
        let complete = self.waiting.partition_point(|record| record.time < limit);
        self.waiting.drain(..complete).for_each(|record| self.fold.record(record));
    }

    /// A copy can only be needless, or not, where pages are shared between processes, and only
    /// userfaultfd provides a page in place of the one that a fault allocated. One record in four is a
    /// page's freeing, so programs with neither do without.
    fn await_sharing(&mut self) {
        let shares = |record: &Record| match record.what {
            What::Fork { pid, parent, .. } => pid != parent,
            What::Ioctl { .. } => true,
            _ => false,
        };
        if self.frees_wait && self.waiting.iter().any(shares) {
            self.frees_wait = false;
            self.rings.record_frees();
            self.fold.frees_from(now());
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
    fn end(
        mut self,
        target: &Target,
        usage: Option<Usage>,
        missing: &mut Vec<Missing>,
    ) -> observation::Events {
        let start = thread_time();
        self.rings.disable();
        self.rings.drain(&mut self.waiting);
        self.fold_until(u64::MAX);
        self.reader += thread_time().saturating_sub(start);
        let lost = self.rings.lost();
        let visible = Visible {
            faults: self.rings.has(Point::FaultUser),
            flushes: self.rings.has(Point::Flush),
        };
        let counted = self.rings.counted();
        let expected = match target {
            Target::Command | Target::Process(_) => {
                usage.map(|usage| usage.minor_faults + usage.major_faults)
            }
            Target::All => None,
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
        let events =
            observation::events(totals, &victims, call_sites, expected, counted, watching, visible);
        if events.watching.lost > 0 {
            missing.push(Missing {
                what: "all events".to_owned(),
                why: format!("{} records were lost", events.watching.lost),
                lacks: "verdicts; counts are too low".to_owned(),
                remedy: Some("a larger --buffer".to_owned()),
            });
        }
        events
    }
}

/// What comes first of records of the same time: faults, sends, the initiator's part, receives.
fn rank(what: &What) -> u8 {
    match what {
        What::Fault { .. } | What::Enter { .. } | What::Fork { .. } => 0,
        What::Flush { reason: 4, .. } => 1,
        What::Flush { reason: 2 | 3, .. } => 2,
        What::Flush { .. } => 3,
        What::FaultDone { .. } | What::Exit { .. } | What::Ended => 5,
        _ => 4,
    }
}

fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Tells the fold about threads that run already, and what they have mapped.
fn introduce(tasks: &Tasks, fold: &mut Fold) {
    let tids = match tasks {
        Tasks::Starting(pid) => return fold.starting(*pid),
        Tasks::Running(tids) => tids.clone(),
        Tasks::All => {
            let processes = procfs::process::all_processes().into_iter().flatten().flatten();
            let threads = processes.filter_map(|process| process.tasks().ok()).flatten().flatten();
            threads.map(|thread| thread.tid).collect()
        }
    };
    let hugetlbfs = hugetlbfs();
    tids.into_iter().for_each(|tid| introduce_thread(tid, &hugetlbfs, fold));
}

fn introduce_thread(tid: i32, hugetlbfs: &[PathBuf], fold: &mut Fold) {
    let Ok(process) = Process::new(tid) else { return };
    let Ok(status) = process.status() else { return };
    let mut maps = Maps::default();
    for map in process.maps().into_iter().flatten() {
        let file = match &map.pathname {
            MMapPath::Path(path) => Some(path.to_string_lossy().into()),
            MMapPath::Vsys(_) => Some("/SYSV".into()),
            _ => None,
        };
        maps.map(&Mapping {
            start: map.address.0,
            end: map.address.1,
            offset: map.offset,
            shared: map.perms.contains(MMPermissions::SHARED),
            hugetlb: matches!(&map.pathname, MMapPath::Path(path) if is_of_hugetlb(path, hugetlbfs)),
            file,
        });
    }
    let userfaultfd = process.fd().into_iter().flatten().flatten().any(|fd| {
        matches!(fd.target, procfs::process::FDTarget::AnonInode(name) if name.contains("userfaultfd"))
    });
    fold.introduce(status.tgid, tid, &status.name, &maps, userfaultfd);
}

/// Where hugetlbfs is mounted.
fn hugetlbfs() -> Vec<PathBuf> {
    let mounts = procfs::mounts().into_iter().flatten();
    let of_hugetlb = mounts.filter(|mount| mount.fs_vfstype == "hugetlbfs");
    of_hugetlb.map(|mount| mount.fs_file.into()).collect()
}

/// Whether a file has pages of hugetlb: one of a mounted hugetlbfs, or memory without a name
/// (include/linux/hugetlb.h, 5.10 to 7.3: HUGETLB_ANON_FILE).
fn is_of_hugetlb(file: &Path, hugetlbfs: &[PathBuf]) -> bool {
    // The kernel adds " (deleted)", so the whole name is not this.
    file.to_string_lossy().starts_with("/anon_hugepage")
        || hugetlbfs.iter().any(|mount| file.starts_with(mount))
}

fn numa_balancing() -> bool {
    let value = std::fs::read_to_string("/proc/sys/kernel/numa_balancing").unwrap_or_default();
    let several = std::fs::exists("/sys/devices/system/node/node1").unwrap_or(false);
    several && !matches!(value.trim(), "" | "0")
}

fn swap_in_use() -> bool {
    let text = std::fs::read_to_string("/proc/swaps").unwrap_or_default();
    text.lines().count() > 1
}

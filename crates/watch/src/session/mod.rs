//! One time of watching: a command from its start to its end, a process, or everything.

mod events;

use crate::child::{self, Held};
use crate::counters::{Machine, Usage};
use crate::missing::Missing;
use crate::observation::Observation;
use crate::rings::Tasks;
use crate::signals::Signals;
use crate::timeline::Moment;
use crate::tracepoints::Extent;
use events::Events;
use needless_model::foreign;
use needless_runner::look::look;
use needless_runner::sys::shell_status;
use procfs::process::Process;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Resource, Rlimit, getrlimit, pidfd_open, setrlimit};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command};
use std::sync::mpsc::SyncSender;
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
    /// How much is watched.
    pub extent: Extent,
    /// Whether switches of the watched tasks are recorded, which tell how long faults waited.
    pub waits: bool,
    /// Who gets single events, if anybody does.
    pub timeline: Option<SyncSender<Moment>>,
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

/// Watches until the command or the process ends, or until a signal says so. `progress` is called
/// now and then with the records read and lost so far.
pub fn watch(
    options: &Options,
    command: Option<Command>,
    signals: &mut Signals,
    progress: &dyn Fn(u64, u64),
) -> Result<Observation, WatchError> {
    let program = command.as_ref().map(|command| foreign::path(command.get_program()));
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
    let tasks = match options.extent {
        Extent::Guard(_) => Tasks::Nobody,
        Extent::Programs | Extent::EveryInterrupt => tasks(&options.target, held.as_ref())?,
    };
    let (events, mut missing) = match Events::open(options, &tasks) {
        Ok(events) => (Some(events), Vec::new()),
        Err(missing) => (None, vec![missing]),
    };
    let before = Before::now(&options.target, held.as_ref());
    let mut watched = Watched { events, child: None, process, signals, progress };
    if let Some(events) = &mut watched.events {
        events.begin(&tasks)?;
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
        let (events, lacking) =
            events.end(&options.target, (observation.usage, &observation.machine));
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
                    events.wait(TICK, self.process.as_ref().map(OwnedFd::as_fd));
                    events.read();
                    if told.elapsed() > Duration::from_millis(500) {
                        told = Instant::now();
                        let (records, lost) = events.so_far();
                        (self.progress)(records, lost);
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

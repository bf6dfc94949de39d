//! The data that all threads of a run share.

use crate::files::Files;
use crate::lock::{Guard, Lock};
use crate::log::{Kind, Log};
use crate::processes::Processes;
use crate::sys::{self, Usage};
use crate::team::Team;
use crate::witness::Watch;
use needless_model::program::Program;

/// One run of a scenario.
pub struct Run {
    /// The scenario.
    pub program: Program,
    /// The first round from which on all rounds are alike.
    pub alike_from: u32,
    /// The scenario's threads, and whose turn it is.
    pub team: Team,
    /// The log. Only the thread that has the turn writes to it.
    pub log: Lock<Log>,
    /// The files that the scenario maps.
    pub files: Files,
    /// The processes that the scenario forks.
    pub processes: Processes,
}

impl Run {
    /// Locks the log.
    pub fn log(&self) -> Guard<'_, Log> {
        self.log.lock()
    }

    /// What all processes have used so far. Called in the first process.
    pub fn used(&self) -> Usage {
        Usage::now().plus(self.team.used())
    }

    /// The markers of thread `me`. Called on that thread.
    pub fn markers(&self, me: usize) -> Markers<'_> {
        let (events, cpu) = (self.log().events, self.program.threads[me].cpu.0);
        Markers { run: self, events, cpu, tid: sys::tid() }
    }

    /// Makes the CPUs of sleepers load the address space anew. This also has to happen once after
    /// the rings were opened: before that, nothing recorded which tasks ran there.
    pub fn renew(&self, watch: Option<&mut Watch>) {
        if let Some(watch) = watch {
            watch.forget(&mut self.log());
        }
        self.team.renew_sleepers();
    }
}

/// Writes the markers of one thread.
#[derive(Copy, Clone)]
pub struct Markers<'a> {
    run: &'a Run,
    /// Whether events are recorded.
    pub events: bool,
    cpu: u16,
    tid: i32,
}

impl Markers<'_> {
    /// Writes one marker.
    pub fn write(&self, kind: Kind, value: u64, extra: u64) {
        if self.events {
            self.run.log().marker(kind, value, extra, self.cpu, self.tid);
        }
    }
}

/// Whether a thread goes on after an operation.
#[derive(Copy, Clone, PartialEq, Eq)]
pub enum Flow {
    /// The thread goes on.
    On,
    /// The scenario is over for the thread.
    Stop,
}

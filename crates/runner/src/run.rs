//! What all threads of a run share.

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
    /// From which round on all are alike.
    pub alike_from: u32,
    /// Its threads.
    pub team: Team,
    /// What was seen. Only the thread that has the turn writes to it.
    pub log: Lock<Log>,
    /// The files that it maps.
    pub files: Files,
    /// The processes that it forks.
    pub processes: Processes,
}

impl Run {
    /// The log.
    pub fn log(&self) -> Guard<'_, Log> {
        self.log.lock()
    }

    /// What all processes used so far; asked for in the first one.
    pub fn used(&self) -> Usage {
        Usage::now().plus(self.team.used())
    }

    /// What thread `me` writes markers with, asked for on that thread.
    pub fn markers(&self, me: usize) -> Markers<'_> {
        let (events, cpu) = (self.log().events, self.program.threads[me].cpu.0);
        Markers { run: self, events, cpu, tid: sys::tid() }
    }

    /// Makes the CPUs of sleepers load the address space anew. It has to be done once after the
    /// rings were opened, too: nobody saw who ran there until then.
    pub fn renew(&self, watch: Option<&mut Watch>) {
        if let Some(watch) = watch {
            watch.forget(&mut self.log());
        }
        self.team.renew_sleepers();
    }
}

/// Writes down the markers of one thread.
#[derive(Copy, Clone)]
pub struct Markers<'a> {
    run: &'a Run,
    /// Whether events are recorded at all.
    pub events: bool,
    cpu: u16,
    tid: i32,
}

impl Markers<'_> {
    /// Writes down one.
    pub fn write(&self, kind: Kind, value: u64, extra: u64) {
        if self.events {
            self.run.log().marker(kind, value, extra, self.cpu, self.tid);
        }
    }
}

/// Whether a thread goes on after an operation.
#[derive(Copy, Clone, PartialEq, Eq)]
pub enum Flow {
    /// It does.
    On,
    /// The scenario is over for it.
    Stop,
}

//! Which tasks are the scenario's, and which of the others do no harm.

use crate::tids::Tids;
use crate::tracefs;

/// The scenario's threads, and what was found out about others.
pub(super) struct Tasks {
    /// The scenario's threads.
    pub(super) tids: Tids,
    /// Tasks that were looked at, and whether they are kernel threads; of a size set beforehand.
    known: Vec<(i32, bool)>,
}

impl Tasks {
    pub(super) fn new(tids: Tids) -> Tasks {
        Tasks { tids, known: Vec::with_capacity(4096) }
    }

    pub(super) fn ours(&self, tid: i32) -> bool {
        self.tids.ours(tid)
    }

    /// Whether a task leaves the loaded address space alone: the idle task, our own threads,
    /// and kernel threads. A task that is gone already is taken for a user's.
    pub(super) fn harmless(&mut self, tid: i32) -> bool {
        if tid == 0 || self.ours(tid) {
            return true;
        }
        if let Some((_, kernel)) = self.known.iter().find(|(known, _)| *known == tid) {
            return *kernel;
        }
        let stat = std::fs::read(format!("/proc/{tid}/stat")).unwrap_or_default();
        let kernel = tracefs::is_kernel_thread(&stat).unwrap_or(false);
        if self.known.len() < self.known.capacity() {
            self.known.push((tid, kernel));
        }
        kernel
    }
}

/// The name of a task, for people.
pub(super) fn name(tid: i32) -> String {
    let name = std::fs::read_to_string(format!("/proc/{tid}/comm")).unwrap_or_default();
    match name.trim() {
        "" => "a task that is gone".to_owned(),
        name => name.to_owned(),
    }
}

//! Which tasks are the scenario's, which others do no harm, and which memory is the runner's own.

use crate::log::{Kind, Raw};
use crate::tids::Tids;
use crate::{processes, sys, tracefs};
use needless_model::addr::{PageRange, Vpn};
use needless_model::foreign;
use needless_model::program::Program;

/// Bits of the error code of an exception on x86: the page was present, and the access was a store.
const PRESENT: u64 = 1;
const WRITE: u64 = 2;

/// The scenario's threads, and what is known about other tasks.
pub(super) struct Tasks {
    /// The scenario's threads.
    pub(super) tids: Tids,
    /// Tasks that were looked at, and whether they are kernel threads. Its size is set beforehand.
    known: Vec<(i32, bool)>,
    /// The scenario's memory; `None` if the scenario has several processes. Then the runner's
    /// memory is shared, and each process maps it anew.
    areas: Option<Vec<PageRange>>,
}

impl Tasks {
    pub(super) fn new(program: &Program, tids: Tids) -> Tasks {
        let areas = || program.areas.iter().map(|area| area.range).collect();
        let areas = (!processes::several(program)).then(areas);
        Tasks { tids, known: sys::roomy(4096, (-1, true)), areas }
    }

    /// Whether a thread of ours stores for the first time to a page of the runner's own memory.
    /// That page goes into the CPU's LRU batch.
    pub(super) fn fills_own_page(&self, record: &Raw) -> bool {
        let fills = record.kind == Kind::Fault && record.extra & (PRESENT | WRITE) == WRITE;
        let page = Vpn::containing(record.value);
        let own = |areas: &Vec<PageRange>| !areas.iter().any(|area| area.contains(page));
        fills && self.ours(record.tid) && self.areas.as_ref().is_some_and(own)
    }

    pub(super) fn ours(&self, tid: i32) -> bool {
        self.tids.ours(tid)
    }

    /// Whether a task leaves the loaded address space alone: the idle task, our own threads, and
    /// kernel threads. A task that is gone already counts as a user task.
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

/// The name of a task in messages.
pub(super) fn name(tid: i32) -> String {
    let name = std::fs::read(format!("/proc/{tid}/comm")).unwrap_or_default();
    match name.trim_ascii() {
        [] => "a task that is gone".to_owned(),
        name => foreign::lossy(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use needless_model::program::Area;

    #[test]
    fn a_tasks_name_is_one_visible_line() {
        let named = |bytes: &'static [u8]| {
            let name = std::ffi::CStr::from_bytes_with_nul(bytes).unwrap();
            let thread = std::thread::spawn(move || {
                rustix::thread::set_name(name).unwrap();
                super::name(rustix::thread::gettid().as_raw_nonzero().get())
            });
            thread.join().unwrap()
        };
        assert_eq!(named(b"a\x1b[2J\x07\n\xc2\x9bb\0"), "a\\u{1b}[2J\\u{7}\\n\\u{9b}b");
        assert_eq!(named(b"\xff\x9b2J\0"), "\u{fffd}\u{fffd}2J");
    }

    #[test]
    fn a_first_store_outside_of_the_areas_is_the_runners() {
        let range = PageRange::new(Vpn(16), 4);
        let program = Program { areas: vec![Area::anonymous("heap", range)], ..Program::default() };
        let tasks = Tasks::new(&program, Tids::new(&[7]));
        let store = |page: u64, tid, code| Raw {
            time: 1,
            value: Vpn(page).address(),
            extra: code,
            tid,
            cpu: 0,
            kind: Kind::Fault,
        };
        let user = 4;
        assert!(tasks.fills_own_page(&store(20, 7, user | WRITE)));
        assert!(!tasks.fills_own_page(&store(19, 7, user | WRITE)));
        assert!(!tasks.fills_own_page(&store(20, 8, user | WRITE)));
        assert!(!tasks.fills_own_page(&store(20, 7, user)));
        assert!(!tasks.fills_own_page(&store(20, 7, user | WRITE | PRESENT)));
    }
}

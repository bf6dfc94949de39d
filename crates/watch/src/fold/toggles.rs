//! Pages whose protection is changed alone, back and forth: the purpose of the flushes may be their
//! effect on other CPUs.
//!
//! While a CPU answers a flush, it executes nothing else. Some runtimes want that of each of their
//! threads, and change the protection of one page back and forth for it. It does not matter to them
//! whether there were translations to flush, so no such flush is called needless. A needless flush
//! of a page is held back until it is known whether the page is one of these.

use super::{Cause, Fold, Needless};
use rustc_hash::FxHashMap;

/// Changes from which on they are to and fro.
const TO_AND_FRO: u64 = 8;

/// More pages than this are not followed.
const MOST_PAGES: usize = 4096;

/// The protection bit `PROT_EXEC`.
const EXEC: u64 = 4;

/// A page of a process.
pub(super) type Key = (i32, u64);

/// What was found needless, of what cause, and whether that is certain.
pub(super) type Found = (Needless, Cause, bool);

/// What is known of one such page.
#[derive(Clone, Debug, Default)]
struct Page {
    protection: Option<u64>,
    /// The thread that changed it last.
    by: i32,
    /// It could be executed, or another thread met a protection of its in a fault.
    for_another_reason: bool,
    count: ToggleCount,
    put_off: Vec<Found>,
}

/// How often the protection of single pages was changed, and what came of it.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct ToggleCount {
    /// Calls that changed it to another one.
    pub times: u64,
    /// Flushes in them that asked other CPUs.
    pub sent: u64,
    /// Flushes in them of the own CPU alone.
    pub local: u64,
    /// Interrupts that they caused.
    pub interrupts: u64,
    /// What else would have been called needless about them.
    pub needless: u64,
}

impl ToggleCount {
    fn add(&mut self, other: &ToggleCount) {
        self.times += other.times;
        self.sent += other.sent;
        self.local += other.local;
        self.interrupts += other.interrupts;
        self.needless += other.needless;
    }
}

/// Pages of one process whose protection was changed to and fro.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Toggled {
    /// The process.
    pub pid: i32,
    /// How many pages.
    pub pages: u64,
    /// Whether nothing but a barrier is known to need that.
    pub likely_barrier: bool,
    /// How often.
    pub count: ToggleCount,
}

/// All of them.
#[derive(Debug, Default)]
pub struct Toggles {
    pages: FxHashMap<Key, Page>,
}

impl Toggles {
    fn page(&mut self, key: Key) -> Option<&mut Page> {
        if self.pages.len() >= MOST_PAGES && !self.pages.contains_key(&key) {
            return None;
        }
        Some(self.pages.entry(key).or_default())
    }

    /// A thread has given the page alone a protection.
    pub(super) fn changed(&mut self, key: Key, tid: i32, protection: u64) {
        let Some(page) = self.page(key) else { return };
        page.count.times += u64::from(page.protection != Some(protection));
        page.for_another_reason |= protection & EXEC != 0;
        (page.protection, page.by) = (Some(protection), tid);
    }

    /// A thread takes a fault there.
    pub(super) fn faults(&mut self, key: Key, tid: i32) {
        if let Some(page) = self.pages.get_mut(&key) {
            page.for_another_reason |= page.by != tid;
        }
    }

    /// A flush in such a call.
    pub(super) fn flushed(&mut self, key: Key, sent: bool, completes_local: bool) {
        let Some(ToggleCount { sent: all_sent, local, .. }) = self.count(key) else { return };
        *local = local.saturating_sub(u64::from(completes_local));
        *(if sent { all_sent } else { local }) += 1;
    }

    /// Interrupts of such a call.
    pub(super) fn interrupted(&mut self, key: Key, times: u64) {
        if let Some(count) = self.count(key) {
            count.interrupts += times;
        }
    }

    fn count(&mut self, key: Key) -> Option<&mut ToggleCount> {
        self.page(key).map(|page| &mut page.count)
    }

    /// Puts off what was found; gives it back where the page is not followed.
    pub(super) fn put_off(&mut self, key: Key, found: Found) -> Option<Found> {
        let Some(page) = self.page(key) else { return Some(found) };
        page.count.needless += 1;
        if page.count.times < TO_AND_FRO {
            page.put_off.push(found);
        } else {
            page.put_off.clear();
        }
        None
    }

    /// The pages that were changed to and fro, by process, and what was found needless of the
    /// others.
    pub(super) fn finish(self) -> (Vec<Toggled>, Vec<Found>) {
        let mut toggled: Vec<Toggled> = Vec::new();
        let mut found = Vec::new();
        for ((pid, _), page) in self.pages {
            if page.count.times < TO_AND_FRO {
                found.extend(page.put_off);
                continue;
            }
            let likely_barrier = !page.for_another_reason;
            let same = |row: &&mut Toggled| (row.pid, row.likely_barrier) == (pid, likely_barrier);
            match toggled.iter_mut().find(same) {
                Some(row) => {
                    row.pages += 1;
                    row.count.add(&page.count);
                }
                None => toggled.push(Toggled { pid, pages: 1, likely_barrier, count: page.count }),
            }
        }
        toggled.sort_by_key(|row| (std::cmp::Reverse(row.count.times), row.pid));
        (toggled, found)
    }
}

impl Fold {
    /// The page whose protection a thread changes alone, now.
    pub(super) fn alone(&self, tid: i32) -> Option<Key> {
        let thread = self.threads.get(&tid)?;
        let call = thread
            .call
            .as_ref()
            .filter(|_| thread.fault.is_none() && thread.reclaiming.is_none())?;
        call.one_page().map(|(page, _)| (thread.pid, page))
    }

    /// What a thread's flush did was needless, unless it was for something else than the flush.
    pub(super) fn needless_of(
        &mut self,
        tid: Option<i32>,
        needless: Needless,
        cause: Cause,
        certain: bool,
    ) {
        let found = (needless, cause, certain);
        let found = match tid.and_then(|tid| self.alone(tid)) {
            Some(key) => self.toggles.put_off(key, found),
            None => Some(found),
        };
        if let Some((needless, cause, certain)) = found {
            self.needless(needless, cause, certain);
        }
    }

    /// Interrupts that a thread's flush caused.
    pub(super) fn toggle_interrupts(&mut self, tid: Option<i32>, interrupts: u64) {
        if let Some(key) = tid.and_then(|tid| self.alone(tid)) {
            self.toggles.interrupted(key, interrupts);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: Key = (7, 3);
    const NONE: u64 = 0;
    const RW: u64 = 3;

    fn found() -> Found {
        (Needless::EmptyInterrupt, Cause::Unknown, true)
    }

    /// Changes to and fro so often; each was found needless.
    fn toggled(times: u64) -> Toggles {
        let mut toggles = Toggles::default();
        for change in 0..times {
            assert!(toggles.put_off(PAGE, found()).is_none());
            toggles.flushed(PAGE, true, false);
            toggles.changed(PAGE, 8, if change % 2 == 0 { NONE } else { RW });
        }
        toggles
    }

    #[test]
    fn to_and_fro_is_told_apart_and_nothing_of_it_is_needless() {
        let (rows, needless) = toggled(20).finish();
        assert!(needless.is_empty());
        let count = ToggleCount { times: 20, sent: 20, needless: 20, ..ToggleCount::default() };
        assert_eq!(rows, [Toggled { pid: 7, pages: 1, likely_barrier: true, count }]);
    }

    #[test]
    fn what_is_changed_a_few_times_is_as_needless_as_it_was_found() {
        let (rows, needless) = toggled(TO_AND_FRO - 1).finish();
        assert!(rows.is_empty());
        assert_eq!(needless, vec![found(); TO_AND_FRO as usize - 1]);
    }

    #[test]
    fn the_same_protection_again_is_no_change() {
        let mut toggles = Toggles::default();
        (0..20).for_each(|_| toggles.changed(PAGE, 8, RW));
        assert!(toggles.finish().0.is_empty());
    }

    #[test]
    fn code_and_traps_are_there_for_another_reason() {
        let mut code = toggled(20);
        code.changed(PAGE, 8, RW | EXEC);
        assert!(!code.finish().0[0].likely_barrier);
        let mut own = toggled(20);
        own.faults(PAGE, 8);
        assert!(own.finish().0[0].likely_barrier, "who changed it touches it as well");
        let mut trap = toggled(20);
        trap.faults(PAGE, 9);
        assert!(!trap.finish().0[0].likely_barrier);
    }

    #[test]
    fn the_second_half_of_an_older_kernels_flush_changes_the_first() {
        let mut toggles = toggled(20);
        toggles.flushed(PAGE, false, false);
        toggles.flushed(PAGE, true, true);
        let count = toggles.finish().0[0].count;
        assert_eq!((count.sent, count.local), (21, 0));
    }
}

//! Faults of several threads on the same page at the same time: one of them gets it, and what the
//! others allocated is freed again.

use rustc_hash::FxHashMap;
use std::collections::hash_map::Entry;

/// The pages of one process that faults are under way on.
#[derive(Debug, Default)]
pub struct Overlaps {
    pages: FxHashMap<u64, Page>,
}

#[derive(Debug, Default)]
struct Page {
    /// Faults under way.
    faults: u32,
    /// One of those that overlapped has ended and had allocated.
    allocated: bool,
}

impl Overlaps {
    /// A fault begins.
    pub fn begins(&mut self, page: u64) {
        self.pages.entry(page).or_default().faults += 1;
    }

    /// A fault ends; whether one that overlapped with it had allocated before it did.
    pub fn ends(&mut self, page: u64, allocated: bool) -> bool {
        let Entry::Occupied(mut entry) = self.pages.entry(page) else { return false };
        let page = entry.get_mut();
        let before = page.allocated;
        page.allocated |= allocated;
        page.faults -= 1;
        if page.faults == 0 {
            entry.remove();
        }
        before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_faults_that_overlap_all_but_one_were_for_nothing() {
        let mut overlaps = Overlaps::default();
        (0..3).for_each(|_| overlaps.begins(7));
        overlaps.begins(8);
        assert!(!overlaps.ends(7, true));
        assert!(!overlaps.ends(8, true), "another page");
        assert!(overlaps.ends(7, true) && overlaps.ends(7, true));
        overlaps.begins(7);
        assert!(!overlaps.ends(7, true), "later");
        assert!(!overlaps.ends(9, true), "it began before it was looked at");
    }
}

//! Faults of several threads at the same time that allocate for the same memory: one of them maps
//! its page, and what the others allocated is freed again. Pages may be huge, so two faults on
//! different addresses of one huge page compete as those on one small page do.

use rustc_hash::FxHashMap;
use std::collections::hash_map::Entry;
use std::ops::Range;

/// Small pages in the largest page that a fault allocates: 2 MiB.
const HUGE_ORDER: u8 = 9;

/// The faults of one process that are under way, by aligned part of 2 MiB.
#[derive(Debug, Default)]
pub struct Overlaps {
    parts: FxHashMap<u64, Part>,
}

#[derive(Debug, Default)]
struct Part {
    /// Faults under way.
    faults: u32,
    /// Pages that ended faults allocated, and when these faults ended.
    allocated: Vec<(Range<u64>, u64)>,
}

/// The part of 2 MiB that a page is in.
fn part(page: u64) -> u64 {
    page >> HUGE_ORDER
}

impl Overlaps {
    /// A fault on a page begins.
    pub fn begins(&mut self, page: u64) {
        self.parts.entry(part(page)).or_default().faults += 1;
    }

    /// A fault ends that began at a time, and may have allocated memory of an order. Tells whether
    /// another fault ended meanwhile that had allocated for the same page.
    pub fn ends(&mut self, page: u64, allocated: Option<u8>, times: Range<u64>) -> bool {
        let Entry::Occupied(mut entry) = self.parts.entry(part(page)) else { return false };
        let part = entry.get_mut();
        let first = page & !((1 << allocated.unwrap_or(0).min(HUGE_ORDER)) - 1);
        let pages = first..first + (1 << allocated.unwrap_or(0).min(HUGE_ORDER));
        let competed = part.allocated.iter().any(|(others, end)| {
            *end > times.start && others.start < pages.end && pages.start < others.end
        });
        part.faults -= 1;
        if part.faults == 0 {
            entry.remove();
        } else if allocated.is_some() {
            part.allocated.push((pages, times.end));
        }
        competed
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
        assert!(!overlaps.ends(7, Some(0), 1..5));
        assert!(!overlaps.ends(8, Some(0), 1..6), "another page");
        assert!(overlaps.ends(7, Some(0), 1..7) && overlaps.ends(7, Some(0), 1..8));
        overlaps.begins(7);
        assert!(!overlaps.ends(7, Some(0), 9..10), "later");
        assert!(!overlaps.ends(1 << 20, Some(0), 1..2), "it began before it was looked at");
    }

    #[test]
    fn faults_on_different_addresses_of_a_huge_page_compete_for_it() {
        let mut overlaps = Overlaps::default();
        [512, 513, 1024].into_iter().for_each(|page| overlaps.begins(page));
        assert!(!overlaps.ends(512, Some(9), 1..5));
        assert!(overlaps.ends(513, Some(9), 2..6));
        assert!(!overlaps.ends(1024, Some(9), 3..7), "another huge page");
    }

    #[test]
    fn a_fault_that_began_after_another_one_ended_does_not_compete_with_it() {
        let mut overlaps = Overlaps::default();
        [5, 6, 5].into_iter().for_each(|page| overlaps.begins(page));
        assert!(!overlaps.ends(5, Some(0), 1..4));
        assert!(!overlaps.ends(5, Some(0), 4..8), "the page was taken away in between");
        assert!(!overlaps.ends(6, None, 1..9));
    }
}

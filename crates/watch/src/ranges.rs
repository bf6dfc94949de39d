//! Something known of each address of a range: what is set later counts.

use std::collections::BTreeMap;
use std::ops::Range;

/// More ranges than this are not kept.
const MOST: usize = 1 << 14;

/// Values by ranges that do not overlap.
#[derive(Clone, Debug)]
pub struct Ranges<T> {
    by_start: BTreeMap<u64, (u64, T)>,
}

impl<T> Default for Ranges<T> {
    fn default() -> Ranges<T> {
        Ranges { by_start: BTreeMap::new() }
    }
}

impl<T: Clone> Ranges<T> {
    /// The value at an address.
    pub fn at(&self, address: u64) -> Option<&T> {
        let (_, (end, value)) = self.by_start.range(..=address).next_back()?;
        (address < *end).then_some(value)
    }

    /// Sets the value of a range.
    pub fn set(&mut self, range: Range<u64>, value: T) {
        self.remove(&range);
        if !range.is_empty() && self.by_start.len() < MOST {
            self.by_start.insert(range.start, (range.end, value));
        }
    }

    /// Forgets a range.
    pub fn remove(&mut self, range: &Range<u64>) {
        let overlaps =
            |(start, (end, _)): (&u64, &(u64, T))| (*end > range.start).then_some(*start);
        let old: Vec<u64> = self.by_start.range(..range.end).rev().map_while(overlaps).collect();
        for start in old {
            let Some((end, value)) = self.by_start.remove(&start) else { continue };
            if start < range.start {
                self.by_start.insert(start, (range.start, value.clone()));
            }
            if end > range.end {
                self.by_start.insert(range.end, (end, value));
            }
        }
    }

    /// Whether the whole range has one value that passes.
    pub fn all(&self, range: &Range<u64>, passes: impl Fn(&T) -> bool) -> bool {
        let mut at = range.start;
        while at < range.end {
            let found = self.by_start.range(..=at).next_back();
            match found {
                Some((_, (end, value))) if at < *end && passes(value) => at = *end,
                _ => return false,
            }
        }
        !range.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_set_later_counts_and_the_rest_stays() {
        let mut ranges = Ranges::default();
        ranges.set(10..50, 'a');
        ranges.set(20..30, 'b');
        assert_eq!(
            [9, 10, 19, 20, 30, 49, 50].map(|at| ranges.at(at).copied()),
            [None, Some('a'), Some('a'), Some('b'), Some('a'), Some('a'), None]
        );
        ranges.remove(&(0..25));
        assert_eq!((ranges.at(19), ranges.at(25)), (None, Some(&'b')));
        assert!(ranges.all(&(25..50), |_| true) && !ranges.all(&(25..51), |_| true));
        assert!(!ranges.all(&(25..50), |value| *value == 'a'));
    }
}

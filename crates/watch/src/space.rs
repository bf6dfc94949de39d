//! A shadow of one address space: which pages are there, as far as faults and calls tell, and for
//! each page that is not, or that may not be stored to, which call did that and when.
//!
//! Pages are kept in parts of 2 MiB, three bits each; a part that no fault and no call met is not
//! kept. Beyond [`MOST_PARTS`] parts nothing more is learned, and what is not known is said to be
//! so.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// Small pages in a part.
const PART_BITS: u32 = 9;

/// Parts that are kept of one process: 64 GiB.
const MOST_PARTS: usize = 1 << 15;

/// Marks that are kept of one part apart; beyond that those of one taker are put together.
const MOST_MARKS: usize = 8;

/// One bit for each page of a part.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
struct Pages([u64; 8]);

impl Pages {
    /// Those of a part that are in a range of pages.
    fn of(part: u64, range: &Range<u64>) -> Pages {
        let first = part << PART_BITS;
        let mut pages = Pages::default();
        for (at, word) in pages.0.iter_mut().enumerate() {
            let begin = first + 64 * at as u64;
            let from = range.start.clamp(begin, begin + 64) - begin;
            let to = range.end.clamp(begin, begin + 64) - begin;
            let below = |bit: u64| if bit == 64 { u64::MAX } else { (1 << bit) - 1 };
            *word = if from < to { below(to) & !below(from) } else { 0 };
        }
        pages
    }

    fn has(&self, page: u64) -> bool {
        let at = page & ((1 << PART_BITS) - 1);
        self.0[(at / 64) as usize] >> (at % 64) & 1 != 0
    }

    fn count(&self) -> u64 {
        self.0.iter().map(|word| u64::from(word.count_ones())).sum()
    }

    fn zip(&mut self, other: &Pages, both: impl Fn(u64, u64) -> u64) {
        self.0.iter_mut().zip(other.0).for_each(|(word, other)| *word = both(*word, other));
    }

    fn add(&mut self, other: &Pages) {
        self.zip(other, |word, other| word | other);
    }

    fn remove(&mut self, other: &Pages) {
        self.zip(other, |word, other| word & !other);
    }

    fn and(mut self, other: &Pages) -> Pages {
        self.zip(other, |word, other| word & other);
        self
    }
}

/// Which call, or what else, took pages, or the right to store to them: a number of the fold's.
pub type Taker = u32;

/// Pages that one call took.
#[derive(Copy, Clone, Debug)]
struct Mark {
    by: Taker,
    time: u64,
    pages: Pages,
}

#[derive(Clone, Debug, Default)]
struct Part {
    /// There, as far as it is known.
    present: Pages,
    /// A write fault has made them writable at some time.
    written: Pages,
    /// Around a fault on a file: there if the page cache had them.
    maybe: Pages,
    /// A page is in one mark at most.
    marks: Vec<Mark>,
}

impl Part {
    /// Takes pages out of all marks; who had them, when, and how many.
    fn unmark(&mut self, pages: &Pages) -> Vec<(Taker, u64, u64)> {
        let mut had = Vec::new();
        for mark in &mut self.marks {
            let both = mark.pages.and(pages);
            if both.count() > 0 {
                mark.pages.remove(&both);
                had.push((mark.by, mark.time, both.count()));
            }
        }
        self.marks.retain(|mark| mark.pages.count() > 0);
        had
    }

    fn mark(&mut self, by: Taker, time: u64, pages: Pages) {
        let full = self.marks.len() >= MOST_MARKS;
        let same = |mark: &&mut Mark| mark.by == by && (full || mark.time == time);
        match self.marks.iter_mut().find(same) {
            Some(mark) => {
                mark.pages.add(&pages);
                mark.time = time;
            }
            None => self.marks.push(Mark { by, time, pages }),
        }
    }
}

/// What a page was when a fault met it.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Was {
    /// Never touched.
    New,
    /// A call had taken it, or the right to store to it, then.
    Taken(Taker, u64),
    /// There, and written to if so; what took it is not among the calls that were seen.
    There {
        /// Whether a fault had made it writable.
        written: bool,
    },
    /// The process ran before it was watched, or has too much memory.
    Unknown,
}

/// The pages of one address space. A copy is cheap until one of the two changes.
#[derive(Clone, Debug, Default)]
pub struct Space {
    parts: Arc<BTreeMap<u64, Part>>,
    /// The process ran before it was watched.
    ran_before: bool,
}

/// What a call does to pages.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Takes {
    /// They are not there any more.
    Pages,
    /// A store to them takes a fault.
    Stores,
}

impl Space {
    /// That of a process that ran before it was watched.
    pub fn of_running() -> Space {
        Space { ran_before: true, ..Space::default() }
    }

    /// A fault made pages present: the one at `page`, in an aligned block of this order. What that
    /// one was before.
    pub fn fault(&mut self, page: u64, order: u8, write: bool) -> Was {
        let number = page >> PART_BITS;
        let full = self.parts.len() >= MOST_PARTS && !self.parts.contains_key(&number);
        if full {
            return Was::Unknown;
        }
        let ran_before = self.ran_before;
        let part = Arc::make_mut(&mut self.parts).entry(number).or_default();
        let first = page & !((1 << order.min(PART_BITS as u8)) - 1);
        let block = Pages::of(number, &(first..first + (1 << order.min(PART_BITS as u8))));
        let mark = part.marks.iter().find(|mark| mark.pages.has(page));
        let was = match mark {
            Some(mark) => Was::Taken(mark.by, mark.time),
            None if part.present.has(page) => Was::There { written: part.written.has(page) },
            None if ran_before => Was::Unknown,
            None => Was::New,
        };
        if !part.marks.is_empty() {
            part.unmark(&block);
        }
        part.present.add(&block);
        part.maybe.remove(&block);
        if write {
            part.written.add(&block);
        }
        was
    }

    /// A fault may have mapped the pages around it (mm/memory.c: do_fault_around, 64 KiB).
    pub fn around(&mut self, page: u64) {
        const WINDOW: u64 = 16;
        let number = page >> PART_BITS;
        if !self.parts.contains_key(&number) {
            return;
        }
        let part = Arc::make_mut(&mut self.parts).entry(number).or_default();
        let first = page & !(WINDOW - 1);
        let mut maybe = Pages::of(number, &(first..first + WINDOW));
        maybe.remove(&part.present);
        for mark in &part.marks {
            maybe.remove(&mark.pages);
        }
        part.maybe.add(&maybe);
    }

    /// A call takes a range of pages, or the right to store to them. Returns how many of them were
    /// there.
    pub fn take(&mut self, range: Range<u64>, takes: Takes, by: Taker, time: u64) -> u64 {
        let mut taken = 0;
        let mut gone = |number: u64, part: &mut Part| {
            let mut there = part.present;
            there.add(&part.maybe);
            let pages = Pages::of(number, &range).and(&there);
            if pages.count() == 0 {
                return;
            }
            taken += pages.count();
            part.unmark(&pages);
            if takes == Takes::Pages {
                part.present.remove(&pages);
                part.written.remove(&pages);
            }
            part.maybe.remove(&pages);
            part.mark(by, time, pages);
        };
        self.each(&range, &mut gone);
        taken
    }

    /// A call makes a range present without faults. Returns whose pages came back, and how many.
    pub fn populate(&mut self, range: Range<u64>) -> Vec<(Taker, u64)> {
        let mut back = Vec::new();
        for number in range.start >> PART_BITS..range.end.div_ceil(1 << PART_BITS) {
            if self.parts.len() >= MOST_PARTS && !self.parts.contains_key(&number) {
                break;
            }
            let part = Arc::make_mut(&mut self.parts).entry(number).or_default();
            let pages = Pages::of(number, &range);
            let mut missing = pages;
            missing.remove(&part.present);
            back.extend(part.unmark(&missing).into_iter().map(|(by, _, pages)| (by, pages)));
            part.present.add(&pages);
        }
        back
    }

    /// The range moved to another address.
    pub fn moved(&mut self, from: Range<u64>, to: u64) {
        let mut marks = Vec::new();
        let mut pages = Vec::new();
        let mut leave = |number: u64, part: &mut Part| {
            let here = Pages::of(number, &from);
            let each =
                (number << PART_BITS..(number + 1) << PART_BITS).filter(|page| here.has(*page));
            for page in each {
                if part.present.has(page) {
                    pages.push((page, part.written.has(page)));
                }
                let of_page = part.marks.iter().find(|mark| mark.pages.has(page));
                marks.extend(of_page.map(|mark| (page, mark.by, mark.time)));
            }
            part.present.remove(&here);
            part.written.remove(&here);
            part.unmark(&here);
        };
        self.each(&from, &mut leave);
        for (page, written) in pages {
            self.fault(to + (page - from.start), 0, written);
        }
        for (page, by, time) in marks {
            let page = to + (page - from.start);
            let was_there = self.fault(page, 0, false) != Was::New;
            let takes = if was_there { Takes::Stores } else { Takes::Pages };
            self.take(page..page + 1, takes, by, time);
        }
    }

    /// Pages in marks, by who took them.
    pub fn marked(&self) -> Vec<(Taker, u64)> {
        let marks = self.parts.values().flat_map(|part| &part.marks);
        marks.map(|mark| (mark.by, mark.pages.count())).collect()
    }

    /// Does something to every part that is kept of a range.
    fn each(&mut self, range: &Range<u64>, act: &mut impl FnMut(u64, &mut Part)) {
        let parts = range.start >> PART_BITS..range.end.div_ceil(1 << PART_BITS);
        if parts.is_empty() || self.parts.range(parts.clone()).next().is_none() {
            return;
        }
        for (number, part) in Arc::make_mut(&mut self.parts).range_mut(parts) {
            act(*number, part);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_knows_who_took_it() {
        let mut space = Space::default();
        assert_eq!(space.fault(100, 0, true), Was::New);
        assert_eq!(space.fault(100, 0, true), Was::There { written: true });
        assert_eq!(space.take(0..4096, Takes::Pages, 7, 50), 1, "only what was there");
        assert_eq!(space.take(0..4096, Takes::Pages, 8, 60), 0, "it was gone already");
        assert_eq!(space.fault(100, 0, false), Was::Taken(7, 50));
        assert_eq!(space.fault(100, 0, false), Was::There { written: false });
        assert_eq!(space.fault(101, 0, false), Was::New);
    }

    #[test]
    fn a_huge_page_is_there_as_a_whole_and_given_back_in_pieces() {
        let mut space = Space::default();
        assert_eq!(space.fault(1024 + 5, 9, true), Was::New);
        assert_eq!(space.take(1025..1536, Takes::Pages, 1, 10), 511);
        assert_eq!(space.populate(1024..1536), [(1, 511)], "came back without a fault");
        assert_eq!(space.take(1024..2048, Takes::Pages, 2, 20), 512);
        assert_eq!(space.fault(1024, 0, true), Was::Taken(2, 20));
    }

    #[test]
    fn a_fork_takes_the_right_to_store_and_a_copy_of_the_space_is_its_own() {
        let mut space = Space::default();
        (0..1000).for_each(|page| _ = space.fault(page, 0, true));
        let mut child = space.clone();
        assert_eq!(space.take(0..u64::MAX >> 12, Takes::Stores, 3, 30), 1000);
        assert_eq!(space.fault(999, 0, true), Was::Taken(3, 30));
        assert_eq!(space.fault(999, 0, true), Was::There { written: true });
        assert_eq!(child.fault(5, 0, true), Was::There { written: true });
        assert_eq!(space.take(0..1000, Takes::Pages, 4, 40), 1000, "protected pages are there");
        assert_eq!(space.fault(5, 0, true), Was::Taken(4, 40));
    }

    #[test]
    fn what_moves_keeps_its_marks() {
        let mut space = Space::default();
        (0..4).for_each(|page| _ = space.fault(page, 0, true));
        space.take(0..2, Takes::Pages, 9, 5);
        space.moved(0..4, 5000);
        assert_eq!(space.fault(5000, 0, true), Was::Taken(9, 5));
        assert_eq!(space.fault(5003, 0, true), Was::There { written: true });
        assert_eq!(space.fault(3, 0, true), Was::New);
    }

    #[test]
    fn pages_around_a_fault_may_be_taken_but_are_not_known_to_be_there() {
        let mut space = Space::default();
        space.fault(35, 0, false);
        space.around(35);
        assert_eq!(space.fault(40, 0, false), Was::New, "the page cache did not have it");
        assert_eq!(space.take(0..512, Takes::Pages, 1, 10), 16);
        assert_eq!(space.fault(32, 0, false), Was::Taken(1, 10));
        assert_eq!(space.fault(48, 0, false), Was::New);
    }

    #[test]
    fn nobody_knows_what_a_running_process_had() {
        let mut space = Space::of_running();
        assert_eq!(space.fault(1, 0, true), Was::Unknown);
        assert_eq!(space.fault(1, 0, true), Was::There { written: true });
    }

    #[test]
    fn marks_of_one_taker_are_put_together_when_there_are_many() {
        let mut space = Space::default();
        (0..512).for_each(|page| _ = space.fault(page, 0, true));
        for page in 0..512 {
            space.take(page..page + 1, Takes::Pages, 1, page);
        }
        assert!(space.parts[&0].marks.len() <= MOST_MARKS);
        assert!(matches!(space.fault(511, 0, true), Was::Taken(1, _)));
    }
}

//! One CPU's TLB as an array, which says whether an access hits.
//!
//! An entry's tag contains the page and its slot's epoch. A flush of a whole slot gives the slot a
//! new epoch, in constant time. Reads and writes have separate tags: the write tags contain a page
//! if a store to it needs no page walk, because its translation is writable and dirty. Replacement
//! is first-in first-out, so a hit changes nothing. Huge pages have separate entries, and the first
//! level caches base pages of them, as processors do.

use crate::addr::{Span, Vpn};

/// The geometry of one level.
#[derive(Copy, Clone, Debug)]
pub struct TlbLevel {
    /// The number of sets, a power of two.
    pub sets: usize,
    /// The number of ways.
    pub ways: usize,
}

/// A first-level data TLB of 64 entries in 4 ways: Intel since Haswell (optimization manual,
/// "Data TLB", 4-KByte pages). The model's counts do not depend on it.
pub const L1: TlbLevel = TlbLevel { sets: 16, ways: 4 };
/// A second-level TLB of 1536 entries in 12 ways: Intel since Skylake.
pub const L2: TlbLevel = TlbLevel { sets: 128, ways: 12 };

const EPOCH_BITS: u32 = 24;

/// The number of entries for huge pages: 32, as in Intel's first level since Haswell.
const HUGE: usize = 32;

/// One CPU's TLB.
#[derive(Clone, Debug)]
pub struct Tlb {
    l1_read: [[u64; L1.ways]; L1.sets],
    l1_write: [[u64; L1.ways]; L1.sets],
    l2_read: Box<[[u64; L2.ways]; L2.sets]>,
    l2_write: Box<[[u64; L2.ways]; L2.sets]>,
    l1_next: [u8; L1.sets],
    l2_next: [u8; L2.sets],
    /// The entries for huge pages; the newest is at the end.
    huge: Vec<HugeEntry>,
    slots: Vec<TlbSlot>,
    last_epoch: u64,
}

/// A translation of a huge page.
#[derive(Copy, Clone, Debug)]
struct HugeEntry {
    pages: Span,
    epoch: u64,
    writable: bool,
}

/// A slot of a TLB.
#[derive(Copy, Clone, Debug, Default)]
struct TlbSlot {
    epoch: u64,
    /// Whether an entry was filled in this epoch, so that there is something to flush.
    filled: bool,
    /// Whether an entry of a huge page was filled in this epoch.
    huge: bool,
}

impl Tlb {
    /// An empty TLB for `asids` slots.
    pub fn new(asids: usize) -> Tlb {
        let mut tlb = Tlb {
            l1_read: [[0; L1.ways]; L1.sets],
            l1_write: [[0; L1.ways]; L1.sets],
            l2_read: Box::new([[0; L2.ways]; L2.sets]),
            l2_write: Box::new([[0; L2.ways]; L2.sets]),
            l1_next: [0; L1.sets],
            l2_next: [0; L2.sets],
            huge: Vec::new(),
            slots: vec![TlbSlot::default(); asids],
            last_epoch: 0,
        };
        (0..asids).for_each(|asid| tlb.renew(asid));
        tlb
    }

    /// The epoch of a slot, for [`Tlb::hit`].
    #[inline]
    pub fn epoch(&self, asid: usize) -> u64 {
        self.slots[asid].epoch
    }

    /// Whether the access needs no walk, for accesses in no particular order. This is the hit path:
    /// it has no branch on policy and no allocation.
    #[inline(always)]
    pub fn hit<const WRITE: bool>(&mut self, page: Vpn, epoch: u64) -> bool {
        let tag = page.0 << EPOCH_BITS | epoch;
        // The way of a hit cannot be predicted, so the code avoids a branch: it looks at the
        // smallest difference.
        let [a, b, c, d] = self.l1_set::<WRITE>(page).map(|entry| entry ^ tag);
        a.min(b).min(c.min(d)) == 0 || self.hit_l2(page, tag, WRITE)
    }

    /// Whether the access needs no walk, for ascending accesses. Neighbouring pages are mostly in
    /// the same way of their sets, which `way` remembers.
    #[inline(always)]
    pub fn hit_next<const WRITE: bool>(&mut self, page: Vpn, epoch: u64, way: &mut usize) -> bool {
        let tag = page.0 << EPOCH_BITS | epoch;
        let set = self.l1_set::<WRITE>(page);
        if set[*way % L1.ways] == tag {
            return true;
        }
        match set.iter().position(|entry| *entry == tag) {
            Some(found) => {
                *way = found;
                true
            }
            None => self.hit_l2(page, tag, WRITE),
        }
    }

    #[inline(always)]
    fn l1_set<const WRITE: bool>(&self, page: Vpn) -> &[u64; L1.ways] {
        let tags = if WRITE { &self.l1_write } else { &self.l1_read };
        &tags[page.0 as usize % L1.sets]
    }

    /// Whether any level has an entry for reads.
    pub fn holds(&self, page: Vpn, epoch: u64) -> bool {
        let tag = page.0 << EPOCH_BITS | epoch;
        self.l1_read[page.0 as usize % L1.sets].contains(&tag)
            || self.l2_read[page.0 as usize % L2.sets].contains(&tag)
            || self.huge_entry(page, epoch).is_some()
    }

    fn huge_entry(&self, page: Vpn, epoch: u64) -> Option<&HugeEntry> {
        self.huge.iter().find(|entry| entry.epoch == epoch && entry.pages.contains(page))
    }

    /// The huge page whose entry is newest, if it contains `page`.
    #[inline(always)]
    pub fn newest_huge(&self, page: Vpn, epoch: u64) -> Option<Span> {
        let newest = self.huge.last().filter(|entry| entry.epoch == epoch);
        newest.map(|entry| entry.pages).filter(|pages| pages.contains(page))
    }

    #[cold]
    #[inline(never)]
    fn hit_l2(&mut self, page: Vpn, tag: u64, write: bool) -> bool {
        let set = page.0 as usize % L2.sets;
        match self.l2_read[set].iter().position(|entry| *entry == tag) {
            Some(way) => self.enter_l1(page, tag, write, self.l2_write[set][way] == tag),
            None => !self.huge.is_empty() && self.hit_huge(page, tag, write),
        }
    }

    #[cold]
    #[inline(never)]
    fn hit_huge(&mut self, page: Vpn, tag: u64, write: bool) -> bool {
        let entry = self.huge_entry(page, tag & ((1 << EPOCH_BITS) - 1));
        let writable = entry.map(|entry| entry.writable);
        writable.is_some_and(|writable| self.enter_l1(page, tag, write, writable))
    }

    /// Enters into the first level a translation that was found behind it, if it allows the access.
    /// Returns whether it does.
    #[inline(always)]
    fn enter_l1(&mut self, page: Vpn, tag: u64, write: bool, writable: bool) -> bool {
        let allowed = writable || !write;
        if allowed {
            self.fill_l1(page, tag, writable);
        }
        allowed
    }

    fn fill_l1(&mut self, page: Vpn, tag: u64, writable: bool) {
        let set = page.0 as usize % L1.sets;
        let way = match self.l1_read[set].iter().position(|entry| *entry == tag) {
            Some(way) => way,
            None => {
                self.l1_next[set] = (self.l1_next[set] + 1) % L1.ways as u8;
                self.l1_next[set] as usize
            }
        };
        self.l1_read[set][way] = tag;
        self.l1_write[set][way] = if writable { tag } else { 0 };
    }

    /// Enters the translation that a walk found. `writable`: stores need no further walk.
    #[inline(always)]
    pub fn fill(&mut self, page: Vpn, asid: usize, writable: bool) {
        let slot = &mut self.slots[asid];
        slot.filled = true;
        let tag = page.0 << EPOCH_BITS | slot.epoch;
        let set = page.0 as usize % L2.sets;
        let way = match self.l2_read[set].iter().position(|entry| *entry == tag) {
            Some(way) => way,
            None => {
                let next = self.l2_next[set] as usize + 1;
                let next = if next < L2.ways { next } else { 0 };
                self.l2_next[set] = next as u8;
                next
            }
        };
        self.l2_read[set][way] = tag;
        self.l2_write[set][way] = if writable { tag } else { 0 };
        self.fill_l1(page, tag, writable);
    }

    /// Enters the translation of a huge page that a walk for `page` found.
    pub fn fill_huge(&mut self, pages: Span, page: Vpn, asid: usize, writable: bool) {
        let slot = &mut self.slots[asid];
        (slot.filled, slot.huge) = (true, true);
        let epoch = slot.epoch;
        self.huge.retain(|entry| (entry.epoch, entry.pages) != (epoch, pages));
        if self.huge.len() == HUGE {
            self.huge.remove(0);
        }
        self.huge.push(HugeEntry { pages, epoch, writable });
        self.fill_l1(page, page.0 << EPOCH_BITS | epoch, writable);
    }

    /// Drops one page of a slot, and the huge page that contains it.
    #[inline]
    pub fn flush_page(&mut self, page: Vpn, asid: usize) {
        let TlbSlot { epoch, filled, huge } = self.slots[asid];
        if filled {
            self.drop_page(page, page.0 << EPOCH_BITS | epoch);
        }
        if huge {
            self.drop_huge(page, epoch);
        }
    }

    /// Drops the huge page around `page`, if there is an entry, and its pages in the first level.
    #[cold]
    fn drop_huge(&mut self, page: Vpn, epoch: u64) {
        let Some(&HugeEntry { pages, .. }) = self.huge_entry(page, epoch) else { return };
        self.huge.retain(|entry| (entry.epoch, entry.pages) != (epoch, pages));
        let of_it = |tag: &u64| {
            tag & ((1 << EPOCH_BITS) - 1) == epoch && pages.contains(Vpn(tag >> EPOCH_BITS))
        };
        let tags = self.l1_read.as_flattened_mut().iter_mut();
        let tags = tags.chain(self.l1_write.as_flattened_mut());
        tags.filter(|tag| of_it(tag)).for_each(|tag| *tag = 0);
    }

    #[inline(always)]
    fn drop_page(&mut self, page: Vpn, tag: u64) {
        let drop = |read: &mut [u64], write: &mut [u64]| {
            for (read, write) in read.iter_mut().zip(write) {
                if *read == tag {
                    (*read, *write) = (0, 0);
                }
            }
        };
        let set = page.0 as usize % L1.sets;
        drop(&mut self.l1_read[set], &mut self.l1_write[set]);
        let set = page.0 as usize % L2.sets;
        drop(&mut self.l2_read[set], &mut self.l2_write[set]);
    }

    /// Makes the next store to the page walk.
    pub fn forget_store(&mut self, page: Vpn, asid: usize) {
        let tag = page.0 << EPOCH_BITS | self.slots[asid].epoch;
        let l1 = &mut self.l1_write[page.0 as usize % L1.sets];
        let l2 = &mut self.l2_write[page.0 as usize % L2.sets];
        for write in l1.iter_mut().chain(l2) {
            *write = if *write == tag { 0 } else { *write };
        }
    }

    /// Drops all entries of a slot.
    #[inline]
    pub fn flush_slot(&mut self, asid: usize) {
        if self.slots[asid].filled {
            self.renew(asid);
        }
    }

    /// Gives the slot a new epoch, with no cached entries. If no epoch is left, all slots are
    /// emptied.
    fn renew(&mut self, asid: usize) {
        self.last_epoch += 1;
        if self.last_epoch >> EPOCH_BITS != 0 {
            *self = Tlb::new(self.slots.len());
        } else {
            self.slots[asid] = TlbSlot { epoch: self.last_epoch, filled: false, huge: false };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fill_hits_until_flushed() {
        let mut tlb = Tlb::new(2);
        let epoch = tlb.epoch(1);
        assert!(!tlb.hit::<false>(Vpn(5), epoch));
        tlb.fill(Vpn(5), 1, false);
        assert!(tlb.hit::<false>(Vpn(5), epoch) && !tlb.hit::<true>(Vpn(5), epoch));
        tlb.fill(Vpn(5), 1, true);
        assert!(tlb.hit::<true>(Vpn(5), epoch));
        tlb.flush_page(Vpn(5), 1);
        assert!(!tlb.hit::<false>(Vpn(5), epoch) && !tlb.hit::<true>(Vpn(5), epoch));
        tlb.fill(Vpn(6), 1, true);
        tlb.flush_slot(1);
        assert!(!tlb.hit::<false>(Vpn(6), tlb.epoch(1)));
    }

    #[test]
    fn a_huge_page_hits_everywhere_until_one_of_its_pages_is_flushed() {
        let mut tlb = Tlb::new(2);
        let epoch = tlb.epoch(1);
        let pages = Span::around(Vpn(700), 9);
        tlb.fill_huge(pages, Vpn(700), 1, true);
        assert!(tlb.hit::<true>(Vpn(512), epoch) && tlb.hit::<false>(Vpn(1023), epoch));
        assert!(!tlb.hit::<false>(Vpn(511), epoch) && !tlb.hit::<false>(Vpn(1024), epoch));
        tlb.flush_page(Vpn(600), 1);
        for page in [512, 600, 700, 1023] {
            assert!(!tlb.hit::<false>(Vpn(page), epoch) && !tlb.holds(Vpn(page), epoch));
        }
        for start in 0..2 * HUGE as u64 {
            tlb.fill_huge(Span::around(Vpn(start << 9), 9), Vpn(start << 9), 1, false);
        }
        assert!(!tlb.holds(Vpn(512), epoch), "there is no room for so many");
        tlb.flush_slot(1);
        assert!(!tlb.holds(Vpn((2 * HUGE as u64 - 1) << 9), tlb.epoch(1)));
    }

    #[test]
    fn epochs_wrap_without_old_hits() {
        let mut tlb = Tlb::new(1);
        let first = tlb.epoch(0);
        tlb.fill(Vpn(9), 0, true);
        for _ in 0..1 << EPOCH_BITS {
            tlb.flush_slot(0);
            tlb.fill(Vpn(8), 0, false);
        }
        for epoch in [first, tlb.epoch(0)] {
            assert!(!tlb.hit::<false>(Vpn(9), epoch));
        }
    }

    #[test]
    fn the_second_level_backs_the_first() {
        let mut tlb = Tlb::new(1);
        let epoch = tlb.epoch(0);
        for page in 0..1024 {
            tlb.fill(Vpn(page), 0, false);
        }
        assert!((0..1024).all(|page| tlb.hit::<false>(Vpn(page), epoch)));
    }
}

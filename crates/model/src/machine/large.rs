//! Large folios: frames side by side that the kernel handles as one.
//!
//! References, the place in an object and most flags belong to the folio. A page has its own:
//! whether it is exclusive, its contents, whether its part of a file's folio is dirty, and how many
//! PTEs map it. A mapping of the folio as a whole (by an entry above the last level) counts once
//! for all of its pages (`_entire_mapcount`).
//!
//! Source: include/linux/mm_types.h:struct folio, include/linux/page-flags.h (PF_HEAD, PF_ANY),
//! mm/page_alloc.c:prep_compound_page (5.10 to 7.3).

use super::frames::{Frame, FrameFlags, Frames};
use super::room::Room;
use crate::addr::{Pfn, Span};
use std::collections::BTreeMap;

/// The large folios, and free runs of frames that were one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct LargeFolios {
    /// The folios by their first frames.
    folios: BTreeMap<Pfn, Large>,
    /// The huge zero page, once it exists.
    zero: Option<Pfn>,
    free: Vec<(Pfn, u8)>,
}

/// A large folio.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
struct Large {
    order: u8,
    /// The number of entries that map the folio as a whole.
    whole_maps: u32,
    /// The number of entries that map one of its pages.
    page_maps: u32,
    partly: bool,
}

impl LargeFolios {
    /// The number of frames in free runs.
    pub fn free(&self) -> u64 {
        self.free.iter().map(|(_, order)| 1 << order).sum()
    }

    fn of(&self, pfn: Pfn) -> (Pfn, Large) {
        let (head, large) = self.folios.range(..=pfn).next_back().expect("a large folio's frame");
        (*head, *large)
    }
}

impl Frames {
    /// The first frame of the folio that `pfn` belongs to, and its order.
    #[inline]
    pub fn folio(&self, pfn: Pfn) -> (Pfn, u8) {
        if !self.flags(pfn).has(FrameFlags::LARGE) {
            return (pfn, 0);
        }
        let (head, Large { order, .. }) = self.large.of(pfn);
        (head, order)
    }

    /// The first frame of each large folio.
    pub fn large_folios(&self) -> impl Iterator<Item = Pfn> + '_ {
        self.large.folios.keys().copied()
    }

    /// The frames of the folio that `pfn` belongs to.
    pub fn pages_of_folio(&self, pfn: Pfn) -> impl DoubleEndedIterator<Item = Pfn> + Clone + use<> {
        let (head, order) = self.folio(pfn);
        (head.0..head.0 + (1 << order)).map(Pfn)
    }

    /// The number of entries that map the folio or one of its pages (`folio_mapcount`).
    pub fn folio_maps(&self, pfn: Pfn) -> u32 {
        let flags = self.flags(pfn);
        if !flags.has(FrameFlags::LARGE) {
            return self.get(pfn).maps;
        }
        let (_, Large { whole_maps, page_maps, .. }) = self.large.of(pfn);
        whole_maps + page_maps
    }

    /// Whether a page of the folio is no longer mapped while others are (`PG_partially_mapped`).
    pub fn is_partly_mapped(&self, pfn: Pfn) -> bool {
        self.flags(pfn).has(FrameFlags::LARGE) && self.large.of(pfn).1.partly
    }

    /// Called when an entry that mapped the folio is gone: notes if one of its pages is no longer
    /// mapped.
    ///
    /// Source: mm/rmap.c:__folio_remove_rmap (6.12 to 7.3).
    pub fn note_unmapped(&mut self, pfn: Pfn) {
        let cached = self.flags(pfn).has(FrameFlags::SWAP_CACHE);
        if self.get(pfn).maps == 0 && self.folio_maps(pfn) > 0 && !cached {
            let (head, _) = self.large.of(pfn);
            let large = self.large.folios.get_mut(&head).expect("a large folio's first frame");
            large.partly = true;
        }
    }

    /// The number of entries that map the folio as a whole.
    pub fn whole_maps(&self, pfn: Pfn) -> u32 {
        match self.flags(pfn).has(FrameFlags::LARGE) {
            true => self.large.of(pfn).1.whole_maps,
            false => 0,
        }
    }

    /// Adds `by` to the number of entries that map one of its pages.
    pub(super) fn count_page_maps(&mut self, head: Pfn, by: i32) {
        if by != 0 {
            let large = self.large.folios.get_mut(&head).expect("a large folio's first frame");
            large.page_maps = large.page_maps.wrapping_add_signed(by);
        }
    }

    /// Adds `by` to the number of entries that map the folio as a whole.
    pub fn count_whole_map(&mut self, pfn: Pfn, by: i32) {
        let (head, _) = self.large.of(pfn);
        let large = self.large.folios.get_mut(&head).expect("a large folio's first frame");
        large.whole_maps = large.whole_maps.wrapping_add_signed(by);
    }

    /// The huge zero page, if it exists.
    pub fn huge_zero(&self) -> Option<Pfn> {
        self.large.zero
    }

    /// The huge zero page: frames that entries of this order map where memory was only read. It is
    /// made when it is first needed, and stays.
    pub fn huge_zero_page(&mut self, order: u8, room: &Room) -> Option<Pfn> {
        if self.large.zero.is_none() {
            self.large.zero = self.allocate_large(order, FrameFlags::ZERO_FILLED, room);
        }
        self.large.zero
    }

    /// A large folio with one reference; `None` if there are not enough frames side by side, or no
    /// memory for them.
    pub fn allocate_large(&mut self, order: u8, flags: FrameFlags, room: &Room) -> Option<Pfn> {
        let head = self.next_free_run(order, room)?;
        self.hand_out_large(head, order, flags);
        Some(head)
    }

    /// Takes a free run of this order; `None` if there is none, or no memory for it.
    pub(super) fn next_free_run(&mut self, order: u8, room: &Room) -> Option<Pfn> {
        match self.free_run(|_, (_, of)| of == order) {
            Some(run) => Some(self.take_run(run)),
            None => {
                let grown = self.grow(1 << order, room);
                grown.or_else(|| Frames::assemble(&mut self.free, order))
            }
        }
    }

    /// The position, among the free runs, of the most recently freed run that suits.
    pub(super) fn free_run(&self, suits: impl Fn(&Frames, (Pfn, u8)) -> bool) -> Option<usize> {
        self.large.free.iter().rposition(|run| suits(self, *run))
    }

    /// Takes the run out of the free runs and returns its first frame.
    pub(super) fn take_run(&mut self, run: usize) -> Pfn {
        self.large.free.remove(run).0
    }

    /// Marks the frames as an allocated large folio with one reference.
    pub(super) fn hand_out_large(&mut self, head: Pfn, order: u8, flags: FrameFlags) {
        let own = FrameFlags::ALLOCATED.and(FrameFlags::LARGE);
        let page = Frame { flags: flags.both(FrameFlags::OF_PAGE).and(own), ..Frame::FREE };
        (head.0..head.0 + (1 << order)).for_each(|pfn| self.put_own(Pfn(pfn), page));
        self.put_own(head, Frame { refs: 1, flags: flags.and(own), ..Frame::FREE });
        self.large.folios.insert(head, Large { order, whole_maps: 0, page_maps: 0, partly: false });
    }

    /// Takes frames side by side out of the free single ones, as compaction would find them.
    pub(super) fn assemble(free: &mut Vec<Pfn>, order: u8) -> Option<Pfn> {
        let run = 1u32 << order;
        let mut sorted = free.clone();
        sorted.sort_unstable();
        let mut starts = sorted.windows(run as usize).map(|run| (run[0], run[run.len() - 1]));
        let (first, _) =
            starts.find(|(first, last)| first.0 % run == 0 && last.0 - first.0 == run - 1)?;
        free.retain(|pfn| pfn.0 < first.0 || pfn.0 >= first.0 + run);
        Some(first)
    }

    /// Takes one frame of a free run and adds the rest to the free single frames.
    #[cold]
    pub(super) fn break_up(&mut self) -> Option<Pfn> {
        let last = self.large.free.len().checked_sub(1)?;
        Some(self.break_up_run(last))
    }

    /// Takes the first frame of that run and adds the rest to the free single frames.
    pub(super) fn break_up_run(&mut self, run: usize) -> Pfn {
        let (head, order) = self.large.free.remove(run);
        (head.0 + 1..head.0 + (1 << order)).rev().for_each(|pfn| self.push_free(Pfn(pfn)));
        head
    }

    /// Frees a large folio.
    pub(super) fn release_large(&mut self, pfn: Pfn) {
        let (head, Large { order, .. }) = self.large.of(pfn);
        (head.0..head.0 + (1 << order)).for_each(|pfn| self.put_own(Pfn(pfn), Frame::FREE));
        self.large.folios.remove(&head);
        self.large.free.push((head, order));
    }

    /// Splits a folio that nothing maps into single frames. Each has the folio's flags and place,
    /// one reference, and one more for the swap cache if the folio is there.
    ///
    /// Source: mm/huge_memory.c:__split_huge_page_tail, __split_huge_page (5.10 to 6.12),
    /// __split_folio_to_order (7.3).
    pub fn split_folio(&mut self, pfn: Pfn) {
        let (head, order) = self.folio(pfn);
        let refs = 1 + u32::from(self.flags(head).has(FrameFlags::SWAP_CACHE));
        let pages: Vec<Frame> = self.pages_of_folio(head).map(|page| self.get(page)).collect();
        self.large.folios.remove(&head);
        for (page, mut frame) in (head.0..head.0 + (1 << order)).map(Pfn).zip(pages) {
            frame.flags.set(FrameFlags::LARGE, false);
            frame.refs = refs;
            self.put_own(page, frame);
        }
    }

    /// Halves a clean folio of a file, which nothing maps, then the half with page `at`, and so on
    /// until that page is a folio by itself. Each piece has only the references of the page cache,
    /// one for each page.
    ///
    /// Source: mm/huge_memory.c:folio_split, __split_unmapped_folio (7.2; SPLIT_TYPE_NON_UNIFORM).
    pub fn split_folio_at(&mut self, pfn: Pfn, at: Pfn) {
        let (head, order) = self.folio(pfn);
        let pages: Vec<Frame> = self.pages_of_folio(head).map(|page| self.get(page)).collect();
        self.large.folios.remove(&head);
        let mut piece = |first: Pfn, order: u8| {
            let begin = (first.0 - head.0) as usize;
            for (page, frame) in (first.0..).map(Pfn).zip(&pages[begin..begin + (1 << order)]) {
                let mut flags = frame.flags;
                flags.set(FrameFlags::LARGE, order > 0);
                let own = Frame { flags: flags.both(FrameFlags::OF_PAGE), ..Frame::FREE };
                let whole = Frame { refs: 1 << order, maps: 0, flags, ..*frame };
                self.put_own(page, if page == first { whole } else { own });
            }
            if order > 0 {
                let large = Large { order, whole_maps: 0, page_maps: 0, partly: false };
                self.large.folios.insert(first, large);
            }
        };
        let (mut first, mut order) = (head, order);
        while order > 0 {
            order -= 1;
            let second = Pfn(first.0 + (1 << order));
            let (kept, rest) = if at < second { (first, second) } else { (second, first) };
            piece(rest, order);
            first = kept;
        }
        piece(first, 0);
    }

    /// A page of a large folio as a whole frame; `own` is what is stored for the page itself.
    #[cold]
    pub(super) fn in_folio(&self, pfn: Pfn, own: Frame) -> Frame {
        let (head, Large { whole_maps, .. }) = self.large.of(pfn);
        let folio = self.own(head);
        Frame {
            refs: folio.refs,
            maps: own.maps + whole_maps,
            flags: own.flags.both(FrameFlags::OF_PAGE).and(folio.flags.but(FrameFlags::OF_PAGE)),
            object: folio.object,
            index: folio.index + u64::from(pfn.0 - head.0),
        }
    }

    /// Stores the folio's part of a frame with the first frame, and the rest with this frame.
    #[cold]
    pub(super) fn put_in_folio(&mut self, pfn: Pfn, frame: Frame) {
        let (head, Large { whole_maps, .. }) = self.large.of(pfn);
        let mut own = self.own(pfn);
        let maps = frame.maps - whole_maps;
        self.count_page_maps(head, maps.cast_signed() - own.maps.cast_signed());
        own.maps = maps;
        own.flags = frame.flags.both(FrameFlags::OF_PAGE);
        if pfn != head {
            self.put_own(pfn, own);
            own = self.own(head);
        }
        let flags = own.flags.both(FrameFlags::OF_PAGE);
        let flags = flags.and(frame.flags.but(FrameFlags::OF_PAGE));
        let index = frame.index - u64::from(pfn.0 - head.0);
        self.put_own(head, Frame { refs: frame.refs, flags, object: frame.object, index, ..own });
    }

    /// Whether an entry for `pages` that names `pfn` maps that folio as a whole.
    pub fn is_whole(&self, pfn: Pfn, pages: Span) -> bool {
        self.folio(pfn) == (pfn, pages.order)
    }
}

#[cfg(test)]
mod tests {
    use super::super::nodes::Nodes;
    use super::*;
    use crate::addr::ObjectId;
    use std::sync::Arc;

    fn of_limit(frames: u32) -> Frames {
        Frames::new(&Arc::new(Nodes::one(frames)))
    }

    #[test]
    fn a_folio_is_told_from_each_of_its_frames() {
        let mut frames = of_limit(64);
        let small = frames.allocate(FrameFlags::default(), &Room::UNBOUNDED).unwrap();
        let head = frames
            .allocate_large(
                2,
                FrameFlags::SWAP_BACKED.and(FrameFlags::ZERO_FILLED),
                &Room::UNBOUNDED,
            )
            .unwrap();
        assert_eq!((head, frames.allocated()), (Pfn(4), 5), "frames 2 and 3 are free");
        let tail = Pfn(6);
        frames.update(head, |f| (f.object, f.index) = (ObjectId(7), 40));
        frames.set_flags(tail, FrameFlags::LRU, true);
        frames.set_flags(tail, FrameFlags::ZERO_FILLED, false);
        frames.add_ref(tail);
        frames.count_whole_map(tail, 1);
        let (first, other) = (frames.get(head), frames.get(tail));
        assert_eq!((first.refs, other.refs, first.maps, other.maps), (2, 2, 1, 1));
        assert!(first.flags.has(FrameFlags::LRU) && other.flags.has(FrameFlags::LRU));
        assert!(
            first.flags.has(FrameFlags::ZERO_FILLED) && !other.flags.has(FrameFlags::ZERO_FILLED)
        );
        assert_eq!((other.index, frames.place(tail)), (42, (ObjectId(7), 42)));
        assert_eq!((frames.folio(tail), frames.folio(small)), ((head, 2), (small, 0)));
        // Now the folio is mapped page by page.
        frames.count_whole_map(head, -1);
        for page in frames.pages_of_folio(tail) {
            frames.update(page, |f| (f.refs, f.maps) = (f.refs + 1, f.maps + 1));
        }
        assert!(frames.drop_map(tail) && !frames.drop_map(tail));
        assert_eq!((frames.folio_maps(head), frames.get(head).refs), (3, 6));
        frames.pages_of_folio(tail).for_each(|page| _ = frames.drop_map(page));
        assert_eq!(frames.folio_maps(head), 0);
        frames.split_folio(tail);
        let told: Vec<_> = (4..8).map(|pfn| frames.get(Pfn(pfn))).collect();
        assert_eq!(told.iter().map(|f| (f.refs, f.maps)).collect::<Vec<_>>(), [(1, 0); 4]);
        assert!(
            told.iter().all(|f| f.flags.has(FrameFlags::LRU) && !f.flags.has(FrameFlags::LARGE))
        );
        assert_eq!(told[3].index, 43);
    }

    /// This was seen on 6.18: a clean folio of sixteen pages is cut at page 5.
    #[test]
    fn a_files_folio_is_halved_until_the_page_is_by_itself() {
        let mut frames = of_limit(64);
        let head = frames.allocate_large(4, FrameFlags::LRU, &Room::UNBOUNDED).unwrap();
        frames.update(head, |f| (f.object, f.index, f.refs) = (ObjectId(3), 32, 16));
        frames.set_zero_filled(Pfn(head.0 + 9), true);
        frames.split_folio_at(head, Pfn(head.0 + 5));
        let pieces = frames.pages_of_folio(head).chain((4..16).map(|page| Pfn(head.0 + page)));
        let found = pieces.map(|page| (frames.folio(page).0.0 - head.0, frames.get(page)));
        let found: Vec<_> = found.map(|(first, f)| (first, f.refs, f.index)).collect();
        let folios = [(0, 4); 4].into_iter().chain([(4, 1), (5, 1), (6, 2), (6, 2)]);
        let folios = folios.chain([(8, 8); 8]).zip(32..);
        assert_eq!(
            found,
            folios.map(|((first, refs), index)| (first, refs, index)).collect::<Vec<_>>()
        );
        assert!(
            frames.is_zero_filled(Pfn(head.0 + 9))
                && frames.flags(Pfn(head.0 + 5)).has(FrameFlags::LRU)
        );
        (4..6).for_each(|page| frames.release(Pfn(head.0 + page)));
        frames.release(head);
        assert_eq!(frames.allocated(), 10);
    }

    #[test]
    fn frames_side_by_side_are_found_again() {
        let mut frames = of_limit(16);
        let before = frames.clone();
        let first = frames.allocate_large(3, FrameFlags::default(), &Room::UNBOUNDED).unwrap();
        assert_eq!(
            (first, frames.allocate_large(3, FrameFlags::default(), &Room::UNBOUNDED)),
            (Pfn(8), None)
        );
        frames.release(first);
        assert_eq!((frames.allocated(), frames.is_full()), (0, false));
        // Single frames break the run up, and it is assembled again.
        let singles: Vec<Pfn> =
            std::iter::from_fn(|| frames.allocate(FrameFlags::default(), &Room::UNBOUNDED))
                .collect();
        assert_eq!((singles.len(), frames.is_full()), (16, true));
        singles.iter().for_each(|pfn| frames.release(*pfn));
        assert_eq!(frames.allocate_large(3, FrameFlags::default(), &Room::UNBOUNDED), Some(Pfn(8)));
        assert_eq!(before.allocated(), 0);
    }
}

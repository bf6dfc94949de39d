//! Page frames.
//!
//! A frame is stored in 12 bytes: two words have its object and its index there, a third has counts
//! and flags. Counts that are too large for it are stored separately. Storage grows with the pages
//! touched.
//!
//! The frames of a large folio share what belongs to the folio ([`super::large`]): a query for any
//! of them returns the first frame's value.

use super::by_node::ByNode;
use super::large::LargeFolios;
use super::mlocked::Mlocked;
use super::nodes::SharedNodes;
use super::room::Room;
use crate::addr::{NodeId, ObjectId, Pfn};
use std::collections::{BTreeMap, BTreeSet};

/// The frame that anonymous memory maps where it was only read.
pub const ZERO_PAGE: Pfn = Pfn(0);

/// Together with the object's 16 bits, the index fills two whole words, so nothing has to be
/// masked.
const INDEX_BITS: u32 = 48;
const COUNT_BITS: u32 = 9;
/// The largest count that fits beside the flags.
const COUNT: u32 = (1 << COUNT_BITS) - 1;
/// The bit above the flags: the counts are stored separately.
const BESIDE: u32 = 1 << 31;
/// The bits of the flags.
const FLAGS: u32 = !(BESIDE | ((1 << (2 * COUNT_BITS)) - 1));

/// Flags of a frame.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct FrameFlags(u32);

impl FrameFlags {
    /// On an LRU list (`PG_lru`). Only [`super::lru`] sets and clears it.
    pub(super) const LRU: FrameFlags = FrameFlags(1);
    /// Has to be written before it can be dropped (`PG_dirty`).
    pub const DIRTY: FrameFlags = FrameFlags(1 << 1);
    /// Backed by swap (`PG_swapbacked`); cleared by `MADV_FREE`.
    pub const SWAP_BACKED: FrameFlags = FrameFlags(1 << 2);
    /// In the swap cache (`PG_swapcache`).
    pub const SWAP_CACHE: FrameFlags = FrameFlags(1 << 3);
    /// Exclusive to one address space (`PG_anon_exclusive`, 5.19 and later).
    pub const EXCLUSIVE: FrameFlags = FrameFlags(1 << 4);
    /// Contains only zeros.
    pub const ZERO_FILLED: FrameFlags = FrameFlags(1 << 5);
    /// Another user had a claim on the page when its PTE was last written, so write permission
    /// could not have been given then.
    pub const CLAIMED: FrameFlags = FrameFlags(1 << 6);
    /// Active (`PG_active`): `MADV_COLD` deactivates it.
    pub const ACTIVE: FrameFlags = FrameFlags(1 << 8);
    /// Used once (`PG_referenced`): the next use makes it active.
    pub const REFERENCED: FrameFlags = FrameFlags(1 << 9);
    /// On the list of the oldest generation (multi-generational LRU). `MADV_COLD` may leave it
    /// alone.
    pub const OLDEST: FrameFlags = FrameFlags(1 << 10);
    /// The frame is allocated.
    pub const ALLOCATED: FrameFlags = FrameFlags(1 << 7);
    /// Part of a large folio (`PG_head`, or a tail).
    pub const LARGE: FrameFlags = FrameFlags(1 << 11);
    /// A page of a file's large folio that is itself dirty (`BH_Dirty`).
    pub const BUFFER_DIRTY: FrameFlags = FrameFlags(1 << 12);

    /// The flags that belong to a page, not to its folio.
    pub(super) const OF_PAGE: FrameFlags = FrameFlags(
        FrameFlags::EXCLUSIVE.0
            | FrameFlags::ZERO_FILLED.0
            | FrameFlags::CLAIMED.0
            | FrameFlags::ALLOCATED.0
            | FrameFlags::LARGE.0
            | FrameFlags::BUFFER_DIRTY.0,
    );

    /// Whether the frame is on an LRU list.
    #[inline]
    pub const fn on_lru(self) -> bool {
        self.has(FrameFlags::LRU)
    }

    /// Whether all of `flags` are set.
    pub const fn has(self, flags: FrameFlags) -> bool {
        self.0 & flags.0 == flags.0
    }

    /// Sets or clears `flags`.
    pub fn set(&mut self, flags: FrameFlags, on: bool) {
        if on { self.0 |= flags.0 } else { self.0 &= !flags.0 }
    }

    /// The flags of both sets (union).
    pub const fn and(self, other: FrameFlags) -> FrameFlags {
        FrameFlags(self.0 | other.0)
    }

    /// The flags that both sets have in common.
    pub(super) const fn both(self, other: FrameFlags) -> FrameFlags {
        FrameFlags(self.0 & other.0)
    }

    /// The flags without those in `other`.
    pub(super) const fn but(self, other: FrameFlags) -> FrameFlags {
        FrameFlags(self.0 & !other.0)
    }
}

/// A frame, unpacked.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct Frame {
    /// The number of references (`folio_ref_count`).
    pub refs: u32,
    /// The number of page-table mappings (`folio_mapcount`).
    pub maps: u32,
    /// The frame's flags.
    pub flags: FrameFlags,
    /// The object that the frame belongs to.
    pub object: ObjectId,
    /// The frame's index in the object, in pages.
    pub index: u64,
}

impl Frame {
    pub(super) const FREE: Frame =
        Frame { refs: 0, maps: 0, flags: FrameFlags(0), object: ObjectId(0), index: 0 };

    /// Whether both counts fit into the word with the flags.
    #[inline]
    const fn fits(self) -> bool {
        (self.refs | self.maps) <= COUNT
    }

    #[inline]
    fn pack(self) -> Packed {
        let place = self.index | u64::from(self.object.0) << INDEX_BITS;
        let counts = self.refs | self.maps << COUNT_BITS | self.flags.0 << (2 * COUNT_BITS);
        [place as u32, (place >> 32) as u32, counts]
    }

    #[inline]
    fn unpack([low, high, counts]: Packed) -> Frame {
        let place = u64::from(low) | u64::from(high) << 32;
        Frame {
            refs: counts & COUNT,
            maps: counts >> COUNT_BITS & COUNT,
            flags: FrameFlags((counts & FLAGS) >> (2 * COUNT_BITS)),
            object: ObjectId((place >> INDEX_BITS) as u16),
            index: place & ((1 << INDEX_BITS) - 1),
        }
    }
}

/// A frame in its stored form.
type Packed = [u32; 3];

/// All frames. Frame 0 is the zero page.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Frames {
    pub(super) stored: Vec<Packed>,
    /// The reference and mapping counts of frames for which one is too large.
    beside: BTreeMap<Pfn, (u32, u32)>,
    pub(super) large: LargeFolios,
    /// The state of folios that mappings lock, or locked, in memory.
    mlocked: BTreeMap<Pfn, Mlocked>,
    /// Frames that reclaim wants as soon as they are written (`PG_reclaim`).
    wanted: BTreeSet<Pfn>,
    /// The free frames of a machine with one node; the frame freed last is at the end.
    pub(super) free: Vec<Pfn>,
    /// The free frames of a machine with several nodes.
    pub(super) by_node: Option<Box<ByNode>>,
    /// `limit`: the number of frames of the machine. `last`: the highest frame number. `granted`:
    /// the highest frame number for which memory was reserved already.
    limit: u32,
    last: u32,
    granted: u32,
}

/// The number of frames for which memory is reserved at a time.
const GRANT: u32 = 1024;

/// An upper bound on the bytes that a frame takes besides its stored form: in its object, on lists
/// of free, reclaimed and cached frames, and where counts are checked.
const FRAME_BESIDE: u64 = 48;

/// If one of these bits is set, the frame's own word is not enough to describe it.
const ELSEWHERE: u32 = BESIDE | FrameFlags::LARGE.0 << (2 * COUNT_BITS);

/// The bit that says that a frame contains only zeros.
const ZEROS: u32 = FrameFlags::ZERO_FILLED.0 << (2 * COUNT_BITS);

impl Frames {
    /// The frames of the nodes. Storage for them is allocated as they are used.
    pub fn new(nodes: &SharedNodes) -> Frames {
        let (stored, large) = (vec![[0; 3]], LargeFolios::default());
        let (beside, mlocked, wanted) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
        let (free, by_node, limit) = (Vec::new(), ByNode::new(nodes), nodes.all_frames());
        let last = nodes.last().0;
        let granted = last.min(GRANT);
        Frames { stored, beside, large, mlocked, wanted, free, by_node, limit, last, granted }
    }

    /// Reserves memory for `frames` more frames than those in use. False if there is no memory, or
    /// the machine does not have so many frames.
    #[cold]
    fn grant(&mut self, frames: u32, room: &Room) -> bool {
        let used = self.stored.len() as u64 - 1;
        let wanted = used + u64::from(frames);
        if wanted > u64::from(self.last) {
            return false;
        }
        let end = wanted.max(u64::from(self.granted)).max(used + u64::from(GRANT));
        let end = end.min(u64::from(self.last)) as u32;
        let more = end - self.granted;
        let lists = room.make(&mut self.stored, (u64::from(end) - used) as usize);
        let granted = lists.is_some() && room.take(u64::from(more) * FRAME_BESIDE);
        if granted {
            self.granted = end;
        }
        granted
    }

    /// Whether no free frame is left.
    pub fn is_full(&self) -> bool {
        self.allocated() >= u64::from(self.limit)
    }

    /// One more than the highest frame number ever in use.
    pub(super) fn end(&self) -> usize {
        self.stored.len()
    }

    /// The number of frames in use.
    pub fn allocated(&self) -> u64 {
        let by_node = self.by_node.as_ref().map_or(0, |by_node| by_node.unused());
        (self.stored.len() - 1 - self.free.len()) as u64 - self.large.free() - by_node
    }

    /// A frame with one reference; `None` if no frame or no memory is left.
    #[inline]
    pub fn allocate(&mut self, flags: FrameFlags, room: &Room) -> Option<Pfn> {
        let pfn = self.next_free(room)?;
        self.hand_out(pfn, flags);
        Some(pfn)
    }

    /// Takes a free frame; `None` if no frame or no memory is left. The frame freed last is taken
    /// first, as from the kernel's per-CPU lists.
    #[inline]
    pub fn next_free(&mut self, room: &Room) -> Option<Pfn> {
        match self.free.pop() {
            Some(pfn) => Some(pfn),
            None if self.stored.len() as u64 <= u64::from(self.granted) => {
                self.stored.push([0; 3]);
                Some(Pfn(self.stored.len() as u32 - 1))
            }
            None => self.allocate_further(room),
        }
    }

    /// The number of unused frames of this node of several. (It is not used together with large
    /// folios.)
    pub fn free_on(&self, node: NodeId) -> u64 {
        let free = |by_node: &ByNode| by_node.free_on(node, self.stored.len() as u64);
        self.by_node.as_deref().map_or(0, free)
    }

    /// Marks a frame as allocated, with one reference.
    #[inline]
    pub fn hand_out(&mut self, pfn: Pfn, flags: FrameFlags) {
        let flags = flags.and(FrameFlags::ALLOCATED);
        self.put(pfn, Frame { refs: 1, flags, ..Frame::FREE });
    }

    /// Whether the frame has no reference, no mapping and no flag, as every free frame.
    #[inline]
    pub fn is_unused(&self, pfn: Pfn) -> bool {
        self.stored[pfn.0 as usize][2] == 0
    }

    /// Takes a frame above those for which memory is reserved, or else one of a free large folio.
    #[cold]
    fn allocate_further(&mut self, room: &Room) -> Option<Pfn> {
        if !self.grant(1, room) {
            return self.break_up();
        }
        self.stored.push([0; 3]);
        Some(Pfn(self.stored.len() as u32 - 1))
    }

    /// The mlock state of the frame's folio.
    #[inline]
    pub fn mlocked(&self, pfn: Pfn) -> Mlocked {
        if self.mlocked.is_empty() {
            return Mlocked::default();
        }
        self.mlocked.get(&self.folio(pfn).0).copied().unwrap_or_default()
    }

    /// Changes the mlock state of the frame's folio.
    pub fn change_mlocked(&mut self, pfn: Pfn, change: impl FnOnce(&mut Mlocked)) {
        let (folio, mut mlocked) = (self.folio(pfn).0, self.mlocked(pfn));
        change(&mut mlocked);
        if mlocked == Mlocked::default() {
            self.mlocked.remove(&folio);
        } else {
            self.mlocked.insert(folio, mlocked);
        }
    }

    /// Sets whether reclaim wants the page as soon as it is written. Returns whether that was set
    /// before.
    pub fn set_wanted(&mut self, pfn: Pfn, wanted: bool) -> bool {
        match wanted {
            true => !self.wanted.insert(pfn),
            false => !self.wanted.is_empty() && self.wanted.remove(&pfn),
        }
    }

    /// Whether reclaim wants the page as soon as it is written.
    pub fn is_wanted(&self, pfn: Pfn) -> bool {
        self.wanted.contains(&pfn)
    }

    /// Frees a frame.
    pub fn release(&mut self, pfn: Pfn) {
        if !self.wanted.is_empty() {
            self.wanted.remove(&pfn);
        }
        if !self.mlocked.is_empty() {
            self.mlocked.remove(&self.folio(pfn).0);
        }
        if self.own(pfn).flags.has(FrameFlags::LARGE) {
            return self.release_large(pfn);
        }
        self.put(pfn, Frame::FREE);
        self.push_free(pfn);
    }

    /// Adds a single frame to the free ones.
    #[inline(always)]
    pub(super) fn push_free(&mut self, pfn: Pfn) {
        match &mut self.by_node {
            None => self.free.push(pfn),
            Some(by_node) => by_node.push(pfn),
        }
    }

    /// The frame, with what it shares with its folio.
    #[inline(always)]
    pub fn get(&self, pfn: Pfn) -> Frame {
        let packed = self.stored[pfn.0 as usize];
        if packed[2] & ELSEWHERE == 0 { Frame::unpack(packed) } else { self.get_elsewhere(pfn) }
    }

    #[cold]
    #[inline(never)]
    fn get_elsewhere(&self, pfn: Pfn) -> Frame {
        let own = self.own(pfn);
        if own.flags.has(FrameFlags::LARGE) { self.in_folio(pfn, own) } else { own }
    }

    /// What is stored for this frame itself.
    pub(super) fn own(&self, pfn: Pfn) -> Frame {
        let packed = self.stored[pfn.0 as usize];
        let mut frame = Frame::unpack(packed);
        if packed[2] & BESIDE != 0 {
            (frame.refs, frame.maps) = self.beside.get(&pfn).copied().unwrap_or_default();
        }
        frame
    }

    /// The object that the frame belongs to, and the frame's index there.
    #[inline(always)]
    pub fn place(&self, pfn: Pfn) -> (ObjectId, u64) {
        let Frame { object, index, .. } = self.get(pfn);
        (object, index)
    }

    /// The frame's flags.
    #[inline(always)]
    pub fn flags(&self, pfn: Pfn) -> FrameFlags {
        let packed = self.stored[pfn.0 as usize][2];
        match packed & ELSEWHERE & !BESIDE {
            0 => FrameFlags((packed & FLAGS) >> (2 * COUNT_BITS)),
            _ => self.get_elsewhere(pfn).flags,
        }
    }

    /// Sets or clears `flags` of the frame.
    #[inline(always)]
    pub fn set_flags(&mut self, pfn: Pfn, flags: FrameFlags, on: bool) {
        self.change_flags(pfn, |f| f.set(flags, on));
    }

    /// Changes the frame's flags.
    #[inline(always)]
    pub fn change_flags(&mut self, pfn: Pfn, change: impl FnOnce(&mut FrameFlags)) {
        let mut flags = self.flags(pfn);
        change(&mut flags);
        if flags.has(FrameFlags::LARGE) {
            return self.put_in_folio(pfn, Frame { flags, ..self.get(pfn) });
        }
        let packed = &mut self.stored[pfn.0 as usize][2];
        *packed = *packed & !FLAGS | flags.0 << (2 * COUNT_BITS);
    }

    /// Whether the frame contains only zeros. This is known for each frame of a large folio.
    #[inline(always)]
    pub fn is_zero_filled(&self, pfn: Pfn) -> bool {
        self.stored[pfn.0 as usize][2] & ZEROS != 0
    }

    /// Sets whether the frame contains only zeros.
    #[inline(always)]
    pub fn set_zero_filled(&mut self, pfn: Pfn, zeros: bool) {
        let packed = &mut self.stored[pfn.0 as usize][2];
        *packed = if zeros { *packed | ZEROS } else { *packed & !ZEROS };
    }

    /// Adds a reference. Returns false if there was none before.
    #[inline(always)]
    pub fn add_ref(&mut self, pfn: Pfn) -> bool {
        let packed = &mut self.stored[pfn.0 as usize][2];
        // One comparison checks both that there is a reference and that one more fits.
        let in_word = (*packed & COUNT).wrapping_sub(1) < COUNT - 1;
        if *packed & ELSEWHERE == 0 && in_word {
            *packed += 1;
            return true;
        }
        self.count_beside(pfn, |f| f.refs += 1) > 1
    }

    /// Drops a reference, which must exist.
    #[inline(always)]
    pub fn drop_ref(&mut self, pfn: Pfn) {
        let packed = &mut self.stored[pfn.0 as usize][2];
        if *packed & ELSEWHERE == 0 {
            *packed -= 1;
        } else {
            let _ = self.count_beside(pfn, |f| f.refs -= 1);
        }
    }

    /// Drops a mapping. Returns false, and changes nothing, if there is none.
    #[inline(always)]
    pub fn drop_map(&mut self, pfn: Pfn) -> bool {
        let packed = &mut self.stored[pfn.0 as usize][2];
        if *packed & ELSEWHERE != 0 {
            return self.drop_map_elsewhere(pfn);
        }
        let any = *packed & COUNT << COUNT_BITS != 0;
        *packed -= u32::from(any) << COUNT_BITS;
        any
    }

    #[cold]
    #[inline(never)]
    fn drop_map_elsewhere(&mut self, pfn: Pfn) -> bool {
        let mut own = self.own(pfn);
        let any = own.maps > 0;
        own.maps -= u32::from(any);
        self.put_own(pfn, own);
        if any && own.flags.has(FrameFlags::LARGE) {
            self.count_page_maps(self.folio(pfn).0, -1);
            self.note_unmapped(pfn);
        }
        any
    }

    #[cold]
    #[inline(never)]
    fn count_beside(&mut self, pfn: Pfn, change: fn(&mut Frame)) -> u32 {
        self.update(pfn, change).refs
    }

    /// Stores the frame.
    #[inline(always)]
    pub fn put(&mut self, pfn: Pfn, frame: Frame) {
        let packed = &mut self.stored[pfn.0 as usize];
        if packed[2] & ELSEWHERE == 0 && frame.fits() {
            *packed = frame.pack();
        } else {
            self.put_elsewhere(pfn, frame);
        }
    }

    #[cold]
    #[inline(never)]
    fn put_elsewhere(&mut self, pfn: Pfn, frame: Frame) {
        if self.own(pfn).flags.has(FrameFlags::LARGE) {
            self.put_in_folio(pfn, frame);
        } else {
            self.put_own(pfn, frame);
        }
    }

    /// Stores the part that is the frame's own.
    pub(super) fn put_own(&mut self, pfn: Pfn, frame: Frame) {
        let packed = &mut self.stored[pfn.0 as usize];
        if frame.fits() && packed[2] & BESIDE == 0 {
            *packed = frame.pack();
        } else {
            self.put_beside(pfn, frame);
        }
    }

    /// Makes sure that memory is reserved for `frames` more frames than those in use. False if
    /// there is no memory.
    pub(super) fn reserve(&mut self, frames: u32, room: &Room) -> bool {
        let end = self.stored.len() as u64 + u64::from(frames);
        end <= u64::from(self.granted) + 1 || self.grant(frames, room)
    }

    /// Adds `frames` frames side by side, beginning at a multiple of their number, and returns the
    /// first. The frames that are passed over become free.
    pub(super) fn grow(&mut self, frames: u32, room: &Room) -> Option<Pfn> {
        let end = self.stored.len() as u64;
        let first = end.next_multiple_of(u64::from(frames));
        if !self.reserve((first - end) as u32 + frames, room) {
            return None;
        }
        self.free.extend((end..first).rev().map(|pfn| Pfn(pfn as u32)));
        self.stored.resize((first + u64::from(frames)) as usize, [0; 3]);
        Some(Pfn(first as u32))
    }

    #[cold]
    #[inline(never)]
    fn put_beside(&mut self, pfn: Pfn, frame: Frame) {
        let packed = if frame.fits() {
            self.beside.remove(&pfn);
            frame.pack()
        } else {
            self.beside.insert(pfn, (frame.refs, frame.maps));
            let [low, high, flags] = Frame { refs: 0, maps: 0, ..frame }.pack();
            [low, high, flags | BESIDE]
        };
        self.stored[pfn.0 as usize] = packed;
    }

    /// Changes the frame and returns its new state.
    #[inline(always)]
    pub fn update(&mut self, pfn: Pfn, change: impl FnOnce(&mut Frame)) -> Frame {
        let mut frame = self.get(pfn);
        change(&mut frame);
        self.put(pfn, frame);
        frame
    }

    /// All allocated frames.
    pub fn iter(&self) -> impl Iterator<Item = (Pfn, Frame)> + '_ {
        (1..self.stored.len() as u32)
            .map(|pfn| (Pfn(pfn), self.get(Pfn(pfn))))
            .filter(|(_, frame)| frame.flags.has(FrameFlags::ALLOCATED))
    }
}

#[cfg(test)]
mod tests {
    use super::super::nodes::Nodes;
    use super::*;
    use std::sync::Arc;

    fn of_limit(frames: u32) -> Frames {
        Frames::new(&Arc::new(Nodes::one(frames)))
    }

    #[test]
    fn packing_keeps_everything() {
        let mut flags = FrameFlags::LRU.and(FrameFlags::CLAIMED);
        flags.set(FrameFlags::LRU, false);
        let (object, index) = (ObjectId(900), (1 << 36) - 1);
        let frame = Frame { refs: 511, maps: 256, flags, object, index };
        assert_eq!(Frame::unpack(frame.pack()), frame);
        let all = FrameFlags((FrameFlags::BUFFER_DIRTY.0 << 1) - 1);
        assert_eq!(
            Frame { flags: all, ..frame }.pack()[2] & BESIDE,
            0,
            "the flags leave that bit free"
        );
    }

    #[test]
    fn counts_have_no_bounds() {
        let mut frames = of_limit(2);
        let frame = frames.allocate(FrameFlags::LRU, &Room::UNBOUNDED).unwrap();
        let other = frames.allocate(FrameFlags::default(), &Room::UNBOUNDED).unwrap();
        let before = frames.clone();
        for count in 1..3000 {
            assert_eq!(frames.update(frame, |f| (f.refs, f.maps) = (count, count / 2)).refs, count);
            let f = frames.get(frame);
            assert_eq!((f.refs, f.maps, f.flags.has(FrameFlags::LRU)), (count, count / 2, true));
        }
        frames.update(frame, |f| (f.refs, f.maps) = (2000, 1));
        assert_eq!((frames.get(frame).maps, frames.get(other).refs), (1, 1));
        let dropped = |frames: &mut Frames| (frames.drop_map(frame), frames.get(frame).maps);
        assert_eq!([dropped(&mut frames), dropped(&mut frames)], [(true, 0), (false, 0)]);
        frames.update(frame, |f| (f.refs, f.maps) = (7, 2));
        assert_eq!([dropped(&mut frames), dropped(&mut frames)], [(true, 1), (true, 0)]);
        assert_eq!((dropped(&mut frames), frames.get(frame).refs), ((false, 0), 7));
        frames.update(frame, |f| (f.refs, f.maps) = (1, 0));
        assert_eq!(frames, before);
    }

    #[test]
    fn frames_run_out_and_come_back() {
        let mut frames = of_limit(2);
        let first = frames.allocate(FrameFlags::default(), &Room::UNBOUNDED).unwrap();
        assert!(frames.allocate(FrameFlags::default(), &Room::UNBOUNDED).is_some());
        assert_eq!(frames.allocate(FrameFlags::default(), &Room::UNBOUNDED), None);
        frames.release(first);
        assert_eq!(frames.allocate(FrameFlags::LRU, &Room::UNBOUNDED), Some(first));
        assert_eq!(frames.allocated(), 2);
    }
}

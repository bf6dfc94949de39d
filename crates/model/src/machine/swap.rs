//! Swap space on a synchronous device, and its swap cache.

use super::room::Room;
use crate::addr::Pfn;
use std::hash::{Hash, Hasher};

/// One swap slot.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Slot {
    /// The number of swap PTEs that name the slot.
    pub count: u32,
    /// The frame in the swap cache, if any.
    pub cached: Option<Pfn>,
    /// Whether the page contained only zeros when it was written.
    pub zero_filled: bool,
    /// Whether the page was only marked as zeros instead of written (`zeromap`, 6.12 and later).
    pub marked: bool,
}

/// An upper bound on the bytes that a slot takes besides its stored form: on the list of free
/// slots, in shared memory's objects, and where counts are checked.
const SLOT_BESIDE: u64 = 48;

/// The swap device. Without slots there is none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Swap {
    slots: Vec<Slot>,
    free: Vec<u32>,
    cached: SwapCache,
    size: u32,
}

/// For each frame in the swap cache, its slot plus one; 0 for other frames.
#[derive(Clone, Debug, Default)]
struct SwapCache(Vec<u32>);

impl SwapCache {
    /// The frames in the swap cache, each with its slot.
    fn entries(&self) -> impl Iterator<Item = (usize, u32)> + '_ {
        self.0.iter().enumerate().filter_map(|(pfn, slot)| Some((pfn, slot.checked_sub(1)?)))
    }

    #[inline]
    fn slot_of(&self, frame: Pfn) -> Option<u32> {
        self.0.get(frame.0 as usize)?.checked_sub(1)
    }

    fn insert(&mut self, frame: Pfn, slot: u32) {
        let index = frame.0 as usize;
        if index >= self.0.len() {
            self.0.resize(index + 1, 0);
        }
        self.0[index] = slot + 1;
    }

    fn remove(&mut self, frame: Pfn) -> Option<u32> {
        std::mem::take(self.0.get_mut(frame.0 as usize)?).checked_sub(1)
    }
}

// Two caches with equal entries are equal, whatever frames they contained before.
impl PartialEq for SwapCache {
    fn eq(&self, other: &SwapCache) -> bool {
        self.entries().eq(other.entries())
    }
}

impl Eq for SwapCache {}

impl Hash for SwapCache {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.entries().count().hash(state);
        self.entries().for_each(|entry| entry.hash(state));
    }
}

impl Swap {
    /// A device of `size` pages. The first page is the header.
    pub fn new(size: u32) -> Swap {
        Swap { size: size.saturating_sub(1), ..Swap::default() }
    }

    /// Allocates a slot for `frame`, which enters the swap cache. `None` if there is no device, it
    /// is full, or there is no memory for another slot.
    pub fn allocate(&mut self, frame: Pfn, room: &Room) -> Option<u32> {
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None if (self.slots.len() as u32) < self.size => {
                room.make(&mut self.slots, 1)?;
                room.take(SLOT_BESIDE).then_some(())?;
                self.slots.push(Slot::default());
                self.slots.len() as u32 - 1
            }
            None => return None,
        };
        self.slots[slot as usize] = Slot { cached: Some(frame), ..Slot::default() };
        self.cached.insert(frame, slot);
        Some(slot)
    }

    /// The number of free slots.
    pub fn left(&self) -> u32 {
        self.size - self.used() as u32
    }

    /// The slot.
    pub fn get(&self, slot: u32) -> Slot {
        self.slots[slot as usize]
    }

    /// Adds `change` to the number of swap PTEs that name the slot.
    pub fn count(&mut self, slot: u32, change: i32) {
        let entry = &mut self.slots[slot as usize];
        entry.count = entry.count.saturating_add_signed(change);
        self.release_if_unused(slot);
    }

    /// Records that `frame` was read from the slot and is in the swap cache.
    pub fn cache(&mut self, slot: u32, frame: Pfn) {
        self.slots[slot as usize].cached = Some(frame);
        self.cached.insert(frame, slot);
    }

    /// Records that the slot now has the contents of the cached frame, because the frame was
    /// written or marked as zeros.
    pub fn written(&mut self, slot: u32, zero_filled: bool, marked: bool) {
        let slot = &mut self.slots[slot as usize];
        (slot.zero_filled, slot.marked) = (zero_filled, marked);
    }

    /// The slot whose frame in the swap cache is `frame`.
    pub fn slot_of(&self, frame: Pfn) -> Option<u32> {
        self.cached.slot_of(frame)
    }

    /// Removes `frame` from the swap cache.
    pub fn uncache(&mut self, frame: Pfn) {
        if let Some(slot) = self.cached.remove(frame) {
            self.slots[slot as usize].cached = None;
            self.release_if_unused(slot);
        }
    }

    fn release_if_unused(&mut self, slot: u32) {
        let entry = &self.slots[slot as usize];
        if entry.count == 0 && entry.cached.is_none() {
            self.free.push(slot);
        }
    }

    /// The first contradiction of a slot, if there is one. `named` has the number of swap PTEs that
    /// name each slot.
    pub(super) fn contradiction(&self, named: &[u32]) -> Option<String> {
        let mut free = vec![0; self.slots.len()];
        self.free.iter().for_each(|slot| free[*slot as usize] += 1);
        (0u32..).zip(&self.slots).zip(free).find_map(|((slot, entry), free)| {
            let names = named[slot as usize];
            if entry.count != names {
                return Some(format!("swap slot {slot} counts {} PTEs of {names}", entry.count));
            }
            if entry.cached.is_some_and(|frame| self.slot_of(frame) != Some(slot)) {
                return Some(format!("swap slot {slot} and its folio do not agree"));
            }
            let unused = entry.count == 0 && entry.cached.is_none();
            (free != u32::from(unused))
                .then(|| format!("swap slot {slot} is free {free} times, unused: {unused}"))
        })
    }

    /// The number of slots that were ever in use.
    pub(super) fn slots(&self) -> usize {
        self.slots.len()
    }

    /// The number of slots in use.
    pub fn used(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}

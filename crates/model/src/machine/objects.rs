//! What memory is of: objects.
//!
//! A frame names its object and its index there. The object knows which address spaces map it, and their
//! mappings say at which page ([`super::mm::Mm::pages_of`]): so a walk from a frame looks at the address
//! spaces that may map it and at no other ([`crate::kernel::rmap`]). A file is an object, and so is shared memory, which
//! kernels take for a file in memory: it has pages whether or not they are mapped. Anonymous memory is an `anon_vma`'s. A fork
//! gives each of the child's mappings an object of its own, below that of the parent's: pages of the upper one may be
//! mapped by both.

use crate::addr::{MmId, ObjectId, Pfn};
use smallvec::SmallVec;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// An object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Object {
    /// The address spaces that map it or one below it, in the order in which they began to; none: the number is
    /// free.
    mapped_by: SmallVec<[MmId; 2]>,
    /// The one that it was forked from.
    above: Option<ObjectId>,
    /// What of a file it is; then it has pages of its own (the page cache), each with one reference.
    file: Option<FileKind>,
    pages: BTreeMap<u64, Pfn>,
    /// Pages of memory that are in swap, with their slots, each of which counts one for it.
    swapped: BTreeMap<u64, u32>,
    /// Pages of a disk that reclaim took, and that nobody has asked for since (shadow entries).
    evicted: BTreeSet<u64>,
    /// Pages of a file of which its disk has something else than zeros.
    on_disk: BTreeSet<u64>,
    /// How many pages a file has (`i_size`); of other objects nobody asks.
    size: u64,
}

/// How long a file lasts.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
enum FileKind {
    /// One of the scenario's, which is there whether or not it is mapped.
    Named,
    /// Shared memory: it goes with its last mapping.
    SharedMemory,
}

/// All objects; number 0 is none.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Objects {
    stored: Vec<Object>,
    free: Vec<ObjectId>,
}

impl Default for Objects {
    fn default() -> Objects {
        Objects { stored: vec![Object::default()], free: Vec::new() }
    }
}

impl Objects {
    /// An object that `mm` maps, below `above`; `None` if there are too many.
    pub fn create(&mut self, mm: MmId, above: Option<ObjectId>) -> Option<ObjectId> {
        let id = match self.free.pop() {
            Some(id) => id,
            None => {
                let id = ObjectId(u16::try_from(self.stored.len()).ok()?);
                self.stored.push(Object::default());
                id
            }
        };
        self.stored[id.index()].above = above;
        for object in self.chain(id) {
            let mapped_by = &mut self.stored[object.index()].mapped_by;
            if !mapped_by.contains(&mm) {
                mapped_by.push(mm);
            }
        }
        Some(id)
    }

    /// Shared memory that `mm` maps; `None` if there are too many objects.
    pub fn create_shared(&mut self, mm: MmId) -> Option<ObjectId> {
        let id = self.create(mm, None)?;
        (self.stored[id.index()].file, self.stored[id.index()].size) =
            (Some(FileKind::SharedMemory), u64::MAX);
        Some(id)
    }

    /// The next file of the scenario, of so many pages, before there is anything else; `None` if there are too many objects.
    pub fn create_file(&mut self, size: u64) -> Option<ObjectId> {
        let id = ObjectId(u16::try_from(self.stored.len()).ok()?);
        self.stored.push(Object { file: Some(FileKind::Named), size, ..Object::default() });
        Some(id)
    }

    /// The scenario's file of that number, counted from 0, if there is one.
    pub fn file(&self, number: u16) -> Option<ObjectId> {
        let id = ObjectId(number.checked_add(1)?);
        let object = self.stored.get(id.index())?;
        (object.file == Some(FileKind::Named)).then_some(id)
    }

    /// `mm` maps it as well.
    pub fn link(&mut self, object: ObjectId, mm: MmId) {
        let mapped_by = &mut self.stored[object.index()].mapped_by;
        if !mapped_by.contains(&mm) {
            mapped_by.push(mm);
        }
    }

    /// `mm` maps it as well, and comes right after `before`, which it was forked from (mm/interval_tree.c:
    /// vma_interval_tree_insert_after).
    pub fn link_after(&mut self, object: ObjectId, mm: MmId, before: MmId) {
        let mapped_by = &mut self.stored[object.index()].mapped_by;
        if !mapped_by.contains(&mm) {
            let at = mapped_by.iter().position(|other| *other == before);
            mapped_by.insert(at.map_or(mapped_by.len(), |at| at + 1), mm);
        }
    }

    /// Whether it is a file, or shared memory, so that its pages are in the page cache.
    pub fn is_file(&self, object: ObjectId) -> bool {
        self.stored[object.index()].file.is_some()
    }

    /// How many pages it has, if it is a file: no access goes beyond.
    #[inline]
    pub fn size(&self, object: ObjectId) -> u64 {
        self.stored[object.index()].size
    }

    /// The file has so many pages from now on; how many it had.
    pub fn set_size(&mut self, object: ObjectId, pages: u64) -> u64 {
        std::mem::replace(&mut self.stored[object.index()].size, pages)
    }

    /// Its page of that index.
    pub fn page(&self, object: ObjectId, index: u64) -> Option<Pfn> {
        self.stored[object.index()].pages.get(&index).copied()
    }

    /// Gives it a page; the one that was there.
    pub fn set_page(&mut self, object: ObjectId, index: u64, frame: Pfn) -> Option<Pfn> {
        let object = &mut self.stored[object.index()];
        object.evicted.remove(&index);
        object.pages.insert(index, frame)
    }

    /// Whether it has a page of that index, in memory or in swap.
    pub fn has(&self, object: ObjectId, index: u64) -> bool {
        self.page(object, index).is_some() || self.slot(object, index).is_some()
    }

    /// The swap slot that has its page of that index.
    #[inline]
    pub fn slot(&self, object: ObjectId, index: u64) -> Option<u32> {
        self.stored[object.index()].swapped.get(&index).copied()
    }

    /// Its page of that index is in this slot from now on, or in none; the slot that it was in.
    pub fn set_slot(&mut self, object: ObjectId, index: u64, slot: Option<u32>) -> Option<u32> {
        let swapped = &mut self.stored[object.index()].swapped;
        match slot {
            Some(slot) => swapped.insert(index, slot),
            None => swapped.remove(&index),
        }
    }

    /// The slots that have pages of it.
    pub fn slots_of(&self, object: ObjectId) -> Vec<u32> {
        self.stored[object.index()].swapped.values().copied().collect()
    }

    /// The slots that have pages of files and of shared memory.
    pub fn slots(&self) -> impl Iterator<Item = u32> + '_ {
        self.stored.iter().flat_map(|object| object.swapped.values().copied())
    }

    /// Reclaim took the page of that index.
    pub fn evict(&mut self, object: ObjectId, index: u64) {
        self.stored[object.index()].evicted.insert(index);
    }

    /// Whether reclaim took it.
    pub fn was_evicted(&self, object: ObjectId, index: u64) -> bool {
        self.stored[object.index()].evicted.contains(&index)
    }

    /// That is forgotten for these pages.
    pub fn forget_evicted(&mut self, object: ObjectId, pages: Range<u64>) {
        self.stored[object.index()].evicted.retain(|index| !pages.contains(index));
    }

    /// Whether its disk has something else than zeros there.
    pub fn is_on_disk(&self, object: ObjectId, index: u64) -> bool {
        self.stored[object.index()].on_disk.contains(&index)
    }

    /// That is so from now on, or not.
    pub fn set_on_disk(&mut self, object: ObjectId, index: u64, there: bool) {
        let on_disk = &mut self.stored[object.index()].on_disk;
        _ = if there { on_disk.insert(index) } else { on_disk.remove(&index) };
    }

    /// Takes a page from it.
    pub fn remove_page(&mut self, object: ObjectId, index: u64) {
        self.stored[object.index()].pages.remove(&index);
    }

    /// The pages that files and shared memory have.
    pub fn pages(&self) -> impl Iterator<Item = Pfn> + '_ {
        self.stored.iter().flat_map(|object| object.pages.values().copied())
    }

    /// The address spaces that map it, or one below it.
    #[inline]
    pub fn mapped_by(&self, object: ObjectId) -> &[MmId] {
        &self.stored[object.index()].mapped_by
    }

    /// The object and those above it, upwards.
    pub fn chain(&self, object: ObjectId) -> SmallVec<[ObjectId; 4]> {
        std::iter::once(object).chain(self.upwards(object)).collect()
    }

    /// Those above it, upwards.
    #[inline]
    fn upwards(&self, object: ObjectId) -> impl Iterator<Item = ObjectId> + '_ {
        let above = |id: ObjectId| self.stored[id.index()].above;
        std::iter::successors(above(object), move |id| above(*id))
    }

    /// Whether pages of `object` may be in mappings of `own`: it is the same, or above it.
    #[inline]
    pub fn may_have(&self, own: ObjectId, object: ObjectId) -> bool {
        own == object || self.is_above(object, own)
    }

    #[cold]
    fn is_above(&self, object: ObjectId, own: ObjectId) -> bool {
        self.upwards(own).any(|above| above == object)
    }

    /// The uppermost one, whose lock is that of all below it (`anon_vma->root`).
    #[inline]
    pub fn root(&self, object: ObjectId) -> ObjectId {
        self.upwards(object).last().unwrap_or(object)
    }

    /// `mm` has no mapping of it or below it left; without any, it is gone, unless it is a file that has a name. Returns the
    /// pages that were its own then.
    pub fn unlink(&mut self, object: ObjectId, mm: MmId) -> Vec<Pfn> {
        let mapped_by = &mut self.stored[object.index()].mapped_by;
        let before = mapped_by.len();
        mapped_by.retain(|other| *other != mm);
        let left = !mapped_by.is_empty();
        if before == 0 || left || self.stored[object.index()].file == Some(FileKind::Named) {
            return Vec::new();
        }
        self.free.push(object);
        let gone = std::mem::take(&mut self.stored[object.index()]);
        gone.pages.into_values().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn create(objects: &mut Objects, mm: u16) -> ObjectId {
        objects.create(MmId(mm), None).unwrap()
    }

    /// Walks from the parent's pages come to the child as long as it has mappings.
    #[test]
    fn a_forked_object_is_below_its_parents() {
        let mut objects = Objects::default();
        let upper = create(&mut objects, 1);
        let lower = objects.create(MmId(2), Some(upper)).unwrap();
        let lowest = objects.create(MmId(3), Some(lower)).unwrap();
        assert_eq!(objects.mapped_by(upper), [MmId(1), MmId(2), MmId(3)]);
        assert_eq!(objects.mapped_by(lower), [MmId(2), MmId(3)]);
        assert!(objects.may_have(lowest, upper) && !objects.may_have(upper, lowest));
        assert_eq!((objects.root(lowest), objects.chain(lowest)[..].len()), (upper, 3));
        objects.unlink(upper, MmId(1));
        assert_eq!(objects.mapped_by(upper), [MmId(2), MmId(3)]);
    }

    #[test]
    fn numbers_come_back_when_nobody_maps_them() {
        let mut objects = Objects::default();
        let (first, second) = (create(&mut objects, 1), create(&mut objects, 2));
        assert_eq!(objects.mapped_by(second), [MmId(2)]);
        assert!(objects.mapped_by(ObjectId::default()).is_empty());
        objects.unlink(first, MmId(2));
        assert_eq!(objects.mapped_by(first), [MmId(1)]);
        objects.unlink(first, MmId(1));
        objects.unlink(first, MmId(1));
        assert_eq!(create(&mut objects, 3), first);
        assert_eq!(create(&mut objects, 3), ObjectId(3));
    }

    #[test]
    fn shared_memory_has_pages_until_nobody_maps_it() {
        let mut objects = Objects::default();
        let shared = objects.create_shared(MmId(1)).unwrap();
        assert!(objects.is_file(shared) && objects.page(shared, 7).is_none());
        assert_eq!(objects.set_page(shared, 7, Pfn(3)), None);
        objects.link(shared, MmId(2));
        objects.link(shared, MmId(2));
        assert_eq!(objects.mapped_by(shared), [MmId(1), MmId(2)]);
        objects.link_after(shared, MmId(3), MmId(1));
        objects.link_after(shared, MmId(3), MmId(2));
        assert_eq!(objects.mapped_by(shared), [MmId(1), MmId(3), MmId(2)]);
        assert!(objects.unlink(shared, MmId(3)).is_empty());
        assert!(objects.unlink(shared, MmId(1)).is_empty());
        assert_eq!((objects.page(shared, 7), objects.pages().count()), (Some(Pfn(3)), 1));
        assert_eq!(objects.unlink(shared, MmId(2)), [Pfn(3)]);
        let again = create(&mut objects, 1);
        assert!(again == shared && !objects.is_file(again) && objects.page(again, 7).is_none());
    }

    #[test]
    fn a_file_stays_when_nobody_maps_it() {
        let mut objects = Objects::default();
        let file = objects.create_file(4).unwrap();
        assert_eq!((objects.file(0), objects.file(1)), (Some(file), None));
        objects.link(file, MmId(1));
        assert_eq!(objects.set_page(file, 2, Pfn(9)), None);
        assert!(objects.unlink(file, MmId(1)).is_empty() && objects.mapped_by(file).is_empty());
        assert_eq!(objects.page(file, 2), Some(Pfn(9)));
        assert_ne!(create(&mut objects, 1), file);
        assert_eq!(objects.file(1), None, "that is no file");
    }

    #[test]
    fn numbers_run_out() {
        let mut objects = Objects::default();
        let made = std::iter::from_fn(|| objects.create(MmId(1), None)).count();
        assert_eq!(made, usize::from(u16::MAX));
    }
}

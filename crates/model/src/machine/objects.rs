//! Objects: what the pages of memory belong to.
//!
//! A frame names its object and its index there. The object knows which address spaces map it, and
//! their mappings know at which page ([`super::mm::Mm::pages_of`]). So a walk from a frame looks
//! only at address spaces that may map it ([`crate::kernel::rmap`]). A file is an object. Shared
//! memory is one as well, because kernels treat it as a file in memory. Both have pages whether or
//! not these are mapped. Anonymous memory belongs to an `anon_vma`. A fork gives each of the
//! child's mappings a new object below the object of the parent's mapping. Both processes may map
//! pages of the upper object.

use crate::addr::{MmId, ObjectId, Pfn};
use smallvec::SmallVec;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// An object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Object {
    /// The address spaces that map it or an object below it, in the order in which they began to.
    /// If there are none, the number is free.
    mapped_by: SmallVec<[MmId; 2]>,
    /// The object that it was forked from.
    above: Option<ObjectId>,
    /// The kind of file, if it is one. A file has pages of its own (the page cache), with one
    /// reference to each.
    file: Option<FileKind>,
    pages: BTreeMap<u64, Pfn>,
    /// The swap slots of pages that are in swap. Each counts as one reference to its slot.
    swapped: BTreeMap<u64, u32>,
    /// Pages of a file on a disk that reclaim took and that were not accessed since (shadow
    /// entries).
    evicted: BTreeSet<u64>,
    /// Pages whose contents on the disk are not only zeros.
    on_disk: BTreeSet<u64>,
    /// The number of pages of a file (`i_size`). It is not used for other objects.
    size: u64,
}

/// Kinds of files, by how long they exist.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
enum FileKind {
    /// A file of the scenario, which exists whether or not it is mapped.
    Named,
    /// Shared memory, which ends with its last mapping.
    SharedMemory,
}

/// All objects. Number 0 means no object.
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
    /// Creates an object that `mm` maps, below `above`; `None` if there are too many objects.
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

    /// Creates shared memory that `mm` maps; `None` if there are too many objects.
    pub fn create_shared(&mut self, mm: MmId) -> Option<ObjectId> {
        let id = self.create(mm, None)?;
        (self.stored[id.index()].file, self.stored[id.index()].size) =
            (Some(FileKind::SharedMemory), u64::MAX);
        Some(id)
    }

    /// Creates the scenario's next file, with `size` pages. Files have to come before all other
    /// objects. `None` if there are too many objects.
    pub fn create_file(&mut self, size: u64) -> Option<ObjectId> {
        let id = ObjectId(u16::try_from(self.stored.len()).ok()?);
        self.stored.push(Object { file: Some(FileKind::Named), size, ..Object::default() });
        Some(id)
    }

    /// The scenario's file with this number, from 0, if it exists.
    pub fn file(&self, number: u16) -> Option<ObjectId> {
        let id = ObjectId(number.checked_add(1)?);
        let object = self.stored.get(id.index())?;
        (object.file == Some(FileKind::Named)).then_some(id)
    }

    /// Records that `mm` maps the object, too.
    pub fn link(&mut self, object: ObjectId, mm: MmId) {
        let mapped_by = &mut self.stored[object.index()].mapped_by;
        if !mapped_by.contains(&mm) {
            mapped_by.push(mm);
        }
    }

    /// Records that `mm` maps the object, too, directly after `before`, which it was forked from
    /// (mm/interval_tree.c: vma_interval_tree_insert_after).
    pub fn link_after(&mut self, object: ObjectId, mm: MmId, before: MmId) {
        let mapped_by = &mut self.stored[object.index()].mapped_by;
        if !mapped_by.contains(&mm) {
            let at = mapped_by.iter().position(|other| *other == before);
            mapped_by.insert(at.map_or(mapped_by.len(), |at| at + 1), mm);
        }
    }

    /// Whether it is a file or shared memory, whose pages are in the page cache.
    pub fn is_file(&self, object: ObjectId) -> bool {
        self.stored[object.index()].file.is_some()
    }

    /// The number of its pages, if it is a file. Accesses beyond them fail.
    #[inline]
    pub fn size(&self, object: ObjectId) -> u64 {
        self.stored[object.index()].size
    }

    /// Sets the number of the file's pages, and returns the old number.
    pub fn set_size(&mut self, object: ObjectId, pages: u64) -> u64 {
        std::mem::replace(&mut self.stored[object.index()].size, pages)
    }

    /// The page with that index, if it is in memory.
    pub fn page(&self, object: ObjectId, index: u64) -> Option<Pfn> {
        self.stored[object.index()].pages.get(&index).copied()
    }

    /// Adds a page, and returns the page that had that index before.
    pub fn set_page(&mut self, object: ObjectId, index: u64, frame: Pfn) -> Option<Pfn> {
        let object = &mut self.stored[object.index()];
        object.evicted.remove(&index);
        object.pages.insert(index, frame)
    }

    /// Whether the object has a page with that index, in memory or in swap.
    pub fn has(&self, object: ObjectId, index: u64) -> bool {
        self.page(object, index).is_some() || self.slot(object, index).is_some()
    }

    /// The swap slot of the page with that index, if it is in swap.
    #[inline]
    pub fn slot(&self, object: ObjectId, index: u64) -> Option<u32> {
        self.stored[object.index()].swapped.get(&index).copied()
    }

    /// Sets or clears the swap slot of the page with that index, and returns the slot that it had.
    pub fn set_slot(&mut self, object: ObjectId, index: u64, slot: Option<u32>) -> Option<u32> {
        let swapped = &mut self.stored[object.index()].swapped;
        match slot {
            Some(slot) => swapped.insert(index, slot),
            None => swapped.remove(&index),
        }
    }

    /// The swap slots of the object's pages.
    pub fn slots_of(&self, object: ObjectId) -> Vec<u32> {
        self.stored[object.index()].swapped.values().copied().collect()
    }

    /// The swap slots of the pages of all files and of shared memory.
    pub fn slots(&self) -> impl Iterator<Item = u32> + '_ {
        self.stored.iter().flat_map(|object| object.swapped.values().copied())
    }

    /// Records that reclaim took the page with that index.
    pub fn evict(&mut self, object: ObjectId, index: u64) {
        self.stored[object.index()].evicted.insert(index);
    }

    /// Whether reclaim took the page with that index.
    pub fn was_evicted(&self, object: ObjectId, index: u64) -> bool {
        self.stored[object.index()].evicted.contains(&index)
    }

    /// Forgets that reclaim took these pages.
    pub fn forget_evicted(&mut self, object: ObjectId, pages: Range<u64>) {
        self.stored[object.index()].evicted.retain(|index| !pages.contains(index));
    }

    /// Whether the page's contents on the disk are not only zeros.
    pub fn is_on_disk(&self, object: ObjectId, index: u64) -> bool {
        self.stored[object.index()].on_disk.contains(&index)
    }

    /// Sets whether the page's contents on the disk are not only zeros.
    pub fn set_on_disk(&mut self, object: ObjectId, index: u64, there: bool) {
        let on_disk = &mut self.stored[object.index()].on_disk;
        _ = if there { on_disk.insert(index) } else { on_disk.remove(&index) };
    }

    /// Removes a page from the object.
    pub fn remove_page(&mut self, object: ObjectId, index: u64) {
        self.stored[object.index()].pages.remove(&index);
    }

    /// The pages in memory of all files and of shared memory.
    pub fn pages(&self) -> impl Iterator<Item = Pfn> + '_ {
        self.stored.iter().flat_map(|object| object.pages.values().copied())
    }

    /// The address spaces that map the object or one below it.
    #[inline]
    pub fn mapped_by(&self, object: ObjectId) -> &[MmId] {
        &self.stored[object.index()].mapped_by
    }

    /// The object and all objects above it, upwards.
    pub fn chain(&self, object: ObjectId) -> SmallVec<[ObjectId; 4]> {
        std::iter::once(object).chain(self.upwards(object)).collect()
    }

    /// All objects above it, upwards.
    #[inline]
    fn upwards(&self, object: ObjectId) -> impl Iterator<Item = ObjectId> + '_ {
        let above = |id: ObjectId| self.stored[id.index()].above;
        std::iter::successors(above(object), move |id| above(*id))
    }

    /// Whether mappings of `own` may have pages of `object`: it is `own` or above it.
    #[inline]
    pub fn may_have(&self, own: ObjectId, object: ObjectId) -> bool {
        own == object || self.is_above(object, own)
    }

    #[cold]
    fn is_above(&self, object: ObjectId, own: ObjectId) -> bool {
        self.upwards(own).any(|above| above == object)
    }

    /// The uppermost object, whose lock is that of all objects below it (`anon_vma->root`).
    #[inline]
    pub fn root(&self, object: ObjectId) -> ObjectId {
        self.upwards(object).last().unwrap_or(object)
    }

    /// Records that `mm` has no mapping left of the object or of one below it. After the last
    /// address space the object is removed, unless it is a file of the scenario. Returns the pages
    /// that the removed object had.
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

    /// Walks from the parent's pages reach the child as long as the child has mappings.
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

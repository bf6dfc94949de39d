//! A mapping, and the rules for merging two of them.
//!
//! The extents of mappings decide how often calls that work mapping by mapping flush.

use super::nodes::MemPolicy;
use super::objects::Objects;
use crate::addr::{ObjectId, PageRange, Vpn};
use crate::backing::FileMapping;
use crate::policy::{Policies, SoftDirtyMerge, VmaMerge};
use crate::program::{Prot, ThpMode};
use crate::userfaultfd::Watch;
use std::ops::Range;

/// A mapping (`vm_area_struct`): of anonymous memory, of shared memory or of a file.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct Vma {
    /// The mapping's pages.
    pub range: PageRange,
    /// The mapping's protection.
    pub prot: Prot,
    /// The index of the first page in the mapping's objects. For a file, it is the file's page.
    /// Otherwise it is the page number that the first page had when the mapping was made; `mremap`
    /// keeps it once there are pages.
    pub pgoff: u64,
    /// The object of the mapping's own pages; `None` before the first page.
    pub anon_vma: Option<ObjectId>,
    /// The mapped file (`vm_file`). For shared memory it is made with the mapping.
    pub file: Option<ObjectId>,
    /// Whether stores go to the file (`VM_SHARED`), not to the mapping's own copies.
    pub shared: bool,
    /// Whether the file is on a disk ([`FileSystem::is_written_back`]).
    pub on_disk: bool,
    /// Whether it counts as committed memory (`VM_ACCOUNT`).
    pub charged: bool,
    /// The advice about huge pages.
    pub huge: HugeAdvice,
    /// The memory policy, which decides the nodes of its pages.
    pub mempolicy: MemPolicy,
    /// Whether its pages are locked in memory.
    pub locking: Locking,
    /// The accesses that userfaultfd watches.
    pub uffd: Watch,
    /// Whether a fork made the mapping and it had pages, so that some may belong to an object above
    /// its own. Such a mapping shares its `anon_vma` with no adjacent mapping.
    pub forked: bool,
    /// Whether all pages count as stored to since soft-dirty bits were last cleared, because the
    /// mapping is newer (`VM_SOFTDIRTY`). It does not prevent merging.
    pub soft_dirty: bool,
    /// Whether the mapping may contain guards (`VM_MAYBE_GUARD`). It does not prevent merging
    /// (`VM_STICKY`).
    pub maybe_guard: bool,
    /// The order of the mapping among those of its file that begin with the same page, as walks
    /// visit them. 0: it maps no file, or is not linked yet
    /// ([`World::link_mappings`](super::world::World::link_mappings)).
    pub turn: u32,
}

/// The rules for merging mappings.
#[derive(Copy, Clone, Debug)]
pub struct MergeRule {
    /// Whether it matters which of the two mappings has pages.
    pub anon_vma: VmaMerge,
    /// Whether the merged mapping counts as newer than the last clearing of soft-dirty bits.
    pub soft_dirty: SoftDirtyMerge,
    /// Whether a part that begins inside its mapping merges with the mapping behind it.
    pub inner: bool,
}

impl From<&Policies> for MergeRule {
    fn from(policies: &Policies) -> MergeRule {
        MergeRule {
            anon_vma: policies.vma_merge,
            soft_dirty: policies.soft_dirty_merge,
            inner: true,
        }
    }
}

/// The advice about huge pages that `madvise` gave.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum HugeAdvice {
    /// No advice was given.
    #[default]
    None,
    /// Huge pages are wanted (`VM_HUGEPAGE`).
    Wanted,
    /// Huge pages are not wanted (`VM_NOHUGEPAGE`).
    Unwanted,
}

/// Whether pages are locked in memory.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Locking {
    /// They are not locked.
    #[default]
    None,
    /// Each page is, once it is there (`VM_LOCKED | VM_LOCKONFAULT`).
    OnFault,
    /// All pages are (`VM_LOCKED`).
    All,
}

impl Vma {
    /// A new mapping (mm/mmap.c:mmap_region).
    pub const fn new(range: PageRange, prot: Prot) -> Vma {
        let charged = matches!(prot, Prot::ReadWrite);
        let (anon_vma, file, pgoff) = (None, None, range.start.0);
        let (shared, on_disk, forked, maybe_guard, soft_dirty) = (false, false, false, false, true);
        let (huge, locking, turn) = (HugeAdvice::None, Locking::None, 0);
        let (uffd, mempolicy) = (Watch::NONE, MemPolicy::Default);
        #[rustfmt::skip]
        let vma = Vma { range, prot, pgoff, anon_vma, file, shared, on_disk, charged, huge, mempolicy, locking, uffd, forked, soft_dirty, maybe_guard, turn };
        vma
    }

    /// A new mapping of shared memory (mm/shmem.c:shmem_zero_setup). The shared memory is charged,
    /// not the mapping.
    pub const fn shared(range: PageRange, prot: Prot, object: ObjectId) -> Vma {
        Vma { file: Some(object), shared: true, charged: false, ..Vma::new(range, prot) }
    }

    /// A new mapping of a file from page `first` on. A private mapping is charged like anonymous
    /// memory, because all of it may be copied (mm/mmap.c:accountable_mapping, 5.10 to 7.3).
    pub const fn of_file(
        range: PageRange,
        prot: Prot,
        object: ObjectId,
        mapping: FileMapping,
    ) -> Vma {
        let FileMapping { first, shared, fs, .. } = mapping;
        let private = Vma::new(range, prot);
        let (charged, on_disk) = (private.charged && !shared, fs.is_written_back());
        Vma { file: Some(object), shared, on_disk, pgoff: first, charged, ..private }
    }

    /// Whether faults may map huge pages in the mapping, given the machine's mode.
    ///
    /// Source: include/linux/huge_mm.h:transparent_hugepage_enabled (5.10),
    /// mm/huge_memory.c:hugepage_vma_check (6.1), thp_vma_allowable_order (6.12, 7.3), for private
    /// anonymous memory. Files and shared memory have separate settings, which are off.
    pub const fn may_be_huge(&self, mode: ThpMode) -> bool {
        let wanted = match mode {
            ThpMode::Always => !matches!(self.huge, HugeAdvice::Unwanted),
            ThpMode::Madvise => matches!(self.huge, HugeAdvice::Wanted),
            ThpMode::Never => false,
        };
        wanted && self.file.is_none()
    }

    /// Whether it is private memory without a file (`vma_is_anonymous`).
    pub const fn is_anonymous(&self) -> bool {
        self.file.is_none()
    }

    /// Whether pages in the mapping stay in memory (`VM_LOCKED`).
    pub const fn is_locked(&self) -> bool {
        !matches!(self.locking, Locking::None)
    }

    /// Whether userfaultfd has to be asked before a store to a page whose entry has this bit
    /// (`userfaultfd_pte_wp`).
    pub const fn protects(&self, uffd_wp: bool) -> bool {
        self.uffd.write_protect && uffd_wp
    }

    /// The file that stores go to; `None` if they go to private memory.
    pub fn shared_file(&self) -> Option<ObjectId> {
        self.file.filter(|_| self.shared)
    }

    /// Whether the first store to a clean page has to fault, so that it is noticed. The mapping's
    /// protection (`vm_page_prot`) then allows no stores.
    ///
    /// Source: mm/mmap.c:vma_wants_writenotify (5.10 to 6.12), mm/vma.c (7.2).
    pub const fn wants_writenotify(&self) -> bool {
        self.shared && (self.on_disk || !self.soft_dirty || self.uffd.write_protect)
    }

    /// Whether the file system is notified of the first store to a clean page (`page_mkwrite`).
    pub const fn tells_file_system(&self) -> bool {
        self.shared && self.on_disk
    }

    /// Whether a store to a page whose entry has this soft-dirty bit has to fault, so that the bit
    /// is set.
    ///
    /// Source: mm/internal.h:vma_soft_dirty_enabled, pte_needs_soft_dirty_wp (6.1 to 7.2).
    pub const fn notes_store(&self, soft_dirty: bool) -> bool {
        !self.soft_dirty && !soft_dirty
    }

    /// The objects that pages in the mapping may belong to.
    pub fn objects(&self) -> impl Iterator<Item = ObjectId> + use<> {
        self.file.into_iter().chain(self.anon_vma)
    }

    /// The part of the mapping inside `range`. If its extent changes, it loses its turn among the
    /// file's mappings.
    pub fn cut(&self, range: PageRange) -> Vma {
        let part = self.range.intersect(range);
        let turn = if part == self.range { self.turn } else { 0 };
        Vma { range: part, pgoff: self.pgoff + (part.start.0 - self.range.start.0), turn, ..*self }
    }

    /// The order in which walks visit the mappings of a file: by the first page's index, then by
    /// turn.
    pub const fn order(&self) -> (u64, u32) {
        (self.pgoff, self.turn)
    }

    /// The index in the mapping's object of `page`, which has to be in the mapping.
    pub const fn index(&self, page: Vpn) -> u64 {
        self.pgoff + (page.0 - self.range.start.0)
    }

    /// The object and index that a page of the mapping's own would have at `page`, which has to be
    /// in the mapping.
    #[inline]
    pub fn place(&self, page: Vpn) -> (ObjectId, u64) {
        (self.shared_file().or(self.anon_vma).unwrap_or_default(), self.index(page))
    }

    /// The page of the mapping with that index, if it is in the mapping.
    #[inline]
    pub fn page_of(&self, index: u64) -> Option<Vpn> {
        let page = self.range.start.add(index.checked_sub(self.pgoff)?);
        self.range.contains(page).then_some(page)
    }

    /// The part of the mapping that has the pages with these indices, if there is one.
    pub fn part_of(&self, indices: &Range<u64>) -> Option<PageRange> {
        let first = indices.start.max(self.pgoff);
        let end = indices.end.min(self.pgoff + self.range.pages());
        let at = |index: u64| self.range.start.add(index - self.pgoff);
        (first < end).then(|| PageRange { start: at(first), end: at(end) })
    }

    /// Whether the mapping may have pages of `object`.
    #[inline]
    pub fn may_have(&self, object: ObjectId, objects: &Objects) -> bool {
        self.anon_vma.is_some_and(|own| objects.may_have(own, object)) || self.file == Some(object)
    }

    /// Whether `next` begins where this mapping ends, in memory and in the mapped object.
    fn continues(&self, next: &Vma) -> bool {
        self.range.end == next.range.start && self.pgoff + self.range.pages() == next.pgoff
    }

    /// Whether this mapping, new or changed, can be merged with the adjacent mapping `other`.
    ///
    /// Source: mm/mmap.c:is_mergeable_vma, is_mergeable_anon_vma (5.10, 6.1), mm/vma.c (6.12, 7.3).
    pub(super) fn joins(&self, other: &Vma, rule: MergeRule) -> bool {
        let anon_vmas = match (self.anon_vma, other.anon_vma) {
            (Some(own), Some(others)) => own == others,
            (Some(_), None) => rule.anon_vma == VmaMerge::Any && !self.forked,
            (None, _) => !other.forked,
        };
        (self.continues(other) || other.continues(self))
            && self.prot == other.prot
            && self.is_as(other)
            && self.maps_the_same(other)
            && anon_vmas
    }

    /// Whether both have the same flags, without the protection. (A process has only one
    /// userfaultfd, so both are watched by the same one.)
    fn is_as(&self, other: &Vma) -> bool {
        let flags = |vma: &Vma| (vma.charged, vma.huge, vma.mempolicy, vma.locking, vma.uffd);
        flags(self) == flags(other)
    }

    /// Whether both map the same file, or no file.
    fn maps_the_same(&self, other: &Vma) -> bool {
        (self.file, self.shared) == (other.file, other.shared)
    }

    /// This mapping, new or changed, merged with the adjacent mapping `other`.
    pub(super) fn with(&self, other: &Vma, rule: MergeRule) -> Vma {
        let first = if self.range.start < other.range.start { self } else { other };
        let soft_dirty = match rule.soft_dirty {
            SoftDirtyMerge::Changed => self.soft_dirty,
            SoftDirtyMerge::Either => self.soft_dirty || other.soft_dirty,
        };
        let range = self.range.hull(other.range);
        let (anon_vma, maybe_guard) =
            (self.anon_vma.or(other.anon_vma), self.maybe_guard || other.maybe_guard);
        Vma { range, anon_vma, soft_dirty, maybe_guard, turn: 0, ..*first }
    }

    /// The `anon_vma` that an adjacent mapping may share even if the protections differ, because
    /// the two may be merged later.
    ///
    /// Source: mm/mmap.c:anon_vma_compatible (5.10, 6.1), mm/vma.c (6.12, 7.3).
    pub(super) fn anon_vma_for(&self, beside: &Vma) -> Option<ObjectId> {
        let adjacent = self.continues(beside) || beside.continues(self);
        let alike = self.is_as(beside) && self.maps_the_same(beside);
        self.anon_vma.filter(|_| adjacent && alike && !self.forked)
    }
}

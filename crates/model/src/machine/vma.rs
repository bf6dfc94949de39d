//! A mapping, and when two of them become one.
//!
//! Where mappings begin and end decides how often calls that go mapping by mapping flush.

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
    /// Its pages.
    pub range: PageRange,
    /// Its protection.
    pub prot: Prot,
    /// The index of its first page in its objects: in a file the file's page; else the page number that it had when the
    /// mapping was made, which moves with `mremap` once there are pages.
    pub pgoff: u64,
    /// The object that its own pages are of; `None` before the first.
    pub anon_vma: Option<ObjectId>,
    /// The file that it maps (`vm_file`); that of shared memory was made with the mapping.
    pub file: Option<ObjectId>,
    /// Whether stores go to the file (`VM_SHARED`), not to copies that are the mapping's own.
    pub shared: bool,
    /// Whether the file is on a disk ([`FileSystem::is_written_back`]).
    pub on_disk: bool,
    /// Whether it counts as committed memory (`VM_ACCOUNT`).
    pub charged: bool,
    /// What was said of huge pages in it.
    pub huge: HugeAdvice,
    /// Where its pages are to come from.
    pub mempolicy: MemPolicy,
    /// Whether its pages are locked in memory.
    pub locking: Locking,
    /// What userfaultfd watches in it.
    pub uffd: Watch,
    /// Whether it was made by a fork with pages, so that some of them may be of an object above its own. Such a
    /// mapping shares its `anon_vma` with none beside it.
    pub forked: bool,
    /// Whether all of its pages count as stored to since soft-dirty bits were last cleared, because it is newer than that
    /// (`VM_SOFTDIRTY`). It keeps it apart from none beside it.
    pub soft_dirty: bool,
    /// Whether there may be guards in it (`VM_MAYBE_GUARD`), which keeps it apart from none beside it (`VM_STICKY`).
    pub maybe_guard: bool,
    /// Its turn among the mappings of its file that begin with the same page, by which walks go; 0: of no file, or not yet
    /// among them ([`World::link_mappings`](super::world::World::link_mappings)).
    pub turn: u32,
}

/// By what rules mappings become one.
#[derive(Copy, Clone, Debug)]
pub struct MergeRule {
    /// Whether it matters which of them has pages.
    pub anon_vma: VmaMerge,
    /// As how old they count.
    pub soft_dirty: SoftDirtyMerge,
}

impl From<&Policies> for MergeRule {
    fn from(policies: &Policies) -> MergeRule {
        MergeRule { anon_vma: policies.vma_merge, soft_dirty: policies.soft_dirty_merge }
    }
}

/// What `madvise` said of huge pages.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum HugeAdvice {
    /// Nothing.
    #[default]
    None,
    /// They are wanted (`VM_HUGEPAGE`).
    Wanted,
    /// They are not (`VM_NOHUGEPAGE`).
    Unwanted,
}

/// Whether pages stay in memory.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Locking {
    /// No.
    #[default]
    None,
    /// Once they are there (`VM_LOCKED | VM_LOCKONFAULT`).
    OnFault,
    /// All of them (`VM_LOCKED`).
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

    /// A new mapping of shared memory (mm/shmem.c:shmem_zero_setup): what is shared is charged as a whole.
    pub const fn shared(range: PageRange, prot: Prot, object: ObjectId) -> Vma {
        Vma { file: Some(object), shared: true, charged: false, ..Vma::new(range, prot) }
    }

    /// A new mapping of a file from page `first` on. One that is private is charged like anonymous memory, since all of it
    /// may be copied (mm/mmap.c:accountable_mapping, 5.10 to 7.3).
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

    /// Whether faults may map huge pages in it, as the machine is set up.
    ///
    /// Source: include/linux/huge_mm.h:transparent_hugepage_enabled (5.10), mm/huge_memory.c:hugepage_vma_check (6.1),
    /// thp_vma_allowable_order (6.12, 7.3): anonymous memory of one's own. Files and shared memory have settings of their own,
    /// which are off.
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

    /// Whether pages that are in it stay in memory (`VM_LOCKED`).
    pub const fn is_locked(&self) -> bool {
        !matches!(self.locking, Locking::None)
    }

    /// Whether userfaultfd is asked before a page with this entry is stored to (`userfaultfd_pte_wp`).
    pub const fn protects(&self, uffd_wp: bool) -> bool {
        self.uffd.write_protect && uffd_wp
    }

    /// The file, if stores go there.
    pub fn shared_file(&self) -> Option<ObjectId> {
        self.file.filter(|_| self.shared)
    }

    /// Whether the first store to a clean page has to fault, so that somebody knows of it: the mapping's protection
    /// (`vm_page_prot`) grants no stores then.
    ///
    /// Source: mm/mmap.c:vma_wants_writenotify (5.10 to 6.12), mm/vma.c (7.2).
    pub const fn wants_writenotify(&self) -> bool {
        self.shared && (self.on_disk || !self.soft_dirty || self.uffd.write_protect)
    }

    /// Whether the file system is told of the first store to a clean page (`page_mkwrite`).
    pub const fn tells_file_system(&self) -> bool {
        self.shared && self.on_disk
    }

    /// Whether a store to a page with this entry has to fault, so that its soft-dirty bit is set.
    ///
    /// Source: mm/internal.h:vma_soft_dirty_enabled, pte_needs_soft_dirty_wp (6.1 to 7.2).
    pub const fn notes_store(&self, soft_dirty: bool) -> bool {
        !self.soft_dirty && !soft_dirty
    }

    /// The objects that pages in it may be of.
    pub fn objects(&self) -> impl Iterator<Item = ObjectId> + use<> {
        self.file.into_iter().chain(self.anon_vma)
    }

    /// The part of it inside `range`. What changes its extent leaves its place among the file's mappings.
    pub fn cut(&self, range: PageRange) -> Vma {
        let part = self.range.intersect(range);
        let turn = if part == self.range { self.turn } else { 0 };
        Vma { range: part, pgoff: self.pgoff + (part.start.0 - self.range.start.0), turn, ..*self }
    }

    /// By what walks go through the mappings of a file: the page that it begins with, and then its turn.
    pub const fn order(&self) -> (u64, u32) {
        (self.pgoff, self.turn)
    }

    /// The index of `page`, which is in it, in its object.
    pub const fn index(&self, page: Vpn) -> u64 {
        self.pgoff + (page.0 - self.range.start.0)
    }

    /// The object that a page of its own in place of `page`, which is in it, is of, and its index there.
    #[inline]
    pub fn place(&self, page: Vpn) -> (ObjectId, u64) {
        (self.shared_file().or(self.anon_vma).unwrap_or_default(), self.index(page))
    }

    /// Where it has the page of that index, if it does.
    #[inline]
    pub fn page_of(&self, index: u64) -> Option<Vpn> {
        let page = self.range.start.add(index.checked_sub(self.pgoff)?);
        self.range.contains(page).then_some(page)
    }

    /// Its part that has the pages of these indices, if it has any.
    pub fn part_of(&self, indices: &Range<u64>) -> Option<PageRange> {
        let first = indices.start.max(self.pgoff);
        let end = indices.end.min(self.pgoff + self.range.pages());
        let at = |index: u64| self.range.start.add(index - self.pgoff);
        (first < end).then(|| PageRange { start: at(first), end: at(end) })
    }

    /// Whether pages of `object` may be in it.
    #[inline]
    pub fn may_have(&self, object: ObjectId, objects: &Objects) -> bool {
        self.anon_vma.is_some_and(|own| objects.may_have(own, object)) || self.file == Some(object)
    }

    /// Whether `next` begins where this ends, in memory and in what is mapped.
    fn continues(&self, next: &Vma) -> bool {
        self.range.end == next.range.start && self.pgoff + self.range.pages() == next.pgoff
    }

    /// Whether this mapping, new or changed, can be one with `other` beside it.
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

    /// Whether both have the same flags, protections aside. (A process has one userfaultfd, so that what is watched in both is
    /// watched by the same one.)
    fn is_as(&self, other: &Vma) -> bool {
        let flags = |vma: &Vma| (vma.charged, vma.huge, vma.mempolicy, vma.locking, vma.uffd);
        flags(self) == flags(other)
    }

    /// Whether both map the same file, or none.
    fn maps_the_same(&self, other: &Vma) -> bool {
        (self.file, self.shared) == (other.file, other.shared)
    }

    /// This one, new or changed, and one beside it as one mapping.
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

    /// The `anon_vma` that a mapping beside this one may share, though protections differ: they may
    /// become one later.
    ///
    /// Source: mm/mmap.c:anon_vma_compatible (5.10, 6.1), mm/vma.c (6.12, 7.3).
    pub(super) fn anon_vma_for(&self, beside: &Vma) -> Option<ObjectId> {
        let adjacent = self.continues(beside) || beside.continues(self);
        let alike = self.is_as(beside) && self.maps_the_same(beside);
        self.anon_vma.filter(|_| adjacent && alike && !self.forked)
    }
}

//! A mapping, and when two of them become one.
//!
//! Where mappings begin and end decides how often calls that go mapping by mapping flush.

use super::objects::Objects;
use crate::addr::{ObjectId, PageRange, Vpn};
use crate::policy::VmaMerge;
use crate::program::Prot;

/// A mapping (`vm_area_struct`): private anonymous memory, or shared.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct Vma {
    /// Its pages.
    pub range: PageRange,
    /// Its protection.
    pub prot: Prot,
    /// The index of its first page in its object: the page number that it had when the mapping was made;
    /// it moves with `mremap` once there are pages.
    pub pgoff: u64,
    /// The object that its own pages are of; `None` before the first.
    pub anon_vma: Option<ObjectId>,
    /// The object that it shares with others, if it is shared: a file in memory, which mapping it made.
    pub shared: Option<ObjectId>,
    /// Whether it counts as committed memory (`VM_ACCOUNT`).
    pub charged: bool,
    /// Whether it was made by a fork with pages, so that some of them may be of an object above its own. Such a
    /// mapping shares its `anon_vma` with none beside it.
    pub forked: bool,
}

impl Vma {
    /// A new mapping (mm/mmap.c:mmap_region).
    pub const fn new(range: PageRange, prot: Prot) -> Vma {
        let charged = matches!(prot, Prot::ReadWrite);
        let (anon_vma, shared) = (None, None);
        Vma { range, prot, pgoff: range.start.0, anon_vma, shared, charged, forked: false }
    }

    /// A new mapping of shared memory (mm/shmem.c:shmem_zero_setup): what is shared is charged as a whole.
    pub const fn shared(range: PageRange, prot: Prot, object: ObjectId) -> Vma {
        Vma { shared: Some(object), charged: false, ..Vma::new(range, prot) }
    }

    /// The object that its pages are of, if there are any yet.
    pub fn object(&self) -> Option<ObjectId> {
        self.shared.or(self.anon_vma)
    }

    /// The part of it inside `range`.
    pub fn cut(&self, range: PageRange) -> Vma {
        let part = self.range.intersect(range);
        Vma { range: part, pgoff: self.pgoff + (part.start.0 - self.range.start.0), ..*self }
    }

    /// The index of `page`, which is in it, in its object.
    pub const fn index(&self, page: Vpn) -> u64 {
        self.pgoff + (page.0 - self.range.start.0)
    }

    /// The object that `page`, which is in it, is of, and its index there.
    #[inline]
    pub fn place(&self, page: Vpn) -> (ObjectId, u64) {
        (self.object().unwrap_or_default(), self.index(page))
    }

    /// Where it has the page of that index, if it does.
    #[inline]
    pub fn page_of(&self, index: u64) -> Option<Vpn> {
        let page = self.range.start.add(index.checked_sub(self.pgoff)?);
        self.range.contains(page).then_some(page)
    }

    /// Whether pages of `object` may be in it.
    #[inline]
    pub fn may_have(&self, object: ObjectId, objects: &Objects) -> bool {
        self.object().is_some_and(|own| objects.may_have(own, object))
    }

    /// Whether `next` begins where this ends, in memory and in what is mapped.
    fn continues(&self, next: &Vma) -> bool {
        self.range.end == next.range.start && self.pgoff + self.range.pages() == next.pgoff
    }

    /// Whether this mapping, new or changed, can be one with `other` beside it.
    ///
    /// Source: mm/mmap.c:is_mergeable_vma, is_mergeable_anon_vma (5.10, 6.1), mm/vma.c (6.12, 7.3).
    pub(super) fn joins(&self, other: &Vma, rule: VmaMerge) -> bool {
        let anon_vmas = match (self.anon_vma, other.anon_vma) {
            (Some(own), Some(others)) => own == others,
            (Some(_), None) => rule == VmaMerge::Any && !self.forked,
            (None, _) => !other.forked,
        };
        (self.continues(other) || other.continues(self))
            && (self.prot, self.charged, self.shared) == (other.prot, other.charged, other.shared)
            && anon_vmas
    }

    /// Both as one mapping.
    pub(super) fn with(&self, other: &Vma) -> Vma {
        let first = if self.range.start < other.range.start { self } else { other };
        let range = self.range.hull(other.range);
        Vma { range, anon_vma: self.anon_vma.or(other.anon_vma), ..*first }
    }

    /// The `anon_vma` that a mapping beside this one may share, though protections differ: they may
    /// become one later.
    ///
    /// Source: mm/mmap.c:anon_vma_compatible (5.10, 6.1), mm/vma.c (6.12, 7.3).
    pub(super) fn anon_vma_for(&self, beside: &Vma) -> Option<ObjectId> {
        let adjacent = self.continues(beside) || beside.continues(self);
        self.anon_vma.filter(|_| adjacent && self.charged == beside.charged && !self.forked)
    }
}

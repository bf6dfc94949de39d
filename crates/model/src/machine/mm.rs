//! An address space: its mappings, its page table, and the CPUs that have it loaded.

use super::cpuset::CpuSet;
use super::lockless::TakenTable;
use super::objects::Objects;
use super::page_table::PageTable;
use super::vma::{MergeRule, Vma};
use crate::addr::{ObjectId, PageRange, Vpn};
use crate::arch::Arch;
use crate::pte::Pte;
use crate::userfaultfd::{Features, Told, Watch};
use smallvec::SmallVec;
use std::ops::Range;

/// The pending mark that a batched unmap leaves (`mm->tlb_flush_batched`).
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct BatchedMark {
    /// The number of batched unmaps so far.
    pub pending: u32,
    /// The number of unmaps that were batched before the last flush that the mark caused.
    pub flushed: u32,
}

/// An address space.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Mm {
    vmas: Vec<Vma>,
    /// Mappings that are gone while their pages are still being unmapped. Walks from frames find
    /// them.
    detached: Vec<Vma>,
    /// The range that `mremap` is moving pages to. It is linked last, so walks from frames look
    /// there last.
    pub move_target: Option<PageRange>,
    /// The page table.
    pub table: PageTable,
    /// The CPUs that may have the address space loaded (`mm_cpumask`).
    pub cpumask: CpuSet,
    /// The generation of its latest flush (`context.tlb_gen`).
    pub tlb_gen: u64,
    /// The number of open gathers (`tlb_flush_pending`).
    pub open_gathers: u32,
    /// The pending mark of batched unmaps.
    pub batched: BatchedMark,
    /// How many times a CPU switched from this address space to another one.
    pub unloads: u32,
    /// Whether a process uses the address space.
    pub life: Life,
    /// Whether pages of it were ever pinned (`MMF_HAS_PINNED`).
    pub has_pinned: bool,
    /// The number of page tables deposited for its huge pages, one for each
    /// (`pgtable_trans_huge_deposit`).
    pub deposited: u32,
    /// The table that a collapse took out of the page table.
    pub taken: Option<TakenTable>,
    /// Whether the whole address space was flushed because its tables are being freed (arm64).
    pub flushed_at_exit: bool,
    /// The generation at which all CPUs got one identifier for it (`context.global_asid`, policy
    /// `shootdown`).
    pub global_since: Option<u64>,
    /// A sequence count: odd while a fork copies the address space, even otherwise
    /// (`write_protect_seq`).
    pub write_protect_seq: u32,
    /// The address space's userfaultfd.
    pub uffd: Userfaultfd,
    /// Whether the process handles SIGSEGV.
    pub handles_segv: bool,
}

/// The state of a userfaultfd (`userfaultfd_ctx`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Userfaultfd {
    /// The features that it was created with.
    pub features: Features,
    /// Accesses that wait for an answer, in their order (`fault_pending_wqh`; after they were read,
    /// `fault_wqh`).
    pub waiting: SmallVec<[Waiting; 2]>,
}

/// An access that waits for an answer of userfaultfd.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct Waiting {
    /// The page.
    pub page: Vpn,
    /// The message about it that userfaultfd delivers.
    pub told: Told,
    /// Whether the message was read.
    pub read: bool,
}

impl Userfaultfd {
    /// Reads the message about the next access whose message was not read yet.
    pub fn read(&mut self) -> Option<Waiting> {
        let next = self.waiting.iter_mut().find(|waiting| !waiting.read)?;
        next.read = true;
        Some(*next)
    }

    /// Whether an access to the page waits.
    pub fn waits(&self, page: Vpn) -> bool {
        self.waiting.iter().any(|waiting| waiting.page == page)
    }

    /// Lets accesses to these pages continue, whether or not their messages were read
    /// (`wake_userfault`).
    pub fn wake(&mut self, pages: PageRange) {
        self.waiting.retain(|waiting| !pages.contains(waiting.page));
    }
}

/// Whether a process uses an address space.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Life {
    /// No process uses it.
    #[default]
    None,
    /// A fork is creating it.
    Begun,
    /// A process runs in it.
    Running,
}

impl Mm {
    /// The number of its page tables without the root, including those deposited for huge pages
    /// (`mm->pgtables_bytes`).
    pub fn page_tables(&self) -> u64 {
        self.table.tables() + u64::from(self.deposited)
    }

    /// The number of its markers.
    pub fn markers(&self) -> u64 {
        let marker = |(_, pte): &(_, Pte)| matches!(pte, Pte::Marker(_));
        self.table.entries().filter(marker).count() as u64
    }

    /// An empty address space.
    pub fn new(arch: Arch) -> Mm {
        Mm {
            vmas: Vec::new(),
            detached: Vec::new(),
            move_target: None,
            table: PageTable::new(arch),
            cpumask: CpuSet::default(),
            tlb_gen: 1,
            open_gathers: 0,
            batched: BatchedMark::default(),
            unloads: 0,
            life: Life::None,
            has_pinned: false,
            deposited: 0,
            taken: None,
            flushed_at_exit: false,
            global_since: None,
            write_protect_seq: 0,
            uffd: Userfaultfd::default(),
            handles_segv: false,
        }
    }

    /// A new copy of the address space, for a fork: without mappings, and with this one's pending
    /// mark.
    pub fn begin_copy(&self, arch: Arch) -> Mm {
        let (batched, handles_segv) = (self.batched, self.handles_segv);
        Mm { batched, handles_segv, life: Life::Begun, ..Mm::new(arch) }
    }

    /// The mapping that contains `page`.
    pub fn vma(&self, page: Vpn) -> Option<&Vma> {
        let after = self.vmas.partition_point(|vma| vma.range.start <= page);
        self.vmas[..after].last().filter(|vma| vma.range.contains(page))
    }

    /// Whether the page's mapping, current or detached, locks it in memory.
    pub fn locks(&self, page: Vpn) -> bool {
        let of = |vma: &&Vma| vma.range.contains(page);
        self.vma(page).or_else(|| self.detached.iter().find(of)).is_some_and(Vma::is_locked)
    }

    /// All mappings in ascending order.
    pub fn vmas(&self) -> &[Vma] {
        &self.vmas
    }

    /// The parts of mappings inside `range`, in ascending order.
    pub fn vmas_in(&self, range: PageRange) -> impl Iterator<Item = Vma> + '_ {
        self.vmas.iter().filter(move |v| v.range.overlaps(range)).map(move |v| v.cut(range))
    }

    /// Whether every page of `range` is mapped.
    pub fn covers(&self, range: PageRange) -> bool {
        self.vmas_in(range).map(|vma| vma.range.pages()).sum::<u64>() == range.pages()
    }

    /// The end of the last mapping before `range` and the start of the first one after it. Between
    /// them, no other mapping uses the page tables (`floor` and `ceiling` of `free_pgtables`).
    pub fn neighbours(&self, range: PageRange) -> (Option<Vpn>, Option<Vpn>) {
        let before = self.vmas.iter().rev().find(|vma| vma.range.end <= range.start);
        let after = self.vmas.iter().find(|vma| vma.range.start >= range.end);
        (before.map(|vma| vma.range.end), after.map(|vma| vma.range.start))
    }

    /// Calls `visit` for each mapping, current or detached, that has the page of `object` with that
    /// index, together with that page. The order is that of walks from frames.
    #[inline]
    pub fn pages_of(
        &self,
        objects: &Objects,
        object: ObjectId,
        index: u64,
        mut visit: impl FnMut(&Vma, Vpn),
    ) {
        match self.move_target {
            None => {
                self.any_pages_of(objects, object, index).for_each(|(vma, page)| visit(vma, page))
            }
            Some(to) => self
                .pages_of_moving(objects, object, index, to)
                .into_iter()
                .for_each(|(vma, page)| visit(vma, page)),
        }
    }

    /// The mappings of these pages of a file, current or detached, each with its [`Vma::order`] and
    /// the part that maps them.
    pub fn mappings_of(
        &self,
        file: ObjectId,
        pages: &Range<u64>,
    ) -> impl Iterator<Item = ((u64, u32), PageRange)> {
        let part = move |vma: &Vma| Some((vma.order(), vma.part_of(pages)?));
        let all = self.vmas.iter().chain(&self.detached);
        all.filter(move |vma| vma.file == Some(file)).filter_map(part)
    }

    /// The parts of mappings, current or detached, that map pages of `object` with these indices.
    pub fn parts_of(
        &self,
        objects: &Objects,
        object: ObjectId,
        indices: Range<u64>,
    ) -> impl Iterator<Item = PageRange> {
        let of = move |vma: &&Vma| vma.may_have(object, objects);
        let all = self.vmas.iter().chain(&self.detached).filter(of);
        all.filter_map(move |vma| vma.part_of(&indices))
    }

    /// The mappings that have the page, with that page, in an order that ignores moves.
    #[inline]
    fn any_pages_of(
        &self,
        objects: &Objects,
        object: ObjectId,
        index: u64,
    ) -> impl Iterator<Item = (&Vma, Vpn)> {
        let page = move |vma: &Vma| vma.page_of(index).filter(|_| vma.may_have(object, objects));
        self.vmas.iter().chain(&self.detached).filter_map(move |vma| Some((vma, page(vma)?)))
    }

    /// The mappings that have the page, with that page, while pages move to `target`.
    #[cold]
    fn pages_of_moving(
        &self,
        objects: &Objects,
        object: ObjectId,
        index: u64,
        target: PageRange,
    ) -> Vec<(&Vma, Vpn)> {
        let pages = self.any_pages_of(objects, object, index);
        let (last, mut first): (Vec<_>, Vec<_>) =
            pages.partition(|(_, page)| target.contains(*page));
        first.extend(last);
        first
    }

    /// Removes `range` from the mappings. Walks from frames find it until [`Mm::unlink`]. Returns
    /// the objects that had pages mapped there.
    pub fn detach(&mut self, range: PageRange) -> Vec<ObjectId> {
        let with_pages = self.vmas_in(range).filter(|vma| vma.objects().next().is_some());
        let detached: Vec<Vma> = with_pages.collect();
        let mut objects: Vec<ObjectId> = detached.iter().flat_map(Vma::objects).collect();
        objects.sort_unstable();
        objects.dedup();
        self.detached.extend(detached);
        self.remove(range);
        objects
    }

    /// Whether a mapping, current or detached, may have pages of `object`.
    pub fn may_have(&self, object: ObjectId, objects: &Objects) -> bool {
        self.vmas.iter().chain(&self.detached).any(|vma| vma.may_have(object, objects))
    }

    /// Removes the detached mappings in `range`, so that walks no longer find them. Returns the
    /// objects that are no longer mapped at all.
    pub fn unlink(&mut self, range: PageRange) -> Vec<ObjectId> {
        let gone = |vma: &Vma| vma.range.intersect(range) == vma.range;
        let objects = self.detached.iter().filter(|vma| gone(vma)).flat_map(Vma::objects);
        let mut objects: Vec<ObjectId> = objects.collect();
        self.detached.retain(|vma| !gone(vma));
        let left = self.vmas.iter().chain(&self.detached);
        let left: Vec<ObjectId> = left.flat_map(Vma::objects).collect();
        objects.sort_unstable();
        objects.dedup();
        objects.retain(|object| !left.contains(object));
        objects
    }

    /// Whether detached mappings wait for [`Mm::unlink`].
    pub fn has_detached(&self) -> bool {
        !self.detached.is_empty()
    }

    /// Removes `range` from the mappings.
    fn remove(&mut self, range: PageRange) {
        let mut vmas = Vec::with_capacity(self.vmas.len() + 2);
        for vma in &self.vmas {
            let below = PageRange { start: vma.range.start, end: vma.range.end.min(range.start) };
            let above = PageRange { start: vma.range.start.max(range.end), end: vma.range.end };
            vmas.extend([below, above].into_iter().filter(|r| !r.is_empty()).map(|r| vma.cut(r)));
        }
        self.vmas = vmas;
    }

    /// Adds a mapping behind all others, for a fork. It is not merged.
    pub fn add(&mut self, vma: Vma) {
        self.vmas.push(vma);
    }

    /// Replaces what is mapped in the range of `vma` by `vma`. It is merged with the mappings
    /// beside it as `rule` allows (`vma_merge`).
    pub fn insert(&mut self, vma: Vma, rule: MergeRule) {
        let merged = self.merged(vma, rule);
        self.remove(merged.range);
        let at = self.vmas.partition_point(|other| other.range.start < merged.range.start);
        self.vmas.insert(at, merged);
    }

    /// The last turn among the mappings of that file.
    pub fn last_turn(&self, file: ObjectId) -> u32 {
        let of = self.vmas.iter().chain(&self.detached).filter(|vma| vma.file == Some(file));
        of.map(|vma| vma.turn).max().unwrap_or_default()
    }

    /// The mappings of files, current or detached, that have no turn.
    pub fn without_turn(&mut self) -> impl Iterator<Item = &mut Vma> {
        let all = self.vmas.iter_mut().chain(&mut self.detached);
        all.filter(|vma| vma.file.is_some() && vma.turn == 0)
    }

    /// The mapping that [`Mm::insert`] would make of `vma` and the mappings beside it.
    pub fn merged(&self, vma: Vma, rule: MergeRule) -> Vma {
        let beside = |page: Option<Vpn>| page.and_then(|page| self.vma(page)).copied();
        let before = beside(vma.range.start.0.checked_sub(1).map(Vpn));
        let before =
            before.map(|other| other.cut(PageRange { end: vma.range.start, ..other.range }));
        let begins_inside = || {
            let old = self.vma(vma.range.start);
            old.is_some_and(|old| old.range.start < vma.range.start)
        };
        let after = beside(Some(vma.range.end)).filter(|_| rule.inner || !begins_inside());
        let after = after.map(|other| other.cut(PageRange { start: vma.range.end, ..other.range }));
        let this = match before.filter(|before| vma.joins(before, rule)) {
            Some(before) => vma.with(&before, rule),
            None => vma,
        };
        // It merges with both sides at once only if their `anon_vma`s are compatible.
        let one =
            |next: &Vma| this.anon_vma.is_none_or(|own| next.anon_vma.is_none_or(|n| n == own));
        match after.filter(|after| vma.joins(after, rule) && one(after)) {
            Some(after) => this.with(&after, rule),
            None => this,
        }
    }

    /// Marks all mappings as older than the last clearing of soft-dirty bits.
    pub fn clear_soft_dirty(&mut self) {
        self.vmas.iter_mut().for_each(|vma| vma.soft_dirty = false);
    }

    /// Marks the mapping of `page`: it may contain guards from now on (`vma_set_atomic_flag`).
    pub fn mark_guard(&mut self, page: Vpn) {
        let of = self.vmas.iter_mut().find(|vma| vma.range.contains(page));
        of.into_iter().for_each(|vma| vma.maybe_guard = true);
    }

    /// Ends userfaultfd's watch of the mapping of `page`, without merging the mapping. Returns its
    /// pages if it was watched.
    pub fn unwatch(&mut self, page: Vpn) -> Option<PageRange> {
        let of = self.vmas.iter_mut().find(|vma| vma.range.contains(page));
        let vma = of.filter(|vma| vma.uffd.armed())?;
        vma.uffd = Watch::default();
        Some(vma.range)
    }

    /// Gives the mapping of `page` an `anon_vma` if it has none: that of a mapping beside it if it
    /// can be shared, or else a new one. Returns whether the mapping has one.
    ///
    /// Source: mm/rmap.c:__anon_vma_prepare, mm/mmap.c:find_mergeable_anon_vma (5.10, 6.1),
    /// mm/vma.c (6.12, 7.3).
    pub fn prepare_anon_vma(
        &mut self,
        page: Vpn,
        create: impl FnOnce() -> Option<ObjectId>,
    ) -> bool {
        let at = self.vmas.partition_point(|vma| vma.range.end <= page);
        let Some(vma) = self.vmas.get(at).copied().filter(|vma| vma.anon_vma.is_none()) else {
            return true;
        };
        let (next, prev) = (self.vmas.get(at + 1), at.checked_sub(1).map(|at| &self.vmas[at]));
        let shared = [next, prev].into_iter().flatten().find_map(|other| other.anon_vma_for(&vma));
        self.vmas[at].anon_vma = shared.or_else(create);
        self.vmas[at].anon_vma.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addr::MmId;
    use crate::arch::X86_64;
    use crate::backing::{FileMapping, FileSystem};
    use crate::policy::{SoftDirtyMerge, VmaMerge};
    use crate::program::Prot;

    const ANY: MergeRule =
        MergeRule { anon_vma: VmaMerge::Any, soft_dirty: SoftDirtyMerge::Changed, inner: true };
    const INTO_FAULTED: MergeRule = MergeRule { anon_vma: VmaMerge::IntoFaulted, ..ANY };

    fn vma(start: u64, pages: u64, prot: Prot) -> Vma {
        Vma::new(PageRange::new(Vpn(start), pages), prot)
    }

    #[test]
    fn mappings_split_and_merge() {
        let mut mm = Mm::new(X86_64);
        let all = vma(10, 10, Prot::ReadWrite);
        mm.insert(all, ANY);
        let middle = Vma { prot: Prot::Read, ..all.cut(PageRange::new(Vpn(13), 2)) };
        mm.insert(middle, ANY);
        assert_eq!(mm.vmas().len(), 3);
        assert_eq!(mm.vma(Vpn(14)).unwrap().prot, Prot::Read);
        assert!(mm.covers(all.range));
        mm.insert(Vma { prot: Prot::ReadWrite, ..middle }, ANY);
        assert_eq!(mm.vmas(), [all]);
        mm.remove(PageRange::new(Vpn(12), 3));
        assert!(!mm.covers(all.range) && mm.vma(Vpn(12)).is_none());
        let hole = PageRange::new(Vpn(12), 3);
        assert_eq!(mm.neighbours(hole), (Some(Vpn(12)), Some(Vpn(15))));
    }

    /// A mapping of a file. Mappings are merged if they continue each other in memory and in the
    /// file.
    fn of_file(range: PageRange, object: ObjectId, first: u64, shared: bool) -> Vma {
        let mapping = FileMapping { file: 0, fs: FileSystem::Tmpfs, first, shared };
        Vma::of_file(range, Prot::ReadWrite, object, mapping)
    }

    #[test]
    fn files_keep_mappings_apart() {
        let part = |start: u64, file: u16, first: u64, shared: bool| {
            let range = PageRange::new(Vpn(start), 2);
            of_file(range, ObjectId(file), first, shared)
        };
        for (second, left) in [
            (part(12, 1, 2, false), 1),
            (part(12, 1, 3, false), 2),
            (part(12, 2, 2, false), 2),
            (part(12, 1, 2, true), 2),
            (vma(12, 2, Prot::ReadWrite), 2),
        ] {
            let mut mm = Mm::new(X86_64);
            mm.insert(part(10, 1, 0, false), ANY);
            mm.insert(second, ANY);
            assert_eq!(mm.vmas().len(), left, "{second:?}");
        }
    }

    /// Where mappings are not merged, the condition for sharing an `anon_vma` is that of merging. A
    /// page of the file is found in each mapping, and so is a page of the mapping's own.
    #[test]
    fn walks_find_a_files_pages_and_copies() {
        let mut objects = Objects::default();
        let file = objects.create_file(4).unwrap();
        let own = objects.create(MmId(1), None).unwrap();
        let mut mm = Mm::new(X86_64);
        for (start, first, shared) in [(10, 4, false), (20, 0, true)] {
            let range = PageRange::new(Vpn(start), 8);
            let vma = of_file(range, file, first, shared);
            mm.insert(vma, ANY);
        }
        assert!(mm.prepare_anon_vma(Vpn(10), || Some(own)));
        let found = |object, index| {
            let mut pages = Vec::new();
            mm.pages_of(&objects, object, index, |_, page| pages.push(page.0));
            pages
        };
        assert_eq!((found(file, 5), found(own, 5)), (vec![11, 25], vec![11]));
        assert_eq!(mm.vma(Vpn(11)).unwrap().place(Vpn(11)), (own, 5));
        assert_eq!(mm.vma(Vpn(25)).unwrap().place(Vpn(25)), (file, 5));
        assert_eq!(mm.detach(PageRange::new(Vpn(10), 8)), [file, own]);
        assert_eq!(mm.unlink(PageRange::new(Vpn(10), 8)), [own], "the file is mapped elsewhere");
    }

    /// Adjacent mappings that were faulted in separately are not merged.
    #[test]
    fn anon_vmas_keep_mappings_apart() {
        for (rule, first, second, left) in [
            (ANY, true, false, 1),
            (INTO_FAULTED, true, false, 1),
            (ANY, false, true, 1),
            (INTO_FAULTED, false, true, 2),
            (ANY, true, true, 2),
        ] {
            let mut mm = Mm::new(X86_64);
            let (a, b) = (vma(10, 2, Prot::ReadWrite), vma(30, 2, Prot::ReadWrite));
            mm.insert(a, rule);
            mm.insert(b, rule);
            if first {
                assert!(mm.prepare_anon_vma(Vpn(10), || Some(ObjectId(1))));
            }
            if second {
                assert!(mm.prepare_anon_vma(Vpn(31), || Some(ObjectId(2))));
            }
            // `mremap` would move `b` behind `a` like this.
            let b = *mm.vma(Vpn(30)).unwrap();
            mm.remove(b.range);
            mm.insert(Vma { range: PageRange::new(Vpn(12), 2), pgoff: 12, ..b }, rule);
            assert_eq!(mm.vmas().len(), left, "{rule:?} {first} {second}");
        }
    }

    /// A mapping without pages, between two that were faulted in separately, is merged with the
    /// first only.
    #[test]
    fn two_anon_vmas_are_not_joined_by_what_is_between() {
        let mut mm = Mm::new(X86_64);
        let (first, last) = (vma(10, 2, Prot::ReadWrite), vma(14, 2, Prot::ReadWrite));
        for (vma, object) in [(first, 1), (last, 2)] {
            mm.insert(vma, ANY);
            assert!(mm.prepare_anon_vma(vma.range.start, || Some(ObjectId(object))));
        }
        let between = vma(12, 2, Prot::ReadWrite);
        assert_eq!(mm.merged(between, ANY).range, PageRange::new(Vpn(10), 4));
        mm.insert(between, ANY);
        let objects = mm.vmas().iter().map(|vma| (vma.range.start.0, vma.anon_vma));
        assert_eq!(objects.collect::<Vec<_>>(), [(10, Some(ObjectId(1))), (14, Some(ObjectId(2)))]);
    }

    #[test]
    fn mappings_beside_share_an_anon_vma() {
        let mut mm = Mm::new(X86_64);
        let all = vma(10, 4, Prot::ReadWrite);
        mm.insert(all, ANY);
        let half = Vma { prot: Prot::Read, ..all.cut(PageRange::new(Vpn(12), 2)) };
        mm.insert(half, ANY);
        assert!(mm.prepare_anon_vma(Vpn(10), || Some(ObjectId(1))));
        assert!(mm.prepare_anon_vma(Vpn(12), || Some(ObjectId(2))));
        let anon_vma = |page| mm.vma(Vpn(page)).unwrap().anon_vma;
        assert!(anon_vma(10).is_some());
        assert_eq!(anon_vma(10), anon_vma(12));
    }
}

//! The world: everything a kernel operation can see or change.
//!
//! The type is the same for the simulator and the checker; a [`Mode`] says how the parts that
//! only one of them needs are represented. In the simulator ghost state has no size and its
//! calls vanish.

use super::cpu::{AsidSlot, Cpu, INIT_MM};
use super::cpuset::CpuSet;
use super::frames::{FrameFlags, Frames};
use super::lru::Lru;
use super::mm::{Life, Mm};
use super::nodes::{MemPolicy, Nodes, SharedNodes};
use super::objects::Objects;
use super::page_table::Replaced;
use super::pins::{Pin, Pins};
use super::room::Room;
use super::swap::Swap;
use super::tiers::Tiers;
use super::tlb::{FlushScope, PteChange, Tlbs};
use super::unmap_batch::{Deferred, Deferring, UnmapBatch};
use super::vma::Vma;
use super::walk::Walked;
use crate::addr::{CpuId, MmId, ObjectId, PageRange, Pfn, PinId, ProcessId, Span, ThreadId, Vpn};
use crate::arch::Arch;
use crate::event::EventKind;
use crate::kernels::Config;
use crate::lock::Lock;
use crate::policy::{FaultLock, Policies, Shootdown};
use crate::program::FileSpec;
use crate::pte::{PresentPte, Pte};
use crate::site::Site;
use crate::verdict::Verdict;
use smallvec::SmallVec;
use std::ops::DerefMut;

/// How the parts that differ between simulator and checker are represented.
pub trait Mode: 'static {
    /// What the CPUs' TLBs may hold.
    type Tlbs: Tlbs;
    /// What the kernel cannot see: page contents, owners, paging-structure caches.
    type Ghost: Ghost;
    /// Where events go.
    type Log: Log;
    /// How the larger parts are held.
    type Held<T: Clone>: Held<T>;
}

/// A part of the world: held by itself in the simulator, shared in the checker with the worlds that
/// it was copied from until it is changed.
pub trait Held<T>: DerefMut<Target = T> + Clone {
    /// Holds `part`.
    fn new(part: T) -> Self;
}

/// Ghost state: what no kernel reads, kept to judge it. Every method defaults to nothing.
pub trait Ghost {
    /// Whether the thread holds the lock, where locks are looked at.
    fn holds(&self, _thread: ThreadId, _lock: Lock) -> bool {
        true
    }
    /// Whether the thread has write-locked the mapping of these pages, where locks are looked at.
    fn writes_vma(&self, _thread: ThreadId, _mm: MmId, _pages: PageRange) -> bool {
        true
    }
    /// Whether anybody holds the lock, where locks are looked at.
    fn is_locked(&self, _lock: Lock) -> bool {
        false
    }
    /// A try of a fault begins.
    fn try_begins(&mut self, _thread: ThreadId) {}
    /// A second try of a store found the page mapped for stores, dirty or clean.
    fn found_again(&mut self, _page: Vpn, _dirty: bool) {}
    /// The thread set the page's PTE to a translation.
    fn mapped(&mut self, _thread: ThreadId, _mm: MmId, _page: Vpn) {}
    /// A frame was handed out.
    fn allocated(&mut self, _frame: Pfn) {}
    /// A frame went back to the allocator.
    fn freed(&mut self, _frame: Pfn) {}
    /// A frame was filled with zeros.
    fn zeroed(&mut self, _frame: Pfn) {}
    /// The frame behind the page was copied, for this mapping alone.
    fn copied(&mut self, _mm: MmId, _page: Vpn, _from: Pfn, _to: Pfn) {}
    /// A frame was copied for all of its mappings, which are to have the copy (a migration).
    fn migrated(&mut self, _from: Pfn, _to: Pfn) {}
    /// A frame was written to a swap slot.
    fn swapped_out(&mut self, _frame: Pfn, _slot: u32) {}
    /// A frame was read from a swap slot.
    fn swapped_in(&mut self, _slot: u32, _frame: Pfn) {}
    /// The page's contents, in this frame, were given up (`munmap`, `MADV_DONTNEED`): the page reads as
    /// zero once the operation is done.
    fn discarded(&mut self, _mm: MmId, _page: Vpn, _frame: Option<Pfn>) {}
    /// From now on each store in the address space is noted by a soft-dirty bit, or need not be.
    fn tracks(&mut self, _mm: MmId, _on: bool) {}
    /// The thread's call is to protect these pages by userfaultfd.
    fn protecting(&mut self, _thread: ThreadId, _mm: MmId, _pages: PageRange) {}
    /// It has returned, and done so: from now on a store to them is told of, unless they were let go meanwhile.
    fn protected(&mut self, _thread: ThreadId, _done: bool) {}
    /// userfaultfd protects these pages no more.
    fn let_go(&mut self, _mm: MmId, _pages: PageRange) {}
    /// userfaultfd was asked about a store, or noted it.
    fn told(&mut self) {}
    /// Reclaim dropped the page's contents, in this frame, because `MADV_FREE` had given them up.
    fn dropped(&mut self, _mm: MmId, _page: Vpn, _frame: Pfn) {}
    /// The child of a fork got a copy of the page's PTE: the same contents, until one of both stores.
    fn forked_page(
        &mut self,
        _thread: ThreadId,
        _parent: MmId,
        _child: MmId,
        _page: Vpn,
        _frame: Option<Pfn>,
    ) {
    }
    /// The mapping's page is its own from now on: a copy, in this frame, of the file's.
    fn copied_from_file(&mut self, _mm: MmId, _page: Vpn, _frame: Pfn) {}
    /// A mapping of a file's page is being taken away: what is stored by it still counts as stored there.
    fn unmapped_shared(&mut self, _mm: MmId, _page: Vpn, _frame: Pfn, _of: (ObjectId, u64)) {}
    /// A frame of shared memory, or of a file, was written to where it came from.
    fn written_back(&mut self, _frame: Pfn, _of: (ObjectId, u64)) {}
    /// A frame was filled with what the file has there on its disk: zeros where it has nothing.
    fn filled(&mut self, _frame: Pfn, _of: (ObjectId, u64)) {}
    /// A system call stored to a page of a file, which is in this frame.
    fn file_written(&mut self, _at: At, _frame: Pfn, _of: (ObjectId, u64)) {}
    /// A page of a file is gone, and what it held: there is a hole.
    fn punched(&mut self, _of: (ObjectId, u64)) {}
    /// Shared memory is gone, and what it held.
    fn shared_gone(&mut self, _object: ObjectId) {}
    /// The page is held from now on, if nothing has come between.
    fn pinning(&mut self, _id: PinId, _pin: Pin) {}
    /// The page is held from now on.
    fn pinned(&mut self, _id: PinId, _pin: Pin) {}
    /// It is held no longer.
    fn unpinned(&mut self, _id: PinId) {}
    /// A device loads from the page that is held, or stores to it.
    fn dma(&mut self, _at: At, _id: PinId, _pin: Pin, _write: bool) {}
    /// No process has the address space any more.
    fn retired(&mut self, _mm: MmId) {}
    /// The thread's fork is done: no CPU may store to what the child got.
    fn forked(&mut self, _thread: ThreadId) {}
    /// The page's contents, in this frame, moved (`mremap`).
    fn moved(&mut self, _mm: MmId, _from: Vpn, _to: Vpn, _frame: Option<Pfn>) {}
    /// The page-table page of `level` that covered `page` left the tree: those of `cpus` that have
    /// the address space loaded may still hold paging-structure entries that name it.
    fn table_unlinked(&mut self, _cpus: &[Cpu], _mm: MmId, _page: Vpn, _level: u32) {}
    /// The page-table page of `level` that covered `page` went back to the allocator.
    fn table_freed(&mut self, _mm: MmId, _page: Vpn, _level: u32) {}
    /// A PTE of the page is set in a page table that is not in the tree any more.
    fn table_missed(&mut self, _cpu: CpuId, _mm: MmId, _page: Vpn) {}
    /// A walk without a lock reads a page table that went back to the allocator or is in use by others.
    fn given_back_read(&mut self, _cpu: CpuId, _mm: MmId, _page: Vpn) {}
    /// A CPU flushed its paging-structure caches for the address space in its slot.
    fn structures_flushed(&mut self, _cpu: CpuId, _mm: MmId) {}
}

/// Where events go. The core emits and never reads back.
pub trait Log {
    /// Takes an event and returns its sequence number.
    fn emit(&mut self, at: At, kind: EventKind, verdict: Option<Verdict>) -> u64;
    /// Whether PTE changes are wanted.
    fn wants_ptes(&self) -> bool;
}

/// Who does something, and where.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct At {
    /// The CPU.
    pub cpu: CpuId,
    /// The thread on whose behalf.
    pub thread: ThreadId,
    /// The thread that runs on the CPU: another one where a CPU answers an interrupt.
    pub running: Option<ThreadId>,
    /// The operation of the scenario.
    pub op: u32,
    /// The kernel function.
    pub site: Site,
}

impl At {
    /// The same in another kernel function.
    #[must_use]
    pub const fn site(self, site: Site) -> At {
        At { site, ..self }
    }
}

/// A thread as the kernel sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Task {
    /// Unmaps whose flush is put off (`tlb_ubc`).
    pub unmap_batch: UnmapBatch,
    /// What it unmaps whose flushes may be left to later ones.
    pub deferring: Option<Box<Deferring>>,
    /// Flushes judged needed so far, if one of this thread's is to be left out.
    pub needed_flushes: u32,
    /// The fault behind its call waited, and is taken up as one that was tried (`FOLL_TRIED`).
    pub tried: bool,
    /// Where its pages are to come from, if their mappings do not say.
    pub mempolicy: MemPolicy,
}

/// A frame was free while somebody mapped it or had a reference.
pub(super) const IN_USE: &str = "a frame in use was handed out";
/// A reference was the first one of a frame that was handed out before.
const REVIVED: &str = "a reference was taken to a frame that nobody has";

/// Something that must never happen, found by the model about itself.
#[derive(Clone, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[error("{what} in {}", .at.site.function())]
pub struct Inconsistency {
    /// What.
    pub what: String,
    /// Where.
    pub at: At,
}

/// The world.
pub struct World<M: Mode> {
    /// The kernel's policies.
    pub policies: Policies,
    /// The kernel's configuration.
    pub config: Config,
    /// The architecture.
    pub arch: Arch,
    /// The machine's nodes.
    pub nodes: SharedNodes,
    /// How many processes the scenario has.
    pub processes: u16,
    /// Address spaces; 0 is the kernel's, those of the processes come next.
    pub mms: Vec<M::Held<Mm>>,
    /// CPUs.
    pub cpus: M::Held<Vec<Cpu>>,
    /// Threads of the scenario.
    pub tasks: Vec<M::Held<Task>>,
    /// Flushes that are owed after their operation.
    pub deferred: M::Held<Deferred>,
    /// Page frames.
    pub frames: M::Held<Frames>,
    /// The LRU lists, in order, where the scenario asks for that.
    pub lru: M::Held<Lru>,
    /// What they are of.
    pub objects: M::Held<Objects>,
    /// Swap space.
    pub swap: M::Held<Swap>,
    /// Who holds pages without mapping them.
    pub pins: M::Held<Pins>,
    /// TLBs.
    pub tlbs: M::Tlbs,
    /// Ghost state.
    pub ghost: M::Ghost,
    /// What decides about moves between tiers, where that is simulated.
    pub tiers: Option<Box<Tiers>>,
    /// Events.
    pub log: M::Log,
    /// Memory that it may still take.
    pub room: Room,
    /// The first inconsistency found, if any.
    pub inconsistency: Option<Inconsistency>,
}

impl<M: Mode<Tlbs: Clone, Ghost: Clone, Log: Clone>> Clone for World<M> {
    fn clone(&self) -> World<M> {
        World {
            policies: self.policies,
            config: self.config,
            arch: self.arch,
            nodes: self.nodes.clone(),
            processes: self.processes,
            mms: self.mms.clone(),
            cpus: self.cpus.clone(),
            tasks: self.tasks.clone(),
            deferred: self.deferred.clone(),
            frames: self.frames.clone(),
            lru: self.lru.clone(),
            objects: self.objects.clone(),
            swap: self.swap.clone(),
            pins: self.pins.clone(),
            tlbs: self.tlbs.clone(),
            ghost: self.ghost.clone(),
            tiers: self.tiers.clone(),
            log: self.log.clone(),
            room: self.room.clone(),
            inconsistency: self.inconsistency.clone(),
        }
    }
}

/// What a new world is made of.
pub struct WorldSpec {
    /// The kernel's policies.
    pub policies: Policies,
    /// The kernel's configuration.
    pub config: Config,
    /// The architecture.
    pub arch: Arch,
    /// Number of CPUs.
    pub cpus: usize,
    /// Number of threads.
    pub threads: usize,
    /// Number of processes.
    pub processes: usize,
    /// Number of other processes.
    pub others: usize,
    /// The nodes, and how many page frames each has.
    pub nodes: Nodes,
    /// Pages of swap space.
    pub swap_pages: u32,
    /// Number of pins.
    pub pins: usize,
    /// The files; there are frames enough for what they hold.
    pub files: Vec<FileSpec>,
    /// Memory that it may take.
    pub room: Room,
}

impl WorldSpec {
    /// Address spaces: the kernel's, those of the processes and of the others.
    pub const fn spaces(&self) -> usize {
        1 + self.processes + self.others
    }

    /// Address-space identifiers that a CPU can have in use.
    pub const fn slots(&self) -> usize {
        self.arch.asids.slots(self.spaces())
    }
}

impl<M: Mode> World<M> {
    /// A world with an empty address space for each process ([`mm_of`]), followed by those of the others that
    /// [`Asked::Switch`](crate::call::Asked::Switch) runs; none is loaded anywhere.
    pub fn new(spec: &WorldSpec, tlbs: M::Tlbs, ghost: M::Ghost, log: M::Log) -> World<M> {
        let nodes: SharedNodes = spec.nodes.clone().into();
        let mut world: World<M> = World {
            policies: spec.policies,
            config: spec.config,
            arch: spec.arch,
            nodes: nodes.clone(),
            processes: spec.processes as u16,
            mms: vec![Held::new(Mm::new(spec.arch)); spec.spaces()],
            cpus: Held::new(vec![Cpu::new(spec.slots()); spec.cpus]),
            tasks: vec![Held::new(Task::default()); spec.threads],
            deferred: Held::new(Deferred::default()),
            frames: Held::new(Frames::new(&nodes)),
            lru: Held::new(Lru::new(spec.config.lru_order.then(|| nodes.count()))),
            objects: Held::new(Objects::default()),
            swap: Held::new(Swap::new(spec.swap_pages)),
            pins: Held::new(Pins::new(spec.pins)),
            tlbs,
            ghost,
            tiers: None,
            log,
            room: spec.room.clone(),
            inconsistency: None,
        };
        world.mms[mm_of(ProcessId::FIRST).index()].life = Life::Running;
        spec.files.iter().for_each(|file| world.create_file(file));
        world
    }

    /// An address space that no process has becomes `child`'s, soon a copy of `parent`; false if a process has it.
    ///
    /// Source: kernel/fork.c:dup_mm, mm_init (5.10 to 7.3): of the descriptor, which is copied, `tlb_flush_batched`
    /// stays as it is.
    pub fn begin_copy(&mut self, parent: MmId, child: MmId) -> bool {
        if self.mms[child.index()].life != Life::None {
            return false;
        }
        *self.mms[child.index()] = self.mms[parent.index()].begin_copy(self.arch);
        true
    }

    /// No process has the address space any more, and nothing is mapped in it: whoever gets it next has another
    /// identity, which no CPU knows.
    pub fn retire(&mut self, at: At, mm: MmId) {
        if !self.mms[mm.index()].vmas().is_empty() {
            self.impossible(at, "an address space ended with mappings in it");
        }
        for cpu in 0..self.cpus.len() {
            let cpu = CpuId(cpu as u16);
            if self.has_loaded(cpu, mm) {
                self.impossible(at, "an address space ended that a CPU has loaded");
            }
            if let Some(asid) = self.cpus[cpu.index()].slot_of(mm) {
                self.cpus[cpu.index()].slots[asid] = AsidSlot::default();
                self.tlbs.forget(cpu, asid);
            }
        }
        self.ghost.retired(mm);
        self.room.give_back(self.mms[mm.index()].table.taken());
        *self.mms[mm.index()] = Mm::new(self.arch);
    }

    /// Emits an event without verdict.
    pub fn emit(&mut self, at: At, kind: EventKind) -> u64 {
        self.log.emit(at, kind, None)
    }

    /// All CPUs.
    pub fn all_cpus(&self) -> CpuSet {
        let mut all = CpuSet::default();
        (0..self.cpus.len()).for_each(|index| all.insert(CpuId(index as u16)));
        all
    }

    /// Emits an event with its verdict.
    pub fn emit_judged(&mut self, at: At, kind: EventKind, verdict: Verdict) -> u64 {
        self.log.emit(at, kind, Some(verdict))
    }

    /// Records that something impossible happened; the driver stops the run.
    #[cold]
    pub fn impossible(&mut self, at: At, what: &str) {
        self.inconsistency.get_or_insert_with(|| Inconsistency { what: what.to_owned(), at });
    }

    /// The address spaces of the scenario's processes.
    pub fn spaces(&self) -> impl Iterator<Item = MmId> + Clone + use<M> {
        (0..self.processes).map(|process| mm_of(ProcessId(process)))
    }

    /// The address space of one of the other processes.
    pub const fn space_of_other(&self, other: u16) -> MmId {
        mm_of(ProcessId(self.processes + other))
    }

    /// The PTE of `page`.
    #[inline(always)]
    pub fn pte(&self, mm: MmId, page: Vpn) -> Pte {
        self.mms[mm.index()].table.get(page)
    }

    /// The frame that `pte` stands for: the one that it maps, or that of its swap slot in the swap
    /// cache.
    #[inline]
    pub fn frame_behind(&self, pte: Pte) -> Option<Pfn> {
        match pte {
            Pte::Present(pte) => Some(pte.pfn),
            Pte::Swap(swap) => self.swap.get(swap.slot).cached,
            Pte::Migration(migration) => Some(migration.pfn),
            Pte::None | Pte::Table(_) | Pte::Marker(_) => None,
        }
    }

    /// Sets the PTE of `page`; its table must exist, and the caller hold its lock. (Inlined, since most callers
    /// know what kind of entry it is.)
    #[inline(always)]
    pub fn set_pte(&mut self, at: At, mm: MmId, page: Vpn, new: Pte) {
        if !self.ghost.holds(at.thread, Lock::page_table(&self.arch, mm, page)) {
            self.impossible(at, "a PTE was changed without the lock of its page table");
        }
        if self.log.wants_ptes() {
            self.record_pte(at, mm, page, new);
        }
        if new.present().is_some() {
            self.ghost.mapped(at.thread, mm, page);
        }
        let space: &mut Mm = &mut self.mms[mm.index()];
        let replaced = space.table.set(page, new, space.unloads);
        self.replaced(at, mm, Span::one(page), new.present(), replaced);
    }

    /// What setting the PTE of `page` to `new` changes.
    #[cold]
    fn record_pte(&mut self, at: At, mm: MmId, page: Vpn, new: Pte) {
        if self.mms[mm.index()].table.has_table(page, 1) {
            self.emit_pte(at, page, self.pte(mm, page), new);
        }
    }

    /// A processor sets accessed and dirty in an entry, which asks for no lock.
    #[inline]
    pub fn walked(&mut self, at: At, mm: MmId, Walked { pages, old, new, .. }: Walked) {
        let (space, entry): (&mut Mm, _) = (&mut self.mms[mm.index()], Pte::Present(new));
        let replaced = match pages.order {
            0 => space.table.set(pages.start, entry, space.unloads),
            order => {
                let level = self.arch.level_of(order);
                space.table.set_huge(pages.start, level, entry, space.unloads)
            }
        };
        self.replaced(at, mm, pages, Some(new), replaced);
        if self.log.wants_ptes() {
            self.emit_pte(at, pages.start, Pte::Present(old), entry);
        }
    }

    /// The caller looks at the mapping of `page`, if there is one (`vma_assert_locked`).
    pub fn vma_assert_locked(&mut self, at: At, mm: MmId, page: Vpn) {
        let holds = |lock| self.ghost.holds(at.thread, lock);
        if holds(Lock::MmapRead(mm)) || holds(Lock::MmapWrite(mm)) {
            return;
        }
        if !Lock::VmaOf(mm, page).resolved(self).is_some_and(holds) {
            self.impossible(at, "a mapping was looked at without its lock or mmap_lock");
        }
    }

    /// The caller changes the mappings that have pages in `range` (`vma_assert_write_locked`).
    pub fn vma_assert_write_locked(&mut self, at: At, mm: MmId, range: PageRange) {
        self.mmap_assert_write_locked(at, mm);
        if self.policies.fault_lock == FaultLock::Mmap {
            return;
        }
        let mut vmas = self.mms[mm.index()].vmas().iter().map(|vma| vma.range);
        let unlocked = |vma: PageRange| !self.ghost.writes_vma(at.thread, mm, vma.intersect(range));
        if vmas.any(|vma| vma.overlaps(range) && unlocked(vma)) {
            self.impossible(at, "a mapping was changed without its lock held for writing");
        }
    }

    /// The caller looks at mappings (`mmap_assert_locked`).
    pub fn mmap_assert_locked(&mut self, at: At, mm: MmId) {
        let holds = |lock| self.ghost.holds(at.thread, lock);
        if !holds(Lock::MmapRead(mm)) && !holds(Lock::MmapWrite(mm)) {
            self.impossible(at, "mappings were looked at without mmap_lock");
        }
    }

    /// The caller changes mappings (`mmap_assert_write_locked`).
    pub fn mmap_assert_write_locked(&mut self, at: At, mm: MmId) {
        if !self.ghost.holds(at.thread, Lock::MmapWrite(mm)) {
            self.impossible(at, "mappings were changed without mmap_lock held for writing");
        }
    }

    /// An entry for `pages` was replaced, and translates to `new`; `None`: there is no table to hold it.
    #[inline(always)]
    pub(super) fn replaced(
        &mut self,
        at: At,
        mm: MmId,
        pages: Span,
        new: Option<PresentPte>,
        replaced: Option<Replaced>,
    ) {
        let Some(Replaced { old, since }) = replaced else {
            self.ghost.table_missed(at.cpu, mm, pages.start);
            self.impossible(at, "a PTE was set in a page table that does not exist");
            return;
        };
        self.tlbs.pte_changed(&self.cpus, mm, PteChange { pages, old, new, since });
        if self.policies.shootdown == Shootdown::Coherent && old.is_some() {
            self.drop_cached(mm, pages);
        }
    }

    /// Where the hardware keeps TLBs coherent: what any CPU has of these pages goes.
    #[cold]
    fn drop_cached(&mut self, mm: MmId, pages: Span) {
        let scope = FlushScope::Pages(pages.range(), 0);
        for (index, cpu) in self.cpus.iter().enumerate() {
            if let Some(asid) = cpu.slot_of(mm) {
                self.tlbs.flush(CpuId(index as u16), asid, scope, &self.mms[mm.index()]);
            }
        }
    }

    /// Where the hardware keeps what leads to translations coherent, too: a table was taken out.
    pub fn drop_structures(&mut self, mm: MmId) {
        if self.policies.shootdown == Shootdown::Coherent {
            let cpus = (0..self.cpus.len()).map(|cpu| CpuId(cpu as u16));
            cpus.for_each(|cpu| self.ghost.structures_flushed(cpu, mm));
        }
    }

    #[cold]
    pub(super) fn emit_pte(&mut self, at: At, page: Vpn, old: Pte, new: Pte) {
        if old != new {
            self.emit(at, EventKind::Pte { page, old, new });
        }
    }

    /// The PTE of `page`, which was `old`, went away with its table.
    pub fn note_unset(&mut self, at: At, mm: MmId, page: Vpn, old: Pte) {
        let pages = Span::one(page);
        let change = PteChange { pages, old: old.present(), new: None, since: 0 };
        self.tlbs.pte_changed(&self.cpus, mm, change);
        if self.policies.shootdown == Shootdown::Coherent {
            self.drop_cached(mm, pages);
        }
        if self.log.wants_ptes() {
            self.emit_pte(at, page, old, Pte::None);
        }
    }

    /// Puts `vma` in the place of what is mapped there ([`Mm::insert`]).
    pub fn insert_vma(&mut self, mm: MmId, vma: Vma) {
        self.mms[mm.index()].insert(vma, (&self.policies).into());
        self.link_mappings(mm);
    }

    /// Mappings of files that are new, or have another extent, come last among those of their file that begin with the same
    /// page; a fork's comes right after the one that it is a copy of, which has the same turn.
    ///
    /// Source: mm/mmap.c:__vma_adjust (5.10), mm/vma.c:vma_prepare, vma_complete (6.12): out of the file's tree and in again;
    /// include/linux/interval_tree_generic.h:ITPREFIX_insert: behind those that are equal (5.10 to 7.3).
    pub fn link_mappings(&mut self, mm: MmId) {
        let new: SmallVec<[ObjectId; 2]> =
            self.mms[mm.index()].without_turn().filter_map(|vma| vma.file).collect();
        for file in new {
            let mapped_by = self.objects.mapped_by(file).iter();
            let last = mapped_by.map(|mm| self.mms[mm.index()].last_turn(file)).max();
            let of_file = |vma: &&mut Vma| vma.file == Some(file);
            if let Some(vma) = self.mms[mm.index()].without_turn().find(of_file) {
                vma.turn = last.unwrap_or_default() + 1;
            }
        }
    }

    /// Gives the mapping of `page` an `anon_vma` if it has none (`anon_vma_prepare`).
    pub fn prepare_anon_vma(&mut self, at: At, mm: MmId, page: Vpn) {
        // The mappings beside it are looked at, too.
        self.mmap_assert_locked(at, mm);
        let (space, objects) = (&mut self.mms[mm.index()], &mut self.objects);
        if !space.prepare_anon_vma(page, || objects.create(mm, None)) {
            self.impossible(at, "there are more anon_vmas than the model has numbers for");
        }
    }

    /// The mappings that were detached from `range` are found by no walk any more (`unlink_anon_vmas`).
    ///
    /// With the last mapping goes shared memory itself. (Kernels let go of its pages after the flush, mm/shmem.c:shmem_evict_inode;
    /// of those that somebody may still have in a TLB, the gather has a reference.) Whether there were pages of it, and the swap slots that have others.
    pub fn unlink_anon_vmas(&mut self, at: At, mm: MmId, range: PageRange) -> (bool, Vec<u32>) {
        let (mut evicted, mut swapped) = (false, Vec::new());
        for object in self.mms[mm.index()].unlink(range) {
            for object in self.objects.chain(object) {
                if self.mms[mm.index()].may_have(object, &self.objects) {
                    continue;
                }
                let slots = self.objects.slots_of(object);
                let pages = self.objects.unlink(object, mm);
                if self.objects.is_file(object) {
                    continue;
                }
                if !(pages.is_empty() && slots.is_empty()) {
                    self.ghost.shared_gone(object);
                }
                evicted |= !pages.is_empty();
                pages.into_iter().for_each(|frame| self.put_frame(at, frame));
                swapped.extend(slots);
            }
        }
        (evicted, swapped)
    }

    /// Whether the page's mapping locks it in memory.
    #[inline(always)]
    pub fn locks(&self, mm: MmId, page: Vpn) -> bool {
        self.config.locks_memory && self.mms[mm.index()].locks(page)
    }

    /// The object that a page of the mapping's own in place of this one is of, and its index there.
    #[inline]
    pub fn object_of(&self, mm: MmId, page: Vpn) -> (ObjectId, u64) {
        let vma = self.mms[mm.index()].vma(page);
        vma.map_or_else(Default::default, |vma| vma.place(page))
    }

    /// Takes a reference; whoever does has one already, or finds the frame by who has.
    #[inline]
    pub fn get_frame(&mut self, at: At, frame: Pfn) {
        if !self.frames.add_ref(frame) {
            self.impossible(at, REVIVED);
        }
    }

    /// One more PTE maps the frame, with a reference of its own; its flags change like this.
    #[inline(always)]
    pub fn get_and_map(&mut self, at: At, frame: Pfn, change: impl FnOnce(&mut FrameFlags)) {
        let mapped = self.frames.update(frame, |f| {
            (f.refs, f.maps) = (f.refs + 1, f.maps + 1);
            change(&mut f.flags);
        });
        if mapped.refs == 1 {
            self.impossible(at, REVIVED);
        }
    }

    /// Drops a reference; the last one frees the frame.
    #[inline(always)]
    pub fn put_frame(&mut self, at: At, frame: Pfn) {
        let before = self.frames.get(frame);
        if before.refs == 0 {
            self.impossible(at, "a reference was dropped that nobody held");
        } else if before.refs > 1 {
            self.frames.drop_ref(frame);
        } else if before.maps != 0 || before.flags.has(FrameFlags::SWAP_CACHE) {
            self.impossible(at, "the last reference to a frame in use was dropped");
        } else if before.flags.has(FrameFlags::LARGE) {
            self.free_folio(at, frame);
        } else {
            self.lru_forget(frame);
            self.frames.release(frame);
            self.ghost.freed(frame);
            self.emit(at.site(Site::FolioPut), EventKind::Free { frame });
        }
    }

    /// Drops as many references at once.
    pub fn put_references(&mut self, at: At, frame: Pfn, references: u32) {
        match self.frames.get(frame).refs.checked_sub(references) {
            Some(left) => {
                self.frames.update(frame, |f| f.refs = left + 1);
                self.put_frame(at, frame);
            }
            None => self.impossible(at, "references were dropped that nobody held"),
        }
    }

    /// A PTE that mapped the frame is gone.
    #[inline]
    pub fn drop_mapping(&mut self, at: At, frame: Pfn) {
        if !self.frames.drop_map(frame) {
            self.impossible(at, "a mapping was dropped that nobody had");
        }
    }

    /// The CPU's LRU batch size.
    pub fn lru_batch_size(&self) -> usize {
        match self.policies.lru_batch {
            crate::policy::LruBatch::Fifteen => 15,
            crate::policy::LruBatch::ThirtyOne => 31,
        }
    }

    /// Whether `cpu` has `mm` loaded.
    pub fn has_loaded(&self, cpu: CpuId, mm: MmId) -> bool {
        self.cpus[cpu.index()].loaded == mm && mm != INIT_MM
    }
}

/// The process that an address space is for.
pub const fn process_of(mm: MmId) -> ProcessId {
    ProcessId(mm.0.saturating_sub(1))
}

/// The address space of a process.
pub const fn mm_of(process: ProcessId) -> MmId {
    MmId(1 + process.0)
}

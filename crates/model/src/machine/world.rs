//! The world: everything that a kernel operation can see or change.
//!
//! Simulator and checker share this type. A [`Mode`] says how the parts are represented that only
//! one of them needs. In the simulator ghost state has no size and calls to it vanish.

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
use super::vma::{MergeRule, Vma};
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

/// The representation of the parts that differ between simulator and checker.
pub trait Mode: 'static {
    /// The translations that the CPUs' TLBs may hold.
    type Tlbs: Tlbs;
    /// The state that the kernel cannot see: page contents, owners, paging-structure caches.
    type Ghost: Ghost;
    /// The destination of events.
    type Log: Log;
    /// The way in which the larger parts are held.
    type Held<T: Clone>: Held<T>;
}

/// A part of the world. The simulator owns it. In the checker, copies of a world share it until it
/// is changed.
pub trait Held<T>: DerefMut<Target = T> + Clone {
    /// Holds `part`.
    fn new(part: T) -> Self;
}

/// Ghost state: state that no kernel reads, kept to judge the kernel. Every method does nothing by
/// default.
pub trait Ghost {
    /// Whether the thread holds the lock. True where locks are not tracked.
    fn holds(&self, _thread: ThreadId, _lock: Lock) -> bool {
        true
    }
    /// Whether the thread has write-locked the mapping of these pages. True where locks are not
    /// tracked.
    fn writes_vma(&self, _thread: ThreadId, _mm: MmId, _pages: PageRange) -> bool {
        true
    }
    /// Whether any thread holds the lock. False where locks are not tracked.
    fn is_locked(&self, _lock: Lock) -> bool {
        false
    }
    /// A try of a fault begins.
    fn try_begins(&mut self, _thread: ThreadId) {}
    /// A second try of a store found the page mapped for stores, dirty or clean.
    fn found_again(&mut self, _page: Vpn, _dirty: bool) {}
    /// The thread set the page's PTE to a translation.
    fn mapped(&mut self, _thread: ThreadId, _mm: MmId, _page: Vpn) {}
    /// A frame was allocated.
    fn allocated(&mut self, _frame: Pfn) {}
    /// A frame was freed.
    fn freed(&mut self, _frame: Pfn) {}
    /// A frame was filled with zeros.
    fn zeroed(&mut self, _frame: Pfn) {}
    /// The frame of the page was copied, for this mapping only.
    fn copied(&mut self, _mm: MmId, _page: Vpn, _from: Pfn, _to: Pfn) {}
    /// A frame was copied for all of its mappings, which will map the copy (a migration).
    fn migrated(&mut self, _from: Pfn, _to: Pfn) {}
    /// A frame was written to a swap slot.
    fn swapped_out(&mut self, _frame: Pfn, _slot: u32) {}
    /// A frame was read from a swap slot.
    fn swapped_in(&mut self, _slot: u32, _frame: Pfn) {}
    /// The page's contents, in this frame, were discarded (`munmap`, `MADV_DONTNEED`). The page
    /// reads as zero once the operation is done.
    fn discarded(&mut self, _mm: MmId, _page: Vpn, _frame: Option<Pfn>) {}
    /// From now on each store in the address space has to set a soft-dirty bit (`_on`), or need
    /// not.
    fn tracks(&mut self, _mm: MmId, _on: bool) {}
    /// The thread's call begins to protect these pages by userfaultfd.
    fn protecting(&mut self, _thread: ThreadId, _mm: MmId, _pages: PageRange) {}
    /// The thread's call has returned. If it is `_done`, every later store to its pages has to be
    /// reported, except for pages whose protection ended meanwhile.
    fn protected(&mut self, _thread: ThreadId, _done: bool) {}
    /// userfaultfd no longer protects these pages.
    fn let_go(&mut self, _mm: MmId, _pages: PageRange) {}
    /// userfaultfd was asked about a store, or recorded it.
    fn told(&mut self) {}
    /// Reclaim dropped the page's contents, in this frame, because `MADV_FREE` had given them up.
    fn dropped(&mut self, _mm: MmId, _page: Vpn, _frame: Pfn) {}
    /// The child of a fork got a copy of the page's PTE. Both have the same contents until one of
    /// them stores.
    fn forked_page(
        &mut self,
        _thread: ThreadId,
        _parent: MmId,
        _child: MmId,
        _page: Vpn,
        _frame: Option<Pfn>,
    ) {
    }
    /// The mapping's page is private from now on: this frame is a copy of the file's page.
    fn copied_from_file(&mut self, _mm: MmId, _page: Vpn, _frame: Pfn) {}
    /// A mapping of a file's page is being removed. A store through it still counts as a store to
    /// the file.
    fn unmapped_shared(&mut self, _mm: MmId, _page: Vpn, _frame: Pfn, _of: (ObjectId, u64)) {}
    /// A frame of shared memory or of a file was written back to its object.
    fn written_back(&mut self, _frame: Pfn, _of: (ObjectId, u64)) {}
    /// A frame was filled with the file's contents on the disk; with zeros if it has none there.
    fn filled(&mut self, _frame: Pfn, _of: (ObjectId, u64)) {}
    /// A system call stored to a page of a file, in this frame.
    fn file_written(&mut self, _at: At, _frame: Pfn, _of: (ObjectId, u64)) {}
    /// A page of a file was removed with its contents, and leaves a hole.
    fn punched(&mut self, _of: (ObjectId, u64)) {}
    /// Shared memory was removed with its contents.
    fn shared_gone(&mut self, _object: ObjectId) {}
    /// A pin is being taken: the page is held from now on, if nothing intervened.
    fn pinning(&mut self, _id: PinId, _pin: Pin) {}
    /// A pin was taken: the page is held from now on.
    fn pinned(&mut self, _id: PinId, _pin: Pin) {}
    /// A pin was released: the page is no longer held.
    fn unpinned(&mut self, _id: PinId) {}
    /// A device loads from the page that the pin holds, or stores to it (`_write`).
    fn dma(&mut self, _at: At, _id: PinId, _pin: Pin, _write: bool) {}
    /// No process uses the address space any more.
    fn retired(&mut self, _mm: MmId) {}
    /// The thread's fork is done: no CPU may store to the pages that the child got.
    fn forked(&mut self, _thread: ThreadId) {}
    /// The page's contents, in this frame, were moved (`mremap`).
    fn moved(&mut self, _mm: MmId, _from: Vpn, _to: Vpn, _frame: Option<Pfn>) {}
    /// The page-table page of `level` that covered `page` was removed from the tree. Those of
    /// `cpus` that have the address space loaded may still hold paging-structure entries that name
    /// it.
    fn table_unlinked(&mut self, _cpus: &[Cpu], _mm: MmId, _page: Vpn, _level: u32) {}
    /// The page-table page of `level` that covered `page` was freed.
    fn table_freed(&mut self, _mm: MmId, _page: Vpn, _level: u32) {}
    /// A PTE of the page is set in a page table that is no longer in the tree.
    fn table_missed(&mut self, _cpu: CpuId, _mm: MmId, _page: Vpn) {}
    /// A walk without a lock reads a page table that was freed or that others use.
    fn given_back_read(&mut self, _cpu: CpuId, _mm: MmId, _page: Vpn) {}
    /// A CPU flushed its paging-structure caches for the address space in its slot.
    fn structures_flushed(&mut self, _cpu: CpuId, _mm: MmId) {}
}

/// The destination of events. The core emits events and never reads them back.
pub trait Log {
    /// Takes an event and returns its sequence number.
    fn emit(&mut self, at: At, kind: EventKind, verdict: Option<Verdict>) -> u64;
    /// Whether PTE changes should be recorded.
    fn wants_ptes(&self) -> bool;
}

/// The context of an action: CPU, thread, operation and kernel function.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct At {
    /// The CPU.
    pub cpu: CpuId,
    /// The thread that the action is for.
    pub thread: ThreadId,
    /// The thread that runs on the CPU. It is another one if the CPU answers an interrupt.
    pub running: Option<ThreadId>,
    /// The scenario's operation ([`crate::program::Op::id`]).
    pub op: u32,
    /// The kernel function.
    pub site: Site,
}

impl At {
    /// This context in another kernel function.
    #[must_use]
    pub const fn site(self, site: Site) -> At {
        At { site, ..self }
    }
}

/// A thread from the kernel's view.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Task {
    /// The unmaps whose flush is deferred (`tlb_ubc`).
    pub unmap_batch: UnmapBatch,
    /// The unmaps whose flushes may be left to later ones.
    pub deferring: Option<Box<Deferring>>,
    /// The number of flushes judged needed so far, if one of this thread's is to be left out.
    pub needed_flushes: u32,
    /// Whether the fault behind the thread's call waited, and is resumed as a second try
    /// (`FOLL_TRIED`).
    pub tried: bool,
    /// The thread's memory policy, which applies where mappings have none.
    pub mempolicy: MemPolicy,
}

/// A free frame was mapped, or had a reference.
pub(super) const IN_USE: &str = "a frame in use was handed out";
/// A reference was taken to a frame that had none.
const REVIVED: &str = "a reference was taken to a free frame";

/// A state that must never occur, found by the model's own checks.
#[derive(Clone, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[error("{what} in {}", .at.site.function())]
pub struct Inconsistency {
    /// The description of the contradiction.
    pub what: String,
    /// The action that caused it.
    pub at: At,
}

/// The whole state of the machine and the kernel.
pub struct World<M: Mode> {
    /// The kernel's policies.
    pub policies: Policies,
    /// The kernel's configuration.
    pub config: Config,
    /// The architecture.
    pub arch: Arch,
    /// The machine's nodes.
    pub nodes: SharedNodes,
    /// The number of processes of the scenario.
    pub processes: u16,
    /// The address spaces. Number 0 is the kernel's, those of the processes follow.
    pub mms: Vec<M::Held<Mm>>,
    /// The CPUs.
    pub cpus: M::Held<Vec<Cpu>>,
    /// The threads of the scenario.
    pub tasks: Vec<M::Held<Task>>,
    /// The flushes that are left after their operation.
    pub deferred: M::Held<Deferred>,
    /// The page frames.
    pub frames: M::Held<Frames>,
    /// The LRU lists, in order, if the scenario needs the order.
    pub lru: M::Held<Lru>,
    /// The objects that frames belong to.
    pub objects: M::Held<Objects>,
    /// The swap space.
    pub swap: M::Held<Swap>,
    /// The holds on pages that are no mappings.
    pub pins: M::Held<Pins>,
    /// The TLBs of all CPUs.
    pub tlbs: M::Tlbs,
    /// The ghost state.
    pub ghost: M::Ghost,
    /// The state that decides about moves between tiers, if they are simulated.
    pub tiers: Option<Box<Tiers>>,
    /// The log of events.
    pub log: M::Log,
    /// The memory that the world may still take.
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

/// The parameters of a new world.
pub struct WorldSpec {
    /// The kernel's policies.
    pub policies: Policies,
    /// The kernel's configuration.
    pub config: Config,
    /// The architecture.
    pub arch: Arch,
    /// The number of CPUs.
    pub cpus: usize,
    /// The number of threads.
    pub threads: usize,
    /// The number of processes.
    pub processes: usize,
    /// The number of other processes, which [`Asked::Switch`](crate::call::Asked::Switch) runs.
    pub others: usize,
    /// The nodes, with the number of page frames of each.
    pub nodes: Nodes,
    /// The number of pages of swap space.
    pub swap_pages: u32,
    /// The number of pins.
    pub pins: usize,
    /// The files. There are enough frames for their contents.
    pub files: Vec<FileSpec>,
    /// The memory that the world may take.
    pub room: Room,
}

impl WorldSpec {
    /// The number of address spaces: the kernel's, and those of the processes and of the other
    /// processes.
    pub const fn spaces(&self) -> usize {
        1 + self.processes + self.others
    }

    /// The number of address-space identifiers that a CPU can have in use.
    pub const fn slots(&self) -> usize {
        self.arch.asids.slots(self.spaces())
    }
}

impl<M: Mode> World<M> {
    /// A world with an empty address space for each process ([`mm_of`]), followed by those of the
    /// other processes that [`Asked::Switch`](crate::call::Asked::Switch) runs. No CPU has any of
    /// them loaded.
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

    /// Assigns an unused address space to `child`, as the beginning of a copy of `parent`. False if
    /// a process uses it.
    ///
    /// Source: kernel/fork.c:dup_mm, mm_init (5.10 to 7.3). The descriptor is copied, and
    /// `tlb_flush_batched` keeps its value.
    pub fn begin_copy(&mut self, parent: MmId, child: MmId) -> bool {
        if self.mms[child.index()].life != Life::None {
            return false;
        }
        *self.mms[child.index()] = self.mms[parent.index()].begin_copy(self.arch);
        true
    }

    /// Retires an address space that no process uses any more and that maps nothing. Its next user
    /// has another identity, which no CPU knows.
    pub fn retire(&mut self, at: At, mm: MmId) {
        if !self.mms[mm.index()].vmas().is_empty() {
            self.impossible(at, "an address space ended with mappings in it");
        }
        for cpu in 0..self.cpus.len() {
            let cpu = CpuId(cpu as u16);
            if self.has_loaded(cpu, mm) {
                self.impossible(at, "an address space ended while a CPU had it loaded");
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

    /// The set of all CPUs.
    pub fn all_cpus(&self) -> CpuSet {
        let mut all = CpuSet::default();
        (0..self.cpus.len()).for_each(|index| all.insert(CpuId(index as u16)));
        all
    }

    /// Emits an event with its verdict.
    pub fn emit_judged(&mut self, at: At, kind: EventKind, verdict: Verdict) -> u64 {
        self.log.emit(at, kind, Some(verdict))
    }

    /// Records that something impossible happened. The driver stops the run.
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

    /// The frame behind `pte`: the frame that it maps, or the frame of its swap slot in the swap
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

    /// Sets the PTE of `page`. Its table must exist, and the caller must hold the table's lock. (It
    /// is inlined, because most callers know the kind of entry.)
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

    /// Records the change that setting the PTE of `page` to `new` makes.
    #[cold]
    fn record_pte(&mut self, at: At, mm: MmId, page: Vpn, new: Pte) {
        if self.mms[mm.index()].table.has_table(page, 1) {
            self.emit_pte(at, page, self.pte(mm, page), new);
        }
    }

    /// Records that a processor set the accessed or the dirty bit in an entry, which needs no lock.
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

    /// Asserts that the caller may look at the mapping of `page`, if there is one
    /// (`vma_assert_locked`).
    pub fn vma_assert_locked(&mut self, at: At, mm: MmId, page: Vpn) {
        let holds = |lock| self.ghost.holds(at.thread, lock);
        if holds(Lock::MmapRead(mm)) || holds(Lock::MmapWrite(mm)) {
            return;
        }
        if !Lock::VmaOf(mm, page).resolved(self).is_some_and(holds) {
            self.impossible(at, "a mapping was looked at without its lock or mmap_lock");
        }
    }

    /// Asserts that the caller may change the mappings that have pages in `range`
    /// (`vma_assert_write_locked`).
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

    /// Asserts that the caller may look at mappings (`mmap_assert_locked`).
    pub fn mmap_assert_locked(&mut self, at: At, mm: MmId) {
        let holds = |lock| self.ghost.holds(at.thread, lock);
        if !holds(Lock::MmapRead(mm)) && !holds(Lock::MmapWrite(mm)) {
            self.impossible(at, "mappings were looked at without mmap_lock");
        }
    }

    /// Asserts that the caller may change mappings (`mmap_assert_write_locked`).
    pub fn mmap_assert_write_locked(&mut self, at: At, mm: MmId) {
        if !self.ghost.holds(at.thread, Lock::MmapWrite(mm)) {
            self.impossible(at, "mappings were changed without mmap_lock held for writing");
        }
    }

    /// Records that an entry for `pages` was replaced and now translates to `new`. `replaced` is
    /// `None` if there is no table for the entry.
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

    /// Records that the PTE of `page`, which was `old`, vanished with its table.
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

    /// Replaces what is mapped in the range of `vma` by `vma` ([`Mm::insert`]).
    pub fn insert_vma(&mut self, mm: MmId, vma: Vma) {
        self.insert_vma_by(mm, vma, (&self.policies).into());
    }

    /// Replaces what is mapped in the range of `vma` by `vma`, which merges by this rule.
    pub fn insert_vma_by(&mut self, mm: MmId, vma: Vma, rule: MergeRule) {
        self.mms[mm.index()].insert(vma, rule);
        self.link_mappings(mm);
    }

    /// Gives turns to mappings of files that are new or have another extent. They come last among
    /// the mappings of their file that begin with the same page. A fork's mapping comes directly
    /// after its original, and has the same turn.
    ///
    /// Source: mm/mmap.c:__vma_adjust (5.10), mm/vma.c:vma_prepare, vma_complete (6.12), which take
    /// a mapping out of the file's tree and insert it again;
    /// include/linux/interval_tree_generic.h:ITPREFIX_insert, which inserts it behind equal ones
    /// (5.10 to 7.3).
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
        // This also looks at the adjacent mappings.
        self.mmap_assert_locked(at, mm);
        let (space, objects) = (&mut self.mms[mm.index()], &mut self.objects);
        if !space.prepare_anon_vma(page, || objects.create(mm, None)) {
            self.impossible(at, "there are more anon_vmas than the model has numbers for");
        }
    }

    /// Removes the mappings that were detached from `range`, so that walks no longer find them
    /// (`unlink_anon_vmas`).
    ///
    /// Shared memory is freed with its last mapping. (Kernels free its pages after the flush,
    /// mm/shmem.c:shmem_evict_inode. The gather has a reference to each page that a TLB may still
    /// hold.) Returns whether there were pages of shared memory, and the swap slots of its other
    /// pages.
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

    /// The object and index that a page of the mapping's own would have at this page.
    #[inline]
    pub fn object_of(&self, mm: MmId, page: Vpn) -> (ObjectId, u64) {
        let vma = self.mms[mm.index()].vma(page);
        vma.map_or_else(Default::default, |vma| vma.place(page))
    }

    /// Takes a reference. The caller has one already, or finds the frame through an owner of one.
    #[inline]
    pub fn get_frame(&mut self, at: At, frame: Pfn) {
        if !self.frames.add_ref(frame) {
            self.impossible(at, REVIVED);
        }
    }

    /// Adds a PTE that maps the frame, with its own reference, and changes the frame's flags.
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

    /// Drops a reference. The last one frees the frame.
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

    /// Drops several references at once.
    pub fn put_references(&mut self, at: At, frame: Pfn, references: u32) {
        match self.frames.get(frame).refs.checked_sub(references) {
            Some(left) => {
                self.frames.update(frame, |f| f.refs = left + 1);
                self.put_frame(at, frame);
            }
            None => self.impossible(at, "references were dropped that nobody held"),
        }
    }

    /// Records that a PTE that mapped the frame is gone.
    #[inline]
    pub fn drop_mapping(&mut self, at: At, frame: Pfn) {
        if !self.frames.drop_map(frame) {
            self.impossible(at, "a mapping was dropped that did not exist");
        }
    }

    /// The size of a CPU's LRU batch, in folios.
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

/// The process that an address space belongs to.
pub const fn process_of(mm: MmId) -> ProcessId {
    ProcessId(mm.0.saturating_sub(1))
}

/// The address space of a process.
pub const fn mm_of(process: ProcessId) -> MmId {
    MmId(1 + process.0)
}

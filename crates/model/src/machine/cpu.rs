//! A CPU: its loaded address space, its address-space identifiers, and the thread that runs on it.

use super::lockless::Walk;
use crate::addr::{MmId, Pfn, ThreadId};

/// The kernel's own address space, in which idle CPUs and kernel threads may run.
pub const INIT_MM: MmId = MmId(0);

/// An address-space identifier slot (`cpu_tlbstate.ctxs[]`).
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct AsidSlot {
    /// The address space that has the slot.
    pub mm: Option<MmId>,
    /// The TLB generation up to which the slot was flushed.
    pub tlb_gen: u64,
}

/// A CPU.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Cpu {
    /// The address space in CR3.
    pub loaded: MmId,
    /// Whether the CPU runs only the kernel and may skip flushes (`is_lazy`).
    pub lazy: bool,
    /// The slot in use.
    pub asid: usize,
    /// All slots.
    pub slots: Vec<AsidSlot>,
    /// The slot to assign next.
    pub next_asid: usize,
    /// The scenario's thread that runs on the CPU.
    pub running: Option<ThreadId>,
    /// The page-table walk that the CPU is in, with interrupts off.
    pub walk: Option<Walk>,
    /// Folios that wait for a change of their LRU list, by [`FolioBatch`]. The batch holds one
    /// reference to each.
    pub lru: [Vec<Pfn>; FolioBatch::ALL.len()],
    /// Folios that wait for a change of their list because a mapping locks or unlocked them
    /// (`mlock_fbatch`). The batch holds one reference to each.
    pub mlock: Vec<(Pfn, MlockStep)>,
}

/// The change that a folio in the mlock batch waits for.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum MlockStep {
    /// A locking mapping maps it now (`mlock_folio`).
    Mlock,
    /// It is new and not yet on a list (`mlock_new_folio`).
    New,
    /// A mapping that locked it no longer does (`munlock_folio`).
    Munlock,
}

/// The LRU batches of a CPU, in the order in which they are emptied (`cpu_fbatches`).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum FolioBatch {
    /// New folios, on their way to a list (`lru_add`).
    Add,
    /// Pages of files that were written and that reclaim wants next (`lru_move_tail`; `lru_rotate`
    /// up to 6.1).
    Rotate,
    /// Pages of files that should have left memory and could not (`lru_deactivate_file`).
    DeactivateFile,
    /// Folios that become inactive (`lru_deactivate`).
    Deactivate,
    /// Folios that stop being backed by swap (`lru_lazyfree`).
    Lazyfree,
    /// Folios that become active (`lru_activate`).
    Activate,
}

impl FolioBatch {
    /// All batches.
    pub const ALL: [FolioBatch; 6] = [
        FolioBatch::Add,
        FolioBatch::Rotate,
        FolioBatch::DeactivateFile,
        FolioBatch::Deactivate,
        FolioBatch::Lazyfree,
        FolioBatch::Activate,
    ];
}

impl Cpu {
    /// All folios that wait in a batch. A folio in two batches occurs twice.
    pub fn batched(&self) -> impl Iterator<Item = Pfn> + '_ {
        let mlock = self.mlock.iter().map(|(folio, _)| *folio);
        self.lru.iter().flatten().copied().chain(mlock)
    }

    /// An idle CPU with `asids` slots.
    pub fn new(asids: usize) -> Cpu {
        let mut slots = vec![AsidSlot::default(); asids];
        slots[0] = AsidSlot { mm: Some(INIT_MM), tlb_gen: 1 };
        Cpu {
            loaded: INIT_MM,
            lazy: false,
            asid: 0,
            slots,
            next_asid: 1,
            running: None,
            walk: None,
            lru: Default::default(),
            mlock: Vec::new(),
        }
    }

    /// The slot of `mm`, if it has one.
    #[inline]
    pub fn slot_of(&self, mm: MmId) -> Option<usize> {
        let is_its = |slot: &AsidSlot| slot.mm == Some(mm);
        if is_its(&self.slots[self.asid]) {
            return Some(self.asid);
        }
        self.slots.iter().position(is_its)
    }

    /// The generation up to which the slot in use was flushed.
    pub fn local_gen(&self) -> u64 {
        self.slots[self.asid].tlb_gen
    }
}

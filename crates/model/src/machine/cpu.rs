//! A CPU: which address space it has loaded, under which identifiers, who runs on it.

use super::lockless::Walk;
use crate::addr::{MmId, Pfn, ThreadId};

/// The kernel's own address space, which idle CPUs and kernel threads may run in.
pub const INIT_MM: MmId = MmId(0);

/// An address-space identifier slot (`cpu_tlbstate.ctxs[]`).
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct AsidSlot {
    /// The address space it stands for.
    pub mm: Option<MmId>,
    /// The generation up to which it was flushed.
    pub tlb_gen: u64,
}

/// A CPU.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Cpu {
    /// The address space in CR3.
    pub loaded: MmId,
    /// It runs the kernel only and may skip flushes (`is_lazy`).
    pub lazy: bool,
    /// The slot in use.
    pub asid: usize,
    /// All slots.
    pub slots: Vec<AsidSlot>,
    /// The slot to hand out next.
    pub next_asid: usize,
    /// The scenario's thread on it.
    pub running: Option<ThreadId>,
    /// The walk of page tables that it is in the middle of, with interrupts off.
    pub walk: Option<Walk>,
    /// Folios that wait for a change of their LRU list, by [`FolioBatch`]; each has one reference of
    /// the batch's own.
    pub lru: [Vec<Pfn>; FolioBatch::ALL.len()],
    /// Folios of mappings that lock them, or did, which wait for a change of their list, each with a reference (`mlock_fbatch`).
    pub mlock: Vec<(Pfn, MlockStep)>,
}

/// What a folio waits for in the batch of those that mappings lock.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum MlockStep {
    /// A mapping that locks it has it (`mlock_folio`).
    Mlock,
    /// It is new, and goes from here to a list (`mlock_new_folio`).
    New,
    /// A mapping that locked it does not any more (`munlock_folio`).
    Munlock,
}

/// The LRU batches of a CPU, in the order in which they are emptied (`cpu_fbatches`).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum FolioBatch {
    /// New folios, on their way to a list (`lru_add`).
    Add,
    /// Pages of files that were written and that reclaim wants next (`lru_move_tail`, `lru_rotate` to 6.1).
    Rotate,
    /// Pages of files that ought to leave memory and could not (`lru_deactivate_file`).
    DeactivateFile,
    /// Folios that become inactive (`lru_deactivate`).
    Deactivate,
    /// Folios that stop being backed by swap (`lru_lazyfree`).
    Lazyfree,
    /// Folios that become active (`lru_activate`).
    Activate,
}

impl FolioBatch {
    /// All of them.
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
    /// All folios that wait in a batch; one that waits in two comes twice.
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

    /// The slot that stands for `mm`, if there is one.
    #[inline]
    pub fn slot_of(&self, mm: MmId) -> Option<usize> {
        let is_its = |slot: &AsidSlot| slot.mm == Some(mm);
        if is_its(&self.slots[self.asid]) {
            return Some(self.asid);
        }
        self.slots.iter().position(is_its)
    }

    /// The generation up to which the loaded address space was flushed.
    pub fn local_gen(&self) -> u64 {
        self.slots[self.asid].tlb_gen
    }
}

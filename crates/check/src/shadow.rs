//! What the kernel cannot see: may-cache sets of both kinds, page contents, locks held.
//!
//! A may-cache set holds every translation that the CPU's TLB may contain. It is closed after
//! each PTE change and each flush: as long as an address space is loaded, the processor may walk at
//! any time, so speculative fills need no steps of their own.

use crate::property::{Exercised, Property, Violation};
use needless_model::addr::{CpuId, MmId, Pfn, Vpn};
use needless_model::env::Lock;
use needless_model::event::EventKind;
use needless_model::machine::cpu::Cpu;
use needless_model::machine::mm::Mm;
use needless_model::machine::tlb::{FlushScope, PteChange, Tlbs, is_stale};
use needless_model::machine::world::{At, Ghost, Log, Mode, World};
use needless_model::pte::{PresentPte, Pte};
use needless_model::verdict::Verdict;
use std::collections::{BTreeMap, BTreeSet};

/// The checker's representation of the world.
#[derive(Debug)]
pub enum CheckMode {}

impl Mode for CheckMode {
    type Tlbs = MaySets;
    type Ghost = Contents;
    type Log = NoLog;
}

/// The checker's world.
pub type CheckWorld = World<CheckMode>;

/// A cached translation.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Entry {
    /// The page.
    pub page: Vpn,
    /// The frame that it names.
    pub frame: Pfn,
    /// Stores are allowed.
    pub writable: bool,
    /// Stores leave no trace in the PTE, which is dirty already.
    pub dirty: bool,
    /// The frame was freed since.
    pub dangling: bool,
}

impl Entry {
    fn of(page: Vpn, pte: PresentPte) -> Entry {
        let PresentPte { pfn, writable, dirty, .. } = pte;
        Entry { page, frame: pfn, writable, dirty: dirty && writable, dangling: false }
    }
}

/// The may-cache set of each slot of each CPU.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct MaySets {
    /// The properties whose case occurred in the last step.
    pub exercised: Exercised,
    slots: BTreeMap<(CpuId, usize), (MmId, BTreeSet<Entry>)>,
}

impl MaySets {
    /// What `cpu` may hold for `page` in slot `asid`.
    pub fn entries(&self, cpu: CpuId, asid: usize, page: Vpn) -> Vec<Entry> {
        let set = self.slots.get(&(cpu, asid)).map(|(_, set)| set);
        set.into_iter().flatten().filter(|entry| entry.page == page).copied().collect()
    }

    /// Everything `cpu` may hold in slot `asid`.
    pub fn all(&self, cpu: CpuId, asid: usize) -> impl Iterator<Item = Entry> + '_ {
        self.slots.get(&(cpu, asid)).into_iter().flat_map(|(_, set)| set).copied()
    }

    /// The address space that slot `asid` of `cpu` was handed to.
    pub fn owner(&self, cpu: CpuId, asid: usize) -> Option<MmId> {
        self.slots.get(&(cpu, asid)).map(|(owner, _)| *owner)
    }

    /// Whether a store to `frame` may still come, or come to be known, through a cached translation.
    pub fn may_dirty(&self, frame: Pfn) -> bool {
        let dirty = |entry: &Entry| entry.frame == frame && entry.dirty && !entry.dangling;
        self.slots.values().flat_map(|(_, set)| set).any(dirty)
    }

    /// `frame` was freed: whoever still has a translation to it must not use it.
    pub fn frame_freed(&mut self, frame: Pfn) {
        for (_, set) in self.slots.values_mut() {
            let named: Vec<Entry> =
                set.iter().filter(|entry| entry.frame == frame).copied().collect();
            for entry in named {
                set.remove(&entry);
                set.insert(Entry { dangling: true, ..entry });
            }
        }
    }

    fn close(&mut self, cpu: CpuId, asid: usize, mm: &Mm) {
        if let Some((_, set)) = self.slots.get_mut(&(cpu, asid)) {
            let pages = mm.vmas().iter().flat_map(|vma| vma.range.iter());
            set.extend(pages.filter_map(|page| cacheable(page, mm.table.get(page))));
        }
    }
}

fn cacheable(page: Vpn, pte: Pte) -> Option<Entry> {
    pte.present().filter(|pte| !pte.protnone).map(|pte| Entry::of(page, pte))
}

impl Tlbs for MaySets {
    fn pte_changed(&mut self, cpus: &[Cpu], id: MmId, change: PteChange) {
        let Some(entry) = cacheable(change.page, change.new) else { return };
        for (index, cpu) in cpus.iter().enumerate().filter(|(_, cpu)| cpu.loaded == id) {
            if let Some((_, set)) = self.slots.get_mut(&(CpuId(index as u16), cpu.asid)) {
                set.insert(entry);
            }
        }
    }

    fn flush(&mut self, cpu: CpuId, asid: usize, scope: FlushScope, mm: &Mm) {
        if let Some((_, set)) = self.slots.get_mut(&(cpu, asid)) {
            set.retain(|entry| !scope.covers(entry.page));
        }
        self.close(cpu, asid, mm);
    }

    fn assign(&mut self, cpu: CpuId, asid: usize, id: MmId, mm: &Mm) {
        if self.owner(cpu, asid).is_some_and(|owner| owner != id) {
            self.exercised.add(Property::AsidIsolation);
        }
        self.slots.insert((cpu, asid), (id, BTreeSet::new()));
        self.close(cpu, asid, mm);
    }

    fn load(&mut self, cpu: CpuId, asid: usize, _: MmId, mm: &Mm) {
        self.close(cpu, asid, mm);
    }

    fn unload(&mut self, _: CpuId, _: usize, _: u32) {}

    fn faulted(&mut self, cpu: CpuId, asid: usize, page: Vpn, mm: &Mm) {
        if let Some((_, set)) = self.slots.get_mut(&(cpu, asid)) {
            set.retain(|entry| entry.page != page);
        }
        self.close(cpu, asid, mm);
    }

    fn may_be_stale(&self, cpu: CpuId, asid: usize, id: MmId, mm: &Mm, scope: FlushScope) -> bool {
        let Some((owner, set)) = self.slots.get(&(cpu, asid)) else { return false };
        *owner == id
            && set.iter().any(|entry| {
                let old = PresentPte {
                    pfn: entry.frame,
                    writable: entry.writable,
                    accessed: true,
                    dirty: entry.dirty,
                    protnone: false,
                    special: false,
                    soft_dirty: false,
                };
                scope.covers(entry.page) && is_stale(old, mm.table.get(entry.page))
            })
    }
}

/// A value that a page holds: 0, or the number of the store that wrote it.
pub type Value = u32;

/// Page contents, and what each page should hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Contents {
    frames: BTreeMap<Pfn, Value>,
    slots: BTreeMap<u32, Value>,
    /// What frames held when they were written to swap.
    cleaned: BTreeMap<Pfn, Value>,
    /// The last store to each page, in the order of the steps.
    pub last_store: BTreeMap<Vpn, Value>,
    /// Upper-level entries that CPUs may still hold although the table that they name left the
    /// tree: CPU, address space, the table's first page, its level.
    pub structures: BTreeSet<(CpuId, MmId, Vpn, u32)>,
    /// Frames freed in the current step.
    pub just_freed: Vec<Pfn>,
    /// Locks held, by whom.
    pub locks: BTreeMap<Lock, Vec<u16>>,
    /// The first violation found.
    pub violation: Option<Violation>,
    /// The properties whose case occurred in the last step.
    pub exercised: Exercised,
}

impl Contents {
    /// What a load from `frame` returns.
    pub fn load(&self, frame: Pfn) -> Value {
        self.frames.get(&frame).copied().unwrap_or(0)
    }

    /// What the swap slot holds.
    pub fn slot(&self, slot: u32) -> Value {
        self.slots.get(&slot).copied().unwrap_or(0)
    }

    /// What a load from `page` should return.
    pub fn expected(&self, page: Vpn) -> Value {
        self.last_store.get(&page).copied().unwrap_or(0)
    }

    /// Frames that differ from their copies on swap.
    pub fn modified(&self) -> impl Iterator<Item = Pfn> + '_ {
        let modified = self.cleaned.iter().filter(|(frame, value)| self.load(**frame) != **value);
        modified.map(|(frame, _)| *frame)
    }

    /// A store to `frame`.
    pub fn store(&mut self, frame: Pfn, value: Value) {
        self.frames.insert(frame, value);
    }
}

impl Contents {
    /// Contents went from one place to another.
    fn note_move(&mut self, value: Value) {
        if value != 0 {
            self.exercised.add(Property::NoLostWrite);
        }
    }
}

impl Ghost for Contents {
    fn freed(&mut self, frame: Pfn) {
        self.frames.remove(&frame);
        self.cleaned.remove(&frame);
        self.just_freed.push(frame);
    }

    fn zeroed(&mut self, frame: Pfn) {
        self.frames.insert(frame, 0);
    }

    fn copied(&mut self, from: Pfn, to: Pfn) {
        let value = self.load(from);
        self.note_move(value);
        self.frames.insert(to, value);
    }

    fn swapped_out(&mut self, frame: Pfn, slot: u32) {
        let value = self.load(frame);
        self.slots.insert(slot, value);
        self.cleaned.insert(frame, value);
    }

    fn swapped_in(&mut self, slot: u32, frame: Pfn) {
        let value = self.slot(slot);
        self.note_move(value);
        self.frames.insert(frame, value);
    }

    fn discarded(&mut self, _: MmId, page: Vpn) {
        self.last_store.remove(&page);
    }

    fn table_unlinked(&mut self, cpus: &[Cpu], mm: MmId, page: Vpn, level: u32) {
        let loaded = cpus.iter().enumerate().filter(|(_, cpu)| cpu.loaded == mm);
        let entry = |index: usize| (CpuId(index as u16), mm, page, level);
        let entries: Vec<_> = loaded.map(|(index, _)| entry(index)).collect();
        if entries.len() > 1 {
            self.exercised.add(Property::TableReuse);
        }
        self.structures.extend(entries);
    }

    fn table_freed(&mut self, mm: MmId, page: Vpn, level: u32) {
        let named =
            |entry: &&(CpuId, MmId, Vpn, u32)| (entry.1, entry.2, entry.3) == (mm, page, level);
        if let Some(&(cpu, ..)) = self.structures.iter().find(named) {
            let what = format!(
                "the level {level} page table of page {page} is freed while {cpu} may still have it in its paging-structure caches"
            );
            let violation =
                Violation { property: Property::TableReuse, what, cpu: Some(cpu), page };
            self.violation.get_or_insert(violation);
        }
    }

    fn structures_flushed(&mut self, cpu: CpuId, mm: MmId) {
        self.structures.retain(|entry| (entry.0, entry.1) != (cpu, mm));
    }

    fn moved(&mut self, _: MmId, from: Vpn, to: Vpn) {
        if let Some(value) = self.last_store.remove(&from) {
            self.last_store.insert(to, value);
        }
    }
}

/// Events are of no interest to the checker.
#[derive(Copy, Clone, Debug)]
pub struct NoLog;

impl Log for NoLog {
    fn emit(&mut self, _: At, _: EventKind, _: Option<Verdict>) -> u64 {
        0
    }

    fn wants_ptes(&self) -> bool {
        false
    }
}

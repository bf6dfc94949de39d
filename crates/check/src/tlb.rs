//! What CPUs' TLBs may hold.
//!
//! A may-cache set holds every translation that the CPU's TLB may contain. It is closed after
//! each PTE change and each flush: as long as an address space is loaded, the processor may walk at
//! any time, so speculative fills need no steps of their own. In the explicit mode, which checks
//! this argument on small cases, a set holds what the TLB does contain, and each fill and each
//! eviction is a step.

use crate::property::{Property, PropertySet};
use crate::shared::Shared;
use needless_model::addr::{CpuId, MmId, Pfn, Span, Vpn};
use needless_model::arch::AccessedDirty;
use needless_model::ignored::Ignored;
use needless_model::machine::cpu::Cpu;
use needless_model::machine::mm::Mm;
use needless_model::machine::tlb::{FlushScope, PteChange, Tlbs, is_stale_now};
use needless_model::machine::walk::{Walked, cacheable};
use needless_model::pte::{PresentPte, PteFlags};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// A cached translation.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Entry {
    /// Its pages: one, or those of a huge page.
    pub pages: Span,
    /// The frame that it names for the first of them.
    pub frame: Pfn,
    /// Stores are allowed.
    pub writable: bool,
    /// Stores leave no trace in the PTE, which is dirty already.
    pub dirty: bool,
    /// The frame was freed since.
    pub dangling: bool,
}

impl Entry {
    /// What a walk that finds `pte` for these pages caches, if anything.
    pub fn of(pages: Span, pte: Option<PresentPte>, rule: AccessedDirty) -> Option<Entry> {
        cacheable(pte, rule).map(|pte| Entry::holding(pages, pte))
    }

    /// What the walk caches.
    pub fn made_by(walked: Walked) -> Entry {
        Entry::holding(walked.pages, walked.cached)
    }

    fn holding(pages: Span, pte: PresentPte) -> Entry {
        let (writable, dirty) = (pte.writable(), pte.dirty());
        Entry { pages, frame: pte.pfn, writable, dirty, dangling: false }
    }

    /// The frame that it names for `page`.
    pub fn frame_of(&self, page: Vpn) -> Pfn {
        self.frame.of_page(self.pages, page)
    }

    /// Whether it names `frame`.
    fn names(&self, frame: Pfn) -> bool {
        frame.0.checked_sub(self.frame.0).is_some_and(|at| at >> self.pages.order == 0)
    }

    /// The PTE that it was made of, as far as it tells.
    fn origin(&self) -> PresentPte {
        PresentPte::new(self.frame)
            .with(PteFlags::WRITABLE, self.writable)
            .with(PteFlags::ACCESSED, true)
            .with(PteFlags::DIRTY, self.dirty)
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rights = if self.writable { "rw" } else { "ro" };
        let dirty = if self.dirty { " dirty" } else { "" };
        let freed = if self.dangling { " FREED" } else { "" };
        write!(f, "f{} {rights}{dirty}{freed}", self.frame.0)
    }
}

/// By CPU and identifier: whose it is, and what may be cached.
pub type Slots = BTreeMap<(CpuId, usize), (MmId, BTreeSet<Entry>)>;

/// The may-cache set of each slot of each CPU.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MaySets {
    /// Fills and evictions are steps.
    pub explicit: bool,
    /// Who sets the accessed and the dirty bit.
    pub rule: AccessedDirty,
    /// The properties whose case occurred in the last step.
    pub exercised: Ignored<PropertySet>,
    /// By CPU and identifier.
    pub slots: Shared<Slots>,
}

impl MaySets {
    /// Empty sets.
    pub fn new(explicit: bool, rule: AccessedDirty) -> MaySets {
        let (exercised, slots) = (Ignored::default(), Shared::default());
        MaySets { explicit, rule, exercised, slots }
    }

    /// What a walk for `page` may cache now.
    pub fn walkable(&self, mm: &Mm, page: Vpn) -> Option<Entry> {
        let (pte, pages) = mm.table.walk(page);
        Entry::of(pages, pte, self.rule)
    }

    /// What `cpu` may hold for `page` in slot `asid`.
    pub fn entries(&self, cpu: CpuId, asid: usize, page: Vpn) -> Vec<Entry> {
        self.all(cpu, asid).filter(|entry| entry.pages.contains(page)).collect()
    }

    /// Everything `cpu` may hold in slot `asid`.
    pub fn all(&self, cpu: CpuId, asid: usize) -> impl Iterator<Item = Entry> + '_ {
        self.slots.get(&(cpu, asid)).into_iter().flat_map(|(_, set)| set).copied()
    }

    /// The address space that slot `asid` of `cpu` was handed to.
    pub fn owner(&self, cpu: CpuId, asid: usize) -> Option<MmId> {
        self.slots.get(&(cpu, asid)).map(|(owner, _)| *owner)
    }

    /// Whether a slot may hold a stale translation of `id`, of pages that are `asked` for.
    fn may_hold(
        &self,
        slot: (CpuId, usize),
        id: MmId,
        mm: &Mm,
        asked: impl Fn(Span) -> bool,
    ) -> bool {
        let Some((owner, set)) = self.slots.get(&slot) else { return false };
        let stale = |entry: &Entry| {
            asked(entry.pages) && is_stale_now(entry.pages, entry.origin(), &mm.table)
        };
        *owner == id && set.iter().any(stale)
    }

    /// `frame` was freed: whoever still has a translation to it must not use it.
    pub fn frame_freed(&mut self, frame: Pfn) {
        let names = |entry: &Entry| entry.names(frame);
        if !self.slots.values().flat_map(|(_, set)| set).any(names) {
            return;
        }
        for (_, set) in self.slots.values_mut() {
            let named: Vec<Entry> =
                set.iter().filter(|entry| entry.names(frame)).copied().collect();
            for entry in named {
                set.remove(&entry);
                set.insert(Entry { dangling: true, ..entry });
            }
        }
    }

    /// Explicit mode: the processor caches a translation, or forgets one.
    pub fn change(&mut self, cpu: CpuId, asid: usize, entry: Entry, fill: bool) {
        let Some((_, set)) = self.slots.get_mut(&(cpu, asid)) else { return };
        if fill {
            set.insert(entry);
        } else {
            set.remove(&entry);
        }
    }

    fn close(&mut self, cpu: CpuId, asid: usize, mm: &Mm) {
        if self.explicit || !self.slots.contains_key(&(cpu, asid)) {
            return;
        }
        let pages = mm.vmas().iter().flat_map(|vma| vma.range.iter());
        let walkable: Vec<Entry> = pages.filter_map(|page| self.walkable(mm, page)).collect();
        if let Some((_, set)) = self.slots.get_mut(&(cpu, asid)) {
            set.extend(walkable);
        }
    }
}

impl Tlbs for MaySets {
    fn pte_changed(&mut self, cpus: &[Cpu], id: MmId, change: PteChange) {
        let taken = change.old.is_some() && change.new.is_none_or(PresentPte::protnone);
        if taken && change.pages.order > 0 {
            self.exercised.add(Property::BreakBeforeMake);
        }
        let entry = Entry::of(change.pages, change.new, self.rule);
        let Some(entry) = entry.filter(|_| !self.explicit) else { return };
        for (index, cpu) in cpus.iter().enumerate().filter(|(_, cpu)| cpu.loaded == id) {
            if let Some((_, set)) = self.slots.get_mut(&(CpuId(index as u16), cpu.asid)) {
                set.insert(entry);
            }
        }
    }

    fn flush(&mut self, cpu: CpuId, asid: usize, scope: FlushScope, mm: &Mm) {
        if let Some((_, set)) = self.slots.get_mut(&(cpu, asid)) {
            set.retain(|entry| !scope.covers(entry.pages));
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

    fn load(&mut self, cpu: CpuId, asid: usize, id: MmId, mm: &Mm) {
        self.slots.entry((cpu, asid)).or_insert_with(|| (id, BTreeSet::new()));
        self.close(cpu, asid, mm);
    }

    fn unload(&mut self, _: CpuId, _: usize, _: u32) {}

    fn forget(&mut self, cpu: CpuId, asid: usize) {
        self.slots.remove(&(cpu, asid));
    }

    fn faulted(&mut self, cpu: CpuId, asid: usize, page: Vpn, mm: &Mm) {
        if let Some((_, set)) = self.slots.get_mut(&(cpu, asid)) {
            set.retain(|entry| !entry.pages.contains(page));
        }
        self.close(cpu, asid, mm);
    }

    fn may_be_stale(&self, cpu: CpuId, asid: usize, id: MmId, mm: &Mm, scope: FlushScope) -> bool {
        self.may_hold((cpu, asid), id, mm, |pages| scope.covers(pages))
    }

    fn may_leave_stale(
        &self,
        cpu: CpuId,
        asid: usize,
        id: MmId,
        mm: &Mm,
        scope: FlushScope,
    ) -> bool {
        self.may_hold((cpu, asid), id, mm, |pages| !scope.covers(pages))
    }
}

//! A second answer to "may this CPU hold that translation?", by brute force.
//!
//! Every translation that a walk could have cached is recorded, by CPU and slot. The simulator
//! keeps these sets only where it checks itself. [`super::sim_tlbs::SimTlbs`] answers from logs,
//! and the two answers must agree each time a verdict asks.

use super::cpu::Cpu;
use super::mm::Mm;
use super::tlb::{FlushScope, PteChange, is_stale_now};
use super::walk::cacheable;
use crate::addr::{CpuId, MmId, Span};
use crate::arch::AccessedDirty;
use crate::pte::PresentPte;
use std::collections::BTreeMap;

/// The translations that a slot may hold, by their pages.
type Cached = BTreeMap<Span, Vec<PresentPte>>;

/// The translations that every slot of every CPU may hold.
#[derive(Clone, Debug)]
pub struct MayCache {
    rule: AccessedDirty,
    slots: BTreeMap<(CpuId, usize), (MmId, Cached)>,
}

fn enter(set: &mut Cached, pages: Span, pte: Option<PresentPte>, rule: AccessedDirty) {
    if let Some(entry) = cacheable(pte, rule) {
        let entries = set.entry(pages).or_default();
        if !entries.contains(&entry) {
            entries.push(entry);
        }
    }
}

impl MayCache {
    /// The state in which nothing is cached yet.
    pub fn new(rule: AccessedDirty) -> MayCache {
        MayCache { rule, slots: BTreeMap::new() }
    }

    /// Records that a PTE changed. CPUs that have the address space loaded may have walked just
    /// before, and may walk now.
    pub fn pte_changed(&mut self, cpus: &[Cpu], id: MmId, change: PteChange) {
        for (index, cpu) in cpus.iter().enumerate().filter(|(_, cpu)| cpu.loaded == id) {
            if let Some((_, set)) = self.slots.get_mut(&(CpuId(index as u16), cpu.asid)) {
                enter(set, change.pages, change.old, self.rule);
                enter(set, change.pages, change.new, self.rule);
            }
        }
    }

    /// Records a flush of slot `asid` of `cpu`. The address space is loaded, so the CPU may walk
    /// again.
    pub fn flush(&mut self, cpu: CpuId, asid: usize, scope: FlushScope, mm: &Mm) {
        if let Some((_, set)) = self.slots.get_mut(&(cpu, asid)) {
            set.retain(|pages, _| !scope.covers(*pages));
        }
        self.walk_all(cpu, asid, mm);
    }

    /// Records that slot `asid` of `cpu` was assigned to `id` and flushed.
    pub fn assign(&mut self, cpu: CpuId, asid: usize, id: MmId, mm: &Mm) {
        self.slots.insert((cpu, asid), (id, Cached::new()));
        self.walk_all(cpu, asid, mm);
    }

    /// Records that slot `asid` of `cpu` belongs to no address space any more.
    pub fn forget(&mut self, cpu: CpuId, asid: usize) {
        self.slots.remove(&(cpu, asid));
    }

    /// Records that `cpu` loaded slot `asid`, which belongs to `mm` already.
    pub fn walk_all(&mut self, cpu: CpuId, asid: usize, mm: &Mm) {
        let Some((_, set)) = self.slots.get_mut(&(cpu, asid)) else { return };
        let pages = mm.vmas().iter().flat_map(|vma| vma.range.iter());
        pages.for_each(|page| {
            let (pte, pages) = mm.table.walk(page);
            enter(set, pages, pte, self.rule);
        });
    }

    /// Whether slot `asid` of `cpu` may hold a stale translation of `id` for the pages that `asked`
    /// covers.
    pub fn may_hold(
        &self,
        cpu: CpuId,
        asid: usize,
        id: MmId,
        mm: &Mm,
        asked: impl Fn(Span) -> bool,
    ) -> bool {
        let stale = |(pages, entries): (&Span, &Vec<PresentPte>)| {
            let stale = |entry: &PresentPte| is_stale_now(*pages, *entry, &mm.table);
            asked(*pages) && entries.iter().any(stale)
        };
        let slot = self.slots.get(&(cpu, asid)).filter(|(owner, _)| *owner == id);
        slot.is_some_and(|(_, set)| set.iter().any(stale))
    }
}

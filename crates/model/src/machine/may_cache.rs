//! A second answer to "may this CPU hold that translation?": by brute force.
//!
//! Every translation that a walk could have cached is written down, per CPU and slot. The simulator
//! keeps these sets only where it checks itself; [`super::sim_tlbs::SimTlbs`] answers from logs, and the
//! two must agree each time a verdict asks.

use super::cpu::Cpu;
use super::mm::Mm;
use super::tlb::{FlushScope, PteChange, is_stale_now};
use super::walk::cacheable;
use crate::addr::{CpuId, MmId, Span};
use crate::arch::AccessedDirty;
use crate::pte::PresentPte;
use std::collections::BTreeMap;

/// What a slot may hold, by the pages of a translation.
type Cached = BTreeMap<Span, Vec<PresentPte>>;

/// What every slot of every CPU may hold.
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
    /// Nothing is cached yet.
    pub fn new(rule: AccessedDirty) -> MayCache {
        MayCache { rule, slots: BTreeMap::new() }
    }

    /// A PTE changed: whoever has the address space loaded may have walked just before, and may walk now.
    pub fn pte_changed(&mut self, cpus: &[Cpu], id: MmId, change: PteChange) {
        for (index, cpu) in cpus.iter().enumerate().filter(|(_, cpu)| cpu.loaded == id) {
            if let Some((_, set)) = self.slots.get_mut(&(CpuId(index as u16), cpu.asid)) {
                enter(set, change.pages, change.old, self.rule);
                enter(set, change.pages, change.new, self.rule);
            }
        }
    }

    /// Slot `asid` of `cpu` was flushed; the address space is loaded, so it may be walked again.
    pub fn flush(&mut self, cpu: CpuId, asid: usize, scope: FlushScope, mm: &Mm) {
        if let Some((_, set)) = self.slots.get_mut(&(cpu, asid)) {
            set.retain(|pages, _| !scope.covers(*pages));
        }
        self.walk_all(cpu, asid, mm);
    }

    /// Slot `asid` of `cpu` was handed to `id`, flushed.
    pub fn assign(&mut self, cpu: CpuId, asid: usize, id: MmId, mm: &Mm) {
        self.slots.insert((cpu, asid), (id, Cached::new()));
        self.walk_all(cpu, asid, mm);
    }

    /// Slot `asid` of `cpu` stands for nothing any more.
    pub fn forget(&mut self, cpu: CpuId, asid: usize) {
        self.slots.remove(&(cpu, asid));
    }

    /// `cpu` loaded slot `asid`, which stands for `mm` already.
    pub fn walk_all(&mut self, cpu: CpuId, asid: usize, mm: &Mm) {
        let Some((_, set)) = self.slots.get_mut(&(cpu, asid)) else { return };
        let pages = mm.vmas().iter().flat_map(|vma| vma.range.iter());
        pages.for_each(|page| {
            let (pte, pages) = mm.table.walk(page);
            enter(set, pages, pte, self.rule);
        });
    }

    /// Whether slot `asid` of `cpu` may hold a stale translation of `id`, of pages that are `asked` for.
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

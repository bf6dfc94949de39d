//! A second answer to "may this CPU hold that translation?": by brute force.
//!
//! Every translation that a walk could have cached is written down, per CPU and slot. The simulator
//! keeps these sets only where it checks itself; [`super::tlb::SimTlbs`] answers from logs, and the
//! two must agree each time a verdict asks.

use super::cpu::Cpu;
use super::mm::Mm;
use super::tlb::{FlushScope, PteChange, is_stale};
use crate::addr::{CpuId, MmId, Vpn};
use crate::pte::{PresentPte, Pte, PteFlags};
use std::collections::BTreeMap;

/// What a slot may hold, by page.
type Cached = BTreeMap<Vpn, Vec<PresentPte>>;

/// What every slot of every CPU may hold.
#[derive(Clone, Debug, Default)]
pub struct MayCache {
    slots: BTreeMap<(CpuId, usize), (MmId, Cached)>,
}

/// What a walk that finds `pte` caches, as far as it decides what an access may do.
fn cached(pte: Pte) -> Option<PresentPte> {
    let pte = pte.present().filter(|pte| !pte.protnone())?;
    let entry = PresentPte::new(pte.pfn).with(PteFlags::WRITABLE, pte.writable());
    Some(entry.with(PteFlags::DIRTY, pte.writable() && pte.dirty()))
}

fn enter(set: &mut Cached, page: Vpn, pte: Pte) {
    if let Some(entry) = cached(pte) {
        let entries = set.entry(page).or_default();
        if !entries.contains(&entry) {
            entries.push(entry);
        }
    }
}

impl MayCache {
    /// A PTE changed: whoever has the address space loaded may have walked just before, and may walk now.
    pub fn pte_changed(&mut self, cpus: &[Cpu], id: MmId, change: PteChange) {
        for (index, cpu) in cpus.iter().enumerate().filter(|(_, cpu)| cpu.loaded == id) {
            if let Some((_, set)) = self.slots.get_mut(&(CpuId(index as u16), cpu.asid)) {
                enter(set, change.page, change.old);
                enter(set, change.page, change.new);
            }
        }
    }

    /// Slot `asid` of `cpu` was flushed; the address space is loaded, so it may be walked again.
    pub fn flush(&mut self, cpu: CpuId, asid: usize, scope: FlushScope, mm: &Mm) {
        if let Some((_, set)) = self.slots.get_mut(&(cpu, asid)) {
            set.retain(|page, _| !scope.covers(*page));
        }
        self.walk_all(cpu, asid, mm);
    }

    /// Slot `asid` of `cpu` was handed to `id`, flushed.
    pub fn assign(&mut self, cpu: CpuId, asid: usize, id: MmId, mm: &Mm) {
        self.slots.insert((cpu, asid), (id, Cached::new()));
        self.walk_all(cpu, asid, mm);
    }

    /// `cpu` loaded slot `asid`, which stands for `mm` already.
    pub fn walk_all(&mut self, cpu: CpuId, asid: usize, mm: &Mm) {
        let Some((_, set)) = self.slots.get_mut(&(cpu, asid)) else { return };
        let pages = mm.vmas().iter().flat_map(|vma| vma.range.iter());
        pages.for_each(|page| enter(set, page, mm.table.get(page)));
    }

    /// Whether slot `asid` of `cpu` may hold a stale translation of `id` in `scope`.
    pub fn may_be_stale(
        &self,
        cpu: CpuId,
        asid: usize,
        id: MmId,
        mm: &Mm,
        scope: FlushScope,
    ) -> bool {
        let stale = |(page, entries): (&Vpn, &Vec<PresentPte>)| {
            let now = mm.table.get(*page);
            scope.covers(*page) && entries.iter().any(|entry| is_stale(*entry, now))
        };
        let slot = self.slots.get(&(cpu, asid)).filter(|(owner, _)| *owner == id);
        slot.is_some_and(|(_, set)| set.iter().any(stale))
    }
}

//! TLBs: the seam between the kernel and what CPUs have cached.
//!
//! Two answers are kept apart. *Would this access hit?* is a matter of capacity:
//! [`Tlb`](super::tlb_array::Tlb), per CPU, a two-level set-associative array. *May this CPU hold that
//! translation?* decides safety and verdicts and must not depend on capacity: any walk that could have
//! happened may have happened. The simulator keeps [`SimTlbs`](super::sim_tlbs::SimTlbs) (arrays
//! plus a log of revoked translations), the checker keeps explicit may-cache sets.

use super::cpu::Cpu;
use super::mm::Mm;
use super::page_table::PageTable;
use crate::addr::{CpuId, MmId, PageRange, Span, Vpn};
use crate::pte::PresentPte;

/// What a CPU flushes.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum FlushScope {
    /// Everything under the slot's identifier.
    All,
    /// The translation of the first page, and of each that follows at this distance, a power of two.
    Pages(PageRange, u8),
}

impl FlushScope {
    /// Whether it covers a translation of these pages: one of its addresses lies there. (An invalidation
    /// takes the whole of a huge page whichever of its addresses it names: Intel SDM volume 3, 4.10.4.1.)
    #[inline]
    pub fn covers(self, pages: Span) -> bool {
        match self {
            FlushScope::All => true,
            FlushScope::Pages(range, 0) => range.overlaps(pages.range()),
            FlushScope::Pages(range, stride) => {
                let within = range.intersect(pages.range());
                let before = within.start.0.saturating_sub(range.start.0);
                let next = range.start.add(before.next_multiple_of(1 << stride));
                within.contains(next)
            }
        }
    }
}

/// A PTE change, as far as it is one of a translation: nothing else is cached.
#[derive(Copy, Clone, Debug)]
pub struct PteChange {
    /// Its pages: one, or those of a huge page.
    pub pages: Span,
    /// What the PTE translated to.
    pub old: Option<PresentPte>,
    /// What it translates to.
    pub new: Option<PresentPte>,
    /// The address space's unload count when the old translation was established.
    pub since: u32,
}

/// What all CPUs' TLBs may hold.
pub trait Tlbs {
    /// A PTE of address space `id` changed. Called after every change, with the CPUs as they are.
    fn pte_changed(&mut self, cpus: &[Cpu], id: MmId, change: PteChange);

    /// `cpu` flushes `scope` under slot `asid`, which stands for `mm`.
    fn flush(&mut self, cpu: CpuId, asid: usize, scope: FlushScope, mm: &Mm);

    /// Slot `asid` of `cpu` is handed to address space `id`, flushed.
    fn assign(&mut self, cpu: CpuId, asid: usize, id: MmId, mm: &Mm);

    /// `cpu` loads slot `asid`, which stands for `id` already, without a flush.
    fn load(&mut self, cpu: CpuId, asid: usize, id: MmId, mm: &Mm);

    /// `cpu` leaves slot `asid` for another; `unloads` counts such events of the address space.
    fn unload(&mut self, cpu: CpuId, asid: usize, unloads: u32);

    /// Slot `asid` of `cpu` stands for no address space any more.
    fn forget(&mut self, cpu: CpuId, asid: usize);

    /// `cpu` took a fault on `page`: its own entries for the page are gone.
    fn faulted(&mut self, cpu: CpuId, asid: usize, page: Vpn, mm: &Mm);

    /// Whether slot `asid` of `cpu` may hold a stale translation of `mm` in `scope`.
    fn may_be_stale(&self, cpu: CpuId, asid: usize, id: MmId, mm: &Mm, scope: FlushScope) -> bool;

    /// Whether it may hold one that a flush of `scope` leaves.
    fn may_leave_stale(
        &self,
        cpu: CpuId,
        asid: usize,
        id: MmId,
        mm: &Mm,
        scope: FlushScope,
    ) -> bool;

    /// Whether two ways to answer, where there are two, ever gave different answers.
    fn contradicts_itself(&self) -> bool {
        false
    }
}

/// Whether a TLB entry made from `old` grants what `new` does not, or names another frame.
/// A cached dirty bit counts as a right: it lets a store through that leaves no trace in the PTE.
/// The accessed bit does not.
#[inline]
pub fn is_stale(old: PresentPte, new: Option<PresentPte>) -> bool {
    let Some(new) = new.filter(|pte| !pte.protnone()) else { return !old.protnone() };
    !old.protnone()
        && (old.pfn != new.pfn
            || old.writable() && !new.writable()
            || old.writable() && old.dirty() && !new.dirty())
}

/// Whether a translation of `pages` that was made from `old` grants what the page table does not.
#[inline(always)]
pub fn is_stale_now(pages: Span, old: PresentPte, table: &PageTable) -> bool {
    match table.in_leaf(pages.start) {
        Some(now) if pages.order == 0 => is_stale(old, now),
        _ => huge_is_stale(pages, old, table),
    }
}

/// The same where one of the two is of a huge page.
#[cold]
fn huge_is_stale(pages: Span, old: PresentPte, table: &PageTable) -> bool {
    let (now, now_pages) = table.walk(pages.start);
    if now_pages.order >= pages.order {
        return is_stale(old, part(now, now_pages, pages.start));
    }
    pages.range().iter().any(|page| {
        let (now, now_pages) = table.walk(page);
        let old = PresentPte { pfn: old.pfn.of_page(pages, page), ..old };
        is_stale(old, part(now, now_pages, page))
    })
}

/// What `pte`, which maps `pages`, maps at `page`.
fn part(pte: Option<PresentPte>, pages: Span, page: Vpn) -> Option<PresentPte> {
    pte.map(|pte| PresentPte { pfn: pte.pfn.of_page(pages, page), ..pte })
}

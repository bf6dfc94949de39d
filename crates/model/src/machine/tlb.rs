//! TLBs: the interface between the kernel and what CPUs have cached.
//!
//! There are two separate questions. *Would this access hit?* depends on capacity:
//! [`Tlb`](super::tlb_array::Tlb), per CPU, is a two-level set-associative array. *May this CPU
//! hold that translation?* decides safety and verdicts, and must not depend on capacity: any walk
//! that could have happened may have happened. The simulator keeps
//! [`SimTlbs`](super::sim_tlbs::SimTlbs) (arrays and a log of revoked translations); the checker
//! keeps explicit may-cache sets.

use super::cpu::Cpu;
use super::mm::Mm;
use super::page_table::PageTable;
use crate::addr::{CpuId, MmId, PageRange, Span, Vpn};
use crate::pte::PresentPte;

/// The extent of a flush on one CPU.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum FlushScope {
    /// All translations with the slot's identifier.
    All,
    /// The translation of the first page, and of every following page at this distance (a power of
    /// two) within the range.
    Pages(PageRange, u8),
}

impl FlushScope {
    /// Whether the flush covers a translation of these pages: it names one of their addresses. (An
    /// invalidation of any address in a huge page removes the whole huge page: Intel SDM volume 3,
    /// 4.10.4.1.)
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

/// A change of a PTE, reduced to its translations, since nothing else is cached.
#[derive(Copy, Clone, Debug)]
pub struct PteChange {
    /// The entry's pages: one, or those of a huge page.
    pub pages: Span,
    /// The translation before the change.
    pub old: Option<PresentPte>,
    /// The translation after the change.
    pub new: Option<PresentPte>,
    /// The address space's unload count from when the old translation was established.
    pub since: u32,
}

/// The translations that the TLBs of all CPUs may hold.
pub trait Tlbs {
    /// A PTE of address space `id` changed. This is called after every change, with the state of
    /// the CPUs.
    fn pte_changed(&mut self, cpus: &[Cpu], id: MmId, change: PteChange);

    /// `cpu` flushes `scope` in slot `asid`, which belongs to `mm`.
    fn flush(&mut self, cpu: CpuId, asid: usize, scope: FlushScope, mm: &Mm);

    /// Slot `asid` of `cpu` is assigned to address space `id`, and flushed.
    fn assign(&mut self, cpu: CpuId, asid: usize, id: MmId, mm: &Mm);

    /// `cpu` loads slot `asid`, which belongs to `id` already, without a flush.
    fn load(&mut self, cpu: CpuId, asid: usize, id: MmId, mm: &Mm);

    /// `cpu` leaves slot `asid` for another slot. `unloads` is the address space's number of such
    /// events.
    fn unload(&mut self, cpu: CpuId, asid: usize, unloads: u32);

    /// Slot `asid` of `cpu` no longer belongs to an address space.
    fn forget(&mut self, cpu: CpuId, asid: usize);

    /// `cpu` took a fault on `page`, which drops its own entries for the page.
    fn faulted(&mut self, cpu: CpuId, asid: usize, page: Vpn, mm: &Mm);

    /// Whether slot `asid` of `cpu` may hold a stale translation of `mm` in `scope`.
    fn may_be_stale(&self, cpu: CpuId, asid: usize, id: MmId, mm: &Mm, scope: FlushScope) -> bool;

    /// Whether the slot may hold a stale translation that a flush of `scope` leaves.
    fn may_leave_stale(
        &self,
        cpu: CpuId,
        asid: usize,
        id: MmId,
        mm: &Mm,
        scope: FlushScope,
    ) -> bool;

    /// Whether two answers to one question, if there are two, ever differed.
    fn contradicts_itself(&self) -> bool {
        false
    }
}

/// Whether a TLB entry made from `old` grants what `new` does not, or names another frame. A cached
/// dirty bit counts as a right, because it allows a store that leaves no trace in the PTE. The
/// accessed bit does not.
#[inline]
pub fn is_stale(old: PresentPte, new: Option<PresentPte>) -> bool {
    let Some(new) = new.filter(|pte| !pte.protnone()) else { return !old.protnone() };
    !old.protnone()
        && (old.pfn != new.pfn
            || old.writable() && !new.writable()
            || old.writable() && old.dirty() && !new.dirty())
}

/// Whether a translation of `pages` that was made from `old` grants what the page table no longer
/// grants.
#[inline(always)]
pub fn is_stale_now(pages: Span, old: PresentPte, table: &PageTable) -> bool {
    match table.in_leaf(pages.start) {
        Some(now) if pages.order == 0 => is_stale(old, now),
        _ => huge_is_stale(pages, old, table),
    }
}

/// Like [`is_stale_now`], if the old or the new translation is one of a huge page.
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

/// The part for `page` of a translation of `pages`.
fn part(pte: Option<PresentPte>, pages: Span, page: Vpn) -> Option<PresentPte> {
    pte.map(|pte| PresentPte { pfn: pte.pfn.of_page(pages, page), ..pte })
}

//! Where a store may meet a translation from before its page became writable.
//!
//! Each CPU that may have read the entry before may have it still, whether or not it was asked to: processors read ahead
//! (Intel SDM 3A, 4.10.2.3). Whether one has is its own choice.

use super::cpu::Cpu;
use super::tlb::FlushScope;
use crate::addr::{CpuId, MmId, Span, Vpn};
use std::collections::{BTreeMap, BTreeSet};

/// Translations that became writable since the CPU last flushed them in that slot.
#[derive(Clone, Debug)]
pub(super) struct Upgraded {
    /// Of a huge page that is held in pieces, those that are left.
    held: BTreeMap<(CpuId, usize, Span), Option<BTreeSet<Vpn>>>,
    /// The order of a huge page.
    huge: u8,
    /// Whether CPUs may hold a huge page as translations of single pages (4.10.2.3 there). A fault drops that of its own
    /// page, a flush of any of its addresses all of them (4.10.4.1).
    pieces: bool,
}

impl Upgraded {
    pub(super) fn new(huge: u8, pieces: bool) -> Upgraded {
        Upgraded { held: BTreeMap::new(), huge, pieces }
    }

    /// `pages` became writable where they are, and no CPU is told.
    #[cold]
    #[inline(never)]
    pub(super) fn note(&mut self, cpus: &[Cpu], id: MmId, pages: Span) {
        let pieces = || pages.range().iter().collect();
        for (cpu, number) in cpus.iter().zip(0..) {
            if let Some(asid) = cpu.slot_of(id) {
                let pieces = (self.pieces && pages.order > 0).then(pieces);
                self.held.insert((CpuId(number), asid, pages), pieces);
            }
        }
    }

    /// Whether an access to `page` may meet one. Asked once: after it the CPU has none.
    pub(super) fn take(&mut self, cpu: CpuId, asid: usize, page: Vpn) -> bool {
        let single = self.held.remove(&(cpu, asid, Span::one(page))).is_some();
        let huge = (cpu, asid, Span::around(page, self.huge));
        let part_of_huge = match self.held.get_mut(&huge) {
            Some(Some(pieces)) => pieces.remove(&page),
            Some(None) => self.held.remove(&huge).is_some(),
            None => false,
        };
        single || part_of_huge
    }

    /// The CPU has nothing of `scope` in the slot any more.
    pub(super) fn flush(&mut self, cpu: CpuId, asid: usize, scope: FlushScope) {
        self.held.retain(|&(of, slot, span), _| (of, slot) != (cpu, asid) || !scope.covers(span));
    }
}

//! Stores that may meet a translation from before their page became writable.
//!
//! Each CPU that may have read the old entry may still hold it, whether or not an access asked for
//! it: processors read ahead (Intel SDM 3A, 4.10.2.3). Whether one does is its own choice.

use super::cpu::Cpu;
use super::tlb::FlushScope;
use crate::addr::{CpuId, MmId, Span, Vpn};
use std::collections::{BTreeMap, BTreeSet};

/// The translations that became writable since the CPU last flushed them in that slot.
#[derive(Clone, Debug)]
pub(super) struct Upgraded {
    /// For a huge page that is held in pieces, the pieces that are left.
    held: BTreeMap<(CpuId, usize, Span), Option<BTreeSet<Vpn>>>,
    /// The order of a huge page.
    huge: u8,
    /// Whether CPUs may hold a huge page as translations of single pages (4.10.2.3 there). A fault
    /// drops only the piece of its page; a flush of any address drops all pieces (4.10.4.1).
    pieces: bool,
}

impl Upgraded {
    pub(super) fn new(huge: u8, pieces: bool) -> Upgraded {
        Upgraded { held: BTreeMap::new(), huge, pieces }
    }

    /// Records that `pages` became writable in place, without a flush of any CPU.
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

    /// Whether an access to `page` may meet an old translation. The answer is given once:
    /// afterwards the CPU has none.
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

    /// Records that the slot of the CPU holds nothing of `scope` any more.
    pub(super) fn flush(&mut self, cpu: CpuId, asid: usize, scope: FlushScope) {
        self.held.retain(|&(of, slot, span), _| (of, slot) != (cpu, asid) || !scope.covers(span));
    }
}

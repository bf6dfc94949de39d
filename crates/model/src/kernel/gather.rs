//! `mmu_gather`: collects what a system call takes away, flushes once, then frees.
//!
//! Protocol: [`Gather::open`], note PTEs and tables as they are cleared, [`Gather::finish`].
//! Nothing collected is freed before the flush. A gather that overlaps with another one of the
//! same address space flushes everything, because the other may have cleared PTEs that this one
//! then found empty.
//!
//! Source: mm/mmu_gather.c, include/asm-generic/tlb.h (5.10 to 7.3).

use crate::addr::{PageRange, Pfn, Vpn};
use crate::env::Env;
use crate::kernel::flush::{FlushRequest, flush_tlb_mm_range};
use crate::policy::GatherBatch;
use crate::site::Site;
use smallvec::SmallVec;

/// Entries in the gather itself (`MMU_GATHER_BUNDLE`).
const BUNDLE: usize = 8;
/// Entries in one further batch: a page, less its header, of pointers (`MAX_GATHER_BATCH`).
const BATCH: usize = (4096 - 16) / 8;
/// Further batches (`MAX_GATHER_BATCH_COUNT`).
const BATCHES: usize = 10_000 / BATCH;

/// An open gather.
#[derive(Debug)]
pub struct Gather {
    range: PageRange,
    cleared_ptes: bool,
    freed_tables: bool,
    pages: SmallVec<[Pfn; BUNDLE]>,
    /// Entries still free in the batch being filled, and batches that may still be added.
    room: usize,
    batches_left: usize,
    reserve: usize,
}

const NOTHING: PageRange = PageRange { start: Vpn(0), end: Vpn(0) };

impl Gather {
    /// Opens a gather (`tlb_gather_mmu`).
    pub fn open(env: &mut impl Env) -> Gather {
        let reserve = match env.policies().gather_batch {
            GatherBatch::Full => 0,
            GatherBatch::LeaveOne => 1,
        };
        env.step(Site::TlbFinishMmu, |w, at| w.mms[at.mm.index()].open_gathers += 1);
        Gather {
            range: NOTHING,
            cleared_ptes: false,
            freed_tables: false,
            pages: SmallVec::new(),
            room: BUNDLE - reserve,
            batches_left: BATCHES,
            reserve,
        }
    }

    /// The PTE of `page` was cleared or lost a right (`tlb_remove_tlb_entry`).
    pub fn cleared(&mut self, page: Vpn) {
        self.range = self.range.hull(PageRange::one(page));
        self.cleared_ptes = true;
    }

    /// A page table that begins at `start` was unlinked (`pte_free_tlb` and its like).
    pub fn unlinked_table(&mut self, start: Vpn) {
        self.range = self.range.hull(PageRange::one(start));
        self.freed_tables = true;
    }

    /// `frame` is to be freed after the flush. Returns true if no more fit: flush now.
    #[must_use]
    pub fn remove_page(&mut self, frame: Pfn) -> bool {
        self.pages.push(frame);
        self.room -= 1;
        if self.room > 0 {
            return false;
        }
        if self.batches_left == 0 {
            return true;
        }
        self.batches_left -= 1;
        self.room = BATCH - self.reserve;
        false
    }

    /// Flushes and frees what was collected so far (`tlb_flush_mmu`).
    pub fn flush(&mut self, env: &mut impl Env, site: Site) {
        self.flush_tlb(env, site);
        self.free_pages(env);
    }

    /// Flushes only (`tlb_flush_mmu_tlbonly`).
    pub fn flush_tlb(&mut self, env: &mut impl Env, site: Site) {
        if self.cleared_ptes || self.freed_tables {
            // Without PTEs, the tables set the stride (`tlb_get_unmap_shift`).
            let stride_shift = if self.cleared_ptes { 0 } else { env.arch().index_bits };
            let request = FlushRequest {
                stride_shift,
                freed_tables: self.freed_tables,
                tables_gone: self.freed_tables,
                ..FlushRequest::range(site, self.range)
            };
            flush_tlb_mm_range(env, request);
        }
        (self.range, self.cleared_ptes, self.freed_tables) = (NOTHING, false, false);
    }

    fn free_pages(&mut self, env: &mut impl Env) {
        if self.pages.is_empty() {
            return;
        }
        let pages = std::mem::take(&mut self.pages);
        env.step(Site::FolioPut, |w, at| pages.iter().for_each(|frame| w.put_frame(at, *frame)));
        // The batches stay allocated and are filled again from the first.
        (self.room, self.batches_left) = (BUNDLE - self.reserve, BATCHES);
    }

    /// Closes the gather (`tlb_finish_mmu`).
    pub fn finish(mut self, env: &mut impl Env) {
        let nested = env.step(Site::TlbFinishMmu, |w, at| w.mms[at.mm.index()].open_gathers > 1);
        if nested {
            let tables_gone = self.freed_tables;
            flush_tlb_mm_range(
                env,
                FlushRequest { tables_gone, ..FlushRequest::whole(Site::TlbFinishMmu) },
            );
        } else {
            self.flush_tlb(env, Site::TlbFinishMmu);
        }
        self.free_pages(env);
        env.step(Site::TlbFinishMmu, |w, at| w.mms[at.mm.index()].open_gathers -= 1);
    }
}

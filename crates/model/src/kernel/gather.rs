//! `mmu_gather`: collects the pages and tables that a system call takes away, flushes once, then
//! frees them.
//!
//! Protocol: [`Gather::open`]; note PTEs and tables as they are cleared; [`Gather::finish`].
//! Nothing that was collected is freed before the flush. (Proposed rules defer the flush of other
//! CPUs, and then what was collected waits for that.) A gather that overlaps with another one of
//! the same address space flushes everything: the other one may have cleared PTEs that this one
//! then found empty.
//!
//! Source: mm/mmu_gather.c, include/asm-generic/tlb.h (5.10 to 7.3).

use crate::addr::{MmId, PageRange, Pfn, Vpn};
use crate::env::Env;
use crate::kernel::deferred::leave_zapped;
use crate::kernel::flush::{Change, FlushRequest, flush_tlb_mm_range, tlb_flush};
use crate::kernel::lru::lru_add_drain;
use crate::kernel::mlock_batch::folio_remove_rmap;
use crate::kernel::swap_cache::{free_swap_caches, is_unused};
use crate::machine::lockless::Walked;
use crate::machine::world::{At, Ghost, World};
use crate::policy::{DeferZap, GatherBatch, Mutant, ZapDrain};
use crate::site::Site;
use smallvec::SmallVec;

/// The number of entries in the gather itself (`MMU_GATHER_BUNDLE`).
const BUNDLE: usize = 8;
/// The number of entries in one further batch: a page of pointers, less its header
/// (`MAX_GATHER_BATCH`).
const BATCH: usize = (4096 - 16) / 8;
/// The number of further batches (`MAX_GATHER_BATCH_COUNT`).
const BATCHES: usize = 10_000 / BATCH;

/// An open gather.
#[derive(Debug)]
pub struct Gather {
    mm: MmId,
    range: PageRange,
    /// The lowest level at which an entry was cleared (1: PTEs), which sets the flush's stride.
    lowest_cleared: Option<u32>,
    /// Whether the flush claims that tables were freed, and whether one was.
    freed_tables: bool,
    tables_gone: bool,
    change: Change,
    /// Whether the address space ends with this gather.
    full_mm: bool,
    /// Whether other CPUs may flush later, so that frames and addresses wait
    /// ([`leave_others`](super::deferred::leave_others)).
    waits: bool,
    pages: SmallVec<[Pfn; BUNDLE]>,
    /// Those of `pages` that still count as mapped, and whether their mapping locks its pages.
    mapped: SmallVec<[(Pfn, bool); BUNDLE]>,
    /// Unlinked tables, by first page and level.
    tables: SmallVec<[(Vpn, u32); 4]>,
    /// Free entries in the batch that is being filled, and the number of batches that may still be
    /// added.
    room: usize,
    batches_left: usize,
    reserve: usize,
}

const NOTHING: PageRange = PageRange { start: Vpn(0), end: Vpn(0) };

impl Gather {
    /// Opens a gather of an address space (`tlb_gather_mmu`).
    pub fn open(env: &mut impl Env, mm: MmId) -> Gather {
        let reserve = match env.policies().gather_batch {
            GatherBatch::Full => 0,
            GatherBatch::LeaveOne => 1,
        };
        env.step(Site::TlbFinishMmu, |w, _| w.mms[mm.index()].open_gathers += 1);
        Gather {
            mm,
            range: NOTHING,
            lowest_cleared: None,
            freed_tables: false,
            tables_gone: false,
            change: Change::Granted,
            full_mm: false,
            waits: false,
            pages: SmallVec::new(),
            mapped: SmallVec::new(),
            tables: SmallVec::new(),
            room: BUNDLE - reserve,
            batches_left: BATCHES,
            reserve,
        }
    }

    /// Opens a gather of an address space that ends (`tlb_gather_mmu_fullmm`).
    pub fn open_fullmm(env: &mut impl Env, mm: MmId) -> Gather {
        Gather { full_mm: true, ..Gather::open(env, mm) }
    }

    /// Opens the gather of a `munmap`.
    pub fn open_munmap(env: &mut impl Env, mm: MmId) -> Gather {
        let waits = env.policies().defer_zap != DeferZap::Never;
        Gather { waits, ..Gather::open(env, mm) }
    }

    /// Opens the gather of a `MADV_DONTNEED`.
    pub fn open_dontneed(env: &mut impl Env, mm: MmId) -> Gather {
        let waits = matches!(env.policies().defer_zap, DeferZap::Free | DeferZap::All);
        Gather { waits, ..Gather::open(env, mm) }
    }

    /// The address space that the gather belongs to.
    pub const fn mm(&self) -> MmId {
        self.mm
    }

    /// Notes that the PTE of `page` was cleared or changed (`tlb_remove_tlb_entry`,
    /// `tlb_flush_pte_range`).
    pub fn changed(&mut self, page: Vpn, change: Change) {
        self.note(page, 1, change);
    }

    /// Notes that a page table of `level` that begins at `start` was unlinked (`pte_free_tlb`,
    /// `pmd_free_tlb`, `pud_free_tlb`): the entry of the level above is clear.
    pub fn unlinked_table(&mut self, start: Vpn, level: u32) {
        self.note(start, level + 1, Change::Revoked);
        self.tables.push((start, level));
        (self.freed_tables, self.tables_gone) = (true, true);
    }

    /// Notes the end of a folded level, which has no table (`p4d_free_tlb`). The flush still counts
    /// it as a freed table. It clears no entry of any level.
    pub fn unlinked_folded_table(&mut self, start: Vpn) {
        self.range = self.range.hull(PageRange::one(start));
        self.freed_tables = true;
    }

    /// Notes that the entry of these pages was cleared or changed: the PTE of one page, or the
    /// entry of a huge page (`tlb_remove_pmd_tlb_entry`, `tlb_flush_pmd_range`).
    pub fn changed_pages(&mut self, pages: PageRange, change: Change) {
        self.note_range(pages, if pages.pages() == 1 { 1 } else { 2 }, change);
    }

    fn note(&mut self, start: Vpn, level: u32, change: Change) {
        self.note_range(PageRange::one(start), level, change);
    }

    fn note_range(&mut self, pages: PageRange, level: u32, change: Change) {
        self.change = self.change.max(change);
        self.range = self.range.hull(pages);
        self.lowest_cleared = Some(self.lowest_cleared.map_or(level, |lowest| lowest.min(level)));
    }

    /// Frees `frame` after the flush. Returns true if the gather is full: flush now.
    #[must_use]
    pub fn remove_page(&mut self, frame: Pfn) -> bool {
        self.remove_entries(frame, 1)
    }

    /// [`Gather::remove_page`] for a page that takes `entries` entries. The first page of a run
    /// takes two: itself and the length of the run. The other pages of the run take none.
    ///
    /// Source: mm/mmu_gather.c:__tlb_remove_folio_pages_size (6.12, 7.2).
    #[must_use]
    pub fn remove_entries(&mut self, frame: Pfn, entries: usize) -> bool {
        self.pages.push(frame);
        if entries == 0 {
            return false;
        }
        self.room = self.room.saturating_sub(entries);
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

    /// Lets `frame` count as mapped until [`Gather::flush_rmaps`]; it is freed after the flush
    /// (`tlb_delay_rmap`).
    pub fn delay_rmap(&mut self, frame: Pfn, locked: bool) {
        self.mapped.push((frame, locked));
    }

    /// Ends the mapping of delayed frames, after their flush (`tlb_flush_rmaps`).
    pub fn flush_rmaps(&mut self, env: &mut impl Env) {
        if !self.mapped.is_empty() {
            let mapped = std::mem::take(&mut self.mapped);
            env.step(Site::TlbFlushRmaps, |w, at| {
                for (frame, locked) in &mapped {
                    folio_remove_rmap(w, at, *frame, *locked);
                }
            });
        }
    }

    /// Flushes and frees everything that was collected so far (`tlb_flush_mmu`).
    pub fn flush(&mut self, env: &mut impl Env, site: Site) {
        if env.policies().mutant == Mutant::FreedUnflushed {
            self.free_pages(env);
        }
        self.flush_tlb(env, site, self.waits);
        self.free_pages(env);
    }

    /// Ends the walk of one mapping (`tlb_end_vma`). Where the architecture does not merge
    /// mappings, it flushes here, so that the flush does not reach over the gap to the next
    /// mapping.
    ///
    /// Source: include/asm-generic/tlb.h:tlb_end_vma, arch/x86/Kconfig:MMU_GATHER_MERGE_VMAS (6.1
    /// to 7.3); arch/x86/include/asm/tlb.h:tlb_end_vma (5.10).
    pub fn end_vma(&mut self, env: &mut impl Env, site: Site) {
        if !env.arch().merges_vmas && !self.full_mm {
            self.flush_tlb(env, site, self.waits);
        }
    }

    /// Flushes without freeing, before dirty pages stop counting as mapped
    /// (`tlb_flush_mmu_tlbonly`).
    pub fn flush_before_rmaps(&mut self, env: &mut impl Env, site: Site) {
        let may_wait = self.waits && env.policies().defer_zap == DeferZap::All;
        self.flush_tlb(env, site, may_wait);
    }

    fn flush_tlb(&mut self, env: &mut impl Env, site: Site, may_wait: bool) {
        if self.lowest_cleared.is_some() || self.freed_tables {
            // The lowest level with a cleared entry sets the stride (`tlb_get_unmap_shift`).
            let stride_shift = u32::from(env.arch().order(self.lowest_cleared.unwrap_or(1)));
            let request = FlushRequest {
                stride_shift,
                freed_tables: self.freed_tables,
                tables_gone: self.tables_gone,
                change: self.change,
                // A CPU may still walk a table that is freed.
                may_wait: may_wait && !self.freed_tables,
                ..FlushRequest::range(site, self.mm, self.range)
            };
            tlb_flush(env, request, self.full_mm);
        }
        (self.range, self.lowest_cleared) = (NOTHING, None);
        (self.freed_tables, self.tables_gone) = (false, false);
        self.change = Change::Granted;
    }

    fn free_pages(&mut self, env: &mut impl Env) {
        if self.pages.is_empty() && self.tables.is_empty() {
            return;
        }
        if !self.pages.is_empty() && env.policies().zap_drain == ZapDrain::Yes {
            lru_add_drain(env);
        }
        let (mm, waits) = (self.mm, self.waits);
        let free = move |w: &mut World<_>, at: At, frame: Pfn| match waits {
            true => leave_zapped(w, at, mm, frame),
            false => w.put_frame(at, frame),
        };
        let (pages, tables) = (std::mem::take(&mut self.pages), std::mem::take(&mut self.tables));
        let cached = env.step(Site::FolioPut, |w, at| {
            let at_once = w.policies.mutant == Mutant::TableGivenBack;
            for (start, level) in tables {
                w.ghost.table_freed(mm, start, level);
                if at_once && level == 1 {
                    w.table_becomes(mm, Walked::Out(start), Walked::GivenBack);
                }
            }
            let unused = pages.iter().copied().filter(|frame| is_unused(w, *frame));
            let cached: SmallVec<[Pfn; BUNDLE]> = unused.collect();
            if cached.is_empty() {
                pages.iter().for_each(|frame| free(w, at, *frame));
            }
            cached
        });
        if !cached.is_empty() {
            free_swap_caches(env, &cached);
            env.step(Site::FolioPut, |w, at| {
                pages.iter().for_each(|frame| free(w, at, *frame));
            });
        }
        // The batches stay allocated. The gather fills them again from the first.
        (self.room, self.batches_left) = (BUNDLE - self.reserve, BATCHES);
    }

    /// Closes the gather (`tlb_finish_mmu`).
    pub fn finish(mut self, env: &mut impl Env) {
        let mm = self.mm;
        let nested = env.step(Site::TlbFinishMmu, |w, _| {
            let looks = w.policies.mutant != Mutant::NestedIgnored;
            looks && w.mms[mm.index()].open_gathers > 1
        });
        if nested {
            let tables_gone = self.tables_gone;
            let whole = FlushRequest::whole(Site::TlbFinishMmu, mm);
            flush_tlb_mm_range(env, FlushRequest { tables_gone, ..whole });
            self.free_pages(env);
        } else {
            self.flush(env, Site::TlbFinishMmu);
        }
        env.step(Site::TlbFinishMmu, |w, _| w.mms[mm.index()].open_gathers -= 1);
    }
}

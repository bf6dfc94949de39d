//! Reclaim of large folios. A folio is reclaimed as a whole where the swap device has room for it.

use super::split::split_huge_pmd_of;
use super::{entry_of, pmd_trans_huge_lock, pmd_unlock};
use crate::addr::{MmId, PageRange, Pfn, Vpn};
use crate::env::{Env, Learnt};
use crate::kernel::flush::{Change, FlushRequest, flush_tlb_mm_range};
use crate::kernel::rmap::rmap_walk_folio;
use crate::kernel::table::each_table;
use crate::kernel::unmap::{Unmap, UnmapFor, unmap_pte, unmap_run};
use crate::machine::frames::FrameFlags;
use crate::machine::world::{At, Ghost, Mode, World};
use crate::policy::{LargeReclaim, LazyfreeHuge, LazyfreeUnmap};
use crate::pte::{PresentPte, Pte, PteFlags};
use crate::site::Site;

/// Whether the folio was used since the last call. Clearing the accessed bit of a huge page's entry
/// takes a flush. Clearing those of PTEs does not.
///
/// Source: mm/rmap.c:page_referenced_one (5.10), folio_referenced_one (6.1 to 7.3);
/// arch/x86/mm/pgtable.c:pmdp_clear_flush_young.
pub fn large_referenced(env: &mut impl Env, folio: Pfn) -> bool {
    let (site, mut used) = (Site::FolioReferenced, false);
    rmap_walk_folio(env, site, folio, |env, (mm, pages)| {
        let whole = pmd_trans_huge_lock(env, site, mm, pages.start, |w, at, pmd| {
            let young = pmd.pfn == folio && pmd.accessed();
            if young {
                let old = Pte::Present(pmd.without(PteFlags::ACCESSED));
                w.set_pmd(at, mm, pages.start, old);
            }
            young
        });
        if let Some(young) = whole {
            if young {
                let range = env.arch().huge_pages(pages.start);
                flush_tlb_mm_range(env, FlushRequest::range(site, mm, range).of(Change::Aged));
            }
            used |= young;
            return pmd_unlock(env, mm, pages.start);
        }
        each_table(env, site, mm, pages, |env, part| {
            used |= env.step(site, |w, at| clear_young(w, at, (mm, part), folio));
        });
    });
    used
}

fn clear_young<M: Mode>(
    w: &mut World<M>,
    at: At,
    (mm, part): (MmId, PageRange),
    folio: Pfn,
) -> bool {
    let mut used = false;
    for page in part.iter() {
        if let Some(pte) = entry_of(w, folio, mm, page).filter(|pte| pte.accessed()) {
            w.set_pte(at, mm, page, Pte::Present(pte.without(PteFlags::ACCESSED)));
            used = true;
        }
    }
    used
}

/// What reclaim does with a large folio that has no swap slots yet.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum BeforeSwap {
    /// Reclaim keeps the folio, because somebody holds it.
    Keep,
    /// Reclaim writes the folio as a whole.
    Write,
    /// Reclaim splits the folio first.
    Split,
}

impl Learnt for BeforeSwap {
    fn nothing() -> BeforeSwap {
        BeforeSwap::Keep
    }
}

/// Decides what reclaim does with a large folio that is to go to swap.
///
/// Source: mm/vmscan.c:shrink_page_list (5.10), shrink_folio_list (6.1 to 7.3).
pub fn before_swap<M: Mode>(w: &World<M>, folio: Pfn) -> BeforeSwap {
    let split = match w.policies.large_reclaim {
        LargeReclaim::IfMappedWhole => w.frames.whole_maps(folio) == 0,
        LargeReclaim::UnlessPart => w.frames.is_partly_mapped(folio),
    };
    match (w.frames.flags(folio).has(FrameFlags::SWAP_CACHE), is_held(w, folio), split) {
        (true, ..) | (false, false, false) => BeforeSwap::Write,
        (false, true, _) => BeforeSwap::Keep,
        (false, false, true) => BeforeSwap::Split,
    }
}

/// Replaces all entries that map the folio. Returns a page where it was mapped, if nothing maps it
/// any more.
///
/// Source: mm/rmap.c:try_to_unmap_one with TTU_SPLIT_HUGE_PMD (5.10 to 7.3).
pub fn try_to_unmap_large(env: &mut impl Env, folio: Pfn) -> Option<Vpn> {
    let site = Site::TryToUnmapOne;
    let page = rmap_walk_folio(env, site, folio, |env, (mm, pages)| {
        if drop_huge_pmd(env, folio, mm, pages) {
            return;
        }
        split_huge_pmd_of(env, site, mm, pages.start, folio);
        each_table(env, site, mm, pages, |env, part| unmap_ptes(env, folio, mm, part));
    });
    let gone = env.step(Site::ShrinkFolioList, |w, _| w.frames.folio_maps(folio) == 0);
    gone.then(|| page.unwrap_or(Vpn(0)))
}

fn unmap_ptes(env: &mut impl Env, folio: Pfn, mm: MmId, part: PageRange) {
    let (site, unmap) = (Site::TryToUnmapOne, Unmap::of(folio, UnmapFor::Reclaim));
    let run = env.step(site, |w, _| {
        let lazyfree = !w.frames.flags(folio).has(FrameFlags::SWAP_BACKED);
        lazyfree && w.policies.lazyfree_unmap == LazyfreeUnmap::Run
    });
    if run {
        return unmap_run(env, unmap, (mm, part));
    }
    for page in part.iter() {
        let entry = env.step(site, |w, _| entry_of(w, folio, mm, page));
        // The first PTE that has to be put back ends the walk.
        if entry.is_some() && !unmap_pte(env, unmap, (mm, page)) {
            return;
        }
    }
}

/// Whether the folio has references besides those of its mappings and of the caller.
fn is_held<M: Mode>(w: &World<M>, folio: Pfn) -> bool {
    w.frames.get(folio).refs != 1 + w.frames.folio_maps(folio)
}

/// Unmaps, as a whole, a huge page that was given to MADV_FREE. Returns whether nothing is left to
/// do in this mapping.
///
/// Source: mm/huge_memory.c:unmap_huge_pmd_locked, __discard_anon_folio_pmd_locked (6.12.116, 7.2).
fn drop_huge_pmd(env: &mut impl Env, folio: Pfn, mm: MmId, pages: PageRange) -> bool {
    let site = Site::UnmapHugePmdLocked;
    let how = env.policies().lazyfree_huge;
    let lazyfree = env.step(site, |w, _| !w.frames.flags(folio).has(FrameFlags::SWAP_BACKED));
    if how == LazyfreeHuge::Split || !lazyfree {
        return false;
    }
    let taken = pmd_trans_huge_lock(env, site, mm, pages.start, |w, at, pmd| {
        let ours = pmd.pfn == folio && !is_written_again(w, folio, pmd);
        if ours {
            w.set_pmd(at, mm, pages.start, Pte::None);
        }
        ours.then_some(pmd)
    });
    let Some(found) = taken else { return false };
    let mut dropped = false;
    if let Some(pmd) = found {
        let range = env.arch().huge_pages(pages.start);
        flush_tlb_mm_range(env, FlushRequest::range(site, mm, range));
        dropped = env.step(site, |w, at| discard_or_restore(w, at, folio, (mm, range), pmd));
    }
    pmd_unlock(env, mm, pages.start);
    dropped || how == LazyfreeHuge::Whole
}

fn discard_or_restore<M: Mode>(
    w: &mut World<M>,
    at: At,
    folio: Pfn,
    (mm, range): (MmId, PageRange),
    pmd: PresentPte,
) -> bool {
    if is_written_again(w, folio, pmd) || is_held(w, folio) {
        w.set_pmd(at, mm, range.start, Pte::Present(pmd));
        return false;
    }
    w.withdraw(at, mm, None);
    for page in range.iter() {
        w.ghost.dropped(mm, page, w.frame_in(folio, page.since(range.start)));
    }
    w.drop_whole_mapping(at, folio);
    w.put_frame(at, folio);
    true
}

/// Whether the folio was written since MADV_FREE. On kernels that then leave the folio alone, it is
/// backed by swap again.
fn is_written_again<M: Mode>(w: &mut World<M>, folio: Pfn, pmd: PresentPte) -> bool {
    let dirty = pmd.dirty() || w.frames.flags(folio).has(FrameFlags::DIRTY);
    if dirty && w.policies.lazyfree_huge == LazyfreeHuge::Whole {
        w.frames.set_flags(folio, FrameFlags::DIRTY.and(FrameFlags::SWAP_BACKED), true);
    }
    dirty
}

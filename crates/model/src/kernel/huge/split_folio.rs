//! Splits a large folio into small ones.
//!
//! Its mappings are frozen first: a migration entry takes the place of each, and faults wait for
//! it. Then only the caller has a reference, and the pages are folios of their own when they are
//! mapped again.

use super::split::emit_split;
use super::{invalid, pmd_trans_huge_lock, pmd_unlock};
use crate::addr::{MmId, PageRange, Pfn};
use crate::env::{Env, Lock};
use crate::kernel::flush::{FlushRequest, flush_tlb_mm_range};
use crate::kernel::mlock_batch::munlock_split;
use crate::kernel::reclaim::FolioList;
use crate::kernel::rmap::folio_places;
use crate::kernel::swap_cache::swap_cache_references;
use crate::kernel::table::each_table;
use crate::kernel::unmap::{
    Destination, Unmap, UnmapFor, migration_entry, migration_right, remove_migration_pte, unmap_pte,
};
use crate::kernel::unmap_batch::try_to_unmap_flush;
use crate::machine::frames::FrameFlags;
use crate::machine::unmap_batch::Batch;
use crate::machine::world::{At, Mode, World};
use crate::policy::Mutant;
use crate::pte::{PresentPte, Pte};
use crate::site::Site;

/// Splits the folio, which the caller has locked and holds one reference to. Returns false if
/// somebody else holds it: it is then as it was, or mapped page by page. In either case all flushes
/// are over. Reclaim, which has taken the folio off the LRU, passes a `list`: the other pages go
/// there, each with a reference.
///
/// Source: mm/huge_memory.c:split_huge_page_to_list (5.10, 6.1), split_huge_page_to_list_to_order
/// (6.12), __folio_split (7.3).
pub fn split_folio(env: &mut impl Env, folio: Pfn, list: Option<&mut FolioList>) -> bool {
    let site = Site::SplitFolio;
    let root = env.step(site, |w, _| w.objects.root(w.frames.place(folio).0));
    env.lock(Lock::RmapWrite(root));
    let split = split_locked(env, folio, list);
    env.unlock(Lock::RmapWrite(root));
    split
}

fn split_locked(env: &mut impl Env, folio: Pfn, list: Option<&mut FolioList>) -> bool {
    let site = Site::SplitFolio;
    // 1. Before anything is unmapped, check the references (can_split_folio): those of the
    // mappings, of the swap cache, and ours.
    let looked = env.step(site, |w, _| {
        let maps = w.frames.folio_maps(folio);
        (w.frames.get(folio).refs == maps + swap_cache_references(w, folio) + 1)
            .then(|| (folio_places(w, folio), w.frames.folio(folio).1))
    });
    let Some((places, order)) = looked else { return false };
    // 2. Freeze all mappings.
    for (mm, pages) in &places {
        freeze(env, folio, *mm, *pages);
    }
    try_to_unmap_flush(env, Batch::Task, Site::TryToUnmapFlush);
    // 3. Split the folio, unless somebody took a reference meanwhile.
    let split = env.step(site, |w, at| {
        let alone = w.frames.get(folio).refs == 1 + swap_cache_references(w, folio);
        if alone {
            w.split_folio(at, folio);
        }
        alone
    });
    // 4. Map the pages again.
    let pages = folio.0..folio.0 + (1 << order);
    let again = Destination { from: pages.clone(), to: folio, zero_page: split };
    for (mm, part) in &places {
        each_table(env, site, *mm, *part, |env, part| {
            env.step(site, |w, at| {
                part.iter().for_each(|page| remove_migration_pte(w, at, (*mm, page), &again));
            });
        });
    }
    // 5. The split gave each page a reference. If there is no list, drop those references: pages
    // that nobody maps are then free.
    let tails = pages.skip(1).map(Pfn);
    match (split, list) {
        (false, _) => {}
        (true, Some(list)) => list.extend(tails),
        (true, None) => {
            env.step(Site::FolioPut, |w, at| tails.for_each(|page| w.put_frame(at, page)));
        }
    }
    split
}

/// Replaces the entries that map the folio there by migration entries.
///
/// Source: mm/rmap.c:try_to_unmap_one with TTU_SPLIT_FREEZE (5.10), try_to_migrate_one (6.1 to
/// 7.3); mm/huge_memory.c:__split_huge_pmd_locked with `freeze`.
fn freeze(env: &mut impl Env, folio: Pfn, mm: MmId, pages: PageRange) {
    let site = Site::SplitFolio;
    let taken = pmd_trans_huge_lock(env, site, mm, pages.start, |w, at, pmd| {
        let ours = pmd.pfn == folio;
        if ours {
            emit_split(w, at, pages.start, pmd);
            w.set_pmd(at, mm, pages.start, Pte::Present(invalid(pmd)));
        }
        ours.then_some(pmd)
    });
    if let Some(pmd) = taken {
        if let Some(pmd) = pmd {
            let whole = env.arch().huge_pages(pages.start);
            if env.policies().mutant != Mutant::SplitUnflushed {
                flush_tlb_mm_range(env, FlushRequest::range(Site::SplitHugePmd, mm, whole));
            }
            env.step(site, |w, at| freeze_whole(w, at, mm, whole, pmd));
        }
        return pmd_unlock(env, mm, pages.start);
    }
    each_table(env, site, mm, pages, |env, part| {
        let unmap = Unmap::of(folio, UnmapFor::Split);
        part.iter().for_each(|page| _ = unmap_pte(env, unmap, (mm, page)));
    });
}

fn freeze_whole<M: Mode>(w: &mut World<M>, at: At, mm: MmId, pages: PageRange, pmd: PresentPte) {
    if pmd.dirty() {
        w.frames.set_flags(pmd.pfn, FrameFlags::DIRTY, true);
    }
    let right = migration_right(w, pmd);
    w.frames.set_flags(pmd.pfn, FrameFlags::EXCLUSIVE, false);
    w.populate_pmd(at, mm, pages.start, |w, page| {
        let pfn = w.frame_in(pmd.pfn, page.since(pages.start));
        Pte::Migration(migration_entry(w, PresentPte { pfn, ..pmd }, right))
    });
    w.drop_whole_mapping(at, pmd.pfn);
    let locked = w.locks(mm, pages.start);
    munlock_split(w, at, pmd.pfn, locked);
    w.put_frame(at, pmd.pfn);
}

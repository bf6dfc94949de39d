//! Reclaim of large folios: as a whole where the swap device has room for it.

use super::split::split_huge_pmd_locked;
use super::split_folio::places;
use super::{pmd_trans_huge_lock, pmd_unlock};
use crate::addr::{MmId, PageRange, Pfn, Vpn};
use crate::env::{Env, Lock};
use crate::kernel::flush::{Change, FlushRequest, arch_tlbbatch_should_defer, flush_tlb_mm_range};
use crate::kernel::reclaim::{Flush, finish_unmap, flush_unmapped, unmap_pte};
use crate::kernel::table::{pte_offset_map_lock, pte_unmap_unlock};
use crate::kernel::zap::by_table;
use crate::machine::frames::FrameFlags;
use crate::machine::world::{At, Ghost, Mode, World};
use crate::policy::{LargeReclaim, LazyfreeHuge};
use crate::pte::{PresentPte, Pte, PteFlags};
use crate::site::Site;

/// Whether the folio was used since this was last asked. A huge page's accessed bit is taken with a flush, those of single pages without.
///
/// Source: mm/rmap.c:page_referenced_one (5.10), folio_referenced_one (6.1 to 7.3); arch/x86/mm/pgtable.c:pmdp_clear_flush_young.
pub fn large_referenced(env: &mut impl Env, folio: Pfn) -> bool {
    let (site, mut used) = (Site::FolioReferenced, false);
    walk(env, site, folio, |env, mm, pages| {
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
        let Pte::Present(pte) = w.pte(mm, page) else { continue };
        if pte.accessed() && !pte.special() && w.frames.folio(pte.pfn).0 == folio {
            w.set_pte(at, mm, page, Pte::Present(pte.without(PteFlags::ACCESSED)));
            used = true;
        }
    }
    used
}

/// Whether the folio can be reclaimed at all, and whether it has to be split first.
///
/// Source: mm/vmscan.c:shrink_page_list (5.10), shrink_folio_list (6.1 to 7.3).
pub fn before_swap<M: Mode>(w: &World<M>, folio: Pfn) -> (bool, bool) {
    let first = match w.policies.large_reclaim {
        LargeReclaim::IfMappedWhole => w.frames.whole_maps(folio) == 0,
        LargeReclaim::UnlessPart => w.frames.is_partly_mapped(folio),
    };
    (!is_held(w, folio), first)
}

/// Replaces all entries that map the folio; a page where it was mapped, if none is left.
///
/// Source: mm/rmap.c:try_to_unmap_one with TTU_SPLIT_HUGE_PMD (5.10 to 7.3).
pub fn try_to_unmap_large(env: &mut impl Env, folio: Pfn) -> Option<Vpn> {
    let site = Site::TryToUnmapOne;
    let page = walk(env, site, folio, |env, mm, pages| {
        if drop_huge_pmd(env, folio, mm, pages) {
            return;
        }
        let lock = Lock::pmd(env.arch(), mm, pages.start);
        env.lock(lock);
        if env.step(site, |w, _| w.pmd(mm, pages.start).is_some_and(|pmd| pmd.pfn == folio)) {
            split_huge_pmd_locked(env, mm, pages.start);
        }
        env.unlock(lock);
        each_table(env, site, mm, pages, |env, part| unmap_ptes(env, folio, mm, part));
    });
    let gone = env.step(Site::ShrinkFolioList, |w, _| w.frames.folio_maps(folio) == 0);
    gone.then(|| page.unwrap_or(Vpn(0)))
}

fn unmap_ptes(env: &mut impl Env, folio: Pfn, mm: MmId, part: PageRange) {
    let site = Site::TryToUnmapOne;
    let run = env.step(site, |w, _| {
        let lazyfree = !w.frames.flags(folio).has(FrameFlags::SWAP_BACKED);
        lazyfree && w.policies.lazyfree_huge == LazyfreeHuge::Run
    });
    if run {
        return unmap_run(env, folio, mm, part);
    }
    for page in part.iter() {
        let frame = env.step(site, |w, _| page_of(w, folio, mm, page));
        // The first that has to be put back ends it.
        if frame.is_some_and(|frame| !unmap_pte(env, frame, (mm, page))) {
            return;
        }
    }
}

/// All PTEs at once, with one flush for all.
///
/// Source: mm/rmap.c:folio_unmap_pte_batch, try_to_unmap_one (7.3).
fn unmap_run(env: &mut impl Env, folio: Pfn, mm: MmId, part: PageRange) {
    let site = Site::TryToUnmapOne;
    let cleared = env.step(site, |w, at| {
        let run = part.iter().filter_map(|page| Some((page, page_of(w, folio, mm, page)?)));
        let run: Vec<(Vpn, Pfn)> = run.collect();
        let entries = run.into_iter().filter_map(|(page, frame)| {
            let pte = w.pte(mm, page).present()?;
            w.set_pte(at, mm, page, Pte::None);
            Some((page, frame, pte))
        });
        let entries: Vec<_> = entries.collect();
        let deferred = arch_tlbbatch_should_defer(w, at, mm);
        (entries, deferred)
    });
    let (entries, deferred) = cleared;
    let Some((first, _, _)) = entries.first() else { return };
    let dirty = entries.iter().any(|(_, _, pte)| pte.dirty());
    let run = PageRange::new(*first, entries.len() as u64);
    flush_unmapped(env, mm, run, if deferred { Flush::Deferred } else { Flush::Now }, dirty);
    // Together they go, or stay.
    let kept = env.step(site, |w, at| {
        let kept = dirty || w.frames.flags(folio).has(FrameFlags::DIRTY) || is_held(w, folio);
        if dirty {
            w.frames.set_flags(folio, FrameFlags::DIRTY, true);
        }
        if kept {
            let backed = dirty || w.frames.flags(folio).has(FrameFlags::DIRTY);
            w.frames.set_flags(folio, FrameFlags::SWAP_BACKED, backed);
            let back = |(page, _, pte): &(Vpn, Pfn, PresentPte)| (*page, Pte::Present(*pte));
            entries.iter().map(back).for_each(|(page, pte)| w.set_pte(at, mm, page, pte));
        }
        kept
    });
    if !kept {
        env.step(site, |w, at| {
            entries.iter().for_each(|(page, frame, old)| {
                finish_unmap(w, at, *frame, (mm, *page), *old);
            });
        });
    }
}

/// Whether anybody but its mappings and the caller has a reference to the folio.
fn is_held<M: Mode>(w: &World<M>, folio: Pfn) -> bool {
    w.frames.get(folio).refs != 1 + w.frames.folio_maps(folio)
}

/// Takes away a huge page that MADV_FREE was given, as a whole; whether this is how it is done.
///
/// Source: mm/huge_memory.c:unmap_huge_pmd_locked, __discard_anon_folio_pmd_locked (6.18).
fn drop_huge_pmd(env: &mut impl Env, folio: Pfn, mm: MmId, pages: PageRange) -> bool {
    let site = Site::UnmapHugePmdLocked;
    let whole = env.step(site, |w, _| {
        let lazyfree = !w.frames.flags(folio).has(FrameFlags::SWAP_BACKED);
        lazyfree && w.policies.lazyfree_huge == LazyfreeHuge::Whole
    });
    if !whole {
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
    if let Some(pmd) = found {
        let range = env.arch().huge_pages(pages.start);
        flush_tlb_mm_range(env, FlushRequest::range(site, mm, range));
        env.step(site, |w, at| {
            if is_written_again(w, folio, pmd) || is_held(w, folio) {
                return w.set_pmd(at, mm, pages.start, Pte::Present(pmd));
            }
            w.withdraw(at, mm);
            for page in range.iter() {
                w.ghost.dropped(mm, page, w.frame_in(folio, page.since(range.start)));
            }
            w.frames.count_whole_map(folio, -1);
            w.put_frame(at, folio);
        });
    }
    pmd_unlock(env, mm, pages.start);
    true
}

/// Whether the folio was written since MADV_FREE, so that it is backed by swap again.
fn is_written_again<M: Mode>(w: &mut World<M>, folio: Pfn, pmd: PresentPte) -> bool {
    let dirty = pmd.dirty() || w.frames.flags(folio).has(FrameFlags::DIRTY);
    if dirty {
        w.frames.set_flags(folio, FrameFlags::DIRTY.and(FrameFlags::SWAP_BACKED), true);
    }
    dirty
}

fn page_of<M: Mode>(w: &World<M>, folio: Pfn, mm: MmId, page: Vpn) -> Option<Pfn> {
    let pte = w.pte(mm, page).present().filter(|pte| !pte.special())?;
    (w.frames.folio(pte.pfn).0 == folio).then_some(pte.pfn)
}

/// Calls `visit` for each part of a mapping that may map the folio, with the lock of its object held. Returns the first page.
fn walk<E: Env>(
    env: &mut E,
    site: Site,
    folio: Pfn,
    mut visit: impl FnMut(&mut E, MmId, PageRange),
) -> Option<Vpn> {
    env.lock(Lock::RmapOf(folio));
    let (root, found) =
        env.step(site, |w, _| (w.objects.root(w.frames.place(folio).0), places(w, folio)));
    for (mm, pages) in &found {
        visit(env, *mm, *pages);
    }
    env.unlock(Lock::RmapRead(root));
    found.first().map(|(_, pages)| pages.start)
}

/// Calls `visit` for each last-level table's part of `pages`, with the table's lock held.
fn each_table<E: Env>(
    env: &mut E,
    site: Site,
    mm: MmId,
    pages: PageRange,
    mut visit: impl FnMut(&mut E, PageRange),
) {
    for part in by_table(&{ *env.arch() }, pages) {
        if pte_offset_map_lock(env, site, mm, part.start, |_, _| ()).is_some() {
            visit(env, part);
            pte_unmap_unlock(env, mm, part.start);
        }
    }
}

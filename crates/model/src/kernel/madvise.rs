//! `madvise`.

use crate::addr::{MmId, PageRange, Vpn};
use crate::arch::Arch;
use crate::env::{Env, Lock};
use crate::kernel::Errno;
use crate::kernel::flush::Change;
use crate::kernel::gather::Gather;
use crate::kernel::lru::{deactivate, lru_add_drain, mark_lazyfree};
use crate::kernel::populate::populate;
use crate::kernel::punch::remove;
use crate::kernel::reclaim::{FolioList, isolate_lru, reclaim_pages};
use crate::kernel::swap_cache::{free_swap_and_cache, leave_swap_cache, swap_users};
use crate::kernel::table::{pte_offset_map_lock, pte_unmap_unlock};
use crate::kernel::unmap_batch::flush_tlb_batched_pending;
use crate::kernel::zap::{Zap, by_table, zap_range};
use crate::machine::frames::FrameFlags;
use crate::machine::world::{At, Ghost, Mode, World};
use crate::policy::{AdviseGather, AdviseLock, Mutant, PageoutYoung, ZapDrain};
use crate::program::Advice;
use crate::pte::{PresentPte, Pte, PteFlags};
use crate::site::Site;
use crate::wait::Ended;
use smallvec::SmallVec;

/// Applies `advice` to every mapping in `range`; a hole does not stop it but is reported. What is left of the
/// range if it has to wait.
///
/// Source: mm/madvise.c:madvise_walk_vmas (5.10 to 7.3).
pub fn madvise(
    env: &mut impl Env,
    mm: MmId,
    range: PageRange,
    advice: Advice,
) -> Result<Ended<PageRange>, Errno> {
    let covered = match advice {
        Advice::PopulateRead | Advice::PopulateWrite => {
            return populate(env, mm, range, advice == Advice::PopulateWrite);
        }
        Advice::Remove => remove(env, mm, range),
        Advice::DontNeed => gathered(env, mm, range, dontneed),
        Advice::Free => gathered(env, mm, range, free),
        Advice::Cold => each(env, mm, range, |env, vma| cold_or_pageout(env, mm, vma, false)),
        Advice::PageOut => each(env, mm, range, |env, vma| cold_or_pageout(env, mm, vma, true)),
    };
    if covered { Ok(Ended::Done) } else { Err(Errno::Enomem) }
}

/// Applies `advice` to each mapping in `range`, with `mmap_lock` held; whether there is no hole between them.
fn each<E: Env>(
    env: &mut E,
    mm: MmId,
    range: PageRange,
    mut advice: impl FnMut(&mut E, PageRange),
) -> bool {
    env.lock(Lock::MmapRead(mm));
    let (vmas, covered) = mappings(env, mm, range);
    vmas.iter().for_each(|vma| advice(env, *vma));
    env.unlock(Lock::MmapRead(mm));
    covered
}

/// The mappings in `range`, and whether there is no hole between them.
fn mappings(env: &mut impl Env, mm: MmId, range: PageRange) -> (SmallVec<[PageRange; 4]>, bool) {
    env.step(Site::MadviseDontneed, |w, at| {
        w.mmap_assert_locked(at, mm);
        let vmas = w.mms[mm.index()].vmas_in(range).map(|vma| vma.range);
        let vmas: SmallVec<[PageRange; 4]> = vmas.collect();
        let covered = vmas.iter().map(|vma| vma.pages()).sum::<u64>() == range.pages();
        (vmas, covered)
    })
}

/// Applies `advice` to each mapping, in one gather for all or one for each; whether there is no hole between them.
fn gathered<E: Env>(
    env: &mut E,
    mm: MmId,
    range: PageRange,
    advice: fn(&mut E, &mut Gather, PageRange),
) -> bool {
    if env.policies().advise_gather == AdviseGather::PerCall {
        return in_one_gather(env, mm, range, advice);
    }
    each(env, mm, range, |env, vma| {
        let mut gather = Gather::open(env, mm);
        advice(env, &mut gather, vma);
        gather.finish(env);
    })
}

/// One flush for the whole call. Who has the lock of the one mapping gives it back before that: the open gather
/// makes others flush everything, and keeps the pages.
///
/// Source: mm/madvise.c:do_madvise, madvise_lock, madvise_walk_vmas, try_vma_read_lock (6.18, 7.3).
fn in_one_gather<E: Env>(
    env: &mut E,
    mm: MmId,
    range: PageRange,
    advice: fn(&mut E, &mut Gather, PageRange),
) -> bool {
    let by_vma = env.policies().advise_lock == AdviseLock::Vma;
    if !by_vma {
        env.lock(Lock::MmapRead(mm));
    }
    let mut gather = Gather::open(env, mm);
    if by_vma {
        if try_vma_read_lock(env, mm, range) {
            advice(env, &mut gather, range);
            env.unlock(Lock::VmaOf(mm, range.start));
            gather.finish(env);
            return true;
        }
        env.lock(Lock::MmapRead(mm));
    }
    let (vmas, covered) = mappings(env, mm, range);
    vmas.iter().for_each(|vma| advice(env, &mut gather, *vma));
    gather.finish(env);
    env.unlock(Lock::MmapRead(mm));
    covered
}

/// Locks the mapping of all of `range`, if there is one and nobody writes to it.
fn try_vma_read_lock(env: &mut impl Env, mm: MmId, range: PageRange) -> bool {
    let lock = Lock::VmaOf(mm, range.start);
    if !env.try_lock(Site::TryVmaReadLock, lock) {
        return false;
    }
    let whole = env.step(Site::TryVmaReadLock, |w, at| {
        w.vma_assert_locked(at, mm, range.start);
        let vma = w.mms[mm.index()].vma(range.start).map(|vma| vma.range);
        vma.is_some_and(|vma| vma.intersect(range) == range)
    });
    if !whole {
        env.unlock(lock);
    }
    whole
}

/// `MADV_DONTNEED`: the pages are given up.
fn dontneed<E: Env>(env: &mut E, gather: &mut Gather, range: PageRange) {
    if env.policies().zap_drain == ZapDrain::Yes {
        lru_add_drain(env);
    }
    zap_range(env, gather, range, Zap::Advice);
}

/// `MADV_COLD` and `MADV_PAGEOUT`.
fn cold_or_pageout(env: &mut impl Env, mm: MmId, range: PageRange, pageout: bool) {
    lru_add_drain(env);
    let mut gather = Gather::open(env, mm);
    let arch: Arch = *env.arch();
    for part in by_table(&arch, range) {
        let pages = collect(env, &mut gather, part, pageout);
        reclaim_pages(env, &pages);
    }
    gather.end_vma(env, Site::MadviseColdOrPageout);
    gather.finish(env);
}

/// Walks one page table, if there is one, under its lock: ages each page, isolates it for reclaim.
///
/// Source: mm/madvise.c:madvise_cold_or_pageout_pte_range (5.10 to 7.3).
fn collect(env: &mut impl Env, gather: &mut Gather, part: PageRange, pageout: bool) -> FolioList {
    let clears_young = !pageout || env.policies().pageout_young == PageoutYoung::Clear;
    let (mm, mut pages) = (gather.mm(), FolioList::new());
    if pte_offset_map_lock(env, Site::MadviseColdOrPageout, mm, part.start, |_, _| ()).is_none() {
        return pages;
    }
    flush_tlb_batched_pending(env, mm);
    for page in part.iter() {
        let (aged, isolated) = env.step(Site::MadviseColdOrPageout, |w, at| {
            let Some(pte) = sole_lru_page(w, w.pte(mm, page)) else { return (false, None) };
            let aged = clears_young && pte.accessed();
            if aged {
                w.set_pte(at, mm, page, Pte::Present(pte.without(PteFlags::ACCESSED)));
            }
            w.frames.set_flags(pte.pfn, FrameFlags::REFERENCED, false);
            if !pageout {
                deactivate(w, at, pte.pfn);
            }
            (aged, (pageout && isolate_lru(w, pte.pfn)).then_some(pte.pfn))
        });
        if aged {
            gather.changed(page, Change::Aged);
        }
        pages.extend(isolated);
    }
    pte_unmap_unlock(env, mm, part.start);
    pages
}

/// The translation, if its page is on the LRU and mapped only here.
fn sole_lru_page<M: Mode>(w: &World<M>, pte: Pte) -> Option<PresentPte> {
    let pte = pte.present().filter(|pte| !pte.special())?;
    let frame = w.frames.get(pte.pfn);
    (frame.flags.has(FrameFlags::LRU) && frame.maps == 1).then_some(pte)
}

/// `MADV_FREE`: the pages may be dropped while they stay clean.
///
/// Source: mm/madvise.c:madvise_free_single_vma, madvise_free_pte_range (5.10 to 7.3).
fn free<E: Env>(env: &mut E, gather: &mut Gather, range: PageRange) {
    lru_add_drain(env);
    let (arch, mm): (Arch, MmId) = (*env.arch(), gather.mm());
    for part in by_table(&arch, range) {
        if pte_offset_map_lock(env, Site::MadviseFree, mm, part.start, |_, _| ()).is_none() {
            continue;
        }
        flush_tlb_batched_pending(env, mm);
        for page in part.iter() {
            if let Some(change) = env.step(Site::MadviseFree, |w, at| free_pte(w, at, mm, page)) {
                gather.changed(page, change);
            }
        }
        pte_unmap_unlock(env, mm, part.start);
    }
    gather.end_vma(env, Site::MadviseFree);
}

/// What the PTE lost, its accessed or dirty bit, which is to be flushed.
fn free_pte<M: Mode>(w: &mut World<M>, at: At, mm: MmId, page: Vpn) -> Option<Change> {
    match w.pte(mm, page) {
        Pte::Swap(swap) => {
            w.set_pte(at, mm, page, Pte::None);
            w.ghost.discarded(mm, page, w.swap.get(swap.slot).cached);
            free_swap_and_cache(w, at, swap.slot);
            None
        }
        Pte::Present(pte) if !pte.special() => {
            let frame = w.frames.get(pte.pfn);
            if frame.flags.has(FrameFlags::SWAP_CACHE) || frame.flags.has(FrameFlags::DIRTY) {
                if frame.maps != 1 {
                    return None;
                }
                if frame.flags.has(FrameFlags::SWAP_CACHE) {
                    // Somebody has it in swap: it stays (folio_free_swap).
                    if swap_users(w, pte.pfn) != 0 {
                        return None;
                    }
                    leave_swap_cache(w, at, pte.pfn);
                }
                w.frames.set_flags(pte.pfn, FrameFlags::DIRTY, false);
            }
            let clean = pte.without(PteFlags::ACCESSED).without(PteFlags::DIRTY);
            if clean != pte {
                w.set_pte(at, mm, page, Pte::Present(clean));
            }
            mark_lazyfree(w, at, pte.pfn);
            let flushed = clean != pte && w.policies.mutant != Mutant::FreeUnflushed;
            flushed.then(|| Change::of(pte, clean, Change::Aged))
        }
        _ => None,
    }
}

//! `madvise`.

use crate::addr::{MmId, PageRange, Vpn};
use crate::arch::Arch;
use crate::env::{Env, Lock};
use crate::kernel::Errno;
use crate::kernel::flush::Change;
use crate::kernel::gather::Gather;
use crate::kernel::lru::{deactivate, lru_add_drain, mark_lazyfree};
use crate::kernel::populate::populate;
use crate::kernel::reclaim::{FolioList, isolate_lru, reclaim_pages};
use crate::kernel::swap_cache::{free_swap_and_cache, leave_swap_cache};
use crate::kernel::table::{pte_offset_map_lock, pte_unmap_unlock};
use crate::kernel::unmap_batch::flush_tlb_batched_pending;
use crate::kernel::zap::{by_table, zap_range};
use crate::machine::frames::FrameFlags;
use crate::machine::world::{At, Ghost, Mode, World};
use crate::policy::{AdviseGather, Mutant, PageoutYoung, ZapDrain};
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
    if matches!(advice, Advice::PopulateRead | Advice::PopulateWrite) {
        return populate(env, mm, range, advice == Advice::PopulateWrite);
    }
    env.lock(Lock::MmapRead(mm));
    let (vmas, covered) = env.step(Site::MadviseDontneed, |w, at| {
        w.mmap_assert_locked(at, mm);
        let vmas = w.mms[mm.index()].vmas_in(range).map(|vma| vma.range);
        let vmas: SmallVec<[PageRange; 4]> = vmas.collect();
        let covered = vmas.iter().map(|vma| vma.pages()).sum::<u64>() == range.pages();
        (vmas, covered)
    });
    match advice {
        Advice::DontNeed => gathered(env, mm, &vmas, dontneed),
        Advice::Free => gathered(env, mm, &vmas, free),
        Advice::Cold => vmas.iter().for_each(|vma| cold_or_pageout(env, mm, *vma, false)),
        Advice::PageOut => vmas.iter().for_each(|vma| cold_or_pageout(env, mm, *vma, true)),
        Advice::PopulateRead | Advice::PopulateWrite => {}
    }
    env.unlock(Lock::MmapRead(mm));
    if covered { Ok(Ended::Done) } else { Err(Errno::Enomem) }
}

/// Applies `advice` to each mapping, in one gather for all or one for each.
fn gathered<E: Env>(
    env: &mut E,
    mm: MmId,
    vmas: &[PageRange],
    advice: fn(&mut E, &mut Gather, PageRange),
) {
    let per_call = env.policies().advise_gather == AdviseGather::PerCall;
    let calls = if per_call { vmas.chunks(vmas.len().max(1)) } else { vmas.chunks(1) };
    for vmas in calls {
        let mut gather = Gather::open(env, mm);
        for vma in vmas {
            advice(env, &mut gather, *vma);
        }
        gather.finish(env);
    }
}

/// `MADV_DONTNEED`: the pages are given up.
fn dontneed<E: Env>(env: &mut E, gather: &mut Gather, range: PageRange) {
    if env.policies().zap_drain == ZapDrain::Yes {
        lru_add_drain(env);
    }
    zap_range(env, gather, range, true);
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
            w.frames.update(pte.pfn, |f| f.flags.set(FrameFlags::REFERENCED, false));
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
                    leave_swap_cache(w, at, pte.pfn);
                }
                w.frames.update(pte.pfn, |f| f.flags.set(FrameFlags::DIRTY, false));
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

//! `madvise`, and `process_madvise` on the caller's own process.

use crate::addr::{MmId, PageRange, Pfn, Vpn};
use crate::arch::Arch;
use crate::env::{Env, Lock};
use crate::kernel::Errno;
use crate::kernel::flush::Change;
use crate::kernel::gather::Gather;
use crate::kernel::guard;
use crate::kernel::huge::advise::hugepage_madvise;
use crate::kernel::huge::age::{age_huge_pmd, aged};
use crate::kernel::huge::collapse::madvise_collapse;
use crate::kernel::huge::free::{free_large, madvise_free_huge_pmd};
use crate::kernel::huge::run::{Run, next_run};
use crate::kernel::lru::{deactivate, folio_add_lru, lru_add_drain, mark_lazyfree};
use crate::kernel::populate::populate;
use crate::kernel::punch::remove;
use crate::kernel::reclaim::{FolioList, reclaim_pages};
use crate::kernel::swap_cache::{free_swap_and_cache, leave_swap_cache, swap_users};
use crate::kernel::table::{pte_offset_map_lock, pte_unmap_unlock};
use crate::kernel::unmap_batch::flush_tlb_batched_pending;
use crate::kernel::zap::{Zap, by_table, zap_range};
use crate::machine::frames::FrameFlags;
use crate::machine::vma::{HugeAdvice, Vma};
use crate::machine::world::{At, Ghost, Mode, World};
use crate::policy::{
    AdviseGather, AdviseLock, GuardRegions, Mutant, PageoutYoung, VectoredAdvice, ZapDrain,
};
use crate::program::Advice;
use crate::pte::{PresentPte, Pte, PteFlags};
use crate::site::Site;
use crate::wait::Ended;
use smallvec::SmallVec;

/// Applies `advice` to every mapping in `range`. A hole does not stop it but is reported at the
/// end. If it has to wait, returns the rest of the range.
///
/// Source: mm/madvise.c:madvise_walk_vmas (5.10 to 7.3).
pub fn madvise(
    env: &mut impl Env,
    mm: MmId,
    range: PageRange,
    advice: Advice,
) -> Result<Ended<PageRange>, Errno> {
    advise(env, mm, std::iter::once(range), advice)
}

/// Applies `advice` to several ranges of the caller's own process, until one of them has a hole.
///
/// Source: mm/madvise.c:process_madvise (5.10 to 7.3), vector_madvise (7.3).
pub fn process_madvise(
    env: &mut impl Env,
    mm: MmId,
    mut ranges: impl Iterator<Item = PageRange>,
    advice: Advice,
) -> Result<Ended<PageRange>, Errno> {
    match (env.policies().vectored_advice, advice) {
        (VectoredAdvice::None, _) => Err(Errno::Enosys),
        (VectoredAdvice::Hints, Advice::Cold | Advice::PageOut | Advice::Collapse) => {
            ranges.try_for_each(|range| madvise(env, mm, range, advice).map(|_| ()))?;
            Ok(Ended::Done)
        }
        (VectoredAdvice::Hints, _) => Err(Errno::Einval),
        (VectoredAdvice::OneCall, _) => advise(env, mm, ranges, advice),
    }
}

/// Carries out one call. It takes the locks that its advice needs once, for all ranges. If it has
/// to wait, returns the rest of a range.
///
/// Source: mm/madvise.c:madvise_do_behavior, get_lock_mode (6.18, 7.3).
fn advise(
    env: &mut impl Env,
    mm: MmId,
    ranges: impl Iterator<Item = PageRange>,
    advice: Advice,
) -> Result<Ended<PageRange>, Errno> {
    let covered = match advice {
        Advice::PopulateRead | Advice::PopulateWrite => {
            return populate(env, mm, ranges, advice == Advice::PopulateWrite);
        }
        Advice::Remove => up_to_a_hole(ranges, |range| remove(env, mm, range))?,
        Advice::HugePage => hugepage_madvise(env, mm, ranges, HugeAdvice::Wanted),
        Advice::NoHugePage => hugepage_madvise(env, mm, ranges, HugeAdvice::Unwanted),
        Advice::Collapse => madvise_collapse(env, mm, ranges)?,
        Advice::DontNeed => gathered(env, mm, ranges, Gather::open_dontneed, dontneed)?,
        Advice::Free => gathered(env, mm, ranges, Gather::open, free)?,
        Advice::Cold => each(env, mm, ranges, |env, vma| cold_or_pageout(env, mm, vma, false))?,
        Advice::PageOut => each(env, mm, ranges, |env, vma| cold_or_pageout(env, mm, vma, true))?,
        Advice::GuardInstall => guards(env, mm, ranges, true)?,
        Advice::GuardRemove => guards(env, mm, ranges, false)?,
    };
    if covered { Ok(Ended::Done) } else { Err(Errno::Enomem) }
}

/// The lock that keeps mappings as they are during a call: `mmap_lock` from beginning to end, or
/// the locks of single mappings in turn, until one of those is not enough.
///
/// Source: mm/madvise.c:madvise_lock, try_vma_read_lock, madvise_unlock (6.18, 7.3).
struct ReadLock {
    mm: MmId,
    /// Whether `mmap_lock` is held.
    whole: bool,
    /// Whether a mapping's own lock is enough only if the mapping has an `anon_vma` or needs none.
    with_anon_vma: bool,
}

impl ReadLock {
    /// Takes `mmap_lock`, or nothing yet if `by_vma`.
    fn take(env: &mut impl Env, mm: MmId, by_vma: bool) -> ReadLock {
        if !by_vma {
            env.lock(Lock::MmapRead(mm));
        }
        ReadLock { mm, whole: !by_vma, with_anon_vma: false }
    }

    fn give_back(self, env: &mut impl Env) {
        if self.whole {
            env.unlock(Lock::MmapRead(self.mm));
        }
    }

    /// Applies `advice` to each mapping in `range`, until one refuses it. Returns whether the
    /// mappings cover the range without a hole.
    ///
    /// Source: mm/madvise.c:madvise_walk_vmas (5.10 to 7.3).
    fn walk<E: Env>(
        &mut self,
        env: &mut E,
        range: PageRange,
        mut advice: impl FnMut(&mut E, PageRange) -> Result<(), Errno>,
    ) -> Result<bool, Errno> {
        if !self.whole {
            if self.try_vma(env, range) {
                let done = advice(env, range);
                env.unlock(Lock::VmaOf(self.mm, range.start));
                return done.map(|()| true);
            }
            env.lock(Lock::MmapRead(self.mm));
            self.whole = true;
        }
        let (vmas, covered) = mappings(env, self.mm, range);
        vmas.iter().try_for_each(|vma| advice(env, *vma))?;
        Ok(covered)
    }

    /// Locks the mapping for reading, if one mapping holds all of `range`, nobody has it
    /// write-locked, and its own lock is enough. Returns whether it is locked.
    fn try_vma(&self, env: &mut impl Env, range: PageRange) -> bool {
        let (mm, lock) = (self.mm, Lock::VmaOf(self.mm, range.start));
        if !env.try_lock(Site::TryVmaReadLock, lock) {
            return false;
        }
        let with_anon_vma = self.with_anon_vma;
        let enough = env.step(Site::TryVmaReadLock, |w, at| {
            w.vma_assert_locked(at, mm, range.start);
            let vma = w.mms[mm.index()].vma(range.start);
            let has = |vma: &Vma| vma.file.is_some() || vma.anon_vma.is_some();
            vma.is_some_and(|vma| {
                vma.range.intersect(range) == range
                    && !vma.uffd.armed()
                    && (has(vma) || !with_anon_vma)
            })
        });
        if !enough {
            env.unlock(lock);
        }
        enough
    }
}

/// Applies `advice` to each mapping in the ranges, with `mmap_lock` held, until a range has a hole.
/// Returns whether no range has one.
fn each<E: Env>(
    env: &mut E,
    mm: MmId,
    ranges: impl Iterator<Item = PageRange>,
    mut advice: impl FnMut(&mut E, PageRange),
) -> Result<bool, Errno> {
    let mut lock = ReadLock::take(env, mm, false);
    let covered = up_to_a_hole(ranges, |range| {
        lock.walk(env, range, |env, vma| {
            not_locked(env, mm, vma)?;
            advice(env, vma);
            Ok(())
        })
    });
    lock.give_back(env);
    covered
}

/// Runs `action` on each range until one has a hole. Returns whether no range has one.
fn up_to_a_hole(
    ranges: impl Iterator<Item = PageRange>,
    mut action: impl FnMut(PageRange) -> Result<bool, Errno>,
) -> Result<bool, Errno> {
    for range in ranges {
        if !action(range)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Fails if the mapping locks its pages: those must not leave memory.
///
/// Source: mm/madvise.c:can_madv_lru_vma (5.10 to 7.3), madvise_dontneed_free_valid_vma,
/// madvise_remove (6.1 to 7.3), is_valid_guard_vma (7.2).
fn not_locked(env: &mut impl Env, mm: MmId, vma: PageRange) -> Result<(), Errno> {
    let locked =
        env.config().locks_memory && env.step(Site::MadviseDontneed, |w, _| w.locks(mm, vma.start));
    if locked { Err(Errno::Einval) } else { Ok(()) }
}

/// Returns the mappings in `range`, and whether they cover it without a hole.
fn mappings(env: &mut impl Env, mm: MmId, range: PageRange) -> (SmallVec<[PageRange; 4]>, bool) {
    env.step(Site::MadviseDontneed, |w, at| {
        w.mmap_assert_locked(at, mm);
        let vmas = w.mms[mm.index()].vmas_in(range).map(|vma| vma.range);
        let vmas: SmallVec<[PageRange; 4]> = vmas.collect();
        let covered = vmas.iter().map(|vma| vma.pages()).sum::<u64>() == range.pages();
        (vmas, covered)
    })
}

/// Applies `advice` to each mapping, with one gather for the whole call or one for each mapping.
/// Returns whether there is no hole. A call that holds only a mapping's own lock gives it back
/// before the flush. That is safe: the open gather makes others flush everything, and keeps the
/// pages.
///
/// Source: mm/madvise.c:do_madvise, vector_madvise, madvise_batch_tlb_flush (6.18, 7.3).
fn gathered<E: Env>(
    env: &mut E,
    mm: MmId,
    ranges: impl Iterator<Item = PageRange>,
    open: fn(&mut E, MmId) -> Gather,
    advice: fn(&mut E, &mut Gather, PageRange),
) -> Result<bool, Errno> {
    if env.policies().advise_gather == AdviseGather::PerMapping {
        return each(env, mm, ranges, |env, vma| {
            let mut gather = open(env, mm);
            advice(env, &mut gather, vma);
            gather.finish(env);
        });
    }
    let by_vma = env.policies().advise_lock == AdviseLock::Vma;
    let mut lock = ReadLock::take(env, mm, by_vma);
    let mut gather = open(env, mm);
    let covered = up_to_a_hole(ranges, |range| {
        lock.walk(env, range, |env, vma| {
            not_locked(env, mm, vma)?;
            advice(env, &mut gather, vma);
            Ok(())
        })
    });
    gather.finish(env);
    lock.give_back(env);
    covered
}

/// Installs guards in each mapping, or removes them. Each mapping that has pages there gets its own
/// gather. Returns whether there is no hole. If others keep mapping pages in the meantime, the call
/// gives its lock back and starts the range again.
///
/// Source: mm/madvise.c:madvise_guard_install, madvise_guard_remove, vector_madvise (7.3:
/// restart_syscall).
fn guards<E: Env>(
    env: &mut E,
    mm: MmId,
    ranges: impl Iterator<Item = PageRange>,
    installs: bool,
) -> Result<bool, Errno> {
    let by_vma = match env.policies().guard_regions {
        GuardRegions::None => return Err(Errno::Einval),
        GuardRegions::AnonVma => false,
        GuardRegions::Flag => true,
    };
    let take = |env: &mut E| ReadLock { with_anon_vma: true, ..ReadLock::take(env, mm, by_vma) };
    let mut lock = Some(take(env));
    let covered = up_to_a_hole(ranges, |range| {
        loop {
            let held = lock.get_or_insert_with(|| take(env));
            let mut done = true;
            let covered = held.walk(env, range, |env, vma| {
                if !installs {
                    guard::remove(env, mm, vma);
                    return Ok(());
                }
                not_locked(env, mm, vma)?;
                done = done && guard::install(env, mm, vma)?;
                Ok(())
            });
            if done {
                return covered;
            }
            lock.take().into_iter().for_each(|lock| lock.give_back(env));
        }
    });
    lock.into_iter().for_each(|lock| lock.give_back(env));
    covered
}

/// `MADV_DONTNEED`: frees the pages.
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

/// Walks one page table, if there is one, under its lock. Ages each page and isolates it for
/// reclaim.
///
/// Source: mm/madvise.c:madvise_cold_or_pageout_pte_range (5.10 to 7.3).
fn collect(env: &mut impl Env, gather: &mut Gather, part: PageRange, pageout: bool) -> FolioList {
    let clears_young = !pageout || env.policies().pageout_young == PageoutYoung::Clear;
    if let Some(huge) = age_huge_pmd(env, gather, part, pageout, clears_young) {
        return huge;
    }
    let (mm, mut pages) = (gather.mm(), FolioList::new());
    if pte_offset_map_lock(env, Site::MadviseColdOrPageout, mm, part.start, |_, _| ()).is_none() {
        return pages;
    }
    flush_tlb_batched_pending(env, mm);
    let mut next = part.start;
    while next < part.end {
        let page = next;
        match next_run(env, Site::MadviseColdOrPageout, mm, page, part.end) {
            Run::Small => next = page.add(1),
            Run::Again => continue,
            Run::Stop => break,
            Run::Gone => return pages,
            Run::Skip(skipped) => {
                next = page.add(skipped);
                continue;
            }
            Run::Whole(folio, count) => {
                next = page.add(count);
                let whole = PageRange::new(page, count);
                pages.extend(age_large(env, gather, whole, folio, (pageout, clears_young)));
                continue;
            }
        }
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
            let isolated = pageout && w.isolate_lru(at, pte.pfn);
            // A folio that somebody else had locked goes back to its list.
            let unevictable = isolated && w.frames.mlocked(pte.pfn).unevictable;
            if unevictable {
                folio_add_lru(w, at.site(Site::FolioPutbackLru), pte.pfn);
                w.put_frame(at, pte.pfn);
            }
            (aged, (isolated && !unevictable).then_some(pte.pfn))
        });
        if aged {
            gather.changed(page, Change::Aged);
        }
        pages.extend(isolated);
    }
    pte_unmap_unlock(env, mm, part.start);
    pages
}

/// Ages a large folio that this table maps completely, page by page. Returns it if it should be
/// reclaimed.
fn age_large(
    env: &mut impl Env,
    gather: &mut Gather,
    pages: PageRange,
    folio: Pfn,
    (pageout, clears_young): (bool, bool),
) -> Option<Pfn> {
    let (mm, site) = (gather.mm(), Site::MadviseColdOrPageout);
    let young = env.step(site, |w, at| {
        let entries = pages.iter().map(|page| (page, w.pte(mm, page).present()));
        let young = entries.filter_map(|(page, pte)| Some((page, pte.filter(|p| p.accessed())?)));
        let young: Vec<(Vpn, PresentPte)> = young.collect();
        if clears_young {
            for (page, pte) in &young {
                w.set_pte(at, mm, *page, Pte::Present(pte.without(PteFlags::ACCESSED)));
            }
        }
        !young.is_empty()
    });
    if clears_young && young {
        pages.iter().for_each(|page| gather.changed(page, Change::Aged));
    }
    env.step(site, |w, at| aged(w, at, folio, pageout))
}

/// Returns the translation, if its page is on the LRU and mapped only here.
fn sole_lru_page<M: Mode>(w: &World<M>, pte: Pte) -> Option<PresentPte> {
    let pte = pte.present().filter(|pte| !pte.special())?;
    let frame = w.frames.get(pte.pfn);
    (frame.flags.on_lru() && frame.maps == 1).then_some(pte)
}

/// `MADV_FREE`: reclaim may drop the pages while they stay clean.
///
/// Source: mm/madvise.c:madvise_free_single_vma, madvise_free_pte_range (5.10 to 7.3).
fn free<E: Env>(env: &mut E, gather: &mut Gather, range: PageRange) {
    lru_add_drain(env);
    let (arch, mm): (Arch, MmId) = (*env.arch(), gather.mm());
    for part in by_table(&arch, range) {
        madvise_free_huge_pmd(env, gather, part);
        if pte_offset_map_lock(env, Site::MadviseFree, mm, part.start, |_, _| ()).is_none() {
            continue;
        }
        flush_tlb_batched_pending(env, mm);
        if free_ptes(env, gather, part) {
            pte_unmap_unlock(env, mm, part.start);
        }
    }
    gather.end_vma(env, Site::MadviseFree);
}

/// Walks one page table under its lock. Returns whether the lock is still held.
fn free_ptes(env: &mut impl Env, gather: &mut Gather, part: PageRange) -> bool {
    let (mm, site) = (gather.mm(), Site::MadviseFree);
    let mut page = part.start;
    while page < part.end {
        match next_run(env, site, mm, page, part.end) {
            Run::Small => {
                if let Some(change) = env.step(site, |w, at| free_pte(w, at, mm, page)) {
                    gather.changed(page, change);
                }
                page = page.add(1);
            }
            Run::Again => {}
            Run::Stop => break,
            Run::Gone => return false,
            Run::Skip(skipped) => page = page.add(skipped),
            Run::Whole(folio, count) => {
                free_large(env, gather, page, folio, count);
                page = page.add(count);
            }
        }
    }
    true
}

/// Frees one PTE. Returns the change that needs a flush: the loss of the accessed or the dirty bit.
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

//! `mlock`, `mlock2(MLOCK_ONFAULT)` and `munlock`: keep pages in memory.
//!
//! A mapping is locked, or a part of it, which then becomes a mapping of its own. Unless the lock
//! is left to faults, the call brings the pages into memory, by faults without an exception. Those
//! are stores where the mapping is private and permits stores, so that no later store has to copy;
//! otherwise they are loads.
//!
//! Source: mm/mlock.c, mm/gup.c:__mm_populate, populate_vma_page_range (5.10 to 7.3).

use crate::addr::{MmId, PageRange};
use crate::arch::Arch;
use crate::env::{Env, Lock};
use crate::kernel::Errno;
use crate::kernel::fault::outcome::{Attempt, Fault};
use crate::kernel::huge::{pmd_trans_huge_lock, pmd_unlock};
use crate::kernel::lru::lru_add_drain;
use crate::kernel::mlock_batch::{
    Pagevec, mlock_folio, mlock_vma_page, munlock_folio, munlock_pagevec, munlock_vma_page,
};
use crate::kernel::populate::{follows, populate_page, touch};
use crate::kernel::rmap::Place;
use crate::kernel::table::{pte_offset_map_lock, pte_unmap_unlock};
use crate::kernel::vma_flags::update;
use crate::kernel::zap::by_table;
use crate::machine::frames::FrameFlags;
use crate::machine::vma::{Locking, Vma};
use crate::machine::world::{At, Mode, World};
use crate::policy::MlockPages;
use crate::program::Prot;
use crate::pte::PresentPte;
use crate::site::Site;
use crate::wait::Ended;
use smallvec::SmallVec;

/// Locks the mappings in `range`, unless this call has `locked` them already. Then brings their
/// pages into memory, unless `on_fault`. If it has to wait, returns the rest of the range.
///
/// Source: mm/mlock.c:do_mlock (5.10 to 7.3).
pub fn mlock(
    env: &mut impl Env,
    mm: MmId,
    range: PageRange,
    on_fault: bool,
    locked: bool,
) -> Result<Ended<PageRange>, Errno> {
    if !locked {
        apply_vma_lock_flags(
            env,
            mm,
            range,
            if on_fault { Locking::OnFault } else { Locking::All },
        )?;
    }
    mm_populate(env, mm, range)
}

/// Unlocks the mappings in `range`.
pub fn munlock(env: &mut impl Env, mm: MmId, range: PageRange) -> Result<(), Errno> {
    apply_vma_lock_flags(env, mm, range, Locking::None)
}

/// Changes one mapping after the other, up to a hole.
fn apply_vma_lock_flags(
    env: &mut impl Env,
    mm: MmId,
    range: PageRange,
    locking: Locking,
) -> Result<(), Errno> {
    let mut rest = range;
    env.lock(Lock::MmapWrite(mm));
    while let Some((part, was)) = env.step(Site::MlockFixup, |w, at| {
        w.mmap_assert_locked(at, mm);
        let vma = w.mms[mm.index()].vma(rest.start).filter(|_| !rest.is_empty())?;
        Some((vma.range.intersect(rest), vma.locking))
    }) {
        if was != locking {
            mlock_fixup(env, mm, part, was, locking);
        }
        rest.start = part.end;
    }
    env.unlock(Lock::MmapWrite(mm));
    if rest.is_empty() { Ok(()) } else { Err(Errno::Enomem) }
}

/// Changes one mapping or a part of it. Its present pages are locked or unlocked as well. The
/// `mlock` of 5.10 locks them later, when it brings pages into memory.
fn mlock_fixup(env: &mut impl Env, mm: MmId, part: PageRange, was: Locking, locking: Locking) {
    update(env, Site::MlockFixup, mm, part, |vma| Vma { locking, ..*vma });
    match (was, locking, env.policies().mlock_pages) {
        (Locking::None, _, MlockPages::Isolated) => {}
        (_, Locking::None, MlockPages::Isolated) => munlock_vma_pages_range(env, mm, part),
        (Locking::None, _, MlockPages::Batched) => mlock_vma_pages_range(env, mm, part, true),
        (_, Locking::None, MlockPages::Batched) => mlock_vma_pages_range(env, mm, part, false),
        // The mapping stays locked; only the kind of lock changes.
        _ => {}
    }
}

/// Locks or unlocks the present pages of `part`. (In kernels, a concurrent walk from a page to its
/// mappings does not count it twice. The model leaves that out.)
///
/// Source: mm/mlock.c:mlock_vma_pages_range, mlock_pte_range (6.1 to 7.3).
fn mlock_vma_pages_range(env: &mut impl Env, mm: MmId, part: PageRange, locks: bool) {
    let (arch, site): (Arch, Site) = (*env.arch(), Site::MlockPteRange);
    let change = if locks { mlock_folio } else { munlock_folio };
    lru_add_drain(env);
    for part in by_table(&arch, part) {
        let huge = env.config().huge_pages;
        let found = |w: &mut World<_>, at, pmd: PresentPte| {
            if !pmd.special() {
                change(w, at, pmd.pfn);
            }
        };
        if huge && pmd_trans_huge_lock(env, site, mm, part.start, found).is_some() {
            pmd_unlock(env, mm, part.start);
            continue;
        }
        if pte_offset_map_lock(env, site, mm, part.start, |_, _| ()).is_none() {
            continue;
        }
        for page in part.iter() {
            env.step(site, |w, at| {
                if let Some(pte) =
                    own_page(w, (mm, page)).filter(|pte| !(locks && is_large(w, *pte)))
                {
                    change(w, at, pte.pfn);
                }
            });
        }
        pte_unmap_unlock(env, mm, part.start);
    }
    lru_add_drain(env);
}

/// The translation of the page, unless it maps a zero page.
fn own_page<M: Mode>(w: &World<M>, (mm, page): Place) -> Option<PresentPte> {
    w.pte(mm, page).present().filter(|pte| !pte.special())
}

fn is_large<M: Mode>(w: &World<M>, pte: PresentPte) -> bool {
    w.frames.flags(pte.pfn).has(FrameFlags::LARGE)
}

/// Unlocks the present pages of `part` (5.10). A mapping that is about to be unmapped comes here as
/// well.
///
/// Source: mm/mlock.c:munlock_vma_pages_range (5.10).
fn munlock_vma_pages_range(env: &mut impl Env, mm: MmId, part: PageRange) {
    let mut page = part.start;
    while page < part.end {
        let small = env.step(Site::MlockPteRange, |w, _| {
            let table = w.arch.huge_pages(page).intersect(part);
            small_pages(w, mm, PageRange { start: page, ..table })
        });
        if !small.is_empty() {
            munlock_pagevec(env, mm, &small);
            page = page.add(small.len() as u64);
            continue;
        }
        let (found, huge) = env.step(Site::MlockPteRange, |w, _| match w.huge_page(mm, page) {
            Some(pmd) => (Some(pmd).filter(|pmd| !pmd.special()), true),
            None => (own_page(w, (mm, page)), false),
        });
        if let Some(pte) = found {
            munlock_vma_page(env, pte.pfn, Some((mm, page)));
        }
        page = if huge { env.arch().huge_pages(page).end } else { page.add(1) };
    }
}

/// The pages of one pagevec: adjacent present pages from the first on, none of a large folio.
///
/// Source: mm/mlock.c:__munlock_pagevec_fill (5.10).
fn small_pages<M: Mode>(w: &World<M>, mm: MmId, pages: PageRange) -> Pagevec {
    let small = |page| {
        let pte = own_page(w, (mm, page)).filter(|pte| !is_large(w, *pte))?;
        w.huge_page(mm, page).is_none().then_some((page, pte.pfn))
    };
    pages.iter().map_while(small).take(w.lru_batch_size()).collect()
}

/// Unlocks mappings in `range` before they are unmapped (5.10). Later kernels unlock page by page,
/// when each loses its mapping.
///
/// Source: mm/mmap.c:__do_munmap, exit_mmap (5.10).
pub fn munlock_vmas(env: &mut impl Env, mm: MmId, range: PageRange) {
    if !env.config().locks_memory || env.policies().mlock_pages == MlockPages::Batched {
        return;
    }
    let locked = env.step(Site::MlockFixup, |w, _| {
        let locked = w.mms[mm.index()].vmas_in(range).filter(Vma::is_locked);
        locked.map(|vma| vma.range).collect::<SmallVec<[PageRange; 4]>>()
    });
    locked.into_iter().for_each(|part| munlock_vma_pages_range(env, mm, part));
}

/// Brings the pages of locked mappings in `range` into memory, except those that are left to
/// faults.
///
/// Source: mm/gup.c:__mm_populate, mm/mlock.c:__mlock_posix_error_return (5.10 to 7.3).
fn mm_populate(env: &mut impl Env, mm: MmId, range: PageRange) -> Result<Ended<PageRange>, Errno> {
    let (mut rest, mut result) = (range, Ok(Ended::Done));
    env.lock(Lock::MmapRead(mm));
    while let Some(part) = env.step(Site::PopulateVmaPageRange, |w, at| {
        w.mmap_assert_locked(at, mm);
        w.mms[mm.index()].vmas_in(rest).next().filter(|_| !rest.is_empty()).map(|vma| vma.range)
    }) {
        result = populate_vma_page_range(env, mm, part, Attempt::MmapLock);
        if !matches!(result, Ok(Ended::Done)) {
            break;
        }
        rest.start = part.end;
    }
    env.unlock(Lock::MmapRead(mm));
    match result {
        Ok(Ended::Blocked(wait, left)) => {
            Ok(Ended::Blocked(wait, PageRange { start: left.start, ..range }))
        }
        Ok(Ended::Done) => Ok(Ended::Done),
        Err(Errno::Efault) => Err(Errno::Enomem),
        Err(_) => Err(Errno::Eagain),
    }
}

/// Makes each page of `part` accessible, as its mapping permits. `part` lies in one mapping. 5.10
/// also locks the pages that are there: all of them, unless they are left to faults. `attempt`:
/// whether locks may be given back.
///
/// Source: mm/gup.c:populate_vma_page_range (5.10 to 7.3), follow_page_pte, faultin_page (5.10:
/// FOLL_MLOCK without FOLL_POPULATE).
pub fn populate_vma_page_range(
    env: &mut impl Env,
    mm: MmId,
    part: PageRange,
    attempt: Attempt,
) -> Result<Ended<PageRange>, Errno> {
    let batched = env.policies().mlock_pages == MlockPages::Batched;
    let vma =
        env.step(Site::PopulateVmaPageRange, |w, _| w.mms[mm.index()].vma(part.start).copied());
    let Some(vma) = vma else { return Ok(Ended::Done) };
    let on_fault = vma.locking == Locking::OnFault;
    if on_fault && batched {
        return Ok(Ended::Done);
    }
    if vma.prot == Prot::None {
        return Err(Errno::Efault);
    }
    let write = vma.prot == Prot::ReadWrite && !vma.shared;
    let mut result = Ok(Ended::Done);
    for page in part.iter() {
        let fault = Fault { attempt, ..Fault::new(mm, page, write) };
        match on_fault {
            true => env.step(Site::PopulateVmaPageRange, |w, at| {
                if follows(w, fault) {
                    touch(w, at, fault);
                }
            }),
            false => match populate_page(env, fault, true) {
                Ok(None) => {}
                Ok(Some(wait)) => {
                    result = Ok(Ended::Blocked(wait, PageRange { start: page, ..part }));
                    break;
                }
                Err(errno) => {
                    result = Err(errno);
                    break;
                }
            },
        }
        if !batched && vma.is_locked() {
            mlock_followed(env, fault);
        }
    }
    if batched {
        lru_add_drain(env);
    }
    result
}

/// Locks the page in memory, unless somebody else holds its folio's lock. The CPU's batches are
/// emptied first, so that the page is on its list.
///
/// Source: mm/gup.c:follow_page_pte, mm/huge_memory.c:follow_trans_huge_pmd (5.10).
fn mlock_followed(env: &mut impl Env, fault: Fault) {
    let Fault { mm, page, .. } = fault;
    let found = env.step(Site::PopulateVmaPageRange, |w, _| {
        if !follows(w, fault) {
            return None;
        }
        let huge = w.huge_page(mm, page);
        let sole = |pmd: &PresentPte| !pmd.special() && w.frames.folio_maps(pmd.pfn) == 1;
        match huge {
            Some(_) => huge.filter(sole).map(|pmd| (pmd.pfn, true)),
            None => {
                let small = own_page(w, (mm, page)).filter(|pte| !is_large(w, *pte));
                small.map(|pte| (pte.pfn, false))
            }
        }
    });
    let Some((frame, huge)) = found else { return };
    if !env.try_lock(Site::FolioTryLock, Lock::Folio(frame)) {
        return;
    }
    if !huge {
        lru_add_drain(env);
    }
    env.step(Site::PopulateVmaPageRange, |w, at: At| mlock_vma_page(w, at, frame));
    env.unlock(Lock::Folio(frame));
}

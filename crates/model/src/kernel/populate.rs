//! `MADV_POPULATE_READ` and `MADV_POPULATE_WRITE`: make the faults of a range without accesses to
//! it.

use crate::addr::{MmId, PageRange};
use crate::env::{Env, Lock};
use crate::kernel::Errno;
use crate::kernel::fault::outcome::Attempt;
use crate::kernel::fault::{Fault, Outcome, handle_mm_fault, try_mm_fault};
use crate::kernel::lru::{lru_add_drain, mark_accessed};
use crate::machine::world::{At, Mode, World};
use crate::policy::Populate;
use crate::pte::{Pte, PteFlags};
use crate::site::Site;
use crate::wait::{Ended, Wait};

/// Makes every page of the ranges readable or writable, as an access would. If it has to wait,
/// returns the rest of that range.
///
/// Source: mm/madvise.c:madvise_populate, mm/gup.c:faultin_page_range (6.12, 7.3;
/// faultin_vma_page_range in 6.1).
pub fn populate(
    env: &mut impl Env,
    mm: MmId,
    mut ranges: impl Iterator<Item = PageRange>,
    write: bool,
) -> Result<Ended<PageRange>, Errno> {
    if env.policies().populate == Populate::No {
        return Err(Errno::Einval);
    }
    env.lock(Lock::MmapRead(mm));
    let mut result = Ok(Ended::Done);
    while let (Ok(Ended::Done), Some(range)) = (result, ranges.next()) {
        result = populate_range(env, mm, range, write);
    }
    env.unlock(Lock::MmapRead(mm));
    result
}

/// Populates one range. The caller holds `mmap_lock`.
fn populate_range(
    env: &mut impl Env,
    mm: MmId,
    range: PageRange,
    write: bool,
) -> Result<Ended<PageRange>, Errno> {
    let anew = env.policies().populate == Populate::Anew;
    let mut result = Ok(Ended::Done);
    for page in range.iter() {
        match populate_page(env, Fault::new(mm, page, write), anew) {
            Ok(None) => {}
            Ok(Some(wait)) => {
                if !anew {
                    env.step(Site::MadvisePopulate, |w, at| {
                        w.tasks[at.thread.index()].tried = true
                    });
                }
                result = Ok(Ended::Blocked(wait, PageRange { start: page, ..range }));
                break;
            }
            Err(errno) => {
                result = Err(errno);
                break;
            }
        }
    }
    // At the end the new pages go from this CPU's batch to the LRU, also after an error.
    if !matches!(result, Ok(Ended::Blocked(..))) {
        lru_add_drain(env);
    }
    result
}

/// Populates one page. Returns what it has to wait for, if it could not be done. `anew`: each
/// further try is a new fault. Otherwise it counts as tried, even after a wait (`FOLL_TRIED`).
pub(super) fn populate_page(
    env: &mut impl Env,
    fault: Fault,
    anew: bool,
) -> Result<Option<Wait>, Errno> {
    let Fault { mm, page, .. } = fault;
    loop {
        let (done, tried) = env.step(Site::MadvisePopulate, |w, at| {
            let tried = std::mem::take(&mut w.tasks[at.thread.index()].tried);
            (follows(w, fault), tried)
        });
        if done {
            break;
        }
        let attempt = if tried { Attempt::Tried } else { fault.attempt };
        let fault = Fault { attempt, ..fault };
        let mapped = env.step(Site::MadvisePopulate, |w, _| w.mms[mm.index()].vma(page).is_some());
        if !mapped {
            return Err(Errno::Enomem);
        }
        let outcome = match anew {
            true => try_mm_fault(env, fault),
            false => handle_mm_fault(env, fault, false),
        };
        match outcome {
            Outcome::Served => {}
            Outcome::Signal => return Err(Errno::Efault),
            Outcome::OutOfMemory => return Err(Errno::Enomem),
            Outcome::Blocked(wait, _) => return Ok(Some(wait)),
        }
    }
    env.step(Site::MadvisePopulate, |w, at| touch(w, at, fault));
    Ok(None)
}

/// Whether the page is mapped with the wanted right (mm/gup.c:follow_page_pte, 5.10 to 7.3).
pub(super) fn follows<M: Mode>(w: &World<M>, Fault { mm, page, write, .. }: Fault) -> bool {
    match w.page_entry(mm, page) {
        Pte::Present(pte) => !pte.protnone() && (pte.writable() || !write),
        _ => false,
    }
}

/// `FOLL_TOUCH`: marks a page that will be written as dirty. The PTE stays as it is, even its
/// accessed bit.
///
/// Source: mm/gup.c:follow_page_pte (6.1 to 7.3).
pub(super) fn touch<M: Mode>(w: &mut World<M>, at: At, fault: Fault) {
    let Fault { mm, page, write, .. } = fault;
    if let Some(pmd) = w.huge_page(mm, page) {
        // mm/huge_memory.c:touch_pmd (5.10 to 7.3): changes the entry itself, as far as the
        // architecture requires it.
        let touched = pmd.with(PteFlags::ACCESSED, true).with(PteFlags::DIRTY, write);
        if touched != pmd && (write || w.arch.marks_loads()) {
            w.set_pmd(at, mm, page, Pte::Present(touched));
        }
        return;
    }
    let Some(pte) = w.pte(mm, page).present().filter(|pte| !pte.special()) else { return };
    if write && !pte.dirty() {
        w.dirty_folio(pte.pfn);
    }
    mark_accessed(w, at, w.frames.folio(pte.pfn).0);
}

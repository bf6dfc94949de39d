//! `MADV_POPULATE_READ` and `MADV_POPULATE_WRITE`: faults without exceptions.

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

/// Makes every page of the ranges readable or writable, as an access would; what is left of the range in which it has to wait.
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

/// One of the ranges, with `mmap_lock`.
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
    // When it is done the new pages go from this CPU's batch to the LRU, whether or not all went well.
    if !matches!(result, Ok(Ended::Blocked(..))) {
        lru_add_drain(env);
    }
    result
}

/// What it has to wait for, if it could not be done. `anew`: what is to be tried again is a new fault; otherwise it counts as tried, after a wait
/// as well (`FOLL_TRIED`).
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

/// Whether the page is there as it is wanted (mm/gup.c:follow_page_pte, 5.10 to 7.3).
pub(super) fn follows<M: Mode>(w: &World<M>, Fault { mm, page, write, .. }: Fault) -> bool {
    match w.page_entry(mm, page) {
        Pte::Present(pte) => !pte.protnone() && (pte.writable() || !write),
        _ => false,
    }
}

/// `FOLL_TOUCH`: a page to be written counts as dirty; the PTE stays as it is, even its accessed
/// bit.
///
/// Source: mm/gup.c:follow_page_pte (6.1 to 7.3).
pub(super) fn touch<M: Mode>(w: &mut World<M>, at: At, fault: Fault) {
    let Fault { mm, page, write, .. } = fault;
    if let Some(pmd) = w.huge_page(mm, page) {
        // mm/huge_memory.c:touch_pmd (5.10 to 7.3): the entry itself, as far as the architecture has it changed.
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

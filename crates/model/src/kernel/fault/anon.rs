//! First touch of anonymous memory: `do_anonymous_page`.

use super::new_page::{allocate_zeroed, map_new_page, new_pte};
use super::outcome::{Attempt, Fault, Served, Unserved};
use super::refault::lock_and_map;
use crate::addr::{MmId, Vpn};
use crate::env::{Env, Lock};
use crate::event::FaultClass;
use crate::kernel::table::{pte_alloc, pte_unmap_unlock};
use crate::machine::frames::ZERO_PAGE;
use crate::machine::vma::Vma;
use crate::machine::world::{Mode, World};
use crate::policy::{DemandYoung, Mutant, Policies};
use crate::program::Prot;
use crate::pte::{PresentPte, Pte, PteFlags};
use crate::site::Site;

/// A read maps the zero page; a write gets a zeroed frame.
///
/// Source: mm/memory.c:do_anonymous_page (5.10 to 7.3).
pub fn do_anonymous_page(env: &mut impl Env, fault: Fault, vma: &Vma) -> Result<Served, Unserved> {
    let Fault { mm, page, write, .. } = fault;
    // 1. The page table, and what the first page of a mapping's own is found by.
    env.step(Site::DoAnonymousPage, |w, at| pte_alloc(w, at, mm, page, 1));
    if write {
        vmf_anon_prepare(env, fault, vma)?;
    }

    // 2. A read: the zero page.
    if !write {
        let zero_page = |_: &World<_>| false;
        let mapped = lock_and_map(env, Site::DoAnonymousPage, mm, page, zero_page, |w, at| {
            let free = may_map(w, mm, page);
            if free {
                w.set_pte(at, mm, page, zero_page_pte(&w.policies));
            }
            free
        });
        if mapped.is_some() {
            pte_unmap_unlock(env, mm, page);
        }
        return Ok(match mapped {
            Some(true) => Served::needed(FaultClass::ZeroPage),
            _ => Served::spurious(),
        });
    }

    // 3. A write: a zeroed frame, unless somebody was faster or the table is gone.
    let frame = env
        .step(Site::DoAnonymousPage, |w, at| allocate_zeroed(w, at, page))
        .ok_or(Unserved::OutOfMemory)?;
    let writable = vma.prot == Prot::ReadWrite;
    let mapped = lock_and_map(
        env,
        Site::DoAnonymousPage,
        mm,
        page,
        |_| writable,
        |w, at| {
            let free = may_map(w, mm, page);
            if free {
                map_new_page(w, at, mm, page, frame);
                w.set_pte(at, mm, page, Pte::Present(new_pte(w, frame, writable, true)));
            }
            free
        },
    );
    let forgets = mapped == Some(false) && env.policies().mutant == Mutant::RacedLocked;
    if mapped.is_some() && !forgets {
        pte_unmap_unlock(env, mm, page);
    }
    if mapped == Some(true) {
        return Ok(Served::needed(FaultClass::FirstTouch));
    }
    env.step(Site::FolioPut, |w, at| w.put_frame(at, frame));
    Ok(Served::spurious())
}

/// Gives the mapping an `anon_vma` if it has none. Who has the mapping's lock only tries `mmap_lock`, which that
/// takes: to wait for it might be to wait for who waits for the mapping.
///
/// Source: mm/memory.c:__vmf_anon_prepare (6.12 to 7.3), mm/rmap.c:anon_vma_prepare (5.10, 6.1).
pub fn vmf_anon_prepare(env: &mut impl Env, fault: Fault, vma: &Vma) -> Result<(), Unserved> {
    if vma.anon_vma.is_some() {
        return Ok(());
    }
    let (mm, page) = (fault.mm, fault.page);
    let tries = fault.attempt == Attempt::VmaLock;
    if tries && !env.try_lock(Site::MmapReadTrylock, Lock::MmapRead(mm)) {
        return Err(Unserved::MmapLockNeeded);
    }
    env.step(Site::DoAnonymousPage, |w, at| w.prepare_anon_vma(at, mm, page));
    if tries {
        env.unlock(Lock::MmapRead(mm));
    }
    Ok(())
}

/// Whether nobody was faster.
fn may_map<M: Mode>(w: &World<M>, mm: MmId, page: Vpn) -> bool {
    w.policies.mutant == Mutant::TouchUnchecked || w.pte(mm, page).is_none()
}

fn zero_page_pte(policies: &Policies) -> Pte {
    let young = policies.demand_young == DemandYoung::Set;
    let pte = PresentPte::new(ZERO_PAGE).with(PteFlags::ACCESSED, young);
    Pte::Present(pte.with(PteFlags::SPECIAL, true))
}

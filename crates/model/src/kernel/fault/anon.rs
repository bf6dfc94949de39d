//! First touch of anonymous memory: `do_anonymous_page`.

use super::new_page::{allocate_zeroed, map_new_page, new_pte};
use super::outcome::{Attempt, Fault, Served, Unserved};
use super::refault::lock_and_map;
use crate::addr::{MmId, Vpn};
use crate::env::{Env, Lock};
use crate::event::FaultClass;
use crate::kernel::table::{pte_alloc, pte_unmap_unlock};
use crate::kernel::uffd::fault::{handle_userfault, note_first_store};
use crate::kernel::uffd::holes_are_clean;
use crate::machine::frames::ZERO_PAGE;
use crate::machine::vma::Vma;
use crate::machine::world::{Mode, World};
use crate::policy::{DemandYoung, Mutant, Policies};
use crate::program::Prot;
use crate::pte::{Marker, PresentPte, Pte, PteFlags};
use crate::site::Site;
use crate::userfaultfd::Told;

/// A read maps the zero page; a write gets a zeroed frame. `seen`: nothing, or the marker of what userfaultfd protects: the page is mapped
/// protected then, and a store to it faults again.
///
/// Source: mm/memory.c:do_anonymous_page (5.10 to 7.3; 6.4 and later: vmf_orig_pte_uffd_wp).
pub fn do_anonymous_page(
    env: &mut impl Env,
    fault: Fault,
    vma: &Vma,
    seen: Pte,
) -> Result<Served, Unserved> {
    let Fault { mm, page, write, .. } = fault;
    let uffd_wp = seen == Pte::Marker(Marker::UffdWp);
    // 1. The page table, and what the first page of a mapping's own is found by.
    env.step(Site::DoAnonymousPage, |w, at| pte_alloc(w, at, mm, page, 1));
    if write {
        vmf_anon_prepare(env, fault, vma)?;
    }

    // 2. A read: the zero page.
    if !write {
        let zero_page = |_: &World<_>| false;
        let mapped = lock_and_map(env, Site::DoAnonymousPage, mm, page, zero_page, |w, at| {
            let free = may_map(w, mm, page, seen);
            if free && !vma.uffd.missing {
                let zero = zero_page_pte(&w.policies);
                let uffd_wp = uffd_wp || holes_are_clean(w, mm, vma);
                w.set_pte(at, mm, page, Pte::Present(zero.with(PteFlags::UFFD_WP, uffd_wp)));
            }
            free
        });
        if mapped.is_some() {
            pte_unmap_unlock(env, mm, page);
        }
        return match mapped {
            Some(true) if vma.uffd.missing => Err(handle_userfault(env, fault, Told::Missing)),
            Some(true) => Ok(Served::needed(FaultClass::ZeroPage)),
            _ => Ok(Served::spurious()),
        };
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
            let free = may_map(w, mm, page, seen);
            if free && !vma.uffd.missing {
                map_new_page(w, at, mm, page, frame);
                note_first_store(w, mm, vma);
                let pte = new_pte(w, frame, writable, true);
                let pte = if uffd_wp { pte.uffd_protected() } else { pte };
                w.set_pte(at, mm, page, Pte::Present(pte));
            }
            free
        },
    );
    let forgets = mapped == Some(false) && env.policies().mutant == Mutant::RacedLocked;
    if mapped.is_some() && !forgets {
        pte_unmap_unlock(env, mm, page);
    }
    if mapped == Some(true) && !vma.uffd.missing {
        return Ok(Served::needed(FaultClass::FirstTouch));
    }
    env.step(Site::FolioPut, |w, at| w.put_frame(at, frame));
    match mapped {
        Some(true) => Err(handle_userfault(env, fault, Told::Missing)),
        _ => Ok(Served::spurious()),
    }
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
fn may_map<M: Mode>(w: &World<M>, mm: MmId, page: Vpn, seen: Pte) -> bool {
    w.policies.mutant == Mutant::TouchUnchecked || w.pte(mm, page) == seen
}

/// The zero page's entry.
pub fn zero_page_pte(policies: &Policies) -> PresentPte {
    let young = policies.demand_young == DemandYoung::Set;
    PresentPte::new(ZERO_PAGE).with(PteFlags::ACCESSED, young).with(PteFlags::SPECIAL, true)
}

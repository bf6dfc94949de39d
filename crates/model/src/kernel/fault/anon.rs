//! The first touch of anonymous memory: `do_anonymous_page`.

use super::new_page::{allocate_zeroed, allocate_zeroed_folio, map_new_page, new_pte, zeroed};
use super::outcome::{Attempt, Fault, Served, Unserved};
use super::refault::lock_and_map;
use crate::addr::{MmId, Pfn, Span, Vpn};
use crate::env::{Env, Lock};
use crate::event::FaultClass;
use crate::kernel::alloc::with_frames;
use crate::kernel::mlock_batch::folio_add_lru_vma;
use crate::kernel::table::{pte_alloc, pte_unmap_unlock};
use crate::kernel::uffd::fault::{handle_userfault, note_first_store};
use crate::kernel::uffd::holes_are_clean;
use crate::machine::frames::{FrameFlags, ZERO_PAGE};
use crate::machine::vma::Vma;
use crate::machine::world::{At, Mode, World};
use crate::policy::{AnonExclusive, DemandYoung, Mutant, Policies};
use crate::program::Prot;
use crate::pte::{Marker, PresentPte, Pte, PteFlags};
use crate::site::Site;
use crate::userfaultfd::Told;

/// Maps the zero page for a read and a zeroed frame for a write. `seen` is empty, or the marker of
/// a page that userfaultfd write-protects. In the second case the new PTE is write-protected as
/// well, and a store to the page faults again.
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
    // 1. The page table and, for a write, the `anon_vma` by which rmap finds the page.
    env.step(Site::DoAnonymousPage, |w, at| pte_alloc(w, at, mm, page, 1))
        .ok_or(Unserved::OutOfMemory)?;
    if write {
        vmf_anon_prepare(env, fault, vma)?;
    }

    // 2. A read maps the zero page.
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

    // 3. A write maps a large folio, if the settings and the page table allow one.
    if env.config().huge_pages
        && !env.config().mthp.is_off()
        && let Some(served) = map_anon_folio(env, fault, vma)
    {
        return Ok(served);
    }

    // 4. Otherwise it maps a zeroed frame, unless another thread was faster or the table is gone.
    let frame = with_frames(env, Site::DoAnonymousPage, zeroed(mm, page), |w, at, door| {
        allocate_zeroed(w, at, page, &door)
    });
    let frame = frame.ok_or(Unserved::OutOfMemory)?;
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

/// Maps the largest folio that the settings allow and whose PTEs are all empty. `None` if there is
/// no such folio: the fault then maps a single page.
///
/// Source: mm/memory.c:alloc_anon_folio (6.12, 7.2), do_anonymous_page (6.12),
/// map_anon_folio_pte_nopf (7.2).
fn map_anon_folio(env: &mut impl Env, fault: Fault, vma: &Vma) -> Option<Served> {
    let (site, mm) = (Site::DoAnonymousPage, fault.mm);
    // The PTEs are read without the table's lock.
    let request = zeroed(mm, fault.page).of_order(env.arch().order(2));
    let (span, folio) = with_frames(env, site, request, |w, at, door| {
        let spans = suitable(w, vma, fault.page);
        let mut free = spans.filter(|span| is_empty(w, mm, *span)).collect::<Vec<_>>().into_iter();
        free.find_map(|span| Some((span, allocate_zeroed_folio(w, at, span, &door)?)))
    })?;
    let writable = vma.prot == Prot::ReadWrite;
    let mapped = lock_and_map(
        env,
        site,
        mm,
        fault.page,
        |_| writable,
        |w, at| {
            let free = is_empty(w, mm, span);
            if free {
                map_new_folio(w, at, (mm, span), folio, writable);
            }
            free
        },
    );
    if mapped.is_some() {
        pte_unmap_unlock(env, mm, fault.page);
    }
    if mapped == Some(true) {
        return Some(Served::needed(FaultClass::FirstTouch));
    }
    env.step(Site::FolioPut, |w, at| w.put_frame(at, folio));
    Some(Served::spurious())
}

/// Returns the ranges that a large folio around the page could cover, the largest first. The
/// settings must allow the folio's order, and the mapping must contain all of the range. There are
/// none where userfaultfd watches the mapping, because it handles each page by itself.
///
/// Source: include/linux/huge_mm.h:thp_vma_allowable_orders, thp_vma_suitable_orders (6.12, 7.2).
fn suitable<M: Mode>(w: &World<M>, vma: &Vma, page: Vpn) -> impl Iterator<Item = Span> + use<M> {
    let (thp, mthp, vma) = (w.config.thp, w.config.mthp, *vma);
    let wanted = mthp.orders().filter(move |(_, mode)| vma.may_be_huge(mode.as_thp(thp)));
    let spans = wanted.map(move |(order, _)| Span::around(page, order));
    spans.filter(move |span| !vma.uffd.armed() && span.range().intersect(vma.range) == span.range())
}

/// Whether all PTEs of the range are empty (`pte_range_none`).
fn is_empty<M: Mode>(w: &World<M>, mm: MmId, span: Span) -> bool {
    span.range().iter().all(|page| w.pte(mm, page).is_none())
}

/// Maps a fresh folio with one PTE for each page, each of them exclusive, and sends it to the LRU.
fn map_new_folio<M: Mode>(
    w: &mut World<M>,
    at: At,
    (mm, span): (MmId, Span),
    folio: Pfn,
    writable: bool,
) {
    let (pages, exclusive) = (span.range(), w.policies.anon_exclusive == AnonExclusive::Yes);
    let (object, index) = w.object_of(mm, pages.start);
    let refs = pages.pages() as u32;
    w.frames.update(folio, |f| (f.object, f.index, f.refs) = (object, index, refs));
    for (page, frame) in pages.iter().zip(w.frames.pages_of_folio(folio)) {
        w.frames.update(frame, |f| {
            f.maps = 1;
            f.flags.set(FrameFlags::EXCLUSIVE, exclusive);
        });
        let pte = new_pte(w, frame, writable, true);
        w.set_pte(at, mm, page, Pte::Present(pte));
    }
    folio_add_lru_vma(w, at.site(Site::FolioAddLru), folio, false);
}

/// Gives the mapping an `anon_vma` if it has none, which needs `mmap_lock`. A fault that holds the
/// mapping's lock only tries `mmap_lock`: its holder may be waiting for the mapping's lock, so
/// waiting here could be a deadlock.
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

/// Whether the PTE is still the one that was seen.
fn may_map<M: Mode>(w: &World<M>, mm: MmId, page: Vpn, seen: Pte) -> bool {
    w.policies.mutant == Mutant::TouchUnchecked || w.pte(mm, page) == seen
}

/// The PTE that maps the zero page.
pub fn zero_page_pte(policies: &Policies) -> PresentPte {
    let young = policies.demand_young == DemandYoung::Set;
    PresentPte::new(ZERO_PAGE).with(PteFlags::ACCESSED, young).with(PteFlags::SPECIAL, true)
}

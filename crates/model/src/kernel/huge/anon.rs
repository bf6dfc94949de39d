//! The first touch of anonymous memory, served by a huge page.

use super::{Found, find, pmd_unlock};
use crate::addr::{MmId, Pfn, Vpn};
use crate::env::{Env, Learnt, Lock};
use crate::event::FaultClass;
use crate::kernel::alloc::with_frames;
use crate::kernel::fault::anon::vmf_anon_prepare;
use crate::kernel::fault::new_page::{allocate_zeroed_folio, new_pte, zeroed};
use crate::kernel::fault::outcome::{Fault, Served, Unserved};
use crate::kernel::mlock_batch::folio_add_lru_vma;
use crate::kernel::table::pte_alloc;
use crate::kernel::uffd::fault::{handle_userfault, note_first_store};
use crate::kernel::uffd::holes_are_clean;
use crate::machine::frames::FrameFlags;
use crate::machine::vma::Vma;
use crate::machine::world::{At, Mode, World};
use crate::policy::{AnonExclusive, DemandYoung, Mutant};
use crate::program::Prot;
use crate::pte::{PresentPte, Pte, PteFlags};
use crate::site::Site;
use crate::userfaultfd::Told;

/// Maps the huge zero page for a read and a zeroed huge page for a write. `None` if no huge page is
/// available.
///
/// Source: mm/huge_memory.c:do_huge_pmd_anonymous_page, __do_huge_pmd_anonymous_page,
/// set_huge_zero_page (5.10 to 7.3).
pub fn do_huge_pmd_anonymous_page(
    env: &mut impl Env,
    fault: Fault,
    vma: &Vma,
) -> Result<Option<Served>, Unserved> {
    let Fault { mm, page, write, .. } = fault;
    // 1. The table above, and the `anon_vma` by which rmap finds the huge page: for a read as well.
    let made = env.step(Site::DoHugePmdAnonymousPage, |w, at| pte_alloc(w, at, mm, page, 2));
    made.ok_or(Unserved::OutOfMemory)?;
    vmf_anon_prepare(env, fault, vma)?;

    // 2. The frames, before the lock.
    let site = Site::DoHugePmdAnonymousPage;
    let request = zeroed(mm, page).of_order(env.arch().order(2));
    let frames = with_frames(env, site, request, |w, at, door| match write {
        true => allocate_zeroed_folio(w, at, w.huge_span(page), &door),
        false => door.take_huge_zero(w),
    });
    let Some(folio) = frames else { return Ok(None) };

    // 3. Map it, unless another thread was faster.
    let writable = vma.prot == Prot::ReadWrite;
    let asks = vma.uffd.missing;
    let mapped = lock_none(env, site, mm, page, |w, at| {
        if asks {
            return;
        }
        if w.policies.mutant != Mutant::DepositForgotten {
            w.deposit(mm);
        }
        if write {
            map_anon_folio_pmd(w, at, mm, page, (folio, writable));
            note_first_store(w, mm, vma);
        } else {
            let clean = holes_are_clean(w, mm, vma);
            let zero = huge_zero_pmd(w, folio).with(PteFlags::UFFD_WP, clean);
            w.set_pmd(at, mm, page, Pte::Present(zero));
        }
    });
    if mapped.is_some() {
        pmd_unlock(env, mm, page);
    }
    if mapped.is_some() && !asks {
        let class = if write { FaultClass::HugePage } else { FaultClass::ZeroPage };
        return Ok(Some(Served::needed(class)));
    }
    if write {
        env.step(Site::FolioPut, |w, at| w.put_frame(at, folio));
    }
    match mapped {
        Some(()) => Err(handle_userfault(env, fault, Told::Missing)),
        None => Ok(Some(Served::spurious())),
    }
}

/// Takes the lock of the table above the last one. If that table has nothing for the huge page
/// around `page`, calls `first` in the same step. Otherwise holds no lock and returns `None`.
fn lock_none<E: Env>(
    env: &mut E,
    site: Site,
    mm: MmId,
    page: Vpn,
    first: impl FnOnce(&mut World<E::Mode>, At),
) -> Option<()>
where
    Option<()>: Learnt,
{
    env.lock(Lock::pmd(env.arch(), mm, page));
    let done = env.step(site, |w, at| (find(w, mm, page) == Found::Nothing).then(|| first(w, at)));
    if done.is_none() {
        pmd_unlock(env, mm, page);
    }
    done
}

/// Maps a fresh folio as a whole and exclusively, and sends it to the LRU.
///
/// Source: mm/huge_memory.c:map_anon_folio_pmd (7.3); earlier kernels have the code in other
/// functions.
pub(super) fn map_anon_folio_pmd<M: Mode>(
    w: &mut World<M>,
    at: At,
    mm: MmId,
    page: Vpn,
    (folio, writable): (Pfn, bool),
) {
    let exclusive = w.policies.anon_exclusive == AnonExclusive::Yes;
    let start = w.huge_span(page).start;
    let ((object, index), locked) = (w.object_of(mm, start), w.locks(mm, start));
    w.frames.update(folio, |f| {
        (f.object, f.index) = (object, index);
        f.flags.set(FrameFlags::EXCLUSIVE, exclusive);
    });
    w.frames.count_whole_map(folio, 1);
    folio_add_lru_vma(w, at.site(Site::FolioAddLru), folio, locked);
    let pmd = new_pte(w, folio, writable, true);
    w.set_pmd(at, mm, page, Pte::Present(pmd));
}

/// The entry that maps the huge zero page.
fn huge_zero_pmd<M: Mode>(w: &World<M>, zeros: Pfn) -> PresentPte {
    let young = w.policies.demand_young == DemandYoung::Set;
    PresentPte::new(zeros).with(PteFlags::ACCESSED, young).with(PteFlags::SPECIAL, true)
}

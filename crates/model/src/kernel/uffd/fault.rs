//! An access that is reported to userfaultfd.

use crate::addr::{MmId, Vpn};
use crate::env::{Env, Learnt};
use crate::kernel::fault::outcome::{Fault, Served, Unserved};
use crate::kernel::flush::{FlushRequest, flush_tlb_mm_range};
use crate::kernel::table::{pte_offset_map_lock, pte_unmap_unlock};
use crate::kernel::uffd::holes_are_clean;
use crate::machine::mm::Waiting;
use crate::machine::vma::Vma;
use crate::machine::world::{At, Ghost, Mode, World};
use crate::pte::{Marker, PresentPte, Pte, PteFlags};
use crate::site::Site;
use crate::userfaultfd::Told;
use crate::wait::Wait;

/// Makes the access wait for an answer, with no lock held. The access is tried again afterwards. It
/// does not wait if it has nothing left to wait for, which is checked once the reader can find it.
///
/// Source: fs/userfaultfd.c:handle_userfault, userfaultfd_must_wait (5.10 to 7.3).
pub fn handle_userfault(env: &mut impl Env, fault: Fault, told: Told) -> Unserved {
    let Fault { mm, page, .. } = fault;
    env.step(Site::HandleUserfault, |w, _| {
        if must_wait(w, mm, page, told) {
            w.mms[mm.index()].uffd.waiting.push(Waiting { page, told, read: false });
            if told == Told::Protected {
                w.ghost.told();
            }
        }
    });
    Unserved::Blocked { wait: Wait::Userfault(mm, page), read: false }
}

fn must_wait<M: Mode>(w: &World<M>, mm: MmId, page: Vpn, told: Told) -> bool {
    match w.page_entry(mm, page) {
        Pte::None | Pte::Table(_) | Pte::Marker(_) => true,
        Pte::Present(pte) => told == Told::Protected && !pte.writable(),
        Pte::Swap(_) | Pte::Migration(_) => false,
    }
}

/// Notes a first store to a mapping whose missing pages count as not written. The new entry says
/// that the page was written.
pub fn note_first_store<M: Mode>(w: &mut World<M>, mm: MmId, vma: &Vma) {
    if holes_are_clean(w, mm, vma) {
        w.ghost.told();
    }
}

/// Clears a marker that was left where userfaultfd no longer watches. The access is then tried
/// again.
///
/// Source: mm/memory.c:pte_marker_clear (6.12, 7.2).
pub fn clear_marker(env: &mut impl Env, fault: Fault) -> Served {
    let Fault { mm, page, .. } = fault;
    let cleared = pte_offset_map_lock(env, Site::HandlePteFault, mm, page, |w, at| {
        if w.pte(mm, page) == Pte::Marker(Marker::UffdWp) {
            w.set_pte(at, mm, page, Pte::None);
        }
    });
    if cleared.is_some() {
        pte_unmap_unlock(env, mm, page);
    }
    Served::spurious()
}

/// What userfaultfd has to do with a store to a page that is mapped read-only.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum Watched {
    /// The entry has changed since it was read.
    Raced,
    /// Nothing, or nothing more: the store goes on with this entry.
    GoesOn(PresentPte),
    /// The store must be reported to the reader.
    Asks,
}

impl Learnt for Watched {
    fn nothing() -> Watched {
        Watched::Raced
    }
}

/// Looks at the entry, which was `seen` before, under the lock of its table. If userfaultfd lets
/// stores go on, clears the entry's bit, which notes that the page is written. The bit is in no
/// TLB.
///
/// Source: mm/memory.c:do_wp_page (5.10 to 7.3; 6.7 and later: userfaultfd_wp_async).
pub fn store_to_protected<M: Mode>(
    w: &mut World<M>,
    at: At,
    fault: Fault,
    vma: &Vma,
    seen: PresentPte,
) -> Watched {
    let Fault { mm, page, .. } = fault;
    if w.pte(mm, page) != Pte::Present(seen) {
        return Watched::Raced;
    }
    if fault.unshare || !vma.protects(seen.uffd_wp()) {
        return Watched::GoesOn(seen);
    }
    if !w.mms[mm.index()].uffd.features.asynchronous {
        return Watched::Asks;
    }
    let written = seen.without(PteFlags::UFFD_WP);
    w.set_pte(at, mm, page, Pte::Present(written));
    w.ghost.told();
    Watched::GoesOn(written)
}

/// Flushes the page before a store to it goes on, if its write permission may have been taken away
/// without a flush so far. The caller has the lock of the table.
///
/// Source: mm/memory.c:do_wp_page: mm_tlb_flush_pending (5.10 to 7.3).
pub fn flush_deferred(env: &mut impl Env, fault: Fault, vma: &Vma) {
    let Fault { mm, page, unshare, .. } = fault;
    if vma.uffd.write_protect
        && !unshare
        && env.step(Site::DoWpPage, |w, _| w.mms[mm.index()].open_gathers > 0)
    {
        flush_tlb_mm_range(env, FlushRequest::page(Site::DoWpPage, mm, page));
    }
}

/// Applies [`store_to_protected`] and [`flush_deferred`] to stores that go on without the table's
/// lock: those that replace the zero page, and those to a shared page. Returns the entry to go on
/// with, or `None` if it has changed.
pub fn store_begins(
    env: &mut impl Env,
    fault: Fault,
    vma: &Vma,
    seen: PresentPte,
) -> Result<Option<PresentPte>, Unserved> {
    if !vma.uffd.write_protect {
        return Ok(Some(seen));
    }
    let Fault { mm, page, .. } = fault;
    let watched = pte_offset_map_lock(env, Site::DoWpPage, mm, page, |w, at| {
        store_to_protected(w, at, fault, vma, seen)
    });
    let Some(watched) = watched else { return Ok(None) };
    if matches!(watched, Watched::GoesOn(_)) {
        flush_deferred(env, fault, vma);
    }
    pte_unmap_unlock(env, mm, page);
    match watched {
        Watched::Raced => Ok(None),
        Watched::GoesOn(pte) => Ok(Some(pte)),
        Watched::Asks => Err(handle_userfault(env, fault, Told::Protected)),
    }
}

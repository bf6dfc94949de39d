//! Pins: references to pages that outlive their mappings (`get_user_pages`, `pin_user_pages`), and what devices do
//! through them.
//!
//! The fast way looks at the page table without a lock and counts: it takes its reference first and looks again
//! then. That would not notice a fork, which asks whether a page is pinned and takes the right to store away
//! afterwards; so a fork counts as well (`write_protect_seq`), and who pins looks at that last. Interrupts are off
//! meanwhile, which holds up flushes and the freeing of tables; here a CPU answers at any time.
//!
//! Source: mm/gup.c:gup_pte_range, lockless_pages_from_mm (5.10, 6.1), gup_fast_pte_range, gup_fast (6.12, 7.3),
//! follow_page_pte, faultin_page, check_vma_flags (5.10 to 7.3).

use crate::addr::{MmId, Pfn, PinId, Vpn};
use crate::call::Gup;
use crate::env::{Env, Learnt, Lock};
use crate::kernel::Errno;
use crate::kernel::fault::{Fault, Outcome, handle_mm_fault};
use crate::kernel::populate::touch;
use crate::kernel::swap_cache::swap_cache_references;
use crate::kernel::table::{pte_offset_map_lock, pte_unmap_unlock};
use crate::machine::frames::{FrameFlags, ZERO_PAGE};
use crate::machine::pins::{PIN_WEIGHT, Pin};
use crate::machine::vma::Vma;
use crate::machine::world::{At, Ghost, Mode, World};
use crate::policy::{AnonExclusive, ForkPinned, GupRead, Mutant};
use crate::program::Prot;
use crate::pte::{PresentPte, Pte};
use crate::site::Site;
use crate::wait::{Ended, Wait};

/// What is asked for: hold of a page.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct Wanted {
    /// The page.
    pub place: (MmId, Vpn),
    /// How to hold it.
    pub gup: Gup,
    /// For stores, too.
    pub write: bool,
}

impl Wanted {
    /// Whether only a page that may be stored to will do. For 5.8 each reference is like one for stores, so that a
    /// page which others have is copied first (`should_force_cow_break`).
    fn needs_write(self, rule: GupRead) -> bool {
        self.write || rule == GupRead::BreakCow
    }

    /// Whether the page has to be the process's own before it may be held (`gup_must_unshare`).
    fn must_unshare<M: Mode>(self, w: &World<M>, pte: PresentPte) -> bool {
        w.policies.gup_read == GupRead::Unshare
            && !self.write
            && self.gup == Gup::Pin
            && !pte.writable()
            && !pte.special()
            && !w.frames.flags(pte.pfn).has(FrameFlags::EXCLUSIVE)
    }

    fn pin(self, frame: Pfn) -> Pin {
        let Wanted { place, gup, write } = self;
        Pin { frame, place, gup, write }
    }
}

/// Takes hold of a page as pin number `id`: `pin_user_pages_fast`, `get_user_pages_fast`.
pub fn pin(env: &mut impl Env, id: PinId, wanted: Wanted) -> Result<Ended<()>, Errno> {
    let (mm, _) = wanted.place;
    let seq = env.step(Site::GupFast, |w, _| begin(w, id, wanted))?;
    if let Some(seq) = seq
        && gup_fast(env, id, wanted, seq)
    {
        return Ok(Ended::Done);
    }
    env.lock(Lock::MmapRead(mm));
    let ended = gup_slow(env, id, wanted);
    env.unlock(Lock::MmapRead(mm));
    ended.map(|wait| wait.map_or(Ended::Done, |wait| Ended::Blocked(wait, ())))
}

/// The process has pinned pages from now on. Returns how many forks have begun and ended, unless one is under way.
fn begin<M: Mode>(w: &mut World<M>, id: PinId, wanted: Wanted) -> Result<Option<u32>, Errno> {
    if w.pins.get(id).is_some() {
        return Err(Errno::Ebusy);
    }
    let unguarded = w.policies.mutant == Mutant::PinUnguarded;
    let space = &mut w.mms[wanted.place.0.index()];
    if wanted.gup == Gup::Get {
        return Ok(Some(0));
    }
    if !space.has_pinned {
        space.has_pinned = true;
    }
    let seq = space.write_protect_seq;
    Ok((unguarded || seq.is_multiple_of(2)).then_some(seq))
}

/// Without a lock; whether it did.
fn gup_fast(env: &mut impl Env, id: PinId, wanted: Wanted, seq: u32) -> bool {
    let (mm, page) = wanted.place;
    let weight = wanted.pin(ZERO_PAGE).weight();
    // 1. The PTE as it is.
    let seen = env.step(Site::GupFast, |w, _| {
        let needs_write = wanted.needs_write(w.policies.gup_read);
        let pte = w.pte(mm, page).present()?;
        let fine = !pte.protnone() && !pte.special() && (pte.writable() || !needs_write);
        fine.then_some(pte)
    });
    let Some(pte) = seen else { return false };
    // 2. A reference, unless the page is free by now.
    let grabbed = env.step(Site::TryGrabFolio, |w, _| {
        let used = w.frames.get(pte.pfn).refs > 0;
        if used {
            w.frames.update(pte.pfn, |f| f.refs += weight);
        }
        used
    });
    if !grabbed {
        return false;
    }
    // 3. Was it the page's still? (What is not kept again from a fork is kept now.)
    let kept = env.step(Site::GupFast, |w, at| {
        let current = w.pte(mm, page) == Pte::Present(pte) && !wanted.must_unshare(w, pte);
        if !current {
            w.put_references(at, pte.pfn, weight);
        } else if wanted.gup == Gup::Get {
            hold(w, id, wanted.pin(pte.pfn));
        } else {
            // The page may be given up from here on: it is the one that was pinned all the same.
            w.ghost.pinning(id, wanted.pin(pte.pfn));
        }
        current
    });
    if !kept || wanted.gup == Gup::Get {
        return kept;
    }
    // 4. Has no fork come between?
    env.step(Site::GupFastFork, |w, at| {
        let unguarded = w.policies.mutant == Mutant::PinUnguarded;
        let current = unguarded || w.mms[mm.index()].write_protect_seq == seq;
        if current {
            hold(w, id, wanted.pin(pte.pfn));
        } else {
            w.ghost.unpinned(id);
            w.put_references(at, pte.pfn, weight);
        }
        current
    })
}

fn hold<M: Mode>(w: &mut World<M>, id: PinId, pin: Pin) {
    w.pins.hold(id, pin);
    w.ghost.pinned(id, pin);
}

/// What looking at the page table comes to.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
enum Followed {
    /// The page is held.
    Held,
    /// It has to be faulted in.
    FaultIn,
    /// It has to be made the process's own (`-EMLINK`).
    Unshare,
}

impl Learnt for Followed {
    fn nothing() -> Followed {
        Followed::Held
    }
}

/// With `mmap_lock`: under the page table's lock, after a fault if need be; what it has to wait for, if it could not be
/// done.
fn gup_slow(env: &mut impl Env, id: PinId, wanted: Wanted) -> Result<Option<Wait>, Errno> {
    let (mm, page) = wanted.place;
    loop {
        let vma = env.step(Site::FollowPagePte, |w, at| {
            w.mmap_assert_locked(at, mm);
            w.mms[mm.index()].vma(page).copied()
        });
        let vma = vma.filter(|vma| permits(vma, wanted.write)).ok_or(Errno::Efault)?;
        let followed = pte_offset_map_lock(env, Site::FollowPagePte, mm, page, |w, at| {
            follow_page_pte(w, at, id, wanted)
        });
        if followed.is_some() {
            pte_unmap_unlock(env, mm, page);
        }
        let followed = followed.unwrap_or(Followed::FaultIn);
        if followed == Followed::Held {
            return Ok(None);
        }
        let fault = faultin(wanted, followed, &vma, env.policies().gup_read);
        match handle_mm_fault(env, fault, false) {
            Outcome::Served => {}
            Outcome::Signal => return Err(Errno::Efault),
            Outcome::OutOfMemory => return Err(Errno::Enomem),
            Outcome::Blocked(wait, _) => return Ok(Some(wait)),
        }
    }
}

fn permits(vma: &Vma, write: bool) -> bool {
    match vma.prot {
        Prot::None => false,
        Prot::Read => !write,
        Prot::ReadWrite => true,
    }
}

fn follow_page_pte<M: Mode>(w: &mut World<M>, at: At, id: PinId, wanted: Wanted) -> Followed {
    let (mm, page) = wanted.place;
    let Some(pte) = w.pte(mm, page).present().filter(|pte| !pte.protnone()) else {
        return Followed::FaultIn;
    };
    // What cannot be stored to at all is broken as a page that others have (5.8: FOLL_COW).
    let forced = w.mms[mm.index()].vma(page).is_some_and(|vma| vma.prot == Prot::Read);
    if wanted.needs_write(w.policies.gup_read) && !pte.writable() && !(forced && pte.dirty()) {
        return Followed::FaultIn;
    }
    if wanted.must_unshare(w, pte) {
        return Followed::Unshare;
    }
    let pin = wanted.pin(pte.pfn);
    if !pte.special() {
        w.frames.update(pte.pfn, |f| f.refs += pin.weight());
    }
    touch(w, at, Fault::new(mm, page, wanted.write));
    hold(w, id, pin);
    Followed::Held
}

/// The fault that brings the page, as it is needed.
fn faultin(wanted: Wanted, followed: Followed, vma: &Vma, rule: GupRead) -> Fault {
    let (mm, page) = wanted.place;
    let write = wanted.needs_write(rule);
    let unshare = followed == Followed::Unshare || write && vma.prot == Prot::Read;
    Fault { unshare, ..Fault::new(mm, page, write && !unshare) }
}

/// Lets go of a page (`unpin_user_page`, `put_page`). What a device may have stored is marked
/// (`unpin_user_pages_dirty_lock`).
pub fn unpin(env: &mut impl Env, id: PinId) -> Result<(), Errno> {
    env.step(Site::UnpinUserPage, |w, at| {
        let pin = w.pins.release(id).ok_or(Errno::Ebadf)?;
        w.ghost.unpinned(id);
        if pin.frame != ZERO_PAGE {
            if pin.write {
                w.frames.set_flags(pin.frame, FrameFlags::DIRTY, true);
            }
            w.put_references(at, pin.frame, pin.weight());
        }
        Ok(())
    })
}

/// A device loads from the page that is held, or stores to it. No page table and no TLB is asked.
pub fn dma(env: &mut impl Env, id: PinId, write: bool) -> Result<(), Errno> {
    env.step(Site::Dma, |w, at| {
        let pin = w.pins.get(id).ok_or(Errno::Ebadf)?;
        if write && !pin.write {
            return Err(Errno::Eacces);
        }
        if write {
            w.frames.set_flags(pin.frame, FrameFlags::ZERO_FILLED, false);
        }
        w.ghost.dma(at, id, pin, write);
        Ok(())
    })
}

/// Whether a fork copies the page at once, because it may be pinned: whose side of it a device uses must not depend on
/// who stores first. Only pages that are the process's own can be pinned where such are marked.
///
/// Source: mm/memory.c:copy_present_page (5.10), include/linux/rmap.h:page_try_dup_anon_rmap (6.1),
/// __folio_try_dup_anon_rmap (6.12, 7.3), include/linux/mm.h:folio_needs_cow_for_dma.
pub fn needs_cow_for_dma<M: Mode>(w: &World<M>, mm: MmId, pte: PresentPte) -> bool {
    let marked = w.policies.anon_exclusive == AnonExclusive::Yes;
    w.policies.fork_pinned == ForkPinned::Copy
        && w.mms[mm.index()].has_pinned
        && !pte.special()
        && (!marked || w.frames.flags(pte.pfn).has(FrameFlags::EXCLUSIVE))
        && maybe_dma_pinned(w, pte.pfn)
}

/// Whether the frame has as many references as a pin weighs. Pins of a large folio are counted by themselves: here, what it has beside those
/// of its mappings and of the swap cache.
///
/// Source: include/linux/mm.h:page_maybe_dma_pinned (5.10), folio_maybe_dma_pinned (6.1 to 7.3).
pub fn maybe_dma_pinned<M: Mode>(w: &World<M>, frame: Pfn) -> bool {
    let refs = w.frames.get(frame).refs;
    if refs < PIN_WEIGHT || !w.frames.flags(frame).has(FrameFlags::LARGE) {
        return refs >= PIN_WEIGHT;
    }
    refs - w.frames.folio_maps(frame) - swap_cache_references(w, frame) >= PIN_WEIGHT
}

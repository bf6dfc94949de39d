//! Pins: references to pages that outlive their mappings (`get_user_pages`, `pin_user_pages`), and
//! what devices do through them.
//!
//! A pin is first tried without a lock ([`fast`]). If that fails, the page is looked up, and
//! faulted in, with `mmap_lock` held ([`slow`]).

mod fast;
mod slow;

use crate::addr::{MmId, Pfn, PinId, Vpn};
use crate::call::{Gup, PinAccess};
use crate::env::{Env, Lock};
use crate::kernel::Errno;
use crate::kernel::swap_cache::swap_cache_references;
use crate::machine::frames::{FrameFlags, ZERO_PAGE};
use crate::machine::pins::{PIN_WEIGHT, Pin};
use crate::machine::world::{Ghost, Mode, World};
use crate::policy::{AnonExclusive, ForkPinned, GupRead, Mutant};
use crate::pte::PresentPte;
use crate::site::Site;
use crate::wait::Ended;

/// A request to hold a page.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct Wanted {
    /// The address space and the page.
    pub place: (MmId, Vpn),
    /// The kind of reference.
    pub gup: Gup,
    /// The access that the page is held for.
    pub access: PinAccess,
}

impl Wanted {
    /// Whether only a writable page will do. In 5.8 each reference is like one for stores, so a
    /// page that others have is copied first (`should_force_cow_break`).
    fn needs_write(self, rule: GupRead) -> bool {
        self.access.is_write() || rule == GupRead::BreakCow
    }

    /// Whether the page has to become the process's own before it can be held (`gup_must_unshare`).
    fn must_unshare<M: Mode>(self, w: &World<M>, entry: Entry) -> bool {
        w.policies.gup_read == GupRead::Unshare
            && !self.access.is_write()
            && self.gup == Gup::Pin
            && !entry.pte.writable()
            && !entry.pte.special()
            && !w.frames.flags(entry.first).has(FrameFlags::EXCLUSIVE)
    }

    fn pin(self, frame: Pfn) -> Pin {
        let Wanted { place, gup, access } = self;
        Pin { frame, place, gup, access }
    }
}

/// The entry that maps a page.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
struct Entry {
    /// The page's PTE. For a huge page, what that PTE would be.
    pte: PresentPte,
    /// The frame whose flags say whether the page is the process's own: the page's frame, or the
    /// first one of the huge page.
    first: Pfn,
}

impl Entry {
    /// The entry of a page that is mapped by a PTE.
    const fn of_page(pte: PresentPte) -> Entry {
        Entry { pte, first: pte.pfn }
    }

    /// The entry of one page of a huge page.
    fn of_huge_page<M: Mode>(w: &World<M>, pmd: PresentPte, page: Vpn) -> Entry {
        let pfn = pmd.pfn.of_page(w.huge_span(page), page);
        Entry { pte: PresentPte { pfn, ..pmd }, first: pmd.pfn }
    }
}

/// Takes hold of a page as pin number `id`: `pin_user_pages_fast`, `get_user_pages_fast`.
pub fn pin(env: &mut impl Env, id: PinId, wanted: Wanted) -> Result<Ended<()>, Errno> {
    let (mm, _) = wanted.place;
    let seq = env.step(Site::GupFast, |w, _| begin(w, id, wanted))?;
    if let Some(seq) = seq
        && fast::gup_fast(env, id, wanted, seq)
    {
        return Ok(Ended::Done);
    }
    env.lock(Lock::MmapRead(mm));
    let ended = slow::gup_slow(env, id, wanted);
    env.unlock(Lock::MmapRead(mm));
    ended.map(|wait| wait.map_or(Ended::Done, |wait| Ended::Blocked(wait, ())))
}

/// Notes that the process has pinned pages. Returns the count of forks that have begun and ended,
/// or `None` while a fork is under way. A reference without `FOLL_PIN` needs neither.
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

fn hold<M: Mode>(w: &mut World<M>, id: PinId, pin: Pin) {
    w.pins.hold(id, pin);
    w.ghost.pinned(id, pin);
}

/// Gives a page up (`unpin_user_page`, `put_page`). A page to which a device may have stored is
/// marked dirty (`unpin_user_pages_dirty_lock`).
pub fn unpin(env: &mut impl Env, id: PinId) -> Result<(), Errno> {
    env.step(Site::UnpinUserPage, |w, at| {
        let pin = w.pins.release(id).ok_or(Errno::Ebadf)?;
        w.ghost.unpinned(id);
        if pin.frame != ZERO_PAGE {
            if pin.access.is_write() {
                w.frames.set_flags(pin.frame, FrameFlags::DIRTY, true);
            }
            w.put_references(at, pin.frame, pin.weight());
        }
        Ok(())
    })
}

/// A device loads from the page that is held, or stores to it. It uses no page table and no TLB.
pub fn dma(env: &mut impl Env, id: PinId, write: bool) -> Result<(), Errno> {
    env.step(Site::Dma, |w, at| {
        let pin = w.pins.get(id).ok_or(Errno::Ebadf)?;
        if write && !pin.access.is_write() {
            return Err(Errno::Eacces);
        }
        if write {
            w.frames.set_flags(pin.frame, FrameFlags::ZERO_FILLED, false);
        }
        w.ghost.dma(at, id, pin, write);
        Ok(())
    })
}

/// Whether a fork copies the page at once, because it may be pinned. Otherwise the first store
/// would decide which process shares the page with the device. Where pages have an exclusive mark,
/// only marked pages can be pinned.
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

/// Whether the frame has as many references as a pin weighs. A large folio counts its pins by
/// themselves: here, its references without those of its mappings and of the swap cache.
///
/// Source: include/linux/mm.h:page_maybe_dma_pinned (5.10), folio_maybe_dma_pinned (6.1 to 7.3).
pub fn maybe_dma_pinned<M: Mode>(w: &World<M>, frame: Pfn) -> bool {
    let refs = w.frames.get(frame).refs;
    if refs < PIN_WEIGHT || !w.frames.flags(frame).has(FrameFlags::LARGE) {
        return refs >= PIN_WEIGHT;
    }
    refs - w.frames.folio_maps(frame) - swap_cache_references(w, frame) >= PIN_WEIGHT
}

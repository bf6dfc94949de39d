//! A page comes back from swap: `do_swap_page`, with a synchronous device.
//!
//! The page is read into a fresh folio that nobody else can see, so it is exclusive. Whether a
//! *read* fault uses that to map the page writable is a policy, and the difference is one fault per
//! page.
//!
//! Source: mm/memory.c:do_swap_page (5.10, 6.1, 6.12, 7.2, 7.3). 7.2 and 7.3 pass through the swap
//! cache and leave it again in the same fault, which shows in no event.

use super::cow;
use super::new_page::new_pte;
use super::outcome::{Fault, Served, Unserved};
use super::refault::lock_and_map;
use crate::addr::{ObjectId, Pfn};
use crate::env::{Env, Lock};
use crate::event::{EventKind, FaultClass};
use crate::kernel::alloc::{Door, Request, with_frames};
use crate::kernel::lru::{folio_add_new, lru_add_drain};
use crate::kernel::mlock_batch::folio_add_rmap;
use crate::kernel::swap_cache::{leave_swap_cache, swap_cache_references, swap_users};
use crate::kernel::table::pte_unmap_unlock;
use crate::machine::frames::FrameFlags;
use crate::machine::vma::Vma;
use crate::machine::world::{At, Ghost, Mode, World};
use crate::policy::{
    AnonExclusive, Mutant, SwapinDrain, SwapinExclusive, SwapinFree, SwapinMlock, SwapinRead,
    SwapinWrite, UffdSwapin,
};
use crate::program::Prot;
use crate::pte::{Pte, PteFlags, SwapPte};
use crate::site::Site;
use crate::wait::Wait;

/// The folio that will be mapped.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
struct Folio {
    frame: Pfn,
    /// The first frame of the folio, which may be large. Its lock is the folio's lock.
    head: Pfn,
    /// It was read just now.
    fresh: bool,
    /// It is in the swap cache, where somebody else may find it.
    cached: bool,
    on_lru: bool,
}

/// Serves a fault on a page that is in swap.
pub fn do_swap_page(
    env: &mut impl Env,
    fault: Fault,
    vma: &Vma,
    swap: SwapPte,
) -> Result<Served, Unserved> {
    // 1. Take the page from the swap cache, or else read it from the device.
    let request = Request::page(fault.mm, fault.page, FrameFlags::SWAP_BACKED);
    let folio = with_frames(env, Site::DoSwapPage, request, |w, at, door| {
        find_or_read(w, at, fault, swap, &door)
    });
    let folio = folio.ok_or(Unserved::OutOfMemory)?;
    if let Some(wait) = lock_or_retry(env, fault, folio) {
        return Err(Unserved::Blocked { wait, read: false });
    }
    let drains = match env.policies().swapin_drain {
        SwapinDrain::Never => false,
        SwapinDrain::FromCache => folio.cached,
        SwapinDrain::Always => true,
    };
    if drains && fault.write && !folio.on_lru {
        lru_add_drain(env);
    }

    // 2. Map it, unless another thread was faster.
    let writable = |w: &World<_>| Grants::of(w, fault, vma, swap, folio).writable(vma);
    let mapped = lock_and_map(env, Site::DoSwapPage, fault.mm, fault.page, writable, |w, at| {
        let looks = w.policies.mutant != Mutant::SwapinUnchecked;
        let current = !looks || w.pte(fault.mm, fault.page) == Pte::Swap(swap);
        current.then(|| map(w, at, fault, vma, swap, folio))
    });
    if mapped.is_some() {
        pte_unmap_unlock(env, fault.mm, fault.page);
    }
    env.unlock(Lock::Folio(folio.head));
    let Some((pte, granted)) = mapped.flatten() else {
        env.step(Site::FolioPut, |w, at| w.put_frame(at, folio.frame));
        return Ok(Served::spurious());
    };

    // 3. A store that could not be granted here goes on as a store to a read-only page.
    let major = folio.fresh;
    if let Pte::Present(pte) = pte
        && fault.write
        && !granted
    {
        return match cow::do_wp_page(env, fault, vma, pte) {
            Ok(served) => Ok(Served { major, ..served }),
            Err(Unserved::Blocked { wait, .. }) => Err(Unserved::Blocked { wait, read: major }),
            unserved => unserved,
        };
    }
    Ok(Served { major, ..Served::needed(FaultClass::SwapIn) })
}

/// Locks the folio. Somebody else may have locked a folio from the swap cache: a first try then
/// waits without any lock, with the reference that it has.
///
/// Source: mm/filemap.c:__lock_page_or_retry (5.10), __folio_lock_or_retry (6.18).
fn lock_or_retry(env: &mut impl Env, fault: Fault, folio: Folio) -> Option<Wait> {
    let lock = Lock::Folio(folio.head);
    if !folio.cached || fault.attempt.keeps_locks() {
        env.lock(lock);
        return None;
    }
    (!env.try_lock(Site::FolioTryLock, lock)).then_some(Wait::Folio(folio.head))
}

fn find_or_read<M: Mode>(
    w: &mut World<M>,
    at: At,
    fault: Fault,
    swap: SwapPte,
    door: &Door,
) -> Option<Folio> {
    let slot = w.swap.get(swap.slot);
    if let Some(frame) = slot.cached {
        w.get_frame(at, frame);
        let on_lru = w.frames.flags(frame).on_lru();
        let head = w.frames.folio(frame).0;
        return Some(Folio { frame, head, fresh: false, cached: true, on_lru });
    }
    let frame = door.take(w, at)?;
    folio_add_new(w, at.site(Site::FolioAddLru), frame);
    // A page that was evicted so recently is active (mm/workingset.c:workingset_refault).
    w.frames.change_flags(frame, |flags| {
        flags.set(FrameFlags::ZERO_FILLED, slot.zero_filled);
        flags.set(FrameFlags::ACTIVE, true);
    });
    w.ghost.swapped_in(swap.slot, frame);
    // A page that is only marked as zeros is filled, not read (swap_read_folio_zeromap).
    w.emit(at, EventKind::PageIn { page: fault.page, frame, zero_filled: slot.marked });
    // If others have the page in swap as well, it comes through the swap cache. (Kernels that
    // always use the swap cache leave it in the same fault if nobody else has the page in swap.)
    let cached = slot.count > 1;
    if cached {
        w.swap.cache(swap.slot, frame);
        w.get_frame(at, frame);
        w.frames.set_flags(frame, FrameFlags::SWAP_CACHE, true);
    }
    Some(Folio { frame, head: frame, fresh: true, cached, on_lru: false })
}

/// The rights with which the page may be mapped.
#[derive(Copy, Clone)]
struct Grants {
    /// Nobody else maps the page or has it in swap.
    sole_user: bool,
    exclusive: bool,
    /// The folio was found in the swap cache, and leaves it before its references are counted.
    leaves: bool,
    /// As far as the folio is concerned, a store need not fault.
    stores: bool,
    /// A store must be reported to userfaultfd first.
    asks: bool,
}

impl Grants {
    #[inline]
    fn of<M: Mode>(w: &World<M>, fault: Fault, vma: &Vma, swap: SwapPte, folio: Folio) -> Grants {
        let frame = w.frames.get(folio.frame);
        let sole_user = w.swap.get(swap.slot).count + frame.maps == 1;
        let leaves = frees_swap(w, fault, vma, swap.slot, folio, sole_user);
        let exclusive = match w.policies.anon_exclusive {
            AnonExclusive::Yes if w.policies.swapin_exclusive == SwapinExclusive::PteBit => {
                swap.exclusive
            }
            AnonExclusive::Yes => {
                let gone = if leaves { swap_cache_references(w, folio.frame) } else { 0 };
                !folio.cached || swap.exclusive || frame.refs - gone == 1
            }
            AnonExclusive::No => false,
        };
        let stores = match (fault.write, w.policies.swapin_write, w.policies.swapin_read) {
            (true, SwapinWrite::MapCount, _) => sole_user,
            (true, SwapinWrite::Exclusive, _) => exclusive,
            (false, _, SwapinRead::Writable) => exclusive,
            (false, _, SwapinRead::ReadOnly) => false,
        };
        let asks = match w.policies.uffd_swapin {
            UffdSwapin::NextFault => swap.uffd_wp,
            UffdSwapin::SameFault => vma.protects(swap.uffd_wp),
        };
        let asks = asks && w.policies.mutant != Mutant::UffdSwapinWritable;
        // A write fault marks the page soft-dirty itself.
        let stores = stores && (fault.write || !vma.notes_store(swap.soft_dirty));
        Grants { sole_user, exclusive, leaves, stores, asks }
    }

    fn asks_later<M: Mode>(self, w: &World<M>, vma: &Vma) -> bool {
        let later = w.policies.uffd_swapin == UffdSwapin::NextFault;
        later && self.stores && self.asks && vma.prot == Prot::ReadWrite
    }

    fn writable(self, vma: &Vma) -> bool {
        self.stores && !self.asks && vma.prot == Prot::ReadWrite
    }
}

/// Maps the folio and gives the swap slot back. Returns the PTE, and whether a store needs nothing
/// else.
fn map<M: Mode>(
    w: &mut World<M>,
    at: At,
    fault: Fault,
    vma: &Vma,
    swap: SwapPte,
    folio: Folio,
) -> (Pte, bool) {
    let grants = Grants::of(w, fault, vma, swap, folio);
    let Grants { sole_user, exclusive, leaves, .. } = grants;
    w.swap.count(swap.slot, -1);
    if leaves {
        leave_swap_cache(w, at, folio.frame);
    } else if !folio.cached && w.policies.swapin_free == SwapinFree::Always {
        // The page was in the swap cache just now. Like any page, it is dirty when it leaves
        // (mm/swapfile.c:folio_free_swap).
        w.frames.set_flags(folio.frame, FrameFlags::DIRTY, true);
    }
    let before = w.frames.get(folio.frame).object;
    let (object, index) = place_of(w, fault, vma, folio, grants);
    w.frames.update(folio.frame, |f| {
        (f.maps, f.object, f.index) = (f.maps + 1, object, index);
        f.flags.set(FrameFlags::EXCLUSIVE, exclusive);
        f.flags.set(FrameFlags::CLAIMED, !sole_user);
    });
    let marks = w.policies.swapin_mlock == SwapinMlock::Any || before != ObjectId::default();
    folio_add_rmap(w, at, folio.frame, marks && vma.is_locked());
    let writable = grants.writable(vma);
    // A store that is reported in a later fault counts as granted here.
    let granted = writable || grants.asks_later(w, vma);
    let pte = new_pte(w, folio.frame, writable, granted && fault.write);
    let keeps = w.policies.mutant != Mutant::UffdSwapinWritable;
    let pte = pte.with(PteFlags::UFFD_WP, swap.uffd_wp && keeps);
    let pte = Pte::Present(pte.with(PteFlags::SOFT_DIRTY, swap.soft_dirty));
    w.set_pte(at, fault.mm, fault.page, pte);
    (pte, granted)
}

/// Returns the object that the page belongs to, and its index there. A page from the swap cache
/// that was mapped before keeps its object. A page that others may map as well belongs to the root
/// object, through which rmap finds the mappings of all processes.
///
/// Source: mm/rmap.c:__page_set_anon_rmap (5.10, 6.1), __folio_set_anon (6.12, 7.3);
/// mm/memory.c:do_swap_page.
fn place_of<M: Mode>(
    w: &World<M>,
    fault: Fault,
    vma: &Vma,
    folio: Folio,
    grants: Grants,
) -> (ObjectId, u64) {
    let before = w.frames.get(folio.frame);
    if before.object != ObjectId::default() {
        return (before.object, before.index);
    }
    let own = match w.policies.anon_exclusive {
        AnonExclusive::Yes => grants.exclusive,
        AnonExclusive::No => !folio.cached || fault.write && grants.sole_user,
    };
    let (object, index) = vma.place(fault.page);
    (if own { object } else { w.objects.root(object) }, index)
}

/// Whether the folio leaves the swap cache, where it was found, once this fault's swap entry is
/// given back. The fault holds a reference to the folio, and so does the cache.
///
/// Source: mm/swapfile.c:reuse_swap_page (5.10), folio_free_swap (6.1 to 7.3),
/// mm/memory.c:should_try_to_free_swap (6.1 to 7.3).
fn frees_swap<M: Mode>(
    w: &World<M>,
    fault: Fault,
    vma: &Vma,
    slot: u32,
    folio: Folio,
    sole_user: bool,
) -> bool {
    let mut others = w.frames.pages_of_folio(folio.frame).filter(|page| *page != folio.frame);
    if !folio.cached || w.swap.get(slot).count > 1 || others.any(|page| swap_users(w, page) > 0) {
        return false;
    }
    // A page that has to stay in memory needs no swap slot.
    if vma.is_locked() || w.frames.mlocked(folio.frame).mlocked {
        return true;
    }
    let cache = swap_cache_references(w, folio.frame);
    match w.policies.swapin_free {
        SwapinFree::SoleUser => fault.write && sole_user,
        SwapinFree::SoleReference => fault.write && w.frames.get(folio.frame).refs == 1 + cache,
        SwapinFree::Always => true,
    }
}

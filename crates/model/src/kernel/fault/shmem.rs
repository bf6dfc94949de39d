//! The page cache of files in memory: tmpfs, and shared memory, which is a file without a name.
//!
//! A page that is not there is created and filled with zeros. A fault need not wait for that,
//! unless it must be reported to userfaultfd first: because the page is missing, or because it is
//! there and not mapped.
//!
//! A page that reclaim wrote to swap is read back, which is a major fault. The page is dirty then,
//! because it no longer has a swap slot. A fault waits for a page that reclaim is just writing, and
//! that page comes back as it is.
//!
//! Source: mm/shmem.c:shmem_fault, shmem_getpage_gfp (5.10), shmem_get_folio_gfp (6.1 to 7.3).

use super::file::{FilePage, page_in};
use super::new_page::zeroed;
use super::outcome::{Fault, Unserved};
use crate::addr::{ObjectId, Pfn, Vpn};
use crate::env::{Env, Learnt, Lock};
use crate::event::EventKind;
use crate::kernel::alloc::{Door, Request, with_frames};
use crate::kernel::lru::folio_add_new;
use crate::kernel::swap_cache::leave_swap_cache;
use crate::kernel::uffd::fault::handle_userfault;
use crate::machine::frames::FrameFlags;
use crate::machine::world::{At, Ghost, Mode, World};
use crate::policy::Mutant;
use crate::site::Site;
use crate::userfaultfd::{Told, Watch};

/// Returns the file's page, with a reference and locked, and whether it was read from swap. If the
/// page is neither in the page cache nor in swap, it is a new one of zeros. Fails if the file ends
/// before it.
pub fn shmem_fault(
    env: &mut impl Env,
    fault: Fault,
    watch: Watch,
    (object, index): (ObjectId, u64),
) -> Result<(FilePage, bool), Unserved> {
    let mut read = false;
    loop {
        let place = (object, index);
        if !watch.minor {
            read |= shmem_swapin(env, fault.page, place).ok_or(Unserved::OutOfMemory)?;
        }
        let Some(frame) = shmem_get_folio(env, fault, watch, place)? else { continue };
        env.lock(Lock::Folio(frame));
        let there = env.step(Site::ShmemGetFolio, |w, at| {
            let there = w.objects.page(object, index) == Some(frame);
            let ends = index >= w.objects.size(object);
            if there && ends && w.frames.get(frame).maps == 0 {
                // Nobody else looks for a page that was made beyond the file's end.
                w.remove_from_page_cache(at, frame);
            }
            there && !ends
        });
        if there {
            // A file in memory has folios of one page.
            return Ok((FilePage { frame, folio: frame }, read));
        }
        // The file became smaller meanwhile, or a hole was punched there.
        env.unlock(Lock::Folio(frame));
        env.step(Site::FolioPut, |w, at| w.put_frame(at, frame));
    }
}

/// Reads the page back if it is in swap. Returns whether it was read, or `None` if no memory is
/// left.
///
/// Source: mm/shmem.c:shmem_swapin_page (5.10), shmem_swapin_folio (6.1 to 7.2).
pub fn shmem_swapin(
    env: &mut impl Env,
    page: Vpn,
    (object, index): (ObjectId, u64),
) -> Option<bool> {
    loop {
        // A page that was evicted so recently is active (mm/workingset.c:workingset_refault).
        let flags = FrameFlags::SWAP_BACKED.and(FrameFlags::DIRTY).and(FrameFlags::ACTIVE);
        let found = with_frames(env, Site::ShmemGetFolio, Request::here(flags), |w, at, door| {
            let Some(slot) = w.objects.slot(object, index) else { return Found::Nothing };
            if let Some(frame) = w.swap.get(slot).cached {
                w.get_frame(at, frame);
                return Found::Cached(frame, slot);
            }
            let read = read_back(w, at, page, (object, index, slot), &door);
            if read { Found::Read } else { Found::NoMemory }
        });
        let (frame, slot) = match found {
            Found::Nothing => return Some(false),
            Found::NoMemory => return None,
            Found::Read => return Some(true),
            Found::Cached(frame, slot) => (frame, slot),
        };
        env.lock(Lock::Folio(frame));
        env.step(Site::ShmemGetFolio, |w, at| {
            let same = w.objects.slot(object, index) == Some(slot);
            if same && w.swap.slot_of(frame) == Some(slot) {
                w.get_frame(at, frame);
                add_swapped(w, (object, index), frame);
                w.swap.count(slot, -1);
                leave_swap_cache(w, at, frame);
            }
        });
        env.unlock(Lock::Folio(frame));
        env.step(Site::FolioPut, |w, at| w.put_frame(at, frame));
    }
}

/// What was found about a page that may be in swap.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
enum Found {
    Nothing,
    NoMemory,
    Read,
    Cached(Pfn, u32),
}

impl Learnt for Found {
    fn nothing() -> Found {
        Found::Nothing
    }
}

/// Reads the page from its slot, and frees the slot. Returns false if no memory is left. (Up to
/// 6.12 the page passes through the swap cache and leaves it at once.)
fn read_back<M: Mode>(
    w: &mut World<M>,
    at: At,
    page: Vpn,
    (object, index, slot): (ObjectId, u64, u32),
    door: &Door,
) -> bool {
    let Some(frame) = door.take(w, at) else { return false };
    let of_slot = w.swap.get(slot);
    w.frames.set_zero_filled(frame, of_slot.zero_filled);
    w.ghost.swapped_in(slot, frame);
    w.emit(at, EventKind::PageIn { page, frame, zero_filled: of_slot.marked });
    add_swapped(w, (object, index), frame);
    w.swap.count(slot, -1);
    folio_add_new(w, at.site(Site::FolioAddLru), frame);
    true
}

/// Puts the page into the page cache again, which takes over the reference.
fn add_swapped<M: Mode>(w: &mut World<M>, (object, index): (ObjectId, u64), frame: Pfn) {
    w.add_to_page_cache(frame, object, index);
    w.objects.set_slot(object, index, None);
}

/// Returns the page with a reference: the one that is there, or else a new one, unless another
/// thread adds one first. `None` if the page went to swap meanwhile.
fn shmem_get_folio(
    env: &mut impl Env,
    fault: Fault,
    watch: Watch,
    (object, index): (ObjectId, u64),
) -> Result<Option<Pfn>, Unserved> {
    let (found, swapped) = env.step(Site::ShmemGetFolio, |w, at| {
        (page_in(w, at, object, index), w.objects.slot(object, index).is_some())
    });
    match found {
        Err(()) => return Err(Unserved::NotAllowed),
        // A page in swap is there, for userfaultfd.
        Ok(None) if watch.minor && swapped => {
            return Err(handle_userfault(env, fault, Told::Minor));
        }
        Ok(None) if swapped => return Ok(None),
        Ok(Some(found)) if watch.minor => {
            env.step(Site::FolioPut, |w, at| w.put_frame(at, found.frame));
            return Err(handle_userfault(env, fault, Told::Minor));
        }
        Ok(Some(found)) => return Ok(Some(found.frame)),
        Ok(None) if watch.missing => return Err(handle_userfault(env, fault, Told::Missing)),
        Ok(None) => {}
    }
    let request = zeroed(fault.mm, fault.page);
    let made = with_frames(env, Site::ShmemGetFolio, request, |w, at, door| {
        let there = w.objects.page(object, index);
        if let Some(found) = there.filter(|_| w.policies.mutant != Mutant::CacheUnchecked) {
            w.get_frame(at, found);
            return Some(Some(found));
        }
        if w.objects.slot(object, index).is_some() {
            return Some(None);
        }
        let new = door.take(w, at)?;
        w.ghost.zeroed(new);
        w.emit(at, EventKind::Zero { page: fault.page, frame: new });
        w.add_to_page_cache(new, object, index);
        w.get_frame(at, new);
        if let Some(old) = there {
            w.put_frame(at, old);
        }
        folio_add_new(w, at.site(Site::FolioAddLru), new);
        Some(Some(new))
    });
    made.ok_or(Unserved::OutOfMemory)
}

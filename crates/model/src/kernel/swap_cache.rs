//! The swap cache: folios that have a slot of swap space.

use crate::addr::Pfn;
use crate::env::{Env, Lock};
use crate::machine::frames::FrameFlags;
use crate::machine::world::{At, Mode, World};
use crate::policy::Mutant;
use crate::site::Site;

/// Puts a folio into the swap cache. Returns whether there was a slot for it.
///
/// Source: mm/swap_state.c:add_to_swap (5.10 to 6.12), mm/swapfile.c:folio_alloc_swap (6.18). (For
/// a large folio, kernels need adjacent slots. The model assumes that enough free slots are
/// adjacent.)
pub fn add_to_swap<M: Mode>(w: &mut World<M>, frame: Pfn) -> bool {
    if w.frames.flags(frame).has(FrameFlags::SWAP_CACHE) {
        return true;
    }
    let pages = w.frames.pages_of_folio(frame);
    let count = pages.clone().count() as u32;
    if w.swap.left() < count {
        return false;
    }
    for page in pages {
        w.swap.allocate(page, &w.room);
    }
    w.frames.update(frame, |f| f.refs += count);
    let dirty = w.policies.mutant != Mutant::AddedClean;
    w.frames.change_flags(frame, |flags| {
        flags.set(FrameFlags::SWAP_CACHE, true);
        flags.set(FrameFlags::DIRTY, dirty || flags.has(FrameFlags::DIRTY));
    });
    true
}

/// Takes a folio out of the swap cache. It must be written again before it can be dropped.
pub fn leave_swap_cache<M: Mode>(w: &mut World<M>, at: At, frame: Pfn) {
    let pages = w.frames.pages_of_folio(frame);
    let count = pages.clone().count() as u32;
    pages.for_each(|page| w.swap.uncache(page));
    w.frames.change_flags(frame, |flags| {
        flags.set(FrameFlags::SWAP_CACHE, false);
        flags.set(FrameFlags::DIRTY, true);
    });
    w.put_references(at.site(Site::FolioFreeSwap), frame, count);
}

/// Takes a folio out of the swap cache, if nobody maps it and no swap PTE names it.
///
/// Source: mm/swap_state.c:free_swap_cache (5.10 to 7.3).
pub fn free_swap_cache<M: Mode>(w: &mut World<M>, at: At, frame: Pfn) {
    if is_unused(w, frame) {
        leave_swap_cache(w, at, frame);
    }
}

/// The number of references that the swap cache holds to the folio: one for each page.
pub fn swap_cache_references<M: Mode>(w: &World<M>, frame: Pfn) -> u32 {
    let cached = w.frames.flags(frame).has(FrameFlags::SWAP_CACHE);
    u32::from(cached) << w.frames.folio(frame).1
}

/// Whether the folio is in the swap cache, and no PTE maps it or names one of its slots.
pub fn is_unused<M: Mode>(w: &World<M>, frame: Pfn) -> bool {
    let users = || w.frames.pages_of_folio(frame).any(|page| swap_users(w, page) != 0);
    let cached = w.frames.flags(frame).has(FrameFlags::SWAP_CACHE);
    cached && w.frames.folio_maps(frame) == 0 && !users()
}

/// The number of swap PTEs that name the page's slot.
pub fn swap_users<M: Mode>(w: &World<M>, frame: Pfn) -> u32 {
    w.swap.slot_of(frame).map_or(0, |slot| w.swap.get(slot).count)
}

/// Drops a swap PTE. That may free its slot, and the folio in the swap cache with it
/// (mm/swapfile.c:free_swap_and_cache).
pub fn free_swap_and_cache<M: Mode>(w: &mut World<M>, at: At, slot: u32) {
    w.swap.count(slot, -1);
    let entry = w.swap.get(slot);
    if entry.count == 0
        && let Some(frame) = entry.cached
        && is_unused(w, frame)
    {
        leave_swap_cache(w, at, frame);
    }
}

/// Takes folios whose mapping is gone out of the swap cache, except those that somebody else has
/// locked.
///
/// Source: mm/swap_state.c:free_pages_and_swap_cache (5.10 to 7.3).
pub fn free_swap_caches(env: &mut impl Env, folios: &[Pfn]) {
    for &frame in folios {
        if env.try_lock(Site::FolioTryLock, Lock::Folio(frame)) {
            env.step(Site::FolioFreeSwap, |w, at| free_swap_cache(w, at, frame));
            env.unlock(Lock::Folio(frame));
        }
    }
}

//! LRU batches: a new folio waits in its CPU's batch, and the batch holds one reference to it.
//!
//! 5.9 to 5.17 mistake that reference for a sharer. A CPU empties only its own batches. A batch
//! other than that of new folios has no effect on a folio that is not on the LRU when the batch is
//! emptied: the folio may be isolated, or wait in another batch.
//!
//! Source: mm/swap.c (5.10 to 6.18; mm/folio.c in 7.3): folio_add_lru, folio_batch_move_lru,
//! lru_add_drain_cpu; include/linux/pagevec.h.

use crate::addr::{CpuId, Pfn};
use crate::env::Env;
use crate::kernel::mlock_batch::drain_mlock;
use crate::machine::cpu::FolioBatch;
use crate::machine::frames::FrameFlags;
use crate::machine::lru::End;
use crate::machine::mlocked::Mlocked;
use crate::machine::world::{At, Mode, World};
use crate::policy::{ColdBatch, NewFolio, UsedOnce};
use crate::site::Site;

/// Puts a folio into this CPU's batch of new folios. A full batch is emptied. Part of a step.
pub fn folio_add_lru<M: Mode>(w: &mut World<M>, at: At, frame: Pfn) {
    enter(w, at, FolioBatch::Add, frame);
}

/// [`folio_add_lru`] for a folio that a fault has allocated.
///
/// Source: mm/swap.c:folio_add_lru (6.12), mm/folio.c (7.3).
pub fn folio_add_new<M: Mode>(w: &mut World<M>, at: At, frame: Pfn) {
    if w.config.mglru && w.policies.new_folio == NewFolio::Referenced {
        w.frames.set_flags(frame, FrameFlags::REFERENCED, true);
    }
    folio_add_lru(w, at, frame);
}

/// Puts a page freed by `MADV_FREE` into this CPU's batch of such pages. When the batch is emptied,
/// swap no longer backs the page. Part of a step.
///
/// Source: mm/swap.c:mark_page_lazyfree (5.10), folio_mark_lazyfree (6.1 to 7.3).
pub fn mark_lazyfree<M: Mode>(w: &mut World<M>, at: At, frame: Pfn) {
    let flags = w.frames.flags(frame);
    let passed_over = flags.has(FrameFlags::SWAP_CACHE) || w.frames.mlocked(frame).unevictable;
    if flags.on_lru() && flags.has(FrameFlags::SWAP_BACKED) && !passed_over {
        enter(w, at, FolioBatch::Lazyfree, frame);
    }
}

/// Puts an active page that `MADV_COLD` found into this CPU's batch of such pages. When the batch
/// is emptied, the page becomes inactive. With multi-generational LRU every page counts as active,
/// except those of the oldest generation where the policy says so. Part of a step.
///
/// Source: mm/swap.c:deactivate_page (5.10, 6.1), folio_deactivate (6.12), lru_gen_clear_refs
/// (7.3).
pub fn deactivate<M: Mode>(w: &mut World<M>, at: At, frame: Pfn) {
    let flags = w.frames.flags(frame);
    let active = w.config.mglru || flags.has(FrameFlags::ACTIVE);
    if active && may_be_older(w, frame) {
        enter(w, at, FolioBatch::Deactivate, frame);
    }
}

/// Puts a file's page that should have left memory but could not into this CPU's batch of such
/// pages. When the batch is emptied, the page becomes the next to be reclaimed, unless it is mapped
/// by then. Part of a step. (5.10 and 6.1 also do this with a page that is not on the LRU yet.
/// Nobody sees that, because all batches are emptied first.)
///
/// Source: mm/swap.c:deactivate_file_page (5.10), deactivate_file_folio (6.1 to 7.3).
pub fn deactivate_file<M: Mode>(w: &mut World<M>, at: At, frame: Pfn) {
    if may_be_older(w, frame) {
        enter(w, at, FolioBatch::DeactivateFile, frame);
    }
}

/// Ends the write of a file's page. If reclaim wants the page, it goes into this CPU's batch of
/// such pages. When the batch is emptied, the page becomes the next to be reclaimed. Part of a
/// step.
///
/// Source: mm/filemap.c:end_page_writeback (5.10), folio_end_writeback (6.1 to 7.2);
/// mm/swap.c:rotate_reclaimable_page (5.10), folio_rotate_reclaimable (6.1 to 7.2).
pub fn end_writeback<M: Mode>(w: &mut World<M>, at: At, frame: Pfn) {
    let wanted = w.frames.set_wanted(frame, false);
    let flags = w.frames.flags(frame);
    let there = flags.on_lru() && !w.frames.mlocked(frame).unevictable;
    if wanted && there && !flags.has(FrameFlags::DIRTY) {
        enter(w, at, FolioBatch::Rotate, frame);
    }
}

/// Whether the page is on a list that reclaim scans and can still age. Where the kernel checks
/// that, a page of the oldest generation cannot.
fn may_be_older<M: Mode>(w: &World<M>, frame: Pfn) -> bool {
    let flags = w.frames.flags(frame);
    if w.frames.mlocked(frame).unevictable {
        return false;
    }
    let looks = w.config.mglru && w.policies.cold_batch == ColdBatch::NotOldest;
    flags.on_lru() && !(looks && flags.has(FrameFlags::OLDEST))
}

/// Marks the page as used by the kernel. The second time, the page becomes active when this CPU's
/// batch of such pages is emptied. A page on the unevictable list does not become active. With
/// multi-generational LRU no page becomes active here, and one on the unevictable list is not even
/// marked. Part of a step.
///
/// Source: mm/swap.c:mark_page_accessed (5.10), folio_mark_accessed, lru_gen_inc_refs
/// (folio_inc_refs in 6.1 and 6.12; 6.1 to 7.3).
pub fn mark_accessed<M: Mode>(w: &mut World<M>, at: At, frame: Pfn) {
    let flags = w.frames.flags(frame);
    let unevictable = w.frames.mlocked(frame).unevictable;
    if unevictable && (w.config.mglru || flags.has(FrameFlags::REFERENCED)) {
        return;
    }
    if !flags.has(FrameFlags::REFERENCED) {
        w.frames.set_flags(frame, FrameFlags::REFERENCED, true);
        return;
    }
    if w.config.mglru || flags.has(FrameFlags::ACTIVE) {
        return;
    }
    w.frames.set_flags(frame, FrameFlags::REFERENCED, false);
    if flags.on_lru() {
        enter(w, at, FolioBatch::Activate, frame);
    } else if w.cpus[at.cpu.index()].lru[FolioBatch::Add as usize].contains(&frame) {
        // Kernels do not search the batches of other CPUs (`__lru_cache_activate_folio`).
        w.frames.set_flags(frame, FrameFlags::ACTIVE, true);
    }
}

/// Empties this CPU's batches.
pub fn lru_add_drain(env: &mut impl Env) {
    env.step(Site::LruAddDrain, |w, at| drain_cpu(w, at, at.cpu));
}

/// Makes every CPU empty its batches, and waits for that: a kernel thread does it there.
pub fn lru_add_drain_all(env: &mut impl Env) {
    let cpus = env.step(Site::LruAddDrainAll, |w, _| w.cpus.len());
    for cpu in (0..cpus as u16).map(CpuId) {
        env.step(Site::LruAddDrainAll, |w, at| drain_cpu(w, at, cpu));
    }
}

fn drain_cpu<M: Mode>(w: &mut World<M>, at: At, cpu: CpuId) {
    for batch in FolioBatch::ALL {
        if !w.cpus[cpu.index()].lru[batch as usize].is_empty() {
            drain(w, at, cpu, batch);
        }
    }
    if !w.cpus[cpu.index()].mlock.is_empty() {
        drain_mlock(w, at, cpu);
    }
}

#[inline(always)]
fn enter<M: Mode>(w: &mut World<M>, at: At, batch: FolioBatch, frame: Pfn) {
    w.get_frame(at, frame);
    let size = w.lru_batch_size();
    let waiting = &mut w.cpus[at.cpu.index()].lru[batch as usize];
    waiting.push(frame);
    // A large folio does not wait in a batch (PageCompound in 5.10, folio_may_be_lru_cached in
    // 7.3).
    let large = w.frames.flags(frame).has(FrameFlags::LARGE);
    let waiting = &w.cpus[at.cpu.index()].lru[batch as usize];
    if waiting.len() == size || large {
        drain(w, at, at.cpu, batch);
    }
}

fn drain<M: Mode>(w: &mut World<M>, at: At, cpu: CpuId, batch: FolioBatch) {
    let mut waiting = std::mem::take(&mut w.cpus[cpu.index()].lru[batch as usize]);
    let (mglru, used_once) = (w.config.mglru, w.policies.used_once);
    for &frame in &waiting {
        let used = batch == FolioBatch::DeactivateFile && w.frames.folio_maps(frame) > 0;
        let unevictable = batch != FolioBatch::Add && w.frames.mlocked(frame).unevictable;
        if used || unevictable {
            w.put_frame(at, frame);
            continue;
        }
        match batch {
            FolioBatch::Add => {
                w.lru_add(frame, |flags| joins_list(flags, mglru, used_once));
                add_mlocked(w, frame);
            }
            _ => {
                let mut end = None;
                w.frames.change_flags(frame, |flags| end = moved(flags, batch, mglru, used_once));
                if let Some(end) = end {
                    w.lru_move(frame, end);
                }
            }
        }
        w.put_frame(at, frame);
    }
    waiting.clear();
    w.cpus[cpu.index()].lru[batch as usize] = waiting;
}

/// Moves a folio that leaves the batch of new folios to the unevictable list, if a mapping locks
/// it. Its count of locking mappings starts at 0: the code that locks it counts.
///
/// Source: mm/swap.c:__pagevec_lru_add_fn (5.10), lru_add_fn (6.1), lru_add (6.12, 7.3).
fn add_mlocked<M: Mode>(w: &mut World<M>, folio: Pfn) {
    let state = w.frames.mlocked(folio);
    if state != Mlocked::default() {
        w.frames.change_mlocked(folio, |folio| {
            (folio.unevictable, folio.count) = (state.mlocked, 0);
        });
    }
    if state.mlocked {
        let aging = FrameFlags::ACTIVE.and(FrameFlags::OLDEST);
        w.frames.set_flags(folio, aging, false);
        w.lru_move(folio, End::Head);
    }
}

/// Applies the effect of a batch, other than that of new folios, to a folio that leaves it. Returns
/// the end of the list that the folio joins, if it moves.
///
/// Source: mm/swap.c:folio_batch_move_lru, lru_add, lru_deactivate, lru_lazyfree, lru_activate
/// (5.10: with the suffix _fn, and `__activate_page`).
fn moved(
    flags: &mut FrameFlags,
    batch: FolioBatch,
    mglru: bool,
    used_once: UsedOnce,
) -> Option<End> {
    if !flags.on_lru() {
        return None;
    }
    let mut end = Some(End::Head);
    let used = FrameFlags::ACTIVE.and(FrameFlags::REFERENCED);
    match batch {
        FolioBatch::DeactivateFile => flags.set(used, false),
        FolioBatch::Rotate => {
            flags.set(FrameFlags::ACTIVE, false);
            flags.set(FrameFlags::OLDEST, mglru);
            return Some(End::Tail);
        }
        FolioBatch::Deactivate if mglru || flags.has(FrameFlags::ACTIVE) => flags.set(used, false),
        FolioBatch::Lazyfree
            if flags.has(FrameFlags::SWAP_BACKED) && !flags.has(FrameFlags::SWAP_CACHE) =>
        {
            flags.set(FrameFlags::SWAP_BACKED.and(FrameFlags::ACTIVE), false);
            // A folio off its list has no generation, and `lru_gen_clear_refs` clears nothing
            // (7.3).
            flags.set(FrameFlags::REFERENCED, mglru && flags.has(FrameFlags::REFERENCED));
        }
        FolioBatch::Activate => flags.set(FrameFlags::ACTIVE, true),
        FolioBatch::Add | FolioBatch::Deactivate | FolioBatch::Lazyfree => end = None,
    }
    joins_list(flags, mglru, used_once);
    end
}

/// Sets whether a folio joins the oldest generation. Generations do not age while memory is not
/// short.
///
/// Source: include/linux/mm_inline.h:lru_gen_folio_seq (6.18, 7.3).
pub fn joins_list(flags: &mut FrameFlags, mglru: bool, used_once: UsedOnce) {
    let evictable = flags.has(FrameFlags::SWAP_CACHE) || !flags.has(FrameFlags::SWAP_BACKED);
    let once = used_once == UsedOnce::Recent && flags.has(FrameFlags::REFERENCED);
    let recent = flags.has(FrameFlags::ACTIVE) || once;
    flags.set(FrameFlags::OLDEST, mglru && evictable && !recent);
}

//! LRU batches: a new folio waits in its CPU's batch, with one reference of the batch's own.
//!
//! That reference is what 5.9 to 5.17 mistake for a sharer.
//!
//! Source: mm/swap.c:folio_add_lru, lru_add_drain_cpu; include/linux/pagevec.h.

use crate::addr::Pfn;
use crate::env::Env;
use crate::machine::cpu::FolioBatch;
use crate::machine::frames::{Frame, FrameFlags};
use crate::machine::world::{At, Mode, World};
use crate::site::Site;

/// Puts a folio into this CPU's batch; a full batch is emptied. Part of a step.
pub fn folio_add_lru<M: Mode>(w: &mut World<M>, at: At, frame: Pfn) {
    enter(w, at, FolioBatch::Add, frame);
}

/// Puts a page freed by `MADV_FREE` into this CPU's batch of such pages; it stops being backed by
/// swap when that is emptied. Part of a step.
///
/// Source: mm/swap.c:mark_page_lazyfree (5.10), folio_mark_lazyfree (6.1 to 7.3).
pub fn mark_lazyfree<M: Mode>(w: &mut World<M>, at: At, frame: Pfn) {
    let flags = w.frames.get(frame).flags;
    let swap_cache = flags.has(FrameFlags::SWAP_CACHE);
    if flags.has(FrameFlags::LRU.and(FrameFlags::SWAP_BACKED)) && !swap_cache {
        enter(w, at, FolioBatch::Lazyfree, frame);
    }
}

/// Puts an active page that `MADV_COLD` found into this CPU's batch of such pages; it becomes
/// inactive when that is emptied. With multi-generational LRU every page counts as active. Part of a
/// step.
///
/// Source: mm/swap.c:deactivate_page (5.10, 6.1), folio_deactivate (6.12). 7.3 leaves out pages that
/// are in the oldest generation already, which is not modelled.
pub fn deactivate<M: Mode>(w: &mut World<M>, at: At, frame: Pfn) {
    let flags = w.frames.get(frame).flags;
    w.frames.update(frame, |f| f.flags.set(FrameFlags::REFERENCED, false));
    if flags.has(FrameFlags::LRU) && (w.config.mglru || flags.has(FrameFlags::ACTIVE)) {
        enter(w, at, FolioBatch::Deactivate, frame);
    }
}

/// The page was used by the kernel: the second time makes it active. Part of a step.
///
/// Source: mm/swap.c:mark_page_accessed (5.10), folio_mark_accessed (6.1 to 7.3).
pub fn mark_accessed<M: Mode>(w: &mut World<M>, at: At, frame: Pfn) {
    let flags = w.frames.get(frame).flags;
    if w.config.mglru || flags.has(FrameFlags::REFERENCED.and(FrameFlags::ACTIVE)) {
        return;
    }
    if !flags.has(FrameFlags::REFERENCED) {
        w.frames.update(frame, |f| f.flags.set(FrameFlags::REFERENCED, true));
        return;
    }
    // Another CPU's batch is out of reach.
    let reached = flags.has(FrameFlags::LRU)
        || w.cpus[at.cpu.index()].lru[FolioBatch::Add as usize].contains(&frame);
    w.frames.update(frame, |f| {
        f.flags.set(FrameFlags::ACTIVE, reached);
        f.flags.set(FrameFlags::REFERENCED, false);
    });
}

/// Empties this CPU's batches.
pub fn lru_add_drain(env: &mut impl Env) {
    env.step(Site::LruAddDrain, |w, at| {
        FolioBatch::ALL.into_iter().for_each(|batch| drain(w, at, batch));
    });
}

#[inline(always)]
fn enter<M: Mode>(w: &mut World<M>, at: At, batch: FolioBatch, frame: Pfn) {
    w.get_frame(frame);
    let size = w.lru_batch_size();
    let waiting = &mut w.cpus[at.cpu.index()].lru[batch as usize];
    waiting.push(frame);
    if waiting.len() == size {
        drain(w, at, batch);
    }
}

fn drain<M: Mode>(w: &mut World<M>, at: At, batch: FolioBatch) {
    if w.cpus[at.cpu.index()].lru[batch as usize].is_empty() {
        return;
    }
    let mut waiting = std::mem::take(&mut w.cpus[at.cpu.index()].lru[batch as usize]);
    for frame in waiting.drain(..) {
        w.frames.update(frame, |f| moved(f, batch));
        w.put_frame(at, frame);
    }
    w.cpus[at.cpu.index()].lru[batch as usize] = waiting;
}

/// What leaving a batch makes of a folio.
fn moved(frame: &mut Frame, batch: FolioBatch) {
    let flags = &mut frame.flags;
    match batch {
        FolioBatch::Add => flags.set(FrameFlags::LRU, true),
        FolioBatch::Deactivate => flags.set(FrameFlags::ACTIVE, false),
        FolioBatch::Lazyfree if flags.has(FrameFlags::SWAP_CACHE) => {}
        FolioBatch::Lazyfree => {
            let gone = [FrameFlags::SWAP_BACKED, FrameFlags::ACTIVE, FrameFlags::REFERENCED];
            gone.into_iter().for_each(|flag| flags.set(flag, false));
        }
    }
}

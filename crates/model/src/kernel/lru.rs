//! LRU batches: a new folio waits in its CPU's batch, with one reference of the batch's own.
//!
//! That reference is what 5.9 to 5.17 mistake for a sharer.
//!
//! Source: mm/swap.c:folio_add_lru, lru_add_drain_cpu; include/linux/pagevec.h.

use crate::addr::Pfn;
use crate::env::Env;
use crate::machine::frames::FrameFlags;
use crate::machine::world::{At, Mode, World};
use crate::site::Site;

/// Puts a folio into this CPU's batch; a full batch is emptied. Part of a step.
pub fn folio_add_lru<M: Mode>(w: &mut World<M>, at: At, frame: Pfn) {
    w.get_frame(frame);
    w.cpus[at.cpu.index()].lru_add.push(frame);
    if w.cpus[at.cpu.index()].lru_add.len() == w.lru_batch_size() {
        drain(w, at);
    }
}

/// Puts a page freed by `MADV_FREE` into this CPU's batch of such pages; it stops being backed by
/// swap when that is emptied. Part of a step.
///
/// Source: mm/swap.c:mark_page_lazyfree (5.10), folio_mark_lazyfree (6.1 to 7.3).
pub fn mark_lazyfree<M: Mode>(w: &mut World<M>, at: At, frame: Pfn) {
    let flags = w.frames.get(frame).flags;
    let swap_cache = flags.has(FrameFlags::SWAP_CACHE);
    if flags.has(FrameFlags::LRU.and(FrameFlags::SWAP_BACKED)) && !swap_cache {
        w.get_frame(frame);
        w.cpus[at.cpu.index()].lru_lazyfree.push(frame);
        if w.cpus[at.cpu.index()].lru_lazyfree.len() == w.lru_batch_size() {
            drain_lazyfree(w, at);
        }
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
        w.get_frame(frame);
        w.cpus[at.cpu.index()].lru_deactivate.push(frame);
        if w.cpus[at.cpu.index()].lru_deactivate.len() == w.lru_batch_size() {
            drain_deactivate(w, at);
        }
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
    let reached = flags.has(FrameFlags::LRU) || w.cpus[at.cpu.index()].lru_add.contains(&frame);
    w.frames.update(frame, |f| {
        f.flags.set(FrameFlags::ACTIVE, reached);
        f.flags.set(FrameFlags::REFERENCED, false);
    });
}

/// Empties this CPU's batches.
pub fn lru_add_drain(env: &mut impl Env) {
    env.step(Site::LruAddDrain, |w, at| {
        drain(w, at);
        drain_deactivate(w, at);
        drain_lazyfree(w, at);
    });
}

fn drain_deactivate<M: Mode>(w: &mut World<M>, at: At) {
    let mut batch = std::mem::take(&mut w.cpus[at.cpu.index()].lru_deactivate);
    for frame in batch.drain(..) {
        w.frames.update(frame, |f| f.flags.set(FrameFlags::ACTIVE, false));
        w.put_frame(at, frame);
    }
    w.cpus[at.cpu.index()].lru_deactivate = batch;
}

fn drain<M: Mode>(w: &mut World<M>, at: At) {
    if w.cpus[at.cpu.index()].lru_add.is_empty() {
        return;
    }
    let mut batch = std::mem::take(&mut w.cpus[at.cpu.index()].lru_add);
    for frame in batch.drain(..) {
        w.frames.update(frame, |f| f.flags.set(FrameFlags::LRU, true));
        w.put_frame(at, frame);
    }
    w.cpus[at.cpu.index()].lru_add = batch;
}

fn drain_lazyfree<M: Mode>(w: &mut World<M>, at: At) {
    if w.cpus[at.cpu.index()].lru_lazyfree.is_empty() {
        return;
    }
    let mut batch = std::mem::take(&mut w.cpus[at.cpu.index()].lru_lazyfree);
    for frame in batch.drain(..) {
        if !w.frames.get(frame).flags.has(FrameFlags::SWAP_CACHE) {
            w.frames.update(frame, |f| {
                let gone = [FrameFlags::SWAP_BACKED, FrameFlags::ACTIVE, FrameFlags::REFERENCED];
                gone.into_iter().for_each(|flag| f.flags.set(flag, false));
            });
        }
        w.put_frame(at, frame);
    }
    w.cpus[at.cpu.index()].lru_lazyfree = batch;
}

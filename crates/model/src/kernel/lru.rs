//! LRU batches: a new folio waits in its CPU's batch, with one reference of the batch's own.
//!
//! That reference is what 5.9 to 5.17 mistake for a sharer.
//!
//! Source: mm/swap.c:folio_add_lru, lru_add_drain_cpu; include/linux/pagevec.h.

use crate::addr::{CpuId, Pfn};
use crate::env::Env;
use crate::machine::frames::FrameFlags;
use crate::machine::world::{At, Mode, World};
use crate::site::Site;

/// Puts a folio into this CPU's batch; a full batch is emptied. Part of a step.
pub fn folio_add_lru<M: Mode>(w: &mut World<M>, at: At, frame: Pfn) {
    w.get_frame(frame);
    w.cpus[at.cpu.index()].lru_add.push(frame);
    if w.cpus[at.cpu.index()].lru_add.len() == w.lru_batch_size() {
        drain(w, at, at.cpu);
    }
}

/// Empties this CPU's batch.
pub fn lru_add_drain(env: &mut impl Env) {
    env.step(Site::LruAddDrain, |w, at| drain(w, at, at.cpu));
}

fn drain<M: Mode>(w: &mut World<M>, at: At, cpu: CpuId) {
    let mut batch = std::mem::take(&mut w.cpus[cpu.index()].lru_add);
    for frame in batch.drain(..) {
        w.frames.update(frame, |f| f.flags.set(FrameFlags::LRU, true));
        w.put_frame(at, frame);
    }
    w.cpus[cpu.index()].lru_add = batch;
}

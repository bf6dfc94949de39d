//! The batched unmap flush: reclaim unmaps many pages and flushes once.
//!
//! Until the flush, a CPU may use a translation whose PTE is gone. A mark in the address space
//! tells the next walk of its page tables: that walk would find no PTE where it may have to revoke
//! a right, so it flushes everything. The batch's own flush leaves the mark. So the next walk
//! flushes once more, although nothing is stale any more.
//!
//! Source: mm/rmap.c:set_tlb_ubc_flush_pending, try_to_unmap_flush, flush_tlb_batched_pending (5.10
//! to 7.3).

use crate::addr::{MmId, Vpn};
use crate::env::Env;
use crate::kernel::deferred::{flush_begins, flush_ended, strikes_at_end};
use crate::kernel::flush::{
    arch_flush_tlb_batched_pending, arch_tlbbatch_add_pending, arch_tlbbatch_flush,
};
use crate::machine::mm::BatchedMark;
use crate::machine::unmap_batch::{Batch, Covers};
use crate::policy::{BatchedPending, Mutant, PendingMark, Policies};
use crate::site::Site;

/// Defers the flush of the PTE of `page`, which was just cleared, into the batch. `writable`: the
/// PTE was dirty.
///
/// The kernel raises its count last. If the batch's flush clears the mark, the count has to come
/// first. Otherwise a CPU that joins between mask and count would be in the number that the flush
/// covers, but not in its mask.
pub fn set_tlb_ubc_flush_pending(
    env: &mut impl Env,
    batch: Batch,
    mm: MmId,
    page: Vpn,
    writable: bool,
) {
    let Policies { batched_pending, mutant, .. } = *env.policies();
    let counts_first =
        batched_pending == BatchedPending::Cleared && mutant != Mutant::PendingMaskedEarly;
    if counts_first {
        count_unmap(env, batch, mm);
    }
    arch_tlbbatch_add_pending(env, batch, mm, page, writable);
    if !counts_first {
        count_unmap(env, batch, mm);
    }
}

fn count_unmap(env: &mut impl Env, batch: Batch, mm: MmId) {
    env.step(Site::SetTlbUbcFlushPending, |w, at| {
        let covers = w.unmap_batch(batch, at.thread).map(|batch| &batch.covers);
        let first = covers.is_none_or(|covers| covers.iter().all(|(covered, _)| *covered != mm));
        if w.policies.mutant == Mutant::BatchMarkedOnce && !first {
            return;
        }
        let mark = &mut w.mms[mm.index()].batched;
        match w.policies.pending_mark {
            PendingMark::Flag => *mark = BatchedMark { pending: 1, flushed: 0 },
            PendingMark::Counts if w.policies.mutant == Mutant::PendingCountedEarly => {}
            PendingMark::Counts => mark.pending += 1,
        }
        let pending = mark.pending;
        w.unmap_batch_mut(batch, at.thread).cover(mm, pending);
    });
}

/// Does the flushes that this thread deferred or, with [`Batch::Deferred`], those that the machine
/// deferred. Frames that waited for them are free afterwards.
pub fn try_to_unmap_flush(env: &mut impl Env, which: Batch, site: Site) {
    let strikes = strikes_at_end(env.policies());
    let batch = env.step(site, |w, at| {
        let required = w.unmap_batch(which, at.thread).is_some_and(|batch| batch.flush_required);
        if required && strikes {
            flush_begins(w);
        }
        required.then(|| w.take_unmap_batch(which == Batch::Deferred, at.thread))
    });
    let Some(batch) = batch else { return };
    let clears = env.policies().batched_pending == BatchedPending::Cleared;
    let mutant = env.policies().mutant;
    if clears && mutant == Mutant::PendingClearedEarly {
        note_flushed(env, site, &batch.covers);
    }
    if mutant != Mutant::UnmapNotFlushed {
        arch_tlbbatch_flush(env, site, batch.cpus.clone(), &batch.pages);
    }
    if clears {
        note_flushed(env, site, &batch.covers);
    }
    if strikes {
        env.step(site, |w, at| flush_ended(w, at, &batch));
    }
}

/// Notes that all unmaps up to the last one that joined this batch are flushed. Each CPU that could
/// hold one of their translations was in the mask at that time, or has flushed since.
fn note_flushed(env: &mut impl Env, site: Site, covers: &Covers) {
    env.step(site, |w, _| {
        let all = w.policies.mutant == Mutant::PendingClearedAll;
        for (mm, covered) in covers {
            let mark = &mut w.mms[mm.index()].batched;
            mark.flushed = mark.flushed.max(if all { mark.pending } else { *covered });
        }
    });
}

/// Flushes the whole address space if an unmap was batched since the last such flush. The caller
/// holds the page-table lock.
pub fn flush_tlb_batched_pending(env: &mut impl Env, mm: MmId) {
    let pending = env.step(Site::FlushTlbBatchedPending, |w, _| {
        let mark = w.mms[mm.index()].batched;
        let looks = w.policies.mutant != Mutant::PendingIgnored;
        (looks && mark.pending != mark.flushed).then_some(mark)
    });
    let Some(seen) = pending else { return };
    arch_flush_tlb_batched_pending(env, mm);
    env.step(Site::FlushTlbBatchedPending, |w, _| {
        let rule = w.policies.pending_mark;
        let mark = &mut w.mms[mm.index()].batched;
        match rule {
            PendingMark::Flag => *mark = BatchedMark::default(),
            // A compare-and-swap: if another unmap came in between, the mark stays.
            PendingMark::Counts if *mark == seen => mark.flushed = seen.pending,
            PendingMark::Counts => {}
        }
    });
}

//! Flushes that are left to a later one: MIGRC and its successor LUF. No kernel has them.
//!
//! A page that is unmapped to be moved, or to be reclaimed, has its contents as before for a while:
//! in the frame that is left. As long as nobody stores to the page, a CPU that still reads the old
//! frame reads the right thing. So the flush is put off into a batch of the whole machine, and done
//! before that would end: before a PTE grants stores, before the frame is used again. Any batched
//! flush that reaches the CPUs in between spares it.
//!
//! What qualifies is decided when PTEs are cleared ([`owes`]), and for the folio as a whole once it
//! is unmapped ([`folio_unmapped`]). A list's folios join the machine's batch together
//! ([`join_deferred`]). Which versions flush where is a policy (`defer-upgrade`, `defer-file`,
//! `defer-free`).
//!
//! Source: MIGRC v8 (20240226030613.22366-1-byungchul@sk.com), LUF v10 (20240520021734.21527-1), v11
//! (20240531092001.30428-1), v12 (20250220052027.58847-1); read, not run.

use crate::addr::Pfn;
use crate::env::Env;
use crate::kernel::unmap_batch::try_to_unmap_flush;
use crate::machine::unmap_batch::{Batch, UnmapBatch};
use crate::machine::world::{At, Ghost, Mode, World};
use crate::policy::{DeferCpus, DeferFile, DeferFlush, DeferFree, DeferIf, DeferUpgrade, Mutant, Policies};
use crate::pte::PresentPte;
use crate::site::Site;

/// What pages are unmapped for that may leave their flush to a later one.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum UnmappedFor {
    /// A move to slower memory, or to the node that uses them.
    Tiering,
    /// Any other move.
    Move,
    /// Reclaim takes them out of memory.
    Reclaim,
}

/// Whether pages that are unmapped for this may.
pub fn may_defer(policies: &Policies, what: UnmappedFor) -> bool {
    match policies.defer_flush {
        DeferFlush::Never => false,
        DeferFlush::Tiering => what == UnmappedFor::Tiering,
        DeferFlush::Migration => what != UnmappedFor::Reclaim,
        DeferFlush::Unmap => true,
    }
}

/// Where the flush of a PTE goes that was cleared: with those of its folio, which may wait, or with
/// the task's, which may not; then none of its folio's may. Part of a step.
pub fn owes<M: Mode>(w: &mut World<M>, at: At, pte: PresentPte) -> Batch {
    let waits = match w.policies.defer_if {
        _ if w.policies.mutant == Mutant::DeferWritable => true,
        DeferIf::Clean => !pte.writable() && !pte.dirty(),
        DeferIf::ReadOnly => !pte.writable(),
    };
    if waits {
        return Batch::Folio;
    }
    w.tasks[at.thread.index()].deferring.get_or_insert_default().excluded = true;
    Batch::Task
}

/// The folio is unmapped: whether what it owes may wait. If not, it is flushed with the task's batch.
pub fn folio_unmapped(env: &mut impl Env, site: Site) -> bool {
    env.step(site, |w, at| {
        let task = &mut *w.tasks[at.thread.index()];
        let Some(deferring) = &mut task.deferring else { return false };
        let folio = std::mem::take(&mut deferring.folio);
        let waits = folio.flush_required && !std::mem::take(&mut deferring.excluded);
        let joined = if waits { &mut deferring.list } else { &mut task.unmap_batch };
        joined.join(folio);
        waits
    })
}

/// What the list's folios owe joins the machine's batch. Not while a batched flush is under way: it
/// may have passed the CPUs already that it will strike off that batch when it ends. Then all is
/// flushed with the task's batch (false).
pub fn join_deferred(env: &mut impl Env, site: Site) -> bool {
    env.step(site, |w, at| {
        let task = &mut *w.tasks[at.thread.index()];
        let Some(deferring) = task.deferring.take() else { return false };
        let given_up = w.deferred.flushing > 0 && w.policies.mutant != Mutant::DeferWhileFlushing;
        if !given_up && w.policies.mutant == Mutant::DeferWrapped {
            w.deferred.lists += 1;
        }
        let joined = if given_up { &mut task.unmap_batch } else { &mut w.deferred.batch };
        joined.join(deferring.list);
        w.count_moves(|moves| moves.given_up += u64::from(given_up));
        !given_up
    })
}

/// The caller's last reference to a frame whose flush is owed; `to`: what its contents are in now.
pub fn leave_frame<M: Mode>(w: &mut World<M>, at: At, frame: Pfn, to: Option<Pfn>) {
    let (owed, mutant) = (w.deferred.batch.flush_required, w.policies.mutant);
    // Of two bits, half of the numbers are taken for past ones.
    let seems_flushed = w.deferred.lists > 2;
    match w.policies.defer_free {
        _ if !owed || mutant == Mutant::DeferReused || seems_flushed => w.put_frame(at, frame),
        DeferFree::Kept => {
            // The frame may be where an earlier move went to.
            if mutant == Mutant::DeferChain
                && let Some(first) = w.deferred.forget_source_of(frame)
            {
                w.put_frame(at, first);
            }
            w.deferred.keep(frame, to);
            w.count_moves(|moves| moves.deferred += 1);
        }
        DeferFree::Freed => {
            // It counts as free, and is handed out last.
            w.ghost.freed(frame);
            w.deferred.keep(frame, to);
            w.count_moves(|moves| moves.deferred += 1);
        }
    }
}

/// A batched flush begins.
pub fn flush_begins<M: Mode>(w: &mut World<M>) {
    w.deferred.flushing += 1;
}

/// It has ended, and reached all CPUs of the batch: those owe nothing any more.
pub fn flush_ended<M: Mode>(w: &mut World<M>, at: At, batch: &UnmapBatch) {
    w.deferred.flushing -= 1;
    let strikes = w.policies.defer_cpus == DeferCpus::Remaining;
    let free = w.deferred.flushed(&batch.cpus, strikes);
    free.into_iter().for_each(|frame| w.put_frame(at, frame));
}

/// Flushes all that is owed.
pub fn flush_owed(env: &mut impl Env, site: Site) {
    try_to_unmap_flush(env, Batch::Deferred, site);
}

/// Where what is owed may have to be flushed.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Before {
    /// A store to a page that is mapped read-only is looked at.
    WriteFault,
    /// Memory is mapped that may be stored to.
    Map,
    /// A fault has set its PTE.
    FaultEnds {
        /// It was a store's.
        write: bool,
        /// Its mapping may be stored to.
        writable: bool,
    },
    /// A page of a file is written by a call.
    FileWrite,
    /// The call has written all.
    FileWritten,
}

/// Flushes what is owed if the row's version does it there.
#[inline(always)]
pub fn flush_owed_before(env: &mut impl Env, what: Before) {
    if env.policies().defer_flush != DeferFlush::Never && flushes(env.policies(), what) {
        flush_owed(env, Site::TryToUnmapFlush);
    }
}

fn flushes(policies: &Policies, what: Before) -> bool {
    let Policies { defer_upgrade: upgrade, defer_file: file, mutant, .. } = *policies;
    match what {
        Before::WriteFault => mutant != Mutant::DeferUpgraded,
        Before::Map => upgrade == DeferUpgrade::WriteFaultAndMap,
        Before::FaultEnds { write, writable } => match upgrade {
            DeferUpgrade::WriteFault | DeferUpgrade::WriteFaultAndMap => false,
            DeferUpgrade::Writable => write,
            DeferUpgrade::AnyFault => write || writable,
        },
        Before::FileWrite => file == DeferFile::WriteBegin,
        Before::FileWritten => file == DeferFile::WriteEnd,
    }
}

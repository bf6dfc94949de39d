//! Flushes that are left to a later one: MIGRC and its successor LUF, and their relatives LATR and
//! FPR. No kernel has them.
//!
//! When a page is unmapped to be moved or reclaimed, the frame that it leaves keeps its contents
//! for a while. As long as nobody stores to the page, a CPU that still reads the old frame reads
//! the right data. So the flush is deferred into a batch of the whole machine. It is done before
//! reads could go wrong: before a PTE grants stores, and before the frame is used again. Any
//! batched flush that reaches the CPUs in between makes it unnecessary.
//!
//! A flush qualifies by its PTE when the PTE is cleared ([`owes`]), and by its folio once that is
//! unmapped ([`folio_unmapped`]). The folios of a list join the machine's batch together
//! ([`join_deferred`]). Policies say which version flushes where (`defer-upgrade`, `defer-file`,
//! `defer-free`).
//!
//! LATR and FPR defer the flush of calls that free pages (`defer-zap`, [`leave_others`]). What a
//! program has given up it should not use. So frames and addresses wait ([`leave_zapped`],
//! [`flush_owed_at`]), and nothing else does. LATR also changes how CPUs flush
//! ([`latr`](super::x86::latr)). FPR lets the address space that had a frame use it again before
//! the flush ([`recycle`]).
//!
//! Source: MIGRC v8 (20240226030613.22366-1-byungchul@sk.com), LUF v10 (20240520021734.21527-1),
//! v11 (20240531092001.30428-1), v12 (20250220052027.58847-1); LATR's code for 4.10
//! (github.com/sslab-gatech/latr); read, not run. FPR (arXiv 2409.10946): its abstract was read.

use crate::addr::{CpuId, MmId, PageRange, Pfn};
use crate::env::Env;
use crate::kernel::flush::FlushRequest;
use crate::kernel::unmap_batch::try_to_unmap_flush;
use crate::kernel::x86::latr::sweeps;
use crate::machine::cpuset::CpuSet;
use crate::machine::unmap_batch::{Batch, UnmapBatch, Waiting};
use crate::machine::world::{At, Ghost, Mode, World};
use crate::policy::{
    DeferCpus, DeferFile, DeferFlush, DeferFree, DeferIf, DeferUpgrade, DeferZap, Mutant, Policies,
    Recycle,
};
use crate::pte::PresentPte;
use crate::site::Site;

/// The purposes of an unmap that may defer its flush.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum UnmappedFor {
    /// The page moves to slower memory, or to the node that uses it.
    Tiering,
    /// The page moves for any other reason.
    Move,
    /// Reclaim takes the page out of memory.
    Reclaim,
}

/// Whether flushes may outlive the operation that owes them.
#[inline(always)]
pub fn defers(policies: &Policies) -> bool {
    policies.defer_flush != DeferFlush::Never || policies.defer_zap != DeferZap::Never
}

/// Whether an unmap for this purpose may defer its flush.
pub fn may_defer(policies: &Policies, what: UnmappedFor) -> bool {
    match policies.defer_flush {
        DeferFlush::Never => false,
        DeferFlush::Tiering => what == UnmappedFor::Tiering,
        DeferFlush::Migration => what != UnmappedFor::Reclaim,
        DeferFlush::Unmap => true,
    }
}

/// Chooses the batch for the flush of a cleared PTE: that of its folio, which may be deferred, or
/// the task's, which may not. In the second case no flush of the folio may be deferred. Part of a
/// step.
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

/// Ends the unmapping of a folio. Returns whether its flush may be deferred. If not, it is flushed
/// with the task's batch.
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

/// Moves the flushes of the list's folios into the machine's batch. If a batched flush is in
/// progress, they go into the task's batch instead, and the result is false: that flush may have
/// passed some CPUs already, and strikes them off the machine's batch when it ends.
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

/// Drops the caller's last reference to a frame whose flush is deferred. `to`: the frame that has
/// its contents now.
pub fn leave_frame<M: Mode>(w: &mut World<M>, at: At, frame: Pfn, to: Option<Pfn>) {
    let (owed, mutant) = (w.deferred.batch.flush_required, w.policies.mutant);
    let waiting = Waiting { frame, to, of: sole_user(w, frame) };
    // Of two bits, half of the numbers are taken for past ones.
    let seems_flushed = w.deferred.lists > 2;
    match w.policies.defer_free {
        _ if !owed || mutant == Mutant::DeferReused || seems_flushed => w.put_frame(at, frame),
        DeferFree::Kept => {
            // The frame may be the target of an earlier move.
            if mutant == Mutant::DeferChain
                && let Some(first) = w.deferred.forget_source_of(frame)
            {
                w.put_frame(at, first);
            }
            w.deferred.keep(waiting);
            w.count_moves(|moves| moves.deferred += 1);
        }
        DeferFree::Freed => {
            // The frame counts as free, but is handed out last.
            w.ghost.freed(frame);
            w.deferred.keep(waiting);
            w.count_moves(|moves| moves.deferred += 1);
        }
    }
}

/// The address space that alone maps the frame's object, if there is just one.
pub fn sole_user<M: Mode>(w: &World<M>, frame: Pfn) -> Option<MmId> {
    match w.policies.recycle {
        Recycle::Never => None,
        Recycle::WithinMm => match w.objects.mapped_by(w.frames.place(frame).0) {
            [mm] => Some(*mm),
            _ => None,
        },
    }
}

/// Leaves the flush of these CPUs to a later one, except that of the caller's CPU. Returns false if
/// they have to be flushed now. While a batched flush is in progress they have to, as in
/// [`join_deferred`]. Part of a step.
pub fn leave_others<M: Mode>(
    w: &mut World<M>,
    at: At,
    cpus: &CpuSet,
    request: &FlushRequest,
) -> bool {
    let given_up = w.deferred.flushing > 0 && w.policies.mutant != Mutant::DeferWhileFlushing;
    let Some(range) = request.range.filter(|_| request.may_wait && !given_up) else { return false };
    let mut others = cpus.clone();
    others.remove(at.cpu);
    let deferred = &mut *w.deferred;
    deferred.batch.put_off(false);
    deferred.batch.cpus.union(&others);
    deferred.addresses.push((request.mm, range));
    true
}

/// Drops the caller's reference to a frame that a call has unmapped, once the flush is done that
/// [`leave_others`] has deferred.
pub fn leave_zapped<M: Mode>(w: &mut World<M>, at: At, mm: MmId, frame: Pfn) {
    match w.deferred.batch.flush_required && w.policies.mutant != Mutant::DeferReused {
        true => w.deferred.keep(Waiting { frame, to: None, of: Some(mm) }),
        false => w.put_frame(at, frame),
    }
}

/// Does the deferred flushes before something is mapped where a call has unmapped pages without
/// flushing all CPUs. The caller holds `mmap_lock`, so no call unmaps more.
pub fn flush_owed_at(env: &mut impl Env, mm: MmId, range: PageRange) {
    if env.policies().defer_zap == DeferZap::Never {
        return;
    }
    let owed = env.step(Site::TryToUnmapFlush, |w, _| {
        let mut left = w.deferred.addresses.iter();
        left.any(|(of, pages)| *of == mm && pages.overlaps(range))
    });
    if owed && env.policies().mutant != Mutant::AddressReused {
        flush_owed(env, Site::TryToUnmapFlush);
    }
}

/// The frames that wait for a flush, and that an address space may have before it: those that it
/// alone had mapped.
pub fn recyclable<M: Mode>(w: &World<M>, user: Option<MmId>) -> impl Iterator<Item = Pfn> {
    let anywhere = w.policies.mutant == Mutant::RecycledAnywhere;
    let its_own = move |waiting: &Waiting| {
        let of_user = waiting.of.is_some() && (anywhere || waiting.of == user);
        of_user && w.frames.get(waiting.frame).refs == 1
    };
    w.deferred.waiting().filter(its_own).map(|waiting| waiting.frame)
}

/// Frees one of these frames without its flush. The caller hands it out in the same step.
pub fn recycle<M: Mode>(w: &mut World<M>, at: At, frame: Pfn) {
    w.deferred.forget(frame);
    w.put_frame(at, frame);
}

/// A CPU has flushed by itself: frames that waited only for that are free.
pub fn swept<M: Mode>(w: &mut World<M>, at: At, cpu: CpuId) {
    if w.deferred.batch.cpus.contains(cpu) {
        let mut flushed = CpuSet::default();
        flushed.insert(cpu);
        let free = w.deferred.flushed(&flushed, true);
        free.into_iter().for_each(|frame| w.put_frame(at, frame));
    }
}

/// Whether a batched flush strikes the CPUs that it has reached off the machine's batch when it
/// ends. Where CPUs flush by themselves, each does so itself ([`swept`]).
pub fn strikes_at_end(policies: &Policies) -> bool {
    defers(policies) && !sweeps(policies)
}

/// Notes that a batched flush begins.
pub fn flush_begins<M: Mode>(w: &mut World<M>) {
    w.deferred.flushing += 1;
}

/// Notes that a batched flush has ended. It has reached all CPUs of the batch, so those need no
/// deferred flush any more.
pub fn flush_ended<M: Mode>(w: &mut World<M>, at: At, batch: &UnmapBatch) {
    w.deferred.flushing -= 1;
    let strikes = w.policies.defer_cpus == DeferCpus::Remaining;
    let free = w.deferred.flushed(&batch.cpus, strikes);
    free.into_iter().for_each(|frame| w.put_frame(at, frame));
}

/// Does all deferred flushes.
pub fn flush_owed(env: &mut impl Env, site: Site) {
    try_to_unmap_flush(env, Batch::Deferred, site);
}

/// The points where a version may do the deferred flushes.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Before {
    /// A write fault on a page that is mapped read-only.
    WriteFault,
    /// A mapping of writable memory is created.
    Map,
    /// A fault has set its PTE.
    FaultEnds {
        /// Whether the fault was a store's.
        write: bool,
        /// Whether its mapping permits stores.
        writable: bool,
    },
    /// A system call writes a page of a file.
    FileWrite,
    /// The system call has written all pages.
    FileWritten,
}

/// Does the deferred flushes if the row's version does them at this point.
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

//! Was a flush needed? When it is issued: whether any CPU that it covers may hold a stale translation in
//! its range.

use crate::addr::{CpuId, MmId, PageRange};
use crate::arch::Asids;
use crate::kernel::flush::{Change, FlushRequest};
use crate::kernels::SkipNeeded;
use crate::machine::tlb::{FlushScope, Tlbs};
use crate::machine::world::{At, Mode, World};
use crate::policy::Skip;
use crate::site::Site;
use crate::verdict::{Judgement, Reason, Verdict};

/// Whether the flush is left out for its verdict's sake: so verdicts are tested.
#[inline(always)]
pub(super) fn left_out<M: Mode>(w: &mut World<M>, at: At, verdict: Verdict) -> bool {
    let needless = verdict.judgement == Judgement::Needless;
    let skip = needless && w.policies.skip == Skip::Needless;
    skip || w.config.skip_needed.is_some_and(|skip| left_out_by_number(w, at, needless, skip))
}

#[cold]
fn left_out_by_number<M: Mode>(w: &mut World<M>, at: At, needless: bool, skip: SkipNeeded) -> bool {
    let counts = !needless && at.thread == skip.thread;
    if counts {
        w.tasks[at.thread.index()].needed_flushes += 1;
    }
    let so_far = w.tasks.get(skip.thread.index()).map_or(0, |task| task.needed_flushes);
    counts && so_far == skip.nth || skip.and_later && so_far >= skip.nth
}

/// Whether any of these CPUs, which the flush covers, may hold a stale translation in its range (`None`: anywhere).
pub(super) fn judge<M: Mode>(
    w: &World<M>,
    request: &FlushRequest,
    range: Option<PageRange>,
    covers: impl Iterator<Item = CpuId>,
) -> Verdict {
    let needed = |reason| Verdict {
        caused_by: request.caused_by,
        ..Verdict::new(Judgement::Needed, reason)
    };
    let mut covers = covers.filter(|cpu| may_walk(w, *cpu, request.mm)).peekable();
    if request.tables_gone && covers.peek().is_some() {
        return needed(Reason::FreedTables);
    }
    if request.faulted && !w.arch.fault_drops {
        return needed(Reason::KeptEntry);
    }
    let (id, mm) = (request.mm, &w.mms[request.mm.index()]);
    let scope = scope(range, request.stride_shift);
    let stale = |cpu: CpuId| {
        let asid = w.cpus[cpu.index()].slot_of(id);
        asid.is_some_and(|asid| w.tlbs.may_be_stale(cpu, asid, id, mm, scope))
    };
    if covers.any(stale) {
        return needed(Reason::StaleTranslations);
    }
    Verdict::new(Judgement::Needless, needless_reason(w, request))
}

/// Whether a CPU may use the address space: it has it loaded, or comes back to it without a flush.
fn may_walk<M: Mode>(w: &World<M>, cpu: CpuId, mm: MmId) -> bool {
    let (c, space) = (&w.cpus[cpu.index()], &w.mms[mm.index()]);
    let returns = |asid: usize| match w.arch.asids {
        Asids::PerCpu(_) => c.slots[asid].tlb_gen == space.tlb_gen,
        Asids::Global => true,
    };
    c.loaded == mm || c.slot_of(mm).is_some_and(returns)
}

/// What a CPU flushes of these pages, one address for each stride.
#[inline]
pub(super) fn scope(range: Option<PageRange>, stride_shift: u32) -> FlushScope {
    range.map_or(FlushScope::All, |range| FlushScope::Pages(range, stride_shift as u8))
}

fn needless_reason<M: Mode>(w: &World<M>, request: &FlushRequest) -> Reason {
    let unmapped = |range: PageRange| w.pte(request.mm, range.start).present().is_none();
    match (request.change, request.range) {
        (_, None) if request.site == Site::FlushTlbBatchedPending => Reason::PendingAlreadyFlushed,
        (Change::Granted, _) => Reason::OnlyGranted,
        (_, Some(range)) if unmapped(range) => Reason::UnmappedAndFlushed,
        (Change::Aged, Some(_)) => Reason::OnlyAccessedBit,
        (Change::Aged, None) | (Change::Revoked, _) => Reason::NothingStale,
    }
}

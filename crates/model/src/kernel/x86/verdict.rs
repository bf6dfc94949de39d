//! Was a flush needed? When it is issued: whether any CPU that it covers may hold a stale translation in
//! its range.

use super::flush::{Info, scope};
use crate::addr::{CpuId, MmId, PageRange};
use crate::kernel::flush::{Change, FlushRequest};
use crate::kernels::SkipNeeded;
use crate::machine::cpu::{AsidSlot, Cpu};
use crate::machine::cpuset::CpuSet;
use crate::machine::mm::Mm;
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

/// Whether any CPU that the flush covers may hold a stale translation in its range.
pub(super) fn judge<M: Mode>(
    w: &World<M>,
    at: At,
    request: &FlushRequest,
    range: Option<PageRange>,
) -> Verdict {
    let needed = |reason| Verdict {
        caused_by: request.caused_by,
        ..Verdict::new(Judgement::Needed, reason)
    };
    if request.tables_gone {
        return needed(Reason::FreedTables);
    }
    let (id, mm) = (request.mm, &w.mms[request.mm.index()]);
    let scope = scope(range, request.stride_shift);
    let stale = |cpu: CpuId| {
        let asid = w.cpus[cpu.index()].slot_of(id);
        asid.is_some_and(|asid| w.tlbs.may_be_stale(cpu, asid, id, mm, scope))
    };
    if stale(at.cpu)
        || mm.cpumask.iter().any(|cpu| cpu != at.cpu && stale(cpu))
        || mm.unloads > 0 && away(w, id).any(stale)
    {
        return needed(Reason::StaleTranslations);
    }
    Verdict::new(Judgement::Needless, needless_reason(w, request))
}

/// CPUs that left the address space, keep a slot for it and would come back without a flush: they
/// are covered by the generation that the flush raises.
fn away<M: Mode>(w: &World<M>, id: MmId) -> impl Iterator<Item = CpuId> + '_ {
    let current = AsidSlot { mm: Some(id), tlb_gen: w.mms[id.index()].tlb_gen };
    let away = move |cpu: &Cpu| cpu.loaded != id && cpu.slots.contains(&current);
    let cpus = w.cpus.iter().enumerate();
    cpus.filter(move |(_, cpu)| away(cpu)).map(|(index, _)| CpuId(index as u16))
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

pub(super) fn judge_batch<M: Mode>(w: &World<M>, cpus: &CpuSet) -> Verdict {
    let stale = |cpu: CpuId| {
        let c = &w.cpus[cpu.index()];
        let mm = &w.mms[c.loaded.index()];
        w.tlbs.may_be_stale(cpu, c.asid, c.loaded, mm, FlushScope::All)
    };
    if cpus.iter().any(stale) {
        Verdict::new(Judgement::Needed, Reason::StaleTranslations)
    } else {
        Verdict::new(Judgement::Needless, Reason::NothingStale)
    }
}

/// The same for one interrupted CPU.
#[inline]
pub(super) fn judge_interrupt(
    tlbs: &impl Tlbs,
    (cpu, asid): (CpuId, usize),
    (id, mm): (MmId, &Mm),
    info: &Info,
) -> Verdict {
    if info.verdict.reason == Reason::FreedTables {
        return Verdict::new(Judgement::Needed, Reason::FreedTables);
    }
    let scope = scope(info.range, info.stride_shift);
    if tlbs.may_be_stale(cpu, asid, id, mm, scope) {
        Verdict::new(Judgement::Needed, Reason::StaleTranslations)
    } else {
        Verdict::new(Judgement::Needless, Reason::NothingStale)
    }
}

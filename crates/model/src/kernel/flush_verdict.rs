//! Decides whether a flush was needed. The question is asked when the flush is issued: may any CPU
//! that it covers hold a stale translation in its range?

use crate::addr::{CpuId, MmId, PageRange};
use crate::arch::Asids;
use crate::kernel::flush::{Change, FlushRequest};
use crate::kernel::x86::broadcast::wanted_gen;
use crate::kernels::SkipNeeded;
use crate::machine::tlb::{FlushScope, Tlbs};
use crate::machine::world::{At, Mode, World};
use crate::policy::Skip;
use crate::site::Site;
use crate::verdict::{Judgement, Reason, Verdict};

/// Whether the flush is left out because of its verdict. Tests use this to check verdicts.
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

/// Judges a flush: may any CPU in `covers` hold a stale translation in its range? `range` `None`:
/// anywhere.
pub(super) fn judge<M: Mode>(
    w: &World<M>,
    request: &FlushRequest,
    range: Option<PageRange>,
    covers: impl Iterator<Item = CpuId> + Clone,
) -> Verdict {
    let needed = |reason| Verdict {
        caused_by: request.caused_by,
        ..Verdict::new(Judgement::Needed, reason)
    };
    let mut covers = covers.filter(|cpu| may_walk(w, *cpu, request.mm));
    if request.tables_gone && covers.clone().next().is_some() {
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
    let all = covers.clone();
    if covers.any(stale) {
        return needed(match is_too_wide(w, request, range, all) {
            true => Reason::OnlyHugeStale,
            false => Reason::StaleTranslations,
        });
    }
    Verdict::new(Judgement::Needless, needless_reason(w, request))
}

/// The flush with one invalidation for each huge page in its range: the range and the stride.
/// `None` if the flush is not wider than that, or if the invalidations would be too many.
fn by_huge_pages<M: Mode>(
    w: &World<M>,
    request: &FlushRequest,
    flushed: Option<PageRange>,
) -> Option<(PageRange, u32)> {
    let shift = u32::from(w.arch.order(2));
    let range = request.range.filter(|_| flushed.is_none() && w.config.huge_pages)?;
    let few = range.pages() >> shift <= w.arch.flush_ceiling;
    (few && request.stride_shift < shift).then_some((range, shift))
}

/// Whether the flush takes everything although one invalidation for each huge page in its range
/// would do: no CPU in `covers` may hold a stale translation that those would leave.
fn is_too_wide<M: Mode>(
    w: &World<M>,
    request: &FlushRequest,
    flushed: Option<PageRange>,
    mut covers: impl Iterator<Item = CpuId>,
) -> bool {
    let Some((range, shift)) = by_huge_pages(w, request, flushed) else { return false };
    let (id, scope) = (request.mm, scope(Some(range), shift));
    let mm = &w.mms[id.index()];
    !covers.any(|cpu| {
        let asid = w.cpus[cpu.index()].slot_of(id);
        asid.is_some_and(|asid| w.tlbs.may_leave_stale(cpu, asid, id, mm, scope))
    })
}

/// The pages to flush and the stride. Where needless flushes are left out, a flush that is too wide
/// is made as narrow as its verdict says. Tests use this to check verdicts.
#[inline]
pub(super) fn width<M: Mode>(
    w: &World<M>,
    request: &FlushRequest,
    flushed: Option<PageRange>,
    verdict: Verdict,
) -> (Option<PageRange>, u32) {
    let narrow = verdict.is_too_wide() && w.policies.skip == Skip::Needless;
    match by_huge_pages(w, request, flushed).filter(|_| narrow) {
        Some((range, shift)) => (Some(range), shift),
        None => (flushed, request.stride_shift),
    }
}

/// Whether a CPU may use the address space: it has it loaded, or would come back to it without a
/// flush.
fn may_walk<M: Mode>(w: &World<M>, cpu: CpuId, mm: MmId) -> bool {
    let c = &w.cpus[cpu.index()];
    let returns = |asid: usize| match w.arch.asids {
        Asids::PerCpu(_) => c.slots[asid].tlb_gen >= wanted_gen(w, mm),
        Asids::Global => true,
    };
    c.loaded == mm || c.slot_of(mm).is_some_and(returns)
}

/// The scope of a CPU's flush of these pages: one address for each stride; `None`: everything.
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

//! Verdicts on x86: which CPUs a flush covers.

use super::broadcast::{flushes_batches, holders, is_global};
use super::flush::Info;
use crate::addr::{CpuId, MmId, PageRange};
use crate::kernel::flush::FlushRequest;
use crate::kernel::flush_verdict::{self, scope};
use crate::machine::cpu::{AsidSlot, Cpu};
use crate::machine::cpuset::CpuSet;
use crate::machine::mm::Mm;
use crate::machine::tlb::{FlushScope, Tlbs};
use crate::machine::world::{At, Mode, World};
use crate::verdict::{Judgement, Reason, Verdict};

/// Judges a flush: may any CPU that it covers hold a stale translation in its range? It covers this
/// CPU, those of the mask, and those that are away.
pub(super) fn judge<M: Mode>(
    w: &World<M>,
    at: At,
    request: &FlushRequest,
    range: Option<PageRange>,
) -> Verdict {
    let (id, mm) = (request.mm, &w.mms[request.mm.index()]);
    if is_global(w, id) {
        return flush_verdict::judge(w, request, range, holders(w, id));
    }
    let masked = mm.cpumask.iter().filter(|cpu| *cpu != at.cpu);
    let away = (mm.unloads > 0).then(|| away(w, id)).into_iter().flatten();
    let covers = std::iter::once(at.cpu).chain(masked).chain(away);
    flush_verdict::judge(w, request, range, covers)
}

/// The CPUs that left the address space, keep a slot for it and would come back without a flush.
/// The generation that the flush raises covers them.
fn away<M: Mode>(w: &World<M>, id: MmId) -> impl Iterator<Item = CpuId> + Clone + '_ {
    let current = AsidSlot { mm: Some(id), tlb_gen: w.mms[id.index()].tlb_gen };
    let away = move |cpu: &Cpu| cpu.loaded != id && cpu.slots.contains(&current);
    let cpus = w.cpus.iter().enumerate();
    cpus.filter(move |(_, cpu)| away(cpu)).map(|(index, _)| CpuId(index as u16))
}

pub(super) fn judge_batch<M: Mode>(w: &World<M>, cpus: &CpuSet) -> Verdict {
    let stale = |cpu: CpuId| {
        let c = &w.cpus[cpu.index()];
        let mm = &w.mms[c.loaded.index()];
        w.tlbs.may_be_stale(cpu, c.asid, c.loaded, mm, FlushScope::All)
    };
    if cpus.iter().any(stale) || flushes_batches(&w.policies) && any_global_is_stale(w) {
        Verdict::new(Judgement::Needed, Reason::StaleTranslations)
    } else {
        Verdict::new(Judgement::Needless, Reason::NothingStale)
    }
}

/// Whether a CPU may hold a stale translation of an address space that has one identifier on all
/// CPUs. A CPU that comes back to such an address space flushes nothing.
fn any_global_is_stale<M: Mode>(w: &World<M>) -> bool {
    let mut spaces =
        (0..w.mms.len()).map(|index| MmId(index as u16)).filter(|mm| is_global(w, *mm));
    spaces.any(|id| {
        let mm = &w.mms[id.index()];
        let stale = |cpu: CpuId| {
            let asid = w.cpus[cpu.index()].slot_of(id);
            asid.is_some_and(|asid| w.tlbs.may_be_stale(cpu, asid, id, mm, FlushScope::All))
        };
        holders(w, id).any(stale)
    })
}

/// Judges the interrupt to one CPU.
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

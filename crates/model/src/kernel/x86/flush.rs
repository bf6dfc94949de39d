//! TLB flushes on x86: `flush_tlb_mm_range`, `arch_tlbbatch_flush`, and the function that an
//! interrupted CPU runs.
//!
//! Every flush raises the address space's generation. A CPU whose slot is at that generation is
//! clean. A send event does not mean that any CPU was interrupted: the kernel decides that
//! afterwards.
//!
//! Source: arch/x86/mm/tlb.c of 5.10, 6.1, 6.12 and 7.3.

use super::broadcast;
use super::latr::{self, sweeps};
use super::switch::switch_mm;
use super::verdict::{judge, judge_batch, judge_interrupt};
use crate::addr::{CpuId, MmId, PageRange};
use crate::env::{Env, Reach};
use crate::event::{EventKind, FlushReason};
use crate::kernel::deferred::leave_others;
use crate::kernel::flush::FlushRequest;
use crate::kernel::flush_verdict::{left_out, scope, width};
use crate::machine::cpu::{Cpu, INIT_MM};
use crate::machine::cpuset::CpuSet;
use crate::machine::tlb::Tlbs;
use crate::machine::unmap_batch::Batch;
use crate::machine::world::{At, Ghost, Log, Mode, World};
use crate::policy::{CpumaskClear, FlushOrder, GenSkip, Interrupt, Mutant, SelfReceive};
use crate::site::Site;
use crate::verdict::Verdict;

/// `struct flush_tlb_info`.
#[derive(Copy, Clone, Debug, Hash)]
pub(super) struct Info {
    pub(super) site: Site,
    /// `None` for the batched flush.
    mm: Option<MmId>,
    pub(super) range: Option<PageRange>,
    pub(super) stride_shift: u32,
    freed_tables: bool,
    /// `None`: the flush has no generation of its own.
    new_gen: Option<u64>,
    initiator: CpuId,
    pub(super) verdict: Verdict,
}

/// Flushes part or all of an address space on every CPU that may hold it.
pub fn flush_tlb_mm_range(env: &mut impl Env, request: FlushRequest) {
    let (order, mm) = (env.policies().flush_order, request.mm);
    let ceiling = env.arch().flush_ceiling;
    let few = |range: &PageRange| range.pages() >> request.stride_shift <= ceiling;
    let range = request.range.filter(few);
    // 1. Take a new generation. A flush of too many pages becomes a full one.
    let begun = env.step(Site::FlushTlbMmRange, |w, at| {
        let verdict = judge(w, at, &request, range);
        if left_out(w, at, verdict) {
            return None;
        }
        let width = width(w, &request, range, verdict);
        let mm_gen = &mut w.mms[mm.index()].tlb_gen;
        *mm_gen += 1;
        Some((verdict, *mm_gen, width))
    });
    let Some((verdict, new_gen, (range, stride_shift))) = begun else { return };
    let info = Info {
        site: request.site,
        mm: Some(mm),
        range,
        stride_shift,
        freed_tables: request.freed_tables,
        new_gen: Some(new_gen),
        initiator: env.context().cpu,
        verdict,
    };
    // 2. Flush by an instruction, or flush this CPU and, unless they may wait, the others, in the
    //    kernel's order.
    if broadcast::reaches(env, mm) {
        broadcast::broadcast_tlb_flush(env, &info, mm);
        return;
    }
    let (others, loaded) = env.step(Site::FlushTlbMmRange, |w, at| {
        let mask = &w.mms[mm.index()].cpumask;
        let others = mask.any_but(at.cpu).then(|| mask.clone());
        let others = others.filter(|mask| !leave_others(w, at, mask, &request));
        (others, w.has_loaded(at.cpu, mm))
    });
    let asked = others.is_some();
    run(env, &info, order, others, loaded);
    if asked {
        broadcast::consider_global_asid(env, mm);
    }
}

/// Defers the flush of a PTE that was cleared. CPUs that are away flush when they come back. The
/// batch remembers the CPUs that are in the mask now.
pub fn arch_tlbbatch_add_pending(env: &mut impl Env, batch: Batch, mm: MmId, writable: bool) {
    env.step(Site::ArchTlbbatchAddPending, |w, _| w.mms[mm.index()].tlb_gen += 1);
    env.step(Site::ArchTlbbatchAddPending, |w, at| {
        let cpus = w.mms[mm.index()].cpumask.clone();
        let batch = w.unmap_batch_mut(batch, at.thread);
        batch.cpus.union(&cpus);
        batch.put_off(writable);
    });
}

/// Does the flush that a batched unmap deferred, on the CPUs that the batch collected.
pub fn arch_tlbbatch_flush(env: &mut impl Env, site: Site, cpus: CpuSet) {
    if sweeps(env.policies()) {
        return latr::wait_for_sweeps(env, cpus);
    }
    let order = env.policies().flush_order;
    let initiator = env.context().cpu;
    let verdict = env.step(Site::ArchTlbbatchFlush, |w, at| {
        let verdict = judge_batch(w, &cpus);
        (!left_out(w, at, verdict)).then_some(verdict)
    });
    let Some(verdict) = verdict else { return };
    let info = Info {
        site,
        mm: None,
        range: None,
        stride_shift: 0,
        freed_tables: false,
        new_gen: None,
        initiator,
        verdict,
    };
    if broadcast::flushes_batches(env.policies()) {
        broadcast::flush_all_nonglobals(env, &info);
        return;
    }
    let here = cpus.contains(initiator);
    let others = cpus.any_but(initiator).then_some(cpus);
    run(env, &info, order, others, here);
}

#[inline(always)]
fn run(env: &mut impl Env, info: &Info, order: FlushOrder, others: Option<CpuSet>, local: bool) {
    match (order, others) {
        (FlushOrder::LocalFirst, others) => {
            if local {
                flush_here(env, info, others.is_some());
            }
            if let Some(mask) = others {
                flush_tlb_multi(env, info, mask, false);
            }
        }
        (FlushOrder::Concurrent, Some(mask)) => flush_tlb_multi(env, info, mask, local),
        (FlushOrder::Concurrent, None) if local => flush_here(env, info, false),
        (FlushOrder::Concurrent, None) => {}
    }
}

fn flush_here(env: &mut impl Env, info: &Info, sent: bool) {
    env.step(Site::FlushTlbFunc, |w, at| flush_tlb_func(w, at, at.cpu, info, sent));
}

/// Sends the flush to the CPUs of `mask` and waits for them.
fn flush_tlb_multi(env: &mut impl Env, info: &Info, mask: CpuSet, local: bool) {
    // 1. Emit the event, before it is clear which CPUs will be interrupted.
    let (targets, self_receives) = env.step(Site::FlushTlbMulti, |w, at| {
        let mut targets = mask;
        targets.retain(|cpu| wants_interrupt(w, cpu, info));
        let self_receives = w.policies.self_receive == SelfReceive::Yes
            && !info.freed_tables
            && targets.contains(at.cpu);
        targets.remove(at.cpu);
        let asked = Some(targets.len() as u16);
        let pages = info.range.map(|range| range.pages() as u32);
        let kind = EventKind::Flush { reason: FlushReason::RemoteSend, pages, asked };
        w.emit_judged(at.site(info.site), kind, info.verdict);
        (targets, self_receives)
    });
    // 2. Flush on each CPU in its own time, including the initiator.
    if local {
        flush_here(env, info, true);
    }
    env.each(Reach::Interrupt, Site::FlushTlbFunc, targets, |w, at, cpu| {
        flush_tlb_func(w, at, cpu, info, true);
    });
    if self_receives {
        env.step(Site::FlushTlbFunc, |w, at| {
            let kind = EventKind::Flush {
                reason: FlushReason::RemoteShootdown,
                pages: Some(0),
                asked: None,
            };
            w.emit(at, kind);
        });
    }
}

/// Whether a CPU of the mask is interrupted (`tlb_is_not_lazy`, `should_flush_tlb`).
fn wants_interrupt<M: Mode>(w: &World<M>, cpu: CpuId, info: &Info) -> bool {
    let c = &w.cpus[cpu.index()];
    if info.freed_tables && w.policies.mutant != Mutant::LazySpared {
        return true;
    }
    match w.policies.interrupt {
        Interrupt::NotLazy => !c.lazy,
        Interrupt::NotLazyAndLoaded => !c.lazy && info.mm.is_none_or(|mm| c.loaded == mm),
    }
}

/// The function that a CPU runs when it is asked to flush (`flush_tlb_func`). Part of a step.
fn flush_tlb_func<M: Mode>(w: &mut World<M>, at: At, cpu: CpuId, info: &Info, sent: bool) {
    let local = cpu == info.initiator;
    let c = &w.cpus[cpu.index()];
    let local_gen = c.local_gen();
    let Cpu { loaded, lazy, asid, running, .. } = *c;
    let site = if local { info.site } else { Site::FlushTlbFunc };
    let at = At { cpu, running, site, ..at };
    if let Some(mm) = info.mm.filter(|mm| *mm != loaded) {
        if w.policies.cpumask == CpumaskClear::AtNextInterrupt {
            w.mms[mm.index()].cpumask.remove(cpu);
            emit_answer(w, at, FlushReason::RemoteWrongCpu, Some(0), None);
        }
        return;
    }
    if loaded == INIT_MM {
        return;
    }
    if lazy {
        switch_mm(w, at, cpu, INIT_MM);
        return;
    }
    let reason = match (local, info.mm) {
        (false, _) => FlushReason::RemoteShootdown,
        (true, None) => FlushReason::LocalBatch,
        (true, Some(_)) => FlushReason::LocalMm,
    };
    let reached = info.new_gen.is_some_and(|new| new <= local_gen);
    if reached && w.policies.gen_skip == GenSkip::Silent {
        return;
    }
    let mm = &w.mms[loaded.index()];
    // The initiator's part carries the flush's verdict only if nothing was sent.
    let verdict = if local {
        (!sent).then_some(info.verdict)
    } else {
        Some(judge_interrupt(&w.tlbs, (cpu, asid), (loaded, mm), info))
    };
    let pages = if mm.tlb_gen == local_gen {
        Some(0)
    } else {
        let range = missed(w.policies.mutant, (local_gen, mm.tlb_gen), info);
        w.tlbs.flush(cpu, asid, scope(range, info.stride_shift), mm);
        w.ghost.structures_flushed(cpu, loaded);
        w.cpus[cpu.index()].slots[asid].tlb_gen = mm.tlb_gen;
        range.map(|range| (range.pages() >> info.stride_shift) as u32)
    };
    emit_answer(w, at, reason, pages, verdict);
}

/// The flush that brings a CPU's slot from generation `local_gen` to `mm_gen`: only the requested
/// pages, if this flush is all that the CPU missed, else everything (`None`).
#[inline]
fn missed(mutant: Mutant, (local_gen, mm_gen): (u64, u64), info: &Info) -> Option<PageRange> {
    let in_turn = info.new_gen == Some(local_gen + 1) && info.new_gen == Some(mm_gen)
        || mutant == Mutant::GenIgnored;
    info.range.filter(|_| in_turn)
}

#[inline]
fn emit_answer<M: Mode>(
    w: &mut World<M>,
    at: At,
    reason: FlushReason,
    pages: Option<u32>,
    verdict: Option<Verdict>,
) {
    w.log.emit(at, EventKind::Flush { reason, pages, asked: None }, verdict);
}

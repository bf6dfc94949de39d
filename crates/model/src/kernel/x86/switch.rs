//! Address space switch of an x86 CPU: `switch_mm_irqs_off`, lazy TLB mode.
//!
//! Invariant: a CPU that has an address space loaded is in its `cpumask`, and the generation in its
//! slot is that of the last flush that its TLB has seen.

use super::broadcast::wanted_gen;
use super::latr::{sweep, sweeps};
use crate::addr::{CpuId, MmId};
use crate::event::{EventKind, FlushReason};
use crate::machine::cpu::{AsidSlot, INIT_MM};
use crate::machine::tlb::Tlbs;
use crate::machine::world::{At, Ghost, Mode, World};
use crate::policy::{CpumaskClear, Mutant};
use crate::site::Site;

/// Loads `next` on `cpu`. Part of a step: it runs with interrupts off.
///
/// Source: arch/x86/mm/tlb.c:switch_mm_irqs_off, choose_new_asid (5.10, 6.1, 6.12, 7.3).
pub fn switch_mm<M: Mode>(w: &mut World<M>, at: At, cpu: CpuId, next: MmId) {
    let at = At { cpu, ..at.site(Site::SwitchMm) };
    if sweeps(&w.policies) {
        sweep(w, at, cpu);
    }
    let was_lazy = std::mem::replace(&mut w.cpus[cpu.index()].lazy, false);
    let prev = w.cpus[cpu.index()].loaded;
    let next_gen = w.mms[next.index()].tlb_gen;

    // 1. It is loaded already: make up at most for a flush that was skipped while lazy.
    if prev == next {
        let asid = w.cpus[cpu.index()].asid;
        let looks = w.policies.mutant != Mutant::LazyStays;
        if looks && was_lazy && w.cpus[cpu.index()].local_gen() < wanted_gen(w, next) {
            load_flushed(w, at, asid, next, next_gen);
        }
        return;
    }

    // 2. It is another one: update the masks.
    if prev != INIT_MM && w.policies.cpumask == CpumaskClear::AtSwitch {
        w.mms[prev.index()].cpumask.remove(cpu);
    }
    if next != INIT_MM {
        w.mms[next.index()].cpumask.insert(cpu);
    }
    w.mms[prev.index()].unloads += 1;
    let (old_asid, unloads) = (w.cpus[cpu.index()].asid, w.mms[prev.index()].unloads);
    w.tlbs.unload(cpu, old_asid, unloads);

    // 3. Use the old slot if the CPU still has one, else the next one in turn.
    let looks = w.policies.mutant != Mutant::ReturnUnflushed;
    let wanted = wanted_gen(w, next);
    let c = &mut w.cpus[cpu.index()];
    match c.slot_of(next) {
        Some(asid) if !looks || c.slots[asid].tlb_gen >= wanted => {
            (c.asid, c.loaded) = (asid, next);
            w.tlbs.load(cpu, asid, next, &w.mms[next.index()]);
            emit_switch(w, at, Some(0));
        }
        Some(asid) => load_flushed(w, at, asid, next, next_gen),
        None => {
            let asid = if c.next_asid < c.slots.len() { c.next_asid } else { 0 };
            c.next_asid = asid + 1;
            load_flushed(w, at, asid, next, next_gen);
        }
    }
}

fn load_flushed<M: Mode>(w: &mut World<M>, at: At, asid: usize, next: MmId, tlb_gen: u64) {
    let cpu = &mut w.cpus[at.cpu.index()];
    cpu.slots[asid] = AsidSlot { mm: Some(next), tlb_gen };
    (cpu.asid, cpu.loaded) = (asid, next);
    match w.policies.mutant {
        Mutant::AsidUnflushed => w.tlbs.load(at.cpu, asid, next, &w.mms[next.index()]),
        _ => w.tlbs.assign(at.cpu, asid, next, &w.mms[next.index()]),
    }
    w.ghost.structures_flushed(at.cpu, next);
    emit_switch(w, at, None);
}

fn emit_switch<M: Mode>(w: &mut World<M>, at: At, pages: Option<u32>) {
    w.emit(at, EventKind::Flush { reason: FlushReason::TaskSwitch, pages, asked: None });
}

/// Makes `cpu` idle (or run a kernel thread), with its address space still loaded.
///
/// Source: arch/x86/mm/tlb.c:enter_lazy_tlb.
pub fn enter_lazy<M: Mode>(w: &mut World<M>, cpu: CpuId) {
    let cpu = &mut w.cpus[cpu.index()];
    cpu.running = None;
    if cpu.loaded != INIT_MM {
        cpu.lazy = true;
    }
}

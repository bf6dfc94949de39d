//! A CPU of arm64 changes address space: nothing is flushed, because each address space has an identifier of its own.

use crate::addr::{CpuId, MmId};
use crate::machine::cpu::{AsidSlot, INIT_MM};
use crate::machine::tlb::Tlbs;
use crate::machine::world::{At, Mode, World};

/// Loads `next` on `cpu`. Part of a step: it runs with interrupts off.
///
/// Source: arch/arm64/include/asm/mmu_context.h:__switch_mm, arch/arm64/mm/context.c:check_and_switch_context (5.10 to
/// 7.3).
pub fn switch_mm<M: Mode>(w: &mut World<M>, _: At, cpu: CpuId, next: MmId) {
    let c = &mut w.cpus[cpu.index()];
    c.lazy = false;
    let (prev, left, asid) = (c.loaded, c.asid, next.index());
    if prev == next {
        return;
    }
    let known = c.slots[asid].mm == Some(next);
    c.slots[asid] = AsidSlot { mm: Some(next), tlb_gen: 0 };
    (c.asid, c.loaded) = (asid, next);
    w.mms[prev.index()].unloads += 1;
    w.tlbs.unload(cpu, left, w.mms[prev.index()].unloads);
    match known {
        true => w.tlbs.load(cpu, asid, next, &w.mms[next.index()]),
        // Whoever had the identifier before has ended, and it comes back only after all were flushed.
        false => w.tlbs.assign(cpu, asid, next, &w.mms[next.index()]),
    }
}

/// `cpu` goes idle (or to a kernel thread) and keeps its address space loaded.
///
/// Source: arch/arm64/include/asm/mmu_context.h:enter_lazy_tlb (5.10 to 7.3).
pub fn enter_lazy<M: Mode>(w: &mut World<M>, cpu: CpuId) {
    let cpu = &mut w.cpus[cpu.index()];
    cpu.running = None;
    cpu.lazy = cpu.loaded != INIT_MM;
}

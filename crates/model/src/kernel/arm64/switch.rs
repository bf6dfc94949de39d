//! Address space switch of an arm64 CPU. It flushes nothing, because each address space has an
//! identifier of its own.

use crate::addr::{CpuId, MmId};
use crate::machine::cpu::{AsidSlot, INIT_MM};
use crate::machine::tlb::Tlbs;
use crate::machine::world::{At, Mode, World};

/// Loads `next` on `cpu`. Part of a step: it runs with interrupts off.
///
/// Source: arch/arm64/include/asm/mmu_context.h:__switch_mm,
/// arch/arm64/mm/context.c:check_and_switch_context (5.10 to 7.3).
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
        // The previous owner of the identifier has ended. An identifier is reused only after all
        // CPUs were flushed.
        false => w.tlbs.assign(cpu, asid, next, &w.mms[next.index()]),
    }
}

/// Makes `cpu` idle (or run a kernel thread), with its address space still loaded.
///
/// Source: arch/arm64/include/asm/mmu_context.h:enter_lazy_tlb (5.10 to 7.3).
pub fn enter_lazy<M: Mode>(w: &mut World<M>, cpu: CpuId) {
    let cpu = &mut w.cpus[cpu.index()];
    cpu.running = None;
    cpu.lazy = cpu.loaded != INIT_MM;
}

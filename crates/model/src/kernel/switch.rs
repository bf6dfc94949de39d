//! Changes the address space of a CPU, with the architecture's code.

use crate::addr::{CpuId, MmId};
use crate::arch::TlbCode;
use crate::env::Env;
use crate::kernel::{arm64, x86};
use crate::machine::cpu::INIT_MM;
use crate::machine::world::{At, Mode, World};
use crate::site::Site;

/// Loads `next` on `cpu`. Part of a step: it runs with interrupts off.
pub fn switch_mm<M: Mode>(w: &mut World<M>, at: At, cpu: CpuId, next: MmId) {
    match w.arch.tlb_code {
        TlbCode::X86 => x86::switch::switch_mm(w, at, cpu, next),
        TlbCode::Arm64(_) => arm64::switch::switch_mm(w, at, cpu, next),
    }
}

/// Makes `cpu` idle (or run a kernel thread), with its address space still loaded.
pub fn enter_lazy<M: Mode>(w: &mut World<M>, cpu: CpuId) {
    match w.arch.tlb_code {
        TlbCode::X86 => x86::switch::enter_lazy(w, cpu),
        TlbCode::Arm64(_) => arm64::switch::enter_lazy(w, cpu),
    }
}

/// Runs `count` other processes on this CPU, one after the other, before the caller continues.
pub fn run_others(env: &mut impl Env, count: u64) {
    let own = env.context().mm.unwrap_or(INIT_MM);
    for other in 0..count {
        env.step(Site::SwitchMm, |w, at| switch_mm(w, at, at.cpu, w.space_of_other(other as u16)));
    }
    env.step(Site::SwitchMm, |w, at| switch_mm(w, at, at.cpu, own));
}

//! The end of a thread, of an address space and of a process. Also `exec`, by which a process
//! leaves its address space for another program.

use crate::addr::{MmId, PageRange};
use crate::env::{Env, Lock};
use crate::kernel::flush::flush_tlb_exit;
use crate::kernel::gather::Gather;
use crate::kernel::lru::lru_add_drain;
use crate::kernel::map::{detach, unmap_region};
use crate::kernel::mlock::munlock_vmas;
use crate::kernel::switch::{enter_lazy, switch_mm};
use crate::kernel::vma_lock::vmas_start_write;
use crate::machine::cpu::INIT_MM;
use crate::machine::mm::Life;
use crate::site::Site;
use crate::wait::Wait;

/// Ends a thread. Its CPU goes idle with the address space still loaded.
pub fn exit_thread(env: &mut impl Env) {
    env.step(Site::EnterLazyTlb, |w, at| enter_lazy(w, at.cpu));
}

/// Ends the last thread and unmaps everything. The CPU is lazy already, so the gather's flush makes
/// it leave the address space (kernel/fork.c:__mmput, mm/mmap.c:exit_mmap). Only walks from frames
/// come here any more. So it makes no difference that kernels hold `mmap_lock` only for reading in
/// a part of this, or not at all (5.10).
pub fn exit_mmap(env: &mut impl Env, mm: MmId) {
    exit_thread(env);
    mmput(env, mm);
}

fn mmput(env: &mut impl Env, mm: MmId) {
    env.lock(Lock::MmapWrite(mm));
    unmap_all(env, mm);
    env.unlock(Lock::MmapWrite(mm));
}

/// Unmaps everything. The caller holds `mmap_lock` for writing.
pub fn unmap_all(env: &mut impl Env, mm: MmId) {
    let all: Option<PageRange> = env.step(Site::ExitMmap, |w, _| {
        let vmas = w.mms[mm.index()].vmas();
        let (first, last) = (vmas.first()?, vmas.last()?);
        Some(PageRange { start: first.range.start, end: last.range.end })
    });
    if let Some(all) = all {
        vmas_start_write(env, mm, all);
        munlock_vmas(env, mm, all);
        let all = detach(env, mm, all);
        unmap_region(env, Gather::open_fullmm, mm, &all);
    }
}

/// Ends a process and its address space. There is always something to unmap (at least the program),
/// so the CPU leaves the address space.
///
/// Source: kernel/exit.c:do_exit, exit_mm (5.10 to 7.3): the address space is gone before a waiting
/// process is told.
pub fn exit_process(env: &mut impl Env, mm: MmId) {
    exit_mmap(env, mm);
    flush_tlb_exit(env, mm);
    env.step(Site::ExitMmap, |w, at| w.retire(at, mm));
}

/// Replaces the process's program: it gets a new address space. The old one is unmapped after its
/// CPU has left it, so no CPU has to be flushed. The new program is not modelled except for one
/// effect: when `exec` is done, the CPU's LRU batches are empty.
///
/// Source: fs/exec.c:exec_mmap (5.10 to 7.3): the new address space is loaded before the old one is
/// put.
pub fn execve(env: &mut impl Env, mm: MmId) {
    env.step(Site::ExecMmap, |w, at| switch_mm(w, at, at.cpu, INIT_MM));
    mmput(env, mm);
    flush_tlb_exit(env, mm);
    env.step(Site::ExecMmap, |w, at| {
        w.retire(at, mm);
        w.mms[mm.index()].life = Life::Running;
        switch_mm(w, at, at.cpu, mm);
    });
    lru_add_drain(env);
}

/// The wait for the end of the process; `None` if it has ended.
///
/// Source: kernel/exit.c:do_wait (5.10 to 7.3).
pub fn wait4(env: &mut impl Env, mm: MmId) -> Option<Wait> {
    env.step(Site::DoWait, |w, _| w.mms[mm.index()].life != Life::None).then_some(Wait::Exit(mm))
}

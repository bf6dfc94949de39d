//! The end of a thread and of an address space.

use crate::addr::{MmId, PageRange};
use crate::env::Env;
use crate::kernel::map::{detach, unmap_region};
use crate::kernel::switch::enter_lazy;
use crate::site::Site;

/// The thread is gone; its CPU goes idle with the address space still loaded.
pub fn exit_thread(env: &mut impl Env) {
    env.step(Site::EnterLazyTlb, |w, at| enter_lazy(w, at.cpu));
}

/// The last thread is gone: everything is unmapped. The CPU is lazy already, so the gather's flush
/// makes it leave the address space (kernel/fork.c:__mmput, mm/mmap.c:exit_mmap).
pub fn exit_mmap(env: &mut impl Env, mm: MmId) {
    exit_thread(env);
    let all: Option<PageRange> = env.step(Site::ExitMmap, |w, _| {
        let vmas = w.mms[mm.index()].vmas();
        let (first, last) = (vmas.first()?, vmas.last()?);
        Some(PageRange { start: first.range.start, end: last.range.end })
    });
    if let Some(all) = all {
        let all = detach(env, mm, all);
        unmap_region(env, mm, &all);
    }
}

//! Per-VMA locks (6.4 and later): a fault locks the one mapping that it is about and leaves `mmap_lock` alone;
//! who changes mappings, with `mmap_lock` held for writing, locks each for writing before it changes it.
//!
//! A mapping is write-locked until `mmap_lock` is given back or downgraded: until then a fault on it takes
//! `mmap_lock`, and so waits for the whole call. Faults on mappings that the call has not come to go on.
//!
//! Source: mm/memory.c:lock_vma_under_rcu (6.12), mm/mmap_lock.c (6.18, 7.3), include/linux/mmap_lock.h:vma_start_write,
//! vma_end_write_all.

use crate::addr::{MmId, PageRange, Vpn};
use crate::env::{Env, Lock};
use crate::machine::mm::Mm;
use crate::machine::vma::Vma;
use crate::policy::FaultLock;
use crate::site::Site;
use smallvec::SmallVec;

/// Whether the kernel has them.
pub fn per_vma(env: &impl Env) -> bool {
    env.policies().fault_lock == FaultLock::Vma
}

/// Locks the mapping of `page` for reading: not if nothing is mapped there, or if it is write-locked. Whoever
/// has it gives back [`Lock::VmaOf`] that page.
pub fn lock_vma_under_rcu(env: &mut impl Env, mm: MmId, page: Vpn) -> bool {
    env.try_lock(Site::LockVmaUnderRcu, Lock::VmaOf(mm, page))
}

/// Locks the mapping of these pages for writing, before it is changed.
pub fn vma_start_write(env: &mut impl Env, mm: MmId, pages: PageRange) {
    if per_vma(env) {
        env.lock(Lock::VmaWrite(mm, pages));
    }
}

/// Locks every mapping that has pages in `range` for writing, in their order.
pub fn vmas_start_write(env: &mut impl Env, mm: MmId, range: PageRange) {
    if !per_vma(env) {
        return;
    }
    let vmas = env.step(Site::VmaStartWrite, |w, at| {
        w.mmap_assert_write_locked(at, mm);
        let vmas = w.mms[mm.index()].vmas().iter().map(|vma| vma.range);
        vmas.filter(|vma| vma.overlaps(range)).collect::<SmallVec<[PageRange; 2]>>()
    });
    vmas.into_iter().for_each(|vma| vma_start_write(env, mm, vma));
}

/// Locks for writing what a new mapping becomes, with those beside it that it becomes one with, and the one that
/// it is a part of.
pub fn new_vma_start_write(env: &mut impl Env, mm: MmId, new: impl FnOnce(&Mm) -> Option<Vma>) {
    if !per_vma(env) {
        return;
    }
    let locked = env.step(Site::VmaStartWrite, |w, at| {
        w.mmap_assert_write_locked(at, mm);
        let (rule, mm) = ((&w.policies).into(), &w.mms[mm.index()]);
        new(mm).map(|vma| {
            let merged = mm.merged(vma, rule).range;
            mm.vma(vma.range.start).map_or(merged, |old| merged.hull(old.range))
        })
    });
    locked.into_iter().for_each(|pages| vma_start_write(env, mm, pages));
}

//! Per-VMA locks (6.4 and later). A fault locks only its own mapping and does not take `mmap_lock`.
//! An operation that changes mappings holds `mmap_lock` for writing, and write-locks each mapping
//! before it changes it.
//!
//! A mapping stays write-locked until `mmap_lock` is given back or downgraded. Until then a fault
//! on it takes `mmap_lock`, and so waits for the whole call. Faults on mappings that the call has
//! not reached yet go on.
//!
//! Source: mm/memory.c:lock_vma_under_rcu (6.12), mm/mmap_lock.c (6.18, 7.3),
//! include/linux/mmap_lock.h:vma_start_write, vma_end_write_all.

use crate::addr::{MmId, PageRange, Vpn};
use crate::env::{Env, Lock};
use crate::machine::mm::Mm;
use crate::machine::vma::Vma;
use crate::policy::FaultLock;
use crate::site::Site;
use smallvec::SmallVec;

/// Whether the kernel has per-VMA locks.
pub fn per_vma(env: &impl Env) -> bool {
    env.policies().fault_lock == FaultLock::Vma
}

/// Locks the mapping of `page` for reading. Returns false if nothing is mapped there or the mapping
/// is write-locked. The caller gives [`Lock::VmaOf`] that page back.
pub fn lock_vma_under_rcu(env: &mut impl Env, mm: MmId, page: Vpn) -> bool {
    env.try_lock(Site::LockVmaUnderRcu, Lock::VmaOf(mm, page))
}

/// Locks the mapping of these pages for writing, before it is changed.
pub fn vma_start_write(env: &mut impl Env, mm: MmId, pages: PageRange) {
    if per_vma(env) {
        env.lock(Lock::VmaWrite(mm, pages));
    }
}

/// Locks every mapping that has pages in `range` for writing, in address order.
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

/// Locks for writing the mapping that `new` becomes, with the neighbours that it merges with and
/// the mapping that it is a part of.
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

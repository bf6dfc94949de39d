//! `mmap` and `munmap` of private anonymous memory.

use crate::addr::{MmId, PageRange, Vpn};
use crate::env::{Env, Lock};
use crate::kernel::Errno;
use crate::kernel::gather::Gather;
use crate::kernel::lru::lru_add_drain;
use crate::kernel::zap::{free_pgtables, zap_range};
use crate::machine::vma::Vma;
use crate::policy::ZapDrain;
use crate::program::Prot;
use crate::site::Site;

/// Maps `range`, where nothing may be mapped yet (`MAP_FIXED_NOREPLACE`).
pub fn mmap(env: &mut impl Env, mm: MmId, range: PageRange, prot: Prot) -> Result<(), Errno> {
    env.lock(Lock::MmapWrite(mm));
    let result = env.step(Site::MmapRegion, |w, at| {
        w.mmap_assert_write_locked(at, mm);
        let user = PageRange { start: Vpn(0), end: Vpn(w.arch.user_pages()) };
        if range.is_empty() || range.intersect(user) != range {
            return Err(Errno::Einval);
        }
        let rule = w.policies.vma_merge;
        let mm = &mut w.mms[mm.index()];
        if mm.vmas_in(range).next().is_some() {
            return Err(Errno::Eexist);
        }
        mm.insert(Vma::new(range, prot), rule);
        Ok(())
    });
    env.unlock(Lock::MmapWrite(mm));
    result
}

/// Unmaps `range`; parts that are not mapped do not matter.
pub fn munmap(env: &mut impl Env, mm: MmId, range: PageRange) -> Result<(), Errno> {
    if range.is_empty() {
        return Err(Errno::Einval);
    }
    env.lock(Lock::MmapWrite(mm));
    unmap_region(env, mm, range);
    env.unlock(Lock::MmapWrite(mm));
    Ok(())
}

/// Takes the mappings of `range` away, with `mmap_lock` held for writing.
///
/// Source: mm/mmap.c:unmap_region (5.10, 6.1), mm/vma.c:unmap_region (6.12, 7.3).
pub fn unmap_region(env: &mut impl Env, mm: MmId, range: PageRange) {
    // 1. The mappings go first: no new fault finds them.
    let (vmas, between, linked) = env.step(Site::MmapRegion, |w, at| {
        w.mmap_assert_write_locked(at, mm);
        let space = &mut w.mms[mm.index()];
        let vmas: Vec<PageRange> = space.vmas_in(range).map(|vma| vma.range).collect();
        space.detach(range);
        (vmas, space.neighbours(range), space.has_detached())
    });
    let (Some(first), Some(last)) = (vmas.first(), vmas.last()) else { return };
    let whole = PageRange { start: first.start, end: last.end };

    // 2. Translations, then tables, then one flush, then the pages.
    if env.policies().zap_drain == ZapDrain::Yes {
        lru_add_drain(env);
    }
    let mut gather = Gather::open(env, mm);
    for vma in &vmas {
        zap_range(env, &mut gather, *vma, false);
    }
    if linked {
        env.step(Site::UnlinkAnonVmas, |w, _| w.unlink_anon_vmas(mm, whole));
    }
    free_pgtables(env, &mut gather, whole, between);
    gather.finish(env);
}

//! `/proc/PID/clear_refs`: clears the accessed bit of every page that the process maps.
//!
//! There is no flush. A TLB keeps its translations, and only a walk sets the bit again. Zero pages
//! keep their bit (`vm_normal_folio`).
//!
//! Source: fs/proc/task_mmu.c:clear_refs_write, clear_refs_pte_range (CLEAR_REFS_ALL; 6.1 and 6.12,
//! read).

use crate::addr::{MmId, PageRange};
use crate::arch::Arch;
use crate::env::{Env, Lock};
use crate::kernel::huge::{pmd_trans_huge_lock, pmd_unlock};
use crate::kernel::table::{pte_offset_map_lock, pte_unmap_unlock};
use crate::kernel::vma_lock::vma_start_write;
use crate::kernel::zap::by_table;
use crate::machine::frames::FrameFlags;
use crate::pte::{Pte, PteFlags};
use crate::site::Site;
use smallvec::SmallVec;

/// Clears the accessed bits of all mappings of `mm`, and the referenced flags of their folios.
pub fn clear_refs(env: &mut impl Env, mm: MmId) {
    let arch: Arch = *env.arch();
    env.lock(Lock::MmapWrite(mm));
    let vmas = env.step(Site::ClearRefs, |w, at| {
        w.mmap_assert_write_locked(at, mm);
        let vmas = w.mms[mm.index()].vmas().iter().map(|vma| vma.range);
        vmas.collect::<SmallVec<[PageRange; 4]>>()
    });
    for vma in vmas {
        vma_start_write(env, mm, vma);
        by_table(&arch, vma).for_each(|part| clear_table(env, mm, part));
    }
    env.unlock(Lock::MmapWrite(mm));
}

/// Clears one page table or one huge page, if there is one, under its lock.
fn clear_table(env: &mut impl Env, mm: MmId, part: PageRange) {
    let huge = pmd_trans_huge_lock(env, Site::ClearRefs, mm, part.start, |w, at, pmd| {
        if pmd.special() {
            return;
        }
        if pmd.accessed() {
            w.set_pmd(at, mm, part.start, Pte::Present(pmd.without(PteFlags::ACCESSED)));
        }
        w.frames.set_flags(pmd.pfn, FrameFlags::REFERENCED, false);
    });
    if huge.is_some() {
        return pmd_unlock(env, mm, part.start);
    }
    if pte_offset_map_lock(env, Site::ClearRefs, mm, part.start, |_, _| ()).is_none() {
        return;
    }
    for page in part.iter() {
        env.step(Site::ClearRefs, |w, at| {
            let Some(pte) = w.pte(mm, page).present().filter(|pte| !pte.special()) else { return };
            if pte.accessed() {
                w.set_pte(at, mm, page, Pte::Present(pte.without(PteFlags::ACCESSED)));
            }
            w.frames.set_flags(pte.pfn, FrameFlags::REFERENCED, false);
        });
    }
    pte_unmap_unlock(env, mm, part.start);
}

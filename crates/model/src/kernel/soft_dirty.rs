//! Soft-dirty bits: show which pages were stored to. `4` to `/proc/PID/clear_refs` clears them, and
//! the right to store, on all pages of a process. The next store to each page faults and sets its
//! bit. `/proc/PID/pagemap` shows the bits.
//!
//! A mapping that is newer than the last such call counts as stored to as a whole (`VM_SOFTDIRTY`).
//! The call always ends with one flush of everything, also on kernels without such bits
//! (`CONFIG_MEM_SOFT_DIRTY`). Before that, each huge page is flushed by itself.
//!
//! Source: fs/proc/task_mmu.c:clear_refs_write, clear_refs_pte_range, clear_soft_dirty,
//! clear_soft_dirty_pmd, pagemap_read (5.10, 6.1, 6.12, 7.2).

use crate::addr::{MmId, PageRange, Vpn};
use crate::arch::Arch;
use crate::env::{Env, Lock};
use crate::event::EventKind;
use crate::kernel::Errno;
use crate::kernel::flush::{FlushRequest, flush_tlb_mm_range};
use crate::kernel::gup::maybe_dma_pinned;
use crate::kernel::huge::{invalid, pmd_trans_huge_lock, pmd_unlock};
use crate::kernel::table::{pte_offset_map_lock, pte_unmap_unlock};
use crate::kernel::vma_lock::vma_start_write;
use crate::kernel::zap::by_table;
use crate::machine::world::{At, Ghost, Mode, World};
use crate::policy::Mutant;
use crate::pte::{MigrationPte, PresentPte, Pte, PteFlags, SwapPte};
use crate::site::Site;
use smallvec::SmallVec;

/// Clears the soft-dirty bits of all pages of `mm`.
pub fn clear_soft_dirty(env: &mut impl Env, mm: MmId) {
    env.lock(Lock::MmapWrite(mm));
    let vmas = env.step(Site::ClearRefs, |w, at| {
        w.mmap_assert_write_locked(at, mm);
        let vmas = w.mms[mm.index()].vmas().iter().map(|vma| vma.range);
        let vmas: SmallVec<[PageRange; 4]> = vmas.collect();
        w.ghost.tracks(mm, false);
        vmas
    });
    let arch: Arch = *env.arch();
    vmas.iter().for_each(|vma| vma_start_write(env, mm, *vma));
    let tracks = env.step(Site::ClearRefs, |w, _| {
        let tracks = w.config.soft_dirty;
        let space = &mut w.mms[mm.index()];
        space.open_gathers += 1;
        if tracks {
            space.clear_soft_dirty();
        }
        tracks
    });
    for vma in vmas.into_iter().filter(|_| tracks) {
        by_table(&arch, vma).for_each(|part| clear_table(env, mm, part));
    }
    if env.policies().mutant != Mutant::SoftDirtyUnflushed {
        flush_tlb_mm_range(env, FlushRequest::whole(Site::ClearRefs, mm));
    }
    env.step(Site::ClearRefs, |w, _| {
        w.mms[mm.index()].open_gathers -= 1;
        w.ghost.tracks(mm, tracks);
    });
    env.unlock(Lock::MmapWrite(mm));
}

/// Clears one page table or one huge page, if there is one, under its lock.
fn clear_table(env: &mut impl Env, mm: MmId, part: PageRange) {
    let (site, first) = (Site::ClearRefs, part.start);
    let huge = pmd_trans_huge_lock(env, site, mm, first, |w, at, pmd| {
        w.set_pmd(at, mm, first, Pte::Present(invalid(pmd)));
        pmd
    });
    if let Some(pmd) = huge {
        let pages = env.arch().huge_pages(first);
        flush_tlb_mm_range(env, FlushRequest::range(site, mm, pages));
        env.step(site, |w, at| w.set_pmd(at, mm, first, Pte::Present(tracked(pmd))));
        return pmd_unlock(env, mm, first);
    }
    if pte_offset_map_lock(env, site, mm, first, |_, _| ()).is_none() {
        return;
    }
    for page in part.iter() {
        env.step(site, |w, at| clear_pte(w, at, mm, page));
    }
    pte_unmap_unlock(env, mm, first);
}

/// Clears one entry. A page that a device may store to stays as it is, and counts as stored to
/// (`pte_is_pinned`).
fn clear_pte<M: Mode>(w: &mut World<M>, at: At, mm: MmId, page: Vpn) {
    let old = w.pte(mm, page);
    let new = match old {
        Pte::Present(pte) if is_pinned(w, mm, page, pte) => old,
        Pte::Present(pte) => Pte::Present(tracked(pte)),
        Pte::Swap(swap) => Pte::Swap(SwapPte { soft_dirty: false, ..swap }),
        Pte::Migration(entry) => Pte::Migration(MigrationPte { soft_dirty: false, ..entry }),
        Pte::None | Pte::Table(_) | Pte::Marker(_) => old,
    };
    if new != old {
        w.set_pte(at, mm, page, new);
    }
}

/// The entry that makes the next store fault.
const fn tracked(pte: PresentPte) -> PresentPte {
    pte.without(PteFlags::WRITABLE).without(PteFlags::SOFT_DIRTY)
}

fn is_pinned<M: Mode>(w: &World<M>, mm: MmId, page: Vpn, pte: PresentPte) -> bool {
    let space = &w.mms[mm.index()];
    let private = space.vma(page).is_some_and(|vma| !vma.shared);
    private && space.has_pinned && !pte.special() && maybe_dma_pinned(w, pte.pfn)
}

/// Reports which of the pages count as stored to.
pub fn pagemap_read(env: &mut impl Env, mm: MmId, range: PageRange) -> Result<(), Errno> {
    if !env.config().soft_dirty {
        return Err(Errno::Enotty);
    }
    env.lock(Lock::MmapRead(mm));
    env.step(Site::PagemapRead, |w, at| {
        w.mmap_assert_locked(at, mm);
        let mut runs: SmallVec<[PageRange; 4]> = SmallVec::new();
        for page in range.iter().filter(|page| is_soft_dirty(w, mm, *page)) {
            match runs.last_mut() {
                Some(run) if run.end == page => run.end = page.add(1),
                _ => runs.push(PageRange::one(page)),
            }
        }
        for run in runs {
            w.emit(at, EventKind::Told { page: run.start, pages: run.pages() as u32 });
        }
    });
    env.unlock(Lock::MmapRead(mm));
    Ok(())
}

/// Whether a page counts as stored to: its entry says so, or its mapping is newer than the last
/// clear.
///
/// Source: fs/proc/task_mmu.c:pte_to_pagemap_entry, pagemap_pte_hole (5.10 to 7.2): PM_SOFT_DIRTY.
pub fn is_soft_dirty<M: Mode>(w: &World<M>, mm: MmId, page: Vpn) -> bool {
    let Some(vma) = w.mms[mm.index()].vma(page) else { return false };
    let by_entry = match w.page_entry(mm, page) {
        Pte::Present(pte) => pte.soft_dirty(),
        Pte::Swap(swap) => swap.soft_dirty,
        Pte::Migration(entry) => entry.soft_dirty,
        Pte::None | Pte::Table(_) | Pte::Marker(_) => false,
    };
    w.config.soft_dirty && (vma.soft_dirty || by_entry)
}

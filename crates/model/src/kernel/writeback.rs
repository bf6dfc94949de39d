//! Writeback: what was stored to shared memory is written to where it came from.
//!
//! Before it is written, each mapping of the page loses the right to store and the dirty bit, and is flushed: the next
//! store faults and says that the page is dirty again ([`super::fault::file::wp_page_shared`]). The model has no files
//! on disks; shared anonymous memory, which kernels write to swap alone, stands for theirs.
//!
//! Source: mm/page-writeback.c:folio_clear_dirty_for_io, mm/rmap.c:folio_mkclean, page_vma_mkclean_one (6.1, 6.12).

use crate::addr::{MmId, PageRange, Pfn};
use crate::env::{Env, Lock};
use crate::kernel::flush::{FlushRequest, flush_tlb_mm_range};
use crate::kernel::reclaim::FolioList;
use crate::kernel::rmap::{Place, page_vma_mapped_walk, rmap_walk};
use crate::kernel::table::pte_unmap_unlock;
use crate::machine::frames::FrameFlags;
use crate::machine::world::Ghost;
use crate::policy::Mutant;
use crate::pte::{PresentPte, Pte, PteFlags};
use crate::site::Site;

/// Writes what is dirty of the shared memory that `mm` has mapped at `range`.
pub fn writeback(env: &mut impl Env, mm: MmId, range: PageRange) {
    let frames = env.step(Site::FolioClearDirtyForIo, |w, _| {
        let page = |page| w.shared_object_of(mm, page);
        let found = range.iter().filter_map(page);
        let frames = found.filter_map(|(object, index)| w.objects.page(object, index));
        let frames: FolioList = frames.collect();
        frames.iter().for_each(|frame| w.get_frame(*frame));
        frames
    });
    for frame in frames {
        env.lock(Lock::Folio(frame));
        write_folio(env, frame);
        env.unlock(Lock::Folio(frame));
        env.step(Site::FolioPut, |w, at| w.put_frame(at, frame));
    }
}

/// One page, which is locked: what its PTEs knew is the page's first.
fn write_folio(env: &mut impl Env, frame: Pfn) {
    let mut cleaned = false;
    let clean = |env: &mut _, place| cleaned |= page_mkclean_one(env, frame, place);
    rmap_walk(env, Site::PageMkcleanOne, frame, clean);
    env.step(Site::FolioClearDirtyForIo, |w, _| {
        if cleaned || w.frames.flags(frame).has(FrameFlags::DIRTY) {
            w.frames.set_flags(frame, FrameFlags::DIRTY, false);
            w.ghost.written_back(frame);
        }
    });
}

/// One mapping; whether a store may have gone through it.
fn page_mkclean_one(env: &mut impl Env, frame: Pfn, place: Place) -> bool {
    let (site, (mm, page)) = (Site::PageMkcleanOne, place);
    let found = page_vma_mapped_walk(env, site, frame, place, |w, at, pte| {
        let stores = pte.writable() || pte.dirty();
        if stores {
            w.set_pte(at, mm, page, Pte::None);
        }
        (pte, stores)
    });
    let Some((pte, stores)) = found else { return false };
    if stores {
        if env.policies().mutant != Mutant::CleanUnflushed {
            flush_tlb_mm_range(env, FlushRequest::page(Site::PtepClearFlush, mm, page));
        }
        let clean: PresentPte = pte.without(PteFlags::WRITABLE).without(PteFlags::DIRTY);
        env.step(site, |w, at| w.set_pte(at, mm, page, Pte::Present(clean)));
    }
    pte_unmap_unlock(env, mm, page);
    stores
}

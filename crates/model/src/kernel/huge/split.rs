//! Splits the entry of a huge page into PTEs. The folio stays whole.

use super::{invalid, pmd_trans_huge_lock, pmd_unlock};
use crate::addr::{MmId, PageRange, Pfn, Vpn};
use crate::env::{Env, Learnt};
use crate::event::EventKind;
use crate::kernel::flush::{FlushRequest, flush_tlb_mm_range};
use crate::kernel::mlock_batch::munlock_split;
use crate::machine::frames::{FrameFlags, ZERO_PAGE};
use crate::machine::world::{At, Mode, World};
use crate::policy::{Mutant, SplitDirty};
use crate::pte::{PresentPte, Pte, PteFlags};
use crate::site::Site;

/// Splits the entry of the huge page around `page` into PTEs, if there is one. The event names the
/// function `site`.
///
/// Source: mm/huge_memory.c:__split_huge_pmd (5.10 to 7.3).
pub fn split_huge_pmd(env: &mut impl Env, site: Site, mm: MmId, page: Vpn) {
    split_if(env, site, mm, page, |_| true);
}

/// Splits the entry of the huge page around `page` into PTEs, if it maps this folio.
pub fn split_huge_pmd_of(env: &mut impl Env, site: Site, mm: MmId, page: Vpn, folio: Pfn) {
    split_if(env, site, mm, page, |pmd| pmd.pfn == folio);
}

fn split_if(
    env: &mut impl Env,
    site: Site,
    mm: MmId,
    page: Vpn,
    wanted: impl FnOnce(PresentPte) -> bool,
) {
    let taken = pmd_trans_huge_lock(env, Site::SplitHugePmd, mm, page, |w, at, pmd| {
        wanted(pmd).then(|| {
            emit_split(w, at.site(site), page, pmd);
            take(w, at, mm, page, pmd)
        })
    });
    if let Some(old) = taken {
        old.into_iter().for_each(|old| finish(env, mm, page, old));
        pmd_unlock(env, mm, page);
    }
}

impl Learnt for PresentPte {
    fn nothing() -> PresentPte {
        PresentPte::new(ZERO_PAGE)
    }
}

/// Emits the split of the huge page around `page`, whose entry is `pmd`. PTEs or migration entries
/// are about to replace that entry.
pub fn emit_split<M: Mode>(w: &mut World<M>, at: At, page: Vpn, pmd: PresentPte) {
    let shared = !pmd.special() && w.frames.folio_maps(pmd.pfn) > 1;
    let page = w.huge_span(page).start;
    w.emit(at, EventKind::Split { page, frame: pmd.pfn, shared });
}

/// Takes the entry away from the processor. The entry of the huge zero page is cleared, any other
/// is made invalid. Returns the old entry.
fn take<M: Mode>(w: &mut World<M>, at: At, mm: MmId, page: Vpn, old: PresentPte) -> PresentPte {
    let taken = if old.special() { Pte::None } else { Pte::Present(invalid(old)) };
    w.set_pmd(at, mm, page, taken);
    old
}

/// Flushes, then maps the pages one by one. A CPU must not have both sizes cached, so the flush
/// comes in between. It covers all base pages of the huge page, which is more than are invalidated
/// one by one.
///
/// Source: mm/huge_memory.c:__split_huge_pmd_locked, __split_huge_zero_page_pmd;
/// mm/pgtable-generic.c:pmdp_invalidate, pmdp_huge_clear_flush (5.10 to 7.3).
fn finish(env: &mut impl Env, mm: MmId, page: Vpn, old: PresentPte) {
    let pages = env.arch().huge_pages(page);
    if env.policies().mutant != Mutant::SplitUnflushed {
        flush_tlb_mm_range(env, FlushRequest::range(Site::SplitHugePmd, mm, pages));
    }
    env.step(Site::SplitHugePmd, |w, at| match old.special() {
        true => {
            let zero = PresentPte::new(ZERO_PAGE).with(PteFlags::SPECIAL, true);
            let zero = zero.with(PteFlags::ACCESSED, true).with(PteFlags::UFFD_WP, old.uffd_wp());
            w.populate_pmd(at, mm, page, |_, _| Pte::Present(zero));
        }
        false => map_page_by_page(w, at, mm, pages, old),
    });
}

/// Maps each page with an entry like the huge one. The folio gets the mappings and references of
/// all pages before it loses those of the huge page.
///
/// Source: mm/huge_memory.c:__split_huge_pmd_locked: page_ref_add (5.10, 6.1), folio_ref_add and
/// folio_add_anon_rmap_ptes (6.12 to 7.3) come before munlock_vma_page (6.1), folio_remove_rmap_pmd
/// (6.12 to 7.3). 5.10 munlocks the pages before it takes the entry away. The order shows in no
/// event.
fn map_page_by_page<M: Mode>(
    w: &mut World<M>,
    at: At,
    mm: MmId,
    pages: PageRange,
    old: PresentPte,
) {
    let flags = w.frames.flags(old.pfn);
    let (exclusive, claimed) = (flags.has(FrameFlags::EXCLUSIVE), flags.has(FrameFlags::CLAIMED));
    if old.dirty() {
        w.frames.set_flags(old.pfn, FrameFlags::DIRTY, true);
    }
    let pte = match w.policies.split_dirty {
        SplitDirty::Pte => old,
        SplitDirty::Page => old.without(PteFlags::DIRTY),
    };
    w.populate_pmd(at, mm, pages.start, |w, page| {
        let pfn = w.frame_in(old.pfn, page.since(pages.start));
        w.get_and_map(at, pfn, |flags| {
            flags.set(FrameFlags::EXCLUSIVE, exclusive);
            flags.set(FrameFlags::CLAIMED, flags.has(FrameFlags::CLAIMED) || claimed);
        });
        Pte::Present(PresentPte { pfn, ..pte })
    });
    // Only now: a batch that is emptied for `munlock` drops a reference of its own.
    w.drop_whole_mapping(at, old.pfn);
    w.put_frame(at, old.pfn);
    let locked = w.locks(mm, pages.start);
    munlock_split(w, at, old.pfn, locked);
}

/// Splits the entries of huge pages across the borders of `part`. That part of the mapping `vma` is
/// about to become a mapping of its own.
pub fn split_at_borders(env: &mut impl Env, mm: MmId, vma: PageRange, part: PageRange) {
    if part.start != vma.start {
        vma_adjust_trans_huge(env, mm, part.start);
    }
    if part.end != vma.end {
        vma_adjust_trans_huge(env, mm, part.end);
    }
}

/// Splits the entries of huge pages across the borders of `range`, where mappings reach out of it.
/// All of `range` is about to be unmapped.
///
/// Source: mm/mmap.c:__do_munmap (5.10, 6.1), mm/vma.c:vms_gather_munmap_vmas (6.12 to 7.3).
pub fn split_outer_borders(env: &mut impl Env, mm: MmId, range: PageRange) {
    if !env.config().huge_pages {
        return;
    }
    let borders = env.step(Site::SplitHugePmd, |w, _| {
        let across = |border: Vpn| {
            let vma = w.mms[mm.index()].vma(border);
            vma.is_some_and(|vma| vma.range.start != border)
        };
        (across(range.start), across(range.end))
    });
    if borders.0 {
        vma_adjust_trans_huge(env, mm, range.start);
    }
    if borders.1 {
        vma_adjust_trans_huge(env, mm, range.end);
    }
}

/// Splits the entry of a huge page across `border`, where a mapping is about to begin or end.
///
/// Source: mm/huge_memory.c:vma_adjust_trans_huge, split_huge_pmd_address (5.10 to 7.3).
fn vma_adjust_trans_huge(env: &mut impl Env, mm: MmId, border: Vpn) {
    if env.arch().huge_pages(border).start != border {
        split_huge_pmd(env, Site::VmaAdjustTransHuge, mm, border);
    }
}

//! `MADV_FREE` of huge pages.

use super::run::{is_shared, split_and_put};
use super::{invalid, pmd_trans_huge_lock, pmd_unlock};
use crate::addr::{MmId, PageRange, Pfn, Vpn};
use crate::env::{Env, Lock};
use crate::kernel::flush::{Change, FlushRequest, flush_tlb_mm_range};
use crate::kernel::gather::Gather;
use crate::kernel::lru::mark_lazyfree;
use crate::kernel::swap_cache::{leave_swap_cache, swap_users};
use crate::machine::frames::FrameFlags;
use crate::machine::world::{At, Mode, World};
use crate::policy::LargeShared;
use crate::pte::{PresentPte, Pte, PteFlags};
use crate::site::Site;

/// Lets reclaim drop the huge page of `part` while it stays clean. If `part` is only a part of it,
/// the folio is split instead. The caller then looks at the PTEs that are there.
///
/// Source: mm/huge_memory.c:madvise_free_huge_pmd (5.10 to 7.3).
pub fn madvise_free_huge_pmd(env: &mut impl Env, gather: &mut Gather, part: PageRange) {
    let (mm, pages) = (gather.mm(), env.arch().huge_pages(part.start));
    let site = Site::MadviseFreeHugePmd;
    let found = pmd_trans_huge_lock(env, site, mm, part.start, |w, _, pmd| {
        let shared = match w.policies.large_shared {
            LargeShared::First => w.frames.folio_maps(pmd.pfn) != 1,
            LargeShared::Likely | LargeShared::Known => is_shared(w, pmd.pfn, mm),
        };
        let alone = !pmd.special() && !shared;
        alone.then_some(pmd)
    });
    let Some(found) = found else { return };
    let locked = |env: &mut _, pmd: &PresentPte| lock_folio(env, pmd.pfn);
    let Some(pmd) = found.filter(|pmd| locked(env, pmd)) else {
        return pmd_unlock(env, mm, part.start);
    };
    if part != pages {
        env.step(site, |w, at| w.get_frame(at, pmd.pfn));
        pmd_unlock(env, mm, part.start);
        split_and_put(env, pmd.pfn);
        return;
    }
    env.step(site, |w, _| w.frames.set_flags(pmd.pfn, FrameFlags::DIRTY, false));
    env.unlock(Lock::Folio(pmd.pfn));
    if pmd.accessed() || pmd.dirty() {
        env.step(site, |w, at| w.set_pmd(at, mm, pages.start, Pte::Present(invalid(pmd))));
        flush_tlb_mm_range(env, FlushRequest::range(site, mm, pages));
        let clean = pmd.without(PteFlags::ACCESSED).without(PteFlags::DIRTY);
        env.step(site, |w, at| w.set_pmd(at, mm, pages.start, Pte::Present(clean)));
        gather.changed_pages(pages, Change::of(pmd, clean, Change::Aged));
    }
    env.step(site, |w, at| mark_lazyfree(w, at, pmd.pfn));
    pmd_unlock(env, mm, part.start);
}

fn lock_folio(env: &mut impl Env, folio: Pfn) -> bool {
    env.try_lock(Site::FolioTryLock, Lock::Folio(folio))
}

/// Lets reclaim drop a large folio while it stays clean. All of its pages are mapped one by one,
/// from `page` on.
///
/// Source: mm/madvise.c:madvise_free_pte_range (6.12 to 7.3).
pub fn free_large(env: &mut impl Env, gather: &mut Gather, page: Vpn, folio: Pfn, pages: u64) {
    let (mm, site) = (gather.mm(), Site::MadviseFree);
    let asks = env.step(site, |w, _| {
        let flags = w.frames.flags(folio);
        flags.has(FrameFlags::SWAP_CACHE) || flags.has(FrameFlags::DIRTY)
    });
    if asks {
        if !lock_folio(env, folio) {
            return;
        }
        let cleaned = env.step(site, |w, at| clean(w, at, folio, pages));
        env.unlock(Lock::Folio(folio));
        if !cleaned {
            return;
        }
    }
    let range = PageRange::new(page, pages);
    let changes = env.step(site, |w, at| clear_ptes(w, at, mm, range));
    if let Some(change) = changes {
        range.iter().for_each(|page| gather.changed(page, change));
    }
    env.step(site, |w, at| mark_lazyfree(w, at, folio));
}

/// Makes the folio clean and takes it out of the swap cache. Returns false if others map it or have
/// it in swap.
fn clean<M: Mode>(w: &mut World<M>, at: At, folio: Pfn, pages: u64) -> bool {
    if u64::from(w.frames.folio_maps(folio)) != pages {
        return false;
    }
    if w.frames.flags(folio).has(FrameFlags::SWAP_CACHE) {
        if w.frames.pages_of_folio(folio).any(|page| swap_users(w, page) != 0) {
            return false;
        }
        leave_swap_cache(w, at, folio);
    }
    w.frames.set_flags(folio, FrameFlags::DIRTY, false);
    true
}

/// Makes all PTEs old and clean, if one of them is not. Returns what that takes away.
fn clear_ptes<M: Mode>(w: &mut World<M>, at: At, mm: MmId, range: PageRange) -> Option<Change> {
    let mut change = None;
    let ptes = range.iter().filter_map(|page| Some((page, w.pte(mm, page).present()?)));
    let ptes: Vec<(Vpn, PresentPte)> = ptes.collect();
    if ptes.iter().any(|(_, pte)| pte.accessed() || pte.dirty()) {
        for (page, pte) in ptes {
            let clean = pte.without(PteFlags::ACCESSED).without(PteFlags::DIRTY);
            w.set_pte(at, mm, page, Pte::Present(clean));
            change = change.max(Some(Change::of(pte, clean, Change::Aged)));
        }
    }
    change
}

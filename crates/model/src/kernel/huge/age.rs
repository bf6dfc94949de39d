//! `MADV_COLD` and `MADV_PAGEOUT` of huge pages.

use super::run::{is_shared, split_and_put};
use super::{invalid, pmd_trans_huge_lock, pmd_unlock};
use crate::addr::{PageRange, Pfn};
use crate::env::{Env, Learnt, Lock};
use crate::kernel::flush::{Change, FlushRequest, flush_tlb_mm_range};
use crate::kernel::gather::Gather;
use crate::kernel::lru::deactivate;
use crate::kernel::reclaim::FolioList;
use crate::machine::frames::FrameFlags;
use crate::machine::world::{At, Mode, World};
use crate::policy::HugeCold;
use crate::pte::{PresentPte, Pte, PteFlags};
use crate::site::Site;

const SITE: Site = Site::MadviseColdOrPageout;

/// What the advice does with a huge page.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
enum Found {
    /// The huge page stays as it is.
    Skip,
    /// The advice covers only a part of the huge page, so the folio is split.
    Split(Pfn),
    /// The advice covers all of the huge page.
    Whole(PresentPte),
}

impl Learnt for Found {
    fn nothing() -> Found {
        Found::Skip
    }
}

/// Ages the huge page of `part` and isolates it for reclaim. `None` if there is no huge page, or no
/// longer one: the caller then looks at the pages one by one.
///
/// Source: mm/madvise.c:madvise_cold_or_pageout_pte_range (5.10 to 7.3).
pub fn age_huge_pmd(
    env: &mut impl Env,
    gather: &mut Gather,
    part: PageRange,
    pageout: bool,
    clears_young: bool,
) -> Option<FolioList> {
    let (mm, pages) = (gather.mm(), env.arch().huge_pages(part.start));
    let found = pmd_trans_huge_lock(env, SITE, mm, part.start, |w, at, pmd| {
        if pmd.special() || is_shared(w, pmd.pfn, mm) {
            return Found::Skip;
        }
        if part == pages {
            return Found::Whole(pmd);
        }
        w.get_frame(at, pmd.pfn);
        Found::Split(pmd.pfn)
    })?;
    let mut isolated = FolioList::new();
    match found {
        Found::Skip => pmd_unlock(env, mm, part.start),
        Found::Split(folio) => {
            pmd_unlock(env, mm, part.start);
            return if split_waiting(env, folio) { None } else { Some(isolated) };
        }
        Found::Whole(pmd) => {
            if clears_young && pmd.accessed() {
                clear_young(env, gather, pages, pmd);
            }
            let frame = env.step(SITE, |w, at| aged(w, at, pmd.pfn, pageout));
            isolated.extend(frame);
            pmd_unlock(env, mm, part.start);
        }
    }
    Some(isolated)
}

/// Splits the folio. If somebody else has it locked, waits or gives up, as `huge-cold` says.
/// Returns whether the folio was split.
fn split_waiting(env: &mut impl Env, folio: Pfn) -> bool {
    let lock = Lock::Folio(folio);
    if env.policies().huge_cold == HugeCold::Invalidate {
        env.lock(lock);
    } else if !env.try_lock(Site::FolioTryLock, lock) {
        env.step(Site::FolioPut, |w, at| w.put_frame(at, folio));
        return false;
    }
    split_and_put(env, folio)
}

fn clear_young(env: &mut impl Env, gather: &mut Gather, pages: PageRange, pmd: PresentPte) {
    let mm = gather.mm();
    if env.policies().huge_cold == HugeCold::Invalidate {
        env.step(SITE, |w, at| w.set_pmd(at, mm, pages.start, Pte::Present(invalid(pmd))));
        flush_tlb_mm_range(env, FlushRequest::range(SITE, mm, pages));
    }
    let old = Pte::Present(pmd.without(PteFlags::ACCESSED));
    env.step(SITE, |w, at| w.set_pmd(at, mm, pages.start, old));
    gather.changed_pages(pages, Change::Aged);
}

/// Ages the folio as advised. Returns the folio if it is to be reclaimed.
pub fn aged<M: Mode>(w: &mut World<M>, at: At, folio: Pfn, pageout: bool) -> Option<Pfn> {
    w.frames.set_flags(folio, FrameFlags::REFERENCED, false);
    if !pageout {
        deactivate(w, at, folio);
    }
    (pageout && w.isolate_lru(at, folio)).then_some(folio)
}

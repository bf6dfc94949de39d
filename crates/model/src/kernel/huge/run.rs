//! Pages of a large folio that are mapped one by one, as `madvise` meets them.

use super::entry_of;
use super::split_folio::split_folio;
use crate::addr::{MmId, PageRange, Pfn, Vpn};
use crate::env::{Env, Learnt, Lock};
use crate::kernel::rmap::folio_places;
use crate::kernel::table::{pte_offset_map_lock, pte_unmap_unlock};
use crate::kernel::unmap_batch::flush_tlb_batched_pending;
use crate::machine::frames::FrameFlags;
use crate::machine::world::{Mode, World};
use crate::policy::{AdviseLarge, LargeShared};
use crate::pte::PresentPte;
use crate::site::Site;

/// What `madvise` finds at a page.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum Run {
    /// A page that belongs to no large folio.
    Small,
    /// This many pages are left out.
    Skip(u64),
    /// All of a large folio, mapped by this many PTEs.
    Whole(Pfn, u64),
    /// The folio was split, and the page has to be looked at again.
    Again,
    /// The rest of the table is left out.
    Stop,
    /// The table is gone, and its lock is no longer held.
    Gone,
}

/// What to do about the page.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
enum Found {
    Run(Run),
    /// Split the folio. If that fails, do this instead.
    Split(Pfn, Run),
}

impl Learnt for Found {
    fn nothing() -> Found {
        Found::Run(Run::Small)
    }
}

/// Looks at `page`, and at the pages up to `end`, in a table whose lock is held. A folio of which
/// only a part is meant is split. The table's lock is given back meanwhile, so a thread that
/// empties the table may free it.
///
/// Source: mm/madvise.c:madvise_cold_or_pageout_pte_range, madvise_free_pte_range (5.10, 6.1);
/// madvise_folio_pte_batch (6.12 to 7.3).
pub fn next_run(env: &mut impl Env, site: Site, mm: MmId, page: Vpn, end: Vpn) -> Run {
    if !env.config().huge_pages {
        return Run::Small;
    }
    let (folio, otherwise) = match env.step(site, |w, _| look(w, site, mm, page, end)) {
        Found::Run(run) => return run,
        Found::Split(folio, otherwise) => (folio, otherwise),
    };
    if !env.try_lock(Site::FolioTryLock, Lock::Folio(folio)) {
        return otherwise;
    }
    env.step(site, |w, at| w.get_frame(at, folio));
    pte_unmap_unlock(env, mm, page);
    let split = split_and_put(env, folio);
    if pte_offset_map_lock(env, site, mm, page, |_, _| ()).is_none() {
        return Run::Gone;
    }
    if env.policies().advise_large == AdviseLarge::Batch {
        flush_tlb_batched_pending(env, mm);
    }
    if split { Run::Again } else { otherwise }
}

/// Splits a folio that is locked, then gives its lock and a reference back. Returns whether the
/// folio was split.
pub fn split_and_put(env: &mut impl Env, folio: Pfn) -> bool {
    let split = split_folio(env, folio, None);
    env.unlock(Lock::Folio(folio));
    env.step(Site::FolioPut, |w, at| w.put_frame(at, folio));
    split
}

fn look<M: Mode>(w: &World<M>, site: Site, mm: MmId, page: Vpn, end: Vpn) -> Found {
    let large = |pte: &PresentPte| !pte.special() && w.frames.flags(pte.pfn).has(FrameFlags::LARGE);
    let Some(pte) = w.pte(mm, page).present().filter(large) else { return Found::Run(Run::Small) };
    let (head, order) = w.frames.folio(pte.pfn);
    let asked = match w.policies.advise_large {
        AdviseLarge::SplitByFirst if site == Site::MadviseFree => Some(head),
        AdviseLarge::Split | AdviseLarge::SplitByFirst => Some(pte.pfn),
        AdviseLarge::Batch => None,
    };
    if let Some(asked) = asked {
        return match w.frames.get(asked).maps {
            1 => Found::Split(head, Run::Stop),
            _ => Found::Run(Run::Stop),
        };
    }
    let here = PageRange { start: page, end }.iter().zip(pte.pfn.0..head.0 + (1 << order));
    let same = |(page, pfn): &(Vpn, u32)| {
        entry_of(w, head, mm, *page).is_some_and(|pte| pte.pfn == Pfn(*pfn))
    };
    let pages = here.take_while(same).count() as u64;
    if pages == 1 << order {
        let sole = w.frames.flags(head).on_lru() && u64::from(w.frames.folio_maps(head)) == pages;
        let left_out = site == Site::MadviseColdOrPageout && !sole;
        return Found::Run(if left_out { Run::Skip(pages) } else { Run::Whole(head, pages) });
    }
    match is_shared(w, head, mm) {
        true => Found::Run(Run::Skip(pages)),
        false => Found::Split(head, Run::Skip(pages)),
    }
}

/// Whether others than `mm` map pages of the folio, as far as the kernel can tell.
///
/// Source: include/linux/mm.h:folio_likely_mapped_shared (6.12), folio_maybe_mapped_shared (6.18,
/// 7.3); page_mapcount of its first page (5.10), folio_estimated_sharers (6.1), where advice asks
/// for a huge page.
pub fn is_shared<M: Mode>(w: &World<M>, folio: Pfn, mm: MmId) -> bool {
    let (head, order) = w.frames.folio(folio);
    let (maps, first) = (w.frames.folio_maps(head), w.frames.get(head).maps);
    match w.policies.large_shared {
        LargeShared::First => first != 1,
        LargeShared::Likely if maps <= 1 => false,
        LargeShared::Likely => w.frames.whole_maps(head) > 0 || maps > 1 << order || first > 1,
        LargeShared::Known => {
            let others = folio_places(w, head).into_iter().filter(|(other, _)| *other != mm);
            let mut pages =
                others.flat_map(|(other, pages)| pages.iter().map(move |page| (other, page)));
            maps > 1 && pages.any(|(other, page)| entry_of(w, head, other, page).is_some())
        }
    }
}

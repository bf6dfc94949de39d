//! Takes huge pages away (`munmap`, `MADV_DONTNEED`).

use super::split::split_huge_pmd;
use super::{pmd_trans_huge_lock, pmd_unlock};
use crate::addr::PageRange;
use crate::env::Env;
use crate::kernel::flush::Change;
use crate::kernel::gather::Gather;
use crate::kernel::mlock_batch::munlock_vma_folio;
use crate::machine::world::Ghost;
use crate::pte::Pte;
use crate::site::Site;

/// Takes the huge page of `part` away, if there is one. `part` lies within one last-level table.
/// Returns false if the PTEs are to be taken away one by one: because there is no huge page, or
/// because only a part of it goes and it is now mapped page by page.
///
/// Source: mm/memory.c:zap_pmd_range, mm/huge_memory.c:zap_huge_pmd (5.10 to 7.3).
pub fn zap_huge_pmd(env: &mut impl Env, gather: &mut Gather, part: PageRange) -> bool {
    if !env.config().huge_pages {
        return false;
    }
    let (mm, pages) = (gather.mm(), env.arch().huge_pages(part.start));
    if pages != part {
        split_huge_pmd(env, Site::ZapPmdRange, mm, part.start);
        return false;
    }
    let zapped = pmd_trans_huge_lock(env, Site::ZapHugePmd, mm, part.start, |w, at, old| {
        w.set_pmd(at, mm, part.start, Pte::None);
        w.withdraw(at, mm, None);
        let folio = (!old.special()).then_some(old.pfn);
        for page in pages.iter() {
            let frame = folio.map(|folio| w.frame_in(folio, page.since(pages.start)));
            w.ghost.discarded(mm, page, frame);
        }
        if let Some(folio) = folio {
            w.drop_whole_mapping(at, folio);
            let locked = w.locks(mm, pages.start);
            munlock_vma_folio(w, at, folio, locked);
        }
        folio
    });
    let Some(folio) = zapped else { return false };
    gather.changed_pages(pages, Change::Revoked);
    // The gather flushes with no table's lock held: at its end, or here if it is full.
    let full = folio.is_some_and(|folio| gather.remove_page(folio));
    pmd_unlock(env, mm, part.start);
    if full {
        gather.flush(env, Site::TlbFlushMmu);
    }
    true
}

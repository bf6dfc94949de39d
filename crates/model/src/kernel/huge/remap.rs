//! `mremap` of a huge page as a whole.

use super::pmd_trans_huge_lock;
use crate::addr::{MmId, Vpn};
use crate::env::{Env, Lock};
use crate::kernel::flush::{FlushRequest, flush_tlb_mm_range};
use crate::kernel::table::pte_alloc;
use crate::machine::world::{Ghost, Mode, World};
use crate::policy::Mutant;
use crate::pte::{PresentPte, Pte, PteFlags};
use crate::site::Site;

/// Notes that the contents of the huge page at `from`, whose entry was `pmd`, are now at `to`.
pub(super) fn note_moved<M: Mode>(
    w: &mut World<M>,
    mm: MmId,
    (from, to): (Vpn, Vpn),
    pmd: PresentPte,
) {
    for page in w.huge_span(from).range().iter() {
        let at = page.since(from);
        let frame = (!pmd.special()).then(|| w.frame_in(pmd.pfn, at));
        w.ghost.moved(mm, page, to.add(at), frame);
    }
}

/// Moves the huge page at `from` to `to`, unless something is there. Returns whether it moved. The
/// flush comes before the locks are given back. If there is no huge page, no table is made for one.
/// `clears` says whether the huge page loses its protection by userfaultfd.
///
/// Source: mm/mremap.c:move_page_tables, get_old_pmd; mm/huge_memory.c:move_huge_pmd (5.10 to 7.3).
pub fn move_huge_pmd(env: &mut impl Env, mm: MmId, from: Vpn, to: Vpn, clears: bool) -> bool {
    if !env.config().huge_pages {
        return false;
    }
    let (site, pages) = (Site::MoveHugePmd, env.arch().huge_pages(from));
    let (old, new) = (Lock::pmd(env.arch(), mm, from), Lock::pmd(env.arch(), mm, to));
    let huge = env.step(site, |w, at| {
        let huge = w.huge_page(mm, from).is_some();
        huge && pte_alloc(w, at, mm, to, 2).is_some()
    });
    if !huge {
        return false;
    }
    if new != old {
        env.lock(new);
    }
    let moved = pmd_trans_huge_lock(env, site, mm, from, |w, at, pmd| {
        let (there, span) = w.mms[mm.index()].table.find(to);
        if !there.is_none() || span.order == 0 {
            return false;
        }
        w.set_pmd(at, mm, from, Pte::None);
        let entry = Pte::Present(pmd.with(PteFlags::SOFT_DIRTY, w.config.soft_dirty));
        w.set_pmd(at, mm, to, if clears { entry.without_uffd_wp() } else { entry });
        note_moved(w, mm, (from, to), pmd);
        true
    });
    if moved == Some(true) && env.policies().mutant != Mutant::TableMovedUnflushed {
        flush_tlb_mm_range(env, FlushRequest::range(site, mm, pages));
    }
    if new != old {
        env.unlock(new);
    }
    if moved.is_some() {
        env.unlock(old);
    }
    moved == Some(true)
}

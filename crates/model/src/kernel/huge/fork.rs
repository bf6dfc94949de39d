//! A fork copies the entry of a huge page.

use super::split::split_huge_pmd;
use super::{pmd_trans_huge_lock, pmd_unlock};
use crate::addr::{MmId, Vpn};
use crate::env::{Env, Lock};
use crate::kernel::fork::aged;
use crate::kernel::gup::needs_cow_for_dma;
use crate::kernel::table::pte_alloc;
use crate::machine::frames::FrameFlags;
use crate::machine::world::{At, Ghost, Mode, World};
use crate::policy::Mutant;
use crate::pte::{PresentPte, Pte, PteFlags};
use crate::site::Site;

/// Gives the child the parent's huge page around `page`; false: what there is, is mapped page by page (by now, if it may be pinned: then
/// its pages are looked at one by one). Whether it is pinned is asked first, and somebody may pin it between that and the end of
/// the right to store.
///
/// Source: mm/huge_memory.c:copy_huge_pmd (5.10 to 7.3).
pub fn copy_huge_pmd(env: &mut impl Env, (parent, child): (MmId, MmId), page: Vpn) -> bool {
    if !env.config().huge_pages {
        return false;
    }
    let site = Site::CopyHugePmd;
    let lock = Lock::pmd(env.arch(), child, page);
    env.lock(lock);
    let pinned =
        pmd_trans_huge_lock(env, site, parent, page, |w, _, pmd| needs_cow_for_dma(w, parent, pmd));
    if pinned == Some(false) {
        env.step(site, |w, at| {
            let made = pte_alloc(w, at, child, page, 2);
            // The processor may have set bits of it since.
            if let (Some(()), Some(pmd)) = (made, w.huge_page(parent, page)) {
                copy_pmd(w, at, (parent, child), page, pmd);
            }
        });
    }
    if pinned.is_some() {
        pmd_unlock(env, parent, page);
    }
    env.unlock(lock);
    if pinned == Some(true) {
        split_huge_pmd(env, site, parent, page);
    }
    pinned == Some(false)
}

/// Nobody may store to it any more where it is.
fn copy_pmd<M: Mode>(
    w: &mut World<M>,
    at: At,
    (parent, child): (MmId, MmId),
    page: Vpn,
    pmd: PresentPte,
) {
    if !pmd.special() {
        w.frames.count_whole_map(pmd.pfn, 1);
        w.frames.update(pmd.pfn, |f| {
            f.refs += 1;
            f.flags.set(FrameFlags::EXCLUSIVE, false);
            f.flags.set(FrameFlags::CLAIMED, true);
        });
    }
    let protected = pmd.without(PteFlags::WRITABLE);
    if pmd.writable() && w.policies.mutant != Mutant::ForkUnprotected {
        w.set_pmd(at, parent, page, Pte::Present(protected));
    }
    w.deposit(child);
    let copy = Pte::Present(aged(w.policies.fork_accessed, protected));
    w.set_pmd(at, child, page, copy.without_uffd_wp());
    let pages = w.huge_span(page).range();
    for page in pages.iter() {
        let frame = (!pmd.special()).then(|| w.frame_in(pmd.pfn, page.since(pages.start)));
        w.ghost.forked_page(at.thread, parent, child, page, frame);
    }
}

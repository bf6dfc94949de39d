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

/// Copies the entry of the parent's huge page around `page` to the child. Returns false if the PTEs
/// are to be copied one by one: because there is no huge page, or because it may be pinned and was
/// mapped page by page. The fork asks whether the huge page is pinned before it takes the write
/// permission away, so somebody may pin it in between.
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
            // The processor may have set bits of the entry since.
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

/// Copies the entry. From now on nobody may store to the huge page in place.
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

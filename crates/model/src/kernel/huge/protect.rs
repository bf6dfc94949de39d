//! `mprotect` and `UFFDIO_WRITEPROTECT` of a huge page as a whole.

use super::{invalid, pmd_trans_huge_lock, pmd_unlock};
use crate::addr::{MmId, Vpn};
use crate::env::Env;
use crate::kernel::flush::{FlushRequest, flush_tlb_mm_range};
use crate::kernel::protect::To;
use crate::machine::frames::FrameFlags;
use crate::machine::world::{Mode, World};
use crate::policy::{ProtectFlush, ProtectRestore};
use crate::program::Prot;
use crate::pte::{PresentPte, Pte, PteFlags};
use crate::site::Site;

/// Changes the entry of the huge page around `page`, if there is one. Returns the old and the new
/// entry.
///
/// Source: mm/huge_memory.c:change_huge_pmd, can_change_pmd_writable (6.2 and later),
/// mm/pgtable-generic.c:pmdp_invalidate (5.10: flushes by itself),
/// arch/x86/mm/pgtable.c:pmdp_invalidate_ad (6.1 to 7.3: does not).
pub fn change_huge_pmd(
    env: &mut impl Env,
    mm: MmId,
    page: Vpn,
    to: To,
) -> Option<(PresentPte, PresentPte)> {
    let site = Site::ChangeHugePmd;
    let old = pmd_trans_huge_lock(env, site, mm, page, |w, at, old| {
        w.set_pmd(at, mm, page, Pte::Present(invalid(old)));
        old
    })?;
    if env.policies().protect_flush == ProtectFlush::WholeRange {
        let pages = env.arch().huge_pages(page);
        flush_tlb_mm_range(env, FlushRequest::range(site, mm, pages));
    }
    let new = env.step(site, |w, at| {
        let new = changed(w, mm, page, old, to);
        w.set_pmd(at, mm, page, Pte::Present(new));
        new
    });
    pmd_unlock(env, mm, page);
    Some((old, new))
}

fn changed<M: Mode>(w: &World<M>, mm: MmId, page: Vpn, old: PresentPte, to: To) -> PresentPte {
    let Some(vma) = w.mms[mm.index()].vma(page) else { return old };
    let read_only = to.applied(old);
    let exclusive = !old.special() && w.frames.flags(old.pfn).has(FrameFlags::EXCLUSIVE);
    let restores = w.policies.protect_restore == ProtectRestore::IfExclusive
        && to.restores(w.policies.uffd_restore)
        && !vma.protects(read_only.uffd_wp())
        && !vma.notes_store(read_only.soft_dirty())
        && exclusive;
    read_only
        .with(PteFlags::PROTNONE, vma.prot == Prot::None)
        .with(PteFlags::WRITABLE, vma.prot == Prot::ReadWrite && restores)
}

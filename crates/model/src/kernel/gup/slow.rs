//! Pins with `mmap_lock` held: the page is looked up under the lock of its table, after a fault if
//! need be.
//!
//! Source: mm/gup.c:follow_page_pte, faultin_page, check_vma_flags (5.10 to 7.3), follow_huge_pmd
//! (6.12, 7.3); mm/huge_memory.c:follow_trans_huge_pmd (5.10, 6.1).

use super::{Entry, Wanted, hold};
use crate::addr::PinId;
use crate::call::PinAccess;
use crate::env::{Env, Learnt};
use crate::kernel::Errno;
use crate::kernel::fault::outcome::Attempt;
use crate::kernel::fault::{Fault, Outcome, handle_mm_fault};
use crate::kernel::huge::{pmd_trans_huge_lock, pmd_unlock};
use crate::kernel::populate::touch;
use crate::kernel::table::{pte_offset_map_lock, pte_unmap_unlock};
use crate::machine::frames::FrameFlags;
use crate::machine::vma::Vma;
use crate::machine::world::{At, Mode, World};
use crate::policy::{ForceWrite, GupRead};
use crate::program::Prot;
use crate::site::Site;
use crate::wait::Wait;

/// What the lookup in the page table came to.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
enum Followed {
    /// The page is held.
    Held,
    /// The page has to be faulted in.
    FaultIn,
    /// The page has to become the process's own first (`-EMLINK`).
    Unshare,
}

impl Learnt for Followed {
    fn nothing() -> Followed {
        Followed::Held
    }
}

/// So many faults on one page show that the pin goes round in circles. A kernel would do so
/// forever.
const MOST_FAULTS: u32 = 6;

/// Takes hold of a page with `mmap_lock` held, after faults if need be. Returns what it has to wait
/// for, or `None` if the page is held. After a wait, all faults on the page count as tried
/// (`FOLL_TRIED`).
///
/// Source: mm/gup.c:__get_user_pages_locked, __get_user_pages, faultin_page (5.10 to 7.3).
pub(super) fn gup_slow(
    env: &mut impl Env,
    id: PinId,
    wanted: Wanted,
) -> Result<Option<Wait>, Errno> {
    let (mm, page) = wanted.place;
    // Whether a fault has copied the page, or has found it to be the process's own (FOLL_COW).
    let mut broken = false;
    let (mut tried, mut faults) = (false, 0);
    loop {
        let (vma, waited) = env.step(Site::FollowPagePte, |w, at| {
            w.mmap_assert_locked(at, mm);
            let waited = std::mem::take(&mut w.tasks[at.thread.index()].tried);
            (w.mms[mm.index()].vma(page).copied(), waited)
        });
        tried |= waited;
        let vma = vma.filter(|vma| permits(vma, wanted.access)).ok_or(Errno::Efault)?;
        let followed = follow_page(env, id, wanted, broken);
        if followed == Followed::Held {
            return Ok(None);
        }
        if faults == MOST_FAULTS {
            env.goes_round(page, faults);
            return Err(Errno::Efault);
        }
        faults += 1;
        let fault = faultin(wanted, followed, &vma, env.policies().gup_read);
        let attempt = if tried { Attempt::Tried } else { fault.attempt };
        match handle_mm_fault(env, Fault { attempt, ..fault }, false) {
            Outcome::Served => broken |= fault.forced,
            Outcome::Signal => return Err(Errno::Efault),
            Outcome::OutOfMemory => return Err(Errno::Enomem),
            Outcome::Blocked(wait, _) => {
                env.step(Site::FollowPagePte, |w, at| w.tasks[at.thread.index()].tried = true);
                return Ok(Some(wait));
            }
        }
    }
}

/// Whether the mapping permits the access.
///
/// Source: mm/gup.c:check_vma_flags, is_cow_mapping (5.10 to 7.2).
fn permits(vma: &Vma, access: PinAccess) -> bool {
    match (vma.prot, access) {
        (Prot::None, _) | (Prot::Read, PinAccess::Write) => false,
        (Prot::Read, PinAccess::Force) => !vma.shared,
        (Prot::Read, PinAccess::Read) | (Prot::ReadWrite, _) => true,
    }
}

fn follow_page(env: &mut impl Env, id: PinId, wanted: Wanted, broken: bool) -> Followed {
    let (mm, page) = wanted.place;
    let huge = pmd_trans_huge_lock(env, Site::FollowHugePmd, mm, page, |w, at, pmd| {
        let entry = Entry::of_huge_page(w, pmd, page);
        follow(w, at, (id, broken), wanted, Some(entry).filter(|_| !pmd.protnone()))
    });
    if let Some(followed) = huge {
        pmd_unlock(env, mm, page);
        return followed;
    }
    let followed = pte_offset_map_lock(env, Site::FollowPagePte, mm, page, |w, at| {
        let pte = w.pte(mm, page).present().filter(|pte| !pte.protnone());
        follow(w, at, (id, broken), wanted, pte.map(Entry::of_page))
    });
    if followed.is_some() {
        pte_unmap_unlock(env, mm, page);
    }
    followed.unwrap_or(Followed::FaultIn)
}

fn follow<M: Mode>(
    w: &mut World<M>,
    at: At,
    (id, broken): (PinId, bool),
    wanted: Wanted,
    entry: Option<Entry>,
) -> Followed {
    let (mm, page) = wanted.place;
    let Some(entry @ Entry { pte, .. }) = entry else { return Followed::FaultIn };
    // In a mapping that allows no store, 5.8 breaks COW for loads as well (FOLL_COW). A dirty page
    // there is the process's own copy.
    let forced = w.mms[mm.index()].vma(page).is_some_and(|vma| vma.prot == Prot::Read);
    let own = match wanted.access {
        PinAccess::Force => forced && can_follow_write_pte(w, entry, broken),
        PinAccess::Read | PinAccess::Write => forced && pte.dirty(),
    };
    if wanted.needs_write(w.policies.gup_read) && !pte.writable() && !own {
        return Followed::FaultIn;
    }
    if wanted.must_unshare(w, entry) {
        return Followed::Unshare;
    }
    let pin = wanted.pin(pte.pfn);
    if !pte.special() {
        w.frames.update(pte.pfn, |f| f.refs += pin.weight());
    }
    touch(w, at, Fault::new(mm, page, wanted.access.is_write()));
    hold(w, id, pin);
    Followed::Held
}

/// The fault that makes the page available for the access.
fn faultin(wanted: Wanted, followed: Followed, vma: &Vma, rule: GupRead) -> Fault {
    let (mm, page) = wanted.place;
    let write = wanted.needs_write(rule);
    let read_only = write && vma.prot == Prot::Read;
    let forced = read_only && wanted.access == PinAccess::Force;
    let unshare = followed == Followed::Unshare || read_only && !forced;
    Fault { unshare, forced, ..Fault::new(mm, page, write && !unshare) }
}

/// Whether a forced store may use a page whose entry grants no store, in a mapping that allows
/// none. The page has to be the process's own.
///
/// Source: mm/gup.c:can_follow_write_pte (5.10; 6.1, 6.12, 7.2).
fn can_follow_write_pte<M: Mode>(w: &World<M>, entry: Entry, broken: bool) -> bool {
    match w.policies.force_write {
        ForceWrite::Dirty => broken && entry.pte.dirty(),
        ForceWrite::Exclusive => {
            !entry.pte.special() && w.frames.flags(entry.first).has(FrameFlags::EXCLUSIVE)
        }
    }
}

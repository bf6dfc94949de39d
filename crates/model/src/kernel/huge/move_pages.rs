//! `UFFDIO_MOVE` of huge pages.

use super::remap::note_moved;
use super::split::split_huge_pmd;
use crate::addr::{MmId, PageRange, Vpn};
use crate::env::{Env, Learnt, Lock};
use crate::kernel::Errno;
use crate::kernel::flush::{FlushRequest, flush_tlb_mm_range};
use crate::kernel::table::pte_alloc;
use crate::kernel::uffd::move_pages::is_own;
use crate::machine::frames::FrameFlags;
use crate::machine::world::{At, Mode, World};
use crate::policy::Mutant;
use crate::pte::{PresentPte, Pte, PteFlags};
use crate::site::Site;

/// What the move does with a huge page.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
enum Next {
    /// There is no huge page.
    Small,
    /// The huge page is mapped page by page, because only a part of it moves or because the target
    /// has a page table.
    Part,
    /// The huge page moves as a whole, if its entry is still this one.
    Whole(PresentPte),
    /// The move fails with this error.
    Refused(Errno),
}

impl Learnt for Next {
    fn nothing() -> Next {
        Next::Small
    }
}

/// What came of an attempt to take the entry away.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
enum Cleared {
    /// Another thread was faster, and the caller must look again.
    Again,
    /// The page is no longer the process's own.
    Busy,
    /// This entry was taken away.
    Taken(PresentPte),
}

impl Learnt for Cleared {
    fn nothing() -> Cleared {
        Cleared::Again
    }
}

/// Moves the huge page at the start of `rest` to `to`. Returns how many pages it moved: 0 if the
/// huge page is now mapped page by page or has to be looked at again. `None` if there is no huge
/// page.
///
/// Source: mm/userfaultfd.c:move_pages, move_splits_huge_pmd (6.12, 7.3).
pub fn move_huge(
    env: &mut impl Env,
    mm: MmId,
    rest: PageRange,
    to: Vpn,
) -> Option<Result<u64, Errno>> {
    if !env.config().huge_pages {
        return None;
    }
    let next = env.step(Site::MovePages, |w, at| match pte_alloc(w, at, mm, to, 2) {
        Some(()) => look(w, mm, rest, to),
        None => Next::Refused(Errno::Enomem),
    });
    Some(match next {
        Next::Small => return None,
        Next::Refused(error) => Err(error),
        Next::Part => {
            split_huge_pmd(env, Site::MovePages, mm, rest.start);
            Ok(0)
        }
        Next::Whole(pmd) => move_whole(env, mm, (rest.start, to), pmd),
    })
}

fn look<M: Mode>(w: &World<M>, mm: MmId, rest: PageRange, to: Vpn) -> Next {
    let (there, target) = w.mms[mm.index()].table.find(to);
    if target.order > 0 && !there.is_none() {
        return Next::Refused(Errno::Eexist);
    }
    let Some(pmd) = w.huge_page(mm, rest.start) else { return Next::Small };
    let (from, pages) = (w.huge_span(rest.start).start, w.huge_span(to));
    let whole = from == rest.start && pages.start == to && rest.pages() >= pages.range().pages();
    match whole && target.order > 0 {
        _ if !pmd.special() && !w.frames.flags(pmd.pfn).has(FrameFlags::EXCLUSIVE) => {
            Next::Refused(Errno::Ebusy)
        }
        true => Next::Whole(pmd),
        false => Next::Part,
    }
}

/// Moves the huge page as a whole, with its folio locked and its object locked for writing.
///
/// Source: mm/huge_memory.c:move_pages_huge_pmd (6.12, 7.3).
fn move_whole(
    env: &mut impl Env,
    mm: MmId,
    (from, to): (Vpn, Vpn),
    pmd: PresentPte,
) -> Result<u64, Errno> {
    let (site, folio) = (Site::MovePagesHugePmd, (!pmd.special()).then_some(pmd.pfn));
    let locked = folio.map(|folio| {
        let object = env.step(site, |w, at| {
            w.get_frame(at, folio);
            w.objects.root(w.frames.place(folio).0)
        });
        env.lock(Lock::Folio(folio));
        env.lock(Lock::RmapWrite(object));
        (folio, object)
    });
    let moved = under_locks(env, mm, (from, to), pmd);
    if let Some((folio, object)) = locked {
        env.unlock(Lock::RmapWrite(object));
        env.unlock(Lock::Folio(folio));
        env.step(Site::FolioPut, |w, at| w.put_frame(at, folio));
    }
    moved
}

/// Takes the entry away, flushes it, and puts it at the target, with both tables locked.
fn under_locks(
    env: &mut impl Env,
    mm: MmId,
    (from, to): (Vpn, Vpn),
    pmd: PresentPte,
) -> Result<u64, Errno> {
    let (site, pages) = (Site::MovePagesHugePmd, env.arch().huge_pages(from));
    let first = Lock::pmd(env.arch(), mm, from.min(to));
    let second = Some(Lock::pmd(env.arch(), mm, from.max(to))).filter(|lock| *lock != first);
    env.lock(first);
    second.into_iter().for_each(|lock| env.lock(lock));
    let cleared = env.step(site, |w, at| clear(w, at, mm, (from, to), pmd));
    if let Cleared::Taken(old) = cleared {
        if env.policies().mutant != Mutant::UffdMoveUnflushed {
            flush_tlb_mm_range(env, FlushRequest::range(site, mm, pages));
        }
        env.step(site, |w, at| put(w, at, mm, (from, to), old));
    }
    second.into_iter().for_each(|lock| env.unlock(lock));
    env.unlock(first);
    match cleared {
        Cleared::Again => Ok(0),
        Cleared::Busy => Err(Errno::Ebusy),
        Cleared::Taken(_) => Ok(pages.pages()),
    }
}

fn clear<M: Mode>(
    w: &mut World<M>,
    at: At,
    mm: MmId,
    (from, to): (Vpn, Vpn),
    pmd: PresentPte,
) -> Cleared {
    let (there, target) = w.mms[mm.index()].table.find(to);
    if w.huge_page(mm, from) != Some(pmd) || !there.is_none() || target.order == 0 {
        return Cleared::Again;
    }
    if !pmd.special() && !is_own(w, pmd) {
        return Cleared::Busy;
    }
    w.set_pmd(at, mm, from, Pte::None);
    Cleared::Taken(pmd)
}

/// Puts the entry at the target. The huge page counts as stored to and is writable, whatever it was
/// before. The entry of the huge zero page only becomes soft-dirty and loses its userfaultfd bit.
fn put<M: Mode>(w: &mut World<M>, at: At, mm: MmId, (from, to): (Vpn, Vpn), old: PresentPte) {
    let soft_dirty = w.config.soft_dirty;
    let new = if old.special() {
        Pte::Present(old.with(PteFlags::SOFT_DIRTY, soft_dirty)).without_uffd_wp()
    } else {
        let (object, index) = w.object_of(mm, to);
        w.frames.update(old.pfn, |f| (f.object, f.index) = (object, index));
        let new = PresentPte::new(old.pfn)
            .with(PteFlags::WRITABLE, true)
            .with(PteFlags::ACCESSED, true)
            .with(PteFlags::DIRTY, true)
            .with(PteFlags::SOFT_DIRTY, soft_dirty);
        Pte::Present(new)
    };
    w.set_pmd(at, mm, to, new);
    note_moved(w, mm, (from, to), old);
}

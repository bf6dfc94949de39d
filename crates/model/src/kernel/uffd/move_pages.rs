//! `UFFDIO_MOVE`: pages move from one place to another as they are, without a copy. The
//! translations of their old place are flushed.

use super::fill::lock_vma_or_mmap;
use crate::addr::{MmId, ObjectId, PageRange, Pfn, Vpn};
use crate::arch::Arch;
use crate::env::{Env, Learnt, Lock};
use crate::kernel::Errno;
use crate::kernel::fault::anon::zero_page_pte;
use crate::kernel::flush::{FlushRequest, flush_tlb_mm_range};
use crate::kernel::gup::maybe_dma_pinned;
use crate::kernel::huge::move_pages::move_huge;
use crate::kernel::huge::run::split_and_put;
use crate::kernel::table::{pte_alloc, pte_offset_map_lock, pte_unmap_unlock};
use crate::kernel::vma_lock::lock_vma_under_rcu;
use crate::machine::frames::FrameFlags;
use crate::machine::vma::Vma;
use crate::machine::world::{At, Ghost, Mode, World};
use crate::policy::{Mutant, UffdFeatures, UffdMove};
use crate::program::Prot;
use crate::pte::{PresentPte, Pte, PteFlags};
use crate::site::Site;

/// Moves the pages of `from`, which lie in one mapping, to `to`, in a mapping that is watched. A
/// page that is not there, or something at the target, ends the call, but the pages before it have
/// moved.
///
/// Source: mm/userfaultfd.c:move_pages (6.12, 7.2; came in 6.8).
pub fn move_pages(env: &mut impl Env, mm: MmId, from: PageRange, to: Vpn) -> Result<(), Errno> {
    if env.policies().uffd_features != UffdFeatures::Asynchronous {
        return Err(Errno::Einval);
    }
    let locks = lock_both(env, mm, from.start, to);
    let moved = move_all(env, mm, from, to);
    locks.into_iter().flatten().for_each(|lock| env.unlock(lock));
    let (done, result) = moved;
    env.step(Site::WakeUserfault, |w, _| w.mms[mm.index()].uffd.wake(PageRange::new(to, done)));
    result
}

/// Takes the locks of both mappings, or `mmap_lock` if one of them is not available.
///
/// Source: mm/userfaultfd.c:uffd_move_lock (6.12, 7.2).
fn lock_both(env: &mut impl Env, mm: MmId, from: Vpn, to: Vpn) -> [Option<Lock>; 2] {
    let lock = lock_vma_or_mmap(env, mm, to);
    let all = Lock::MmapRead(mm);
    let same = env.step(Site::MovePages, |w, _| {
        w.mms[mm.index()].vma(to).is_some_and(|vma| vma.range.contains(from))
    });
    if lock == all || same {
        return [Some(lock), None];
    }
    if lock_vma_under_rcu(env, mm, from) {
        return [Some(Lock::VmaOf(mm, from)), Some(lock)];
    }
    env.unlock(lock);
    env.lock(all);
    [Some(all), None]
}

fn move_all(env: &mut impl Env, mm: MmId, from: PageRange, to: Vpn) -> (u64, Result<(), Errno>) {
    let valid = env.step(Site::MovePages, |w, at| validate_move_areas(w, at, mm, from, to));
    if let Err(error) = valid {
        return (0, Err(error));
    }
    let mut done = 0;
    while done < from.pages() {
        let rest = PageRange { start: from.start.add(done), end: from.end };
        match move_next(env, mm, rest, to.add(done)) {
            Ok(pages) => done += pages,
            Err(error) => return (done, Err(error)),
        }
    }
    (done, Ok(()))
}

/// Checks that the pages may move, and gives the target's mapping an `anon_vma`.
///
/// Source: mm/userfaultfd.c:validate_move_areas, find_vmas_mm_locked (6.12, 7.2).
fn validate_move_areas<M: Mode>(
    w: &mut World<M>,
    at: At,
    mm: MmId,
    from: PageRange,
    to: Vpn,
) -> Result<(), Errno> {
    let target = PageRange::new(to, from.pages());
    let space = &w.mms[mm.index()];
    let mapping = |pages: PageRange| space.vma(pages.start).copied().ok_or(Errno::EnoentUnwatched);
    let (source, destination) = (mapping(from)?, mapping(target)?);
    let has = |vma: &Vma, pages: PageRange| vma.range.intersect(pages) == pages;
    let may = has(&source, from)
        && has(&destination, target)
        && (source.prot, destination.prot) == (Prot::ReadWrite, Prot::ReadWrite)
        && destination.uffd.armed()
        && source.is_locked() == destination.is_locked()
        && source.is_anonymous()
        && destination.is_anonymous();
    if !may {
        return Err(Errno::Einval);
    }
    if destination.anon_vma.is_none() {
        w.prepare_anon_vma(at, mm, to);
    }
    Ok(())
}

/// What to move next.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
enum Next {
    /// A page: its frame, and the object by which rmap finds it.
    Page(Pfn, ObjectId),
    /// A page of this large folio, which is split first.
    Large(Pfn),
    /// The zero page's entry or a swap entry, which no rmap walk finds.
    Entry(Pte),
    /// The move fails with this error.
    Refused(Errno),
}

impl Learnt for Next {
    fn nothing() -> Next {
        Next::Refused(Errno::EnoentSource)
    }
}

/// Moves the first page of `rest`, or as many pages from there on as one flush can cover. Returns
/// how many: 0 if another thread was faster and the caller must look again.
///
/// Source: mm/userfaultfd.c:move_pages_pte (6.12), move_pages_ptes (7.2).
fn move_next(env: &mut impl Env, mm: MmId, rest: PageRange, to: Vpn) -> Result<u64, Errno> {
    if let Some(moved) = move_huge(env, mm, rest, to) {
        return moved;
    }
    let page = rest.start;
    env.step(Site::MovePages, |w, at| pte_alloc(w, at, mm, to, 1)).ok_or(Errno::Enomem)?;
    match env.step(Site::MovePages, |w, _| next(w, mm, page, to)) {
        Next::Refused(error) => Err(error),
        Next::Large(folio) => {
            if !env.try_lock(Site::FolioTryLock, Lock::Folio(folio)) {
                return Ok(0);
            }
            env.step(Site::MovePages, |w, at| w.get_frame(at, folio));
            if split_and_put(env, folio) { Ok(0) } else { Err(Errno::Ebusy) }
        }
        Next::Entry(seen) => {
            let mut moved = false;
            with_tables(env, mm, (page, to), |env| {
                moved = env.step(Site::MovePages, |w, at| move_entry(w, at, mm, (page, to), seen));
                if moved && seen.present().is_some() {
                    flush_tlb_mm_range(env, FlushRequest::page(Site::MovePages, mm, page));
                }
            });
            Ok(u64::from(moved))
        }
        Next::Page(frame, object) => {
            env.lock(Lock::Folio(frame));
            env.lock(Lock::RmapWrite(object));
            let mut moved = 0;
            let run = run_length(env.arch(), rest, to);
            let run = if env.policies().uffd_move == UffdMove::Batched { run } else { 1 };
            with_tables(env, mm, (page, to), |env| {
                moved = move_present_ptes(env, mm, (page, to), (frame, run));
            });
            env.unlock(Lock::RmapWrite(object));
            env.unlock(Lock::Folio(frame));
            Ok(moved)
        }
    }
}

/// How many pages of `rest` have their PTEs in one table here and in one table at the target.
fn run_length(arch: &Arch, rest: PageRange, to: Vpn) -> u64 {
    let span = arch.table_pages(1);
    let left = |page: Vpn| span - page.0 % span;
    rest.pages().min(left(rest.start)).min(left(to))
}

/// Runs `action` with the locks of both tables, if both are there.
fn with_tables<E: Env>(env: &mut E, mm: MmId, (page, to): (Vpn, Vpn), action: impl FnOnce(&mut E)) {
    let span = env.arch().table_pages(1);
    let apart = page.0 / span != to.0 / span;
    let (first, second) = (page.min(to), page.max(to));
    if pte_offset_map_lock(env, Site::MovePages, mm, first, |_, _| ()).is_none() {
        return;
    }
    if apart && pte_offset_map_lock(env, Site::MovePages, mm, second, |_, _| ()).is_none() {
        pte_unmap_unlock(env, mm, first);
        return;
    }
    action(env);
    if apart {
        pte_unmap_unlock(env, mm, second);
    }
    pte_unmap_unlock(env, mm, first);
}

fn next<M: Mode>(w: &World<M>, mm: MmId, page: Vpn, to: Vpn) -> Next {
    if !w.pte(mm, to).is_none() {
        return Next::Refused(Errno::Eexist);
    }
    match w.pte(mm, page) {
        seen @ Pte::Present(pte) if pte.special() => Next::Entry(seen),
        Pte::Present(pte) if is_own(w, pte) && is_large(w, pte.pfn) => {
            Next::Large(w.frames.folio(pte.pfn).0)
        }
        Pte::Present(pte) if is_own(w, pte) => {
            Next::Page(pte.pfn, w.objects.root(w.frames.get(pte.pfn).object))
        }
        seen @ Pte::Swap(swap) if swap.exclusive => {
            match w.swap.get(swap.slot).cached.is_some_and(|frame| is_large(w, frame)) {
                true => Next::Refused(Errno::Ebusy),
                false => Next::Entry(seen),
            }
        }
        Pte::Present(_) | Pte::Swap(_) => Next::Refused(Errno::Ebusy),
        Pte::Migration(_) => Next::Refused(Errno::Eagain),
        Pte::None => Next::Refused(Errno::EnoentSource),
        Pte::Marker(_) | Pte::Table(_) => Next::Refused(Errno::Efault),
    }
}

fn is_large<M: Mode>(w: &World<M>, pfn: Pfn) -> bool {
    w.frames.flags(pfn).has(FrameFlags::LARGE)
}

/// Whether the page is exclusive to the process and not pinned.
pub fn is_own<M: Mode>(w: &World<M>, pte: PresentPte) -> bool {
    w.frames.flags(pte.pfn).has(FrameFlags::EXCLUSIVE) && !maybe_dma_pinned(w, pte.pfn)
}

/// Moves the page in frame `first`, which is locked, and the pages after it, up to `run` in all. It
/// stops at a page that cannot be locked without waiting. Then it flushes what was mapped.
fn move_present_ptes(
    env: &mut impl Env,
    mm: MmId,
    (page, to): (Vpn, Vpn),
    (first, run): (Pfn, u64),
) -> u64 {
    let (mut moved, mut frame) = (0, first);
    while moved < run {
        let places = (page.add(moved), to.add(moved));
        let done = env.step(Site::MovePages, |w, at| move_present_pte(w, at, mm, places, frame));
        if frame != first {
            env.unlock(Lock::Folio(frame));
        }
        moved += u64::from(done);
        if !done || moved == run {
            break;
        }
        let next = env.step(Site::MovePages, |w, _| {
            let small = |pte: &PresentPte| !pte.special() && !is_large(w, pte.pfn);
            w.pte(mm, page.add(moved)).present().filter(small)
        });
        match next {
            Some(pte) if env.try_lock(Site::FolioTryLock, Lock::Folio(pte.pfn)) => frame = pte.pfn,
            _ => break,
        }
    }
    if moved > 0 && env.policies().mutant != Mutant::UffdMoveUnflushed {
        let pages = PageRange::new(page, moved);
        flush_tlb_mm_range(env, FlushRequest::range(Site::MovePages, mm, pages));
    }
    moved
}

/// Moves one page. The new entry is writable, whatever the old one was.
fn move_present_pte<M: Mode>(
    w: &mut World<M>,
    at: At,
    mm: MmId,
    (page, to): (Vpn, Vpn),
    frame: Pfn,
) -> bool {
    let Pte::Present(old) = w.pte(mm, page) else { return false };
    if old.pfn != frame || !is_own(w, old) || !w.pte(mm, to).is_none() {
        return false;
    }
    w.set_pte(at, mm, page, Pte::None);
    let (object, index) = w.object_of(mm, to);
    w.frames.update(old.pfn, |f| (f.object, f.index) = (object, index));
    let new = PresentPte::new(old.pfn)
        .with(PteFlags::WRITABLE, true)
        .with(PteFlags::ACCESSED, true)
        .with(PteFlags::DIRTY, old.dirty())
        .with(PteFlags::SOFT_DIRTY, w.config.soft_dirty);
    w.set_pte(at, mm, to, Pte::Present(new));
    w.ghost.moved(mm, page, to, Some(old.pfn));
    true
}

/// Moves an entry that has no page of the process's own, if it has not changed and nothing is at
/// the target.
///
/// Source: mm/userfaultfd.c:move_zeropage_pte, move_swap_pte (6.12, 7.2).
fn move_entry<M: Mode>(
    w: &mut World<M>,
    at: At,
    mm: MmId,
    (page, to): (Vpn, Vpn),
    old: Pte,
) -> bool {
    if w.pte(mm, page) != old || !w.pte(mm, to).is_none() {
        return false;
    }
    let new = match old {
        Pte::Present(_) => Pte::Present(zero_page_pte(&w.policies)),
        entry if w.config.soft_dirty => entry.soft_dirtied(),
        entry => entry,
    };
    w.set_pte(at, mm, page, Pte::None);
    w.set_pte(at, mm, to, new);
    // Rmap walks for a page in the swap cache look for it at its new place.
    if let Pte::Swap(swap) = old
        && let Some(frame) = w.swap.get(swap.slot).cached
    {
        let (object, index) = w.object_of(mm, to);
        w.frames.update(frame, |f| (f.object, f.index) = (object, index));
    }
    let frame = w.frame_behind(new);
    w.ghost.moved(mm, page, to, frame);
    true
}

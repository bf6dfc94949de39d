//! A collapse makes a huge page of pages that are mapped one by one. This file has `MADV_COLLAPSE`,
//! and what [khugepaged](super::khugepaged) shares with it.
//!
//! The pages are copied. Their table is first taken out of the page table, so that nobody can find
//! it. Then CPUs that may have it cached are flushed, and the collapse waits for CPUs that walk
//! page tables without a lock, with interrupts off. The table is kept for when the huge page is
//! mapped page by page again.

use super::anon::map_anon_folio_pmd;
use super::khugepaged::Tally;
use super::{Found, find};
use crate::addr::{MmId, PageRange, Pfn, Vpn};
use crate::env::{Env, Learnt, Lock};
use crate::event::EventKind;
use crate::kernel::Errno;
use crate::kernel::alloc::{Request, with_frames};
use crate::kernel::fault::Fault;
use crate::kernel::fault::swapin::do_swap_page;
use crate::kernel::flush::{FlushRequest, flush_tlb_mm_range};
use crate::kernel::lru::{folio_add_lru, lru_add_drain, lru_add_drain_all};
use crate::kernel::mlock_batch::folio_remove_rmap;
use crate::kernel::swap_cache::{free_swap_cache, swap_cache_references};
use crate::kernel::table::unlink_table;
use crate::kernel::table_sync::tlb_remove_table_sync_one;
use crate::kernel::vma_lock::vma_start_write;
use crate::machine::frames::FrameFlags;
use crate::machine::lockless::{TakenTable, Walked};
use crate::machine::vma::{HugeAdvice, Vma};
use crate::machine::world::{At, Ghost, Mode, World};
use crate::policy::{Collapse, Mutant, UffdCollapse};
use crate::program::Prot;
use crate::pte::{PresentPte, Pte};
use crate::site::Site;

/// Collapses all pages of the ranges that can fill a huge page, mapping by mapping, until a range
/// has a hole. Returns whether no range had one.
///
/// Source: mm/madvise.c:madvise_walk_vmas, madvise_collapse (6.1 to 7.3).
pub fn madvise_collapse(
    env: &mut impl Env,
    mm: MmId,
    mut ranges: impl Iterator<Item = PageRange>,
) -> Result<bool, Errno> {
    if env.policies().collapse == Collapse::None {
        return Err(Errno::Einval);
    }
    env.lock(Lock::MmapRead(mm));
    let mut covered = Ok(true);
    while let (Ok(true), Some(range)) = (covered, ranges.next()) {
        covered = collapse_range(env, mm, range);
    }
    env.unlock(Lock::MmapRead(mm));
    covered
}

/// Collapses one of the ranges, with `mmap_lock` held.
fn collapse_range(env: &mut impl Env, mm: MmId, range: PageRange) -> Result<bool, Errno> {
    let (mut rest, mut covered, mut ended) = (range, true, Ok(()));
    while let Some(vma) = env.step(Site::MadviseCollapse, |w, at| {
        w.mmap_assert_locked(at, mm);
        let vma = w.mms[mm.index()].vmas().iter().find(|vma| vma.range.overlaps(rest));
        vma.copied()
    }) {
        let part = vma.range.intersect(rest);
        covered &= part.start == rest.start;
        ended = collapse_vma(env, mm, &vma, part);
        rest.start = part.end;
        if ended.is_err() || rest.is_empty() {
            break;
        }
    }
    ended.map(|()| covered && rest.is_empty())
}

/// Collapses the part `range` of one mapping.
///
/// Source: mm/khugepaged.c:madvise_collapse, madvise_collapse_errno (6.1 to 7.3).
fn collapse_vma(env: &mut impl Env, mm: MmId, vma: &Vma, range: PageRange) -> Result<(), Errno> {
    let pages = env.arch().table_pages(1);
    let up = |page: Vpn| Vpn(page.0.next_multiple_of(pages));
    let down = |page: Vpn| Vpn(page.0 / pages * pages);
    let fits = up(vma.range.start) < down(vma.range.end);
    if vma.huge == HugeAdvice::Unwanted || vma.anon_vma.is_none() || !fits {
        return Err(Errno::Einval);
    }
    let (start, end) = (up(range.start), down(range.end));
    let looks_first = env.policies().collapse == Collapse::NothingIsDone;
    if looks_first && start >= end {
        return Ok(());
    }
    lru_add_drain_all(env);
    if start > end {
        return Err(Errno::Einval);
    }
    let mut ended = Ok(());
    let mut next = start;
    while next < end {
        match collapse_one(env, Collapser::Madvise, mm, PageRange::new(next, pages)) {
            Ok(()) => {}
            Err(Failed::GoesOn(error)) => ended = Err(error),
            Err(Failed::Ends(error)) => return Err(error),
        }
        next = next.add(pages);
    }
    ended
}

/// What starts a collapse.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Collapser {
    /// `MADV_COLLAPSE`, wherever huge pages are not unwanted.
    Madvise,
    /// The kernel's thread khugepaged, where huge pages are wanted and pages were used ([`Tally`]).
    Khugepaged,
}

/// Returns the mapping, if it can still have a huge page for `pages`. `mmap_lock` may have been
/// given back meanwhile.
///
/// Source: mm/khugepaged.c:hugepage_vma_revalidate (5.10 to 7.3).
fn revalidate(env: &mut impl Env, by: Collapser, mm: MmId, pages: PageRange) -> Option<Vma> {
    let thp = env.config().thp;
    env.step(Site::HugepageVmaRevalidate, |w, at| {
        w.mmap_assert_locked(at, mm);
        let vma = w.mms[mm.index()].vma(pages.start).copied();
        vma.filter(|vma| {
            let wanted = match by {
                Collapser::Madvise => vma.huge != HugeAdvice::Unwanted,
                Collapser::Khugepaged => vma.may_be_huge(thp),
            };
            wanted && vma.range.intersect(pages) == pages && vma.anon_vma.is_some()
        })
    })
}

/// Why the pages of one huge page were not collapsed.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Failed {
    /// The call fails with this error and still tries the next huge page.
    GoesOn(Errno),
    /// The call fails with this error and ends.
    Ends(Errno),
}

/// What the scan of a table found.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
enum Scan {
    /// A huge page is already there.
    Huge,
    /// The pages can be collapsed. `swapped` says whether some are in swap.
    Pages {
        swapped: bool,
    },
    No(Failed),
}

impl Learnt for Scan {
    fn nothing() -> Scan {
        Scan::Huge
    }
}

/// Collapses the pages of one huge page. `mmap_lock` is held before and after, but not in between.
pub(super) fn collapse_one(
    env: &mut impl Env,
    by: Collapser,
    mm: MmId,
    pages: PageRange,
) -> Result<(), Failed> {
    // 1. Are there pages that nobody else holds?
    if revalidate(env, by, mm, pages).is_none() {
        return Err(Failed::Ends(Errno::Einval));
    }
    let table = Lock::page_table(env.arch(), mm, pages.start);
    env.lock(table);
    let found = env.step(Site::HpageCollapseScanPmd, |w, _| scan(w, by, mm, pages));
    env.unlock(table);
    let swapped = match found {
        Scan::Huge => return Ok(()),
        Scan::No(failed) => return Err(failed),
        Scan::Pages { swapped } => swapped,
    };
    env.unlock(Lock::MmapRead(mm));
    let collapsed = collapse_huge_page(env, by, mm, pages, swapped);
    env.lock(Lock::MmapRead(mm));
    collapsed.map_err(Failed::GoesOn)
}

/// Makes the huge page, and replaces the table by it.
///
/// Source: mm/khugepaged.c:collapse_huge_page (5.10 to 7.3).
fn collapse_huge_page(
    env: &mut impl Env,
    by: Collapser,
    mm: MmId,
    pages: PageRange,
    swapped: bool,
) -> Result<(), Errno> {
    // 2. The huge page, and the pages in swap.
    let (site, order) = (Site::CollapseHugePage, env.arch().order(2));
    let request = Request::page(mm, pages.start, FrameFlags::SWAP_BACKED).of_order(order);
    let folio = with_frames(env, site, request, |w, at, door| door.take(w, at));
    let Some(folio) = folio else { return Err(Errno::Enomem) };
    if swapped {
        swap_in(env, by, mm, pages);
    }
    // 3. From here on nobody faults on the mapping, and nobody walks to it from a page.
    env.lock(Lock::MmapWrite(mm));
    let collapsed = match revalidate(env, by, mm, pages) {
        None => Err(Errno::Einval),
        Some(vma) => {
            vma_start_write(env, mm, vma.range);
            let own = vma.anon_vma.unwrap_or_default();
            let root = env.step(site, |w, _| w.objects.root(own));
            env.lock(Lock::RmapWrite(root));
            let collapsed = replace(env, by, (mm, &vma), pages, folio);
            env.unlock(Lock::RmapWrite(root));
            collapsed
        }
    };
    env.unlock(Lock::MmapWrite(mm));
    if collapsed.is_err() {
        env.step(Site::FolioPut, |w, at| w.put_frame(at, folio));
    }
    collapsed
}

/// Looks at the entries of a table, to decide whether they can be collapsed.
///
/// Source: mm/khugepaged.c:khugepaged_scan_pmd (5.10), hpage_collapse_scan_pmd (6.1, 6.12),
/// collapse_scan_pmd (7.3).
fn scan<M: Mode>(w: &World<M>, by: Collapser, mm: MmId, pages: PageRange) -> Scan {
    let rule = w.policies.collapse;
    match find(w, mm, pages.start) {
        Found::Huge(_) => return Scan::Huge,
        Found::Nothing | Found::Migrating if rule == Collapse::NothingIsDone => {
            return Scan::No(Failed::GoesOn(Errno::Einval));
        }
        Found::Nothing | Found::Migrating => return Scan::No(Failed::Ends(Errno::Einval)),
        Found::Table => {}
    }
    let armed = w.mms[mm.index()].vma(pages.start).is_some_and(|vma| vma.uffd.armed());
    let mut tally = Tally::default();
    for page in pages.iter() {
        let pte = w.pte(mm, page);
        tally.count(w, pte);
        match pte {
            // A missing page or a page of zeros is for the userfaultfd's reader to fill or to
            // protect (userfaultfd_armed).
            Pte::None if armed => return Scan::No(none_watched(w.policies.uffd_collapse)),
            Pte::Present(pte) if armed && pte.special() => {
                return Scan::No(none_watched(w.policies.uffd_collapse));
            }
            Pte::Present(pte) if pte.uffd_wp() => {
                return Scan::No(Failed::GoesOn(Errno::Einval));
            }
            Pte::Swap(swap) if swap.uffd_wp => {
                return Scan::No(Failed::GoesOn(Errno::Einval));
            }
            Pte::Present(pte) if !pte.special() && !is_free_to_move(w, pte.pfn) => {
                return Scan::No(Failed::GoesOn(Errno::Eagain));
            }
            Pte::Swap(_) | Pte::Present(_) | Pte::None => {}
            Pte::Migration(_) | Pte::Marker(_) | Pte::Table(_) => {
                return Scan::No(Failed::GoesOn(Errno::Einval));
            }
        }
    }
    if tally.is_left(w, by, pages) {
        return Scan::No(Failed::GoesOn(Errno::Einval));
    }
    Scan::Pages { swapped: tally.swapped > 0 }
}

/// How a collapse fails on a missing page that userfaultfd watches: the call ends.
///
/// Source: mm/khugepaged.c:madvise_collapse (6.1 to 7.2).
const fn none_watched(rule: UffdCollapse) -> Failed {
    Failed::Ends(match rule {
        UffdCollapse::Invalid => Errno::Einval,
        UffdCollapse::Busy => Errno::Ebusy,
    })
}

/// Whether the page is on the LRU and not locked, and only its mappings and the swap cache hold it.
fn is_free_to_move<M: Mode>(w: &World<M>, pfn: Pfn) -> bool {
    let folio = w.frames.folio(pfn).0;
    let held = w.frames.folio_maps(folio) + swap_cache_references(w, folio);
    w.frames.flags(folio).on_lru()
        && w.frames.get(folio).refs == held
        && !w.ghost.is_locked(Lock::Folio(folio))
}

/// Reads the pages that are in swap. If one cannot be read, a later check finds that. The process
/// takes no fault.
///
/// Source: mm/khugepaged.c:__collapse_huge_page_swapin (5.10 to 7.3).
fn swap_in(env: &mut impl Env, by: Collapser, mm: MmId, pages: PageRange) {
    env.lock(Lock::MmapRead(mm));
    if let Some(vma) = revalidate(env, by, mm, pages) {
        for page in pages.iter() {
            let swapped = env.step(Site::CollapseHugePage, |w, _| match w.pte(mm, page) {
                Pte::Swap(swap) => Some(swap),
                _ => None,
            });
            if let Some(swap) = swapped
                && do_swap_page(env, Fault::new(mm, page, false), &vma, swap).is_err()
            {
                break;
            }
        }
        lru_add_drain(env);
    }
    env.unlock(Lock::MmapRead(mm));
}

/// Replaces the table by the huge page. Fails and leaves everything as it was if the table is gone,
/// or if one of its pages can no longer be copied.
///
/// Source: mm/khugepaged.c:collapse_huge_page, __collapse_huge_page_isolate,
/// __collapse_huge_page_copy (5.10 to 7.3).
fn replace(
    env: &mut impl Env,
    by: Collapser,
    (mm, vma): (MmId, &Vma),
    pages: PageRange,
    folio: Pfn,
) -> Result<(), Errno> {
    let site = Site::CollapseHugePage;
    let (pmd, table) =
        (Lock::pmd(env.arch(), mm, pages.start), Lock::page_table(env.arch(), mm, pages.start));
    env.lock(pmd);
    env.lock(table);
    // 1. Take the table out, so that nobody finds it.
    let taken = env.step(Site::PmdpCollapseFlush, |w, at| take_table(w, at, mm, pages));
    let mut replaced = Err(Errno::Einval);
    if taken {
        let request = FlushRequest::range(Site::PmdpCollapseFlush, mm, pages);
        if env.policies().mutant != Mutant::CollapseUnflushed {
            flush_tlb_mm_range(env, FlushRequest { tables_gone: true, ..request });
        }
        tlb_remove_table_sync_one(env, mm);
        // 2. Check that all pages can be copied, or put the table back.
        replaced = env.step(site, |w, at| isolate(w, at, by, (mm, vma)));
        // 3. Copy the pages and give them up.
        if replaced.is_ok() {
            let writable = vma.prot == Prot::ReadWrite;
            env.step(site, |w, at| {
                copy(w, at, mm, folio);
                map_anon_folio_pmd(w, at, mm, pages.start, (folio, writable));
            });
        }
    }
    env.unlock(table);
    env.unlock(pmd);
    replaced
}

/// Takes the table of these pages out of the page table. Returns false if there is no table.
fn take_table<M: Mode>(w: &mut World<M>, at: At, mm: MmId, pages: PageRange) -> bool {
    if find(w, mm, pages.start) != Found::Table {
        return false;
    }
    let entries = pages.iter().map(|page| (page, w.pte(mm, page)));
    let entries: Vec<(Vpn, Pte)> = entries.filter(|(_, pte)| !pte.is_none()).collect();
    entries.iter().for_each(|(page, _)| w.set_pte(at, mm, *page, Pte::None));
    w.mms[mm.index()].taken = Some(TakenTable { pages, entries });
    unlink_table(w, at, mm, pages.start, 1);
    true
}

/// Checks that everything in the table can be copied, or puts the table back.
fn isolate<M: Mode>(
    w: &mut World<M>,
    at: At,
    by: Collapser,
    (mm, vma): (MmId, &Vma),
) -> Result<(), Errno> {
    let Some(taken) = w.mms[mm.index()].taken.take() else { return Err(Errno::Einval) };
    let whole = taken.entries.len() as u64 == taken.pages.pages();
    let mut tally = Tally::of_empty(taken.pages.pages() - taken.entries.len() as u64);
    taken.entries.iter().for_each(|(_, pte)| tally.count(w, *pte));
    let movable = match vma.uffd.armed() && !whole || tally.is_left(w, by, taken.pages) {
        true => Err(Errno::Einval),
        false => taken.entries.iter().try_for_each(|(_, pte)| is_movable(w, *pte, vma)),
    };
    if movable.is_ok() {
        w.mms[mm.index()].taken = Some(taken);
    } else {
        let start = taken.pages.start;
        let _ = w.mms[mm.index()].table.allocate(start, 1, &w.room);
        w.table_becomes(mm, Walked::Out(start), Walked::At(start));
        taken.entries.iter().for_each(|(page, pte)| w.set_pte(at, mm, *page, *pte));
    }
    movable
}

/// Whether the entry's page can be copied. An empty entry and the zero page need no copy. (Kernels
/// isolate the page, which takes one more reference.)
fn is_movable<M: Mode>(w: &World<M>, pte: Pte, vma: &Vma) -> Result<(), Errno> {
    match pte {
        Pte::Present(pte) if pte.uffd_wp() || vma.uffd.armed() && pte.special() => {
            Err(Errno::Einval)
        }
        Pte::Present(pte) if pte.special() || is_free_to_move(w, pte.pfn) => Ok(()),
        Pte::Present(_) => Err(Errno::Eagain),
        Pte::None => Ok(()),
        Pte::Swap(_) | Pte::Migration(_) | Pte::Marker(_) | Pte::Table(_) => Err(Errno::Einval),
    }
}

/// Copies the table's pages into the folio, and deposits the table.
fn copy<M: Mode>(w: &mut World<M>, at: At, mm: MmId, folio: Pfn) {
    let Some(TakenTable { pages, entries }) = w.mms[mm.index()].taken.take() else { return };
    let mut old: Vec<Option<PresentPte>> = vec![None; pages.pages() as usize];
    for (page, pte) in entries {
        let pte = pte.present().filter(|pte| !pte.special());
        old[page.since(pages.start) as usize] = pte;
    }
    for (page, old) in pages.iter().zip(old) {
        let to = w.frame_in(folio, page.since(pages.start));
        let Some(PresentPte { pfn: from, .. }) = old else {
            w.frames.set_flags(to, FrameFlags::ZERO_FILLED, true);
            w.ghost.zeroed(to);
            w.emit(at, EventKind::Zero { page, frame: to });
            continue;
        };
        let zeros = w.frames.flags(from).has(FrameFlags::ZERO_FILLED);
        w.frames.set_flags(to, FrameFlags::ZERO_FILLED, zeros);
        w.ghost.copied(mm, page, from, to);
        w.emit(at, EventKind::Copy { page, from, to });
        let locked = w.locks(mm, page);
        give_up(w, at, from, locked);
    }
    w.ghost.table_freed(mm, pages.start, 1);
    let number = w.mms[mm.index()].deposited;
    w.table_becomes(mm, Walked::Out(pages.start), Walked::PutBy(number));
    w.deposit(mm);
}

/// Gives up a page that was copied: puts it back on the LRU and drops its mapping.
///
/// Source: mm/khugepaged.c:release_pte_page, mm/swap_state.c:free_page_and_swap_cache (6.1 to 7.3).
fn give_up<M: Mode>(w: &mut World<M>, at: At, page: Pfn, locked: bool) {
    let large = w.frames.flags(page).has(FrameFlags::LARGE);
    if !large {
        w.lru_del(page, FrameFlags::default());
        folio_add_lru(w, at.site(Site::FolioAddLru), page);
    }
    folio_remove_rmap(w, at, page, locked);
    w.frames.set_flags(page, FrameFlags::EXCLUSIVE, false);
    free_swap_cache(w, at, page);
    w.put_frame(at, page);
}

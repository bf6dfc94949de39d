//! `mremap(MREMAP_MAYMOVE | MREMAP_FIXED)`: moves pages to another address.
//!
//! The old addresses are flushed before the page-table locks are given back. Otherwise the pages
//! could be freed through the new address while a CPU still has the old one cached.

use crate::addr::{MmId, ObjectId, PageRange, Vpn};
use crate::env::{Env, Lock};
use crate::kernel::Errno;
use crate::kernel::deferred::flush_owed_at;
use crate::kernel::flush::{FlushRequest, flush_tlb_mm_range};
use crate::kernel::gather::Gather;
use crate::kernel::huge::remap::move_huge_pmd;
use crate::kernel::huge::split::{split_huge_pmd, split_outer_borders};
use crate::kernel::map::{detach, unmap_region};
use crate::kernel::mlock::munlock_vmas;
use crate::kernel::table::{pte_alloc, pte_offset_map_lock, pte_unmap_unlock, table_relinked};
use crate::kernel::unmap_batch::flush_tlb_batched_pending;
use crate::kernel::vma_lock::{new_vma_start_write, vmas_start_write};
use crate::machine::lockless::Walked;
use crate::machine::vma::Vma;
use crate::machine::world::{At, Ghost, Mode, World};
use crate::policy::{MoveRange, MoveStart, MoveTables, Mutant, SoftDirtyMerge, UffdRemap};
use crate::pte::Pte;
use crate::site::Site;
use smallvec::SmallVec;

/// Moves the pages of `from` to `to`.
///
/// Source: mm/mremap.c:mremap_to, move_vma, move_page_tables (5.10 to 7.3), remap_move (7.3).
pub fn mremap(env: &mut impl Env, mm: MmId, from: PageRange, to: Vpn) -> Result<(), Errno> {
    if from.is_empty() || from.overlaps(PageRange::new(to, from.pages())) {
        return Err(Errno::Einval);
    }
    env.lock(Lock::MmapWrite(mm));
    let moved = match env.policies().move_range {
        MoveRange::OneMapping => move_vma(env, mm, from, to),
        MoveRange::EachMapping => move_vmas(env, mm, from, to),
    };
    env.unlock(Lock::MmapWrite(mm));
    moved
}

/// Moves every mapping in `from`; its first page has to be mapped. A mapping that userfaultfd
/// watches moves only alone. If there are others, the call fails at it, after it has moved those
/// before it.
///
/// Source: mm/mremap.c:remap_move, vma_multi_allowed (7.2).
fn move_vmas(env: &mut impl Env, mm: MmId, from: PageRange, to: Vpn) -> Result<(), Errno> {
    let mut rest = from;
    while let Some((part, armed)) = env.step(Site::MovePtes, |w, _| {
        let vma = w.mms[mm.index()].vmas_in(rest).next()?;
        Some((vma.range, vma.uffd.armed()))
    }) {
        if rest == from && part.start != from.start {
            break;
        }
        if armed && part != from {
            return Err(Errno::Efault);
        }
        move_vma(env, mm, part, to.add(part.start.since(from.start)))?;
        rest.start = part.end;
    }
    if rest == from { Err(Errno::Efault) } else { Ok(()) }
}

/// Moves the pages of `from`, which has to lie in one mapping.
fn move_vma(env: &mut impl Env, mm: MmId, from: PageRange, to: Vpn) -> Result<(), Errno> {
    let target = PageRange::new(to, from.pages());
    // 1. Unmap the target.
    vmas_start_write(env, mm, target);
    split_outer_borders(env, mm, target);
    munlock_vmas(env, mm, target);
    let gone = detach(env, mm, target);
    unmap_region(env, Gather::open, mm, &gone);
    flush_owed_at(env, mm, target);
    // 2. Copy the mapping. Both exist for a while, and nobody faults on either.
    vmas_start_write(env, mm, from);
    new_vma_start_write(env, mm, |space| Some(moved(space.vma(from.start)?, from, target)));
    let copied = env.step(Site::MovePtes, |w, at| copy_vma(w, at, mm, from, target));
    let Some(walks) = copied else { return Err(Errno::Efault) };
    // 3. Move the translations, table by table; then remove the empty source.
    move_page_tables(env, mm, from, to, walks)?;
    env.step(Site::MovePtes, |w, _| {
        w.mms[mm.index()].move_target = None;
        // The reader of the userfaultfd does not hear of moves (UFFD_FEATURE_EVENT_REMAP). The
        // mapping at the target is no longer watched, including what it merged with
        // (mremap_userfaultfd_prep).
        if let Some(pages) = w.mms[mm.index()].unwatch(target.start) {
            w.ghost.let_go(mm, pages);
        }
    });
    split_outer_borders(env, mm, from);
    let left = detach(env, mm, from);
    unmap_region(env, Gather::open, mm, &left);
    Ok(())
}

/// How walks from frames meet pages that move, and what the pages lose.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Walks {
    /// The objects whose locks keep walks out (mm/mremap.c:take_rmap_locks): the file, and the root
    /// of the mapping's own pages.
    roots: SmallVec<[ObjectId; 2]>,
    /// Whether walks look at the new mapping before the old one. Then they always have to be kept
    /// out.
    look_there_first: bool,
    /// Whether pages lose their protection by userfaultfd.
    ///
    /// Source: fs/userfaultfd.c:vma_has_uffd_without_event_remap (6.12, 7.2).
    clears_uffd_wp: bool,
}

impl Walks {
    /// Runs `action`. `out`: with walks kept out.
    fn kept_out<E: Env>(
        &self,
        env: &mut E,
        out: bool,
        action: impl FnOnce(&mut E) -> bool,
    ) -> bool {
        let roots = if out { &self.roots[..] } else { &[] };
        roots.iter().for_each(|root| env.lock(Lock::RmapWrite(*root)));
        let done = action(env);
        roots.iter().rev().for_each(|root| env.unlock(Lock::RmapWrite(*root)));
        done
    }
}

/// Creates a mapping at `target` like that of `from`, which has to lie in one mapping. Walks look
/// at the new mapping after the old one, unless the new one merged with a mapping that comes before
/// the old one.
///
/// Source: mm/mmap.c:copy_vma (5.10), mm/vma.c:copy_vma (6.18): need_rmap_locks.
fn copy_vma<M: Mode>(
    w: &mut World<M>,
    at: At,
    mm: MmId,
    from: PageRange,
    target: PageRange,
) -> Option<Walks> {
    w.vma_assert_write_locked(at, mm, from);
    let old = *w.mms[mm.index()].vma(from.start)?;
    let roots =
        old.file.into_iter().chain(old.anon_vma.map(|object| w.objects.root(object))).collect();
    if old.range.intersect(from) != from {
        return None;
    }
    let new = moved(&old, from, target);
    let soft_dirty = soft_dirty_there(w, mm, &new);
    w.insert_vma(mm, Vma { soft_dirty, ..new });
    let mm = &mut w.mms[mm.index()];
    mm.move_target = Some(target);
    let became_one = mm.vma(target.start).filter(|new| new.range != target);
    let look_there_first = became_one.is_some_and(|new| new.pgoff <= old.pgoff);
    let clears_uffd_wp = w.policies.uffd_remap == UffdRemap::Clear && old.uffd.armed();
    Some(Walks { roots, look_there_first, clears_uffd_wp })
}

/// Whether the mapping that `new` becomes, perhaps merged with a neighbour, counts as newer than
/// the last clear_refs. A neighbour that is there keeps its state (`soft-dirty-merge`).
fn soft_dirty_there<M: Mode>(w: &World<M>, mm: MmId, new: &Vma) -> bool {
    let space = &w.mms[mm.index()];
    let range = space.merged(*new, (&w.policies).into()).range;
    let there = match w.policies.soft_dirty_merge {
        SoftDirtyMerge::Changed if range.start < new.range.start => space.vma(range.start),
        SoftDirtyMerge::Changed if range.end > new.range.end => space.vma(new.range.end),
        _ => None,
    };
    there.map_or(new.soft_dirty, |there| there.soft_dirty)
}

/// The part `from` of a mapping, moved to `target`. Anonymous memory without pages gets the offset
/// that it would have if it had been mapped there.
fn moved(vma: &Vma, from: PageRange, target: PageRange) -> Vma {
    let part = vma.cut(from);
    let keeps = part.file.or(part.anon_vma).is_some();
    let pgoff = if keeps { part.pgoff } else { target.start.0 };
    Vma { range: target, pgoff, turn: 0, ..part }
}

/// Moves the contents of the page tables. Walks from frames are kept out while a whole table moves.
///
/// Source: mm/mremap.c:move_page_tables (5.10), move_pgt_entry (6.18), move_ptes. (Since 5.11, a
/// whole table of the third level, 1 GiB, moves at once. That is not modelled.)
fn move_page_tables(
    env: &mut impl Env,
    mm: MmId,
    from: PageRange,
    to: Vpn,
    walks: Walks,
) -> Result<(), Errno> {
    let upper_first = env.policies().move_tables == MoveTables::UpperFirst;
    let span = env.arch().table_pages(1);
    let next_table = |page: Vpn| Vpn((page.0 / span + 1) * span);
    let (mut old, mut new) = realigned(env, mm, from, to);
    while old < from.end {
        let extent = (next_table(old).min(from.end).since(old)).min(next_table(new).since(new));
        let part = PageRange::new(old, extent);
        if extent == span {
            let whole = |env: &mut _| move_huge_pmd(env, mm, old, new, walks.clears_uffd_wp);
            if walks.kept_out(env, walks.look_there_first, whole) {
                (old, new) = (old.add(extent), new.add(extent));
                continue;
            }
        }
        split_huge_pmd(env, Site::MovePageTables, mm, old);
        while env.step(Site::MovePtes, |w, at| {
            let upper = upper_first && w.mms[mm.index()].table.has_table(old, 2);
            let made = !upper || pte_alloc(w, at, mm, new, 3).is_some();
            made && w.mms[mm.index()].table.has_table(old, 1)
        }) {
            let whole = |env: &mut _| move_table(env, mm, part, new);
            // Entry by entry if each loses its bit.
            if extent == span && !walks.clears_uffd_wp && walks.kept_out(env, true, whole) {
                break;
            }
            env.step(Site::MovePtes, |w, at| pte_alloc(w, at, mm, new, 1)).ok_or(Errno::Enomem)?;
            let each = |env: &mut _| move_ptes(env, mm, part, new, walks.clears_uffd_wp);
            if walks.kept_out(env, walks.look_there_first, each) {
                break;
            }
        }
        (old, new) = (old.add(extent), new.add(extent));
    }
    Ok(())
}

/// The start of the move. It is the border of the page table if both addresses have the same offset
/// in their tables, the move reaches the table's end, and nothing is mapped in the table before it,
/// at either address. Then the table moves as a whole.
///
/// Source: mm/mremap.c:try_realign_addr, can_align_down (6.12, 7.3), can_realign_addr (7.3).
fn realigned(env: &mut impl Env, mm: MmId, from: PageRange, to: Vpn) -> (Vpn, Vpn) {
    let span = env.arch().table_pages(1);
    let before = from.start.0 % span;
    let mutual = before != 0 && before == to.0 % span;
    let worthwhile = mutual && from.pages() >= span - before;
    if !worthwhile || env.policies().move_start == MoveStart::AsGiven {
        return (from.start, to);
    }
    let free_below = env.step(Site::MovePtes, |w, _| {
        let mm = &w.mms[mm.index()];
        [from.start, to].into_iter().all(|start| {
            let below = PageRange { start: Vpn(start.0 - before), end: start };
            mm.vma(start).is_some_and(|vma| vma.range.start == start)
                && mm.vmas_in(below).next().is_none()
        })
    });
    let back = if free_below { before } else { 0 };
    (Vpn(from.start.0 - back), Vpn(to.0 - back))
}

/// Moves a whole last-level table at once, and flushes with the locks of the tables above held.
/// Returns whether it moved.
///
/// Source: mm/mremap.c:move_normal_pmd (5.10, 6.18).
fn move_table(env: &mut impl Env, mm: MmId, part: PageRange, to: Vpn) -> bool {
    let (old, new) = (Lock::pmd(env.arch(), mm, part.start), Lock::pmd(env.arch(), mm, to));
    env.lock(old);
    if new != old {
        env.lock(new);
    }
    let moved = env.step(Site::MovePtes, |w, at| {
        let made = pte_alloc(w, at, mm, to, 2);
        if made.is_none() || !w.mms[mm.index()].table.move_leaf(part.start, to) {
            return false;
        }
        table_relinked(w, at);
        w.table_becomes(mm, Walked::At(part.start), Walked::At(to));
        for page in part.iter() {
            let target = to.add(page.since(part.start));
            w.note_unset(at, mm, page, w.pte(mm, target));
            note_moved(w, mm, page, target);
        }
        true
    });
    if moved && env.policies().mutant != Mutant::TableMovedUnflushed {
        flush_tlb_mm_range(env, FlushRequest::range(Site::MovePtes, mm, part));
    }
    if new != old {
        env.unlock(new);
    }
    env.unlock(old);
    moved
}

/// Moves the PTEs of one table. Returns whether both tables were there.
fn move_ptes(env: &mut impl Env, mm: MmId, part: PageRange, to: Vpn, clears: bool) -> bool {
    let span = env.arch().table_pages(1);
    let apart = part.start.0 / span != to.0 / span;
    if pte_offset_map_lock(env, Site::MovePtes, mm, part.start, |_, _| ()).is_none() {
        return false;
    }
    if apart && pte_offset_map_lock(env, Site::MovePtes, mm, to, |_, _| ()).is_none() {
        pte_unmap_unlock(env, mm, part.start);
        return false;
    }
    flush_tlb_batched_pending(env, mm);
    let mut moved_present = false;
    for page in part.iter() {
        let target = to.add(page.since(part.start));
        moved_present |= env.step(Site::MovePtes, |w, at| {
            let pte = w.pte(mm, page);
            if !pte.is_none() {
                let marks = w.config.soft_dirty;
                let moved = if marks { pte.soft_dirtied() } else { pte };
                w.set_pte(at, mm, page, Pte::None);
                w.set_pte(at, mm, target, if clears { moved.without_uffd_wp() } else { moved });
                note_moved(w, mm, page, target);
            }
            let spares_aged = w.policies.mutant == Mutant::AgedUnflushed;
            pte.present().is_some_and(|pte| pte.accessed() || !spares_aged)
        });
    }
    let flush = FlushRequest::range(Site::MovePtes, mm, part);
    let too_late = env.policies().mutant == Mutant::MoveUnlocked;
    if moved_present && !too_late {
        flush_tlb_mm_range(env, flush);
    }
    if apart {
        pte_unmap_unlock(env, mm, to);
    }
    pte_unmap_unlock(env, mm, part.start);
    if moved_present && too_late {
        flush_tlb_mm_range(env, flush);
    }
    true
}

/// Notes that the contents of the page are found at its new address from now on. (Its frame keeps
/// its index: the new mapping has it there, too.)
fn note_moved<M: Mode>(w: &mut World<M>, mm: MmId, from: Vpn, to: Vpn) {
    let frame = w.frame_behind(w.pte(mm, to));
    w.ghost.moved(mm, from, to, frame);
}

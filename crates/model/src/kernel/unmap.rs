//! Removes PTEs that a walk from their folio found, and restores them.
//!
//! The order is always the same. The PTE is cleared, so that a CPU without the translation faults.
//! Its translation is flushed now, or the flush is deferred into a batch
//! ([`crate::kernel::unmap_batch`]). Then the entry that a fault should find takes its place, and
//! the folio loses the mapping. Reclaim leaves a swap entry, or nothing. A split or a migration
//! leaves a migration entry, which [`remove_migration_pte`] replaces by a translation of the
//! folio's destination.
//!
//! Source: mm/rmap.c:try_to_unmap_one (5.10 to 7.3), try_to_migrate_one (6.1 to 7.3);
//! mm/migrate.c:remove_migration_pte (5.10 to 7.3).

use crate::addr::{MmId, PageRange, Pfn, Vpn};
use crate::env::Env;
use crate::kernel::deferred::owes;
use crate::kernel::flush::{FlushRequest, arch_tlbbatch_should_defer, flush_tlb_mm_range};
use crate::kernel::gup::maybe_dma_pinned;
use crate::kernel::huge::entry_of;
use crate::kernel::mlock_batch::{folio_remove_rmap, mapped_again};
use crate::kernel::rmap::{Place, page_vma_mapped_walk};
use crate::kernel::table::{pte_accessible, pte_unmap_unlock};
use crate::kernel::unmap_batch::set_tlb_ubc_flush_pending;
use crate::kernel::zap::marks_protection;
use crate::machine::frames::{Frame, FrameFlags, ZERO_PAGE};
use crate::machine::unmap_batch::Batch;
use crate::machine::world::{At, Ghost, Mode, World};
use crate::policy::{
    AnonExclusive, LazyfreeHeld, Mutant, Policies, RefaultFlush, SplitFlush, SplitRemap,
    SplitZeros, UnmapBatching, UnmapFlush,
};
use crate::program::Prot;
use crate::pte::{Marker, MigrationPte, MigrationRight, PresentPte, Pte, PteFlags, SwapPte};
use crate::site::Site;
use std::ops::Range;

/// The purpose of unmapping a folio.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum UnmapFor {
    /// The folio is reclaimed, or its file loses a part of it. A swap entry is left, or nothing.
    Reclaim,
    /// The folio is split. A migration entry is left (`TTU_SPLIT_FREEZE`, `freeze`).
    Split,
    /// The folio moves. A migration entry is left.
    Migration {
        /// Whether the caller flushes for all folios later (`TTU_BATCH_FLUSH`).
        may_wait: bool,
    },
}

/// A folio that is being unmapped, and how.
#[derive(Copy, Clone, Debug)]
pub struct Unmap {
    /// The first frame of the folio.
    pub folio: Pfn,
    /// The purpose of the unmap.
    pub purpose: UnmapFor,
    /// Whether flushes may be left to a later one ([`crate::kernel::deferred`]).
    pub defers: bool,
}

impl Unmap {
    /// An unmap by a task that flushes before it returns.
    pub const fn of(folio: Pfn, purpose: UnmapFor) -> Unmap {
        Unmap { folio, purpose, defers: false }
    }

    const fn site(self) -> Site {
        match self.purpose {
            UnmapFor::Reclaim => Site::TryToUnmapOne,
            UnmapFor::Split => Site::SplitFolio,
            UnmapFor::Migration { .. } => Site::TryToMigrateOne,
        }
    }

    /// Whether the kernel's rules allow the flush to be batched.
    fn may_wait<M: Mode>(self, w: &World<M>) -> bool {
        match self.purpose {
            UnmapFor::Reclaim => may_defer(w, self.folio),
            UnmapFor::Split => w.policies.split_flush == SplitFlush::Batched,
            UnmapFor::Migration { may_wait } => may_wait,
        }
    }

    /// Whether even a single page is flushed as a range. Splits and migrations use
    /// try_to_migrate_one, which flushes a page (`ptep_clear_flush`, 6.1 to 7.3).
    fn flushes_range(self, policies: &Policies) -> bool {
        self.purpose == UnmapFor::Reclaim && policies.unmap_flush == UnmapFlush::Range
    }
}

/// When the translations of a cleared PTE are flushed.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum Flush {
    /// Later, together with others.
    Deferred,
    /// At once, by the operation itself.
    Now,
    /// Never: no TLB can hold one.
    None,
}

impl Flush {
    /// When the translations of `pte`, which was just cleared, are flushed. `may_wait`: whether
    /// they may be batched at all.
    pub fn of<M: Mode>(w: &World<M>, at: At, mm: MmId, pte: PresentPte, may_wait: bool) -> Flush {
        match pte_accessible(w, mm, pte) {
            false => Flush::None,
            true if may_wait && arch_tlbbatch_should_defer(w, at, mm) => Flush::Deferred,
            true => Flush::Now,
        }
    }
}

/// Whether reclaim may batch the flush. Where a waiting folio has to stay in the swap cache, a
/// folio that has no place there (freed by MADV_FREE) may not wait.
fn may_defer<M: Mode>(w: &World<M>, frame: Pfn) -> bool {
    let keeps = match w.policies.refault_flush {
        RefaultFlush::BeforeRemoval | RefaultFlush::RemovedAfter => {
            w.frames.flags(frame).has(FrameFlags::SWAP_BACKED) || w.is_of_file(frame)
        }
        _ => true,
    };
    keeps && w.policies.unmap_batch == UnmapBatching::Defer
}

/// Removes the PTE at this place, if it maps the folio's page.
pub fn try_to_unmap_one(env: &mut impl Env, unmap: Unmap, place: Place) {
    let (mm, page) = place;
    if env.policies().mutant == Mutant::PendingCountedEarly {
        env.step(unmap.site(), |w, _| w.mms[mm.index()].batched.pending += 1);
    }
    let cleared = page_vma_mapped_walk(env, unmap.site(), unmap.folio, place, |w, at, pte| {
        (pte, clear_pte(w, at, unmap, place, pte))
    });
    let Some(cleared) = cleared else { return };
    unmap_cleared(env, unmap, place, cleared);
    pte_unmap_unlock(env, mm, page);
}

/// [`try_to_unmap_one`] with the table's lock held. Returns false if the PTE had to be restored.
pub fn unmap_pte(env: &mut impl Env, unmap: Unmap, place: Place) -> bool {
    let cleared = env.step(unmap.site(), |w, at| {
        let pte = entry_of(w, unmap.folio, place.0, place.1)?;
        Some((pte, clear_pte(w, at, unmap, place, pte)))
    });
    cleared.is_none_or(|cleared| unmap_cleared(env, unmap, place, cleared))
}

/// Clears the PTE. From here on, a CPU without the translation faults.
fn clear_pte<M: Mode>(
    w: &mut World<M>,
    at: At,
    unmap: Unmap,
    (mm, page): Place,
    pte: PresentPte,
) -> Flush {
    w.set_pte(at, mm, page, Pte::None);
    Flush::of(w, at, mm, pte, unmap.may_wait(w))
}

fn unmap_cleared(
    env: &mut impl Env,
    unmap: Unmap,
    (mm, page): Place,
    (old, flush): (PresentPte, Flush),
) -> bool {
    flush_unmapped(env, unmap, (mm, PageRange::one(page)), flush, old);
    env.step(unmap.site(), |w, at| leave_entry(w, at, unmap.purpose, (mm, page), old))
}

/// Removes PTEs that map adjacent pages of the folio, with one flush for all. If one of them has to
/// be restored, so are those behind it. The caller holds the table's lock.
///
/// Source: mm/rmap.c:folio_unmap_pte_batch, try_to_unmap_one (7.2, 7.3; 6.16.12 to 6.18.15 as
/// seen).
pub fn unmap_run(env: &mut impl Env, unmap: Unmap, (mm, part): (MmId, PageRange)) {
    let site = unmap.site();
    let cleared = env.step(site, |w, at| {
        let entry = |page| Some((page, entry_of(w, unmap.folio, mm, page)?));
        let entries: Vec<(Vpn, PresentPte)> = part.iter().filter_map(entry).collect();
        entries.iter().for_each(|(page, _)| w.set_pte(at, mm, *page, Pte::None));
        let (first, pte) = entries.first().copied()?;
        Some((first, Flush::of(w, at, mm, pte, unmap.may_wait(w)), entries))
    });
    let Some((first, flush, entries)) = cleared else { return };
    let dirty = entries.iter().any(|(_, pte)| pte.dirty());
    let pages = PageRange::new(first, entries.len() as u64);
    flush_unmapped(env, unmap, (mm, pages), flush, all_of(&entries));
    // If one of them was accessed or dirty, all count as such (get_and_clear_ptes).
    let young = entries.iter().any(|(_, pte)| pte.accessed());
    env.step(site, |w, at| {
        let all =
            |pte: PresentPte| pte.with(PteFlags::DIRTY, dirty).with(PteFlags::ACCESSED, young);
        let mut entries = entries.iter().map(|(page, pte)| (*page, all(*pte)));
        let stays =
            entries.find(|(page, pte)| !leave_entry(w, at, unmap.purpose, (mm, *page), *pte));
        stays.into_iter().chain(entries).for_each(|(page, pte)| {
            w.set_pte(at, mm, page, Pte::Present(pte));
        });
    });
}

/// Merges translations that are flushed together into one: writable or dirty if any of them is.
pub fn all_of(entries: &[(Vpn, PresentPte)]) -> PresentPte {
    let all = entries.iter().map(|(_, pte)| *pte).reduce(|one, other| {
        let one = one.with(PteFlags::WRITABLE, other.writable());
        one.with(PteFlags::DIRTY, other.dirty())
    });
    all.unwrap_or(PresentPte::new(ZERO_PAGE))
}

/// Flushes the pages whose PTEs were cleared, or notes the flush in a batch.
pub fn flush_unmapped(
    env: &mut impl Env,
    unmap: Unmap,
    (mm, pages): (MmId, PageRange),
    flush: Flush,
    old: PresentPte,
) {
    let site = Site::PtepClearFlush;
    match flush {
        Flush::Now if pages.pages() == 1 && !unmap.flushes_range(env.policies()) => {
            flush_tlb_mm_range(env, FlushRequest::page(site, mm, pages.start));
        }
        Flush::Now => flush_tlb_mm_range(env, FlushRequest::range(site, mm, pages)),
        Flush::Deferred => {
            let batch = match unmap.defers {
                true => env.step(site, |w, at| owes(w, at, old)),
                false => Batch::Task,
            };
            set_tlb_ubc_flush_pending(env, batch, mm, pages.start, old.dirty());
        }
        Flush::None => {}
    }
}

/// Replaces the cleared PTE by the entry that a fault should find, and drops the mapping. `old`:
/// the PTE. Returns false if the PTE was restored.
fn leave_entry<M: Mode>(
    w: &mut World<M>,
    at: At,
    purpose: UnmapFor,
    place: Place,
    old: PresentPte,
) -> bool {
    let (mm, page) = place;
    // The folio's flags do not include the PTE's dirty bit yet.
    let before = w.frames.get(old.pfn);
    if old.dirty() && w.policies.mutant != Mutant::DirtyDropped {
        w.dirty_folio(old.pfn);
    }
    // Reclaim does not unmap a page that a mapping locks.
    let (left, locked) = match purpose {
        UnmapFor::Reclaim => (reclaimed_entry(w, place, old, before), false),
        UnmapFor::Migration { .. } if is_pinned(w, old) => (Left::Old, false),
        UnmapFor::Split | UnmapFor::Migration { .. } => {
            let entry = migration_entry(w, old, migration_right(w, old));
            (Left::Entry(Pte::Migration(entry)), w.locks(mm, page))
        }
    };
    match left {
        Left::Entry(entry) => w.set_pte(at, mm, page, entry),
        Left::Nothing => {}
        Left::Old => {
            w.set_pte(at, mm, page, Pte::Present(old));
            return false;
        }
    }
    folio_remove_rmap(w, at, old.pfn, locked);
    w.frames.set_flags(old.pfn, FrameFlags::EXCLUSIVE, false);
    w.put_frame(at, old.pfn);
    true
}

/// The entry that takes a PTE's place.
enum Left {
    Nothing,
    Entry(Pte),
    /// The PTE itself: it is restored.
    Old,
}

/// The entry that reclaim leaves: a swap entry, unless the page belongs to a file. The PTE is
/// restored if a lazily freed page was written again or is held by somebody.
fn reclaimed_entry<M: Mode>(
    w: &mut World<M>,
    (mm, page): Place,
    old: PresentPte,
    f: Frame,
) -> Left {
    let frame = old.pfn;
    if w.is_of_file(frame) {
        return match marks_protection(w, (mm, page), Pte::Present(old)) {
            true => Left::Entry(Pte::Marker(Marker::UffdWp)),
            false => Left::Nothing,
        };
    }
    if !f.flags.has(FrameFlags::SWAP_BACKED) {
        let written = old.dirty() && w.policies.mutant != Mutant::FreeDirtyIgnored;
        let dirty = written || f.flags.has(FrameFlags::DIRTY);
        let held = f.refs != 1 + w.frames.folio_maps(frame);
        if dirty || held {
            let backed = dirty || w.policies.lazyfree_held == LazyfreeHeld::BackedAgain;
            w.frames.set_flags(frame, FrameFlags::SWAP_BACKED, backed);
            return Left::Old;
        }
        w.ghost.dropped(mm, page, frame);
        return Left::Nothing;
    }
    let Some(slot) = w.swap.slot_of(frame) else { return Left::Nothing };
    let exclusive =
        w.policies.anon_exclusive == AnonExclusive::Yes && f.flags.has(FrameFlags::EXCLUSIVE);
    if is_pinned(w, old) {
        return Left::Old;
    }
    w.swap.count(slot, 1);
    let swap = SwapPte { slot, exclusive, soft_dirty: old.soft_dirty(), uffd_wp: old.uffd_wp() };
    Left::Entry(Pte::Swap(swap))
}

/// Whether somebody has pinned the exclusive page in the meantime (`folio_try_share_anon_rmap`).
fn is_pinned<M: Mode>(w: &World<M>, pte: PresentPte) -> bool {
    w.policies.anon_exclusive == AnonExclusive::Yes
        && w.frames.flags(pte.pfn).has(FrameFlags::EXCLUSIVE)
        && maybe_dma_pinned(w, pte.pfn)
}

/// The right that the page's mapping gets back after the migration.
pub fn migration_right<M: Mode>(w: &World<M>, pte: PresentPte) -> MigrationRight {
    let exclusive = w.frames.flags(pte.pfn).has(FrameFlags::EXCLUSIVE);
    match (pte.writable(), exclusive) {
        (true, _) => MigrationRight::Write,
        (false, true) => MigrationRight::ReadExclusive,
        (false, false) => MigrationRight::Read,
    }
}

/// The migration entry that replaces a PTE.
///
/// Source: include/linux/swapops.h:make_migration_entry_young, make_migration_entry_dirty (6.1 to
/// 7.3; 5.10 keeps neither).
pub fn migration_entry<M: Mode>(
    w: &World<M>,
    pte: PresentPte,
    right: MigrationRight,
) -> MigrationPte {
    let keeps = w.policies.split_remap != SplitRemap::Old;
    MigrationPte {
        pfn: pte.pfn,
        right,
        accessed: keeps && pte.accessed(),
        dirty: keeps && pte.dirty(),
        soft_dirty: pte.soft_dirty(),
        uffd_wp: pte.uffd_wp(),
    }
}

/// The flags of the PTE for `frame` that replaces a migration entry.
pub fn migrated_flags<M: Mode>(
    w: &World<M>,
    (mm, page): Place,
    entry: MigrationPte,
    frame: Pfn,
) -> PteFlags {
    let dirty = entry.dirty && w.frames.flags(frame).has(FrameFlags::DIRTY);
    let marks = dirty && w.policies.split_remap == SplitRemap::DirtyMarks && w.config.soft_dirty;
    let none = w.mms[mm.index()].vma(page).is_some_and(|vma| vma.prot == Prot::None);
    let writable = entry.right == MigrationRight::Write;
    let pte = PresentPte::new(frame)
        .with(PteFlags::PROTNONE, none)
        .with(PteFlags::WRITABLE, writable)
        .with(PteFlags::UFFD_WP, !writable && entry.uffd_wp)
        .with(PteFlags::ACCESSED, entry.accessed)
        .with(PteFlags::DIRTY, dirty)
        .with(PteFlags::SOFT_DIRTY, entry.soft_dirty || marks);
    pte.flags
}

/// The destination of a folio: where migration entries point after their removal.
#[derive(Clone, Debug)]
pub struct Destination {
    /// The frames that the folio left.
    pub from: Range<u32>,
    /// The first frame of the destination. It is that of `from` after a split, or after a migration
    /// that failed.
    pub to: Pfn,
    /// Whether pages of zeros may become the zero page (`RMP_USE_SHARED_ZEROPAGE`).
    pub zero_page: bool,
}

impl Destination {
    fn of(&self, frame: Pfn) -> Option<Pfn> {
        self.from.contains(&frame.0).then(|| Pfn(self.to.0 + (frame.0 - self.from.start)))
    }
}

/// Replaces a migration entry, if it is for a page of the folio, by a translation of the page's
/// destination. The caller holds the table's lock.
///
/// Source: mm/migrate.c:remove_migration_pte, try_to_map_unused_to_zeropage (6.12 to 7.3).
pub fn remove_migration_pte<M: Mode>(
    w: &mut World<M>,
    at: At,
    (mm, page): Place,
    to: &Destination,
) {
    let Pte::Migration(entry) = w.pte(mm, page) else { return };
    let Some(frame) = to.of(entry.pfn) else { return };
    let zeros = to.zero_page && w.policies.split_zeros == SplitZeros::ZeroPage;
    if zeros && w.frames.flags(frame).has(FrameFlags::ZERO_FILLED) {
        let zero = PresentPte::new(ZERO_PAGE)
            .with(PteFlags::SPECIAL, true)
            .with(PteFlags::ACCESSED, true)
            .with(PteFlags::UFFD_WP, entry.uffd_wp)
            .with(PteFlags::SOFT_DIRTY, entry.soft_dirty);
        return w.set_pte(at, mm, page, Pte::Present(zero));
    }
    let flags = migrated_flags(w, (mm, page), entry, frame);
    let pte = PresentPte { pfn: frame, flags };
    let exclusive =
        entry.right != MigrationRight::Read && w.policies.anon_exclusive == AnonExclusive::Yes;
    w.get_and_map(at, frame, |flags| flags.set(FrameFlags::EXCLUSIVE, exclusive));
    w.set_pte(at, mm, page, Pte::Present(pte));
    let locked = w.locks(mm, page);
    mapped_again(w, at, frame, locked);
}

//! A large folio becomes as many small ones.
//!
//! Its mappings are frozen first: in place of each is a migration entry, on which whoever faults waits. Then nobody but the
//! caller has a reference, and its pages are folios of their own when they are mapped again.

use super::split::emit_split;
use super::{entry_of, invalid, pmd_trans_huge_lock, pmd_unlock};
use crate::addr::{MmId, PageRange, Pfn, Vpn};
use crate::env::{Env, Lock};
use crate::kernel::flush::{FlushRequest, flush_tlb_mm_range};
use crate::kernel::mlock_batch::{folio_remove_rmap, mapped_again, munlock_split};
use crate::kernel::reclaim::{Flush, FolioList, flush_unmapped};
use crate::kernel::rmap::{Place, folio_places};
use crate::kernel::swap_cache::swap_cache_references;
use crate::kernel::table::each_table;
use crate::kernel::unmap_batch::try_to_unmap_flush;
use crate::machine::frames::{FrameFlags, ZERO_PAGE};
use crate::machine::world::{At, Mode, World};
use crate::policy::{AnonExclusive, Mutant, SplitFlush, SplitRemap, SplitZeros};
use crate::program::Prot;
use crate::pte::{MigrationPte, MigrationRight, PresentPte, Pte, PteFlags};
use crate::site::Site;
use std::ops::Range;

/// Splits the folio, which the caller has locked and holds one reference of; false: somebody else holds it, and it is as it was, or
/// mapped page by page. All flushes are over then. Reclaim, which has taken the folio off the LRU, has its other pages go to `list`, each with
/// a reference.
///
/// Source: mm/huge_memory.c:split_huge_page_to_list (5.10, 6.1), split_huge_page_to_list_to_order (6.12), __folio_split (7.3).
pub fn split_folio(env: &mut impl Env, folio: Pfn, list: Option<&mut FolioList>) -> bool {
    let site = Site::SplitFolio;
    let root = env.step(site, |w, _| w.objects.root(w.frames.place(folio).0));
    env.lock(Lock::RmapWrite(root));
    let split = split_locked(env, folio, list);
    env.unlock(Lock::RmapWrite(root));
    split
}

fn split_locked(env: &mut impl Env, folio: Pfn, list: Option<&mut FolioList>) -> bool {
    let site = Site::SplitFolio;
    // 1. Before anything is unmapped (can_split_folio): mappings and the swap cache have references, and we.
    let looked = env.step(site, |w, _| {
        let maps = w.frames.folio_maps(folio);
        (w.frames.get(folio).refs == maps + swap_cache_references(w, folio) + 1)
            .then(|| (folio_places(w, folio), w.frames.folio(folio).1))
    });
    let Some((places, order)) = looked else { return false };
    // 2. No mapping.
    for (mm, pages) in &places {
        freeze(env, folio, *mm, *pages);
    }
    try_to_unmap_flush(env, Site::TryToUnmapFlush);
    // 3. Small folios, unless somebody took a reference meanwhile.
    let split = env.step(site, |w, _| {
        let alone = w.frames.get(folio).refs == 1 + swap_cache_references(w, folio);
        if alone {
            w.frames.split_folio(folio);
        }
        alone
    });
    // 4. Mapped again.
    let pages = folio.0..folio.0 + (1 << order);
    for (mm, part) in &places {
        each_table(env, site, *mm, *part, |env, part| {
            env.step(site, |w, at| {
                part.iter().for_each(|page| thaw(w, at, (*mm, page), &pages, split));
            });
        });
    }
    // 5. The references that the pages got with their split: without, those that nobody maps are free.
    let tails = pages.skip(1).map(Pfn);
    match (split, list) {
        (false, _) => {}
        (true, Some(list)) => list.extend(tails),
        (true, None) => {
            env.step(Site::FolioPut, |w, at| tails.for_each(|page| w.put_frame(at, page)));
        }
    }
    split
}

/// Puts migration entries in place of what maps the folio there.
///
/// Source: mm/rmap.c:try_to_unmap_one with TTU_SPLIT_FREEZE (5.10), try_to_migrate_one (6.1 to 7.3); mm/huge_memory.c:
/// __split_huge_pmd_locked with `freeze`.
fn freeze(env: &mut impl Env, folio: Pfn, mm: MmId, pages: PageRange) {
    let site = Site::SplitFolio;
    let taken = pmd_trans_huge_lock(env, site, mm, pages.start, |w, at, pmd| {
        let ours = pmd.pfn == folio;
        if ours {
            emit_split(w, at, pages.start, pmd);
            w.set_pmd(at, mm, pages.start, Pte::Present(invalid(pmd)));
        }
        ours.then_some(pmd)
    });
    if let Some(pmd) = taken {
        if let Some(pmd) = pmd {
            let whole = env.arch().huge_pages(pages.start);
            if env.policies().mutant != Mutant::SplitUnflushed {
                flush_tlb_mm_range(env, FlushRequest::range(Site::SplitHugePmd, mm, whole));
            }
            env.step(site, |w, at| freeze_whole(w, at, mm, whole, pmd));
        }
        return pmd_unlock(env, mm, pages.start);
    }
    each_table(env, site, mm, pages, |env, part| {
        part.iter().for_each(|page| freeze_page(env, folio, mm, page));
    });
}

fn freeze_whole<M: Mode>(w: &mut World<M>, at: At, mm: MmId, pages: PageRange, pmd: PresentPte) {
    if pmd.dirty() {
        w.frames.set_flags(pmd.pfn, FrameFlags::DIRTY, true);
    }
    let right = right(w, pmd);
    w.frames.set_flags(pmd.pfn, FrameFlags::EXCLUSIVE, false);
    w.populate_pmd(at, mm, pages.start, |w, page| {
        let pfn = w.frame_in(pmd.pfn, page.since(pages.start));
        Pte::Migration(frozen(w, PresentPte { pfn, ..pmd }, right))
    });
    w.drop_whole_mapping(at, pmd.pfn);
    let locked = w.locks(mm, pages.start);
    munlock_split(w, at, pmd.pfn, locked);
    w.put_frame(at, pmd.pfn);
}

fn freeze_page(env: &mut impl Env, folio: Pfn, mm: MmId, page: Vpn) {
    let site = Site::SplitFolio;
    // 1. A CPU that misses faults.
    let cleared = env.step(site, |w, at| {
        let pte = entry_of(w, folio, mm, page)?;
        w.set_pte(at, mm, page, Pte::None);
        let may_wait = w.policies.split_flush == SplitFlush::Batched;
        Some((pte, Flush::of(w, at, mm, pte, may_wait)))
    });
    let Some((old, flush)) = cleared else { return };
    flush_unmapped(env, mm, PageRange::one(page), flush, old.dirty());
    // 2. Who faults waits.
    env.step(site, |w, at| {
        if old.dirty() {
            w.frames.set_flags(old.pfn, FrameFlags::DIRTY, true);
        }
        let entry = frozen(w, old, right(w, old));
        w.set_pte(at, mm, page, Pte::Migration(entry));
        let locked = w.locks(mm, page);
        folio_remove_rmap(w, at, old.pfn, locked);
        w.frames.set_flags(old.pfn, FrameFlags::EXCLUSIVE, false);
        w.put_frame(at, old.pfn);
    });
}

fn right<M: Mode>(w: &World<M>, pte: PresentPte) -> MigrationRight {
    let exclusive = w.frames.flags(pte.pfn).has(FrameFlags::EXCLUSIVE);
    match (pte.writable(), exclusive) {
        (true, _) => MigrationRight::Write,
        (false, true) => MigrationRight::ReadExclusive,
        (false, false) => MigrationRight::Read,
    }
}

/// Source: include/linux/swapops.h:make_migration_entry_young, make_migration_entry_dirty (6.1 to 7.3; 5.10 keeps neither).
fn frozen<M: Mode>(w: &World<M>, pte: PresentPte, right: MigrationRight) -> MigrationPte {
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

/// Maps the page again that a migration entry stands for, if it is one of the folio's.
///
/// Source: mm/migrate.c:remove_migration_pte, try_to_map_unused_to_zeropage (6.12 to 7.3).
fn thaw<M: Mode>(w: &mut World<M>, at: At, (mm, page): Place, folio: &Range<u32>, split: bool) {
    let Pte::Migration(entry) = w.pte(mm, page) else { return };
    if !folio.contains(&entry.pfn.0) {
        return;
    }
    let zeros = split && w.policies.split_zeros == SplitZeros::ZeroPage;
    if zeros && w.frames.flags(entry.pfn).has(FrameFlags::ZERO_FILLED) {
        let zero = PresentPte::new(ZERO_PAGE)
            .with(PteFlags::SPECIAL, true)
            .with(PteFlags::ACCESSED, true)
            .with(PteFlags::UFFD_WP, entry.uffd_wp)
            .with(PteFlags::SOFT_DIRTY, entry.soft_dirty);
        return w.set_pte(at, mm, page, Pte::Present(zero));
    }
    let dirty = entry.dirty && w.frames.flags(entry.pfn).has(FrameFlags::DIRTY);
    let marks = dirty && w.policies.split_remap == SplitRemap::DirtyMarks && w.config.soft_dirty;
    let none = w.mms[mm.index()].vma(page).is_some_and(|vma| vma.prot == Prot::None);
    let writable = entry.right == MigrationRight::Write;
    let pte = PresentPte::new(entry.pfn)
        .with(PteFlags::PROTNONE, none)
        .with(PteFlags::WRITABLE, writable)
        .with(PteFlags::UFFD_WP, !writable && entry.uffd_wp)
        .with(PteFlags::ACCESSED, entry.accessed)
        .with(PteFlags::DIRTY, dirty)
        .with(PteFlags::SOFT_DIRTY, entry.soft_dirty || marks);
    let exclusive =
        entry.right != MigrationRight::Read && w.policies.anon_exclusive == AnonExclusive::Yes;
    w.get_and_map(at, entry.pfn, |flags| flags.set(FrameFlags::EXCLUSIVE, exclusive));
    w.set_pte(at, mm, page, Pte::Present(pte));
    let locked = w.locks(mm, page);
    mapped_again(w, at, entry.pfn, locked);
}

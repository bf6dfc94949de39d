//! A huge page migrates to another NUMA node as a whole.
//!
//! Its entry is taken away and flushed at once, even where flushes for other pages are deferred. A
//! migration entry of the same level takes its place until the copy is mapped. The table that was
//! deposited for it stays deposited.

use super::{invalid, pmd_trans_huge_lock, pmd_unlock};
use crate::addr::{MmId, PageRange, Pfn};
use crate::env::{Env, Lock};
use crate::kernel::flush::{FlushRequest, flush_tlb_mm_range};
use crate::kernel::unmap::{migrated_flags, migration_entry, migration_right};
use crate::machine::frames::FrameFlags;
use crate::machine::world::{At, Mode, World};
use crate::policy::AnonExclusive;
use crate::pte::{MigrationPte, MigrationRight, Pmd, PresentPte, Pte};
use crate::site::Site;

/// Replaces the huge entry that maps the folio by a migration entry.
///
/// Source: mm/huge_memory.c:set_pmd_migration_entry (5.10, 6.1, 6.12), with pmdp_invalidate.
pub fn set_pmd_migration_entry(env: &mut impl Env, folio: Pfn, (mm, pages): (MmId, PageRange)) {
    let site = Site::SetPmdMigrationEntry;
    let taken = pmd_trans_huge_lock(env, site, mm, pages.start, |w, at, pmd| {
        let ours = pmd.pfn == folio;
        if ours {
            w.set_pmd(at, mm, pages.start, Pte::Present(invalid(pmd)));
        }
        ours.then_some(pmd)
    });
    let Some(found) = taken else { return };
    if let Some(pmd) = found {
        let whole = env.arch().huge_pages(pages.start);
        flush_tlb_mm_range(env, FlushRequest::range(site, mm, whole));
        env.step(site, |w, at| leave_entry(w, at, mm, whole, pmd));
    }
    pmd_unlock(env, mm, pages.start);
}

fn leave_entry<M: Mode>(w: &mut World<M>, at: At, mm: MmId, pages: PageRange, pmd: PresentPte) {
    if pmd.dirty() {
        w.frames.set_flags(pmd.pfn, FrameFlags::DIRTY, true);
    }
    let entry = migration_entry(w, pmd, migration_right(w, pmd));
    w.frames.set_flags(pmd.pfn, FrameFlags::EXCLUSIVE, false);
    w.set_pmd(at, mm, pages.start, Pte::Migration(entry));
    w.drop_whole_mapping(at, pmd.pfn);
    w.put_frame(at, pmd.pfn);
}

/// Maps the folio `to` as a whole, where a migration entry names `from`.
///
/// Source: mm/huge_memory.c:remove_migration_pmd (5.10, 6.1, 6.12).
pub fn remove_migration_pmd(
    env: &mut impl Env,
    (from, to): (Pfn, Pfn),
    (mm, pages): (MmId, PageRange),
) {
    let lock = Lock::pmd(env.arch(), mm, pages.start);
    env.lock(lock);
    env.step(Site::RemoveMigrationPmd, |w, at| {
        if let Some(Pmd::Migrating(entry)) = w.pmd(mm, pages.start)
            && entry.pfn == from
        {
            map_again(w, at, (mm, pages), entry, to);
        }
    });
    env.unlock(lock);
}

fn map_again<M: Mode>(
    w: &mut World<M>,
    at: At,
    (mm, pages): (MmId, PageRange),
    entry: MigrationPte,
    to: Pfn,
) {
    let flags = migrated_flags(w, (mm, pages.start), entry, to);
    let exclusive =
        entry.right != MigrationRight::Read && w.policies.anon_exclusive == AnonExclusive::Yes;
    w.frames.count_whole_map(to, 1);
    w.get_frame(at, to);
    w.frames.set_flags(to, FrameFlags::EXCLUSIVE, exclusive);
    w.set_pmd(at, mm, pages.start, Pte::Present(PresentPte { pfn: to, flags }));
}

//! Migration: moves folios to another NUMA node.
//!
//! Each folio is unmapped ([`super::unmap`]): a migration entry takes the place of every
//! translation, and an access to the page waits for it. The contents are copied, and the entries
//! become translations of the copy. These new translations need no flush: a TLB cannot hold a
//! translation that was not there.
//!
//! Kernels differ in how they flush the unmapped translations. Up to 6.2, each folio is moved by
//! itself, and each translation is flushed when it is taken. From 6.3 on, up to 512 pages are
//! unmapped first, with one flush for all of them ([`super::unmap_batch`]). A folio that cannot be
//! moved in this way is tried once more by itself, with a flush for each translation.
//!
//! The caller decides where folios go: to one node, or where a memory policy puts each of them.
//!
//! A huge page moves as a whole, with a flush of its own ([`super::huge::migrate`]).
//!
//! A folio that somebody holds a reference to cannot be moved. The kernel notices that after the
//! folio's flush. It puts the translations back, and the flush was needless.
//!
//! Source: mm/migrate.c:migrate_pages, unmap_and_move, move_to_new_page (5.10), move_to_new_folio
//! (6.1), migrate_pages_batch, migrate_pages_sync, migrate_folio_unmap, migrate_folio_move (6.12).

use crate::addr::{NodeId, Pfn};
use crate::env::{Env, Lock};
use crate::kernel::alloc::{Request, with_frames};
use crate::kernel::deferred::{UnmappedFor, folio_unmapped, join_deferred, leave_frame, may_defer};
use crate::kernel::huge::migrate::{remove_migration_pmd, set_pmd_migration_entry};
use crate::kernel::lru::{folio_add_lru, lru_add_drain};
use crate::kernel::reclaim::FolioList;
use crate::kernel::rmap::{rmap_walk, rmap_walk_folio};
use crate::kernel::table::{pte_offset_map_lock, pte_unmap_unlock};
use crate::kernel::unmap::{Destination, Unmap, UnmapFor, remove_migration_pte, try_to_unmap_one};
use crate::kernel::unmap_batch::try_to_unmap_flush;
use crate::machine::frames::FrameFlags;
use crate::machine::nodes::{MemPolicy, Near};
use crate::machine::unmap_batch::Batch;
use crate::machine::world::{At, Ghost, Mode, World};
use crate::policy::{DeferFlush, MigrateBatch, MigrateLru, Policies};
use crate::site::Site;

/// The number of pages that are unmapped before one flush (`NR_MAX_BATCHED_MIGRATION`).
const BATCH: usize = 512;

/// How often a folio that somebody holds is tried. Without batches it is a literal 10 in 5.10, and
/// `NR_MAX_MIGRATE_PAGES_RETRY` later. In a batch it is `NR_MAX_MIGRATE_ASYNC_RETRY`, and after the
/// batch `NR_MAX_MIGRATE_SYNC_RETRY`.
const TRIES: usize = 10;

/// The error if there is no memory left where the folios should go.
#[derive(Debug, PartialEq, Eq)]
pub struct NoMemory;

/// Where folios go.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// To this node and no other.
    ///
    /// Source: mm/migrate.c:alloc_migration_target with `__GFP_THISNODE` (5.10 to 7.3).
    Node(NodeId),
    /// Where the policy puts a page with the folio's index.
    ///
    /// Source: mm/mempolicy.c:new_page (5.10, 6.1), which asks the policy of the folio's mapping,
    /// and alloc_migration_target_by_mpol (6.12). In both, private pages have the index of their
    /// mapping.
    Policy(MemPolicy),
}

impl Target {
    const fn near(self, folio: Pfn) -> Near {
        match self {
            Target::Node(node) => Near::Only(node),
            Target::Policy(policy) => Near::By(policy, folio),
        }
    }
}

/// Takes a folio from the LRU to move it. Returns false if it is not on the LRU.
///
/// Source: mm/vmscan.c:isolate_lru_page (5.10), folio_isolate_lru (6.1 to 7.3).
pub fn folio_isolate_lru<M: Mode>(w: &mut World<M>, at: At, folio: Pfn) -> bool {
    let there = w.frames.flags(folio).on_lru();
    if there {
        w.lru_del(folio, FrameFlags::default());
        w.get_frame(at, folio);
    }
    there
}

/// The reason for a migration (`enum migrate_reason`).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    /// A system call (`MR_SYSCALL`, `MR_MEMPOLICY_MBIND`). It waits for locks, and has emptied or
    /// disabled the LRU batches.
    ByCall,
    /// A hint fault (`MR_NUMA_MISPLACED`).
    ByHintFault,
    /// Reclaim on a node that has slower memory below it (`MR_DEMOTION`).
    ByReclaim,
}

/// The parameters that all migrations of one list share.
#[derive(Copy, Clone, Debug)]
struct Job {
    target: Target,
    asked: Asked,
}

impl Asked {
    const fn unmaps_for(self) -> UnmappedFor {
        match self {
            Asked::ByCall => UnmappedFor::Move,
            Asked::ByHintFault | Asked::ByReclaim => UnmappedFor::Tiering,
        }
    }

    /// Whether moved folios are on the LRU at once, because the batches are disabled.
    fn at_once(self, policies: &Policies) -> bool {
        self == Asked::ByCall && policies.migrate_lru == MigrateLru::AtOnce
    }
}

/// Whether a migration waits for locks, and whether it defers flushes.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Migrate {
    /// Passes locked folios over and defers flushes.
    Batched,
    /// Passes locked folios over (`MIGRATE_ASYNC`).
    Async,
    /// Waits for locks (`MIGRATE_SYNC`).
    Sync,
}

/// What became of a folio that should be unmapped.
enum Unmapped {
    /// Its owner has freed it in the meantime.
    Freed,
    /// Nobody maps the folio any more, and it should be copied to this one. Both are locked. The
    /// flag says whether a later flush may do the folio's flush.
    To(Pfn, bool),
    /// Somebody else holds its lock, or it is still mapped.
    NotYet,
}

/// Moves isolated folios. Returns how many stay; those are back on the LRU.
pub fn migrate_pages(
    env: &mut impl Env,
    folios: &[Pfn],
    target: Target,
    asked: Asked,
) -> Result<usize, NoMemory> {
    let mut left = FolioList::from_slice(folios);
    let job = Job { target, asked };
    let ended = match env.policies().migrate_batch {
        MigrateBatch::Off => one_by_one(env, &mut left, job, TRIES),
        MigrateBatch::On => by_batches(env, &mut left, job),
    };
    putback_movable_pages(env, &left, asked);
    ended.map(|()| left.len())
}

/// Moves each folio by itself, in several tries.
///
/// Source: mm/migrate.c:migrate_pages, unmap_and_move (5.10, 6.1).
fn one_by_one(
    env: &mut impl Env,
    left: &mut FolioList,
    job: Job,
    tries: usize,
) -> Result<(), NoMemory> {
    let how = if job.asked == Asked::ByCall { Migrate::Sync } else { Migrate::Async };
    for _ in 0..tries {
        let mut again = FolioList::new();
        for (at, &folio) in left.iter().enumerate() {
            let moved = match migrate_folio_unmap(env, folio, job, how) {
                Ok(Unmapped::Freed) => true,
                Ok(Unmapped::To(to, _)) => {
                    let moved = migrate_folio_move(env, folio, to, (job, false));
                    if !moved {
                        undo(env, folio, to);
                    }
                    moved
                }
                Ok(Unmapped::NotYet) => false,
                Err(NoMemory) => {
                    again.extend_from_slice(&left[at..]);
                    *left = again;
                    return Err(NoMemory);
                }
            };
            if !moved {
                again.push(folio);
            }
        }
        *left = again;
        if left.is_empty() {
            break;
        }
    }
    Ok(())
}

/// Moves folios in batches, with one flush for each batch.
///
/// Source: mm/migrate.c:migrate_pages, migrate_pages_sync (6.12).
fn by_batches(env: &mut impl Env, left: &mut FolioList, job: Job) -> Result<(), NoMemory> {
    let mut batches = batches(env, &std::mem::take(left)).into_iter();
    while let Some(batch) = batches.next() {
        let mut failed = FolioList::new();
        let mut ended = migrate_pages_batch(env, &batch, job, &mut failed);
        if ended.is_ok() && job.asked == Asked::ByCall {
            // Each folio by itself, without a batch. One that stays unmapped is not flushed again.
            let mut alone = FolioList::new();
            for folio in std::mem::take(&mut failed) {
                let mut one = FolioList::from_slice(&[folio]);
                ended = ended.and_then(|()| one_by_one(env, &mut one, job, 1));
                alone.extend(one);
            }
            failed = alone;
        }
        left.extend(failed);
        if ended.is_err() {
            left.extend(batches.flatten());
            return ended;
        }
    }
    Ok(())
}

/// Divides folios into runs that are unmapped together. A run ends with the folio that makes it at
/// least as large as a batch.
///
/// Source: mm/migrate.c:migrate_pages (6.12): list_cut_before.
fn batches(env: &mut impl Env, folios: &[Pfn]) -> Vec<FolioList> {
    let pages: Vec<usize> = match env.config().large_folios {
        true => env.step(Site::MigrateFolioUnmap, |w, _| {
            folios.iter().map(|folio| 1 << w.frames.folio(*folio).1).collect()
        }),
        false => vec![1; folios.len()],
    };
    let (mut batches, mut batch, mut size) = (Vec::new(), FolioList::new(), 0);
    for (&folio, pages) in folios.iter().zip(pages) {
        batch.push(folio);
        size += pages;
        if size >= BATCH {
            batches.push(std::mem::take(&mut batch));
            size = 0;
        }
    }
    if !batch.is_empty() {
        batches.push(batch);
    }
    batches
}

/// Moves one batch of folios; puts those that stay into `failed`.
///
/// Source: mm/migrate.c:migrate_pages_batch (6.12).
fn migrate_pages_batch(
    env: &mut impl Env,
    folios: &[Pfn],
    job: Job,
    failed: &mut FolioList,
) -> Result<(), NoMemory> {
    // 1. Unmap each folio.
    let (mut unmapped, mut ended) = (Vec::new(), Ok(()));
    for (at, &folio) in folios.iter().enumerate() {
        match migrate_folio_unmap(env, folio, job, Migrate::Batched) {
            Ok(Unmapped::Freed) => {}
            Ok(Unmapped::To(to, waits)) => unmapped.push((folio, to, waits)),
            Ok(Unmapped::NotYet) => failed.push(folio),
            Err(NoMemory) => {
                failed.extend_from_slice(&folios[at..]);
                ended = Err(NoMemory);
                break;
            }
        }
    }
    // 2. Flush once for all folios, except those that may wait for a later flush.
    let defers = env.policies().defer_flush != DeferFlush::Never;
    let deferred = defers && join_deferred(env, Site::TryToUnmapFlush);
    try_to_unmap_flush(env, Batch::Task, Site::TryToUnmapFlush);
    // 3. Copy each folio and map the copy.
    for (folio, to, waits) in unmapped {
        if !migrate_folio_move(env, folio, to, (job, waits && deferred)) {
            undo(env, folio, to);
            failed.push(folio);
        }
    }
    ended
}

/// Takes the folio's translations away.
fn migrate_folio_unmap(
    env: &mut impl Env,
    folio: Pfn,
    job: Job,
    how: Migrate,
) -> Result<Unmapped, NoMemory> {
    let site = Site::MigrateFolioUnmap;
    // 1. Is the folio still in use?
    let order = env.step(site, |w, at| {
        let freed = w.frames.get(folio).refs == 1;
        if freed {
            w.put_frame(at, folio);
        }
        (!freed).then(|| w.frames.folio(folio).1)
    });
    let Some(order) = order else { return Ok(Unmapped::Freed) };
    // 2. Allocate the copy.
    let near = job.target.near(folio);
    let request = Request { near, order, flags: FrameFlags::default(), copies: Some(folio) };
    let Some(to) = with_frames(env, site, request, |w, at, door| door.take(w, at)) else {
        return Err(NoMemory);
    };
    // 3. Lock both.
    let locked = match how {
        Migrate::Batched | Migrate::Async => env.try_lock(Site::FolioTryLock, Lock::Folio(folio)),
        Migrate::Sync => {
            env.lock(Lock::Folio(folio));
            true
        }
    };
    if !locked {
        env.step(Site::FolioPut, |w, at| w.put_frame(at, to));
        return Ok(Unmapped::NotYet);
    }
    env.lock(Lock::Folio(to));
    // 4. Replace each translation by a migration entry.
    if order > 0 {
        rmap_walk_folio(env, site, folio, |env, part| set_pmd_migration_entry(env, folio, part));
    } else {
        let may_wait = how == Migrate::Batched;
        let defers = may_wait && may_defer(env.policies(), job.asked.unmaps_for());
        let unmap = Unmap { defers, ..Unmap::of(folio, UnmapFor::Migration { may_wait }) };
        rmap_walk(env, site, folio, |env, place| try_to_unmap_one(env, unmap, place));
    }
    let defers = env.policies().defer_flush != DeferFlush::Never;
    let waits = defers && folio_unmapped(env, site);
    let mapped = env.step(site, |w, _| w.frames.folio_maps(folio) > 0);
    if mapped {
        undo(env, folio, to);
        return Ok(Unmapped::NotYet);
    }
    Ok(Unmapped::To(to, waits))
}

/// Copies the folio and maps the copy, unless somebody holds a reference to the folio. `owes`: a
/// later flush does the folio's flush.
fn migrate_folio_move(env: &mut impl Env, folio: Pfn, to: Pfn, (job, owes): (Job, bool)) -> bool {
    let (site, at_once) = (Site::MigrateFolioMove, job.asked.at_once(env.policies()));
    let copied = env.step(site, |w, at| {
        let alone = w.frames.get(folio).refs == 1;
        if alone {
            copy(w, folio, to);
            if w.policies.migrate_lru == MigrateLru::AtOnce {
                folio_add_lru(w, at, to);
            }
        }
        alone
    });
    if !copied {
        return false;
    }
    if at_once {
        lru_add_drain(env);
    }
    remove_migration_ptes(env, folio, to);
    env.unlock(Lock::Folio(to));
    env.step(Site::FolioPut, |w, at| {
        if w.policies.migrate_lru == MigrateLru::Batch {
            folio_add_lru(w, at, to);
        }
        w.put_frame(at, to);
    });
    env.unlock(Lock::Folio(folio));
    env.step(Site::FolioPut, |w, at| match owes {
        true => leave_frame(w, at, folio, Some(to)),
        false => w.put_frame(at, folio),
    });
    true
}

/// Gives the copy the folio's identity, flags and contents.
///
/// Source: mm/migrate.c:folio_migrate_mapping, folio_migrate_flags (6.1 to 7.3),
/// migrate_page_move_mapping, migrate_page_states (5.10).
fn copy<M: Mode>(w: &mut World<M>, folio: Pfn, to: Pfn) {
    let was = w.frames.get(folio);
    w.frames.update(to, |copy| (copy.object, copy.index) = (was.object, was.index));
    for flag in
        [FrameFlags::SWAP_BACKED, FrameFlags::DIRTY, FrameFlags::ACTIVE, FrameFlags::REFERENCED]
    {
        w.frames.set_flags(to, flag, was.flags.has(flag));
    }
    for (page, copy) in w.frames.pages_of_folio(folio).zip(w.frames.pages_of_folio(to)) {
        let zeros = w.frames.flags(page).has(FrameFlags::ZERO_FILLED);
        w.frames.set_flags(copy, FrameFlags::ZERO_FILLED, zeros);
        w.ghost.migrated(page, copy);
    }
}

/// Replaces the folio's migration entries by translations of `to`.
///
/// Source: mm/migrate.c:remove_migration_ptes (5.10 to 7.3).
fn remove_migration_ptes(env: &mut impl Env, folio: Pfn, to: Pfn) {
    let site = Site::RemoveMigrationPte;
    let large = env.config().large_folios
        && env.step(site, |w, _| w.frames.flags(to).has(FrameFlags::LARGE));
    if large {
        rmap_walk_folio(env, site, to, |env, part| remove_migration_pmd(env, (folio, to), part));
        return;
    }
    let again = Destination { from: folio.0..folio.0 + 1, to, zero_page: false };
    rmap_walk(env, site, to, |env, (mm, page)| {
        let mapped = pte_offset_map_lock(env, site, mm, page, |w, at| {
            remove_migration_pte(w, at, (mm, page), &again);
        });
        if mapped.is_some() {
            pte_unmap_unlock(env, mm, page);
        }
    });
}

/// Maps the folio again as before, and frees the copy.
///
/// Source: mm/migrate.c:migrate_folio_undo_src, migrate_folio_undo_dst (6.12), unmap_and_move
/// (5.10, 6.1).
fn undo(env: &mut impl Env, folio: Pfn, to: Pfn) {
    remove_migration_ptes(env, folio, folio);
    env.unlock(Lock::Folio(folio));
    env.unlock(Lock::Folio(to));
    env.step(Site::FolioPut, |w, at| w.put_frame(at, to));
}

/// Puts the folios that stay back on the LRU: through this CPU's batch, or at once where the
/// batches are disabled.
///
/// Source: mm/migrate.c:putback_movable_pages (5.10 to 7.3).
pub fn putback_movable_pages(env: &mut impl Env, folios: &[Pfn], asked: Asked) {
    if folios.is_empty() {
        return;
    }
    env.step(Site::FolioPutbackLru, |w, at| {
        for &folio in folios {
            folio_add_lru(w, at, folio);
            w.put_frame(at, folio);
        }
    });
    if asked.at_once(env.policies()) {
        lru_add_drain(env);
    }
}

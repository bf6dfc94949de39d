//! Memory policies: `mbind` and `set_mempolicy`, and moves of pages that do not follow the policy.
//!
//! `mbind` gives mappings another policy, and splits them at the borders of its range. With
//! `MPOL_MF_MOVE` it first isolates those pages of the range that lie on a node which the policy
//! does not name, and moves them at the end. A policy that names no node (`MPOL_DEFAULT`,
//! `MPOL_LOCAL`) moves every page, even to the node that it is on.
//!
//! A hole in the range is an error. `MPOL_DEFAULT` accepts holes, but the range needs at least one
//! mapping. The kernel finds a hole before it changes a mapping, and puts back the pages that it
//! had isolated by then.
//!
//! `set_mempolicy` changes the policy of a thread. It decides about pages of mappings without a
//! policy when they are first touched.
//!
//! Source: mm/mempolicy.c:do_mbind, do_set_mempolicy (5.10, 6.1, 6.12).

use crate::addr::{MmId, PageRange, Pfn, Vpn};
use crate::env::{Env, Lock};
use crate::kernel::Errno;
use crate::kernel::lru::lru_add_drain_all;
use crate::kernel::migrate::{
    Asked, Target, folio_isolate_lru, migrate_pages, putback_movable_pages,
};
use crate::kernel::reclaim::FolioList;
use crate::kernel::table::each_table;
use crate::kernel::vma_flags::change_flags;
use crate::kernel::vma_lock::vma_start_write;
use crate::machine::nodes::MemPolicy;
use crate::machine::vma::Vma;
use crate::machine::world::{At, Mode, World};
use crate::numa::Mempolicy;
use crate::policy::MempolicyLock;
use crate::site::Site;

/// Gives the mappings in `range` the policy. `moves`: pages that do not follow it are moved. A page
/// that cannot be moved stays, without an error.
///
/// Source: mm/mempolicy.c:do_mbind (5.10, 6.1, 6.12). Batches of new pages are emptied first:
/// migrate_prep (5.10), lru_cache_disable (6.1, 6.12).
pub fn mbind(
    env: &mut impl Env,
    mm: MmId,
    range: PageRange,
    policy: Mempolicy,
    moves: bool,
) -> Result<(), Errno> {
    if moves {
        lru_add_drain_all(env);
    }
    env.lock(Lock::MmapWrite(mm));
    let nodes = env.step(Site::DoMbind, |w, _| w.nodes.count());
    let new = MemPolicy::of(policy, nodes);
    let mut folios = FolioList::new();
    let queued = queue_pages_range(env, (mm, range), new, moves.then_some(&mut folios));
    if queued.is_ok() {
        change_flags(env, Site::MbindRange, mm, range, |vma| Vma { mempolicy: new, ..*vma });
    }
    // Pages of a mapping without a policy go where the thread's policy puts them.
    let own = env.step(Site::DoMbind, |w, at| Some(w.tasks[at.thread.index()].mempolicy));
    let target = Target::Policy(new.or(own.unwrap_or_default()));
    let early = env.policies().mempolicy_lock == MempolicyLock::Isolated;
    if early {
        env.unlock(Lock::MmapWrite(mm));
    }
    match queued {
        Ok(()) if folios.is_empty() => {}
        // The call does not return how many of them stay.
        Ok(()) => _ = migrate_pages(env, &folios, target, Asked::ByCall),
        Err(_) => putback_movable_pages(env, &folios, Asked::ByCall),
    }
    if !early {
        env.unlock(Lock::MmapWrite(mm));
    }
    queued
}

/// Sets the thread's policy.
///
/// Source: mm/mempolicy.c:do_set_mempolicy (5.10, 6.1, 6.12).
pub fn set_mempolicy(env: &mut impl Env, policy: Mempolicy) {
    env.step(Site::DoSetMempolicy, |w, at| {
        let new = MemPolicy::of(policy, w.nodes.count());
        w.tasks[at.thread.index()].mempolicy = new;
    });
}

/// A mapping that the walk reaches.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
struct Found {
    /// The whole mapping.
    whole: PageRange,
    /// The part of the mapping that lies in the range.
    part: PageRange,
    /// Whether the range has a hole right before or behind the mapping.
    hole: bool,
}

/// Walks the mappings in the range in order. Isolates the pages that do not follow the policy into
/// `folios`, if there is such a list. Fails at the first mapping with a hole right before or behind
/// it, without walking that mapping, unless the policy accepts holes.
///
/// Source: mm/mempolicy.c:queue_pages_range, queue_pages_test_walk (5.10, 6.1, 6.12);
/// mm/pagewalk.c:walk_page_range, process_vma_walk_lock (6.12).
fn queue_pages_range(
    env: &mut impl Env,
    (mm, range): (MmId, PageRange),
    policy: MemPolicy,
    mut folios: Option<&mut FolioList>,
) -> Result<(), Errno> {
    let (site, holes) = (Site::QueuePagesRange, policy == MemPolicy::Default);
    let (mut rest, mut mapped) = (range, false);
    while let Some(found) = env.step(site, |w, at| next_mapping(w, at, mm, rest)) {
        mapped = true;
        vma_start_write(env, mm, found.whole);
        if found.hole && !holes {
            return Err(Errno::Efault);
        }
        if let Some(folios) = &mut folios {
            each_table(env, site, mm, found.part, |env, table| {
                for page in table.iter() {
                    let folio = env.step(site, |w, at| queue_page(w, at, (mm, page), policy));
                    folios.extend(folio);
                }
            });
        }
        rest.start = found.part.end;
    }
    // The whole range is a hole.
    if mapped { Ok(()) } else { Err(Errno::Efault) }
}

/// The first mapping in `rest`.
fn next_mapping<M: Mode>(w: &mut World<M>, at: At, mm: MmId, rest: PageRange) -> Option<Found> {
    w.mmap_assert_locked(at, mm);
    let space = &w.mms[mm.index()];
    let part = space.vmas_in(rest).next().filter(|_| !rest.is_empty())?.range;
    let whole = space.vma(part.start)?.range;
    let before = part.start != rest.start;
    let behind = part.end < rest.end && space.vma(part.end).is_none();
    Some(Found { whole, part, hole: before || behind })
}

/// Isolates the page's folio, if it does not follow the policy and only this mapping maps it.
///
/// Source: mm/mempolicy.c:queue_pages_pte_range, migrate_page_add (5.10), queue_folios_pte_range,
/// migrate_folio_add (6.1, 6.12).
fn queue_page<M: Mode>(
    w: &mut World<M>,
    at: At,
    (mm, page): (MmId, Vpn),
    policy: MemPolicy,
) -> Option<Pfn> {
    let pte = w.pte(mm, page).present().filter(|pte| !pte.special())?;
    let folio = w.frames.folio(pte.pfn).0;
    let moves = !policy.names(w.nodes.of_frame(folio)) && w.frames.folio_maps(folio) == 1;
    (moves && folio_isolate_lru(w, at, folio)).then_some(folio)
}

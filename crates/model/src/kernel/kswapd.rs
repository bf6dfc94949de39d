//! kswapd: when a node of fast memory runs short, moves pages that were not used lately to slower
//! memory.
//!
//! It uses the classic lists; multi-generational LRU is not modelled. It looks at 32 pages at a
//! time, from the tail of the inactive list. A page that was used since the last look stays; the
//! others move together, with one flush. As long as the inactive list is shorter than the active
//! one, pages move from the tail of the active list to the head of the inactive one, whether or not
//! they were used.
//!
//! Source: mm/vmscan.c:balance_pgdat, kswapd_shrink_node, kswapd_age_node, prepare_scan_control,
//! get_scan_count, shrink_lruvec, shrink_active_list, shrink_inactive_list, move_folios_to_lru,
//! inactive_is_low (6.12).

use crate::addr::{NodeId, Pfn};
use crate::env::Env;
use crate::kernel::lru::lru_add_drain;
use crate::kernel::reclaim::{
    Aging, CLUSTER, FolioList, demotes, folio_referenced, shrink_folio_list,
};
use crate::machine::frames::FrameFlags;
use crate::machine::lru::List;
use crate::machine::world::{Mode, World};
use crate::site::Site;

/// The result of one pass of kswapd.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Pass {
    /// The node has as much free memory as reclaim should leave: kswapd sleeps.
    Balanced,
    /// Another pass follows, with this priority: it looks at one page of 2^priority.
    Another(u32),
    /// Even the last pass, over all pages, freed too little.
    GivesUp,
}

/// One pass of kswapd over the lists of the node. The first pass looks at one page of 4,096
/// (`DEF_PRIORITY`, 12).
pub fn kswapd_pass(env: &mut impl Env, node: NodeId, priority: u32) -> Pass {
    if env.step(Site::BalancePgdat, |w, _| is_balanced(w, node)) {
        return Pass::Balanced;
    }
    if env.step(Site::BalancePgdat, |w, _| inactive_is_low(w, node)) {
        shrink_active_list(env, node, CLUSTER);
    }
    let looked_at = shrink_lruvec(env, node, priority);
    // If too few pages were looked at, the next pass looks at more.
    let enough = env.step(Site::BalancePgdat, |w, _| looked_at >= target(w));
    match priority {
        _ if enough => Pass::Another(priority),
        0 | 1 => Pass::GivesUp,
        _ => Pass::Another(priority - 1),
    }
}

/// The number of pages that a pass should reclaim.
fn target<M: Mode>(w: &World<M>) -> u64 {
    let high = w.tiers.as_ref().map_or(0, |tiers| tiers.watermarks.high);
    high.max(CLUSTER as u64)
}

/// Whether the node has enough free memory. Frames that wait for a flush count as free (MIGRC v8).
fn is_balanced<M: Mode>(w: &World<M>, node: NodeId) -> bool {
    let free = w.frames.free_on(node) + w.deferred.kept().len() as u64;
    w.tiers.as_ref().is_none_or(|tiers| free >= tiers.watermarks.promo)
}

/// Whether the inactive list is too short. Below 1 GiB both lists should be equally long.
fn inactive_is_low<M: Mode>(w: &World<M>, node: NodeId) -> bool {
    let (inactive, active) =
        (w.lru.len(node, List::InactiveAnon), w.lru.len(node, List::ActiveAnon));
    let gib = (u64::from(inactive) + u64::from(active)) >> (30 - 12);
    let ratio = if gib > 0 { (10 * gib).isqrt() } else { 1 };
    u64::from(inactive) * ratio < u64::from(active)
}

/// Scans both lists once. Returns how many pages it looked at.
fn shrink_lruvec(env: &mut impl Env, node: NodeId, priority: u32) -> u64 {
    let mut inactive = part(env, node, List::InactiveAnon, priority);
    let mut active = part(env, node, List::ActiveAnon, priority);
    let (deactivates, target) =
        env.step(Site::ShrinkLruvec, |w, _| (inactive_is_low(w, node), target(w)));
    let (mut looked_at, mut demoted) = (0, 0);
    while inactive > 0 || active > 0 {
        let now = inactive.min(CLUSTER as u64);
        inactive -= now;
        demoted += shrink_inactive_list(env, node, now as usize);
        let next = active.min(CLUSTER as u64);
        active -= next;
        if deactivates && next > 0 {
            shrink_active_list(env, node, next as usize);
        }
        looked_at += now + next;
        if demoted >= target {
            break;
        }
    }
    if env.step(Site::ShrinkLruvec, |w, _| inactive_is_low(w, node)) {
        shrink_active_list(env, node, CLUSTER);
    }
    looked_at
}

/// The number of folios of a list that a pass looks at.
fn part(env: &mut impl Env, node: NodeId, list: List, priority: u32) -> u64 {
    env.step(Site::ShrinkLruvec, |w, _| u64::from(w.lru.len(node, list)) >> priority)
}

/// Takes `count` folios from the tail of the list.
fn isolate(env: &mut impl Env, node: NodeId, list: List, count: usize) -> FolioList {
    if count == 0 {
        return FolioList::new();
    }
    lru_add_drain(env);
    env.step(Site::ShrinkFolioList, |w, at| {
        let folios: FolioList = w.lru.from_tail(node, list).take(count).collect();
        folios.iter().for_each(|folio| _ = w.isolate_lru(at, *folio));
        folios
    })
}

/// Ages and reclaims folios from the inactive list. Returns how many were demoted.
fn shrink_inactive_list(env: &mut impl Env, node: NodeId, count: usize) -> u64 {
    let folios = isolate(env, node, List::InactiveAnon, count);
    let demotes = demotes(env);
    let kept = shrink_folio_list(env, &folios, Aging::Counts, demotes);
    move_folios_to_lru(env, &kept);
    (folios.len() - kept.len()) as u64
}

/// Moves folios from the active list to the inactive one, whether or not they were used. Their
/// accessed bits are cleared and ignored.
fn shrink_active_list(env: &mut impl Env, node: NodeId, count: usize) {
    let folios = isolate(env, node, List::ActiveAnon, count);
    for folio in &folios {
        folio_referenced(env, *folio);
        env.step(Site::ShrinkActiveList, |w, _| {
            w.frames.set_flags(*folio, FrameFlags::ACTIVE, false);
        });
    }
    move_folios_to_lru(env, &folios);
}

/// Puts folios back, each on its list.
fn move_folios_to_lru(env: &mut impl Env, folios: &[Pfn]) {
    if folios.is_empty() {
        return;
    }
    env.step(Site::FolioPutbackLru, |w, at| {
        for &folio in folios {
            w.lru_add(folio, |_| ());
            w.put_frame(at, folio);
        }
    });
}

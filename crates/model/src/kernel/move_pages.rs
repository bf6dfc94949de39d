//! `move_pages`: moves pages of a process to a NUMA node, and returns where each page is.
//!
//! Pages are collected as long as they can be queued for the same node. The first page that cannot
//! be queued ends the batch, whatever the reason: the collected pages are moved, and a new batch
//! begins behind it. So a list with holes is moved in many batches.
//!
//! Source: mm/migrate.c:do_pages_move, move_pages_and_store_status; add_page_for_migration (5.10,
//! 6.1), add_folio_for_migration (6.12).

use crate::addr::{MmId, NodeId, PageRange, Vpn};
use crate::env::{Env, Lock};
use crate::event::EventKind;
use crate::kernel::Errno;
use crate::kernel::lru::lru_add_drain_all;
use crate::kernel::migrate::{Asked, Target, folio_isolate_lru, migrate_pages};
use crate::kernel::reclaim::FolioList;
use crate::kernel::table::{pte_offset_map_lock, pte_unmap_unlock};
use crate::machine::world::{At, Mode, World};
use crate::numa::PageStatus;
use crate::policy::MoveHole;
use crate::pte::{Pmd, PresentPte, Pte};
use crate::site::Site;

/// Moves each of the pages to the node, and emits the status of each.
pub fn move_pages(
    env: &mut impl Env,
    mm: MmId,
    pages: PageRange,
    node: NodeId,
) -> Result<(), Errno> {
    let mut answers = vec![PageStatus::UNTOLD; pages.pages() as usize];
    let ended = do_pages_move(env, mm, (pages, node), &mut answers);
    env.step(Site::DoPagesMove, |w, at| {
        for (page, status) in pages.iter().zip(answers) {
            w.emit(at, EventKind::PageStatus { page, status });
        }
    });
    ended
}

fn do_pages_move(
    env: &mut impl Env,
    mm: MmId,
    (pages, node): (PageRange, NodeId),
    answers: &mut [PageStatus],
) -> Result<(), Errno> {
    lru_add_drain_all(env);
    let (mut folios, mut first) = (FolioList::new(), 0);
    for (at, page) in pages.iter().enumerate() {
        let Queue::Answer(status) = add_folio_for_migration(env, mm, page, node, &mut folios)
        else {
            continue;
        };
        answers[at] = status;
        if !move_and_answer(env, &mut folios, node, &mut answers[first..at])? {
            return Ok(());
        }
        first = at + 1;
    }
    move_and_answer(env, &mut folios, node, &mut answers[first..]).map(|_| ())
}

/// Moves the collected folios. Returns false if some of them stay: then none of these pages gets a
/// status, and the caller stops here.
fn move_and_answer(
    env: &mut impl Env,
    folios: &mut FolioList,
    node: NodeId,
    answers: &mut [PageStatus],
) -> Result<bool, Errno> {
    if folios.is_empty() {
        return Ok(true);
    }
    let target = Target::Node(node);
    let stay = migrate_pages(env, &std::mem::take(folios), target, Asked::ByCall)
        .map_err(|_| Errno::Enomem)?;
    if stay == 0 {
        answers.fill(PageStatus::on(node.0));
    }
    Ok(stay == 0)
}

/// The result for one page.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
enum Queue {
    /// The page's folio is isolated.
    Isolated(crate::addr::Pfn),
    /// The page is not moved, and gets this status.
    Answer(PageStatus),
}

/// Isolates the page's folio, if it can be moved.
///
/// The reference that 5.10 and 6.1 take between lookup and isolation is left out.
fn add_folio_for_migration(
    env: &mut impl Env,
    mm: MmId,
    page: Vpn,
    node: NodeId,
    folios: &mut FolioList,
) -> Queue {
    let site = Site::DoPagesMove;
    env.lock(Lock::MmapRead(mm));
    let mapped = env.step(site, |w, _| w.mms[mm.index()].vma(page).is_some());
    let found = match mapped {
        true => match queue_huge(env, mm, page, node) {
            Some(found) => found,
            None => {
                let found = pte_offset_map_lock(env, site, mm, page, |w, at| {
                    queue(w, at, (mm, page), node)
                });
                if found.is_some() {
                    pte_unmap_unlock(env, mm, page);
                }
                found.unwrap_or_else(|| Queue::Answer(of_hole(env.policies().move_hole)))
            }
        },
        false => Queue::Answer(PageStatus::EFAULT),
    };
    env.unlock(Lock::MmapRead(mm));
    if let Queue::Isolated(folio) = found {
        folios.push(folio);
    }
    found
}

/// Isolates the huge page around the page, or returns the status of the page. `None`: there is no
/// huge page.
fn queue_huge(env: &mut impl Env, mm: MmId, page: Vpn, node: NodeId) -> Option<Queue> {
    if !env.config().huge_pages {
        return None;
    }
    let lock = Lock::pmd(env.arch(), mm, page);
    env.lock(lock);
    let found = env.step(Site::DoPagesMove, |w, at| {
        Some(match w.pmd(mm, page)? {
            Pmd::Mapped(pmd) => queue_folio(w, at, pmd, node),
            Pmd::Migrating(_) => Queue::Answer(of_hole(w.policies.move_hole)),
        })
    });
    env.unlock(lock);
    found
}

fn queue<M: Mode>(w: &mut World<M>, at: At, (mm, page): (MmId, Vpn), node: NodeId) -> Queue {
    match w.pte(mm, page) {
        Pte::Present(pte) => queue_folio(w, at, pte, node),
        Pte::None | Pte::Table(_) => Queue::Answer(of_hole(w.policies.move_hole)),
        Pte::Swap(_) | Pte::Migration(_) | Pte::Marker(_) => Queue::Answer(PageStatus::ENOENT),
    }
}

fn queue_folio<M: Mode>(w: &mut World<M>, at: At, pte: PresentPte, node: NodeId) -> Queue {
    if pte.special() {
        return Queue::Answer(PageStatus::EFAULT);
    }
    let folio = w.frames.folio(pte.pfn).0;
    if w.nodes.of_frame(folio) == node {
        return Queue::Answer(PageStatus::on(node.0));
    }
    if w.frames.folio_maps(folio) > 1 {
        return Queue::Answer(PageStatus::EACCES);
    }
    match folio_isolate_lru(w, at, folio) {
        true => Queue::Isolated(folio),
        false => Queue::Answer(PageStatus::EBUSY),
    }
}

/// The status of a page that is not there.
const fn of_hole(rule: MoveHole) -> PageStatus {
    match rule {
        MoveHole::Efault => PageStatus::EFAULT,
        MoveHole::Enoent => PageStatus::ENOENT,
    }
}

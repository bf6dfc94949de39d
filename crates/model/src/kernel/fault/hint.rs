//! A hint fault: an access to a page that NUMA balancing sampled ([`crate::kernel::numa_scan`]).
//!
//! If the page belongs on the node of the CPU that uses it, it moves there. Otherwise it is mapped
//! as before. The translation of a sampled page is in no TLB, so its migration owes no flush. 5.10
//! maps the page first and has to flush it.
//!
//! Up to 6.1 the PTE keeps the write permission while the page is sampled. Since 6.2 sampling takes
//! the permission away, and the fault decides on it again when it maps the page. It does not decide
//! again for a page that has moved: the next store to that page faults once more.
//!
//! Source: mm/memory.c:do_numa_page (6.1, 6.12), numa_migrate_prep (6.1), numa_migrate_check,
//! numa_rebuild_single_mapping (6.12); mm/mempolicy.c:mpol_misplaced;
//! mm/migrate.c:migrate_misplaced_page (6.1), migrate_misplaced_folio (6.12). 5.10: as seen
//! (e_hint: a flush of one page for each page that moves).

use super::outcome::{Fault, Served};
use crate::addr::{NodeId, Pfn};
use crate::env::{Env, Learnt};
use crate::event::FaultClass;
use crate::kernel::migrate::{Asked, Target, folio_isolate_lru, migrate_pages};
use crate::kernel::protect::can_change_pte_writable;
use crate::kernel::table::{pte_offset_map_lock, pte_unmap_unlock};
use crate::machine::nodes::MemPolicy;
use crate::machine::vma::Vma;
use crate::machine::world::{At, Mode, World};
use crate::policy::{HintFault, HintWrite};
use crate::program::Prot;
use crate::pte::{PresentPte, Pte, PteFlags};
use crate::site::Site;
use crate::verdict::{Judgement, Reason, Verdict};

/// What the fault does with the page.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
enum Next {
    /// The PTE has changed since it was read.
    Raced,
    /// The page stays where it is and is mapped again.
    Stays,
    /// The folio is isolated and moves to this node.
    Moves(Pfn, NodeId),
}

impl Learnt for Next {
    fn nothing() -> Next {
        Next::Raced
    }
}

/// Serves a hint fault. `seen` is the page's PTE, which grants no access although the mapping does.
pub fn do_numa_page(env: &mut impl Env, fault: Fault, vma: &Vma, seen: PresentPte) -> Served {
    let (site, Fault { mm, page, .. }) = (Site::DoNumaPage, fault);
    let maps_first = env.policies().hint_fault == HintFault::MapsFirst;
    let next = pte_offset_map_lock(env, site, mm, page, |w, at| {
        if w.pte(mm, page) != Pte::Present(seen) {
            return Next::Raced;
        }
        let goes = misplaced(w, at, vma, seen).filter(|(folio, node)| {
            w.may_promote(*folio, *node) && folio_isolate_lru(w, at, *folio)
        });
        let next = goes.map_or(Next::Stays, |(folio, node)| Next::Moves(folio, node));
        if maps_first || next == Next::Stays {
            map_again(w, at, fault, vma, seen, true);
        }
        next
    });
    let Some(next) = next else { return Served::spurious() };
    pte_unmap_unlock(env, mm, page);
    match next {
        Next::Raced => return Served::spurious(),
        Next::Stays => {}
        Next::Moves(folio, node) => {
            let moved = migrate_pages(env, &[folio], Target::Node(node), Asked::ByHintFault);
            if moved == Ok(0) {
                env.step(site, |w, _| w.count_moves(|moves| moves.promoted += 1));
            } else if !maps_first {
                let back = pte_offset_map_lock(env, site, mm, page, |w, at| {
                    if w.pte(mm, page) == Pte::Present(seen) {
                        map_again(w, at, fault, vma, seen, false);
                    }
                });
                if back.is_some() {
                    pte_unmap_unlock(env, mm, page);
                }
            }
        }
    }
    Served::judged(FaultClass::NumaHint, Verdict::new(Judgement::Needed, Reason::Sampled))
}

/// Returns the folio and the node that it belongs on, if that is another node.
///
/// The rule for threads on several nodes that use a page in turn is not modelled, because in
/// scenarios one thread uses it (kernel/sched/fair.c:should_numa_migrate_memory). A page in slow
/// memory always counts as hot. The limit of promotions per second, 64 GiB, is not reached.
fn misplaced<M: Mode>(w: &World<M>, at: At, vma: &Vma, pte: PresentPte) -> Option<(Pfn, NodeId)> {
    let (folio, here) = (w.frames.folio(pte.pfn).0, w.nodes.of_cpu(at.cpu));
    let anywhere = vma.mempolicy == MemPolicy::Default;
    (anywhere && w.nodes.of_frame(folio) != here).then_some((folio, here))
}

/// Maps the page as its mapping allows. If the PTE has not kept its write permission, `asks` says
/// whether to decide on it.
fn map_again<M: Mode>(
    w: &mut World<M>,
    at: At,
    fault: Fault,
    vma: &Vma,
    seen: PresentPte,
    asks: bool,
) {
    let pte = seen.without(PteFlags::PROTNONE).with(PteFlags::ACCESSED, true);
    let writable = match w.policies.hint_write {
        HintWrite::Saved => seen.writable(),
        HintWrite::Asked => {
            asks && vma.prot == Prot::ReadWrite
                && !vma.protects(pte.uffd_wp())
                && !vma.notes_store(pte.soft_dirty())
                && can_change_pte_writable(w, pte)
        }
    };
    w.set_pte(at, fault.mm, fault.page, Pte::Present(pte.with(PteFlags::WRITABLE, writable)));
}

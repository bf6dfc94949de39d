//! Pins without a lock (GUP-fast): the page table is read with interrupts off, while others may
//! change it.
//!
//! The walk takes its reference first. Then it looks again: at the PTE, and whether its table is
//! still the page's. That does not notice a fork, which asks whether a page is pinned and takes the
//! write permission away afterwards. So a fork advances a count (`write_protect_seq`), and a pin
//! looks at the count last. Interrupts are off meanwhile. This holds up flushes that are
//! interrupts, and operations that wait before they use a table again
//! ([`crate::kernel::table_sync`]).
//!
//! Source: mm/gup.c:gup_pte_range, gup_huge_pmd, lockless_pages_from_mm (5.10, 6.1),
//! gup_fast_pte_range, gup_fast_pmd_leaf, gup_fast (6.12 to 7.3).

use super::{Entry, Wanted, hold};
use crate::addr::{Pfn, PinId};
use crate::call::Gup;
use crate::env::{Env, Learnt};
use crate::machine::frames::ZERO_PAGE;
use crate::machine::world::{At, Ghost, Mode, World};
use crate::policy::Mutant;
use crate::pte::{Pmd, PresentPte, Pte};
use crate::site::Site;

/// What a walk finds above the last level.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
enum Found {
    /// A table. An empty entry counts as a table without pages.
    Table,
    /// A huge page that can be held.
    Huge(Entry),
    /// An entry whose page cannot be held.
    No,
}

impl Learnt for Found {
    fn nothing() -> Found {
        Found::No
    }
}

/// Tries to take hold of the page. Returns whether it did. `seq` is the count of forks that had
/// begun and ended before.
pub(super) fn gup_fast(env: &mut impl Env, id: PinId, wanted: Wanted, seq: u32) -> bool {
    // 1. Read the table or the huge page's entry, then the PTE.
    let found = env.step(Site::GupFastPgdRange, |w, at| look_up(w, at, wanted));
    let (entry, huge) = match found {
        Found::No => return false,
        Found::Huge(entry) => (Some(entry), true),
        Found::Table => (env.step(Site::GupFast, |w, at| read_pte(w, at, wanted)), false),
    };
    let Some(entry) = entry else { return false };
    // 2. Take a reference, unless the page is free by now.
    let pfn = entry.pte.pfn;
    if !env.step(Site::TryGrabFolio, |w, at| try_grab(w, at, wanted, pfn)) {
        return false;
    }
    // 3. Check that the entry still maps the page. (A reference without `FOLL_PIN` ends here.)
    let site = if huge { Site::GupFastPmdLeaf } else { Site::GupFast };
    let kept = env.step(site, |w, at| keep(w, at, id, wanted, (entry, huge)));
    if !kept || wanted.gup == Gup::Get {
        return kept;
    }
    // 4. Check that no fork came in between.
    env.step(Site::GupFastFork, |w, at| {
        let unguarded = w.policies.mutant == Mutant::PinUnguarded;
        let current = unguarded || w.mms[wanted.place.0.index()].write_protect_seq == seq;
        let pin = wanted.pin(pfn);
        if current {
            hold(w, id, pin);
        } else {
            w.ghost.unpinned(id);
            w.put_references(at, pfn, pin.weight());
        }
        current
    })
}

/// Looks up the entry above the last level. Interrupts are off from here on, unless its page cannot
/// be held.
fn look_up<M: Mode>(w: &mut World<M>, at: At, wanted: Wanted) -> Found {
    let (mm, page) = wanted.place;
    let pmd = match w.pmd(mm, page) {
        Some(Pmd::Mapped(pmd)) => pmd,
        Some(Pmd::Migrating(_)) => return Found::No,
        None => {
            w.walk_begins(at, mm, page);
            return Found::Table;
        }
    };
    let entry = Entry::of_huge_page(w, pmd, page);
    if !is_fine(w, wanted, entry.pte) {
        return Found::No;
    }
    w.walk_begins(at, mm, page);
    Found::Huge(entry)
}

fn is_fine<M: Mode>(w: &World<M>, wanted: Wanted, pte: PresentPte) -> bool {
    let needs_write = wanted.needs_write(w.policies.gup_read);
    !pte.protnone() && !pte.special() && (pte.writable() || !needs_write)
}

/// Reads the PTE. `None` if the page cannot be held in this way. Interrupts are then on again.
fn read_pte<M: Mode>(w: &mut World<M>, at: At, wanted: Wanted) -> Option<Entry> {
    let pte = w.walked_pte(at, wanted.place.1).present();
    let pte = pte.filter(|pte| is_fine(w, wanted, *pte));
    if pte.is_none() {
        w.walk_ends(at);
    }
    pte.map(Entry::of_page)
}

fn try_grab<M: Mode>(w: &mut World<M>, at: At, wanted: Wanted, pfn: Pfn) -> bool {
    let weight = wanted.pin(ZERO_PAGE).weight();
    let used = w.frames.get(pfn).refs > 0;
    if used {
        w.frames.update(pfn, |f| f.refs += weight);
    } else {
        w.walk_ends(at);
    }
    used
}

/// Keeps the reference if the entry has not changed, or gives it back. Interrupts are on again
/// afterwards.
fn keep<M: Mode>(
    w: &mut World<M>,
    at: At,
    id: PinId,
    wanted: Wanted,
    (entry, huge): (Entry, bool),
) -> bool {
    let ((mm, page), pin) = (wanted.place, wanted.pin(entry.pte.pfn));
    let same = match huge {
        true => w.huge_page(mm, page).map(|pmd| Entry::of_huge_page(w, pmd, page)) == Some(entry),
        false => w.is_walk_current(at) && w.walked_pte(at, page) == Pte::Present(entry.pte),
    };
    let current = same && !wanted.must_unshare(w, entry);
    w.walk_ends(at);
    if !current {
        w.put_references(at, entry.pte.pfn, pin.weight());
    } else if wanted.gup == Gup::Get {
        hold(w, id, pin);
    } else {
        // From here on the mapping may give the page up. It is still the page that was pinned.
        w.ghost.pinning(id, pin);
    }
    current
}

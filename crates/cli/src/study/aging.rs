//! Reclaim's passes over pages that nobody uses any more. They show what one superfluous accessed
//! bit costs.
//!
//! The rules of the classic LRU for a page on the inactive list depend on its accessed PTEs. With
//! one accessed PTE, the page stays there and is marked. With two, or if it was marked before, it
//! goes to the active list. With none, it is reclaimed. Active anonymous pages go back to the
//! inactive list at the next pass. With MGLRU one accessed PTE is enough, and a larger number makes
//! no difference.
//!
//! Source: mm/vmscan.c:page_check_references (5.10), folio_check_references, shrink_active_list
//! (6.12, 7.3); lru_gen_look_around and walk_mm (6.12).

use needless_model::addr::{MmId, PageRange, Pfn};
use needless_model::machine::lru::References;
use needless_model::machine::mm::Mm;
use needless_model::machine::world::{Mode, World};
use needless_model::pte::{Pte, PteFlags};
use std::collections::BTreeMap;

/// Where the pages of a range are after a pass.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Pass {
    /// The number of pages on the active list.
    pub active: u64,
    /// The number of pages in memory, on either list.
    pub resident: u64,
}

/// The place of one page.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Place {
    Inactive { marked: bool },
    Active { marked: bool },
    Reclaimed,
}

/// Passes over the pages of `range` in every address space. All pages are inactive at first, and
/// nobody uses them meanwhile. Each pass clears the accessed bits that it finds.
pub fn passes<M: Mode>(world: &mut World<M>, range: PageRange, passes: usize) -> Vec<Pass> {
    let mut places: BTreeMap<Pfn, Place> = BTreeMap::new();
    (0..passes)
        .map(|_| {
            let used = take_accessed(world, range);
            for (&frame, &ptes) in &used {
                let place = places.entry(frame).or_insert(Place::Inactive { marked: false });
                *place = next(*place, ptes);
            }
            let count = |wanted: fn(&Place) -> bool| places.values().filter(|p| wanted(p)).count();
            Pass {
                active: count(|place| matches!(place, Place::Active { .. })) as u64,
                resident: count(|place| !matches!(place, Place::Reclaimed)) as u64,
            }
        })
        .collect()
}

/// The next place of a page with this many accessed PTEs.
const fn next(place: Place, ptes: u32) -> Place {
    match place {
        Place::Inactive { marked } => match References::check(ptes, marked) {
            References::Reclaim => Place::Reclaimed,
            References::Keep => Place::Inactive { marked: true },
            References::Activate => Place::Active { marked: true },
        },
        Place::Reclaimed => Place::Reclaimed,
        Place::Active { marked } => Place::Inactive { marked },
    }
}

/// The frames of the range's pages, each with the number of its accessed PTEs. Clears the accessed
/// bits.
fn take_accessed<M: Mode>(world: &mut World<M>, range: PageRange) -> BTreeMap<Pfn, u32> {
    let mut used = BTreeMap::new();
    for mm in 0..world.mms.len() {
        for page in range.iter() {
            let Pte::Present(pte) = world.pte(MmId(mm as u16), page) else { continue };
            *used.entry(pte.pfn).or_insert(0) += u32::from(pte.accessed());
            let space: &mut Mm = &mut world.mms[mm];
            let unloads = space.unloads;
            space.table.set(page, Pte::Present(pte.without(PteFlags::ACCESSED)), unloads);
        }
    }
    used
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The place of a page after each pass, if the passes find these numbers.
    fn follow(found: &[u32]) -> Vec<Place> {
        let mut place = Place::Inactive { marked: false };
        let step = |ptes: &u32| {
            place = next(place, *ptes);
            place
        };
        found.iter().map(step).collect()
    }

    #[test]
    fn one_use_keeps_and_two_activate() {
        let (kept, active) = (Place::Inactive { marked: true }, Place::Active { marked: true });
        assert_eq!(follow(&[0]), [Place::Reclaimed]);
        assert_eq!(follow(&[1, 0]), [kept, Place::Reclaimed]);
        assert_eq!(follow(&[1, 1]), [kept, active], "used again since the last pass");
        assert_eq!(follow(&[2, 0, 0]), [active, kept, Place::Reclaimed]);
    }
}

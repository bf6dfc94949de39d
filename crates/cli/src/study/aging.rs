//! Reclaim's passes over pages that nobody uses any more: what one accessed bit too many costs.
//!
//! The classic LRU: a page on the inactive list that one PTE says was used stays there, marked; one
//! that two PTEs say was used, or that was marked before, goes to the active list; a page that none
//! says was used is reclaimed. Active anonymous pages go back to the inactive list at the next
//! pass. With multi-generational LRU it is enough that any PTE says so, and how many do makes no
//! difference.
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
    /// On the active list.
    pub active: u64,
    /// In memory, on either list.
    pub resident: u64,
}

/// Where one page is.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Place {
    Inactive { marked: bool },
    Active { marked: bool },
    Reclaimed,
}

/// Passes over the pages of `range`, all inactive at first, of every address space, with nobody
/// using them meanwhile. Accessed bits are taken as the passes find them.
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

/// What becomes of a page that so many PTEs say was used.
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

/// The frames that the range's pages are in, with how many PTEs say that each was used, which they
/// no longer say.
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

    /// Where a page is after each pass, with what each finds.
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

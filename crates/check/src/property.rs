//! The properties, by name.

use crate::shadow::CheckWorld;
use needless_model::addr::{CpuId, Vpn};
use needless_model::machine::frames::ZERO_PAGE;
use needless_model::machine::world::At;
use needless_model::pte::Pte;

/// A safety property.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Property {
    /// P1.
    NoUseAfterFree,
    /// P2.
    Coherence,
    /// P3.
    NoLostWrite,
    /// P11.
    Progress,
}

impl Property {
    /// The properties that are checked.
    pub const ALL: [Property; 4] =
        [Property::NoUseAfterFree, Property::Coherence, Property::NoLostWrite, Property::Progress];

    /// Its number and name.
    pub const fn name(self) -> &'static str {
        match self {
            Property::NoUseAfterFree => "P1 no use after free through a stale translation",
            Property::Coherence => "P2 coherence",
            Property::NoLostWrite => "P3 no lost write",
            Property::Progress => "P11 progress",
        }
    }
}

/// A property that does not hold.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Violation {
    /// Which.
    pub property: Property,
    /// What happened, in words.
    pub what: String,
    /// The CPU that did it; `None` if it is the final state that is wrong.
    pub cpu: Option<CpuId>,
    /// The page.
    pub page: Vpn,
}

/// Takes down a violation, unless there was one before.
pub fn violate(w: &mut CheckWorld, at: Option<At>, property: Property, page: Vpn, what: String) {
    let cpu = at.map(|at| at.cpu);
    w.ghost.violation.get_or_insert(Violation { property, what, cpu, page });
}

/// At the end: what each page holds, in memory or in swap, is what was stored last.
pub fn check_final_state(w: &mut CheckWorld) {
    let mm = &w.mms[1];
    let pages: Vec<Vpn> = mm.vmas().iter().flat_map(|vma| vma.range.iter()).collect();
    for page in pages {
        let found = match w.mms[1].table.get(page) {
            Pte::Present(pte) if pte.pfn == ZERO_PAGE => 0,
            Pte::Present(pte) => w.ghost.load(pte.pfn),
            Pte::Swap(swap) => match w.swap.get(swap.slot).cached {
                Some(frame) => w.ghost.load(frame),
                None => w.ghost.slot(swap.slot),
            },
            Pte::None => 0,
        };
        let expected = w.ghost.expected(page);
        if found != expected {
            let what = format!("at the end {page} holds {found}; the last store wrote {expected}");
            violate(w, None, Property::NoLostWrite, page, what);
        }
    }
}

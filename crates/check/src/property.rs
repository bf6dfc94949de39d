//! The properties, by name.

use needless_model::addr::{CpuId, Vpn};

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

//! Properties exercised and violated.

pub use needless_model::property::Property;

use needless_model::addr::{CpuId, Vpn};

/// A set of properties.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PropertySet(u16);

impl PropertySet {
    /// Adds `property`.
    pub fn add(&mut self, property: Property) {
        self.0 |= 1 << property as u16;
    }

    /// Adds all of `other`.
    pub fn union(&mut self, other: PropertySet) {
        self.0 |= other.0;
    }

    /// The properties of `all`.
    pub fn of(all: impl IntoIterator<Item = Property>) -> PropertySet {
        let mut set = PropertySet::default();
        all.into_iter().for_each(|property| set.add(property));
        set
    }

    /// A bit for each property.
    pub const fn bits(self) -> u16 {
        self.0
    }

    /// The properties of these bits.
    pub const fn of_bits(bits: u16) -> PropertySet {
        PropertySet(bits)
    }

    /// Whether `property` is in it.
    pub fn has(self, property: Property) -> bool {
        self.0 & 1 << property as u16 != 0
    }
}

/// A property that does not hold.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Violation {
    /// The property that does not hold.
    pub property: Property,
    /// What happened, in words.
    pub what: String,
    /// The CPU that did it; `None` if it is the state that is wrong.
    pub cpu: Option<CpuId>,
    /// The page.
    pub page: Vpn,
}

//! Properties exercised and violated.

pub use needless_model::property::Property;

use needless_model::addr::{CpuId, Vpn};
use std::hash::{Hash, Hasher};

/// A set of properties. As part of a state it counts for nothing: two states that differ in what
/// was exercised on the way are the same.
#[derive(Copy, Clone, Debug, Default)]
pub struct Exercised(u16);

impl Exercised {
    /// The case of `property` occurred.
    pub fn add(&mut self, property: Property) {
        self.0 |= 1 << property as u16;
    }

    /// Adds all of `other`.
    pub fn union(&mut self, other: Exercised) {
        self.0 |= other.0;
    }

    /// Whether the case of `property` occurred.
    pub fn has(self, property: Property) -> bool {
        self.0 & 1 << property as u16 != 0
    }
}

impl PartialEq for Exercised {
    fn eq(&self, _: &Exercised) -> bool {
        true
    }
}

impl Eq for Exercised {}

impl Hash for Exercised {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

/// A property that does not hold.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Violation {
    /// Which.
    pub property: Property,
    /// What happened, in words.
    pub what: String,
    /// The CPU that did it; `None` if it is the state that is wrong.
    pub cpu: Option<CpuId>,
    /// The page.
    pub page: Vpn,
}

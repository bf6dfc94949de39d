//! Properties exercised and violated.

pub use needless_model::property::Property;

use needless_model::addr::{CpuId, Vpn};
use std::hash::{Hash, Hasher};

/// A set of properties.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PropertySet(u16);

impl PropertySet {
    /// All of them.
    pub fn all() -> PropertySet {
        Property::ALL.iter().copied().collect()
    }

    /// Adds `property`.
    pub fn add(&mut self, property: Property) {
        self.0 |= 1 << property as u16;
    }

    /// Adds all of `other`.
    pub fn union(&mut self, other: PropertySet) {
        self.0 |= other.0;
    }

    /// Whether `property` is in it.
    pub fn has(self, property: Property) -> bool {
        self.0 & 1 << property as u16 != 0
    }
}

impl FromIterator<Property> for PropertySet {
    fn from_iter<T: IntoIterator<Item = Property>>(properties: T) -> PropertySet {
        let mut set = PropertySet::default();
        properties.into_iter().for_each(|property| set.add(property));
        set
    }
}

/// The properties whose case occurred. As part of a state it counts for nothing: two states that
/// differ in what was exercised on the way are the same.
#[derive(Copy, Clone, Debug, Default)]
pub struct Exercised(pub PropertySet);

impl Exercised {
    /// The case of `property` occurred.
    pub fn add(&mut self, property: Property) {
        self.0.add(property);
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

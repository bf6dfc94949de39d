//! Pins: what holds on to pages without a page table (`get_user_pages`, `pin_user_pages`).
//!
//! A pin is a reference to the frame, whatever becomes of the mapping. One of `FOLL_PIN` weighs as much as
//! [`PIN_WEIGHT`] others, so that a fork can tell it from them.

use crate::addr::{MmId, Pfn, PinId, Vpn};
use crate::call::{Gup, PinAccess};

/// What a `FOLL_PIN` adds to a frame's references (`GUP_PIN_COUNTING_BIAS`).
///
/// Source: include/linux/mm.h (5.10 to 7.3).
pub const PIN_WEIGHT: u32 = 1024;

/// A pin that is held.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pin {
    /// The frame.
    pub frame: Pfn,
    /// The page that it was found by.
    pub place: (MmId, Vpn),
    /// How it is held.
    pub gup: Gup,
    /// For what.
    pub access: PinAccess,
}

impl Pin {
    /// References that it stands for.
    pub const fn weight(&self) -> u32 {
        match self.gup {
            Gup::Get => 1,
            Gup::Pin => PIN_WEIGHT,
        }
    }
}

/// All pins of a scenario, by number.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Pins(Vec<Option<Pin>>);

impl Pins {
    /// Room for as many pins, none of them held.
    pub fn new(pins: usize) -> Pins {
        Pins(vec![None; pins])
    }

    /// Whether the scenario has any: without, nobody looks at page tables without their lock.
    pub fn any(&self) -> bool {
        !self.0.is_empty()
    }

    /// The pin, if it is held.
    pub fn get(&self, id: PinId) -> Option<Pin> {
        self.0[id.index()]
    }

    /// The pin is held from now on.
    pub fn hold(&mut self, id: PinId, pin: Pin) {
        self.0[id.index()] = Some(pin);
    }

    /// The pin is held no longer; what it was.
    pub fn release(&mut self, id: PinId) -> Option<Pin> {
        self.0[id.index()].take()
    }

    /// Those that are held.
    pub fn held(&self) -> impl Iterator<Item = Pin> + '_ {
        self.0.iter().flatten().copied()
    }
}

//! Pins: references to pages that no page table holds (`get_user_pages`, `pin_user_pages`).
//!
//! A pin is a reference to the frame, whatever happens to the mapping. A pin by `FOLL_PIN` counts
//! as [`PIN_WEIGHT`] references, so that a fork can distinguish it from others.

use crate::addr::{MmId, Pfn, PinId, Vpn};
use crate::call::{Gup, PinAccess};

/// The number of references that a `FOLL_PIN` pin adds to a frame (`GUP_PIN_COUNTING_BIAS`).
///
/// Source: include/linux/mm.h (5.10 to 7.3).
pub const PIN_WEIGHT: u32 = 1024;

/// A held pin.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pin {
    /// The frame.
    pub frame: Pfn,
    /// The address space and page that it was found by.
    pub place: (MmId, Vpn),
    /// How it is held.
    pub gup: Gup,
    /// The access that it is for.
    pub access: PinAccess,
}

impl Pin {
    /// The number of references that the pin counts as.
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
    /// Space for this many pins, none of which is held.
    pub fn new(pins: usize) -> Pins {
        Pins(vec![None; pins])
    }

    /// Whether the scenario has any pins. If not, no operation reads page tables without their
    /// lock.
    pub fn any(&self) -> bool {
        !self.0.is_empty()
    }

    /// The pin, if it is held.
    pub fn get(&self, id: PinId) -> Option<Pin> {
        self.0[id.index()]
    }

    /// Records that the pin is held.
    pub fn hold(&mut self, id: PinId, pin: Pin) {
        self.0[id.index()] = Some(pin);
    }

    /// Records that the pin is no longer held, and returns it.
    pub fn release(&mut self, id: PinId) -> Option<Pin> {
        self.0[id.index()].take()
    }

    /// The held pins.
    pub fn held(&self) -> impl Iterator<Item = Pin> + '_ {
        self.0.iter().flatten().copied()
    }
}

//! Who looks on while a program runs: takes each round, and can stop the run.

use super::SimWorld;
use crate::run::Round;

/// Where a run is.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Look {
    /// Rounds that are over, warm-up left out.
    pub rounds: u32,
    /// Events of the round that is under way.
    pub events: usize,
}

/// Takes what a run gives as it comes.
pub trait Watch {
    /// A round is over. The next one uses the same memory.
    fn round(&mut self, round: &Round);

    /// What there is after an operation or a fault, with how many events the round has so far. Only where
    /// [`SimOptions::shows`](super::SimOptions::shows) asks for it.
    fn world(&mut self, _: &SimWorld, _events: usize) {}

    /// Called every few thousand operations and faults, within rounds and outside. An error, which
    /// says why, stops the run.
    fn look(&mut self, _: Look) -> Result<(), String> {
        Ok(())
    }
}

impl<F: FnMut(&Round)> Watch for F {
    fn round(&mut self, round: &Round) {
        self(round);
    }
}

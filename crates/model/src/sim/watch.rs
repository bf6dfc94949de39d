//! The watcher of a run: it gets each round, and can stop the run.

use super::SimWorld;
use crate::run::Round;

/// The progress of a run.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Look {
    /// The number of finished rounds, without those of the warm-up.
    pub rounds: u32,
    /// The number of events of the current round.
    pub events: usize,
}

/// Receives the results of a run as they come.
pub trait Watch {
    /// Called after each round. The next round reuses its memory.
    fn round(&mut self, round: &Round);

    /// What there is after an operation or a fault, with how many events the round has so far. Only
    /// where [`SimOptions::shows`](super::SimOptions::shows) asks for it.
    fn world(&mut self, _: &SimWorld, _events: usize) {}

    /// Called every few thousand operations and faults, inside and outside rounds. An error stops
    /// the run, and contains the reason.
    fn look(&mut self, _: Look) -> Result<(), String> {
        Ok(())
    }
}

impl<F: FnMut(&Round)> Watch for F {
    fn round(&mut self, round: &Round) {
        self(round);
    }
}

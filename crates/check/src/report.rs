//! What an exploration found.

use crate::observe::Observed;
use crate::property::{PropertySet, Violation};
use crate::schedule::Schedule;
use crate::seen::missed;
use crate::trace::StepTaken;
use std::time::Duration;

/// What stopped an exploration before its end.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Bound {
    /// There are more states than this.
    States(usize),
    /// It took longer than this.
    Time(Duration),
    /// It needs more memory than this.
    Memory(u64),
}

/// What an exploration found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Different states.
    pub states: usize,
    /// States in which every thread was done.
    pub ends: usize,
    /// Steps that were taken from one state to another, known or not.
    pub steps: u64,
    /// How many bits of each state's key were kept.
    pub key_bits: u32,
    /// The longest schedule.
    pub depth: usize,
    /// Whose case occurred.
    pub exercised: PropertySet,
    /// What the row asked for beside what is always judged.
    pub asked: PropertySet,
    /// How often each observation was made at an end, and at how many it was not.
    pub observed: Vec<Observed>,
    /// The shortest way to a violation, if there is one.
    pub counterexample: Option<Counterexample>,
    /// What stopped it, if it did not get to an end.
    pub bound: Option<Bound>,
}

impl Report {
    /// The probability, at most, that a state was missed because its key was taken for another
    /// one's.
    pub fn missed(&self) -> f64 {
        missed(self.states, self.steps, self.key_bits)
    }

    /// Whether every state was looked at and none violates a property.
    pub fn holds(&self) -> bool {
        self.counterexample.is_none() && self.bound.is_none()
    }
}

/// A way to a violation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counterexample {
    /// The property and what happened.
    pub violation: Violation,
    /// The steps that lead there.
    pub steps: Vec<StepTaken>,
    /// The schedule of these steps, for a replay.
    pub schedule: Schedule,
    /// How many CPUs there are.
    pub cpus: usize,
}

//! Persistent sets: a thread whose next step no other one will ever notice goes alone.
//!
//! What threads may still do is not declared. It is taken from what they did: [`Futures`] has what
//! the steps of each action were seen to look at and change. An exploration that sees more starts
//! again, and knows it then. docs/checker.md has the argument.

use crate::footprint::Footprint;
use crate::shared::held;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

/// What each thread may look at and change from now on.
pub struct Futures {
    /// By thread and action: in this action and all later ones.
    onwards: Vec<Vec<Footprint>>,
    /// By thread and action: what was seen in this action.
    seen: Mutex<Vec<Vec<Footprint>>>,
    outgrown: AtomicBool,
}

impl Futures {
    /// Nothing was seen yet of threads with so many actions each.
    pub fn new(actions: impl Iterator<Item = usize>) -> Futures {
        let nothing = actions.map(|count| vec![Footprint::default(); count]);
        Futures::of_seen(nothing.collect())
    }

    fn of_seen(seen: Vec<Vec<Footprint>>) -> Futures {
        let onwards = |actions: &Vec<Footprint>| {
            let mut onwards = actions.clone();
            let mut later = Footprint::default();
            for action in onwards.iter_mut().rev() {
                later = later.with(*action);
                *action = later;
            }
            onwards
        };
        let onwards = seen.iter().map(onwards).collect();
        Futures { onwards, seen: Mutex::new(seen), outgrown: AtomicBool::new(false) }
    }

    /// What the thread may look at and change from this action on.
    pub fn of(&self, thread: usize, action: usize) -> Footprint {
        self.onwards[thread].get(action).copied().unwrap_or_default()
    }

    /// A step of this action was taken.
    pub fn note(&self, thread: usize, action: usize, footprint: Footprint) {
        if self.of(thread, action).covers(footprint) {
            return;
        }
        if let Some(seen) = held(&self.seen)[thread].get_mut(action) {
            *seen = seen.with(footprint);
            self.outgrown.store(true, Relaxed);
        }
    }

    /// Whether more was seen than is known.
    pub fn is_outgrown(&self) -> bool {
        self.outgrown.load(Relaxed)
    }

    /// All that was seen is known.
    pub fn grown(self) -> Futures {
        Futures::of_seen(self.seen.into_inner().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use needless_model::addr::MmId;
    use needless_model::env::Lock;

    #[test]
    fn what_is_seen_in_an_action_is_known_from_there_backwards() {
        let mut write = Footprint::default();
        write.lock(Lock::MmapWrite(MmId(1)));
        let futures = Futures::new([3, 1].into_iter());
        futures.note(0, 1, write);
        assert!(futures.is_outgrown() && futures.of(0, 1).commutes(write));
        let futures = futures.grown();
        let conflicts: Vec<bool> = (0..3).map(|act| !futures.of(0, act).commutes(write)).collect();
        assert_eq!(conflicts, [true, true, false]);
        assert!(futures.of(1, 0).commutes(write));
        futures.note(0, 0, write);
        assert!(!futures.is_outgrown(), "it is known");
        futures.note(0, 2, write);
        assert!(futures.is_outgrown());
    }
}

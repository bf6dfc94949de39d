//! What decides about moves between fast and slow memory: when a page was sampled, and how much
//! memory is free. Kept where a whole machine is simulated over time ([`crate::tiering`]); a
//! scenario says itself what is moved.

use super::world::{Mode, World};
use crate::addr::{NodeId, Pfn};

/// Free frames of fast memory at which something begins or ends (`enum zone_watermarks`).
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Watermarks {
    /// Pages of a mapping are taken from slow memory below this.
    pub low: u64,
    /// No page is promoted below this; reclaim is woken.
    pub high: u64,
    /// Reclaim ends here.
    pub promo: u64,
}

/// What happened.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Moves {
    /// PTEs that were sampled (`numa_pte_updates`).
    pub sampled: u64,
    /// Pages that went to fast memory (`pgpromote_success`).
    pub promoted: u64,
    /// Pages that went to slow memory (`pgdemote_kswapd`).
    pub demoted: u64,
    /// Of those, how many left their flush to a later one.
    pub deferred: u64,
    /// Lists that could not leave theirs, for a flush was under way.
    pub given_up: u64,
    /// Flushes of what others had left: before a frame was used again, because there was no other
    /// memory left.
    pub for_memory: u64,
}

impl Moves {
    /// What happened since.
    #[must_use]
    pub const fn since(self, before: Moves) -> Moves {
        Moves {
            sampled: self.sampled - before.sampled,
            promoted: self.promoted - before.promoted,
            demoted: self.demoted - before.demoted,
            deferred: self.deferred - before.deferred,
            given_up: self.given_up - before.given_up,
            for_memory: self.for_memory - before.for_memory,
        }
    }
}

/// The state of a machine with two tiers.
#[derive(Clone, Debug)]
pub struct Tiers {
    /// Milliseconds since the run began.
    pub now: u32,
    /// A page of slow memory that is used within so many milliseconds of its sample is hot.
    pub threshold: u32,
    /// Of the fast node.
    pub watermarks: Watermarks,
    /// A promotion found too little fast memory.
    pub wakes_kswapd: bool,
    /// What happened.
    pub moves: Moves,
    /// By frame: when its page was sampled.
    sampled: Vec<u32>,
}

impl Tiers {
    /// At the beginning of a run.
    pub fn new(threshold: u32, watermarks: Watermarks) -> Tiers {
        let (moves, sampled) = (Moves::default(), Vec::new());
        Tiers { now: 0, threshold, watermarks, wakes_kswapd: false, moves, sampled }
    }

    /// The page is sampled now.
    pub fn sample(&mut self, folio: Pfn) {
        let index = folio.0 as usize;
        if index >= self.sampled.len() {
            self.sampled.resize(index + 1, 0);
        }
        self.sampled[index] = self.now;
        self.moves.sampled += 1;
    }

    /// Whether the page, which is used now, is hot.
    ///
    /// Source: kernel/sched/fair.c:should_numa_migrate_memory, numa_hint_fault_latency (6.12).
    pub fn is_hot(&self, folio: Pfn) -> bool {
        let sampled = self.sampled.get(folio.0 as usize).copied().unwrap_or(0);
        self.now - sampled < self.threshold
    }
}

impl<M: Mode> World<M> {
    /// Whether so little of the node is free that pages of mappings come from another one.
    pub fn is_low(&self, node: NodeId) -> bool {
        let tiers = self.tiers.as_ref().filter(|_| self.nodes.is_top_tier(node));
        tiers.is_some_and(|tiers| self.frames.free_on(node) < tiers.watermarks.low)
    }

    /// Whether a page may be promoted, as far as time and memory go; if there is too little memory,
    /// reclaim is woken. Frames that wait for a flush count as free (MIGRC v8).
    ///
    /// Source: mm/migrate.c:migrate_misplaced_folio_prepare, migrate_balanced_pgdat (6.12).
    pub fn may_promote(&mut self, folio: Pfn, node: NodeId) -> bool {
        let waiting = self.deferred.kept().len() as u64;
        let Some(tiers) = &mut self.tiers else { return true };
        let hot = tiers.is_hot(folio);
        let balanced = self.frames.free_on(node) + waiting > tiers.watermarks.high;
        tiers.wakes_kswapd |= hot && !balanced;
        hot && balanced
    }

    /// Counts what happened, where that is counted.
    pub fn count_moves(&mut self, count: impl FnOnce(&mut Moves)) {
        if let Some(tiers) = &mut self.tiers {
            count(&mut tiers.moves);
        }
    }
}

//! The state that decides about moves between fast and slow memory: when a page was sampled, and
//! how much memory is free. It exists only where a whole machine is simulated over time
//! ([`crate::tiering`]). A scenario says itself what is moved.

use super::world::{Mode, World};
use crate::addr::{NodeId, Pfn};

/// Watermarks of fast memory, in free frames (`enum zone_watermarks`).
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Watermarks {
    /// Below this, pages of mappings are allocated from slow memory.
    pub low: u64,
    /// Up to this, no page is promoted, and reclaim is woken.
    pub high: u64,
    /// At this, reclaim ends.
    pub promo: u64,
}

/// Counts of moves between fast and slow memory.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Moves {
    /// The number of PTEs that were sampled (`numa_pte_updates`).
    pub sampled: u64,
    /// The number of pages that moved to fast memory (`pgpromote_success`).
    pub promoted: u64,
    /// The number of pages that moved to slow memory (`pgdemote_kswapd`).
    pub demoted: u64,
    /// The number of demoted pages whose flush was left to a later one.
    pub deferred: u64,
    /// The number of lists whose flush could not be left, because a flush was under way.
    pub given_up: u64,
    /// The number of flushes of deferred batches that were needed to reuse a frame, because there
    /// was no other free memory.
    pub for_memory: u64,
}

impl Moves {
    /// The difference from earlier counts.
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
    /// The milliseconds since the run began.
    pub now: u32,
    /// The time in milliseconds from the sample of a page in slow memory to its next access, below
    /// which the page is hot.
    pub threshold: u32,
    /// The watermarks of the fast node.
    pub watermarks: Watermarks,
    /// Whether a promotion found too little fast memory, so that kswapd has to be woken.
    pub wakes_kswapd: bool,
    /// The counts of moves.
    pub moves: Moves,
    /// When the page of each frame was last sampled, in milliseconds.
    sampled: Vec<u32>,
}

impl Tiers {
    /// The state at the beginning of a run.
    pub fn new(threshold: u32, watermarks: Watermarks) -> Tiers {
        let (moves, sampled) = (Moves::default(), Vec::new());
        Tiers { now: 0, threshold, watermarks, wakes_kswapd: false, moves, sampled }
    }

    /// Records that the page is sampled now.
    pub fn sample(&mut self, folio: Pfn) {
        let index = folio.0 as usize;
        if index >= self.sampled.len() {
            self.sampled.resize(index + 1, 0);
        }
        self.sampled[index] = self.now;
        self.moves.sampled += 1;
    }

    /// Whether the page, which is accessed now, is hot.
    ///
    /// Source: kernel/sched/fair.c:should_numa_migrate_memory, numa_hint_fault_latency (6.12).
    pub fn is_hot(&self, folio: Pfn) -> bool {
        let sampled = self.sampled.get(folio.0 as usize).copied().unwrap_or(0);
        self.now - sampled < self.threshold
    }
}

impl<M: Mode> World<M> {
    /// Whether so little of the node is free that pages of mappings are allocated from another
    /// node.
    pub fn is_low(&self, node: NodeId) -> bool {
        let tiers = self.tiers.as_ref().filter(|_| self.nodes.is_top_tier(node));
        tiers.is_some_and(|tiers| self.frames.free_on(node) < tiers.watermarks.low)
    }

    /// Whether time and free memory allow the promotion of a page. If there is too little memory,
    /// kswapd is to be woken. Frames that wait for a flush count as free (MIGRC v8).
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

    /// Changes the counts, if they are kept.
    pub fn count_moves(&mut self, count: impl FnOnce(&mut Moves)) {
        if let Some(tiers) = &mut self.tiers {
            count(&mut tiers.moves);
        }
    }
}

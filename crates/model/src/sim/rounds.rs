//! The rounds of a scenario: their numbers, beginnings and ends.

use super::SimError;
use super::interpret::Machine;
use crate::arch::TlbCode;
use crate::event::EventKind;
use crate::instructions::executed;
use crate::kernel::lru::lru_add_drain;
use crate::program::OpKind;

/// The number of events of a round from which on the watcher is asked before they are folded.
const MANY: usize = 1 << 16;

/// The progress of the rounds.
#[derive(Copy, Clone, Debug)]
pub(super) struct Course {
    /// The slot that counts rounds, including those of the warm-up.
    slot: u8,
    warmup: u32,
    count: u32,
    /// The next round that counts.
    next: u32,
    /// The number of warm-up rounds left before it.
    left: u32,
}

impl Course {
    pub(super) fn new(slot: u8, warmup: u32, count: u32) -> Course {
        Course { slot, warmup, count, next: 0, left: warmup }
    }

    /// The number of the coming round; negative for a warm-up round.
    fn number(&self) -> i64 {
        if self.left > 0 { -i64::from(self.left) } else { i64::from(self.next) }
    }

    /// The value of the slot in the coming round.
    fn counted(&self) -> i64 {
        let before = if self.warmup > 0 { self.number() } else { i64::from(self.next) };
        before + i64::from(self.warmup)
    }
}

impl Machine<'_, '_> {
    /// Begins the first round.
    pub(super) fn first_round(&mut self, course: Course) {
        // Rounds start from an empty LRU batch, on every target.
        lru_add_drain(&mut self.env());
        self.start_round(course);
    }

    /// Ends a round and begins the next one, unless that was the last.
    pub(super) fn next_round(&mut self, course: Course) -> Result<Option<Course>, Box<SimError>> {
        self.end_round(course.number())?;
        let Course { warmup, count, mut next, mut left, .. } = course;
        if left > 0 {
            left -= 1;
            if self.renews_after == warmup - left {
                self.renews_after = 0;
                self.begin_again();
                left = warmup;
            }
        } else {
            next += 1;
            if next == count {
                return Ok(None);
            }
            if self.repeats {
                self.begin_again();
                left = warmup.max(1);
            }
        }
        let course = Course { next, left, ..course };
        self.start_round(course);
        Ok(Some(course))
    }

    /// Repeats what the runner does after a disturbed round: sleeping threads wake up and fall
    /// asleep again, and the LRU batches are drained (crates/runner/src/rounds.rs).
    fn begin_again(&mut self) {
        let acting = self.thread;
        let sleeps = |op: &crate::program::Op| {
            matches!(op.kind, OpKind::Sleep { duration_ns: None } | OpKind::Serve { .. })
        };
        for thread in 0..self.threads.len() {
            if thread != acting
                && self.has_begun(thread)
                && self.program.threads[thread].body.iter().any(sleeps)
            {
                self.turn_to(thread);
                self.go_idle();
            }
        }
        self.turn_to(acting);
        lru_add_drain(&mut self.env());
    }

    fn start_round(&mut self, course: Course) {
        let round = course.number();
        self.threads[self.thread].slots[usize::from(course.slot)] = course.counted();
        self.world.log.clear();
        self.world.log.record(round >= 0);
        self.emit(EventKind::RoundStart { round });
    }

    fn end_round(&mut self, round: i64) -> Result<(), Box<SimError>> {
        self.splits.end(&mut self.world.log);
        self.emit(EventKind::RoundEnd { round });
        self.world.log.record(false);
        if round < 0 {
            return Ok(());
        }
        if self.world.log.overflowed || self.world.room.was_refused() {
            return Err(self.over_the_bound());
        }
        // Folding takes memory as well, so a round with many events is checked first.
        if self.world.log.events.len() >= MANY {
            self.look()?;
        }
        self.round.index = round as u32;
        std::mem::swap(&mut self.round.events, &mut self.world.log.events);
        let (minor, major) = self.world.log.faults;
        (self.round.minor_faults, self.round.major_faults) = (Some(minor), Some(major));
        if matches!(self.world.arch.tlb_code, TlbCode::Arm64(_)) {
            self.round.instructions = executed(&self.round.events);
        }
        self.watch.round(&self.round);
        self.rounds += 1;
        // The next round reuses this memory.
        std::mem::swap(&mut self.round.events, &mut self.world.log.events);
        self.world.log.clear();
        Ok(())
    }
}

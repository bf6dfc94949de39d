//! Interrupts by CPU, to hold against the kernel's own count in `/proc/interrupts`.
//!
//! That file cannot be read at one point in time: what comes while it is read may be in it or not.
//! So records are counted apart that came before the reading at the beginning, while it went on,
//! until the one at the end, and while that went on.

use crate::functions::Asked;
use crate::record::{Record, Vector};
use rustc_hash::FxHashMap;

/// How often something was seen between two readings, and how often while either went on.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// Between them.
    pub surely: u64,
    /// While they went on.
    pub maybe: u64,
}

impl Times {
    fn add(&mut self, when: When) {
        match when {
            When::Outside => {}
            When::Within => self.surely += 1,
            When::Edge => self.maybe += 1,
        }
    }

    /// Both together with another's.
    pub fn and(self, other: Times) -> Times {
        Times { surely: self.surely + other.surely, maybe: self.maybe + other.maybe }
    }

    /// Whether it is what the kernel counted.
    pub fn agrees(self, counted: u64) -> bool {
        (self.surely..=self.surely + self.maybe).contains(&counted)
    }
}

#[derive(Copy, Clone)]
enum When {
    Outside,
    Within,
    Edge,
}

/// What reached one CPU.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Functions called in interrupts.
    pub in_interrupts: FxHashMap<Asked, Times>,
    /// Functions that the CPU looked for itself.
    pub looked_for: FxHashMap<Asked, Times>,
    /// Interrupts for function calls, where they are recorded.
    pub calls: Times,
    /// Interrupts to look at what there is to run.
    pub reschedules: Times,
    /// Interrupts for work that was put off.
    pub irq_works: Times,
    /// Interrupts of the CPU's own timer.
    pub timers: Times,
    /// Flushes that were answered, where functions are not named.
    pub answers: Times,
}

/// When a file was being read, from and to.
pub type Reading = (u64, u64);

/// What reached each CPU.
#[derive(Clone, Debug)]
pub struct Tallies {
    cpus: FxHashMap<u16, Tally>,
    first: Reading,
    last: Reading,
}

impl Default for Tallies {
    fn default() -> Tallies {
        Tallies { cpus: FxHashMap::default(), first: (0, 0), last: (u64::MAX, u64::MAX) }
    }
}

impl Tallies {
    /// The kernel's count was read at the beginning.
    pub fn begin(&mut self, reading: Reading) {
        self.first = reading;
    }

    /// It was read at the end. No record of later has been folded by then.
    pub fn end(&mut self, reading: Reading) {
        self.last = reading;
    }

    /// What reached a CPU.
    pub fn of(&self, cpu: u16) -> Tally {
        self.cpus.get(&cpu).cloned().unwrap_or_default()
    }

    fn when(&self, time: u64) -> When {
        let within = |(from, to): Reading| (from..=to).contains(&time);
        match () {
            () if within(self.first) || within(self.last) => When::Edge,
            () if time > self.first.1 && time < self.last.0 => When::Within,
            () => When::Outside,
        }
    }

    pub(super) fn called(&mut self, record: &Record, asked: Asked, in_interrupt: bool) {
        let when = self.when(record.time);
        let tally = self.cpus.entry(record.cpu).or_default();
        let calls = if in_interrupt { &mut tally.in_interrupts } else { &mut tally.looked_for };
        calls.entry(asked).or_default().add(when);
    }

    pub(super) fn interrupted(&mut self, record: &Record, vector: Vector) {
        let when = self.when(record.time);
        let tally = self.cpus.entry(record.cpu).or_default();
        match vector {
            Vector::Calls => tally.calls.add(when),
            Vector::Reschedule => tally.reschedules.add(when),
            Vector::IrqWork => tally.irq_works.add(when),
            Vector::Timer => tally.timers.add(when),
            // Each has a line of its own.
            Vector::Device(_) => {}
        }
    }

    pub(super) fn answered(&mut self, record: &Record) {
        let when = self.when(record.time);
        self.cpus.entry(record.cpu).or_default().answers.add(when);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::What;

    #[test]
    fn what_comes_while_the_file_is_read_may_be_in_it_or_not() {
        let mut tallies = Tallies::default();
        tallies.begin((10, 12));
        for time in [9, 10, 12, 13, 20] {
            let record = Record { time, cpu: 1, pid: 0, tid: 0, what: What::Other };
            tallies.interrupted(&record, Vector::Calls);
        }
        tallies.end((30, 31));
        for time in [29, 30, 32] {
            let record = Record { time, cpu: 1, pid: 0, tid: 0, what: What::Other };
            tallies.interrupted(&record, Vector::Calls);
        }
        let seen = tallies.of(1).calls;
        assert_eq!(seen, Times { surely: 3, maybe: 3 });
        assert!(!seen.agrees(2) && seen.agrees(3) && seen.agrees(6) && !seen.agrees(7));
        assert_eq!(tallies.of(0).calls, Times::default());
    }
}

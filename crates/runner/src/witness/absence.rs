//! How long the scenario's threads could have run and did not, where no record tells who ran instead.

use std::time::Duration;

/// The part of a round for which its threads together may have been off their CPUs: its time is then as much too long.
const TOLERATED: f64 = 0.01;

/// What the threads have waited for their CPUs.
pub(super) struct Absence {
    tids: Vec<i32>,
    before: Option<u64>,
}

impl Absence {
    /// Of these threads; those that are not there yet have the number 0, and what they wait for is not known.
    pub(super) fn new(tids: Vec<i32>) -> Absence {
        Absence { tids, before: None }
    }

    /// Called before each round.
    pub(super) fn begin(&mut self) {
        self.before = self.waited();
    }

    /// Whether they were away for so little of a round of this length that it counts.
    pub(super) fn is_short(&self, round: Duration) -> bool {
        let away = self.waited().zip(self.before).map(|(now, before)| now.saturating_sub(before));
        away.is_some_and(|away| is_little(away, round))
    }

    /// Nanoseconds that all of them were runnable without a CPU (the second number of `/proc/TID/schedstat`:
    /// kernel/sched/stats.h:sched_info_dequeue, 5.10 to 7.3); unknown if one cannot be read.
    fn waited(&self) -> Option<u64> {
        self.tids
            .iter()
            .map(|tid| delay(&std::fs::read_to_string(format!("/proc/{tid}/schedstat")).ok()?))
            .sum()
    }
}

fn is_little(away: u64, round: Duration) -> bool {
    away as f64 <= TOLERATED * round.as_nanos() as f64
}

fn delay(schedstat: &str) -> Option<u64> {
    schedstat.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_delay_is_the_second_number() {
        assert_eq!(delay("1236387 70713 2\n"), Some(70713));
        assert_eq!(delay(""), None);
    }

    #[test]
    fn a_thread_that_is_not_there_has_waited_for_an_unknown_time() {
        let mut absence = Absence::new(vec![crate::sys::tid(), 0]);
        absence.begin();
        assert!(!absence.is_short(Duration::from_secs(1000)));
    }

    #[test]
    fn a_hundredth_of_the_round_is_little() {
        assert!(is_little(10_000_000, Duration::from_secs(1)));
        assert!(!is_little(10_000_001, Duration::from_secs(1)));
        let mut absence = Absence::new(vec![crate::sys::tid()]);
        absence.begin();
        assert!(absence.before.is_none() || absence.is_short(Duration::from_secs(1000)));
    }
}

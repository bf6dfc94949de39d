//! Measures how long the scenario's threads were runnable and did not run, where no record shows
//! which tasks ran instead.

use std::time::Duration;

/// The share of a round for which its threads together may be off their CPUs. The time of the round
/// is then too long by that share.
const TOLERATED: f64 = 0.01;

/// The time that the threads have waited for their CPUs.
pub(super) struct Absence {
    tids: Vec<i32>,
    before: Option<u64>,
}

impl Absence {
    /// For these threads. A thread that has not started has the id 0, and its waiting time is
    /// unknown.
    pub(super) fn new(tids: Vec<i32>) -> Absence {
        Absence { tids, before: None }
    }

    /// Called before each round. Notes the time waited so far.
    pub(super) fn begin(&mut self) {
        self.before = self.waited();
    }

    /// Whether the threads waited for so small a part of a round of this length that it counts.
    pub(super) fn is_short(&self, round: Duration) -> bool {
        let away = self.waited().zip(self.before).map(|(now, before)| now.saturating_sub(before));
        away.is_some_and(|away| is_little(away, round))
    }

    /// Nanoseconds that all of them were runnable without a CPU (the second number of
    /// `/proc/TID/schedstat`: kernel/sched/stats.h:sched_info_dequeue, 5.10 to 7.3). `None` if the
    /// file of one cannot be read.
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

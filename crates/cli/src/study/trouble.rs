//! Reasons why a real kernel shows nothing, which pass: another live run, a busy machine, one odd
//! round.

use crate::output::Progress;
use needless_report::compare::{Outcome, Ran, Target};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long to wait for another live run.
pub const PATIENCE: Duration = Duration::from_secs(180);

/// How long the machine is watched before its own kernel runs anything.
const WATCHED: Duration = Duration::from_millis(500);

/// The share of its CPUs that others may use without being mentioned.
const QUIET: f64 = 0.25;

/// Waits while `run` says that another live run is going on. Returns what it gave last.
pub fn patiently<T>(
    progress: &Progress,
    mut run: impl FnMut() -> T,
    is_busy: impl Fn(&T) -> bool,
) -> T {
    let deadline = Instant::now() + PATIENCE;
    let mut told = false;
    loop {
        let result = run();
        if !is_busy(&result) || Instant::now() > deadline {
            return result;
        }
        if !told {
            told = true;
            let most = PATIENCE.as_secs();
            progress
                .tell(&format!("another live run is going on: waiting for it, {most} s at most"));
        }
        sleep(Duration::from_secs(1));
    }
}

/// Tells the user if others use this machine's CPUs: rounds that they disturb do not count, and are
/// tried again many times.
pub fn tell_if_busy(progress: &Progress) {
    let Some(before) = Ticks::now() else { return };
    sleep(WATCHED);
    let Some(used) = Ticks::now().and_then(|now| now.used_since(before)) else { return };
    if used > QUIET {
        progress.tell(&format!(
            "this machine is busy: other programs use {:.0} % of its CPUs. Disturbed rounds are repeated, and \
             live relations may stay undecided; -t model -t check needs no quiet machine",
            100.0 * used
        ));
    }
}

/// Ticks of all CPUs since the machine started.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
struct Ticks {
    all: u64,
    idle: u64,
}

impl Ticks {
    fn now() -> Option<Ticks> {
        Ticks::read(&std::fs::read_to_string("/proc/stat").ok()?)
    }

    /// Source: Documentation/filesystems/proc.rst, `cpu user nice system idle iowait irq softirq
    /// steal guest guest_nice`. The time of guests is included in `user` and `nice`.
    fn read(stat: &str) -> Option<Ticks> {
        let numbers = stat.lines().next()?.strip_prefix("cpu ")?;
        let ticks = numbers.split_whitespace().take(8).map(|number| number.parse::<u64>().ok());
        let ticks: Vec<u64> = ticks.collect::<Option<_>>()?;
        let idle = ticks.get(3)? + ticks.get(4)?;
        Some(Ticks { all: ticks.iter().sum(), idle })
    }

    /// The share of all time that was used.
    fn used_since(self, before: Ticks) -> Option<f64> {
        let all = self.all.checked_sub(before.all).filter(|all| *all > 0)?;
        let idle = self.idle.saturating_sub(before.idle).min(all);
        Some((all - idle) as f64 / all as f64)
    }
}

/// What is wrong with a run that is worth repeating: it counts for nothing, or most of its rounds
/// equal the model's row and some do not.
pub fn worth_repeating(target: &Target) -> Option<String> {
    let ran = target.ran()?;
    if let Some(reason) = &ran.run.invalid {
        return Some(format!("the first run counts for nothing ({reason}), this is the second"));
    }
    let agreement = &ran.reference.as_ref()?.agreement;
    let (odd, rounds) = (agreement.differing.len(), agreement.rounds);
    let few = odd > 0 && 2 * odd < rounds;
    few.then(|| format!("{odd} of {rounds} rounds was odd the first time, none when repeated"))
}

/// Whether a second run takes the place of the first one. If the first counts for nothing, any run
/// that counts does; otherwise every round has to equal the model's row.
pub fn takes_its_place(first: &Target, second: &Target) -> bool {
    let is_invalid = |ran: &Ran| ran.run.invalid.is_some();
    let Some(again) = second.ran() else { return false };
    match first.ran().is_some_and(is_invalid) {
        true => !is_invalid(again),
        false => again.exact() == Some(true),
    }
}

/// Whether the reason why the run has no result passes when the machine is quiet.
pub fn passes(target: &Target) -> bool {
    match &target.outcome {
        Outcome::Unavailable { reason, .. } => is_other_run(reason),
        Outcome::Ran(ran) => ran.run.invalid.is_some(),
    }
}

/// Whether another live run holds the machine ([`needless_live::LiveError::Busy`]).
pub fn is_other_run(reason: &str) -> bool {
    let busy = needless_live::LiveError::Busy { holder: String::new() }.to_string();
    reason.starts_with(&busy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::targets;
    use needless_model::kernels::KernelRow;
    use needless_model::sim::{self, SimOptions};

    #[test]
    fn the_share_that_others_use() {
        let ticks = |stat: &str| Ticks::read(stat).unwrap();
        let before = ticks("cpu  100 0 100 700 100 0 0 0 0 0\ncpu0 1 2\n");
        assert_eq!(before, Ticks { all: 1000, idle: 800 });
        let now = ticks("cpu  150 0 100 740 110 0 0 0 50 0\n");
        assert_eq!(now.used_since(before), Some(0.5));
        assert_eq!(before.used_since(before), None);
        assert_eq!(Ticks::read("intr 1 2"), None);
    }

    /// A run of the model, which counts for nothing if there is a reason.
    fn ran(invalid: Option<&str>) -> Target {
        let program = targets::program("cow-reuse", &[], Some(2)).unwrap();
        let row = KernelRow::parse("6.12").unwrap();
        let mut run = sim::run(&program, &row, &SimOptions::default()).unwrap();
        run.invalid = invalid.map(str::to_owned);
        let outcome = Outcome::Ran(Box::new(Ran::alone(&program, run)));
        Target { name: "live".to_owned(), remark: None, outcome }
    }

    #[test]
    fn a_run_that_counts_for_nothing_is_repeated() {
        let (valid, invalid) = (ran(None), ran(Some("the machine is busy")));
        assert_eq!(worth_repeating(&valid), None);
        assert_eq!(
            worth_repeating(&invalid).unwrap(),
            "the first run counts for nothing (the machine is busy), this is the second"
        );
        assert!(takes_its_place(&invalid, &valid));
        assert!(!takes_its_place(&invalid, &invalid));
        // Nothing says that it equals the model's row.
        assert!(!takes_its_place(&valid, &valid));
    }

    #[test]
    fn another_live_run_is_waited_for() {
        let mut calls = 0;
        let run = || {
            calls += 1;
            let holder = "process 7".to_owned();
            match calls {
                1 => needless_live::LiveError::Busy { holder }.to_string(),
                _ => "done".to_owned(),
            }
        };
        let result = patiently(&Progress::spinner(), run, |reason| is_other_run(reason));
        assert_eq!((result.as_str(), calls), ("done", 2));
    }
}

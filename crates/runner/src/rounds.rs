//! Runs the rounds of a scenario, on thread 0.
//!
//! A round whose witness fails is marked and does not count. How the run goes on depends on the
//! scenario:
//!
//! - The rounds from here on are alike ([`alike_from`]), and the other threads only hold their
//!   CPUs. The run restores the state, and repeats the same round. To restore the state, sleepers
//!   are woken and fall asleep again, and the warm-up runs again. If there is no warm-up, one round
//!   runs that does not count.
//! - The result of this round depends on the rounds before it. This start of the runner ends, and
//!   the requester starts the runner again for the missing rounds.
//! - Other threads act too, and their loops cannot be wound back or left. The run goes on. It
//!   leaves out rounds until the state has settled, or all further rounds if they depend on this
//!   one. Another start supplies these.
//!
//! [`alike_from`]: needless_model::run::RunRequest::alike_from

use crate::log::{Attempt, Kind};
use crate::lru;
use crate::marks::Mark as Signal;
use crate::numa;
use crate::processes;
use crate::run::{Flow, Markers, Run};
use crate::sys::now_ns;
use crate::wire::Failure;
use crate::witness::{Observed, Watch};

/// The numbers of rounds that `rounds` asks for.
#[derive(Copy, Clone, Debug)]
pub struct Plan {
    /// Rounds that do not count.
    pub warmup: u32,
    /// Rounds that count.
    pub count: u32,
}

/// The number of attempts after which the runner gives up.
pub fn attempt_limit(rounds: u32) -> u32 {
    rounds.saturating_mul(5).saturating_add(20)
}

/// How often the warm-up may start again because of a disturbance in it or between rounds. If every
/// round is disturbed, the rounds themselves have to show that soon.
const MOST_RENEWALS: u32 = 10;

/// The rounds of a run, and its progress.
pub struct Rounds<'a> {
    run: &'a Run,
    markers: Markers<'a>,
    watch: Option<&'a mut Watch>,
    plan: Plan,
    /// Whether only thread 0 acts, apart from processes that end within the round.
    alone: bool,
    /// The next round that has to count.
    next: u32,
    /// Rounds of warm-up before the next round.
    warmup_left: u32,
    /// Rounds that do not count, until the effects of a disturbed round are gone.
    settling: u32,
    /// How often the warm-up has started again.
    renewals: u32,
    /// Whether any round has run.
    ran: bool,
}

impl<'a> Rounds<'a> {
    /// Prepares the rounds of `run`.
    pub fn new(
        run: &'a Run,
        markers: Markers<'a>,
        watch: Option<&'a mut Watch>,
        plan: Plan,
    ) -> Rounds<'a> {
        Rounds {
            run,
            markers,
            watch,
            plan,
            alone: run.program.only_first_acts(),
            next: 0,
            warmup_left: plan.warmup,
            settling: 0,
            renewals: 0,
            ran: false,
        }
    }

    /// Runs all rounds. `body` runs one; its argument is the value of the slot that counts rounds.
    pub fn run(
        mut self,
        mut body: impl FnMut(i64) -> Result<Flow, Failure>,
    ) -> Result<Flow, Failure> {
        if let Some(watch) = &mut self.watch {
            watch.first_round();
        }
        lru::drain(0)?;
        while self.next < self.plan.count {
            // If other tasks used the LRU batches between rounds, no round counts as disturbed.
            if self.may_renew() && self.lru_shared() {
                if self.ran && self.history_matters() {
                    self.watch.iter_mut().for_each(|watch| watch.ended_between_rounds());
                    break;
                }
                self.renewals += 1;
                self.begin_again()?;
            }
            let Some(good) = self.one(&mut body)? else { return Ok(Flow::Stop) };
            self.ran = true;
            if good {
                self.go_on();
            } else if !self.recover()? {
                break;
            }
            if self.gives_up() {
                break;
            }
        }
        Ok(Flow::On)
    }

    /// Whether there were too many attempts. The run then ends without all rounds.
    fn gives_up(&mut self) -> bool {
        let Some(watch) = &mut self.watch else { return false };
        let attempted = watch.witness.attempted;
        if attempted < attempt_limit(self.plan.count) {
            return false;
        }
        watch.gave_up =
            Some(format!("gave up after {attempted} attempts at {} rounds", self.plan.count));
        true
    }

    /// The number of the next round; negative in the warm-up.
    fn index(&self) -> i64 {
        match self.warmup_left {
            0 => i64::from(self.next),
            left => -i64::from(left),
        }
    }

    fn counts(&self) -> bool {
        self.warmup_left == 0 && self.settling == 0
    }

    /// Whether the next round that counts depends on what ran before it.
    fn history_matters(&self) -> bool {
        self.next < self.run.alike_from
    }

    /// Whether the state before a round can be restored.
    fn alone(&self) -> bool {
        self.alone && !self.run.team.any_lives()
    }

    fn may_renew(&self) -> bool {
        self.alone() && self.renewals < MOST_RENEWALS
    }

    /// Updates the progress after an undisturbed round.
    fn go_on(&mut self) {
        if self.warmup_left > 0 {
            self.warmup_left -= 1;
        } else if self.settling > 0 {
            self.settling -= 1;
            // The other threads have used up their turns of this round.
            self.next += u32::from(!self.alone());
        } else {
            self.next += 1;
        }
    }

    /// Prepares the next round after a disturbed one. Returns whether this start can supply more
    /// rounds.
    fn recover(&mut self) -> Result<bool, Failure> {
        let history_matters = self.history_matters();
        if self.alone() && history_matters {
            return Ok(false);
        }
        let warming = self.warmup_left > 0;
        if self.alone() && (!warming || self.may_renew()) {
            self.renewals += u32::from(warming);
            self.begin_again()?;
            return Ok(true);
        }
        if !self.alone() {
            self.settling = if history_matters { u32::MAX } else { self.plan.warmup.max(1) };
        }
        if warming {
            self.warmup_left -= 1;
        } else {
            self.next += 1;
        }
        Ok(true)
    }

    /// Restores the state that precedes the next round that counts.
    fn begin_again(&mut self) -> Result<(), Failure> {
        self.run.renew(self.watch.as_deref_mut());
        lru::drain(0)?;
        self.warmup_left = self.plan.warmup;
        self.settling = u32::from(self.ran && self.plan.warmup == 0);
        Ok(())
    }

    fn lru_shared(&mut self) -> bool {
        let run = self.run;
        self.watch.as_mut().is_some_and(|watch| watch.lru_shared(&mut run.log()))
    }

    /// Runs one round. Returns whether it was undisturbed, or `None` if the scenario ended in it.
    fn one(
        &mut self,
        body: &mut impl FnMut(i64) -> Result<Flow, Failure>,
    ) -> Result<Option<bool>, Failure> {
        let (run, index, counts) = (self.run, self.index(), self.counts());
        numa::begin_round().map_err(|error| Failure::internal("mbind", &error))?;
        if let Some(watch) = &mut self.watch {
            watch.before(&run.team, &mut run.log());
        }
        let (number, cycles_from) = {
            let log = run.log();
            (log.attempts.len() as u64, log.cycles.len())
        };
        if processes::several(&run.program) {
            processes::settle(run)?;
        }
        let start_ns = now_ns();
        let before = run.used();
        self.markers.write(Kind::RoundStart, number, 0);
        Signal::RoundBegins.make();
        let flow = body(i64::from(self.plan.warmup) + index)?;
        Signal::RoundEnds.make();
        self.markers.write(Kind::RoundEnd, number, 0);
        let used = run.used().since(before);
        if flow == Flow::Stop {
            return Ok(None);
        }
        let end_ns = now_ns();
        let resampled = numa::end_round();

        let mut log = run.log();
        let observed = Observed { start_ns, end_ns, used, counts, resampled };
        let (good, counters) = match &mut self.watch {
            Some(watch) => watch.after(&run.team, &mut log, observed),
            None => (true, Vec::new()),
        };
        if counts && good {
            Signal::RoundCounts.make();
        }
        let cycles_to = log.cycles.len();
        log.attempts.push(Attempt {
            index,
            kept: counts && good,
            minor_faults: used.minor_faults,
            major_faults: used.major_faults,
            cycles_from,
            cycles_to,
            counters,
        });
        Ok(Some(good))
    }
}

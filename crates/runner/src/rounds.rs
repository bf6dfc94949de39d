//! The rounds of a scenario, as thread 0 runs them.
//!
//! A round whose witness fails is marked and does not count. How the run goes on:
//!
//! - The rounds from here on are alike ([`alike_from`]) and the other threads only hold their CPUs:
//!   the state is brought back (sleepers go to sleep anew, the warm-up runs again, or where there is
//!   none one round that does not count) and the same round is repeated.
//! - What this round does depends on those before it: this start ends, and whoever started the runner
//!   starts it again for the rounds that are missing.
//! - Others act too: their loops cannot be wound back or left. The run goes on and leaves out rounds
//!   until the state has settled, or all that come if they depend on this one; another start
//!   brings those.
//!
//! [`alike_from`]: needless_model::run::RunRequest::alike_from

use crate::exec::{Flow, Run, Worker};
use crate::log::{Attempt, Kind};
use crate::marks::Mark as Signal;
use crate::session::drain_again;
use crate::sys::Usage;
use crate::wire::Failure;
use crate::witness::{Observed, Watch};
use needless_model::program::Op;

/// What `rounds` asks for.
#[derive(Copy, Clone, Debug)]
pub struct Plan {
    /// The slot that counts rounds.
    pub slot: u8,
    /// Rounds that do not count.
    pub warmup: u32,
    /// Rounds that do.
    pub count: u32,
}

/// Attempts after which the runner gives up.
fn attempt_limit(plan: Plan) -> u32 {
    plan.count.saturating_mul(5).saturating_add(20)
}

/// Times that the warm-up starts again because of what happened in it or between rounds. Where
/// every round is disturbed, it is the rounds that have to say so, soon.
const MOST_RENEWALS: u32 = 10;

/// Runs all rounds.
pub fn run(worker: &mut Worker<'_>, plan: Plan, body: &[Op]) -> Result<Flow, Failure> {
    let mut course = Course::new(plan, worker.run);
    if let Some(watch) = &mut worker.watch {
        watch.first_round();
    }
    drain_again(0)?;
    while course.next < plan.count {
        // What others did to the LRU batches between rounds is no round's fault.
        if course.may_renew() && lru_shared(worker) {
            if course.ran && course.history_matters() {
                worker.watch.iter_mut().for_each(Watch::ended_between_rounds);
                break;
            }
            course.renewals += 1;
            course.begin_again(worker)?;
        }
        let index = course.index();
        worker.slots[usize::from(plan.slot)] = i64::from(plan.warmup) + index;
        let Some(good) = one(worker, index, course.counts(), body)? else {
            return Ok(Flow::Stop);
        };
        course.ran = true;
        if good {
            course.go_on();
        } else if !course.recover(worker)? {
            break;
        }
        if let Some(watch) = &mut worker.watch
            && watch.witness.attempted >= attempt_limit(plan)
        {
            watch.gave_up = Some(format!(
                "gave up after {} attempts at {} rounds",
                watch.witness.attempted, plan.count
            ));
            break;
        }
    }
    Ok(Flow::On)
}

/// How far the rounds are.
struct Course {
    plan: Plan,
    /// Whether nobody but thread 0 acts.
    alone: bool,
    alike_from: u32,
    /// The next round that is to count.
    next: u32,
    /// Rounds of warm-up before it.
    warmup_left: u32,
    /// Rounds that do not count, until what a disturbed one left is gone.
    settling: u32,
    /// Times that the warm-up began again.
    renewals: u32,
    /// Whether a round was run.
    ran: bool,
}

impl Course {
    fn new(plan: Plan, run: &Run) -> Course {
        Course {
            plan,
            alone: run.program.only_first_acts(),
            alike_from: run.alike_from,
            next: 0,
            warmup_left: plan.warmup,
            settling: 0,
            renewals: 0,
            ran: false,
        }
    }

    /// The number of the round to come; negative in the warm-up.
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
        self.next < self.alike_from
    }

    fn may_renew(&self) -> bool {
        self.alone && self.renewals < MOST_RENEWALS
    }

    /// After a good round.
    fn go_on(&mut self) {
        if self.warmup_left > 0 {
            self.warmup_left -= 1;
        } else if self.settling > 0 {
            self.settling -= 1;
            // The others' turns went on.
            self.next += u32::from(!self.alone);
        } else {
            self.next += 1;
        }
    }

    /// After a disturbed round; whether this start can bring more.
    fn recover(&mut self, worker: &mut Worker<'_>) -> Result<bool, Failure> {
        let history_matters = self.history_matters();
        if self.alone && history_matters {
            return Ok(false);
        }
        let warming = self.warmup_left > 0;
        if self.alone && (!warming || self.may_renew()) {
            self.renewals += u32::from(warming);
            self.begin_again(worker)?;
            return Ok(true);
        }
        if !self.alone {
            self.settling = if history_matters { u32::MAX } else { self.plan.warmup.max(1) };
        }
        if warming {
            self.warmup_left -= 1;
        } else {
            self.next += 1;
        }
        Ok(true)
    }

    /// Brings the state back to what it is before the next round that counts.
    fn begin_again(&mut self, worker: &mut Worker<'_>) -> Result<(), Failure> {
        renew(worker);
        drain_again(0)?;
        self.warmup_left = self.plan.warmup;
        self.settling = u32::from(self.ran && self.plan.warmup == 0);
        Ok(())
    }
}

/// One round: whether nothing disturbed it; `None` if the scenario ended inside.
fn one(
    worker: &mut Worker<'_>,
    index: i64,
    counts: bool,
    body: &[Op],
) -> Result<Option<bool>, Failure> {
    let run = worker.run;
    if let Some(watch) = &mut worker.watch {
        watch.before(&run.team, &mut run.log());
    }
    let (number, cycles_from) = {
        let log = run.log();
        (log.attempts.len() as u64, log.cycles.len())
    };
    let start_ns = crate::sys::now_ns();
    let before = Usage::now();
    worker.marker(Kind::RoundStart, number, 0);
    Signal::RoundBegins.make();
    let flow = worker.body(body)?;
    Signal::RoundEnds.make();
    worker.marker(Kind::RoundEnd, number, 0);
    let used = Usage::now().since(before);
    if flow == Flow::Stop {
        return Ok(None);
    }
    let end_ns = crate::sys::now_ns();

    let mut log = run.log();
    let observed = Observed { start_ns, end_ns, used, counts };
    let (good, counters) = match &mut worker.watch {
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

fn lru_shared(worker: &mut Worker<'_>) -> bool {
    let run = worker.run;
    worker.watch.as_mut().is_some_and(|watch| watch.lru_shared(&mut run.log()))
}

/// Makes the CPUs of sleepers load the address space anew. It has to be done once after the rings
/// were opened, too: nobody saw who ran there until then.
pub fn renew(worker: &mut Worker<'_>) {
    if let Some(watch) = &mut worker.watch {
        watch.forget(&mut worker.run.log());
    }
    worker.run.team.renew_sleepers();
}

//! The rounds of a scenario, as thread 0 runs them.
//!
//! A round whose witness fails is marked and does not count. If the other threads only hold
//! their CPUs, the state is brought back (sleepers go to sleep anew, the warm-up runs again) and
//! the same round is repeated. If others act too, their loops cannot be wound back: the run goes
//! on, leaves out as many rounds as there were of warm-up, and whoever started the runner starts
//! it again for the rounds that are missing.

use crate::exec::{Flow, Worker};
use crate::log::{Attempt, Kind};
use crate::marks::Mark as Signal;
use crate::session::drain_again;
use crate::sys::Usage;
use crate::team::only_holds;
use crate::wire::Failure;
use crate::witness::Observed;
use needless_model::program::{Op, Program};

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

/// Whether rounds can be repeated at will: nobody but thread 0 acts.
pub fn repeatable(program: &Program) -> bool {
    program.threads.iter().skip(1).all(only_holds)
}

/// Runs all rounds.
pub fn run(worker: &mut Worker<'_>, plan: Plan, body: &[Op]) -> Result<Flow, Failure> {
    let repeatable = repeatable(&worker.run.program);
    let mut warmup_left = plan.warmup;
    let mut unsettled = 0;
    let (mut next, mut renewals) = (0, 0);
    if let Some(watch) = &mut worker.watch {
        watch.first_round();
    }
    drain_again(0)?;
    while next < plan.count {
        // What others did to the LRU batches between rounds is no round's fault.
        if repeatable && renewals < MOST_RENEWALS && lru_shared(worker) {
            renewals += 1;
            renew(worker);
            drain_again(0)?;
            warmup_left = plan.warmup;
        }
        let warming = warmup_left > 0;
        let index = if warming { -i64::from(warmup_left) } else { i64::from(next) };
        let slot = i64::from(plan.warmup) + index;
        worker.slots[usize::from(plan.slot)] = slot;
        let Some(mark) = one(worker, index, !warming && unsettled == 0, body)? else {
            return Ok(Flow::Stop);
        };
        if warming {
            warmup_left -= 1;
            // What a disturbed round leaves behind would show in the next one.
            match mark {
                Mark::Failed if !repeatable => unsettled = plan.warmup,
                Mark::Failed if renewals < MOST_RENEWALS => {
                    renewals += 1;
                    renew(worker);
                    drain_again(0)?;
                    warmup_left = plan.warmup;
                }
                Mark::Failed | Mark::Counts | Mark::Unsettled => {}
            }
            continue;
        }
        match mark {
            Mark::Counts => next += 1,
            Mark::Unsettled => {
                unsettled -= 1;
                next += 1;
            }
            Mark::Failed if repeatable => {
                renew(worker);
                drain_again(0)?;
                warmup_left = plan.warmup;
            }
            Mark::Failed => {
                unsettled = plan.warmup;
                next += 1;
            }
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

/// What became of a round.
enum Mark {
    Counts,
    Failed,
    Unsettled,
}

/// One round; `None` if the scenario ended inside.
fn one(
    worker: &mut Worker<'_>,
    index: i64,
    counts: bool,
    body: &[Op],
) -> Result<Option<Mark>, Failure> {
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
    Ok(Some(match (counts, good) {
        (true, true) => Mark::Counts,
        (_, false) => Mark::Failed,
        (false, true) => Mark::Unsettled,
    }))
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

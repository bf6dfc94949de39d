//! The explorer: breadth-first over all schedules, so that the first violation found is one of the
//! shortest.
//!
//! Two states are the same if their worlds are equal and every thread stands at the same step with
//! the same past. Only the states of the frontier are kept whole; of the others, the key and how
//! they were reached. Successors are computed side by side and taken in one order, so that the result
//! does not depend on how many workers there are.
//!
//! A choice sleeps in states where it leads only where others lead, too (sleep sets; docs/checker.md
//! has the argument): what it is known to do, it did before a step that it commutes with.

use crate::choice::Choice;
use crate::drive::keys;
use crate::error::CheckError;
use crate::footprint::Taken;
use crate::key::Key;
use crate::property::{PropertySet, Violation};
use crate::report::{Bound, Counterexample, Report};
use crate::schedule::Schedule;
use crate::setting::{Options, Progress, Setting, with_setting};
use crate::state::{Pools, State};
use crate::trace::{StepTaken, trace};
use needless_model::kernels::KernelRow;
use needless_model::machine::world::Inconsistency;
use needless_model::program::Program;
use rayon::prelude::*;
use std::collections::HashSet;
use std::time::Instant;

/// Explores every interleaving of `program` on the kernel of `row`.
pub fn check(
    program: &Program,
    row: &KernelRow,
    options: &Options<'_>,
) -> Result<Report, CheckError> {
    with_setting(program, row, options, |setting| Explorer::new(setting, options).run())
}

/// Explores, and tells which states on the way of `schedule` are among those reached: one for the
/// start, and one for each step.
pub fn reaches(
    program: &Program,
    row: &KernelRow,
    options: &Options<'_>,
    schedule: &Schedule,
) -> Result<(Report, Vec<bool>), CheckError> {
    with_setting(program, row, options, |setting| {
        let keys = keys(&setting, schedule)?;
        let mut explorer = Explorer::new(setting, options);
        let report = explorer.run()?;
        Ok((report, keys.iter().map(|key| explorer.seen.contains(key)).collect()))
    })
}

/// Follows one schedule; `None` if it violates nothing.
pub fn replay(
    program: &Program,
    row: &KernelRow,
    options: &Options<'_>,
    schedule: &Schedule,
) -> Result<(Vec<StepTaken>, Option<Violation>), CheckError> {
    with_setting(program, row, options, |setting| trace(&setting, &schedule.0))
}

/// How a state was reached.
struct Reached {
    parent: u32,
    choice: Choice,
}

/// States that are worked on before the results are taken in.
const CHUNK: usize = 2048;

/// States that are new after one, at most as a rule.
const SUCCESSORS: usize = 4;

type Keys = HashSet<Key, rustc_hash::FxBuildHasher>;

struct Explorer<'a> {
    setting: Setting<'a>,
    options: &'a Options<'a>,
    start: Instant,
    seen: Keys,
    reached: Vec<Reached>,
    pools: Pools,
    /// The first contradiction. A rule that is known to be wrong may lead to one as well as to a
    /// violation, which says more.
    inconsistent: Option<CheckError>,
}

/// What may follow a state.
struct Successor {
    choice: Choice,
    key: Key,
    exercised: PropertySet,
    /// Left out if the state is known.
    state: Option<Box<State>>,
}

/// A state that was looked at.
struct Left {
    number: u32,
    /// If every thread is done: which observations were made.
    end: Option<Vec<bool>>,
    successors: Vec<Successor>,
    /// The first choice after which the model contradicts itself.
    inconsistent: Option<(Choice, Inconsistency)>,
}

impl<'a> Explorer<'a> {
    fn new(setting: Setting<'a>, options: &'a Options<'a>) -> Explorer<'a> {
        let (seen, reached) = (HashSet::default(), Vec::new());
        let pools = Pools::default();
        let start = Instant::now();
        Explorer { setting, options, start, seen, reached, pools, inconsistent: None }
    }

    /// With as many workers as asked for.
    fn run(&mut self) -> Result<Report, CheckError> {
        let workers = self.options.workers;
        if workers == 1 {
            return self.explore();
        }
        let pool = rayon::ThreadPoolBuilder::new().num_threads(workers).build();
        let pool = pool.map_err(|error| CheckError::Workers(error.to_string()))?;
        pool.install(|| self.explore())
    }

    fn explore(&mut self) -> Result<Report, CheckError> {
        let initial = self.setting.initial();
        self.seen.insert(initial.key());
        self.reached.push(Reached { parent: 0, choice: Choice::Go { thread: 0, way: 0 } });
        let (asked, observed) = (self.setting.watch.asks, self.options.watching.start());
        let mut report = Report { asked, observed, ..Report::default() };
        let mut frontier = vec![(0, initial)];
        'levels: while !frontier.is_empty() {
            let mut next = Vec::new();
            let mut rest = frontier.into_iter();
            loop {
                let chunk: Vec<(u32, Box<State>)> = rest.by_ref().take(CHUNK).collect();
                if chunk.is_empty() {
                    break;
                }
                if self.take_in(chunk, &mut next, &mut report)? {
                    break 'levels;
                }
                report.bound = self.bound(report.depth, next.len() + rest.len());
                if report.bound.is_some() {
                    break 'levels;
                }
            }
            report.depth += usize::from(!next.is_empty());
            frontier = next;
        }
        report.states = self.reached.len();
        match self.inconsistent.take() {
            Some(error) if report.counterexample.is_none() => Err(error),
            _ => Ok(report),
        }
    }

    /// Takes the successors of `chunk` into the next level; true if one violates a property.
    fn take_in(
        &mut self,
        chunk: Vec<(u32, Box<State>)>,
        next: &mut Vec<(u32, Box<State>)>,
        report: &mut Report,
    ) -> Result<bool, CheckError> {
        let leave = |(number, state): (u32, Box<State>)| self.leave(number, &state);
        let left: Vec<Left> = match self.options.workers {
            1 => chunk.into_iter().map(leave).collect(),
            _ => chunk.into_par_iter().map(leave).collect(),
        };
        for Left { number, end, successors, inconsistent } in left {
            if let Some((choice, error)) = inconsistent.filter(|_| self.inconsistent.is_none()) {
                let schedule = self.schedule(number, choice);
                self.inconsistent = Some(CheckError::Inconsistent { error, schedule });
            }
            if let Some(made) = end {
                report.ends += 1;
                report
                    .observed
                    .iter_mut()
                    .zip(made)
                    .for_each(|(observed, made)| observed.count(made));
            }
            for Successor { choice, key, exercised, state } in successors {
                report.exercised.union(exercised);
                let violation =
                    state.as_ref().and_then(|state| state.world.ghost.violation.clone());
                if let Some(violation) = violation {
                    report.counterexample = Some(self.counterexample(number, choice, violation)?);
                    return Ok(true);
                }
                if let Some(mut state) = state
                    && self.seen.insert(key)
                {
                    state.intern(&mut self.pools);
                    self.reached.push(Reached { parent: number, choice });
                    next.push((self.reached.len() as u32 - 1, state));
                }
            }
        }
        Ok(false)
    }

    /// What may follow a state. What follows a contradiction is of no interest.
    fn leave(&self, number: u32, state: &State) -> Left {
        let mut inconsistent = None;
        let end = state.is_end().then(|| self.options.watching.made(&state.world));
        let mut asleep = state.asleep.clone();
        let mut successors = Vec::with_capacity(state.choices.len());
        for &choice in &state.choices {
            if asleep.iter().any(|other| other.choice == choice) {
                continue;
            }
            let mut after = self.setting.after(state, choice);
            if let Some(error) = after.world.inconsistency.take() {
                inconsistent.get_or_insert((choice, error));
                if after.world.ghost.violation.is_none() {
                    continue;
                }
            }
            let (key, exercised) = (after.key(), after.exercised());
            let taken = Taken { choice, footprint: after.footprint };
            let known = self.seen.contains(&key);
            let state = (!known).then(|| {
                let still = asleep.iter().copied().filter(|other| other.commutes(&taken));
                after.asleep = still.collect();
                after
            });
            if self.options.sleep {
                asleep.push(taken);
            }
            successors.push(Successor { choice, key, exercised, state });
        }
        Left { number, end, successors, inconsistent }
    }

    /// Looks at the bounds after each chunk.
    fn bound(&self, depth: usize, frontier: usize) -> Option<Bound> {
        let (states, elapsed, memory) = (self.reached.len(), self.start.elapsed(), resident());
        (self.options.progress)(Progress { states, frontier, depth, memory, elapsed });
        let Options { max_states, max_memory, deadline, .. } = *self.options;
        if states > max_states {
            return Some(Bound::States(max_states));
        }
        if let (Some(memory), Some(limit)) = (memory, max_memory)
            && memory + self.soon() > limit
        {
            return Some(Bound::Memory(limit));
        }
        deadline.filter(|limit| elapsed > *limit).map(Bound::Time)
    }

    /// Bytes that the lists of states will take, beside what they have, when they grow: a list that
    /// is full is copied to one twice as long.
    fn soon(&self) -> u64 {
        let grows = |had: usize, used: usize, size: usize| match had - used < SUCCESSORS * CHUNK {
            true => 2 * had * size,
            false => 0,
        };
        let seen = grows(self.seen.capacity(), self.seen.len(), size_of::<Key>() + 1);
        let reached = grows(self.reached.capacity(), self.reached.len(), size_of::<Reached>());
        (seen + reached) as u64
    }

    /// The way to state `number`, and `last`.
    fn schedule(&self, mut number: u32, last: Choice) -> Schedule {
        let mut choices = vec![last];
        while number != 0 {
            choices.push(self.reached[number as usize].choice);
            number = self.reached[number as usize].parent;
        }
        choices.reverse();
        Schedule(choices)
    }

    fn counterexample(
        &self,
        number: u32,
        last: Choice,
        violation: Violation,
    ) -> Result<Counterexample, CheckError> {
        let schedule = self.schedule(number, last);
        let (steps, _) = trace(&self.setting, &schedule.0)?;
        Ok(Counterexample { violation, steps, schedule, cpus: self.setting.cpus() })
    }
}

/// The process's resident memory in bytes.
fn resident() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim_end().parse().ok()?;
    Some(kib << 10)
}

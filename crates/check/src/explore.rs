//! The explorer: breadth-first over all schedules, so that the first violation found is one of the
//! shortest.
//!
//! Two states are the same if their worlds are equal and every thread stands at the same step with
//! the same past. Only the states of the frontier are kept whole; of the others, the key and how
//! they were reached.

use crate::access::Way;
use crate::env::Next;
use crate::key::Bytes;
use crate::place::place;
use crate::property::{Exercised, Violation};
use crate::state::{Choice, Setting, State};
use needless_model::addr::CpuId;
use needless_model::arch::TINY;
use needless_model::env::Lock;
use needless_model::kernels::KernelRow;
use needless_model::program::Program;
use std::collections::HashSet;
use std::time::{Duration, Instant};

/// Why a program cannot be checked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CheckError {
    /// It needs more pages than the checked machine has.
    #[error("the scenario's areas do not fit into the {0} pages of the checked machine")]
    TooManyPages(u64),
    /// An expression has no value.
    #[error(transparent)]
    Expr(#[from] needless_model::program::ExprError),
    /// The model contradicts itself.
    #[error("the model contradicts itself: {0}")]
    Inconsistent(#[from] needless_model::machine::world::Inconsistency),
}

/// How far an exploration goes, and what it tells meanwhile.
#[derive(Copy, Clone)]
pub struct Options<'a> {
    /// Most states; more make the result inconclusive.
    pub max_states: usize,
    /// Most time.
    pub deadline: Option<Duration>,
    /// Threads forget at checkpoints what does not matter any more. Off in tests, which compare.
    pub checkpoints: bool,
    /// Called now and then.
    pub progress: &'a dyn Fn(Progress),
}

impl Default for Options<'_> {
    fn default() -> Self {
        Options { max_states: 20_000_000, deadline: None, checkpoints: true, progress: &|_| {} }
    }
}

/// How far an exploration is.
#[derive(Copy, Clone, Debug)]
pub struct Progress {
    /// States so far.
    pub states: usize,
    /// States that have been reached but not left.
    pub frontier: usize,
    /// Steps from the start.
    pub depth: usize,
}

/// What stopped an exploration before its end.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Bound {
    /// There are more states than this.
    States(usize),
    /// It took longer than this.
    Time(Duration),
}

/// What an exploration found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Different states.
    pub states: usize,
    /// States in which every thread was done.
    pub ends: usize,
    /// The longest schedule.
    pub depth: usize,
    /// Whose case occurred.
    pub exercised: Exercised,
    /// The shortest way to a violation, if there is one.
    pub counterexample: Option<Counterexample>,
    /// What stopped it, if it did not get to an end.
    pub bound: Option<Bound>,
}

impl Report {
    /// Whether every state was looked at and none violates a property.
    pub fn holds(&self) -> bool {
        self.counterexample.is_none() && self.bound.is_none()
    }
}

/// A way to a violation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counterexample {
    /// The property and what happened.
    pub violation: Violation,
    /// The steps that lead there.
    pub steps: Vec<StepTaken>,
}

/// One step of a counterexample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepTaken {
    /// Who took it.
    pub cpu: CpuId,
    /// What it was.
    pub label: String,
}

/// How a state was reached.
struct Reached {
    parent: u32,
    choice: Choice,
}

/// Explores every interleaving of `program` on the kernel of `row`.
pub fn check(
    program: &Program,
    row: &KernelRow,
    options: &Options<'_>,
) -> Result<Report, CheckError> {
    let placed = place(program, &TINY).ok_or(CheckError::TooManyPages(TINY.user_pages()))?;
    let setting = Setting { program: &placed, row, checkpoints: options.checkpoints };
    let start = Instant::now();
    let mut explorer =
        Explorer { setting, options, start, reached: Vec::new(), bytes: Bytes::default() };
    explorer.explore()
}

struct Explorer<'a> {
    setting: Setting<'a>,
    options: &'a Options<'a>,
    start: Instant,
    reached: Vec<Reached>,
    bytes: Bytes,
}

impl Explorer<'_> {
    fn explore(&mut self) -> Result<Report, CheckError> {
        let initial = self.setting.initial()?;
        let mut seen = HashSet::from([initial.key(&mut self.bytes)]);
        self.reached.push(Reached { parent: 0, choice: Choice { thread: 0, way: 0 } });
        let mut report = Report::default();
        let mut frontier = vec![(0, initial)];
        while !frontier.is_empty() && report.bound.is_none() {
            let mut next = Vec::new();
            for (number, state) in frontier {
                let choices = self.setting.choices(&state);
                report.ends += usize::from(choices.is_empty());
                for choice in choices {
                    let after = self.setting.after(&state, choice)?;
                    report.exercised.union(after.exercised());
                    if let Some(error) = after.world.inconsistency {
                        return Err(error.into());
                    }
                    if let Some(violation) = after.world.ghost.violation {
                        let steps = self.steps(number, choice)?;
                        report.counterexample = Some(Counterexample { violation, steps });
                        report.states = self.reached.len();
                        return Ok(report);
                    }
                    if seen.insert(after.key(&mut self.bytes)) {
                        self.reached.push(Reached { parent: number, choice });
                        next.push((self.reached.len() as u32 - 1, after));
                    }
                }
                report.bound = self.bound(report.depth, next.len());
                if report.bound.is_some() {
                    break;
                }
            }
            report.states = self.reached.len();
            report.depth += usize::from(!next.is_empty());
            frontier = next;
        }
        Ok(report)
    }

    /// Looks at the clock now and then, and at the number of states always.
    fn bound(&self, depth: usize, frontier: usize) -> Option<Bound> {
        let states = self.reached.len();
        if states > self.options.max_states {
            return Some(Bound::States(self.options.max_states));
        }
        if !states.is_multiple_of(1024) {
            return None;
        }
        (self.options.progress)(Progress { states, frontier, depth });
        let limit = self.options.deadline?;
        (self.start.elapsed() > limit).then_some(Bound::Time(limit))
    }

    /// The steps to state `number`, and `last`.
    fn steps(&self, mut number: u32, last: Choice) -> Result<Vec<StepTaken>, CheckError> {
        let mut choices = vec![last];
        while number != 0 {
            choices.push(self.reached[number as usize].choice);
            number = self.reached[number as usize].parent;
        }
        let mut state = self.setting.initial()?;
        let mut steps = Vec::with_capacity(choices.len());
        for choice in choices.into_iter().rev() {
            steps.push(self.label(&state, choice));
            state = self.setting.after(&state, choice)?;
        }
        Ok(steps)
    }

    fn label(&self, state: &State, choice: Choice) -> StepTaken {
        let thread = usize::from(choice.thread);
        let label = match state.next(thread) {
            Next::Step(site) => site.function().to_owned(),
            Next::Lock(lock) => lock_text(lock),
            Next::Access { page, write } => {
                let kind = if write { "store to" } else { "load from" };
                match self.setting.ways(state, thread).get(usize::from(choice.way)) {
                    Some(Way::Cached(entry)) => {
                        format!("{kind} page {page} through frame {}", entry.frame.0)
                    }
                    Some(Way::Walk(_)) => "walk: sets accessed or dirty".to_owned(),
                    Some(Way::Fault) | None => format!("{kind} page {page} faults"),
                }
            }
            Next::Barrier(_) => "all pass the barrier".to_owned(),
            Next::Done => "is done".to_owned(),
        };
        StepTaken { cpu: self.setting.program.threads[thread].cpu, label }
    }
}

fn lock_text(lock: Lock) -> String {
    match lock {
        Lock::MmapRead(_) => "takes mmap_lock for reading".to_owned(),
        Lock::MmapWrite(_) => "takes mmap_lock for writing".to_owned(),
        Lock::PageTable(_, page) => format!("takes the page-table lock of page {page}"),
        Lock::Folio(frame) => format!("takes the folio lock of frame {}", frame.0),
    }
}

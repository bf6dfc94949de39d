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
use crate::property::Violation;
use crate::state::{Choice, Setting, State};
use needless_model::addr::CpuId;
use needless_model::arch::TINY;
use needless_model::env::Lock;
use needless_model::kernels::KernelRow;
use needless_model::program::Program;
use std::collections::HashSet;

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

/// What an exploration found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Different states.
    pub states: usize,
    /// States in which every thread was done.
    pub ends: usize,
    /// The longest schedule.
    pub depth: usize,
    /// The shortest way to a violation, if there is one.
    pub counterexample: Option<Counterexample>,
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
pub fn check(program: &Program, row: &KernelRow) -> Result<Report, CheckError> {
    let placed = place(program, &TINY).ok_or(CheckError::TooManyPages(TINY.user_pages()))?;
    let setting = Setting { program: &placed, row, checkpoints: true };
    Explorer { setting, reached: Vec::new(), bytes: Bytes::default() }.explore()
}

struct Explorer<'a> {
    setting: Setting<'a>,
    reached: Vec<Reached>,
    bytes: Bytes,
}

impl Explorer<'_> {
    fn explore(&mut self) -> Result<Report, CheckError> {
        let initial = self.setting.initial()?;
        let mut seen = HashSet::from([initial.key(&mut self.bytes)]);
        self.reached.push(Reached { parent: 0, choice: Choice { thread: 0, way: 0 } });
        let mut report = Report { states: 1, ends: 0, depth: 0, counterexample: None };
        let mut frontier = vec![(0, initial)];
        while !frontier.is_empty() {
            let mut next = Vec::new();
            for (number, state) in frontier {
                let choices = self.setting.choices(&state);
                report.ends += usize::from(choices.is_empty());
                for choice in choices {
                    let after = self.setting.after(&state, choice)?;
                    if let Some(error) = after.world.inconsistency {
                        return Err(error.into());
                    }
                    if let Some(violation) = after.world.ghost.violation {
                        let steps = self.steps(number, choice)?;
                        report.counterexample = Some(Counterexample { violation, steps });
                        return Ok(report);
                    }
                    if seen.insert(after.key(&mut self.bytes)) {
                        self.reached.push(Reached { parent: number, choice });
                        next.push((self.reached.len() as u32 - 1, after));
                    }
                }
            }
            report.states = self.reached.len();
            report.depth += usize::from(!next.is_empty());
            frontier = next;
        }
        Ok(report)
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

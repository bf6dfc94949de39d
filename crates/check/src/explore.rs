//! The explorer: breadth-first over all schedules, so that the first violation found is one of the
//! shortest.
//!
//! A state is reached by running its schedule from the start (coroutines cannot be copied). Two
//! schedules lead to the same state if the worlds are equal and every thread has the same past.

use crate::env::{CheckEnv, Next, Resume, Stopped, is_free};
use crate::place::place;
use crate::property::Violation;
use crate::shadow::{CheckMode, CheckWorld, Contents, MaySets, NoLog};
use crate::threads::{Thread, check_final_state};
use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};
use needless_model::addr::{CpuId, ThreadId};
use needless_model::arch::TINY;
use needless_model::env::{Context, Lock};
use needless_model::kernel::switch::switch_mm;
use needless_model::kernels::KernelRow;
use needless_model::machine::world::{USER_MM, World, WorldSpec};
use needless_model::program::Program;
use needless_model::site::Site;
use siphasher::sip128::{Hasher128, SipHasher13};
use std::collections::HashSet;
use std::hash::{Hash, Hasher};
use std::rc::Rc;

/// Frames and swap slots of the checked machine.
const FRAMES: u32 = 16;
const SWAP_PAGES: u32 = 16;

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

type Co = Coroutine<Resume, Stopped, Finished>;

/// What a thread leaves behind.
struct Finished {
    world: Box<CheckWorld>,
    past: u128,
    error: Option<needless_model::program::ExprError>,
}

/// Explores every interleaving of `program` on the kernel of `row`.
pub fn check(program: &Program, row: &KernelRow) -> Result<Report, CheckError> {
    let placed = place(program, &TINY).ok_or(CheckError::TooManyPages(TINY.user_pages()))?;
    Explorer { program: Rc::new(placed), row, stacks: Vec::new() }.explore()
}

struct Explorer<'a> {
    program: Rc<Program>,
    row: &'a KernelRow,
    stacks: Vec<DefaultStack>,
}

/// A state, as the choice that leads to it from its parent, and what can happen next.
struct Node {
    parent: usize,
    choice: Choice,
    depth: usize,
    choices: Vec<Choice>,
}

/// Who goes on, and with which of the alternatives offered.
#[derive(Copy, Clone, Debug)]
struct Choice {
    thread: usize,
    alternative: usize,
}

impl Explorer<'_> {
    fn explore(&mut self) -> Result<Report, CheckError> {
        let choices = self.run(&[], |execution| execution.choices())?;
        let choice = Choice { thread: 0, alternative: 0 };
        let mut nodes = vec![Node { parent: usize::MAX, choice, depth: 0, choices }];
        let mut seen = HashSet::new();
        let mut report = Report { states: 1, ends: 0, depth: 0, counterexample: None };
        let mut at = 0;
        while at < nodes.len() {
            let mut schedule = schedule(&nodes, at);
            let choices = std::mem::take(&mut nodes[at].choices);
            report.ends += usize::from(choices.is_empty());
            for choice in choices {
                schedule.push(choice);
                let (key, violation, choices) = self.run(&schedule, |execution| {
                    (execution.key(), execution.violation(), execution.choices())
                })?;
                if let Some(violation) = violation {
                    let steps = self.describe(&schedule)?;
                    report.counterexample = Some(Counterexample { violation, steps });
                    return Ok(report);
                }
                if seen.insert(key) {
                    report.states += 1;
                    report.depth = report.depth.max(schedule.len());
                    nodes.push(Node { parent: at, choice, depth: schedule.len(), choices });
                }
                schedule.pop();
            }
            at += 1;
        }
        Ok(report)
    }

    /// Runs `schedule` from the start and looks at where it leads.
    fn run<T>(
        &mut self,
        schedule: &[Choice],
        look: impl FnOnce(&mut Execution) -> T,
    ) -> Result<T, CheckError> {
        let mut execution = Execution::start(&self.program, self.row, &mut self.stacks);
        for choice in schedule {
            execution.go_on(*choice);
        }
        let (error, inconsistency) = (execution.error.take(), execution.inconsistency());
        let found = look(&mut execution);
        execution.end(&mut self.stacks);
        if let Some(error) = error {
            return Err(error.into());
        }
        inconsistency.map_or(Ok(found), |error| Err(error.into()))
    }

    fn describe(&mut self, schedule: &[Choice]) -> Result<Vec<StepTaken>, CheckError> {
        let mut execution = Execution::start(&self.program, self.row, &mut self.stacks);
        let mut steps = Vec::new();
        for choice in schedule {
            steps.extend(execution.label(*choice));
            execution.go_on(*choice);
        }
        execution.end(&mut self.stacks);
        Ok(steps)
    }
}

fn schedule(nodes: &[Node], mut at: usize) -> Vec<Choice> {
    let mut choices = Vec::with_capacity(nodes[at].depth);
    while nodes[at].parent != usize::MAX {
        choices.push(nodes[at].choice);
        at = nodes[at].parent;
    }
    choices.reverse();
    choices
}

/// A thread of an execution.
enum State {
    Waiting { co: Co, next: Next, past: u128 },
    Done { past: u128 },
}

/// One run of the program along a schedule.
struct Execution {
    program: Rc<Program>,
    /// `None` while a thread has it, and after an error.
    world: Option<Box<CheckWorld>>,
    threads: Vec<State>,
    spent: Vec<DefaultStack>,
    error: Option<needless_model::program::ExprError>,
}

impl Execution {
    fn start(program: &Rc<Program>, row: &KernelRow, stacks: &mut Vec<DefaultStack>) -> Execution {
        let mut world = Box::new(initial_world(program, row));
        let mut execution = Execution {
            program: Rc::clone(program),
            world: None,
            threads: Vec::new(),
            spent: Vec::new(),
            error: None,
        };
        for (index, thread) in program.threads.iter().enumerate() {
            let context =
                Context { cpu: thread.cpu, thread: ThreadId(index as u16), mm: USER_MM, op: 0 };
            switch_mm(&mut world, context.at(Site::SwitchMm), thread.cpu, USER_MM);
        }
        execution.world = Some(world);
        for index in 0..program.threads.len() {
            let co = new_thread(Rc::clone(program), index, stacks);
            execution.resume(index, co, 0);
        }
        execution
    }

    /// Lets a thread run to its next stop.
    fn resume(&mut self, index: usize, mut co: Co, choice: usize) {
        let Some(world) = self.world.take() else { return };
        let state = match co.resume(Resume { world, choice }) {
            CoroutineResult::Yield(Stopped { world, next, past }) => {
                self.world = Some(world);
                State::Waiting { co, next, past }
            }
            CoroutineResult::Return(Finished { world, past, error }) => {
                self.world = Some(world);
                self.error = error;
                self.spent.push(co.into_stack());
                State::Done { past }
            }
        };
        if index < self.threads.len() {
            self.threads[index] = state;
        } else {
            self.threads.push(state);
        }
        if self.threads.len() == self.program.threads.len() && self.all_done() {
            self.world.as_deref_mut().into_iter().for_each(check_final_state);
        }
    }

    fn all_done(&self) -> bool {
        self.threads.iter().all(|thread| matches!(thread, State::Done { .. }))
    }

    fn go_on(&mut self, choice: Choice) {
        if let State::Waiting { next: Next::Barrier(barrier), .. } = self.threads[choice.thread] {
            // Everybody has arrived: all pass in one step.
            for index in 0..self.threads.len() {
                if matches!(self.threads[index], State::Waiting { next: Next::Barrier(b), .. } if b == barrier)
                {
                    self.resume_waiting(index, 0);
                }
            }
            return;
        }
        self.resume_waiting(choice.thread, choice.alternative);
    }

    fn resume_waiting(&mut self, index: usize, alternative: usize) {
        let state = std::mem::replace(&mut self.threads[index], State::Done { past: 0 });
        match state {
            State::Waiting { co, .. } => self.resume(index, co, alternative),
            done => self.threads[index] = done,
        }
    }

    /// What can happen next.
    fn choices(&self) -> Vec<Choice> {
        let Some(world) = self.world.as_deref() else { return Vec::new() };
        let mut choices = Vec::new();
        for (thread, state) in self.threads.iter().enumerate() {
            let State::Waiting { next, .. } = state else { continue };
            let alternatives = match next {
                Next::Step(_) => 1,
                Next::Lock(lock) => usize::from(is_free(world, *lock)),
                Next::Choice(count) => *count,
                Next::Barrier(barrier) => usize::from(self.passes(thread, *barrier)),
            };
            choices.extend((0..alternatives).map(|alternative| Choice { thread, alternative }));
        }
        choices
    }

    /// Whether everybody is at the barrier and `thread` is the first of them.
    fn passes(&self, thread: usize, barrier: u16) -> bool {
        let members = &self.program.barriers[usize::from(barrier)].threads;
        let here = |id: &ThreadId| matches!(self.threads[id.index()], State::Waiting { next: Next::Barrier(b), .. } if b == barrier);
        members.iter().all(here) && members.first().is_some_and(|first| first.index() == thread)
    }

    fn label(&self, choice: Choice) -> Option<StepTaken> {
        let State::Waiting { next, .. } = &self.threads[choice.thread] else { return None };
        let label = match next {
            Next::Step(site) => site.function().to_owned(),
            Next::Lock(lock) => lock_text(*lock),
            Next::Choice(count) if choice.alternative + 1 < *count => {
                format!("uses cached translation {}", choice.alternative)
            }
            Next::Choice(_) => "walks the page table".to_owned(),
            Next::Barrier(_) => "all pass the barrier".to_owned(),
        };
        let cpu = self.program.threads[choice.thread].cpu;
        Some(StepTaken { cpu, label })
    }

    fn violation(&self) -> Option<Violation> {
        self.world.as_ref().and_then(|world| world.ghost.violation.clone())
    }

    fn inconsistency(&self) -> Option<needless_model::machine::world::Inconsistency> {
        self.world.as_ref().and_then(|world| world.inconsistency.clone())
    }

    /// 128 bits that stand for the state.
    fn key(&self) -> u128 {
        let mut hasher = SipHasher13::new();
        if let Some(world) = self.world.as_deref() {
            hash_world(world, &mut hasher);
        }
        for thread in &self.threads {
            match thread {
                State::Waiting { next, past, .. } => (next, past).hash(&mut hasher),
                State::Done { past } => (u64::MAX, past).hash(&mut hasher),
            }
        }
        hasher.finish128().as_u128()
    }

    /// Ends the threads where they stand and keeps their stacks for the next run.
    fn end(self, stacks: &mut Vec<DefaultStack>) {
        stacks.extend(self.spent);
        for thread in self.threads {
            if let State::Waiting { mut co, .. } = thread {
                co.force_unwind();
                stacks.push(co.into_stack());
            }
        }
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

fn hash_world(world: &World<CheckMode>, hasher: &mut impl Hasher) {
    world.mms.hash(hasher);
    world.cpus.hash(hasher);
    world.tasks.hash(hasher);
    world.frames.hash(hasher);
    world.swap.hash(hasher);
    world.tlbs.hash(hasher);
    world.ghost.hash(hasher);
}

fn initial_world(program: &Program, row: &KernelRow) -> CheckWorld {
    let spec = WorldSpec {
        policies: row.policies,
        config: row.config,
        arch: TINY,
        cpus: program.threads.iter().map(|t| t.cpu.index() + 1).max().unwrap_or(1),
        threads: program.threads.len(),
        frames: FRAMES,
        swap_pages: if program.machine.swap.is_some() { SWAP_PAGES } else { 0 },
    };
    World::new(&spec, MaySets::default(), Contents::default(), NoLog)
}

fn new_thread(program: Rc<Program>, index: usize, stacks: &mut Vec<DefaultStack>) -> Co {
    let body = move |yielder: &Yielder<Resume, Stopped>, resume: Resume| {
        let thread = &program.threads[index];
        let context =
            Context { cpu: thread.cpu, thread: ThreadId(index as u16), mm: USER_MM, op: 0 };
        let env = CheckEnv::new(yielder, resume.world, context);
        let slots = vec![0; usize::from(program.slots)];
        let mut thread = Thread { env, program: &program, slots };
        let error = thread.run(&program.threads[index].body).err();
        thread.env.finish(error)
    };
    match stacks.pop() {
        Some(stack) => Coroutine::with_stack(stack, body),
        None => Coroutine::new(body),
    }
}

impl CheckEnv<'_> {
    fn finish(self, error: Option<needless_model::program::ExprError>) -> Finished {
        let past = self.past();
        let Some(world) = self.into_world() else {
            unreachable!("a thread that runs owns the world")
        };
        Finished { world, past, error }
    }
}

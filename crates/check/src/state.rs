//! A state: the world and where every thread stands; and what can happen next.

use crate::access::{Way, ways};
use crate::env::{CheckEnv, Memory, Next, Resume, Standing, Stopped, is_free};
use crate::judge;
use crate::key::{Bytes, Key};
use crate::property::Exercised;
use crate::shadow::{CheckWorld, Contents, MaySets, NoLog};
use crate::threads::Thread;
use needless_model::addr::ThreadId;
use needless_model::arch::TINY;
use needless_model::env::Context;
use needless_model::kernel::switch::switch_mm;
use needless_model::kernels::KernelRow;
use needless_model::machine::world::{USER_MM, World, WorldSpec};
use needless_model::program::{ExprError, Program};
use needless_model::site::Site;
use std::hash::Hash;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

/// Frames and swap slots of the checked machine.
const FRAMES: u32 = 16;
const SWAP_PAGES: u32 = 16;

/// Who goes on, and by which of the ways offered.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The thread.
    pub thread: u8,
    /// The way.
    pub way: u8,
}

/// What a thread learnt, newest first.
#[derive(Debug)]
struct Learnt {
    before: Option<Arc<Learnt>>,
    memory: Memory,
}

/// A thread of a state.
#[derive(Clone, Debug)]
struct Member {
    standing: Standing,
    log: Option<Arc<Learnt>>,
}

/// A state.
#[derive(Clone)]
pub struct State {
    /// The world.
    pub world: Box<CheckWorld>,
    threads: Vec<Member>,
}

/// What states have in common.
pub struct Setting<'a> {
    /// The program, placed in the checked machine.
    pub program: &'a Program,
    /// The kernel.
    pub row: &'a KernelRow,
    /// Checkpoints count.
    pub checkpoints: bool,
}

impl Setting<'_> {
    fn context(&self, thread: usize) -> Context {
        let cpu = self.program.threads[thread].cpu;
        Context { cpu, thread: ThreadId(thread as u16), mm: USER_MM, op: 0 }
    }

    /// The state in which every thread is at its start.
    pub fn initial(&self) -> Result<State, ExprError> {
        let mut world = Box::new(initial_world(self.program, self.row));
        let own_space = |thread: &usize| !self.program.threads[*thread].kernel;
        for thread in (0..self.program.threads.len()).filter(own_space) {
            let context = self.context(thread);
            switch_mm(&mut world, context.at(Site::SwitchMm), context.cpu, USER_MM);
        }
        let start = Member { standing: Standing { next: Next::Done, past: 0 }, log: None };
        let mut threads = vec![start; self.program.threads.len()];
        for thread in 0..threads.len() {
            world = self.resume(world, &mut threads, thread, None)?;
        }
        Ok(State { world, threads })
    }

    /// What can happen next.
    pub fn choices(&self, state: &State) -> Vec<Choice> {
        let mut choices = Vec::new();
        for (thread, member) in state.threads.iter().enumerate() {
            let ways = match member.standing.next {
                Next::Step(_) => 1,
                Next::Lock(lock) => usize::from(is_free(&state.world, lock)),
                Next::Access { .. } => self.ways(state, thread).len(),
                Next::Barrier(barrier) => usize::from(self.passes(state, thread, barrier)),
                Next::Done => 0,
            };
            let thread = thread as u8;
            choices.extend((0..ways as u8).map(|way| Choice { thread, way }));
        }
        choices
    }

    /// The ways that are open to a thread which is to access memory.
    pub fn ways(&self, state: &State, thread: usize) -> Vec<Way> {
        let Next::Access { page, write } = state.next(thread) else { return Vec::new() };
        ways(&state.world, self.context(thread).at(Site::HardwareWalk), page, write)
    }

    /// Whether everybody is at the barrier and `thread` is the first of them.
    fn passes(&self, state: &State, thread: usize, barrier: u16) -> bool {
        let members = &self.program.barriers[usize::from(barrier)].threads;
        let here =
            |id: &ThreadId| state.threads[id.index()].standing.next == Next::Barrier(barrier);
        members.iter().all(here) && members.first().is_some_and(|first| first.index() == thread)
    }

    /// The state after `choice`.
    pub fn after(&self, state: &State, choice: Choice) -> Result<State, ExprError> {
        let State { mut world, mut threads } = state.clone();
        world.ghost.exercised = Exercised::default();
        world.tlbs.exercised = Exercised::default();
        let thread = usize::from(choice.thread);
        match threads[thread].standing.next {
            // Everybody has arrived: all pass in one step.
            Next::Barrier(barrier) => {
                for id in &self.program.barriers[usize::from(barrier)].threads {
                    world = self.resume(world, &mut threads, id.index(), Some(0))?;
                }
            }
            _ => world = self.resume(world, &mut threads, thread, Some(usize::from(choice.way)))?,
        }
        let mut state = State { world, threads };
        judge::state(&mut state.world);
        if state.is_end() {
            judge::end(&mut state.world);
        }
        Ok(state)
    }

    /// Brings a thread to where it stands and lets it take a step, by this way.
    fn resume(
        &self,
        world: Box<CheckWorld>,
        threads: &mut [Member],
        thread: usize,
        way: Option<usize>,
    ) -> Result<Box<CheckWorld>, ExprError> {
        let member = &mut threads[thread];
        let resume = Resume {
            world,
            context: self.context(thread),
            log: memories(member.log.as_ref()),
            past: member.standing.past,
            steps: usize::from(way.is_some()),
            way: way.unwrap_or(0),
            checkpoints: self.checkpoints,
        };
        let slots = vec![0; usize::from(self.program.slots)];
        let mut run = Thread { env: CheckEnv::resume(resume), program: self.program, slots };
        let body = &self.program.threads[thread].body;
        let stopped = match catch_unwind(AssertUnwindSafe(|| {
            run.run(body)?;
            Ok(run.env.finish())
        })) {
            Ok(stopped) => stopped?,
            Err(panic) => panic.downcast().map_or_else(|panic| resume_unwind(panic), |left| *left),
        };
        let Some(Stopped { world, standing, learnt }) = stopped else {
            unreachable!("a thread that is resumed stops")
        };
        member.standing = standing;
        for memory in learnt {
            member.log = Some(Arc::new(Learnt { before: member.log.take(), memory }));
        }
        Ok(world)
    }
}

fn memories(mut log: Option<&Arc<Learnt>>) -> Vec<Memory> {
    let mut memories = Vec::new();
    while let Some(learnt) = log {
        memories.push(Arc::clone(&learnt.memory));
        log = learnt.before.as_ref();
    }
    memories.reverse();
    memories
}

impl State {
    /// Whether every thread is done.
    pub fn is_end(&self) -> bool {
        self.threads.iter().all(|member| member.standing.next == Next::Done)
    }

    /// What a thread will do next.
    pub fn next(&self, thread: usize) -> Next {
        self.threads[thread].standing.next
    }

    /// The properties whose case occurred in the step that led here.
    pub fn exercised(&self) -> Exercised {
        let mut exercised = self.world.ghost.exercised;
        exercised.union(self.world.tlbs.exercised);
        exercised
    }

    /// 128 bits that stand for the state.
    pub fn key(&self, bytes: &mut Bytes) -> Key {
        let w = &self.world;
        (&w.mms, &w.cpus, &w.tasks, &w.frames, &w.swap, &w.tlbs, &w.ghost).hash(bytes);
        for member in &self.threads {
            (member.standing.next, member.standing.past).hash(bytes);
        }
        bytes.key()
    }
}

fn initial_world(program: &Program, row: &KernelRow) -> CheckWorld {
    let spec = WorldSpec {
        policies: row.policies,
        config: row.config,
        arch: TINY,
        cpus: program.threads.iter().map(|t| t.cpu.index() + 1).max().unwrap_or(1),
        threads: program.threads.len(),
        others: program.other_processes(),
        frames: FRAMES,
        swap_pages: if program.machine.swap.is_some() { SWAP_PAGES } else { 0 },
    };
    World::new(&spec, MaySets::default(), Contents::default(), NoLog)
}

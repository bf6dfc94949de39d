//! A state: the world and where every thread stands; and what can happen next.

use crate::access::{Way, ways};
use crate::choice::Choice;
use crate::env::{CheckEnv, Log, Next, Resume, Standing, Stopped, free, reachable};
use crate::footprint::{Footprint, Taken};
use crate::judge;
use crate::key::{Key, key_of};
use crate::property::PropertySet;
use crate::setting::Setting;
use crate::shadow::{CheckWorld, Pages};
use crate::shared::Pool;
use crate::threads::run;
use crate::tlb::Slots;
use needless_model::addr::{CpuId, ProcessId, ThreadId, Vpn};
use needless_model::env::Lock;
use needless_model::kernel::switch::switch_mm;
use needless_model::machine::consistency::contradiction;
use needless_model::machine::cpu::Cpu;
use needless_model::machine::frames::Frames;
use needless_model::machine::lru::Lru;
use needless_model::machine::mm::Mm;
use needless_model::machine::objects::Objects;
use needless_model::machine::pins::Pins;
use needless_model::machine::swap::Swap;
use needless_model::machine::unmap_batch::Deferred;
use needless_model::machine::world::{Task, World, mm_of};
use needless_model::site::Site;
use needless_model::wait::Wait;
use smallvec::{SmallVec, smallvec};

/// A thread of a state.
#[derive(Clone)]
struct Member {
    standing: Standing,
    log: Log,
}

type Members = SmallVec<[Member; 4]>;

/// A state.
pub struct State {
    /// The world.
    pub world: CheckWorld,
    threads: Members,
    /// What can happen next.
    pub choices: Choices,
    /// What the step that led here looked at and changed.
    pub footprint: Footprint,
    /// Choices that lead only where earlier ones led, too.
    pub asleep: SmallVec<[Taken; 4]>,
}

/// Choices, in a fixed order.
pub type Choices = SmallVec<[Choice; 8]>;

impl Setting<'_> {
    /// The state in which every thread is at its start.
    pub fn initial(&self) -> Box<State> {
        let start = Member {
            standing: Standing { next: Next::Done, past: Key::default(), act: 0 },
            log: None,
        };
        let threads = smallvec![start; self.program.threads.len()];
        let mut state = Box::new(State::new(self.initial_world(), threads));
        for context in (0..self.program.threads.len()).map(|thread| self.context(thread)) {
            let first = mm_of(ProcessId::FIRST);
            if let Some(mm) = context.mm.filter(|mm| *mm == first) {
                switch_mm(&mut state.world, context.at(Site::SwitchMm), context.cpu, mm);
            }
        }
        for thread in 0..self.program.threads.len() {
            self.resume(&mut state, thread, None);
        }
        state.choices = self.choices(&state);
        state
    }

    fn choices(&self, state: &State) -> Choices {
        let mut choices = Choices::new();
        for (thread, member) in state.threads.iter().enumerate() {
            let ways = match member.standing.next {
                // Another thread has its CPU, with interrupts off.
                _ if self.is_kept_off(state, thread) => 0,
                Next::Step(_) => 1,
                Next::Each(reach, _, cpus) => reachable(&state.world, reach, cpus).count(),
                Next::Lock(lock) => usize::from(free(&state.world, lock, thread as u16).is_some()),
                Next::Access { .. } => self.ways(state, thread).len(),
                Next::Wait(wait) => usize::from(wait.is_over(&state.world)),
                Next::Barrier(barrier) => usize::from(self.passes(state, thread, barrier)),
                Next::Done => 0,
            };
            let thread = thread as u8;
            choices.extend((0..ways as u8).map(|way| Choice::Go { thread, way }));
        }
        if self.explicit {
            choices.extend(hardware(&state.world));
        }
        choices
    }

    /// Whether the thread's CPU walks page tables for another one, and cannot be taken from that.
    fn is_kept_off(&self, state: &State, thread: usize) -> bool {
        let cpu = self.program.threads[thread].cpu;
        let walk = state.world.cpus[cpu.index()].walk;
        walk.is_some_and(|walk| walk.thread.index() != thread)
    }

    fn shares_cpu(&self, thread: usize) -> bool {
        let threads = &self.program.threads;
        threads.iter().filter(|other| other.cpu == threads[thread].cpu).count() > 1
    }

    /// The ways that are open to a thread which is to access memory.
    pub fn ways(&self, state: &State, thread: usize) -> Vec<Way> {
        let Next::Access { page, write } = state.next(thread) else { return Vec::new() };
        let at = self.context(thread).at(Site::HardwareWalk);
        ways(&state.world, at, (self.space(thread), page), write)
    }

    /// Whether everybody is at the barrier and `thread` is the first of them.
    fn passes(&self, state: &State, thread: usize, barrier: u16) -> bool {
        let members = &self.program.barriers[usize::from(barrier)].threads;
        let here =
            |id: &ThreadId| state.threads[id.index()].standing.next == Next::Barrier(barrier);
        members.iter().all(here) && members.first().is_some_and(|first| first.index() == thread)
    }

    /// The state after `choice`.
    pub fn after(&self, before: &State, choice: Choice) -> Box<State> {
        let mut state = Box::new(State::new(before.world.clone(), before.threads.clone()));
        *state.world.ghost.exercised = PropertySet::default();
        *state.world.tlbs.exercised = PropertySet::default();
        let Choice::Go { thread, way } = choice else {
            cache(&mut state.world, choice);
            state.choices = self.choices(&state);
            return state;
        };
        let thread = usize::from(thread);
        match before.next(thread) {
            // Everybody has arrived: all pass in one step.
            Next::Barrier(barrier) => {
                for id in &self.program.barriers[usize::from(barrier)].threads {
                    self.resume(&mut state, id.index(), Some(0));
                }
            }
            _ => {
                let locks = self.resume(&mut state, thread, Some(usize::from(way)));
                let footprint = locks.and(&before.world, &state.world);
                let shared = self.shares_cpu(thread);
                state.footprint = if shared { footprint.looking_at_cpus() } else { footprint };
            }
        }
        state.choices = self.choices(&state);
        judge::state(&mut state.world);
        if state.is_end() {
            judge::end(&mut state.world);
            self.check_counts(&mut state.world);
        } else if state.choices.is_empty() {
            let waiting = self.waiting(&state);
            judge::stuck(&mut state.world, &waiting);
        }
        state
    }

    /// Every thread is done: does the model agree with itself?
    fn check_counts(&self, world: &mut CheckWorld) {
        let held = (!world.ghost.locks.is_empty()).then(|| "a lock is still held".to_owned());
        if let Some(what) = held.or_else(|| contradiction(world)) {
            world.impossible(self.context(0).at(Site::ExitMmap), &what);
        }
    }

    /// What the threads that are not done wait for.
    fn waiting(&self, state: &State) -> String {
        let threads = self.program.threads.iter().zip(&state.threads);
        let waits = threads.filter_map(|(thread, member)| match member.standing.next {
            Next::Lock(lock) => Some(format!("`{}` {}", thread.name, lock_text(lock))),
            Next::Wait(wait) => Some(format!("`{}` waits for {wait}", thread.name)),
            Next::Barrier(barrier) => {
                let name = &self.program.barriers[usize::from(barrier)].name;
                Some(format!("`{}` is at the barrier `{name}`", thread.name))
            }
            _ => None,
        });
        waits.collect::<Vec<_>>().join(", ")
    }

    /// Brings a thread to where it stands and lets it take a step, by this way. Returns what the step
    /// has to do with locks.
    fn resume(&self, state: &mut State, thread: usize, way: Option<usize>) -> Footprint {
        let member = &mut state.threads[thread];
        let told = member.log.take();
        let mut env = CheckEnv::resume(Resume {
            world: &mut state.world,
            context: self.context(thread),
            standing: member.standing,
            log: &told,
            steps: usize::from(way.is_some()),
            way: way.unwrap_or(0),
            checkpoints: self.checkpoints,
        });
        run(&mut env, self.space(thread), &self.acts[thread], member.standing.act as usize);
        let Stopped { standing, log, locks } = env.finish();
        (member.standing, member.log) = (standing, log);
        locks
    }
}

/// The parts of worlds.
#[derive(Debug, Default)]
pub struct Pools {
    mms: Pool<Mm>,
    cpus: Pool<Vec<Cpu>>,
    tasks: Pool<Task>,
    deferred: Pool<Deferred>,
    frames: Pool<Frames>,
    lru: Pool<Lru>,
    objects: Pool<Objects>,
    swap: Pool<Swap>,
    pins: Pool<Pins>,
    slots: Pool<Slots>,
    pages: Pool<Pages>,
}

impl State {
    fn new(world: CheckWorld, threads: Members) -> State {
        let (choices, asleep) = (Choices::new(), SmallVec::new());
        State { world, threads, choices, footprint: Footprint::EVERYTHING, asleep }
    }

    /// Shares the parts of its world with the states before it.
    pub fn intern(&mut self, pools: &mut Pools) {
        let w = &mut self.world;
        w.mms.iter_mut().for_each(|mm| pools.mms.intern(mm));
        pools.cpus.intern(&mut w.cpus);
        w.tasks.iter_mut().for_each(|task| pools.tasks.intern(task));
        pools.deferred.intern(&mut w.deferred);
        pools.frames.intern(&mut w.frames);
        pools.lru.intern(&mut w.lru);
        pools.objects.intern(&mut w.objects);
        pools.swap.intern(&mut w.swap);
        pools.pins.intern(&mut w.pins);
        pools.slots.intern(&mut w.tlbs.slots);
        pools.pages.intern(&mut w.ghost.pages);
    }

    /// Whether every thread is done, or would answer if userfaultfd told of something.
    pub fn is_end(&self) -> bool {
        self.threads.iter().all(|member| match member.standing.next {
            Next::Done => true,
            Next::Wait(wait @ Wait::UffdEvent(_)) => !wait.is_over(&self.world),
            _ => false,
        })
    }

    /// The action that a thread is in.
    pub fn act(&self, thread: usize) -> u32 {
        self.threads[thread].standing.act
    }

    /// What a thread will do next.
    pub fn next(&self, thread: usize) -> Next {
        self.threads[thread].standing.next
    }

    /// The properties whose case occurred in the step that led here.
    pub fn exercised(&self) -> PropertySet {
        let mut exercised = *self.world.ghost.exercised;
        exercised.union(*self.world.tlbs.exercised);
        exercised
    }

    /// 128 bits that stand for the state. Whatever is left out is named: it is the same in all states of
    /// an exploration, or follows from the rest.
    pub fn key(&self) -> Key {
        let State { world, threads, choices: _, footprint: _, asleep: _ } = self;
        #[rustfmt::skip]
        let World {
            mms, cpus, tasks, deferred, frames, lru, objects, swap, pins, tlbs, ghost,
            policies: _, config: _, arch: _, nodes: _, processes: _, log: _, inconsistency: _,
        } = world;
        let standing = |Member { standing, log: _ }: &Member| *standing;
        let standings: SmallVec<[Standing; 4]> = threads.iter().map(standing).collect();
        let owed = (deferred, lru);
        key_of(&(mms, cpus, tasks, frames, objects, swap, pins, tlbs, ghost, owed, standings))
    }
}

/// Explicit mode: what the processors may do by themselves.
fn hardware(w: &CheckWorld) -> Vec<Choice> {
    let mut choices = Vec::new();
    for (index, cpu) in w.cpus.iter().enumerate() {
        let Some(mm) = w.spaces().find(|mm| *mm == cpu.loaded) else { continue };
        let id = CpuId(index as u16);
        let index = index as u8;
        let pages = w.mms[mm.index()].vmas().iter().flat_map(|vma| vma.range.iter());
        for page in pages {
            let entry = w.tlbs.walkable(&w.mms[mm.index()], page);
            if entry.is_some_and(|entry| !w.tlbs.entries(id, cpu.asid, page).contains(&entry)) {
                choices.push(Choice::Fill { cpu: index, page: page.0 as u8 });
            }
        }
        let held = w.tlbs.all(id, cpu.asid).count() as u8;
        choices.extend((0..held).map(|entry| Choice::Evict { cpu: index, entry }));
    }
    choices
}

/// Explicit mode: a fill or an eviction. That a walk also sets the accessed bit is left to accesses, as
/// it is with sets.
fn cache(w: &mut CheckWorld, choice: Choice) {
    match choice {
        Choice::Fill { cpu, page } => {
            let (cpu, page) = (CpuId(u16::from(cpu)), Vpn(u64::from(page)));
            let (asid, mm) = (w.cpus[cpu.index()].asid, w.cpus[cpu.index()].loaded);
            if let Some(entry) = w.tlbs.walkable(&w.mms[mm.index()], page) {
                w.tlbs.change(cpu, asid, entry, true);
            }
        }
        Choice::Evict { cpu, entry } => {
            let cpu = CpuId(u16::from(cpu));
            let asid = w.cpus[cpu.index()].asid;
            let held = w.tlbs.all(cpu, asid).nth(usize::from(entry));
            if let Some(entry) = held {
                w.tlbs.change(cpu, asid, entry, false);
            }
        }
        Choice::Go { .. } => {}
    }
}

/// What it is to wait for a lock.
pub fn lock_text(lock: Lock) -> String {
    match lock {
        Lock::MmapRead(_) => "takes mmap_lock (read)".to_owned(),
        Lock::MmapWrite(_) => "takes mmap_lock (write)".to_owned(),
        Lock::VmaRead(_, pages) => format!("locks the mapping of {} (read)", pages.start),
        Lock::VmaOf(_, page) => format!("locks the mapping of {page} (read)"),
        Lock::VmaWrite(_, pages) => format!("locks the mapping of {} (write)", pages.start),
        Lock::PageTable(_, page) => format!("takes the page-table lock of {page}"),
        Lock::Pmd(_, page) => format!("takes the lock of the table above that of {page}"),
        Lock::RmapOf(frame) => format!("takes the anon_vma of f{} (read)", frame.0),
        Lock::RmapRead(object) => format!("takes anon_vma {} (read)", object.0),
        Lock::RmapWrite(object) => format!("takes anon_vma {} (write)", object.0),
        Lock::Folio(frame) => format!("takes the folio lock of f{}", frame.0),
        Lock::Inode(object) => format!("takes i_rwsem of file {}", object.0),
        Lock::InvalidateRead(object) => {
            format!("takes invalidate_lock of file {} (read)", object.0)
        }
        Lock::InvalidateWrite(object) => {
            format!("takes invalidate_lock of file {} (write)", object.0)
        }
    }
}

#[cfg(test)]
mod tests;

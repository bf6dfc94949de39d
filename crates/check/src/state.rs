//! A state: the world and where every thread stands; and what can happen next.

use crate::access::{Way, ways};
use crate::choice::Choice;
use crate::env::{CheckEnv, Log, Next, Resume, Standing, Stopped, free, reachable};
use crate::footprint::Footprint;
use crate::judge;
use crate::key::{Key, key_of};
use crate::parts;
use crate::property::PropertySet;
use crate::setting::Setting;
use crate::shadow::{CheckWorld, Contents};
use crate::threads::run;
use needless_model::addr::{CpuId, ProcessId, ThreadId, Vpn};
use needless_model::env::Lock;
use needless_model::kernel::switch::switch_mm;
use needless_model::machine::consistency::contradiction;
use needless_model::machine::world::mm_of;
use needless_model::site::Site;
use needless_model::wait::Wait;
use smallvec::{SmallVec, smallvec};
use std::hash::{Hash, Hasher};

/// A thread of a state.
#[derive(Clone)]
pub struct Member {
    /// Where it stands.
    pub standing: Standing,
    /// What it learnt in its action.
    pub log: Log,
}

// The past in the standing stands for what it learnt.
impl Hash for Member {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Member { standing, log: _ } = self;
        standing.hash(state);
    }
}

/// The threads of a state.
pub type Members = SmallVec<[Member; 4]>;

/// What a thread's step did.
pub struct Step {
    /// Where the thread stands now.
    pub member: Member,
    /// What the step looked at and changed.
    pub footprint: Footprint,
}

/// A state.
pub struct State {
    /// The world.
    pub world: CheckWorld,
    /// Its threads.
    pub threads: Members,
    /// What can happen next.
    pub choices: Choices,
    /// What the step that led here looked at and changed.
    pub footprint: Footprint,
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
            let member = &state.threads[thread];
            let stopped = self.resume(&mut state.world, thread, member, None);
            state.threads[thread] = stopped.member;
        }
        state.choices = self.choices(&state);
        state
    }

    /// What can happen next.
    pub fn choices(&self, state: &State) -> Choices {
        let mut choices = Choices::new();
        for (thread, member) in state.threads.iter().enumerate() {
            let ways = match member.standing.next {
                _ if self.is_kept_off(&state.world, thread) => 0,
                Next::Barrier(barrier) => {
                    let next = |thread: usize| state.threads[thread].standing.next;
                    usize::from(self.passes(next, thread, barrier))
                }
                next => self.ways_of(&state.world, thread, next),
            };
            choices.extend(ways_in_order(thread, ways));
        }
        if self.explicit {
            choices.extend(hardware(&state.world));
        }
        choices
    }

    /// By how many ways a thread can go on, that nobody keeps off and that is at no barrier.
    pub fn ways_of(&self, world: &CheckWorld, thread: usize, next: Next) -> usize {
        match next {
            Next::Step(_) => 1,
            Next::Each(reach, _, cpus) => reachable(world, reach, cpus).count(),
            Next::Lock(lock) => usize::from(free(world, lock, thread as u16).is_some()),
            Next::Access { page, write } => self.access_ways(world, thread, page, write).len(),
            Next::Wait(wait) => usize::from(wait.is_over(world)),
            Next::Barrier(_) | Next::Done => 0,
        }
    }

    /// Whether the thread's CPU walks page tables for another one, with interrupts off, and cannot
    /// be taken from that.
    pub fn is_kept_off(&self, world: &CheckWorld, thread: usize) -> bool {
        let cpu = self.program.threads[thread].cpu;
        let walk = world.cpus[cpu.index()].walk;
        walk.is_some_and(|walk| walk.thread.index() != thread)
    }

    fn shares_cpu(&self, thread: usize) -> bool {
        let threads = &self.program.threads;
        threads.iter().filter(|other| other.cpu == threads[thread].cpu).count() > 1
    }

    /// The ways that are open to a thread which is to access memory.
    pub fn ways(&self, state: &State, thread: usize) -> Vec<Way> {
        let Next::Access { page, write } = state.next(thread) else { return Vec::new() };
        self.access_ways(&state.world, thread, page, write)
    }

    fn access_ways(&self, world: &CheckWorld, thread: usize, page: Vpn, write: bool) -> Vec<Way> {
        let at = self.context(thread).at(Site::HardwareWalk);
        ways(world, at, (self.space(thread), page), write)
    }

    /// Whether everybody is at the barrier and `thread` is the first of them. `next` says what a
    /// thread will do next.
    pub fn passes(&self, mut next: impl FnMut(usize) -> Next, thread: usize, barrier: u16) -> bool {
        let members = &self.program.barriers[usize::from(barrier)].threads;
        let here = |id: &ThreadId| next(id.index()) == Next::Barrier(barrier);
        members.first().is_some_and(|first| first.index() == thread) && members.iter().all(here)
    }

    /// The state after `choice`.
    pub fn after(&self, before: &State, choice: Choice) -> Box<State> {
        let mut state = Box::new(State::new(before.world.clone(), before.threads.clone()));
        forget_the_last_step(&mut state.world);
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
                    let member = &before.threads[id.index()];
                    let step = self.resume(&mut state.world, id.index(), member, Some(0));
                    state.threads[id.index()] = step.member;
                }
            }
            _ => {
                let member = &before.threads[thread];
                let step = self.resume(&mut state.world, thread, member, Some(usize::from(way)));
                state.threads[thread] = step.member;
                state.footprint =
                    self.footprint(thread, step.footprint, &before.world, &state.world);
            }
        }
        state.choices = self.choices(&state);
        judge::state(&mut state.world);
        if state.is_end() {
            self.judge_end(&mut state.world);
        } else if state.choices.is_empty() {
            let waiting = self.waiting(&state);
            judge::stuck(&mut state.world, &waiting);
        }
        state
    }

    /// Every thread is done.
    pub fn judge_end(&self, world: &mut CheckWorld) {
        judge::end(world);
        self.check_counts(world);
    }

    /// Every thread is done: does the model agree with itself?
    fn check_counts(&self, world: &mut CheckWorld) {
        let held = (!world.ghost.locks.is_empty()).then(|| "a lock is still held".to_owned());
        if let Some(what) = held.or_else(|| contradiction(world)) {
            world.impossible(self.context(0).at(Site::ExitMmap), &what);
        }
    }

    /// What the threads that are not done wait for.
    pub fn waiting(&self, state: &State) -> String {
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

    /// Brings a thread to where it stands and lets it take a step, by this way. The footprint has
    /// only the locks that the step is about.
    pub fn resume(
        &self,
        world: &mut CheckWorld,
        thread: usize,
        member: &Member,
        way: Option<usize>,
    ) -> Step {
        let Member { standing, log } = member;
        let mut env = CheckEnv::resume(Resume {
            world,
            context: self.context(thread),
            standing: *standing,
            log,
            steps: usize::from(way.is_some()),
            way: way.unwrap_or(0),
            checkpoints: self.checkpoints,
        });
        run(&mut env, self.space(thread), &self.acts[thread], standing.act as usize);
        let Stopped { standing, log, locks } = env.finish();
        Step { member: Member { standing, log }, footprint: locks }
    }

    /// What a step of `thread` that led from one world to the other looked at and changed; `locks`
    /// are those that it was about.
    pub fn footprint(
        &self,
        thread: usize,
        locks: Footprint,
        before: &CheckWorld,
        after: &CheckWorld,
    ) -> Footprint {
        let footprint = locks.and(before, after);
        if self.shares_cpu(thread) { footprint.looking_at_cpus() } else { footprint }
    }
}

/// The choices of a thread that can go on by so many ways.
pub fn ways_in_order(thread: usize, ways: usize) -> impl Iterator<Item = Choice> {
    let thread = thread as u8;
    (0..ways as u8).map(move |way| Choice::Go { thread, way })
}

/// What only the last step did is forgotten.
pub fn forget_the_last_step(world: &mut CheckWorld) {
    *world.ghost.exercised = PropertySet::default();
    *world.tlbs.exercised = PropertySet::default();
}

/// The properties whose case occurred in the last step.
pub fn exercised(world: &CheckWorld) -> PropertySet {
    let mut exercised = *world.ghost.exercised;
    exercised.union(*world.tlbs.exercised);
    exercised
}

impl State {
    /// A state whose choices are not known yet.
    pub fn new(world: CheckWorld, threads: Members) -> State {
        State { world, threads, choices: Choices::new(), footprint: Footprint::EVERYTHING }
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

    /// 128 bits that stand for the state: the sum of what its parts and its threads add.
    pub fn key(&self) -> Key {
        let State { world, threads, choices: _, footprint: _ } = self;
        let parts = parts::count(world);
        let members = threads.iter().enumerate();
        let members = members.map(|(thread, member)| key_of(member).in_place(parts + thread));
        let sum = members.fold(parts::key_of_parts(world), Key::plus);
        // Empty in every state that is kept.
        let Contents { just_freed, violation, .. } = &world.ghost;
        match just_freed.is_empty() && violation.is_none() {
            true => sum,
            false => sum.plus(key_of(&(just_freed, violation))),
        }
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

/// Explicit mode: a fill or an eviction. That a walk also sets the accessed bit is left to
/// accesses, as it is with sets.
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

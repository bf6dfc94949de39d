//! The checker's environment: a thread is brought back to its place, takes one step, and is left
//! before its next one.
//!
//! Protocol: [`CheckEnv::resume`] with the thread's log; the thread runs from its start and is told
//! what it learnt before ([`Learnt`]) without touching the world. At the log's end it takes the
//! step asked for. At the next point where others could come between, it is left. It then comes to
//! the end of its action on answers that say nothing, without touching the world, which costs much
//! less than to unwind from where it is.

use crate::footprint::Footprint;
use crate::judge::{no_progress, retried};
use crate::key::{Key, extend};
use crate::shadow::{CheckMode, CheckWorld, begin_call};
use needless_model::addr::{CpuId, MmId, Vpn};
use needless_model::arch::Arch;
use needless_model::call::Purpose;
use needless_model::env::{Context, Env, Learnt, Lock, Reach};
use needless_model::event::EventKind;
use needless_model::kernels::Config;
use needless_model::machine::cpuset::CpuSet;
use needless_model::machine::world::At;
use needless_model::policy::Policies;
use needless_model::site::Site;
use needless_model::verdict::Verdict;
use needless_model::wait::{Cause, Wait};
use std::any::Any;
use std::sync::Arc;

/// What a thread will do next.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum Next {
    /// To take a step in this function.
    Step(Site),
    /// To have one of these CPUs (a bit each) do this.
    Each(Reach, Site, u64),
    /// To take a lock.
    Lock(Lock),
    /// A load or store, by one of the ways that are open to the processor.
    Access {
        /// The page.
        page: Vpn,
        /// A store.
        write: bool,
    },
    /// To go on with what had to wait.
    Wait(Wait),
    /// To meet the other threads of a barrier.
    Barrier(u16),
    /// Nothing: it is done.
    Done,
}

/// What a thread learnt, newest first.
pub type Log = Option<Arc<dyn Memory>>;

/// One thing that a thread learnt.
pub trait Memory: Send + Sync {
    /// What it learnt before.
    fn before(&self) -> &Log;
    /// What it learnt.
    fn value(&self) -> &dyn Any;
}

struct Node<R> {
    before: Log,
    value: R,
}

impl<R: Learnt> Memory for Node<R> {
    fn before(&self) -> &Log {
        &self.before
    }

    fn value(&self) -> &dyn Any {
        &self.value
    }
}

/// The log in the order in which it was learnt.
fn in_order(log: &Log) -> Vec<&dyn Memory> {
    let mut memories = Vec::with_capacity(if log.is_some() { 48 } else { 0 });
    let mut next = log;
    while let Some(memory) = next {
        memories.push(&**memory);
        next = memory.before();
    }
    memories.reverse();
    memories
}

/// Where a thread stands.
#[derive(Copy, Clone, Debug, Hash)]
pub struct Standing {
    /// What it will do next.
    pub next: Next,
    /// Stands for everything it learnt that still matters.
    pub past: Key,
    /// The action that it is in.
    pub act: u32,
}

/// A thread that was left at its next step.
pub struct Stopped {
    /// Where the thread stands.
    pub standing: Standing,
    /// What it learnt in the step that it took.
    pub log: Log,
    /// The locks that the step was about.
    pub locks: Footprint,
}

/// The environment of one thread for one step.
pub struct CheckEnv<'a> {
    world: &'a mut CheckWorld,
    policies: Policies,
    arch: Arch,
    context: Context,
    /// The action that it is in.
    act: u32,
    /// What it learnt in it before, and how much of that it has been told again.
    log: Log,
    to_tell: Vec<&'a dyn Memory>,
    told: usize,
    /// How many more steps it may take.
    steps: usize,
    /// It has taken its step: what it does now it does for the first time.
    stepped: bool,
    /// Where it was left, after which nothing counts any more.
    stopped: Option<(Standing, Log)>,
    /// Which of its ways the next access takes.
    way: usize,
    past: Key,
    /// It forgets between actions.
    checkpoints: bool,
    /// A lock was just taken that others have to wait for: the next step belongs to it. (Taking it
    /// commutes to the right with everything they can do, so nothing is missed.)
    took_lock: bool,
    /// What the system call is for and whose pages it is about, until it has its first lock.
    call: Option<(MmId, Purpose)>,
    /// The locks that the step is about.
    locks: Footprint,
}

/// What a thread is resumed with.
pub struct Resume<'a> {
    /// The world.
    pub world: &'a mut CheckWorld,
    /// Who it is.
    pub context: Context,
    /// Where it stands.
    pub standing: Standing,
    /// What it learnt in its action.
    pub log: &'a Log,
    /// How many steps it takes: none, to see where it begins, or one.
    pub steps: usize,
    /// Which of its ways an access takes.
    pub way: usize,
    /// Checkpoints count.
    pub checkpoints: bool,
}

impl<'a> CheckEnv<'a> {
    /// A thread at its start, soon to be where it stands.
    pub fn resume(resume: Resume<'a>) -> CheckEnv<'a> {
        let Resume { world, context, standing, log, steps, way, checkpoints } = resume;
        CheckEnv {
            policies: world.policies,
            arch: world.arch,
            world,
            context,
            act: standing.act,
            to_tell: in_order(log),
            log: log.clone(),
            told: 0,
            steps,
            stepped: false,
            stopped: None,
            way,
            past: standing.past,
            checkpoints,
            took_lock: false,
            call: None,
            locks: Footprint::default(),
        }
    }

    /// An action of operation `op` begins. Between actions a thread knows its place in the program
    /// only.
    pub fn begin(&mut self, act: u32, op: u32) {
        self.context.op = op;
        if act == self.act || self.is_left() {
            return;
        }
        self.act = act;
        self.log = None;
        self.to_tell.clear();
        self.told = 0;
        if self.checkpoints {
            self.past = extend(Key::default(), &(op, Site::HardwareWalk, act));
        }
    }

    /// A point where others may come between: the thread stops there unless it has a step left.
    fn pause(&mut self, next: Next) {
        self.took_lock = false;
        match self.steps.checked_sub(1) {
            Some(steps) => (self.steps, self.stepped) = (steps, true),
            None => self.stop(next),
        }
    }

    fn stop(&mut self, next: Next) {
        if self.stopped.is_none() {
            let standing = Standing { next, past: self.past, act: self.act };
            let log = self.log.clone();
            self.stopped = Some((standing, log));
        }
    }

    /// What the row says of how many faults an access may take.
    pub fn most_faults(&self) -> Option<u32> {
        self.world.config.most_faults
    }

    /// Whether the thread was left behind, so that nothing it does counts any more.
    pub fn is_left(&self) -> bool {
        self.stopped.is_some()
    }

    /// The thread is done: where it was left.
    pub fn finish(self) -> Stopped {
        let standing = Standing { next: Next::Done, past: self.past, act: self.act };
        let CheckEnv { stopped, log, locks, .. } = self;
        let (standing, log) = stopped.unwrap_or((standing, log));
        Stopped { standing, log, locks }
    }

    /// What the thread was told here before, if it is still being brought back.
    fn told<R: Learnt>(&mut self) -> Option<R> {
        let memory = self.to_tell.get(self.told)?;
        self.told += 1;
        let value = memory.value().downcast_ref::<R>().cloned();
        Some(value.unwrap_or_else(|| unreachable!("the same thread learns the same things")))
    }

    fn learn<R: Learnt>(&mut self, value: &R) {
        self.past = extend(self.past, value);
        let before = self.log.take();
        self.log = Some(Arc::new(Node { before, value: value.clone() }));
    }

    /// One atomic action without a kernel function's name.
    fn act<R: Learnt>(&mut self, site: Site, action: impl FnOnce(&mut CheckWorld, At) -> R) -> R {
        let at = self.context.at(site);
        let result = action(self.world, at);
        for frame in std::mem::take(&mut self.world.ghost.just_freed) {
            self.world.tlbs.frame_freed(frame);
        }
        self.learn(&result);
        result
    }

    /// A load or store: `perform` does it by the way that the explorer chose.
    pub fn access<R: Learnt>(
        &mut self,
        page: Vpn,
        write: bool,
        perform: impl FnOnce(&mut CheckWorld, At, usize) -> R,
    ) -> R {
        if let Some(told) = self.told() {
            return told;
        }
        self.pause(Next::Access { page, write });
        if self.is_left() {
            return R::nothing();
        }
        let way = self.way;
        self.act(Site::HardwareWalk, |w, at| perform(w, at, way))
    }

    /// A system call comes next; it begins when it takes its first lock.
    pub fn begin_call(&mut self, mm: MmId, purpose: Purpose) {
        self.call = Some((mm, purpose));
    }

    /// The lock is this thread's; a system call begins with its first one.
    fn take(&mut self, lock: Lock) {
        self.locks.lock(lock);
        self.world.ghost.locks.take(lock, self.context.thread.0);
        if let Some((mm, purpose)) = self.call.take() {
            begin_call(self.world, self.context.at(Site::HardwareWalk), mm, &purpose);
        }
    }

    /// Looks at the world as it is when a system call returns.
    pub fn observe(&mut self, look: impl FnOnce(&mut CheckWorld, At)) {
        if self.told::<()>().is_none() && !self.is_left() {
            self.act(Site::HardwareWalk, look);
        }
    }

    /// Waits until that is over.
    pub fn wait(&mut self, wait: Wait) {
        if self.told::<()>().is_some() {
            return;
        }
        self.pause(Next::Wait(wait));
        if self.is_left() {
            return;
        }
        if let Wait::Folio(frame) = wait {
            self.locks.lock(Lock::Folio(frame));
        }
        self.act(Site::HardwareWalk, |w, at| {
            if !wait.is_over(w) {
                w.impossible(at, "a thread went on before its wait was over");
            }
        });
    }

    /// Meets the other threads of a barrier.
    pub fn barrier(&mut self, barrier: u16) {
        if self.told::<()>().is_none() {
            self.pause(Next::Barrier(barrier));
            self.learn(&());
        }
    }
}

fn bits(cpus: &[CpuId]) -> u64 {
    cpus.iter().fold(0, |bits, cpu| bits | 1 << cpu.0)
}

/// Those of these CPUs (a bit each) that can be reached: who walks page tables without a lock has
/// interrupts off.
pub fn reachable(world: &CheckWorld, reach: Reach, cpus: u64) -> impl Iterator<Item = CpuId> {
    let of = (0..64).filter(move |bit| cpus >> bit & 1 == 1).map(CpuId);
    of.filter(move |cpu| reach == Reach::Broadcast || world.cpus[cpu.index()].walk.is_none())
}

/// Whether a thread that finds the lock taken may go on without: then it matters when it was taken.
/// (Who does not get a mapping's lock, or `mmap_lock` beside it, goes on by waiting for
/// `mmap_lock`.)
fn others_try(lock: Lock) -> bool {
    matches!(lock, Lock::Folio(_))
}

/// The lock that is meant now, if `thread` can take it.
pub fn free(world: &CheckWorld, lock: Lock, thread: u16) -> Option<Lock> {
    lock.resolved(world).filter(|lock| !world.ghost.locks.exclude(*lock, thread))
}

impl Env for CheckEnv<'_> {
    type Mode = CheckMode;

    fn context(&self) -> Context {
        self.context
    }

    fn policies(&self) -> &Policies {
        &self.policies
    }

    fn config(&self) -> &Config {
        &self.world.config
    }

    fn arch(&self) -> &Arch {
        &self.arch
    }

    fn step<R: Learnt>(&mut self, site: Site, action: impl FnOnce(&mut CheckWorld, At) -> R) -> R {
        if let Some(told) = self.told() {
            return told;
        }
        if !std::mem::take(&mut self.took_lock) {
            self.pause(Next::Step(site));
        }
        if self.is_left() {
            return R::nothing();
        }
        self.act(site, action)
    }

    fn each(
        &mut self,
        reach: Reach,
        site: Site,
        cpus: CpuSet,
        mut action: impl FnMut(&mut CheckWorld, At, CpuId),
    ) {
        let mut left: Vec<CpuId> = cpus.iter().collect();
        while !left.is_empty() && !self.is_left() {
            let told: Option<CpuId> = self.told();
            let cpu = told.unwrap_or_else(|| {
                self.pause(Next::Each(reach, site, bits(&left)));
                if self.is_left() {
                    return left[0];
                }
                let cpu =
                    reachable(self.world, reach, bits(&left)).nth(self.way).unwrap_or(left[0]);
                self.act(site, |w, at| {
                    action(w, at, cpu);
                    cpu
                })
            });
            left.retain(|other| *other != cpu);
        }
    }

    fn record(&mut self, _: Site, _: EventKind, _: Option<Verdict>) -> u64 {
        0
    }

    fn retries(&mut self, mm: MmId, page: Vpn, cause: Cause) {
        // It belongs to the step before it.
        if self.stepped && !self.is_left() {
            retried(self.world, self.context.at(Site::HandlePteFault), (mm, page), cause);
        }
    }

    fn goes_round(&mut self, page: Vpn, faults: u32) {
        self.step(Site::FollowPagePte, |w, at| no_progress(w, at, page, faults));
    }

    fn lock(&mut self, lock: Lock) {
        if self.told::<()>().is_some() {
            self.call = None;
            return;
        }
        self.pause(Next::Lock(lock));
        if self.is_left() {
            return;
        }
        match free(self.world, lock, self.context.thread.0) {
            Some(lock) => self.take(lock),
            None => {
                let at = self.context.at(Site::HardwareWalk);
                self.world.impossible(at, "a thread took a lock that was not to be had");
            }
        }
        self.learn(&());
        self.took_lock = !others_try(lock);
    }

    fn try_lock(&mut self, site: Site, lock: Lock) -> bool {
        if let Some(told) = self.told::<bool>() {
            self.call = self.call.take().filter(|_| !told);
            return told;
        }
        self.pause(Next::Step(site));
        if self.is_left() {
            return false;
        }
        self.locks.lock(lock);
        let free = free(self.world, lock, self.context.thread.0);
        free.into_iter().for_each(|lock| self.take(lock));
        self.learn(&free.is_some());
        self.took_lock = free.is_some() && !others_try(lock);
        free.is_some()
    }

    fn unlock(&mut self, lock: Lock) {
        // What it unlocked on its way to where it stands is not locked any more.
        if self.stepped && !self.is_left() {
            self.locks.lock(lock);
            let held = lock.resolved(self.world);
            if !held.is_some_and(|lock| self.world.ghost.locks.release(lock, self.context.thread.0))
            {
                let at = self.context.at(Site::HardwareWalk);
                self.world.impossible(at, "a lock was given back that the thread did not hold");
            }
        }
    }

    fn downgrade(&mut self, mm: MmId) {
        self.unlock(Lock::MmapWrite(mm));
        if self.stepped && !self.is_left() {
            self.world.ghost.locks.take(Lock::MmapRead(mm), self.context.thread.0);
        }
    }
}

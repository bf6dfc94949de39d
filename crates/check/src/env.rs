//! The checker's environment: a coroutine that stops before every step.
//!
//! The world travels: whoever runs owns it, and hands it over when it stops. A thread's past is
//! the running hash of its labels and of what its steps returned.

use crate::shadow::{CheckMode, CheckWorld};
use corosensei::Yielder;
use needless_model::arch::Arch;
use needless_model::env::{Context, Env, Lock};
use needless_model::event::EventKind;
use needless_model::machine::world::At;
use needless_model::policy::Policies;
use needless_model::site::Site;
use needless_model::verdict::Verdict;
use siphasher::sip128::{Hasher128, SipHasher13};
use std::hash::Hash;

/// What a thread waits for.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum Next {
    /// To take a step in this function.
    Step(Site),
    /// To take a lock.
    Lock(Lock),
    /// To choose one of so many.
    Choice(usize),
    /// For the other threads of a barrier.
    Barrier(u16),
}

/// What the explorer tells a thread that goes on.
pub struct Resume {
    /// The world.
    pub world: Box<CheckWorld>,
    /// The choice made, if one was asked for.
    pub choice: usize,
}

/// A thread that stopped.
pub struct Stopped {
    /// The world.
    pub world: Box<CheckWorld>,
    /// What it waits for.
    pub next: Next,
    /// Its past.
    pub past: u128,
}

/// The environment of one thread.
pub struct CheckEnv<'y> {
    yielder: &'y Yielder<Resume, Stopped>,
    world: Option<Box<CheckWorld>>,
    policies: Policies,
    arch: Arch,
    context: Context,
    past: SipHasher13,
    /// A lock was just taken: the next step belongs to it. (Taking a lock commutes to the right
    /// with everything others can do, so nothing is missed.)
    took_lock: bool,
}

impl<'y> CheckEnv<'y> {
    /// A thread that has been resumed for the first time.
    pub fn new(
        yielder: &'y Yielder<Resume, Stopped>,
        world: Box<CheckWorld>,
        context: Context,
    ) -> CheckEnv<'y> {
        let (policies, arch) = (world.policies, world.arch);
        let past = SipHasher13::new();
        CheckEnv { yielder, world: Some(world), policies, arch, context, past, took_lock: false }
    }

    /// Stops until the explorer says to go on; the choice made.
    pub fn stop(&mut self, next: Next) -> usize {
        self.took_lock = false;
        let Some(world) = self.world.take() else { return 0 };
        next.hash(&mut self.past);
        let past = self.past();
        let Resume { world, choice } = self.yielder.suspend(Stopped { world, next, past });
        choice.hash(&mut self.past);
        self.world = Some(world);
        choice
    }

    /// The operation changes.
    pub fn set_op(&mut self, op: u32) {
        self.context.op = op;
    }

    /// The thread's past so far.
    pub fn past(&self) -> u128 {
        self.past.finish128().as_u128()
    }

    /// Hands the world over for good.
    pub fn into_world(mut self) -> Option<Box<CheckWorld>> {
        self.world.take()
    }

    fn release(&mut self, lock: Lock) {
        let thread = self.context.thread.0;
        if let Some(world) = self.world.as_mut()
            && let Some(holders) = world.ghost.locks.get_mut(&lock)
        {
            if let Some(index) = holders.iter().position(|holder| *holder == thread) {
                holders.remove(index);
            }
            if holders.is_empty() {
                world.ghost.locks.remove(&lock);
            }
        }
    }

    fn take(&mut self, lock: Lock) {
        let thread = self.context.thread.0;
        if let Some(world) = self.world.as_mut() {
            world.ghost.locks.entry(lock).or_default().push(thread);
        }
    }
}

/// Whether `lock` can be taken now.
pub fn is_free(world: &CheckWorld, lock: Lock) -> bool {
    let held = |lock: &Lock| world.ghost.locks.contains_key(lock);
    match lock {
        Lock::MmapRead(mm) => !held(&Lock::MmapWrite(mm)),
        Lock::MmapWrite(mm) => !held(&Lock::MmapWrite(mm)) && !held(&Lock::MmapRead(mm)),
        lock => !held(&lock),
    }
}

impl Env for CheckEnv<'_> {
    type Mode = CheckMode;

    fn context(&self) -> Context {
        self.context
    }

    fn policies(&self) -> &Policies {
        &self.policies
    }

    fn arch(&self) -> &Arch {
        &self.arch
    }

    fn step<R: Hash>(&mut self, site: Site, action: impl FnOnce(&mut CheckWorld, At) -> R) -> R {
        if self.took_lock {
            (self.took_lock, site).hash(&mut self.past);
            self.took_lock = false;
        } else {
            self.stop(Next::Step(site));
        }
        let at = self.context.at(site);
        let Some(world) = self.world.as_mut() else {
            unreachable!("a thread that runs owns the world")
        };
        let result = action(world, at);
        for frame in std::mem::take(&mut world.ghost.just_freed) {
            world.tlbs.frame_freed(frame);
        }
        result.hash(&mut self.past);
        result
    }

    fn record(&mut self, _: Site, _: EventKind, _: Option<Verdict>) -> u64 {
        0
    }

    fn lock(&mut self, lock: Lock) {
        self.stop(Next::Lock(lock));
        self.take(lock);
        self.took_lock = true;
    }

    fn try_lock(&mut self, lock: Lock) -> bool {
        self.stop(Next::Step(Site::FolioTryLock));
        let free = self.world.as_ref().is_some_and(|world| is_free(world, lock));
        if free {
            self.take(lock);
        }
        free.hash(&mut self.past);
        free
    }

    fn unlock(&mut self, lock: Lock) {
        self.release(lock);
    }
}

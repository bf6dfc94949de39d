//! The environment that kernel operations run in.
//!
//! An operation is a straight-line function over `&mut impl Env`. It touches the world only in
//! [`Env::step`]. A step is what happens under one lock hold, or one action on a PTE, a flush or an
//! interrupt. The simulator runs a step at once. The checker suspends the thread there, so that it
//! explores every interleaving of steps. A thread learns nothing but what its steps return, so
//! these answers are its whole past. The checker can therefore bring a thread back to where it was
//! by returning the same answers again.

use crate::addr::{CpuId, MmId, ObjectId, Pfn, ThreadId, Vpn};
use crate::arch::Arch;
use crate::event::EventKind;
use crate::kernels::Config;
use crate::machine::cpuset::CpuSet;
use crate::machine::world::{At, Mode, World, mm_of};
use crate::policy::Policies;
use crate::program::{Program, Thread};
use crate::pte::Pte;
use crate::site::Site;
use crate::verdict::{Judgement, Reason, Verdict};
use crate::wait::Cause;
use smallvec::{Array, SmallVec};
use std::hash::Hash;

pub use crate::lock::Lock;

/// The CPU, thread and address space that an operation runs in. They do not change during the
/// operation.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct Context {
    /// The CPU. (Threads are pinned to CPUs.)
    pub cpu: CpuId,
    /// The thread.
    pub thread: ThreadId,
    /// The address space of the thread; `None` for a kernel thread.
    pub mm: Option<MmId>,
    /// The scenario's operation ([`crate::program::Op::id`]).
    pub op: u32,
}

impl Context {
    /// The context of thread number `thread` of `program`, in operation `op`.
    pub fn of(program: &Program, thread: usize, op: u32) -> Context {
        let Thread { cpu, process, kernel, .. } = program.threads[thread];
        let mm = (!kernel).then_some(mm_of(process));
        Context { cpu, thread: ThreadId(thread as u16), mm, op }
    }

    /// This context inside the kernel function `site`.
    pub const fn at(self, site: Site) -> At {
        let Context { cpu, thread, op, .. } = self;
        At { cpu, thread, running: Some(thread), op, site }
    }
}

/// A type that a step can return.
pub trait Learnt: Hash + Clone + Send + Sync + 'static {
    /// The empty answer. The checker gives it to threads that it has abandoned, so that they soon
    /// reach the end of their operation.
    fn nothing() -> Self;
}

/// Implements [`Learnt`] for types whose default is the empty answer.
macro_rules! default_is_nothing {
    ($($type:ty),*) => {
        $(impl Learnt for $type {
            fn nothing() -> Self {
                Self::default()
            }
        })*
    };
}

default_is_nothing!((), bool, u32, u64, usize, CpuSet);

impl Learnt for MmId {
    fn nothing() -> MmId {
        MmId(0)
    }
}

impl Learnt for Vpn {
    fn nothing() -> Vpn {
        Vpn(0)
    }
}

impl Learnt for ObjectId {
    fn nothing() -> ObjectId {
        ObjectId(0)
    }
}

impl Learnt for Pfn {
    fn nothing() -> Pfn {
        Pfn(0)
    }
}

impl Learnt for CpuId {
    fn nothing() -> CpuId {
        CpuId(0)
    }
}

impl Learnt for Pte {
    fn nothing() -> Pte {
        Pte::None
    }
}

impl Learnt for Verdict {
    fn nothing() -> Verdict {
        Verdict::new(Judgement::Needed, Reason::NothingStale)
    }
}

impl<T: Hash + Clone + Send + Sync + 'static> Learnt for Option<T> {
    fn nothing() -> Self {
        None
    }
}

impl<T: Learnt, E: Hash + Clone + Send + Sync + 'static> Learnt for Result<T, E> {
    fn nothing() -> Self {
        Ok(T::nothing())
    }
}

impl<T: Hash + Clone + Send + Sync + 'static> Learnt for Vec<T> {
    fn nothing() -> Self {
        Vec::new()
    }
}

impl<A> Learnt for SmallVec<A>
where
    A: Array + Send + Sync + 'static,
    A::Item: Hash + Clone + Send + Sync + 'static,
{
    fn nothing() -> Self {
        SmallVec::new()
    }
}

impl<A: Learnt, B: Learnt> Learnt for (A, B) {
    fn nothing() -> Self {
        (A::nothing(), B::nothing())
    }
}

impl<A: Learnt, B: Learnt, C: Learnt> Learnt for (A, B, C) {
    fn nothing() -> Self {
        (A::nothing(), B::nothing(), C::nothing())
    }
}

/// How CPUs that have to do something are reached.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum Reach {
    /// By an interrupt, or by something that waits as long: not while the CPU has interrupts off
    /// ([`crate::machine::lockless`]).
    Interrupt,
    /// By the hardware, even while the CPU has interrupts off (TLBI).
    Broadcast,
}

/// The environment that kernel operations run in.
pub trait Env {
    /// How the world is represented.
    type Mode: Mode;

    /// The CPU, thread and address space of the operation.
    fn context(&self) -> Context;

    /// The kernel's policies.
    fn policies(&self) -> &Policies;

    /// The kernel's configuration.
    fn config(&self) -> &Config;

    /// The architecture.
    fn arch(&self) -> &Arch;

    /// One atomic step.
    fn step<R: Learnt>(
        &mut self,
        site: Site,
        action: impl FnOnce(&mut World<Self::Mode>, At) -> R,
    ) -> R;

    /// One step for each CPU, in any order. Each happens when that CPU can be reached.
    fn each(
        &mut self,
        _reach: Reach,
        site: Site,
        cpus: CpuSet,
        mut action: impl FnMut(&mut World<Self::Mode>, At, CpuId),
    ) {
        for cpu in cpus.iter() {
            self.step(site, |w, at| action(w, at, cpu));
        }
    }

    /// Emits an event that changes nothing in the world. This is no step.
    fn record(&mut self, site: Site, kind: EventKind, verdict: Option<Verdict>) -> u64;

    /// Called when a fault is about to give its lock back because of `cause`, and will be tried
    /// again. This is no step.
    fn retries(&mut self, _mm: MmId, _page: Vpn, _cause: Cause) {}

    /// Called when kernel code has faulted on `page` this many times and would do so forever.
    fn goes_round(&mut self, page: Vpn, faults: u32);

    /// Takes a lock, and waits until it is free.
    fn lock(&mut self, lock: Lock);

    /// Takes a lock unless it is held or does not exist. Returns whether it was taken.
    fn try_lock(&mut self, site: Site, lock: Lock) -> bool;

    /// Releases a lock.
    fn unlock(&mut self, lock: Lock);

    /// Turns the write hold of `mmap_lock` into a read hold, and releases the mappings' locks
    /// (`mmap_write_downgrade`).
    fn downgrade(&mut self, mm: MmId);
}

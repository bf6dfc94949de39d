//! The environment that kernel operations run in.
//!
//! An operation is a straight-line function over `&mut impl Env`. It touches the world only in
//! [`Env::step`]: a step is what happens under one lock hold, or one PTE, flush or interrupt action.
//! The simulator runs a step at once; the checker suspends the thread there, so that every
//! interleaving of steps is explored. What a step returns is all that the thread learns, so a
//! thread's past is what its steps returned, and a thread can be brought back to where it was by
//! telling it the same again.

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

/// Who runs: fixed for the length of an operation.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct Context {
    /// The CPU. (A thread is pinned.)
    pub cpu: CpuId,
    /// The thread.
    pub thread: ThreadId,
    /// The address space that it runs in; a thread of the kernel has none.
    pub mm: Option<MmId>,
    /// The operation of the scenario.
    pub op: u32,
}

impl Context {
    /// Thread number `thread` of `program`, in operation `op`.
    pub fn of(program: &Program, thread: usize, op: u32) -> Context {
        let Thread { cpu, process, kernel, .. } = program.threads[thread];
        let mm = (!kernel).then_some(mm_of(process));
        Context { cpu, thread: ThreadId(thread as u16), mm, op }
    }

    /// The context in a kernel function.
    pub const fn at(self, site: Site) -> At {
        let Context { cpu, thread, op, .. } = self;
        At { cpu, thread, running: Some(thread), op, site }
    }
}

/// What a step can return.
pub trait Learnt: Hash + Clone + Send + Sync + 'static {
    /// What a thread is told that the checker has left behind, so that it comes to the end of its
    /// operation soon: that there was nothing.
    fn nothing() -> Self;
}

/// Things whose default is nothing.
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

/// How CPUs are reached that have to do something.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum Reach {
    /// By an interrupt, or what waits for as long: not while the CPU has interrupts off ([`crate::machine::lockless`]).
    Interrupt,
    /// By the hardware, which asks nobody (TLBI).
    Broadcast,
}

/// What kernel operations run in.
pub trait Env {
    /// How the world is represented.
    type Mode: Mode;

    /// Who runs.
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

    /// One step for each CPU, in any order, each when it can be reached.
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

    /// Emits an event that changes nothing in the world; no step.
    fn record(&mut self, site: Site, kind: EventKind, verdict: Option<Verdict>) -> u64;

    /// A fault is about to give its lock back, because of `cause`, and will be tried again; no step.
    fn retries(&mut self, _mm: MmId, _page: Vpn, _cause: Cause) {}

    /// Kernel code has faulted on a page so many times, and would do so for ever.
    fn goes_round(&mut self, page: Vpn, faults: u32);

    /// Takes a lock, waiting for it.
    fn lock(&mut self, lock: Lock);

    /// Takes a lock unless somebody holds it, or there is none; whether it was taken.
    fn try_lock(&mut self, site: Site, lock: Lock) -> bool;

    /// Gives a lock back.
    fn unlock(&mut self, lock: Lock);

    /// Holds `mmap_lock` for reading from now, not for writing, and no mapping's lock (`mmap_write_downgrade`).
    fn downgrade(&mut self, mm: MmId);
}

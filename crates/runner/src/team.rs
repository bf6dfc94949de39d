//! The threads of a scenario and whose turn it is.
//!
//! The order is discrete: one thread is active at a time, the one that holds the turn. Threads
//! take the turn in the order of their declaration; a thread gives it up when it waits at a
//! barrier, when it goes into `spin` or `sleep` for good, or when it ends. When the last
//! participant arrives at a barrier, the participants queue up for the turn in the barrier's
//! order. Threads that do nothing but spin or sleep are in that state before the first turn.
//!
//! A thread that waits spins, so that its CPU keeps the address space loaded; only if it shares
//! its CPU with another thread does it sleep instead.

use crate::sys;
use crate::wire::{Failure, FailureKind};
use needless_model::program::{Hold, Program};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The turn when nobody has it.
const NOBODY: u32 = u32::MAX;

/// What a thread does when it does not have the turn.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Rest {
    /// Not there yet.
    Starting = 0,
    /// Runs: it has the turn, or spins until it gets it.
    Running = 1,
    /// Sleeps until its turn comes, because it shares its CPU.
    Waiting = 2,
    /// Sleeps for good; its CPU is idle and holds the address space lazily.
    Sleeping = 3,
}

/// Why a thread gives up the turn.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Yield {
    /// It arrived at this barrier.
    Barrier(u16),
    /// It does not come back.
    ForGood,
}

struct Order {
    ready: VecDeque<usize>,
    arrived: Vec<Vec<usize>>,
}

struct Member {
    tid: AtomicI32,
    rest: AtomicU8,
    shares_cpu: bool,
    /// Raised to send a sleeper through the scheduler once more.
    nudge: AtomicU32,
    nudged: AtomicU32,
    /// The last roll call that it answered.
    answered: AtomicU32,
}

/// The scenario's threads.
pub struct Team {
    members: Vec<Member>,
    turn: AtomicU32,
    /// The thread that is about to fall asleep, plus one; 0: none.
    falling_asleep: AtomicU32,
    finished: AtomicBool,
    /// Whether a sleeper was not seen asleep, since this was last asked.
    awake: AtomicBool,
    /// Number of the last roll call.
    roll_call: AtomicU32,
    order: Mutex<Order>,
}

impl Team {
    /// The team of `program`, with nobody started.
    pub fn new(program: &Program) -> Team {
        let threads = &program.threads;
        let members = threads
            .iter()
            .map(|thread| Member {
                tid: AtomicI32::new(0),
                rest: AtomicU8::new(Rest::Starting as u8),
                shares_cpu: threads.iter().filter(|other| other.cpu == thread.cpu).count() > 1,
                nudge: AtomicU32::new(0),
                nudged: AtomicU32::new(0),
                answered: AtomicU32::new(0),
            })
            .collect();
        let mut ready = VecDeque::with_capacity(threads.len() * 2);
        ready.extend((1..threads.len()).filter(|&index| !threads[index].only_holds()));
        let arrived =
            program.barriers.iter().map(|b| Vec::with_capacity(b.threads.len())).collect();
        Team {
            members,
            turn: AtomicU32::new(NOBODY),
            falling_asleep: AtomicU32::new(0),
            finished: AtomicBool::new(false),
            awake: AtomicBool::new(false),
            roll_call: AtomicU32::new(0),
            order: Mutex::new(Order { ready, arrived }),
        }
    }

    /// The thread says that it is pinned and ready.
    pub fn report(&self, me: usize) {
        self.members[me].tid.store(sys::tid(), Ordering::Release);
        self.set_rest(me, Rest::Running);
    }

    /// Waits until all threads are there, and lets thread 0 go first.
    pub fn assemble(&self, program: &Program) -> Result<(), Failure> {
        let deadline = Instant::now() + Duration::from_secs(10);
        for (index, thread) in program.threads.iter().enumerate().skip(1) {
            while self.rest(index) == Rest::Starting {
                if Instant::now() > deadline {
                    let what = format!("thread `{}` does not start", thread.name);
                    return Err(Failure::new(FailureKind::Internal, what));
                }
                sys::sleep(Duration::from_micros(100));
            }
            if thread.holds() == Some(Hold::Sleep) {
                self.await_sleep(index);
            }
        }
        self.turn.store(0, Ordering::Release);
        Ok(())
    }

    /// The ids of the threads, in order.
    pub fn tids(&self) -> Vec<i32> {
        self.members.iter().map(|m| m.tid.load(Ordering::Acquire)).collect()
    }

    /// What thread `index` does when it does not have the turn.
    pub fn rest(&self, index: usize) -> Rest {
        match self.members[index].rest.load(Ordering::Acquire) {
            1 => Rest::Running,
            2 => Rest::Waiting,
            3 => Rest::Sleeping,
            _ => Rest::Starting,
        }
    }

    /// Whether no thread has anything left to do.
    pub fn finished(&self) -> bool {
        self.finished.load(Ordering::Acquire)
    }

    /// Gives up the turn.
    pub fn pass(&self, program: &Program, me: usize, why: Yield) -> Result<(), Failure> {
        let mut order = self.lock();
        if let Yield::Barrier(barrier) = why {
            let Order { ready, arrived } = &mut *order;
            let arrived = &mut arrived[usize::from(barrier)];
            let meets = &program.barriers[usize::from(barrier)].threads;
            arrived.push(me);
            if arrived.len() == meets.len() {
                arrived.clear();
                ready.extend(meets.iter().map(|thread| thread.index()));
            }
        }
        match order.ready.pop_front() {
            Some(next) => self.give(next),
            None => {
                if let Some(stuck) = order.arrived.iter().position(|a| !a.is_empty()) {
                    let name = &program.barriers[stuck].name;
                    let what = format!("barrier `{name}`: not all of its threads can ever arrive");
                    return Err(Failure::new(FailureKind::BadRequest, what));
                }
                self.finish();
            }
        }
        Ok(())
    }

    /// Waits for the turn; false if there will be none.
    pub fn await_turn(&self, me: usize) -> bool {
        loop {
            let turn = self.turn.load(Ordering::Acquire);
            if turn == me as u32 {
                self.set_rest(me, Rest::Running);
                self.await_whoever_falls_asleep();
                return true;
            }
            if self.finished() {
                return false;
            }
            if self.members[me].shares_cpu {
                self.set_rest(me, Rest::Waiting);
                sys::futex_wait(&self.turn, turn);
            } else {
                self.answer(me);
            }
        }
    }

    /// Runs on, touching nothing of the scenario's, until the scenario ends.
    pub fn spin(&self, me: usize) {
        while !self.finished() {
            self.answer(me);
        }
    }

    /// Waits until every thread that spins has shown that it is on its CPU; false if one has not
    /// in `patience`. Called by the thread that has the turn.
    pub fn roll_call(&self, patience: Duration) -> bool {
        let number = self.roll_call.fetch_add(1, Ordering::AcqRel).wrapping_add(1);
        let turn = self.turn.load(Ordering::Acquire) as usize;
        let deadline = Instant::now() + patience;
        for (index, member) in self.members.iter().enumerate() {
            while index != turn
                && self.rest(index) == Rest::Running
                && member.answered.load(Ordering::Acquire) != number
            {
                if Instant::now() > deadline {
                    return false;
                }
                std::hint::spin_loop();
            }
        }
        true
    }

    /// Answers the roll call, as part of spinning.
    #[inline]
    fn answer(&self, me: usize) {
        let number = self.roll_call.load(Ordering::Acquire);
        let answered = &self.members[me].answered;
        if answered.load(Ordering::Relaxed) != number {
            answered.store(number, Ordering::Release);
        }
        std::hint::spin_loop();
    }

    /// Says that thread `me` will be asleep in a moment; whoever gets the turn waits for it.
    pub fn announce_sleep(&self, me: usize) {
        self.set_rest(me, Rest::Sleeping);
        self.falling_asleep.store(me as u32 + 1, Ordering::Release);
    }

    /// Sleeps until the scenario ends.
    pub fn sleep(&self, me: usize) {
        let member = &self.members[me];
        self.set_rest(me, Rest::Sleeping);
        while !self.finished() {
            let nudge = member.nudge.load(Ordering::Acquire);
            member.nudged.store(nudge, Ordering::Release);
            sys::futex_wait(&member.nudge, nudge);
        }
    }

    /// Wakes each sleeper and waits until it sleeps again, so that its CPU has loaded the
    /// address space anew and holds it lazily.
    pub fn renew_sleepers(&self) {
        for (index, member) in self.members.iter().enumerate() {
            if self.rest(index) != Rest::Sleeping {
                continue;
            }
            let nudge = member.nudge.fetch_add(1, Ordering::AcqRel) + 1;
            sys::futex_wake_all(&member.nudge);
            while member.nudged.load(Ordering::Acquire) != nudge {
                std::hint::spin_loop();
            }
            self.await_sleep(index);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Order> {
        self.order.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_rest(&self, me: usize, rest: Rest) {
        self.members[me].rest.store(rest as u8, Ordering::Release);
    }

    fn give(&self, next: usize) {
        self.turn.store(next as u32, Ordering::Release);
        if self.members[next].shares_cpu {
            sys::futex_wake_all(&self.turn);
        }
    }

    fn finish(&self) {
        self.finished.store(true, Ordering::Release);
        self.turn.store(NOBODY, Ordering::Release);
        sys::futex_wake_all(&self.turn);
        for member in &self.members {
            member.nudge.fetch_add(1, Ordering::AcqRel);
            sys::futex_wake_all(&member.nudge);
        }
    }

    fn await_whoever_falls_asleep(&self) {
        let sleeper = self.falling_asleep.swap(0, Ordering::AcqRel);
        if sleeper > 0 {
            self.await_sleep(sleeper as usize - 1);
        }
    }

    /// Whether a sleeper was not seen asleep since the last call.
    pub fn stayed_awake(&self) -> bool {
        self.awake.swap(false, Ordering::AcqRel)
    }

    /// Waits until the kernel says that the thread sleeps. The state changes a little before the
    /// CPU is left, hence the grace at the end.
    fn await_sleep(&self, index: usize) {
        let tid = self.members[index].tid.load(Ordering::Acquire);
        let deadline = Instant::now() + Duration::from_secs(5);
        while !asleep(tid) {
            if Instant::now() >= deadline {
                self.awake.store(true, Ordering::Release);
                return;
            }
            std::hint::spin_loop();
        }
        let grace = Instant::now() + Duration::from_micros(200);
        while Instant::now() < grace {
            std::hint::spin_loop();
        }
    }
}

/// Whether a thread of this process sleeps.
fn asleep(tid: i32) -> bool {
    let stat = std::fs::read(format!("/proc/self/task/{tid}/stat")).unwrap_or_default();
    crate::tracefs::task_state(&stat) == Some(b'S')
}

#[cfg(test)]
mod tests {
    use super::*;
    use needless_model::addr::{CpuId, ThreadId};
    use needless_model::program::{Barrier, Thread};

    fn program() -> Program {
        let thread = |name, cpu| Thread::new(name, CpuId(cpu), vec![]);
        Program {
            threads: vec![thread("a", 0), thread("b", 1), thread("c", 2)],
            barriers: vec![Barrier {
                name: "meet".into(),
                threads: vec![ThreadId(2), ThreadId(0)],
            }],
            ..Program::default()
        }
    }

    #[test]
    fn turns_go_round_in_order() {
        let program = program();
        let team = Team::new(&program);
        let turn = || team.turn.load(Ordering::Acquire);
        team.turn.store(0, Ordering::Release);
        team.pass(&program, 0, Yield::Barrier(0)).unwrap();
        assert_eq!(turn(), 1, "declared order");
        team.pass(&program, 1, Yield::ForGood).unwrap();
        assert_eq!(turn(), 2);
        team.pass(&program, 2, Yield::Barrier(0)).unwrap();
        assert_eq!(turn(), 2, "the barrier's order");
        team.pass(&program, 2, Yield::ForGood).unwrap();
        assert_eq!(turn(), 0);
        team.pass(&program, 0, Yield::ForGood).unwrap();
        assert!(team.finished());
    }

    #[test]
    fn a_barrier_that_cannot_fill_is_an_error() {
        let program = program();
        let team = Team::new(&program);
        team.pass(&program, 0, Yield::Barrier(0)).unwrap();
        team.pass(&program, 1, Yield::ForGood).unwrap();
        let failure = team.pass(&program, 2, Yield::ForGood).unwrap_err();
        assert!(failure.what.contains("`meet`"), "{failure}");
    }
}

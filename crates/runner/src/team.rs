//! The threads of a scenario, and whose turn it is.
//!
//! The order is discrete: one thread is active at a time, the one that has the turn. Threads take
//! the turn in the order of their declaration. A thread gives it up when it waits at a barrier,
//! when it begins to `spin` or `sleep` for the rest of the run, or when it ends. When the last
//! participant arrives at a barrier, the participants queue up for the turn in the barrier's order.
//! Threads that only spin or sleep do so before the first turn.
//!
//! A waiting thread spins, so that its CPU keeps the address space loaded. It sleeps instead if it
//! shares its CPU with another thread, or if it waits for the end of a process.
//!
//! A forked process has one thread. The thread is queued when the process begins, and gives up its
//! last turn before the process ends. The thread that gets the turn next waits until the kernel has
//! torn the process down. All of this lies in memory that the processes share ([`crate::shared`]).
//! Thread 0 checks the processes while it waits, because a process that was killed or stopped does
//! not pass its turn on.

mod processes;

use crate::lock::{Guard, Lock};
use crate::sys::{self, Usage};
use crate::userfaultfd;
use crate::wire::{Failure, FailureKind};
use needless_model::addr::ProcessId;
use needless_model::call::CallExpr;
use needless_model::program::{Hold, OpKind, Program, all_ops};
use processes::Stall;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The value of the turn when no thread has it.
const NOBODY: u32 = u32::MAX;

/// The time after which a waiting thread checks that the processes still live.
const LOOK_AFTER: Duration = Duration::from_millis(500);

/// The longest wait for the threads that serve userfaultfd.
const LONGEST_SERVICE: Duration = Duration::from_secs(1);

/// How often a loop without a system call runs between two looks at the clock.
const LOOK_EVERY: u32 = 1 << 14;

/// What a thread does when it does not have the turn.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Rest {
    /// It has not started yet.
    Starting = 0,
    /// It runs: it has the turn, or spins until it gets it.
    Running = 1,
    /// It sleeps until its turn comes, because it shares its CPU or waits for a process.
    Waiting = 2,
    /// It sleeps for the rest of the run. Its CPU is idle and has the address space loaded lazily.
    Sleeping = 3,
    /// Its process was not forked yet, or is over.
    Unborn = 4,
}

/// Why a thread gives up the turn.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Yield {
    /// It arrived at this barrier.
    Barrier(u16),
    /// It waits for the end of the process whose thread this is.
    For(usize),
    /// It spins or sleeps for the rest of the run.
    ForGood,
    /// Its process ends.
    End,
}

struct Order {
    ready: VecDeque<usize>,
    arrived: Vec<Vec<usize>>,
    /// Pairs of a waiting thread and the thread of the process that it waits for.
    waiting: Vec<(usize, usize)>,
    /// Processes that have ended and were not waited for.
    zombies: Vec<(i32, usize)>,
}

struct Member {
    tid: AtomicI32,
    rest: AtomicU8,
    /// Whether it belongs to the first process.
    first: bool,
    /// Whether it may sleep until its turn comes.
    sleeps: bool,
    shares_cpu: bool,
    /// Whether it answers the events of userfaultfd.
    serves: bool,
    /// Is incremented to wake it for its turn.
    called: AtomicU32,
    /// Is incremented to make a sleeper wake up and fall asleep again.
    nudge: AtomicU32,
    nudged: AtomicU32,
    /// The last roll call that it answered.
    answered: AtomicU32,
    /// Whether it sleeps for a limited time, because its operation says so.
    napping: AtomicBool,
    /// What its process used, unless it is the first process.
    minor_faults: AtomicU64,
    major_faults: AtomicU64,
    involuntary_switches: AtomicU64,
}

/// The scenario's threads.
pub struct Team {
    members: Vec<Member>,
    turn: AtomicU32,
    /// The thread that is about to fall asleep, plus one; 0: none.
    falling_asleep: AtomicU32,
    /// The thread whose process is about to end, plus one; 0: none.
    ending: AtomicU32,
    finished: AtomicBool,
    /// Whether a sleeper was not seen asleep, since the last call of `stayed_awake`.
    awake: AtomicBool,
    /// Number of the last roll call.
    roll_call: AtomicU32,
    order: Lock<Order>,
    /// Why a process of the scenario failed.
    failure: Lock<Option<Failure>>,
    stall: Lock<Option<Stall>>,
}

fn member(program: &Program, index: usize) -> Member {
    let thread = &program.threads[index];
    let others = program.threads.iter().filter(|other| other.cpu == thread.cpu);
    let shares_cpu = others.count() > 1;
    let waits =
        |op: &needless_model::program::Op| matches!(op.kind, OpKind::Call(CallExpr::Wait { .. }));
    let first = thread.process == ProcessId::FIRST;
    Member {
        tid: AtomicI32::new(0),
        rest: AtomicU8::new(if first { Rest::Starting } else { Rest::Unborn } as u8),
        first,
        sleeps: shares_cpu || all_ops(&thread.body).any(waits),
        shares_cpu,
        serves: thread.serves().is_some(),
        called: AtomicU32::new(0),
        nudge: AtomicU32::new(0),
        nudged: AtomicU32::new(0),
        answered: AtomicU32::new(0),
        napping: AtomicBool::new(false),
        minor_faults: AtomicU64::new(0),
        major_faults: AtomicU64::new(0),
        involuntary_switches: AtomicU64::new(0),
    }
}

impl Team {
    /// The team of `program`. No thread has started.
    pub fn new(program: &Program) -> Team {
        let threads = &program.threads;
        let members: Vec<Member> = (0..threads.len()).map(|i| member(program, i)).collect();
        let mut ready = VecDeque::with_capacity(threads.len() * 2);
        let acts = |index: &usize| members[*index].first && !threads[*index].only_holds();
        ready.extend((1..threads.len()).filter(acts));
        let arrived =
            program.barriers.iter().map(|b| Vec::with_capacity(b.threads.len())).collect();
        let waiting = Vec::with_capacity(threads.len());
        let order = Order { ready, arrived, waiting, zombies: Vec::with_capacity(1 << 8) };
        Team {
            members,
            turn: AtomicU32::new(NOBODY),
            falling_asleep: AtomicU32::new(0),
            ending: AtomicU32::new(0),
            finished: AtomicBool::new(false),
            awake: AtomicBool::new(false),
            roll_call: AtomicU32::new(0),
            order: order.into(),
            failure: None.into(),
            stall: None.into(),
        }
    }

    /// Reports that thread `me` is pinned and ready.
    pub fn report(&self, me: usize) {
        self.members[me].tid.store(sys::tid(), Ordering::Release);
        self.set_rest(me, Rest::Running);
    }

    /// Waits until all threads are ready, and gives the turn to thread 0.
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
            let asleep = matches!(thread.holds(), Some(Hold::Sleep | Hold::Serve(_)));
            if self.members[index].first && asleep {
                self.await_sleep(index);
            }
        }
        self.turn.store(0, Ordering::Release);
        Ok(())
    }

    /// The thread with this task id.
    pub fn thread_of(&self, tid: i32) -> Option<usize> {
        self.members.iter().position(|member| member.tid.load(Ordering::Acquire) == tid)
    }

    /// The task ids of the threads, in order; 0 for threads of forked processes.
    pub fn tids(&self) -> Vec<i32> {
        let tid = |m: &Member| if m.first { m.tid.load(Ordering::Acquire) } else { 0 };
        self.members.iter().map(tid).collect()
    }

    /// What thread `index` does when it does not have the turn.
    pub fn rest(&self, index: usize) -> Rest {
        match self.members[index].rest.load(Ordering::Acquire) {
            1 => Rest::Running,
            2 => Rest::Waiting,
            3 => Rest::Sleeping,
            4 => Rest::Unborn,
            _ => Rest::Starting,
        }
    }

    /// Whether the scenario is over.
    pub fn finished(&self) -> bool {
        self.finished.load(Ordering::Acquire)
    }

    /// Gives up the turn.
    pub fn pass(&self, program: &Program, me: usize, why: Yield) -> Result<(), Failure> {
        let mut order = self.lock();
        let Order { ready, arrived, waiting, .. } = &mut *order;
        match why {
            Yield::Barrier(barrier) => {
                let arrived = &mut arrived[usize::from(barrier)];
                let meets = &program.barriers[usize::from(barrier)].threads;
                arrived.push(me);
                if arrived.len() == meets.len() {
                    arrived.clear();
                    ready.extend(meets.iter().map(|thread| thread.index()));
                }
            }
            Yield::For(process) => waiting.push((me, process)),
            Yield::ForGood => {}
            Yield::End => {
                self.set_rest(me, Rest::Unborn);
                self.ending.store(me as u32 + 1, Ordering::Release);
                let over = |(who, process): &(usize, usize)| (*process == me).then_some(*who);
                let from = ready.len();
                ready.extend(waiting.iter().filter_map(over));
                ready.make_contiguous()[from..].sort_unstable();
                waiting.retain(|(_, process)| *process != me);
            }
        }
        match order.ready.pop_front() {
            Some(next) => self.give(next),
            None => {
                stuck(program, &order)?;
                self.finish();
            }
        }
        Ok(())
    }

    /// Waits for the turn. Returns false if the scenario ends before that.
    pub fn await_turn(&self, program: &Program, me: usize) -> Result<bool, Failure> {
        let asleep = self.members[me].shares_cpu || self.rest(me) == Rest::Waiting;
        let looks = me == 0 && program.processes.len() > 1;
        let (mut looked, mut idle) = (None, 0_u32);
        loop {
            let called = self.members[me].called.load(Ordering::Acquire);
            if self.turn.load(Ordering::Acquire) == me as u32 {
                self.set_rest(me, Rest::Running);
                self.await_whoever_falls_asleep();
                self.await_whoever_ends(program, me)?;
                return Ok(true);
            }
            if self.finished() {
                return Ok(false);
            }
            if asleep {
                self.set_rest(me, Rest::Waiting);
                sys::futex_wait(&self.members[me].called, called, looks.then_some(LOOK_AFTER));
            } else {
                self.answer(me);
            }
            idle += 1;
            if looks && (asleep || idle.is_multiple_of(LOOK_EVERY)) {
                let now = Instant::now();
                if *looked.get_or_insert(now) + LOOK_AFTER <= now {
                    looked = Some(now);
                    self.look_after_processes(program)?;
                }
            }
        }
    }

    /// Spins without touching the scenario's memory, until the scenario ends.
    pub fn spin(&self, program: &Program, me: usize) -> Result<(), Failure> {
        let looks = me == 0 && program.processes.len() > 1;
        let mut idle = 0_u32;
        while !self.finished() {
            self.answer(me);
            idle += 1;
            // This takes some tenths of a second.
            if looks && idle.is_multiple_of(LOOK_EVERY << 10) {
                self.look_after_processes(program)?;
            }
        }
        Ok(())
    }

    /// Waits until every spinning thread has shown that it is on its CPU. Returns false if one has
    /// not done so within `patience`. Called by the thread that has the turn.
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

    /// Answers the roll call. Called while the thread spins.
    #[inline]
    fn answer(&self, me: usize) {
        let number = self.roll_call.load(Ordering::Acquire);
        let answered = &self.members[me].answered;
        if answered.load(Ordering::Relaxed) != number {
            answered.store(number, Ordering::Release);
        }
        std::hint::spin_loop();
    }

    /// Announces that thread `me` will fall asleep in a moment, for the rest of the run or until
    /// its turn comes. The thread that gets the turn waits for that.
    pub fn announce_sleep(&self, me: usize, rest: Rest) {
        self.set_rest(me, rest);
        self.falling_asleep.store(me as u32 + 1, Ordering::Release);
    }

    /// Sleeps until the scenario ends.
    pub fn sleep(&self, program: &Program, me: usize) -> Result<(), Failure> {
        let looks = me == 0 && program.processes.len() > 1;
        let member = &self.members[me];
        self.set_rest(me, Rest::Sleeping);
        while !self.finished() {
            let nudge = member.nudge.load(Ordering::Acquire);
            member.nudged.store(nudge, Ordering::Release);
            sys::futex_wait(&member.nudge, nudge, looks.then_some(LOOK_AFTER));
            if looks {
                self.look_after_processes(program)?;
            }
        }
        Ok(())
    }

    /// Calls `once` again and again, until the scenario ends. `once` sleeps. It returns when
    /// userfaultfd has reported something, or when [`userfaultfd::interrupt`] was called.
    pub fn serve(&self, me: usize, once: impl Fn() -> Result<(), Failure>) -> Result<(), Failure> {
        let member = &self.members[me];
        self.set_rest(me, Rest::Sleeping);
        while !self.finished() {
            member.nudged.store(member.nudge.load(Ordering::Acquire), Ordering::Release);
            once()?;
        }
        Ok(())
    }

    /// Wakes each sleeper and waits until it sleeps again. Its CPU has then loaded the address
    /// space anew, lazily.
    pub fn renew_sleepers(&self) {
        for (index, member) in self.members.iter().enumerate() {
            if self.rest(index) != Rest::Sleeping {
                continue;
            }
            let nudge = member.nudge.fetch_add(1, Ordering::AcqRel) + 1;
            sys::futex_wake_all(&member.nudge);
            if member.serves {
                userfaultfd::interrupt();
            }
            while member.nudged.load(Ordering::Acquire) != nudge {
                std::hint::spin_loop();
            }
            self.await_sleep(index);
        }
    }

    /// Waits until the threads that serve userfaultfd are asleep again. The kernel flushes a lazily
    /// loaded address space in another way than one in use.
    pub fn await_servers(&self) {
        let deadline = Instant::now() + LONGEST_SERVICE;
        for member in self.members.iter().filter(|member| member.serves) {
            let tid = member.tid.load(Ordering::Acquire);
            while processes::has_left_its_cpu(tid) == Some(false) && Instant::now() < deadline {
                std::hint::spin_loop();
            }
        }
    }

    /// What all processes but the first one have used so far.
    pub fn used(&self) -> Usage {
        self.members.iter().fold(Usage::default(), |sum, member| {
            sum.plus(Usage {
                minor_faults: member.minor_faults.load(Ordering::Acquire),
                major_faults: member.major_faults.load(Ordering::Acquire),
                involuntary_switches: member.involuntary_switches.load(Ordering::Acquire),
            })
        })
    }

    fn lock(&self) -> Guard<'_, Order> {
        self.order.lock()
    }

    fn set_rest(&self, me: usize, rest: Rest) {
        self.members[me].rest.store(rest as u8, Ordering::Release);
    }

    fn give(&self, next: usize) {
        self.turn.store(next as u32, Ordering::Release);
        if self.members[next].sleeps {
            self.call(next);
        }
    }

    fn call(&self, next: usize) {
        let called = &self.members[next].called;
        called.fetch_add(1, Ordering::AcqRel);
        sys::futex_wake_all(called);
    }

    fn finish(&self) {
        self.finished.store(true, Ordering::Release);
        self.turn.store(NOBODY, Ordering::Release);
        for (index, member) in self.members.iter().enumerate() {
            self.call(index);
            member.nudge.fetch_add(1, Ordering::AcqRel);
            sys::futex_wake_all(&member.nudge);
        }
        userfaultfd::interrupt();
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

    /// Waits until the kernel reports that the thread sleeps. The state changes a little before the
    /// thread leaves its CPU, hence the grace period at the end.
    fn await_sleep(&self, index: usize) {
        let tid = self.members[index].tid.load(Ordering::Acquire);
        let deadline = Instant::now() + Duration::from_secs(5);
        while processes::state(tid) != Some(b'S') {
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

/// Fails if threads still wait although no thread can go on. The failure says what they wait for.
fn stuck(program: &Program, order: &Order) -> Result<(), Failure> {
    let barrier = order.arrived.iter().position(|arrived| !arrived.is_empty());
    let what = match (barrier, order.waiting.first()) {
        (Some(barrier), _) => {
            let name = &program.barriers[barrier].name;
            format!("barrier `{name}`: not all of its threads can ever arrive")
        }
        (None, Some((who, process))) => {
            let name = |thread: usize| &program.threads[thread].name;
            format!("`{}` waits for process `{}`, which does not end", name(*who), name(*process))
        }
        (None, None) => return Ok(()),
    };
    Err(Failure::new(FailureKind::BadRequest, what))
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

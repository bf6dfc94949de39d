//! The interpreter: threads as stacks of loops, scheduled in discrete order.

use super::access::Touch;
use super::env::SimWorld;
use super::rounds::Course;
use super::splits::Splits;
use super::{Look, OpAt, SimError, SimOptions, Waiting, Watch};
use crate::addr::{CpuId, MmId, ProcessId, ThreadId};
use crate::call::Call;
use crate::env::Context;
use crate::event::EventKind;
use crate::kernel::exit::exit_process;
use crate::kernel::fault::Fault;
use crate::kernel::switch::{enter_lazy, switch_mm};
use crate::kernel::{Errno, call, call_again};
use crate::machine::consistency::contradiction;
use crate::machine::world::{At, mm_of, process_of};
use crate::program::{Access, ExprError, Hold, Op, Program};
use crate::resolved::{Resolved, Visit};
use crate::run::Round;
use crate::site::Site;
use crate::wait::{Ended, Wait};
use std::collections::VecDeque;

/// The number of operations and faults between two checks whether to continue: about a millisecond.
const LOOK_EVERY: u32 = 16_384;

/// The state of a thread.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Status {
    /// It waits for its turn.
    Queued,
    /// It has its turn.
    Active,
    /// It waits at the barrier with this index.
    AtBarrier(u16),
    /// It waits in the kernel, and its CPU is idle.
    Blocked(Wait),
    /// It spins or sleeps until the end, or is done.
    Settled,
    /// Its process has not begun, or is over.
    Unborn,
}

impl Status {
    /// The state, at the start, of a thread of that process.
    fn at_start(process: ProcessId) -> Status {
        if process == ProcessId::FIRST { Status::Queued } else { Status::Unborn }
    }
}

/// What a thread resumes after a wait in the kernel.
#[derive(Clone, Debug)]
pub(super) enum Rest {
    /// It resumes the fault and its access, then the rest of a touch.
    Touch((Fault, Access), Touch),
    /// It resumes a system call.
    Call(Call),
}

/// The action at the end of a body.
#[derive(Copy, Clone, Debug)]
enum Then {
    /// The thread is done.
    End,
    /// The next repetition of a loop: the slot increases by `step` until `left` repetitions are
    /// done.
    Again { slot: u8, step: i64, left: u64 },
    /// The next round.
    NextRound(Course),
    /// The end of a `measure` block.
    EndMeasure,
}

/// A body being executed.
#[derive(Copy, Clone, Debug)]
struct Body<'p> {
    ops: &'p [Op],
    next: usize,
    then: Then,
}

pub(super) struct Thread<'p> {
    stack: Vec<Body<'p>>,
    pub(super) slots: Vec<i64>,
    status: Status,
    /// What it resumes before its next operation, and the wait that has to be over.
    rest: Option<(Wait, Rest)>,
}

/// The machine with its program.
pub(super) struct Machine<'p, 'w> {
    pub(super) program: &'p Program,
    pub(super) world: &'w mut SimWorld,
    /// The thread whose turn it is; its CPU and address space follow.
    pub(super) thread: usize,
    cpu: CpuId,
    mm: Option<MmId>,
    /// The address space whose pages the thread's operations name.
    pub(super) space: MmId,
    pub(super) op: u32,
    pub(super) threads: Vec<Thread<'p>>,
    /// The threads that can continue, in the order of their turns.
    queue: VecDeque<usize>,
    paranoid: bool,
    /// Who watches sees the world after each operation and fault.
    shows: bool,
    /// Whether each round runs as if the one before it had been disturbed.
    pub(super) repeats: bool,
    /// The number of warm-up rounds after which the warm-up restarts; 0 if it does not, or already
    /// has.
    pub(super) renews_after: u32,
    pub(super) watch: &'w mut dyn Watch,
    until_look: u32,
    pub(super) round: Round,
    /// The number of finished rounds, without those of the warm-up.
    pub(super) rounds: u32,
    /// Splits of huge pages' entries whose verdict depends on later events.
    pub(super) splits: Splits,
}

impl<'p, 'w> Machine<'p, 'w> {
    pub(super) fn new(
        program: &'p Program,
        world: &'w mut SimWorld,
        options: &SimOptions,
        watch: &'w mut dyn Watch,
    ) -> Machine<'p, 'w> {
        let thread = |thread: &'p crate::program::Thread| Thread {
            stack: vec![Body { ops: &thread.body, next: 0, then: Then::End }],
            slots: vec![0; usize::from(program.slots)],
            status: Status::at_start(thread.process),
            rest: None,
        };
        Machine {
            program,
            world,
            thread: 0,
            cpu: program.threads.first().map_or(CpuId(0), |thread| thread.cpu),
            mm: None,
            space: mm_of(ProcessId::FIRST),
            op: 0,
            threads: program.threads.iter().map(thread).collect(),
            queue: VecDeque::new(),
            paranoid: options.paranoid,
            shows: options.shows,
            repeats: options.repeats,
            renews_after: options.renews_after,
            watch,
            until_look: if options.paranoid || options.shows { 1 } else { LOOK_EVERY },
            round: Round::default(),
            rounds: 0,
            splits: Splits::default(),
        }
    }

    /// Runs the program to the end.
    pub(super) fn run(&mut self) -> Result<(), Box<SimError>> {
        // 1. Every thread starts on its CPU, the process's first thread first.
        let born = |thread: &usize| self.threads[*thread].status != Status::Unborn;
        let born: Vec<usize> = (0..self.threads.len()).filter(born).collect();
        born.iter().for_each(|thread| self.turn_to(*thread));
        // 2. Threads that only spin or sleep begin to do so before anything else happens.
        for &thread in &born[1..] {
            let idle = &self.program.threads[thread];
            if idle.body.is_empty() || idle.only_holds() {
                self.run_thread(thread)?;
            }
        }
        // 3. The other threads take turns: at first in declared order, after a barrier in the
        //    barrier's order.
        self.queue = born.into();
        while let Some(thread) = self.queue.pop_front() {
            if !matches!(self.threads[thread].status, Status::Settled | Status::Unborn) {
                self.run_thread(thread)?;
                self.wake();
            }
        }
        if self.world.room.was_refused() {
            return Err(self.out_of_memory());
        }
        self.report_deadlock()
    }

    /// Whether the thread's process has begun and is not over.
    pub(super) fn has_begun(&self, thread: usize) -> bool {
        self.threads[thread].status != Status::Unborn
    }

    /// Queues the threads whose wait is over.
    fn wake(&mut self) {
        for (index, thread) in self.threads.iter_mut().enumerate() {
            if let Status::Blocked(wait) = thread.status
                && wait.is_over(self.world)
            {
                thread.status = Status::Queued;
                self.queue.push_back(index);
            }
        }
    }

    /// Makes the thread wait in the kernel. Other threads continue.
    pub(super) fn block(&mut self, wait: Wait, rest: Rest) -> Result<(), Box<SimError>> {
        let thread = &mut self.threads[self.thread];
        (thread.status, thread.rest) = (Status::Blocked(wait), Some((wait, rest)));
        self.go_idle();
        match wait {
            Wait::Userfault(..) => self.serve(),
            _ => Ok(()),
        }
    }

    /// Lets the thread that serves the userfaultfd wake up, answer and sleep again. Then the thread
    /// that asked continues.
    #[cold]
    fn serve(&mut self) -> Result<(), Box<SimError>> {
        let (asks, op) = (self.thread, self.op);
        let process = self.program.threads[asks].process;
        let serves = |thread: usize| {
            let of = &self.program.threads[thread];
            let settled = self.threads[thread].status == Status::Settled;
            let serves = of.serves().filter(|_| settled && of.process == process);
            serves.map(|(number, answer)| (thread, number, answer))
        };
        let Some((server, number, answer)) = (0..self.threads.len()).find_map(serves) else {
            return Ok(());
        };
        self.turn_to(server);
        self.op = number;
        let space = self.space;
        let asked = Call::UffdAnswer { answer: answer.placed(&self.program.areas) };
        if let Err(errno) = call(&mut self.env(), space, asked) {
            return self.failed(asked, errno);
        }
        self.go_idle();
        self.turn_to(asks);
        self.op = op;
        self.threads[asks].status = Status::Active;
        Ok(())
    }

    fn report_deadlock(&self) -> Result<(), Box<SimError>> {
        let waiting = self.threads.iter().enumerate().filter_map(|(index, thread)| {
            let what = match thread.status {
                Status::AtBarrier(barrier) => {
                    format!("at barrier `{}`", self.program.barriers[usize::from(barrier)].name)
                }
                Status::Blocked(Wait::Exit(mm)) => {
                    let process = process_of(mm).index();
                    format!("for the end of process `{}`", self.program.processes[process].name)
                }
                // The thread that answers may have nothing to answer.
                Status::Blocked(Wait::UffdEvent(_)) => return None,
                Status::Blocked(wait) => format!("for {wait}"),
                Status::Queued | Status::Active | Status::Settled | Status::Unborn => return None,
            };
            let at =
                thread.stack.last().and_then(|frame| frame.ops.get(frame.next.checked_sub(1)?));
            Some(Waiting {
                thread: self.program.threads[index].name.clone(),
                for_process: matches!(thread.status, Status::Blocked(Wait::Exit(_))),
                for_answer: matches!(thread.status, Status::Blocked(Wait::Userfault(..))),
                what,
                op: at.map_or(u32::MAX, |op| op.id),
            })
        });
        let waiting: Vec<Waiting> = waiting.collect();
        if waiting.is_empty() { Ok(()) } else { Err(Box::new(SimError::Deadlock { waiting })) }
    }

    fn run_thread(&mut self, thread: usize) -> Result<(), Box<SimError>> {
        self.turn_to(thread);
        self.threads[thread].status = Status::Active;
        while self.threads[thread].status == Status::Active {
            self.advance()?;
        }
        Ok(())
    }

    pub(super) fn turn_to(&mut self, thread: usize) {
        let Context { cpu, mm, .. } = Context::of(self.program, thread, self.op);
        (self.thread, self.cpu, self.mm) = (thread, cpu, mm);
        self.space = mm_of(self.program.threads[thread].process);
        self.resume_on_cpu();
    }

    /// Gives the thread its CPU, which may have been idle or with another thread. For a kernel
    /// thread the CPU lazily keeps its address space.
    fn resume_on_cpu(&mut self) {
        let (cpu, thread) = (self.cpu(), ThreadId(self.thread as u16));
        let at = self.at(Site::SwitchMm);
        let before = self.world.cpus[cpu.index()].running.replace(thread);
        if before != Some(thread) {
            self.world.emit(at, EventKind::Switch { to: Some(thread) });
            match self.mm {
                Some(mm) => switch_mm(self.world, at, cpu, mm),
                None => {
                    enter_lazy(self.world, cpu);
                    self.world.cpus[cpu.index()].running = Some(thread);
                }
            }
        }
    }

    pub(super) fn go_idle(&mut self) {
        let at = self.at(Site::EnterLazyTlb);
        enter_lazy(self.world, at.cpu);
        self.world.emit(at, EventKind::Switch { to: None });
    }

    /// Executes one operation, or the end of a body.
    pub(super) fn advance(&mut self) -> Result<(), Box<SimError>> {
        let thread = &mut self.threads[self.thread];
        if thread.rest.is_some() {
            return self.take_up();
        }
        let Some(frame) = thread.stack.last_mut() else {
            self.end_thread();
            return Ok(());
        };
        let frame_ops: &'p [Op] = frame.ops;
        let Some(op) = frame_ops.get(frame.next) else {
            let then = frame.then;
            self.end_of_body(then)?;
            // A body without operations would never reach a check.
            return if frame_ops.is_empty() { self.check() } else { Ok(()) };
        };
        frame.next += 1;
        self.op = op.id;
        self.execute(op)?;
        self.check()
    }

    /// Ends the thread. A forked process ends with it.
    fn end_thread(&mut self) {
        let process = self.program.threads[self.thread].process;
        if process == ProcessId::FIRST {
            self.threads[self.thread].status = Status::Settled;
        } else {
            self.threads[self.thread].status = Status::Unborn;
            let space = self.space;
            exit_process(&mut self.env(), space);
            self.splits.forget(self.thread);
        }
        self.go_idle();
    }

    /// Starts the process. Its thread gets its turn after the threads that are queued already.
    fn start(&mut self, process: ProcessId) {
        let of_process = |thread: &usize| self.program.threads[*thread].process == process;
        for thread in (0..self.threads.len()).filter(of_process) {
            let begun = &mut self.threads[thread];
            let ops = &self.program.threads[thread].body;
            begun.stack = vec![Body { ops, next: 0, then: Then::End }];
            begun.slots.fill(0);
            begun.status = Status::Queued;
            self.queue.push_back(thread);
            self.wait_on_cpu(thread);
        }
    }

    /// Makes a thread that has begun wait for its turn on its CPU, unless another thread is there.
    /// From now on the CPU may cache the thread's mappings and has to be flushed.
    fn wait_on_cpu(&mut self, thread: usize) {
        let Context { cpu, mm, .. } = Context::of(self.program, thread, self.op);
        let there = &mut self.world.cpus[cpu.index()].running;
        let (Some(mm), None) = (mm, *there) else { return };
        let number = ThreadId(thread as u16);
        *there = Some(number);
        let at = At { cpu, thread: number, running: Some(number), ..self.at(Site::SwitchMm) };
        self.world.emit(at, EventKind::Switch { to: Some(number) });
        switch_mm(self.world, at, cpu, mm);
    }

    fn end_of_body(&mut self, then: Then) -> Result<(), Box<SimError>> {
        match then {
            Then::Again { slot, step, left } if left > 1 => {
                let thread = &mut self.threads[self.thread];
                thread.slots[usize::from(slot)] += step;
                self.restart(Then::Again { slot, step, left: left - 1 });
            }
            Then::NextRound(course) => match self.next_round(course)? {
                Some(course) => self.restart(Then::NextRound(course)),
                None => _ = self.threads[self.thread].stack.pop(),
            },
            Then::EndMeasure => {
                self.emit(EventKind::MeasureEnd);
                self.threads[self.thread].stack.pop();
            }
            Then::End | Then::Again { .. } => {
                self.threads[self.thread].stack.pop();
            }
        }
        Ok(())
    }

    fn restart(&mut self, then: Then) {
        if let Some(frame) = self.threads[self.thread].stack.last_mut() {
            (frame.next, frame.then) = (0, then);
        }
    }

    fn enter(&mut self, ops: &'p [Op], then: Then) {
        self.threads[self.thread].stack.push(Body { ops, next: 0, then });
    }

    fn execute(&mut self, op: &'p Op) -> Result<(), Box<SimError>> {
        let slots = &self.threads[self.thread].slots;
        let resolved = op.kind.resolve(&self.program.areas, slots);
        match resolved.map_err(|error| self.no_value(error))? {
            Resolved::Touch { pages, access, visit } => {
                self.splits.touched(&mut self.world.log, pages, visit);
                self.touch(Touch::new(pages, access, visit))?;
            }
            Resolved::Call(asked) => {
                let (space, first) = (self.space, self.world.log.next_seq());
                let ended = call(&mut self.env(), space, asked);
                self.judge_splits(&asked, first, &ended);
                self.called(asked, ended)?;
                if let Call::Fork { process } = asked {
                    self.start(process);
                }
            }
            Resolved::Nothing => {}
            Resolved::Hold(hold) => {
                self.threads[self.thread].status = Status::Settled;
                if hold != Hold::Spin {
                    self.go_idle();
                }
            }
            Resolved::Nap(_) => {
                self.go_idle();
                self.resume_on_cpu();
            }
            Resolved::Barrier(barrier) => self.arrive(barrier),
            Resolved::Mark(mark) => self.emit(EventKind::Mark { mark }),
            Resolved::Loop { turns: 0, .. } => {}
            Resolved::Loop { slot, first, step, turns, body } => {
                self.threads[self.thread].slots[usize::from(slot)] = first;
                self.enter(body, Then::Again { slot, step, left: turns });
            }
            Resolved::Rounds { warmup: 0, count: 0, .. } => {}
            Resolved::Rounds { slot, warmup, count, body } => {
                let course = Course::new(slot, warmup, count);
                self.first_round(course);
                self.enter(body, Then::NextRound(course));
            }
            Resolved::Measure(body) => {
                self.emit(EventKind::MeasureStart);
                self.enter(body, Then::EndMeasure);
            }
        }
        Ok(())
    }

    /// Resumes what waited in the kernel.
    #[cold]
    fn take_up(&mut self) -> Result<(), Box<SimError>> {
        match self.threads[self.thread].rest.take() {
            Some((waited, Rest::Touch(fault, rest))) => {
                let every = Visit::Ascending { stride: 1 };
                self.splits.touched(&mut self.world.log, rest.pages(), every);
                self.touch_again(fault, waited, rest)?;
            }
            Some((waited, Rest::Call(rest))) => {
                let space = self.space;
                self.judge_splits(
                    &rest,
                    self.world.log.next_seq(),
                    &Ok(Ended::Blocked(waited, rest)),
                );
                let ended = call_again(&mut self.env(), space, rest, waited);
                self.called(rest, ended)?;
            }
            None => {}
        }
        self.check()
    }

    /// Passes a finished call to the verdicts on splits, with the splits among the events from
    /// `first` on.
    #[inline]
    fn judge_splits(&mut self, call: &Call, first: u64, ended: &Result<Ended<Call>, Errno>) {
        if self.world.config.huge_pages {
            let done = matches!(ended, Ok(Ended::Done));
            self.splits.called(self.world, (self.thread, call), first, done);
        }
    }

    fn called(
        &mut self,
        call: Call,
        ended: Result<Ended<Call>, Errno>,
    ) -> Result<(), Box<SimError>> {
        match ended {
            Ok(Ended::Done) => Ok(()),
            Ok(Ended::Blocked(wait, rest)) => self.block(wait, Rest::Call(rest)),
            Err(errno) => self.failed(call, errno),
        }
    }

    fn arrive(&mut self, barrier: u16) {
        self.threads[self.thread].status = Status::AtBarrier(barrier);
        let all = &self.program.barriers[usize::from(barrier)].threads;
        if all.iter().all(|t| self.threads[t.index()].status == Status::AtBarrier(barrier)) {
            for thread in all {
                self.threads[thread.index()].status = Status::Queued;
                self.queue.push_back(thread.index());
            }
        }
    }

    #[cold]
    fn failed(&self, call: Call, errno: Errno) -> Result<(), Box<SimError>> {
        let op = self.op_at();
        let lacks = call.lacks(&self.world.policies, &self.world.config);
        Err(match self.world.frames.is_full() || self.world.room.was_refused() {
            true => self.out_of_memory(),
            false => Box::new(SimError::Call { op, errno, lacks }),
        })
    }

    /// The error that there is no memory for the operation.
    #[cold]
    pub(super) fn out_of_memory(&self) -> Box<SimError> {
        let most = self.world.room.most().unwrap_or(u64::MAX);
        Box::new(SimError::OutOfMemory { op: self.op_at(), most })
    }

    /// Checks that the model agrees with itself; now and then also whether to continue.
    #[inline]
    pub(super) fn check(&mut self) -> Result<(), Box<SimError>> {
        self.until_look -= 1;
        let healthy = self.until_look > 0 && self.world.inconsistency.is_none();
        if healthy { Ok(()) } else { self.diagnose() }
    }

    #[cold]
    fn diagnose(&mut self) -> Result<(), Box<SimError>> {
        // If memory was refused, something was left out, which may have led to contradictions.
        if self.world.room.was_refused() {
            return Err(self.over_the_bound());
        }
        if self.until_look == 0 {
            self.look()?;
        }
        let found = self.world.inconsistency.take();
        let checked = || if self.paranoid { contradiction(self.world) } else { None };
        let at =
            |what| crate::machine::world::Inconsistency { what, at: self.at(Site::HardwareWalk) };
        let Some(error) = found.or_else(|| checked().map(at)) else { return Ok(()) };
        let events = &self.world.log.events;
        let history: Vec<String> = events[events.len().saturating_sub(8)..]
            .iter()
            .map(|event| {
                format!("{:?} in {}", event.kind, event.site.map_or("?", |s| s.function()))
            })
            .collect();
        let (op, history) = (self.op_at(), history.join("; "));
        Err(Box::new(SimError::Inconsistent { op, error, history }))
    }

    pub(super) fn look(&mut self) -> Result<(), Box<SimError>> {
        self.until_look = if self.paranoid || self.shows { 1 } else { LOOK_EVERY };
        if self.world.log.overflowed || self.world.room.was_refused() {
            return Err(self.over_the_bound());
        }
        let look = Look { rounds: self.rounds, events: self.world.log.events.len() };
        if self.shows {
            self.watch.world(self.world, look.events);
        }
        let looked = self.watch.look(look);
        looked.map_err(|reason| Box::new(SimError::Stopped { op: self.op_at(), reason }))
    }

    /// The error that the round has too many events, or that there is no memory.
    #[cold]
    pub(super) fn over_the_bound(&self) -> Box<SimError> {
        if !self.world.log.overflowed {
            return self.out_of_memory();
        }
        let most = self.world.log.most_events();
        Box::new(SimError::TooManyEvents { op: self.op_at(), most })
    }

    #[cold]
    fn no_value(&self, error: Box<ExprError>) -> Box<SimError> {
        Box::new(SimError::Expr { op: self.op_at(), error })
    }

    pub(super) fn cpu(&self) -> CpuId {
        self.cpu
    }

    pub(super) fn at(&self, site: Site) -> At {
        self.context().at(site)
    }

    /// The CPU, thread and address space that run now.
    pub(super) fn context(&self) -> Context {
        let thread = ThreadId(self.thread as u16);
        Context { cpu: self.cpu, thread, mm: self.mm, op: self.op }
    }

    pub(super) fn op_at(&self) -> OpAt {
        OpAt::of(self.program, self.op)
    }

    pub(super) fn emit(&mut self, kind: EventKind) {
        let at = self.at(Site::HardwareWalk);
        self.world.log.emit_marker(at, kind);
    }
}

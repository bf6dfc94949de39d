//! Executes the operations of one thread, exactly as `needless_model::program` defines them.

use crate::log::Kind;
use crate::processes::{self, ForkError};
use crate::rounds::{Plan, Rounds};
use crate::run::{Flow, Markers, Run};
use crate::sys::Usage;
use crate::team::{Rest, Yield};
use crate::wire::{Failure, FailureKind};
use crate::witness::Watch;
use crate::{calls, crash, limits, lru, marks, sigsegv, sys, userfaultfd};
use needless_model::addr::{PAGE_SIZE, PageRange, ProcessId, Vpn};
use needless_model::call::Call;
use needless_model::kernel::Errno;
use needless_model::numa::PageStatus;
use needless_model::program::{Access, ExprError, Hold, Op};
use needless_model::resolved::{Resolved, Visit};
use needless_model::rng::SplitMix64;
use needless_model::run::TimedBlock;
use needless_model::userfaultfd::Told;
use std::io;
use std::time::Duration;

/// Executes one thread of the scenario.
pub struct Worker<'a> {
    run: &'static Run,
    /// The index of its thread.
    me: usize,
    markers: Markers<'a>,
    /// The watch over the rounds; only thread 0 has one.
    watch: Option<&'a mut Watch>,
    /// Its loop slots.
    slots: Vec<i64>,
    stores: u8,
    /// For a forked process: what it had used when it last reported. `None` in the first process.
    used: Option<Usage>,
    /// Whether it is the first process of its name.
    first: bool,
    /// Whether it has reached `exec`. Its process then calls `exec`.
    execs: bool,
}

impl<'a> Worker<'a> {
    /// Makes a worker for thread `me` of the first process. Called on that thread.
    pub fn new(run: &'static Run, me: usize, watch: Option<&'a mut Watch>) -> Worker<'a> {
        let slots = vec![0; usize::from(run.program.slots)];
        let markers = run.markers(me);
        Worker { run, me, markers, watch, slots, stores: 0, used: None, first: true, execs: false }
    }

    /// Makes a worker for the thread of a forked process. `first`: whether it is the first process
    /// of its name. Allocates nothing.
    pub fn of_process(
        run: &'static Run,
        me: usize,
        mut slots: Vec<i64>,
        first: bool,
    ) -> Worker<'a> {
        slots.fill(0);
        let markers = run.markers(me);
        let used = Some(Usage::default());
        Worker { run, me, markers, watch: None, slots, stores: 0, used, first, execs: false }
    }

    /// Begins to count what the process uses.
    pub fn starts(&mut self) {
        self.used = Some(Usage::now());
    }

    /// Whether its process has to call `exec` now.
    pub fn execs(&self) -> bool {
        self.execs
    }

    /// The loop slots, for the next worker to reuse.
    pub fn slots(self) -> Vec<i64> {
        self.slots
    }

    /// Runs the thread's body from its first turn to the end of the scenario, or of its process.
    pub fn work(&mut self) -> Result<(), Failure> {
        let (team, program) = (&self.run.team, &self.run.program);
        let thread = &program.threads[self.me];
        let forked = self.used.is_some();
        if let Some(hold) = thread.holds().filter(|_| self.me != 0 && !forked) {
            return self.hold(hold);
        }
        if !team.await_turn(program, self.me)? {
            return Ok(());
        }
        if self.me != 0 && self.first && (!forked || team.alone_on_cpu(self.me)) {
            // This drains what others left in the batches of its CPU before the run was watched.
            // What earlier processes of the scenario left there is part of the scenario. The kernel
            // may drain that when they end, or may not.
            lru::drain(self.me)?;
        }
        match self.body(&thread.body)? {
            Flow::On if forked => self.pass(Yield::End),
            Flow::On => self.hold_for_good(Hold::Sleep),
            Flow::Stop => Ok(()),
        }
    }

    /// Reports what this turn used, and gives up the turn.
    fn pass(&mut self, why: Yield) -> Result<(), Failure> {
        self.markers.write(Kind::WentOn, 0, 0);
        if let Some(before) = self.used {
            let now = Usage::now();
            self.run.team.uses(self.me, now.since(before));
            self.used = Some(now);
        }
        self.run.team.pass(&self.run.program, self.me, why)
    }

    /// Waits for the turn.
    fn await_turn(&self) -> Result<Flow, Failure> {
        let on = self.run.team.await_turn(&self.run.program, self.me)?;
        Ok(if on { Flow::On } else { Flow::Stop })
    }

    /// Executes `body` in order.
    fn body(&mut self, body: &[Op]) -> Result<Flow, Failure> {
        for op in body {
            if self.op(op)? == Flow::Stop {
                return Ok(Flow::Stop);
            }
        }
        Ok(Flow::On)
    }

    fn op(&mut self, op: &Op) -> Result<Flow, Failure> {
        let resolved = op.kind.resolve(&self.run.program.areas, &self.slots);
        match resolved.map_err(|error| self.no_value(op, &error))? {
            Resolved::Hold(hold) => {
                self.hold_for_good(hold)?;
                return Ok(Flow::Stop);
            }
            Resolved::Barrier(barrier) => {
                self.pass(Yield::Barrier(barrier))?;
                return self.await_turn();
            }
            Resolved::Loop { slot, first, step, turns, body } => {
                return self.each(slot, (0..turns as i64).map(|turn| first + turn * step), body);
            }
            Resolved::Rounds { slot, warmup, count, body } => {
                return self.rounds(slot, Plan { warmup, count }, body);
            }
            Resolved::Measure(body) => return self.measure(body),
            Resolved::Mark(mark) => {
                self.markers.write(Kind::Mark, u64::from(mark), 0);
                marks::Mark::Phase.make();
            }
            Resolved::Nothing => self.begin(op, false),
            Resolved::Nap(duration) => {
                self.begin(op, false);
                self.run.team.naps(self.me, true);
                sys::sleep(Duration::from_nanos(duration));
                self.run.team.naps(self.me, false);
            }
            Resolved::Touch { pages, access, visit } => {
                self.begin(op, false);
                self.touch(pages, access, visit);
            }
            Resolved::Call(call) => {
                if self.markers.events {
                    self.run.team.await_servers();
                }
                self.begin(op, call.hides_state());
                return self.call(op, call);
            }
        }
        Ok(Flow::On)
    }

    /// Marks the start of `op`: later events belong to it.
    fn begin(&self, op: &Op, hides_state: bool) {
        crash::enter(op.id);
        self.markers.write(Kind::Op, u64::from(op.id), u64::from(hides_state));
    }

    fn call(&mut self, op: &Op, call: Call) -> Result<Flow, Failure> {
        match call {
            Call::Fork { process } => self.fork(op, process)?,
            Call::Wait { process } => return self.wait(process),
            Call::Sigaction => {
                sigsegv::handle(self.run).map_err(|error| self.refused(op, call, &error))?;
            }
            Call::Exec => {
                self.markers.write(Kind::Exec, 0, 0);
                self.execs = true;
            }
            Call::Map { .. }
            | Call::Unmap { .. }
            | Call::Protect { .. }
            | Call::Remap { .. }
            | Call::Advise { .. }
            | Call::AdviseRanges { .. }
            | Call::Mlock { .. }
            | Call::Munlock { .. }
            | Call::ClearRefs { .. }
            | Call::Pagemap { .. }
            | Call::UffdRegister { .. }
            | Call::UffdUnregister { .. }
            | Call::UffdProtect { .. }
            | Call::UffdFill { .. }
            | Call::UffdMove { .. }
            | Call::UffdAnswer { .. }
            | Call::PagemapScan { .. }
            | Call::Reclaim { .. }
            | Call::Khugepaged { .. }
            | Call::SplitDeferred
            | Call::Sync { .. }
            | Call::Writeback { .. }
            | Call::Switch { .. }
            | Call::Pin { .. }
            | Call::Dma { .. }
            | Call::Unpin { .. }
            | Call::WriteFile { .. }
            | Call::DropFile { .. }
            | Call::Truncate { .. }
            | Call::MovePages { .. }
            | Call::Mbind { .. }
            | Call::MigratePages { .. }
            | Call::SetMempolicy { .. }
            | Call::ReclaimMemory { .. }
            | Call::NumaScan { .. }
            | Call::SyncFile { .. } => {
                let told = |pages: PageRange| {
                    self.markers.write(Kind::Told, pages.start.0 * PAGE_SIZE, pages.pages());
                };
                let answered = |page: Vpn, status: PageStatus| {
                    let status = i64::from(status.0).cast_unsigned();
                    self.markers.write(Kind::PageStatus, page.0 * PAGE_SIZE, status);
                };
                calls::ask(call, &self.run.files, told, answered)
                    .map_err(|error| self.refused(op, call, &error))?;
            }
        }
        Ok(Flow::On)
    }

    fn fork(&self, op: &Op, process: ProcessId) -> Result<(), Failure> {
        let child = self.thread_of(process);
        if self.run.team.lives(child) {
            return Err(self.failed(op, &Errno::Eagain.to_string(), None));
        }
        let done = || self.markers.write(Kind::WentOn, 0, 0);
        let born =
            processes::fork(self.run, self.me, child, done).map_err(|error| match error {
                ForkError::Refused(error) => {
                    let remedy =
                        limits::remedy_of(&error).map_or_else(String::new, |r| format!(": {r}"));
                    self.failed(op, &format!("{error}{remedy}"), error.raw_os_error())
                }
                ForkError::Pin(cpu, error) => {
                    Failure::internal(&format!("pinning a process to {cpu}"), &error)
                }
                ForkError::Died(failure) => failure,
            })?;
        self.markers.write(Kind::Forked, born as u64, child as u64);
        Ok(())
    }

    /// Sleeps until the process is over.
    fn wait(&mut self, process: ProcessId) -> Result<Flow, Failure> {
        let child = self.thread_of(process);
        while self.run.team.lives(child) {
            self.run.team.announce_sleep(self.me, Rest::Waiting);
            self.pass(Yield::For(child))?;
            if self.await_turn()? == Flow::Stop {
                return Ok(Flow::Stop);
            }
        }
        Ok(Flow::On)
    }

    /// The thread of a process; the first thread of the first process.
    fn thread_of(&self, process: ProcessId) -> usize {
        let threads = &self.run.program.threads;
        threads.iter().position(|thread| thread.process == process).unwrap_or(0)
    }

    fn each(
        &mut self,
        slot: u8,
        values: impl Iterator<Item = i64>,
        body: &[Op],
    ) -> Result<Flow, Failure> {
        for value in values {
            self.slots[usize::from(slot)] = value;
            if self.body(body)? == Flow::Stop {
                return Ok(Flow::Stop);
            }
        }
        Ok(Flow::On)
    }

    fn rounds(&mut self, slot: u8, plan: Plan, body: &[Op]) -> Result<Flow, Failure> {
        let mut watch = self.watch.take();
        let rounds = Rounds::new(self.run, self.markers, watch.as_deref_mut(), plan);
        let flow = rounds.run(|turn| {
            self.slots[usize::from(slot)] = turn;
            self.body(body)
        });
        self.watch = watch;
        flow
    }

    fn measure(&mut self, body: &[Op]) -> Result<Flow, Failure> {
        self.markers.write(Kind::MeasureStart, 0, 0);
        let before = sys::cycles_before();
        let flow = self.body(body)?;
        let after = sys::cycles_after();
        self.markers.write(Kind::MeasureEnd, 0, 0);
        if !self.markers.events {
            let process = self.run.program.threads[self.me].process;
            let cycles = after.saturating_sub(before);
            self.run.log().cycles.push(TimedBlock { process, cycles });
        }
        Ok(flow)
    }

    fn touch(&mut self, pages: PageRange, access: Access, visit: Visit) {
        match visit {
            Visit::Ascending { stride } => {
                for page in pages.iter().step_by(stride as usize) {
                    self.access(page, access);
                }
            }
            Visit::Random { count, seed } => {
                let mut rng = SplitMix64::new(seed);
                for _ in 0..count {
                    self.access(pages.start.add(rng.below(pages.pages())), access);
                }
            }
        }
    }

    #[inline]
    fn access(&mut self, page: Vpn, access: Access) {
        match access {
            Access::Read => {
                sys::load(page);
            }
            Access::Write => {
                self.stores = self.stores.wrapping_add(2);
                sys::store(page, (0xa5 ^ self.stores) | 1);
            }
            Access::WriteZero => sys::store_zeros(page),
        }
    }

    /// Gives up the turn for the rest of the run, and spins, sleeps or serves.
    fn hold_for_good(&mut self, hold: Hold) -> Result<(), Failure> {
        if hold != Hold::Spin {
            self.run.team.announce_sleep(self.me, Rest::Sleeping);
        }
        self.pass(Yield::ForGood)?;
        self.hold(hold)
    }

    fn hold(&self, hold: Hold) -> Result<(), Failure> {
        match hold {
            Hold::Spin => self.run.team.spin(&self.run.program, self.me),
            Hold::Sleep => self.run.team.sleep(&self.run.program, self.me),
            Hold::Serve(answer) => {
                let answer = answer.placed(&self.run.program.areas);
                let failed = |error: io::Error| match userfaultfd::lacks_answer(answer, &error) {
                    Some(missing) => {
                        let program = &self.run.program;
                        let op = program.threads[self.me].serves().map_or(u32::MAX, |(op, _)| op);
                        let text = program.op_texts.get(op as usize).map_or("", String::as_str);
                        let what = format!("`{text}`: this kernel has no {missing}");
                        Failure::new(FailureKind::Unsupported, what)
                    }
                    None => Failure::internal("serving userfaultfd", &error),
                };
                let tell = |page: Vpn, told: Told| {
                    let protected = u64::from(told == Told::Protected);
                    self.markers.write(Kind::Asked, page.0 * PAGE_SIZE, protected);
                };
                self.run.team.serve(self.me, || userfaultfd::serve(answer, tell).map_err(failed))
            }
        }
    }

    #[cold]
    fn no_value(&self, op: &Op, error: &ExprError) -> Failure {
        Failure { kind: FailureKind::BadRequest, ..self.failed(op, &error.to_string(), None) }
    }

    #[cold]
    fn refused(&self, op: &Op, call: Call, error: &io::Error) -> Failure {
        let errno = error.raw_os_error();
        match calls::missing(call, errno) {
            Some(missing) => Failure {
                kind: FailureKind::Unsupported,
                what: format!("{}: this kernel has no {missing}", self.text(op)),
                op: Some(op.id),
                errno,
            },
            None => self.failed(op, &error.to_string(), errno),
        }
    }

    fn failed(&self, op: &Op, why: &str, errno: Option<i32>) -> Failure {
        let thread = &self.run.program.threads[self.me].name;
        Failure {
            kind: FailureKind::Operation,
            what: format!("thread `{thread}`, {}: {why}", self.text(op)),
            op: Some(op.id),
            errno,
        }
    }

    fn text(&self, op: &Op) -> String {
        let texts = &self.run.program.op_texts;
        texts
            .get(op.id as usize)
            .map_or_else(|| format!("operation {}", op.id), |t| format!("`{t}`"))
    }
}

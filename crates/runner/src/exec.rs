//! Executes the operations of one thread, exactly as `needless_model::program` defines them.

use crate::log::{self, Kind, Log};
use crate::marks;
use crate::sys;
use crate::team::{Team, Yield};
use crate::wire::{Failure, FailureKind};
use crate::witness::Watch;
use crate::{crash, rounds};
use needless_model::addr::{PageRange, Vpn};
use needless_model::program::{Access, Advice, ExprError, Op, OpKind, Order, Program, RangeExpr};
use needless_model::rng::SplitMix64;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What all threads of a run share.
pub struct Run {
    /// The scenario.
    pub program: Program,
    /// From which round on all are alike.
    pub alike_from: u32,
    /// Its threads.
    pub team: Team,
    /// What was seen. Only the thread that has the turn writes to it.
    pub log: Mutex<Log>,
}

impl Run {
    /// The log.
    pub fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether the thread goes on after an operation.
#[derive(Copy, Clone, PartialEq, Eq)]
pub enum Flow {
    /// It does.
    On,
    /// The scenario is over for it.
    Stop,
}

/// One thread at work.
pub struct Worker<'a> {
    /// What it shares with the others.
    pub run: &'a Run,
    /// Which thread it is.
    pub me: usize,
    /// Its loop slots.
    pub slots: Vec<i64>,
    /// The watch over the rounds; only thread 0 has one.
    pub watch: Option<Watch>,
    events: bool,
    tid: i32,
    cpu: u16,
    stores: u8,
}

impl<'a> Worker<'a> {
    /// Thread `me` of the run, called on that thread.
    pub fn new(run: &'a Run, me: usize) -> Worker<'a> {
        Worker {
            run,
            me,
            slots: vec![0; usize::from(run.program.slots)],
            watch: None,
            events: run.log().events,
            tid: sys::tid(),
            cpu: run.program.threads[me].cpu.0,
            stores: 0,
        }
    }

    /// Runs the thread's body from its first turn to the end of the scenario.
    pub fn work(&mut self) -> Result<(), Failure> {
        let thread = &self.run.program.threads[self.me];
        if self.me != 0 && thread.only_holds() {
            self.hold(&thread.body[0].kind);
            return Ok(());
        }
        if self.run.team.await_turn(self.me) && self.body(&thread.body)? == Flow::On {
            self.rest_for_good(&OpKind::Sleep { duration_ns: None })?;
        }
        Ok(())
    }

    /// Executes `body` in order.
    pub fn body(&mut self, body: &[Op]) -> Result<Flow, Failure> {
        for op in body {
            if self.op(op)? == Flow::Stop {
                return Ok(Flow::Stop);
            }
        }
        Ok(Flow::On)
    }

    /// Writes down a marker of this thread.
    pub fn marker(&self, kind: Kind, value: u64, extra: u64) {
        if self.events {
            self.run.log().marker(kind, value, extra, self.cpu, self.tid);
        }
    }

    fn op(&mut self, op: &Op) -> Result<Flow, Failure> {
        match &op.kind {
            OpKind::Spin | OpKind::Sleep { duration_ns: None } => {
                self.rest_for_good(&op.kind)?;
                Ok(Flow::Stop)
            }
            OpKind::Barrier { barrier } => {
                self.run.team.pass(&self.run.program, self.me, Yield::Barrier(*barrier))?;
                Ok(if self.run.team.await_turn(self.me) { Flow::On } else { Flow::Stop })
            }
            OpKind::Repeat { .. } | OpKind::ForEach { .. } | OpKind::Measure { .. } => {
                self.nest(op)
            }
            OpKind::Rounds { slot, warmup, count, body } => {
                let plan = rounds::Plan { slot: *slot, warmup: *warmup, count: *count };
                rounds::run(self, plan, body)
            }
            OpKind::Mark { mark } => {
                self.marker(Kind::Mark, u64::from(*mark), 0);
                marks::Mark::Phase.make();
                Ok(Flow::On)
            }
            _ => {
                crash::enter(op.id);
                self.marker(Kind::Op, u64::from(op.id), u64::from(log::hides_state(&op.kind)));
                self.leaf(op)?;
                Ok(Flow::On)
            }
        }
    }

    /// Operations that hold others.
    fn nest(&mut self, op: &Op) -> Result<Flow, Failure> {
        let body = op.kind.body();
        match &op.kind {
            OpKind::Repeat { slot, count, .. } => {
                let count = self.value(op, count.eval_at_least(&self.slots, "count", 0))?;
                self.each(*slot, 0..count as i64, body)
            }
            OpKind::ForEach { slot, range, stride, .. } => {
                let stride = self.value(op, stride.eval_at_least(&self.slots, "stride", 1))?;
                let pages = self.pages(op, range)?;
                let area = self.run.program.areas[usize::from(range.area)].range.start;
                let (first, end) = (pages.start.since(area) as i64, pages.end.since(area) as i64);
                self.each(*slot, (first..end).step_by(stride as usize), body)
            }
            OpKind::Measure { .. } => self.measure(body),
            _ => Ok(Flow::On),
        }
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

    fn measure(&mut self, body: &[Op]) -> Result<Flow, Failure> {
        self.marker(Kind::MeasureStart, 0, 0);
        let before = sys::cycles_before();
        let flow = self.body(body)?;
        let after = sys::cycles_after();
        self.marker(Kind::MeasureEnd, 0, 0);
        if !self.events {
            self.run.log().cycles.push(after.saturating_sub(before));
        }
        Ok(flow)
    }

    /// Operations of the kernel's and the processor's.
    fn leaf(&mut self, op: &Op) -> Result<(), Failure> {
        let areas = &self.run.program.areas;
        match &op.kind {
            OpKind::Map { area, prot } => {
                self.checked(op, sys::map(areas[usize::from(*area)].range, *prot))
            }
            OpKind::Touch { range, access, order } => {
                let pages = self.pages(op, range)?;
                self.touch(op, pages, *access, order)
            }
            OpKind::Unmap { range } => self.on_pages(op, range, sys::unmap),
            OpKind::Protect { range, prot } => {
                self.on_pages(op, range, |pages| sys::protect(pages, *prot))
            }
            OpKind::Remap { range, to } => {
                let to = areas[usize::from(*to)].range;
                if self.pages(op, range)?.pages() > to.pages() {
                    return Err(self.failed(op, "the destination is smaller than the range", None));
                }
                self.on_pages(op, range, |pages| sys::remap(pages, to.start))
            }
            OpKind::Advise { range, advice } => self.advise(op, range, *advice),
            OpKind::Sleep { duration_ns: Some(duration) } => {
                let duration =
                    self.value(op, duration.eval_at_least(&self.slots, "duration", 0))?;
                sys::sleep(Duration::from_nanos(duration));
                Ok(())
            }
            OpKind::Reclaim { .. } | OpKind::Switch { .. } => {
                Err(self.failed(op, "runs in the model only", None))
            }
            _ => Ok(()),
        }
    }

    fn touch(
        &mut self,
        op: &Op,
        pages: PageRange,
        access: Access,
        order: &Order,
    ) -> Result<(), Failure> {
        match order {
            Order::Ascending { stride } => {
                let stride = self.value(op, stride.eval_at_least(&self.slots, "stride", 1))?;
                for page in pages.iter().step_by(stride as usize) {
                    self.access(page, access);
                }
            }
            Order::Random { count, seed } => {
                let count = self.value(op, count.eval_at_least(&self.slots, "count", 0))?;
                let mut rng = SplitMix64::new(*seed);
                for _ in 0..if pages.is_empty() { 0 } else { count } {
                    self.access(pages.start.add(rng.below(pages.pages())), access);
                }
            }
        }
        Ok(())
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
            Access::WriteZero => sys::store(page, 0),
        }
    }

    fn advise(&self, op: &Op, range: &RangeExpr, advice: Advice) -> Result<(), Failure> {
        let populate = matches!(advice, Advice::PopulateRead | Advice::PopulateWrite);
        self.on_pages(op, range, |pages| sys::advise(pages, advice)).map_err(|failure| {
            if populate && failure.errno == Some(libc::EINVAL) {
                let what = format!(
                    "{}: this kernel has no {} (5.14 and later do)",
                    self.text(op),
                    advice.word()
                );
                return Failure { kind: FailureKind::Unsupported, what, ..failure };
            }
            failure
        })
    }

    /// A system call over a range; over no pages it is left out.
    fn on_pages(
        &self,
        op: &Op,
        range: &RangeExpr,
        call: impl FnOnce(PageRange) -> io::Result<()>,
    ) -> Result<(), Failure> {
        let pages = self.pages(op, range)?;
        if pages.is_empty() { Ok(()) } else { self.checked(op, call(pages)) }
    }

    /// Gives up the turn for good and spins or sleeps.
    fn rest_for_good(&self, how: &OpKind) -> Result<(), Failure> {
        if matches!(how, OpKind::Sleep { .. }) {
            self.run.team.announce_sleep(self.me);
        }
        self.run.team.pass(&self.run.program, self.me, Yield::ForGood)?;
        self.hold(how);
        Ok(())
    }

    fn hold(&self, how: &OpKind) {
        match how {
            OpKind::Spin => self.run.team.spin(self.me),
            _ => self.run.team.sleep(self.me),
        }
    }

    fn pages(&self, op: &Op, range: &RangeExpr) -> Result<PageRange, Failure> {
        self.value(op, range.resolve(&self.run.program.areas, &self.slots))
    }

    fn value<T>(&self, op: &Op, value: Result<T, ExprError>) -> Result<T, Failure> {
        value.map_err(|error| Failure {
            kind: FailureKind::BadRequest,
            ..self.failed(op, &error.to_string(), None)
        })
    }

    fn checked(&self, op: &Op, result: io::Result<()>) -> Result<(), Failure> {
        result.map_err(|error| self.failed(op, &error.to_string(), error.raw_os_error()))
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

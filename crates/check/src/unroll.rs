//! A thread's operations one after the other: loops unrolled, ranges resolved, one page an access.

use crate::access::stored;
use crate::explore::CheckError;
use crate::shadow::Value;
use needless_model::addr::{PageRange, Vpn};
use needless_model::program::{Access, Advice, Op, OpKind, Order, Program, Prot, RangeExpr};
use needless_model::rng::SplitMix64;
use smallvec::{SmallVec, smallvec};

/// Most actions of one thread.
const MAX_ACTIONS: usize = 10_000;

/// What a thread does as a whole before it does the next thing.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// A load, or a store of this value.
    Access { page: Vpn, store: Option<Value> },
    /// Waits for the others.
    Barrier(u16),
    /// The CPU goes idle, and wakes up again or not.
    Sleep { wakes: bool },
    /// The CPU's LRU batches are emptied.
    Drain,
    /// `mmap`
    Map(PageRange, Prot),
    /// `munmap`
    Unmap(PageRange),
    /// `mprotect`
    Protect(PageRange, Prot),
    /// `mremap`
    Remap(PageRange, Vpn),
    /// `madvise`
    Advise(PageRange, Advice),
    /// Memory is short.
    Reclaim(PageRange),
    /// Other processes run.
    Switch(u64),
}

/// What a system call does to pages, as far as it can be told before it runs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Purpose {
    /// It takes them away from whoever uses them.
    pub revokes: SmallVec<[PageRange; 2]>,
    /// What they hold is not needed any more, until they are stored to again.
    pub gives_up: Option<PageRange>,
}

impl Action {
    /// The pages that it is about, if it is a call on some.
    const fn range(&self) -> Option<PageRange> {
        match self {
            Action::Unmap(range)
            | Action::Protect(range, _)
            | Action::Remap(range, _)
            | Action::Advise(range, _)
            | Action::Reclaim(range) => Some(*range),
            _ => None,
        }
    }

    /// What it is for.
    pub fn purpose(&self) -> Purpose {
        let (revokes, gives_up) = match self {
            Action::Unmap(range)
            | Action::Protect(range, Prot::None | Prot::Read)
            | Action::Advise(range, Advice::DontNeed) => (smallvec![*range], None),
            Action::Remap(from, to) => (smallvec![*from, PageRange::new(*to, from.pages())], None),
            Action::Advise(range, Advice::Free) => (SmallVec::new(), Some(*range)),
            _ => return Purpose::default(),
        };
        Purpose { revokes, gives_up }
    }
}

/// An action and the operation that it belongs to.
#[derive(Clone, Debug, PartialEq)]
pub struct Act {
    /// The operation.
    pub op: u32,
    /// The action.
    pub action: Action,
}

/// The actions of each thread.
pub fn unroll(program: &Program) -> Result<Vec<Vec<Act>>, CheckError> {
    let threads = program.threads.iter().enumerate();
    threads
        .map(|(thread, t)| {
            let slots = vec![0; usize::from(program.slots)];
            let mut unroller = Unroller { program, thread: thread as u16, slots, acts: Vec::new() };
            unroller.body(&t.body)?;
            Ok(unroller.acts)
        })
        .collect()
}

struct Unroller<'a> {
    program: &'a Program,
    thread: u16,
    slots: Vec<i64>,
    acts: Vec<Act>,
}

impl Unroller<'_> {
    fn body(&mut self, ops: &[Op]) -> Result<(), CheckError> {
        ops.iter().try_for_each(|op| self.op(op))
    }

    fn op(&mut self, op: &Op) -> Result<(), CheckError> {
        let areas = &self.program.areas;
        let action = match &op.kind {
            OpKind::Touch { range, access, order } => {
                return self.touch(range, *access, order, op.id);
            }
            OpKind::Barrier { barrier } => Action::Barrier(*barrier),
            OpKind::Spin | OpKind::Mark { .. } => return Ok(()),
            OpKind::Sleep { duration_ns } => Action::Sleep { wakes: duration_ns.is_some() },
            OpKind::Measure { body } => return self.body(body),
            OpKind::Repeat { slot, count, body } => {
                let count = count.eval_at_least(&self.slots, "the count", 0)?;
                return self.repeat(body, *slot, 0..count as i64);
            }
            OpKind::ForEach { slot, range, stride, body } => {
                let stride = stride.eval_at_least(&self.slots, "the stride", 1)?;
                let start = areas[usize::from(range.area)].range.start;
                let pages = self.range(range)?;
                let pages = pages.iter().step_by(stride as usize);
                return self.repeat(body, *slot, pages.map(|page| page.since(start) as i64));
            }
            OpKind::Rounds { slot, warmup, count, body } => {
                self.push(op.id, Action::Drain)?;
                return self.repeat(body, *slot, 0..i64::from(warmup + count));
            }
            OpKind::Map { area, prot } => Action::Map(areas[usize::from(*area)].range, *prot),
            OpKind::Unmap { range } => Action::Unmap(self.range(range)?),
            OpKind::Protect { range, prot } => Action::Protect(self.range(range)?, *prot),
            OpKind::Remap { range, to } => {
                Action::Remap(self.range(range)?, areas[usize::from(*to)].range.start)
            }
            OpKind::Advise { range, advice } => Action::Advise(self.range(range)?, *advice),
            OpKind::Reclaim { range } => Action::Reclaim(self.range(range)?),
            OpKind::Switch { others } => Action::Switch(others.eval_others(&self.slots)?),
        };
        self.push(op.id, action)
    }

    /// A call on no pages is left out, as on every target.
    fn push(&mut self, op: u32, action: Action) -> Result<(), CheckError> {
        if action.range().is_some_and(|range| range.is_empty()) {
            return Ok(());
        }
        if self.acts.len() == MAX_ACTIONS {
            let thread = self.program.threads[usize::from(self.thread)].name.clone();
            return Err(CheckError::TooLong { thread, most: MAX_ACTIONS });
        }
        self.acts.push(Act { op, action });
        Ok(())
    }

    fn repeat(
        &mut self,
        body: &[Op],
        slot: u8,
        values: impl Iterator<Item = i64>,
    ) -> Result<(), CheckError> {
        for value in values {
            self.slots[usize::from(slot)] = value;
            self.body(body)?;
        }
        Ok(())
    }

    fn range(&self, range: &RangeExpr) -> Result<PageRange, CheckError> {
        Ok(range.resolve(&self.program.areas, &self.slots)?)
    }

    fn touch(
        &mut self,
        range: &RangeExpr,
        access: Access,
        order: &Order,
        op: u32,
    ) -> Result<(), CheckError> {
        let pages = self.range(range)?;
        let store = access.is_write().then(|| stored(access, self.thread, op));
        match order {
            Order::Ascending { stride } => {
                let stride = stride.eval_at_least(&self.slots, "the stride", 1)?;
                for page in pages.iter().step_by(stride as usize) {
                    self.push(op, Action::Access { page, store })?;
                }
            }
            Order::Random { count, seed } => {
                let count = count.eval_at_least(&self.slots, "the count", 0)?;
                let count = if pages.is_empty() { 0 } else { count };
                let mut rng = SplitMix64::new(*seed);
                for _ in 0..count {
                    let page = pages.start.add(rng.below(pages.pages()));
                    self.push(op, Action::Access { page, store })?;
                }
            }
        }
        Ok(())
    }
}

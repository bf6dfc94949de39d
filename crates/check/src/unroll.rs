//! A thread's operations one after the other: loops unrolled, ranges resolved, one page an access.

use crate::access::stored;
use crate::error::CheckError;
use crate::shadow::Value;
use needless_model::addr::{PageRange, ProcessId, Vpn};
use needless_model::call::Call;
use needless_model::program::{Access, Hold, Op, Program, Thread};
use needless_model::resolved::{Resolved, Visit};
use needless_model::rng::SplitMix64;

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
    /// Asks the kernel.
    Call(Call),
    /// The process begins: it was forked.
    Begin,
    /// It ends.
    Exit,
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
    let bodies = threads.map(|(thread, t)| {
        let slots = vec![0; usize::from(program.slots)];
        let mut unroller = Unroller { program, thread: thread as u16, slots, acts: Vec::new() };
        unroller.body(&t.body)?;
        Ok(unroller.acts)
    });
    let bodies = bodies.collect::<Result<Vec<_>, CheckError>>()?;
    let lives = lives(program, &bodies);
    let threads = program.threads.iter().zip(bodies);
    threads.map(|(thread, body)| lived(thread, body, lives[thread.process.index()])).collect()
}

/// How often each process begins: as often as whoever forks it comes to its forks.
fn lives(program: &Program, bodies: &[Vec<Act>]) -> Vec<usize> {
    let mut lives = vec![0; program.processes.len()];
    // Who is forked by the first process is known after one turn, who by those after another.
    for _ in 0..program.processes.len() {
        let mut counted = vec![0; lives.len()];
        for (thread, body) in program.threads.iter().zip(bodies) {
            let own =
                if thread.process == ProcessId::FIRST { 1 } else { lives[thread.process.index()] };
            for act in body {
                if let Action::Call(Call::Fork { process }) = act.action {
                    let forks: &mut usize = &mut counted[process.index()];
                    *forks = forks.saturating_add(own);
                }
            }
        }
        lives = counted;
    }
    lives
}

/// What a thread does in all lives of its process.
fn lived(thread: &Thread, body: Vec<Act>, lives: usize) -> Result<Vec<Act>, CheckError> {
    if thread.process == ProcessId::FIRST {
        return Ok(body);
    }
    let op = |act: Option<&Act>| act.map_or(0, |act| act.op);
    let begin = Act { op: op(body.first()), action: Action::Begin };
    let exit = Act { op: op(body.last()), action: Action::Exit };
    let life: Vec<Act> = std::iter::once(begin).chain(body).chain([exit]).collect();
    if lives.saturating_mul(life.len()) > MAX_ACTIONS {
        return Err(CheckError::TooLong { thread: thread.name.clone(), most: MAX_ACTIONS });
    }
    Ok(std::iter::repeat_n(life, lives).flatten().collect())
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
        match op.kind.resolve(&self.program.areas, &self.slots)? {
            Resolved::Touch { pages, access, visit } => self.touch(op.id, pages, access, visit),
            Resolved::Call(call) => self.push(op.id, Action::Call(call)),
            Resolved::Nothing | Resolved::Hold(Hold::Spin) | Resolved::Mark(_) => Ok(()),
            // Its answers are operations of their own here (`uffd-answer`).
            Resolved::Hold(Hold::Sleep | Hold::Serve(_)) => {
                self.push(op.id, Action::Sleep { wakes: false })
            }
            Resolved::Nap(_) => self.push(op.id, Action::Sleep { wakes: true }),
            Resolved::Barrier(barrier) => self.push(op.id, Action::Barrier(barrier)),
            Resolved::Loop { slot, first, step, turns, body } => {
                let values = (0..turns as i64).map(|turn| first + turn * step);
                self.repeat(body, slot, values)
            }
            Resolved::Rounds { slot, warmup, count, body } => {
                self.push(op.id, Action::Drain)?;
                self.repeat(body, slot, 0..i64::from(warmup + count))
            }
            Resolved::Measure(body) => self.body(body),
        }
    }

    fn push(&mut self, op: u32, action: Action) -> Result<(), CheckError> {
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

    fn touch(
        &mut self,
        op: u32,
        pages: PageRange,
        access: Access,
        visit: Visit,
    ) -> Result<(), CheckError> {
        let store = access.is_write().then(|| stored(access, self.thread, op));
        match visit {
            Visit::Ascending { stride } => {
                for page in pages.iter().step_by(stride as usize) {
                    self.push(op, Action::Access { page, store })?;
                }
            }
            Visit::Random { count, seed } => {
                let mut rng = SplitMix64::new(seed);
                for _ in 0..count {
                    let page = pages.start.add(rng.below(pages.pages()));
                    self.push(op, Action::Access { page, store })?;
                }
            }
        }
        Ok(())
    }
}

//! Threads: the program's operations, and what a load or store does on a real processor.

use crate::access::{Went, go, stored};
use crate::env::CheckEnv;
use crate::judge::{protected, taken_away, violate};
use crate::property::Property;
use crate::shadow::Value;
use needless_model::addr::{PageRange, Vpn};
use needless_model::env::Env;
use needless_model::kernel::fault::{Fault, Outcome, exc_page_fault};
use needless_model::kernel::lru::lru_add_drain;
use needless_model::kernel::madvise::madvise;
use needless_model::kernel::map::{mmap, munmap};
use needless_model::kernel::protect::mprotect;
use needless_model::kernel::reclaim::shrink_range;
use needless_model::kernel::remap::mremap;
use needless_model::kernel::switch::{enter_lazy, run_others, switch_mm};
use needless_model::program::{
    Access, Advice, Area, ExprError, Op, OpKind, Order, Program, RangeExpr,
};
use needless_model::site::Site;

/// Faults that one access may take before it counts as no progress.
const MAX_FAULTS: u32 = 6;

/// A thread in progress.
pub struct Thread<'a> {
    /// Its environment.
    pub env: CheckEnv,
    /// The program.
    pub program: &'a Program,
    /// Its loop variables.
    pub slots: Vec<i64>,
}

impl Thread<'_> {
    /// Runs `ops`; false if the thread got a signal and is gone, or was left behind.
    pub fn run(&mut self, ops: &[Op]) -> Result<bool, ExprError> {
        for op in ops {
            self.env.set_op(op.id, &self.slots);
            if self.env.is_left() || !self.execute(op)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn execute(&mut self, op: &Op) -> Result<bool, ExprError> {
        match &op.kind {
            OpKind::Touch { range, access, order } => self.touch(range, *access, order, op.id),
            OpKind::Barrier { barrier } => {
                self.env.barrier(*barrier);
                Ok(true)
            }
            OpKind::Spin | OpKind::Mark { .. } => Ok(true),
            OpKind::Sleep { duration_ns } => {
                self.env.step(Site::EnterLazyTlb, |w, at| enter_lazy(w, at.cpu));
                if duration_ns.is_some() {
                    self.env.step(Site::SwitchMm, |w, at| switch_mm(w, at, at.cpu, at.mm));
                }
                Ok(true)
            }
            OpKind::Measure { body } => self.run(body),
            OpKind::Repeat { slot, count, body } => {
                let count = count.eval_at_least(&self.slots, "the count", 0)?;
                self.repeat(body, *slot, (0..count as i64).collect())
            }
            OpKind::ForEach { slot, range, stride, body } => {
                let stride = stride.eval_at_least(&self.slots, "the stride", 1)?;
                let start = self.program.areas[usize::from(range.area)].range.start;
                let pages = self.range(range)?;
                let indices = pages.iter().step_by(stride as usize);
                self.repeat(body, *slot, indices.map(|page| page.since(start) as i64).collect())
            }
            OpKind::Rounds { slot, warmup, count, body } => {
                lru_add_drain(&mut self.env);
                self.repeat(body, *slot, (0..i64::from(warmup + count)).collect())
            }
            kind => self.call(kind).map(|()| true),
        }
    }

    fn repeat(&mut self, body: &[Op], slot: u8, values: Vec<i64>) -> Result<bool, ExprError> {
        for value in values {
            self.slots[usize::from(slot)] = value;
            if !self.run(body)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// A system call; that it fails is one of the things that may happen.
    fn call(&mut self, kind: &OpKind) -> Result<(), ExprError> {
        let areas = &self.program.areas;
        let env = &mut self.env;
        env.revokes(&revoked_by(kind, areas, &self.slots)?);
        match kind {
            OpKind::Map { area, prot } => {
                let _outcome = mmap(env, areas[usize::from(*area)].range, *prot);
            }
            OpKind::Unmap { range } => {
                let _outcome = munmap(env, range.resolve(areas, &self.slots)?);
            }
            OpKind::Protect { range, prot } => {
                let range = range.resolve(areas, &self.slots)?;
                if mprotect(env, range, *prot).is_ok() {
                    env.observe(|w, at| protected(w, at, range, *prot));
                }
            }
            OpKind::Remap { range, to } => {
                let from = range.resolve(areas, &self.slots)?;
                let _outcome = mremap(env, from, areas[usize::from(*to)].range.start);
            }
            OpKind::Advise { range, advice } => {
                let _outcome = madvise(env, range.resolve(areas, &self.slots)?, *advice);
            }
            OpKind::Reclaim { range } => shrink_range(env, range.resolve(areas, &self.slots)?),
            OpKind::Switch { others } => run_others(env, others.eval_others(&self.slots)?),
            _ => {}
        }
        env.observe(taken_away);
        Ok(())
    }

    fn range(&self, range: &RangeExpr) -> Result<PageRange, ExprError> {
        range.resolve(&self.program.areas, &self.slots)
    }

    fn touch(
        &mut self,
        range: &RangeExpr,
        access: Access,
        order: &Order,
        op: u32,
    ) -> Result<bool, ExprError> {
        let pages = self.range(range)?;
        let stride = match order {
            Order::Ascending { stride } => stride.eval_at_least(&self.slots, "the stride", 1)?,
            Order::Random { .. } => 1,
        };
        let value = stored(access, self.env.context().thread.0, op);
        Ok(pages.iter().step_by(stride as usize).all(|page| self.access(page, access, value)))
    }

    /// One load or store; false if it raised a signal.
    fn access(&mut self, page: Vpn, access: Access, value: Value) -> bool {
        let write = access.is_write();
        let store = write.then_some(value);
        let mut faults = 0;
        while !self.env.is_left() {
            match self.env.access(page, write, |w, at, way| go(w, at, page, store, way)) {
                Went::Through => return true,
                Went::OnlyWalked => {}
                Went::Faulted if faults == MAX_FAULTS => {
                    self.env.step(Site::ExcPageFault, |w, at| {
                        let name = w.ghost.name(page);
                        let what =
                            format!("the access to {name} still faults after {MAX_FAULTS} tries");
                        violate(w, Some(at.cpu), Property::Progress, page, what);
                    });
                    return false;
                }
                Went::Faulted => {
                    faults += 1;
                    if exc_page_fault(&mut self.env, Fault { page, write }) != Outcome::Served {
                        return false;
                    }
                }
            }
        }
        false
    }
}

/// The pages that a system call takes away from whoever uses them.
fn revoked_by(kind: &OpKind, areas: &[Area], slots: &[i64]) -> Result<Vec<PageRange>, ExprError> {
    Ok(match kind {
        OpKind::Unmap { range } | OpKind::Advise { range, advice: Advice::DontNeed } => {
            vec![range.resolve(areas, slots)?]
        }
        OpKind::Remap { range, to } => {
            let from = range.resolve(areas, slots)?;
            vec![from, PageRange::new(areas[usize::from(*to)].range.start, from.pages())]
        }
        _ => Vec::new(),
    })
}

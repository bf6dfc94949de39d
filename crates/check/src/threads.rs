//! Threads: the program's operations, and what a load or store does on a real processor.

use crate::env::{CheckEnv, Next};
use crate::property::{Property, Violation};
use crate::shadow::{CheckWorld, Entry, Value};
use needless_model::addr::{PageRange, Vpn};
use needless_model::env::Env;
use needless_model::kernel::fault::{Fault, Outcome, exc_page_fault};
use needless_model::kernel::lru::lru_add_drain;
use needless_model::kernel::madvise::madvise;
use needless_model::kernel::map::{mmap, munmap};
use needless_model::kernel::protect::mprotect;
use needless_model::kernel::remap::mremap;
use needless_model::machine::frames::ZERO_PAGE;
use needless_model::machine::world::At;
use needless_model::program::{Access, ExprError, Op, OpKind, Order, Program, RangeExpr};
use needless_model::pte::{PresentPte, Pte};
use needless_model::site::Site;

/// Faults that one access may take before it counts as no progress.
const MAX_FAULTS: u32 = 6;

/// A thread in progress.
pub struct Thread<'a, 'y> {
    /// Its environment.
    pub env: CheckEnv<'y>,
    /// The program.
    pub program: &'a Program,
    /// Its loop variables.
    pub slots: Vec<i64>,
}

impl Thread<'_, '_> {
    /// Runs `ops`; false if the thread got a signal and is gone.
    pub fn run(&mut self, ops: &[Op]) -> Result<bool, ExprError> {
        for op in ops {
            self.env.set_op(op.id);
            if !self.execute(op)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn execute(&mut self, op: &Op) -> Result<bool, ExprError> {
        match &op.kind {
            OpKind::Touch { range, access, order } => self.touch(range, *access, order, op.id),
            OpKind::Barrier { barrier } => {
                self.env.stop(Next::Barrier(*barrier));
                Ok(true)
            }
            OpKind::Spin | OpKind::Sleep { .. } | OpKind::Mark { .. } => Ok(true),
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
        let _outcome = match kind {
            OpKind::Map { area, prot } => {
                mmap(&mut self.env, areas[usize::from(*area)].range, *prot)
            }
            OpKind::Unmap { range } => munmap(&mut self.env, range.resolve(areas, &self.slots)?),
            OpKind::Protect { range, prot } => {
                mprotect(&mut self.env, range.resolve(areas, &self.slots)?, *prot)
            }
            OpKind::Remap { range, to } => {
                let from = range.resolve(areas, &self.slots)?;
                mremap(&mut self.env, from, areas[usize::from(*to)].range.start)
            }
            OpKind::Advise { range, advice } => {
                madvise(&mut self.env, range.resolve(areas, &self.slots)?, *advice)
            }
            _ => Ok(()),
        };
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
        let value = store_number(access, self.env.context().thread.0, op);
        Ok(pages.iter().step_by(stride as usize).all(|page| self.access(page, access, value)))
    }

    /// One load or store; false if it raised a signal.
    fn access(&mut self, page: Vpn, access: Access, value: Value) -> bool {
        let write = access.is_write();
        for _ in 0..MAX_FAULTS {
            // 1. Any cached translation that allows it may be used, or none.
            let cached = self.env.step(Site::HardwareWalk, |w, at| usable(w, at, page, write));
            let choice =
                if cached.is_empty() { 0 } else { self.env.stop(Next::Choice(cached.len() + 1)) };
            if let Some(entry) = cached.get(choice) {
                let entry = *entry;
                // The entry may be gone by now; then the processor walks after all.
                let used = self.env.step(Site::HardwareWalk, |w, at| {
                    usable(w, at, page, write).contains(&entry) && {
                        perform(w, at, entry, write.then_some(value));
                        true
                    }
                });
                if used {
                    return true;
                }
            }
            // 2. A walk.
            if self.env.step(Site::HardwareWalk, |w, at| walk(w, at, page, write.then_some(value)))
            {
                return true;
            }
            // 3. A fault.
            if exc_page_fault(&mut self.env, Fault { page, write }) != Outcome::Served {
                return false;
            }
        }
        self.env.step(Site::ExcPageFault, |w, at| {
            let what = format!("the access to {page} still faults after {MAX_FAULTS} tries");
            violate(w, Some(at), Property::Progress, page, what);
        });
        false
    }
}

/// Every store writes another value; zero stores write zero.
fn store_number(access: Access, thread: u16, op: u32) -> Value {
    if access == Access::WriteZero { 0 } else { u32::from(thread) * 1000 + op + 1 }
}

/// The cached translations that allow the access without a walk: a store needs a dirty one,
/// since setting the dirty bit walks again (Intel SDM volume 3, 4.8).
fn usable(w: &CheckWorld, at: At, page: Vpn, write: bool) -> Vec<Entry> {
    let asid = w.cpus[at.cpu.index()].asid;
    let mut entries = w.tlbs.entries(at.cpu, asid, page);
    entries.retain(|entry| !write || entry.writable && entry.dirty);
    entries
}

fn walk(w: &mut CheckWorld, at: At, page: Vpn, store: Option<Value>) -> bool {
    let Some(pte) = w.pte(at.mm, page).present().filter(|pte| !pte.protnone) else { return false };
    if store.is_some() && !pte.writable {
        return false;
    }
    let after = PresentPte { accessed: true, dirty: pte.dirty || store.is_some(), ..pte };
    if after != pte {
        w.set_pte(at, page, Pte::Present(after));
    }
    let PresentPte { pfn, writable, dirty, .. } = after;
    perform(w, at, Entry { page, frame: pfn, writable, dirty, dangling: false }, store);
    true
}

/// The access itself, through `entry`.
fn perform(w: &mut CheckWorld, at: At, entry: Entry, store: Option<Value>) {
    let Entry { page, frame, dangling, .. } = entry;
    let kind = if store.is_some() { "store" } else { "load" };
    if dangling {
        let what = format!(
            "{} {kind}s page {page} through a cached translation to frame {}, which was freed",
            at.cpu, frame.0
        );
        return violate(w, Some(at), Property::NoUseAfterFree, page, what);
    }
    if let Some(value) = store {
        w.ghost.store(frame, value);
        w.ghost.last_store.insert(page, value);
        return;
    }
    let (found, expected) = (w.ghost.load(frame), expected(w, page));
    if found != expected {
        let what = format!(
            "{} loads {found} from page {page} (frame {}); the last store wrote {expected}",
            at.cpu, frame.0
        );
        violate(w, Some(at), Property::Coherence, page, what);
    }
}

fn expected(w: &CheckWorld, page: Vpn) -> Value {
    w.ghost.last_store.get(&page).copied().unwrap_or(0)
}

fn violate(w: &mut CheckWorld, at: Option<At>, property: Property, page: Vpn, what: String) {
    let cpu = at.map(|at| at.cpu);
    w.ghost.violation.get_or_insert(Violation { property, what, cpu, page });
}

/// At the end: what each page holds, in memory or in swap, is what was stored last.
pub fn check_final_state(w: &mut CheckWorld) {
    let mm = &w.mms[1];
    let pages: Vec<Vpn> = mm.vmas().iter().flat_map(|vma| vma.range.iter()).collect();
    for page in pages {
        let found = match w.mms[1].table.get(page) {
            Pte::Present(pte) if pte.pfn == ZERO_PAGE => 0,
            Pte::Present(pte) => w.ghost.load(pte.pfn),
            Pte::Swap(swap) => match w.swap.get(swap.slot).cached {
                Some(frame) => w.ghost.load(frame),
                None => w.ghost.slot(swap.slot),
            },
            Pte::None => 0,
        };
        let expected = expected(w, page);
        if found != expected {
            let what = format!("at the end {page} holds {found}; the last store wrote {expected}");
            violate(w, None, Property::NoLostWrite, page, what);
        }
    }
}

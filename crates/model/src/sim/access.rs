//! User accesses: TLB hits, page walks, faults.
//!
//! [`Tlb::hit`](crate::machine::tlb_array::Tlb::hit) alone decides a hit, without any kernel code.
//! Only a miss walks the page table, sets the accessed and the dirty bit as the processor does, and
//! calls the fault handler if the PTE does not allow the access.

use super::SimError;
use super::env::{SimEnv, SimWorld};
use super::interpret::{Machine, Rest};
use crate::addr::{MmId, PageRange, Span, Vpn};
use crate::event::EventKind;
use crate::kernel::fault::{Fault, Outcome, exc_page_fault, retry_page_fault};
use crate::kernel::sigsegv;
use crate::machine::tlb_array::Tlb;
use crate::machine::walk;
use crate::machine::world::At;
use crate::program::Access;
use crate::resolved::Visit;
use crate::rng::SplitMix64;
use crate::site::Site;
use crate::wait::Wait;
use std::ops::Range;

/// A fault that waits, its access, and what it waits for.
type Missed = ((Fault, Access), Wait);

/// The number of faults that one access may take before the model counts as stuck.
const MAX_TRIES: u32 = 16;

/// The number of random accesses, if all of them hit, between two checks whether to continue.
const MOST_HITS: u64 = 1 << 16;

/// The rest of a touch.
#[derive(Clone, Debug)]
pub(super) struct Touch {
    pages: PageRange,
    access: Access,
    left: Left,
}

/// The part of a touch that is left.
#[derive(Clone, Debug)]
enum Left {
    /// Every `stride`th page from this one on.
    Ascending { page: u64, stride: u64 },
    /// Random pages: `now` until the next check whether to continue, and `later` after it.
    Random { random: SplitMix64, now: u64, later: u64 },
}

impl Touch {
    pub(super) fn new(pages: PageRange, access: Access, visit: Visit) -> Touch {
        let left = match visit {
            Visit::Ascending { stride } => Left::Ascending { page: pages.start.0, stride },
            Visit::Random { count, seed } => {
                let now = count.min(MOST_HITS);
                Left::Random { random: SplitMix64::new(seed), now, later: count - now }
            }
        };
        Touch { pages, access, left }
    }

    /// The range that the touch visits pages of.
    pub(super) fn pages(&self) -> PageRange {
        self.pages
    }
}

impl Machine<'_, '_> {
    /// Executes the rest of a touch.
    #[inline(always)]
    pub(super) fn touch(&mut self, touch: Touch) -> Result<(), Box<SimError>> {
        let Touch { pages, access, left } = touch;
        self.refuse_stale(pages)?;
        match left {
            Left::Ascending { page, stride } => self.ascend(pages, access, page, stride),
            Left::Random { random, now, later } => self.roam(pages, access, random, (now, later)),
        }
    }

    /// Visits every `stride`th page of `range` from `page` on.
    fn ascend(
        &mut self,
        range: PageRange,
        access: Access,
        mut page: u64,
        stride: u64,
    ) -> Result<(), Box<SimError>> {
        while page < range.end.0 {
            let (tlb, epoch) = self.tlb();
            page = match access {
                Access::Read => hits::<false>(tlb, epoch, page, range.end.0, stride),
                Access::Write => hits::<true>(tlb, epoch, page, range.end.0, stride),
                Access::WriteZero => page,
            };
            if page < range.end.0 {
                let missed = self.miss(Vpn(page), access)?;
                let from = page;
                page += stride;
                if let Some((fault, wait)) = missed {
                    let left = Left::Ascending { page, stride };
                    self.block(wait, Rest::Touch(fault, Touch { pages: range, access, left }))?;
                    break;
                }
                page = self.go_on_in_huge(Vpn(from), access, page..range.end.0, stride);
            }
        }
        Ok(())
    }

    /// After an access to `from`: visits the following pages of the huge page as far as the
    /// translation in use allows it, without a walk for each. Returns the first page of `rest` that
    /// is left.
    #[inline(always)]
    fn go_on_in_huge(&mut self, from: Vpn, access: Access, rest: Range<u64>, stride: u64) -> u64 {
        let (tlb, epoch) = self.tlb();
        match tlb.newest_huge(from, epoch) {
            Some(pages) if access != Access::WriteZero => {
                self.finish_huge(pages, access, rest, stride)
            }
            _ => rest.start,
        }
    }

    #[inline(never)]
    fn finish_huge(&mut self, pages: Span, access: Access, rest: Range<u64>, stride: u64) -> u64 {
        let end = pages.range().end.0.min(rest.end);
        let visited = (rest.start..end).step_by(stride as usize);
        let next = rest.start + end.saturating_sub(rest.start).div_ceil(stride) * stride;
        if access.is_write() {
            let at = self.at(Site::HardwareWalk);
            let w = &mut *self.world;
            let Some(pmd) = w.huge_page(self.space, pages.start) else { return rest.start };
            let asid = w.cpus[at.cpu.index()].asid;
            for page in visited.map(Vpn) {
                w.frames.set_zero_filled(pmd.pfn.of_page(pages, page), false);
                if w.tlbs.take_upgraded(at.cpu, asid, page) {
                    w.emit(at, EventKind::MayFault { page });
                }
            }
        }
        next
    }

    /// Visits random pages of `range`: `now` of them until the next check, and `later` after it.
    #[inline(never)]
    fn roam(
        &mut self,
        range: PageRange,
        access: Access,
        mut random: SplitMix64,
        (mut now, mut later): (u64, u64),
    ) -> Result<(), Box<SimError>> {
        loop {
            let (tlb, epoch) = self.tlb();
            let missed = match access {
                Access::Read => random_hits::<false>(tlb, epoch, range, &mut random, &mut now),
                Access::Write => random_hits::<true>(tlb, epoch, range, &mut random, &mut now),
                Access::WriteZero => next_random(range, &mut random, &mut now),
            };
            match missed {
                Some(page) => {
                    if let Some((fault, wait)) = self.miss(page, access)? {
                        let left = Left::Random { random, now, later };
                        let left = Touch { pages: range, access, left };
                        return self.block(wait, Rest::Touch(fault, left));
                    }
                }
                None if later == 0 => return Ok(()),
                // An access sequence of hits only would never reach a check.
                None => {
                    self.look()?;
                    now = later.min(MOST_HITS);
                    later -= now;
                }
            }
        }
    }

    /// Stops the run if an access to `range` would use a revoked translation. When a thread
    /// continues, no needed flush may be outstanding.
    #[inline(always)]
    fn refuse_stale(&mut self, range: PageRange) -> Result<(), Box<SimError>> {
        // The checker decides whether flushes may be left to later ones.
        if self.world.deferred.batch.flush_required {
            return Ok(());
        }
        let cpu = self.cpu();
        let asid = self.world.cpus[cpu.index()].asid;
        let mm = &self.world.mms[self.space.index()];
        match self.world.tlbs.stale_hit(cpu, asid, self.space, mm, range) {
            None => Ok(()),
            Some(page) => Err(self.stale_use(page)),
        }
    }

    #[cold]
    fn stale_use(&self, page: Vpn) -> Box<SimError> {
        Box::new(SimError::StaleUse { op: self.op_at(), page: self.page_text(page) })
    }

    fn tlb(&mut self) -> (&mut Tlb, u64) {
        let cpu = self.cpu();
        let asid = self.world.cpus[cpu.index()].asid;
        let tlb = &mut self.world.tlbs.cpus[cpu.index()];
        let epoch = tlb.epoch(asid);
        (tlb, epoch)
    }

    /// The TLB has no entry that allows the access: walks, and faults if the PTE does not allow it
    /// either. Returns what the fault waits for, if it waits.
    #[cold]
    #[inline(never)]
    fn miss(&mut self, page: Vpn, access: Access) -> Result<Option<Missed>, Box<SimError>> {
        for _ in 0..MAX_TRIES {
            if walk(self.world, self.at(Site::HardwareWalk), self.space, page, access) {
                return Ok(None);
            }
            let fault = Fault::new(self.space, page, access.is_write());
            let outcome = exc_page_fault(&mut self.env(), fault);
            self.drop_old(fault.page);
            if let Some((wait, fault)) = self.settled(fault, outcome)? {
                return Ok(Some(((fault, access), wait)));
            }
        }
        if self.world.room.was_refused() {
            return Err(self.out_of_memory());
        }
        let (op, page, tries) = (self.op_at(), self.page_text(page), MAX_TRIES);
        Err(Box::new(SimError::NoProgress { op, page, tries }))
    }

    /// Whether the process handles the signal that this access raises.
    #[cold]
    fn handled(&mut self, fault: Fault) -> Result<bool, Box<SimError>> {
        let op = self.op_at();
        let handled = sigsegv::handle(&mut self.env(), fault);
        handled.map_err(|errno| Box::new(SimError::Call { op, errno, lacks: None }))
    }

    /// Resumes a fault that waited, and its access; then the rest of the touch.
    #[cold]
    #[inline(never)]
    pub(super) fn touch_again(
        &mut self,
        (fault, access): (Fault, Access),
        waited: Wait,
        rest: Touch,
    ) -> Result<(), Box<SimError>> {
        let outcome = retry_page_fault(&mut self.env(), fault, waited);
        if !self.shares_cpu() {
            self.drop_old(fault.page);
        }
        let missed = match self.settled(fault, outcome)? {
            Some((wait, fault)) => Some(((fault, access), wait)),
            None => self.miss(fault.page, access)?,
        };
        match missed {
            Some((fault, wait)) => self.block(wait, Rest::Touch(fault, rest))?,
            None => self.touch(rest)?,
        }
        Ok(())
    }

    /// Handles the outcome of a fault. Returns what it waits for, if it waits.
    fn settled(
        &mut self,
        fault: Fault,
        outcome: Outcome,
    ) -> Result<Option<(Wait, Fault)>, Box<SimError>> {
        self.check()?;
        match outcome {
            Outcome::Served => Ok(None),
            Outcome::Signal if self.handled(fault)? => Ok(None),
            Outcome::Blocked(wait, fault) => Ok(Some((wait, fault))),
            Outcome::Signal | Outcome::OutOfMemory => Err(self.failed_access(fault.page, outcome)),
        }
    }

    /// Records that the CPU took the fault itself, so it holds no older translation of the page.
    fn drop_old(&mut self, page: Vpn) {
        let (cpu, asid) = (self.cpu(), self.world.cpus[self.cpu().index()].asid);
        self.world.tlbs.take_upgraded(cpu, asid, page);
    }

    /// Whether another thread of the process runs on this CPU while a fault waits. The processor
    /// may then read the page's entry for that thread before any access (Intel SDM 3A, 4.10.2.3).
    fn shares_cpu(&self) -> bool {
        let threads = &self.program.threads;
        let (cpu, process) = (threads[self.thread].cpu, threads[self.thread].process);
        let others = threads.iter().filter(|thread| (thread.cpu, thread.process) == (cpu, process));
        others.count() > 1
    }

    #[cold]
    fn failed_access(&self, page: Vpn, outcome: Outcome) -> Box<SimError> {
        let op = self.op_at();
        Box::new(match outcome {
            Outcome::OutOfMemory => return self.out_of_memory(),
            _ if self.world.is_behind_end(self.space, page) => {
                SimError::BehindEnd { op, page: self.page_text(page) }
            }
            _ if self.world.pte(self.space, page).is_poisoned() => {
                SimError::Poisoned { op, page: self.page_text(page) }
            }
            _ => SimError::Signal { op, page: self.page_text(page) },
        })
    }

    pub(super) fn env(&mut self) -> SimEnv<'_> {
        let context = self.context();
        SimEnv::new(self.world, context)
    }

    pub(super) fn page_text(&self, page: Vpn) -> String {
        self.program.page_name(page).unwrap_or_else(|| page.to_string())
    }
}

/// The hot loop of ascending accesses that hit the TLB. Returns the page that missed, or the end.
fn hits<const WRITE: bool>(tlb: &mut Tlb, epoch: u64, from: u64, end: u64, stride: u64) -> u64 {
    let (mut page, mut way) = (from, 0);
    while page < end && tlb.hit_next::<WRITE>(Vpn(page), epoch, &mut way) {
        page += stride;
    }
    page
}

/// The hot loop of random accesses. Returns the page that missed; `None` if all accesses are done.
fn random_hits<const WRITE: bool>(
    tlb: &mut Tlb,
    epoch: u64,
    range: PageRange,
    random: &mut SplitMix64,
    left: &mut u64,
) -> Option<Vpn> {
    // Local copies can stay in registers, because no other code can see them.
    let (mut next, mut still) = (random.clone(), *left);
    let missed = loop {
        match next_random(range, &mut next, &mut still) {
            Some(page) if tlb.hit::<WRITE>(page, epoch) => {}
            ended => break ended,
        }
    };
    (*random, *left) = (next, still);
    missed
}

#[inline(always)]
fn next_random(range: PageRange, random: &mut SplitMix64, left: &mut u64) -> Option<Vpn> {
    *left = left.checked_sub(1)?;
    Some(range.start.add(random.below(range.pages())))
}

/// Walks, fills the TLB and sets the accessed and the dirty bit, if the PTE allows the access.
pub(crate) fn walk(w: &mut SimWorld, at: At, mm: MmId, page: Vpn, access: Access) -> bool {
    let (table, write) = (&w.mms[mm.index()].table, access.is_write());
    let Some(walked) = walk::walk(table, w.arch.accessed_dirty, page, write) else { return false };
    if walked.new != walked.old {
        w.walked(at, mm, walked);
    }
    let frame = walked.new.pfn.of_page(walked.pages, page);
    let mut silent_stores = walked.new.writable() && walked.new.dirty();
    if write {
        let zero = access == Access::WriteZero;
        if w.frames.is_zero_filled(frame) != zero {
            w.frames.set_zero_filled(frame, zero);
            if zero {
                for (cpu, tlb) in w.cpus.iter().zip(&mut w.tlbs.cpus) {
                    cpu.slot_of(mm).into_iter().for_each(|asid| tlb.forget_store(page, asid));
                }
            }
        }
        // Only walks notice whether a page contains only zeros, so such a page stays out of the
        // write tags of every CPU.
        silent_stores &= !zero;
    } else if silent_stores {
        silent_stores = !w.frames.is_zero_filled(frame);
    }
    let asid = w.cpus[at.cpu.index()].asid;
    if write && w.tlbs.take_upgraded(at.cpu, asid, page) {
        w.emit(at, EventKind::MayFault { page });
    }
    let tlb = &mut w.tlbs.cpus[at.cpu.index()];
    match walked.pages.order {
        0 => tlb.fill(page, asid, silent_stores),
        // Some of its pages may contain zeros and others not, so every store walks.
        _ => tlb.fill_huge(walked.pages, page, asid, false),
    }
    true
}

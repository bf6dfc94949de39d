//! User accesses: TLB hits, page walks, faults.
//!
//! A hit is decided in [`Tlb::hit`](crate::machine::tlb::Tlb::hit) alone; nothing of the kernel is
//! asked. Only a miss walks the page table, sets accessed and dirty as the processor does, and
//! calls the fault handler if the PTE does not allow the access.

use super::SimError;
use super::env::{SimEnv, SimWorld};
use super::interpret::Machine;
use crate::addr::{PageRange, Vpn};
use crate::kernel::fault::{Fault, Outcome, exc_page_fault};
use crate::machine::frames::FrameFlags;
use crate::machine::world::{At, USER_MM};
use crate::program::Access;
use crate::pte::{PresentPte, Pte};
use crate::rng::SplitMix64;
use crate::site::Site;

/// Faults that one access may take before the model is declared stuck.
const MAX_TRIES: u32 = 16;

impl Machine<'_, '_> {
    /// Visits every `stride`th page of `range`.
    pub(super) fn touch_ascending(
        &mut self,
        range: PageRange,
        stride: u64,
        access: Access,
    ) -> Result<(), SimError> {
        self.refuse_stale(range)?;
        let mut page = range.start.0;
        while page < range.end.0 {
            // The hot loop: as far as the TLB goes.
            let (tlb, epoch) = self.tlb();
            let write = access.is_write();
            if access != Access::WriteZero {
                while page < range.end.0 && tlb.hit(Vpn(page), epoch, write) {
                    page += stride;
                }
            }
            if page < range.end.0 {
                self.miss(Vpn(page), access)?;
                page += stride;
            }
        }
        Ok(())
    }

    /// Visits `count` pages of `range` at random.
    pub(super) fn touch_random(
        &mut self,
        range: PageRange,
        count: u64,
        seed: u64,
        access: Access,
    ) -> Result<(), SimError> {
        self.refuse_stale(range)?;
        let mut random = SplitMix64::new(seed);
        let mut left = count;
        let pages = range.pages();
        while left > 0 {
            let (tlb, epoch) = self.tlb();
            let mut missed = None;
            while left > 0 && missed.is_none() {
                let page = range.start.add(random.below(pages));
                left -= 1;
                let hit = access != Access::WriteZero && tlb.hit(page, epoch, access.is_write());
                missed = (!hit).then_some(page);
            }
            if let Some(page) = missed {
                self.miss(page, access)?;
            }
        }
        Ok(())
    }

    /// Stops if an access to `range` would use a translation that was revoked: no flush that is
    /// still owed may be outstanding when a thread goes on.
    fn refuse_stale(&mut self, range: PageRange) -> Result<(), SimError> {
        let cpu = self.cpu();
        let asid = self.world.cpus[cpu.index()].asid;
        let mm = &self.world.mms[USER_MM.index()];
        match self.world.tlbs.stale_hit(cpu, asid, USER_MM, mm, range) {
            None => Ok(()),
            Some(page) => {
                Err(SimError::StaleUse { op: self.op_text(), page: self.page_text(page) })
            }
        }
    }

    fn tlb(&mut self) -> (&mut crate::machine::tlb::Tlb, u64) {
        let cpu = self.cpu();
        let asid = self.world.cpus[cpu.index()].asid;
        let tlb = &mut self.world.tlbs.cpus[cpu.index()];
        let epoch = tlb.epoch(asid);
        (tlb, epoch)
    }

    /// The TLB has no entry that allows the access: walk, and fault if the PTE does not either.
    #[cold]
    #[inline(never)]
    fn miss(&mut self, page: Vpn, access: Access) -> Result<(), SimError> {
        for _ in 0..MAX_TRIES {
            if walk(self.world, self.at(Site::HardwareWalk), page, access) {
                return Ok(());
            }
            let fault = Fault { page, write: access.is_write() };
            let outcome = exc_page_fault(&mut self.env(), fault);
            self.check()?;
            match outcome {
                Outcome::Served => {}
                Outcome::Signal => {
                    return Err(SimError::Signal {
                        op: self.op_text(),
                        page: self.page_text(page),
                    });
                }
                Outcome::OutOfMemory => return Err(SimError::OutOfMemory { op: self.op_text() }),
            }
        }
        Err(SimError::NoProgress {
            op: self.op_text(),
            page: self.page_text(page),
            tries: MAX_TRIES,
        })
    }

    pub(super) fn env(&mut self) -> SimEnv<'_> {
        let (program, thread, op) = (self.program, self.thread, self.op);
        SimEnv::of(self.world, program, thread, op)
    }

    pub(super) fn page_text(&self, page: Vpn) -> String {
        self.program.page_name(page).unwrap_or_else(|| page.to_string())
    }
}

/// The processor's page walk: fills the TLB and sets accessed and dirty, if the PTE allows the
/// access.
///
/// Source: Intel SDM volume 3, 4.6 (access rights) and 4.8 (accessed and dirty flags).
fn walk(w: &mut SimWorld, at: At, page: Vpn, access: Access) -> bool {
    let Some(pte) = w.pte(USER_MM, page).present() else { return false };
    let write = access.is_write();
    if pte.protnone || write && !pte.writable {
        return false;
    }
    let after = PresentPte { accessed: true, dirty: pte.dirty || write, ..pte };
    if after != pte {
        w.set_pte(at, page, Pte::Present(after));
    }
    let mut silent_stores = after.writable && after.dirty;
    if write {
        let zero = access == Access::WriteZero;
        if w.frames.get(pte.pfn).flags.has(FrameFlags::ZERO_FILLED) != zero {
            w.frames.update(pte.pfn, |f| f.flags.set(FrameFlags::ZERO_FILLED, zero));
        }
        // Whether a page holds only zeros is learnt in walks, so such a page stays out of the
        // write tags.
        silent_stores &= !zero;
    } else if silent_stores {
        silent_stores = !w.frames.get(pte.pfn).flags.has(FrameFlags::ZERO_FILLED);
    }
    let asid = w.cpus[at.cpu.index()].asid;
    let tlb = &mut w.tlbs.cpus[at.cpu.index()];
    let epoch = tlb.epoch(asid);
    tlb.fill(page, epoch, silent_stores);
    true
}

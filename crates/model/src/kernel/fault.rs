//! A page fault: `exc_page_fault`, `handle_mm_fault`, `handle_pte_fault`.
//!
//! Looks at the mapping and the PTE and hands over; every path rechecks the PTE under the
//! page-table lock before it changes it.

use crate::addr::{MmId, Vpn};
use crate::env::{Env, Lock};
use crate::event::{EventKind, FaultClass, FaultCode};
use crate::kernel::table::{pte_offset_map_lock, pte_unmap_unlock};
use crate::kernel::{anon, cow, swapin};
use crate::machine::tlb::Tlbs;
use crate::machine::vma::Vma;
use crate::program::Prot;
use crate::pte::{PresentPte, Pte, PteFlags};
use crate::site::Site;
use crate::verdict::{Judgement, Reason, Verdict};

/// The access behind a fault.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct Fault {
    /// The address space.
    pub mm: MmId,
    /// The page.
    pub page: Vpn,
    /// A store.
    pub write: bool,
}

/// How a fault ended.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The access may be tried again.
    Served,
    /// The access is not allowed.
    Signal,
    /// There is no memory left.
    OutOfMemory,
}

/// What a fault turned out to be.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct Served {
    /// Its class.
    pub class: FaultClass,
    /// Whether the page had to be read.
    pub major: bool,
    /// Whether it was needed.
    pub verdict: Verdict,
}

impl Served {
    /// A minor fault that was needed because nothing could have been mapped before.
    pub const fn needed(class: FaultClass) -> Served {
        let verdict = Verdict::new(Judgement::Needed, Reason::NewTranslation);
        Served { class, major: false, verdict }
    }

    /// A fault that found its work done.
    pub const fn spurious() -> Served {
        let verdict = Verdict::new(Judgement::Needless, Reason::AlreadyGranted);
        Served { class: FaultClass::Spurious, major: false, verdict }
    }
}

/// A fault that one of the handlers could not serve.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct OutOfMemory;

/// The exception: the processor found no translation that allows the access.
pub fn exc_page_fault(env: &mut impl Env, fault: Fault) -> Outcome {
    let mm = fault.mm;
    env.step(Site::ExcPageFault, |w, at| {
        let present = w.pte(mm, fault.page).present().is_some_and(|pte| !pte.protnone());
        let code = FaultCode::user(present, fault.write);
        w.emit(at, EventKind::Fault { page: fault.page, code });
        let asid = w.cpus[at.cpu.index()].asid;
        w.tlbs.faulted(at.cpu, asid, fault.page, &w.mms[mm.index()]);
    });
    env.lock(Lock::MmapRead(mm));
    let outcome = handle_mm_fault(env, fault, true);
    env.unlock(Lock::MmapRead(mm));
    outcome
}

/// Serves a fault; `exception` is false for faults taken on behalf of a system call.
pub fn handle_mm_fault(env: &mut impl Env, fault: Fault, exception: bool) -> Outcome {
    let mm = fault.mm;
    let (vma, pte) = env.step(Site::HandlePteFault, |w, at| {
        w.mmap_assert_locked(at, mm);
        (w.mms[mm.index()].vma(fault.page).copied(), w.pte(mm, fault.page))
    });
    let allowed = |vma: &Vma| match vma.prot {
        Prot::None => false,
        Prot::Read => !fault.write,
        Prot::ReadWrite => true,
    };
    let result = match (vma.filter(allowed), pte) {
        (None, _) => Ok(None),
        (Some(vma), Pte::None) => anon::do_anonymous_page(env, fault, &vma).map(Some),
        (Some(vma), Pte::Swap(swap)) => swapin::do_swap_page(env, fault, &vma, swap).map(Some),
        (Some(_), Pte::Present(pte)) if fault.write && !pte.writable() => {
            cow::do_wp_page(env, fault, pte).map(Some)
        }
        (Some(_), Pte::Present(pte)) => Ok(Some(spurious(env, fault, pte))),
    };
    let (outcome, served) = match result {
        Ok(Some(served)) => (Outcome::Served, served),
        Ok(None) => (Outcome::Signal, Served::needed(FaultClass::Signal)),
        Err(OutOfMemory) => (Outcome::OutOfMemory, Served::needed(FaultClass::Signal)),
    };
    let Served { class, major, verdict } = served;
    let kind = EventKind::FaultDone { page: fault.page, class, major, exception };
    env.record(site_of(class), kind, Some(verdict));
    outcome
}

/// The function that serves faults of a class.
const fn site_of(class: FaultClass) -> Site {
    match class {
        FaultClass::FirstTouch | FaultClass::ZeroPage => Site::DoAnonymousPage,
        FaultClass::SwapIn => Site::DoSwapPage,
        FaultClass::Reuse | FaultClass::CowCopy | FaultClass::ZeroUpgrade => Site::DoWpPage,
        FaultClass::Spurious | FaultClass::Signal | FaultClass::Unknown => Site::HandlePteFault,
    }
}

/// The PTE, `seen` before it was locked, allows the access already. x86 marks it accessed and dirty for
/// a store, leaves it alone for a load, and never flushes.
///
/// Source: mm/memory.c:handle_pte_fault, arch/x86/mm/pgtable.c:ptep_set_access_flags (5.10 to 7.3).
fn spurious(env: &mut impl Env, fault: Fault, seen: PresentPte) -> Served {
    let Fault { mm, page, write } = fault;
    let locked = pte_offset_map_lock(env, Site::HandlePteFault, mm, page, |w, at| {
        if write && w.pte(mm, page) == Pte::Present(seen) {
            let used = seen.with(PteFlags::ACCESSED, true).with(PteFlags::DIRTY, true);
            w.set_pte(at, mm, page, Pte::Present(used));
        }
    });
    if locked.is_some() {
        pte_unmap_unlock(env, mm, page);
    }
    Served::spurious()
}

//! A page fault: `exc_page_fault`, `handle_mm_fault`, `handle_pte_fault`.
//!
//! Looks at the mapping and the PTE and hands over; every path rechecks the PTE under the
//! page-table lock before it changes it.

use super::access_flags::set_access_flags;
use super::outcome::{Fault, Outcome, Served, Unserved};
use super::{anon, cow, swapin};
use crate::env::{Env, Lock};
use crate::event::{EventKind, FaultClass, FaultCode};
use crate::machine::tlb::Tlbs;
use crate::machine::vma::Vma;
use crate::program::Prot;
use crate::pte::Pte;
use crate::site::Site;
use crate::wait::Wait;

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
    do_user_addr_fault(env, fault)
}

/// The same fault after it waited.
pub fn retry_page_fault(env: &mut impl Env, fault: Fault, waited: Wait) -> Outcome {
    waited.end(env);
    do_user_addr_fault(env, Fault { tried: true, ..fault })
}

fn do_user_addr_fault(env: &mut impl Env, fault: Fault) -> Outcome {
    let mm = fault.mm;
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
        (Some(_), Pte::Present(pte)) => Ok(Some(set_access_flags(env, fault, pte))),
        (Some(_), Pte::Migration(_)) => Err(Unserved::Blocked(Wait::Migration(mm, fault.page))),
        (Some(_), Pte::Table(_) | Pte::Marker(_)) => {
            let unmade = "a fault found an entry that nothing in the model makes";
            env.step(Site::HandlePteFault, |w, at| w.impossible(at, unmade));
            Ok(None)
        }
    };
    let (outcome, served) = match result {
        Ok(Some(served)) => (Outcome::Served, served),
        Ok(None) => (Outcome::Signal, Served::needed(FaultClass::Signal)),
        Err(Unserved::OutOfMemory) => (Outcome::OutOfMemory, Served::needed(FaultClass::Signal)),
        Err(Unserved::Blocked(wait)) => return Outcome::Blocked(wait),
    };
    let Served { class, major, verdict } = served;
    let kind = EventKind::FaultDone { page: fault.page, class, major, exception };
    env.record(site_of(class), kind, Some(verdict));
    outcome
}

/// The function that serves faults of a class; for those that nothing here makes, the one that chooses.
const fn site_of(class: FaultClass) -> Site {
    match class {
        FaultClass::FirstTouch | FaultClass::ZeroPage => Site::DoAnonymousPage,
        FaultClass::SwapIn => Site::DoSwapPage,
        FaultClass::Reuse | FaultClass::CowCopy | FaultClass::ZeroUpgrade => Site::DoWpPage,
        FaultClass::AccessFlag
        | FaultClass::FileMap
        | FaultClass::FaultAround
        | FaultClass::SharedDirty
        | FaultClass::HugePage
        | FaultClass::Userfaultfd
        | FaultClass::NumaHint
        | FaultClass::Spurious
        | FaultClass::Signal
        | FaultClass::Failed
        | FaultClass::Unknown => Site::HandlePteFault,
    }
}

//! A page fault: `exc_page_fault`, `handle_mm_fault`, `handle_pte_fault`.
//!
//! The handler looks at the mapping and the PTE and dispatches. Every path rechecks the PTE under
//! the page-table lock before it changes the PTE.

use super::access_flags::{counts_as_tried, set_access_flags};
use super::outcome::{Attempt, Fault, Outcome, Served, Unserved};
use super::{anon, cow, file, hint, swapin};
use crate::env::{Env, Lock};
use crate::event::{EventKind, FaultClass, FaultCode};
use crate::kernel::deferred::{Before, flush_owed_before};
use crate::kernel::huge::handle_pmd;
use crate::kernel::uffd::fault::clear_marker;
use crate::kernel::vma_lock::{lock_vma_under_rcu, per_vma};
use crate::machine::tlb::Tlbs;
use crate::machine::vma::Vma;
use crate::machine::world::Ghost;
use crate::policy::{DeferFlush, DirtyRetry, Mutant, RetryAccount};
use crate::program::Prot;
use crate::pte::{Marker, Pte};
use crate::site::Site;
use crate::verdict::{Judgement, Reason, Verdict};
use crate::wait::{Cause, Wait};

/// Handles the exception: the processor found no translation that allows the access.
pub fn exc_page_fault(env: &mut impl Env, fault: Fault) -> Outcome {
    let mm = fault.mm;
    env.step(Site::ExcPageFault, |w, at| {
        let present = w.mms[mm.index()].table.walk(fault.page).0.is_some_and(|pte| !pte.protnone());
        let code = FaultCode::user(present, fault.write);
        w.emit(at, EventKind::Fault { page: fault.page, code });
        let asid = w.cpus[at.cpu.index()].asid;
        if w.arch.fault_drops {
            w.tlbs.faulted(at.cpu, asid, fault.page, &w.mms[mm.index()]);
        }
    });
    let attempt = if per_vma(env) { Attempt::VmaLock } else { Attempt::MmapLock };
    do_user_addr_fault(env, Fault { attempt, ..fault })
}

/// Resumes a fault that has waited.
pub fn retry_page_fault(env: &mut impl Env, fault: Fault, waited: Wait) -> Outcome {
    waited.end(env);
    begins_again(env, fault);
    do_user_addr_fault(env, fault)
}

/// Serves a fault with the mapping's lock, where kernels have one. If that lock is not available or
/// not enough, it takes `mmap_lock`.
///
/// Source: arch/x86/mm/fault.c:do_user_addr_fault (5.10 to 7.3).
fn do_user_addr_fault(env: &mut impl Env, mut fault: Fault) -> Outcome {
    let Fault { mm, page, .. } = fault;
    let mut before = None;
    if fault.attempt == Attempt::VmaLock {
        if lock_vma_under_rcu(env, mm, page) {
            let ended = attempt(env, fault, true, None);
            if !ended.unlocked() {
                env.unlock(Lock::VmaOf(mm, page));
            }
            match ended {
                Ended::Done(outcome) | Ended::Completed(outcome) => return outcome,
                Ended::MmapLockNeeded => {}
                Ended::TryAgain(served) => before = Some(served),
            }
            // A fault that has done its work comes back as one that was tried.
            let again = fault.again();
            let attempt = if before.is_some() { Attempt::Tried } else { again.attempt };
            begins_again(env, Fault { attempt, ..again });
        }
        fault = fault.again();
    }
    env.lock(Lock::MmapRead(mm));
    let (outcome, locked) = try_fault(env, fault, true, before);
    if locked {
        env.unlock(Lock::MmapRead(mm));
    }
    outcome
}

/// Serves a fault with `mmap_lock` held. `exception` is false for faults on behalf of a system
/// call.
pub fn handle_mm_fault(env: &mut impl Env, fault: Fault, exception: bool) -> Outcome {
    if fault.attempt == Attempt::Tried {
        begins_again(env, fault);
    }
    let (outcome, locked) = try_fault(env, fault, exception, None);
    if !locked {
        env.lock(Lock::MmapRead(fault.mm));
    }
    outcome
}

/// Serves a fault with one try, without an exception and with `mmap_lock` held. A fault that would
/// be retried is over and counts for nothing, so the caller must look at the page table again.
pub fn try_mm_fault(env: &mut impl Env, fault: Fault) -> Outcome {
    let ended = attempt(env, fault, false, None);
    if let Ended::Done(outcome) = ended {
        return outcome;
    }
    if !ended.unlocked() {
        env.unlock(Lock::MmapRead(fault.mm));
    }
    env.lock(Lock::MmapRead(fault.mm));
    Outcome::Served
}

/// Serves a fault, with retries. `before` is the outcome of an earlier try, if there was one.
/// Returns the outcome, and whether the lock is still held.
fn try_fault(
    env: &mut impl Env,
    mut fault: Fault,
    exception: bool,
    mut before: Option<Served>,
) -> (Outcome, bool) {
    loop {
        fault.attempt = if before.is_some() { Attempt::Tried } else { fault.attempt };
        let ended = attempt(env, fault, exception, before);
        let unlocked = ended.unlocked();
        match ended {
            Ended::Done(outcome) | Ended::Completed(outcome) => return (outcome, !unlocked),
            Ended::TryAgain(served) => before = Some(served),
            Ended::MmapLockNeeded => {
                let held = "a fault asked for mmap_lock, which it held already";
                env.step(Site::HandlePteFault, |w, at| w.impossible(at, held));
                return (Outcome::Signal, true);
            }
        }
        if !unlocked {
            env.unlock(Lock::MmapRead(fault.mm));
        }
        begins_again(env, fault.again());
        env.lock(Lock::MmapRead(fault.mm));
    }
}

/// Records that the next try begins.
fn begins_again(env: &mut impl Env, fault: Fault) {
    let tried = fault.attempt == Attempt::Tried;
    env.record(Site::HandleMmFault, EventKind::FaultAgain { page: fault.page, tried }, None);
}

/// How one try ended.
#[derive(Copy, Clone)]
enum Ended {
    Done(Outcome),
    /// The fault is over and gave its lock back earlier (`VM_FAULT_COMPLETED`).
    Completed(Outcome),
    MmapLockNeeded,
    /// The fault must be retried: it was served and gave its lock back, or it has read its page.
    TryAgain(Served),
}

impl Ended {
    /// Whether the fault's lock was already given back.
    const fn unlocked(self) -> bool {
        match self {
            Ended::Done(_) | Ended::MmapLockNeeded => false,
            Ended::Completed(_) => true,
            Ended::TryAgain(served) => served.unlocked,
        }
    }
}

/// Runs one try of a fault with the lock that it holds. `before` is the outcome of an earlier try:
/// if this try finds its work done, the fault keeps that outcome. The fault counts as major where
/// kernels count every fault as major that is retried with `mmap_lock` (`FAULT_FLAG_TRIED`).
///
/// Source: mm/memory.c:mm_account_fault (5.10 to 7.2), arch/x86/mm/fault.c:do_user_addr_fault
/// (6.12, 7.2: not after a try with the mapping's lock, unless it was major).
fn attempt(env: &mut impl Env, fault: Fault, exception: bool, before: Option<Served>) -> Ended {
    let mut found_done = false;
    let accounts = env.policies().retry_account == RetryAccount::Tried;
    let tried = accounts && fault.attempt == Attempt::Tried;
    let served = serve(env, fault);
    if served.is_ok() && env.policies().defer_flush != DeferFlush::Never {
        fault_set_pte(env, fault);
    }
    let served = served.and_then(|now| {
        if now.unlocked && env.policies().dirty_retry != DirtyRetry::Completed {
            return Err(Unserved::TryAgain(now));
        }
        found_done = before.is_some() && now.class == FaultClass::Spurious;
        let served = before.filter(|_| found_done).unwrap_or(now);
        let served = if fault.told { served.told() } else { served };
        let major = now.major || before.is_some_and(|before| before.major) || tried;
        Ok(Served { major, unlocked: now.unlocked, ..served })
    });
    let mut ended = |outcome, Served { class, major, verdict, huge, unlocked }| {
        let kind = EventKind::FaultDone { page: fault.page, class, major, exception };
        let site = match (found_done, verdict.reason) {
            (true, _) => Site::HandlePteFault,
            (false, Reason::StoreNoted) => Site::WpPageShared,
            (false, _) => site_of(class, huge),
        };
        env.record(site, kind, Some(verdict));
        if unlocked { Ended::Completed(outcome) } else { Ended::Done(outcome) }
    };
    match served {
        Ok(served) => ended(Outcome::Served, served),
        Err(Unserved::NotAllowed) => ended(Outcome::Signal, Served::needed(FaultClass::Signal)),
        Err(Unserved::OutOfMemory) => {
            ended(Outcome::OutOfMemory, Served::needed(FaultClass::Signal))
        }
        Err(Unserved::Blocked { wait, read }) => {
            env.retries(fault.mm, fault.page, Cause::Wait(wait));
            let site = match wait {
                Wait::Userfault(..) => Site::HandleUserfault,
                Wait::Migration(..) => Site::MigrationEntryWait,
                _ => Site::FolioLockOrRetry,
            };
            retry(env, fault, site, false);
            // A fault that has read its page counts as tried, whichever lock it held
            // (do_user_addr_fault).
            let again = fault.again();
            let attempt = if read { Attempt::Tried } else { again.attempt };
            let told = fault.told || matches!(wait, Wait::Userfault(..));
            Ended::Done(Outcome::Blocked(wait, Fault { attempt, told, ..again }))
        }
        Err(Unserved::TryAgain(served)) => {
            // The retry maps the page that was read.
            if !served.unlocked {
                env.retries(fault.mm, fault.page, Cause::Read);
                retry(env, fault, Site::FilemapFault, false);
            }
            Ended::TryAgain(served)
        }
        Err(Unserved::MmapLockNeeded) => {
            env.retries(fault.mm, fault.page, Cause::MmapLock);
            retry(env, fault, Site::MmapReadTrylock, false);
            Ended::MmapLockNeeded
        }
    }
}

/// Does the deferred flushes of others after a fault has set a PTE, in the versions that flush
/// there.
fn fault_set_pte(env: &mut impl Env, fault: Fault) {
    let writable = env.step(Site::HandlePteFault, |w, _| {
        let vma = w.mms[fault.mm.index()].vma(fault.page);
        vma.is_some_and(|vma| vma.prot == Prot::ReadWrite)
    });
    flush_owed_before(env, Before::FaultEnds { write: fault.write, writable });
}

/// Records a retry. If the try has `mapped` its page, the next try has nothing to do.
pub(super) fn retry(env: &mut impl Env, fault: Fault, site: Site, mapped: bool) {
    let verdict = match mapped {
        true => Verdict::new(Judgement::Needless, Reason::RetriedMapped),
        false => Verdict::new(Judgement::Needed, Reason::RetriedUnmapped),
    };
    env.record(site, EventKind::FaultRetry { page: fault.page, mapped }, Some(verdict));
}

/// Looks at the mapping and the PTE and dispatches.
fn serve(env: &mut impl Env, fault: Fault) -> Result<Served, Unserved> {
    let mm = fault.mm;
    let (vma, mut pte) = env.step(Site::HandlePteFault, |w, at| {
        w.vma_assert_locked(at, mm, fault.page);
        w.ghost.try_begins(at.thread);
        (w.mms[mm.index()].vma(fault.page).copied(), w.pte(mm, fault.page))
    });
    let allowed = |vma: &Vma| match vma.prot {
        Prot::None => false,
        Prot::Read => !fault.write || fault.forced,
        Prot::ReadWrite => true,
    };
    let Some(vma) = vma.filter(allowed) else { return Err(Unserved::NotAllowed) };
    if env.config().huge_pages {
        if let Some(served) = handle_pmd(env, fault, &vma)? {
            return Ok(Served { huge: true, ..served });
        }
        pte = env.step(Site::HandlePteFault, |w, _| w.pte(mm, fault.page));
    }
    match pte {
        Pte::Marker(Marker::UffdWp) if !vma.uffd.write_protect => Ok(clear_marker(env, fault)),
        Pte::None | Pte::Marker(Marker::UffdWp) => match vma.file {
            None => anon::do_anonymous_page(env, fault, &vma, pte),
            Some(object) => file::do_fault(env, (fault, pte), &vma, object),
        },
        Pte::Swap(swap) => swapin::do_swap_page(env, fault, &vma, swap),
        Pte::Present(pte) if pte.protnone() => Ok(hint::do_numa_page(env, fault, &vma, pte)),
        Pte::Present(pte) if is_over_first(env, fault) => Ok(set_access_flags(env, fault, pte)),
        Pte::Present(pte) if (fault.write || fault.unshare) && !pte.writable() => {
            match vma.shared {
                false => cow::do_wp_page(env, fault, &vma, pte),
                true => file::wp_page_shared(env, fault, &vma, pte),
            }
        }
        Pte::Present(pte) => Ok(set_access_flags(env, fault, pte)),
        Pte::Migration(_) => {
            Err(Unserved::Blocked { wait: Wait::Migration(mm, fault.page), read: false })
        }
        Pte::Marker(_) => Err(Unserved::NotAllowed),
        Pte::Table(_) => {
            let unmade = "a fault found an entry that nothing in the model makes";
            env.step(Site::HandlePteFault, |w, at| w.impossible(at, unmade));
            Err(Unserved::NotAllowed)
        }
    }
}

/// Whether the fault is over as soon as its page is mapped. Only mutants do this.
fn is_over_first(env: &impl Env, fault: Fault) -> bool {
    let first = matches!(env.policies().mutant, Mutant::TriedFirst | Mutant::TriedFirstKept);
    first && counts_as_tried(env, fault)
}

/// The function that serves faults of this class, by a huge page's entry or by a PTE. For classes
/// that no fault here has, it is the function that dispatches.
const fn site_of(class: FaultClass, huge: bool) -> Site {
    match (class, huge) {
        (FaultClass::HugePage, _) | (FaultClass::ZeroPage, true) => Site::DoHugePmdAnonymousPage,
        (FaultClass::Reuse | FaultClass::CowCopy, true) => Site::DoHugePmdWpPage,
        (FaultClass::ZeroUpgrade, true) => Site::DoHugeZeroWpPmd,
        (FaultClass::AccessFlag, true) => Site::HugePmdSetAccessed,
        (FaultClass::FirstTouch | FaultClass::ZeroPage, false) => Site::DoAnonymousPage,
        (FaultClass::SwapIn, false) => Site::DoSwapPage,
        (FaultClass::FileMap | FaultClass::SharedDirty, false) => Site::DoFault,
        (FaultClass::Reuse | FaultClass::CowCopy | FaultClass::ZeroUpgrade, false) => {
            Site::DoWpPage
        }
        (FaultClass::NumaHint, _) => Site::DoNumaPage,
        (FaultClass::Userfaultfd, _) => Site::HandleUserfault,
        _ => Site::HandlePteFault,
    }
}

//! A store has made a page of a shared file dirty. A thread that dirties many pages waits until
//! fewer are dirty. It gives `mmap_lock` back before it waits, if it may.
//!
//! Kernels from 5.5 to 5.19 then retry the fault, and the retry finds its work done. Newer kernels
//! say that the fault is over (`dirty-retry`). Whether the thread has to wait depends on the disk,
//! so a policy says it (`throttle`). The lock is given back in either case.

use super::file::FilePage;
use super::handle::retry;
use super::outcome::{Attempt, Fault, Served};
use crate::env::{Env, Lock};
use crate::event::{EventKind, FaultClass};
use crate::kernel::switch::{enter_lazy, switch_mm};
use crate::machine::cpu::INIT_MM;
use crate::machine::frames::FrameFlags;
use crate::policy::{DirtyRetry, Throttle};
use crate::site::Site;
use crate::wait::Cause;

/// Marks the page dirty and unlocks its folio. The caller has mapped and locked the page. The
/// thread is throttled if the page became dirty just now or if the file system was `told`.
///
/// Source: mm/memory.c:fault_dirty_shared_page (5.10 to 7.3).
pub(super) fn fault_dirty_shared_page(
    env: &mut impl Env,
    fault: Fault,
    FilePage { frame, folio }: FilePage,
    told: bool,
) -> Served {
    let dirtied = env.step(Site::FaultDirtySharedPage, |w, _| {
        let clean = !w.frames.flags(frame).has(FrameFlags::DIRTY);
        w.dirty_folio(frame);
        clean
    });
    env.unlock(Lock::Folio(folio));
    let mut served = Served::needed(FaultClass::SharedDirty);
    if dirtied || told {
        served.unlocked = maybe_unlock_mmap_for_io(env, fault);
        balance_dirty_pages(env);
    }
    served
}

/// Gives the fault's lock back if it may, and records that the fault will be retried or is over.
/// Returns whether it gave the lock back.
///
/// Source: mm/internal.h:maybe_unlock_mmap_for_io (5.10 to 7.3); kernels before 5.5 do not do this.
fn maybe_unlock_mmap_for_io(env: &mut impl Env, fault: Fault) -> bool {
    let Fault { mm, page, attempt, .. } = fault;
    match env.policies().dirty_retry {
        _ if attempt.keeps_locks() => return false,
        DirtyRetry::InLock => return false,
        DirtyRetry::RetryFlush | DirtyRetry::Retry => {
            env.retries(mm, page, Cause::Throttle);
            retry(env, fault, Site::FaultDirtySharedPage, true);
        }
        DirtyRetry::Completed => {
            let completed = EventKind::FaultCompleted { page };
            env.record(Site::FaultDirtySharedPage, completed, None);
        }
    }
    env.unlock(match attempt {
        Attempt::VmaLock => Lock::VmaOf(mm, page),
        Attempt::MmapLock | Attempt::Held | Attempt::Tried => Lock::MmapRead(mm),
    });
    true
}

/// Sleeps until fewer pages are dirty, if `throttle` says so.
///
/// Source: mm/page-writeback.c:balance_dirty_pages (5.10 to 7.3).
fn balance_dirty_pages(env: &mut impl Env) {
    if env.policies().throttle == Throttle::Never {
        return;
    }
    env.step(Site::BalanceDirtyPages, |w, at| {
        enter_lazy(w, at.cpu);
        w.emit(at.site(Site::EnterLazyTlb), EventKind::Switch { to: None });
    });
    let own = env.context().mm.unwrap_or(INIT_MM);
    env.step(Site::SwitchMm, |w, at| {
        w.cpus[at.cpu.index()].running = Some(at.thread);
        w.emit(at, EventKind::Switch { to: Some(at.thread) });
        switch_mm(w, at, at.cpu, own);
    });
}

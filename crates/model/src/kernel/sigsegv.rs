//! A process that handles SIGSEGV. If a mapping forbids an access, the process's handler gives the
//! page's rights back by `mprotect`, and the access is made again. Programs track stores in this
//! way where they ask the kernel for nothing else.

use crate::addr::{MmId, PageRange};
use crate::env::Env;
use crate::event::EventKind;
use crate::kernel::fault::Fault;
use crate::kernel::{Errno, protect};
use crate::program::Prot;
use crate::site::Site;

/// Makes this process handle SIGSEGV from now on, and the processes that it forks.
pub fn sigaction(env: &mut impl Env, mm: MmId) {
    env.step(Site::Sigaction, |w, _| w.mms[mm.index()].handles_segv = true);
}

/// Handles the signal of an access that a mapping forbids (`SEGV_ACCERR`). Returns whether the
/// access was one.
///
/// Source: arch/x86/mm/fault.c:do_user_addr_fault, bad_area_access_error (5.10 to 7.2): before the
/// fault is counted.
pub fn handle(env: &mut impl Env, fault: Fault) -> Result<bool, Errno> {
    if !env.config().handles_signals {
        return Ok(false);
    }
    let Fault { mm, page, write, .. } = fault;
    let handled = env.step(Site::Sigaction, |w, at| {
        let space = &w.mms[mm.index()];
        let forbids = |prot| match prot {
            Prot::None => true,
            Prot::Read => write,
            Prot::ReadWrite => false,
        };
        let handled = space.handles_segv && space.vma(page).is_some_and(|vma| forbids(vma.prot));
        if handled {
            w.emit(at, EventKind::Told { page, pages: 1 });
        }
        handled
    });
    if handled {
        protect::mprotect(env, mm, PageRange::one(page), Prot::ReadWrite)?;
    }
    Ok(handled)
}

//! A process that handles SIGSEGV: an access that its mapping forbids is told to the handler, which gives the page's rights back by `mprotect`;
//! then the access is made again. This is how stores are tracked where the kernel is asked for nothing else.

use crate::addr::{MmId, PageRange};
use crate::env::Env;
use crate::event::EventKind;
use crate::kernel::fault::Fault;
use crate::kernel::{Errno, protect};
use crate::program::Prot;
use crate::site::Site;

/// From now on signals of this process are handled; those of the processes that it forks, too.
pub fn sigaction(env: &mut impl Env, mm: MmId) {
    env.step(Site::Sigaction, |w, _| w.mms[mm.index()].handles_segv = true);
}

/// Handles the signal of an access, if it is one that a mapping forbids (`SEGV_ACCERR`); whether it was.
///
/// Source: arch/x86/mm/fault.c:do_user_addr_fault, bad_area_access_error (5.10 to 7.2): before the fault is counted.
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

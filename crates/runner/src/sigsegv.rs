//! Reports accesses that a mapping's protection forbids, and lets them go on: a signal handler
//! calls `mprotect` for their page.
//!
//! The signal is synchronous: a load or store of the scenario causes it, while this thread holds no
//! lock and is not inside the allocator. The handler runs on the stack of its thread, and allocates
//! nothing.

use crate::log::Kind;
use crate::run::Run;
use crate::{calls, crash, sys};
use needless_model::addr::{PageRange, Vpn};
use needless_model::program::Prot;
use std::io;
use std::sync::OnceLock;

static RUN: OnceLock<&'static Run> = OnceLock::new();

// include/uapi/asm-generic/siginfo.h: SEGV_ACCERR, a mapping exists that forbids the access.
const SEGV_ACCERR: i32 = 2;

/// Handles SIGSEGV from now on, in this process and in those that it forks.
pub fn handle(run: &'static Run) -> io::Result<()> {
    let _ = RUN.set(run);
    // SAFETY: a sigaction of zeros is valid: no flags, empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = tracked as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO;
    // SAFETY: `action` is valid and the handler has the signature that SA_SIGINFO asks for.
    match unsafe { libc::sigaction(libc::SIGSEGV, &action, std::ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

extern "C" fn tracked(signal: i32, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid siginfo; SIGSEGV carries an address.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr() as u64) };
    let page = Vpn::containing(address);
    let run = RUN.get().filter(|run| run.program.owns(page) && code == SEGV_ACCERR);
    let done = run.and_then(|run| {
        let me = run.team.thread_of(sys::tid())?;
        run.markers(me).write(Kind::Signal, address, 0);
        calls::protect(PageRange::one(page), Prot::ReadWrite).ok()
    });
    if done.is_none() {
        crash::end(signal, address);
    }
}

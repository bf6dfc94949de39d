//! Ends the run cleanly after an access that is not allowed.
//!
//! The signals are synchronous: a load or store of the scenario causes them, while this thread
//! holds no lock and is not inside the allocator. So the handler may format and write.

use crate::processes;
use crate::wire::{Failure, FailureKind};
use needless_model::addr::Vpn;
use needless_model::program::Program;
use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

static PROGRAM: OnceLock<&'static Program> = OnceLock::new();
static OP: AtomicU32 = AtomicU32::new(u32::MAX);

/// Notes the operation that runs now.
#[inline]
pub fn enter(op: u32) {
    OP.store(op, Ordering::Relaxed);
}

/// The operation that runs now.
pub fn running() -> Option<u32> {
    Some(OP.load(Ordering::Relaxed)).filter(|op| *op != u32::MAX)
}

/// Handles SIGSEGV and SIGBUS from now on.
pub fn install(program: &'static Program) -> io::Result<()> {
    let _ = PROGRAM.set(program);
    for signal in [libc::SIGSEGV, libc::SIGBUS] {
        // SAFETY: a sigaction of zeros is valid: no flags, empty mask.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = caught as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESETHAND;
        // SAFETY: `action` is valid and the handler has the signature that SA_SIGINFO asks for.
        if unsafe { libc::sigaction(signal, &action, std::ptr::null_mut()) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

extern "C" fn caught(signal: i32, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid siginfo; SIGSEGV and SIGBUS carry an address.
    let address = unsafe { (*info).si_addr() } as u64;
    end(signal, address);
}

/// Ends the run because of an access to `address`.
pub fn end(signal: i32, address: u64) -> ! {
    let failure = describe(signal, address);
    let status = i32::from(failure.exit_status());
    // A forked process passes its failure to the first process.
    if let Some(failure) = processes::tell_of(failure) {
        failure.send();
    }
    // SAFETY: `_exit` ends the process at once; nothing in it is needed any more.
    unsafe { libc::_exit(status) };
}

fn describe(signal: i32, address: u64) -> Failure {
    let name = if signal == libc::SIGBUS { "SIGBUS" } else { "SIGSEGV" };
    let op = running();
    let program = PROGRAM.get();
    let page = program.and_then(|program| program.page_name(Vpn::containing(address)));
    let text = program.and_then(|program| program.op_texts.get(op? as usize));
    let (kind, what) = match (page, text) {
        (Some(page), Some(text)) => {
            (FailureKind::Signal, format!("`{text}`: {name} at page {page}"))
        }
        (Some(page), None) => (FailureKind::Signal, format!("{name} at page {page}")),
        (None, _) => (FailureKind::Internal, format!("{name} at {address:#x}")),
    };
    Failure { kind, what, op, errno: None }
}

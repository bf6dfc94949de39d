//! What a process got from whoever started it, before the standard library changes it.

use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Standard output was closed when the process began. (The standard library opens /dev/null in its
/// place, so that all that is written is lost without an error.)
static OUTPUT_CLOSED: AtomicBool = AtomicBool::new(false);

/// Runs before `main`, as the constructors of a program do.
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look;

extern "C" fn look() {
    // SAFETY: only asks for the descriptor's flags.
    let closed = unsafe { libc::fcntl(libc::STDOUT_FILENO, libc::F_GETFD) } == -1;
    OUTPUT_CLOSED.store(closed, Relaxed);
}

/// Whether standard output was closed when the process began.
pub fn output_was_closed() -> bool {
    OUTPUT_CLOSED.load(Relaxed)
}

/// Unblocks the signals that end a process or tell of a child's end: whoever started this process
/// may have blocked them, and that is inherited (sigprocmask(2)).
pub fn unblock_signals() {
    let mut signals = MaybeUninit::uninit();
    // SAFETY: the set is initialised by sigemptyset before it is read, and nothing else is touched.
    unsafe {
        libc::sigemptyset(signals.as_mut_ptr());
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT, libc::SIGCHLD] {
            libc::sigaddset(signals.as_mut_ptr(), signal);
        }
        libc::pthread_sigmask(libc::SIG_UNBLOCK, signals.as_ptr(), null_mut());
    }
}

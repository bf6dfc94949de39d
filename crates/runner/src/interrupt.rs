//! Signals that ask a command to end before its work is done.
//!
//! Unhandled, they end the process, and what it started ends with it ([`crate::guard`],
//! [`crate::keeper`]). A command that has partial results to report listens instead ([`listen`]).
//! A signal may reach the command's process alone, so that a guest or a runner goes on. Therefore
//! all that begins a run, or waits for one, asks whether to go on ([`go_on`], [`descriptor`]).

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag::{register_conditional_default, register_usize};
use signal_hook::low_level::pipe;
use std::io::{self, PipeReader};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use thiserror::Error;

/// A signal asked for an end.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Error)]
#[error("a signal asked for an end")]
pub struct Interrupted;

/// What signals tell.
struct Listener {
    /// The last signal that asked for an end, or 0.
    signal: Arc<AtomicUsize>,
    /// Each signal writes a byte here, and nobody reads it.
    came: PipeReader,
}

static LISTENER: OnceLock<Listener> = OnceLock::new();

/// From now on a first signal asks for an end, and a second one ends the process. Ignored signals
/// stay ignored (`nohup`, a script's background jobs). Signals that cannot be handled end the
/// process.
pub fn listen() {
    let Ok((came, comes)) = io::pipe() else { return };
    let (asked, again) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    for signal in [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|signal| !is_ignored(*signal)) {
        let Ok(comes) = comes.try_clone() else { continue };
        // The order matters: the first signal finds the second flag unset.
        let _ = register_conditional_default(signal, Arc::clone(&again));
        let _ = signal_hook::flag::register(signal, Arc::clone(&again));
        let _ = register_usize(signal, Arc::clone(&asked), signal as usize);
        let _ = pipe::register(signal, comes);
    }
    let _ = LISTENER.set(Listener { signal: asked, came });
}

/// The exit status of a command that a signal asked to end, if one did.
pub fn asked() -> Option<u8> {
    let signal = LISTENER.get()?.signal.load(Relaxed);
    (signal > 0).then(|| 128_u8.wrapping_add(signal as u8))
}

/// Fails once a signal has asked for an end.
pub fn go_on() -> Result<(), Interrupted> {
    asked().map_or(Ok(()), |_| Err(Interrupted))
}

/// A descriptor that is readable once a signal has asked for an end; `None` if nobody listens.
pub fn descriptor() -> Option<BorrowedFd<'static>> {
    LISTENER.get().map(|listener| listener.came.as_fd())
}

/// Whether this process ignores the signal.
pub fn is_ignored(signal: i32) -> bool {
    // SAFETY: a sigaction of zeros is a valid one, and only the present one is written to it.
    unsafe {
        let mut present: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &mut present) == 0
            && present.sa_sigaction == libc::SIG_IGN
    }
}

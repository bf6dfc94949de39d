//! Handles Ctrl-C and SIGTERM during work whose partial results are worth reporting. The first
//! signal asks for an end, a second one ends the process as usual.

use needless_watch::signals::is_ignored;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag::{register_conditional_default, register_usize};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

/// The signal that asked for an end, or 0.
static ASKED_BY: OnceLock<Arc<AtomicUsize>> = OnceLock::new();

/// From now on a signal asks for an end. Ignored signals stay ignored (`nohup`, a script's
/// background jobs). Signals that cannot be handled end the process as usual.
pub fn listen() {
    let (asked, again) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    for signal in [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|signal| !is_ignored(*signal)) {
        // The order matters: the first signal finds the second flag unset.
        let _ = register_conditional_default(signal, Arc::clone(&again));
        let _ = signal_hook::flag::register(signal, Arc::clone(&again));
        let _ = register_usize(signal, Arc::clone(&asked), signal as usize);
    }
    let _ = ASKED_BY.set(asked);
}

/// The exit status of a command that a signal asked to end, if one did.
pub fn asked() -> Option<u8> {
    let signal = ASKED_BY.get()?.load(Relaxed);
    (signal > 0).then(|| 128_u8.wrapping_add(signal as u8))
}

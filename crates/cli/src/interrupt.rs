//! Ctrl-C or SIGTERM during what is worth telling in part: the first one asks for an end, a second
//! one ends the process as usual.

use needless_watch::signals::is_ignored;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag::{register_conditional_default, register_usize};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

/// The signal that asked for an end, or 0.
static ASKED_BY: OnceLock<Arc<AtomicUsize>> = OnceLock::new();

/// From now on a signal asks for an end. Those that are ignored stay so (`nohup`, a script's
/// background jobs); those that cannot be handled end the process as usual.
pub fn listen() {
    let (asked, again) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    for signal in [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|signal| !is_ignored(*signal)) {
        // In this order: the first signal finds the second flag unset.
        let _ = register_conditional_default(signal, Arc::clone(&again));
        let _ = signal_hook::flag::register(signal, Arc::clone(&again));
        let _ = register_usize(signal, Arc::clone(&asked), signal as usize);
    }
    let _ = ASKED_BY.set(asked);
}

/// The exit status of a command that was asked for an end, if it was.
pub fn asked() -> Option<u8> {
    let signal = ASKED_BY.get()?.load(Relaxed);
    (signal > 0).then(|| 128_u8.wrapping_add(signal as u8))
}

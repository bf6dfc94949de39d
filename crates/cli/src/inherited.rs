//! Corrects what this process inherited and cannot work with.

use signal_hook::consts::SIGCHLD;
use std::sync::Arc;

/// Unblocks signals: a blocked signal ends nothing. Some daemons ignore SIGCHLD, and what they
/// start inherits that. Then the kernel reaps children, and nobody can learn how one ended
/// (wait(2)). A handled signal is not ignored, and processes started here have it as usual again
/// (execve(2)).
pub fn put_right() {
    needless_watch::inherited::unblock_signals();
    // A signal that cannot be handled stays as it is.
    let _ = signal_hook::flag::register(SIGCHLD, Arc::default());
}

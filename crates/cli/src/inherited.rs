//! What whoever started this process left it, and what it cannot work with.

use signal_hook::consts::SIGCHLD;
use std::sync::Arc;

/// Signals that are blocked end nothing. Some daemons ignore SIGCHLD, and what they start inherits
/// that: then the kernel reaps children, and nobody can learn how one ended (wait(2)). A signal
/// that is handled is not ignored, and what is started here has it as usual again (execve(2)).
pub fn put_right() {
    needless_watch::inherited::unblock_signals();
    // What cannot be handled stays as it is.
    let _ = signal_hook::flag::register(SIGCHLD, Arc::default());
}

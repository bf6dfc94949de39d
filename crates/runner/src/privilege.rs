//! Gives up capabilities that a binary gets from its file. Every user who starts such a binary has
//! them, although nobody trusts that user with them.
//!
//! `setcap cap_perfmon,cap_ipc_lock+ep` lets users watch the kernel who may not do anything else. A
//! capability that opens files would hand out the contents of files: a scenario, a patch or a saved
//! result is a path that the user names, and an error about it quotes the text. So before any path
//! is opened, this gives up everything that watching does not need.

use rustix::io;
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

/// The capabilities that watching needs: events, rings in memory that is not swapped, the addresses
/// of kernel functions. None of them opens a file that the user may not open.
const KEPT: CapabilitySet =
    CapabilitySet::PERFMON.union(CapabilitySet::IPC_LOCK).union(CapabilitySet::SYSLOG);

/// Gives up the capabilities that this binary gets from its file and does not need. Called before
/// anything else, while there is one thread.
///
/// # Errors
/// If the kernel does not allow it. Then no file that the user names may be opened.
pub fn give_up() -> io::Result<()> {
    // Capabilities that the user has anyway (as root, or ambient ones) do not come from the file,
    // and stay.
    if !is_given_by_the_file() {
        return Ok(());
    }
    let mut sets = capabilities(None)?;
    if KEPT.contains(sets.permitted) {
        return Ok(());
    }
    sets.effective = sets.effective.intersection(KEPT);
    sets.permitted = sets.permitted.intersection(KEPT);
    sets.inheritable = sets.inheritable.intersection(KEPT);
    set_capabilities(None, sets)
}

/// Whether executing the file gave this process a capability that its caller did not have
/// (security/commoncap.c: cap_bprm_creds_from_file).
fn is_given_by_the_file() -> bool {
    // SAFETY: it only reads what the kernel has stored for this process.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

//! Capabilities that a binary has by its file: whoever starts it has them without being trusted with them.
//!
//! `setcap cap_perfmon,cap_ipc_lock+ep` lets users watch the kernel who may not do anything else. A capability by
//! which files are opened would hand out files instead: a scenario, a patch or a saved result is a path of the user's,
//! and its error quotes the text. So everything but what watching takes is given up before a path is opened.

use rustix::io;
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

/// What watching takes: events, rings of them in memory that is not swapped, the addresses of the kernel's functions. None of
/// them opens a file that its user may not open.
const KEPT: CapabilitySet =
    CapabilitySet::PERFMON.union(CapabilitySet::IPC_LOCK).union(CapabilitySet::SYSLOG);

/// Gives up what this binary has by its file and does not need. Called first of all, while there is one thread.
///
/// # Errors
/// The kernel does not let us. Then nothing of the user's may be opened.
pub fn give_up() -> io::Result<()> {
    // What a user has anyway (root, ambient capabilities) is not given by the file, and stays.
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

/// Whether executing the file gave its process something that who started it had not
/// (security/commoncap.c: cap_bprm_creds_from_file).
fn is_given_by_the_file() -> bool {
    // SAFETY: it reads what the kernel left for this process.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

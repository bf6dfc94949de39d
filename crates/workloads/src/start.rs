//! The first start: become a process whose every run is alike.
//!
//! The process pins itself to CPU 0 and executes itself again. So its address space has never lived
//! on another CPU (a CPU stays in `mm_cpumask` until something makes it leave), and its addresses
//! are the same in every run. Faults of the first start itself depend on its random addresses. A
//! caller that counts them too runs under `setarch --addr-no-randomize`, and writes the number of
//! rounds with equally many digits.

use crate::sys;
use crate::table::{Need, Workload};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Starts again. Returns only on failure.
pub fn again(workload: &Workload, rounds: u32, verify: bool, gate: bool) -> io::Error {
    prepare(workload).err().unwrap_or_else(|| {
        Command::new("/proc/self/exe")
            .arg0("needless-workload")
            // The arguments always have the same length, so the stack starts at the same place.
            .args(["execute", workload.name])
            .args([format!("{rounds:010}"), verify.to_string(), gate.to_string()])
            // The C library registers restartable sequences. Then the kernel writes to the thread's
            // memory whenever the thread was preempted: a fault after a fork.
            .env("GLIBC_TUNABLES", "glibc.pthread.rseq=0")
            .env("LD_BIND_NOW", "1")
            .exec()
    })
}

fn prepare(workload: &Workload) -> io::Result<()> {
    crate::numa::allow_sampling();
    // Goes to CPU 1 first: what the exec flushes of this address space depends on where it has
    // been.
    if sys::online_cpus() > 1 {
        sys::pin(1)?;
    }
    sys::pin(0)?;
    // SAFETY: personality only changes how the next exec lays out memory.
    if unsafe { libc::personality(libc::ADDR_NO_RANDOMIZE as libc::c_ulong) } == -1 {
        return Err(io::Error::last_os_error());
    }
    if !workload.needs.contains(&Need::Thp) {
        // SAFETY: prctl only sets a flag of the process; it survives exec.
        sys::check(unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0) })?;
    }
    Ok(())
}

//! System calls that are not about one area of memory.

use std::io;

/// Bytes of a base page.
pub const PAGE: usize = 4096;

/// The error of a call that returns -1 on failure.
pub fn check(status: i32) -> io::Result<()> {
    if status == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The same for calls that return a number that matters.
pub fn number(status: libc::c_long) -> io::Result<i32> {
    if status == -1 { Err(io::Error::last_os_error()) } else { Ok(status as i32) }
}

/// Pins the calling thread to a CPU.
pub fn pin(cpu: usize) -> io::Result<()> {
    let mut set = rustix::thread::CpuSet::new();
    set.set(cpu);
    Ok(rustix::thread::sched_setaffinity(None, &set)?)
}

/// CPUs that this machine has. They are taken to be numbered from 0 without gaps.
pub fn online_cpus() -> usize {
    // SAFETY: sysconf only reads.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) }).unwrap_or(1)
}

/// What the process has used so far.
#[derive(Copy, Clone, Debug, Default)]
pub struct Usage {
    /// Minor faults.
    pub minor_faults: u64,
    /// Major faults.
    pub major_faults: u64,
    /// Times that a thread lost its CPU while it could have run on.
    pub involuntary_switches: u64,
}

impl Usage {
    /// All threads of the process together.
    pub fn now() -> Usage {
        // SAFETY: rusage is plain numbers; all zero is a valid value.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: `usage` is valid for writing.
        unsafe { libc::getrusage(libc::RUSAGE_SELF, &mut usage) };
        Usage {
            minor_faults: usage.ru_minflt as u64,
            major_faults: usage.ru_majflt as u64,
            involuntary_switches: usage.ru_nivcsw as u64,
        }
    }

    /// What was used since `earlier`.
    pub fn since(self, earlier: Usage) -> Usage {
        Usage {
            minor_faults: self.minor_faults - earlier.minor_faults,
            major_faults: self.major_faults - earlier.major_faults,
            involuntary_switches: self.involuntary_switches - earlier.involuntary_switches,
        }
    }
}

/// Touches the stack below, so that it does not fault later.
#[inline(never)]
pub fn prefault_stack() {
    let mut room = [0_u8; 256 * 1024];
    for at in (0..room.len()).step_by(PAGE) {
        // SAFETY: `at` is inside the array.
        unsafe { std::ptr::write_volatile(room.as_mut_ptr().add(at), 1) };
    }
    std::hint::black_box(&room);
}

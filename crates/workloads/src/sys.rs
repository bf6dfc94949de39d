//! System calls that are not about one area of memory.

use crate::child::addresses;
use std::io;

/// The size of a base page, in bytes.
pub const PAGE: usize = 4096;

/// The error of a call that returns -1 on failure.
pub fn check(status: i32) -> io::Result<()> {
    if status == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The result of a call that returns -1 on failure, and otherwise a number.
pub fn number(status: libc::c_long) -> io::Result<i32> {
    if status == -1 { Err(io::Error::last_os_error()) } else { Ok(status as i32) }
}

/// Pins the calling thread to a CPU.
pub fn pin(cpu: usize) -> io::Result<()> {
    let mut set = rustix::thread::CpuSet::new();
    set.set(cpu);
    Ok(rustix::thread::sched_setaffinity(None, &set)?)
}

/// Gives the calling thread its CPU whenever it wants it (`SCHED_FIFO`).
pub fn real_time() -> io::Result<()> {
    let parameters = libc::sched_param { sched_priority: 50 };
    // SAFETY: the call only reads the parameters.
    check(unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameters) })
}

/// The number of CPUs of this machine. CPUs are assumed to be numbered from 0 without gaps.
pub fn online_cpus() -> usize {
    // SAFETY: sysconf only reads.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) }).unwrap_or(1)
}

/// Empties this CPU's batch of new pages, as munmap does (mm/mmap.c: unmap_region, 5.10). The batch
/// refers to each page until it is full. 5.10 copies a page with any other reference (mm/memory.c:
/// do_wp_page), for as many rounds as the batch has room. Later kernels empty it before they copy
/// (6.1, the same function).
pub fn empty_batch() -> io::Result<()> {
    // SAFETY: a new mapping that no other code knows of.
    unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let place = libc::mmap(std::ptr::null_mut(), PAGE, libc::PROT_NONE, flags, -1, 0);
        if place == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        check(libc::munmap(place, PAGE))
    }
}

/// Reads from each page of the program and its libraries that is not written to. The linker decides
/// on which pages the code of the rounds and of their end lies, and none of it may fault there.
pub fn prefault_program() -> io::Result<()> {
    let maps = std::fs::read_to_string("/proc/self/maps")?;
    for line in maps.lines() {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let [_, "r-xp" | "r--p", _, _, _, path] = words[..] else { continue };
        let Some(place) = addresses(line).filter(|_| path.starts_with('/')) else { continue };
        needless_runner::shared::visit(place, false);
    }
    Ok(())
}

//! Two ioctls of perf events that the library lacks (linux/perf_event.h; the numbers are the same on x86
//! and arm64).

use std::ffi::CStr;
use std::io;
use std::os::fd::AsRawFd;

const SET_OUTPUT: u64 = 0x2405;
const SET_FILTER: u64 = 0x4008_2406;

/// Makes an event write into another one's ring (`PERF_EVENT_IOC_SET_OUTPUT`).
pub fn set_output(event: &impl AsRawFd, ring: &impl AsRawFd) -> io::Result<()> {
    // SAFETY: both descriptors are open; the ioctl takes a descriptor by value.
    let status = unsafe { libc::ioctl(event.as_raw_fd(), SET_OUTPUT as _, ring.as_raw_fd()) };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Has a tracepoint's event take only the records that `text` says (`PERF_EVENT_IOC_SET_FILTER`).
pub fn set_filter(event: &impl AsRawFd, text: &CStr) -> io::Result<()> {
    // SAFETY: the descriptor is open, and the text ends with a zero; the kernel copies it.
    let status = unsafe { libc::ioctl(event.as_raw_fd(), SET_FILTER as _, text.as_ptr()) };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

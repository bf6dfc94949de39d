//! Two ioctls for perf events that the library of events lacks.

use perf_event_open_sys::ioctls::{SET_FILTER, SET_OUTPUT};
use std::ffi::CStr;
use std::io;
use std::os::fd::AsRawFd;

/// Makes an event write into another one's ring (`PERF_EVENT_IOC_SET_OUTPUT`).
pub fn set_output(event: &impl AsRawFd, ring: &impl AsRawFd) -> io::Result<()> {
    // SAFETY: both descriptors are open; the ioctl takes a descriptor by value.
    let status = unsafe { SET_OUTPUT(event.as_raw_fd(), ring.as_raw_fd()) };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Makes a tracepoint's event record only what passes the filter `text`
/// (`PERF_EVENT_IOC_SET_FILTER`).
pub fn set_filter(event: &impl AsRawFd, text: &CStr) -> io::Result<()> {
    // SAFETY: the descriptor is open, and the text ends with a zero. The kernel only reads it.
    let status = unsafe { SET_FILTER(event.as_raw_fd(), text.as_ptr().cast_mut()) };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

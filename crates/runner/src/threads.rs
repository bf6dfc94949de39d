//! Threads on stacks of ours, in memory that processes share.

use crate::shared;
use std::io;

/// Size of a stack.
pub const STACK: usize = 1 << 20;

/// What of it is touched beforehand: what threads touch themselves, and the thread's own data.
const TOUCHED: usize = crate::sys::STACK_TOUCHED + (64 << 10);

/// A new stack in shared memory: where it starts. Its upper end is touched.
pub fn stack() -> io::Result<*mut u8> {
    shared::memory(STACK, TOUCHED)
}

/// Starts a thread that runs `body` on a stack of shared memory, its thread-local storage included.
pub fn spawn(body: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let stack = stack()?;
    let body: Box<Box<dyn FnOnce() + Send>> = Box::new(Box::new(body));
    let body = Box::into_raw(body);
    let check = |status: i32| match status {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    };
    // SAFETY: pthread_attr_t is plain data, set up before it is used; the stack stays mapped for good; the thread takes
    // the body over.
    unsafe {
        let mut attributes: libc::pthread_attr_t = std::mem::zeroed();
        check(libc::pthread_attr_init(&mut attributes))?;
        check(libc::pthread_attr_setstack(&mut attributes, stack.cast(), STACK))?;
        let mut thread = std::mem::zeroed();
        let started = libc::pthread_create(&mut thread, &attributes, begin, body.cast());
        if started != 0 {
            drop(Box::from_raw(body));
        }
        check(started)
    }
}

extern "C" fn begin(body: *mut libc::c_void) -> *mut libc::c_void {
    // SAFETY: `spawn` made it of such a box, for this thread alone.
    let body = unsafe { Box::from_raw(body.cast::<Box<dyn FnOnce() + Send>>()) };
    body();
    std::ptr::null_mut()
}

/// Where the calling thread's thread-local storage is, as `clone` wants to be told.
#[cfg(target_arch = "x86_64")]
pub fn local_storage() -> usize {
    let pointer: usize;
    // SAFETY: the first word there is its own address (the System V ABI's supplement on thread-local storage).
    unsafe {
        std::arch::asm!("mov {}, fs:0", out(reg) pointer, options(nostack, readonly, preserves_flags));
    }
    pointer
}

/// The same for arm64.
#[cfg(target_arch = "aarch64")]
pub fn local_storage() -> usize {
    let pointer: usize;
    // SAFETY: reads a register.
    unsafe {
        std::arch::asm!("mrs {}, tpidr_el0", out(reg) pointer, options(nostack, nomem, preserves_flags));
    }
    pointer
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn a_thread_runs_on_its_stack() {
        let (tell, told) = mpsc::channel();
        spawn(move || tell.send((local_storage(), format!("{}", 6 * 7))).unwrap()).unwrap();
        let (storage, text) = told.recv().unwrap();
        assert_eq!(text, "42");
        assert_ne!(storage, local_storage());
    }
}

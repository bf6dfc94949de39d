//! Threads with stacks in memory that processes share.

use crate::shared;
use std::io;

/// Bytes of a stack.
pub const STACK: usize = 1 << 20;

/// Bytes of a stack that are touched beforehand: those that the thread touches itself, and its own
/// data.
const TOUCHED: usize = crate::sys::STACK_TOUCHED + (64 << 10);

/// Makes a new stack in shared memory, and returns its lower end. Its upper end is touched.
pub fn stack() -> io::Result<*mut u8> {
    shared::memory(STACK, TOUCHED)
}

/// Starts a thread that runs `body`. Its stack and its thread-local storage lie in shared memory.
pub fn spawn(body: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let stack = stack()?;
    let body: Box<Box<dyn FnOnce() + Send>> = Box::new(Box::new(body));
    let body = Box::into_raw(body);
    let check = |status: i32| match status {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    };
    // SAFETY: pthread_attr_t is plain data and is set up before its use. The stack stays mapped
    // until the process ends. The thread takes over the body.
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
    // SAFETY: `spawn` made the pointer from such a box, for this thread alone.
    let body = unsafe { Box::from_raw(body.cast::<Box<dyn FnOnce() + Send>>()) };
    body();
    std::ptr::null_mut()
}

/// The address of the calling thread's thread-local storage, as `clone` takes it.
#[cfg(target_arch = "x86_64")]
pub fn local_storage() -> usize {
    let pointer: usize;
    // SAFETY: the first word of the storage is its own address (System V ABI, supplement on
    // thread-local storage).
    unsafe {
        std::arch::asm!("mov {}, fs:0", out(reg) pointer, options(nostack, readonly, preserves_flags));
    }
    pointer
}

/// The address of the calling thread's thread-local storage, as `clone` takes it.
#[cfg(target_arch = "aarch64")]
pub fn local_storage() -> usize {
    let pointer: usize;
    // SAFETY: this only reads a register.
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

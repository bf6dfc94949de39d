//! A second thread that holds CPU 1 in user mode, so that flushes are sent to that CPU.
//!
//! The thread uses nothing of the standard library but its function. A thread of the standard
//! library maps and unmaps memory of its own (signal stack, heap), with flushes that depend on
//! timing.

use crate::area::Area;
use crate::sys;
use std::hint::spin_loop;
use std::io;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::SeqCst};

static ASKED: AtomicU32 = AtomicU32::new(0);
static ANSWERED: AtomicU32 = AtomicU32::new(0);
/// The address that the thread writes to after it has answered, if it is not 0.
static WRITE: AtomicUsize = AtomicUsize::new(0);
/// The address that the thread reads after it has answered, if it is not 0.
static READ: AtomicUsize = AtomicUsize::new(0);
const STOP: u32 = u32::MAX;
const REFUSED: u32 = u32::MAX - 1;

/// The second thread.
pub struct Second {
    thread: libc::pthread_t,
}

impl Second {
    /// Starts the thread and waits until it runs on its CPU.
    pub fn start() -> io::Result<Second> {
        let stack = Area::anonymous(8, 16)?;
        stack.write_all();
        // SAFETY: attributes are plain numbers, which the next call sets.
        let mut attributes: libc::pthread_attr_t = unsafe { std::mem::zeroed() };
        let mut thread = 0;
        // SAFETY: the stack stays mapped and is nobody else's.
        let status = unsafe {
            libc::pthread_attr_init(&mut attributes);
            libc::pthread_attr_setstack(&mut attributes, stack.pointer(), stack.bytes());
            libc::pthread_create(&mut thread, &attributes, hold, std::ptr::null_mut())
        };
        if status != 0 {
            return Err(io::Error::from_raw_os_error(status));
        }
        ASKED.store(1, SeqCst);
        loop {
            match ANSWERED.load(SeqCst) {
                1 => return Ok(Second { thread }),
                REFUSED => return Err(io::Error::other("the second thread could not have CPU 1")),
                _ => std::thread::yield_now(),
            }
        }
    }

    /// Waits until the thread has answered. It answers only in user mode on its CPU.
    #[inline]
    pub fn meet(&self) {
        let number = ASKED.load(SeqCst).wrapping_add(1) & (STOP >> 1);
        ASKED.store(number, SeqCst);
        while ANSWERED.load(SeqCst) != number {
            spin_loop();
        }
    }

    /// Waits for the answer. Then the thread writes to a page, at the same time as the caller if
    /// that does so too. At the next meeting it has written.
    #[inline]
    pub fn meet_to_write(&self, page: usize) {
        WRITE.store(page, SeqCst);
        self.meet();
    }

    /// Waits for the answer. Then the thread reads a page.
    #[inline]
    pub fn meet_to_read(&self, page: usize) {
        READ.store(page, SeqCst);
        self.meet();
    }

    /// Ends the thread.
    pub fn stop(self) {
        ASKED.store(STOP, SeqCst);
        // SAFETY: the thread has not been joined; its result is not wanted.
        unsafe { libc::pthread_join(self.thread, std::ptr::null_mut()) };
    }
}

extern "C" fn hold(_: *mut libc::c_void) -> *mut libc::c_void {
    if sys::pin(1).is_err() {
        ANSWERED.store(REFUSED, SeqCst);
        return std::ptr::null_mut();
    }
    loop {
        match ASKED.load(SeqCst) {
            STOP => return std::ptr::null_mut(),
            number => {
                let (page, read) = (WRITE.swap(0, SeqCst), READ.swap(0, SeqCst));
                ANSWERED.store(number, SeqCst);
                if read != 0 {
                    // SAFETY: the page is an area's, in which no object lives.
                    unsafe { std::ptr::read_volatile(read as *const u8) };
                }
                if page != 0 {
                    // SAFETY: the page is an area's, in which no object lives.
                    unsafe { std::ptr::write_volatile(page as *mut u8, 1) };
                }
            }
        }
        spin_loop();
    }
}

//! A second thread that holds CPU 1 in user mode, so that flushes are sent to that CPU.

use crate::sys;
use std::hint::spin_loop;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::thread::JoinHandle;

static ASKED: AtomicU32 = AtomicU32::new(0);
static ANSWERED: AtomicU32 = AtomicU32::new(0);
const STOP: u32 = u32::MAX;

/// The second thread.
pub struct Second {
    thread: JoinHandle<io::Result<()>>,
}

impl Second {
    /// Starts it and waits until it runs on its CPU.
    pub fn start() -> io::Result<Second> {
        let thread = std::thread::Builder::new().stack_size(64 * 1024).spawn(hold)?;
        let second = Second { thread };
        ASKED.store(1, SeqCst);
        while ANSWERED.load(SeqCst) != 1 {
            if second.thread.is_finished() {
                return Err(io::Error::other("the second thread could not have CPU 1"));
            }
            std::thread::yield_now();
        }
        Ok(second)
    }

    /// Waits until the thread has answered, which it only does in user mode on its CPU.
    #[inline]
    pub fn meet(&self) {
        let number = ASKED.load(SeqCst).wrapping_add(1) & (STOP >> 1);
        ASKED.store(number, SeqCst);
        while ANSWERED.load(SeqCst) != number {
            spin_loop();
        }
    }

    /// Ends it.
    pub fn stop(self) {
        ASKED.store(STOP, SeqCst);
        let _ = self.thread.join();
    }
}

fn hold() -> io::Result<()> {
    sys::pin(1)?;
    loop {
        match ASKED.load(SeqCst) {
            STOP => return Ok(()),
            number => ANSWERED.store(number, SeqCst),
        }
        spin_loop();
    }
}

//! A lock that processes may share. It lies in the memory that it guards. A thread waits for it
//! without sleeping, so the kernel has no part in it. (The standard library's locks sleep on
//! private futexes, which work in one address space only.)
//!
//! It is held for moments, and by the thread that has the turn, so a thread hardly ever waits.

use crate::wire::{Failure, FailureKind};
use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// No thread holds the lock longer than this, unless it was killed.
const PATIENCE: Duration = Duration::from_secs(10);

/// A value that one thread at a time may access.
pub struct Lock<T> {
    held: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: the value is accessed only through a guard, and there is one guard at a time.
unsafe impl<T: Send> Sync for Lock<T> {}

/// Holds the lock until it is dropped.
pub struct Guard<'a, T>(&'a Lock<T>);

impl<T> Lock<T> {
    /// Makes a lock that no thread holds.
    pub const fn new(value: T) -> Lock<T> {
        Lock { held: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// Waits until no other thread holds the lock. Ends the run if the holder is dead.
    pub fn lock(&self) -> Guard<'_, T> {
        let mut deadline = None;
        while self.held.swap(true, Ordering::Acquire) {
            let deadline = *deadline.get_or_insert_with(|| Instant::now() + PATIENCE);
            if Instant::now() > deadline {
                abandoned();
            }
            std::hint::spin_loop();
        }
        Guard(self)
    }
}

#[cold]
fn abandoned() -> ! {
    let what = "a process was killed in the middle of what others have to see whole";
    let failure = Failure::new(FailureKind::Signal, what);
    let status = i32::from(failure.exit_status());
    failure.send();
    // SAFETY: `_exit` ends the process at once; nothing in it can be trusted any more.
    unsafe { libc::_exit(status) }
}

impl<T> From<T> for Lock<T> {
    fn from(value: T) -> Lock<T> {
        Lock::new(value)
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: while this guard exists, no other thread accesses the value.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: while this guard exists, no other thread accesses the value.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    fn drop(&mut self) {
        self.0.held.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_at_a_time_has_it() {
        let lock = Lock::new(0_u64);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| (0..10_000).for_each(|_| *lock.lock() += 1));
            }
        });
        assert_eq!(*lock.lock(), 20_000);
    }
}

//! A lock that processes may share: it lies in the memory that it guards, and nobody sleeps in it, so that the
//! kernel has no part in it. (The standard library's sleep on futexes that only one address space sees.)
//!
//! It is held for moments, and by the thread that has the turn, so that hardly anybody ever waits.

use crate::wire::{Failure, FailureKind};
use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Longer nobody holds it: whoever had it was killed meanwhile.
const PATIENCE: Duration = Duration::from_secs(10);

/// Something that one at a time may have.
pub struct Lock<T> {
    held: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached through a guard alone, of which there is one at a time.
unsafe impl<T: Send> Sync for Lock<T> {}

/// It is given back when this goes.
pub struct Guard<'a, T>(&'a Lock<T>);

impl<T> Lock<T> {
    /// Nobody has it.
    pub const fn new(value: T) -> Lock<T> {
        Lock { held: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// Waits until nobody else has it. Ends the run if its holder does not live any more.
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
    // SAFETY: ends the process at once; nothing of it can be trusted any more.
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
        // SAFETY: the guard says that nobody else has it.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as for `deref`.
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

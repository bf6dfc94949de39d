//! Tests that take long, which `make test-kernels` runs: those in the module `long`.
#![allow(clippy::unwrap_used)]

mod long {
    mod arm64;
    mod boot;

    use std::sync::{Mutex, MutexGuard, PoisonError};

    /// Emulators share few CPUs, so the tests take turns.
    fn turn() -> MutexGuard<'static, ()> {
        static TURN: Mutex<()> = Mutex::new(());
        TURN.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

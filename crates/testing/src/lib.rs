//! What tests of several crates share.
//!
//! A test of a real kernel cannot always decide: the machine may lack something, or other tasks may
//! disturb every round. Such a test is neither passed nor failed. The standard harness has no third
//! result once a test runs. So the test calls [`skip!`], which notes it and returns;
//! `scripts/test.sh` subtracts the noted tests from those that the harness calls passed.
#![forbid(unsafe_code)]
#![allow(clippy::disallowed_methods, reason = "it notes what is skipped")]

pub mod foreign;
pub mod spinner;

use std::fmt::Display;
use std::fs::File;
use std::io::Write;
use std::panic::resume_unwind;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The variable that names the file in which skipped tests are noted: one line each, `TEST:
/// REASON`.
pub const SKIPPED: &str = "NEEDLESS_SKIPPED_TESTS";

/// The longest time that a test waits for anything, however busy the machine is.
const PATIENCE: Duration = Duration::from_secs(120);

/// Ends the test, or the function of a test, as skipped. It is a reason that something is missing
/// here, or that a witness found every round disturbed. A wrong result is not a reason.
#[macro_export]
macro_rules! skip {
    ($($reason:tt)*) => {{
        $crate::note_skipped(&format!($($reason)*));
        return Default::default();
    }};
}

/// Notes that the calling test is skipped.
///
/// # Panics
/// Panics if it cannot be noted: the test would count as passed.
pub fn note_skipped(reason: &str) {
    let words: Vec<&str> = reason.split_whitespace().collect();
    let current = std::thread::current();
    // The harness gives its threads the tests' names.
    let line = format!("{}: {}\n", current.name().unwrap_or("a test"), words.join(" "));
    let noted = match std::env::var_os(SKIPPED) {
        Some(path) => File::options()
            .append(true)
            .open(path)
            .and_then(|mut file| file.write_all(line.as_bytes())),
        // This bypasses the harness, which hides the output of tests that do not fail.
        None => std::io::stderr().lock().write_all(format!("skipped: {line}").as_bytes()),
    };
    assert!(noted.is_ok(), "{line}cannot be noted as skipped: {noted:?}");
}

/// The command that runs this test program again, with one ignored function and nothing else. Tests
/// that it skips do not count.
///
/// # Panics
/// Panics if this program has no name.
pub fn again(function: &str) -> Command {
    let program = std::env::current_exe();
    let mut command = Command::new(program.unwrap_or_else(|error| panic!("no name: {error}")));
    command.args(["--ignored", "--exact", "--nocapture", function]).env_remove(SKIPPED);
    command
}

/// Gives a test the machine for itself, among the tests of one file: live runs exclude each other,
/// and emulators share few CPUs. A failed test blocks no other test.
pub fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Calls `judge` for each item, on all processors, and returns the results in the order of the
/// items. A panic is passed on to the caller.
pub fn each<T: Sync, R: Send>(items: &[T], judge: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(number) else { return done };
            done.push((number, judge(item)));
        }
    };
    let workers = std::thread::available_parallelism().map_or(1, usize::from).min(items.len());
    let mut done: Vec<(usize, R)> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        let all = workers.into_iter().map(|worker| worker.join());
        all.flat_map(|done| done.unwrap_or_else(|panic| resume_unwind(panic))).collect()
    });
    done.sort_unstable_by_key(|(number, _)| *number);
    done.into_iter().map(|(_, result)| result).collect()
}

/// Waits until `look` returns something.
///
/// # Panics
/// Panics after two minutes.
pub fn until<T>(what: impl Display, mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(start.elapsed() < PATIENCE, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Waits until something holds.
///
/// # Panics
/// Panics after two minutes.
pub fn until_true(what: impl Display, mut holds: impl FnMut() -> bool) {
    until(what, || holds().then_some(()));
}

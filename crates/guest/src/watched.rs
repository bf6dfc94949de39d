//! Waits for programs that may never end by themselves, and for locks. For instance, apt waits
//! forever for a method that met a full disk.

use crate::cache::at;
use crate::error::FetchError;
use crate::guarded::Guarded;
use crate::patience::Patience;
use needless_runner::interrupt;
use std::fs::{File, TryLockError};
use std::io::{self, Read};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

/// The time between two looks at a program, or at a lock.
const LOOK: Duration = Duration::from_millis(100);

/// A disk with less free space than this counts as full, because files of a failed operation may
/// have been removed.
const FULL: u64 = 16 << 20;

/// How long a program may make no progress although it could run, on a full disk and otherwise. apt
/// gives up on an archive that does not answer after 30 s.
const PATIENCE: Limits = Limits { full: Duration::from_secs(10), idle: Duration::from_secs(180) };

#[derive(Copy, Clone)]
struct Limits {
    full: Duration,
    idle: Duration,
}

/// Runs a program that writes below `folder`, without input, and returns its errors. It is ended
/// when nothing below `folder` changes any more, and sooner if the disk is full or a signal asks
/// for an end. Time in which it only waited for a processor does not count.
pub fn run(command: &Command, folder: &Path) -> Result<Output, FetchError> {
    run_within(command, folder, PATIENCE)
}

fn run_within(command: &Command, folder: &Path, limits: Limits) -> Result<Output, FetchError> {
    let program = command.get_program().to_string_lossy().into_owned();
    let cannot = |error| FetchError::Program { program: program.clone(), error };
    let mut guarded = Guarded::start(command, Stdio::null(), None)?;
    let errors = guarded.guard().stderr.take();
    let errors = std::thread::spawn(move || {
        let mut text = Vec::new();
        let _ = errors.map(|mut stream| stream.read_to_end(&mut text));
        text
    });
    wait(guarded.guard(), &program, folder, limits)?;
    let status = guarded.guard().wait().map_err(cannot)?;
    Ok(Output { status, stdout: Vec::new(), stderr: errors.join().unwrap_or_default() })
}

fn wait(child: &mut Child, program: &str, folder: &Path, limits: Limits) -> Result<(), FetchError> {
    let mut patience = Patience::with(child.id());
    patience.set(limits.idle);
    let mut size = 0;
    loop {
        let ended = |error| FetchError::Program { program: program.to_owned(), error };
        if child.try_wait().map_err(ended)?.is_some() {
            return Ok(());
        }
        let grown = below(folder);
        if grown != size {
            size = grown;
            patience.set(limits.idle);
        }
        let idle = patience.spent();
        if idle >= limits.full && is_full(folder) {
            return Err(FetchError::Full { folder: folder.to_owned() });
        }
        if idle >= limits.idle {
            let seconds = limits.idle.as_secs();
            return Err(FetchError::Stuck { program: program.to_owned(), seconds });
        }
        interrupt::go_on()?;
        std::thread::sleep(LOOK);
    }
}

/// Waits for the lock of a file, which another process may have for minutes.
pub fn lock(file: &File, path: &Path) -> Result<(), FetchError> {
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) => interrupt::go_on()?,
            Err(TryLockError::Error(error)) => return Err(at(path)(error)),
        }
        std::thread::sleep(LOOK);
    }
}

/// Whether the disk of `folder` has almost no free space.
pub fn is_full(folder: &Path) -> bool {
    free(folder).is_some_and(|free| free < FULL)
}

/// Free bytes on the disk of `folder`.
fn free(folder: &Path) -> Option<u64> {
    let found = rustix::fs::statvfs(folder).ok()?;
    Some(found.f_bavail * found.f_frsize)
}

/// The size of all files below `folder`, in bytes.
fn below(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let size = |entry: std::fs::DirEntry| -> io::Result<u64> {
        let found = entry.metadata()?;
        Ok(if found.is_dir() { below(&entry.path()) } else { found.len() })
    };
    entries.filter_map(|entry| size(entry).ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use needless_testing::spinner::Spinner;
    use std::time::Instant;

    fn shell(script: &str, folder: &Path) -> Result<Output, FetchError> {
        shell_within(script, folder, 1)
    }

    fn shell_within(script: &str, folder: &Path, seconds: u64) -> Result<Output, FetchError> {
        let idle = Duration::from_secs(seconds);
        let limits = Limits { full: Duration::from_secs(1), idle };
        run_within(Command::new("sh").args(["-c", script]).current_dir(folder), folder, limits)
    }

    #[test]
    fn what_gets_no_further_is_ended_and_what_does_is_not() {
        if needless_runner::locate::find().is_err() {
            needless_testing::skip!("the runner is not built");
        }
        let folder = tempfile::tempdir().unwrap();
        let output = shell(
            "for n in 1 2 3 4; do sleep 0.5; echo >> x; done; echo E: no >&2; exit 3",
            folder.path(),
        );
        let output = output.unwrap();
        assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(3), &b"E: no\n"[..]));
        let start = Instant::now();
        assert!(matches!(shell("exec sleep 60", folder.path()), Err(FetchError::Stuck { .. })));
        assert!(start.elapsed() < Duration::from_secs(30));
        assert!(matches!(
            run(&Command::new("/no/such/program"), folder.path()),
            Err(FetchError::Program { .. })
        ));
    }

    /// This needs three seconds at the lowest priority, beside a program that spins, and the limit
    /// is two. (On a machine with more to do, the shell gets a larger share than its priority
    /// says.)
    #[test]
    fn what_waits_for_a_processor_is_not_ended() {
        if needless_runner::locate::find().is_err() {
            needless_testing::skip!("the runner is not built");
        }
        let folder = tempfile::tempdir().unwrap();
        let _other = Spinner::nice(0);
        let script = "exec taskset -c 0 nice -n 19 bash -c 'while [ $SECONDS -lt 3 ]; do :; done'";
        assert!(shell_within(script, folder.path(), 2).unwrap().status.success());
    }
}

//! Programs that end with the process that started them, together with all that they started. They
//! run under the runner's guard ([`needless_runner::guard`]).

use crate::error::FetchError;
use needless_runner::{guard, locate};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::fs::File;
use std::io;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};

/// Whether a program is on the path, or a file exists.
pub fn is_there(program: &str) -> bool {
    if program.starts_with('/') {
        return Path::new(program).exists();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// A program and everything that it started. All of it is killed when this is dropped, or when this
/// process ends.
pub struct Guarded {
    guard: Child,
    /// The guard's standard input. When it closes, the guard kills everything.
    lifeline: Option<ChildStdin>,
}

impl Guarded {
    /// Starts `command` with an empty standard input and `output` as its standard output.
    /// Everything that it starts has `lock` open. So no other process gets the lock while any of it
    /// runs.
    pub fn start(
        command: &Command,
        output: Stdio,
        lock: Option<&File>,
    ) -> Result<Guarded, FetchError> {
        let program = command.get_program().to_string_lossy().into_owned();
        let cannot = |error| FetchError::Program { program: program.clone(), error };
        if !is_there(&program) {
            return Err(cannot(io::ErrorKind::NotFound.into()));
        }
        let runner = locate::find().map_err(|places| FetchError::Program {
            program: locate::RUNNER.name.to_owned(),
            error: io::Error::new(io::ErrorKind::NotFound, format!("it is not in {places}")),
        })?;
        let mut guarded = Command::new(runner);
        guarded.arg(guard::GUARD_ALL).arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => guarded.env(name, value),
                None => guarded.env_remove(name),
            };
        }
        if let Some(folder) = command.get_current_dir() {
            guarded.current_dir(folder);
        }
        guarded.stdin(Stdio::piped()).stdout(output).stderr(Stdio::piped());
        // The copy is passed on, and closed as soon as the program has it.
        let handed_on = lock.map(rustix::io::dup).transpose();
        let handed_on = handed_on.map_err(|error| cannot(error.into()))?;
        let mut guard = guarded.spawn().map_err(cannot)?;
        drop(handed_on);
        kill_after(guard.id());
        let lifeline = guard.stdin.take();
        Ok(Guarded { guard, lifeline })
    }

    /// The guard's process, with its streams and its exit status.
    pub fn guard(&mut self) -> &mut Child {
        &mut self.guard
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        drop(self.lifeline.take());
        let _ = self.guard.wait();
    }
}

/// Kills what the guard leaves behind when it ends, for instance because it was killed.
fn kill_after(guard: u32) {
    let pid = i32::try_from(guard).ok().and_then(Pid::from_raw);
    let Some(process) = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()) else {
        return;
    };
    std::thread::spawn(move || {
        while poll(&mut [PollFd::new(&process, PollFlags::IN)], None)
            .is_err_and(|error| error == rustix::io::Errno::INTR)
        {}
        guard::end_group(guard);
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use needless_testing::until_true;
    use std::io::{BufRead, BufReader};

    /// Starts a shell that starts another one, which has the lock as well. Both print their process
    /// ids.
    fn started(lock: Option<&File>) -> (Guarded, Vec<String>) {
        let mut command = Command::new("sh");
        command.args(["-c", "sh -c 'echo $$; sleep 600' & echo $$; sleep 600"]);
        let mut guarded = Guarded::start(&command, Stdio::piped(), lock).unwrap();
        let output = BufReader::new(guarded.guard().stdout.take().unwrap());
        let numbers = output.lines().take(2).map(Result::unwrap).collect();
        (guarded, numbers)
    }

    fn lives(number: &String) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{number}/stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
    }

    #[test]
    fn all_ends_whoever_is_killed() {
        if locate::find().is_err() {
            needless_testing::skip!("the runner is not built");
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let lock = File::create(&path).unwrap();
        lock.lock().unwrap();
        for kills_guard in [false, true] {
            let (mut guarded, numbers) = started(Some(&lock));
            assert!(numbers.iter().all(lives), "{numbers:?}");
            if kills_guard {
                guarded.guard().kill().unwrap();
            } else {
                drop(guarded);
            }
            until_true("everything has ended", || !numbers.iter().any(lives));
        }
        // A process that still runs keeps the lock.
        let (guarded, numbers) = started(Some(&lock));
        drop(lock);
        let other = File::create(&path).unwrap();
        assert!(other.try_lock().is_err(), "what was started has the lock");
        drop(guarded);
        // The shells' own children have the lock, too. Their process ids are not known.
        until_true("everything has ended", || !numbers.iter().any(lives));
        until_true("the lock is free", || other.try_lock().is_ok());
    }
}

//! Programs that end with whoever started them, with all that they started: under the runner's
//! guard ([`needless_runner::guard`]).

use crate::error::FetchError;
use needless_runner::{guard, locate};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::fs::File;
use std::io;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};

/// Whether there is such a program on the path, or such a file.
pub fn is_there(program: &str) -> bool {
    if program.starts_with('/') {
        return Path::new(program).exists();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// A program and all that it started; it is killed when this goes, or when this process ends.
pub struct Guarded {
    guard: Child,
    /// Closed, it has the guard kill everything.
    lifeline: Option<ChildStdin>,
}

impl Guarded {
    /// Starts `command` with an empty standard input; `output`: what becomes of its standard
    /// output. All that it starts has `lock` open, so that nobody else gets that lock while any of
    /// it runs.
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
        // A copy that is handed on. It goes again as soon as the program has it.
        let handed_on = lock.map(rustix::io::dup).transpose();
        let handed_on = handed_on.map_err(|error| cannot(error.into()))?;
        let mut guard = guarded.spawn().map_err(cannot)?;
        drop(handed_on);
        kill_after(guard.id());
        let lifeline = guard.stdin.take();
        Ok(Guarded { guard, lifeline })
    }

    /// The guard: its process, its streams, how it ended.
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

/// Kills what the guard leaves behind when it ends, as it does if somebody kills it.
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

    /// A shell that starts another one, which has the lock as well; both say their numbers.
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
        // Whoever still runs keeps the lock.
        let (guarded, numbers) = started(Some(&lock));
        drop(lock);
        let other = File::create(&path).unwrap();
        assert!(other.try_lock().is_err(), "what was started has the lock");
        drop(guarded);
        // The shells' own children have it, too, and are not asked for their numbers.
        until_true("everything has ended", || !numbers.iter().any(lives));
        until_true("the lock is free", || other.try_lock().is_ok());
    }
}

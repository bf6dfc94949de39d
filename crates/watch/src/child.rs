//! The command that is watched: started, held back until it is watched, given the signals that
//! we get, and waited for.

use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal};
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::thread::JoinHandle;

/// A command that waits to be let go.
pub struct Held {
    /// Its process.
    pub pid: i32,
    go: PipeWriter,
    starter: JoinHandle<io::Result<Child>>,
}

/// Starts `command` up to the point where it would execute its program, which is to ignore these
/// signals.
pub fn hold(mut command: Command, ignored: &[i32]) -> io::Result<Held> {
    let ignored = ignored.to_vec();
    let (mut waiting, go) = io::pipe()?;
    let (mut pid_read, mut pid_write): (PipeReader, PipeWriter) = io::pipe()?;
    let parent = getpid();
    let wait = move || {
        // Who is killed before it lets us go takes us with it.
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // It may have been killed already, and then nobody tells.
        if getppid() != Some(parent) {
            return Err(io::ErrorKind::NotConnected.into());
        }
        pid_write.write_all(&std::process::id().to_le_bytes())?;
        let mut word = [0];
        waiting.read_exact(&mut word)?;
        for signal in &ignored {
            // SAFETY: signal may be called between fork and exec, and nothing is to be run.
            unsafe { libc::signal(*signal, libc::SIG_IGN) };
        }
        Ok(set_parent_process_death_signal(None)?)
    };
    // SAFETY: between fork and exec only prctl, getppid, getpid, write, read and signal are called,
    // which may be.
    unsafe { command.pre_exec(wait) };
    // `spawn` returns once the program is executed, so it waits in a thread of its own.
    let starter = std::thread::spawn(move || command.spawn());
    let mut word = [0; 4];
    match pid_read.read_exact(&mut word) {
        Ok(()) => Ok(Held { pid: i32::from_le_bytes(word), go, starter }),
        // It did not get as far as telling; starting it tells why.
        Err(error) => match starter.join() {
            Ok(Err(cause)) => Err(cause),
            _ => Err(error),
        },
    }
}

impl Held {
    /// Lets it go. An error says why the program could not be executed.
    pub fn go(mut self) -> io::Result<Child> {
        self.go.write_all(&[1])?;
        self.starter.join().unwrap_or_else(|_| Err(io::Error::other("the starting thread failed")))
    }
}

/// The exit status for a program that could not be executed.
pub fn not_executed(error: &io::Error) -> u8 {
    if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_held_command_runs_when_it_is_let_go() {
        let held = hold(Command::new("true"), &[]).unwrap();
        assert!(std::fs::exists(format!("/proc/{}", held.pid)).unwrap());
        assert!(held.go().unwrap().wait().unwrap().success());
    }

    #[test]
    fn a_program_that_is_not_there_is_told() {
        let error = hold(Command::new("/no/such/program"), &[]).unwrap().go().unwrap_err();
        assert_eq!(not_executed(&error), 127);
        let error = hold(Command::new("/etc/passwd"), &[]).unwrap().go().unwrap_err();
        assert_eq!(not_executed(&error), 126);
    }
}

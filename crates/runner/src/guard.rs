//! The guard: runs one command, and kills it with everything that it started when the requester is
//! gone.
//!
//! `needless-runner --guard COMMAND…` starts the emulator of a guest, for instance. The requester
//! holds the other end of the guard's standard input. When that end closes (at the end, after an
//! error, or because the requester was killed), the guard kills the command. If the guard itself is
//! killed, the kernel kills the command (`PR_SET_PDEATHSIG`). So no order of deaths leaves the
//! command behind.
//!
//! The guard leads a process group. Everything that the command starts is in that group unless it
//! leaves it (`make` with its jobs, for instance). The guard kills the whole group. If the guard
//! itself was killed, the requester kills the group ([`end_group`]).
//!
//! With `--guard` the command gets the guard's standard output as descriptor 3, and its standard
//! error as both output and error: nothing that the command prints gets between the bytes of
//! descriptor 3. With `--guard-all` it gets both as the guard has them.

use needless_model::foreign;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, Signal};
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitCode, Stdio};

/// The exit status of a guard whose command could not be started.
pub const CANNOT_START: u8 = 127;

/// Where a command finds the guard's standard output and error.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Streams {
    /// The guard's output is descriptor 3; its error is both output and error.
    Moved,
    /// Output and error are the guard's.
    Kept,
}

/// The argument of a guard that leaves the command's streams as they are ([`Streams::Kept`]).
pub const GUARD_ALL: &str = "--guard-all";

/// Kills what is left of the group that the guard with this process id led.
pub fn end_group(guard: u32) {
    if let Some(group) = i32::try_from(guard).ok().and_then(Pid::from_raw) {
        let _ = rustix::process::kill_process_group(group, Signal::KILL);
    }
}

/// Runs `command` until it ends or standard input closes. Returns the command's exit status.
pub fn run(command: &[&str], streams: Streams) -> ExitCode {
    let _ = rustix::process::setsid();
    let mut child = match start(command, streams) {
        Ok(child) => child,
        Err(error) => {
            let name = command.first().unwrap_or(&"nothing");
            let _ = writeln!(io::stderr(), "starting {}: {error}", foreign::line(name));
            return ExitCode::from(CANNOT_START);
        }
    };
    // A command that cannot be waited for must not live on.
    if !matches!(wait(&child), Ok(Event::Ended)) {
        // The group includes the guard: nobody is left to hear how the command ended.
        end_group(std::process::id());
    }
    match child.wait() {
        Ok(status) => {
            status.code().and_then(|code| u8::try_from(code).ok()).map_or(1.into(), Into::into)
        }
        Err(_) => ExitCode::FAILURE,
    }
}

fn start(command: &[&str], streams: Streams) -> io::Result<Child> {
    let [program, arguments @ ..] = command else {
        return Err(io::Error::other("no command"));
    };
    let guard = rustix::process::getpid();
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null());
    // SAFETY: the closure makes system calls only: no allocation, no lock.
    unsafe { command.pre_exec(move || bind(guard, streams)) };
    command.spawn()
}

/// In the child: makes the kernel kill it when the guard dies, and sets up its descriptors.
fn bind(guard: Pid, streams: Streams) -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    if rustix::process::getppid() != Some(guard) {
        return Err(io::Error::other("the guard is gone"));
    }
    // SAFETY: descriptors 1 and 2 are open in every process that Rust starts; 3 becomes ours.
    if streams == Streams::Moved && unsafe { libc::dup2(1, 3) < 0 || libc::dup2(2, 1) < 0 } {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Why waiting for the command ends.
enum Event {
    /// The command has ended.
    Ended,
    /// Standard input is closed.
    Alone,
}

/// Waits until the child has ended or standard input is closed.
fn wait(child: &Child) -> io::Result<Event> {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| io::Error::other("a strange process id"))?;
    let process = rustix::process::pidfd_open(pid, PidfdFlags::empty())?;
    let requester = io::stdin();
    loop {
        let mut events = [
            PollFd::new(&process, PollFlags::IN),
            PollFd::new(&requester, PollFlags::IN | PollFlags::HUP),
        ];
        match poll(&mut events, None) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        }
        let [ended, alone] = events.map(|event| !event.revents().is_empty());
        if ended || alone {
            return Ok(if ended { Event::Ended } else { Event::Alone });
        }
    }
}

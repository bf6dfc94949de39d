//! The guard: runs one command and ends it when whoever asked for it is gone.
//!
//! `needless-runner --guard COMMAND…` is how a guest's emulator is started. The requester holds the
//! other end of the guard's standard input; when it closes (at the end, after an error, or because
//! the requester was killed), the command is killed. If the guard itself is killed, the kernel
//! kills the command (`PR_SET_PDEATHSIG`). So no order of deaths leaves it behind.
//!
//! The command gets the guard's standard output as descriptor 3, and its standard error as both
//! output and error: what it prints cannot get between the bytes of descriptor 3.

use needless_model::foreign;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, Signal};
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitCode, Stdio};

/// The status of a guard whose command could not be started.
pub const CANNOT_START: u8 = 127;

/// Runs `command` until it ends or standard input closes; gives its exit status.
pub fn run(command: &[&str]) -> ExitCode {
    let _ = rustix::process::setsid();
    let mut child = match start(command) {
        Ok(child) => child,
        Err(error) => {
            let name = command.first().unwrap_or(&"nothing");
            let _ = writeln!(io::stderr(), "starting {}: {error}", foreign::line(name));
            return ExitCode::from(CANNOT_START);
        }
    };
    // If it cannot be waited for, it must not live on.
    let _ = wait(&child);
    let _ = child.kill();
    match child.wait() {
        Ok(status) => {
            status.code().and_then(|code| u8::try_from(code).ok()).map_or(1.into(), Into::into)
        }
        Err(_) => ExitCode::FAILURE,
    }
}

fn start(command: &[&str]) -> io::Result<Child> {
    let [program, arguments @ ..] = command else {
        return Err(io::Error::other("no command"));
    };
    let guard = rustix::process::getpid();
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null());
    // SAFETY: the closure makes system calls only: no allocation, no lock.
    unsafe { command.pre_exec(move || bind(guard)) };
    command.spawn()
}

/// In the child: die with the guard, and take its descriptors as the command expects them.
fn bind(guard: Pid) -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    if rustix::process::getppid() != Some(guard) {
        return Err(io::Error::other("the guard is gone"));
    }
    // SAFETY: descriptors 1 and 2 are open in every process that Rust starts; 3 becomes ours.
    if unsafe { libc::dup2(1, 3) < 0 || libc::dup2(2, 1) < 0 } {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Returns when the child has ended or standard input is closed.
fn wait(child: &Child) -> io::Result<()> {
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
        if events.iter().any(|event| !event.revents().is_empty()) {
            return Ok(());
        }
    }
}

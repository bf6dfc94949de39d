//! Ordinary child processes, which run code of their parent's program. (Children whose faults are
//! counted run none of it: [`crate::child`].)

use rustix::process::{
    Pid, Signal, WaitOptions, getpid, getppid, kill_process, set_parent_process_death_signal,
    waitpid,
};
use std::io;

/// A child process. It ends with its parent, and when this value is dropped.
pub struct Forked(Pid);

impl Forked {
    /// Starts a child, which ends after its life. The caller must be the only thread of its
    /// process.
    pub fn begin(life: impl FnOnce()) -> io::Result<Forked> {
        let parent = getpid();
        // SAFETY: this process has no other thread that could hold a lock.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                let tied = set_parent_process_death_signal(Some(Signal::KILL));
                // The parent may have ended before the signal was set.
                if tied.is_ok() && getppid() == Some(parent) {
                    life();
                }
                // SAFETY: the process ends, and runs nothing that is the parent's to run.
                unsafe { libc::_exit(0) }
            }
            id => Pid::from_raw(id).map(Forked).ok_or_else(|| io::Error::other("no process")),
        }
    }
}

impl Drop for Forked {
    fn drop(&mut self) {
        let _ = kill_process(self.0, Signal::KILL);
        let _ = waitpid(Some(self.0), WaitOptions::empty());
    }
}

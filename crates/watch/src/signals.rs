//! Signals that we get: passed on to the command, or taken as the wish to end.

use needless_runner::interrupt::is_ignored;
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::WithOrigin;
use std::io;

/// The signals of this process, caught while this lives.
pub struct Signals {
    caught: SignalsInfo<WithOrigin>,
    interrupts: u32,
    over: bool,
    ignored: Vec<i32>,
}

impl Signals {
    /// Catches them. `SIGCHLD` only wakes whoever waits. A `SIGHUP` that is ignored stays so
    /// (`nohup`); `SIGINT` does not, since it ends watching and shells ignore it for background
    /// jobs.
    pub fn catch() -> io::Result<Signals> {
        let ignored: Vec<i32> =
            [SIGINT, SIGHUP, SIGQUIT].into_iter().filter(|signal| is_ignored(*signal)).collect();
        let signals = [SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCHLD];
        let signals = signals.iter().filter(|s| **s != SIGHUP || !ignored.contains(&SIGHUP));
        let caught = SignalsInfo::new(signals)?;
        Ok(Signals { caught, interrupts: 0, over: false, ignored })
    }

    /// Whether a signal came that asks to end.
    pub fn asked_to_end(&self) -> bool {
        self.over
    }

    /// The signals that were ignored before they were caught; a command is to ignore them as well.
    pub fn ignored(&self) -> &[i32] {
        &self.ignored
    }

    /// Passes on what came to `child`, but not what the terminal has sent to the child as well.
    /// True if watching is to end: any signal without a child, a second Ctrl-C with one.
    pub fn handle(&mut self, child: Option<i32>) -> bool {
        let mut end = false;
        for origin in self.caught.pending() {
            if origin.signal == SIGCHLD {
                continue;
            }
            self.interrupts += u32::from(matches!(origin.signal, SIGINT | SIGQUIT));
            self.over |= !matches!(origin.signal, SIGUSR1 | SIGUSR2);
            let pid = child.and_then(Pid::from_raw);
            match (pid, Signal::from_named_raw(origin.signal), &origin.process) {
                (Some(pid), Some(signal), Some(_)) => {
                    // It may just have ended.
                    let _ = kill_process(pid, signal);
                }
                (Some(_), _, _) => end |= self.interrupts > 1,
                (None, _, _) => end = true,
            }
        }
        end
    }
}

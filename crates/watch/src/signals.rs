//! Signals that we get: passed on to the command, or taken as the wish to end.

use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::WithOrigin;
use std::io;

/// The signals of this process, caught while this lives.
pub struct Signals {
    caught: SignalsInfo<WithOrigin>,
    interrupts: u32,
}

impl Signals {
    /// Catches them. `SIGCHLD` only wakes whoever waits.
    pub fn catch() -> io::Result<Signals> {
        let signals = [SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCHLD];
        Ok(Signals { caught: SignalsInfo::new(signals)?, interrupts: 0 })
    }

    /// Whether Ctrl-C came.
    pub fn interrupted(&self) -> bool {
        self.interrupts > 0
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

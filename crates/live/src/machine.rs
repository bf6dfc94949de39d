//! The machine made ready for a scenario, and made as it was again.
//!
//! All changes go through the keeper (`needless-runner --watch`). Dropping a [`Machine`] closes
//! the pipe and waits until the keeper has undone everything; if this process dies, the pipe
//! closes by itself.

use crate::child::Runner;
use crate::error::{LiveError, permission};
use needless_model::program::{Program, SwapKind, ThpMode};
use needless_runner::tracefs;
use needless_runner::wire::{self, Change, Reply};
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout};

const THP_ENABLED: &str = "/sys/kernel/mm/transparent_hugepage/enabled";
const ZSWAP_ENABLED: &str = "/sys/module/zswap/parameters/enabled";

/// The highest priority of swap space.
const HIGHEST_PRIORITY: i64 = 32767;

/// A machine made ready.
pub struct Machine {
    keeper: Child,
    requests: Option<ChildStdin>,
    replies: BufReader<ChildStdout>,
}

impl Machine {
    /// Shows tracefs, and changes nothing else.
    pub fn with_tracefs(runner: &Runner) -> Result<Machine, LiveError> {
        let mut machine = Machine::unchanged(runner)?;
        machine.show_tracefs()?;
        Ok(machine)
    }

    fn unchanged(runner: &Runner) -> Result<Machine, LiveError> {
        let mut keeper = runner.start(&["--watch"])?;
        let (requests, Some(replies)) = (keeper.stdin.take(), keeper.stdout.take()) else {
            return Err(LiveError::RunnerConfused { what: "has no pipes".to_owned() });
        };
        Ok(Machine { keeper, requests, replies: BufReader::new(replies) })
    }

    /// Takes the lock and makes the machine ready for `program`.
    pub fn prepare(runner: &Runner, program: &Program) -> Result<Machine, LiveError> {
        let mut machine = Machine::unchanged(runner)?;
        machine.lock(&program.name)?;
        if let Some(mode) = program.machine.thp {
            machine.set_thp(mode)?;
        }
        if let Some(need) = program.machine.swap {
            match need.kind {
                SwapKind::Zram => machine.add_zram(need.size_bytes)?,
            }
        }
        machine.show_tracefs()?;
        Ok(machine)
    }

    /// Has the keeper hold the events that runs record, so that one run after the other starts
    /// faster. Without the right to events there is nothing to hold, which the runs themselves say.
    pub fn hold_events(&mut self) -> Result<(), LiveError> {
        self.ask(&Change::HoldEvents).map(|_| ())
    }

    /// Has the keeper kill `child` in the end, if it still runs.
    pub fn kill_at_end(&mut self, child: &Child) -> Result<(), LiveError> {
        let pid = i32::try_from(child.id()).unwrap_or(0);
        // A runner that is over already needs no killing.
        self.ask(&Change::KillAtEnd { pid }).map(|_| ())
    }

    /// Undoes everything; what could not be undone is told.
    pub fn restore(mut self) -> Option<String> {
        self.close()
    }

    fn close(&mut self) -> Option<String> {
        drop(self.requests.take()?);
        match self.keeper.wait() {
            Ok(status) if status.success() => None,
            Ok(status) => Some(format!("the keeper could not undo everything ({status})")),
            Err(error) => Some(format!("the keeper cannot be waited for: {error}")),
        }
    }

    fn ask(&mut self, change: &Change) -> Result<Reply, LiveError> {
        let confused = |what: String| LiveError::RunnerConfused { what };
        let Some(requests) = &mut self.requests else {
            return Err(confused("as keeper is gone".to_owned()));
        };
        wire::write_message(requests, change)
            .map_err(|error| confused(format!("as keeper does not listen: {error}")))?;
        wire::read_message(&mut self.replies)
            .map_err(|error| confused(format!("as keeper cannot be understood: {error}")))?
            .ok_or_else(|| confused("as keeper stopped".to_owned()))
    }

    fn lock(&mut self, scenario: &str) -> Result<(), LiveError> {
        let path = lock_path();
        let holder = format!("process {}, scenario {scenario}", std::process::id());
        match self.ask(&Change::Lock { path: path.clone(), holder })? {
            Reply::Done { .. } => Ok(()),
            Reply::Busy { holder } => Err(LiveError::Busy { holder: format!("{holder} ({path})") }),
            Reply::Failed { what, .. } => Err(LiveError::CannotPrepare { what }),
        }
    }

    fn set_thp(&mut self, mode: ThpMode) -> Result<(), LiveError> {
        if mode == ThpMode::Never && !Path::new(THP_ENABLED).exists() {
            return Ok(());
        }
        let value = match mode {
            ThpMode::Always => "always",
            ThpMode::Madvise => "madvise",
            ThpMode::Never => "never",
        };
        self.set(THP_ENABLED, value)
    }

    fn set(&mut self, path: &str, value: &str) -> Result<(), LiveError> {
        let change = Change::Set { path: path.to_owned(), value: value.to_owned() };
        match self.ask(&change)? {
            Reply::Failed { what, errno } if permission(errno) => Err(LiveError::NotPermitted {
                what,
                remedy: format!("write `{value}` to {path} beforehand, or run as root"),
            }),
            Reply::Failed { what, .. } => Err(LiveError::CannotPrepare { what }),
            _ => Ok(()),
        }
    }

    /// Adds a zram device. zswap would sit in front of it and is switched off for the run.
    fn add_zram(&mut self, size_bytes: u64) -> Result<(), LiveError> {
        let swaps = std::fs::read_to_string("/proc/swaps").unwrap_or_default();
        if let Some(device) = rival(&swaps) {
            return Err(LiveError::NeedsSwap {
                what: format!(
                    "{device} has the highest priority already and would share the pages"
                ),
                remedy: format!("`swapoff {device}`, or give it a lower priority"),
            });
        }
        let zswap = std::fs::read_to_string(ZSWAP_ENABLED).unwrap_or_default();
        if zswap.trim() == "Y" {
            self.set(ZSWAP_ENABLED, "N")?;
        }
        match self.ask(&Change::ZramSwap { size_bytes })? {
            Reply::Failed { what, errno } if permission(errno) => Err(LiveError::NotPermitted {
                what,
                remedy: "swap space takes CAP_SYS_ADMIN: run as root".to_owned(),
            }),
            Reply::Failed { what, .. } => Err(LiveError::NeedsSwap {
                what,
                remedy: "a kernel with zram (CONFIG_ZRAM, or the zram module) is needed".to_owned(),
            }),
            _ => Ok(()),
        }
    }

    /// Mounts tracefs where it is not. Without it there are no events; the runner says so.
    fn show_tracefs(&mut self) -> Result<(), LiveError> {
        if tracefs::find().is_err() {
            let path = tracefs::PLACES[0].to_owned();
            self.ask(&Change::MountTracefs { path })?;
        }
        Ok(())
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.close();
    }
}

/// The lock that live runs share: the machine's for root, else the user's.
fn lock_path() -> String {
    let folder = if rustix::process::geteuid().is_root() {
        Some(PathBuf::from("/run/lock"))
    } else {
        std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from)
    };
    let folder = folder.filter(|folder| folder.is_dir()).unwrap_or_else(std::env::temp_dir);
    folder.join("needless.live").to_string_lossy().into_owned()
}

/// Swap space that has the highest priority already, in the text of `/proc/swaps`.
fn rival(swaps: &str) -> Option<&str> {
    swaps.lines().skip(1).find_map(|line| {
        let priority: i64 = line.split_whitespace().last()?.parse().ok()?;
        (priority >= HIGHEST_PRIORITY).then(|| line.split_whitespace().next())?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_highest_priority_is_a_rival() {
        let swaps = "Filename Type Size Used Priority\n/dev/sda1 partition 1 0 -2\n";
        assert_eq!(rival(swaps), None);
        let swaps = format!("{swaps}/dev/zram0 partition 1 0 32767\n");
        assert_eq!(rival(&swaps), Some("/dev/zram0"));
    }
}

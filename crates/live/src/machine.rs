//! Prepares the machine for a scenario, and restores it.
//!
//! All changes go through the keeper (`needless-runner --watch`). Dropping a [`Machine`] closes the
//! pipe and waits until the keeper has undone everything. If this process dies, the kernel closes
//! the pipe.

use crate::child::Runner;
use crate::error::{LiveError, permission};
use crate::leftovers::{self, lock_path};
use needless_model::program::{Mthp, Program, SwapKind, ThpMode};
use needless_runner::journal::{
    PAGE_CLUSTER, THP_ENABLED, ZSWAP_ENABLED, lacks_mthp, mthp_enabled,
};
use needless_runner::look::{Unseen, is_there, look};
use needless_runner::numa;
use needless_runner::tracefs;
use needless_runner::wire::{self, Change, Reply};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::BufReader;
use std::os::fd::{AsFd, BorrowedFd};
use std::process::{Child, ChildStdin, ChildStdout, ExitStatus};

/// The highest priority of swap space.
const HIGHEST_PRIORITY: i64 = 32767;

/// A prepared machine, with its keeper.
pub struct Machine {
    keeper: Child,
    requests: Option<ChildStdin>,
    replies: BufReader<ChildStdout>,
    /// The changes of a killed run that were undone before this one.
    undone: Vec<String>,
    /// The disk for a scenario's files.
    disk: Option<String>,
}

/// How a keeper ended too early, and what was undone in its place.
pub struct KeeperDied {
    how: ExitStatus,
    undone: Vec<String>,
    left: Vec<String>,
}

impl Machine {
    /// Mounts tracefs if necessary, and changes nothing else.
    pub fn with_tracefs(runner: &Runner) -> Result<Machine, LiveError> {
        let mut machine = Machine::unchanged(runner)?;
        // The lock keeps a list of the change. If another process holds it, that process has
        // mounted tracefs, or will.
        let holder = format!("process {}, needless doctor", std::process::id());
        let path = lock_path(leftovers::DOCTORS);
        machine.ask(&Change::Lock { path, holder })?;
        machine.show_tracefs()?;
        Ok(machine)
    }

    fn unchanged(runner: &Runner) -> Result<Machine, LiveError> {
        let mut keeper = runner.start(&["--watch"])?;
        let (requests, Some(replies)) = (keeper.stdin.take(), keeper.stdout.take()) else {
            return Err(LiveError::RunnerConfused { what: "has no pipes".to_owned() });
        };
        Ok(Machine {
            keeper,
            requests,
            replies: BufReader::new(replies),
            undone: Vec::new(),
            disk: None,
        })
    }

    /// Takes the lock and makes the machine ready for `program`.
    pub fn prepare(runner: &Runner, program: &Program) -> Result<Machine, LiveError> {
        let mut machine = Machine::unchanged(runner)?;
        machine.lock(&program.name)?;
        if let Some(mode) = program.machine.thp {
            machine.set_thp(mode)?;
        }
        if let Some(modes) = program.machine.mthp {
            if let Some(what) = lacks_mthp(&program.machine) {
                return Err(LiveError::Unsupported { what });
            }
            machine.set_mthp(modes)?;
        }
        if let Some(what) = numa::lacks(&program.machine.numa) {
            return Err(LiveError::Unsupported { what });
        }
        for setting in numa::settings(&program.machine.numa) {
            // A setting that is to be off may be missing.
            if std::path::Path::new(&setting.path).exists() {
                machine.set(&setting.path, &setting.value)?;
            }
        }
        if let Some(need) = program.machine.swap {
            match need.kind {
                SwapKind::Zram => machine.add_zram(need.size_bytes)?,
            }
        }
        if program.machine.disk {
            machine.add_disk()?;
        }
        machine.show_tracefs()?;
        Ok(machine)
    }

    /// The device of the disk for the scenario's files.
    pub fn disk(&self) -> Option<&str> {
        self.disk.as_deref()
    }

    /// Makes the keeper hold the events that runs record, so that the next runs start faster.
    /// Without the right to see events there is nothing to hold. The runs report that themselves.
    pub fn hold_events(&mut self) -> Result<(), LiveError> {
        self.ask(&Change::HoldEvents).map(|_| ())
    }

    /// Makes the keeper kill `child` at the end, if it still runs.
    pub fn kill_at_end(&mut self, child: &Child) -> Result<(), LiveError> {
        let pid = i32::try_from(child.id()).unwrap_or(0);
        // If the runner has ended already, there is nothing to kill.
        self.ask(&Change::KillAtEnd { pid }).map(|_| ())
    }

    /// The changes of a killed run that were undone before this one.
    pub fn undone_before(&self) -> &[String] {
        &self.undone
    }

    /// A descriptor that becomes readable, with end of file, when the keeper ends.
    pub fn keepers_end(&self) -> BorrowedFd<'_> {
        self.replies.get_ref().as_fd()
    }

    /// Whether the keeper ended too early. If it did, undoes what the keeper would have undone.
    pub fn died(&mut self) -> Option<KeeperDied> {
        self.requests.as_ref()?;
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let pipe = self.keepers_end();
        let closed = poll(&mut [PollFd::new(&pipe, PollFlags::empty())], Some(&now));
        if !closed.is_ok_and(|ended| ended > 0) {
            return None;
        }
        self.requests = None;
        let how = self.keeper.wait().ok()?;
        let clean = leftovers::clean();
        let failed = clean.failed.into_iter().map(|(what, error)| format!("{what}: {error}"));
        Some(KeeperDied { how, undone: clean.done, left: failed.collect() })
    }

    /// Undoes everything. Returns what could not be undone.
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
            .map_err(|error| confused(format!("as keeper does not take requests: {error}")))?;
        wire::read_message(&mut self.replies)
            .map_err(|error| confused(format!("as keeper cannot be understood: {error}")))?
            .ok_or_else(|| confused("as keeper stopped".to_owned()))
    }

    fn lock(&mut self, scenario: &str) -> Result<(), LiveError> {
        let path = lock_path(leftovers::RUNS);
        let holder = format!("process {}, scenario {scenario}", std::process::id());
        match self.ask(&Change::Lock { path: path.clone(), holder })? {
            Reply::Locked { undone } => {
                self.undone = undone;
                Ok(())
            }
            Reply::Done { .. } => Ok(()),
            Reply::Busy { holder } => Err(LiveError::Busy { holder: format!("{holder} ({path})") }),
            Reply::Failed { what, .. } => Err(LiveError::CannotPrepare { what }),
        }
    }

    fn set_thp(&mut self, mode: ThpMode) -> Result<(), LiveError> {
        let there = is_there(THP_ENABLED)
            .map_err(|unseen| LiveError::CannotPrepare { what: unseen.to_string() })?;
        if mode == ThpMode::Never && !there {
            return Ok(());
        }
        let value = match mode {
            ThpMode::Always => "always",
            ThpMode::Madvise => "madvise",
            ThpMode::Never => "never",
        };
        self.set(THP_ENABLED, value)
    }

    /// Sets the mode of each size of large folios that the kernel has.
    fn set_mthp(&mut self, modes: Mthp) -> Result<(), LiveError> {
        for (kib, mode) in modes.sizes() {
            let path = mthp_enabled(kib);
            let there = is_there(&path)
                .map_err(|unseen| LiveError::CannotPrepare { what: unseen.to_string() })?;
            if there {
                self.set(&path, mode.word())?;
            }
        }
        Ok(())
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

    fn add_disk(&mut self) -> Result<(), LiveError> {
        match self.ask(&Change::Disk)? {
            Reply::Done { device } => {
                self.disk = device;
                Ok(())
            }
            Reply::Failed { what, errno } if permission(errno) => Err(LiveError::NotPermitted {
                what,
                remedy: "run as root: the scenario's files need a disk that is made for them"
                    .to_owned(),
            }),
            Reply::Failed { what, .. } => Err(LiveError::CannotPrepare { what }),
            _ => Err(LiveError::RunnerConfused { what: "as keeper made no disk".to_owned() }),
        }
    }

    /// Adds a zram device. zswap would take the pages before it, so zswap is switched off for the
    /// run. Pages that two processes have in swap are read one at a time, like all other pages on
    /// zram.
    fn add_zram(&mut self, size_bytes: u64) -> Result<(), LiveError> {
        let unseen = |unseen: Unseen| LiveError::CannotPrepare { what: unseen.to_string() };
        let swaps = look("/proc/swaps").map_err(unseen)?.unwrap_or_default();
        if let Some(device) = rival(&swaps) {
            return Err(LiveError::NeedsSwap {
                what: format!(
                    "{device} has the highest priority already and would share the pages"
                ),
                remedy: format!("`swapoff {device}`, or give it a lower priority"),
            });
        }
        let zswap = look(ZSWAP_ENABLED).map_err(unseen)?;
        if zswap.is_some_and(|enabled| enabled.trim() == "Y") {
            self.set(ZSWAP_ENABLED, "N")?;
        }
        if look(PAGE_CLUSTER).map_err(unseen)?.is_some_and(|pages| pages.trim() != "0") {
            self.set(PAGE_CLUSTER, "0")?;
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

    /// Mounts tracefs if it is not mounted. Without it there are no events, which the runner
    /// reports.
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
        if self.died().is_none() {
            self.close();
        }
    }
}

impl From<KeeperDied> for LiveError {
    fn from(died: KeeperDied) -> LiveError {
        let list = |what: &[String]| match what {
            [] => "nothing".to_owned(),
            some => some.join(", "),
        };
        let undone = list(&died.undone);
        let left = match died.left.as_slice() {
            [] => String::new(),
            some => format!("; left behind: {}", some.join(", ")),
        };
        LiveError::KeeperDied { how: died.how.to_string(), undone: format!("{undone}{left}") }
    }
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

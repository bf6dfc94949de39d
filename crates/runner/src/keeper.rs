//! The keeper: makes changes to the machine on request. It undoes them when its standard input
//! closes, however the requester ended: returned, failed, interrupted or killed.
//!
//! It lives in a session of its own and ignores the terminal's signals. It makes the changes
//! itself, so at no moment does a change exist that nobody would undo. It undoes changes in reverse
//! order. If one cannot be undone, it still undoes the others. Changes that would outlive a killed
//! keeper are written down beforehand ([`crate::journal`]).

use crate::disk::{DISK_BYTES, make_file_system};
use crate::journal::{Failed, Journal, Made, Taken};
use crate::perf::{Place, Rings};
use crate::swap::ZramSwap;
use crate::wire::{self, Change, Reply};
use crate::zram::{DeviceError, Zram, whole_pages};
use needless_model::addr::CpuId;
use needless_model::foreign;
use rustix::mount::MountFlags;
use rustix::process::{Pid, PidfdFlags, Signal};
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::ExitCode;

/// How to undo a change.
enum Undo {
    /// Undo a change that would outlive the keeper.
    Made(Made),
    /// Close the events.
    Release(Rings),
    /// Kill the process, if it still runs.
    Kill(OwnedFd),
}

/// Serves until `requests` ends, and undoes everything.
pub fn serve(mut requests: impl Read, mut replies: impl Write) -> ExitCode {
    let _ = rustix::process::setsid();
    ignore_signals();
    let mut keeper = Keeper::default();
    while let Ok(Some(change)) = wire::read_message(&mut requests) {
        let reply = keeper.make(change).unwrap_or_else(|(what, error)| Reply::Failed {
            what: format!("{what}: {error}"),
            errno: error.raw_os_error(),
        });
        if wire::write_message(&mut replies, &reply).is_err() {
            break;
        }
    }
    keeper.undo_all()
}

/// The changes that were made so far.
#[derive(Default)]
struct Keeper {
    /// The lock, once the keeper holds it.
    journal: Option<Journal>,
    /// The holder's name, for the lock file.
    holder: String,
    undos: Vec<Undo>,
}

fn at(what: impl Into<String>) -> impl FnOnce(io::Error) -> Failed {
    move |error| (what.into(), error)
}

fn device_failed(failed: DeviceError) -> Failed {
    (failed.what, failed.error)
}

impl Keeper {
    fn make(&mut self, change: Change) -> Result<Reply, Failed> {
        let mut device = None;
        match change {
            Change::Lock { path, holder } => return self.lock(&path, &holder),
            Change::Set { path, value } => self.set(path, value)?,
            Change::MountTracefs { path } => {
                self.about_to(Made::Mounted { path: path.clone() })?;
                rustix::mount::mount("tracefs", &*path, "tracefs", MountFlags::empty(), None)
                    .map_err(|error| {
                        // The file system that is mounted there is not the keeper's.
                        self.undos.pop();
                        (format!("mounting tracefs at {path}"), error.into())
                    })?;
            }
            Change::ZramSwap { size_bytes } => device = Some(self.swap(size_bytes)?),
            Change::Disk => device = Some(self.disk()?),
            Change::HoldEvents => {
                // These events are never enabled, so they record nothing.
                let place = Place { cpu: 0, on: CpuId(0), tids: vec![0] };
                let rings = Rings::open(&[place], 1, &mut BTreeMap::new())
                    .map_err(|error| ("holding events".to_owned(), io::Error::other(error)))?;
                self.undos.push(Undo::Release(rings));
            }
            Change::KillAtEnd { pid } => {
                let found = Pid::from_raw(pid).ok_or_else(|| {
                    ("a process to kill".to_owned(), io::Error::from(io::ErrorKind::InvalidInput))
                })?;
                let process = rustix::process::pidfd_open(found, PidfdFlags::empty())
                    .map_err(|error| (format!("process {pid}"), error.into()))?;
                self.undos.retain(|undo| !matches!(undo, Undo::Kill(_)));
                self.undos.push(Undo::Kill(process));
            }
        }
        Ok(Reply::Done { device })
    }

    /// Takes the lock, and undoes what an earlier holder left behind.
    fn lock(&mut self, path: &str, holder: &str) -> Result<Reply, Failed> {
        let (mut journal, left) = match Journal::take(path)? {
            Taken::Yes(journal, left) => (journal, left),
            Taken::Busy { holder } => return Ok(Reply::Busy { holder }),
        };
        let undone = journal.undo(&left);
        if let Some((what, error)) = undone.failed.into_iter().next() {
            return Err((format!("undoing what a killed run left behind: {what}"), error));
        }
        journal.begin(holder).map_err(at(path))?;
        (self.journal, self.holder) = (Some(journal), holder.to_owned());
        Ok(Reply::Locked { undone: undone.done })
    }

    /// Writes down a change that is about to be made. The keeper undoes it even if it is not made.
    fn about_to(&mut self, made: Made) -> Result<(), Failed> {
        if let Some(journal) = &mut self.journal {
            journal.note(&made).map_err(at("the lock file"))?;
        }
        self.undos.push(Undo::Made(made));
        Ok(())
    }

    fn set(&mut self, path: String, value: String) -> Result<(), Failed> {
        let old = fs::read_to_string(&path).map_err(at(&path))?;
        let old = chosen(&old).to_owned();
        if old == value {
            return Ok(());
        }
        self.about_to(Made::Set { path: path.clone(), value: value.clone(), old })?;
        fs::write(&path, &value).map_err(at(format!("writing {value} to {path}")))
    }

    /// Adds a device without a size. `made` says how to write it down. If that fails, the device is
    /// removed again.
    fn new_device(&mut self, made: impl FnOnce(u32, bool) -> Made) -> Result<Zram, Failed> {
        let zram = Zram::hot_add().map_err(device_failed)?;
        let noted = self.about_to(made(zram.number(), zram.module_loaded()));
        if let Err(failed) = noted {
            let _ = zram.remove();
            return Err(failed);
        }
        Ok(zram)
    }

    fn swap(&mut self, size_bytes: u64) -> Result<String, Failed> {
        let zram = self.new_device(|number, module_loaded| {
            let size_bytes = whole_pages(size_bytes);
            Made::Zram { number, size_bytes, module_loaded }
        })?;
        let zram = zram.sized(size_bytes).map_err(device_failed)?;
        Ok(ZramSwap::start(zram, size_bytes).map_err(device_failed)?.device())
    }

    fn disk(&mut self) -> Result<String, Failed> {
        let zram = self.new_device(|number, module_loaded| Made::Disk {
            number,
            size_bytes: DISK_BYTES,
            module_loaded,
        })?;
        let device = zram.sized(DISK_BYTES).map_err(device_failed)?.device();
        make_file_system(Path::new(&device))
            .map_err(|why| (format!("a file system on {device}"), io::Error::other(why)))?;
        Ok(device)
    }

    /// Undoes everything, the last change first. What cannot be undone stays written down.
    fn undo_all(mut self) -> ExitCode {
        let (mut failed, mut resists) = (false, Vec::new());
        let mut complain = |(what, error): Failed| {
            failed = true;
            let what = foreign::line(&what);
            let _ = writeln!(io::stderr(), "needless-runner: cleaning up: {what}: {error}");
        };
        while let Some(undo) = self.undos.pop() {
            let outcome = match undo {
                Undo::Made(made) => {
                    let outcome = made.undo();
                    if outcome.is_err() {
                        resists.push(made);
                    }
                    outcome
                }
                Undo::Release(rings) => {
                    drop(rings);
                    continue;
                }
                Undo::Kill(process) => kill(&process),
            };
            let noted =
                self.note_left(&resists).map_err(|error| ("the lock file".to_owned(), error));
            [outcome, noted].into_iter().filter_map(Result::err).for_each(&mut complain);
        }
        if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
    }

    /// Keeps in the lock file only what is not undone yet. If this process is killed now, and
    /// somebody sets an undone value again, nobody will change it behind their back.
    fn note_left(&mut self, resists: &[Made]) -> io::Result<()> {
        let Some(journal) = &mut self.journal else { return Ok(()) };
        let open = self.undos.iter().filter_map(|undo| match undo {
            Undo::Made(made) => Some(made),
            Undo::Release(_) | Undo::Kill(_) => None,
        });
        let left: Vec<&Made> = open.chain(resists.iter().rev()).collect();
        journal.keep(&self.holder, &left)
    }
}

fn kill(process: &OwnedFd) -> Result<(), Failed> {
    match rustix::process::pidfd_send_signal(process, Signal::KILL) {
        Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
        Err(error) => Err(("killing the runner".to_owned(), error.into())),
    }
}

/// The current value in the text of a settings file: the word in brackets, or all of it.
fn chosen(text: &str) -> &str {
    match text.split_once('[').and_then(|(_, rest)| rest.split_once(']')) {
        Some((word, _)) => word,
        None => text.trim(),
    }
}

fn ignore_signals() {
    // A write beyond the limit of file sizes (`ulimit -f`) then fails like any other write.
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGPIPE, libc::SIGXFSZ] {
        // SAFETY: SIG_IGN is a valid disposition; no handler runs.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn talk(changes: &[Change]) -> Vec<Reply> {
        let mut requests = Vec::new();
        for change in changes {
            wire::write_message(&mut requests, change).unwrap();
        }
        let mut replies = Vec::new();
        serve(requests.as_slice(), &mut replies);
        let mut from = replies.as_slice();
        std::iter::from_fn(|| wire::read_message(&mut from).unwrap()).collect()
    }

    #[test]
    fn settings_come_back_when_the_requester_is_gone() {
        let folder = std::env::temp_dir().join(format!("needless-keeper-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("enabled");
        fs::write(&path, "always [madvise] never\n").unwrap();
        let path = path.to_str().unwrap().to_owned();
        let set = |value: &str| Change::Set { path: path.clone(), value: value.into() };
        let replies = talk(&[set("never"), set("never"), set("always")]);
        assert_eq!(replies, vec![Reply::Done { device: None }; 3]);
        assert_eq!(fs::read_to_string(&path).unwrap(), "madvise");
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn what_cannot_be_done_is_said() {
        let replies = talk(&[Change::Set { path: "/proc/none".into(), value: "1".into() }]);
        assert!(matches!(&replies[..], [Reply::Failed { errno: Some(libc::ENOENT), .. }]));
    }

    #[test]
    fn the_lock_tells_its_holder() {
        let path = std::env::temp_dir().join(format!("needless-lock-{}", std::process::id()));
        let path = path.to_str().unwrap().to_owned();
        let lock = |holder: &str| Change::Lock { path: path.clone(), holder: holder.into() };
        let replies = talk(&[lock("first"), lock("second")]);
        assert_eq!(replies[1], Reply::Busy { holder: "first".into() });
        assert_eq!(talk(&[lock("third")]), vec![Reply::Locked { undone: vec![] }]);
        fs::remove_file(path).unwrap();
    }
}

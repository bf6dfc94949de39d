//! The keeper: makes changes to the machine on request and undoes them when its standard input
//! closes, however the requester ended: returned, failed, interrupted or killed.
//!
//! It lives in a session of its own and ignores the terminal's signals. As it makes the changes
//! itself, there is no moment at which a change exists that nobody would undo. Changes are undone
//! in reverse order, and a failed one does not keep the others from being undone.

use crate::perf::{Place, Rings};
use crate::swap::ZramSwap;
use crate::wire::{self, Change, Reply};
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::process::{Pid, PidfdFlags, Signal};
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::process::ExitCode;

/// What it takes to undo a change.
enum Undo {
    /// Let go of the lock, and empty its file.
    Unlock(fs::File),
    /// Write the old value back.
    Restore { path: String, value: String },
    /// Unmount.
    Unmount(String),
    /// Take the swap device away.
    Swap(ZramSwap),
    /// Close the events.
    Release(Rings),
    /// Kill the process, if it still runs.
    Kill(OwnedFd),
}

/// Serves until `requests` ends; then undoes everything.
pub fn serve(mut requests: impl Read, mut replies: impl Write) -> ExitCode {
    let _ = rustix::process::setsid();
    ignore_signals();
    let mut undos = Vec::new();
    while let Ok(Some(change)) = wire::read_message(&mut requests) {
        let reply = match make(change) {
            Ok((reply, undo)) => {
                if matches!(undo, Some(Undo::Kill(_))) {
                    undos.retain(|undo| !matches!(undo, Undo::Kill(_)));
                }
                undos.extend(undo);
                reply
            }
            Err((what, error)) => {
                Reply::Failed { what: format!("{what}: {error}"), errno: error.raw_os_error() }
            }
        };
        if wire::write_message(&mut replies, &reply).is_err() {
            break;
        }
    }
    let mut status = ExitCode::SUCCESS;
    for undo in undos.into_iter().rev() {
        if let Err((what, error)) = undo.perform() {
            let _ = writeln!(io::stderr(), "needless-runner: cleaning up: {what}: {error}");
            status = ExitCode::FAILURE;
        }
    }
    status
}

/// A failure with what was being done.
type Failed = (String, io::Error);

fn at(what: impl Into<String>) -> impl FnOnce(io::Error) -> Failed {
    move |error| (what.into(), error)
}

fn make(change: Change) -> Result<(Reply, Option<Undo>), Failed> {
    let done = Reply::Done { device: None };
    match change {
        Change::Lock { path, holder } => lock(&path, &holder),
        Change::Set { path, value } => {
            let old = fs::read_to_string(&path).map_err(at(&path))?;
            let old = chosen(&old).to_owned();
            if old == value {
                return Ok((done, None));
            }
            fs::write(&path, &value).map_err(at(format!("writing {value} to {path}")))?;
            Ok((done, Some(Undo::Restore { path, value: old })))
        }
        Change::MountTracefs { path } => {
            rustix::mount::mount("tracefs", &*path, "tracefs", MountFlags::empty(), None)
                .map_err(|error| (format!("mounting tracefs at {path}"), error.into()))?;
            Ok((done, Some(Undo::Unmount(path))))
        }
        Change::ZramSwap { size_bytes } => {
            let swap = ZramSwap::add(size_bytes).map_err(|f| (f.what, f.error))?;
            Ok((Reply::Done { device: Some(swap.device()) }, Some(Undo::Swap(swap))))
        }
        Change::HoldEvents => {
            // Never enabled, they record nothing.
            let place = Place { cpu: 0, tids: vec![0] };
            let rings = Rings::open(&[place], 1, &mut BTreeMap::new())
                .map_err(|error| ("holding events".to_owned(), io::Error::other(error)))?;
            Ok((done, Some(Undo::Release(rings))))
        }
        Change::KillAtEnd { pid } => {
            let found = Pid::from_raw(pid).ok_or_else(|| {
                ("a process to kill".to_owned(), io::Error::from(io::ErrorKind::InvalidInput))
            })?;
            let process = rustix::process::pidfd_open(found, PidfdFlags::empty())
                .map_err(|error| (format!("process {pid}"), error.into()))?;
            Ok((done, Some(Undo::Kill(process))))
        }
    }
}

/// Takes the lock file; the lock is held as long as the file stays open here.
fn lock(path: &str, holder: &str) -> Result<(Reply, Option<Undo>), Failed> {
    let flags = OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file = rustix::fs::open(path, flags, Mode::from_raw_mode(0o644))
        .map_err(|error| (format!("opening {path}"), error.into()))?;
    let mut file = fs::File::from(file);
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(rustix::io::Errno::WOULDBLOCK) => {
            let holder = fs::read_to_string(path).unwrap_or_default().trim().to_owned();
            return Ok((Reply::Busy { holder }, None));
        }
        Err(error) => return Err((format!("locking {path}"), error.into())),
    }
    file.set_len(0).and_then(|()| writeln!(file, "{holder}")).map_err(at(path))?;
    Ok((Reply::Done { device: None }, Some(Undo::Unlock(file))))
}

/// The current value in the text of a settings file: the word in brackets, or all of it.
fn chosen(text: &str) -> &str {
    match text.split_once('[').and_then(|(_, rest)| rest.split_once(']')) {
        Some((word, _)) => word,
        None => text.trim(),
    }
}

impl Undo {
    fn perform(self) -> Result<(), Failed> {
        match self {
            Undo::Unlock(file) => file.set_len(0).map_err(at("the lock file")),
            Undo::Restore { path, value } => fs::write(&path, value).map_err(at(path)),
            Undo::Unmount(path) => rustix::mount::unmount(&*path, UnmountFlags::DETACH)
                .map_err(|error| (format!("unmounting {path}"), error.into())),
            Undo::Release(rings) => {
                drop(rings);
                Ok(())
            }
            Undo::Swap(swap) => swap.remove().map_err(|f| (f.what, f.error)),
            Undo::Kill(process) => {
                match rustix::process::pidfd_send_signal(&process, Signal::KILL) {
                    Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
                    Err(error) => Err(("killing the runner".to_owned(), error.into())),
                }
            }
        }
    }
}

fn ignore_signals() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGPIPE] {
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
        assert_eq!(talk(&[lock("third")]), vec![Reply::Done { device: None }]);
        fs::remove_file(path).unwrap();
    }
}

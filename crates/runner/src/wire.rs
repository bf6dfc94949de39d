//! Messages between the runner and the process that started it.
//!
//! Each message is a little-endian `u32` length and that many bytes of postcard. The runner answers
//! one [`RunRequest`] with `Hello`, any number of `Round`s, and `Done` or `Failed`. The keeper
//! answers each [`Change`] with one [`Reply`].

use needless_model::run::{Round, RunRequest, Witness};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::process::ExitCode;
use thiserror::Error;

/// The version of these messages. Both sides must have the same one.
pub const PROTOCOL_VERSION: u32 = 10;

/// The length of the longest valid message. A longer one means a damaged stream.
const LONGEST_MESSAGE: u32 = 1 << 30;

/// A message of the runner.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Message {
    /// The first message.
    Hello {
        /// [`PROTOCOL_VERSION`] of the runner.
        version: u32,
        /// The kernel's release.
        release: String,
    },
    /// One round that counts.
    Round(Round),
    /// The end of a run that succeeded.
    Done(Summary),
    /// The end of a run that failed.
    Failed(Failure),
    /// The end of a command in a guest.
    Executed(Executed),
}

/// How a command in a guest ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Executed {
    /// The exit status that a shell would give.
    pub status: u8,
    /// Its standard output.
    pub output: Vec<u8>,
    /// Its standard error.
    pub errors: Vec<u8>,
}

/// What is known at the end of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// The state of each page of the scenario, by name.
    pub final_pages: BTreeMap<String, String>,
    /// The increase of the number of page tables of the runner's process, from before the first
    /// round to the end.
    pub page_tables: Option<u64>,
    /// The witness of the run.
    pub witness: Witness,
    /// What could not be seen, with the reason.
    pub unseen: BTreeMap<String, String>,
    /// The kernel counters that moved over all rounds, and by how much.
    pub drift: BTreeMap<String, u64>,
    /// Why the runner ended before it had all rounds.
    pub gave_up: Option<String>,
}

/// The kind of a failure. Each has an exit status of its own.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FailureKind {
    /// The request cannot be read or makes no sense.
    BadRequest,
    /// The machine lacks something that the request needs, such as a CPU or an advice.
    Unsupported,
    /// A system call of the scenario failed.
    Operation,
    /// A signal ended the scenario.
    Signal,
    /// The runner itself failed.
    Internal,
}

/// Why a run failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Error)]
#[error("{what}")]
pub struct Failure {
    /// The kind of the failure.
    pub kind: FailureKind,
    /// The failure in words.
    pub what: String,
    /// The id of the operation, if one was running.
    pub op: Option<u32>,
    /// The error number, if a system call failed.
    pub errno: Option<i32>,
}

impl Failure {
    /// Makes a failure outside of operations.
    pub fn new(kind: FailureKind, what: impl Into<String>) -> Failure {
        Failure { kind, what: what.into(), op: None, errno: None }
    }

    /// Makes a failure of the runner itself, while it did `what`.
    pub fn internal(what: &str, error: &io::Error) -> Failure {
        Failure {
            kind: FailureKind::Internal,
            what: format!("{what}: {error}"),
            op: None,
            errno: error.raw_os_error(),
        }
    }

    /// Whether an operation of the program failed, and not the runner.
    pub fn is_the_programs(&self) -> bool {
        matches!(self.kind, FailureKind::Operation | FailureKind::Signal)
    }

    /// The runner's exit status after this failure.
    pub fn exit_status(&self) -> u8 {
        match self.kind {
            FailureKind::BadRequest => 2,
            FailureKind::Unsupported => 3,
            FailureKind::Operation => 4,
            FailureKind::Signal => 5,
            FailureKind::Internal => 6,
        }
    }

    /// Sends the failure to the other side, and returns the exit status.
    pub fn send(self) -> ExitCode {
        let status = self.exit_status();
        let _ = write_message(&mut io::stdout().lock(), &Message::Failed(self));
        ExitCode::from(status)
    }
}

/// A change to the machine. The keeper makes it, and undoes it at the end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Change {
    /// Takes the lock file `path` and writes `holder` into it.
    Lock {
        /// The path of the lock file.
        path: String,
        /// The name of the holder, for other users to read.
        holder: String,
    },
    /// Writes `value` to a file of /sys or /proc. It is undone by writing the old value.
    Set {
        /// The path of the file.
        path: String,
        /// The value to write.
        value: String,
    },
    /// Mounts tracefs at `path`.
    MountTracefs {
        /// The mount point.
        path: String,
    },
    /// Adds a new zram device as swap space of the highest priority.
    ZramSwap {
        /// The size of the device.
        size_bytes: u64,
    },
    /// Adds a new zram device with a file system, for files on a disk.
    Disk,
    /// Keeps an idle event of every kind that runs record open. After the last user of such an
    /// event is gone, the kernel takes tens of milliseconds to patch it out. That is too long
    /// between the runs of a batch.
    HoldEvents,
    /// Kills process `pid` at the end, if it still runs. This replaces the process that was named
    /// before, which has ended.
    KillAtEnd {
        /// The process id.
        pid: i32,
    },
}

/// The outcome of a [`Change`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    /// The change was made.
    Done {
        /// The device that was added, for [`Change::ZramSwap`] and [`Change::Disk`].
        device: Option<String>,
    },
    /// The lock is taken.
    Locked {
        /// The changes of a killed run that were undone now, in words.
        undone: Vec<String>,
    },
    /// Another process holds the lock.
    Busy {
        /// The holder, as the lock file names it.
        holder: String,
    },
    /// The change was not made.
    Failed {
        /// The failed action, in words.
        what: String,
        /// The error number, if a system call failed.
        errno: Option<i32>,
    },
}

/// Writes one message.
pub fn write_message(out: &mut impl Write, message: &impl Serialize) -> io::Result<()> {
    let body = postcard::to_stdvec(message).map_err(io::Error::other)?;
    let length = u32::try_from(body.len())
        .ok()
        .filter(|length| *length <= LONGEST_MESSAGE)
        .ok_or_else(|| io::Error::other("the message is too long"))?;
    out.write_all(&length.to_le_bytes())?;
    out.write_all(&body)?;
    out.flush()
}

/// Reads one message; `None` at the end of the stream.
pub fn read_message<T: DeserializeOwned>(from: &mut impl Read) -> io::Result<Option<T>> {
    let mut length = [0; 4];
    if from.read(&mut length[..1])? == 0 {
        return Ok(None);
    }
    from.read_exact(&mut length[1..])?;
    let length = u32::from_le_bytes(length);
    if length > LONGEST_MESSAGE {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a message is too long"));
    }
    let mut body = Vec::new();
    from.take(u64::from(length)).read_to_end(&mut body)?;
    postcard::from_bytes(&body).map(Some).map_err(io::Error::other)
}

/// Reads the request of a run.
pub fn read_request(from: &mut impl Read) -> Result<RunRequest, Failure> {
    match read_message(from) {
        Ok(Some(request)) => Ok(request),
        Ok(None) => Err(Failure::new(FailureKind::BadRequest, "there is no request")),
        Err(error) => Err(Failure::new(
            FailureKind::BadRequest,
            format!("the request cannot be read: {error}"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_survives_the_journey() {
        let message =
            Message::Failed(Failure::new(FailureKind::Operation, "munmap: Invalid argument"));
        let mut bytes = Vec::new();
        write_message(&mut bytes, &message).unwrap();
        let mut from = bytes.as_slice();
        assert_eq!(read_message::<Message>(&mut from).unwrap(), Some(message));
        assert_eq!(read_message::<Message>(&mut from).unwrap(), None);
    }

    #[test]
    fn damaged_streams_are_errors() {
        assert!(read_message::<Message>(&mut &[9, 0, 0][..]).is_err());
        assert!(read_message::<Message>(&mut &[9, 0, 0, 0, 1][..]).is_err());
        assert!(read_message::<Message>(&mut &[255, 255, 255, 255, 1][..]).is_err());
        assert_eq!(
            read_request(&mut &[][..]).map_err(|failure| failure.kind),
            Err(FailureKind::BadRequest)
        );
    }
}

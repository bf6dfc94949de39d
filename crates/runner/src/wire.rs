//! Messages between the runner and whoever started it.
//!
//! Each message is a little-endian `u32` length and that many bytes of postcard. The runner
//! answers one [`RunRequest`] with `Hello`, any number of `Round`s, and `Done` or `Failed`.
//! The keeper answers each [`Change`] with one [`Reply`].

use needless_model::run::{Round, RunRequest, Witness};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::process::ExitCode;
use thiserror::Error;

/// Version of these messages; both sides must have the same.
pub const PROTOCOL_VERSION: u32 = 10;

/// The longest message that is believed: more is a damaged stream.
const LONGEST_MESSAGE: u32 = 1 << 30;

/// What the runner says.
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
    /// The end of a run that went through.
    Done(Summary),
    /// The end of a run that did not.
    Failed(Failure),
    /// The end of a command in a guest.
    Executed(Executed),
}

/// How a command in a guest ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Executed {
    /// The exit status that a shell would give.
    pub status: u8,
    /// What it wrote to standard output.
    pub output: Vec<u8>,
    /// What it wrote to standard error.
    pub errors: Vec<u8>,
}

/// What is known at the end of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// The state of each page of the scenario, by name.
    pub final_pages: BTreeMap<String, String>,
    /// Page tables of the runner's process at the end, beyond those before the first round.
    pub page_tables: Option<u64>,
    /// How the run watched over itself.
    pub witness: Witness,
    /// What could not be seen, with the reason.
    pub unseen: BTreeMap<String, String>,
    /// Kernel counters over all rounds: what moved, by how much.
    pub drift: BTreeMap<String, u64>,
    /// Why the runner stopped before it had all rounds.
    pub gave_up: Option<String>,
}

/// Kinds of failure; each has its exit status.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FailureKind {
    /// The request cannot be read or does not make sense.
    BadRequest,
    /// The machine lacks something: a CPU, an advice.
    Unsupported,
    /// A system call of the scenario failed.
    Operation,
    /// The scenario was stopped by a signal.
    Signal,
    /// The runner's own trouble.
    Internal,
}

/// Why a run did not go through.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Error)]
#[error("{what}")]
pub struct Failure {
    /// What kind.
    pub kind: FailureKind,
    /// In words.
    pub what: String,
    /// The operation, if one was running.
    pub op: Option<u32>,
    /// The error number, if a system call failed.
    pub errno: Option<i32>,
}

impl Failure {
    /// A failure outside any operation.
    pub fn new(kind: FailureKind, what: impl Into<String>) -> Failure {
        Failure { kind, what: what.into(), op: None, errno: None }
    }

    /// The runner's own failure at `what`.
    pub fn internal(what: &str, error: &io::Error) -> Failure {
        Failure {
            kind: FailureKind::Internal,
            what: format!("{what}: {error}"),
            op: None,
            errno: error.raw_os_error(),
        }
    }

    /// Whether an operation of the program failed, and not what runs it.
    pub fn is_the_programs(&self) -> bool {
        matches!(self.kind, FailureKind::Operation | FailureKind::Signal)
    }

    /// The exit status that goes with it.
    pub fn exit_status(&self) -> u8 {
        match self.kind {
            FailureKind::BadRequest => 2,
            FailureKind::Unsupported => 3,
            FailureKind::Operation => 4,
            FailureKind::Signal => 5,
            FailureKind::Internal => 6,
        }
    }

    /// Sends it to the other side; gives the exit status.
    pub fn send(self) -> ExitCode {
        let status = self.exit_status();
        let _ = write_message(&mut io::stdout().lock(), &Message::Failed(self));
        ExitCode::from(status)
    }
}

/// A change to the machine that the keeper makes, and undoes in the end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Change {
    /// Takes the lock file `path`, writing `holder` into it.
    Lock {
        /// The file.
        path: String,
        /// Who asks, for others to read.
        holder: String,
    },
    /// Writes `value` to a file of /sys or /proc; undone by writing the old value.
    Set {
        /// The file.
        path: String,
        /// The value.
        value: String,
    },
    /// Mounts tracefs at `path`.
    MountTracefs {
        /// Where.
        path: String,
    },
    /// Adds a zram device of its own as swap space of the highest priority.
    ZramSwap {
        /// Its size.
        size_bytes: u64,
    },
    /// Adds a zram device of its own with a file system for files on a disk.
    Disk,
    /// Keeps an idle event of every kind that runs record open. The kernel takes tens of
    /// milliseconds to do without one after its last user has gone: too long between the runs of
    /// a batch.
    HoldEvents,
    /// Kills process `pid` in the end, if it still runs. One process at a time: the one that was
    /// named before is over.
    KillAtEnd {
        /// Which.
        pid: i32,
    },
}

/// What became of a [`Change`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    /// Made.
    Done {
        /// The device that was added, for [`Change::ZramSwap`] and [`Change::Disk`].
        device: Option<String>,
    },
    /// The lock is taken.
    Locked {
        /// What a killed run had left behind and was undone now, for people.
        undone: Vec<String>,
    },
    /// Somebody else holds the lock.
    Busy {
        /// Who, as they wrote.
        holder: String,
    },
    /// Not made.
    Failed {
        /// What failed.
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

/// Reads the request.
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

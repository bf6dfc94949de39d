//! Reads the files that users name.
//!
//! A device or a pipe may have no end, or may keep its reader waiting; opening one may change
//! something. So only regular files are read, and each with a bound. Files of `/proc` are regular
//! and say that they are empty. They are read to the bound, and never waited for.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

use rustix::fs::OFlags;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use thiserror::Error;

/// Why a file was not read.
#[derive(Debug, Error)]
pub enum NotRead {
    /// It is not a regular file.
    #[error("it is {0}, and only files are read")]
    NoFile(&'static str),
    /// It is larger than a file for this purpose can be.
    #[error("it has more than {}", size(*most))]
    TooLarge {
        /// The bound, in bytes.
        most: u64,
    },
    /// The system does not allow reading it, or it is not text.
    #[error("{0}")]
    Failed(io::Error),
}

impl NotRead {
    /// Whether the reason is that there is no such file.
    pub fn is_absent(&self) -> bool {
        matches!(self, NotRead::Failed(error) if error.kind() == io::ErrorKind::NotFound)
    }

    /// The reason as an error of the system.
    pub fn into_io(self) -> io::Error {
        match self {
            NotRead::Failed(error) => error,
            other => io::Error::new(io::ErrorKind::InvalidInput, other.to_string()),
        }
    }
}

fn size(bytes: u64) -> String {
    match bytes {
        _ if bytes.is_multiple_of(1 << 20) => format!("{} MiB", bytes >> 20),
        _ => format!("{bytes} bytes"),
    }
}

/// The bytes of the file at `path`, at most `most`.
pub fn read(path: &Path, most: u64) -> Result<Vec<u8>, NotRead> {
    // Opening a device may already do something.
    regular(&fs::metadata(path).map_err(NotRead::Failed)?)?;
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits() as i32).open(path);
    read_open(&mut file.map_err(NotRead::Failed)?, most)
}

/// The text of the file at `path`, at most `most` bytes.
pub fn read_text(path: &Path, most: u64) -> Result<String, NotRead> {
    text(read(path, most)?)
}

/// The rest of an open file, at most `most` bytes.
pub fn read_open(file: &mut File, most: u64) -> Result<Vec<u8>, NotRead> {
    let there = file.metadata().map_err(NotRead::Failed)?;
    regular(&there)?;
    if there.len() > most {
        return Err(NotRead::TooLarge { most });
    }
    read_from(file, most)
}

/// The rest of an open file as text, at most `most` bytes.
pub fn read_open_text(file: &mut File, most: u64) -> Result<String, NotRead> {
    text(read_open(file, most)?)
}

/// Everything that a source such as standard input gives, at most `most` bytes.
pub fn read_from(from: &mut impl Read, most: u64) -> Result<Vec<u8>, NotRead> {
    let mut bytes = Vec::new();
    // One byte more shows that there is too much. /proc/PID/pagemap gives whole words only.
    let bound = most.saturating_add(1).next_multiple_of(8);
    from.take(bound).read_to_end(&mut bytes).map_err(NotRead::Failed)?;
    match bytes.len() as u64 > most {
        true => Err(NotRead::TooLarge { most }),
        false => Ok(bytes),
    }
}

/// Bytes as text.
pub fn text(bytes: Vec<u8>) -> Result<String, NotRead> {
    let no_text = |_| io::Error::new(io::ErrorKind::InvalidData, "it is no text: not UTF-8");
    String::from_utf8(bytes).map_err(|error| NotRead::Failed(no_text(error)))
}

fn regular(there: &Metadata) -> Result<(), NotRead> {
    let kind = there.file_type();
    match kind {
        _ if kind.is_file() => Ok(()),
        _ if kind.is_dir() => Err(NotRead::NoFile("a directory")),
        _ if kind.is_fifo() => Err(NotRead::NoFile("a pipe")),
        _ if kind.is_socket() => Err(NotRead::NoFile("a socket")),
        _ => Err(NotRead::NoFile("a device")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, FileType, Mode, mknodat};

    #[test]
    fn only_files_are_read_and_only_to_the_bound() {
        let folder = tempfile::tempdir().unwrap();
        let (pipe, file) = (folder.path().join("pipe"), folder.path().join("file"));
        mknodat(CWD, &pipe, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        fs::write(&file, "12345").unwrap();
        for (path, why) in [
            (Path::new("/dev/zero"), "a device"),
            (Path::new("/dev/full"), "a device"),
            (&pipe, "a pipe"),
            (folder.path(), "a directory"),
            (Path::new("/proc/self/pagemap"), "more than 1 MiB"),
            (&folder.path().join("none"), "No such file"),
        ] {
            let error = read(path, 1 << 20).unwrap_err();
            assert!(error.to_string().contains(why), "{path:?}: {error}");
            assert_eq!(error.is_absent(), why.contains("No such"));
        }
        assert_eq!(read(&file, 5).unwrap(), b"12345");
        assert!(read(&file, 4).unwrap_err().to_string().contains("more than 4 bytes"));
        assert!(!read_text(Path::new("/proc/self/status"), 1 << 20).unwrap().is_empty());
        fs::write(&file, b"\xff").unwrap();
        assert!(read_text(&file, 4).unwrap_err().to_string().contains("no text"));
        assert!(read_from(&mut io::repeat(0), 10).is_err());
    }

    /// A kernel's log has no end, and a reader waits for more.
    #[test]
    fn nothing_is_waited_for() {
        let (done, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || done.send(read(Path::new("/proc/kmsg"), 1 << 30).is_err()));
        let told = told.recv_timeout(std::time::Duration::from_secs(30));
        assert_eq!(told, Ok(true), "it is read for good");
    }
}

//! Reading a scenario's file: only what can be one is read, and no more of it than may be there.

use crate::lex::MAX_TEXT_BYTES;
use std::fs::{self, File, FileType};
use std::io::{self, Read};
use std::os::unix::fs::FileTypeExt;

/// Why there is no text.
pub(crate) enum Error {
    /// It is not a scenario's file, for this reason.
    Refused(String),
    /// It cannot be read.
    Failed(io::Error),
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Error {
        Error::Failed(error)
    }
}

/// The text of the file at `path`.
pub(crate) fn read(path: &str) -> Result<String, Error> {
    let there = fs::metadata(path)?;
    if !there.is_file() {
        return Err(Error::Refused(format!("it is {}", kind(there.file_type()))));
    }
    if there.len() > MAX_TEXT_BYTES as u64 {
        return Err(too_long(&format!("{} bytes", there.len())));
    }
    let mut text = String::new();
    // Files of /proc say that they are empty.
    File::open(path)?.take(MAX_TEXT_BYTES as u64 + 1).read_to_string(&mut text)?;
    if text.len() > MAX_TEXT_BYTES { Err(too_long("more")) } else { Ok(text) }
}

fn too_long(size: &str) -> Error {
    Error::Refused(format!("a scenario has at most {MAX_TEXT_BYTES} bytes, and this file {size}"))
}

fn kind(file: FileType) -> &'static str {
    match file {
        file if file.is_dir() => "a directory",
        file if file.is_fifo() => "a pipe",
        file if file.is_socket() => "a socket",
        _ => "a device",
    }
}

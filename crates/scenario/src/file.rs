//! Reads a scenario's file: only a regular file of a size that a scenario may have.

use crate::lex::MAX_TEXT_BYTES;
use needless_files::{NotRead, read_text};
use std::io;
use std::path::Path;

/// Why no text could be read.
pub(crate) enum Error {
    /// The path does not name a scenario's file. The reason is in words.
    Refused(String),
    /// The file cannot be read.
    Failed(io::Error),
}

/// Reads the text of the file at `path`.
pub(crate) fn read(path: &str) -> Result<String, Error> {
    read_text(Path::new(path), MAX_TEXT_BYTES as u64).map_err(|error| match error {
        NotRead::TooLarge { .. } => Error::Refused(format!(
            "a scenario has at most {MAX_TEXT_BYTES} bytes, and this file has more"
        )),
        NotRead::NoFile(_) => Error::Refused(error.to_string()),
        NotRead::Failed(error) => Error::Failed(error),
    })
}

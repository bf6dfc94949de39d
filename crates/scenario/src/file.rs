//! Reading a scenario's file: only what can be one is read, and no more of it than may be there.

use crate::lex::MAX_TEXT_BYTES;
use needless_files::{NotRead, read_text};
use std::io;
use std::path::Path;

/// Why there is no text.
pub(crate) enum Error {
    /// It is not a scenario's file, for this reason.
    Refused(String),
    /// It cannot be read.
    Failed(io::Error),
}

/// The text of the file at `path`.
pub(crate) fn read(path: &str) -> Result<String, Error> {
    read_text(Path::new(path), MAX_TEXT_BYTES as u64).map_err(|error| match error {
        NotRead::TooLarge { .. } => Error::Refused(format!(
            "a scenario has at most {MAX_TEXT_BYTES} bytes, and this file has more"
        )),
        NotRead::NoFile(_) => Error::Refused(error.to_string()),
        NotRead::Failed(error) => Error::Failed(error),
    })
}

//! Where scenarios come from: built-in ones, files, and standard input, whose name is `-`.

use crate::failure::Failure;
use needless_files::NotRead;
use needless_scenario::{ScenarioError, Source};
use std::io::{self, ErrorKind, Read};
use std::sync::OnceLock;

/// The name of standard input.
pub const STANDARD_INPUT: &str = "-";

/// The name of standard input in problems.
const CALLED: &str = "standard input";

/// The largest size of a scenario, in bytes.
const MOST_BYTES: u64 = 1 << 20;

/// The scenario of this name.
pub fn load(name: &str) -> Result<Source, Failure> {
    if name != STANDARD_INPUT {
        return Ok(needless_scenario::load(name)?);
    }
    // Standard input can be read only once, however often its text is asked for.
    static TEXT: OnceLock<Result<String, (ErrorKind, String)>> = OnceLock::new();
    let text = TEXT.get_or_init(|| {
        read(&mut io::stdin().lock()).map_err(|error| (error.kind(), error.to_string()))
    });
    match text {
        Ok(text) => Ok(Source::new(CALLED, text).plain()?),
        Err((kind, what)) => {
            let source = io::Error::new(*kind, what.clone());
            Err(ScenarioError::Unreadable { path: CALLED.to_owned(), source }.into())
        }
    }
}

fn read(from: &mut impl Read) -> io::Result<String> {
    let bytes = needless_files::read_from(from, MOST_BYTES);
    bytes.and_then(needless_files::text).map_err(NotRead::into_io)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_end_is_refused() {
        assert_eq!(read(&mut &b"scenario"[..]).unwrap(), "scenario");
        assert!(read(&mut io::repeat(b' ')).unwrap_err().to_string().contains("1 MiB"));
        assert!(read(&mut &b"\xff"[..]).is_err());
    }
}

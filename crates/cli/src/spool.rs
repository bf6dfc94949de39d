//! Events on their way to a file. They are written as they come, and in the file a line comes
//! before them that is known only at the end.

use crate::failure::Failure;
use crate::files::{Readers, folder, write_whole};
use needless_model::run::Round;
use needless_report::compare::Ran;
use needless_report::jsonl;
use std::fs::File;
use std::io::{self, BufWriter, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// Events that wait for the line before them, in a file without a name.
pub struct Spool {
    path: PathBuf,
    file: BufWriter<File>,
    /// The first failure to write.
    error: Option<io::Error>,
}

impl Spool {
    /// A spool for the events that `path` gets at the end.
    pub fn new(path: &Path) -> Result<Spool, Failure> {
        let special = std::fs::metadata(path).is_ok_and(|there| !there.is_file());
        let file = match special {
            true => tempfile::tempfile(),
            false => tempfile::tempfile_in(folder(path)),
        };
        let file = file.map_err(|source| Failure::File { path: path.to_owned(), source })?;
        Ok(Spool { path: path.to_owned(), file: BufWriter::new(file), error: None })
    }

    /// Takes the events of a round.
    pub fn round(&mut self, target: &str, round: &Round) {
        if self.error.is_none() {
            self.error = jsonl::round(&mut self.file, target, round).err();
        }
    }

    /// Whether events could not be written.
    pub fn failed(&self) -> bool {
        self.error.is_some()
    }

    /// Why events could not be written, if so.
    pub fn failure(&mut self) -> Option<Failure> {
        let path = self.path.clone();
        self.error.take().map(|source| Failure::File { path, source })
    }

    /// The place where the next events will be.
    pub fn mark(&mut self) -> u64 {
        let at = self.file.stream_position();
        at.unwrap_or_else(|error| {
            self.error.get_or_insert(error);
            0
        })
    }

    /// Drops the events behind a mark: those of a target that failed.
    pub fn back_to(&mut self, mark: u64) {
        if self.error.is_none() {
            self.error = self.cut(mark).err();
        }
    }

    fn cut(&mut self, mark: u64) -> io::Result<()> {
        self.file.seek(SeekFrom::Start(mark))?;
        self.file.get_ref().set_len(mark)
    }

    /// Writes the file: the line that names the scenario and the targets, then all events.
    pub fn finish(mut self, scenario: &str, targets: &[&Ran]) -> Result<(), Failure> {
        let failure = |source| Failure::File { path: self.path.clone(), source };
        if let Some(error) = self.error.take() {
            return Err(failure(error));
        }
        let mut events = self.file.into_inner().map_err(|error| failure(error.into_error()))?;
        write_whole(&self.path, Readers::Owner, |mut out| {
            jsonl::header(&mut out, scenario, targets)?;
            events.seek(SeekFrom::Start(0))?;
            io::copy(&mut events, &mut out).map(drop)
        })
    }
}

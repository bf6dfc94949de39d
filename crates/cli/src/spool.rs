//! Events on their way to a file. They are written as they come, and in the file a line comes
//! before them that is known only at the end.

use crate::failure::Failure;
use crate::files::{Readers, folder, write_whole};
use needless_model::program::Program;
use needless_model::run::Round;
use needless_report::compare::Ran;
use needless_report::jsonl;
use needless_tables::{Format, Seen, TableError, Writer};
use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Seek, SeekFrom};
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

    /// Writes the file: the line that names the scenario and the targets, then all events; or a
    /// table of them, if the file's name asks for one.
    pub fn finish(mut self, program: &Program, targets: &[&Ran]) -> Result<(), Failure> {
        let failure = |source| Failure::File { path: self.path.clone(), source };
        if let Some(error) = self.error.take() {
            return Err(failure(error));
        }
        let mut events = self.file.into_inner().map_err(|error| failure(error.into_error()))?;
        events.seek(SeekFrom::Start(0)).map_err(failure)?;
        if let Some(format) = Format::of(&self.path) {
            let mut table = table(program, events, format)?;
            return write_whole(&self.path, Readers::Owner, |mut out| {
                io::copy(&mut table, &mut out).map(drop)
            });
        }
        write_whole(&self.path, Readers::Owner, |mut out| {
            jsonl::header(&mut out, &program.name, targets)?;
            io::copy(&mut events, &mut out).map(drop)
        })
    }
}

/// Events that are taken into a table at a time.
const PART: usize = 1 << 16;

/// The events as a table, in a file without a name.
fn table(program: &Program, events: File, format: Format) -> Result<File, Failure> {
    let file = tempfile::tempfile().map_err(TableError::Io)?;
    let empty = needless_tables::events(program, &[])?;
    let out = file.try_clone().map_err(TableError::Io)?;
    let mut writer = Writer::new(BufWriter::new(out), format, &empty.schema())?;
    let mut lines = BufReader::new(events).lines();
    loop {
        let part = lines.by_ref().take(PART).map(|line| jsonl::read(&line?));
        let part: Vec<jsonl::Read> = part.collect::<io::Result<_>>().map_err(TableError::Io)?;
        if part.is_empty() {
            break;
        }
        let seen = part.iter().map(|read| Seen {
            target: &read.target,
            round: read.round,
            event: read.event,
        });
        writer.write(&needless_tables::events(program, &seen.collect::<Vec<_>>())?)?;
    }
    writer.finish()?;
    let mut file = file;
    file.seek(SeekFrom::Start(0)).map_err(TableError::Io)?;
    Ok(file)
}

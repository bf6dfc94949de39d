//! `needless stat --perfetto FILE`: writes events while others are watched, and the file when its
//! tracks are known.

use crate::failure::Failure;
use crate::files::{Readers, can_write, write_whole};
use needless_report::perfetto::Perfetto;
use needless_watch::timeline::Moment;
use std::fs::File;
use std::io::{self, BufWriter, Seek};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

/// The number of events that may wait to be written. The reader of the rings waits for a place.
/// Events that it loses meanwhile are counted.
const WAITING: usize = 1 << 16;

/// A trace that is being written.
pub struct Drawing {
    path: PathBuf,
    writer: JoinHandle<io::Result<Perfetto<BufWriter<File>>>>,
}

impl Drawing {
    /// Begins a trace, and returns where to send events. The trace ends when no sender is left.
    pub fn begin(path: &Path) -> Result<(Drawing, SyncSender<Moment>), Failure> {
        can_write(path)?;
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let events = tempfile::tempfile_in(folder.unwrap_or(Path::new(".")))
            .or_else(|_| tempfile::tempfile())
            .map_err(|source| Failure::File { path: path.to_owned(), source })?;
        let (sender, moments) = sync_channel(WAITING);
        let writer = thread::spawn(move || write(events, &moments));
        Ok((Drawing { path: path.to_owned(), writer }, sender))
    }

    /// Writes the file: the tracks, then the events. It contains addresses.
    pub fn finish(self) -> Result<(), Failure> {
        let failure = |source| Failure::File { path: self.path.clone(), source };
        let ended =
            self.writer.join().unwrap_or_else(|_| Err(io::Error::other("its writer failed")));
        let (tracks, events) = ended.map_err(failure)?.finish();
        let mut events = events.into_inner().map_err(|error| failure(error.into_error()))?;
        events.rewind().map_err(failure)?;
        write_whole(&self.path, Readers::Owner, |out| {
            out.write_all(&tracks)?;
            io::copy(&mut events, out).map(drop)
        })
    }
}

fn write(events: File, moments: &Receiver<Moment>) -> io::Result<Perfetto<BufWriter<File>>> {
    let mut trace = Perfetto::new(BufWriter::new(events));
    while let Ok(moment) = moments.recv() {
        trace.add(moment)?;
    }
    Ok(trace)
}

//! Writes files: whole or not at all.
//!
//! A file has no name until it is whole. So whatever ends the writing (an error, a signal or a
//! kill) leaves the old file as it was, and nothing beside it.

use crate::failure::Failure;
use needless_model::foreign;
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use std::fs::{File, Metadata, OpenOptions, Permissions};
use std::io::{self, BufWriter, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Makes a write beyond the limit of file sizes (`ulimit -f`) an ordinary error. Unhandled, its
/// signal would end the process without a message. Commands that are started get the signal as
/// usual.
pub fn survive_size_limits() {
    // A signal that cannot be handled stays as it is.
    let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::default());
}

/// Who may read a file.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Readers {
    /// Those that the umask allows, or that could read the file that is replaced.
    Usual,
    /// Only the owner, because the file contains addresses.
    Owner,
}

impl Readers {
    fn mode(self) -> u32 {
        match self {
            Readers::Usual => 0o666,
            Readers::Owner => 0o600,
        }
    }
}

/// Writes a file whole or not at all. If the path names something other than a file (`/dev/stdout`,
/// a pipe), that is written to and not replaced.
pub fn write_whole(
    path: &Path,
    readers: Readers,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<(), Failure> {
    let failure = |source| Failure::File { path: path.to_owned(), source };
    let there = std::fs::symlink_metadata(path).ok();
    if there.as_ref().is_some_and(|there| !there.is_file()) {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(readers.mode());
        let mut out = options.open(path).map_err(failure)?;
        return write(&mut out).map_err(failure);
    }
    let written = match nameless(folder(path), readers) {
        Ok(file) => fill(&file, write, readers, there).and_then(|()| name(&file, path)),
        Err(_) => named_at_once(path, readers, there, write),
    };
    written.map_err(failure)
}

/// Writes a text whole or not at all. It passes the outer door for text that others chose, because
/// a terminal may show it some day.
pub fn write_text(path: &Path, readers: Readers, text: &str) -> Result<(), Failure> {
    let text = foreign::output(text, false);
    write_whole(path, readers, |out| out.write_all(text.as_bytes()))
}

/// A file that has no name yet. Not every file system has such files.
fn nameless(folder: &Path, readers: Readers) -> io::Result<File> {
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    let mode = Mode::from_raw_mode(readers.mode());
    Ok(File::from(rustix::fs::open(folder, flags, mode)?))
}

fn fill(
    file: &File,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    readers: Readers,
    there: Option<Metadata>,
) -> io::Result<()> {
    let mut buffered = BufWriter::new(file);
    write(&mut buffered)?;
    buffered.flush()?;
    match there.filter(|_| readers == Readers::Usual) {
        Some(there) => file.set_permissions(there.permissions()),
        None => Ok(()),
    }
}

/// Gives a file its name. Only a rename replaces an existing file, so the file takes another name
/// for a moment.
fn name(file: &File, path: &Path) -> io::Result<()> {
    let from = format!("/proc/self/fd/{}", file.as_raw_fd());
    let link = |to: &Path| {
        rustix::fs::linkat(CWD, from.as_str(), CWD, to, AtFlags::SYMLINK_FOLLOW)
            .map_err(io::Error::from)
    };
    match link(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        done => return done,
    }
    let beside = tempfile::Builder::new().prefix(".needless-").make_in(folder(path), link)?;
    beside.into_temp_path().persist(path).map_err(|error| error.error)
}

/// Writes a file where files cannot be without a name, or cannot get one later.
fn named_at_once(
    path: &Path,
    readers: Readers,
    there: Option<Metadata>,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    let permissions = Permissions::from_mode(readers.mode());
    let file = tempfile::Builder::new().permissions(permissions).tempfile_in(folder(path))?;
    fill(file.as_file(), write, readers, there)?;
    file.persist(path).map(drop).map_err(|error| error.error)
}

/// Checks that [`write_whole`] could write there now, so that a failure is reported before long
/// work. It leaves nothing behind.
pub fn can_write(path: &Path) -> Result<(), Failure> {
    let failure = |source| Failure::File { path: path.to_owned(), source };
    match std::fs::symlink_metadata(path) {
        Ok(there) if there.is_dir() => Err(failure(io::ErrorKind::IsADirectory.into())),
        // Opening a pipe would wait for its reader.
        Ok(there) if !there.is_file() => Ok(()),
        _ => can_hold(folder(path)).map_err(failure),
    }
}

/// Refuses two options that name the same file: one result would replace the other. A device or a
/// pipe takes both.
pub fn are_apart(files: &[(&str, &Path)]) -> Result<(), Failure> {
    let mut places: Vec<(&str, PathBuf)> = Vec::new();
    for &(option, path) in files {
        if std::fs::metadata(path).is_ok_and(|there| !there.is_file()) {
            continue;
        }
        let beside = || Some(folder(path).canonicalize().ok()?.join(path.file_name()?));
        let place = path.canonicalize().ok().or_else(beside).unwrap_or_else(|| path.to_owned());
        if let Some((other, _)) = places.iter().find(|(_, other)| *other == place) {
            return Err(Failure::Usage {
                message: format!("{other} and {option} name the same file"),
                help: "name different files".to_owned(),
            });
        }
        places.push((option, place));
    }
    Ok(())
}

/// Checks that files can be written into a folder that may not exist yet.
pub fn can_write_into(folder: &Path) -> Result<(), Failure> {
    let failure = |source| Failure::File { path: folder.to_owned(), source };
    let there = folder.ancestors().find(|above| above.symlink_metadata().is_ok());
    let there = there.filter(|there| !there.as_os_str().is_empty()).unwrap_or(Path::new("."));
    can_hold(there).map_err(failure)
}

fn can_hold(folder: &Path) -> io::Result<()> {
    tempfile::NamedTempFile::new_in(folder).map(drop)
}

/// The folder that a file is in.
pub fn folder(path: &Path) -> &Path {
    let folder = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    folder.unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    fn entries(folder: &Path) -> usize {
        std::fs::read_dir(folder).unwrap().count()
    }

    #[test]
    fn where_nothing_can_be_written_is_told_before() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        assert!(can_write(&path.join("report")).is_ok());
        assert!(can_write(path).is_err() && can_write(&path.join("no/report")).is_err());
        assert!(can_write_into(path).is_ok() && can_write_into(&path.join("a/b")).is_ok());
        assert_eq!(entries(path), 0, "nothing left behind");
        std::fs::write(path.join("file"), "").unwrap();
        assert!(can_write_into(&path.join("file")).is_err());
        assert!(can_write_into(&path.join("file/a")).is_err());
    }

    #[test]
    fn one_file_has_one_result() {
        let directory = tempfile::tempdir().unwrap();
        let [file, link, other] = ["file", "link", "other"].map(|name| directory.path().join(name));
        let roundabout = directory.path().join("./file");
        let apart = |second: &Path| are_apart(&[("--one", &file), ("--two", second)]).is_ok();
        assert!(!apart(&file) && !apart(&roundabout), "no file is there yet");
        std::os::unix::fs::symlink(&file, &link).unwrap();
        std::fs::write(&file, "").unwrap();
        assert!(!apart(&link) && !apart(&roundabout) && apart(&other));
        let null = Path::new("/dev/null");
        assert!(are_apart(&[("--one", null), ("--two", null)]).is_ok(), "a device takes both");
    }

    #[test]
    fn a_failed_write_leaves_the_old_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("events");
        write_whole(&path, Readers::Usual, |out| out.write_all(b"old")).unwrap();
        let failed = write_whole(&path, Readers::Usual, |out| {
            out.write_all(b"ne")?;
            Err(io::Error::other("disk full"))
        });
        assert!(matches!(failed, Err(Failure::File { .. })));
        assert_eq!(std::fs::read(&path).unwrap(), b"old");
        assert_eq!(entries(directory.path()), 1, "nothing left behind");
    }

    #[test]
    fn nothing_has_a_name_while_it_is_written() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("events");
        for text in ["first", "second"] {
            let there = entries(directory.path());
            write_whole(&path, Readers::Owner, |out| {
                out.write_all(text.as_bytes())?;
                out.flush()?;
                assert_eq!(entries(directory.path()), there);
                Ok(())
            })
            .unwrap();
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
            assert_eq!(entries(directory.path()), 1);
        }
    }

    #[test]
    fn a_file_can_have_a_name_at_once() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("events");
        named_at_once(&path, Readers::Owner, None, |out| out.write_all(b"x")).unwrap();
        assert_eq!((std::fs::read(&path).unwrap(), mode(&path)), (b"x".to_vec(), 0o600));
        let failed =
            named_at_once(&path, Readers::Owner, None, |_| Err(io::Error::other("disk full")));
        assert!(failed.is_err());
        assert_eq!(entries(directory.path()), 1, "nothing left behind");
    }

    #[test]
    fn what_is_no_file_is_not_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let (path, link) = (directory.path().join("events"), directory.path().join("link"));
        std::os::unix::fs::symlink(&path, &link).unwrap();
        write_whole(&link, Readers::Owner, |out| out.write_all(b"x")).unwrap();
        assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(std::fs::read(&path).unwrap(), b"x");
    }

    #[test]
    fn only_addresses_are_kept_from_others() {
        let directory = tempfile::tempdir().unwrap();
        let [events, plain, usual] = ["events", "plain", "usual"].map(|n| directory.path().join(n));
        std::fs::write(&usual, "").unwrap();
        write_whole(&events, Readers::Owner, |out| out.write_all(b"x")).unwrap();
        write_whole(&plain, Readers::Usual, |out| out.write_all(b"x")).unwrap();
        assert_eq!((mode(&events), mode(&plain)), (0o600, mode(&usual)));
        // A replaced file keeps its readers, unless the new one contains addresses.
        std::fs::set_permissions(&plain, Permissions::from_mode(0o640)).unwrap();
        write_whole(&plain, Readers::Usual, |out| out.write_all(b"y")).unwrap();
        assert_eq!(mode(&plain), 0o640);
        write_whole(&plain, Readers::Owner, |out| out.write_all(b"z")).unwrap();
        assert_eq!(mode(&plain), 0o600);
    }
}

//! Output: results to standard output, talk and progress to standard error.

use crate::args::Color;
use crate::failure::Failure;
use anstream::{AutoStream, ColorChoice};
use needless_report::Style;
use std::io::{IsTerminal, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Where and how to print.
pub struct Output {
    /// How results look.
    pub style: Style,
    choice: ColorChoice,
}

impl Output {
    /// Output with colour as asked for.
    pub fn new(color: Color) -> Output {
        let choice = match color {
            Color::Always => ColorChoice::Always,
            Color::Never => ColorChoice::Never,
            Color::Auto => AutoStream::choice(&std::io::stdout()),
        };
        let width = terminal_size::terminal_size().map_or(100, |(width, _)| width.0.clamp(60, 200));
        let color = !matches!(choice, ColorChoice::Never);
        Output { style: Style { color, unicode: unicode(), width }, choice }
    }

    /// Prints a result.
    pub fn result(&self, text: &str) -> Result<(), Failure> {
        let mut out = AutoStream::new(std::io::stdout().lock(), self.choice);
        out.write_all(text.as_bytes())?;
        if !text.ends_with('\n') {
            out.write_all(b"\n")?;
        }
        Ok(out.flush()?)
    }

    /// Prints a result where it does not mix with that of a command: on standard error.
    pub fn beside(&self, text: &str) -> Result<(), Failure> {
        let choice = match self.choice {
            ColorChoice::Auto => AutoStream::choice(&std::io::stderr()),
            choice => choice,
        };
        let mut out = AutoStream::new(std::io::stderr().lock(), choice);
        Ok(out.write_all(format!("\n{text}").as_bytes())?)
    }

    /// Prints a JSON document.
    pub fn json(&self, document: &serde_json::Value) -> Result<(), Failure> {
        self.result(&format!("{document:#}"))
    }

    /// Names the command that one would want next.
    pub fn next(&self, command: &str) -> Result<(), Failure> {
        self.result(&format!("\n{}", self.style.dim(format!("next: {command}"))))
    }
}

/// Whether the locale's character set is UTF-8: the first of the three that is set decides.
fn unicode() -> bool {
    let set = ["LC_ALL", "LC_CTYPE", "LANG"].iter().filter_map(|name| std::env::var(name).ok());
    let locale = set.into_iter().find(|value| !value.is_empty()).unwrap_or_default();
    let locale = locale.to_ascii_lowercase();
    locale.contains("utf-8") || locale.contains("utf8")
}

/// A progress line on standard error: only on a terminal, gone when dropped.
pub struct Progress(indicatif::ProgressBar);

impl Progress {
    /// Progress over `steps`.
    pub fn new(steps: usize) -> Progress {
        let bar = if std::io::stderr().is_terminal() {
            indicatif::ProgressBar::new(steps as u64)
        } else {
            indicatif::ProgressBar::hidden()
        };
        if let Ok(style) = indicatif::ProgressStyle::with_template("{pos}/{len} {msg} ({elapsed})")
        {
            bar.set_style(style);
        }
        Progress(bar)
    }

    /// Progress of something whose end is not known.
    pub fn spinner() -> Progress {
        let progress = Progress::new(0);
        if let Ok(style) = indicatif::ProgressStyle::with_template("{spinner} {msg} ({elapsed})") {
            progress.0.set_style(style);
        }
        progress
    }

    /// Says what is being done now.
    pub fn now(&self, what: &str) {
        self.0.set_message(what.to_owned());
        self.0.tick();
    }

    /// One step is done.
    pub fn done(&self) {
        self.0.inc(1);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// Writes a file whole or not at all, readable by its owner only: events hold addresses. What is
/// there and is no file (`/dev/stdout`, a pipe) is written to, not replaced.
pub fn write_whole(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> std::io::Result<()>,
) -> Result<(), Failure> {
    let failure = |source| Failure::File { path: path.to_owned(), source };
    if std::fs::symlink_metadata(path).is_ok_and(|there| !there.is_file()) {
        let mut options = std::fs::OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        let mut out = options.open(path).map_err(failure)?;
        return write(&mut out).map_err(failure);
    }
    let mut file = tempfile::NamedTempFile::new_in(folder(path)).map_err(failure)?;
    let mut buffered = std::io::BufWriter::new(file.as_file_mut());
    write(&mut buffered).and_then(|()| buffered.flush()).map_err(failure)?;
    drop(buffered);
    file.persist(path).map_err(|error| failure(error.error))?;
    Ok(())
}

/// Whether [`write_whole`] could write there now, told before long work: it leaves nothing behind.
pub fn can_write(path: &Path) -> Result<(), Failure> {
    let failure = |source| Failure::File { path: path.to_owned(), source };
    match std::fs::symlink_metadata(path) {
        Ok(there) if there.is_dir() => Err(failure(std::io::ErrorKind::IsADirectory.into())),
        // Opening a pipe would wait for its reader.
        Ok(there) if !there.is_file() => Ok(()),
        _ => tempfile::NamedTempFile::new_in(folder(path)).map(drop).map_err(failure),
    }
}

fn folder(path: &Path) -> &Path {
    let folder = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    folder.unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_nothing_can_be_written_is_told_before() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        assert!(can_write(&path.join("report")).is_ok());
        assert!(can_write(path).is_err() && can_write(&path.join("no/report")).is_err());
        assert_eq!(std::fs::read_dir(path).unwrap().count(), 0, "nothing left behind");
    }

    #[test]
    fn a_failed_write_leaves_the_old_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("events");
        write_whole(&path, |out| out.write_all(b"old")).unwrap();
        let failed = write_whole(&path, |out| {
            out.write_all(b"ne")?;
            Err(std::io::Error::other("disk full"))
        });
        assert!(matches!(failed, Err(Failure::File { .. })));
        assert_eq!(std::fs::read(&path).unwrap(), b"old");
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1, "nothing left behind");
    }

    #[test]
    fn what_is_no_file_is_not_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let (path, link) = (directory.path().join("events"), directory.path().join("link"));
        std::os::unix::fs::symlink(&path, &link).unwrap();
        write_whole(&link, |out| out.write_all(b"x")).unwrap();
        assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(std::fs::read(&path).unwrap(), b"x");
    }

    #[test]
    fn the_file_is_the_owners_only() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("events");
        write_whole(&path, |out| out.write_all(b"x")).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }
}

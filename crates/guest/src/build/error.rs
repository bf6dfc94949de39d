//! Why a kernel was not built.

use crate::error::FetchError;
use miette::Diagnostic;
use needless_model::foreign;
use std::path::PathBuf;
use thiserror::Error;

/// Why a kernel was not built. Nothing half is left of it.
#[derive(Debug, Error, Diagnostic)]
pub enum BuildError {
    /// The source cannot be had, or a file not be read or written.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Fetch(#[from] FetchError),
    /// A patch or a fragment of a configuration cannot be read.
    #[error("{}: {error}", foreign::path(path))]
    #[diagnostic(help(
        "name existing files with --patch and --config; nothing was fetched or compiled"
    ))]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// What is to be built is no series.
    #[error("`{}` is no series of kernels", foreign::short(text))]
    #[diagnostic(help(
        "name a series, as in `needless kernels build 6.12`; for arm64, as in 6.12/arm64"
    ))]
    Series {
        /// What was asked for.
        text: String,
    },
    /// A kernel cannot be called that.
    #[error("a kernel cannot be called `{}`", foreign::short(name))]
    #[diagnostic(help(
        "a name has up to 40 letters, digits, `+`, `-`, `.` and `~`, begins with a letter or a series (6.12+mine), and is not a series itself"
    ))]
    Name {
        /// What was asked for.
        name: String,
    },
    /// Debian has no source of the series.
    #[error("Debian's archive has no source of {}; {available}", foreign::short(series))]
    #[diagnostic(help("name one of these series"))]
    NoSource {
        /// What was asked for.
        series: String,
        /// What there is.
        available: String,
    },
    /// Programs or headers are missing.
    #[error("building a kernel needs {missing}{why}")]
    #[diagnostic(help("install them: `apt-get install {missing}`"))]
    Tools {
        /// The packages that are missing.
        missing: String,
        /// Why they could not be installed.
        why: String,
    },
    /// A patch does not apply.
    #[error("{patch} does not apply: {what}")]
    #[diagnostic(help(
        "the whole patch has to fit Debian's source of the series, with file names as git writes them (a/mm/rmap.c; `git format-patch` and `git diff --binary` do); the source was not changed"
    ))]
    Patch {
        /// Which.
        patch: String,
        /// What does not fit, and where.
        what: String,
    },
    /// A configuration is not taken.
    #[error("{fragment}: the kernel's configuration does not take {lines}")]
    #[diagnostic(help(
        "the option does not exist in this series, or an option that it depends on is not set"
    ))]
    Refused {
        /// The fragment.
        fragment: String,
        /// Its lines.
        lines: String,
    },
    /// A line of a fragment sets nothing.
    #[error("{fragment}, line {line}: `{}` sets no option", text.escape_default())]
    #[diagnostic(help(
        "write CONFIG_NAME=y, CONFIG_NAME=value or `# CONFIG_NAME is not set`; other lines begin with #"
    ))]
    Line {
        /// The fragment.
        fragment: String,
        /// Which, from 1.
        line: usize,
        /// Its beginning.
        text: String,
    },
    /// The configuration has not what guests need.
    #[error("with this configuration a guest lacks {parts}")]
    #[diagnostic(help("leave these options alone, or set what they depend on in --config"))]
    Lacks {
        /// What it lacks.
        parts: String,
    },
    /// git does not do it.
    #[error("`git {command}` in {}: {what}", foreign::path(folder))]
    #[diagnostic(help("--tree names a git tree of the kernel, --good and --bad revisions in it"))]
    Git {
        /// What git was asked for.
        command: String,
        /// Where.
        folder: PathBuf,
        /// What it says.
        what: String,
    },
    /// It does not compile.
    #[error("{what} failed: {first}")]
    #[diagnostic(help(
        "the whole output is in {}; what was compiled is kept for the next build",
        foreign::path(log)
    ))]
    Compile {
        /// What was being made.
        what: &'static str,
        /// The first error.
        first: String,
        /// Everything.
        log: PathBuf,
    },
}

impl BuildError {
    /// The exit status of a command that fails because of this.
    pub fn exit_status(&self) -> u8 {
        match self {
            BuildError::Unreadable { .. }
            | BuildError::Series { .. }
            | BuildError::Name { .. }
            | BuildError::NoSource { .. }
            | BuildError::Patch { .. }
            | BuildError::Git { .. }
            | BuildError::Refused { .. }
            | BuildError::Line { .. }
            | BuildError::Lacks { .. } => 2,
            BuildError::Fetch(_) | BuildError::Tools { .. } | BuildError::Compile { .. } => 125,
        }
    }
}

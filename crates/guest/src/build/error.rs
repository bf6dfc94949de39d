//! Why a kernel was not built.

use crate::error::FetchError;
use miette::Diagnostic;
use needless_model::foreign;
use std::path::PathBuf;
use thiserror::Error;

/// Why a kernel was not built. A failed build leaves no kernel behind.
#[derive(Debug, Error, Diagnostic)]
pub enum BuildError {
    /// The source is not available, or a file cannot be read or written.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Fetch(#[from] FetchError),
    /// A patch or a fragment of a configuration cannot be read.
    #[error("{}: {error}", foreign::path(path))]
    #[diagnostic(help(
        "name existing files with --patch and --config; nothing was fetched or compiled"
    ))]
    Unreadable {
        /// The path of the file.
        path: PathBuf,
        /// The error of the read.
        error: std::io::Error,
    },
    /// The order names no series.
    #[error("`{}` is no series of kernels", foreign::short(text))]
    #[diagnostic(help(
        "name a series, as in `needless kernels build 6.12`; for arm64, as in 6.12/arm64"
    ))]
    Series {
        /// The name in the order.
        text: String,
    },
    /// The name is not allowed for a kernel.
    #[error("a kernel cannot be called `{}`", foreign::short(name))]
    #[diagnostic(help(
        "a name has up to 40 letters, digits, `+`, `-`, `.` and `~`, begins with a letter or a series (6.12+mine), and is not a series itself"
    ))]
    Name {
        /// The name in the order.
        name: String,
    },
    /// Debian has no source of the series.
    #[error("Debian's archive has no source of {}; {available}", foreign::short(series))]
    #[diagnostic(help("name one of these series"))]
    NoSource {
        /// The series in the order.
        series: String,
        /// The series that Debian has, in words.
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
        /// The name of the patch.
        patch: String,
        /// The part that does not fit, and its place.
        what: String,
    },
    /// The kernel's configuration does not take some lines of a fragment.
    #[error("{fragment}: the kernel's configuration does not take {lines}")]
    #[diagnostic(help(
        "the option does not exist in this series, or an option that it depends on is not set"
    ))]
    Refused {
        /// The name of the fragment.
        fragment: String,
        /// The lines that were not taken.
        lines: String,
    },
    /// A line of a fragment sets nothing.
    #[error("{fragment}, line {line}: `{}` sets no option", text.escape_default())]
    #[diagnostic(help(
        "write CONFIG_NAME=y, CONFIG_NAME=value or `# CONFIG_NAME is not set`; other lines begin with #"
    ))]
    Line {
        /// The name of the fragment.
        fragment: String,
        /// The number of the line, from 1.
        line: usize,
        /// The beginning of the line.
        text: String,
    },
    /// The configuration lacks parts that guests need.
    #[error("with this configuration a guest lacks {parts}")]
    #[diagnostic(help("leave these options alone, or set what they depend on in --config"))]
    Lacks {
        /// The missing parts.
        parts: String,
    },
    /// A git command failed.
    #[error("`git {command}` in {}: {what}", foreign::path(folder))]
    #[diagnostic(help("--tree names a git tree of the kernel, --good and --bad revisions in it"))]
    Git {
        /// The git command.
        command: String,
        /// The folder it ran in.
        folder: PathBuf,
        /// git's error message.
        what: String,
    },
    /// The kernel does not compile.
    #[error("{what} failed: {first}")]
    #[diagnostic(help(
        "the whole output is in {}; what was compiled is kept for the next build",
        foreign::path(log)
    ))]
    Compile {
        /// The step that failed.
        what: &'static str,
        /// The first error in the output.
        first: String,
        /// The file with the whole output.
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

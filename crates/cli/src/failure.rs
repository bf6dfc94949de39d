//! Why the command could not do what it was asked, and the exit status that says so.

use miette::Diagnostic;
use std::path::PathBuf;
use thiserror::Error;

/// As expected.
pub const EXPECTED: u8 = 0;
/// A difference was found.
pub const DIFFERENCE: u8 = 1;
/// Usage, or a bad scenario.
pub const USAGE: u8 = 2;
/// Nothing could be decided.
pub const INCONCLUSIVE: u8 = 3;
/// Not permitted.
pub const NOT_PERMITTED: u8 = 120;
/// A kernel that cannot do this.
pub const UNSUPPORTED: u8 = 121;
/// Events were lost.
pub const EVENTS_LOST: u8 = 122;
/// Anything else.
pub const OTHER: u8 = 125;

/// Why the command failed.
#[derive(Debug, Error, Diagnostic)]
pub enum Failure {
    /// A bad scenario.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Scenario(#[from] needless_scenario::ScenarioError),
    /// A target that does not exist.
    #[error("there is no target `{name}`")]
    #[diagnostic(help(
        "targets are `live`, `kernel:SERIES[,option=value]` (any that `needless kernels list` shows) and `model:KERNEL[,option=value]`; KERNEL is one of {known}"
    ))]
    UnknownTarget {
        /// What was asked for.
        name: String,
        /// The model's rows.
        known: String,
    },
    /// A model row that does not exist.
    #[error("target `{name}`: {reason}")]
    #[diagnostic(help(
        "`needless policies` lists the rows, and the policies that options may set"
    ))]
    BadRow {
        /// What was asked for.
        name: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A kernel that cannot be had.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Kernels(#[from] needless_guest::FetchError),
    /// A round that was not run.
    #[error("there is no round {round}: {target} ran {rounds}, counted from 0")]
    NoSuchRound {
        /// What was asked for.
        round: u32,
        /// The target.
        target: String,
        /// What there is.
        rounds: usize,
    },
    /// Something that only makes sense otherwise.
    #[error("{message}")]
    #[diagnostic(help("{help}"))]
    Usage {
        /// What is wrong.
        message: String,
        /// The remedy.
        help: String,
    },
    /// A target that could not run.
    #[error("{target}: {reason}")]
    Target {
        /// The target.
        target: String,
        /// Why.
        reason: String,
        /// What would help.
        #[help]
        help: Option<String>,
        /// The exit status.
        status: u8,
    },
    /// A file.
    #[error("cannot write `{}`: {source}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The reader of our output went away, which is no failure of ours.
    #[error("nobody reads the output any more")]
    ReaderGone,
    /// Standard output.
    #[error("cannot write to standard output: {0}")]
    Output(std::io::Error),
}

impl Failure {
    /// The exit status that tells it.
    pub fn status(&self) -> u8 {
        match self {
            Failure::Scenario(_)
            | Failure::UnknownTarget { .. }
            | Failure::BadRow { .. }
            | Failure::NoSuchRound { .. }
            | Failure::Usage { .. } => USAGE,
            Failure::Target { status, .. } => *status,
            Failure::ReaderGone => EXPECTED,
            Failure::Kernels(_) | Failure::File { .. } | Failure::Output(_) => OTHER,
        }
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Failure {
        match error.kind() {
            std::io::ErrorKind::BrokenPipe => Failure::ReaderGone,
            _ => Failure::Output(error),
        }
    }
}

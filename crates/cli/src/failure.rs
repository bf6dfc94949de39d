//! Why the command could not do what it was asked to do, and the exit status for it.

use miette::{Diagnostic, SourceSpan};
use needless_live::limits;
use needless_model::foreign;
use std::path::PathBuf;
use thiserror::Error;

/// Everything is as expected.
pub const EXPECTED: u8 = 0;
/// A difference was found.
pub const DIFFERENCE: u8 = 1;
/// The usage or the scenario is wrong.
pub const USAGE: u8 = 2;
/// Nothing could be decided.
pub const INCONCLUSIVE: u8 = 3;
/// The system did not permit it.
pub const NOT_PERMITTED: u8 = 120;
/// The kernel cannot do this.
pub const UNSUPPORTED: u8 = 121;
/// Events were lost.
pub const EVENTS_LOST: u8 = 122;
/// Any other failure.
pub const OTHER: u8 = 125;

/// Why the command failed.
#[derive(Debug, Error, Diagnostic)]
pub enum Failure {
    /// The scenario has mistakes.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Scenario(#[from] needless_scenario::ScenarioError),
    /// No kernel can run the scenario.
    #[error("`{scenario}` is a bad scenario: {reason}")]
    #[diagnostic(help("an operation fails: see what the scenario does to its pages before that"))]
    BadScenario {
        /// The scenario's name.
        scenario: String,
        /// What fails, in words.
        reason: String,
    },
    /// There is no such target.
    #[error("there is no target `{}`", foreign::short(name))]
    #[diagnostic(help(
        "targets are `live`, `kernel:SERIES[,option=value]` (any that `needless kernels list` shows) and `model:KERNEL[,option=value]`; KERNEL is one of {known}"
    ))]
    UnknownTarget {
        /// The name that was asked for.
        name: String,
        /// The names of the model's rows.
        known: String,
    },
    /// A part of the target's name is not understood.
    #[error("{reason}")]
    #[diagnostic(help("{help}"))]
    BadTarget {
        /// What is wrong with it.
        reason: String,
        /// The remedy.
        help: String,
        /// The name that was asked for.
        #[source_code]
        name: String,
        /// The place in the name.
        #[label("here")]
        at: SourceSpan,
    },
    /// The kernel could not be fetched.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Kernels(#[from] needless_guest::FetchError),
    /// The kernel could not be built.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Build(#[from] needless_guest::BuildError),
    /// There is no such round.
    #[error("there is no round {round}: {target} ran {rounds}, counted from 0")]
    NoSuchRound {
        /// The round that was asked for.
        round: u32,
        /// The target's name.
        target: String,
        /// The number of rounds that there are.
        rounds: usize,
    },
    /// The options make no sense together.
    #[error("{}", foreign::line(message))]
    #[diagnostic(help("{help}"))]
    Usage {
        /// What is wrong.
        message: String,
        /// The remedy.
        help: String,
    },
    /// The target could not run.
    #[error("{target}: {reason}")]
    Target {
        /// The target's name.
        target: String,
        /// The reason in words.
        reason: String,
        /// What would help.
        #[help]
        help: Option<String>,
        /// The exit status.
        status: u8,
    },
    /// A file could not be read or written.
    #[error("cannot write `{}`: {}", foreign::path(path), limits::words(source))]
    File {
        /// The file's path.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// A table that could not be made, or written.
    #[error("no table: {0}")]
    Table(#[from] needless_tables::TableError),
    /// The reader of our output has gone, which is no failure of ours.
    #[error("nobody reads the output any more")]
    ReaderGone,
    /// Writing to standard output failed, or to standard error where a report goes there.
    #[error("cannot write to {stream}: {}", limits::words(source))]
    Stream {
        /// The stream's name.
        stream: &'static str,
        /// The system's error.
        source: std::io::Error,
    },
}

impl Failure {
    /// The exit status for this failure.
    pub fn status(&self) -> u8 {
        match self {
            Failure::Scenario(_)
            | Failure::BadScenario { .. }
            | Failure::UnknownTarget { .. }
            | Failure::BadTarget { .. }
            | Failure::NoSuchRound { .. }
            | Failure::Usage { .. } => USAGE,
            Failure::Target { status, .. } => *status,
            Failure::Build(error) => error.exit_status(),
            Failure::ReaderGone => EXPECTED,
            Failure::Kernels(_)
            | Failure::File { .. }
            | Failure::Table(_)
            | Failure::Stream { .. } => OTHER,
        }
    }

    /// The failure for a failed write to one of our own streams.
    pub fn of_stream(stream: &'static str, source: std::io::Error) -> Failure {
        match source.kind() {
            std::io::ErrorKind::BrokenPipe => Failure::ReaderGone,
            _ => Failure::Stream { stream, source },
        }
    }
}

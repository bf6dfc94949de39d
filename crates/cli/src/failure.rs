//! Why the command could not do what it was asked, and the exit status that says so.

use miette::{Diagnostic, SourceSpan};
use needless_live::limits;
use needless_model::foreign;
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
    /// A scenario that no kernel can run.
    #[error("`{scenario}` is a bad scenario: {reason}")]
    #[diagnostic(help("an operation fails: see what the scenario does to its pages before that"))]
    BadScenario {
        /// Its name.
        scenario: String,
        /// Why.
        reason: String,
    },
    /// A target that does not exist.
    #[error("there is no target `{}`", foreign::short(name))]
    #[diagnostic(help(
        "targets are `live`, `kernel:SERIES[,option=value]` (any that `needless kernels list` shows) and `model:KERNEL[,option=value]`; KERNEL is one of {known}"
    ))]
    UnknownTarget {
        /// What was asked for.
        name: String,
        /// The model's rows.
        known: String,
    },
    /// A target of which something is not understood.
    #[error("{reason}")]
    #[diagnostic(help("{help}"))]
    BadTarget {
        /// What is wrong with it.
        reason: String,
        /// The remedy.
        help: String,
        /// What was asked for.
        #[source_code]
        name: String,
        /// Where in it.
        #[label("here")]
        at: SourceSpan,
    },
    /// A kernel that cannot be had.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Kernels(#[from] needless_guest::FetchError),
    /// A kernel that was not built.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Build(#[from] needless_guest::BuildError),
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
    #[error("{}", foreign::line(message))]
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
    #[error("cannot write `{}`: {}", foreign::path(path), limits::words(source))]
    File {
        /// Which.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The reader of our output went away, which is no failure of ours.
    #[error("nobody reads the output any more")]
    ReaderGone,
    /// Standard output, or standard error where a report goes there.
    #[error("cannot write to {stream}: {}", limits::words(source))]
    Stream {
        /// Which.
        stream: &'static str,
        /// What the system said.
        source: std::io::Error,
    },
}

impl Failure {
    /// The exit status that tells it.
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
            Failure::Kernels(_) | Failure::File { .. } | Failure::Stream { .. } => OTHER,
        }
    }

    /// What a failed write to one of our own streams means.
    pub fn of_stream(stream: &'static str, source: std::io::Error) -> Failure {
        match source.kind() {
            std::io::ErrorKind::BrokenPipe => Failure::ReaderGone,
            _ => Failure::Stream { stream, source },
        }
    }
}

//! Why a program cannot be checked.

use crate::schedule::Schedule;
use needless_model::foreign;
use needless_model::kernels::RowError;
use needless_model::machine::world::Inconsistency;

/// Why a program cannot be checked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CheckError {
    /// It needs more pages than the checked machine has.
    #[error(
        "the scenario's areas, or its files, do not fit into the {0} pages of the checked machine"
    )]
    TooManyPages(u64),
    /// It asks for what the model does not have.
    #[error("the model has no {0}")]
    NotModelled(String),
    /// It asks for what no kernel does.
    #[error("{0}")]
    Refused(String),
    /// A thread that goes on for too long.
    #[error("thread `{thread}` does more than {most} things one after the other")]
    TooLong {
        /// The thread.
        thread: String,
        /// The most that it may do.
        most: usize,
    },
    /// An expression has no value.
    #[error(transparent)]
    Expr(#[from] Box<needless_model::program::ExprError>),
    /// The model contradicts itself.
    #[error("the model contradicts itself: {error}; `--replay {schedule}` shows the steps")]
    Inconsistent {
        /// How it contradicts itself.
        error: Inconsistency,
        /// After which steps.
        schedule: Schedule,
    },
    /// Threads that do the same turned out to be told apart. `check` starts again without symmetry
    /// then.
    #[error("threads that do the same are told apart by what can happen next")]
    Lopsided,
    /// Threads do more than they were seen to do before. `check` starts again with what they do.
    #[error("threads do more than they were seen to do before")]
    Outgrown,
    /// A checkpoint cannot be written, or gone on from.
    #[error("checkpoint {}: {why}; name another file, or remove this one to start anew", foreign::path(.file))]
    Checkpoint {
        /// The file.
        file: std::path::PathBuf,
        /// Why not.
        why: String,
    },
    /// A schedule that asks for what is not possible.
    #[error(
        "step {step} of the schedule, `{word}`, is not possible there: it belongs to another scenario, kernel row or version"
    )]
    Schedule {
        /// Which, from 1.
        step: usize,
        /// What it says.
        word: String,
    },
    /// A kernel row that does not exist.
    #[error(transparent)]
    Row(#[from] RowError),
    /// The workers could not be started.
    #[error("the workers could not be started: {0}")]
    Workers(String),
}

//! Errors of this crate, with their remedies.

use miette::Diagnostic;
use needless_runner::interrupt::Interrupted;
use needless_runner::limits::{self, NO_PROC};
pub use needless_runner::tracefs::PERFMON_REMEDY;
use needless_runner::wire::{Failure, FailureKind};
use thiserror::Error;

/// Why there is no result.
#[derive(Debug, Error, Diagnostic)]
pub enum LiveError {
    /// The runner's binary was not found.
    #[error("`needless-runner` was not found in {places}")]
    #[diagnostic(help("build it with `make build`, or name it in the variable NEEDLESS_RUNNER"))]
    RunnerMissing {
        /// The places that were searched.
        places: String,
    },
    /// `/proc` is not mounted.
    #[error("{}", NO_PROC.0)]
    #[diagnostic(help("{}", NO_PROC.1))]
    NoProc,
    /// The runner cannot be started.
    #[error("`{path}` cannot be started: {error}")]
    #[diagnostic(help("{}", limits::remedy_of(error).unwrap_or("rebuild it with `make build`")))]
    RunnerUnusable {
        /// The path of the binary.
        path: String,
        /// The error of the start.
        error: std::io::Error,
    },
    /// The runner ended too early.
    #[error("the runner ended early: {how}")]
    #[diagnostic(help(
        "its last messages, if any, are above; SIGKILL comes from another process, or from the kernel if memory is short (`dmesg` shows that), and `ulimit -a` shows limits. Run it again"
    ))]
    RunnerEnded {
        /// How it ended, in the system's words.
        how: String,
    },
    /// The runner failed, not the scenario.
    #[error("the runner failed: {what}")]
    #[diagnostic(help(
        "{}",
        limits::remedy(*errno)
            .or_else(|| limits::remedy_in(what))
            .unwrap_or("`needless doctor` shows what this machine can do")
    ))]
    RunnerFailed {
        /// The failed action, in words.
        what: String,
        /// The error number, if a system call failed.
        errno: Option<i32>,
    },
    /// The runner has another version of the protocol, or stopped in the middle.
    #[error("the runner {what}")]
    #[diagnostic(help("build `needless` and `needless-runner` together: `make build`"))]
    RunnerConfused {
        /// What the runner did.
        what: String,
    },
    /// The keeper, which had changed the machine, was killed.
    #[error(
        "the keeper, which changes the machine for a run and undoes its changes, ended early ({how}); \
         undone in its place: {undone}"
    )]
    #[diagnostic(help(
        "the figures so far are dropped; `needless doctor` shows whether something is left \
         behind, `needless doctor --clean` removes it"
    ))]
    KeeperDied {
        /// How it ended, in the system's words.
        how: String,
        /// The changes that were undone, and those that could not be undone.
        undone: String,
    },
    /// The requested CPUs cannot be used.
    #[error("{what}")]
    #[diagnostic(help("{remedy}"))]
    BadCpus {
        /// The reason, in words.
        what: String,
        /// The remedy.
        remedy: String,
    },
    /// This process may not change the machine as the scenario needs it.
    #[error("not permitted: {what}")]
    #[diagnostic(help("{remedy}"))]
    NotPermitted {
        /// The refused change, in words.
        what: String,
        /// The remedies, the least privilege first.
        remedy: String,
    },
    /// The scenario needs swap space that cannot be made.
    #[error("the scenario needs swap space on zram: {what}")]
    #[diagnostic(help("{remedy}"))]
    NeedsSwap {
        /// The reason, in words.
        what: String,
        /// The remedy.
        remedy: String,
    },
    /// A change that the scenario needs cannot be made.
    #[error("the machine cannot be prepared: {what}")]
    #[diagnostic(help(
        "{}",
        limits::remedy_in(what).unwrap_or("`needless doctor` shows what this machine can do")
    ))]
    CannotPrepare {
        /// The failed change, in words.
        what: String,
    },
    /// Another live run is going on.
    #[error("another live run is going on: {holder}")]
    #[diagnostic(help("the two runs would disturb each other; wait for the other one, or end it"))]
    Busy {
        /// The holder of the lock, as the lock file names it.
        holder: String,
    },
    /// The kernel or the machine lacks something that the scenario needs.
    #[error("{what}")]
    #[diagnostic(help("model targets still run; `needless doctor` shows what is missing here"))]
    Unsupported {
        /// The missing thing, in words.
        what: String,
    },
    /// The scenario failed.
    #[error("the scenario failed: {0}")]
    #[diagnostic(help("the model shows the same failure if it is the scenario's fault"))]
    ProgramFailed(Failure),
    /// Events were lost, and there are only marked rounds.
    #[error("{lost} events were lost, and no round is left")]
    #[diagnostic(help("make the rings larger, or the rounds smaller"))]
    EventsLost {
        /// The number of lost events.
        lost: u64,
    },
    /// A signal asked for an end.
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
}

impl LiveError {
    /// The exit status of a command that fails because of this.
    pub fn exit_status(&self) -> u8 {
        match self {
            LiveError::BadCpus { .. } => 2,
            LiveError::NotPermitted { .. } => 120,
            // Another kernel may do what this one refuses. What no kernel does was refused before.
            LiveError::ProgramFailed(failure) if failure.is_the_programs() => 121,
            LiveError::Unsupported { .. } => 121,
            LiveError::EventsLost { .. } => 122,
            _ => 125,
        }
    }
}

impl From<Failure> for LiveError {
    fn from(failure: Failure) -> LiveError {
        match failure.kind {
            FailureKind::Unsupported if permission(failure.errno) => LiveError::NotPermitted {
                what: failure.what,
                remedy: "run as root, outside of any user namespace; `needless doctor` shows more"
                    .to_owned(),
            },
            FailureKind::Unsupported => LiveError::Unsupported { what: failure.what },
            FailureKind::Internal if permission(failure.errno) => {
                LiveError::NotPermitted { what: failure.what, remedy: PERFMON_REMEDY.to_owned() }
            }
            FailureKind::Internal => {
                LiveError::RunnerFailed { what: failure.what, errno: failure.errno }
            }
            _ => LiveError::ProgramFailed(failure),
        }
    }
}

/// Whether an error number means that something is not permitted.
pub fn permission(errno: Option<i32>) -> bool {
    let refused = [rustix::io::Errno::PERM, rustix::io::Errno::ACCESS];
    errno.is_some_and(|errno| refused.iter().any(|refused| refused.raw_os_error() == errno))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_statuses_tell_the_cause() {
        let failure = |kind, errno| Failure { kind, what: "x".into(), op: None, errno };
        let status = |failure| LiveError::from(failure).exit_status();
        assert_eq!(status(failure(FailureKind::Unsupported, None)), 121);
        assert_eq!(status(failure(FailureKind::Unsupported, Some(1))), 120);
        assert_eq!(status(failure(FailureKind::Internal, Some(13))), 120);
        assert_eq!(status(failure(FailureKind::Operation, Some(13))), 121);
        assert_eq!(LiveError::EventsLost { lost: 1 }.exit_status(), 122);
        let many = LiveError::from(failure(FailureKind::Internal, Some(24)));
        assert!(many.help().is_some_and(|help| help.to_string().contains("ulimit -n")));
        assert!(!many.to_string().contains("scenario"), "it is not the scenario's fault");
    }
}

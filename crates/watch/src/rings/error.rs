//! Why there are no events, and what helps.

use needless_runner::limits::remedy_of;
use needless_runner::look::Unseen;
use needless_runner::tracefs::{PERFMON_REMEDY, TracefsError};
use std::io;
use thiserror::Error;

/// The event that owns a ring, as errors name it.
pub(super) const THE_RING: &str = "the ring";

/// Where the kernel says which CPUs it has.
pub(super) const ONLINE: &str = "/sys/devices/system/cpu/online";

/// Rings are locked memory, of which unprivileged users have little (kernel/events/core.c:
/// perf_mmap).
const RING_REMEDY: &str = "a smaller --buffer; or give the command CAP_IPC_LOCK as well (`setcap \
     cap_perfmon,cap_ipc_lock+ep needless`); or run it as root";

/// Why there are no events.
#[derive(Debug, Error)]
pub enum PerfError {
    /// No tracefs.
    #[error(transparent)]
    Tracefs(#[from] TracefsError),
    /// Nobody says which CPUs there are.
    #[error("the CPUs to watch are not known: {0}")]
    Cpus(#[from] Unseen),
    /// What the kernel says of its CPUs is not understood.
    #[error("the CPUs to watch are not known: {ONLINE} says `{0}`")]
    OddCpus(String),
    /// The kernel does not let us.
    #[error("perf_event_open for {event}: {error}")]
    Open {
        /// Which event.
        event: String,
        /// Why it failed.
        error: io::Error,
    },
}

impl PerfError {
    /// What helps against it.
    pub fn remedy(&self) -> Option<&'static str> {
        if let PerfError::Open { event, error } = self
            && event == THE_RING
            && error.kind() == io::ErrorKind::PermissionDenied
        {
            return Some(RING_REMEDY);
        }
        if let PerfError::Open { error, .. } = self
            && let Some(remedy) = remedy_of(error)
        {
            return Some(remedy);
        }
        let refused = match self {
            PerfError::Tracefs(TracefsError::NotMounted) => true,
            PerfError::Tracefs(TracefsError::Unreadable { error, .. })
            | PerfError::Open { error, .. } => error.kind() == io::ErrorKind::PermissionDenied,
            PerfError::Cpus(unseen) => return Some(unseen.remedy()),
            PerfError::Tracefs(_) | PerfError::OddCpus(_) => false,
        };
        refused.then_some(PERFMON_REMEDY)
    }
}

//! How long faults waited: from when their task left its CPU of its own accord to when it ran again.

use super::Fold;
use crate::record::{Record, Switch};

impl Fold {
    /// A task in a fault leaves its CPU or comes back. Who makes room for another one waits for nothing.
    pub(super) fn switched(&mut self, record: &Record, to: Switch) {
        let thread = self.threads.get_mut(&record.tid);
        let Some(open) = thread.and_then(|thread| thread.fault.as_mut()) else { return };
        match to {
            Switch::Waits => {
                open.away = Some(record.time);
                open.waits += 1;
            }
            Switch::Preempted => {}
            Switch::Runs => {
                let since = open.away.take().unwrap_or(record.time);
                open.waited_ns += record.time.saturating_sub(since);
            }
        }
    }
}

//! How long faults waited, and for what: from when their task left its CPU of its own accord to
//! when it ran again.

use super::{Fold, Reason};
use crate::record::{Record, Switch};
use crate::stacks::{For, Wait};

/// Waits of one kind.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct WaitCount {
    /// How often.
    pub waits: u64,
    /// How long, nanoseconds, until the task ran again.
    pub waited_ns: u64,
}

/// The waits of a fault that has not ended.
#[derive(Debug, Default)]
pub(super) struct Waits {
    /// Where its task was when it was about to leave its CPU.
    leaving: Option<Wait>,
    /// Since when it waits.
    away: Option<u64>,
    /// Those so far.
    done: Vec<(Wait, u64)>,
}

impl Waits {
    /// Whether it waited for that.
    pub(super) fn had(&self, what: For) -> bool {
        self.done.iter().any(|(wait, _)| wait.what == what)
    }

    /// How often it waited, and how long, all together.
    pub(super) fn total(&self) -> WaitCount {
        let waited_ns = self.done.iter().map(|(_, time)| time).sum();
        WaitCount { waits: self.done.len() as u64, waited_ns }
    }
}

impl Fold {
    /// A task is about to leave its CPU, from there.
    pub(super) fn leaves(&mut self, record: &Record, stack: &[u64]) {
        let thread = self.threads.get_mut(&record.tid);
        let Some(open) = thread.and_then(|thread| thread.fault.as_mut()) else { return };
        let mut wait = self.stacks.wait(stack);
        // Whoever has just allocated the page that it finds locked has begun to read it.
        if wait.what == For::PageLock && open.seen.allocated.is_some() {
            wait.what = For::Read;
        }
        open.waits.leaving = Some(wait);
    }

    /// A task in a fault leaves its CPU or comes back. Who makes room for another one waits for
    /// nothing.
    pub(super) fn switched(&mut self, record: &Record, to: Switch) {
        let thread = self.threads.get_mut(&record.tid);
        let Some(open) = thread.and_then(|thread| thread.fault.as_mut()) else { return };
        let waits = &mut open.waits;
        let leaving = waits.leaving.take();
        match to {
            Switch::Waits => {
                waits.away = Some(record.time);
                waits.done.push((leaving.unwrap_or(Wait::UNSEEN), 0));
            }
            Switch::Preempted => {}
            Switch::Runs => {
                let since = waits.away.take().unwrap_or(record.time);
                if let Some((_, time)) = waits.done.last_mut() {
                    *time += record.time.saturating_sub(since);
                }
            }
        }
    }

    /// A fault is over: its waits are its rule's.
    pub(super) fn waited(&mut self, reason: Reason, waits: Waits) {
        for (wait, time) in waits.done {
            let count = self.totals.waits.entry((reason, wait)).or_default();
            count.waits += 1;
            count.waited_ns += time;
        }
    }
}

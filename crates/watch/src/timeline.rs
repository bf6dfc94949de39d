//! Single events with their times, for a trace. They are sent on as they are folded and are not
//! kept here, so memory does not grow with their number.

use crate::fold::{Confidence, Task};

/// Something that took time, or happened at one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Moment {
    /// A thread's page fault, from exception to end. Times are nanoseconds of CLOCK_MONOTONIC_RAW.
    Fault {
        /// The thread.
        tid: i32,
        /// Its process.
        pid: i32,
        /// When the exception came.
        begin: u64,
        /// When it was over.
        end: u64,
        /// Its class, with what tells its rule from others.
        label: &'static str,
        /// How sure that is.
        confidence: Confidence,
        /// Where it faulted.
        address: u64,
    },
    /// A CPU was made to do something.
    Reached {
        /// The CPU.
        cpu: u16,
        /// When it began.
        begin: u64,
        /// When it was over; none where that is not seen.
        end: Option<u64>,
        /// What it was asked for.
        asked: &'static str,
        /// Whether it was interrupted: an idle CPU may look for itself, and a kernel thread may do
        /// it.
        interrupted: bool,
        /// What ran there.
        to: Task,
        /// Who asked.
        from: Task,
        /// What the sender was doing.
        cause: String,
        /// When it was sent; none where that is not seen.
        sent: Option<u64>,
    },
    /// A thread's process and name.
    Thread {
        /// The thread.
        tid: i32,
        /// Its process, 0 if that is not known.
        pid: i32,
        /// Its name.
        name: String,
    },
}

//! The order of what was recorded at the same time: causes come before what they cause.

use crate::event::FlushReason;

/// What comes first of two records of the same time.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rank {
    /// A round starts.
    RoundStart,
    /// An operation or a measured block starts; what was lost is lost before the rest.
    OpStart,
    /// A fault or a system call starts.
    Entry,
    /// A shootdown is sent.
    Send,
    /// The initiator's own part of a flush.
    Local,
    /// A CPU answers a shootdown, or flushes as it switches.
    Receive,
    /// What happens inside a fault or a system call.
    Inside,
    /// A fault or a system call ends, or the CPU goes to another task.
    End,
    /// A measured block ends.
    MeasureEnd,
    /// A round ends.
    RoundEnd,
}

impl FlushReason {
    /// Where its record stands among those of the same time.
    pub const fn rank(self) -> Rank {
        match self {
            FlushReason::RemoteSend => Rank::Send,
            FlushReason::LocalMm | FlushReason::LocalBatch => Rank::Local,
            FlushReason::TaskSwitch
            | FlushReason::RemoteShootdown
            | FlushReason::RemoteWrongCpu => Rank::Receive,
        }
    }
}

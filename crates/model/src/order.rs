//! The order of records with equal times: causes come before their effects.

use crate::event::FlushReason;

/// The rank of a record. Of two records with equal times, the one with the lower rank comes first.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rank {
    /// A round starts.
    RoundStart,
    /// An operation or a measured block starts. Records about lost events come before the rest,
    /// too.
    OpStart,
    /// A fault or a system call starts.
    Entry,
    /// A shootdown is sent.
    Send,
    /// The initiator's own part of a flush.
    Local,
    /// A CPU answers a shootdown, or flushes during a switch.
    Receive,
    /// An event inside a fault or a system call.
    Inside,
    /// A fault or a system call ends, or the CPU switches to another task.
    End,
    /// A measured block ends.
    MeasureEnd,
    /// A round ends.
    RoundEnd,
}

impl FlushReason {
    /// The rank of a flush record with this reason.
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

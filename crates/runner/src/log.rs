//! The log of what was seen, in the order of writing, in memory that was set aside beforehand.
//!
//! Records of rings and markers of threads go into one log. It is sorted and interpreted only when
//! the run is over ([`crate::decode`]).

use crate::shared::Stretch;
use crate::sys::roomy;
use needless_model::addr::ProcessId;
use needless_model::event::FlushReason;
use needless_model::order::Rank;
use needless_model::run::TimedBlock;

/// The most records to set memory aside for: 40 MiB.
const MOST_ROOM: usize = 1 << 20;

/// The most attempts at rounds to set memory aside for.
const MOST_ATTEMPTS: usize = 1 << 16;

/// Records of a usual round. Touching memory takes time, most of all in emulation, so the log sets
/// aside only what the rounds are likely to need.
const USUAL_ROUND: usize = 1 << 12;

/// Records that must fit in before each round.
const LONGEST_ROUND: usize = 1 << 14;

/// The kind of a record. Each variant explains `value` and `extra` of its [`Raw`].
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A round starts; `value`: number of the attempt.
    RoundStart,
    /// A round ends; `value`: number of the attempt.
    RoundEnd,
    /// A phase mark; `value`: its number.
    Mark,
    /// A measured block starts.
    MeasureStart,
    /// A measured block ends.
    MeasureEnd,
    /// An operation starts; `value`: its id; `extra`: 1 if the contents of pages are unknown after
    /// it.
    Op,
    /// An exception; `value`: address; `extra`: error code.
    Fault,
    /// The kernel has finished a fault; `value`: address; `extra`: 1 if it was major.
    FaultDone,
    /// A call reports pages as written; `value`: address of the first; `extra`: how many.
    Told,
    /// `move_pages` reports on a page; `value`: its address; `extra`: the node, or the negative
    /// number of the error.
    PageStatus,
    /// userfaultfd reports an access; `value`: address; `extra`: 1 if it is a store to a protected
    /// page.
    Asked,
    /// A signal handler learns of an access; `value`: address.
    Signal,
    /// A flush; `value`: pages (`u64::MAX`: all); `extra`: reason.
    Flush,
    /// A thread interrupts a CPU that may walk a page table without a lock; `value`: the CPU, as
    /// the scenario numbers it.
    TableSync,
    /// A thread writes a page to swap.
    Write,
    /// This task forks a process; `value`: the id of the new task; `extra`: the index of its
    /// thread.
    Forked,
    /// A process calls `exec`. Its actions from now on are not the scenario's.
    Exec,
    /// A CPU left a task; `value`: the id of the next one, 0 if idle; `extra`: 1 if the task was
    /// still runnable.
    SwitchOut,
    /// A CPU switched to a task; `value`: its id, 0 if idle.
    SwitchIn,
    /// A kernel thread drains the CPU's LRU batches.
    Drained,
    /// The scheduler charges the running task for its time: at each tick of the clock, and when
    /// another task becomes ready.
    Charged,
    /// A thread goes on after a long call, or gives up its turn. Everything that it did before is
    /// over.
    WentOn,
    /// Records were lost before this one; `value`: how many.
    Lost,
}

/// A record of a ring, or a marker of a thread.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Raw {
    /// Nanoseconds of CLOCK_MONOTONIC_RAW.
    pub time: u64,
    /// Its meaning depends on [`Kind`].
    pub value: u64,
    /// Its meaning depends on [`Kind`].
    pub extra: u64,
    /// The task that ran.
    pub tid: i32,
    /// The CPU that it ran on.
    pub cpu: u16,
    /// The kind of the record.
    pub kind: Kind,
}

impl Raw {
    /// The reason of a flush; `None` for a number that is not known from any kernel.
    pub fn flush_reason(&self) -> Option<FlushReason> {
        u32::try_from(self.extra).ok().and_then(FlushReason::from_number)
    }

    /// Its order among records of equal time.
    pub fn rank(&self) -> Rank {
        match self.kind {
            Kind::RoundStart => Rank::RoundStart,
            Kind::Mark
            | Kind::MeasureStart
            | Kind::Op
            | Kind::Forked
            | Kind::Exec
            | Kind::WentOn
            | Kind::Told
            | Kind::PageStatus
            | Kind::Asked
            | Kind::Signal
            | Kind::Lost => Rank::OpStart,
            Kind::Fault => Rank::Entry,
            Kind::Flush => self.flush_reason().map_or(Rank::Receive, FlushReason::rank),
            Kind::TableSync => Rank::Inside,
            Kind::Write | Kind::Drained | Kind::Charged => Rank::Receive,
            Kind::FaultDone | Kind::SwitchOut | Kind::SwitchIn => Rank::End,
            Kind::MeasureEnd => Rank::MeasureEnd,
            Kind::RoundEnd => Rank::RoundEnd,
        }
    }
}

/// One attempt at a round.
#[derive(Clone, Debug)]
pub struct Attempt {
    /// The round's index; negative in warm-up.
    pub index: i64,
    /// Whether the round counts.
    pub kept: bool,
    /// Minor faults in the round.
    pub minor_faults: u64,
    /// Major faults in the round.
    pub major_faults: u64,
    /// The start of its measured blocks in [`Log::cycles`].
    pub cycles_from: usize,
    /// The end of its measured blocks in [`Log::cycles`].
    pub cycles_to: usize,
    /// Values of kernel counters, in the order of [`crate::vmstat::Counters::names`].
    pub counters: Vec<u64>,
}

/// The log of a run.
pub struct Log {
    /// Whether events are recorded.
    pub events: bool,
    /// All records of the run.
    pub records: Vec<Raw>,
    /// All attempts at rounds.
    pub attempts: Vec<Attempt>,
    /// All measured blocks of all processes.
    pub cycles: Vec<TimedBlock>,
    /// The number of records that fit into memory that was touched beforehand.
    room: usize,
    /// Rounds still to come, if their number is known.
    rounds_left: usize,
    /// The number of records before the current round.
    before: usize,
    /// The most records of a round so far.
    longest: usize,
}

impl Log {
    /// Makes an empty log with memory for the records of `rounds` rounds.
    pub fn new(events: bool, rounds: usize) -> Log {
        let room = rounds.saturating_mul(USUAL_ROUND).clamp(8 * LONGEST_ROUND, MOST_ROOM);
        Log {
            events,
            records: if events { roomy(room, BLANK) } else { Vec::new() },
            attempts: roomy(rounds.saturating_mul(6).clamp(64, MOST_ATTEMPTS), UNTRIED),
            cycles: roomy(rounds.saturating_mul(8).clamp(1 << 13, MOST_ROOM), UNTIMED),
            room: if events { room } else { usize::MAX },
            rounds_left: rounds,
            before: 0,
            longest: 0,
        }
    }

    /// The memory of the records, and the part of it that rounds to come will write to.
    pub fn place(&self) -> (Stretch, Stretch) {
        let size = size_of::<Raw>();
        let start = self.records.as_ptr() as usize;
        let next = start + self.records.len() * size;
        let whole = (start, start + self.records.capacity() * size);
        (whole, (next, (next + LONGEST_ROUND * size).min(whole.1)))
    }

    /// Called after each round. Makes room for the next round and for those still to come, each as
    /// long as the longest so far. So only warm-up rounds find too little room. Returns whether
    /// room had to be made, now or during the round: that touches pages that the round did not ask
    /// for.
    pub fn has_grown(&mut self) -> bool {
        let length = self.records.len();
        self.longest = self.longest.max(length - self.before.min(length));
        self.before = length;
        self.rounds_left = self.rounds_left.saturating_sub(1);
        let to_come = self.longest.saturating_mul(self.rounds_left).min(MOST_ROOM);
        let needed = length.saturating_add(to_come).saturating_add(LONGEST_ROUND);
        if needed <= self.room {
            return false;
        }
        self.room = needed.saturating_add(length).saturating_add(LONGEST_ROUND);
        self.records.resize(self.room, BLANK);
        std::hint::black_box(&mut self.records).truncate(length);
        true
    }

    /// Writes a marker of thread `tid`.
    #[inline]
    pub fn marker(&mut self, kind: Kind, value: u64, extra: u64, cpu: u16, tid: i32) {
        self.records.push(Raw { time: crate::sys::now_ns(), value, extra, tid, cpu, kind });
    }
}

const UNTRIED: Attempt = Attempt {
    index: 0,
    kept: false,
    minor_faults: 0,
    major_faults: 0,
    cycles_from: 0,
    cycles_to: 0,
    counters: Vec::new(),
};

const UNTIMED: TimedBlock = TimedBlock { process: ProcessId::FIRST, cycles: 0 };

const BLANK: Raw = Raw { time: 0, value: 0, extra: 0, tid: 0, cpu: 0, kind: Kind::Lost };

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_always_room_for_a_round() {
        let mut log = Log::new(true, 1);
        let mut grown = 0;
        for _ in 0..8 {
            assert!(log.records.capacity() - log.records.len() >= LONGEST_ROUND);
            let room = log.records.capacity();
            log.records.extend(std::iter::repeat_n(BLANK, LONGEST_ROUND));
            assert_eq!(log.records.capacity(), room, "no growth during a round");
            grown += u32::from(log.has_grown());
        }
        assert!((1..=3).contains(&grown), "{grown}");
        assert!(!Log::new(false, 1).has_grown());
    }

    #[test]
    fn attempts_touch_no_new_memory() {
        let mut log = Log::new(true, 2000);
        let before = minor_faults();
        for index in 0..12_000 {
            log.attempts.push(Attempt { index, ..UNTRIED });
        }
        // There are some 200 pages. The allocator's own pages, if any, are few.
        assert!(minor_faults() - before < 20);
    }

    /// Minor faults of this thread.
    fn minor_faults() -> i64 {
        // SAFETY: `rusage` is plain data, and the kernel fills it in.
        unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            assert_eq!(libc::getrusage(libc::RUSAGE_THREAD, &mut usage), 0);
            usage.ru_minflt
        }
    }

    #[test]
    fn the_first_of_many_long_rounds_makes_room_for_the_others() {
        let mut log = Log::new(true, 9);
        let grown: Vec<bool> = (0..9)
            .map(|_| {
                log.records.extend(std::iter::repeat_n(BLANK, LONGEST_ROUND));
                log.has_grown()
            })
            .collect();
        assert_eq!(grown, [true, false, false, false, false, false, false, false, false]);
    }
}

//! What was seen, in the order in which it was written down, in memory set aside beforehand.
//!
//! Records of rings and markers of threads end up in one log. It is sorted and told apart only
//! when the run is over ([`crate::decode`]).

use crate::shared::Stretch;
use crate::sys::roomy;
use needless_model::addr::ProcessId;
use needless_model::event::FlushReason;
use needless_model::order::Rank;
use needless_model::run::TimedBlock;

/// Records for which room is set aside at most: 40 MiB.
const MOST_ROOM: usize = 1 << 20;

/// Attempts at rounds for which room is set aside at most.
const MOST_ATTEMPTS: usize = 1 << 16;

/// Records of a round that is not unusually long. Touching memory takes time, most of all in
/// emulation, so no more is set aside than the rounds are likely to need.
const USUAL_ROUND: usize = 1 << 12;

/// Records that must fit before each round.
const LONGEST_ROUND: usize = 1 << 14;

/// What a record says; `value` and `extra` of [`Raw`] are named in the variants.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A round starts; `value`: number of the attempt.
    RoundStart,
    /// A round ends; `value`: number of the attempt.
    RoundEnd,
    /// A phase mark; `value`: which.
    Mark,
    /// A measured block starts.
    MeasureStart,
    /// A measured block ends.
    MeasureEnd,
    /// An operation starts; `value`: its id; `extra`: 1 if what pages hold is unknown after it.
    Op,
    /// An exception; `value`: address; `extra`: error code.
    Fault,
    /// The kernel is done with a fault; `value`: address; `extra`: 1 if it was major.
    FaultDone,
    /// A call tells of pages that were stored to; `value`: address of the first; `extra`: how many.
    Told,
    /// `move_pages` answers for a page; `value`: its address; `extra`: the node, or the negative number of the error.
    PageStatus,
    /// userfaultfd tells of an access; `value`: address; `extra`: 1 if it is a store to a page that is protected.
    Asked,
    /// A signal handler is told of an access; `value`: address.
    Signal,
    /// A flush; `value`: pages (`u64::MAX`: all); `extra`: reason.
    Flush,
    /// A thread has a CPU interrupted that may walk a page table without a lock; `value`: the CPU, as the scenario numbers it.
    TableSync,
    /// A thread writes a page to swap.
    Write,
    /// A process begins, forked by this task; `value`: the id of its task; `extra`: which thread it is.
    Forked,
    /// A process goes on with another program: what it does from now on is not the scenario's.
    Exec,
    /// A CPU left a task; `value`: the id of the next one, 0 if idle; `extra`: 1 if the task
    /// could have gone on.
    SwitchOut,
    /// A CPU turned to a task; `value`: its id, 0 if idle.
    SwitchIn,
    /// A kernel thread empties the CPU's LRU batches.
    Drained,
    /// The scheduler charges the running task for its time: at each tick of the clock, and when another task becomes ready.
    Charged,
    /// A thread goes on after a call that took long, or gives up its turn: what it did before is done.
    WentOn,
    /// Records were lost before this one; `value`: how many.
    Lost,
}

/// A record.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Raw {
    /// Nanoseconds of CLOCK_MONOTONIC_RAW.
    pub time: u64,
    /// See [`Kind`].
    pub value: u64,
    /// See [`Kind`].
    pub extra: u64,
    /// The task that ran.
    pub tid: i32,
    /// The CPU.
    pub cpu: u16,
    /// What it says.
    pub kind: Kind,
}

impl Raw {
    /// Why a flush was; `None` for a number that no kernel was seen to give.
    pub fn flush_reason(&self) -> Option<FlushReason> {
        u32::try_from(self.extra).ok().and_then(FlushReason::from_number)
    }

    /// Where it stands among records of the same time.
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
    /// Whether it counts.
    pub kept: bool,
    /// Minor faults.
    pub minor_faults: u64,
    /// Major faults.
    pub major_faults: u64,
    /// Where its cycles start in [`Log::cycles`].
    pub cycles_from: usize,
    /// Where they end.
    pub cycles_to: usize,
    /// Kernel counters, in the order of [`crate::vmstat::Counters::names`].
    pub counters: Vec<u64>,
}

/// The log of a run.
pub struct Log {
    /// Whether events are recorded at all.
    pub events: bool,
    /// All records.
    pub records: Vec<Raw>,
    /// All attempts at rounds.
    pub attempts: Vec<Attempt>,
    /// All blocks measured, of all processes.
    pub cycles: Vec<TimedBlock>,
    /// Records for which there is room that was touched beforehand.
    room: usize,
    /// Rounds still to come, as far as known.
    rounds_left: usize,
    /// Records before the round that runs now.
    before: usize,
    /// The most records of a round so far.
    longest: usize,
}

impl Log {
    /// An empty log with room for the records of `rounds`.
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

    /// Where the records lie, and where those of a round to come will: memory that is written there.
    pub fn place(&self) -> (Stretch, Stretch) {
        let size = size_of::<Raw>();
        let start = self.records.as_ptr() as usize;
        let next = start + self.records.len() * size;
        let whole = (start, start + self.records.capacity() * size);
        (whole, (next, (next + LONGEST_ROUND * size).min(whole.1)))
    }

    /// Called after each round: makes room for the next one, and for as many like the longest so far
    /// as are to come, so that it is warm-up rounds that find too little. Whether room had to be
    /// made, now or during the round: then pages were touched that the round did not ask for.
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

    /// Writes down a marker of thread `tid`.
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
        // Some 200 pages; the allocator's own, if any, are few.
        assert!(minor_faults() - before < 20);
    }

    /// Minor faults of this thread.
    fn minor_faults() -> i64 {
        // SAFETY: plain data, which the kernel fills in.
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

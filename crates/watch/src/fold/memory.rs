//! Which memory faults and calls are about, since when it is in that state, and whose call did
//! that.
//!
//! Each fault and each call is counted under one key, so a report can add figures up by mapping, by
//! call site, by thread or by process. Beyond a number of keys the least telling parts are left
//! out.

use super::cause::Call;
use super::{
    Cause, Confidence, FlushCount, Fold, Needless, Open, PAGE_BITS, Process, Reason, Reclaim,
};
use crate::maps::Owner;
use crate::record::{Named, Record};
use crate::sites::SiteId;
use crate::space::{Taker, Takes, Was};
use crate::syscalls;
use needless_model::event::FaultClass;
use rustc_hash::FxHashMap;
use std::ops::Range;

/// Keys of faults, and of calls, that are kept apart.
const MOST_KEYS: usize = 8192;

/// Mappings, and calls that take pages, that are kept apart.
const MOST_NUMBERS: usize = 2048;

/// What memory something is about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Memory {
    /// What its mapping is named after; none if no mapping was seen.
    pub owner: Option<Owner>,
    /// The size of the mapping, and the call that made it, where it has no name.
    pub mapped: Option<(u64, SiteId)>,
}

/// A memory by its number; 0 is the unknown one.
pub type MemoryId = u32;

/// What a call, or the kernel, did to pages that a fault meets.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Took {
    /// The process gave them back.
    GivenBack,
    /// It unmapped them, or mapped something else over them.
    Unmapped,
    /// It paged them out.
    PagedOut,
    /// A fork shared them with a child.
    Fork,
    /// Stores to them were forbidden.
    Protected,
    /// They were written back to their file.
    Writeback,
    /// The range is read without readahead.
    NoReadahead,
}

impl Took {
    /// Whether the pages are gone, so that the next access faults.
    pub fn pages(self) -> bool {
        matches!(self, Took::GivenBack | Took::Unmapped | Took::PagedOut)
    }
}

/// A call that takes pages.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TakerKey {
    /// What it does to them.
    pub took: Took,
    /// The call.
    pub cause: Cause,
    /// Where it is called.
    pub site: SiteId,
    /// The memory that it takes pages from.
    pub memory: MemoryId,
}

/// What such calls took, and what came back.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct TakerCount {
    /// Calls that took any.
    pub calls: u64,
    /// Pages that were there and were taken.
    pub pages: u64,
    /// Faults that brought such a page back.
    pub back: u64,
    /// The time of these faults, nanoseconds.
    pub back_ns: u64,
    /// How long the pages had been away, nanoseconds, all together.
    pub away_ns: u64,
    /// Pages that are away.
    pub away: u64,
    /// The most that were away at once.
    pub most_away: u64,
    /// Pages that came back without a fault.
    pub back_without_fault: u64,
}

/// Since when a page was as the fault found it.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Since {
    /// It had never been touched.
    New,
    /// A call took it, or the right to store to it.
    Taken(Taker),
    /// The kernel took it away: in reclaim that was seen, or else for a reason that was not.
    Reclaimed(Option<Reclaim>),
    /// The kernel wrote it back of its own accord.
    WrittenBack,
    /// It was there, and nothing that was seen explains the fault.
    There,
    /// The process ran before it was watched.
    Unknown,
}

/// What tells faults apart.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FaultKey {
    /// The rule that gave them their class.
    pub reason: Reason,
    /// The memory.
    pub memory: MemoryId,
    /// Since when.
    pub since: Since,
    /// The instruction.
    pub site: SiteId,
    /// The thread.
    pub tid: i32,
    /// While the program was being started.
    pub starting: bool,
}

/// Faults of one key.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Met {
    /// How many.
    pub faults: u64,
    /// From exception to end, nanoseconds.
    pub time_ns: u64,
    /// How long their pages had been taken, nanoseconds, all together.
    pub away_ns: u64,
}

/// What tells calls apart.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CallKey {
    /// The call.
    pub cause: Cause,
    /// The memory that it is about; 0 where it is about none, or not seen.
    pub memory: MemoryId,
    /// Where it is called.
    pub site: SiteId,
    /// The thread.
    pub tid: i32,
    /// While the program was being started.
    pub starting: bool,
}

/// Calls of one key.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Called {
    /// How many have ended.
    pub calls: u64,
    /// From begin to end, nanoseconds.
    pub time_ns: u64,
    /// The time of faults in them, which is in `time_ns` as well.
    pub faults_ns: u64,
    /// Their flushes.
    pub flushes: FlushCount,
}

/// All that is known of memory.
#[derive(Debug, Default)]
pub struct Memories {
    /// By their numbers; the first is the unknown one.
    pub memory: Vec<Memory>,
    numbers: FxHashMap<Memory, MemoryId>,
    /// Calls that took pages, by their numbers.
    pub takers: Vec<(TakerKey, TakerCount)>,
    taker_numbers: FxHashMap<TakerKey, Taker>,
    /// Faults by key.
    pub faults: FxHashMap<FaultKey, Met>,
    /// Calls by key.
    pub calls: FxHashMap<CallKey, Called>,
    /// Forks, so that what they copy is said not to be seen.
    pub forks: u64,
    /// The last reclaim of any task, and its time.
    pub last_reclaim: Option<Reclaim>,
}

impl Memories {
    fn number(&mut self, memory: Memory) -> MemoryId {
        if self.memory.is_empty() {
            self.memory.push(Memory::default());
            self.numbers.insert(Memory::default(), 0);
        }
        if let Some(known) = self.numbers.get(&memory) {
            return *known;
        }
        // Without its size and its call it is one of fewer.
        let memory = match self.memory.len() < MOST_NUMBERS {
            true => memory,
            false => Memory { mapped: None, ..memory },
        };
        if let Some(known) = self.numbers.get(&memory) {
            return *known;
        }
        if self.memory.len() >= 2 * MOST_NUMBERS {
            return 0;
        }
        let number = self.memory.len() as MemoryId;
        self.memory.push(memory.clone());
        self.numbers.insert(memory, number);
        number
    }

    fn taker(&mut self, key: TakerKey) -> Taker {
        let full = self.takers.len() >= MOST_NUMBERS && !self.taker_numbers.contains_key(&key);
        let key = if full { TakerKey { site: SiteId::NONE, memory: 0, ..key } } else { key };
        let takers = &mut self.takers;
        *self.taker_numbers.entry(key.clone()).or_insert_with(|| {
            takers.push((key, TakerCount::default()));
            takers.len() as Taker - 1
        })
    }

    fn took(&self, taker: Taker) -> Option<Took> {
        self.takers.get(taker as usize).map(|(key, _)| key.took)
    }

    /// The counts of a key of calls.
    pub(super) fn called(&mut self, key: &CallKey) -> &mut Called {
        let full = self.calls.len() >= MOST_KEYS && !self.calls.contains_key(key);
        let coarse = || CallKey { memory: 0, site: SiteId::NONE, tid: 0, ..key.clone() };
        self.calls.entry(if full { coarse() } else { key.clone() }).or_default()
    }

    fn met(&mut self, key: FaultKey) -> &mut Met {
        let full = self.faults.len() >= MOST_KEYS && !self.faults.contains_key(&key);
        let key =
            if full { FaultKey { site: SiteId::NONE, tid: 0, memory: 0, ..key } } else { key };
        self.faults.entry(key).or_default()
    }
}

/// The pages of a range of bytes.
fn pages(range: Range<u64>) -> Range<u64> {
    range.start >> PAGE_BITS..range.end.div_ceil(1 << PAGE_BITS)
}

impl Process {
    /// What memory is at an address.
    fn memory(&self, address: u64) -> Memory {
        if self.heap.as_ref().is_some_and(|heap| heap.contains(&address)) {
            return Memory { owner: Some(Owner::Named(Named::Heap)), mapped: None };
        }
        let owner = self.maps.owner(address);
        let nameless = matches!(owner, Some(Owner::Nameless(_)));
        let mapped = if nameless { self.origins.at(address).copied() } else { None };
        Memory { owner, mapped }
    }
}

impl Fold {
    /// The memory at an address of a process.
    pub(super) fn memory_at(&mut self, pid: i32, address: u64) -> MemoryId {
        let memory = self.processes.get(&pid).map(|process| process.memory(address));
        self.memories.number(memory.unwrap_or_default())
    }

    /// The program's own code runs, unless it is still its loader's or the kernel's.
    pub(super) fn runs_from(&mut self, pid: i32, ip: u64, calls: bool) {
        let Some(process) = self.processes.get_mut(&pid).filter(|process| process.starting) else {
            return;
        };
        let maps = &process.maps;
        // The loader calls functions of libraries, too, but their system calls are not its.
        let runs = if calls { !maps.is_loader(ip) } else { maps.is_program(ip) };
        if runs {
            process.starting = false;
            self.started = true;
        }
    }

    /// Counts a fault that has ended under its memory.
    pub(super) fn meets_memory(&mut self, record: &Record, open: &Open, reason: Reason) {
        let (pid, page) = (record.pid, open.address >> PAGE_BITS);
        let memory = self.memory_at(pid, open.address);
        let Some(process) = self.processes.get_mut(&pid) else { return };
        let order = match reason {
            Reason::Huge | Reason::Hugetlb => open.seen.allocated.map_or(9, |(order, _)| order),
            _ => 0,
        };
        let write = open.seen.code.write();
        let was = process.space.fault(page, order, write);
        if open.seen.mapped_around {
            process.space.around(page);
        }
        let no_readahead = process.random.at(open.address).copied();
        let site = self.sites.of_fault(open.ip, pid, &process.maps);
        let starting = process.starting;
        let time_ns = record.time.saturating_sub(open.start);
        let (since, away) = self.since(was, reason, open, no_readahead);
        let away_ns = away.map_or(0, |time| open.start.saturating_sub(time));
        if let Since::Taken(taker) = since
            && let Some((_, count)) = self.memories.takers.get_mut(taker as usize)
        {
            count.back += 1;
            count.back_ns += time_ns;
            count.away_ns += away_ns;
        }
        if let Was::Taken(taker, _) = was
            && let Some((_, count)) = self.memories.takers.get_mut(taker as usize)
        {
            count.away = count.away.saturating_sub(1);
        }
        self.judge_fault(reason, since);
        // Every program's start looks the same.
        let (memory, site) = if starting { (0, SiteId::NONE) } else { (memory, site) };
        let key = FaultKey { reason, memory, since, site, tid: record.tid, starting };
        let met = self.memories.met(key);
        met.faults += 1;
        met.time_ns += time_ns;
        met.away_ns += away_ns;
        if let Some(call) =
            self.threads.get_mut(&record.tid).and_then(|thread| thread.call.as_mut())
        {
            call.faults_ns += time_ns;
        }
    }

    /// Whether a fault's history, or its class alone, shows that it was needless.
    fn judge_fault(&mut self, reason: Reason, since: Since) {
        let (class, confidence) = (reason.rule().class, reason.rule().confidence);
        let by_fork = |taker| self.memories.took(taker) == Some(Took::Fork);
        let needless = match (reason, since) {
            (Reason::Reused, Since::Taken(taker)) if by_fork(taker) => Needless::ReuseAfterFork,
            (Reason::Raced | Reason::RacedOverlap, _) => Needless::RacedAllocation,
            _ => return,
        };
        // That nothing was copied is the rule's; the fork says why the page was read-only.
        let certain = needless == Needless::ReuseAfterFork || confidence == Confidence::Certain;
        self.needless(needless, Cause::Fault(class), certain);
    }

    /// Since when the page was as the fault found it, and the time of the call that did that.
    fn since(
        &self,
        was: Was,
        reason: Reason,
        open: &Open,
        no_readahead: Option<Taker>,
    ) -> (Since, Option<u64>) {
        let class = reason.rule().class;
        let present = open.seen.code.present();
        let taken = match was {
            Was::Taken(taker, time) => self.memories.took(taker).map(|took| (took, taker, time)),
            _ => None,
        };
        let of_file = class == FaultClass::FileMap && open.seen.major;
        match (taken, was) {
            (Some((Took::PagedOut | Took::GivenBack, taker, time)), _) if !present => {
                (Since::Taken(taker), Some(time))
            }
            (Some((Took::Unmapped, taker, time)), _) if !present => match no_readahead {
                Some(advice) if of_file => (Since::Taken(advice), None),
                _ => (Since::Taken(taker), Some(time)),
            },
            (Some((Took::Fork, taker, time)), _)
                if present && matches!(class, FaultClass::CowCopy | FaultClass::Reuse) =>
            {
                (Since::Taken(taker), Some(time))
            }
            (Some((Took::Writeback, taker, time)), _)
                if present && class == FaultClass::SharedDirty =>
            {
                (Since::Taken(taker), Some(time))
            }
            (Some((Took::Protected, taker, time)), _) if present => {
                (Since::Taken(taker), Some(time))
            }
            (None, Was::New) => match no_readahead {
                Some(advice) if of_file => (Since::Taken(advice), None),
                _ => (Since::New, None),
            },
            (None, Was::Unknown) => (Since::Unknown, None),
            (_, Was::There { written: true }) if present && class == FaultClass::SharedDirty => {
                (Since::WrittenBack, None)
            }
            _ if !present && matches!(class, FaultClass::SwapIn | FaultClass::FileMap) => {
                (Since::Reclaimed(self.memories.last_reclaim), None)
            }
            _ => (Since::There, None),
        }
    }

    /// A call has ended: what it did to memory.
    pub(super) fn call_ended(&mut self, record: &Record, call: &Call, result: i64) {
        let called = self.memories.called(&call.key);
        called.calls += 1;
        // The command's own execve began before anything was watched.
        if call.start > 0 {
            called.time_ns += record.time.saturating_sub(call.start);
        }
        called.faults_ns += call.faults_ns;
        let (pid, [start, bytes, third, flags]) = (record.pid, call.args);
        let range = start..start.saturating_add(bytes.next_multiple_of(1 << PAGE_BITS));
        let number = i64::from(call.number);
        if (-4095..0).contains(&result) {
            return;
        }
        match number {
            libc::SYS_mmap => {
                let start = result as u64;
                let range = start..start.saturating_add(bytes.next_multiple_of(1 << PAGE_BITS));
                let has = |flag: i32| flags & flag as u64 != 0;
                if has(libc::MAP_FIXED) {
                    self.takes(
                        pid,
                        std::slice::from_ref(&range),
                        Took::Unmapped,
                        call,
                        record.time,
                    );
                }
                if let Some(process) = self.processes.get_mut(&pid) {
                    process.origins.set(range.clone(), (bytes, call.key.site));
                    process.random.remove(&range);
                    process.protections.set(range.clone(), third);
                }
                if has(libc::MAP_POPULATE) || has(libc::MAP_LOCKED) {
                    self.populated(pid, range);
                }
            }
            libc::SYS_munmap => {
                self.takes(pid, std::slice::from_ref(&range), Took::Unmapped, call, record.time);
                self.unmapped(pid, &range);
            }
            libc::SYS_brk => self.break_moved(pid, result as u64, call, record.time),
            libc::SYS_madvise => self.advised(pid, range, third, call, record.time),
            libc::SYS_mlock => self.populated(pid, range),
            libc::SYS_mlock2 if third & u64::from(libc::MLOCK_ONFAULT) == 0 => {
                self.populated(pid, range);
            }
            libc::SYS_mremap => self.remapped(pid, result as u64, call, record.time),
            libc::SYS_mprotect | libc::SYS_pkey_mprotect => {
                if third & libc::PROT_WRITE as u64 == 0 {
                    self.takes(
                        pid,
                        std::slice::from_ref(&range),
                        Took::Protected,
                        call,
                        record.time,
                    );
                }
                if let Some(process) = self.processes.get_mut(&pid) {
                    process.protections.set(range, third);
                }
            }
            libc::SYS_msync => {
                self.takes(pid, &[range], Took::Writeback, call, record.time);
            }
            libc::SYS_fsync
            | libc::SYS_fdatasync
            | libc::SYS_sync_file_range
            | libc::SYS_sync
            | libc::SYS_syncfs => {
                // Of which file is not visible: a store to a page of another file takes no fault.
                let shared = self.processes.get(&pid).map(|process| process.maps.shared_files());
                let shared: Vec<_> =
                    shared.into_iter().flatten().map(|(start, end)| start..end).collect();
                self.takes(pid, &shared, Took::Writeback, call, record.time);
            }
            _ => {}
        }
    }

    fn advised(&mut self, pid: i32, range: Range<u64>, advice: u64, call: &Call, time: u64) {
        match syscalls::advice_does(advice) {
            syscalls::Advised::GivesBack => {
                self.takes(pid, &[range], Took::GivenBack, call, time);
            }
            syscalls::Advised::PagesOut => self.takes(pid, &[range], Took::PagedOut, call, time),
            syscalls::Advised::Populates => self.populated(pid, range),
            syscalls::Advised::ReadsAhead(ahead) => {
                let taker = self.taker_of(Took::NoReadahead, call);
                let Some(process) = self.processes.get_mut(&pid) else { return };
                match ahead {
                    true => process.random.remove(&range),
                    false => process.random.set(range, taker),
                }
            }
            syscalls::Advised::Nothing => {}
        }
    }

    fn taker_of(&mut self, took: Took, call: &Call) -> Taker {
        let CallKey { cause, memory, site, .. } = call.key.clone();
        self.memories.taker(TakerKey { took, cause, site, memory })
    }

    fn takes(&mut self, pid: i32, ranges: &[Range<u64>], took: Took, call: &Call, time: u64) {
        let taker = self.taker_of(took, call);
        let Some(process) = self.processes.get_mut(&pid) else { return };
        let takes = if took.pages() { Takes::Pages } else { Takes::Stores };
        let taken: u64 = ranges
            .iter()
            .map(|range| process.space.take(pages(range.clone()), takes, taker, time))
            .sum();
        if let Some((_, count)) = self.memories.takers.get_mut(taker as usize)
            && taken > 0
        {
            count.calls += 1;
            count.pages += taken;
            count.away += taken;
            count.most_away = count.most_away.max(count.away);
        }
    }

    /// Pages are there without a fault.
    fn populated(&mut self, pid: i32, range: Range<u64>) {
        let Some(process) = self.processes.get_mut(&pid) else { return };
        for (taker, back) in process.space.populate(pages(range)) {
            if let Some((_, count)) = self.memories.takers.get_mut(taker as usize) {
                count.back_without_fault += back;
                count.away = count.away.saturating_sub(back);
            }
        }
    }

    fn unmapped(&mut self, pid: i32, range: &Range<u64>) {
        if let Some(process) = self.processes.get_mut(&pid) {
            process.origins.remove(range);
            process.random.remove(range);
            process.protections.remove(range);
        }
    }

    /// The end of the heap is there now.
    fn break_moved(&mut self, pid: i32, end: u64, call: &Call, time: u64) {
        let Some(process) = self.processes.get_mut(&pid) else { return };
        let heap = process.heap.get_or_insert(end..end);
        let given_back = end..heap.end;
        heap.end = end;
        if !given_back.is_empty() {
            self.takes(pid, &[given_back], Took::GivenBack, call, time);
        }
    }

    fn remapped(&mut self, pid: i32, to: u64, call: &Call, time: u64) {
        let [from, old, new, _] = call.args;
        let whole = |bytes: u64| bytes.next_multiple_of(1 << PAGE_BITS);
        let end = |start: u64, bytes: u64| start.saturating_add(whole(bytes));
        if to == from {
            let shrunk = end(from, new)..end(from, old);
            if !shrunk.is_empty() {
                self.takes(pid, std::slice::from_ref(&shrunk), Took::Unmapped, call, time);
                self.unmapped(pid, &shrunk);
            }
        } else if let Some(process) = self.processes.get_mut(&pid) {
            process.maps.moved(from, to, new);
            process.space.moved(pages(from..end(from, old.min(new))), to >> PAGE_BITS);
            self.unmapped(pid, &(from..end(from, old)));
        }
        if let Some(process) = self.processes.get_mut(&pid) {
            process.origins.set(to..end(to, new), (new, call.key.site));
        }
    }

    /// A process was made that shares the pages of its parent until either stores.
    pub(super) fn forks(&mut self, parent: i32, call: &Call, time: u64) {
        self.memories.forks += 1;
        let everything = 0..u64::MAX - 4096;
        self.takes(parent, std::slice::from_ref(&everything), Took::Fork, call, time);
    }

    /// What a process had taken and not touched again is not away any more.
    pub(super) fn memory_gone(&mut self, pid: i32) {
        let Some(process) = self.processes.get_mut(&pid) else { return };
        for (taker, pages) in std::mem::take(&mut process.space).marked() {
            if let Some((_, count)) = self.memories.takers.get_mut(taker as usize) {
                count.away = count.away.saturating_sub(pages);
            }
        }
    }
}

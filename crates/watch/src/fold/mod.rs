//! Folds the records into totals, one at a time, so that memory does not grow with them.
//!
//! Each watched thread is in at most one fault and one watched system call; what the kernel does
//! for it meanwhile belongs to direct reclaim, else to the fault, else to the system call.

mod calls;
mod cause;
mod copies;
mod flushes;
mod guard;
mod memory;
mod overlaps;
mod rules;
mod tally;
mod tell;
mod toggles;
mod victims;
mod waits;

pub use crate::functions::Asked;
pub use cause::{Cause, Reclaim};
pub use flushes::FlushCount;
pub use guard::{Disturbance, Guard, How, OfCpu, Reached};
pub use memory::{
    CallKey, Called, FaultKey, Memories, Memory, Met, Since, TakerCount, TakerKey, Took,
};
pub use rules::{Confidence, Reason, Rule, Surroundings};
pub use tally::{Reading, Tallies, Tally, Times};
pub use toggles::{ToggleCount, Toggled};
pub use victims::{Pair, PairCount, Task, Victims, is_kernels};
pub use waits::WaitCount;

use crate::functions::Functions;
use crate::maps::Maps;
use crate::ranges::Ranges;
use crate::record::{Record, What};
use crate::sites::{Sample, SiteId, Sites};
use crate::space::{Space, Taker};
use crate::stacks::{For, Stacks, Wait};
use crate::syscalls;
use crate::timeline::Moment;
use calls::Calls;
use cause::Call;
use copies::Pages;
use flushes::Issue;
use needless_model::event::{FaultClass, FaultCode};
use overlaps::Overlaps;
use rules::Seen;
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use toggles::Toggles;
use waits::Waits;

/// Faults of one rule.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct FaultCount {
    /// How many.
    pub faults: u64,
    /// From the exception to the end of the fault, nanoseconds, all together.
    pub time_ns: u64,
    /// How often and how long they were off their CPU to wait.
    pub waits: WaitCount,
}

/// What the evidence shows to be needless.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Needless {
    /// A full flush at the start of a page-table walk, for a batched unmap that has been flushed.
    PendingFlush,
    /// A flush of accessed bits of pages that the same call has unmapped and flushed.
    GatherAfterPageout,
    /// The old page of a copy was freed in the same fault.
    CopyOfFreed,
    /// A page was copied that nobody else had since it came from swap.
    CopyAfterSwapIn,
    /// A CPU was interrupted that had nothing to flush any more.
    EmptyInterrupt,
    /// A CPU was interrupted that ran another address space.
    WrongCpu,
    /// A batched flush, which names no address space, interrupted a CPU that ran another process.
    BatchElsewhere,
    /// A protection was only made weaker, and the processor would have found out by itself.
    Grant,
    /// A fault upon a page that a fork had made read-only, and that nobody else had any more.
    ReuseAfterFork,
    /// A page was allocated and freed again, since another thread's fault was faster.
    RacedAllocation,
    /// A CPU was made to leave walks over page tables that it cannot have been in.
    TableSync,
}

/// What happened to be needless, how often, and how often that is certain.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct NeedlessCount {
    /// How often.
    pub times: u64,
    /// Of these, how often nothing else can have been the reason.
    pub certain: u64,
}

/// Everything that was folded.
#[derive(Debug, Default)]
pub struct Totals {
    /// Faults by rule, in the order of [`Reason::ALL`].
    pub faults: FxHashMap<Reason, FaultCount>,
    /// What faults waited for, by rule.
    pub waits: FxHashMap<(Reason, Wait), WaitCount>,
    /// Flushes by cause.
    pub flushes: FxHashMap<Cause, FlushCount>,
    /// Flushes that the kernel's own threads sent, whosever memory they were about, by thread.
    pub sent_by_kernel_threads: FxHashMap<i32, u64>,
    /// Address-space switches of the watched threads that flushed, and that did not.
    pub switches: (u64, u64),
    /// What was needless, by kind and cause.
    pub needless: FxHashMap<(Needless, Cause), NeedlessCount>,
    /// How many records were read.
    pub records: u64,
    /// Of these, those of watched tasks.
    pub own_records: u64,
    /// Of these, flushes and switches of address spaces.
    pub flush_events: u64,
    /// Records lost as the rings tell it themselves.
    pub lost_records: u64,
}

/// What is left when everything has been folded.
#[derive(Debug)]
pub struct Folded {
    /// The totals.
    pub totals: Totals,
    /// Who was interrupted by whom.
    pub victims: Victims,
    /// The functions that were called.
    pub functions: Functions,
    /// Interrupts by CPU.
    pub tallies: Tallies,
    /// Faults and calls by the memory that they are about.
    pub memories: Memories,
    /// Stacks of calls and faults.
    pub sites: Sites,
    /// Pages whose protection was changed alone, to and fro.
    pub toggled: Vec<Toggled>,
    /// Whether switches were recorded.
    pub waits: bool,
    /// The CPUs that were guarded.
    pub guard: Option<Guard>,
}

/// A fault that has not ended.
#[derive(Debug)]
struct Open {
    start: u64,
    address: u64,
    ip: u64,
    seen: Seen,
    pfn: u64,
    freed: Vec<u64>,
    flushes: Vec<Issue>,
    waits: Waits,
}

#[derive(Debug, Default)]
struct Thread {
    pid: i32,
    fault: Option<Open>,
    call: Option<Call>,
    /// The memory that it reclaims now.
    reclaiming: Option<Reclaim>,
    /// The kernel said so, and frees what it had now: kernel/exit.c: do_exit, perf_event_exit_task
    /// before exit_mm, 5.10 to 7.3.
    ended: bool,
    /// Sent and not yet seen locally, or the other way round before 6.1.
    half: flushes::Half,
}

#[derive(Debug, Default)]
struct Process {
    name: Arc<str>,
    maps: Maps,
    userfaultfd: bool,
    forked: bool,
    /// It has, or had, more than one thread.
    several: bool,
    overlaps: Overlaps,
    pages: Pages,
    batch: flushes::Batch,
    /// Its program is being started: nothing but its loader has run.
    starting: bool,
    space: Space,
    /// What brk(2) has made, as far as it was seen.
    heap: Option<std::ops::Range<u64>>,
    /// Sizes of mappings, and the calls that made them.
    origins: Ranges<(u64, SiteId)>,
    /// Ranges that are read without readahead, and the advice.
    random: Ranges<Taker>,
    /// Protections as calls have set them.
    protections: Ranges<u64>,
}

/// A thread that runs already.
pub struct Present<'a> {
    /// Its process.
    pub pid: i32,
    /// Its number.
    pub tid: i32,
    /// Its name.
    pub name: &'a str,
    /// What its process has mapped, as far as it is known.
    pub maps: &'a Maps,
    /// Whether its process may use userfaultfd.
    pub userfaultfd: bool,
    /// Whether its process may have forked.
    pub forked: bool,
    /// Whether it is one of the kernel's own threads.
    pub kernels: bool,
}

/// The state of the fold.
pub struct Fold {
    context: Surroundings,
    /// Before 6.1 the local part of a flush comes first.
    local_first: bool,
    all: bool,
    /// Freed pages are recorded from then on.
    frees_from: u64,
    threads: FxHashMap<i32, Thread>,
    /// Those of them that ended, in this order.
    ended: VecDeque<i32>,
    processes: FxHashMap<i32, Process>,
    victims: Victims,
    calls: Calls,
    functions: Functions,
    stacks: Stacks,
    /// Interrupts by CPU.
    pub tallies: Tallies,
    toggles: Toggles,
    memories: Memories,
    sites: Sites,
    /// The code of a program that was started has run.
    pub started: bool,
    /// Whether switches are recorded.
    pub waits: bool,
    /// Who gets single events, if anybody does.
    pub timeline: Option<SyncSender<Moment>>,
    /// CPUs that are guarded, if there are any.
    pub guard: Option<Guard>,
    /// What there is so far.
    pub totals: Totals,
}

const PAGE_BITS: u32 = 12;

/// Threads that are remembered when they have ended. Those that free memory take no longer than
/// others take to end as well.
const MOST_ENDED: usize = 1024;

impl Fold {
    /// A fold that knows nobody yet. `all`: every task is watched.
    pub fn new(context: Surroundings, local_first: bool, all: bool) -> Fold {
        let (threads, ended, processes) = Default::default();
        let (victims, calls, functions, tallies) = Default::default();
        let (sites, totals, toggles, stacks, memories) = Default::default();
        let frees_from = 0;
        Fold {
            context,
            local_first,
            all,
            frees_from,
            threads,
            ended,
            processes,
            victims,
            calls,
            functions,
            stacks,
            tallies,
            toggles,
            memories,
            sites,
            started: false,
            waits: false,
            timeline: None,
            guard: None,
            totals,
        }
    }

    /// Freed pages are recorded from a point in time on; without this, always.
    pub fn frees_from(&mut self, time: u64) {
        self.frees_from = time;
    }

    /// Makes a thread known that runs already.
    pub fn introduce(&mut self, present: &Present<'_>) {
        let Present { pid, tid, name, maps, userfaultfd, forked, kernels } = *present;
        self.threads.entry(tid).or_default().pid = pid;
        self.victims.runs(tid, name, kernels);
        let process = self.processes.entry(pid).or_default();
        process.several |= pid != tid;
        if pid == tid {
            process.name = name.into();
        }
        process.maps = maps.clone();
        process.space = Space::of_running();
        process.userfaultfd |= userfaultfd;
        process.forked |= forked;
    }

    /// Folds one record in. Records come in order of time.
    pub fn record(&mut self, record: Record) {
        self.totals.records += 1;
        if let What::Flush { reason, pages } = record.what {
            self.totals.own_records += u64::from(self.watches(record.tid));
            return self.flush(&record, reason, pages);
        }
        if record.what.is_an_interrupts() {
            self.totals.own_records += u64::from(self.watches(record.tid));
            return self.interrupt(&record);
        }
        if let What::Switched { to } = record.what {
            self.totals.own_records += u64::from(self.watches(record.tid));
            return self.switched(&record, to);
        }
        if let What::Leaves(stack) = &record.what {
            self.totals.own_records += u64::from(self.watches(record.tid));
            return self.leaves(&record, stack);
        }
        if record.what.may_be_a_strangers() && !self.watches(record.tid) {
            if let What::Reclaim { of, .. } = record.what {
                self.memories.last_reclaim = Some(of);
            }
            return;
        }
        self.totals.own_records += 1;
        if record.what.is_progress() {
            self.victims.goes_on(record.cpu);
        }
        if let What::Lost { records } = record.what {
            self.totals.lost_records += records;
            self.forget();
            return;
        }
        let (pid, tid) = (record.pid, record.tid);
        let thread = self.threads.entry(tid).or_default();
        thread.pid = pid;
        match record.what {
            What::Fault { address, code, user, ip } => {
                self.fault(&record, (address, code), (user, ip))
            }
            What::FaultDone { address, major } => self.fault_done(&record, address, major),
            // Reclaim frees others' pages, and what it allocates is swap space's.
            What::Alloc { .. } | What::Free { .. } if thread.reclaiming.is_some() => {}
            What::Alloc { pfn, order, zeroed } => {
                if let Some(open) = &mut thread.fault {
                    (open.seen.allocated, open.pfn) = (Some((order, zeroed)), pfn);
                }
            }
            What::Free { pfn } => {
                if let Some(open) = &mut thread.fault {
                    let own = open.seen.allocated.is_some() && open.pfn == pfn;
                    open.seen.undone |= own;
                    open.freed.push(pfn);
                }
            }
            What::MapPages => {
                thread.fault.iter_mut().for_each(|open| open.seen.mapped_around = true);
            }
            What::FileFault => {
                thread.fault.iter_mut().for_each(|open| open.seen.file_fault = true);
            }
            What::Enter { number, args, ref from } => {
                let call = Call::new(number, args, record.time, tid);
                self.enter(&record, call, from.as_deref());
            }
            What::Ioctl { request } => {
                let Some(number) = syscalls::ioctl(request) else { return };
                self.answered(pid, number);
                self.enter(&record, Call::new(number, [0; 4], record.time, tid), None);
            }
            What::Exit { result, .. } => self.exit(&record, result),
            What::Reclaim { of, begins } => {
                thread.reclaiming = begins.then_some(of);
                self.memories.last_reclaim = Some(of);
            }
            What::Fork { pid, tid, parent } => self.fork(&record, pid, tid, parent),
            What::Ended => self.ended(tid),
            What::Named { name, exec } => self.named(pid, tid, &name, exec),
            What::Site(sample) => self.site(pid, &sample),
            What::Mapped(mapping) => self.processes.entry(pid).or_default().maps.map(&mapping),
            What::Flush { .. }
            | What::Queue { .. }
            | What::Call { .. }
            | What::Interrupt { .. }
            | What::Send { .. }
            | What::DrainQueued { .. }
            | What::Drain { .. }
            | What::Switched { .. }
            | What::Leaves(_)
            | What::Lost { .. }
            | What::Other => {}
        }
    }

    /// Whether a task is watched.
    pub fn watches(&self, tid: i32) -> bool {
        self.all || self.threads.contains_key(&tid)
    }

    /// Makes a thread known that is about to execute its program, in the middle of `execve`.
    pub fn starting(&mut self, tid: i32) {
        let thread = self.threads.entry(tid).or_default();
        thread.pid = tid;
        thread.call = Some(Call::new(libc::SYS_execve as i32, [0; 4], 0, tid));
        self.processes.entry(tid).or_default().starting = true;
    }

    /// How many interrupts have been timed so far.
    pub fn interrupts_timed(&self) -> usize {
        self.victims.times.values().map(Vec::len).sum()
    }

    /// Ends the fold: faults that are open have no class.
    pub fn finish(mut self) -> Folded {
        let open = self.threads.values().filter(|thread| thread.fault.is_some()).count() as u64;
        if open > 0 {
            self.totals.faults.entry(Reason::NotOver).or_default().faults += open;
        }
        self.settle_all();
        self.guard.iter_mut().for_each(Guard::finish);
        self.victims.name_all(&self.threads_by_name());
        self.tell_the_rest();
        let (toggled, needless) = std::mem::take(&mut self.toggles).finish();
        for (needless, cause, certain) in needless {
            self.needless(needless, cause, certain);
        }
        Folded {
            totals: self.totals,
            victims: self.victims,
            functions: self.functions,
            tallies: self.tallies,
            memories: self.memories,
            sites: self.sites,
            toggled,
            waits: self.waits,
            guard: self.guard,
        }
    }

    fn threads_by_name(&self) -> FxHashMap<i32, (i32, Arc<str>)> {
        let named = |(tid, thread): (&i32, &Thread)| {
            let name = self.processes.get(&thread.pid).map(|process| process.name.clone());
            (*tid, (thread.pid, name.unwrap_or_default()))
        };
        self.threads.iter().map(named).collect()
    }

    fn site(&mut self, pid: i32, sample: &Sample) {
        let process = self.processes.entry(pid).or_default();
        self.sites.sample(sample, pid, &process.maps);
    }

    /// Records were lost: nobody knows any more who is in what.
    fn forget(&mut self) {
        for thread in self.threads.values_mut() {
            (thread.fault, thread.call, thread.reclaiming) = (None, None, None);
            thread.half = flushes::Half::default();
        }
        for process in self.processes.values_mut() {
            process.batch = flushes::Batch::default();
            process.overlaps = Overlaps::default();
        }
        self.victims.forget();
        self.calls.forget();
        self.guard.iter_mut().for_each(Guard::forget);
    }

    fn fault(
        &mut self,
        record: &Record,
        (address, code): (u64, FaultCode),
        (user, ip): (bool, u64),
    ) {
        self.abandoned(record.tid);
        if user {
            self.runs_from(record.pid, ip, false);
        }
        let process = self.processes.entry(record.pid).or_default();
        let memory = process.maps.memory(address);
        if process.several {
            process.overlaps.begins(address >> PAGE_BITS);
        }
        self.toggles.faults((record.pid, address >> PAGE_BITS), record.tid);
        let frees_seen = record.time >= self.frees_from;
        let userfaultfd = process.userfaultfd;
        let seen = Seen { code, memory, userfaultfd, frees_seen, ..Seen::default() };
        let thread = self.threads.entry(record.tid).or_default();
        thread.half = flushes::Half::default();
        thread.fault = Some(Open {
            start: record.time,
            address,
            ip,
            seen,
            pfn: 0,
            freed: Vec::new(),
            flushes: Vec::new(),
            waits: Waits::default(),
        });
    }

    /// The thread does something else although its fault has not ended: it was not counted.
    fn abandoned(&mut self, tid: i32) {
        let Some(thread) = self.threads.get_mut(&tid) else { return };
        if let Some(mut open) = thread.fault.take() {
            let pid = thread.pid;
            let end = open.start;
            self.ends(pid, &mut open, end);
            self.totals.faults.entry(Reason::NoEnd).or_default().faults += 1;
            self.issued(open.flushes, Cause::Fault(FaultClass::Failed));
        }
    }

    fn fault_done(&mut self, record: &Record, address: u64, major: bool) {
        let thread = self.threads.entry(record.tid).or_default();
        let same_page = |open: &mut Open| open.address >> PAGE_BITS == address >> PAGE_BITS;
        let Some(mut open) = thread.fault.take_if(same_page) else {
            self.abandoned(record.tid);
            self.totals.faults.entry(Reason::NoStart).or_default().faults += 1;
            return;
        };
        thread.half = flushes::Half::default();
        (open.seen.major, open.seen.migrated) = (major, open.waits.had(For::Migration));
        self.ends(record.pid, &mut open, record.time);
        let reason = rules::classify(&open.seen, self.context);
        let count = self.totals.faults.entry(reason).or_default();
        count.faults += 1;
        count.time_ns += record.time.saturating_sub(open.start);
        let waits = open.waits.total();
        count.waits.waits += waits.waits;
        count.waits.waited_ns += waits.waited_ns;
        self.tell_fault(record, &open, reason);
        self.meets_memory(record, &open, reason);
        self.waited(reason, std::mem::take(&mut open.waits));
        let class = reason.rule().class;
        self.copied(record.pid, &open, class);
        self.issued(open.flushes, Cause::Fault(class));
    }

    /// Learns from the faults that overlapped with one that ends.
    fn ends(&mut self, pid: i32, open: &mut Open, end: u64) {
        if let Some(process) = self.processes.get_mut(&pid) {
            let allocated = open.seen.allocated.map(|(order, _)| order);
            let page = open.address >> PAGE_BITS;
            open.seen.overlapped = process.overlaps.ends(page, allocated, open.start..end);
        }
    }

    /// Remembers where a page is now, and whether the fault copied it needlessly.
    fn copied(&mut self, pid: i32, open: &Open, class: FaultClass) {
        if let Some(process) = self.processes.get_mut(&pid) {
            let page = open.address >> PAGE_BITS;
            let before = process.pages.before(page).filter(|_| class == FaultClass::CowCopy);
            let frame = open.seen.allocated.filter(|(order, _)| *order == 0).map(|_| open.pfn);
            process.pages.fault(class, page, open.seen.code.write(), frame);
            let certain = !process.forked;
            let needless = match before {
                Some((old, _)) if open.freed.contains(&old) => Needless::CopyOfFreed,
                Some((_, true)) => Needless::CopyAfterSwapIn,
                _ => return,
            };
            self.needless(needless, Cause::Fault(class), certain);
        }
    }

    fn needless(&mut self, needless: Needless, cause: Cause, certain: bool) {
        let count = self.totals.needless.entry((needless, cause)).or_default();
        count.times += 1;
        count.certain += u64::from(certain);
    }

    fn enter(&mut self, record: &Record, mut call: Call, from: Option<&Sample>) {
        self.abandoned(record.tid);
        let pid = record.pid;
        if let Some([_, _, ip]) = from.and_then(|from| from.registers) {
            self.runs_from(pid, ip, true);
        }
        if syscalls::is_about_memory(call.number) {
            call.key.memory = self.memory_at(pid, call.args[0]);
        }
        let process = self.processes.entry(pid).or_default();
        call.key.starting = process.starting;
        call.key.site =
            from.map_or(SiteId::NONE, |from| self.sites.of_call(from, pid, &process.maps));
        process.userfaultfd |= call.number == libc::SYS_userfaultfd as i32;
        let thread = self.threads.entry(record.tid).or_default();
        (thread.call, thread.half) = (Some(call), flushes::Half::default());
    }

    fn exit(&mut self, record: &Record, result: i64) {
        self.abandoned(record.tid);
        let thread = self.threads.entry(record.tid).or_default();
        thread.half = flushes::Half::default();
        let Some(call) = thread.call.take() else { return };
        if let (0, Some((page, protection))) = (result, call.one_page()) {
            self.toggles.changed((record.pid, page), record.tid, protection);
        }
        self.call_ended(record, &call, result);
    }

    /// An ioctl of userfaultfd lets faults of its process go on.
    fn answered(&mut self, pid: i32, number: i32) {
        let process = self.processes.entry(pid).or_default();
        process.userfaultfd = true;
        if !syscalls::resolves_faults(number) {
            return;
        }
        let of_process = self.threads.values_mut().filter(|thread| thread.pid == pid);
        of_process.flat_map(|thread| &mut thread.fault).for_each(|open| open.seen.resolved = true);
    }

    fn fork(&mut self, record: &Record, pid: i32, tid: i32, parent: i32) {
        self.threads.insert(tid, Thread { pid, ..Thread::default() });
        if pid == parent {
            self.processes.entry(pid).or_default().several = true;
            return;
        }
        let call = self.threads.get(&record.tid).and_then(|thread| thread.call.clone());
        if let Some(call) = call.filter(Call::copies_memory) {
            self.forks(parent, &call, record.time);
        }
        let Some(process) = self.processes.get_mut(&parent) else { return };
        process.forked = true;
        process.pages.shared();
        let child = Process {
            name: process.name.clone(),
            maps: process.maps.clone(),
            space: process.space.clone(),
            heap: process.heap.clone(),
            origins: process.origins.clone(),
            forked: true,
            ..Process::default()
        };
        self.processes.insert(pid, child);
    }

    fn ended(&mut self, tid: i32) {
        self.abandoned(tid);
        let Some(thread) = self.threads.get_mut(&tid) else { return };
        // It may have been killed in the middle of anything.
        *thread = Thread { pid: thread.pid, ended: true, ..Thread::default() };
        if thread.pid == tid {
            self.memory_gone(tid);
        }
        let Some(thread) = self.threads.get(&tid) else { return };
        let name = self.processes.get(&thread.pid).map(|process| process.name.clone());
        self.victims.ended(tid, thread.pid, name.unwrap_or_default());
        self.ended.push_back(tid);
        if self.ended.len() > MOST_ENDED {
            self.ended.pop_front().into_iter().for_each(|tid| self.gone(tid));
        }
    }

    /// Forgets a thread that ended, unless a new one has its number.
    fn gone(&mut self, tid: i32) {
        if !self.threads.get(&tid).is_some_and(|thread| thread.ended) {
            return;
        }
        let Some(thread) = self.threads.remove(&tid) else { return };
        if !self.threads.values().any(|other| other.pid == thread.pid) {
            self.processes.remove(&thread.pid);
        }
    }

    fn named(&mut self, pid: i32, tid: i32, name: &str, exec: bool) {
        if exec {
            self.memory_gone(pid);
        }
        let process = self.processes.entry(pid).or_default();
        if exec {
            *process = Process { starting: true, ..Process::default() };
            // What was sent last was for the address space that is gone (fs/exec.c: exec_mmap).
            let thread = self.threads.entry(tid).or_default();
            thread.half = flushes::Half::default();
        }
        if pid == tid {
            process.name = name.into();
        }
        self.victims.named(tid, name);
    }
}

#[cfg(test)]
mod tests;

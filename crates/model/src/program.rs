//! A program: a scenario that is ready to run, with every parameter resolved and every address
//! fixed.
//!
//! The model executes it, and the runner on a real kernel receives it. Loop variables are the only
//! names left. They are kept in numbered slots.

mod expr;
mod lacking;
mod mthp;

use crate::addr::{CpuId, PageRange, ProcessId, ThreadId, Vpn};
use crate::call::{CallExpr, Extent, Refs};
use crate::numa::NumaNeeds;
use crate::userfaultfd::{Answer, Features};
use serde::{Deserialize, Serialize};

pub use crate::backing::{
    Backing, Content, FileMapping, FileSpec, FileSystem, MAX_FILE_PAGES, MAX_LARGE_FILE_PAGES,
    MAX_WRITE_PAGES,
};
pub use expr::{BinaryOp, Expr, ExprError, RangeExpr};
pub use lacking::{Lacking, Refused};
pub use mthp::{Mthp, MthpMode};

/// Version of the encoded [`Program`]; the runner refuses another one.
pub const PROGRAM_VERSION: u32 = 8;

/// The most other processes that one [`CallExpr::Switch`] may name.
pub const MAX_OTHERS: i64 = 8;

/// A scenario that is ready to run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Program {
    /// [`PROGRAM_VERSION`] of the writer.
    pub version: u32,
    /// The scenario's name.
    pub name: String,
    /// The scenario's parameters with their values.
    #[serde(default)]
    pub parameters: Vec<(String, i64)>,
    /// The machine that the scenario needs.
    pub machine: MachineNeeds,
    /// The files that the scenario makes.
    #[serde(default)]
    pub files: Vec<FileSpec>,
    /// The areas: pieces of address space that the scenario names.
    pub areas: Vec<Area>,
    /// The processes. Process 0 exists from the start.
    pub processes: Vec<Process>,
    /// The threads of all processes; thread 0 is the first process's first thread.
    pub threads: Vec<Thread>,
    /// Names of the phase marks.
    pub marks: Vec<String>,
    /// The barriers.
    pub barriers: Vec<Barrier>,
    /// The source text of each operation, by [`Op::id`].
    pub op_texts: Vec<String>,
    /// The number of loop slots that any one thread needs.
    pub slots: u8,
}

/// The machine that a scenario needs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MachineNeeds {
    /// The number of CPUs, which are numbered from 0.
    pub cpus: u16,
    /// The swap device, if the scenario swaps.
    pub swap: Option<SwapNeed>,
    /// Whether the scenario has files on a disk, which needs a file system on a separate disk.
    #[serde(default)]
    pub disk: bool,
    /// The mode of transparent huge pages (`/sys/kernel/mm/transparent_hugepage/enabled`). `None`
    /// leaves the machine's mode unchanged.
    pub thp: Option<ThpMode>,
    /// The modes of large folios of anonymous memory smaller than a huge page. `None` leaves the
    /// machine's modes unchanged.
    #[serde(default)]
    pub mthp: Option<Mthp>,
    /// The number of NUMA nodes, if the scenario needs more than one.
    #[serde(default)]
    pub nodes: Option<u16>,
    /// The properties of the nodes, and the kernel's settings for them.
    #[serde(default)]
    pub numa: NumaNeeds,
}

/// A swap device that a scenario needs.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SwapNeed {
    /// The kind of device.
    pub kind: SwapKind,
    /// The device's size in bytes.
    pub size_bytes: u64,
}

/// Kinds of swap device.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SwapKind {
    /// A zram disk: synchronous (`SWP_SYNCHRONOUS_IO`), so swap-in bypasses the swap cache.
    Zram,
}

/// The modes of `transparent_hugepage/enabled`.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ThpMode {
    /// Mode `always`: all suitable mappings get huge pages.
    Always,
    /// Mode `madvise`: only mappings with `MADV_HUGEPAGE` get huge pages.
    Madvise,
    /// Mode `never`: no fault maps huge pages.
    Never,
}

impl ThpMode {
    /// All modes, each with the kernel's word.
    pub const ALL: [(&'static str, ThpMode); 3] =
        [("always", ThpMode::Always), ("madvise", ThpMode::Madvise), ("never", ThpMode::Never)];

    /// The mode with that word.
    pub fn named(word: &str) -> Option<ThpMode> {
        ThpMode::ALL.iter().find(|(name, _)| *name == word).map(|(_, mode)| *mode)
    }

    /// The kernel's word.
    pub fn word(self) -> &'static str {
        ThpMode::ALL.iter().find(|(_, mode)| *mode == self).map_or("", |(name, _)| name)
    }
}

/// How a thread holds its CPU until the scenario ends.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum Hold {
    /// It runs without touching memory.
    Spin,
    /// It sleeps.
    Sleep,
    /// It sleeps, except that it answers each access that userfaultfd reports.
    Serve(Answer<u16>),
}

/// A named piece of address space. It may be mapped, unmapped and mapped again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Area {
    /// The area's name in the scenario.
    pub name: String,
    /// The area's pages.
    pub range: PageRange,
    /// The memory that is mapped there.
    #[serde(default)]
    pub backing: Backing,
}

impl Area {
    /// An area of private anonymous memory.
    pub fn anonymous(name: impl Into<String>, range: PageRange) -> Area {
        Area { name: name.into(), range, backing: Backing::Anonymous }
    }

    /// The area without its name.
    pub const fn extent(&self) -> Extent {
        Extent { pages: self.range, backing: self.backing }
    }

    #[cold]
    pub(crate) fn outside(&self, first: i64, pages: i64) -> Box<ExprError> {
        let size = self.range.pages() as i64;
        Box::new(ExprError::OutsideArea { area: self.name.clone(), first, pages, size })
    }
}

/// A process: an address space and the threads in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// The process's name in the scenario.
    pub name: String,
}

/// A thread: pinned to one CPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Thread {
    /// The thread's name in the scenario, with a number if the scenario declares several.
    pub name: String,
    /// The CPU that the thread is pinned to.
    pub cpu: CpuId,
    /// The process in whose address space the thread runs.
    #[serde(default)]
    pub process: ProcessId,
    /// Whether it is a kernel thread (`kswapd`), which has no address space. Only the model has
    /// such threads.
    #[serde(default)]
    pub kernel: bool,
    /// The thread's operations.
    pub body: Vec<Op>,
}

/// A barrier. It lists its threads in the order in which they continue after it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Barrier {
    /// The barrier's name.
    pub name: String,
    /// The threads that meet at the barrier.
    pub threads: Vec<ThreadId>,
}

/// One operation of one thread.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Op {
    /// The operation's number: an index into [`Program::op_texts`].
    pub id: u32,
    /// The kind of operation, with its operands.
    pub kind: OpKind,
}

/// A load or a store.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Access {
    /// A load.
    Read,
    /// A store of a value other than zero.
    Write,
    /// A store of zero. (Pages that hold only zeros are not written to swap since 6.12.)
    WriteZero,
}

impl Access {
    /// Whether it is a store.
    pub const fn is_write(self) -> bool {
        !matches!(self, Access::Read)
    }
}

/// The order in which a touch visits its pages.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Order {
    /// Ascending, every `stride`th page.
    Ascending {
        /// The number of pages from one access to the next; at least 1.
        stride: Expr,
    },
    /// `count` accesses drawn by [`crate::rng::SplitMix64`] from `seed`.
    Random {
        /// The number of accesses.
        count: Expr,
        /// The seed of the generator.
        seed: u64,
    },
}

/// The protection of a mapping.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Prot {
    /// No access (`PROT_NONE`).
    None,
    /// Loads only (`PROT_READ`).
    Read,
    /// Loads and stores (`PROT_READ|PROT_WRITE`).
    ReadWrite,
}

/// Advice to `madvise(2)`.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Advice {
    /// The advice `MADV_DONTNEED`.
    DontNeed,
    /// The advice `MADV_FREE`.
    Free,
    /// The advice `MADV_COLD`.
    Cold,
    /// The advice `MADV_PAGEOUT`.
    PageOut,
    /// The advice `MADV_POPULATE_READ`.
    PopulateRead,
    /// The advice `MADV_POPULATE_WRITE`.
    PopulateWrite,
    /// The advice `MADV_REMOVE`.
    Remove,
    /// The advice `MADV_HUGEPAGE`.
    HugePage,
    /// The advice `MADV_NOHUGEPAGE`.
    NoHugePage,
    /// The advice `MADV_COLLAPSE`.
    Collapse,
    /// The advice `MADV_GUARD_INSTALL`.
    GuardInstall,
    /// The advice `MADV_GUARD_REMOVE`.
    GuardRemove,
}

impl Advice {
    /// All kinds of advice, each with its word in scenarios.
    pub const ALL: [(Advice, &'static str); 12] = [
        (Advice::DontNeed, "dontneed"),
        (Advice::Free, "free"),
        (Advice::Cold, "cold"),
        (Advice::PageOut, "pageout"),
        (Advice::PopulateRead, "populate-read"),
        (Advice::PopulateWrite, "populate-write"),
        (Advice::Remove, "remove"),
        (Advice::HugePage, "hugepage"),
        (Advice::NoHugePage, "nohugepage"),
        (Advice::Collapse, "collapse"),
        (Advice::GuardInstall, "guard-install"),
        (Advice::GuardRemove, "guard-remove"),
    ];

    /// The advice's word in scenarios.
    pub fn word(self) -> &'static str {
        Advice::ALL.iter().find(|(a, _)| *a == self).map_or("", |(_, w)| w)
    }
}

/// The kinds of operation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum OpKind {
    /// A system call, or another operation of the kernel.
    Call(CallExpr),
    /// Loads or stores, one for each page visited.
    Touch {
        /// The pages.
        range: RangeExpr,
        /// Whether it loads or stores.
        access: Access,
        /// The order of the accesses.
        order: Order,
    },
    /// Running on the CPU, without touching memory, until the scenario ends.
    Spin,
    /// Sleeping. The CPU goes idle and keeps the address space loaded lazily.
    Sleep {
        /// The duration in nanoseconds; `None` means until the scenario ends.
        duration_ns: Option<Expr>,
    },
    /// Sleeping until the scenario ends, except for answers to accesses that userfaultfd reports.
    Serve {
        /// The answer to each access.
        answer: Answer<u16>,
    },
    /// Waiting for the other threads of a barrier.
    Barrier {
        /// The barrier's index in [`Program::barriers`].
        barrier: u16,
    },
    /// The body, `count` times.
    Repeat {
        /// The slot that counts from 0.
        slot: u8,
        /// The number of repetitions.
        count: Expr,
        /// The repeated operations.
        body: Vec<Op>,
    },
    /// The body, executed once for every `stride`th page of the range.
    ForEach {
        /// The slot that holds the page's index in its area.
        slot: u8,
        /// The pages.
        range: RangeExpr,
        /// The number of pages from one execution to the next.
        stride: Expr,
        /// The operations for each page.
        body: Vec<Op>,
    },
    /// The scenario's rounds, the unit of every per-round figure. Only thread 0 has them, and only
    /// once. They start with the LRU batch of the thread's CPU drained. Otherwise whatever ran on
    /// the CPU before would decide which pages a kernel can reuse.
    Rounds {
        /// The slot that counts rounds, warm-up included, from 0.
        slot: u8,
        /// The number of warm-up rounds, which do not count.
        warmup: u32,
        /// The number of rounds that count.
        count: u32,
        /// The operations of one round.
        body: Vec<Op>,
    },
    /// A body whose execution is timed in cycles.
    Measure {
        /// The timed operations.
        body: Vec<Op>,
    },
    /// A phase mark.
    Mark {
        /// The mark's index in [`Program::marks`].
        mark: u16,
    },
}

impl OpKind {
    /// The operation's name if it exists only in the model.
    fn model_only(&self) -> Option<&'static str> {
        match self {
            OpKind::Call(call) => call.model_only(),
            OpKind::Touch { .. }
            | OpKind::Spin
            | OpKind::Sleep { .. }
            | OpKind::Serve { .. }
            | OpKind::Barrier { .. }
            | OpKind::Repeat { .. }
            | OpKind::ForEach { .. }
            | OpKind::Rounds { .. }
            | OpKind::Measure { .. }
            | OpKind::Mark { .. } => None,
        }
    }

    /// The operations inside this one.
    pub fn body(&self) -> &[Op] {
        match self {
            OpKind::Repeat { body, .. }
            | OpKind::ForEach { body, .. }
            | OpKind::Rounds { body, .. }
            | OpKind::Measure { body } => body,
            OpKind::Call(_)
            | OpKind::Touch { .. }
            | OpKind::Spin
            | OpKind::Sleep { .. }
            | OpKind::Serve { .. }
            | OpKind::Barrier { .. }
            | OpKind::Mark { .. } => &[],
        }
    }
}

impl Thread {
    /// A thread of the first process.
    pub fn new(name: impl Into<String>, cpu: CpuId, body: Vec<Op>) -> Thread {
        let (name, process) = (name.into(), ProcessId::FIRST);
        Thread { name, cpu, process, kernel: false, body }
    }

    /// Whether the thread does nothing but hold its CPU in one state.
    pub fn only_holds(&self) -> bool {
        self.holds().is_some()
    }

    /// The operation that serves the userfaultfd, and its answer, if the thread has one.
    pub fn serves(&self) -> Option<(u32, Answer<u16>)> {
        self.body.iter().find_map(|op| match op.kind {
            OpKind::Serve { answer } => Some((op.id, answer)),
            _ => None,
        })
    }

    /// How the thread holds its CPU, if it does nothing else.
    pub fn holds(&self) -> Option<Hold> {
        let spins = |op: &Op| (op.kind == OpKind::Spin).then_some(Hold::Spin);
        let sleeps =
            |op: &Op| (op.kind == OpKind::Sleep { duration_ns: None }).then_some(Hold::Sleep);
        let serves = |op: &Op| match op.kind {
            OpKind::Serve { answer } => Some(Hold::Serve(answer)),
            _ => None,
        };
        let holds = |op: &Op| spins(op).or_else(|| sleeps(op)).or_else(|| serves(op));
        self.body.iter().map(holds).collect::<Option<Vec<Hold>>>()?.first().copied()
    }
}

impl Default for Program {
    /// A program of one process that does nothing.
    fn default() -> Program {
        Program {
            version: PROGRAM_VERSION,
            parameters: Vec::new(),
            name: String::new(),
            machine: MachineNeeds::default(),
            files: Vec::new(),
            areas: Vec::new(),
            processes: vec![Process { name: "main".to_owned() }],
            threads: Vec::new(),
            marks: Vec::new(),
            barriers: Vec::new(),
            op_texts: Vec::new(),
            slots: 0,
        }
    }
}

impl Program {
    /// Whether only the first thread's operations continue from round to round: the other threads
    /// of its process only hold their CPUs, and the other processes end in the round in which they
    /// are forked.
    pub fn only_first_acts(&self) -> bool {
        let first = |thread: &Thread| thread.process == ProcessId::FIRST;
        let (threads, forked): (Vec<_>, Vec<_>) =
            self.threads.iter().skip(1).partition(|t| first(t));
        threads.into_iter().all(Thread::only_holds)
            && forked.into_iter().all(|thread| self.ends_in_its_round(thread.process))
    }

    /// Whether the process is forked only inside rounds, and the thread that forks it waits for it
    /// afterwards.
    fn ends_in_its_round(&self, process: ProcessId) -> bool {
        let parts = self.threads.iter().filter_map(|thread| last_about(&thread.body, process));
        let parts: Vec<CallExpr> = parts.collect();
        let in_rounds = || {
            let first = self.threads.first().map_or(&[][..], |thread| &thread.body);
            let outside = first.iter().filter(|op| !matches!(op.kind, OpKind::Rounds { .. }));
            let forks = |op: &&Op| op.kind == OpKind::Call(CallExpr::Fork { process });
            outside.flat_map(|op| all_ops(std::slice::from_ref(op))).find(forks).is_none()
        };
        let waits = |call: &CallExpr| *call == CallExpr::Wait { process };
        parts.len() <= 1 && parts.iter().all(waits) && in_rounds()
    }

    /// The page's name as scenarios write it, with its area and its index there: `heap[3]`.
    pub fn page_name(&self, page: Vpn) -> Option<String> {
        let area = self.areas.iter().find(|a| a.range.contains(page))?;
        Some(format!("{}[{}]", area.name, page.since(area.range.start)))
    }

    /// Whether `page` lies in one of the scenario's areas.
    pub fn owns(&self, page: Vpn) -> bool {
        self.areas.iter().any(|a| a.range.contains(page))
    }

    /// The memory that is mapped in the area of `page`.
    pub fn backing_of(&self, page: Vpn) -> Backing {
        let area = self.areas.iter().find(|area| area.range.contains(page));
        area.map_or(Backing::Anonymous, |area| area.backing)
    }

    /// The number of frames that its files need: one for each page, and enough more to align large
    /// folios to their size.
    pub fn file_pages(&self) -> u32 {
        let needs = |file: &FileSpec| file.pages.saturating_add(file.largest_folio() - 1);
        let pages = self.files.iter().fold(0, |sum: u64, file| sum.saturating_add(needs(file)));
        u32::try_from(pages).unwrap_or(u32::MAX)
    }

    /// All operations, thread by thread, each followed by the operations inside it.
    pub fn ops(&self) -> impl Iterator<Item = &Op> {
        self.threads.iter().flat_map(|thread| all_ops(&thread.body))
    }

    /// The text of a part that only the model can run: the first kernel thread, or the first such
    /// operation. `None` if a real kernel can run the whole program.
    pub fn model_only(&self) -> Option<String> {
        let kernel = self.threads.iter().find(|thread| thread.kernel);
        if let Some(thread) = kernel {
            return Some(format!("kernel-thread {}", thread.name));
        }
        let (op, word) = self.ops().find_map(|op| Some((op, op.kind.model_only()?)))?;
        let text = self.op_texts.get(op.id as usize);
        Some(text.map_or_else(|| word.to_owned(), Clone::clone))
    }

    /// Changes the number of rounds that count. The first thread has the rounds, at any depth.
    pub fn change_rounds(&mut self, change: impl Fn(u32) -> u32) {
        if let Some(first) = self.threads.first_mut() {
            change_rounds(&mut first.body, &change);
        }
    }

    /// The number of warm-up rounds.
    pub fn warmup(&self) -> u32 {
        let mut ops = self.threads.first().into_iter().flat_map(|first| all_ops(&first.body));
        let warmup = |op: &Op| match op.kind {
            OpKind::Rounds { warmup, .. } => Some(warmup),
            _ => None,
        };
        ops.find_map(warmup).unwrap_or(0)
    }

    /// Whether the program gives any of these kinds of advice.
    pub fn advises(&self, advices: &[Advice]) -> bool {
        self.ops().any(|op| match &op.kind {
            OpKind::Call(
                CallExpr::Advise { advice, .. } | CallExpr::AdviseRanges { advice, .. },
            ) => advices.contains(advice),
            _ => false,
        })
    }

    /// Whether the program populates mappings of files on disks, so that pages are read without an
    /// exception.
    pub fn populates_disks(&self) -> bool {
        let populates = |op: &Op| match &op.kind {
            OpKind::Call(
                CallExpr::Advise { pages, advice: Advice::PopulateRead | Advice::PopulateWrite }
                | CallExpr::AdviseRanges {
                    pages,
                    advice: Advice::PopulateRead | Advice::PopulateWrite,
                    ..
                },
            )
            | OpKind::Call(CallExpr::Mlock { pages, on_fault: false, .. }) => {
                matches!(self.backing(pages), Backing::File(file) if file.fs.is_written_back())
            }
            _ => false,
        };
        self.ops().any(populates)
    }

    /// Whether mapped pages of files or of shared memory may go to swap: the program pages them
    /// out, and there is a swap device.
    pub fn swaps_objects(&self) -> bool {
        let pages_out = |op: &Op| match &op.kind {
            OpKind::Call(
                CallExpr::Advise { pages, advice: Advice::PageOut }
                | CallExpr::AdviseRanges { pages, advice: Advice::PageOut, .. },
            ) => self.backing(pages) != Backing::Anonymous,
            _ => false,
        };
        self.machine.swap.is_some() && self.ops().any(pages_out)
    }

    /// Whether system calls may fill pages of files, so that pages in swap are read without a
    /// fault.
    pub fn fills_files(&self) -> bool {
        let fills = |op: &Op| {
            let call = matches!(
                op.kind,
                OpKind::Call(CallExpr::WriteFile { .. } | CallExpr::UffdFill { .. })
            );
            call || matches!(op.kind, OpKind::Call(CallExpr::UffdAnswer { .. }))
        };
        self.ops().any(fills) || self.threads.iter().any(|thread| thread.serves().is_some())
    }

    fn backing(&self, pages: &RangeExpr) -> Backing {
        self.areas[usize::from(pages.area)].backing
    }

    /// Whether the program handles SIGSEGV.
    pub fn handles_signals(&self) -> bool {
        self.ops().any(|op| matches!(op.kind, OpKind::Call(CallExpr::Sigaction)))
    }

    /// Whether the program locks memory.
    pub fn locks_memory(&self) -> bool {
        self.ops().any(|op| matches!(op.kind, OpKind::Call(CallExpr::Mlock { .. })))
    }

    /// Whether the program clears soft-dirty bits.
    pub fn clears_soft_dirty(&self) -> bool {
        let clears = CallExpr::ClearRefs { refs: Refs::SoftDirty };
        self.ops().any(|op| matches!(&op.kind, OpKind::Call(call) if *call == clears))
    }

    /// Whether the program reads soft-dirty bits.
    pub fn reads_soft_dirty(&self) -> bool {
        self.ops().any(|op| matches!(op.kind, OpKind::Call(CallExpr::Pagemap { .. })))
    }

    /// The features of the program's userfaultfd, if it needs one.
    pub fn userfaultfd(&self) -> Option<Features> {
        let asked = self.ops().filter_map(|op| match op.kind {
            OpKind::Call(CallExpr::UffdRegister { registration, .. }) => {
                Some(registration.features)
            }
            OpKind::Serve { .. }
            | OpKind::Call(CallExpr::UffdUnregister { .. } | CallExpr::UffdProtect { .. }) => {
                Some(Features::default())
            }
            _ => None,
        });
        asked.max()
    }

    /// The number of pins.
    pub fn pins(&self) -> usize {
        let pin = |op: &Op| match op.kind {
            OpKind::Call(CallExpr::Pin { pin, .. }) => Some(pin.index() + 1),
            _ => None,
        };
        self.ops().filter_map(pin).max().unwrap_or(0)
    }

    /// Whether a process continues with another program (`execve`). Only the end of that program is
    /// modelled.
    pub fn executes(&self) -> bool {
        self.ops().any(|op| matches!(op.kind, OpKind::Call(CallExpr::Exec)))
    }

    /// The most other processes that one [`CallExpr::Switch`] needs.
    pub fn other_processes(&self) -> usize {
        self.ops().filter_map(|op| most_others(&op.kind)).max().unwrap_or(0)
    }
}

fn change_rounds(body: &mut [Op], change: &impl Fn(u32) -> u32) {
    for op in body {
        match &mut op.kind {
            OpKind::Rounds { count, .. } => *count = change(*count),
            OpKind::Repeat { body, .. }
            | OpKind::ForEach { body, .. }
            | OpKind::Measure { body } => change_rounds(body, change),
            kind => debug_assert!(kind.body().is_empty(), "rounds may be in {kind:?}"),
        }
    }
}

/// The last fork of, or wait for, a process in a body.
fn last_about(body: &[Op], process: ProcessId) -> Option<CallExpr> {
    let about = [CallExpr::Fork { process }, CallExpr::Wait { process }];
    let asks =
        |op: &Op| about.iter().find(|call| op.kind == OpKind::Call((*call).clone())).cloned();
    all_ops(body).filter_map(asks).last()
}

/// The operations of `body` in order, each followed by the operations inside it.
pub fn all_ops(body: &[Op]) -> impl Iterator<Item = &Op> {
    let mut open = vec![body.iter()];
    std::iter::from_fn(move || {
        while let Some(rest) = open.last_mut() {
            if let Some(op) = rest.next() {
                open.push(op.kind.body().iter());
                return Some(op);
            }
            open.pop();
        }
        None
    })
}

/// The most other processes that one operation needs.
fn most_others(kind: &OpKind) -> Option<usize> {
    let OpKind::Call(CallExpr::Switch { others }) = kind else { return None };
    let most = match others {
        Expr::Const(others) => (*others).clamp(0, MAX_OTHERS),
        Expr::Slot(_) | Expr::Binary(..) => MAX_OTHERS,
    };
    Some(most as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::OTHERS;

    fn switch(others: Expr) -> Op {
        Op { id: 0, kind: OpKind::Call(CallExpr::Switch { others }) }
    }

    fn program(body: Vec<Op>, kernel: bool) -> Program {
        let thread = Thread { kernel, ..Thread::new("t", CpuId(0), body) };
        let op_texts = vec!["switch 2".to_owned()];
        Program { threads: vec![thread], op_texts, slots: 1, ..Program::default() }
    }

    #[test]
    fn operations_come_before_those_inside_them() {
        let op = |id, body| Op { id, kind: OpKind::Measure { body } };
        let leaf = |id| Op { id, kind: OpKind::Spin };
        let body = [op(0, vec![leaf(1), op(2, vec![leaf(3)]), op(4, vec![])]), leaf(5)];
        assert_eq!(all_ops(&body).map(|op| op.id).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5]);
    }

    #[test]
    fn other_processes_are_counted_in_bodies() {
        let repeat = |op| OpKind::Repeat { slot: 0, count: Expr::Const(2), body: vec![op] };
        let body = |op| vec![switch(Expr::Const(2)), Op { id: 0, kind: repeat(op) }];
        assert_eq!(program(body(switch(Expr::Const(1))), false).other_processes(), 2);
        assert_eq!(program(body(switch(Expr::Slot(0))), false).other_processes(), 8);
        assert_eq!(program(Vec::new(), false).other_processes(), 0);
        let others = |count| Expr::Const(count).eval_within(&[], OTHERS);
        assert_eq!(others(8), Ok(8));
        assert!(others(0).is_err() && others(9).is_err());
    }

    #[test]
    fn a_process_that_is_waited_for_is_over_by_the_end_of_the_round() {
        let process = ProcessId(1);
        let call = |call| Op { id: 0, kind: OpKind::Call(call) };
        let (fork, wait) = (CallExpr::Fork { process }, CallExpr::Wait { process });
        let alone = |before: &[CallExpr], round: &[CallExpr], other: Thread| {
            let ops = |calls: &[CallExpr]| calls.iter().cloned().map(call).collect::<Vec<_>>();
            let rounds = OpKind::Rounds { slot: 0, warmup: 0, count: 1, body: ops(round) };
            let mut body = ops(before);
            body.push(Op { id: 0, kind: rounds });
            let child = Thread { process, ..Thread::new("child", CpuId(1), Vec::new()) };
            let threads = vec![Thread::new("main", CpuId(0), body), child, other];
            Program { threads, ..Program::default() }.only_first_acts()
        };
        let spin = || vec![Op { id: 0, kind: OpKind::Spin }];
        let other = |body| Thread::new("other", CpuId(2), body);
        let both = [fork.clone(), wait.clone()];
        assert!(alone(&[], &both, other(spin())));
        assert!(!alone(&[], &both[..1], other(spin())), "it lives on");
        assert!(!alone(&both[..1], &both[1..], other(spin())), "it began before");
        assert!(!alone(&[], &both, other(vec![call(wait)])), "another one acts");
    }

    #[test]
    fn what_only_the_model_runs_is_named() {
        let measure = OpKind::Measure { body: vec![switch(Expr::Const(2))] };
        let inside = program(vec![Op { id: 0, kind: measure }], false);
        assert_eq!(inside.model_only().as_deref(), Some("switch 2"));
        let thread = program(Vec::new(), true);
        assert_eq!(thread.model_only().as_deref(), Some("kernel-thread t"));
        assert_eq!(program(vec![Op { id: 0, kind: OpKind::Spin }], false).model_only(), None);
    }
}

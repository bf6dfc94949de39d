//! The simulator: runs a program in the model, in discrete order.
//!
//! One thread is active at a time. It hands over when it waits at a barrier, spins, sleeps until
//! the end, or ends. Turns follow the declared order; the threads of a complete barrier queue up.
//! Equal inputs give equal events, bit for bit.

pub(crate) mod access;
mod alike;
mod env;
mod interpret;
#[cfg(test)]
mod memory_tests;
mod rounds;
mod splits;
#[cfg(test)]
mod waiting_tests;
mod watch;

pub use alike::alike_from;
pub use env::{NoGhost, SimEnv, SimLog, SimMode, SimWorld};
pub use watch::{Look, Watch};

use crate::addr::{MmId, NodeId, ProcessId, Vpn};
use crate::arch::Arch;
use crate::env::Context;
use crate::feature::Feature;
use crate::final_pages::{FinalPages, Holds, PageState, too_many};
use crate::kernel::Errno;
use crate::kernel::exit::{exit_mmap, exit_thread};
use crate::kernel::soft_dirty::is_soft_dirty;
use crate::kernels::KernelRow;
use crate::machine::consistency::contradiction;
use crate::machine::mm::Life;
use crate::machine::nodes::Nodes;
use crate::machine::room::Room;
use crate::machine::sim_tlbs::SimTlbs;
use crate::machine::world::{Inconsistency, WorldSpec, mm_of};
use crate::policy::PagemapUffd;
use crate::program::{ExprError, Lacking, PROGRAM_VERSION, Program, Refused, Thread};
use crate::pte::Pte;
use crate::run::{Round, TargetRun};
use crate::site::Site;
use interpret::Machine;
use std::collections::BTreeMap;
use std::fmt;

/// The number of page frames of the machine: 2 TiB. They take memory only when they are used.
const FRAMES: u32 = 1 << 29;

/// The most events that one round may have.
const EVENTS: usize = 40_000_000;

/// Options of a simulation.
#[derive(Copy, Clone, Debug)]
pub struct SimOptions {
    /// Whether PTE changes are recorded, too.
    pub pte_events: bool,
    /// The number of bytes that the run may take.
    pub memory: u64,
    /// Whether every frame's counts are compared with the page table after each operation, and the
    /// evidence of every verdict with the sets of everything that may be cached. This is slow, and
    /// meant for tests.
    pub paranoid: bool,
    /// Whether the log marks where a processor may choose to fault
    /// ([`EventKind::MayFault`](crate::event::EventKind::MayFault)).
    pub choices: bool,
    /// Show the world to who watches, after each operation and fault. Slow; for a single round that
    /// people look at.
    pub shows: bool,
    /// Whether each round but the first runs as if the runner repeated it after a disturbance.
    pub repeats: bool,
    /// The number of warm-up rounds after which the warm-up restarts once, as the runner does after
    /// a disturbance; 0: never.
    pub renews_after: u32,
}

impl Default for SimOptions {
    fn default() -> Self {
        SimOptions {
            pte_events: false,
            memory: 16 << 30,
            paranoid: false,
            choices: false,
            shows: false,
            repeats: false,
            renews_after: 0,
        }
    }
}

/// An operation of the scenario.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpAt {
    /// The operation's number ([`crate::program::Op::id`]).
    pub id: u32,
    /// The operation's source text.
    pub text: String,
}

impl OpAt {
    /// The operation with this number.
    pub fn of(program: &Program, id: u32) -> OpAt {
        let text = program.op_texts.get(id as usize).cloned().unwrap_or_default();
        OpAt { id, text }
    }
}

/// The prefix of a message: the operation that it is about.
fn of(op: Option<&OpAt>) -> String {
    op.map_or_else(String::new, |op| format!("`{op}`: "))
}

impl fmt::Display for OpAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// A thread that waits forever.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The thread's name.
    pub thread: String,
    /// The place or the thing that it waits for.
    pub what: String,
    /// Whether it waits for a process that does not end.
    pub for_process: bool,
    /// Whether it waits for an answer of userfaultfd.
    pub for_answer: bool,
    /// The number of the operation that waits.
    pub op: u32,
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` waits {}", self.thread, self.what)
    }
}

/// Why a simulation stopped.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SimError {
    /// The program has another format version.
    #[error("the program has format {found}; this version runs format {PROGRAM_VERSION}")]
    Version {
        /// The program's format version.
        found: u32,
    },
    /// The scenario needs something that is not modelled.
    #[error("{}the model has no {what}; a real kernel does (`-t live`, `-t kernel:RELEASE`)", of(op.as_ref()))]
    NotModelled {
        /// The operation that needs it; `None` if the machine does.
        op: Option<OpAt>,
        /// The name of the unsupported thing.
        what: &'static str,
    },
    /// The row's kernel lacks something that the scenario's machine needs.
    #[error("{row} has no {what}")]
    Missing {
        /// The row's name.
        row: String,
        /// The missing thing, and the kernels that have it.
        what: &'static str,
    },
    /// The scenario makes a request that every kernel refuses.
    #[error("`{op}`: {what}")]
    Refused {
        /// The operation.
        op: OpAt,
        /// The request, and the kernels' answer.
        what: &'static str,
        /// A suggestion for the scenario's author.
        help: &'static str,
    },
    /// An expression has no value.
    #[error("`{op}`: {error}")]
    Expr {
        /// The operation.
        op: OpAt,
        /// The reason.
        error: Box<ExprError>,
    },
    /// A system call failed.
    #[error("{}", failed_call(op, *errno, *lacks))]
    Call {
        /// The operation.
        op: OpAt,
        /// The error number.
        errno: Errno,
        /// The feature that the kernel lacks, if that is the reason.
        lacks: Option<Feature>,
    },
    /// An access raised a signal.
    #[error("`{op}`: the access to {page} is not allowed (SIGSEGV)")]
    Signal {
        /// The operation.
        op: OpAt,
        /// The page.
        page: String,
    },
    /// The file ends before the page.
    #[error("`{op}`: the access to {page} is beyond the end of its file (SIGBUS)")]
    BehindEnd {
        /// The operation.
        op: OpAt,
        /// The page.
        page: String,
    },
    /// The page is poisoned.
    #[error("`{op}`: the access to {page} is to a poisoned page (SIGBUS)")]
    Poisoned {
        /// The operation.
        op: OpAt,
        /// The page.
        page: String,
    },
    /// The run needs more memory than it may take.
    #[error("`{op}`: the model needs more memory for this than the {} MiB that it may use", most >> 20)]
    OutOfMemory {
        /// The operation.
        op: OpAt,
        /// The bytes that the run may take.
        most: u64,
    },
    /// An access faulted repeatedly.
    #[error("`{op}`: the access to {page} still faults after {tries} tries: a bug in the model")]
    NoProgress {
        /// The operation.
        op: OpAt,
        /// The page.
        page: String,
        /// The number of tries.
        tries: u32,
    },
    /// An access would use a revoked translation.
    #[error(
        "`{op}`: the access to {page} would use a stale translation: a flush is missing (an unsafe policy, or a bug in the model)"
    )]
    StaleUse {
        /// The operation.
        op: OpAt,
        /// The page.
        page: String,
    },
    /// The model contradicts itself.
    #[error(
        "`{op}`: the model contradicts itself: {error} (a bug in the model); last events: {history}"
    )]
    Inconsistent {
        /// The operation.
        op: OpAt,
        /// The contradiction.
        error: Inconsistency,
        /// The last events, for a bug report.
        history: String,
    },
    /// A round has too many events to keep.
    #[error("`{op}`: the round has more than {most} events; split it into several rounds")]
    TooManyEvents {
        /// The operation.
        op: OpAt,
        /// The most events that a round may have.
        most: usize,
    },
    /// The watcher stopped the run.
    #[error("`{op}`: {reason}")]
    Stopped {
        /// The operation.
        op: OpAt,
        /// The watcher's reason.
        reason: String,
    },
    /// Every thread waits.
    #[error("no thread can go on: {}", list(waiting))]
    Deadlock {
        /// The waiting threads.
        waiting: Vec<Waiting>,
    },
}

/// These words for a missing feature are also those of a real kernel's (crates/runner/src/exec.rs).
fn failed_call(op: &OpAt, errno: Errno, lacks: Option<Feature>) -> String {
    match lacks {
        Some(feature) => format!("`{op}`: this kernel has no {}", feature.words()),
        None => format!("`{op}` failed: {errno}"),
    }
}

fn list(waiting: &[Waiting]) -> String {
    waiting.iter().map(Waiting::to_string).collect::<Vec<_>>().join(", ")
}

impl SimError {
    /// Whether the scenario itself is bad, because it makes a request that every kernel refuses.
    pub fn is_the_programs(&self) -> bool {
        matches!(
            self,
            SimError::Expr { .. }
                | SimError::Call { .. }
                | SimError::Refused { .. }
                | SimError::Signal { .. }
                | SimError::BehindEnd { .. }
                | SimError::Poisoned { .. }
                | SimError::Deadlock { .. }
        )
    }

    /// Whether the program needs more than the model may use.
    pub fn is_a_bound(&self) -> bool {
        matches!(
            self,
            SimError::OutOfMemory { .. }
                | SimError::TooManyEvents { .. }
                | SimError::Stopped { .. }
        )
    }
}

/// Runs `program` on the kernel of `row` and returns its rounds.
pub fn run(
    program: &Program,
    row: &KernelRow,
    options: &SimOptions,
) -> Result<TargetRun, SimError> {
    let mut rounds = Vec::new();
    let mut run = run_with(program, row, options, &mut |round: &Round| rounds.push(round.clone()))?;
    run.witness.attempted = rounds.len() as u32;
    run.rounds = rounds;
    Ok(run)
}

/// Runs `program` and passes each round to `watch`. The result's own list of rounds stays empty.
pub fn run_with(
    program: &Program,
    row: &KernelRow,
    options: &SimOptions,
    watch: &mut dyn Watch,
) -> Result<TargetRun, SimError> {
    let mut world = settled(program, row, row.arch(), options, watch)?;
    let final_pages = final_pages(program, &world);
    finish(program, &mut world);
    if let Some(error) = contradiction(&world) {
        let at = Context::of(program, 0, 0).at(Site::ExitMmap);
        let error = Inconsistency { what: error, at };
        return Err(SimError::Inconsistent {
            op: OpAt { id: u32::MAX, text: "the end".to_owned() },
            error,
            history: String::new(),
        });
    }
    let mut unseen = BTreeMap::from([("cycles".to_owned(), "the model has no clock".to_owned())]);
    if !row.arch().flushes_are_its_own() {
        let reason = "how this architecture flushes is not modelled".to_owned();
        unseen.insert("flushes".to_owned(), reason);
    }
    Ok(TargetRun {
        target: format!("model:{}", row.name),
        final_pages,
        unseen,
        ..TargetRun::default()
    })
}

/// The world of a machine of `arch` after every thread of `program` is done or waits for the end.
pub fn end_state(
    program: &Program,
    row: &KernelRow,
    arch: Arch,
    options: &SimOptions,
) -> Result<SimWorld, SimError> {
    settled(program, row, arch, options, &mut |_: &Round| {})
}

fn settled(
    program: &Program,
    row: &KernelRow,
    arch: Arch,
    options: &SimOptions,
    watch: &mut dyn Watch,
) -> Result<SimWorld, SimError> {
    if program.version != PROGRAM_VERSION {
        return Err(SimError::Version { found: program.version });
    }
    if let Some(Refused { op, what, help }) = program.refused() {
        return Err(SimError::Refused { op: OpAt::of(program, op), what, help });
    }
    if let Some(Lacking { op, what }) = program.not_modelled(row) {
        let op = op.map(|op| OpAt::of(program, op));
        return Err(SimError::NotModelled { op, what });
    }
    if let Some(what) = program.missing_on(row) {
        return Err(SimError::Missing { row: row.name.clone(), what });
    }
    let mut world = new_world(program, row, arch, options);
    Machine::new(program, &mut world, options, watch).run().map_err(|error| *error)?;
    Ok(world)
}

fn new_world(program: &Program, row: &KernelRow, arch: Arch, options: &SimOptions) -> SimWorld {
    let swap_pages = program.machine.swap.map_or(0, |swap| swap.size_bytes >> arch.page_shift);
    let spec = WorldSpec {
        policies: row.policies,
        config: row.config.for_program(program),
        arch,
        cpus: usize::from(program.machine.cpus).max(1),
        threads: program.threads.len(),
        processes: program.processes.len(),
        others: program.other_processes(),
        nodes: Nodes::for_program(
            program,
            FRAMES.saturating_add(program.file_pages()),
            arch.order(2),
        ),
        swap_pages: u32::try_from(swap_pages).unwrap_or(u32::MAX),
        pins: program.pins(),
        files: program.files.clone(),
        room: Room::of(options.memory),
    };
    let tlbs = SimTlbs::new(spec.cpus, spec.slots()).within(spec.room.clone());
    let tlbs = if options.paranoid { tlbs.checked(spec.arch.accessed_dirty) } else { tlbs };
    let (huge, pieces) = (spec.arch.order(2), spec.config.tlb_pieces);
    let tlbs = if options.choices { tlbs.with_upgrades(huge, pieces) } else { tlbs };
    SimWorld::new(&spec, tlbs, NoGhost, SimLog::new(options.pte_events, EVENTS, spec.room.clone()))
}

/// Ends all threads. The first thread of a process ends last, and the address space with it.
fn finish(program: &Program, world: &mut SimWorld) {
    for (thread, Thread { process, .. }) in program.threads.iter().enumerate().rev() {
        if world.mms[mm_of(*process).index()].life == Life::None {
            continue;
        }
        let mut env = SimEnv::of(world, program, thread, 0);
        if program.threads[..thread].iter().any(|before| before.process == *process) {
            exit_thread(&mut env);
        } else {
            exit_mmap(&mut env, mm_of(*process));
        }
    }
}

/// The state of each page, in the words of [`TargetRun::final_pages`]. Names of pages of processes
/// other than the first begin with the process's name: `child:heap[3]`.
fn final_pages(program: &Program, world: &SimWorld) -> BTreeMap<String, String> {
    let mut states = FinalPages::default();
    if too_many(program).is_some() {
        return states.by_name();
    }
    for (number, process) in program.processes.iter().enumerate() {
        let mm = mm_of(ProcessId(number as u16));
        let space = &world.mms[mm.index()];
        let pages = program.areas.iter().flat_map(|area| area.range.iter());
        for page in pages.filter(|page| space.vma(*page).is_some()) {
            let Some(name) = program.page_name(page) else { continue };
            let name = if number == 0 { name } else { format!("{}:{name}", process.name) };
            let state = page_state(world, mm, page);
            states.tell(name.clone(), state);
            if world.nodes.count() > 1
                && let Some(node) = node_of(world, mm, page)
            {
                states.tell_node(&name, node.0);
            }
        }
        let name = if number == 0 { String::new() } else { format!("{}:", process.name) };
        states.tell_huge(&name, anon_huge_pages(program, world, mm));
    }
    states.by_name()
}

/// The node that the page is on, as kernels report it. They report none for the zero page and the
/// huge zero page.
///
/// Source: mm/migrate.c:do_pages_stat_array with FOLL_DUMP (5.10, 6.1), with is_zero_folio (6.12).
fn node_of(world: &SimWorld, mm: MmId, page: Vpn) -> Option<NodeId> {
    let pte = world.page_entry(mm, page).present().filter(|pte| !pte.special())?;
    Some(world.nodes.of_frame(pte.pfn))
}

/// The number of pages that huge entries map, without the huge zero page.
fn anon_huge_pages(program: &Program, world: &SimWorld, mm: MmId) -> u64 {
    let pages = program.areas.iter().flat_map(|area| area.range.iter());
    let huge = |page: &Vpn| world.huge_page(mm, *page).is_some_and(|pmd| !pmd.special());
    pages.filter(huge).count() as u64
}

fn page_state(world: &SimWorld, mm: MmId, page: Vpn) -> PageState {
    let pte = world.page_entry(mm, page);
    // fs/proc/task_mmu.c:pte_to_pagemap_entry reports every entry that is no translation as
    // swapped.
    let (holds, exclusive, uffd_wp) = match pte {
        Pte::None | Pte::Table(_) => (Holds::Nothing, false, false),
        Pte::Swap(swap) => (Holds::Swapped, false, swap.uffd_wp),
        Pte::Migration(entry) => (Holds::Swapped, false, entry.uffd_wp),
        Pte::Marker(marker) => (Holds::Swapped, false, marker.uffd_wp()),
        Pte::Present(pte) => {
            let exclusive = !pte.special() && world.frames.get(pte.pfn).maps == 1;
            (Holds::Frame(u64::from(pte.pfn.0)), exclusive, pte.uffd_wp())
        }
    };
    let soft_dirty = is_soft_dirty(world, mm, page);
    let uffd_wp = uffd_wp && world.policies.pagemap_uffd == PagemapUffd::Bit;
    PageState { holds, exclusive, soft_dirty, uffd_wp }
}

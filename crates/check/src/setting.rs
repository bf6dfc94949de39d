//! What all states of an exploration have in common, and how far it goes.

use crate::checkpoint::Checkpoint;
use crate::error::CheckError;
use crate::observe::Watching;
use crate::place::place;
use crate::property::{Property, PropertySet};
use crate::shadow::{CheckWorld, Contents, NoLog, Watch};
use crate::tlb::MaySets;
use crate::unroll::{Act, unroll};
use needless_model::addr::{MmId, ProcessId};
use needless_model::arch::{Arch, TINY};
use needless_model::env::Context;
use needless_model::kernels::KernelRow;
use needless_model::machine::nodes::Nodes;
use needless_model::machine::room::Room;
use needless_model::machine::world::{World, WorldSpec, mm_of};
use needless_model::program::{Program, Thread};
use std::sync::Arc;
use std::time::Duration;

/// Frames, beside those that files fill, and swap slots of the checked machine.
const FRAMES: u32 = 16;
const SWAP_PAGES: u32 = 16;

/// How far an exploration goes, and what it tells meanwhile.
#[derive(Clone)]
pub struct Options<'a> {
    /// What is looked for at the end of runs.
    pub watching: Watching,
    /// The architecture, of small tables, of rows that name none.
    pub arch: Arch,
    /// Most states; more make the result inconclusive.
    pub max_states: usize,
    /// Most memory of the process, in bytes.
    pub max_memory: Option<u64>,
    /// Most time.
    pub deadline: Option<Duration>,
    /// Threads forget at checkpoints what does not matter any more. Off in tests, which compare.
    pub checkpoints: bool,
    /// Steps that lead only where earlier ones led are left out. Off in tests, which compare.
    pub sleep: bool,
    /// States that differ only in which of several like threads did what are explored once.
    pub symmetry: bool,
    /// A thread whose next step no other one will ever notice goes alone. Then no steps are left
    /// out by [`Options::sleep`], and no checkpoint is written.
    pub persistent: bool,
    /// How many bits of each state's key are kept: 64 or fewer take less memory, and a state may be
    /// missed ([`Report::missed`](crate::Report::missed)).
    pub key_bits: u32,
    /// Steps that were taken before, from the same parts of the world, are not taken again. Off in
    /// tests, which compare.
    pub recall: bool,
    /// Fills and evictions of TLB entries are steps. On in tests, which compare.
    pub explicit: bool,
    /// Where to write checkpoints, if anywhere.
    pub checkpoint: Option<Checkpoint>,
    /// How many states are worked on side by side.
    pub workers: usize,
    /// Called now and then.
    pub progress: &'a (dyn Fn(Progress) + Sync),
}

impl Default for Options<'_> {
    fn default() -> Self {
        Options {
            watching: Watching::default(),
            arch: TINY,
            max_states: 20_000_000,
            max_memory: None,
            deadline: None,
            checkpoints: true,
            sleep: true,
            symmetry: true,
            persistent: false,
            key_bits: 128,
            recall: true,
            explicit: false,
            checkpoint: None,
            workers: 1,
            progress: &|_| {},
        }
    }
}

/// How far an exploration is.
#[derive(Copy, Clone, Debug)]
pub struct Progress {
    /// States so far.
    pub states: usize,
    /// States that have been reached but not left.
    pub frontier: usize,
    /// Steps from the start.
    pub depth: usize,
    /// Memory of the process in bytes, if known.
    pub memory: Option<u64>,
    /// Since the start.
    pub elapsed: Duration,
}

/// What states have in common.
pub struct Setting<'a> {
    /// The program, placed in the checked machine.
    pub program: &'a Program,
    /// What each thread does.
    pub acts: &'a [Vec<Act>],
    /// The kernel.
    pub row: &'a KernelRow,
    /// The architecture.
    pub arch: Arch,
    /// Checkpoints count.
    pub checkpoints: bool,
    /// Fills and evictions are steps.
    pub explicit: bool,
    /// What is looked at.
    pub watch: Arc<Watch>,
}

impl Setting<'_> {
    /// How many CPUs there are.
    pub fn cpus(&self) -> usize {
        self.program.threads.iter().map(|t| t.cpu.index() + 1).max().unwrap_or(1)
    }

    /// A machine with nothing in it.
    pub fn initial_world(&self) -> CheckWorld {
        let program = self.program;
        let spec = WorldSpec {
            policies: self.row.policies,
            config: self.row.config.for_program(program),
            arch: self.arch,
            cpus: self.cpus(),
            threads: program.threads.len(),
            processes: program.processes.len(),
            others: program.other_processes(),
            nodes: Nodes::for_program(
                program,
                FRAMES.saturating_add(program.file_pages()),
                self.arch.order(2),
            ),
            swap_pages: if program.machine.swap.is_some() { SWAP_PAGES } else { 0 },
            pins: program.pins(),
            files: program.files.clone(),
            room: Room::UNBOUNDED,
        };
        let ghost = Contents::new(self.watch.clone());
        World::new(&spec, MaySets::new(self.explicit, self.arch.accessed_dirty), ghost, NoLog)
    }

    /// Who `thread` is.
    pub fn context(&self, thread: usize) -> Context {
        Context::of(self.program, thread, 0)
    }

    /// Whose pages `thread`'s operations name.
    pub fn space(&self, thread: usize) -> MmId {
        mm_of(self.program.threads[thread].process)
    }
}

/// Calls `f` with what all states of the exploration have in common.
pub fn with_setting<T>(
    program: &Program,
    row: &KernelRow,
    options: &Options<'_>,
    f: impl FnOnce(Setting<'_>) -> Result<T, CheckError>,
) -> Result<T, CheckError> {
    let text = |op: u32| program.op_texts.get(op as usize).map_or("", String::as_str);
    if let Some(refused) = program.refused() {
        return Err(CheckError::Refused(format!("`{}`: {}", text(refused.op), refused.what)));
    }
    if let Some(lacking) = program.not_modelled(row) {
        let by = lacking.op.map(|op| format!(" (`{}`)", text(op))).unwrap_or_default();
        return Err(CheckError::NotModelled(format!("{}{by}", lacking.what)));
    }
    if program.has_mthp(row) {
        let what = "large folios smaller than a huge page (`mthp`) in the checker, whose page tables have four entries";
        return Err(CheckError::NotModelled(what.to_owned()));
    }
    let threads = &program.threads;
    let shares = |t: &Thread| {
        t.process != ProcessId::FIRST && threads.iter().filter(|o| o.cpu == t.cpu).count() > 1
    };
    if threads.iter().any(shares) {
        return Err(CheckError::NotModelled(
            "checked process that shares its CPU with another thread".to_owned(),
        ));
    }
    // The rules of the row's architecture, if it names one, on a machine as small.
    let arch = row.config.other.map_or(options.arch, |_| row.arch().in_small());
    let of_files = program.files.iter().fold(0, |sum: u64, file| sum.saturating_add(file.pages));
    if of_files > arch.user_pages() {
        return Err(CheckError::TooManyPages(arch.user_pages()));
    }
    let placed = place(program, &arch).ok_or(CheckError::TooManyPages(arch.user_pages()))?;
    let pages = placed.areas.iter().flat_map(|area| area.range.iter());
    let names = pages.filter_map(|page| Some((page, placed.page_name(page)?))).collect();
    let loads = options.watching.loads();
    let processes = placed.threads.iter().map(|thread| thread.process).collect();
    let asks = arch.breaks_before_make.then_some(Property::BreakBeforeMake);
    let unless_forgone = [Property::NoUseAfterFree, Property::Revoked];
    let judged = asks.into_iter().chain(row.config.ask).chain(unless_forgone);
    let asks = PropertySet::of(judged.filter(|asked| row.config.forgo != Some(*asked)));
    let watch = Arc::new(Watch { loads, names, processes, asks });
    let Options { checkpoints, explicit, .. } = *options;
    let acts = unroll(&placed)?;
    f(Setting { program: &placed, acts: &acts, row, arch, checkpoints, explicit, watch })
}

//! Random scenarios: small, valid, race-free programs over the whole operation set.
//!
//! A [`Case`] is the generator's own structure; its [text](Case::text) is an ordinary scenario. The
//! same seed gives the same text. Nothing in a case can fail or race:
//!
//! - One thread acts at a time. Other acting threads and forked processes each take their turns
//!   between two barriers. Any other company only spins or sleeps. Each thread has a CPU of its
//!   own.
//! - A process is forked and waited for in the same round. What it maps and protects is its own, so
//!   it has a [`State`](state::State) of its own from its fork on.
//! - [`State`](state::State) follows what is mapped and how. An operation comes only where its row
//!   in the [table](operations) allows it.
//! - Everything that a round, or an iteration of a loop, leaves changed is undone at its end, so
//!   that the next one can begin. This is worked out when the text is written. So a case that lost
//!   some of its steps while it was [shrunk](Case::smaller) is still complete.

mod generate;
pub mod operations;
mod shrink;
mod state;
mod target;
mod write;

pub use generate::{OF_EVERYTHING, generate};
pub use state::Pages;
pub use target::{Optional, Target};

use state::Uffd;

use needless_model::program::{Mthp, ThpMode};
use needless_model::userfaultfd::Features;
use operations::Operation;

/// A scenario as the generator made it.
#[derive(Clone, Debug)]
pub struct Case {
    /// The scenario's name.
    pub name: String,
    areas: Vec<AreaPlan>,
    /// Whether the file that areas map begins as holes.
    holes: bool,
    /// The number of pages that each write to the file has.
    write_pages: u64,
    company: Company,
    /// Whether there is swap space.
    swap: bool,
    /// The number of CPUs, if the machine has two NUMA nodes. The number decides which CPUs are on
    /// which node.
    cpus_of_nodes: Option<usize>,
    /// The machine's mode of transparent huge pages.
    thp: ThpMode,
    /// The modes of smaller large folios, if the machine has them.
    mthp: Option<Mthp>,
    /// Whether the first process has a userfaultfd, and with which features.
    uffd: bool,
    features: Features,
    /// Whether huge pages are collapsed only within one mapping.
    one_mapping: bool,
    /// Whether faults that userfaultfd reports in the first area are answered by moving pages from
    /// the second area.
    moved_in: bool,
    /// Whether the kernel refuses to watch other accesses where userfaultfd watches stores.
    busy: bool,
    /// Steps before the first round.
    setup: Vec<Step>,
    /// Steps of each round.
    body: Vec<Step>,
    warmup: u32,
    rounds: u32,
}

#[derive(Clone, Debug)]
struct AreaPlan {
    pages: usize,
    place: Place,
    memory: Memory,
}

/// What an area maps.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Memory {
    /// Private anonymous memory.
    Private,
    /// Anonymous memory that processes share.
    Shared,
    /// The file from page `first` on. `shared` says whether stores reach the file; `disk` says
    /// whether the file is on a disk.
    File { first: usize, shared: bool, disk: bool },
}

/// Where an area lies.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Place {
    /// Nothing else is in the area's page table.
    Alone,
    /// A neighbour is in the area's page table.
    Shared,
    /// This many of the area's pages are in one page table, and the others in the next.
    Across(usize),
}

/// The threads beside the first one, each on a CPU of its own.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
struct Company {
    /// The number of threads that act when it is their turn.
    acting: usize,
    /// The number of forked processes. The first process forks one, which forks the second.
    processes: usize,
    idle: Option<Idle>,
}

/// A thread that does not act.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Idle {
    Spinner,
    Sleeper,
    /// A thread that sleeps and answers the faults that userfaultfd reports.
    Handler,
}

impl Company {
    const NOBODY: Company = Company { acting: 0, processes: 0, idle: None };

    /// The number of CPUs that the scenario uses.
    fn cpus(self) -> usize {
        1 + self.acting + self.processes + usize::from(self.idle.is_some())
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// An operation on pages.
    Do(&'static Operation, Pages),
    /// Operations on each of the pages in turn.
    Each(Pages, usize, Vec<&'static Operation>),
    /// Steps that are repeated.
    Repeat(u32, Vec<Step>),
    /// Steps of another acting thread, counted from 0.
    Turn(usize, Vec<Step>),
    /// A process from its fork to its end.
    Fork(Life),
    /// Steps of the living process, while its parent waits.
    Child(Vec<Step>),
    /// A phase mark.
    Mark,
}

/// The steps of a forked process, and of its parent meanwhile. In one case, each process forks at
/// most one process, which may happen in each round.
#[derive(Clone, Debug, Default)]
struct Life {
    /// The child's steps before it first meets its parent.
    first: Vec<Step>,
    /// The parent's steps; each [`Step::Child`] is a turn of the child.
    meanwhile: Vec<Step>,
    /// The child's steps while its parent waits for its end.
    last: Vec<Step>,
    /// Whether the child ends by `exec`.
    exec: bool,
}

impl Life {
    /// All steps, of the child and of its parent.
    fn steps(&self) -> impl Iterator<Item = &Step> {
        self.first.iter().chain(&self.meanwhile).chain(&self.last)
    }

    /// The parent's steps if there is no such process.
    fn without(self) -> Vec<Step> {
        self.meanwhile.into_iter().filter(|step| !matches!(step, Step::Child(_))).collect()
    }
}

impl Case {
    /// The first process's userfaultfd.
    fn uffd(&self) -> Uffd {
        let handled = self.company.idle == Some(Idle::Handler);
        let moves = self.moved_in && self.areas.len() > 1;
        Uffd { drawn: self.uffd, features: self.features, handled, moves, busy: self.busy }
    }

    /// All operations of the case's steps.
    fn operations(&self) -> Vec<&'static Operation> {
        self.setup.iter().chain(&self.body).flat_map(Step::operations).collect()
    }
}

impl Step {
    fn operations(&self) -> Vec<&'static Operation> {
        match self {
            Step::Do(operation, _) => vec![operation],
            Step::Each(_, _, operations) => operations.clone(),
            Step::Repeat(_, steps) | Step::Turn(_, steps) | Step::Child(steps) => {
                steps.iter().flat_map(Step::operations).collect()
            }
            Step::Fork(life) => life.steps().flat_map(Step::operations).collect(),
            Step::Mark => Vec::new(),
        }
    }
}

/// The name of the file.
const FILE: &str = "data";

/// The names of the areas.
const NAMES: [&str; 2] = ["heap", "away"];

/// The forked processes: their names, and the two barriers around each turn.
const PROCESSES: [(&str, &str, &str); 2] = [("child", "out", "in"), ("grandchild", "down", "up")];

/// The acting threads beside the first: their names, and the two barriers around each turn.
const ACTORS: [(&str, &str, &str); 2] = [("second", "go", "back"), ("third", "on", "home")];

#[cfg(test)]
mod tests;

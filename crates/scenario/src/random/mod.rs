//! Random scenarios: small, valid, race-free programs over the whole operation set.
//!
//! A [`Case`] is the generator's own structure; its [text](Case::text) is an ordinary scenario.
//! The same seed gives the same text. Nothing in a case can fail or race:
//!
//! - one thread acts at a time: other acting threads, and processes that are forked, take their turns between two
//!   barriers each, any other company only spins or sleeps; each has a CPU of its own;
//! - a process is forked and waited for in the same round; what it maps and protects is its own, so that it has
//!   a [`State`](state::State) of its own from its fork on;
//! - [`State`](state::State) follows what is mapped and how; an operation stands only where its
//!   row in the [table](operations) allows it;
//! - what a round, or a turn of a loop, leaves changed is put right at its end, so that the next
//!   one can begin. This is worked out when the text is written, so a case that lost some of its
//!   steps while it was [shrunk](Case::smaller) is still complete.

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
    /// Its name.
    pub name: String,
    areas: Vec<AreaPlan>,
    /// Whether the file that areas map holds nothing at first.
    holes: bool,
    /// How many pages each write to it has.
    write_pages: u64,
    company: Company,
    /// Whether there is swap space.
    swap: bool,
    /// The CPUs of the machine if it has two NUMA nodes: which CPUs are on which follows from how many there are.
    cpus_of_nodes: Option<usize>,
    /// The machine's setting of huge pages.
    thp: ThpMode,
    /// That of smaller large folios, if it has one.
    mthp: Option<Mthp>,
    /// Whether the first process has a userfaultfd, and with which features.
    uffd: bool,
    features: Features,
    /// Whether huge pages are collapsed in one mapping alone.
    one_mapping: bool,
    /// Whether what userfaultfd tells of in the first area is answered by moving pages of the second one there.
    moved_in: bool,
    /// Whether it can be told to watch others than stores only where it watches no stores.
    busy: bool,
    /// Before the first round.
    setup: Vec<Step>,
    /// Each round.
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
    /// Anonymous memory.
    Private,
    /// Anonymous memory that processes share.
    Shared,
    /// The file, from this page on; whether stores go there, and whether it is on a disk.
    File { first: usize, shared: bool, disk: bool },
}

/// Where an area lies.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Place {
    /// Nothing else in its page table.
    Alone,
    /// A neighbour in its page table.
    Shared,
    /// This many of its pages in one page table, the others in the next.
    Across(usize),
}

/// Who is there beside the first thread, each on a CPU of its own.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
struct Company {
    /// Threads that act when it is their turn.
    acting: usize,
    /// Processes that are forked: the second one by the first one.
    processes: usize,
    idle: Option<Idle>,
}

/// A thread that does nothing.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Idle {
    Spinner,
    Sleeper,
    /// One that sleeps and answers what userfaultfd tells of.
    Handler,
}

impl Company {
    const NOBODY: Company = Company { acting: 0, processes: 0, idle: None };

    /// CPUs of the scenario.
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
    /// Steps, several times.
    Repeat(u32, Vec<Step>),
    /// Steps of another acting thread, counted from 0.
    Turn(usize, Vec<Step>),
    /// A process from its fork to its end.
    Fork(Life),
    /// Steps of the process that lives, while whoever forked it waits.
    Child(Vec<Step>),
    /// A phase mark.
    Mark,
}

/// What a process does that is forked, and its parent meanwhile. Of the processes that one process forks there is one in a
/// case, which may do so in each round.
#[derive(Clone, Debug, Default)]
struct Life {
    /// Before its first meeting with its parent.
    first: Vec<Step>,
    /// What the parent does; [`Step::Child`] are the child's turns.
    meanwhile: Vec<Step>,
    /// What is left to do while its parent waits for its end.
    last: Vec<Step>,
    /// Whether it ends as another program.
    exec: bool,
}

impl Life {
    /// All its steps, whoever does them.
    fn steps(&self) -> impl Iterator<Item = &Step> {
        self.first.iter().chain(&self.meanwhile).chain(&self.last)
    }

    /// What its parent does if there is no such process.
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

    /// All operations of its steps.
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

/// The file's name.
const FILE: &str = "data";

/// The areas' names.
const NAMES: [&str; 2] = ["heap", "away"];

/// Processes that are forked: name, and the barriers between which their turns are.
const PROCESSES: [(&str, &str, &str); 2] = [("child", "out", "in"), ("grandchild", "down", "up")];

/// Acting threads beside the first: name, and the barriers between which its turns are.
const ACTORS: [(&str, &str, &str); 2] = [("second", "go", "back"), ("third", "on", "home")];

#[cfg(test)]
mod tests;

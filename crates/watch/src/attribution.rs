//! Which memory faults and calls were about, as a report has it: rows that name mappings, call
//! sites, threads and calls that take pages by their places in tables of their own.

use crate::fold::{
    Cause, Confidence, Folded, Memories, Memory, Reclaim, Since, Task, Took, Victims,
};
use crate::maps::{Memory as Kind, Owner};
use crate::observation::{Party, party};
use crate::record::Named;
use crate::sites::{Frame, Namer, SiteId, Sites};
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Faults and calls by memory, call site and thread.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Attribution {
    /// Faults and calls by mapping.
    pub mappings: Vec<Mapping>,
    /// Stacks of the program, innermost first.
    pub sites: Vec<Vec<Frame>>,
    /// Faults and calls by thread.
    pub threads: Vec<Party>,
    /// Calls that take pages away, or the right to store to them.
    pub taken: Vec<Taken>,
    /// Faults, the longest first.
    pub faults: Vec<FaultsOf>,
    /// System calls that change mappings or page tables, the longest first.
    pub calls: Vec<CallsOf>,
    /// Sampled stacks of faults, which tell who called the function that took one.
    pub fault_samples: u64,
    /// Stacks beyond the number that is kept.
    pub sites_beyond: u64,
    /// Processes that were made with a copy of the memory. What the kernel copies in the call
    /// itself (page tables, pinned pages) is not seen.
    pub forks: u64,
}

/// One mapping, or mappings that look the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Mapping {
    /// As a report names it.
    pub name: String,
    /// The file that is mapped; none if none is.
    pub file: Option<String>,
    /// Whether it is the program or a library of it.
    pub program: bool,
    /// Bytes that the call mapped, where the memory has no name; none if that was not seen.
    pub bytes: Option<u64>,
    /// Which of the call sites mapped it; none if that was not seen.
    pub mapped_at: Option<usize>,
}

/// What a call does to pages that a fault meets later.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum How {
    /// The process gave them back (MADV_DONTNEED, MADV_FREE, brk).
    GivenBack,
    /// It unmapped them, or mapped something else over them.
    Unmapped,
    /// It paged them out.
    PagedOut,
    /// A fork shared them with a child.
    Fork,
    /// A protection forbids stores to them.
    Protected,
    /// They were written back to their file.
    Writeback,
    /// The range is read without readahead.
    NoReadahead,
}

impl From<Took> for How {
    fn from(took: Took) -> How {
        match took {
            Took::GivenBack => How::GivenBack,
            Took::Unmapped => How::Unmapped,
            Took::PagedOut => How::PagedOut,
            Took::Fork => How::Fork,
            Took::Protected => How::Protected,
            Took::Writeback => How::Writeback,
            Took::NoReadahead => How::NoReadahead,
        }
    }
}

/// One call that takes pages, at one call site, from one mapping.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Taken {
    /// What it does.
    pub how: How,
    /// The call.
    pub call: String,
    /// Which of the call sites; none if no stack was seen.
    pub site: Option<usize>,
    /// Which of the mappings; none if it is about none.
    pub mapping: Option<usize>,
    /// Calls that took pages.
    pub calls: u64,
    /// Pages that they took.
    pub pages: u64,
    /// Faults upon such pages.
    pub faults: u64,
    /// Their time, nanoseconds.
    pub faults_ns: u64,
    /// How long the pages had been away, nanoseconds, all together.
    pub away_ns: u64,
    /// The most pages that were away at once: what keeping them would have held.
    pub most_away: u64,
    /// Pages that came back without a fault (populate, collapse).
    pub back_without_fault: u64,
}

/// Since when a page was as the fault found it.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SinceWhen {
    /// It had never been touched.
    New,
    /// A call took it: `taken` says which.
    Taken,
    /// Reclaim of the machine's memory took it.
    ReclaimedMachine,
    /// Reclaim in a memory cgroup at its limit took it.
    ReclaimedCgroup,
    /// The kernel took it away, and why was not seen.
    TakenAway,
    /// The kernel wrote it back of its own accord.
    WrittenBack,
    /// It was there.
    There,
    /// The process ran before it was watched.
    Unknown,
}

/// Faults of one class, mapping, history, instruction and thread.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FaultsOf {
    /// The class.
    pub class: &'static str,
    /// The class with what tells its rule from others of it.
    pub label: &'static str,
    /// How sure that is.
    pub confidence: Confidence,
    /// Which of the mappings; none where the mapping was not seen, or the program was starting.
    pub mapping: Option<usize>,
    /// Since when the page was as the fault found it.
    pub since: SinceWhen,
    /// Which of the calls took it; none if none did.
    pub taken: Option<usize>,
    /// Which of the call sites; none if it is not known.
    pub site: Option<usize>,
    /// Which of the threads; none where threads are put together.
    pub thread: Option<usize>,
    /// Whether the program was being started.
    pub starting: bool,
    /// How many.
    pub faults: u64,
    /// From exception to end, nanoseconds; watching included.
    pub time_ns: u64,
    /// How long the pages had been away, nanoseconds, all together.
    pub away_ns: u64,
}

impl FaultsOf {
    /// Whether it is of a program's start, or of the first use of its own files, which every run of
    /// it has.
    pub fn is_of_start(&self, of: &Attribution) -> bool {
        let own = self.mapping.and_then(|at| of.mappings.get(at)).is_some_and(|map| map.program);
        let first = matches!(self.since, SinceWhen::New | SinceWhen::There);
        self.starting || own && first && !self.label.contains("major")
    }
}

/// Calls of one kind, mapping, call site and thread.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CallsOf {
    /// The call, with the argument that matters.
    pub call: String,
    /// Which of the mappings; none if it is about none.
    pub mapping: Option<usize>,
    /// Which of the call sites; none if no stack was seen.
    pub site: Option<usize>,
    /// Which of the threads; none where threads are put together.
    pub thread: Option<usize>,
    /// Whether the program was being started, or ends.
    pub starting: bool,
    /// Whether it may wait for a disk or for another process: its time is then not the kernel's
    /// work.
    pub waits: bool,
    /// Calls that have ended.
    pub calls: u64,
    /// From begin to end, nanoseconds; watching included.
    pub time_ns: u64,
    /// The time of faults in them, which is in `time_ns`, too.
    pub faults_ns: u64,
    /// Flushes in them that asked other CPUs.
    pub sent: u64,
    /// Flushes in them of the CPU itself alone.
    pub local: u64,
    /// Of both, those of everything.
    pub full: u64,
    /// Pages of the other flushes, all together.
    pub pages: u64,
    /// Interrupts that they caused.
    pub interrupts: u64,
}

/// Numbers places of a table in the order in which they are met.
struct Numbers<K> {
    known: BTreeMap<K, usize>,
}

impl<K: Ord> Numbers<K> {
    fn new() -> Numbers<K> {
        Numbers { known: BTreeMap::new() }
    }

    fn of(&mut self, key: K, make: impl FnOnce()) -> usize {
        let next = self.known.len();
        *self.known.entry(key).or_insert_with(|| {
            make();
            next
        })
    }
}

struct Maker<'a> {
    memories: &'a Memories,
    victims: &'a Victims,
    namer: Namer,
    made: Attribution,
    sites: BTreeMap<SiteId, Option<usize>>,
    /// Stacks of the same functions and lines are one.
    stacks: Numbers<Vec<Frame>>,
    mappings: Numbers<u32>,
    threads: Numbers<i32>,
}

/// Makes readable what was folded; the stacks are used up.
pub fn attribution(folded: &mut Folded) -> Attribution {
    let sites = std::mem::take(&mut folded.sites);
    let (fault_samples, sites_beyond) = Sites::counts(&sites);
    let mut maker = Maker {
        memories: &folded.memories,
        victims: &folded.victims,
        namer: sites.namer(),
        made: Attribution {
            fault_samples,
            sites_beyond,
            forks: folded.memories.forks,
            ..Attribution::default()
        },
        sites: BTreeMap::new(),
        stacks: Numbers::new(),
        mappings: Numbers::new(),
        threads: Numbers::new(),
    };
    maker.taken();
    maker.faults();
    maker.calls();
    maker.made
}

impl Maker<'_> {
    fn site(&mut self, site: SiteId) -> Option<usize> {
        if site == SiteId::NONE {
            return None;
        }
        if let Some(known) = self.sites.get(&site) {
            return *known;
        }
        let mut frames = self.namer.frames(site);
        // Instructions of one line are one place; without lines they are told apart by their
        // offset.
        for frame in frames.iter_mut().filter(|frame| frame.line.is_some()) {
            frame.offset = None;
        }
        let number = (!frames.is_empty()).then(|| {
            let table = &mut self.made.sites;
            self.stacks.of(frames.clone(), || table.push(frames))
        });
        self.sites.insert(site, number);
        number
    }

    fn mapping(&mut self, memory: u32) -> Option<usize> {
        let known = self.memories.memory.get(memory as usize).filter(|_| memory != 0)?;
        let Memory { owner, mapped } = known;
        let mapped_at = mapped.and_then(|(_, site)| self.site(site));
        let (file, program) = match owner {
            Some(Owner::File { path, image }) => (Some(path.to_string()), *image),
            _ => (None, false),
        };
        let bytes = mapped.map(|(bytes, _)| bytes);
        let mapping = Mapping { name: name(owner.as_ref()), file, program, bytes, mapped_at };
        let table = &mut self.made.mappings;
        Some(self.mappings.of(memory, || table.push(mapping)))
    }

    fn thread(&mut self, tid: i32) -> Option<usize> {
        let table = &mut self.made.threads;
        let victims = self.victims;
        (tid != 0).then(|| self.threads.of(tid, || table.push(party(victims, &Task::Thread(tid)))))
    }

    fn taken(&mut self) {
        let memories = self.memories;
        for (key, count) in &memories.takers {
            let (site, mapping) = (self.site(key.site), self.mapping(key.memory));
            self.made.taken.push(Taken {
                how: key.took.into(),
                call: key.cause.name(),
                site,
                mapping,
                calls: count.calls,
                pages: count.pages,
                faults: count.back,
                faults_ns: count.back_ns,
                away_ns: count.away_ns,
                most_away: count.most_away,
                back_without_fault: count.back_without_fault,
            });
        }
    }

    fn faults(&mut self) {
        let memories = self.memories;
        let mut rows: Vec<_> = memories.faults.iter().collect();
        rows.sort_by_key(|(key, met)| (Reverse(met.time_ns), (*key).clone()));
        for (key, met) in rows {
            let rule = key.reason.rule();
            let (since, taken) = match key.since {
                Since::New => (SinceWhen::New, None),
                Since::Taken(taker) => (SinceWhen::Taken, Some(taker as usize)),
                Since::Reclaimed(Some(Reclaim::Machine)) => (SinceWhen::ReclaimedMachine, None),
                Since::Reclaimed(Some(Reclaim::Cgroup)) => (SinceWhen::ReclaimedCgroup, None),
                Since::Reclaimed(None) => (SinceWhen::TakenAway, None),
                Since::WrittenBack => (SinceWhen::WrittenBack, None),
                Since::There => (SinceWhen::There, None),
                Since::Unknown => (SinceWhen::Unknown, None),
            };
            let mapping = self.mapping(key.memory);
            let (site, thread) = (self.site(key.site), self.thread(key.tid));
            self.made.faults.push(FaultsOf {
                class: rule.class.title(),
                label: rule.label,
                confidence: rule.confidence,
                mapping,
                since,
                taken,
                site,
                thread,
                starting: key.starting,
                faults: met.faults,
                time_ns: met.time_ns,
                away_ns: met.away_ns,
            });
        }
    }

    fn calls(&mut self) {
        let memories = self.memories;
        let mut rows: Vec<_> = memories.calls.iter().collect();
        rows.sort_by_key(|(key, called)| (Reverse(called.time_ns), (*key).clone()));
        for (key, called) in rows {
            let (mapping, site) = (self.mapping(key.memory), self.site(key.site));
            let thread = self.thread(key.tid);
            self.made.calls.push(CallsOf {
                call: key.cause.name(),
                mapping,
                site,
                thread,
                starting: key.starting || key.cause.starts_or_ends(),
                waits: waits(&key.cause),
                calls: called.calls,
                time_ns: called.time_ns,
                faults_ns: called.faults_ns,
                sent: called.flushes.sent,
                local: called.flushes.local,
                full: called.flushes.full,
                pages: called.flushes.pages,
                interrupts: called.flushes.interrupts,
            });
        }
    }
}

fn waits(cause: &Cause) -> bool {
    matches!(cause, Cause::Call(number, _) if crate::syscalls::waits(*number))
}

fn name(owner: Option<&Owner>) -> String {
    match owner {
        None => "unknown memory".to_owned(),
        Some(Owner::File { path, .. }) => path.to_string(),
        Some(Owner::Named(Named::Heap)) => "[heap]".to_owned(),
        Some(Owner::Named(Named::Stack)) => "[stack]".to_owned(),
        Some(Owner::Nameless(kind)) => match kind {
            Kind::Anonymous => "anonymous memory",
            Kind::Shared => "shared memory",
            Kind::Hugetlb => "hugetlb pages",
            Kind::PrivateFile | Kind::SharedFile => "a file",
        }
        .to_owned(),
    }
}

//! Draws a case from a seed.

use super::operations::{Drawn, Effect, Needs, OPERATIONS, Operation};
use super::state::{HUGE, MAP, Pages, State, Uffd};
use super::write::after;
use super::{
    AreaPlan, Case, Company, Idle, Life, Memory, Optional, PROCESSES, Place, Step, Target,
};
use needless_model::program::{Mthp, MthpMode, ThpMode};
use needless_model::rng::SplitMix64;
use needless_model::userfaultfd::Features;
use std::ops::RangeInclusive;

/// Seeds that also draw processes and shared memory: the second half of the seeds for development,
/// and all seeds for evidence that were not used yet when this began. The other seeds draw what
/// they drew before.
const WITH_PROCESSES: [RangeInclusive<u64>; 2] = [500_000..=999_999, 1_080_000..=u64::MAX];

/// The seeds with processes that also draw files. For development, these are the second half.
const WITH_FILES: [RangeInclusive<u64>; 2] = [750_000..=999_999, 1_200_000..=u64::MAX];

/// The seeds with files whose files may be on a disk. They also write files back and punch holes.
/// For development, these are the second half.
const WITH_DISKS: [RangeInclusive<u64>; 2] = [875_000..=999_999, 2_400_000..=u64::MAX];

/// The seeds with disks that also change files by system calls.
const WITH_FILE_CALLS: [RangeInclusive<u64>; 2] = [950_000..=999_999, 2_500_000..=u64::MAX];

/// The seeds with file calls whose files also leave memory. Their files on a disk may begin as
/// holes.
const WITH_DROPS: [RangeInclusive<u64>; 2] = [962_500..=999_999, 2_600_000..=u64::MAX];

/// The seeds with drops that also put guards into mappings and advise several ranges at once.
const WITH_GUARDS: [RangeInclusive<u64>; 2] = [975_000..=999_999, 2_600_000..=u64::MAX];

/// The seeds that draw huge pages: areas with room for some, and few steps. A step is about a few
/// pages, or about as many as one entry maps.
const WITH_HUGE_PAGES: [RangeInclusive<u64>; 2] = [300_000..=399_999, 4_000_000..=4_999_999];

/// The seeds with huge pages that give any advice about several ranges at once. They also draw
/// everything that seeds with processes and guards draw.
const WITH_RANGES: [RangeInclusive<u64>; 2] = [350_000..=399_999, 4_500_000..=4_999_999];

/// The seeds that draw userfaultfd. Every second one draws huge pages as well.
const WITH_USERFAULTFD: [RangeInclusive<u64>; 2] = [200_000..=299_999, 5_000_000..=5_999_999];

/// The seeds with userfaultfd in which it also watches files and shared memory, and fills and moves
/// pages. They draw the same operations on files as seeds with files.
const WITH_WATCHED_FILES: [RangeInclusive<u64>; 2] = [250_000..=299_999, 5_500_000..=5_999_999];

/// The seeds with watched files in which a fault may be answered by moving a page.
const WITH_MOVED_IN: [RangeInclusive<u64>; 2] = [275_000..=299_999, 5_750_000..=5_999_999];

/// The seeds with moved-in pages in which pages are also filled and moved where there are huge
/// pages.
const WITH_MOVED_HUGE: [RangeInclusive<u64>; 2] = [290_000..=299_999, 5_900_000..=5_999_999];

/// The first kernel that moves pages for the holder of a userfaultfd (UFFDIO_MOVE).
const MOVES_SINCE: (u32, u32) = (6, 8);

/// The first kernel that refuses to watch other accesses where stores are watched (policy
/// `uffd-mode`).
const BUSY_SINCE: (u32, u32) = (7, 3);

/// The seeds that clear and read soft-dirty bits, of any memory and in any process. Every second
/// one has huge pages and no processes. They draw no guards: the model does not have the soft-dirty
/// bit of a guard that was moved.
const WITH_SOFT_DIRTY: [RangeInclusive<u64>; 2] = [100_000..=199_999, 6_000_000..=6_999_999];

/// The seeds that lock memory, also of files and in any process.
const WITH_MLOCK: [RangeInclusive<u64>; 2] = [10_000..=19_999, 7_000_000..=7_999_999];

/// The seeds in which pages of files and of shared memory leave memory as private pages do. They
/// also draw everything that seeds with files, processes and guards draw. Some also lock memory.
const WITH_PAGEOUT: [RangeInclusive<u64>; 2] = [30_000..=39_999, 9_000_000..=9_499_999];

/// The seeds of files on disks with large folios. They also draw everything that seeds with files,
/// processes and guards draw.
const WITH_FOLIOS: [RangeInclusive<u64>; 2] = [20_000..=29_999, 8_000_000..=8_999_999];

/// The seeds of large folios of private memory that are smaller than a huge page. They draw advice
/// about huge pages, guards and one forked process. They have no swap space. On kernels without
/// such folios they draw none.
const WITH_MTHP: [RangeInclusive<u64>; 2] = [40_000..=49_999, 9_500_000..=9_999_999];

/// The seeds of machines with two NUMA nodes. They draw calls that move pages or choose their
/// nodes, among operations on private memory and guards. They have no processes and no swap space:
/// the model does not have these together with nodes.
const WITH_NODES: [RangeInclusive<u64>; 2] = [50_000..=59_999, 3_000_000..=3_999_999];

/// The first release that has large folios of private memory.
const MTHP_SINCE: (u32, u32) = (6, 8);

/// The first seed that draws from all classes. From here on, seeds take turns with the classes
/// above that differ most between kernels. These seeds are run as evidence for the whole model.
pub const OF_EVERYTHING: u64 = 10_000_000;

/// One seed of each of those classes: files; huge pages; userfaultfd, with files, with moved-in
/// pages; soft-dirty bits; locked memory; files with large folios; pageout; large folios of private
/// memory.
const CLASSES: [u64; 10] = [
    2_600_000, 4_500_000, 5_000_000, 5_500_000, 5_750_000, 6_000_000, 7_000_000, 8_000_000,
    9_000_000, 9_500_000,
];

/// Pages of one write to a file: powers of two, more pages than fault-around maps, and lengths that
/// make folios of several sizes.
const WRITES: [u64; 10] = [2, 4, 8, 12, 16, 16, 24, 32, 64, 64];

/// The largest number of pages of an area with huge pages: three entries, or two and parts of two.
const MOST_HUGE: usize = 3 * HUGE;

/// The number of pages that a file may have before those that an area maps: up to more than
/// fault-around maps.
const OFFSETS: u64 = 24;

/// Sizes and lengths at which kernels change what they do: the ceiling above which a flush covers
/// everything (33 pages), the LRU batches (15 and 31), powers of two, and their neighbours.
const EDGES: [usize; 16] = [1, 2, 3, 4, 8, 14, 15, 16, 30, 31, 32, 33, 34, 35, 64, 80];

/// The largest number of pages of an area that is not a large area.
const MOST_PAGES: usize = 80;

/// The largest number of pages of a large area. It is more than a page table holds, and more than
/// the first batch of an mmu_gather holds.
const LARGE: usize = 600;

/// The largest number of pages of an area that leaves room for a neighbour in its page table.
const MOST_SHARED: usize = 510;

/// Sizes of large areas at which kernels change what they do.
const LARGE_EDGES: [usize; 6] = [508, 511, 512, 513, 520, LARGE];

/// Numbers of rounds before those that count. They are primes, so that anything with a period of
/// its own meets every place in them.
const WARMUPS: [u32; 6] = [2, 2, 2, 3, 5, 7];

/// The number of places tried for an operation before another operation is drawn.
const ATTEMPTS: usize = 6;

/// Maps a seed to a seed that represents its class, and to its number within the class.
fn of_class(seed: u64) -> (u64, u64) {
    let classes = CLASSES.len() as u64;
    match seed.checked_sub(OF_EVERYTHING) {
        Some(after) => (CLASSES[(after % classes) as usize], after / classes),
        None => (seed, seed),
    }
}

/// The case of this seed for `target`, whose operations alone it has. If the target lacks what the
/// seed's class draws, the seed draws as if it were in no class.
pub fn generate(seed: u64, target: &Target) -> Case {
    let Target { release, cpus, .. } = *target;
    let (class, turn) = of_class(seed);
    let among = |ranges: &[RangeInclusive<u64>]| ranges.iter().any(|seeds| seeds.contains(&class));
    // A thread that answers userfaultfd has a CPU of its own, hence `cpus > 1`.
    let pageout = among(&WITH_PAGEOUT);
    let uffd = among(&WITH_USERFAULTFD) && target.has(Optional::Userfaultfd) && cpus > 1;
    let soft_dirty = among(&WITH_SOFT_DIRTY) && target.has(Optional::SoftDirty);
    let mlock = among(&WITH_MLOCK) || pageout && turn % 4 == 1;
    let folios = among(&WITH_FOLIOS);
    let huge_pages = target.has(Optional::HugePages);
    let mthp = among(&WITH_MTHP) && huge_pages && release >= MTHP_SINCE;
    let nodes = among(&WITH_NODES) && target.has(Optional::Nodes);
    let huge = if uffd || soft_dirty { turn % 2 == 1 } else { among(&WITH_HUGE_PAGES) };
    let huge = huge && huge_pages;
    let ranges = among(&WITH_RANGES) && huge_pages;
    let (rng, state) = (SplitMix64::new(seed), State::new(&[], []));
    let mut draw = Draw { rng, huge, enabled: Vec::new(), state };
    let watched_files = uffd && among(&WITH_WATCHED_FILES);
    let moved_in = watched_files && among(&WITH_MOVED_IN) && !huge && release >= MOVES_SINCE;
    let moved_huge = among(&WITH_MOVED_HUGE);
    let all = soft_dirty || mlock || pageout || folios || watched_files;
    let draws = |ranges| all || among(ranges) && !uffd && !mthp && !nodes;
    let with_processes = match soft_dirty {
        true => !huge,
        false if nodes => false,
        false => mlock || pageout || folios || mthp || ranges || among(&WITH_PROCESSES),
    };
    let with_disks = draws(&WITH_DISKS);
    let with_file_calls = draws(&WITH_FILE_CALLS);
    let with_drops = draws(&WITH_DROPS);
    let guards = pageout || folios || mthp || ranges || nodes || among(&WITH_GUARDS);
    let with_guards = mlock || guards && !uffd && !soft_dirty;
    let drawn = match (with_disks, with_file_calls) {
        _ if with_guards => Drawn::WithGuards,
        _ if with_drops => Drawn::WithDrops,
        (_, true) => Drawn::WithFileCalls,
        (true, false) => Drawn::WithDisks,
        (false, false) => Drawn::Always,
    };
    draw.enable(release, |operation| match operation {
        Drawn::WithHugePages => huge || mthp,
        Drawn::WithRanges => ranges,
        Drawn::WithUserfaultfd => uffd,
        Drawn::WithWatchedFiles => watched_files && (!huge || moved_huge),
        Drawn::WithMovedIn => moved_in,
        Drawn::WithSoftDirty => soft_dirty,
        Drawn::WithMlock => mlock,
        Drawn::WithPageout => pageout,
        Drawn::WithNodes => nodes,
        operation => operation <= drawn,
    });
    let features = if uffd { draw.features(release) } else { Features::default() };
    let handled = uffd && !features.asynchronous;
    let moved_in = moved_in && handled;
    let mut areas = draw.areas();
    if huge {
        areas.iter_mut().for_each(|area| draw.make_huge(area));
    }
    if moved_in {
        // The second area must have a page to move in for each page of the first.
        areas.sort_by_key(|area| area.pages);
    } else if (with_processes && !uffd || watched_files) && !huge && !mthp {
        areas.iter_mut().filter(|_| draw.one_in(4)).for_each(|area| area.memory = Memory::Shared);
    }
    let with_files = draws(&WITH_FILES) && !moved_in;
    let disk = with_disks && draw.one_in(2);
    let (holes, write_pages) = match folios {
        true => (draw.disks(&mut areas), draw.write_pages()),
        false => (with_files && !huge && draw.files(&mut areas, disk) && (with_drops || !disk), 1),
    };
    let busy = release >= BUSY_SINCE;
    draw.state = State::new(&areas, draw.enabled.iter().copied()).with(Uffd {
        drawn: uffd,
        features,
        handled,
        moves: moved_in && areas.len() > 1,
        busy,
    });
    if ranges {
        draw.state = draw.state.collapses_one_mapping();
    }
    for area in 0..areas.len() {
        let whole = draw.state.whole(area);
        draw.state.apply(MAP, &whole);
    }
    let mut company = draw.company(cpus);
    if with_processes || uffd {
        company = draw.with_processes(company, if handled { cpus - 1 } else { cpus });
    }
    if handled {
        let acting = company.acting.min(cpus - 2 - company.processes);
        company = Company { acting, idle: Some(Idle::Handler), ..company };
    }
    if mthp {
        company = Company { processes: company.processes.min(1), ..company };
    }
    // Large areas have few steps: a round's events have to fit into the kernel's buffers.
    let large = areas.iter().any(|area| area.pages > MOST_PAGES);
    let (most, depth) = if large { (3, 0) } else { (8, 2) };
    let count = draw.rng.below(most.min(4));
    let mut setup = draw.steps(count, 0);
    if nodes {
        // For a move, kernel threads empty the LRU batches of other CPUs. In the set-up, that would
        // disturb the first round.
        setup.retain(|step| step.operations().iter().all(|operation| !operation.moves_pages()));
    }
    let count = 2 + draw.rng.below(most);
    let mut body = draw.steps(count, depth);
    if company.processes > 0 {
        body.push(Step::Fork(draw.life(company.processes)));
        let count = draw.rng.below(most.min(4));
        body.extend(draw.steps(count, depth));
    }
    for actor in 0..company.acting {
        draw.give_turns(&mut body, actor);
    }
    if company.acting > 0 && draw.one_in(2) {
        body.extend(draw.duel(company.acting));
    }
    let sizes = mthp.then(|| draw.mthp());
    Case {
        name: format!("random-{seed}"),
        areas,
        holes,
        write_pages,
        company,
        swap: !mthp && !nodes,
        cpus_of_nodes: nodes.then_some(cpus),
        mthp: sizes,
        thp: if huge && draw.one_in(2) { ThpMode::Always } else { ThpMode::Madvise },
        uffd,
        features,
        one_mapping: ranges,
        moved_in,
        busy,
        setup,
        body,
        warmup: draw.pick(&WARMUPS),
        rounds: 3 + draw.rng.below(4) as u32,
    }
}

struct Draw {
    rng: SplitMix64,
    /// Whether the case has huge pages.
    huge: bool,
    /// The operations that this case may use. Cases with few kinds of operation reach further than
    /// cases in which every kind is a little likely.
    enabled: Vec<&'static Operation>,
    /// The state after the steps drawn so far.
    state: State,
}

impl Draw {
    fn one_in(&mut self, bound: u64) -> bool {
        self.rng.below(bound) == 0
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.rng.below(from.len() as u64) as usize]
    }

    /// Draws features of userfaultfd that kernel `release` has.
    fn features(&mut self, release: (u32, u32)) -> Features {
        let known = Features::ALL.map(|(_, features)| features);
        let there = 1 + [(6, 4), (6, 7)].iter().filter(|since| **since <= release).count();
        self.pick(&known[..there])
    }

    fn enable(&mut self, release: (u32, u32), drawn: impl Fn(Drawn) -> bool) {
        let there = OPERATIONS.iter().filter(|operation| operation.since <= release);
        let there = there.filter(|operation| drawn(operation.drawn));
        self.enabled = there.filter(|_| self.rng.below(5) < 3).collect();
        // Without a plain store nothing ever happens to a page.
        let writes = OPERATIONS.iter().filter(|op| op.needs == Needs::Writable).take(1);
        self.enabled.extend(writes);
        let watches = OPERATIONS.iter().filter(|op| op.effect == Effect::Watch(true)).take(1);
        self.enabled.extend(watches.filter(|_| drawn(Drawn::WithUserfaultfd)));
        for seeds in [Drawn::WithSoftDirty, Drawn::WithMlock, Drawn::WithNodes] {
            let all = OPERATIONS.iter().filter(|op| op.drawn == seeds);
            self.enabled.extend(all.filter(|_| drawn(seeds)));
        }
    }

    fn areas(&mut self) -> Vec<AreaPlan> {
        let moves = self.enabled.iter().any(|operation| {
            operation.effect == Effect::Move
                || [Needs::RoomWatched, Needs::MovedIn].contains(&operation.needs)
        });
        let count = if moves || self.one_in(6) { 2 } else { 1 };
        let mut areas: Vec<AreaPlan> = (0..count).map(|_| self.area()).collect();
        // Both areas get the same place in their page tables: a move may then take a whole table
        // with it.
        if let [first, second] = &mut areas[..]
            && self.one_in(2)
        {
            let before = match first.place {
                Place::Across(before) => before,
                _ => 1 + self.rng.below(first.pages as u64) as usize,
            };
            for area in [first, second] {
                area.pages = area.pages.max(before);
                area.place = Place::Across(before);
            }
        }
        areas
    }

    fn area(&mut self) -> AreaPlan {
        let pages = match self.one_in(24) {
            true if self.one_in(2) => self.pick(&LARGE_EDGES),
            true => self.length(LARGE),
            false => self.length(MOST_PAGES),
        };
        let place = match self.rng.below(4) {
            0 if pages <= MOST_SHARED => Place::Shared,
            1 if pages > 1 => Place::Across(1 + self.rng.below(pages as u64 - 1) as usize),
            _ => Place::Alone,
        };
        AreaPlan { pages, place, memory: Memory::Private }
    }

    /// Gives the area room for huge pages.
    fn make_huge(&mut self, area: &mut AreaPlan) {
        let pages = match self.rng.below(4) {
            0 => HUGE,
            1 => 2 * HUGE,
            _ => HUGE + self.rng.below((MOST_HUGE - HUGE) as u64) as usize,
        };
        let place = match area.place {
            Place::Across(_) if self.one_in(2) => {
                Place::Across(1 + self.rng.below(HUGE as u64 - 1) as usize)
            }
            _ => Place::Alone,
        };
        (area.pages, area.place, area.memory) = (pages, place, Memory::Private);
    }

    /// Makes some areas map a file, on a disk or not. Returns whether the file begins as holes.
    fn files(&mut self, areas: &mut [AreaPlan], disk: bool) -> bool {
        for area in areas {
            if self.one_in(2) {
                let first = if self.one_in(2) { 0 } else { self.rng.below(OFFSETS) as usize };
                area.memory = Memory::File { first, shared: self.one_in(2), disk };
            }
        }
        self.one_in(4)
    }

    /// Makes most areas map a file on a disk, often from a page at which a large folio may begin.
    /// Returns whether the file begins as holes.
    fn disks(&mut self, areas: &mut [AreaPlan]) -> bool {
        for (number, area) in areas.iter_mut().enumerate() {
            if number == 0 || !self.one_in(4) {
                let first = match self.rng.below(4) {
                    0 => self.rng.below(OFFSETS) as usize,
                    1 => 16,
                    _ => 0,
                };
                area.memory = Memory::File { first, shared: !self.one_in(3), disk: true };
            }
        }
        self.one_in(8)
    }

    /// The number of pages of one write to the file.
    fn write_pages(&mut self) -> u64 {
        match self.one_in(6) {
            true => 1 + self.rng.below(64),
            false => self.pick(&WRITES),
        }
    }

    /// Modes for the sizes of large folios, mostly for sizes that fit into an area several times.
    /// One size is always on.
    fn mthp(&mut self) -> Mthp {
        let modes = [MthpMode::Always, MthpMode::Madvise, MthpMode::Inherit];
        let certain = self.pick(&Mthp::SIZES[..4]);
        let mut drawn = Mthp::default();
        for size in Mthp::SIZES {
            let mode = match size {
                _ if size == certain => MthpMode::Always,
                _ if self.one_in(3) => self.pick(&modes),
                _ => MthpMode::Never,
            };
            drawn = drawn.with(size, mode).unwrap_or(drawn);
        }
        drawn
    }

    /// A number of pages up to `most`, often one of the edges.
    fn length(&mut self, most: usize) -> usize {
        let edge = self.pick(&EDGES);
        if edge <= most && !self.one_in(3) {
            return edge;
        }
        1 + self.rng.below(most as u64) as usize
    }

    fn company(&mut self, cpus: usize) -> Company {
        let (spinner, sleeper) = (Some(Idle::Spinner), Some(Idle::Sleeper));
        let two = [(0, spinner), (0, spinner), (0, sleeper), (1, None), (1, None), (1, None)];
        let three = [(1, spinner), (1, sleeper), (2, None), (2, None)];
        let (acting, idle) = match self.rng.below(8) {
            0 => (0, None),
            1 | 2 => self.pick(&three),
            _ => self.pick(&two),
        };
        let company = Company { acting, processes: 0, idle };
        if company.cpus() <= cpus {
            return company;
        }
        // Takes as many threads as there is room for, the acting ones first.
        let acting = acting.min(cpus - 1);
        Company { acting, processes: 0, idle: idle.filter(|_| 1 + acting < cpus) }
    }

    /// Adds processes to the company in most cases. They take CPUs that other threads would have
    /// had.
    fn with_processes(&mut self, company: Company, cpus: usize) -> Company {
        let most = (cpus - 1).min(PROCESSES.len());
        let processes = match self.rng.below(8) {
            0 | 1 => 0,
            2 | 3 => most,
            _ => most.min(1),
        };
        let acting = company.acting.min(cpus - 1 - processes);
        let idle = company.idle.filter(|_| 1 + processes + acting < cpus);
        Company { acting, processes, idle }
    }

    /// The life of a process. `processes` counts it and the processes that it may fork in turn.
    fn life(&mut self, processes: usize) -> Life {
        let parent = self.state.clone();
        let mut forks = (processes > 1).then(|| self.rng.below(3));
        self.state = self.state.of_child();
        let first = self.childs(3, processes, forks.take_if(|when| *when == 0));
        let mut child = std::mem::replace(&mut self.state, parent);
        let mut meanwhile = Vec::new();
        for turn in 0..self.rng.below(4) {
            if self.one_in(2) {
                std::mem::swap(&mut self.state, &mut child);
                let steps = self.childs(3, processes, forks.take_if(|when| *when == 1 && turn > 0));
                std::mem::swap(&mut self.state, &mut child);
                meanwhile.push(Step::Child(steps));
            } else {
                meanwhile.extend(self.operation());
            }
        }
        std::mem::swap(&mut self.state, &mut child);
        let last = self.childs(4, processes, forks);
        self.state = child;
        Life { first, meanwhile, last, exec: self.one_in(4) }
    }

    /// Fewer than `most` steps of a process, and the life of another process if it forks one now.
    fn childs(&mut self, most: u64, processes: usize, forks: Option<u64>) -> Vec<Step> {
        let (count, loops) = (self.rng.below(most), self.one_in(4));
        let mut steps = self.steps(count, u32::from(loops));
        if forks.is_some() {
            steps.push(Step::Fork(self.life(processes - 1)));
            let count = self.rng.below(most);
            steps.extend(self.steps(count, 0));
        }
        steps
    }

    /// Steps with loops nested up to `depth`.
    fn steps(&mut self, count: u64, depth: u32) -> Vec<Step> {
        let mut steps = Vec::new();
        for _ in 0..count {
            if depth > 0 && self.one_in(3) {
                steps.push(Step::Mark);
            }
            let step = match self.rng.below(12) {
                0 if depth > 0 => self.repeat(depth),
                1 if depth > 0 => self.each(),
                _ => self.operation(),
            };
            steps.extend(step);
        }
        steps
    }

    fn operation(&mut self) -> Option<Step> {
        for _ in 0..ATTEMPTS {
            let operation = self.draw_operation(|_| true)?;
            for _ in 0..ATTEMPTS {
                let pages = self.pages(operation);
                if self.state.permits(operation, &pages) {
                    self.state.apply(operation.effect, &pages);
                    return Some(Step::Do(operation, pages));
                }
            }
        }
        None
    }

    fn draw_operation(&mut self, fits: fn(&Operation) -> bool) -> Option<&'static Operation> {
        let fitting: Vec<_> = self.enabled.iter().copied().filter(|op| fits(op)).collect();
        if fitting.is_empty() {
            return None;
        }
        let mut ticket = self.rng.below(fitting.iter().map(|op| op.weight).sum());
        fitting.into_iter().find(|operation| {
            let hit = ticket < operation.weight;
            ticket = ticket.saturating_sub(operation.weight);
            hit
        })
    }

    fn pages(&mut self, operation: &Operation) -> Pages {
        let area = self.rng.below(self.state.areas() as u64) as usize;
        let whole = self.state.whole(area);
        if operation.needs == Needs::WholeUnmapped || self.rng.below(5) < 2 {
            return whole;
        }
        let size = whole.range.len();
        let huge = size >= HUGE && self.huge;
        if huge && self.one_in(3) {
            // About as many pages as one entry maps, mostly exactly those.
            let first = self.rng.below((size / HUGE) as u64) as usize * HUGE;
            let start = if self.one_in(4) { first + self.rng.below(8) as usize } else { first };
            let end = (first + HUGE).min(size);
            return Pages { area, range: start..end };
        }
        let most = if huge { MOST_PAGES } else { size };
        let length = self.length(most);
        let start = match self.rng.below(3) {
            _ if operation.effect == Effect::Move && self.one_in(2) => 0,
            0 => 0,
            1 => size - length,
            _ => self.rng.below((size - length + 1) as u64) as usize,
        };
        Pages { area, range: start..start + length }
    }

    fn repeat(&mut self, depth: u32) -> Option<Step> {
        let before = self.state.clone();
        let count = 1 + self.rng.below(3);
        let body = self.steps(count, depth - 1);
        let step = Step::Repeat(2 + self.rng.below(2) as u32, body);
        self.state = before;
        self.settle(step)
    }

    fn each(&mut self) -> Option<Step> {
        let first = self.draw_operation(Operation::fits_one_page)?;
        let pages = (0..ATTEMPTS).map(|_| self.pages(first));
        let pages: Vec<Pages> = pages.collect();
        let pages = pages.into_iter().find(|pages| self.state.permits(first, pages))?;
        let mut operations = vec![first];
        let mut inside = self.state.clone();
        inside.apply(first.effect, &pages);
        for _ in 0..self.rng.below(3) {
            let next = self.draw_operation(Operation::fits_one_page)?;
            if inside.permits(next, &pages) {
                inside.apply(next.effect, &pages);
                operations.push(next);
            }
        }
        let stride = if self.one_in(4) { 2 } else { 1 };
        self.settle(Step::Each(pages, stride, operations))
    }

    /// Applies the step's effects to the state and returns the step, if it is allowed here.
    fn settle(&mut self, step: Step) -> Option<Step> {
        self.state = after(&self.state, &step)?;
        Some(step)
    }

    /// The threads take turns with a few pages, and mostly give advice. So one thread finds what
    /// another one left in the LRU batches of its CPU.
    fn duel(&mut self, acting: usize) -> Vec<Step> {
        let area = self.rng.below(self.state.areas() as u64) as usize;
        let size = self.state.whole(area).range.len();
        let length = if self.one_in(2) { 1 } else { self.length(size.min(34)) };
        let start = self.rng.below((size - length + 1) as u64) as usize;
        let pages = Pages { area, range: start..start + length };
        let mut steps = Vec::new();
        for _ in 0..2 + self.rng.below(5) {
            let advice = !self.one_in(3);
            let fits: fn(&Operation) -> bool =
                if advice { Operation::is_advice } else { Operation::is_access };
            let Some(operation) = self.draw_operation(fits) else { continue };
            if !self.state.permits(operation, &pages) {
                continue;
            }
            self.state.apply(operation.effect, &pages);
            let step = Step::Do(operation, pages.clone());
            steps.push(match self.rng.below(acting as u64 + 1) as usize {
                0 => step,
                actor => Step::Turn(actor - 1, vec![step]),
            });
        }
        steps
    }

    /// Turns one or two runs of the body's steps into steps of another acting thread.
    fn give_turns(&mut self, body: &mut Vec<Step>, actor: usize) {
        for _ in 0..1 + self.rng.below(2) {
            let plain = |step: &Step| !matches!(step, Step::Turn(..) | Step::Mark);
            let at: Vec<usize> = (0..body.len()).filter(|&at| plain(&body[at])).collect();
            if at.is_empty() {
                break;
            }
            let from = self.pick(&at);
            let length = 1 + self.rng.below(3) as usize;
            let run = body[from..].iter().take(length).take_while(|step| plain(step)).count();
            let turn: Vec<Step> = body.drain(from..from + run).collect();
            body.insert(from, Step::Turn(actor, turn));
        }
        if !body.iter().any(|step| matches!(step, Step::Turn(of, _) if *of == actor)) {
            body.push(Step::Turn(actor, Vec::new()));
        }
    }
}

//! A machine with fast and slow memory over time: threads that use more memory than is fast, NUMA
//! balancing that samples and promotes, and kswapd that demotes.
//!
//! Every kernel operation is the model's own ([`crate::kernel`]). This module adds time: how much
//! work the threads do in a second, when pages are sampled, and how long a pass of kswapd takes.
//! [`Setup`] states these, with their sources. The machine is scaled down: all of memory, its
//! watermarks, the pages that a pass of reclaim looks at, and the work per second are divided by
//! one number. So each page is used as often as on the original machine.

mod stream;
#[cfg(test)]
mod tests;
mod xsbench;

pub use stream::{Stream, StreamKind};

use crate::addr::{CpuId, MmId, NodeId, PageRange, ProcessId, ThreadId, Vpn};
use crate::backing::Backing;
use crate::call::Extent;
use crate::env::Context;
use crate::event::{EventKind, FaultClass, FlushReason};
use crate::kernel::fault::handle::exc_page_fault;
use crate::kernel::fault::outcome::{Fault, Outcome};
use crate::kernel::kswapd::{Pass, kswapd_pass};
use crate::kernel::map::mmap;
use crate::kernel::numa_scan::task_numa_work;
use crate::kernel::switch::switch_mm;
use crate::kernels::KernelRow;
use crate::machine::nodes::Nodes;
use crate::machine::room::Room;
use crate::machine::sim_tlbs::SimTlbs;
use crate::machine::tiers::{Moves, Tiers, Watermarks};
use crate::machine::world::{WorldSpec, mm_of};
use crate::numa::Balancing;
use crate::program::{Access, Prot};
use crate::rng::SplitMix64;
use crate::sim::access::walk;
use crate::sim::{NoGhost, SimEnv, SimLog, SimWorld};
use crate::site::Site;

const MM: MmId = mm_of(ProcessId::FIRST);
const FAST: NodeId = NodeId(0);

/// How many frames lie side by side on one node, as a power of two.
const BLOCK: u8 = 4;

/// The initial time in milliseconds within which a sampled page is hot
/// (`numa_balancing_hot_threshold`, kernel/sched/fair.c, 6.12).
const HOT_MS: u32 = 1000;

/// The milliseconds of one pass over all memory, at its slowest (`scan_period_max`).
const PASS_MS: u32 = 60_000;

/// In areas whose every page is used hundreds of times a second, only one of this many accesses is
/// simulated. Each page is then still used more often than the kernel looks.
const HOT_PART: u64 = 16;

/// The number of pages that are sampled at once on the original machine: 256 MB (`scan_size`).
const SCAN_PAGES: u64 = 65_536;

/// The machine and its work.
#[derive(Clone, Debug, PartialEq)]
pub struct Setup {
    /// The kernel's row.
    pub row: KernelRow,
    /// The number of CPUs. Each has one thread.
    pub cpus: u16,
    /// The work of the threads.
    pub stream: StreamKind,
    /// How many times smaller the machine is than the original one.
    pub scale: u32,
    /// MiB of fast memory of the original machine.
    pub fast_mib: u64,
    /// The units of work per second of all threads on the original machine.
    pub per_second: u64,
    /// The milliseconds before counting begins.
    pub warm_ms: u32,
    /// The milliseconds that are counted.
    pub counted_ms: u32,
    /// The microseconds of a pass of kswapd; 0: it takes no time.
    pub pass_us: u32,
    /// The seed of the random choices.
    pub seed: u64,
}

/// Counts on the scaled machine.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// The units of work.
    pub work: u64,
    /// The number of pages that the work touched. Consecutive accesses to one page count once.
    pub touches: u64,
    /// The number of page walks.
    pub walks: u64,
    /// The number of hint faults (`numa_hint_faults`).
    pub hint_faults: u64,
    /// The number of write-protect faults.
    pub wp_faults: u64,
    /// The number of flushes that were sent (`nr_tlb_remote_flush`).
    pub sends: u64,
    /// The number of interrupts by these flushes (`nr_tlb_remote_flush_received`).
    pub received: u64,
    /// The number of sends by the batch of a migration or of reclaim.
    pub batch_sends: u64,
    /// The number of sends by sampling.
    pub scan_sends: u64,
    /// Flushes by an instruction that all CPUs obey.
    pub broadcasts: u64,
    /// The counts of moved pages.
    pub moves: Moves,
    /// The frames that waited for a flush, in frames times milliseconds.
    pub waiting: u64,
    /// The milliseconds that were counted.
    pub ms: u64,
}

/// A rate in reports, per second on the original machine.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Rate {
    /// The units of work.
    Work,
    /// The pages that the work touched.
    Touches,
    /// The hint faults.
    HintFaults,
    /// The write-protect faults.
    WpFaults,
    /// The PTEs that were sampled.
    Sampled,
    /// The flushes that were sent.
    Sends,
    /// The interrupts by these flushes.
    Received,
    /// The sends by sampling.
    ScanSends,
    /// Flushes by an instruction that all CPUs obey.
    Broadcasts,
    /// The pages that were promoted.
    Promoted,
    /// The pages that were demoted.
    Demoted,
    /// The demotions whose flush was left to a later one.
    Deferred,
    /// The lists whose flush could not be left.
    GivenUp,
    /// The flushes of deferred batches that were needed because there was no other free memory.
    ForMemory,
    /// The average number of frames that wait for a flush.
    Waiting,
}

impl Rate {
    /// All rates, each with its name and its description.
    pub const ALL: [(&'static str, Rate, &'static str); 15] = [
        ("work", Rate::Work, "units of work"),
        ("touches", Rate::Touches, "pages that the threads touch"),
        ("hint_faults", Rate::HintFaults, "numa_hint_faults"),
        ("wp_faults", Rate::WpFaults, "write-protect faults"),
        ("sampled", Rate::Sampled, "numa_pte_updates"),
        ("sends", Rate::Sends, "nr_tlb_remote_flush"),
        ("received", Rate::Received, "nr_tlb_remote_flush_received"),
        ("scan_sends", Rate::ScanSends, "flushes that sampling sends"),
        ("broadcasts", Rate::Broadcasts, "flushes by an instruction that all CPUs obey"),
        ("promoted", Rate::Promoted, "pgpromote_success"),
        ("demoted", Rate::Demoted, "pgdemote_kswapd"),
        ("deferred", Rate::Deferred, "demotions that deferred their flush"),
        (
            "given_up",
            Rate::GivenUp,
            "lists that could not defer their flush, because another flush was under way",
        ),
        (
            "for_memory",
            Rate::ForMemory,
            "deferred flushes that were done because no other memory was free",
        ),
        ("waiting", Rate::Waiting, "frames that wait for a flush, on average"),
    ];

    /// The rate that these counts give.
    pub fn of(self, counts: &Counts, scale: u32) -> f64 {
        let Moves { sampled, promoted, demoted, deferred, given_up, for_memory } = counts.moves;
        let seconds = counts.ms.max(1) as f64 / 1000.0;
        let count = match self {
            Rate::Work => counts.work,
            Rate::Touches => counts.touches,
            Rate::HintFaults => counts.hint_faults,
            Rate::WpFaults => counts.wp_faults,
            Rate::Sampled => sampled,
            Rate::Sends => counts.sends,
            Rate::Received => counts.received,
            Rate::ScanSends => counts.scan_sends,
            Rate::Broadcasts => counts.broadcasts,
            Rate::Promoted => promoted,
            Rate::Demoted => demoted,
            Rate::Deferred => deferred,
            Rate::GivenUp => given_up,
            Rate::ForMemory => for_memory,
            Rate::Waiting => counts.waiting / 1000,
        };
        count as f64 * f64::from(scale) / seconds
    }
}

/// Why a machine cannot be simulated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TieringError {
    /// The scale leaves too little fast memory.
    #[error("with a scale of {0}, too little fast memory is left; use a smaller scale")]
    TooSmall(u32),
    /// An access failed.
    #[error("an access to page {0} failed in the model: {1}")]
    Failed(Vpn, String),
}

/// A running machine.
struct Machine<'s> {
    setup: &'s Setup,
    world: SimWorld,
    stream: Stream,
    /// The random generator of each thread.
    random: Vec<SplitMix64>,
    areas: Vec<PageRange>,
    /// The next pass of sampling: its area, and the position in the area.
    scan: (usize, u64),
    counts: Counts,
    /// Whether sampling is under way, to classify flushes.
    scanning: bool,
    /// The number of accesses to hot areas so far.
    hot: u64,
    /// The priority of kswapd's next pass, while it is awake.
    kswapd: Option<u32>,
    /// The microseconds that kswapd may still use.
    spare_us: u64,
}

/// Runs the machine. `tick` is called with the elapsed and the total milliseconds.
pub fn run(setup: &Setup, tick: &mut dyn FnMut(u32, u32)) -> Result<Counts, TieringError> {
    let mut machine = Machine::new(setup)?;
    machine.first_touch()?;
    let all = setup.warm_ms + setup.counted_ms;
    let per_ms = setup.per_second as f64 / f64::from(setup.scale) / 1000.0;
    let chunk = machine.chunk();
    let passes = machine.pages().div_ceil(chunk).max(1);
    let (mut owed, mut next_scan, mut thread) = (0.0, 0.0, 0);
    let between = f64::from(PASS_MS) / passes as f64;
    let mut before = None;
    for ms in 0..all {
        if ms == setup.warm_ms {
            before = Some(machine.world.tiers.as_ref().map_or_else(Moves::default, |t| t.moves));
            machine.counts = Counts::default();
        }
        machine.begin_ms(ms);
        owed += per_ms;
        while owed >= 1.0 {
            owed -= 1.0;
            if f64::from(ms) >= next_scan {
                next_scan += between;
                machine.sample(thread, chunk);
            }
            machine.work(thread)?;
            thread = (thread + 1) % usize::from(setup.cpus);
        }
        if ms % 500 == 0 {
            tick(ms, all);
        }
    }
    tick(all, all);
    Ok(machine.counted(before.unwrap_or_default()))
}

impl<'s> Machine<'s> {
    fn new(setup: &'s Setup) -> Result<Machine<'s>, TieringError> {
        let scale = u64::from(setup.scale.max(1));
        let stream = Stream::new(setup.stream, scale);
        let fast = setup.fast_mib * 256 / scale;
        let slow = stream.areas().iter().sum::<u64>() * 2 + fast;
        if fast < 1024 || slow > u64::from(u32::MAX / 4) {
            return Err(TieringError::TooSmall(setup.scale));
        }
        let mut config = setup.row.config;
        (config.several_nodes, config.demotion, config.lru_order) = (true, true, true);
        (config.balancing, config.mglru) = (Balancing::Tiering, false);
        let cpus = usize::from(setup.cpus);
        let nodes = Nodes::new(&[fast as u32, slow as u32], BLOCK, vec![FAST; cpus], &[]);
        let spec = WorldSpec {
            policies: setup.row.policies,
            config,
            arch: setup.row.arch(),
            cpus,
            // The last thread is kswapd.
            threads: cpus + 1,
            processes: 1,
            others: 0,
            nodes: nodes.with_slow(1),
            swap_pages: 0,
            pins: 0,
            files: Vec::new(),
            room: Room::UNBOUNDED,
        };
        let log = SimLog::new(false, 1 << 20, Room::UNBOUNDED);
        let mut world = SimWorld::new(&spec, SimTlbs::new(cpus, spec.slots()), NoGhost, log);
        world.tiers = Some(Box::new(Tiers::new(HOT_MS, watermarks(setup.fast_mib, scale))));
        world.log.record(true);
        let mut start = 1 << 20;
        let areas: Vec<PageRange> = stream
            .areas()
            .iter()
            .map(|pages| {
                let area = PageRange::new(Vpn(start), *pages);
                // Each area is a separate mapping with separate page tables.
                start = (area.end.0 + 1024).next_multiple_of(512);
                area
            })
            .collect();
        let random = (0..cpus as u64).map(|cpu| SplitMix64::new(setup.seed << 8 | cpu)).collect();
        let counts = Counts::default();
        let mut machine = Machine {
            setup,
            world,
            stream,
            random,
            areas,
            scan: (0, 0),
            counts,
            scanning: false,
            hot: 0,
            kswapd: None,
            spare_us: 0,
        };
        machine.map()?;
        Ok(machine)
    }

    fn context(&self, thread: usize) -> Context {
        let kernel = thread == usize::from(self.setup.cpus);
        let cpu = CpuId((thread % usize::from(self.setup.cpus)) as u16);
        Context { cpu, thread: ThreadId(thread as u16), mm: (!kernel).then_some(MM), op: 0 }
    }

    fn env(&mut self, thread: usize) -> SimEnv<'_> {
        let context = self.context(thread);
        SimEnv::new(&mut self.world, context)
    }

    fn map(&mut self) -> Result<(), TieringError> {
        for thread in 0..usize::from(self.setup.cpus) {
            let at = self.context(thread).at(Site::SwitchMm);
            switch_mm(&mut self.world, at, at.cpu, MM);
        }
        for pages in self.areas.clone() {
            let area = Extent { pages, backing: Backing::Anonymous };
            let mapped = mmap(&mut self.env(0), MM, area, Prot::ReadWrite);
            mapped.map_err(|errno| TieringError::Failed(pages.start, errno.to_string()))?;
        }
        Ok(())
    }

    /// Lets one thread store to every page once, in the order of the areas.
    fn first_touch(&mut self) -> Result<(), TieringError> {
        for page in self.areas.clone().into_iter().flat_map(PageRange::iter) {
            self.miss(0, page, Access::Write)?;
        }
        Ok(())
    }

    fn pages(&self) -> u64 {
        self.areas.iter().map(|area| area.pages()).sum()
    }

    /// The number of pages that are sampled at once.
    fn chunk(&self) -> u64 {
        (SCAN_PAGES / u64::from(self.setup.scale)).max(1)
    }

    fn begin_ms(&mut self, ms: u32) {
        self.counts.ms += 1;
        // Time during which kswapd slept cannot be used later.
        self.spare_us =
            if self.kswapd.is_some() { self.spare_us + 1000 } else { self.pass_at_once() };
        self.run_kswapd();
        self.counts.waiting += self.world.deferred.kept().len() as u64;
        if let Some(tiers) = &mut self.world.tiers {
            tiers.now = ms;
            if ms > 0 && ms.is_multiple_of(PASS_MS) {
                // Far fewer pages were hot than may be promoted in a second.
                tiers.threshold = (tiers.threshold + HOT_MS / 8).min(2 * HOT_MS);
            }
        }
    }

    /// The time for one pass. A kswapd that is woken makes its first pass at once.
    fn pass_at_once(&self) -> u64 {
        u64::from(self.setup.pass_us) * u64::from(self.setup.scale)
    }

    /// Does one unit of work.
    fn work(&mut self, thread: usize) -> Result<(), TieringError> {
        let mut random = self.random[thread].clone();
        let mut stream = std::mem::take(&mut self.stream);
        let hot = stream.hot();
        let mut failed = Ok(());
        stream.unit(&mut random, &mut |area, page, access| {
            let page = self.areas[area].start.add(page);
            self.counts.touches += 1;
            if stream_is_hot(hot, area) {
                self.hot += 1;
                if !self.hot.is_multiple_of(HOT_PART) {
                    return;
                }
            }
            if failed.is_ok() && !self.hits(thread, page, access) {
                failed = self.miss(thread, page, access);
            }
        });
        (self.random[thread], self.stream) = (random, stream);
        self.counts.work += 1;
        failed
    }

    #[inline(always)]
    fn hits(&mut self, thread: usize, page: Vpn, access: Access) -> bool {
        let asid = self.world.cpus[thread].asid;
        let tlb = &mut self.world.tlbs.cpus[thread];
        let epoch = tlb.epoch(asid);
        match access.is_write() {
            true => tlb.hit::<true>(page, epoch),
            false => tlb.hit::<false>(page, epoch),
        }
    }

    fn miss(&mut self, thread: usize, page: Vpn, access: Access) -> Result<(), TieringError> {
        let at = self.context(thread).at(Site::HardwareWalk);
        self.counts.walks += 1;
        for _ in 0..8 {
            if walk(&mut self.world, at, MM, page, access) {
                return Ok(());
            }
            let fault = Fault::new(MM, page, access.is_write());
            let outcome = exc_page_fault(&mut self.env(thread), fault);
            self.account();
            if outcome != Outcome::Served {
                return Err(TieringError::Failed(page, format!("{outcome:?}")));
            }
            self.wake_kswapd();
        }
        Err(TieringError::Failed(page, "it still faults".to_owned()))
    }

    /// Starts kswapd if a promotion has woken it.
    fn wake_kswapd(&mut self) {
        let woken = |tiers: &mut Box<Tiers>| std::mem::take(&mut tiers.wakes_kswapd);
        if self.world.tiers.as_mut().is_some_and(woken) && self.kswapd.is_none() {
            // At this priority a pass looks at the same number of pages as on the original machine.
            self.kswapd = Some(12_u32.saturating_sub(self.setup.scale.max(1).ilog2()));
            self.run_kswapd();
        }
    }

    /// Lets kswapd make passes while it is awake and has time.
    fn run_kswapd(&mut self) {
        let thread = usize::from(self.setup.cpus);
        // On a machine that is smaller, correspondingly fewer passes fit into a second.
        let pass_us = self.pass_at_once();
        while let Some(priority) = self.kswapd
            && self.spare_us >= pass_us
        {
            self.spare_us -= pass_us;
            self.kswapd = match kswapd_pass(&mut self.env(thread), FAST, priority) {
                Pass::Another(priority) => Some(priority),
                Pass::Balanced | Pass::GivesUp => None,
            };
            self.account();
        }
    }

    /// Lets the thread sample the next pages.
    fn sample(&mut self, thread: usize, chunk: u64) {
        self.scanning = true;
        let mut left = chunk;
        while left > 0 {
            let (area, from) = self.scan;
            let range = self.areas[area];
            let part = PageRange::new(range.start.add(from), left.min(range.pages() - from));
            // An area without pages in slow memory has nothing to sample.
            let _ = task_numa_work(&mut self.env(thread), MM, part);
            left -= part.pages();
            self.scan = match from + part.pages() {
                end if end < range.pages() => (area, end),
                _ => ((area + 1) % self.areas.len(), 0),
            };
            if self.scan == (0, 0) {
                break;
            }
        }
        self.account();
        self.scanning = false;
    }

    /// Counts the events of the log, and empties it.
    fn account(&mut self) {
        let Machine { world, counts, scanning, .. } = self;
        for event in world.log.events.drain(..) {
            match event.kind {
                EventKind::Flush { reason: FlushReason::RemoteSend, asked, .. } => {
                    counts.sends += 1;
                    counts.received += u64::from(asked.unwrap_or(0));
                    counts.scan_sends += u64::from(*scanning);
                    let batch = matches!(
                        event.site,
                        Some(Site::TryToUnmapFlush | Site::TryToUnmapFlushDirty)
                    );
                    counts.batch_sends += u64::from(batch);
                }
                EventKind::Tlbi { operation, .. } if operation.is_broadcast() => {
                    counts.broadcasts += 1;
                }
                EventKind::FaultDone { class: FaultClass::NumaHint, .. } => counts.hint_faults += 1,
                EventKind::FaultDone { class: FaultClass::Reuse, .. } => counts.wp_faults += 1,
                _ => {}
            }
        }
    }

    fn counted(mut self, before: Moves) -> Counts {
        let moves = self.world.tiers.take().map_or_else(Moves::default, |tiers| tiers.moves);
        self.counts.moves = moves.since(before);
        self.counts
    }
}

/// Whether the area is hot: `hot` has one bit for each area.
const fn stream_is_hot(hot: u32, area: usize) -> bool {
    hot >> area & 1 != 0
}

/// The watermarks of the fast node, as the kernel sets them without huge pages: `min_free_kbytes`
/// from the square root of all memory (here the fast memory and 8 GiB), divided by size, and at
/// least a thousandth of the node between two marks.
///
/// Source: mm/page_alloc.c:calculate_min_free_kbytes, __setup_per_zone_wmarks (6.12).
fn watermarks(fast_mib: u64, scale: u64) -> Watermarks {
    let (fast_kib, all_kib) = (fast_mib << 10, (fast_mib + 8192) << 10);
    let min = (all_kib * 16).isqrt() * fast_kib / all_kib / 4;
    let gap = (min / 4).max(fast_kib / 4 / 1000);
    let mark = |pages: u64| (pages / scale).max(1);
    Watermarks { low: mark(min + gap), high: mark(min + 2 * gap), promo: mark(min + 3 * gap) }
}

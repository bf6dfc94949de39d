//! Defines what a workload is, and lists all workloads.

use crate::rounds::Rounds;
use crate::{
    calls, cow, files, flush, forks, huge, kernel, numa, reclaim, swap, switches, touch, uffd,
};
use needless_runner::environment::series;
use needless_watch::functions::Asked;
use needless_watch::observation::Party;
use needless_watch::stacks::For;
use serde_json::{Map, Value, json};
use std::io::{self, Write};

/// The names of the classes of faults.
pub mod class {
    use needless_model::event::FaultClass;

    pub const FIRST_TOUCH: &str = FaultClass::FirstTouch.title();
    pub const ZERO_PAGE: &str = FaultClass::ZeroPage.title();
    pub const ZERO_UPGRADE: &str = FaultClass::ZeroUpgrade.title();
    pub const COW_COPY: &str = FaultClass::CowCopy.title();
    pub const REUSE: &str = FaultClass::Reuse.title();
    pub const SWAP_IN: &str = FaultClass::SwapIn.title();
    pub const FILE_MAP: &str = FaultClass::FileMap.title();
    pub const FAULT_AROUND: &str = FaultClass::FaultAround.title();
    pub const SHARED_DIRTY: &str = FaultClass::SharedDirty.title();
    pub const HUGE_PAGE: &str = FaultClass::HugePage.title();
    pub const USERFAULTFD: &str = FaultClass::Userfaultfd.title();
    pub const NUMA_HINT: &str = FaultClass::NumaHint.title();
    pub const SPURIOUS: &str = FaultClass::Spurious.title();
    pub const FAILED: &str = FaultClass::Failed.title();
    pub const UNKNOWN: &str = FaultClass::Unknown.title();
}

/// The names of the causes of flushes.
pub mod cause {
    pub const MUNMAP: &str = "munmap";
    pub const MMAP_FIXED: &str = "mmap(MAP_FIXED)";
    pub const MREMAP: &str = "mremap";
    pub const BRK: &str = "brk";
    pub const DONTNEED: &str = "madvise(MADV_DONTNEED)";
    pub const FREE: &str = "madvise(MADV_FREE)";
    pub const COLD: &str = "madvise(MADV_COLD)";
    pub const PAGEOUT: &str = "madvise(MADV_PAGEOUT)";
    pub const COLLAPSE: &str = "madvise(MADV_COLLAPSE)";
    pub const REMOVE: &str = "madvise(MADV_REMOVE)";
    pub const PROTECT_READ: &str = "mprotect(PROT_READ)";
    pub const PROTECT_WRITE: &str = "mprotect(PROT_READ|PROT_WRITE)";
    pub const PROTECT_NONE: &str = "mprotect(PROT_NONE)";
    pub const FORK: &str = "fork";
    pub const CLONE: &str = "clone";
    pub const CLONE3: &str = "clone3";
    pub const EXECVEAT: &str = "execveat";
    pub const EXIT: &str = "exit";
    pub const FSYNC: &str = "fsync";
    pub const MSYNC: &str = "msync";
    pub const WRITE_PROTECT: &str = "ioctl(UFFDIO_WRITEPROTECT)";
    pub const MOVE_PAGES: &str = "move_pages";
    pub const MBIND: &str = "mbind";
    pub const RECLAIM: &str = "direct reclaim of a memory cgroup";
    pub const ELSEWHERE: &str = "elsewhere in the kernel";
    pub const FAULT_COW: &str = "fault: COW copy";
    pub const FAULT_ZERO: &str = "fault: zero-page upgrade";
    pub const FAULT_HUGE: &str = "fault: huge page";
}

/// A condition without which a workload cannot run.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Need {
    /// Swap space in memory (zram): the kernel reads it without the swap cache.
    Swap,
    /// Transparent huge pages, at least on request.
    Thp,
    /// A second CPU.
    SecondCpu,
    /// A userfaultfd that this process may use.
    Userfaultfd,
    /// A userfaultfd that protects against writes.
    WriteProtect,
    /// A userfaultfd that lifts write protection by itself.
    AsyncWriteProtect,
    /// The advice `MADV_POPULATE_READ` and `MADV_POPULATE_WRITE`.
    Populate,
    /// A folder for temporary files that is not in memory itself.
    DiskFile,
    /// A folder for temporary files on a disk that is not memory either.
    SlowDisk,
    /// A processor that keeps the translations of several address spaces.
    Pcid,
    /// Page tables of four levels. With five, the kernel moves the stack of a new program.
    FourLevels,
    /// Memory cgroups that this process may make.
    MemoryCgroup,
    /// Free pages of hugetlb.
    Hugetlb,
    /// A second NUMA node.
    SecondNode,
    /// NUMA balancing.
    NumaBalancing,
    /// The advice `MADV_COLLAPSE`.
    Collapse,
    /// Pages of hugetlb that give back their page structures.
    VmemmapOptimize,
    /// An x86-64 processor. Other architectures do it without asking other CPUs, or in another way.
    X86,
    /// Idle CPUs that poll for work, so that they need no interrupt.
    PollingIdle,
}

impl Need {
    /// The name that the list shows.
    pub const fn name(self) -> &'static str {
        match self {
            Need::Swap => "swap",
            Need::Thp => "thp",
            Need::SecondCpu => "second-cpu",
            Need::Userfaultfd => "userfaultfd",
            Need::WriteProtect => "write-protect",
            Need::AsyncWriteProtect => "async-write-protect",
            Need::Populate => "populate",
            Need::DiskFile => "disk-file",
            Need::SlowDisk => "slow-disk",
            Need::Pcid => "pcid",
            Need::FourLevels => "four-levels",
            Need::MemoryCgroup => "memory-cgroup",
            Need::Hugetlb => "hugetlb",
            Need::SecondNode => "second-node",
            Need::NumaBalancing => "numa-balancing",
            Need::Collapse => "collapse",
            Need::VmemmapOptimize => "vmemmap-optimize",
            Need::X86 => "x86",
            Need::PollingIdle => "polling-idle",
        }
    }
}

/// Flushes of one cause: its name, how many were sent to other CPUs, and how many were not.
pub type Flushes = (&'static str, u64, u64);

/// Requests to other CPUs.
#[derive(Copy, Clone, Debug)]
pub struct Asks {
    /// What they are asked for.
    pub asked: Asked,
    /// How often.
    times: u64,
    /// Which CPUs are asked.
    whom: Whom,
}

/// Which CPUs are asked.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Whom {
    /// Any CPUs; the number is the sum over all.
    Any,
    /// Each CPU but the own one.
    EveryOther,
    /// The worker thread of this CPU does it. Requests to others are not compared.
    WorkerOf(u16),
}

impl Asks {
    /// Requests to any CPUs, this many in all.
    pub const fn so_often(asked: Asked, times: u64) -> Asks {
        Asks { asked, times, whom: Whom::Any }
    }

    /// Requests to every other CPU, this many each.
    pub const fn every_other(asked: Asked, times: u64) -> Asks {
        Asks { asked, times, whom: Whom::EveryOther }
    }

    /// Requests that the kernel's worker thread of a CPU carries out, this many.
    pub const fn worker_of(cpu: u16, asked: Asked, times: u64) -> Asks {
        Asks { asked, times, whom: Whom::WorkerOf(cpu) }
    }

    /// Whether the requests include what this task did.
    pub fn is_about(self, to: &Party) -> bool {
        match self.whom {
            Whom::Any | Whom::EveryOther => true,
            Whom::WorkerOf(cpu) => to.name.starts_with(&format!("kworker/{cpu}:")),
        }
    }

    /// How many requests a machine with this many CPUs sees.
    pub fn times(self, cpus: usize) -> u64 {
        match self.whom {
            Whom::Any | Whom::WorkerOf(_) => self.times,
            Whom::EveryOther => self.times * (cpus as u64).saturating_sub(1),
        }
    }
}

/// What faults wait for. They wait for nothing else.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Waits {
    /// Faults wait this often in each round.
    Always(For, u64),
    /// Faults wait sometimes, because it depends on timing: for each of these at least once. The
    /// numbers of faults and flushes depend on timing, too, and are not compared.
    AtTimes(&'static [For]),
}

/// The costs of one round.
#[derive(Copy, Clone, Debug)]
pub struct Expectation {
    /// Page-fault exceptions by class.
    pub faults: &'static [(&'static str, u64)],
    /// Flushes by cause.
    pub flushes: &'static [Flushes],
    /// Faults that the kernel counts and takes without an exception.
    pub without_exception: u64,
    /// Switches away from the address space, if the workload is about them: those after which the
    /// CPU flushes, and those after which it does not.
    pub switches: Option<(u64, u64)>,
    /// Requests to other CPUs beside flushes, if the workload is about them. Requests that are not
    /// listed here are not compared.
    pub asks: &'static [Asks],
    /// What faults wait for, if the workload is about it.
    pub waits: Option<Waits>,
}

/// A number that only the kernel decides. It is compared with a counter of `/proc/vmstat`, and must
/// not be zero.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Counted {
    /// Faults of a class.
    Faults(&'static str, &'static str),
    /// Flushes of a cause that are sent to other CPUs.
    Sent(&'static str, &'static str),
    /// Flushes of a cause that are not sent to other CPUs.
    Local(&'static str, &'static str),
}

impl Counted {
    /// What is counted, and the kernel's counter.
    fn named(&self) -> (String, Value) {
        match self {
            Counted::Faults(class, counter) => (format!("faults: {class}"), json!(counter)),
            Counted::Sent(cause, counter) => (format!("sent: {cause}"), json!(counter)),
            Counted::Local(cause, counter) => (format!("local: {cause}"), json!(counter)),
        }
    }
}

impl Expectation {
    /// Whether the number of faults depends on timing.
    pub fn varies(&self) -> bool {
        matches!(self.waits, Some(Waits::AtTimes(_)))
    }

    /// The number of faults that getrusage counts: those that end with a page.
    pub fn counted(&self) -> u64 {
        let ended = self.faults.iter().filter(|(name, _)| *name != class::FAILED);
        ended.map(|(_, count)| count).sum::<u64>() + self.without_exception
    }

    fn json(&self) -> Value {
        let faults: Map<String, Value> =
            self.faults.iter().map(|(name, count)| ((*name).to_owned(), json!(count))).collect();
        let flush = |(name, sent, local): &Flushes| {
            ((*name).to_owned(), json!({ "sent": sent, "local": local }))
        };
        let flushes: Map<String, Value> = self.flushes.iter().map(flush).collect();
        let mut cost = json!({
            "faults": faults,
            "flushes": flushes,
            "without_exception": self.without_exception,
        });
        if let Some((flushed, kept)) = self.switches {
            cost["switches"] = json!({ "flushed": flushed, "kept": kept });
        }
        match self.waits {
            None => {}
            Some(Waits::Always(what, waits)) => cost["waits"] = json!({ what.title(): waits }),
            Some(Waits::AtTimes(what)) => {
                cost["waits_at_times"] = what.iter().map(|what| what.title()).collect();
            }
        }
        if !self.asks.is_empty() {
            let cpus = crate::sys::online_cpus();
            let asks = self.asks.iter();
            let asks = asks.map(|asks| (asks.asked.title().to_owned(), json!(asks.times(cpus))));
            cost["asks"] = Value::Object(asks.collect());
        }
        cost
    }
}

/// The series of a kernel: 6.12 is `(6, 12)`.
pub type Series = (u32, u32);

/// An expectation of faults and flushes, and of no faults without an exception.
pub const fn expect(
    faults: &'static [(&'static str, u64)],
    flushes: &'static [Flushes],
) -> Expectation {
    let (without_exception, switches, asks, waits) = (0, None, &[], None);
    Expectation { faults, flushes, without_exception, switches, asks, waits }
}

/// A program with known costs.
#[derive(Debug)]
pub struct Workload {
    /// The workload's name on the command line.
    pub name: &'static str,
    /// What a round does.
    pub doc: &'static str,
    /// What the workload cannot run without.
    pub needs: &'static [Need],
    /// Whether a second thread holds CPU 1, so that flushes are sent.
    pub second: bool,
    /// Whether that thread races for pages. Then up to one spurious fault a round is added.
    pub races: bool,
    /// What a round costs on 6.18 and 7.3.
    pub newest: Expectation,
    /// What a round costs on older kernels where it differs: the last series for which a cost
    /// holds, and the cost, in order. The costs are known for 5.10, 6.1 and 6.12, not for kernels
    /// between them.
    pub older: &'static [(Series, Expectation)],
    /// Numbers that the kernel decides. They replace those of the expectation.
    pub counted: &'static [Counted],
    /// Sets up and runs the rounds.
    pub run: fn(&mut Rounds) -> io::Result<()>,
}

impl Workload {
    /// A workload of one thread without needs.
    pub const fn new(
        name: &'static str,
        doc: &'static str,
        run: fn(&mut Rounds) -> io::Result<()>,
        newest: Expectation,
    ) -> Workload {
        Workload {
            name,
            doc,
            needs: &[],
            second: false,
            races: false,
            newest,
            older: &[],
            counted: &[],
            run,
        }
    }

    /// This workload, with numbers that the kernel decides.
    pub const fn counted(self, counted: &'static [Counted]) -> Workload {
        Workload { counted, ..self }
    }

    /// This workload, with other costs on older kernels.
    pub const fn older(self, older: &'static [(Series, Expectation)]) -> Workload {
        Workload { older, ..self }
    }

    /// What a round costs on a kernel.
    pub fn per_round(&self, kernel: Series) -> &Expectation {
        let older = self.older.iter().find(|(last, _)| kernel <= *last);
        older.map_or(&self.newest, |(_, cost)| cost)
    }

    /// All known costs of a round.
    #[cfg(test)]
    fn costs(&self) -> impl Iterator<Item = &Expectation> {
        self.older.iter().map(|(_, cost)| cost).chain([&self.newest])
    }

    /// This workload, with needs.
    pub const fn needs(self, needs: &'static [Need]) -> Workload {
        Workload { needs, ..self }
    }

    /// This workload, with a second thread.
    pub const fn second(self) -> Workload {
        Workload { second: true, ..self }
    }

    /// This workload, with a second thread that races.
    pub const fn races(self) -> Workload {
        Workload { second: true, races: true, ..self }
    }

    /// All needs, including the second thread's.
    pub fn all_needs(&self) -> Vec<Need> {
        let second = self.second && !self.needs.contains(&Need::SecondCpu);
        self.needs.iter().copied().chain(second.then_some(Need::SecondCpu)).collect()
    }
}

const GROUPS: [&[Workload]; 13] = [
    touch::WORKLOADS,
    cow::WORKLOADS,
    forks::WORKLOADS,
    files::WORKLOADS,
    flush::WORKLOADS,
    kernel::WORKLOADS,
    calls::WORKLOADS,
    uffd::WORKLOADS,
    huge::WORKLOADS,
    swap::WORKLOADS,
    reclaim::WORKLOADS,
    switches::WORKLOADS,
    numa::WORKLOADS,
];

/// All workloads.
pub fn all() -> impl Iterator<Item = &'static Workload> {
    GROUPS.into_iter().flatten()
}

/// The workload of this name.
pub fn find(name: &str) -> io::Result<&'static Workload> {
    all().find(|workload| workload.name == name).ok_or_else(|| {
        io::Error::other(format!(
            "there is no workload \"{name}\"; `needless-workload list` names them"
        ))
    })
}

/// Prints all workloads.
pub fn list(json: bool) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if json {
        let value: Vec<Value> = all().map(object).collect();
        serde_json::to_writer_pretty(&mut out, &value)?;
        return writeln!(out);
    }
    for workload in all() {
        let needs: Vec<&str> = workload.all_needs().into_iter().map(Need::name).collect();
        let needs =
            if needs.is_empty() { String::new() } else { format!(" [{}]", needs.join(", ")) };
        writeln!(out, "{:24} {}{needs}", workload.name, workload.doc)?;
    }
    Ok(())
}

fn object(workload: &Workload) -> Value {
    let needs: Vec<&str> = workload.all_needs().into_iter().map(Need::name).collect();
    let as_counted: Map<String, Value> = workload.counted.iter().map(Counted::named).collect();
    json!({
        "name": workload.name,
        "doc": workload.doc,
        "per_round": workload.per_round(series()).json(),
        "as_the_kernel_counts": as_counted,
        "needs": needs,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// The classes that `needless stat` reports.
    const CLASSES: [&str; 14] = [
        "first touch",
        "zero page",
        "zero-page upgrade",
        "COW copy",
        "reuse after write-protect",
        "swap-in",
        "file map",
        "fault-around",
        "shared dirtying",
        "huge page",
        "userfaultfd",
        "NUMA hint",
        "spurious",
        "signal or fix-up",
    ];

    #[test]
    fn older_kernels_come_in_order() {
        for workload in all() {
            assert!(workload.older.is_sorted_by_key(|(last, _)| *last), "{}", workload.name);
        }
        let huge_zero = find("huge_zero").unwrap();
        let class = |kernel| huge_zero.per_round(kernel).faults[1].0;
        assert_eq!([(5, 10), (6, 12)].map(class), [class::ZERO_UPGRADE; 2]);
        assert_eq!([(6, 18), (7, 3)].map(class), [class::HUGE_PAGE; 2]);
    }

    #[test]
    fn names_are_unique() {
        let names: BTreeSet<&str> = all().map(|workload| workload.name).collect();
        assert_eq!(names.len(), all().count());
    }

    #[test]
    fn classes_are_known_and_listed_once() {
        for workload in all() {
            for listed in workload.costs().map(|cost| cost.faults) {
                let classes: BTreeSet<&str> = listed.iter().map(|(name, _)| *name).collect();
                assert_eq!(classes.len(), listed.len(), "{}", workload.name);
                for class in classes {
                    assert!(CLASSES.contains(&class), "{}: {class}", workload.name);
                }
            }
        }
    }

    #[test]
    fn causes_are_listed_once_and_faults_that_flush_occur() {
        let costs = all().flat_map(|workload| workload.costs().map(move |cost| (workload, cost)));
        for (workload, cost) in costs {
            let listed = cost.flushes;
            let causes: BTreeSet<&str> = listed.iter().map(|(name, ..)| *name).collect();
            assert_eq!(causes.len(), listed.len(), "{}", workload.name);
            for (cause, sent, local) in listed {
                assert!(sent + local > 0, "{}: {cause}", workload.name);
                assert!(*sent == 0 || workload.all_needs().contains(&Need::SecondCpu));
                let Some(class) = cause.strip_prefix("fault: ") else { continue };
                let faults = cost.faults.iter();
                let faults: u64 =
                    faults.filter(|(name, _)| *name == class).map(|(_, count)| count).sum();
                assert_eq!(faults, sent + local, "{}: {cause}", workload.name);
            }
        }
    }
}

//! Runs a workload's rounds and reports what getrusage counted in them.

use crate::second::Second;
use crate::sys;
use crate::table::{Counted, Need, Workload};
use needless_runner::environment::series;
use needless_runner::sys::{Usage, prefault_stack};
use std::io::{self, Write};
use std::process::ExitCode;

/// The number of rounds that run first in any case. After them, everything that is special about a
/// first round is over: page tables, the page cache, a flush left pending by an earlier round, LRU
/// batches.
pub const WARM_UP: u32 = 8;

/// The rounds of a workload.
pub struct Rounds {
    count: u32,
    second: Option<Second>,
    gate: bool,
    used: Usage,
}

impl Rounds {
    /// Runs a round again and again. A round that needs its flush sent must meet the second thread
    /// right before it; it gets the [`Meeting`] for that.
    pub fn each(&mut self, mut round: impl FnMut(&Meeting) -> io::Result<()>) -> io::Result<()> {
        let meeting = Meeting { second: self.second.as_ref() };
        round(&meeting)?;
        sys::empty_batch()?;
        for _ in 1..WARM_UP {
            round(&meeting)?;
        }
        self.pass("before the rounds\n")?;
        let before = Usage::now();
        for _ in 0..self.count {
            round(&meeting)?;
        }
        self.used = Usage::now().since(before);
        self.pass("after the rounds\n")
    }

    /// At a gate, writes where it is and waits for a line.
    fn pass(&self, place: &str) -> io::Result<()> {
        if !self.gate {
            return Ok(());
        }
        // A watcher sees by this call that everything before it is over. The call changes nothing.
        // SAFETY: this advice, about no bytes, leaves memory as it is.
        unsafe { libc::madvise(std::ptr::null_mut(), 0, libc::MADV_NORMAL) };
        rustix::io::write(rustix::stdio::stdout(), place.as_bytes())?;
        let mut byte = [0];
        while rustix::io::read(rustix::stdio::stdin(), &mut byte)? == 1 && byte != *b"\n" {}
        Ok(())
    }
}

/// The means by which a round meets the second thread, if there is one.
pub struct Meeting<'a> {
    second: Option<&'a Second>,
}

impl Meeting<'_> {
    /// Returns when the second thread runs on its CPU, so the CPU is in `mm_cpumask`. Only a flush
    /// that finds another process there can make it leave (6.18), so the next flush is sent. Does
    /// nothing without a second thread.
    #[inline]
    pub fn meet(&self) {
        if let Some(second) = self.second {
            second.meet();
        }
    }

    /// Meets the second thread, which then reads a page at the same time as the caller does.
    #[inline]
    pub fn meet_to_read(&self, page: usize) {
        if let Some(second) = self.second {
            second.meet_to_read(page);
        }
    }

    /// Meets the second thread, which then writes to a page at the same time as the caller does.
    #[inline]
    pub fn meet_to_write(&self, page: usize) {
        if let Some(second) = self.second {
            second.meet_to_write(page);
        }
    }
}

/// Runs the workload, after the second start.
pub fn execute(workload: &Workload, count: u32, verify: bool, gate: bool) -> io::Result<ExitCode> {
    if let Some(why) = unusable(workload) {
        return Err(io::Error::other(why));
    }
    prefault_stack();
    sys::prefault_program()?;
    let second = workload.second.then(Second::start).transpose()?;
    let mut rounds = Rounds { count, second, gate, used: Usage::default() };
    (workload.run)(&mut rounds)?;
    if let Some(second) = rounds.second.take() {
        second.stop();
    }
    let expected = workload.per_round(series()).counted() * u64::from(count);
    let Usage { minor_faults, major_faults, involuntary_switches } = rounds.used;
    if verify {
        writeln!(
            io::stdout(),
            "{}: {count} rounds: {minor_faults} minor and {major_faults} major faults, {expected} \
             expected; {involuntary_switches} involuntary switches",
            workload.name
        )?;
    }
    let kernel_decides = workload.per_round(series()).varies()
        || workload.counted.iter().any(|counted| matches!(counted, Counted::Faults(..)));
    let most = match workload.races {
        _ if kernel_decides => u64::MAX,
        true => expected + u64::from(count),
        false => expected,
    };
    let wrong = verify && !(expected..=most).contains(&(minor_faults + major_faults));
    Ok(if wrong { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Why a workload cannot run here, and what helps; `None` if it can.
pub fn unusable(workload: &Workload) -> Option<String> {
    let missing = workload.all_needs().into_iter().find_map(missing);
    missing.map(|what| format!("this workload needs {what}"))
}

/// What is missing for `need`, and what helps; `None` if nothing is missing.
pub fn missing(need: Need) -> Option<&'static str> {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    match need {
        Need::Swap => {
            let swaps = read("/proc/swaps");
            let mut devices = swaps.lines().skip(1).peekable();
            (devices.peek().is_none() || !devices.all(|line| line.starts_with("/dev/zram")))
                .then_some("zram as the only swap space (zramctl, mkswap, swapon)")
        }
        Need::Thp => {
            let enabled = read("/sys/kernel/mm/transparent_hugepage/enabled");
            (enabled.is_empty() || enabled.contains("[never]"))
                .then_some("transparent huge pages (/sys/kernel/mm/transparent_hugepage/enabled)")
        }
        Need::SecondCpu => {
            (sys::online_cpus() < 2).then_some("a second CPU to which flushes are sent")
        }
        Need::Userfaultfd => {
            (!crate::uffd::available()).then_some("userfaultfd (root, CONFIG_USERFAULTFD)")
        }
        Need::WriteProtect => (!crate::uffd::protects())
            .then_some("UFFD_FEATURE_PAGEFAULT_FLAG_WP (Linux 5.7; arm64: in 6.12, not in 6.1)"),
        Need::AsyncWriteProtect => {
            (!crate::uffd::lifts_protection()).then_some("UFFD_FEATURE_WP_ASYNC (Linux 6.7)")
        }
        Need::Populate => {
            // SAFETY: about no bytes, the advice changes nothing; the kernel only says whether it
            // knows it.
            let known = unsafe { libc::madvise(std::ptr::null_mut(), 0, libc::MADV_POPULATE_READ) };
            (known != 0).then_some("MADV_POPULATE_READ (Linux 5.14)")
        }
        Need::Pcid => (!read("/proc/cpuinfo").contains(" pcid "))
            .then_some("a processor with process-context identifiers (pcid)"),
        Need::FourLevels => read("/proc/cpuinfo")
            .contains(" la57 ")
            .then_some("page tables of four levels (`no5lvl` on the kernel's command line)"),
        Need::MemoryCgroup => crate::reclaim::Group::parent()
            .is_err()
            .then_some("memory cgroups in /sys/fs/cgroup (root)"),
        Need::Hugetlb => (crate::huge::free_pages() < 3)
            .then_some("three free pages of hugetlb (/proc/sys/vm/nr_hugepages)"),
        Need::SecondNode => (!std::path::Path::new("/sys/devices/system/node/node1").exists())
            .then_some("a second NUMA node"),
        Need::NumaBalancing => (read(crate::numa::BALANCING).trim() != "1")
            .then_some("NUMA balancing (/proc/sys/kernel/numa_balancing)"),
        Need::Collapse => (!crate::calls::collapses()).then_some("MADV_COLLAPSE (Linux 6.1)"),
        Need::VmemmapOptimize => {
            let there = std::path::Path::new(crate::calls::OPTIMIZE).exists();
            let sound = series() >= (6, 18);
            (!there || !sound).then_some(
                "hugetlb_optimize_vmemmap (root; Linux 6.18: 6.12 was seen to spoil its page structures by it)",
            )
        }
        Need::X86 => (!cfg!(target_arch = "x86_64")).then_some("x86-64"),
        Need::PollingIdle => (!read("/proc/cmdline").split_whitespace().any(|w| w == "idle=poll"))
            .then_some("idle CPUs that poll (`idle=poll` on the kernel's command line)"),
        Need::SlowDisk => crate::files::disk_is_memory()
            .then_some("a TMPDIR on a disk that takes its time to read"),
        Need::DiskFile => crate::files::temporary_is_memory()
            .then_some("a TMPDIR on a file system that is not in memory"),
    }
}

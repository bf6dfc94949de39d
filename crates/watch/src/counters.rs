//! The kernel's own counters, before and after: those of the task, of the machine, and of
//! interrupts per CPU. They need no privilege.

use crate::missing::Missing;
use needless_runner::look::look;
use serde::Serialize;
use std::collections::BTreeMap;

/// Lines of `/proc/vmstat` that say something about faults and flushes.
const VMSTAT: [&str; 23] = [
    "pgfault",
    "pgmajfault",
    "pgreuse",
    "pswpin",
    "pswpout",
    "swpin_zero",
    "swpout_zero",
    "pgmigrate_success",
    "numa_hint_faults",
    "numa_pages_migrated",
    "thp_fault_alloc",
    "thp_zero_page_alloc",
    "thp_collapse_alloc",
    "thp_split_pmd",
    "nr_tlb_remote_flush",
    "nr_tlb_remote_flush_received",
    "nr_tlb_local_flush_all",
    "nr_tlb_local_flush_one",
    "compact_daemon_migrate_scanned",
    "numa_pte_updates",
    "pgsteal_kswapd",
    "cow_ksm",
    "nr_written",
];

/// Huge pages that khugepaged made. Those of MADV_COLLAPSE are not among them, but in
/// `thp_collapse_alloc` (mm/khugepaged.c: khugepaged_scan_mm_slot, 6.12; seen on 6.18).
const KHUGEPAGED: &str = "/sys/kernel/mm/transparent_hugepage/khugepaged/pages_collapsed";

/// Its name beside those of `/proc/vmstat`.
pub const KHUGEPAGED_COLLAPSED: &str = "khugepaged_pages_collapsed";

/// What the kernel counted for tasks.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Usage {
    /// Faults without input.
    pub minor_faults: u64,
    /// Faults with input.
    pub major_faults: u64,
    /// Time in user mode, nanoseconds.
    pub user_ns: u64,
    /// Time in the kernel, nanoseconds.
    pub system_ns: u64,
}

impl Usage {
    /// What was added since `earlier`.
    pub fn since(self, earlier: Usage) -> Usage {
        Usage {
            minor_faults: self.minor_faults.saturating_sub(earlier.minor_faults),
            major_faults: self.major_faults.saturating_sub(earlier.major_faults),
            user_ns: self.user_ns.saturating_sub(earlier.user_ns),
            system_ns: self.system_ns.saturating_sub(earlier.system_ns),
        }
    }

    /// All children of this process that were waited for, and theirs.
    pub fn of_children() -> Usage {
        // SAFETY: a struct rusage of zeros is a valid one, and getrusage only writes to it.
        let usage = unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            libc::getrusage(libc::RUSAGE_CHILDREN, &mut usage);
            usage
        };
        let nanoseconds =
            |time: libc::timeval| time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1000;
        Usage {
            minor_faults: usage.ru_minflt as u64,
            major_faults: usage.ru_majflt as u64,
            user_ns: nanoseconds(usage.ru_utime),
            system_ns: nanoseconds(usage.ru_stime),
        }
    }

    /// One process, its threads and the children that it waited for.
    pub fn of_process(pid: i32) -> Option<Usage> {
        let stat = procfs::process::Process::new(pid).ok()?.stat().ok()?;
        let tick = 1_000_000_000 / procfs::ticks_per_second();
        Some(Usage {
            minor_faults: stat.minflt + stat.cminflt,
            major_faults: stat.majflt + stat.cmajflt,
            user_ns: (stat.utime + u64::try_from(stat.cutime).unwrap_or(0)) * tick,
            system_ns: (stat.stime + u64::try_from(stat.cstime).unwrap_or(0)) * tick,
        })
    }
}

/// What the kernel counted for the whole machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Machine {
    /// Of `/proc/vmstat`, and [`KHUGEPAGED_COLLAPSED`]; none where it cannot be seen.
    pub vmstat: Option<BTreeMap<String, u64>>,
    /// TLB shootdown interrupts per CPU, of `/proc/interrupts`; none where it has no such line.
    pub tlb_interrupts: Option<Vec<u64>>,
}

impl Machine {
    /// The counters now; what cannot be seen is told.
    pub fn now(missing: &mut Vec<Missing>) -> Machine {
        let mut text = |path, lacks| {
            let seen = look(path).map_err(|unseen| Missing::unseen(&unseen, lacks).tell(missing));
            seen.ok().flatten()
        };
        let vmstat = text("/proc/vmstat", "the machine's counters");
        let collapsed = text(KHUGEPAGED, "what khugepaged collapses");
        let interrupts = text("/proc/interrupts", "the machine's TLB interrupts");
        Machine {
            vmstat: vmstat.map(|text| {
                let collapsed = collapsed.and_then(|text| text.trim().parse().ok());
                let collapsed = collapsed.map(|pages| (KHUGEPAGED_COLLAPSED.to_owned(), pages));
                wanted(&text).into_iter().chain(collapsed).collect()
            }),
            tlb_interrupts: interrupts.and_then(|text| tlb_line(&text)),
        }
    }

    /// What was added since `earlier`.
    pub fn since(&self, earlier: &Machine) -> Machine {
        let vmstat = self.vmstat.as_ref().zip(earlier.vmstat.as_ref()).map(|(now, then)| {
            let added = |(name, value): (&String, &u64)| {
                Some((name.clone(), value.saturating_sub(*then.get(name)?)))
            };
            now.iter().filter_map(added).collect()
        });
        let interrupts = self.tlb_interrupts.as_ref().zip(earlier.tlb_interrupts.as_ref());
        // Columns are those of the CPUs that are online.
        let interrupts = interrupts.filter(|(now, then)| now.len() == then.len());
        let tlb_interrupts = interrupts.map(|(now, then)| {
            now.iter().zip(then).map(|(now, then)| now.saturating_sub(*then)).collect()
        });
        Machine { vmstat, tlb_interrupts }
    }
}

/// The wanted lines of the text of `/proc/vmstat`.
fn wanted(text: &str) -> BTreeMap<String, u64> {
    let lines = text.lines().filter_map(|line| line.split_once(' '));
    let wanted = lines.filter(|(name, _)| VMSTAT.contains(name));
    wanted.filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?))).collect()
}

fn tlb_line(text: &str) -> Option<Vec<u64>> {
    let line = text.lines().find_map(|line| line.trim_start().strip_prefix("TLB:"))?;
    Some(line.split_whitespace().map_while(|word| word.parse().ok()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tlb_line_ends_where_words_begin() {
        let text = "      CPU0   CPU1\nRES:  1  2  Rescheduling\n TLB:   30   4   TLB shootdowns\n";
        assert_eq!(tlb_line(text), Some(vec![30, 4]));
        assert_eq!(tlb_line("IPI0: 1 2 Rescheduling"), None);
    }

    #[test]
    fn machines_count_faults() {
        let mut missing = Vec::new();
        let before = Machine::now(&mut missing);
        let memory = vec![1_u8; 1 << 20];
        std::hint::black_box(&memory);
        let since = Machine::now(&mut missing).since(&before);
        assert!(since.vmstat.unwrap()["pgfault"] > 0 && missing.is_empty());
    }
}

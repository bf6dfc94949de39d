//! Reads counters of `/proc/vmstat` between rounds.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// Lines that are of interest for a scenario. They count for the whole machine.
const OF_ROUNDS: [&str; 15] = [
    "pswpin",
    "pswpout",
    "swpin_zero",
    "swpout_zero",
    "zswpin",
    "zswpout",
    "pgreuse",
    "thp_fault_alloc",
    "thp_zero_page_alloc",
    "thp_split_pmd",
    "thp_swpout",
    "nr_tlb_remote_flush",
    "nr_tlb_remote_flush_received",
    "nr_tlb_local_flush_all",
    "nr_tlb_local_flush_one",
];

/// Lines that move when the kernel itself reclaims or moves any task's pages: reclaim (`madvise`
/// does not count there; mm/vmscan.c:reclaim_folio_list), migration, compaction.
const KERNELS_OWN: [&str; 7] = [
    "pgscan_kswapd",
    "pgscan_direct",
    "pgscan_khugepaged",
    "pgmigrate_success",
    "pgmigrate_fail",
    "compact_migrate_scanned",
    "numa_pages_migrated",
];

/// Those of [`KERNELS_OWN`] that also move when a scenario's own calls move or demote pages. The
/// kernel does not count these apart.
const OF_MOVES: [&str; 4] =
    ["pgscan_direct", "pgmigrate_success", "pgmigrate_fail", "numa_pages_migrated"];

/// Huge pages that khugepaged or MADV_COLLAPSE made of small pages.
const COLLAPSED: &str = "thp_collapse_alloc";

/// Reads the counters that this kernel has.
pub struct Counters {
    file: Option<File>,
    names: Vec<&'static str>,
    text: Vec<u8>,
}

impl Default for Counters {
    fn default() -> Counters {
        Counters::open()
    }
}

impl Counters {
    /// Opens `/proc/vmstat`; without it there are no counters.
    pub fn open() -> Counters {
        let mut counters = Counters {
            file: File::open("/proc/vmstat").ok(),
            names: Vec::new(),
            text: vec![0; 64 * 1024],
        };
        let length = counters.fill();
        let known = lines(&counters.text[..length]);
        counters.names = known
            .filter_map(|(name, _)| {
                let mut wanted = OF_ROUNDS.into_iter().chain(KERNELS_OWN).chain([COLLAPSED]);
                wanted.find(|wanted| wanted.as_bytes() == name)
            })
            .collect();
        counters
    }

    /// The names of the counters, in the order of [`Counters::read`].
    pub fn names(&self) -> &[&'static str] {
        &self.names
    }

    /// The current values. The kernel writes its lines in the same order each time, so one pass
    /// finds all. (In emulation a pass takes as long as many system calls.)
    pub fn read(&mut self) -> Vec<u64> {
        let length = self.fill();
        let mut lines = lines(&self.text[..length]);
        let mut value = |name: &&str| {
            let line = lines.find(|(known, _)| *known == name.as_bytes());
            line.and_then(|(_, value)| std::str::from_utf8(value).ok()?.parse().ok()).unwrap_or(0)
        };
        self.names.iter().map(&mut value).collect()
    }

    fn fill(&mut self) -> usize {
        let mut length = 0;
        if let Some(file) = &self.file {
            while let Ok(more @ 1..) = file.read_at(&mut self.text[length..], length as u64) {
                length += more;
            }
        }
        length
    }
}

/// Whether the results keep a counter for each round.
pub fn is_of_rounds(name: &str) -> bool {
    OF_ROUNDS.contains(&name)
}

/// The first counter that shows pages which the kernel reclaimed or moved by itself. `migrates`:
/// whether the scenario's own calls move pages, too.
pub fn kernels_own<'a>(names: &[&'a str], moved: &[u64], migrates: bool) -> Option<&'a str> {
    let moved = names.iter().zip(moved).filter(|(_, moved)| **moved > 0);
    let own = |name: &&str| KERNELS_OWN.contains(name) && !(migrates && OF_MOVES.contains(name));
    moved.map(|(name, _)| *name).find(own)
}

/// The counter of huge pages that were made of small pages, if it moved.
pub fn collapsed<'a>(names: &[&'a str], moved: &[u64]) -> Option<&'a str> {
    let mut moved = names.iter().zip(moved).filter(|(_, moved)| **moved > 0);
    moved.find(|(name, _)| **name == COLLAPSED).map(|(name, _)| *name)
}

/// The increase of each counter from `before` to `after`.
pub fn difference(before: &[u64], after: &[u64]) -> Vec<u64> {
    before.iter().zip(after).map(|(before, after)| after.wrapping_sub(*before)).collect()
}

/// The pairs of a name and a value in the text, one in each line.
fn lines(text: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    text.split(|&byte| byte == b'\n').filter_map(|line| {
        let space = line.iter().rposition(|&byte| byte == b' ')?;
        Some((&line[..space], &line[space + 1..]))
    })
}

/// The TLB flush interrupts that each CPU has received, by the name `TLB interrupts cpuN`. Empty if
/// `/proc/interrupts` has no such line.
pub fn tlb_interrupts() -> BTreeMap<String, u64> {
    let text = std::fs::read_to_string("/proc/interrupts").unwrap_or_default();
    let cpus = text.lines().next().unwrap_or_default().split_whitespace();
    let line = text.lines().find_map(|line| line.trim_start().strip_prefix("TLB:"));
    cpus.zip(line.unwrap_or_default().split_whitespace())
        .filter_map(|(cpu, count)| {
            Some((format!("TLB interrupts {}", cpu.to_lowercase()), count.parse().ok()?))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_names_with_values() {
        let text = b"pswpin_x 1\npswpin 22\nodd\npswpout 3\n";
        let found: Vec<_> = lines(text).collect();
        assert_eq!(found, [(&b"pswpin_x"[..], &b"1"[..]), (b"pswpin", b"22"), (b"pswpout", b"3")]);
    }

    #[test]
    fn the_kernels_own_doings_are_told_from_the_scenarios() {
        let names = ["pswpout", "pgmigrate_success", COLLAPSED, "pgscan_kswapd"];
        assert_eq!(kernels_own(&names, &[3, 0, 1, 0], false), None);
        assert_eq!(kernels_own(&names, &[3, 0, 0, 2], true), Some("pgscan_kswapd"));
        assert_eq!(kernels_own(&names, &[0, 4, 0, 0], false), Some("pgmigrate_success"));
        assert_eq!(kernels_own(&names, &[0, 4, 0, 0], true), None);
        assert_eq!(collapsed(&names, &[3, 0, 1, 0]), Some(COLLAPSED));
        assert_eq!(collapsed(&names, &[3, 0, 0, 2]), None);
        assert!(is_of_rounds("pswpout") && !is_of_rounds("pgscan_kswapd"));
    }

    #[test]
    fn this_kernel_has_counters() {
        let mut counters = Counters::open();
        assert_eq!(counters.read().len(), counters.names().len());
    }
}

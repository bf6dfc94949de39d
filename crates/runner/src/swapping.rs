//! Checks that the pages that the machine swapped in a round are the scenario's.
//!
//! `pswpin`, `pswpout` and related counters in `/proc/vmstat` count for the whole machine. Control
//! groups do not count these pages in 6.12 (mm/memcontrol.c:memcg_vm_event_stat). Where they do
//! (7.3), they add them up too late for a round (mem_cgroup_flush_stats leaves up to 64 changes per
//! CPU aside). So the machine's figures are compared with the process's own actions. A round in
//! which they differ is marked:
//!
//! - in: each page that is read back is a major fault of the task that needs it
//!   (mm/memory.c:do_swap_page, 5.10 to 7.3). A zram device is read page by page, without readahead
//!   (`SWP_SYNCHRONOUS_IO`).
//! - out: a tracepoint shows each page that a thread writes (`vmscan:mm_vmscan_write_folio`, before
//!   6.0 `mm_vmscan_writepage`; mm/vmscan.c:pageout). It is recorded only for the scenario's
//!   threads. A huge page is written as one, and `thp_swpout` counts it
//!   (mm/page_io.c:count_swpout_vm_event). A huge page of zeros is not counted there. `swpout_zero`
//!   counts each of its pages.

/// Reason: another task's pages were read from swap, or another task read ours.
const IN: &str = "another task's pages came from swap";
/// Reason: another task's pages were written to swap, or another task wrote ours.
const OUT: &str = "another task's pages went to swap";

/// Pages of a huge page. It is written as one.
const HUGE: u64 = 512;

/// Major faults of the scenario.
#[derive(Copy, Clone)]
pub struct Majors {
    /// The number of major faults that its threads took.
    pub taken: u64,
    /// The number of these that were on shared memory and on files, if known. They swap nothing. A
    /// read from a file's disk counts as major (mm/filemap.c: filemap_fault). Before 6.0, so do the
    /// first stores to shared memory (mm/memory.c:fault_dirty_shared_page, mm_account_fault).
    pub unswapped: Option<u64>,
    /// Whether each page that the scenario reads from swap is one of these faults. `pwrite` and
    /// UFFDIO_CONTINUE read swapped pages of shared memory without a fault
    /// (mm/shmem.c:shmem_swapin_folio). Then nothing shows these reads.
    pub all: bool,
}

/// Why not all swapped pages of a round are the scenario's; `None` if they are. The machine's
/// counters `names` moved by `moved`. The scenario's threads took the faults `majors`, and wrote
/// `written` pages if that is known.
pub fn strangers(
    names: &[&str],
    moved: &[u64],
    majors: Majors,
    written: Option<u64>,
) -> Option<&'static str> {
    let sum = |wanted: &[&str]| {
        let known = names.iter().zip(moved).filter(|(name, _)| wanted.contains(name));
        known.map(|(_, moved)| moved).sum::<u64>()
    };
    if !names.contains(&"pswpin") {
        return None;
    }
    let read = sum(&["pswpin", "swpin_zero", "zswpin"]);
    let others = match majors.unswapped {
        Some(unswapped) => read + unswapped != majors.taken,
        None => read > majors.taken,
    };
    if others && majors.all {
        return Some(IN);
    }
    let out = sum(&["pswpout", "swpout_zero", "zswpout"]);
    let huge = sum(&["thp_swpout"]);
    let huge_zeros = 0..=sum(&["swpout_zero"]) / HUGE;
    let all_of =
        |written: u64| huge_zeros.clone().any(|zeros| written + (huge + zeros) * (HUGE - 1) == out);
    written.is_some_and(|written| !all_of(written)).then_some(OUT)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A huge page of the scenario differs from 512 pages of another task.
    #[test]
    fn huge_pages_are_written_as_one() {
        let names = ["pswpin", "pswpout", "swpout_zero", "thp_swpout"];
        let marked = |moved: [u64; 4], written| {
            let own = Majors { taken: 0, unswapped: Some(0), all: true };
            strangers(&names, &moved, own, Some(written))
        };
        assert_eq!(marked([0, 512, 0, 1], 1), None);
        assert_eq!(marked([0, 515, 0, 1], 4), None);
        assert_eq!(marked([0, 0, 512, 0], 1), None, "of zeros");
        assert_eq!(marked([0, 513, 512, 1], 3), None);
        assert_eq!(marked([0, 512, 0, 0], 1), Some(OUT));
        assert_eq!(marked([0, 512, 0, 0], 512), None, "page by page");
        assert_eq!(marked([0, 513, 0, 1], 1), Some(OUT));
        assert_eq!(marked([0, 0, 511, 0], 1), Some(OUT));
    }

    #[test]
    fn the_machines_counters_have_to_be_the_processs() {
        let names = ["pswpin", "pswpout", "swpin_zero", "swpout_zero", "pgreuse"];
        let own = |taken| Majors { taken, unswapped: Some(0), all: true };
        let marked =
            |moved: [u64; 5], majors, written| strangers(&names, &moved, own(majors), written);
        assert_eq!(marked([2, 3, 1, 4, 9], 3, Some(7)), None);
        assert_eq!(marked([2, 3, 0, 0, 9], 2, None), None, "who wrote is not known");
        assert_eq!(marked([0, 1, 0, 0, 0], 0, Some(0)), Some(OUT), "`pswpout 1` of somebody else");
        assert_eq!(marked([0, 0, 0, 0, 0], 0, Some(1)), Some(OUT));
        assert_eq!(marked([1, 0, 0, 0, 0], 0, Some(0)), Some(IN));
        assert_eq!(marked([0, 0, 1, 0, 0], 2, Some(0)), Some(IN));
        assert_eq!(strangers(&["pgreuse"], &[1], own(5), Some(5)), None, "no swap in this kernel");
        let read = |pages, unswapped| {
            let majors = Majors { taken: 2, unswapped, all: true };
            strangers(&names, &[pages, 0, 0, 0, 0], majors, Some(0))
        };
        let calls = Majors { taken: 0, unswapped: None, all: false };
        assert_eq!(strangers(&names, &[3, 0, 0, 0, 0], calls, Some(0)), None, "read by calls");
        assert_eq!([read(1, Some(1)), read(2, Some(0)), read(0, Some(2))], [None; 3]);
        assert_eq!([read(1, Some(0)), read(2, Some(1)), read(3, Some(1))], [Some(IN); 3]);
        assert_eq!((read(1, None), read(3, None)), (None, Some(IN)), "who took them is not known");
    }
}

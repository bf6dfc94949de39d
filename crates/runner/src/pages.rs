//! Reads the state of each page at the end of a run from `/proc/PID/pagemap`, and how many pages
//! huge entries map from `/proc/PID/smaps`.

use crate::numa;
use crate::run::Run;
use needless_model::addr::{PAGE_SIZE, PageRange, Vpn};
use needless_model::final_pages::{FinalPages, Holds, MOST_PAGES, PageState, too_many};
use needless_model::program::Program;
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// The bits of a present page's entry that hold its frame number.
const FRAME: u64 = (1 << 55) - 1;

/// The state of each mapped page of the scenario in each living process, by name, or the reason why
/// there is none. Pages of other processes than the first one have the process's name in front.
pub fn final_pages(run: &Run) -> Result<BTreeMap<String, String>, String> {
    let program = &run.program;
    if let Some(total) = too_many(program) {
        return Err(format!("the scenario has {total} pages; at most {MOST_PAGES} are listed"));
    }
    let mut pages = FinalPages::default();
    tell(program, &mut pages, 0, "")?;
    for (index, thread) in program.threads.iter().enumerate() {
        let Some(pid) = run.team.pid(index) else { continue };
        let process = &program.processes[thread.process.index()].name;
        tell(program, &mut pages, pid, &format!("{process}:"))?;
    }
    Ok(pages.by_name())
}

/// The number of page tables of this process (`mm->pgtables_bytes`), including those that are
/// deposited for huge pages. They are its share of the kernel's `nr_page_table_pages`. Source:
/// fs/proc/task_mmu.c:task_mem, VmPTE.
pub fn page_tables() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let kib: u64 = status
        .lines()
        .find_map(|line| line.strip_prefix("VmPTE:")?.trim().strip_suffix(" kB")?.parse().ok())?;
    Some(kib * 1024 / PAGE_SIZE)
}

/// Adds the pages of a process to `pages`; `pid` 0 is this process.
fn tell(program: &Program, pages: &mut FinalPages, pid: i32, process: &str) -> Result<(), String> {
    let folder = if pid == 0 { "/proc/self".to_owned() } else { format!("/proc/{pid}") };
    let maps =
        std::fs::read_to_string(format!("{folder}/smaps")).map_err(|e| format!("smaps: {e}"))?;
    let ours = |range: &PageRange| program.areas.iter().any(|area| area.range.overlaps(*range));
    pages.tell_huge(process, anon_huge_pages(&maps, ours));
    let mapped: Vec<PageRange> = maps.lines().filter_map(mapping).collect();
    let pagemap = File::open(format!("{folder}/pagemap")).map_err(|e| format!("pagemap: {e}"))?;
    let mut there = Vec::new();
    for page in program.areas.iter().flat_map(|area| area.range.iter()) {
        if !mapped.iter().any(|range| range.contains(page)) {
            continue;
        }
        let mut entry = [0; 8];
        pagemap
            .read_exact_at(&mut entry, page.0 * 8)
            .map_err(|error| format!("pagemap: {error}"))?;
        let state = state(u64::from_le_bytes(entry))?;
        if matches!(state.holds, Holds::Frame(_)) {
            there.push(page);
        }
        if let Some(page) = program.page_name(page) {
            pages.tell(format!("{process}{page}"), state);
        }
    }
    if program.machine.nodes.is_some_and(|nodes| nodes > 1) {
        tell_nodes(program, pages, pid, process, &there)?;
    }
    Ok(())
}

/// Adds the NUMA node of each page, if there are several nodes.
fn tell_nodes(
    program: &Program,
    pages: &mut FinalPages,
    pid: i32,
    process: &str,
    there: &[Vpn],
) -> Result<(), String> {
    let nodes = numa::nodes_of(pid, there).map_err(|error| format!("move_pages: {error}"))?;
    for (page, node) in there.iter().zip(nodes) {
        if let (Some(page), Some(node)) = (program.page_name(*page), node) {
            pages.tell_node(&format!("{process}{page}"), node);
        }
    }
    Ok(())
}

/// Pages that huge entries map, in the mappings that are `ours`. Source:
/// fs/proc/task_mmu.c:show_smap.
fn anon_huge_pages(smaps: &str, ours: impl Fn(&PageRange) -> bool) -> u64 {
    let (mut counts, mut kib) = (false, 0);
    for line in smaps.lines() {
        if let Some(range) = mapping(line) {
            counts = ours(&range);
        } else if let Some(value) = line.strip_prefix("AnonHugePages:").filter(|_| counts) {
            kib += value.trim().trim_end_matches(" kB").parse().unwrap_or(0);
        }
    }
    kib * 1024 / PAGE_SIZE
}

fn mapping(line: &str) -> Option<PageRange> {
    let (start, end) = line.split_once(' ')?.0.split_once('-')?;
    let page = |text| u64::from_str_radix(text, 16).ok().map(Vpn::containing);
    Some(PageRange { start: page(start)?, end: page(end)? })
}

/// The state in an entry of pagemap. Source: Documentation/admin-guide/mm/pagemap.rst.
fn state(entry: u64) -> Result<PageState, String> {
    let bit = |bit: u32| entry >> bit & 1 == 1;
    let holds = match (bit(63), bit(62), entry & FRAME) {
        (true, _, 0) => {
            return Err("pagemap hides frame numbers without CAP_SYS_ADMIN".to_owned());
        }
        (true, _, frame) => Holds::Frame(frame),
        // The other bits hold the number of a swap slot.
        (false, true, _) => Holds::Swapped,
        (false, false, _) => Holds::Nothing,
    };
    Ok(PageState { holds, exclusive: bit(56), soft_dirty: bit(55), uffd_wp: bit(57) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_of_pagemap() {
        let plain = PageState {
            holds: Holds::Nothing,
            exclusive: false,
            soft_dirty: false,
            uffd_wp: false,
        };
        assert_eq!(state(0), Ok(plain));
        let dirty =
            PageState { holds: Holds::Frame(77), exclusive: true, soft_dirty: true, ..plain };
        assert_eq!(state(1 << 63 | 1 << 56 | 1 << 55 | 77), Ok(dirty));
        let swapped = PageState { holds: Holds::Swapped, ..plain };
        assert_eq!(state(1 << 62 | 77), Ok(swapped), "a swap slot is no frame");
        assert_eq!(state(1 << 57), Ok(PageState { uffd_wp: true, ..plain }));
        assert!(state(1 << 63).is_err());
    }

    #[test]
    fn maps_lines() {
        let range = mapping("700000000000-700000002000 rw-p 00000000 00:00 0").unwrap();
        assert_eq!(range, PageRange::new(Vpn(0x7_0000_0000), 2));
        assert_eq!(mapping("rubbish"), None);
    }

    #[test]
    fn huge_pages_of_smaps() {
        let smaps = "700000000000-700000400000 rw-p 00000000 00:00 0\nRss:   4096 kB\n\
                     AnonHugePages:      4096 kB\nVmFlags: rd wr mr mw me ac\n\
                     700000600000-700000800000 rw-p 00000000 00:00 0\n\
                     AnonHugePages:      2048 kB\n";
        assert_eq!(anon_huge_pages(smaps, |_| true), 1536);
        assert_eq!(anon_huge_pages(smaps, |range| range.pages() == 512), 512);
    }
}

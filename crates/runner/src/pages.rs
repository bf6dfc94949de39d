//! The state of each page at the end of a run, from `/proc/PID/pagemap`.

use crate::run::Run;
use needless_model::addr::{PageRange, Vpn};
use needless_model::final_pages::{FinalPages, Holds, MOST_PAGES, PageState, too_many};
use needless_model::program::Program;
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// The bits of a present page's entry that number its frame.
const FRAME: u64 = (1 << 55) - 1;

/// The state of each mapped page of the scenario in each process that lives, by name; the reason if there is none. Pages of
/// other processes than the first one have its name before theirs.
pub fn final_pages(run: &Run) -> Result<BTreeMap<String, String>, String> {
    let program = &run.program;
    if let Some(total) = too_many(program) {
        return Err(format!("the scenario has {total} pages; at most {MOST_PAGES} are listed"));
    }
    let mut pages = FinalPages::default();
    tell(program, &mut pages, "/proc/self", |page| page)?;
    for (index, thread) in program.threads.iter().enumerate() {
        let Some(pid) = run.team.pid(index) else { continue };
        let process = &program.processes[thread.process.index()].name;
        tell(program, &mut pages, &format!("/proc/{pid}"), |page| format!("{process}:{page}"))?;
    }
    Ok(pages.by_name())
}

/// Tells the pages of the process that `/proc` shows in `folder`.
fn tell(
    program: &Program,
    pages: &mut FinalPages,
    folder: &str,
    name: impl Fn(String) -> String,
) -> Result<(), String> {
    let maps =
        std::fs::read_to_string(format!("{folder}/maps")).map_err(|e| format!("maps: {e}"))?;
    let mapped: Vec<PageRange> = maps.lines().filter_map(mapping).collect();
    let pagemap = File::open(format!("{folder}/pagemap")).map_err(|e| format!("pagemap: {e}"))?;
    for page in program.areas.iter().flat_map(|area| area.range.iter()) {
        if !mapped.iter().any(|range| range.contains(page)) {
            continue;
        }
        let mut entry = [0; 8];
        pagemap
            .read_exact_at(&mut entry, page.0 * 8)
            .map_err(|error| format!("pagemap: {error}"))?;
        if let Some(page) = program.page_name(page) {
            pages.tell(name(page), state(u64::from_le_bytes(entry))?);
        }
    }
    Ok(())
}

fn mapping(line: &str) -> Option<PageRange> {
    let (start, end) = line.split_once(' ')?.0.split_once('-')?;
    let page = |text| u64::from_str_radix(text, 16).ok().map(Vpn::containing);
    Some(PageRange { start: page(start)?, end: page(end)? })
}

/// What an entry of pagemap tells. Source: Documentation/admin-guide/mm/pagemap.rst.
fn state(entry: u64) -> Result<PageState, String> {
    let bit = |bit: u32| entry >> bit & 1 == 1;
    let holds = match (bit(63), bit(62), entry & FRAME) {
        (true, _, 0) => {
            return Err("pagemap hides frame numbers without CAP_SYS_ADMIN".to_owned());
        }
        (true, _, frame) => Holds::Frame(frame),
        // The other bits number a swap slot.
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
}

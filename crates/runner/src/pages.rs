//! The state of each page at the end of a run, from `/proc/self/pagemap`.

use needless_model::addr::{PageRange, Vpn};
use needless_model::program::Program;
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// Areas with more pages than this in all are not listed.
pub const MOST_PAGES: u64 = 4096;

/// Bits of a pagemap entry and the words for them. Source: Documentation/admin-guide/mm/pagemap.rst.
const FLAGS: [(u32, &str); 3] = [(56, " exclusive"), (55, " soft-dirty"), (57, " uffd-wp")];

/// The bits of a present page's entry that number its frame.
const FRAME: u64 = (1 << 55) - 1;

/// The state of each mapped page of the scenario, by name; the reason if there is none.
pub fn final_pages(program: &Program) -> Result<BTreeMap<String, String>, String> {
    let total: u64 = program.areas.iter().map(|area| area.range.pages()).sum();
    if total > MOST_PAGES {
        return Err(format!("the scenario has {total} pages; at most {MOST_PAGES} are listed"));
    }
    let maps = std::fs::read_to_string("/proc/self/maps").map_err(|e| format!("maps: {e}"))?;
    let mapped: Vec<PageRange> = maps.lines().filter_map(mapping).collect();
    let pagemap = File::open("/proc/self/pagemap").map_err(|e| format!("pagemap: {e}"))?;
    let (mut states, mut frames) = (BTreeMap::new(), BTreeMap::new());
    for page in program.areas.iter().flat_map(|area| area.range.iter()) {
        if !mapped.iter().any(|range| range.contains(page)) {
            continue;
        }
        let mut entry = [0; 8];
        pagemap
            .read_exact_at(&mut entry, page.0 * 8)
            .map_err(|error| format!("pagemap: {error}"))?;
        let entry = u64::from_le_bytes(entry);
        if let Some(name) = program.page_name(page) {
            let shared = same_frame(entry, &name, &mut frames)?;
            states.insert(name, state(entry) + &shared);
        }
    }
    Ok(states)
}

/// Which page before this one has the same frame, as a word; `frames` knows the first page of each.
fn same_frame(
    entry: u64,
    name: &str,
    frames: &mut BTreeMap<u64, String>,
) -> Result<String, String> {
    if entry >> 63 == 0 {
        return Ok(String::new());
    }
    match entry & FRAME {
        0 => Err("pagemap hides frame numbers without CAP_SYS_ADMIN".to_owned()),
        frame => Ok(match frames.get(&frame) {
            Some(first) => format!(" same-as:{first}"),
            None => {
                frames.insert(frame, name.to_owned());
                String::new()
            }
        }),
    }
}

fn mapping(line: &str) -> Option<PageRange> {
    let (start, end) = line.split_once(' ')?.0.split_once('-')?;
    let page = |text| u64::from_str_radix(text, 16).ok().map(Vpn::containing);
    Some(PageRange { start: page(start)?, end: page(end)? })
}

fn state(entry: u64) -> String {
    let bit = |bit: u32| entry >> bit & 1 == 1;
    let word = match (bit(63), bit(62)) {
        (true, _) => "present",
        (false, true) => "swapped",
        (false, false) => "none",
    };
    let flags = FLAGS.into_iter().filter(|(number, _)| bit(*number)).map(|(_, word)| word);
    std::iter::once(word).chain(flags).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_in_words() {
        assert_eq!(state(0), "none");
        assert_eq!(state(1 << 63 | 1 << 56 | 1 << 55 | 77), "present exclusive soft-dirty");
        assert_eq!(state(1 << 62), "swapped");
    }

    #[test]
    fn equal_frames_are_told() {
        let mut frames = BTreeMap::new();
        let mut word = |entry, name| same_frame(entry, name, &mut frames);
        assert_eq!(word(1 << 63 | 77, "a"), Ok(String::new()));
        assert_eq!(word(1 << 63 | 78, "b"), Ok(String::new()));
        assert_eq!(word(1 << 62 | 77, "c"), Ok(String::new()), "a swap slot is no frame");
        assert_eq!(word(1 << 63 | 77, "d"), Ok(" same-as:a".to_owned()));
        assert!(word(1 << 63, "e").is_err());
    }

    #[test]
    fn maps_lines() {
        let range = mapping("700000000000-700000002000 rw-p 00000000 00:00 0").unwrap();
        assert_eq!(range, PageRange::new(Vpn(0x7_0000_0000), 2));
        assert_eq!(mapping("rubbish"), None);
    }
}

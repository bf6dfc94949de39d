//! Kernel threads that manage memory without being counted: `kdamond`, the thread of DAMON.
//!
//! It clears accessed bits of any task's pages without a flush. It may also reclaim pages as
//! `madvise` does, on any CPU. That moves no counter of reclaim (mm/damon/paddr.c;
//! mm/vmscan.c:reclaim_pages), and no ring of ours sees it. Its time slices (`/proc/PID/schedstat`,
//! third figure) and its state show that it ran. `kswapd`, `kcompactd` and `khugepaged` have
//! counters ([`crate::vmstat`]).

use crate::tracefs::{is_kernel_thread, task_state};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;

const NAME: &str = "kdamond";

/// The threads of this kind on this kernel.
pub struct Minders(Vec<Minder>);

struct Minder {
    name: String,
    schedstat: File,
    stat: File,
    slices: Option<u64>,
}

impl Minders {
    /// An empty list.
    pub fn none() -> Minders {
        Minders(Vec::new())
    }

    /// Finds the threads.
    pub fn find() -> Minders {
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        Minders(entries.filter_map(|entry| Minder::open(&entry.path())).collect())
    }

    /// The name of one that has run since the last call.
    pub fn ran(&mut self) -> Option<&str> {
        let mut ran = None;
        for minder in &mut self.0 {
            if minder.ran() {
                ran = Some(minder.name.as_str());
            }
        }
        ran
    }
}

impl Minder {
    fn open(folder: &std::path::Path) -> Option<Minder> {
        let _: u32 = folder.file_name()?.to_str()?.parse().ok()?;
        let name = fs::read_to_string(folder.join("comm")).ok()?.trim().to_owned();
        if !name.starts_with(NAME) {
            return None;
        }
        if is_kernel_thread(&fs::read(folder.join("stat")).ok()?) != Some(true) {
            return None;
        }
        let open = |file: &str| File::open(folder.join(file)).ok();
        let (schedstat, stat) = (open("schedstat")?, open("stat")?);
        Some(Minder { name, schedstat, stat, slices: None })
    }

    fn ran(&mut self) -> bool {
        let mut room = [0; 256];
        let mut read = |file: &File| file.read_at(&mut room, 0).ok().map(|n| room[..n].to_vec());
        let slices = read(&self.schedstat).and_then(|text| slices(&text));
        let runs = read(&self.stat).is_some_and(|text| task_state(&text) == Some(b'R'));
        let before = std::mem::replace(&mut self.slices, slices);
        runs || before.is_some() && before != slices
    }
}

fn slices(schedstat: &[u8]) -> Option<u64> {
    std::str::from_utf8(schedstat).ok()?.split_whitespace().nth(2)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_more_tells_that_it_ran() {
        assert_eq!(slices(b"67116772992 276277257207 23318\n"), Some(23318));
        assert_eq!(slices(b""), None);
        // This thread takes its place: it runs whenever it is looked at.
        let open = |file: &str| File::open(format!("/proc/thread-self/{file}")).unwrap();
        let (schedstat, stat) = (open("schedstat"), open("stat"));
        let me = Minder { name: "me".into(), schedstat, stat, slices: None };
        assert_eq!(Minders(vec![me]).ran(), Some("me"));
        assert_eq!(Minders(vec![]).ran(), None);
    }

    #[test]
    fn only_kernel_threads_are_minders() {
        for minder in Minders::find().0 {
            assert!(minder.name.starts_with(NAME), "{}", minder.name);
        }
        assert!(Minder::open(std::path::Path::new("/proc/self")).is_none());
    }
}

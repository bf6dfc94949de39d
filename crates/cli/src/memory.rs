//! How much memory runs of the model may take.

use std::fs;
use std::path::Path;

/// Bytes per page frame at the most: the frame, its PTE, its place on a list.
const FRAME: u64 = 64;

/// Bytes of an event, with the room that a growing list of them takes.
const EVENT: u64 = 4 * 88;

/// The bound where the machine does not tell what it has.
const UNKNOWN: u64 = 2 << 30;

/// A bound.
#[derive(Copy, Clone, Debug)]
pub struct Memory {
    /// In bytes.
    most: u64,
}

impl Memory {
    /// The bound asked for, in MiB; otherwise half of what is free.
    pub fn new(asked: Option<u64>) -> Memory {
        let free = || available().map_or(UNKNOWN, |free| free / 2);
        Memory { most: asked.map_or_else(free, |mib| mib.saturating_mul(1 << 20)) }
    }

    /// The page frames of a machine that keeps to it.
    pub fn frames(self) -> u32 {
        u32::try_from(self.most / FRAME).unwrap_or(u32::MAX).min(1 << 29)
    }

    /// The events of a round that keeps to it.
    pub fn events(self) -> usize {
        usize::try_from(self.most / EVENT).unwrap_or(usize::MAX).min(40_000_000)
    }

    /// What this process takes, unless that and what it will take `soon` are above the bound.
    pub fn check(self, soon: u64) -> Result<u64, String> {
        let used = resident().unwrap_or(0);
        if used.saturating_add(soon) <= self.most {
            return Ok(used);
        }
        Err(format!("more memory is needed than the {} MiB that a run may take", self.most >> 20))
    }
}

/// Memory that this process has.
fn resident() -> Option<u64> {
    field(Path::new("/proc/self/status"), "VmRSS:")
}

/// Memory that could be had: what the machine has free, or less if a control group says so.
fn available() -> Option<u64> {
    let machine = field(Path::new("/proc/meminfo"), "MemAvailable:");
    machine.into_iter().chain(group()).min()
}

/// A line `name 123 kB`, in bytes.
fn field(path: &Path, name: &str) -> Option<u64> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

/// What the tightest control group leaves (version 2: memory.max).
fn group() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let folders = Path::new(path).ancestors().map(|path| Path::new("/sys/fs/cgroup").join(path));
    let number = |path: &Path| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    let left = |folder: std::path::PathBuf| {
        let (most, used) = (folder.join("memory.max"), folder.join("memory.current"));
        Some(number(&most)?.saturating_sub(number(&used)?))
    };
    folders.filter_map(left).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_below_what_there_is() {
        let (bound, free) = (Memory::new(None), available().unwrap());
        assert!(bound.most > 0 && bound.most <= free / 2 + (64 << 20), "{bound:?} of {free}");
    }

    #[test]
    fn more_than_the_bound_is_refused() {
        let bound = Memory::new(Some(1 << 20));
        assert!(bound.check(0).unwrap() > 1 << 20);
        let message = bound.check(1 << 40).unwrap_err();
        assert!(message.contains("1048576 MiB"), "{message}");
        assert!(Memory::new(Some(1)).check(0).is_err());
        assert_eq!(Memory::new(Some(1)).frames(), 16384);
        assert_eq!(Memory::new(Some(u64::MAX)).frames(), 1 << 29);
    }
}

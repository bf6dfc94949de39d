//! How much memory runs of the model and of the checker may take.

use rustix::process::{Resource, getrlimit};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The bound if the machine's memory is not known.
const UNKNOWN: u64 = 2 << 30;

/// A bound on memory.
#[derive(Copy, Clone, Debug)]
pub struct Memory {
    /// The bound in bytes.
    most: u64,
    /// The memory that the process had before anything ran.
    before: u64,
    /// The number of model runs at a time.
    runs: u64,
}

impl Memory {
    /// The bound that the user asked for, in MiB. Otherwise it is half of the smallest of these:
    /// the machine's free memory, what control groups leave, and what the process's limits leave
    /// (`ulimit -v`, `ulimit -d`). The process's limits hold in any case: beyond them allocations
    /// fail.
    pub fn new(asked: Option<u64>) -> Memory {
        static BEFORE: OnceLock<u64> = OnceLock::new();
        let before = *BEFORE.get_or_init(|| resident().unwrap_or(0));
        let half = |free: u64| before + free / 2;
        let limits = limits().map_or(u64::MAX, half);
        let most = match asked {
            Some(mib) => mib.saturating_mul(1 << 20),
            None => available().map_or(UNKNOWN, half),
        };
        Memory { most: most.min(limits), before, runs: 1 }
    }

    /// The bound in bytes.
    pub fn most(self) -> u64 {
        self.most
    }

    /// The bound for each of `runs` runs at a time.
    pub fn shared_by(self, runs: u64) -> Memory {
        Memory { runs: runs.max(1), ..self }
    }

    /// The memory that a run of the model may take, in bytes.
    pub fn of_model(self) -> u64 {
        self.most.saturating_sub(self.before) / self.runs
    }

    /// The memory that this process takes, unless that and `soon`, which it will take next, exceed
    /// the bound.
    pub fn check(self, soon: u64) -> Result<u64, String> {
        let used = resident().unwrap_or(0);
        if used.saturating_add(soon) <= self.most {
            return Ok(used);
        }
        Err(format!("more memory is needed than the {} MiB that a run may take", self.most >> 20))
    }
}

/// The memory that this process has (VmRSS).
fn resident() -> Option<u64> {
    field(Path::new("/proc/self/status"), "VmRSS:")
}

/// The memory that is available: what the machine has free, or less if a control group says so.
fn available() -> Option<u64> {
    let machine = field(Path::new("/proc/meminfo"), "MemAvailable:");
    machine.into_iter().chain(groups()).min()
}

/// What the process's own limits leave: of its address space (RLIMIT_AS) and of its data
/// (RLIMIT_DATA).
fn limits() -> Option<u64> {
    let status = Path::new("/proc/self/status");
    let left = |(resource, used)| {
        let most = getrlimit(resource).current?;
        Some(most.saturating_sub(field(status, used).unwrap_or(0)))
    };
    [(Resource::As, "VmSize:"), (Resource::Data, "VmData:")].into_iter().filter_map(left).min()
}

/// A line `name 123 kB`, in bytes.
fn field(path: &Path, name: &str) -> Option<u64> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

/// Where a version of control groups keeps a group's limit, its use, and (in `memory.stat`) the
/// memory that can be dropped at once.
struct Version {
    folder: &'static str,
    limit: &'static str,
    used: &'static str,
    dropped: &'static str,
}

const V2: Version = Version {
    folder: "/sys/fs/cgroup",
    limit: "memory.max",
    used: "memory.current",
    dropped: "inactive_file ",
};

const V1: Version = Version {
    folder: "/sys/fs/cgroup/memory",
    limit: "memory.limit_in_bytes",
    used: "memory.usage_in_bytes",
    dropped: "total_inactive_file ",
};

/// The memory that the tightest control group leaves, of either version.
///
/// Source: cgroups(7); Documentation/admin-guide/cgroup-v2.rst, cgroup-v1/memory.rst.
fn groups() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let of = |line: &str| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        let version = match controllers {
            "" => V2,
            _ if controllers.split(',').any(|controller| controller == "memory") => V1,
            _ => return None,
        };
        least(&version, path)
    };
    groups.lines().filter_map(of).min()
}

/// The memory that the group at `path` and the groups above it leave.
fn least(version: &Version, path: &str) -> Option<u64> {
    let inside = Path::new(path).strip_prefix("/").unwrap_or(Path::new(path));
    let folders = inside.ancestors().map(|path| Path::new(version.folder).join(path));
    let number = |path: &Path| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    let left = |folder: PathBuf| {
        let (most, used) = (number(&folder.join(version.limit))?, folder.join(version.used));
        let stat = fs::read_to_string(folder.join("memory.stat")).unwrap_or_default();
        let dropped = stat.lines().find_map(|line| line.strip_prefix(version.dropped));
        let dropped = dropped.and_then(|bytes| bytes.trim().parse().ok()).unwrap_or(0);
        Some(most.saturating_sub(number(&used)?.saturating_sub(dropped)))
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
        assert_eq!(Memory::new(Some(1)).of_model(), 0);
        assert!(bound.of_model() < bound.most());
        assert_eq!(bound.shared_by(4).of_model(), bound.of_model() / 4);
    }

    #[test]
    fn groups_of_both_versions_and_those_above_count() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().to_str().unwrap().to_owned().leak();
        for version in [V1, V2] {
            let version = Version { folder: root, ..version };
            let group = |path: &str, most: &str, used: &str, stat: &str| {
                let folder = folder.path().join(path);
                fs::create_dir_all(&folder).unwrap();
                fs::write(folder.join(version.limit), most).unwrap();
                fs::write(folder.join(version.used), used).unwrap();
                fs::write(folder.join("memory.stat"), stat).unwrap();
            };
            group("a", "1000\n", "900\n", &format!("cache 1\n{}500\n", version.dropped));
            group("a/b", "max\n", "10\n", "");
            assert_eq!(least(&version, "/a/b"), Some(600));
            group("a/b", "700\n", "300\n", "");
            assert_eq!(least(&version, "/a/b"), Some(400));
            assert_eq!(least(&version, "/elsewhere"), None);
        }
    }
}

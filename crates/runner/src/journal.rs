//! The list of a keeper's changes to the machine, in its lock file. The keeper writes down each
//! change before it makes it. If the keeper is killed, the file is unlocked and not empty. Another
//! process then learns from it what was left behind, and can undo it.
//!
//! The first line of the file names the holder of the lock, the second the machine's boot. Each
//! further line is a change. A keeper that ends in order empties the file.

use crate::environment::setting;
use crate::numa;
use crate::swap::ZramSwap;
use crate::tracefs;
use crate::zram::Zram;
use needless_model::program::{MachineNeeds, Mthp, MthpMode};
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::mount::UnmountFlags;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};

/// The mode of transparent huge pages.
pub const THP_ENABLED: &str = "/sys/kernel/mm/transparent_hugepage/enabled";

/// The mode of large folios of this size, which kernels have since 6.8.
pub fn mthp_enabled(kib: u32) -> String {
    format!("/sys/kernel/mm/transparent_hugepage/hugepages-{kib}kB/enabled")
}

/// The size of large folios that a scenario asks for and the kernel lacks, if there is one.
pub fn lacks_mthp(needs: &MachineNeeds) -> Option<String> {
    let sizes = needs.mthp?.sizes();
    let mut asked = sizes.filter(|(_, mode)| *mode != MthpMode::Never);
    let (kib, _) = asked.find(|(kib, _)| setting(&mthp_enabled(*kib)).is_none())?;
    Some(format!(
        "this kernel has no large folios of {kib} KiB (`mthp`; {} is not there; 6.8 and later have it)",
        mthp_enabled(kib)
    ))
}

/// The switch of zswap.
pub const ZSWAP_ENABLED: &str = "/sys/module/zswap/parameters/enabled";
/// The number of pages that are read from swap at once, as a power of two.
pub const PAGE_CLUSTER: &str = "/proc/sys/vm/page-cluster";
/// An identifier that changes each time the machine starts.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// A change that outlives the process that made it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Made {
    /// A setting was written.
    Set {
        /// The settings file.
        path: String,
        /// The written value.
        value: String,
        /// The value before.
        old: String,
    },
    /// tracefs was mounted.
    Mounted {
        /// The mount point.
        path: String,
    },
    /// A zram device was added, as a disk for files.
    Disk {
        /// The number of the device.
        number: u32,
        /// The size of the device.
        size_bytes: u64,
        /// Whether the module was loaded for it.
        module_loaded: bool,
    },
    /// A zram device was added, as swap space.
    Zram {
        /// The number of the device.
        number: u32,
        /// The size of the device.
        size_bytes: u64,
        /// Whether the module was loaded for it.
        module_loaded: bool,
    },
}

/// A failed action in words, and its error.
pub type Failed = (String, io::Error);

impl Made {
    /// Whether the machine still has this change.
    pub fn stands(&self) -> bool {
        match self {
            Made::Set { path, value, .. } => setting(path).is_some_and(|now| same(&now, value)),
            Made::Mounted { path } => mounted(&read(MOUNTS), path),
            Made::Zram { number, size_bytes, .. } | Made::Disk { number, size_bytes, .. } => {
                let size = setting(&format!("/sys/block/zram{number}/disksize"));
                // The size is set a moment after the device was added.
                size.is_some_and(|size| [size_bytes.to_string().as_str(), "0"].contains(&&*size))
            }
        }
    }

    /// Undoes the change, if the machine still has it.
    pub fn undo(&self) -> Result<(), Failed> {
        if !self.stands() {
            return Ok(());
        }
        match self {
            Made::Set { path, old, .. } => {
                fs::write(path, old).map_err(|error| (path.clone(), error))
            }
            Made::Mounted { path } => rustix::mount::unmount(&**path, UnmountFlags::DETACH)
                .map_err(|error| (format!("unmounting {path}"), error.into())),
            Made::Disk { number, module_loaded, .. } => {
                let disk = Zram::known(*number, *module_loaded);
                disk.remove().map_err(|failed| (failed.what, failed.error))
            }
            Made::Zram { number, module_loaded, .. } => {
                let swap = ZramSwap::on(Zram::known(*number, *module_loaded));
                swap.remove().map_err(|failed| (failed.what, failed.error))
            }
        }
    }

    /// The state of the machine that this change made, in words.
    pub fn text(&self) -> String {
        match self {
            Made::Set { path, value, old } if path == THP_ENABLED => {
                format!("huge pages `{value}`, which were `{old}`")
            }
            Made::Set { path, value, old } => format!("`{value}` in {path}, which was `{old}`"),
            Made::Mounted { path } => format!("tracefs mounted at {path}"),
            Made::Disk { number, .. } => format!("the disk /dev/zram{number}"),
            Made::Zram { number, .. } => format!("swap space on /dev/zram{number}"),
        }
    }

    /// Whether keepers make such a change. A file that lists others was tampered with.
    fn is_ours(&self) -> bool {
        match self {
            Made::Set { path, .. } => {
                [THP_ENABLED, ZSWAP_ENABLED, PAGE_CLUSTER].contains(&path.as_str())
                    || numa::is_setting(path)
                    || Mthp::default().sizes().any(|(kib, _)| mthp_enabled(kib) == *path)
            }
            Made::Mounted { path } => tracefs::PLACES.contains(&path.as_str()),
            Made::Disk { .. } | Made::Zram { .. } => true,
        }
    }
}

const MOUNTS: &str = "/proc/self/mountinfo";

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// Whether a switch has the written value: one that was written as `N` or `0` may be read as
/// either.
fn same(now: &str, written: &str) -> bool {
    let plain = |text: &str| match text.trim() {
        "Y" | "y" => "1".to_owned(),
        "N" | "n" => "0".to_owned(),
        other => other.to_owned(),
    };
    plain(now) == plain(written)
}

/// Whether tracefs is mounted at `path`, in the text of `/proc/self/mountinfo`.
fn mounted(mounts: &str, path: &str) -> bool {
    mounts.lines().any(|line| {
        line.split(' ').nth(4) == Some(path)
            && line.split_once(" - ").is_some_and(|(_, kind)| kind.starts_with("tracefs "))
    })
}

/// The lock file while it is held.
pub struct Journal(File);

/// The outcome of taking the lock.
pub enum Taken {
    /// This process holds the lock. An earlier holder left these changes behind.
    Yes(Journal, Vec<Made>),
    /// Another process holds the lock.
    Busy {
        /// The holder, as the file names it.
        holder: String,
    },
}

impl Journal {
    /// Takes the lock, and returns what an earlier holder left in the file.
    pub fn take(path: &str) -> Result<Taken, Failed> {
        let flags = OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = rustix::fs::open(path, flags, Mode::from_raw_mode(0o644))
            .map_err(|error| (format!("opening {path}"), error.into()))?;
        let mut file = File::from(file);
        let text = contents(&mut file).map_err(|error| (path.to_owned(), error))?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                return Ok(Taken::Busy { holder: holder(&text) });
            }
            Err(error) => return Err((format!("locking {path}"), error.into())),
        }
        // This reads the file again, now that no other process writes to it.
        let text = contents(&mut file).map_err(|error| (path.to_owned(), error))?;
        let left = if is_own(&file) { left_in(&text) } else { Vec::new() };
        Ok(Taken::Yes(Journal(file), left))
    }

    /// Empties the file, and writes down the holder and the machine's boot.
    pub fn begin(&mut self, holder: &str) -> io::Result<()> {
        self.empty()?;
        writeln!(self.0, "{holder}\n{}", setting(BOOT_ID).unwrap_or_default())
    }

    /// Writes down a change that is about to be made.
    pub fn note(&mut self, made: &Made) -> io::Result<()> {
        let line = serde_json::to_string(made).map_err(io::Error::other)?;
        writeln!(self.0, "{line}")
    }

    /// Empties the file: nothing is left to undo.
    pub fn empty(&mut self) -> io::Result<()> {
        self.0.set_len(0)?;
        self.0.seek(SeekFrom::Start(0)).map(|_| ())
    }

    /// Writes down only what still has to be undone. Somebody may later set the same value again
    /// that was undone already, and that value is then theirs.
    pub fn keep(&mut self, holder: &str, left: &[&Made]) -> io::Result<()> {
        if left.is_empty() {
            return self.empty();
        }
        self.begin(holder)?;
        left.iter().try_for_each(|made| self.note(made))
    }

    /// Undoes what an earlier holder left. The file keeps what cannot be undone.
    pub fn undo(&mut self, left: &[Made]) -> Undone {
        let mut undone = Undone::default();
        let mut kept: Vec<&Made> = left.iter().collect();
        // This writes the file anew: changes that the machine no longer has leave it, even if all
        // else fails.
        let mut written = self.keep("left behind", &kept);
        for made in left.iter().rev() {
            match made.undo() {
                Ok(()) => {
                    undone.done.push(made.text());
                    kept.retain(|other| *other != made);
                    written = written.and(self.keep("left behind", &kept));
                }
                Err((what, error)) => {
                    undone.failed.push((format!("{}: {what}", made.text()), error));
                }
            }
        }
        if let Err(error) = written {
            undone.failed.push(("the lock file".to_owned(), error));
        }
        undone
    }
}

/// The outcome of undoing what was left behind.
#[derive(Debug, Default)]
pub struct Undone {
    /// The changes that were undone, in words.
    pub done: Vec<String>,
    /// What could not be undone, and why.
    pub failed: Vec<Failed>,
}

/// The state of a lock file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// No process holds it, and nothing was left behind.
    Clean,
    /// No process holds it. It lists changes that the machine no longer has: somebody else has
    /// undone them.
    Moot,
    /// A process holds it.
    Held {
        /// The holder, as the file names it.
        holder: String,
    },
    /// Its holder was killed and left changes behind.
    Left {
        /// The former holder, as the file names it.
        holder: String,
        /// The changes that the machine still has.
        made: Vec<Made>,
    },
}

/// Looks at a lock file without taking it.
pub fn look(path: &str) -> Standing {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let Ok(file) = rustix::fs::open(path, flags, Mode::empty()) else { return Standing::Clean };
    let mut file = File::from(file);
    let text = contents(&mut file).unwrap_or_default();
    let holder = holder(&text);
    if rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared).is_err() {
        return Standing::Held { holder };
    }
    if !is_own(&file) {
        return Standing::Clean;
    }
    match left_in(&text) {
        made if !made.is_empty() => Standing::Left { holder, made },
        _ if text.is_empty() => Standing::Clean,
        _ => Standing::Moot,
    }
}

fn contents(file: &mut File) -> io::Result<String> {
    file.seek(SeekFrom::Start(0))?;
    let mut bytes = Vec::new();
    file.take(1 << 16).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn holder(text: &str) -> String {
    text.lines().next().unwrap_or_default().trim().to_owned()
}

/// Whether the file is root's or this user's, and only its owner may have written to it.
fn is_own(file: &File) -> bool {
    rustix::fs::fstat(file).is_ok_and(|stat| {
        let owner = [0, rustix::process::geteuid().as_raw()].contains(&stat.st_uid);
        owner && stat.st_mode & 0o022 == 0
    })
}

/// The changes in the text of a lock file that are of this boot and that the machine still has.
fn left_in(text: &str) -> Vec<Made> {
    let mut lines = text.lines().skip(1);
    if lines.next().map(str::trim) != setting(BOOT_ID).as_deref().map(str::trim) {
        return Vec::new();
    }
    let made = lines.filter_map(|line| serde_json::from_str(line).ok());
    made.filter(|made: &Made| made.is_ours() && made.stands()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str) -> String {
        let path = std::env::temp_dir().join(format!("needless-{name}-{}", std::process::id()));
        path.to_str().unwrap().to_owned()
    }

    fn taken(path: &str) -> (Journal, Vec<Made>) {
        match Journal::take(path).unwrap() {
            Taken::Yes(journal, left) => (journal, left),
            Taken::Busy { holder } => panic!("held by {holder}"),
        }
    }

    #[test]
    fn a_killed_holder_leaves_its_list_and_an_orderly_one_nothing() {
        let path = file("journal");
        // This change sets the value that the machine has anyway, so the machine has it.
        let Some(value) = setting(THP_ENABLED) else { return };
        let made = Made::Set { path: THP_ENABLED.into(), value: value.clone(), old: value.clone() };
        let gone = Made::Zram { number: 987_654, size_bytes: 1, module_loaded: false };
        let (mut journal, left) = taken(&path);
        assert!(left.is_empty());
        journal.begin("process 7").unwrap();
        journal.note(&made).unwrap();
        journal.note(&gone).unwrap();
        assert_eq!(look(&path), Standing::Held { holder: "process 7".into() });
        assert!(
            matches!(Journal::take(&path), Ok(Taken::Busy { holder }) if holder == "process 7")
        );
        drop(journal);
        let standing = Standing::Left { holder: "process 7".into(), made: vec![made.clone()] };
        assert_eq!(look(&path), standing);

        let (mut journal, left) = taken(&path);
        assert_eq!(left, [made]);
        let undone = journal.undo(&left);
        assert!(undone.failed.is_empty() && undone.done.len() == 1, "{undone:?}");
        drop(journal);
        assert_eq!(setting(THP_ENABLED), Some(value.clone()));
        assert_eq!(look(&path), Standing::Clean);

        // A change that the machine no longer has is no reason to change what somebody sets later.
        let other = if value == "never" { "always" } else { "never" };
        let moot = Made::Set { path: THP_ENABLED.into(), value: other.into(), old: "x".into() };
        let (mut journal, _) = taken(&path);
        journal.begin("process 8").unwrap();
        journal.note(&moot).unwrap();
        drop(journal);
        assert_eq!(look(&path), Standing::Moot);
        let (mut journal, left) = taken(&path);
        assert!(left.is_empty() && journal.undo(&left).failed.is_empty());
        drop(journal);
        assert_eq!((look(&path), fs::read(&path).unwrap().len()), (Standing::Clean, 0));
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn inventions_and_other_boots_are_not_believed() {
        let boot = setting(BOOT_ID).unwrap();
        let invented = r#"{"set":{"path":"/etc/hostname","value":"x","old":"y"}}"#;
        let mounted = r#"{"mounted":{"path":"/proc"}}"#;
        assert!(left_in(&format!("a\n{boot}\n{invented}\n{mounted}\nnonsense\n")).is_empty());
        if let Some(value) = setting(THP_ENABLED) {
            let line = |path: &str| {
                let made = Made::Set { path: path.into(), value: value.clone(), old: "x".into() };
                serde_json::to_string(&made).unwrap()
            };
            assert_eq!(left_in(&format!("a\n{boot}\n{}\n", line(THP_ENABLED))).len(), 1);
            assert!(left_in(&format!("a\nother\n{}\n", line(THP_ENABLED))).is_empty());
        }
    }

    #[test]
    fn mounts_are_found_by_place_and_kind() {
        let text = "31 23 0:12 / /sys/kernel/tracing rw,relatime shared:9 - tracefs tracefs rw\n\
                    32 23 0:13 / /mnt rw - tmpfs tracefs rw\n";
        assert!(mounted(text, "/sys/kernel/tracing"));
        assert!(!mounted(text, "/mnt") && !mounted(text, "/sys"));
    }
}

//! What is there when watching begins: settings that decide what faults can be, and threads that
//! run already with what they have mapped. What cannot be seen may be so: then fewer classes are
//! certain, and the report says why.

use crate::fold::{Fold, Present, Surroundings, is_kernels};
use crate::maps::Maps;
use crate::missing::Missing;
use crate::record::{Mapping, Named};
use crate::rings::{Rings, Tasks};
use crate::tracepoints::Point;
use needless_model::foreign;
use needless_runner::environment::series;
use needless_runner::look::{Unseen, look};
use procfs::process::{FDTarget, MMPermissions, MMapPath, Process};
use procfs::{ProcError, ProcResult};
use std::path::{Path, PathBuf};

/// What the machine may do to memory.
pub fn context(rings: &Rings, missing: &mut Vec<Missing>) -> Surroundings {
    let mut or_maybe = |seen: Result<bool, Unseen>, lacks| {
        seen.unwrap_or_else(|unseen| {
            Missing::unseen(&unseen, lacks).tell(missing);
            true
        })
    };
    Surroundings {
        swap: or_maybe(swap_in_use(), "telling the zero page from pages of the swap cache"),
        numa_balancing: or_maybe(
            numa_balancing(),
            "telling samples of NUMA balancing from other faults",
        ),
        file_points: rings.has(Point::FileFault) && rings.has(Point::MapPages),
        dirties_twice: series() < (6, 1),
        flushes_hidden: false,
    }
}

fn swap_in_use() -> Result<bool, Unseen> {
    Ok(look("/proc/swaps")?.is_some_and(|text| text.lines().count() > 1))
}

fn numa_balancing() -> Result<bool, Unseen> {
    let on = look("/proc/sys/kernel/numa_balancing")?.is_some_and(|value| value.trim() != "0");
    let several = |nodes: String| nodes.contains([',', '-']);
    Ok(on && look("/sys/devices/system/node/online")?.is_some_and(several))
}

/// Tells the fold about threads that run already.
pub fn introduce(tasks: &Tasks, fold: &mut Fold, missing: &mut Vec<Missing>) {
    let tids = match tasks {
        Tasks::Starting(pid) => return fold.starting(*pid),
        Tasks::Running(tids) => Ok(tids.clone()),
        Tasks::All => all_threads(),
        // Their names are looked up when they come.
        Tasks::Nobody => return,
    };
    const LACKS: &str = "classes of faults on what was mapped before, and names of threads";
    let no = |what: &str, error: ProcError, lacks| Missing::new(what, &error, lacks, None);
    let tids = tids.unwrap_or_else(|error| {
        no("threads that run already", error, LACKS).tell(missing);
        Vec::new()
    });
    let hugetlbfs = hugetlbfs().unwrap_or_else(|error| {
        let lacks = "telling huge pages mapped before from other files";
        no("where hugetlbfs is mounted", error, lacks).tell(missing);
        Vec::new()
    });
    let (mut unseen, mut first) = (0_u64, None);
    for tid in tids {
        match introduce_thread(tid, &hugetlbfs, fold) {
            // It has ended.
            Ok(()) | Err(ProcError::NotFound(_)) => {}
            Err(error) => {
                unseen += 1;
                first.get_or_insert(error);
            }
        }
    }
    if let Some(error) = first {
        no(&format!("what {unseen} threads have mapped"), error, LACKS).tell(missing);
    }
}

fn all_threads() -> ProcResult<Vec<i32>> {
    let mut tids = Vec::new();
    // Processes end while they are listed.
    for process in procfs::process::all_processes()?.flatten() {
        tids.extend(process.tasks().into_iter().flatten().flatten().map(|thread| thread.tid));
    }
    Ok(tids)
}

/// A thread whose mappings cannot be seen is known nevertheless.
fn introduce_thread(tid: i32, hugetlbfs: &[PathBuf], fold: &mut Fold) -> ProcResult<()> {
    let process = Process::new(tid)?;
    let status = process.status()?;
    let (maps, userfaultfd) = (maps(&process, hugetlbfs), userfaultfd(&process));
    fold.introduce(&Present {
        pid: status.tgid,
        tid,
        name: &foreign::line(&status.name),
        maps: maps.as_ref().unwrap_or(&Maps::default()),
        userfaultfd: *userfaultfd.as_ref().unwrap_or(&true),
        // Nobody tells.
        forked: true,
        kernels: process.stat().is_ok_and(|stat| is_kernels(&stat)),
    });
    maps.and(userfaultfd).map(|_| ())
}

fn maps(process: &Process, hugetlbfs: &[PathBuf]) -> ProcResult<Maps> {
    let mut maps = Maps::default();
    for map in process.maps()? {
        let file = match &map.pathname {
            MMapPath::Path(path) => Some(path.to_string_lossy().into()),
            MMapPath::Vsys(_) => Some("/SYSV".into()),
            _ => None,
        };
        let named = match &map.pathname {
            MMapPath::Heap => Some(Named::Heap),
            MMapPath::Stack => Some(Named::Stack),
            _ => None,
        };
        maps.map(&Mapping {
            start: map.address.0,
            end: map.address.1,
            offset: map.offset,
            shared: map.perms.contains(MMPermissions::SHARED),
            hugetlb: matches!(&map.pathname, MMapPath::Path(path) if is_of_hugetlb(path, hugetlbfs)),
            executable: map.perms.contains(MMPermissions::EXECUTE),
            named,
            file,
        });
    }
    Ok(maps)
}

/// Whether a process has a descriptor of userfaultfd.
fn userfaultfd(process: &Process) -> ProcResult<bool> {
    Ok(process
        .fd()?
        .flatten()
        .any(|fd| matches!(fd.target, FDTarget::AnonInode(name) if name.contains("userfaultfd"))))
}

/// Where hugetlbfs is mounted.
fn hugetlbfs() -> ProcResult<Vec<PathBuf>> {
    let of_hugetlb = procfs::mounts()?.into_iter().filter(|mount| mount.fs_vfstype == "hugetlbfs");
    Ok(of_hugetlb.map(|mount| mount.fs_file.into()).collect())
}

/// Whether a file has pages of hugetlb: one of a mounted hugetlbfs, or memory without a name
/// (include/linux/hugetlb.h, 5.10 to 7.3: HUGETLB_ANON_FILE).
fn is_of_hugetlb(file: &Path, hugetlbfs: &[PathBuf]) -> bool {
    // The kernel adds " (deleted)", so the whole name is not this.
    file.to_string_lossy().starts_with("/anon_hugepage")
        || hugetlbfs.iter().any(|mount| file.starts_with(mount))
}

//! Direct reclaim: a round writes more than the process may have. Each page that is needed again
//! comes from swap and takes the place of another one (mm/memcontrol.c: try_charge_memcg,
//! mm/vmscan.c: try_to_free_mem_cgroup_pages), whose unmapping flushes. Batches of charges decide
//! when that happens. So the number of flushes in a run is taken from the kernel's count of pages
//! written out.

use crate::area::Area;
use crate::rounds::Rounds;
use crate::sys::PAGE;
use crate::table::{Counted, Need, Workload, cause, class, expect};
use procfs::ProcessCGroup;
use procfs::process::Process;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The workloads of this group.
pub const WORKLOADS: &[Workload] = &[Workload::new(
    "reclaim",
    "writes 384 pages in turn in a memory cgroup that may have 192",
    reclaim,
    expect(&[(class::SWAP_IN, 384)], &[]),
)
.counted(&[Counted::Local(cause::RECLAIM, "pswpout")])
.needs(&[Need::Swap, Need::MemoryCgroup])];

const PAGES: usize = 384;
const NAME: &str = "needless-workload-";

/// A memory cgroup that this process is in.
pub struct Group {
    path: PathBuf,
}

impl Group {
    /// Makes a group and enters it.
    fn enter(bytes: usize) -> io::Result<Group> {
        let (parent, limit) = Group::parent()?;
        for left in fs::read_dir(&parent)?.flatten() {
            // The group of a process that was killed. Groups in use refuse.
            if left.file_name().to_string_lossy().starts_with(NAME) {
                let _ = fs::remove_dir(left.path());
            }
        }
        let path = parent.join(format!("{NAME}{}", std::process::id()));
        fs::create_dir(&path)?;
        let group = Group { path };
        fs::write(group.path.join(limit), bytes.to_string())?;
        fs::write(group.path.join("cgroup.procs"), "0")?;
        Ok(group)
    }

    /// The memory cgroup that this process is in, and the name of the file that limits a group.
    pub fn parent() -> io::Result<(PathBuf, &'static str)> {
        let groups = Process::myself().and_then(|own| own.cgroups()).map_err(io::Error::other)?;
        let below = |mount: &str, group: &ProcessCGroup| {
            Path::new(mount).join(group.pathname.trim_start_matches('/'))
        };
        let with_memory =
            |group: &&ProcessCGroup| group.controllers.iter().any(|name| name == "memory");
        if let Some(group) = groups.0.iter().find(with_memory) {
            return Ok((below("/sys/fs/cgroup/memory", group), "memory.limit_in_bytes"));
        }
        // Version 2 has one hierarchy for all controllers.
        let group = groups.0.iter().find(|group| group.hierarchy == 0);
        let group = group.ok_or_else(|| io::Error::other("there are no cgroups"))?;
        let path = below("/sys/fs/cgroup", group);
        fs::write(path.join("cgroup.subtree_control"), "+memory")?;
        Ok((path, "memory.max"))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(parent) = self.path.parent() {
            let _ = fs::write(parent.join("cgroup.procs"), "0");
        }
        let _ = fs::remove_dir(&self.path);
    }
}

fn reclaim(rounds: &mut Rounds) -> io::Result<()> {
    let _group = Group::enter(PAGES / 2 * PAGE)?;
    let area = Area::anonymous(0, PAGES)?;
    rounds.each(|_| {
        area.write_all();
        Ok(())
    })
}

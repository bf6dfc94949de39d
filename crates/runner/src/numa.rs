//! NUMA: moving pages between nodes, memory policies, demotion, and sampling by NUMA balancing.
//!
//! Sampling is made to happen at one place of a scenario. NUMA balancing leaves out mappings whose
//! policy lacks MPOL_F_MOF (kernel/sched/fair.c:task_numa_work, mm/mempolicy.c:vma_policy_mof, 5.10 to 7.3).
//! The runner gives its own mappings and the scenario's areas MPOL_LOCAL, which lacks it. `numa-scan`
//! gives its range MPOL_DEFAULT, spins until `numa_pte_updates` of `/proc/vmstat` has moved, and
//! leaves the range so until the round ends, because a hint fault asks the policy, too
//! (mm/mempolicy.c:mpol_misplaced). Threads that only spin or sleep have MPOL_LOCAL and sample nothing.

use crate::sys::{self, bytes, pointer};
use needless_model::addr::{PageRange, Vpn};
use needless_model::call::CallExpr;
use needless_model::numa::{Balancing, Mempolicy, NumaNeeds, PageStatus};
use needless_model::program::{OpKind, Program};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// `MPOL_MF_MOVE`. Source: include/uapi/linux/mempolicy.h.
const MPOL_MF_MOVE: i32 = 1 << 1;

/// The cgroup of a scenario that asks for `memory.reclaim`.
pub const CGROUP: &str = "/sys/fs/cgroup/needless";

/// Where the rates of NUMA balancing are: since 5.13 in debugfs, before among sysctls
/// (kernel/sched/debug.c:sched_init_debug).
const RATES: [(&str, &str); 2] =
    [("/sys/kernel/debug/sched/numa_balancing/", ""), ("/proc/sys/kernel/", "numa_balancing_")];

/// The first pass of a process, and the time from one pass to the next.
const SCAN_RATES: [&str; 3] = ["scan_delay_ms", "scan_period_min_ms", "scan_period_max_ms"];

/// Milliseconds between two passes of NUMA balancing: the shortest that kernels accept
/// (kernel/sched/fair.c:task_scan_min: 1000 ms through 10 windows of 256 MB).
const PERIOD_MS: &str = "100";

/// How long `numa-scan` waits for a pass.
const LONGEST_SCAN: Duration = Duration::from_secs(20);

/// What `move_pages` is handed: addresses, nodes, and room for the answers.
struct Lists {
    pages: Vec<usize>,
    nodes: Vec<i32>,
    status: Vec<i32>,
}

/// Memory that is set aside before the rounds.
struct Prepared {
    lists: Mutex<Lists>,
    vmstat: Mutex<Vec<u8>>,
    nodes: u16,
    /// Whether the program has NUMA balancing sample pages.
    scans: bool,
    /// Where the scenario's areas lie.
    areas: Vec<PageRange>,
    /// `numa_pte_updates` when the last pass that was waited for was over.
    updates: AtomicU64,
    /// Ranges that NUMA balancing may sample until the round ends.
    open: Mutex<Vec<PageRange>>,
}

static PREPARED: OnceLock<Prepared> = OnceLock::new();

/// Whether a program has an operation like this.
fn asks(program: &Program, like: impl Fn(&CallExpr) -> bool) -> bool {
    program.ops().any(|op| matches!(&op.kind, OpKind::Call(call) if like(call)))
}

/// Whether it has NUMA balancing sample pages.
pub fn scans(program: &Program) -> bool {
    asks(program, |call| matches!(call, CallExpr::NumaScan { .. }))
}

/// Whether it reclaims memory by its cgroup.
pub fn reclaims(program: &Program) -> bool {
    asks(program, |call| matches!(call, CallExpr::ReclaimMemory { .. }))
}

/// Whether its own operations move pages between nodes.
pub fn migrates(program: &Program) -> bool {
    asks(program, |call| match call {
        CallExpr::MovePages { .. }
        | CallExpr::MigratePages { .. }
        | CallExpr::NumaScan { .. }
        | CallExpr::ReclaimMemory { .. } => true,
        CallExpr::Mbind { moves, .. } => *moves,
        _ => false,
    })
}

/// Sets memory aside for the calls of `program`, so that none of them touches new memory.
pub fn prepare(program: &Program) {
    let most = program.areas.iter().map(|area| area.range.pages()).max().unwrap_or(0) as usize;
    let most = if migrates(program) { most } else { 0 };
    let lists = Lists {
        pages: sys::roomy(most, 0),
        nodes: sys::roomy(most, 0),
        status: sys::roomy(most, 0),
    };
    let vmstat = if scans(program) { vec![0; 64 * 1024] } else { Vec::new() };
    let _ = PREPARED.set(Prepared {
        lists: Mutex::new(lists),
        vmstat: Mutex::new(vmstat),
        nodes: program.machine.nodes.unwrap_or(1),
        scans: scans(program),
        areas: program.areas.iter().map(|area| area.range).collect(),
        updates: AtomicU64::new(0),
        open: Mutex::new(Vec::with_capacity(program.areas.len().max(8))),
    });
}

fn prepared() -> io::Result<&'static Prepared> {
    PREPARED.get().ok_or_else(|| io::Error::other("nothing was prepared for NUMA"))
}

fn check(status: i64) -> io::Result<()> {
    if status < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// `move_pages` of all pages of the range in one call; `told` gets the answer for each page.
pub fn move_pages(range: PageRange, node: u16, told: impl Fn(Vpn, PageStatus)) -> io::Result<()> {
    let mut lists = prepared()?.lists.lock().unwrap_or_else(PoisonError::into_inner);
    let Lists { pages, nodes, status } = &mut *lists;
    pages.clear();
    pages.extend(range.iter().map(|page| pointer(page).addr()));
    nodes.clear();
    nodes.resize(pages.len(), i32::from(node));
    status.clear();
    status.resize(pages.len(), PageStatus::UNTOLD.0);
    // SAFETY: the three arrays are as long as the call is told; moving a page changes nothing that it holds.
    let moved = unsafe {
        let (pages, nodes, status) = (pages.as_ptr(), nodes.as_ptr(), status.as_mut_ptr());
        libc::syscall(libc::SYS_move_pages, 0, range.pages(), pages, nodes, status, MPOL_MF_MOVE)
    };
    // A positive number is how many pages were not moved: the answers say which.
    check(moved)?;
    range.iter().zip(status.iter()).for_each(|(page, status)| told(page, PageStatus(*status)));
    Ok(())
}

/// The node of each of these pages of a process; `None` for one that is not there.
pub fn nodes_of(pid: i32, pages: &[Vpn]) -> io::Result<Vec<Option<u16>>> {
    let addresses: Vec<usize> = pages.iter().map(|page| pointer(*page).addr()).collect();
    let mut status = vec![0_i32; pages.len()];
    let nodes = std::ptr::null::<i32>();
    // SAFETY: both arrays are as long as the call is told. Without nodes it only looks.
    let looked = unsafe {
        let (addresses, status) = (addresses.as_ptr(), status.as_mut_ptr());
        libc::syscall(libc::SYS_move_pages, pid, pages.len(), addresses, nodes, status, 0)
    };
    check(looked)?;
    Ok(status.into_iter().map(|status| u16::try_from(status).ok()).collect())
}

/// The mode and the nodes of a policy, as system calls take them.
fn mode(policy: Mempolicy, nodes: u16) -> (i32, u64) {
    match policy {
        Mempolicy::Default => (libc::MPOL_DEFAULT, 0),
        Mempolicy::Local => (libc::MPOL_LOCAL, 0),
        Mempolicy::Bind(node) => (libc::MPOL_BIND, 1 << node),
        Mempolicy::Preferred(node) => (libc::MPOL_PREFERRED, 1 << node),
        Mempolicy::Interleave => (libc::MPOL_INTERLEAVE, u64::MAX >> (64 - nodes.clamp(1, 64))),
    }
}

/// `mbind`
pub fn mbind(range: PageRange, policy: Mempolicy, moves: bool) -> io::Result<()> {
    let (mode, nodes) = mode(policy, prepared()?.nodes);
    let flags = if moves { MPOL_MF_MOVE } else { 0 };
    // The kernel takes one less than it is told (mm/mempolicy.c:get_nodes).
    let (size, bits) = (bytes(range), u64::BITS + 1);
    // SAFETY: the call reads one word of nodes; neither policies nor moves change what a page holds.
    check(unsafe {
        libc::syscall(
            libc::SYS_mbind,
            pointer(range.start),
            size,
            mode,
            &raw const nodes,
            bits,
            flags,
        )
    })
}

/// `migrate_pages` of the process itself.
pub fn migrate_pages(from: u16, to: u16) -> io::Result<()> {
    let (from, to) = (1_u64 << from, 1_u64 << to);
    // SAFETY: the call reads one word of nodes each.
    check(unsafe {
        let (from, to) = (&raw const from, &raw const to);
        libc::syscall(libc::SYS_migrate_pages, 0, u64::BITS + 1, from, to)
    })
}

/// `set_mempolicy`
pub fn set_mempolicy(policy: Mempolicy) -> io::Result<()> {
    let (mode, nodes) = mode(policy, prepared()?.nodes);
    // SAFETY: the call reads one word of nodes.
    check(unsafe { libc::syscall(libc::SYS_set_mempolicy, mode, &raw const nodes, u64::BITS + 1) })
}

/// Asks `memory.reclaim` of the process's cgroup for so many pages.
pub fn reclaim(pages: u64) -> io::Result<()> {
    let path = format!("{CGROUP}/memory.reclaim");
    let asked = (pages * needless_model::addr::PAGE_SIZE).to_string();
    fs::write(path, asked).map_err(|error| match error.raw_os_error() {
        Some(libc::EAGAIN) => io::Error::other(
            "EAGAIN: the kernel reclaimed fewer pages than that; it needs a slower node that it may demote to, or swap",
        ),
        _ => error,
    })
}

/// Joins the cgroup of scenarios that ask for `memory.reclaim`, before anything is charged.
pub fn join_cgroup() -> io::Result<()> {
    fs::write(format!("{CGROUP}/cgroup.procs"), "0")
}

/// Makes that cgroup, where the kernel has `memory.reclaim`.
pub fn make_cgroup() -> io::Result<()> {
    fs::write("/sys/fs/cgroup/cgroup.subtree_control", "+memory")?;
    match fs::create_dir(CGROUP) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// Whether reclaim can be asked for by cgroup: 5.19 and later (mm/memcontrol.c:memory_reclaim).
pub fn has_reclaim() -> bool {
    Path::new(CGROUP).join("memory.reclaim").exists()
}

/// Keeps all memory that the runner has up to now from reclaim, so that the scenario's alone is reclaimed.
pub fn lock_own_memory() -> io::Result<()> {
    // SAFETY: locked memory holds what it held.
    check(i64::from(unsafe { libc::mlockall(libc::MCL_CURRENT) }))
}

/// Called before each round: NUMA balancing samples none of the runner's own memory. A heap that has grown has a
/// new mapping, for one with a policy is not extended (mm/mmap.c:do_brk_flags).
pub fn begin_round() -> io::Result<()> {
    let Some(Prepared { scans: true, areas, .. }) = PREPARED.get() else { return Ok(()) };
    for line in fs::read_to_string("/proc/self/maps")?.lines() {
        let Some((start, end)) = line.split_once(' ').and_then(|(place, _)| place.split_once('-'))
        else {
            continue;
        };
        let page = |text| u64::from_str_radix(text, 16).ok().map(Vpn::containing);
        let (Some(start), Some(end)) = (page(start), page(end)) else { continue };
        let range = PageRange { start, end };
        if areas.iter().all(|area| !area.overlaps(range)) {
            // The kernel's own mappings refuse, and are not sampled either.
            let _ = mbind(range, Mempolicy::Local, false);
        }
    }
    Ok(())
}

/// Keeps NUMA balancing from sampling a new mapping of the scenario's, which only `numa-scan` has it do.
pub fn hide_new(range: PageRange) -> io::Result<()> {
    match PREPARED.get() {
        Some(Prepared { scans: true, .. }) => mbind(range, Mempolicy::Local, false),
        _ => Ok(()),
    }
}

/// Waits until NUMA balancing has sampled the range.
pub fn scan(range: PageRange) -> io::Result<()> {
    let Prepared { vmstat, open, updates, .. } = prepared()?;
    let mut text = vmstat.lock().unwrap_or_else(PoisonError::into_inner);
    let file = File::open("/proc/vmstat")?;
    let before = pte_updates(&file, &mut text)?;
    mbind(range, Mempolicy::Default, false)?;
    open.lock().unwrap_or_else(PoisonError::into_inner).push(range);
    let start = sys::now_ns();
    loop {
        // The scheduler's tick finds the thread running, and the pass is made when it returns to it.
        let pause = sys::now_ns();
        while sys::now_ns().wrapping_sub(pause) < 2_000_000 {
            std::hint::spin_loop();
        }
        let now = pte_updates(&file, &mut text)?;
        if now > before {
            updates.store(now, Relaxed);
            return Ok(());
        }
        if Duration::from_nanos(sys::now_ns().saturating_sub(start)) > LONGEST_SCAN {
            let seconds = LONGEST_SCAN.as_secs();
            return Err(io::Error::other(format!(
                "NUMA balancing sampled none of the pages in {seconds} s"
            )));
        }
    }
}

/// Called when a round is over: nothing is sampled until the next `numa-scan`. Whether NUMA balancing made
/// another pass behind that of the last one, which the scenario did not ask for.
pub fn end_round() -> bool {
    let Some(Prepared { open, vmstat, updates, .. }) = PREPARED.get() else { return false };
    let mut open = open.lock().unwrap_or_else(PoisonError::into_inner);
    if open.is_empty() {
        return false;
    }
    let mut text = vmstat.lock().unwrap_or_else(PoisonError::into_inner);
    let now = File::open("/proc/vmstat").and_then(|file| pte_updates(&file, &mut text));
    let again = now.is_ok_and(|now| now != updates.load(Relaxed));
    for range in open.drain(..) {
        // What the round has unmapped is not there.
        let _ = mbind(range, Mempolicy::Local, false);
    }
    again
}

/// `numa_pte_updates` of `/proc/vmstat`. Nothing is allocated.
fn pte_updates(file: &File, text: &mut [u8]) -> io::Result<u64> {
    let mut length = 0;
    while let Ok(more @ 1..) = file.read_at(&mut text[length..], length as u64) {
        length += more;
    }
    let mut lines = text[..length].split(|byte| *byte == b'\n');
    let value = lines.find_map(|line| line.strip_prefix(b"numa_pte_updates "));
    let value = value.and_then(|value| std::str::from_utf8(value).ok()?.parse().ok());
    value.ok_or_else(|| io::Error::other("/proc/vmstat has no line numa_pte_updates"))
}

/// A setting of the kernel's that a scenario asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Its file.
    pub path: String,
    /// What is written there.
    pub value: String,
    /// What it is, for people.
    pub what: &'static str,
}

/// Whether reclaim may demote pages. Source: mm/memory-tiers.c (6.1 to 7.3); 5.10 has none.
pub const DEMOTION: &str = "/sys/kernel/mm/numa/demotion_enabled";
/// What NUMA balancing does.
pub const BALANCING: &str = "/proc/sys/kernel/numa_balancing";
/// Whether reclaim goes by generations.
pub const MGLRU: &str = "/sys/kernel/mm/lru_gen/enabled";

/// The settings that the machine is to have for a scenario, those of `needs` that kernels may lack included.
pub fn settings(needs: &NumaNeeds) -> Vec<Setting> {
    let mut settings = Vec::new();
    let mut add = |path: String, value: &str, what| {
        settings.push(Setting { path, value: value.to_owned(), what });
    };
    if let Some(demotion) = needs.demotion {
        let value = if demotion { "true" } else { "false" };
        add(DEMOTION.to_owned(), value, "demotion of pages (6.1 and later have it)");
    }
    if let Some(on) = needs.mglru {
        // The kernel tells its parts as bits, 0x0007 if all are on.
        let value = if on { "0x0007" } else { "0x0000" };
        add(MGLRU.to_owned(), value, "reclaim by generations (MGLRU; 6.1 and later have it)");
    }
    if let Some(balancing) = needs.balancing {
        if balancing != Balancing::Off {
            for name in SCAN_RATES {
                if let Some(path) = rate(name) {
                    add(path, PERIOD_MS, "rates of NUMA balancing");
                }
            }
        }
        add(BALANCING.to_owned(), balancing.number(), "NUMA balancing");
    }
    settings
}

fn rate(name: &str) -> Option<String> {
    let paths = RATES.iter().map(|(folder, prefix)| format!("{folder}{prefix}{name}"));
    paths.into_iter().find(|path| Path::new(path).exists())
}

/// Whether a file is one of those that scenarios have set.
pub fn is_setting(path: &str) -> bool {
    let rates = RATES
        .iter()
        .flat_map(|(folder, prefix)| SCAN_RATES.map(move |name| format!("{folder}{prefix}{name}")));
    [DEMOTION, BALANCING, MGLRU].contains(&path) || rates.into_iter().any(|rate| rate == path)
}

/// What the kernel lacks of the settings that a scenario asks for, if it lacks any: what is to be off is off
/// where there is none of it.
pub fn lacks(needs: &NumaNeeds) -> Option<String> {
    let off = |value: &str| ["false", "0x0000", "0"].contains(&value);
    let mut absent = settings(needs)
        .into_iter()
        .filter(|setting| !off(&setting.value) && !Path::new(&setting.path).exists());
    let Setting { path, what, .. } = absent.next()?;
    Some(format!("this kernel has no {what}: {path} is not there"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_as_the_kernel_takes_them() {
        assert_eq!(mode(Mempolicy::Bind(1), 2), (libc::MPOL_BIND, 2));
        assert_eq!(mode(Mempolicy::Interleave, 3), (libc::MPOL_INTERLEAVE, 7));
        assert_eq!(mode(Mempolicy::Interleave, 64), (libc::MPOL_INTERLEAVE, u64::MAX));
        assert_eq!(mode(Mempolicy::Default, 1), (libc::MPOL_DEFAULT, 0));
    }

    #[test]
    fn nothing_is_set_unless_it_is_asked_for() {
        assert_eq!(settings(&NumaNeeds::default()), []);
        assert_eq!(lacks(&NumaNeeds::default()), None);
        let off = NumaNeeds { demotion: Some(false), mglru: Some(false), ..NumaNeeds::default() };
        assert_eq!(lacks(&off), None);
        assert_eq!(settings(&off).len(), 2);
    }
}

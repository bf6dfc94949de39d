//! NUMA: moves pages between nodes, sets memory policies, asks for demotion, and makes NUMA
//! balancing sample pages.
//!
//! NUMA balancing samples at one place of a scenario only. It leaves out mappings whose policy
//! lacks MPOL_F_MOF (kernel/sched/fair.c:task_numa_work, mm/mempolicy.c:vma_policy_mof, 5.10 to
//! 7.3). The runner gives MPOL_LOCAL, which lacks it, to its own mappings and to the scenario's
//! areas. `numa-scan` gives MPOL_DEFAULT to its range, and spins until `numa_pte_updates` of
//! `/proc/vmstat` has moved. The range keeps that policy until the round ends, because a hint fault
//! looks at the policy, too (mm/mempolicy.c:mpol_misplaced). Threads that only spin or sleep have
//! MPOL_LOCAL and sample nothing.

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

/// The cgroup of scenarios that ask for `memory.reclaim`.
pub const CGROUP: &str = "/sys/fs/cgroup/needless";

/// The folders of NUMA balancing's rates: debugfs since 5.13, sysctls before
/// (kernel/sched/debug.c:sched_init_debug).
const RATES: [(&str, &str); 2] =
    [("/sys/kernel/debug/sched/numa_balancing/", ""), ("/proc/sys/kernel/", "numa_balancing_")];

/// The delay of a process's first pass, and the shortest and longest time between two passes.
const SCAN_RATES: [&str; 3] = ["scan_delay_ms", "scan_period_min_ms", "scan_period_max_ms"];

/// Milliseconds between two passes of NUMA balancing: the shortest time that kernels accept
/// (kernel/sched/fair.c:task_scan_min: 1000 ms through 10 windows of 256 MB).
const PERIOD_MS: &str = "100";

/// The longest time that `numa-scan` waits for a pass.
const LONGEST_SCAN: Duration = Duration::from_secs(20);

/// The arguments of `move_pages`: addresses, nodes, and room for the answers.
struct Lists {
    pages: Vec<usize>,
    nodes: Vec<i32>,
    status: Vec<i32>,
}

/// Memory and facts that are prepared before the rounds.
struct Prepared {
    lists: Mutex<Lists>,
    vmstat: Mutex<Vec<u8>>,
    nodes: u16,
    /// Whether the program makes NUMA balancing sample pages.
    scans: bool,
    /// The scenario's areas.
    areas: Vec<PageRange>,
    /// The value of `numa_pte_updates` after the last pass that was waited for.
    updates: AtomicU64,
    /// Ranges that NUMA balancing may sample until the round ends.
    open: Mutex<Vec<PageRange>>,
}

static PREPARED: OnceLock<Prepared> = OnceLock::new();

/// Whether a program has a call that `like` accepts.
fn asks(program: &Program, like: impl Fn(&CallExpr) -> bool) -> bool {
    program.ops().any(|op| matches!(&op.kind, OpKind::Call(call) if like(call)))
}

/// Whether a program makes NUMA balancing sample pages.
pub fn scans(program: &Program) -> bool {
    asks(program, |call| matches!(call, CallExpr::NumaScan { .. }))
}

/// Whether a program reclaims memory through its cgroup.
pub fn reclaims(program: &Program) -> bool {
    asks(program, |call| matches!(call, CallExpr::ReclaimMemory { .. }))
}

/// Whether a program's own operations may move pages between nodes.
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

/// Moves all pages of the range in one call of `move_pages`; `told` gets the answer for each page.
pub fn move_pages(range: PageRange, node: u16, told: impl Fn(Vpn, PageStatus)) -> io::Result<()> {
    let mut lists = prepared()?.lists.lock().unwrap_or_else(PoisonError::into_inner);
    let Lists { pages, nodes, status } = &mut *lists;
    pages.clear();
    pages.extend(range.iter().map(|page| pointer(page).addr()));
    nodes.clear();
    nodes.resize(pages.len(), i32::from(node));
    status.clear();
    status.resize(pages.len(), PageStatus::UNTOLD.0);
    // SAFETY: the three arrays have the length that the call gets. Moving a page does not change
    // its contents.
    let moved = unsafe {
        let (pages, nodes, status) = (pages.as_ptr(), nodes.as_ptr(), status.as_mut_ptr());
        libc::syscall(libc::SYS_move_pages, 0, range.pages(), pages, nodes, status, MPOL_MF_MOVE)
    };
    // A positive number counts the pages that were not moved. The answers say which these are.
    check(moved)?;
    range.iter().zip(status.iter()).for_each(|(page, status)| told(page, PageStatus(*status)));
    Ok(())
}

/// The node of each of these pages of a process; `None` for a page that is not present.
pub fn nodes_of(pid: i32, pages: &[Vpn]) -> io::Result<Vec<Option<u16>>> {
    let addresses: Vec<usize> = pages.iter().map(|page| pointer(*page).addr()).collect();
    let mut status = vec![0_i32; pages.len()];
    let nodes = std::ptr::null::<i32>();
    // SAFETY: both arrays have the length that the call gets. Without nodes the call moves nothing.
    let looked = unsafe {
        let (addresses, status) = (addresses.as_ptr(), status.as_mut_ptr());
        libc::syscall(libc::SYS_move_pages, pid, pages.len(), addresses, nodes, status, 0)
    };
    check(looked)?;
    Ok(status.into_iter().map(|status| u16::try_from(status).ok()).collect())
}

/// The mode and the nodes of a policy, as arguments of system calls.
fn mode(policy: Mempolicy, nodes: u16) -> (i32, u64) {
    match policy {
        Mempolicy::Default => (libc::MPOL_DEFAULT, 0),
        Mempolicy::Local => (libc::MPOL_LOCAL, 0),
        Mempolicy::Bind(node) => (libc::MPOL_BIND, 1 << node),
        Mempolicy::Preferred(node) => (libc::MPOL_PREFERRED, 1 << node),
        Mempolicy::Interleave => (libc::MPOL_INTERLEAVE, u64::MAX >> (64 - nodes.clamp(1, 64))),
    }
}

/// Calls `mbind`.
pub fn mbind(range: PageRange, policy: Mempolicy, moves: bool) -> io::Result<()> {
    let (mode, nodes) = mode(policy, prepared()?.nodes);
    let flags = if moves { MPOL_MF_MOVE } else { 0 };
    // The kernel uses one bit less than the given number (mm/mempolicy.c:get_nodes).
    let (size, bits) = (bytes(range), u64::BITS + 1);
    // SAFETY: the call reads one word of nodes. Neither a policy nor a move changes the contents of
    // a page.
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

/// Calls `migrate_pages` for this process.
pub fn migrate_pages(from: u16, to: u16) -> io::Result<()> {
    let (from, to) = (1_u64 << from, 1_u64 << to);
    // SAFETY: the call reads one word for each set of nodes.
    check(unsafe {
        let (from, to) = (&raw const from, &raw const to);
        libc::syscall(libc::SYS_migrate_pages, 0, u64::BITS + 1, from, to)
    })
}

/// Calls `set_mempolicy`.
pub fn set_mempolicy(policy: Mempolicy) -> io::Result<()> {
    let (mode, nodes) = mode(policy, prepared()?.nodes);
    // SAFETY: the call reads one word of nodes.
    check(unsafe { libc::syscall(libc::SYS_set_mempolicy, mode, &raw const nodes, u64::BITS + 1) })
}

/// Asks `memory.reclaim` of the process's cgroup to reclaim this number of pages.
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

/// Joins the cgroup of scenarios that ask for `memory.reclaim`, before any memory is charged.
pub fn join_cgroup() -> io::Result<()> {
    fs::write(format!("{CGROUP}/cgroup.procs"), "0")
}

/// Makes the cgroup of scenarios that ask for `memory.reclaim`.
pub fn make_cgroup() -> io::Result<()> {
    fs::write("/sys/fs/cgroup/cgroup.subtree_control", "+memory")?;
    match fs::create_dir(CGROUP) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// Whether a cgroup can be asked to reclaim: 5.19 and later (mm/memcontrol.c:memory_reclaim).
pub fn has_reclaim() -> bool {
    Path::new(CGROUP).join("memory.reclaim").exists()
}

/// Locks all memory that the runner has up to now, so that only the scenario's memory is reclaimed.
pub fn lock_own_memory() -> io::Result<()> {
    // SAFETY: locking does not change the contents of memory.
    check(i64::from(unsafe { libc::mlockall(libc::MCL_CURRENT) }))
}

/// Called before each round. Keeps NUMA balancing from sampling the runner's own memory. A heap
/// that has grown has a new mapping, because a mapping with a policy is not extended
/// (mm/mmap.c:do_brk_flags).
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
            // The kernel's own mappings refuse this. NUMA balancing does not sample them either.
            let _ = mbind(range, Mempolicy::Local, false);
        }
    }
    Ok(())
}

/// Keeps NUMA balancing from sampling a new mapping of the scenario. Only `numa-scan` lets it do
/// so.
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
        // The scheduler's tick finds the thread running. The thread makes the pass when it returns
        // to user mode.
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

/// Called after each round. Stops all sampling until the next `numa-scan`. Returns whether NUMA
/// balancing made a pass after the last one that was waited for: the scenario did not ask for that.
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
        // This fails for a range that the round has unmapped.
        let _ = mbind(range, Mempolicy::Local, false);
    }
    again
}

/// Reads `numa_pte_updates` from `/proc/vmstat`. Allocates nothing.
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

/// A kernel setting that a scenario asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The settings file.
    pub path: String,
    /// The value to write.
    pub value: String,
    /// The setting's name in messages.
    pub what: &'static str,
}

/// Whether reclaim may demote pages. Source: mm/memory-tiers.c (6.1 to 7.3); 5.10 has none.
pub const DEMOTION: &str = "/sys/kernel/mm/numa/demotion_enabled";
/// The mode of NUMA balancing.
pub const BALANCING: &str = "/proc/sys/kernel/numa_balancing";
/// Whether reclaim uses generations (MGLRU).
pub const MGLRU: &str = "/sys/kernel/mm/lru_gen/enabled";

/// The settings that a scenario asks for, also those that this kernel may lack.
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
        // The kernel prints the parts of MGLRU as bits, 0x0007 if all are on.
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

/// Whether a file is one of the settings that scenarios ask for.
pub fn is_setting(path: &str) -> bool {
    let rates = RATES
        .iter()
        .flat_map(|(folder, prefix)| SCAN_RATES.map(move |name| format!("{folder}{prefix}{name}")));
    [DEMOTION, BALANCING, MGLRU].contains(&path) || rates.into_iter().any(|rate| rate == path)
}

/// The setting that a scenario asks for and the kernel lacks, if there is one. A feature that is to
/// be off may be missing.
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

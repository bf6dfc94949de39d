//! Pages that move between NUMA nodes, and accesses that NUMA balancing samples.

use crate::area::Area;
use crate::rounds::Rounds;
use crate::sys;
use crate::sys::{PAGE, number};
use crate::table::{Counted, Expectation, Need, Waits, Workload, cause, class, expect};
use libc::{MPOL_BIND, MPOL_DEFAULT, MPOL_LOCAL, MPOL_PREFERRED};
use needless_watch::stacks::For;
use std::fs;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The setting of NUMA balancing. It is 1 where accesses are sampled.
pub const BALANCING: &str = "/proc/sys/kernel/numa_balancing";

/// The workloads of this group.
pub const WORKLOADS: &[Workload] = &[
    Workload::new(
        "move_pages",
        "moves 4 pages to the other node and back (move_pages)",
        |rounds| migrate(rounds, move_pages),
        expect(&[], &[(cause::MOVE_PAGES, 0, 8)]),
    )
    .needs(&[Need::SecondNode]),
    Workload::new(
        "mbind",
        "the same by mbind(MPOL_BIND, MPOL_MF_MOVE)",
        |rounds| migrate(rounds, bind),
        expect(&[], &[(cause::MBIND, 0, 8)]),
    )
    .needs(&[Need::SecondNode]),
    Workload::new(
        "migrated",
        "the same as move_pages while a second thread writes to the pages on CPU 1",
        migrated,
        Expectation { waits: Some(Waits::AtTimes(&[For::Migration])), ..expect(&[], &[]) },
    )
    .needs(&[Need::SecondNode, Need::SecondCpu]),
    Workload::new(
        "numa_hint",
        "writes 1 page for half a second, in which NUMA balancing may sample it",
        numa_hint,
        expect(&[], &[]),
    )
    .needs(&[Need::SecondNode, Need::NumaBalancing])
    .second()
    .counted(&[
        Counted::Faults(class::NUMA_HINT, "numa_hint_faults"),
        Counted::Sent(cause::ELSEWHERE, "numa_hint_faults"),
    ]),
];

const PAGES: usize = 4;
const ROUND: Duration = Duration::from_millis(500);
/// The number of accesses between two looks at the clock.
const ACCESSES: u32 = 1000;
/// The flag `MPOL_MF_MOVE`. Source: include/uapi/linux/mempolicy.h.
const MPOL_MF_MOVE: i32 = 1 << 1;

fn move_pages(area: Area, node: i32) -> io::Result<()> {
    let pages: [usize; PAGES] = std::array::from_fn(|page| area.address() + page * PAGE);
    let nodes = [node; PAGES];
    let mut status = [0_i32; PAGES];
    // SAFETY: the arrays have the length that the call gets.
    let moved = unsafe {
        let (pages, nodes, status) = (pages.as_ptr(), nodes.as_ptr(), status.as_mut_ptr());
        libc::syscall(libc::SYS_move_pages, 0, PAGES, pages, nodes, status, MPOL_MF_MOVE)
    };
    number(moved)?;
    if status == nodes { Ok(()) } else { Err(io::Error::other(format!("not moved: {status:?}"))) }
}

pub fn bind(area: Area, node: i32) -> io::Result<()> {
    policy(area.address(), area.bytes(), MPOL_BIND, 1 << node, MPOL_MF_MOVE)
}

fn policy(from: usize, bytes: usize, mode: i32, nodes: u64, flags: i32) -> io::Result<()> {
    // SAFETY: the call reads one word of nodes; policies change nothing that a program can see.
    let bound = unsafe {
        libc::syscall(libc::SYS_mbind, from, bytes, mode, &raw const nodes, u64::BITS, flags)
    };
    number(bound).map(drop)
}

/// Sets the policy of this thread and of the processes that it makes.
fn own_policy(mode: i32) -> io::Result<()> {
    let none = std::ptr::null::<u64>();
    // SAFETY: the call reads no nodes.
    number(unsafe { libc::syscall(libc::SYS_set_mempolicy, mode, none, 0) }).map(drop)
}

/// Keeps NUMA balancing from sampling this process and the processes that it makes: a task with a
/// policy of its own is not sampled.
pub fn forbid_sampling() {
    // A kernel without NUMA samples nothing.
    let _ = own_policy(MPOL_LOCAL);
}

/// Allows NUMA balancing to sample this process again.
pub fn allow_sampling() {
    let _ = own_policy(MPOL_DEFAULT);
}

/// NUMA balancing while it is switched on. The old setting is restored at the end.
pub struct Balancing(String);

impl Balancing {
    /// Switches it on. Returns `None` where the kernel has none, or this user may not.
    pub fn on() -> Option<Balancing> {
        let before = fs::read_to_string(BALANCING).ok()?;
        fs::write(BALANCING, "1").ok()?;
        Some(Balancing(before))
    }
}

impl Drop for Balancing {
    fn drop(&mut self) {
        // Writing has worked before.
        let _ = fs::write(BALANCING, &self.0);
    }
}

/// mm/migrate.c: migrate_pages unmaps each page with a flush of its own, because no other CPU has
/// to be flushed (mm/rmap.c: try_to_migrate_one, should_defer_flush).
fn migrate(rounds: &mut Rounds, to_node: fn(Area, i32) -> io::Result<()>) -> io::Result<()> {
    let area = Area::anonymous(0, PAGES)?;
    area.write_all();
    rounds.each(|_| {
        to_node(area, 1)?;
        to_node(area, 0)
    })
}

/// mm/memory.c: do_swap_page: a thread that finds a page under migration waits for it
/// (mm/migrate.c: migration_entry_wait).
fn migrated(rounds: &mut Rounds) -> io::Result<()> {
    static OVER: AtomicBool = AtomicBool::new(false);
    let area = Area::anonymous(0, PAGES)?;
    area.write_all();
    let writer = std::thread::spawn(move || {
        sys::pin(1)?;
        while !OVER.load(Relaxed) {
            area.write_all();
        }
        Ok(())
    });
    let done = rounds.each(|_| {
        move_pages(area, 1)?;
        move_pages(area, 0)
    });
    OVER.store(true, Relaxed);
    let written =
        writer.join().unwrap_or_else(|_| Err(io::Error::other("the second thread failed")));
    done.and(written)
}

/// kernel/sched/fair.c: task_numa_work makes pages of one mapping inaccessible once a second. All
/// other mappings have a policy of their own and are left out (vma_policy_mof). With a second
/// thread, pages of the own node are sampled too (mm/mprotect.c: change_pte_range). This flushes,
/// outside every system call. The next access faults and is counted (mm/memory.c: do_numa_page).
/// 6.1 and older leave out pages with any other reference. The batch of new pages has one until
/// munmap empties it. Either thread may do the sampling, and the second one runs between rounds as
/// well. So the page has a policy between rounds, and a page sampled in a round is accessed in that
/// round.
fn numa_hint(rounds: &mut Rounds) -> io::Result<()> {
    let (area, other) = (Area::anonymous(0, 1)?, Area::anonymous(1, 1)?);
    area.write(0);
    other.unmap()?;
    for line in fs::read_to_string("/proc/self/maps")?.lines() {
        let Some((from, to)) = crate::child::addresses(line) else { continue };
        // The kernel's own mappings refuse.
        let _ = policy(from, to - from, MPOL_PREFERRED, 1, 0);
    }
    rounds.each(|meeting| {
        policy(area.address(), area.bytes(), MPOL_DEFAULT, 0, 0)?;
        let start = Instant::now();
        while start.elapsed() < ROUND {
            for _ in 0..ACCESSES {
                meeting.meet();
                area.write(0);
            }
        }
        policy(area.address(), area.bytes(), MPOL_PREFERRED, 1, 0)?;
        area.write(0);
        Ok(())
    })
}

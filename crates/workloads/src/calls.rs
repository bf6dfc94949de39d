//! Calls that make other CPUs do something other than flush an address space.

use crate::area::Area;
use crate::numa;
use crate::rounds::Rounds;
use crate::sys::number;
use crate::table::{Asks, Expectation, Need, Workload, cause, class, expect};
use needless_runner::tracefs::Tracepoint;
use needless_watch::functions::Asked;
use needless_watch::tracefs::Tracefs;
use perf_event::Builder;
use perf_event::events::Tracepoint as TracepointEvent;
use std::fs;
use std::io;

/// The workloads of this group.
pub const WORKLOADS: &[Workload] = &[
    Workload::new(
        "collapse",
        "writes 1 page of a fresh 2 MiB region, then MADV_COLLAPSE and MADV_DONTNEED, with a second thread on CPU 1",
        collapse,
        Expectation {
            asks: &[Asks::every_other(Asked::TableSync, 1)],
            ..expect(
                &[(class::FIRST_TOUCH, 1)],
                &[(cause::COLLAPSE, 1, 0), (cause::DONTNEED, 1, 0)],
            )
        },
    )
    .needs(&[Need::Thp, Need::Collapse])
    .second(),
    Workload::new(
        "collapse_idle",
        "the same by one thread, with the other CPUs idle and looking for themselves",
        collapse,
        Expectation {
            asks: &[Asks::every_other(Asked::TableSync, 1)],
            ..expect(
                &[(class::FIRST_TOUCH, 1)],
                &[(cause::COLLAPSE, 0, 1), (cause::DONTNEED, 0, 1)],
            )
        },
    )
    .needs(&[Need::Thp, Need::Collapse, Need::SecondCpu, Need::PollingIdle]),
    Workload::new(
        "membarrier",
        "a private expedited membarrier with a second thread on CPU 1",
        membarrier,
        Expectation { asks: &[Asks::so_often(Asked::Membarrier, 1)], ..expect(&[], &[]) },
    )
    .second(),
    Workload::new(
        "mbind_drain",
        "writes 1 page on CPU 1 by a second thread, then mbind(MPOL_MF_MOVE) of another page, which drains that CPU's batch",
        mbind_drain,
        Expectation {
            asks: &[Asks::worker_of(1, Asked::LruDrain, 1)],
            ..expect(&[(class::FIRST_TOUCH, 1)], &[(cause::DONTNEED, 1, 0)])
        },
    )
    // It was not tried on other architectures.
    .needs(&[Need::X86])
    .second(),
    Workload::new(
        "text_patch",
        "opens a tracepoint that nobody has open, and closes it, with a second thread on CPU 1",
        text_patch,
        Expectation { asks: &[Asks::every_other(Asked::TextPatch, 18)], ..expect(&[], &[]) },
    )
    .needs(&[Need::X86])
    .second(),
    Workload::new(
        "kernel_flush",
        "reserves a page of hugetlb whose page structures are given back, and returns it, with a second thread on CPU 1",
        kernel_flush,
        Expectation { asks: &[Asks::every_other(Asked::KernelFlush, 3)], ..expect(&[], &[]) },
    )
    .needs(&[Need::X86, Need::VmemmapOptimize])
    .second(),
];

/// mm/khugepaged.c: collapse_huge_page: pmdp_collapse_flush, and tlb_remove_table_sync_one, which
/// interrupts every other CPU. (How many CPUs' LRU batches madvise_collapse drains depends on what
/// others left in them.)
fn collapse(rounds: &mut Rounds) -> io::Result<()> {
    let area = Area::table(0)?;
    rounds.each(|meeting| {
        area.advise(libc::MADV_NOHUGEPAGE)?;
        area.write(0);
        area.advise(libc::MADV_HUGEPAGE)?;
        meeting.meet();
        area.advise(MADV_COLLAPSE)?;
        area.drop_pages(meeting)
    })
}

/// Source: include/uapi/asm-generic/mman-common.h (6.1).
pub const MADV_COLLAPSE: i32 = 25;

/// Whether the kernel has `MADV_COLLAPSE`.
pub fn collapses() -> bool {
    // SAFETY: about no bytes, the advice changes nothing; the kernel only says whether it knows it.
    unsafe { libc::madvise(std::ptr::null_mut(), 0, MADV_COLLAPSE) == 0 }
}

/// Source: include/uapi/linux/membarrier.h.
const PRIVATE_EXPEDITED: libc::c_long = 1 << 3;
const REGISTER_PRIVATE_EXPEDITED: libc::c_long = 1 << 4;

/// kernel/sched/membarrier.c: membarrier_private_expedited: ipi_mb on each CPU that runs the
/// process.
fn membarrier(rounds: &mut Rounds) -> io::Result<()> {
    let command = |command: libc::c_long| {
        // SAFETY: the call takes numbers only.
        number(unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) }).map(drop)
    };
    command(REGISTER_PRIVATE_EXPEDITED)?;
    rounds.each(|meeting| {
        meeting.meet();
        command(PRIVATE_EXPEDITED)
    })
}

/// mm/mempolicy.c: do_mbind: lru_cache_disable waits for a grace period. Then it has every CPU
/// drained whose batches hold anything (mm/swap.c: __lru_add_drain_all, cpu_needs_drain). The
/// second thread, which holds CPU 1, has left a page there. For other CPUs the number is not known:
/// buffers of a disk count as well, and a CPU that touches a new page meanwhile empties its batch
/// itself (__folio_batch_add_and_move, lru_cache_disabled).
fn mbind_drain(rounds: &mut Rounds) -> io::Result<()> {
    let (area, other) = (Area::anonymous(0, 1)?, Area::anonymous(1, 1)?);
    other.write(0);
    rounds.each(|meeting| {
        meeting.meet_to_write(area.address());
        meeting.meet();
        numa::bind(other, 0)?;
        area.drop_pages(meeting)
    })
}

/// kernel/tracepoint.c: tracepoint_add_func, tracepoint_remove_func: they patch the static call's
/// trampoline, the one place that calls it (kernel/static_call_inline.c: __static_call_update), and
/// the one place of the static key. Each is patched there and back, in three steps that interrupt
/// every other CPU (arch/x86/kernel/alternative.c: text_poke_bp_batch): 18 times.
fn text_patch(rounds: &mut Rounds) -> io::Result<()> {
    let tracefs = Tracefs::find().map_err(io::Error::other)?;
    let point = Tracepoint::find(tracefs.path(), "oom", "mark_victim").map_err(io::Error::other)?;
    rounds
        .each(|_| Builder::new(TracepointEvent::with_id(point.id)).observe_self().build().map(drop))
}

const HUGE_PAGES: &str = "/proc/sys/vm/nr_hugepages";

/// The setting that makes pages of hugetlb give their page structures back.
pub const OPTIMIZE: &str = "/proc/sys/vm/hugetlb_optimize_vmemmap";

/// A setting of the kernel, which is restored at the end.
struct Setting {
    path: &'static str,
    before: String,
}

impl Setting {
    fn set(path: &'static str, value: &str) -> io::Result<Setting> {
        let before = fs::read_to_string(path)?;
        fs::write(path, value)?;
        Ok(Setting { path, before })
    }
}

impl Drop for Setting {
    fn drop(&mut self) {
        // An error cannot be reported here.
        let _ = fs::write(self.path, &self.before);
    }
}

/// mm/hugetlb_vmemmap.c: hugetlb_vmemmap_optimize_folios: flush_tlb_all once when the huge mappings
/// of the page structures are split, and again when they are remapped;
/// hugetlb_vmemmap_restore_folios: once more (6.12).
fn kernel_flush(rounds: &mut Rounds) -> io::Result<()> {
    let _optimize = Setting::set(OPTIMIZE, "1")?;
    let pages: u64 = fs::read_to_string(HUGE_PAGES)?.trim().parse().map_err(io::Error::other)?;
    let (more, as_before) = ((pages + 1).to_string(), pages.to_string());
    rounds.each(|_| {
        fs::write(HUGE_PAGES, &more)?;
        fs::write(HUGE_PAGES, &as_before)
    })
}

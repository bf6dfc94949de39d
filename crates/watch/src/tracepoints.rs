//! The tracepoints that are watched: what each is for, which of its events are wanted, and what a
//! report lacks where a kernel does not have it.

use crate::syscalls;
use needless_model::event::FlushReason;
use needless_runner::tracefs::{Field, TracefsError, Tracepoint};
use std::path::Path;

/// Whose events are recorded.
///
/// Events of watched threads are inherited: at each fork the kernel makes one for every CPU, and walks its
/// list of all tracepoints for each (kernel/trace/trace_event_perf.c: perf_trace_init, 5.10 to 7.3),
/// and at each switch it takes those of the CPU out and in. So what is rare is recorded of every task.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Whose {
    /// Those of the watched threads.
    Watched,
    /// Those of every task: whoever sends interrupts may be a stranger.
    Everybody,
}

/// Which ring an event goes to. What may come in bursts must not push out the rest.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Ring {
    /// Everything that a verdict needs in order.
    Main,
    /// Pages freed: a process that exits frees all it had at once.
    Frees,
    /// Sampled stacks, which are large and may be missed.
    Sites,
}

/// What a tracepoint is decoded to.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Point {
    /// An exception in user mode.
    FaultUser,
    /// An exception in the kernel, on a user's page.
    FaultKernel,
    /// A flush is issued.
    Flush,
    /// A CPU answers one.
    Receive,
    /// A switch of address spaces.
    Switch,
    /// A page that can hold a program's data was allocated.
    Alloc,
    /// A page was freed.
    Free,
    /// A file's pages around a fault were mapped.
    MapPages,
    /// A file's page was looked for one by one.
    FileFault,
    /// A system call that may flush begins.
    Enter,
    /// It ends.
    Exit,
    /// An ioctl of userfaultfd, or another that changes page tables.
    Ioctl,
    /// Direct reclaim begins.
    ReclaimBegin,
    /// It ends.
    ReclaimEnd,
    /// A function called by an interrupt begins.
    CallBegin,
    /// It ends.
    CallEnd,
}

/// One row of the table.
pub struct Row {
    /// What it is decoded to.
    pub point: Point,
    /// The tracepoint's group.
    pub system: &'static str,
    /// Its name.
    pub name: &'static str,
    /// Whose events.
    pub whose: Whose,
    /// Where to.
    pub ring: Ring,
    /// Which events, in the language of tracing filters.
    pub filter: fn() -> Option<String>,
    /// The fields that are read.
    pub fields: &'static [&'static str],
    /// What a report lacks without it.
    pub lacks: &'static str,
}

fn all() -> Option<String> {
    None
}

/// `__GFP_MOVABLE` (include/linux/gfp_types.h, bit 3 from 5.10 to 7.3): pages of programs and of
/// files, but no page tables.
fn movable() -> Option<String> {
    Some("gfp_flags & 0x8".to_owned())
}

fn either(one: FlushReason, other: FlushReason) -> String {
    format!("reason == {} || reason == {}", one as u8, other as u8)
}

/// Those of whoever flushes; their numbers follow each other.
fn issued() -> Option<String> {
    let (first, last) = (FlushReason::LocalBatch as u8, FlushReason::RemoteSend as u8);
    Some(format!("reason >= {first} && reason <= {last}"))
}

/// Apart from the others: of those on idle CPUs the kernel counts some that it does not write.
fn received() -> Option<String> {
    Some(either(FlushReason::RemoteShootdown, FlushReason::RemoteWrongCpu))
}

/// Not those of idle CPUs: of these the kernel does not write all that it counts either.
fn switches() -> Option<String> {
    Some(format!("reason == {} && common_pid != 0", FlushReason::TaskSwitch as u8))
}

/// Not those of idle CPUs, which nobody loses time by.
fn of_a_task() -> Option<String> {
    Some("common_pid != 0".to_owned())
}

fn single() -> Option<String> {
    Some("order == 0".to_owned())
}

/// A flush that changes this CPU's translations: one event per flush, whoever else is asked.
pub fn local_flush() -> Option<String> {
    Some(either(FlushReason::LocalBatch, FlushReason::LocalMm))
}

/// The table. 6.12 has `csd:*`, 6.1 has not; without it there are the interrupts themselves, which
/// paravirtual machines do without.
pub const TABLE: [Row; 22] = [
    row(
        Point::FaultUser,
        "exceptions",
        "page_fault_user",
        &["address", "error_code"],
        "faults by class",
    ),
    row(
        Point::FaultKernel,
        "exceptions",
        "page_fault_kernel",
        &["address", "error_code"],
        "faults that the kernel takes on a program's pages",
    ),
    Row {
        whose: Whose::Everybody,
        filter: issued,
        ..row(
            Point::Flush,
            "tlb",
            "tlb_flush",
            &["reason", "pages"],
            "flushes, who interrupts whom, needless flushes",
        )
    },
    Row {
        whose: Whose::Everybody,
        filter: received,
        ..row(Point::Receive, "tlb", "tlb_flush", &["reason", "pages"], "who interrupts whom")
    },
    // A task's own events are put away before it is switched away from (kernel/sched/core.c:
    // prepare_task_switch), and only those of its next of kin stay.
    Row {
        whose: Whose::Everybody,
        filter: switches,
        ..row(
            Point::Switch,
            "tlb",
            "tlb_flush",
            &["reason", "pages"],
            "context switches that flush",
        )
    },
    Row {
        filter: movable,
        ..row(
            Point::Alloc,
            "kmem",
            "mm_page_alloc",
            &["pfn", "order", "gfp_flags"],
            "telling a first touch, a copy and a swap-in apart",
        )
    },
    Row {
        filter: single,
        ring: Ring::Frees,
        ..row(
            Point::Free,
            "kmem",
            "mm_page_free",
            &["pfn", "common_flags"],
            "evidence of needless copies and of raced faults",
        )
    },
    row(
        Point::MapPages,
        "filemap",
        "mm_filemap_map_pages",
        &[],
        "telling fault-around from other file faults",
    ),
    row(
        Point::FileFault,
        "filemap",
        "mm_filemap_fault",
        &[],
        "telling fault-around from other file faults",
    ),
    Row {
        filter: syscalls::filter,
        ..row(
            Point::Enter,
            "raw_syscalls",
            "sys_enter",
            &["id", "args"],
            "the system calls that cause flushes",
        )
    },
    Row {
        filter: syscalls::filter_ends,
        ..row(
            Point::Exit,
            "raw_syscalls",
            "sys_exit",
            &["id", "ret"],
            "the system calls that cause flushes",
        )
    },
    Row {
        whose: Whose::Everybody,
        filter: syscalls::ioctls,
        ..row(Point::Ioctl, "syscalls", "sys_enter_ioctl", &["cmd"], "userfaultfd")
    },
    reclaim(Point::ReclaimBegin, "mm_vmscan_direct_reclaim_begin", DIRECT),
    reclaim(Point::ReclaimEnd, "mm_vmscan_direct_reclaim_end", DIRECT),
    reclaim(Point::ReclaimBegin, "mm_vmscan_memcg_reclaim_begin", OF_CGROUP),
    reclaim(Point::ReclaimEnd, "mm_vmscan_memcg_reclaim_end", OF_CGROUP),
    called(Point::CallBegin, "csd", "csd_function_entry"),
    called(Point::CallEnd, "csd", "csd_function_exit"),
    called(Point::CallBegin, INTERRUPTS, "call_function_entry"),
    called(Point::CallEnd, INTERRUPTS, "call_function_exit"),
    called(Point::CallBegin, INTERRUPTS, "call_function_single_entry"),
    called(Point::CallEnd, INTERRUPTS, "call_function_single_exit"),
];

const DIRECT: &str = "telling reclaim from the system call it happens in";
const OF_CGROUP: &str = "telling a cgroup's reclaim from what it happens in";

const fn reclaim(point: Point, name: &'static str, lacks: &'static str) -> Row {
    Row { whose: Whose::Everybody, ..row(point, "vmscan", name, &[], lacks) }
}

const fn called(point: Point, system: &'static str, name: &'static str) -> Row {
    let lacks = "the time that interrupted threads lose";
    Row { whose: Whose::Everybody, filter: of_a_task, ..row(point, system, name, &[], lacks) }
}

/// The group of the tracepoints that are watched where `csd` is missing.
pub const INTERRUPTS: &str = "irq_vectors";

const fn row(
    point: Point,
    system: &'static str,
    name: &'static str,
    fields: &'static [&'static str],
    lacks: &'static str,
) -> Row {
    Row { point, system, name, whose: Whose::Watched, ring: Ring::Main, filter: all, fields, lacks }
}

/// What a report lacks without these events.
pub fn lacks(point: Point) -> &'static str {
    TABLE.iter().find(|row| row.point == point).map_or("", |row| row.lacks)
}

/// A row on this kernel.
#[derive(Clone, Debug)]
pub struct Found {
    /// What it is decoded to.
    pub point: Point,
    /// The number that perf_event_open takes.
    pub id: u64,
    /// `system:name`
    pub name: String,
    /// Where the fields lie, in the row's order.
    pub fields: Vec<Field>,
}

/// Looks a row up in this kernel.
pub fn find(row: &Row, tracefs: &Path) -> Result<Found, TracefsError> {
    let point = Tracepoint::find(tracefs, row.system, row.name)?;
    let fields = row.fields.iter().map(|name| point.field(name)).collect::<Result<_, _>>()?;
    Ok(Found { point: row.point, id: point.id, name: point.name, fields })
}

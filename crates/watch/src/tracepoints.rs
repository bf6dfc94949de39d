//! The tracepoints that are watched: what each is for, which of its events are wanted, and what a
//! report lacks where a kernel does not have it.

use crate::filter::{Filter, function_is_not};
use crate::syscalls;
use needless_model::event::FlushReason;
use needless_runner::kallsyms::{DRAIN, function_is};
use needless_runner::tracefs::{Field, TracefsError, Tracepoint};
use std::path::Path;

/// Whose events are recorded.
///
/// Events of watched threads are inherited: at each fork the kernel makes one for every CPU, and
/// walks its list of all tracepoints for each (kernel/trace/trace_event_perf.c: perf_trace_init,
/// 5.10 to 7.3), and at each switch it takes those of the CPU out and in. So what is rare is
/// recorded of every task.
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
    /// Direct reclaim of the machine's memory begins.
    ReclaimBegin,
    /// It ends.
    ReclaimEnd,
    /// Reclaim of a memory cgroup's memory begins.
    CgroupReclaimBegin,
    /// It ends.
    CgroupReclaimEnd,
    /// A CPU is asked to call a function.
    Queue,
    /// A function called by an interrupt begins.
    CallBegin,
    /// It ends.
    CallEnd,
    /// An interrupt for function calls begins.
    Calls,
    /// It ends.
    CallsEnd,
    /// A CPU is sent an interrupt that calls no function.
    Send,
    /// An interrupt to look at what there is to run begins.
    Reschedule,
    /// It ends.
    RescheduleEnd,
    /// An interrupt for work of its own CPU begins.
    IrqWork,
    /// The local timer's interrupt begins.
    Timer,
    /// It ends.
    TimerEnd,
    /// A device's interrupt begins.
    Device,
    /// It ends.
    DeviceEnd,
    /// A kernel thread is asked to drain a CPU's batches of pages.
    DrainQueued,
    /// It begins.
    Drain,
}

/// How much is watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Extent {
    /// What programs do, and functions that CPUs are made to call.
    Programs,
    /// What programs do, and every interrupt from one CPU to another, wake-ups among them.
    EveryInterrupt,
    /// Only what reaches these CPUs: every interrupt.
    Guard(Vec<u16>),
}

/// When a row of the table is watched.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum When {
    /// Where programs are watched.
    Programs,
    /// In every run.
    Always,
    /// Where every interrupt is wanted.
    Interrupts,
    /// Where CPUs are guarded.
    Guard,
}

/// Where a row's events of interrupts happen, which decides whose matter to a guard.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Side {
    /// On any CPU.
    Any,
    /// On the CPU that is interrupted.
    Victim,
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
    /// When it is watched.
    pub when: When,
    /// Where its events happen.
    pub side: Side,
    /// Which events, in the language of tracing filters.
    pub filter: fn(&Extent) -> Option<String>,
    /// The fields that are read.
    pub fields: &'static [&'static str],
    /// What a report lacks without it.
    pub lacks: &'static str,
}

impl Row {
    /// Whether it is watched on a CPU.
    pub fn wanted(&self, extent: &Extent, cpu: u16) -> bool {
        let guarded = match extent {
            Extent::Guard(victims) => self.side == Side::Any || victims.contains(&cpu),
            Extent::Programs | Extent::EveryInterrupt => true,
        };
        guarded && self.is_of(extent)
    }

    /// Whether it is watched at all.
    pub fn is_of(&self, extent: &Extent) -> bool {
        match self.when {
            When::Always => true,
            When::Programs => !matches!(extent, Extent::Guard(_)),
            When::Interrupts => *extent != Extent::Programs,
            When::Guard => matches!(extent, Extent::Guard(_)),
        }
    }
}

fn all(_: &Extent) -> Option<String> {
    None
}

/// `__GFP_MOVABLE` (include/linux/gfp_types.h, bit 3 from 5.10 to 7.3): pages of programs and of
/// files, but no page tables.
fn movable(_: &Extent) -> Option<String> {
    Some("gfp_flags & 0x8".to_owned())
}

fn either(one: FlushReason, other: FlushReason) -> String {
    format!("reason == {} || reason == {}", one as u8, other as u8)
}

/// Those of whoever flushes; their numbers follow each other.
fn issued(_: &Extent) -> Option<String> {
    let (first, last) = (FlushReason::LocalBatch as u8, FlushReason::RemoteSend as u8);
    Some(format!("reason >= {first} && reason <= {last}"))
}

/// Apart from the others: of those on idle CPUs the kernel counts some that it does not write.
fn received(_: &Extent) -> Option<String> {
    Some(either(FlushReason::RemoteShootdown, FlushReason::RemoteWrongCpu))
}

/// Not those of idle CPUs: of these the kernel does not write all that it counts either.
fn switches(_: &Extent) -> Option<String> {
    Some(format!("reason == {} && common_pid != 0", FlushReason::TaskSwitch as u8))
}

/// Wake-ups are many, and no memory management: they are left out where programs are watched.
fn called(extent: &Extent) -> Option<String> {
    (*extent == Extent::Programs).then(|| function_is_not("func", WAKE_UP))
}

/// Sent calls: without wake-ups where programs are watched, and only those to guarded CPUs where
/// these are.
fn queued(extent: &Extent) -> Option<String> {
    match extent {
        Extent::Guard(_) => to_victims(extent),
        Extent::Programs | Extent::EveryInterrupt => called(extent),
    }
}

fn to_victims(extent: &Extent) -> Option<String> {
    let Extent::Guard(victims) = extent else { return None };
    let victims = victims.iter().map(|cpu| u64::from(*cpu));
    Filter::among("cpu", victims).map(|filter| filter.to_string())
}

fn drains(_: &Extent) -> Option<String> {
    Some(function_is("function", DRAIN))
}

fn calls_of_programs(_: &Extent) -> Option<String> {
    syscalls::filter()
}

fn ends_of_calls(_: &Extent) -> Option<String> {
    syscalls::filter_ends()
}

fn ioctls(_: &Extent) -> Option<String> {
    syscalls::ioctls()
}

/// Wakes up threads on the CPU that it is called on (kernel/sched/core.c, 5.10 to 7.3).
const WAKE_UP: &str = "sched_ttwu_pending";

fn single(_: &Extent) -> Option<String> {
    Some("order == 0".to_owned())
}

/// The table. 6.12 has `csd:*` and `ipi:*` (from 6.4 and 6.3 on), 6.1 has not; without them there
/// are the interrupts themselves, which say neither what they are for nor who sent them.
pub const TABLE: [Row; 33] = [
    row(
        Point::FaultUser,
        "exceptions",
        "page_fault_user",
        &["address", "error_code", "ip"],
        "faults by class, how long they took and waited",
    ),
    row(
        Point::FaultKernel,
        "exceptions",
        "page_fault_kernel",
        &["address", "error_code", "ip"],
        "faults that the kernel takes on a program's pages",
    ),
    Row {
        whose: Whose::Everybody,
        when: When::Always,
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
        when: When::Always,
        side: Side::Victim,
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
        filter: calls_of_programs,
        when: When::Always,
        ..row(
            Point::Enter,
            "raw_syscalls",
            "sys_enter",
            &["id", "args"],
            "the system calls that cause flushes",
        )
    },
    Row {
        filter: ends_of_calls,
        when: When::Always,
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
        filter: ioctls,
        when: When::Always,
        ..row(Point::Ioctl, "syscalls", "sys_enter_ioctl", &["cmd"], "userfaultfd")
    },
    reclaim(Point::ReclaimBegin, "mm_vmscan_direct_reclaim_begin", DIRECT),
    reclaim(Point::ReclaimEnd, "mm_vmscan_direct_reclaim_end", DIRECT),
    reclaim(Point::CgroupReclaimBegin, "mm_vmscan_memcg_reclaim_begin", OF_CGROUP),
    reclaim(Point::CgroupReclaimEnd, "mm_vmscan_memcg_reclaim_end", OF_CGROUP),
    Row {
        side: Side::Any,
        filter: queued,
        ..interrupt(
            Point::Queue,
            "csd",
            "csd_queue_cpu",
            &["cpu", "callsite", "func", "csd", "common_flags"],
        )
    },
    function(Point::CallBegin, "csd_function_entry", &["func", "csd", "common_flags"]),
    Row {
        when: When::Programs,
        ..function(Point::CallEnd, "csd_function_exit", &["func", "csd", "common_flags"])
    },
    interrupt(Point::Calls, INTERRUPTS, "call_function_entry", &[]),
    interrupt(Point::Calls, INTERRUPTS, "call_function_single_entry", &[]),
    interrupt(Point::CallsEnd, INTERRUPTS, "call_function_exit", &[]),
    interrupt(Point::CallsEnd, INTERRUPTS, "call_function_single_exit", &[]),
    Row {
        when: When::Interrupts,
        side: Side::Any,
        filter: to_victims,
        lacks: "who sends rescheduling interrupts",
        ..interrupt(
            Point::Send,
            "ipi",
            "ipi_send_cpu",
            &["cpu", "callsite", "callback", "common_flags"],
        )
    },
    of_every(Point::Reschedule, "reschedule_entry"),
    // Its end may not be recorded: that would be work of the same kind
    // (arch/x86/include/asm/trace/irq_vectors.h).
    of_every(Point::IrqWork, "irq_work_entry"),
    Row { when: When::Guard, ..of_every(Point::RescheduleEnd, "reschedule_exit") },
    Row { when: When::Guard, ..of_every(Point::Timer, "local_timer_entry") },
    Row { when: When::Guard, ..of_every(Point::TimerEnd, "local_timer_exit") },
    device(Point::Device, "irq_handler_entry"),
    device(Point::DeviceEnd, "irq_handler_exit"),
    Row {
        side: Side::Any,
        ..drain(Point::DrainQueued, "workqueue_queue_work", &["work", "common_flags"])
    },
    drain(Point::Drain, "workqueue_execute_start", &["work"]),
];

const DIRECT: &str = "telling reclaim from the system call it happens in";
const OF_CGROUP: &str = "telling a cgroup's reclaim from what it happens in";

const fn reclaim(point: Point, name: &'static str, lacks: &'static str) -> Row {
    let row = row(point, "vmscan", name, &[], lacks);
    Row { whose: Whose::Everybody, when: When::Always, ..row }
}

/// An event of an interrupt, on the CPU that is interrupted.
const fn interrupt(
    point: Point,
    system: &'static str,
    name: &'static str,
    fields: &'static [&'static str],
) -> Row {
    let lacks = "what interrupts ask for, who sends them, and the time that they take";
    let row = row(point, system, name, fields, lacks);
    Row { whose: Whose::Everybody, when: When::Always, side: Side::Victim, ..row }
}

const fn function(point: Point, name: &'static str, fields: &'static [&'static str]) -> Row {
    Row { filter: called, ..interrupt(point, "csd", name, fields) }
}

const fn of_every(point: Point, name: &'static str) -> Row {
    let lacks = "interrupts that call no function";
    Row { when: When::Interrupts, lacks, ..interrupt(point, INTERRUPTS, name, &[]) }
}

const fn device(point: Point, name: &'static str) -> Row {
    let lacks = "interrupts of devices";
    Row { when: When::Guard, lacks, ..interrupt(point, "irq", name, &["irq"]) }
}

const fn drain(point: Point, name: &'static str, fields: &'static [&'static str]) -> Row {
    let lacks = "drains of the LRU batches";
    Row { filter: drains, lacks, ..interrupt(point, "workqueue", name, fields) }
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
    Row {
        point,
        system,
        name,
        whose: Whose::Watched,
        ring: Ring::Main,
        when: When::Programs,
        side: Side::Any,
        filter: all,
        fields,
        lacks,
    }
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
    /// Its name, as `system:name`.
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

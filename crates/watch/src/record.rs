//! One record of a ring, decoded.

use crate::fold::Reclaim;
use crate::sites::Sample;
use crate::tracepoints::{Found, Point};
use needless_model::event::{FaultCode, FlushReason};
use needless_model::foreign;
use needless_model::order::Rank;
use needless_runner::tracefs::Field;
use perf_event_open_sys::bindings::{
    PERF_CONTEXT_MAX, PERF_RECORD_COMM, PERF_RECORD_EXIT, PERF_RECORD_FORK, PERF_RECORD_LOST,
    PERF_RECORD_LOST_SAMPLES, PERF_RECORD_MISC_COMM_EXEC, PERF_RECORD_MISC_SWITCH_OUT,
    PERF_RECORD_MISC_SWITCH_OUT_PREEMPT, PERF_RECORD_MMAP2, PERF_RECORD_SAMPLE, PERF_RECORD_SWITCH,
    PERF_RECORD_SWITCH_CPU_WIDE, PERF_RECORD_THROTTLE,
};

/// What a record says.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the variants tell what their fields are")]
pub enum What {
    /// An exception: where, error code, whether user mode took it, and the instruction.
    Fault { address: u64, code: FaultCode, user: bool, ip: u64 },
    /// A fault has been handled and counted.
    FaultDone { address: u64, major: bool },
    /// `tlb:tlb_flush`; pages are −1 for everything.
    Flush { reason: FlushReason, pages: i64 },
    /// A page for data was allocated.
    Alloc { pfn: u64, order: u8, zeroed: bool },
    /// A page was freed.
    Free { pfn: u64 },
    /// Pages around a fault were mapped from the page cache.
    MapPages,
    /// A file's page was looked for.
    FileFault,
    /// A watched system call begins.
    Enter { number: i32, args: [u64; 4], from: Option<Box<Sample>> },
    /// It ends.
    Exit { number: i32, result: i64 },
    /// A watched ioctl begins.
    Ioctl { request: u64 },
    /// Direct reclaim begins or ends.
    Reclaim { of: Reclaim, begins: bool },
    /// A CPU is asked to call a function; `call` is what the kernel keeps of that until it has been
    /// done. An interrupt may ask, which has nothing to do with the task that it came upon.
    Queue { function: u64, site: u64, call: u64, by_interrupt: bool },
    /// A CPU begins or ends to call a function that it was asked for: in an interrupt, or because
    /// it looked for itself, as idle CPUs do. `call` is 0 where it asked itself.
    Call { begins: bool, function: u64, call: u64, in_interrupt: bool },
    /// An interrupt begins or ends.
    Interrupt { vector: Vector, begins: bool },
    /// A CPU is sent an interrupt: to look at what to run, or its own, with a function for it.
    Send { cpu: u16, site: u64, function: u64, by_interrupt: bool },
    /// A CPU's batches of pages are to be drained, by that work.
    DrainQueued { work: u64, by_interrupt: bool },
    /// They are.
    Drain { work: u64 },
    /// A task leaves its CPU, since it waits for something or has to make room, or comes back.
    Switched { to: Switch },
    /// A task is about to leave its CPU; return addresses in the kernel, innermost first.
    Leaves(Box<[u64]>),
    /// A thread or a process was made by `parent`.
    Fork { pid: i32, tid: i32, parent: i32 },
    /// A thread ended.
    Ended,
    /// A task has another name; `exec` if with another program.
    Named { name: Box<str>, exec: bool },
    /// A mapping was made or changed.
    Mapped(Box<Mapping>),
    /// The stack of whoever takes a fault, sampled.
    Site(Box<Sample>),
    /// Records were lost.
    Lost { records: u64 },
    /// Nothing that matters here.
    Other,
}

/// What a switch of tasks does to one of the two.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Switch {
    /// It runs.
    Runs,
    /// It waits.
    Waits,
    /// It could run, and another one does.
    Preempted,
}

/// An interrupt whose begin and end are seen.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Vector {
    /// For functions that other CPUs queued.
    Calls,
    /// To look at what there is to run.
    Reschedule,
    /// For work that its own CPU put off.
    IrqWork,
    /// Of the local timer.
    Timer,
    /// Of a device, by its number.
    Device(u32),
}

impl What {
    /// Whether it is recorded of every task, and matters for those that are watched only.
    pub const fn may_be_a_strangers(&self) -> bool {
        matches!(self, What::Ioctl { .. } | What::Reclaim { .. })
    }

    /// Whether it is about interrupts, which are recorded of every task.
    pub const fn is_an_interrupts(&self) -> bool {
        matches!(
            self,
            What::Queue { .. }
                | What::Call { .. }
                | What::Interrupt { .. }
                | What::Send { .. }
                | What::DrainQueued { .. }
                | What::Drain { .. }
        )
    }

    /// Whether the task went on with something, so that no flush that it issued is under way.
    pub const fn is_progress(&self) -> bool {
        matches!(
            self,
            What::Fault { .. } | What::FaultDone { .. } | What::Enter { .. } | What::Exit { .. }
        )
    }

    /// Where it stands among records of the same time.
    pub const fn rank(&self) -> Rank {
        match self {
            What::Fault { .. } | What::Enter { .. } | What::Fork { .. } => Rank::Entry,
            What::Flush { reason, .. } => reason.rank(),
            What::FaultDone { .. } | What::Exit { .. } | What::Ended => Rank::End,
            What::Queue { .. } | What::Send { .. } | What::DrainQueued { .. } => Rank::Send,
            What::Interrupt { begins: true, .. } | What::Drain { .. } => Rank::Local,
            // The flush in it is a receive, and stands behind its begin in the ring.
            What::Call { .. } => Rank::Receive,
            What::Alloc { .. }
            | What::Free { .. }
            | What::MapPages
            | What::FileFault
            | What::Ioctl { .. }
            | What::Reclaim { .. }
            | What::Switched { .. }
            | What::Leaves(_)
            | What::Interrupt { begins: false, .. }
            | What::Named { .. }
            | What::Mapped(_)
            | What::Site(_)
            | What::Lost { .. }
            | What::Other => Rank::Inside,
        }
    }
}

/// A mapping without a file that the kernel names.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Named {
    /// What brk(2) makes.
    Heap,
    /// The stack of the first thread.
    Stack,
}

/// A mapping as the kernel reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// First byte.
    pub start: u64,
    /// First byte after it.
    pub end: u64,
    /// Where in the file it begins, in bytes.
    pub offset: u64,
    /// Whether writes are seen by other processes.
    pub shared: bool,
    /// Whether it is of hugetlb pages.
    pub hugetlb: bool,
    /// The file's path; none for anonymous memory.
    pub file: Option<Box<str>>,
    /// Whether code in it may be executed.
    pub executable: bool,
    /// Whether it is the stack of the first thread, or the heap that brk(2) makes.
    pub named: Option<Named>,
}

/// A record with its time, place and task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// CLOCK_MONOTONIC_RAW, nanoseconds.
    pub time: u64,
    /// The CPU.
    pub cpu: u16,
    /// The process.
    pub pid: i32,
    /// The thread.
    pub tid: i32,
    /// What happened.
    pub what: What,
}

impl Record {
    /// A record that came and cannot be understood: as bad as one that was lost.
    pub fn lost(cpu: u16) -> Record {
        Record { time: 0, cpu, pid: 0, tid: 0, what: What::Lost { records: 1 } }
    }
}

/// `__GFP_ZERO` (include/linux/gfp_types.h, bit 8 from 5.10 to 7.3).
const GFP_ZERO: u64 = 0x100;

/// `TRACE_FLAG_HARDIRQ` and `TRACE_FLAG_SOFTIRQ` (include/linux/trace_events.h, read in 6.1, 6.12,
/// 7.3).
const IN_INTERRUPT: u64 = 0x18;
/// The first of these.
const IN_HARD_INTERRUPT: u64 = 0x08;

/// Which event an identifier stands for.
#[derive(Clone, Debug)]
pub enum Source {
    /// A tracepoint.
    Point(Found),
    /// The end of a fault.
    FaultDone {
        /// Whether of major ones.
        major: bool,
    },
    /// The stacks of whoever takes faults.
    Site,
    /// The stacks of whoever leaves a CPU.
    Leaves,
    /// Names, mappings, births and deaths.
    Tasks,
}

/// Decodes one record. Samples are: identifier, pid, tid, time, \[address,\] size of the raw
/// part, raw part. All others end with pid, tid, time, identifier. `None`: it cannot be understood.
pub fn decode(
    ty: u32,
    misc: u16,
    body: &[u8],
    cpu: u16,
    sources: &[(u64, Source)],
) -> Option<Record> {
    if ty == PERF_RECORD_SAMPLE {
        return sample(body, cpu, sources);
    }
    let end = body.len().checked_sub(24)?;
    let record = |what| {
        let (pid, tid) = (half(body, end)? as i32, half(body, end + 4)? as i32);
        Some(Record { time: word(body, end + 8)?, cpu, pid, tid, what })
    };
    match ty {
        PERF_RECORD_LOST => record(What::Lost { records: word(body, 8)? }),
        PERF_RECORD_LOST_SAMPLES => record(What::Lost { records: word(body, 0)? }),
        // A throttled event is silent for a while: as bad as lost, number unknown.
        PERF_RECORD_THROTTLE => record(What::Lost { records: 1 }),
        PERF_RECORD_FORK => {
            let (pid, tid) = (half(body, 0)? as i32, half(body, 8)? as i32);
            record(What::Fork { pid, tid, parent: half(body, 4)? as i32 })
        }
        PERF_RECORD_EXIT => {
            let (pid, tid) = (half(body, 0)? as i32, half(body, 8)? as i32);
            let record = record(What::Ended)?;
            Some(Record { pid, tid, ..record })
        }
        PERF_RECORD_COMM => {
            let name = foreign::line(&text(body.get(8..end)?)).into();
            let exec = u32::from(misc) & PERF_RECORD_MISC_COMM_EXEC != 0;
            let record = record(What::Named { name, exec })?;
            Some(Record { pid: half(body, 0)? as i32, tid: half(body, 4)? as i32, ..record })
        }
        PERF_RECORD_SWITCH | PERF_RECORD_SWITCH_CPU_WIDE => {
            let has = |flag| u32::from(misc) & flag != 0;
            let out = has(PERF_RECORD_MISC_SWITCH_OUT);
            let to = match out {
                true if has(PERF_RECORD_MISC_SWITCH_OUT_PREEMPT) => Switch::Preempted,
                true => Switch::Waits,
                false => Switch::Runs,
            };
            record(What::Switched { to })
        }
        PERF_RECORD_MMAP2 => record(What::Mapped(Box::new(mapping(body.get(8..end)?)?))),
        _ => record(What::Other),
    }
}

/// Address, length, offset, then 24 bytes of file or build identity, protection, flags, name.
fn mapping(body: &[u8]) -> Option<Mapping> {
    let start = word(body, 0)?;
    let (protection, flags) = (half(body, 48)?, half(body, 52)?);
    let name = text(body.get(56..)?);
    Some(Mapping {
        start,
        end: start.saturating_add(word(body, 8)?),
        offset: word(body, 16)?,
        shared: flags & libc::MAP_SHARED as u32 != 0,
        hugetlb: flags & libc::MAP_HUGETLB as u32 != 0,
        executable: protection & libc::PROT_EXEC as u32 != 0,
        named: match &*name {
            "[heap]" => Some(Named::Heap),
            "[stack]" => Some(Named::Stack),
            _ => None,
        },
        file: (name.starts_with('/') && !name.starts_with("//anon")).then(|| name.into()),
    })
}

fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

fn sample(body: &[u8], cpu: u16, sources: &[(u64, Source)]) -> Option<Record> {
    let id = word(body, 0)?;
    let (_, source) = sources.iter().find(|(known, _)| *known == id)?;
    let what = match source {
        Source::FaultDone { major } => What::FaultDone { address: word(body, 24)?, major: *major },
        Source::Point(found) => {
            let size = half(body, 24)? as usize;
            point(found, body.get(28..)?, body.get(28 + size..).filter(|rest| !rest.is_empty()))?
        }
        Source::Site => What::Site(Box::new(user(body.get(24..)?)?)),
        Source::Leaves => What::Leaves(kernel_stack(body.get(24..)?)?.into()),
        Source::Tasks => return None,
    };
    let (pid, tid) = (half(body, 8)? as i32, half(body, 12)? as i32);
    Some(Record { time: word(body, 16)?, cpu, pid, tid, what })
}

/// `raw` begins with the tracepoint's own part; `after_raw` is what follows that.
fn point(found: &Found, raw: &[u8], after_raw: Option<&[u8]>) -> Option<What> {
    let field = |at: usize| found.fields.get(at)?.read(raw);
    let begins = |vector| What::Interrupt { vector, begins: true };
    let ends = |vector| What::Interrupt { vector, begins: false };
    Some(match found.point {
        Point::FaultUser | Point::FaultKernel => What::Fault {
            address: field(0)?,
            code: FaultCode(field(1)? as u8),
            user: found.point == Point::FaultUser,
            ip: field(2)?,
        },
        Point::Flush | Point::Receive | Point::Switch => {
            let reason = FlushReason::from_number(u32::try_from(field(0)?).ok()?)?;
            What::Flush { reason, pages: field(1)? as i64 }
        }
        Point::Alloc => What::Alloc {
            pfn: field(0)?,
            order: field(1)? as u8,
            zeroed: field(2)? & GFP_ZERO != 0,
        },
        // What an interrupt frees has nothing to do with the task it hit.
        Point::Free if field(1)? & IN_INTERRUPT != 0 => What::Other,
        Point::Free => What::Free { pfn: field(0)? },
        Point::MapPages => What::MapPages,
        Point::FileFault => What::FileFault,
        Point::Enter => {
            let (number, args) = (field(0)? as i32, args(found.fields.get(1)?, raw)?);
            What::Enter { number, args, from: after_raw.and_then(user).map(Box::new) }
        }
        Point::Exit => What::Exit { number: field(0)? as i32, result: field(1)? as i64 },
        Point::Ioctl => What::Ioctl { request: field(0)? & 0xffff_ffff },
        Point::ReclaimBegin => What::Reclaim { of: Reclaim::Machine, begins: true },
        Point::CgroupReclaimBegin => What::Reclaim { of: Reclaim::Cgroup, begins: true },
        Point::ReclaimEnd => What::Reclaim { of: Reclaim::Machine, begins: false },
        Point::CgroupReclaimEnd => What::Reclaim { of: Reclaim::Cgroup, begins: false },
        Point::Queue => What::Queue {
            site: field(1)?,
            function: field(2)?,
            call: field(3)?,
            by_interrupt: field(4)? & IN_INTERRUPT != 0,
        },
        Point::CallBegin | Point::CallEnd => What::Call {
            begins: found.point == Point::CallBegin,
            function: field(0)?,
            call: field(1)?,
            in_interrupt: field(2)? & IN_HARD_INTERRUPT != 0,
        },
        Point::Send => What::Send {
            cpu: field(0)? as u16,
            site: field(1)?,
            function: field(2)?,
            by_interrupt: field(3)? & IN_INTERRUPT != 0,
        },
        Point::Calls => begins(Vector::Calls),
        Point::CallsEnd => ends(Vector::Calls),
        Point::Reschedule => begins(Vector::Reschedule),
        Point::RescheduleEnd => ends(Vector::Reschedule),
        Point::IrqWork => begins(Vector::IrqWork),
        Point::Timer => begins(Vector::Timer),
        Point::TimerEnd => ends(Vector::Timer),
        Point::Device => begins(Vector::Device(field(0)? as u32)),
        Point::DeviceEnd => ends(Vector::Device(field(0)? as u32)),
        Point::DrainQueued => {
            What::DrainQueued { work: field(0)?, by_interrupt: field(1)? & IN_INTERRUPT != 0 }
        }
        Point::Drain => What::Drain { work: field(0)? },
    })
}

/// Number of addresses, and addresses.
fn kernel_stack(body: &[u8]) -> Option<Vec<u64>> {
    let words = usize::try_from(word(body, 0)?).ok()?;
    let end = words.checked_mul(8)?.checked_add(8)?;
    let chain = body.get(8..end)?.chunks_exact(8).filter_map(|chunk| word(chunk, 0));
    // From there on they are marks.
    Some(chain.filter(|address| *address < PERF_CONTEXT_MAX).collect())
}

/// ABI and, unless it is 0, registers; size and, unless it is 0, stack and how much of it is valid.
fn user(body: &[u8]) -> Option<Sample> {
    let has_registers = word(body, 0)? != 0;
    let registers = |at: usize| Some([word(body, at)?, word(body, at + 8)?, word(body, at + 16)?]);
    let registers = if has_registers { Some(registers(8)?) } else { None };
    let at = 8 + if has_registers { 24 } else { 0 };
    let size = usize::try_from(word(body, at)?).ok()?;
    let valid = if size == 0 { 0 } else { usize::try_from(word(body, at + 8 + size)?).ok()? };
    let stack = body.get(at + 8..at + 8 + valid.min(size))?.to_vec();
    Some(Sample { registers, stack })
}

fn args(first: &Field, raw: &[u8]) -> Option<[u64; 4]> {
    let arg = |at: usize| Field { offset: first.offset + at * first.size, ..*first }.read(raw);
    Some([arg(0)?, arg(1)?, arg(2)?, arg(3)?])
}

fn word(body: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(body.get(at..at + 8)?.try_into().ok()?))
}

fn half(body: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(body.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(point: Point, fields: &[(usize, usize)]) -> Vec<(u64, Source)> {
        let field = |&(offset, size)| Field { offset, size, signed: false };
        let fields = fields.iter().map(field).collect();
        vec![(7, Source::Point(Found { point, id: 1, name: "point".to_owned(), fields }))]
    }

    /// A sample of event 7 with a raw part of so many bytes.
    fn sample_of(raw: &[u8]) -> Vec<u8> {
        let head = [7_u64.to_le_bytes(), [0; 8], [1; 8]].concat();
        [&head[..], &(raw.len() as u32).to_le_bytes(), raw].concat()
    }

    #[test]
    fn a_stack_is_its_addresses_without_the_marks() {
        let sources = [(7, Source::Leaves)];
        let stack = [3_u64, PERF_CONTEXT_MAX.wrapping_add(1), 5, 6].map(u64::to_le_bytes).concat();
        let body = [[7_u64.to_le_bytes(), [0; 8], [1; 8]].concat(), stack].concat();
        let whole = decode(PERF_RECORD_SAMPLE, 0, &body, 0, &sources).unwrap();
        assert_eq!(whole.what, What::Leaves([5, 6].into()));
        assert_eq!(decode(PERF_RECORD_SAMPLE, 0, &body[..48], 0, &sources), None);
    }

    #[test]
    fn what_is_not_understood_is_not_taken_for_something_else() {
        let call = found(Point::Enter, &[(0, 8), (8, 8)]);
        let whole = decode(PERF_RECORD_SAMPLE, 0, &sample_of(&[3; 40]), 0, &call);
        assert!(matches!(whole.map(|record| record.what), Some(What::Enter { .. })));
        assert_eq!(
            decode(PERF_RECORD_SAMPLE, 0, &sample_of(&[3; 32]), 0, &call),
            None,
            "an argument is missing"
        );
        assert_eq!(
            decode(PERF_RECORD_SAMPLE, 0, &sample_of(&[3; 40]), 0, &[]),
            None,
            "nobody's event"
        );
        assert_eq!(decode(PERF_RECORD_MMAP2, 0, &[0; 40], 0, &call), None);
    }

    #[test]
    fn what_does_not_matter_is_told_apart_from_what_is_not_understood() {
        let other = |decoded: Option<Record>| decoded.is_some_and(|r| r.what == What::Other);
        let freed = found(Point::Free, &[(0, 8), (8, 1)]);
        assert!(
            other(decode(PERF_RECORD_SAMPLE, 0, &sample_of(&[0x10; 16]), 0, &freed)),
            "by an interrupt"
        );
        assert!(other(decode(99, 0, &[0; 24], 0, &freed)), "a record of another kind");
    }
}

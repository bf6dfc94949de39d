//! The event rings, one for each CPU of the scenario. Their sources are the tracepoints of faults,
//! flushes and pages that go to swap, the two software events that end a fault, and context
//! switches.
//!
//! Only x86 has the tracepoints of faults and flushes. Elsewhere the other sources show who ran,
//! and the ends of faults show whether records were lost.
//!
//! Faults are recorded only for the scenario's threads and the processes that they fork. Flushes
//! and switches are recorded for every task on the CPU, because a CPU receives flushes whichever
//! task runs there.
//!
//! All events of a CPU write into one ring, so their order is the kernel's. A record carries its
//! event's identifier first (samples) or last (all others). A full ring drops records silently, and
//! reports that only when a later record fits. Only `drain` makes room. So a ring that had room for
//! the largest record when it was drained cannot have dropped any: that is the test for loss.

use crate::ioctl::{set_filter, set_output};
use crate::kallsyms::{DRAIN, function_is};
use crate::limits;
use crate::log::{Kind, Raw};
use crate::tracefs::{self, Field, TracefsError, Tracepoint};
use needless_model::addr::CpuId;
use needless_model::counters::Counter as Figure;
use perf_event::events::{Event, Software, Tracepoint as TracepointEvent};
use perf_event::{Builder, Clock, Counter, ReadFormat, SampleFlag, Sampler};
use perf_event_open_sys::bindings::{
    PERF_RECORD_LOST, PERF_RECORD_MISC_SWITCH_OUT, PERF_RECORD_MISC_SWITCH_OUT_PREEMPT,
    PERF_RECORD_SAMPLE, PERF_RECORD_SWITCH_CPU_WIDE, PERF_RECORD_THROTTLE,
};
use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use std::rc::Rc;
use thiserror::Error;

/// The size of the largest possible record. Ours have about 100 bytes.
const LARGEST: usize = 256;

/// Calls of the function that a CPU executes when another CPU waits for lockless walks of page
/// tables (mm/mmu_gather.c:tlb_remove_table_sync_one, 6.1 to 7.3).
const TABLE_SYNC: &CStr = c"func.function == tlb_remove_table_smp_sync";

/// The name of these calls in the list of what was not seen.
const TABLE_SYNCS: &str = Figure::TableSyncs.name();

/// Why there are no rings.
#[derive(Debug, Error)]
pub enum PerfError {
    /// A tracepoint is missing.
    #[error(transparent)]
    Tracefs(#[from] TracefsError),
    /// The kernel refuses an event.
    #[error("perf_event_open for {event} on CPU {cpu}: {error}")]
    Open {
        /// The name of the event.
        event: String,
        /// The machine's CPU for the event.
        cpu: u16,
        /// The kernel's error.
        error: io::Error,
    },
}

impl PerfError {
    /// Whether the cause is a limit on this process or exhausted resources of the machine.
    pub fn is_of_a_limit(&self) -> bool {
        matches!(self, PerfError::Open { error, .. } if limits::remedy_of(error).is_some())
    }
}

/// The kind of event that a record's identifier belongs to, and how to read the record.
#[derive(Copy, Clone, Debug)]
enum Source {
    Fault { address: Field, code: Field },
    Flush { reason: Field, pages: Field },
    Minor,
    Major,
    TableSync { to: Field },
    Write,
    Drain,
    Charge,
    Switches,
}

/// A CPU and the scenario's threads on it.
#[derive(Clone, Debug)]
pub struct Place {
    /// The CPU, as the scenario numbers it.
    pub cpu: u16,
    /// The machine's number of this CPU.
    pub on: CpuId,
    /// The ids of the threads to watch there, together with the processes that they fork; 0 is the
    /// calling thread.
    pub tids: Vec<i32>,
}

/// The tracepoints that this kernel has.
struct Points {
    fault: Option<(Tracepoint, Source)>,
    flush: Option<(Tracepoint, Source)>,
    sync: Option<(Tracepoint, Source)>,
    write: Option<(Tracepoint, Source)>,
    drain: Option<(Tracepoint, CString)>,
    charge: Option<(Tracepoint, Source)>,
}

/// The tasks whose events are recorded.
#[derive(Copy, Clone)]
enum Whose {
    Everybodys,
    Thread(i32),
}

/// The argument that makes the runner check whether it can open rings.
pub const VERB: &str = "--rings";

/// The default number of pages of each CPU's ring.
pub const RING_PAGES: u32 = 512;

/// Opens rings as a run does and closes them again. Prints how loss is found, or why there are no
/// rings.
pub fn probe() -> ExitCode {
    let places = [Place { cpu: 0, on: CpuId(0), tids: vec![0] }];
    let (said, status) = match Rings::open(&places, RING_PAGES, &mut BTreeMap::new()) {
        Ok(mut rings) => match rings.lost() {
            Some(_) => ("the kernel counts lost events".to_owned(), ExitCode::SUCCESS),
            None => ("loss is found by how full a ring is".to_owned(), ExitCode::SUCCESS),
        },
        Err(error) => (error.to_string(), ExitCode::FAILURE),
    };
    let _ = io::stdout().write_all(said.as_bytes());
    status
}

/// The rings of all CPUs.
pub struct Rings {
    rings: Vec<Ring>,
    /// Whether exceptions are recorded, not only the ends of faults.
    pub faults: bool,
    /// Whether flushes are recorded.
    pub flushes: bool,
    /// Whether a thread's write of a page to swap is recorded.
    pub writes: bool,
}

struct Ring {
    cpu: u16,
    /// The scenario's CPUs: the machine's number of each, and the scenario's number.
    cpus: Rc<[(u16, u16)]>,
    sampler: Sampler,
    others: Vec<Counter>,
    sources: Vec<(u64, Source)>,
    capacity: usize,
}

impl Rings {
    /// Opens a ring of `pages` pages for each CPU. Missing sources that are not vital go to
    /// `unseen`.
    pub fn open(
        places: &[Place],
        pages: u32,
        unseen: &mut BTreeMap<String, String>,
    ) -> Result<Rings, PerfError> {
        let tracefs = tracefs::find()?;
        let fault = match fault_source(&tracefs) {
            Ok(fault) => Some(fault),
            Err(error @ TracefsError::NoTracepoint(_)) => {
                for name in ["faults", "faults_by_class", "copies"] {
                    unseen.insert(name.to_owned(), error.to_string());
                }
                None
            }
            Err(error) => return Err(error.into()),
        };
        let flush = flush_source(&tracefs).map_err(|error| {
            for name in ["flushes", "shootdowns", "interrupts", "copies"] {
                unseen.insert(name.to_owned(), error.to_string());
            }
        });
        let drain = Tracepoint::find(&tracefs, "workqueue", "workqueue_execute_start").ok();
        let drain = drain.zip(CString::new(function_is("function", DRAIN)).ok());
        let charge = charge_source(&tracefs);
        let sync = sync_source(&tracefs).map_err(|why| {
            unseen.insert(TABLE_SYNCS.to_owned(), why);
        });
        let (flush, sync, write) = (flush.ok(), sync.ok(), write_source(&tracefs));
        let points = Points { fault, flush, sync, write, drain, charge };
        let cpus: Rc<[(u16, u16)]> = places.iter().map(|place| (place.on.0, place.cpu)).collect();
        let rings = places.iter().map(|place| Ring::open(place, &cpus, pages, &points));
        let rings = rings.collect::<Result<_, _>>()?;
        let Points { fault, flush, write, .. } = points;
        Ok(Rings {
            rings,
            faults: fault.is_some(),
            flushes: flush.is_some(),
            writes: write.is_some(),
        })
    }

    /// Starts recording.
    pub fn enable(&mut self) -> io::Result<()> {
        self.rings.iter_mut().try_for_each(|ring| {
            ring.others.iter_mut().try_for_each(Counter::enable)?;
            ring.sampler.enable()
        })
    }

    /// Moves all records to `log`. Returns whether a ring was so full that records may be missing.
    pub fn drain(&mut self, log: &mut Vec<Raw>) -> bool {
        let mut full = false;
        for ring in &mut self.rings {
            full |= ring.drain(log);
        }
        full
    }

    /// Records lost so far, where the kernel counts them (`PERF_FORMAT_LOST`).
    pub fn lost(&mut self) -> Option<u64> {
        let mut total = 0;
        for ring in &mut self.rings {
            for counter in ring.others.iter_mut().chain([ring.sampler.as_counter_mut()]) {
                total += counter.read_full().ok()?.lost()?;
            }
        }
        Some(total)
    }
}

fn fault_source(tracefs: &Path) -> Result<(Tracepoint, Source), TracefsError> {
    let point = Tracepoint::find(tracefs, "exceptions", "page_fault_user")?;
    let source =
        Source::Fault { address: point.field("address")?, code: point.field("error_code")? };
    Ok((point, source))
}

fn flush_source(tracefs: &Path) -> Result<(Tracepoint, Source), TracefsError> {
    let point = Tracepoint::find(tracefs, "tlb", "tlb_flush")?;
    let source = Source::Flush { reason: point.field("reason")?, pages: point.field("pages")? };
    Ok((point, source))
}

/// The tracepoint of function calls on other CPUs. It names the CPU and the function from 6.4 on.
/// `Err`: why it shows nothing, for instance because the kernel has no such function (6.12 and
/// older without CONFIG_PARAVIRT).
fn sync_source(tracefs: &Path) -> Result<(Tracepoint, Source), String> {
    let point = Tracepoint::find(tracefs, "csd", "csd_queue_cpu").map_err(|e| e.to_string())?;
    let to = point.field("cpu").map_err(|error| error.to_string())?;
    let own = counter(TracepointEvent::with_id(point.id), 0, Whose::Thread(0), |_| {});
    let filtered = own.and_then(|calls| set_filter(&calls, TABLE_SYNC));
    filtered.map_err(|error| format!("the filter `{}`: {error}", TABLE_SYNC.to_string_lossy()))?;
    Ok((point, Source::TableSync { to }))
}

/// The tracepoint of a page that goes to swap. Its name changed in 6.0
/// (include/trace/events/vmscan.h).
fn write_source(tracefs: &Path) -> Option<(Tracepoint, Source)> {
    let names = ["mm_vmscan_write_folio", "mm_vmscan_writepage"];
    let point = names.iter().find_map(|name| Tracepoint::find(tracefs, "vmscan", name).ok())?;
    Some((point, Source::Write))
}

/// The tracepoint of time that the scheduler charges a task for (kernel/sched/fair.c:update_curr,
/// 5.10 to 7.3).
fn charge_source(tracefs: &Path) -> Option<(Tracepoint, Source)> {
    let point = Tracepoint::find(tracefs, "sched", "sched_stat_runtime").ok()?;
    Some((point, Source::Charge))
}

impl Ring {
    fn open(
        place: &Place,
        cpus: &Rc<[(u16, u16)]>,
        pages: u32,
        points: &Points,
    ) -> Result<Ring, PerfError> {
        let cpu = place.on.0;
        let capacity = pages as usize * needless_model::addr::PAGE_SIZE as usize;
        let failed = |event: &str, error| PerfError::Open { event: event.to_owned(), cpu, error };
        let leader = counter(Software::DUMMY, cpu, Whose::Everybodys, |builder| {
            builder.context_switch(true);
        })
        .map_err(|error| failed("context switches", error))?;
        let mut sources = vec![(leader.id(), Source::Switches)];
        let sampler = leader.sampled(capacity).map_err(|error| failed("the ring", error))?;

        let mut others = Vec::new();
        let mut add = |name: &str, source, counter: io::Result<Counter>| {
            let counter = counter.map_err(|error| failed(name, error))?;
            set_output(&counter, sampler.as_counter()).map_err(|error| failed(name, error))?;
            sources.push((counter.id(), source));
            others.push(counter);
            Ok::<(), PerfError>(())
        };
        if let Some((point, source)) = &points.flush {
            let event = TracepointEvent::with_id(point.id);
            add(&point.name, *source, counter(event, cpu, Whose::Everybodys, |_| {}))?;
        }
        if let Some((point, filter)) = &points.drain {
            let event = TracepointEvent::with_id(point.id);
            let works = counter(event, cpu, Whose::Everybodys, |_| {});
            let drains = works.and_then(|works| set_filter(&works, filter).map(|()| works));
            if let Ok(drains) = drains {
                add(&point.name, Source::Drain, Ok(drains))?;
            }
        }
        for thread in place.tids.iter().map(|tid| Whose::Thread(*tid)) {
            for (point, source) in points.fault.iter().chain(&points.write) {
                let event = TracepointEvent::with_id(point.id);
                add(&point.name, *source, counter(event, cpu, thread, |_| {}))?;
            }
            if let Some((point, source)) = &points.charge {
                // Without this, each charged nanosecond would make one record
                // (kernel/events/core.c:perf_swevent_event).
                let charges = counter(TracepointEvent::with_id(point.id), cpu, thread, |builder| {
                    builder.sample(SampleFlag::PERIOD);
                });
                add(&point.name, *source, charges)?;
            }
            if let Some((point, source)) = &points.sync {
                let calls = counter(TracepointEvent::with_id(point.id), cpu, thread, |_| {});
                let syncs = calls.and_then(|calls| set_filter(&calls, TABLE_SYNC).map(|()| calls));
                add(&point.name, *source, syncs)?;
            }
            let minor = counter(Software::PAGE_FAULTS_MIN, cpu, thread, |_| {});
            add("minor faults", Source::Minor, minor)?;
            let major = counter(Software::PAGE_FAULTS_MAJ, cpu, thread, |_| {});
            add("major faults", Source::Major, major)?;
        }
        let (cpu, cpus) = (place.cpu, cpus.clone());
        Ok(Ring { cpu, cpus, sampler, others, sources, capacity })
    }

    fn drain(&mut self, log: &mut Vec<Raw>) -> bool {
        let mut drained = 0;
        while let Some(record) = self.sampler.next_record() {
            drained += record.len() + 8;
            let mut bytes = [0; LARGEST];
            let read = gather(record.data(), &mut bytes)
                .and_then(|body| decode(record.ty(), record.misc(), body, self.cpu, &self.sources));
            match read {
                Some(raw) => log.extend(raw.and_then(|raw| renumbered(&self.cpus, raw))),
                None => log.push(unreadable(self.cpu)),
            }
        }
        drained + LARGEST > self.capacity
    }
}

/// The record with the scenario's numbers of CPUs; `None` if it names a CPU that the scenario does
/// not use. `cpus` has the machine's number of each CPU, and the scenario's number.
fn renumbered(cpus: &[(u16, u16)], raw: Raw) -> Option<Raw> {
    if raw.kind != Kind::TableSync {
        return Some(raw);
    }
    let (_, cpu) = cpus.iter().find(|(on, _)| u64::from(*on) == raw.value)?;
    Some(Raw { value: u64::from(*cpu), ..raw })
}

/// Opens one event on one CPU.
fn counter<E: Event>(
    event: E,
    cpu: u16,
    whose: Whose,
    more: impl FnOnce(&mut Builder<'_>),
) -> io::Result<Counter> {
    let mut builder = Builder::new(event);
    match whose {
        Whose::Everybodys => builder.any_pid(),
        // The processes that the thread forks are included.
        Whose::Thread(tid) => builder.observe_pid(tid).inherit(true),
    };
    builder
        .one_cpu(usize::from(cpu))
        .include_kernel()
        .sample_period(1)
        .sample(
            SampleFlag::IDENTIFIER
                | SampleFlag::TID
                | SampleFlag::TIME
                | SampleFlag::ADDR
                | SampleFlag::CPU
                | SampleFlag::RAW,
        )
        .sample_id_all(true)
        .clockid(Clock::MONOTONIC_RAW);
    more(&mut builder);
    builder.read_format(ReadFormat::LOST);
    // Kernels before 6.0 do not count lost records.
    builder.build().or_else(|_| builder.read_format(ReadFormat::empty()).build())
}

/// Puts together the parts of a record that wraps around the end of the ring.
fn gather<'a>(parts: &[&[u8]], room: &'a mut [u8; LARGEST]) -> Option<&'a [u8]> {
    let mut length = 0;
    for part in parts {
        room.get_mut(length..length + part.len())?.copy_from_slice(part);
        length += part.len();
    }
    Some(&room[..length])
}

/// Decodes a record: `Some(None)` if nothing is wanted from its type, `None` if it cannot be read.
fn decode(
    ty: u32,
    misc: u16,
    body: &[u8],
    cpu: u16,
    sources: &[(u64, Source)],
) -> Option<Option<Raw>> {
    let raw = match ty {
        PERF_RECORD_SAMPLE => sample(body, cpu, sources)?,
        PERF_RECORD_SWITCH_CPU_WIDE => switch(misc, body, cpu)?,
        PERF_RECORD_LOST => lost(word(body, 24)?, word(body, 8)?, cpu),
        // A throttled event is silent for a while. That counts as one lost record, because the
        // number of missing records is unknown.
        PERF_RECORD_THROTTLE => lost(word(body, 0)?, 1, cpu),
        _ => return Some(None),
    };
    Some(Some(raw))
}

fn lost(time: u64, records: u64, cpu: u16) -> Raw {
    Raw { time, value: records, extra: 0, tid: 0, cpu, kind: Kind::Lost }
}

/// A record that cannot be read counts as lost.
fn unreadable(cpu: u16) -> Raw {
    lost(crate::sys::now_ns(), 1, cpu)
}

/// A context switch. The body has the pid and tid of the other task, then those of the task that
/// leaves or comes.
fn switch(misc: u16, body: &[u8], cpu: u16) -> Option<Raw> {
    let (other, tid) = (half(body, 4)?, half(body, 12)?);
    let set = |bit: u32| u32::from(misc) & bit;
    let (kind, next) = match set(PERF_RECORD_MISC_SWITCH_OUT) {
        0 => (Kind::SwitchIn, tid),
        _ => (Kind::SwitchOut, other),
    };
    let extra = u64::from(set(PERF_RECORD_MISC_SWITCH_OUT_PREEMPT) != 0);
    Some(Raw { time: word(body, 16)?, value: u64::from(next), extra, tid: tid as i32, cpu, kind })
}

/// A sample: identifier, pid and tid, time, address, CPU, size of the raw part, raw part.
fn sample(body: &[u8], cpu: u16, sources: &[(u64, Source)]) -> Option<Raw> {
    let id = word(body, 0)?;
    let (_, source) = sources.iter().find(|(known, _)| *known == id)?;
    let fields = body.get(44..)?;
    let (kind, value, extra) = match source {
        Source::Fault { address, code } => (Kind::Fault, address.read(fields)?, code.read(fields)?),
        Source::Flush { reason, pages } => (Kind::Flush, pages.read(fields)?, reason.read(fields)?),
        Source::TableSync { to } => (Kind::TableSync, to.read(fields)?, 0),
        Source::Minor => (Kind::FaultDone, word(body, 24)?, 0),
        Source::Major => (Kind::FaultDone, word(body, 24)?, 1),
        Source::Write => (Kind::Write, 0, 0),
        Source::Drain => (Kind::Drained, 0, 0),
        Source::Charge => (Kind::Charged, 0, 0),
        Source::Switches => return None,
    };
    Some(Raw { time: word(body, 16)?, value, extra, tid: half(body, 12)? as i32, cpu, kind })
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

    #[test]
    fn a_flush_sample_is_read_by_its_format() {
        let field = |offset, size, signed| Field { offset, size, signed };
        let source = Source::Flush { reason: field(8, 4, true), pages: field(16, 8, false) };
        let mut body = vec![0; 44 + 24];
        body[0..8].copy_from_slice(&7_u64.to_le_bytes());
        body[12..16].copy_from_slice(&42_u32.to_le_bytes());
        body[16..24].copy_from_slice(&1000_u64.to_le_bytes());
        body[44 + 8] = 4;
        body[44 + 16..].copy_from_slice(&u64::MAX.to_le_bytes());
        let raw = sample(&body, 1, &[(7, source)]).unwrap();
        assert_eq!((raw.kind, raw.extra, raw.value), (Kind::Flush, 4, u64::MAX));
        assert_eq!((raw.time, raw.tid, raw.cpu), (1000, 42, 1));
        assert!(sample(&body, 1, &[(8, source)]).is_none());
        assert!(sample(&body[..50], 1, &[(7, source)]).is_none());
        let decoded = |ty, body| decode(ty, 0, body, 1, &[(7, source)]);
        assert_eq!(decoded(PERF_RECORD_SAMPLE, &body[..]), Some(Some(raw)));
        assert_eq!(decoded(PERF_RECORD_SAMPLE, &body[..50]), None, "not read is not nothing");
        assert_eq!(decoded(PERF_RECORD_LOST, &body[..20]), None);
        assert_eq!(decoded(9999, &[]), Some(None), "of another type");
    }

    #[test]
    fn wrapped_records_are_put_together() {
        let mut room = [0; LARGEST];
        assert_eq!(gather(&[&[1, 2], &[3]], &mut room), Some(&[1, 2, 3][..]));
        assert_eq!(gather(&[&[0; LARGEST], &[3]], &mut room), None);
    }
}

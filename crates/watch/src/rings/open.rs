//! How events are opened.

use super::Tasks;
use crate::session::Options;
use crate::sites;
use crate::tracepoints::{Extent, Found, Point, Ring as Which, Row};
use needless_runner::ioctl::set_filter;
use perf_event::events::{Event, Software, Tracepoint as TracepointEvent};
use perf_event::{Builder, Clock, Counter, ReadFormat, SampleFlag};
use std::ffi::CString;
use std::io;

/// The user's registers, and the top of the user's stack.
const USERS_STACK: SampleFlag = SampleFlag::REGS_USER.union(SampleFlag::STACK_USER);

/// Frames of a stack that tells what is waited for.
const DEEPEST: u16 = 32;

/// False for the event of a thread that has ended since it was found: others go on.
pub(super) fn there(opened: &io::Result<Counter>) -> bool {
    !matches!(opened, Err(error) if error.raw_os_error() == Some(libc::ESRCH))
}

/// Lets only some of a tracepoint's events through.
fn filtered(counter: Counter, filter: Option<String>) -> io::Result<Counter> {
    let Some(filter) = filter else { return Ok(counter) };
    set_filter(&counter, &CString::new(filter)?)?;
    Ok(counter)
}

/// How the events of one ring are opened.
pub(super) struct Open<'a> {
    cpu: u16,
    starting: bool,
    /// A wake-up of who reads interrupts the CPU (kernel/events/ring_buffer.c: perf_output_wakeup):
    /// of CPUs that are guarded as seldom as can be.
    watermark: usize,
    options: &'a Options,
}

impl Tasks {
    /// Whose events to open: no process is every task.
    pub(super) fn pids(&self) -> Vec<Option<i32>> {
        match self {
            Tasks::Starting(pid) => vec![Some(*pid)],
            Tasks::Running(tids) => tids.iter().copied().map(Some).collect(),
            Tasks::All | Tasks::Nobody => vec![None],
        }
    }
}

impl<'a> Open<'a> {
    pub(super) fn new(cpu: u16, tasks: &Tasks, options: &'a Options) -> Open<'a> {
        let watermark = match options.extent {
            Extent::Guard(_) => options.ring_bytes,
            Extent::Programs | Extent::EveryInterrupt => options.ring_bytes / 4,
        };
        Open { cpu, starting: matches!(tasks, Tasks::Starting(_)), watermark, options }
    }

    pub(super) fn point(&self, row: &Row, found: &Found, pid: Option<i32>) -> io::Result<Counter> {
        let event = TracepointEvent::with_id(found.id);
        let stacks = row.point == Point::Enter && cfg!(target_arch = "x86_64");
        let also = if stacks { SampleFlag::RAW | USERS_STACK } else { SampleFlag::RAW };
        let counter = self.counter(event, pid, also, |builder| {
            if row.ring == Which::Frees {
                builder.enable_on_exec(false);
            }
            if stacks {
                builder.sample_regs_user(sites::REGISTERS);
                builder.sample_stack_user(sites::CALL_STACK_BYTES);
            }
        })?;
        filtered(counter, (row.filter)(&self.options.extent))
    }

    /// The stacks of whoever takes faults, at most so many a second.
    pub(super) fn sites(&self, fault: &Found, pid: Option<i32>) -> io::Result<Counter> {
        let event = TracepointEvent::with_id(fault.id);
        self.counter(event, pid, USERS_STACK, |builder| {
            // Begins when the program's own code does, so that its loader takes no samples.
            builder.enable_on_exec(false);
            builder.sample_frequency(sites::PER_SECOND);
            builder.sample_regs_user(sites::REGISTERS).sample_stack_user(sites::STACK_BYTES);
        })
    }

    pub(super) fn fault_done(&self, event: Software, pid: Option<i32>) -> io::Result<Counter> {
        self.counter(event, pid, SampleFlag::ADDR, |_| {})
    }

    /// The kernel's stack where tasks leave their CPU (kernel/sched/core.c: prepare_task_switch, in
    /// the task that leaves).
    pub(super) fn leaves(&self, pid: Option<i32>) -> io::Result<Counter> {
        self.counter(Software::CONTEXT_SWITCHES, pid, SampleFlag::CALLCHAIN, |builder| {
            builder.exclude_callchain_user(true).sample_max_stack(DEEPEST);
        })
    }

    /// The event that owns a ring. That of the main ring tells names, mappings, births, deaths.
    pub(super) fn tasks(&self, pid: Option<i32>, which: Which) -> io::Result<Counter> {
        let main = which == Which::Main;
        let maps = main && !matches!(self.options.extent, Extent::Guard(_));
        self.counter(Software::DUMMY, pid, SampleFlag::empty(), |builder| {
            builder.task(main).comm(main).comm_exec(main).mmap(maps).mmap2(maps).mmap_data(maps);
            builder.context_switch(main && self.options.waits);
            builder.wakeup_watermark(self.watermark);
        })
    }

    fn counter<E: Event>(
        &self,
        event: E,
        pid: Option<i32>,
        also: SampleFlag,
        more: impl FnOnce(&mut Builder<'_>),
    ) -> io::Result<Counter> {
        let mut builder = Builder::new(event);
        match pid {
            None => builder.any_pid(),
            Some(pid) => builder.observe_pid(pid).inherit(true).enable_on_exec(self.starting),
        };
        builder
            .one_cpu(usize::from(self.cpu))
            .include_kernel()
            .sample_period(1)
            .sample(SampleFlag::IDENTIFIER | SampleFlag::TID | SampleFlag::TIME | also)
            .sample_id_all(true)
            .clockid(Clock::MONOTONIC_RAW);
        more(&mut builder);
        builder.read_format(ReadFormat::LOST);
        // Kernels before 6.0 do not count lost records.
        builder.build().or_else(|_| builder.read_format(ReadFormat::empty()).build())
    }
}

//! The second start of the runner: runs the scenario and reports.

use crate::exec::Worker;
use crate::files::Files;
use crate::log::Log;
use crate::perf::{Place, Rings};
use crate::processes::Processes;
use crate::rounds::attempt_limit;
use crate::run::Run;
use crate::team::Team;
use crate::userfaultfd;
use crate::vmstat::Counters;
use crate::wire::{self, Failure, FailureKind, Message, PROTOCOL_VERSION, Summary};
use crate::witness::Watch;
use crate::{
    crash, decode, lru, numa, pagemap, pages, processes, shared, start, sys, threads, validate,
};
use needless_model::addr::{CpuId, ProcessId};
use needless_model::call::CallExpr;
use needless_model::counters::Counter;
use needless_model::numa::Mempolicy;
use needless_model::program::{Op, OpKind, Thread, all_ops};
use needless_model::run::{Round, RunRequest};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::fd::FromRawFd;

/// Bytes of heap that the start is likely to use. Bytes that are set aside in the end for use
/// between rounds: at least, and for each attempt at a round.
const HEADROOM: usize = 2 << 20;
const ROUNDS_HEADROOM: usize = 256 << 10;
const ATTEMPT_HEADROOM: usize = 2 << 10;

/// What no real kernel shows to the runner, with the reason.
const NEVER_SEEN: [(&str, &str); 4] = [
    ("retries", "the kernel has no event for a fault that is tried again"),
    ("zeroings", "the kernel has no event for zeroing a page"),
    ("frees", "events of frames are not recorded"),
    ("may_cache", "no CPU tells what its TLB holds"),
];

/// Runs the request in memory file `descriptor`. The address space was made after `made_after`
/// (nanoseconds of the events' clock).
pub fn run(descriptor: &str, made_after: &str) -> Result<(), Failure> {
    let made_after = made_after.parse().unwrap_or(0);
    let request = inherited_request(descriptor)?;
    validate::check(&request.program, start::cpus(&request), start::online_nodes())?;
    let sized = request.ring_pages.is_power_of_two() && request.ring_pages <= 1 << 16;
    if !sized && request.ring_pages != 0 {
        let what = format!("a ring of {} pages: not a power of two", request.ring_pages);
        return Err(Failure::new(FailureKind::BadRequest, what));
    }
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    send(&Message::Hello { version: PROTOCOL_VERSION, release })?;

    // The process was executed as /proc/self/exe, so its name would be `exe`.
    let _ = rustix::thread::set_name(c"needless-runner");
    take_priority();
    // Clearing soft-dirty bits would flush a huge page of the runner by itself.
    let small_pages = request.program.clears_soft_dirty();
    if small_pages {
        sys::disable_huge_pages(true)?;
    }
    let rounds = planned_rounds(&request.program.threads[0].body);
    sys::tame_allocator(HEADROOM);
    let mut unseen: BTreeMap<_, _> =
        NEVER_SEEN.iter().map(|(name, why)| ((*name).to_owned(), (*why).to_owned())).collect();
    let run = assemble(&request, rounds, &mut unseen)?;
    note_missing_counters(&mut unseen);
    let mut watch = watch(run, &request, made_after, &mut unseen)?;
    // Pages that are touched later go to the LRU batch of this CPU, which must have only the
    // scenario's pages.
    let attempts = (attempt_limit(rounds as u32) as usize).min(1 << 13);
    sys::warm_heap(ROUNDS_HEADROOM + attempts * ATTEMPT_HEADROOM);
    // From here on, the watch records other users of that batch.
    run.renew(Some(&mut watch));
    if numa::reclaims(&run.program) {
        numa::lock_own_memory().map_err(|error| Failure::internal("mlockall", &error))?;
    }
    lru::map_spare(0)?;
    let tables = pages::page_tables();
    let mut worker = Worker::new(run, 0, Some(&mut watch));
    lru::drain(0)?;
    if small_pages {
        sys::disable_huge_pages(false)?;
    }
    let outcome = worker.work().and_then(|()| finish(run, watch, unseen, tables));
    run.team.end_all();
    outcome
}

/// Notes missing counters of swapped pages. Only the kernel counts these pages.
fn note_missing_counters(unseen: &mut BTreeMap<String, String>) {
    let counters = Counters::open();
    for (line, name) in [("pswpin", "pages_in"), ("pswpout", "pages_out")] {
        if !counters.names().contains(&line) {
            unseen.insert(name.to_owned(), format!("/proc/vmstat has no line {line} here"));
        }
    }
}

/// Takes the highest priority among ordinary tasks. With autogroup, sessions share the CPUs evenly
/// whatever the priorities inside them. So the process also takes a session of its own. If the
/// kernel refuses, the run is only disturbed more often.
fn take_priority() {
    let _ = rustix::process::setsid();
    let _ = rustix::process::setpriority_process(None, -20);
    let _ = std::fs::write("/proc/self/autogroup", "-20");
}

fn inherited_request(descriptor: &str) -> Result<RunRequest, Failure> {
    let number = descriptor.parse().ok().filter(|number: &i32| *number > 2).ok_or_else(|| {
        Failure::new(FailureKind::BadRequest, format!("`{descriptor}` is no descriptor"))
    })?;
    // SAFETY: the first start left this descriptor open for this process alone. If the number is
    // made up, the reads below fail.
    let mut file = unsafe { File::from_raw_fd(number) };
    file.seek(SeekFrom::Start(0)).map_err(|e| Failure::internal("the kept request", &e))?;
    wire::read_request(&mut file)
}

/// The figure that includes the runner's own faults if the scenario clears soft-dirty bits.
const MINOR_FAULTS: &str = Counter::MinorFaults.name();

/// Starts the threads and waits until each is ready for the first turn.
fn assemble(
    request: &RunRequest,
    rounds: usize,
    unseen: &mut BTreeMap<String, String>,
) -> Result<&'static Run, Failure> {
    let program = request.program.clone();
    if program.clears_soft_dirty() {
        let why = "clear-refs of=\"soft-dirty\" makes the runner's own pages fault, too";
        unseen.insert(MINOR_FAULTS.to_owned(), why.to_owned());
    }
    let events = request.events && events_possible(request, unseen)?;
    let log = Log::new(events, rounds);
    let (team, alike_from) = (Team::new(&program), request.alike_from);
    let cpus: Vec<CpuId> = program.threads.iter().map(|thread| request.cpu(thread.cpu)).collect();
    let processes = Processes::new(&program, cpus.clone());
    let files = Files::make(&program.files, request.disk.as_deref())?;
    let run = Run { program, alike_from, team, log: log.into(), files, processes };
    let run: &'static Run = Box::leak(Box::new(run));
    crash::install(&run.program).map_err(|error| Failure::internal("sigaction", &error))?;
    let serves = run.program.threads.iter().any(|thread| thread.serves().is_some());
    if let Some(features) = run.program.userfaultfd() {
        userfaultfd::prepare(features, serves)
            .map_err(|error| Failure::internal("userfaultfd", &error))?;
    }
    numa::prepare(&run.program);
    if run.program.reads_soft_dirty() {
        pagemap::prepare().map_err(|error| Failure::internal("pagemap", &error))?;
    }
    let forks = processes::several(&run.program);
    if forks {
        processes::prepare(run)?;
    }
    for (me, cpu) in cpus.into_iter().enumerate().skip(1) {
        if run.program.threads[me].process != ProcessId::FIRST {
            processes::make_room(run, me)?;
            continue;
        }
        let body = move || follow(run, me, cpu);
        let started = match forks {
            true => threads::spawn(body),
            false => std::thread::Builder::new().stack_size(threads::STACK).spawn(body).map(drop),
        };
        started.map_err(|error| Failure::internal("starting a thread", &error))?;
    }
    shared::load_text().map_err(|error| Failure::internal("the program's text", &error))?;
    sys::prefault_stack();
    run.team.report(0);
    run.team.assemble(&run.program)?;
    Ok(run)
}

/// Runs a thread other than the first. It never ends, because an ending thread would unmap its
/// stack.
fn follow(run: &'static Run, me: usize, cpu: CpuId) {
    let outcome = sys::pin(cpu)
        .map_err(|error| Failure::internal(&format!("pinning to {cpu}"), &error))
        .and_then(|()| {
            sys::prefault_stack();
            let mut worker = Worker::new(run, me, None);
            if numa::scans(&run.program) && run.program.threads[me].only_holds() {
                numa::set_mempolicy(Mempolicy::Local)
                    .map_err(|error| Failure::internal("set_mempolicy", &error))?;
            }
            lru::map_spare(me)?;
            lru::drain(me)?;
            run.team.report(me);
            worker.work()
        });
    if let Err(failure) = outcome {
        let status = i32::from(failure.exit_status());
        failure.send();
        std::process::exit(status);
    }
    loop {
        std::thread::park();
    }
}

/// The figures that need events.
const OF_EVENTS: [&str; 6] =
    ["events", "faults_by_class", "copies", "flushes", "shootdowns", "interrupts"];

/// Whether events can be recorded. If not, `unseen` gets the reason. A limit on this process is an
/// error.
fn events_possible(
    request: &RunRequest,
    unseen: &mut BTreeMap<String, String>,
) -> Result<bool, Failure> {
    let mut none = |why: &str| {
        for name in OF_EVENTS {
            unseen.insert(name.to_owned(), why.to_owned());
        }
        Ok(false)
    };
    if request.ring_pages == 0 {
        return none("asked to run without events");
    }
    // Opening and closing rings early shows whether events can be recorded. Otherwise memory would
    // be set aside for nothing.
    match Rings::open(&[Place { cpu: 0, on: CpuId(0), tids: vec![0] }], 1, &mut BTreeMap::new()) {
        Ok(_) => Ok(true),
        Err(error) if error.is_of_a_limit() => {
            Err(Failure::new(FailureKind::Internal, error.to_string()))
        }
        Err(error) => none(&error.to_string()),
    }
}

fn watch(
    run: &Run,
    request: &RunRequest,
    made_after: u64,
    unseen: &mut BTreeMap<String, String>,
) -> Result<Watch, Failure> {
    let mut rings = None;
    if request.events && run.log().events {
        let mut opened = Rings::open(&places(run, request), request.ring_pages, unseen)
            .map_err(|error| Failure::new(FailureKind::Internal, error.to_string()))?;
        opened.enable().map_err(|error| Failure::internal("starting the rings", &error))?;
        rings = Some(opened);
    }
    Ok(Watch::new(&run.program, run.team.tids(), request.events, rings, made_after))
}

/// The scenario's CPUs, and the tasks to watch on each. If processes are forked to a CPU, the tasks
/// that may fork are watched there, together with their children.
fn places(run: &Run, request: &RunRequest) -> Vec<Place> {
    let threads = || run.program.threads.iter().zip(run.team.tids());
    let first = || threads().filter(|(thread, _)| thread.process == ProcessId::FIRST);
    let forks = |thread: &Thread| all_ops(&thread.body).any(|op| forks(&op.kind));
    let mut places: BTreeMap<u16, Vec<i32>> = BTreeMap::new();
    for (thread, tid) in threads() {
        let watched = places.entry(thread.cpu.0).or_default();
        if thread.process == ProcessId::FIRST {
            watched.push(tid);
        } else {
            watched.extend(first().filter(|(parent, _)| forks(parent)).map(|(_, tid)| tid));
        }
    }
    let place = |(cpu, mut tids): (u16, Vec<i32>)| {
        tids.sort_unstable();
        tids.dedup();
        Place { cpu, on: request.cpu(CpuId(cpu)), tids }
    };
    places.into_iter().map(place).collect()
}

fn forks(op: &OpKind) -> bool {
    matches!(op, OpKind::Call(CallExpr::Fork { .. }))
}

fn planned_rounds(body: &[Op]) -> usize {
    let rounds = all_ops(body).filter_map(|op| match op.kind {
        OpKind::Rounds { warmup, count, .. } => Some(warmup as usize + count as usize),
        _ => None,
    });
    rounds.sum::<usize>().min(1 << 20)
}

fn finish(
    run: &Run,
    mut watch: Watch,
    mut unseen: BTreeMap<String, String>,
    tables_before: Option<u64>,
) -> Result<(), Failure> {
    let page_tables = pages::page_tables().zip(tables_before);
    let page_tables = page_tables.map(|(now, before)| now.saturating_sub(before));
    let final_pages = pages::final_pages(run).unwrap_or_else(|reason| {
        unseen.insert("final_pages".to_owned(), reason);
        BTreeMap::new()
    });
    let drift = watch.drift();
    let mut log = run.log();
    let names = watch.counter_names();
    let mut rounds =
        decode::rounds(&run.program, &mut log, &run.team.tids(), watch.sees_flushes(), names);
    if unseen.contains_key(MINOR_FAULTS) {
        rounds.iter_mut().for_each(|round| round.minor_faults = None);
    }
    rounds.into_iter().try_for_each(|round: Round| send(&Message::Round(round)))?;
    send(&Message::Done(Summary {
        final_pages,
        page_tables,
        witness: watch.witness,
        unseen,
        drift,
        gave_up: watch.gave_up,
    }))
}

fn send(message: &Message) -> Result<(), Failure> {
    wire::write_message(&mut io::stdout().lock(), message)
        .map_err(|error| Failure::internal("writing the result", &error))
}

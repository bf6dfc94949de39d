//! Processes that the scenario forks: real ones.
//!
//! The task that `clone` makes executes the runner's own code, on a copy of the scenario's areas.
//! It shares all other memory with its parent ([`crate::shared`]). So it is a thread of the runner
//! with an address space of its own. Its stack and its thread-local storage are set aside
//! beforehand. The storage is that of a thread which does nothing else.
//!
//! The parent pins the child to its CPU before the child runs, so that the child's address space is
//! loaded on no other CPU. The parent goes on when the child is ready for its first turn. By then
//! the child has accessed all of the runner's memory that it will need, and its figures begin. A
//! child dies with the first process, whatever happens. Its own children are its siblings.

use crate::exec::Worker;
use crate::lock::Lock;
use crate::run::Run;
use crate::shared::{self, HeapEnd, Ours, Stretch};
use crate::team::Rest;
use crate::wire::{Failure, FailureKind};
use crate::{image, lru, sys, threads, witness};
use needless_model::addr::{CpuId, PageRange, ProcessId, Vpn};
use needless_model::program::Program;
use rustix::process::Signal;
use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

/// The most that the heap may grow by while processes live. They do not see memory that is mapped
/// then.
const HEAP_ROOM: usize = 256 << 20;

/// The run that processes are forked in.
static RUN: OnceLock<&'static Run> = OnceLock::new();

/// The memory of a process. Later processes of the same thread reuse it.
struct Room {
    /// The upper end of its stack.
    stack: AtomicUsize,
    /// Its thread-local storage.
    storage: AtomicUsize,
    /// The loop slots of its thread.
    slots: Lock<Vec<i64>>,
    /// Whether a process has used it.
    used: AtomicBool,
}

/// The processes of a run.
pub struct Processes {
    /// The process id of the first process.
    first: u32,
    /// One room for each thread; threads of the first process do not use theirs.
    rooms: Vec<Room>,
    /// The machine's CPU of each thread.
    cpus: Vec<CpuId>,
    heap: Lock<HeapEnd>,
    /// The part of the runner's memory that is in use.
    ours: Lock<Vec<Ours>>,
}

impl Processes {
    /// The processes of `program`, whose threads run on `cpus`.
    pub fn new(program: &Program, cpus: Vec<CpuId>) -> Processes {
        let room = |_: &_| Room {
            stack: AtomicUsize::new(0),
            storage: AtomicUsize::new(0),
            slots: Lock::new(vec![0; usize::from(program.slots)]),
            used: AtomicBool::new(false),
        };
        Processes {
            first: std::process::id(),
            rooms: program.threads.iter().map(room).collect(),
            cpus,
            heap: HeapEnd::now().into(),
            ours: Lock::new(Vec::new()),
        }
    }
}

/// Whether a program has more than one process.
pub fn several(program: &Program) -> bool {
    program.processes.len() > 1
}

fn not_shared(error: io::Error) -> Failure {
    Failure::internal("sharing the runner's memory between processes", &error)
}

/// Prepares for forks: shares the runner's memory. Called while there is one thread.
pub fn prepare(run: &'static Run) -> Result<(), Failure> {
    let _ = RUN.set(run);
    sys::deepen_stack();
    shared::share_all().map_err(not_shared)?;
    let mut heap = run.processes.heap.lock();
    *heap = HeapEnd::now();
    sys::widen_heap(HEAP_ROOM);
    match heap.follow().map_err(not_shared)? {
        true => Ok(()),
        // A position-independent executable may lie below the stack where addresses are not
        // randomized, with its heap between them (seen on 5.10; not on 6.18). The allocator would
        // then map more memory elsewhere, and that memory would not be shared.
        false => {
            let what = "the heap of needless-runner cannot grow here: build it at a fixed address (`-C relocation-model=static`), as `make native` does";
            Err(Failure::new(FailureKind::Unsupported, what))
        }
    }
}

/// Sets memory aside for the process whose thread is `index`.
pub fn make_room(run: &'static Run, index: usize) -> Result<(), Failure> {
    let failed = |error| Failure::internal("setting memory aside for a process", &error);
    let room = &run.processes.rooms[index];
    let stack = threads::stack().map_err(failed)?;
    room.stack.store(stack as usize + threads::STACK, Ordering::Release);
    let donor = || loop {
        room.storage.store(threads::local_storage(), Ordering::Release);
        sys::futex_wait(&NEVER, 0, None);
    };
    threads::spawn(donor).map_err(failed)?;
    while room.storage.load(Ordering::Acquire) == 0 {
        sys::sleep(Duration::from_micros(50));
    }
    lru::map_spare(index)
}

/// Threads that sleep on this are never woken.
static NEVER: AtomicU32 = AtomicU32::new(0);

/// Called before each round. Shares what was added to the heap.
pub fn settle(run: &Run) -> Result<(), Failure> {
    let grown = run.processes.heap.lock().follow().map_err(not_shared)?;
    if grown && run.team.any_lives() {
        let what = "the run has more events than there is room for while processes live on from round to round: ask for fewer rounds";
        return Err(Failure::new(FailureKind::Unsupported, what));
    }
    let mut ours = run.processes.ours.lock();
    if grown || ours.is_empty() {
        *ours = shared::ours(|place| not_ours(&run.program, place)).map_err(not_shared)?;
        shared::activate(&ours).map_err(not_shared)?;
        lru::drain(0)?;
    }
    Ok(())
}

/// Whether a mapping is the scenario's, or one that forked processes do not need.
fn not_ours(program: &Program, (start, end): Stretch) -> bool {
    let page = |address: usize| Vpn::containing(address as u64);
    let range = PageRange { start: page(start), end: page(end) };
    let scenarios = program.areas.iter().any(|area| area.range.overlaps(range));
    scenarios || lru::is_spare(range) || witness::is_sentinel(range)
}

/// Forks the process of thread `child`, on thread `me`. Returns the child's task id once the child
/// is ready for its first turn. Calls `done` as soon as the system call is over.
pub fn fork(
    run: &'static Run,
    me: usize,
    child: usize,
    done: impl FnOnce(),
) -> Result<i32, ForkError> {
    run.team.expect(child);
    // If the kernel allows this policy, no other task takes the parent's CPU until the child has
    // left it.
    schedule(libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, 1);
    let born = clone(run, me, child);
    let pinned = born.as_ref().map(|pid| {
        run.team.is(child, *pid);
        sys::pin_task(*pid, run.processes.cpus[child])
    });
    schedule(libc::SCHED_OTHER, 0);
    done();
    match pinned {
        Ok(Ok(())) => {}
        Ok(Err(error)) => return Err(ForkError::Pin(run.processes.cpus[child], error)),
        Err(error) => {
            run.team.expect_no_more(child);
            return Err(ForkError::Refused(io::Error::from_raw_os_error(
                error.raw_os_error().unwrap_or(libc::EAGAIN),
            )));
        }
    }
    while run.team.rest(child) == Rest::Starting {
        if me == 0 {
            run.team.look_after_processes(&run.program).map_err(ForkError::Died)?;
        }
        if run.team.alone_on_cpu(child) {
            std::hint::spin_loop();
        } else {
            sys::sleep(Duration::from_micros(20));
        }
    }
    run.team.enqueue(child);
    born.map_err(ForkError::Refused)
}

/// Why a fork made no child.
pub enum ForkError {
    /// The kernel refused the fork.
    Refused(io::Error),
    /// The child could not be pinned to its CPU.
    Pin(CpuId, io::Error),
    /// The child died before its first turn.
    Died(Failure),
}

/// Sets the calling thread's scheduling policy, if the kernel allows it.
fn schedule(policy: i32, priority: i32) {
    let parameter = libc::sched_param { sched_priority: priority };
    // SAFETY: the parameter is valid.
    unsafe { libc::sched_setscheduler(0, policy, &parameter) };
}

fn clone(run: &'static Run, me: usize, child: usize) -> io::Result<i32> {
    let room = &run.processes.rooms[child];
    let sibling = match run.program.threads[me].process == ProcessId::FIRST {
        true => 0,
        false => libc::CLONE_PARENT,
    };
    let flags = libc::SIGCHLD | libc::CLONE_SETTLS | sibling;
    let stack = room.stack.load(Ordering::Acquire) as *mut libc::c_void;
    let storage = room.storage.load(Ordering::Acquire);
    let nobody = std::ptr::null_mut::<libc::pid_t>();
    // SAFETY: the stack and the storage are the child's alone, and no process uses them now. `born`
    // refers only to memory that the child shares.
    let pid = unsafe {
        libc::clone(born, stack, flags, child as *mut libc::c_void, nobody, storage, nobody)
    };
    if pid < 0 { Err(io::Error::last_os_error()) } else { Ok(pid) }
}

/// The code of a forked process, from its first step to its end.
extern "C" fn born(thread: *mut libc::c_void) -> i32 {
    let status = match RUN.get() {
        Some(run) => live(run, thread as usize),
        None => 1,
    };
    // SAFETY: `_exit` ends this process alone. Shared memory stays as it is.
    unsafe { libc::_exit(status) }
}

fn live(run: &'static Run, me: usize) -> i32 {
    let room = &run.processes.rooms[me];
    let slots = std::mem::take(&mut *room.slots.lock());
    let first = !room.used.swap(true, Ordering::AcqRel);
    let mut worker = Worker::of_process(run, me, slots, first);
    let outcome = begin(run).and_then(|()| {
        worker.starts();
        run.team.report(me);
        worker.work()
    });
    let execs = worker.execs();
    *room.slots.lock() = worker.slots();
    match outcome {
        Ok(()) if execs => image::execute(run, me),
        Ok(()) if run.team.finished() => loop {
            // The first process still has to read the state of this process's pages.
            sys::futex_wait(&NEVER, 0, None);
        },
        Ok(()) => 0,
        Err(failure) => {
            let status = failure.exit_status();
            run.team.fail(failure);
            status.into()
        }
    }
}

/// Makes the process die with the first one, and accesses all memory that it will need.
fn begin(run: &Run) -> Result<(), Failure> {
    let failed = |error: rustix::io::Errno| Failure::internal("binding a process", &error.into());
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).map_err(failed)?;
    if rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get() as u32)
        != Some(run.processes.first)
    {
        return Err(Failure::new(FailureKind::Internal, "the first process is gone"));
    }
    let _ = rustix::process::setpriority_process(None, -20);
    let (log, soon) = run.log().place();
    for &Ours { place: (start, end), writable } in run.processes.ours.lock().iter() {
        // Of the log's memory, it visits only the part that will be written next.
        shared::visit((start, end.min(log.0)), writable);
        shared::visit((start.max(log.1), end), writable);
    }
    shared::visit(soon, true);
    sys::now_ns();
    Ok(())
}

/// Hands a failure over to the first process, and returns `None`. In the first process, returns the
/// failure.
pub fn tell_of(failure: Failure) -> Option<Failure> {
    match RUN.get().filter(|run| run.processes.first != std::process::id()) {
        Some(run) => {
            run.team.fail(failure);
            None
        }
        None => Some(failure),
    }
}

//! Processes that the scenario forks: real ones.
//!
//! What a process does is the runner's own text, carried out by the task that `clone` made, on a copy of the
//! scenario's areas. All else it shares with the process that it comes from ([`crate::shared`]): it is a thread of the
//! runner's with an address space of its own. Its stack and its thread-local storage are set aside beforehand, the
//! latter that of a thread which does nothing else.
//!
//! Whoever forks gets the child to its CPU before it runs, so that its address space has been on no other one, and
//! goes on when it is ready for its first turn: by then it has come to all of our memory that it will need, and its
//! figures start. It dies with the first process, whatever happens; those that it forks are its siblings.

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

/// What the heap may grow by while processes live, which do not see what is mapped then.
const HEAP_ROOM: usize = 256 << 20;

/// The run that processes are born into.
static RUN: OnceLock<&'static Run> = OnceLock::new();

/// Memory that a process lives in, and those after it that the same thread is of.
struct Room {
    /// The upper end of its stack.
    stack: AtomicUsize,
    /// Its thread-local storage.
    storage: AtomicUsize,
    /// The loop slots of its thread.
    slots: Lock<Vec<i64>>,
    /// Whether a process has lived there.
    used: AtomicBool,
}

/// The processes of a run.
pub struct Processes {
    /// The first one.
    first: u32,
    /// By thread; those of the first process use none.
    rooms: Vec<Room>,
    /// The machine's CPU of each thread.
    cpus: Vec<CpuId>,
    heap: Lock<HeapEnd>,
    /// Our memory that is in use.
    ours: Lock<Vec<Ours>>,
}

impl Processes {
    /// Those of `program`, whose threads run on `cpus`.
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

/// Whether a program has others than the first process.
pub fn several(program: &Program) -> bool {
    program.processes.len() > 1
}

fn not_shared(error: io::Error) -> Failure {
    Failure::internal("sharing the runner's memory between processes", &error)
}

/// Prepares for forks: shares our memory. Called before there are other threads.
pub fn prepare(run: &'static Run) -> Result<(), Failure> {
    let _ = RUN.set(run);
    sys::deepen_stack();
    shared::share_all().map_err(not_shared)?;
    let mut heap = run.processes.heap.lock();
    *heap = HeapEnd::now();
    sys::widen_heap(HEAP_ROOM);
    match heap.follow().map_err(not_shared)? {
        true => Ok(()),
        // An executable that may lie anywhere lies below the stack where addresses are not randomized, with its heap between them
        // (seen on 5.10; not on 6.18): the allocator would map more elsewhere, where nothing is shared.
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

/// Nobody wakes those who sleep on this.
static NEVER: AtomicU32 = AtomicU32::new(0);

/// Called before each round: what was added to the heap is shared, too.
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

/// Whether a mapping is the scenario's, or one that processes have no use for.
fn not_ours(program: &Program, (start, end): Stretch) -> bool {
    let page = |address: usize| Vpn::containing(address as u64);
    let range = PageRange { start: page(start), end: page(end) };
    let scenarios = program.areas.iter().any(|area| area.range.overlaps(range));
    scenarios || lru::is_spare(range) || witness::is_sentinel(range)
}

/// On thread `me` forks the process of thread `child`; its task, once it is ready for its first turn. `done` is called as soon as
/// the call is over.
pub fn fork(
    run: &'static Run,
    me: usize,
    child: usize,
    done: impl FnOnce(),
) -> Result<i32, ForkError> {
    run.team.expect(child);
    // Nobody takes the parent's CPU until the child is away from it, where the kernel lets us.
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

/// Why there is no child.
pub enum ForkError {
    /// The kernel makes none.
    Refused(io::Error),
    /// It cannot be where it should.
    Pin(CpuId, io::Error),
    /// It did not live to its first turn.
    Died(Failure),
}

/// Sets the calling thread's scheduling policy, if it may.
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
    // SAFETY: the stack and the storage are the child's alone, and no process uses them now; what `born` refers to is in
    // memory that the child shares.
    let pid = unsafe {
        libc::clone(born, stack, flags, child as *mut libc::c_void, nobody, storage, nobody)
    };
    if pid < 0 { Err(io::Error::last_os_error()) } else { Ok(pid) }
}

/// The process that was born, from its first step to its end.
extern "C" fn born(thread: *mut libc::c_void) -> i32 {
    let status = match RUN.get() {
        Some(run) => live(run, thread as usize),
        None => 1,
    };
    // SAFETY: ends this process alone; what it shares stays as it is.
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
            // Its pages are still to be looked at.
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

/// Binds the process's life to that of the first one, and comes to all that it will need.
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
        // Of the log only where it goes on.
        shared::visit((start, end.min(log.0)), writable);
        shared::visit((start.max(log.1), end), writable);
    }
    shared::visit(soon, true);
    sys::now_ns();
    Ok(())
}

/// A failure that the first process is to tell of: `None` if this is another one, which has handed it over.
pub fn tell_of(failure: Failure) -> Option<Failure> {
    match RUN.get().filter(|run| run.processes.first != std::process::id()) {
        Some(run) => {
            run.team.fail(failure);
            None
        }
        None => Some(failure),
    }
}

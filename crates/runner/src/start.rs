//! The first start of the runner: becomes a process whose address space has been loaded on one CPU
//! only.
//!
//! A CPU stays in `mm_cpumask` until something makes it leave. So the process pins itself and
//! executes itself. The new address space starts on the CPU of the scenario's first thread. Only
//! the scenario's own threads load it on other CPUs.

use crate::wire::{self, Failure, FailureKind};
use crate::{numa, sys, validate};
use needless_model::run::RunRequest;
use rustix::fs::MemfdFlags;
use std::ffi::CString;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::IntoRawFd;

/// Reads the request, pins the process, and executes the runner again. Returns only on failure.
pub fn first_start() -> Result<(), Failure> {
    die_with_parent();
    survive_size_limits();
    let request = wire::read_request(&mut io::stdin().lock())?;
    validate::check(&request.program, cpus(&request), online_nodes())?;
    if numa::reclaims(&request.program) {
        join_cgroup()?;
    }
    let internal = |what: &'static str| move |error: io::Error| Failure::internal(what, &error);

    let cpu = request.cpu(request.program.threads[0].cpu);
    sys::pin(cpu).map_err(|error| Failure {
        kind: FailureKind::Unsupported,
        ..Failure::internal(&format!("pinning to {cpu}"), &error)
    })?;
    let memory = rustix::fs::memfd_create(c"request", MemfdFlags::empty())
        .map_err(|error| Failure::internal("memfd_create", &error.into()))?;
    let mut file = File::from(memory);
    wire::write_message(&mut file, &request).map_err(internal("keeping the request"))?;
    file.flush().map_err(internal("keeping the request"))?;
    no_randomization();
    Err(Failure::internal("executing the runner again", &execute_again(file.into_raw_fd())))
}

/// Joins the cgroup whose memory the scenario reclaims. The cgroup exists already.
fn join_cgroup() -> Result<(), Failure> {
    if !numa::has_reclaim() {
        let what = "memory-reclaim needs a cgroup with memory.reclaim (5.19 and later): booted kernels (-t kernel:6.12) get one, but `live` does not";
        return Err(Failure::new(FailureKind::Unsupported, what));
    }
    numa::join_cgroup().map_err(|error| Failure::internal("joining a cgroup", &error))
}

/// The number of CPUs that the request's scenario may use.
pub fn cpus(request: &RunRequest) -> usize {
    if request.cpus.is_empty() { online_cpus() } else { request.cpus.len() }
}

/// The number of this machine's CPUs. We assume that they are numbered from 0 without gaps.
pub fn online_cpus() -> usize {
    // SAFETY: sysconf only reads.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) }).unwrap_or(1)
}

/// The number of this machine's NUMA nodes; 1 if the machine does not say.
pub fn online_nodes() -> usize {
    let is_node = |name: &str| name.strip_prefix("node").is_some_and(|n| n.parse::<u16>().is_ok());
    let nodes = std::fs::read_dir("/sys/devices/system/node").map_or(0, |entries| {
        entries.flatten().filter(|entry| entry.file_name().to_str().is_some_and(is_node)).count()
    });
    nodes.max(1)
}

/// Makes a write beyond the limit of file sizes (`ulimit -f`) fail like any other write. The second
/// start and the scenario's processes inherit this.
fn survive_size_limits() {
    // SAFETY: SIG_IGN is a valid disposition; no handler runs.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// Makes the kernel kill the runner if its parent dies.
fn die_with_parent() {
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
}

/// Makes addresses equal in every run. A sandbox may forbid that, which does no harm.
fn no_randomization() {
    // SAFETY: personality only changes how the next exec lays out memory.
    unsafe { libc::personality(libc::ADDR_NO_RANDOMIZE as libc::c_ulong) };
}

fn execute_again(descriptor: i32) -> io::Error {
    let number = CString::new(descriptor.to_string());
    let now = CString::new(sys::now_ns().to_string());
    let (Ok(number), Ok(now)) = (number, now) else {
        return io::Error::other("a number with a zero byte");
    };
    let arguments = [
        c"needless-runner".as_ptr(),
        c"--run".as_ptr(),
        number.as_ptr(),
        now.as_ptr(),
        std::ptr::null(),
    ];
    // SAFETY: the path and the null-terminated arguments are valid C strings.
    unsafe { libc::execv(c"/proc/self/exe".as_ptr(), arguments.as_ptr()) };
    io::Error::last_os_error()
}

//! Guards a CPU that nothing may disturb, while a workload runs or a thread computes there.

use crate::check::{RING_BYTES, hold_events};
use crate::sys;
use needless_watch::signals::Signals;
use needless_watch::tracepoints::Extent;
use needless_watch::{Options, Target, watch};
use std::hint::spin_loop;
use std::io;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

/// Guards a CPU while this many rounds of a workload run, and prints what it saw as JSON.
pub fn guard(cpu: u16, workload: &str, rounds: u32) -> io::Result<ExitCode> {
    let mut command = Command::new("/proc/self/exe");
    command.args(["run", workload, "--rounds", &rounds.to_string()]);
    guarded(cpu, command)
}

/// Guards a CPU while a thread computes there for this time, and prints what it saw as JSON.
pub fn guard_held(cpu: u16, time: Duration) -> io::Result<ExitCode> {
    let mut command = Command::new("/proc/self/exe");
    command.args(["hold", &cpu.to_string(), &time.as_millis().to_string()]);
    guarded(cpu, command)
}

fn guarded(cpu: u16, command: Command) -> io::Result<ExitCode> {
    let mut signals = Signals::catch()?;
    let _held = hold_events();
    let (target, extent) = (Target::All, Extent::Guard(vec![cpu]));
    let options = Options { target, ring_bytes: RING_BYTES, extent, waits: false, timeline: None };
    let run = watch(&options, Some(command), &mut signals, &|_, _| {}).map_err(io::Error::other)?;
    serde_json::to_writer(io::stdout().lock(), &run)?;
    Ok(ExitCode::from(run.status.unwrap_or(0)))
}

/// Computes on a CPU for this time.
pub fn hold(cpu: u16, time: Duration) -> io::Result<ExitCode> {
    sys::pin(usize::from(cpu))?;
    let start = Instant::now();
    while start.elapsed() < time {
        spin_loop();
    }
    Ok(ExitCode::SUCCESS)
}

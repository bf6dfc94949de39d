//! What watching costs: one event's price on this machine, measured now, and the reader's time.

use perf_event::events::Tracepoint as TracepointEvent;
use perf_event::{Builder, SampleFlag};
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

/// System calls per measurement.
const CALLS: u32 = 1000;

/// What one event costs the thread that it happens to, the median of a few measurements.
pub fn of_an_event(tracefs: &Path) -> io::Result<Duration> {
    let id = std::fs::read_to_string(tracefs.join("events/raw_syscalls/sys_enter/id"))?;
    let id = id.trim().parse().map_err(io::Error::other)?;
    let mut samples = Vec::new();
    for _ in 0..7 {
        let without = calls();
        let counter = Builder::new(TracepointEvent::with_id(id))
            .observe_self()
            .include_kernel()
            .sample_period(1)
            .sample(SampleFlag::IDENTIFIER | SampleFlag::TID | SampleFlag::TIME | SampleFlag::RAW)
            .build()?;
        let mut sampler = counter.sampled(1 << 18)?;
        sampler.enable()?;
        let with = calls();
        sampler.disable()?;
        samples.push(with.saturating_sub(without) / CALLS);
    }
    samples.sort_unstable();
    Ok(samples[samples.len() / 2])
}

fn calls() -> Duration {
    let start = Instant::now();
    for _ in 0..CALLS {
        std::hint::black_box(rustix::process::getppid());
    }
    start.elapsed()
}

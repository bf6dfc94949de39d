//! The reasons for which rounds are marked, in words.

/// Events were lost.
pub(crate) const EVENTS_LOST: &str = "events lost";
/// Another task took the CPU of a running thread.
pub(super) const LOST_CPU: &str = "a thread lost its CPU";
/// A thread stopped to let others run, and no other task was ready.
pub(super) const WENT_ON: &str = "a call stopped between two flushes and went on";
/// A thread that should run was not on its CPU.
pub(super) const NOT_ON_CPU: &str = "a thread was not on its CPU";
/// The kernel did not show a sleeper as asleep in time.
pub(super) const AWAKE: &str = "a sleeper was not seen asleep";
/// Another task ran on a sleeper's CPU.
pub(super) const CPU_USED: &str = "another task ran on a sleeper's CPU";
/// Another task ran on an acting thread's CPU.
pub(super) const LRU_SHARED: &str = "another task shared the LRU batches";
/// NUMA balancing made a pass by itself.
pub(super) const RESAMPLED: &str = "NUMA balancing sampled pages again";
/// The runner, as one that used a CPU or flushed.
pub(super) const OURSELVES: &str = "needless-runner itself";
/// A kernel thread drained an acting thread's LRU batches.
pub(super) const LRU_EMPTIED: &str = "a kernel thread emptied the LRU batches";
/// Another task sent a shootdown to the scenario's CPUs.
pub(super) const FLUSHED: &str = "another task flushed the scenario's CPUs";
/// The kernel reclaimed or moved pages.
pub(super) const KERNELS_OWN: &str = "the kernel reclaimed or moved pages";
/// A kernel thread that manages memory ran.
pub(super) const MINDED: &str = "the kernel looked after memory";
/// The log had to get more memory.
pub(super) const LOG_GREW: &str = "the log had to grow";

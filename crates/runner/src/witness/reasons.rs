//! Why rounds are marked, in words.

/// Events were lost.
pub(crate) const EVENTS_LOST: &str = "events lost";
/// A running thread was switched out.
pub(super) const LOST_CPU: &str = "a thread lost its CPU";
/// A thread was to let others run, and nobody else was ready.
pub(super) const WENT_ON: &str = "a call stopped between two flushes and went on";
/// A running thread was not there.
pub(super) const NOT_ON_CPU: &str = "a thread was not on its CPU";
/// Nobody saw a sleeper asleep.
pub(super) const AWAKE: &str = "a sleeper was not seen asleep";
/// A sleeper's CPU was used.
pub(super) const CPU_USED: &str = "another task ran on a sleeper's CPU";
/// An acting thread's CPU was used.
pub(super) const LRU_SHARED: &str = "another task shared the LRU batches";
/// NUMA balancing made a pass by itself.
pub(super) const RESAMPLED: &str = "NUMA balancing sampled pages again";
/// Who that may be as well.
pub(super) const OURSELVES: &str = "needless-runner itself";
/// An acting thread's LRU batches were emptied.
pub(super) const LRU_EMPTIED: &str = "a kernel thread emptied the LRU batches";
/// Somebody else sent a shootdown to the scenario's CPUs.
pub(super) const FLUSHED: &str = "another task flushed the scenario's CPUs";
/// The kernel reclaimed or moved pages.
pub(super) const KERNELS_OWN: &str = "the kernel reclaimed or moved pages";
/// A kernel thread that looks after memory ran.
pub(super) const MINDED: &str = "the kernel looked after memory";
/// Memory had to be found for the log.
pub(super) const LOG_GREW: &str = "the log had to grow";

//! Measures how long a process and its descendants could have worked. Limits count this time, not
//! the time of the clock.
//!
//! On a busy machine an emulator, or apt with its methods, often waits for a processor. The kernel
//! reports that time for each thread, once a wait is over: the second number of
//! `/proc/PID/task/TID/schedstat`, in nanoseconds (Linux 6.18 fs/proc/base.c: proc_pid_schedstat;
//! kernel/sched/stats.h: sched_info_arrive). A thread that was runnable and has not run since the
//! last look still waits. Such time does not count. Nor does time in which this process itself did
//! not run, because it waited for a processor, too, or was stopped. All other time counts. So a
//! guest that spins runs out of time, and so does one that sleeps forever.
//!
//! The descendants come from `/proc/PID/task/TID/children`. If the kernel does not report these
//! figures (no CONFIG_SCHED_INFO or CONFIG_PROC_CHILDREN), all time counts.

use needless_runner::interrupt;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// The longest time between two looks at the waiting times.
const LOOK: Duration = Duration::from_millis(250);

/// A longer time between two looks means that this process did not run.
const LATE: Duration = Duration::from_secs(1);

/// The shortest time between two looks. A running thread has a tick in it.
const SHORTEST_LOOK: Duration = Duration::from_millis(20);

/// A time limit, and how much of it is used up.
pub struct Patience {
    /// The process to look at, with its descendants.
    process: u32,
    limit: Duration,
    /// The counted time since the limit was set.
    spent: Duration,
    looked: Instant,
    /// The times that each thread had run and waited.
    threads: BTreeMap<u32, Thread>,
}

/// The times that a thread has run and waited since it began, in nanoseconds. A wait that is not
/// over is included.
#[derive(Copy, Clone, Debug, Default)]
struct Thread {
    ran: u64,
    waited: u64,
    runnable: bool,
}

impl Patience {
    /// Patience with a process and all that it starts; none until a limit is set.
    pub fn with(process: u32) -> Patience {
        Patience {
            process,
            limit: Duration::ZERO,
            spent: Duration::ZERO,
            looked: Instant::now(),
            threads: BTreeMap::new(),
        }
    }

    /// Sets a new limit. The counted time starts from 0.
    pub fn set(&mut self, limit: Duration) {
        self.look();
        (self.limit, self.spent) = (limit, Duration::ZERO);
    }

    /// How long to wait before the next look; `None` if the limit is reached, or if a signal asked
    /// for an end.
    pub fn left(&mut self) -> Option<Duration> {
        self.look();
        let left = self.limit.saturating_sub(self.spent);
        let goes_on = !left.is_zero() && interrupt::go_on().is_ok();
        goes_on.then(|| left.min(LOOK))
    }

    /// The counted time since the limit was set.
    pub fn spent(&mut self) -> Duration {
        self.look();
        self.spent
    }

    /// Counts the time since the last look.
    fn look(&mut self) {
        let now = Instant::now();
        let passed = now.duration_since(self.looked);
        if passed < SHORTEST_LOOK {
            return;
        }
        self.looked = now;
        let waited = self.longest_wait(passed).max(passed.saturating_sub(LATE));
        self.spent = (self.spent + passed).saturating_sub(waited);
    }

    /// The longest that any thread has waited for a processor since the last look.
    fn longest_wait(&mut self, passed: Duration) -> Duration {
        let mut longest = 0;
        let mut threads = BTreeMap::new();
        for (id, mut thread) in threads_from(self.process) {
            let before = self.threads.get(&id).copied().unwrap_or_default();
            let mut waited = before.waited;
            if before.runnable && thread.runnable && thread.ran == before.ran {
                waited += passed.as_nanos() as u64;
            }
            // The kernel's number includes this time once the wait is over.
            thread.waited = thread.waited.max(waited);
            longest = longest.max(thread.waited - before.waited);
            threads.insert(id, thread);
        }
        self.threads = threads;
        Duration::from_nanos(longest)
    }
}

/// The times that each thread of a process and of its descendants has run and waited.
fn threads_from(process: u32) -> Vec<(u32, Thread)> {
    let (mut processes, mut threads) = (vec![process], Vec::new());
    while let Some(process) = processes.pop() {
        let tasks = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
        for task in tasks.map(|entry| entry.path()) {
            threads.extend(thread(&task));
            let children = fs::read_to_string(task.join("children")).unwrap_or_default();
            processes.extend(children.split_whitespace().flat_map(str::parse::<u32>));
        }
    }
    threads
}

/// The thread in this folder; `None` if it is gone.
fn thread(task: &Path) -> Option<(u32, Thread)> {
    let id = task.file_name()?.to_str()?.parse().ok()?;
    let text = fs::read_to_string(task.join("schedstat")).ok()?;
    let mut numbers = text.split(' ').map_while(|number| number.parse().ok());
    let (ran, waited) = (numbers.next()?, numbers.next()?);
    let stat = fs::read_to_string(task.join("stat")).ok()?;
    // The state follows the name, which may contain anything.
    let runnable = stat.rsplit_once(") ")?.1.starts_with('R');
    Some((id, Thread { ran, waited, runnable }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use needless_testing::spinner::Spinner;
    use needless_testing::until_true;
    use std::process::Command;

    /// The time that counts in one second for a process that was started a while ago.
    fn spent_in_a_second(process: u32) -> Duration {
        let mut patience = Patience::with(process);
        patience.set(Duration::from_secs(3600));
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(1) {
            std::thread::sleep(patience.left().unwrap());
        }
        patience.spent()
    }

    #[test]
    fn sleep_counts_in_full() {
        let mut patience = Patience::with(std::process::id());
        patience.set(Duration::from_millis(300));
        let start = Instant::now();
        while let Some(left) = patience.left() {
            std::thread::sleep(left);
        }
        assert!(start.elapsed() >= Duration::from_millis(300));
        assert!(start.elapsed() < Duration::from_secs(60), "it must end");
    }

    #[test]
    fn waiting_for_a_processor_does_not_count() {
        let (starved, _other) = (Spinner::nice(19), Spinner::nice(0));
        std::thread::sleep(Duration::from_millis(200));
        let spent = spent_in_a_second(starved.id());
        assert!(spent < Duration::from_millis(700), "{spent:?}");
    }

    #[test]
    fn what_is_below_the_process_is_looked_at() {
        let mut shell = Command::new("sh");
        let mut shell = shell.args(["-c", "(sleep 60; :) & wait"]).spawn().unwrap();
        let pid = shell.id();
        let there =
            |count| until_true(format!("{count} threads"), || threads_from(pid).len() == count);
        // Two shells, and the program that the second one runs.
        there(3);
        let ids: Vec<String> = threads_from(pid).iter().map(|(id, _)| id.to_string()).collect();
        Command::new("kill").args(&ids).status().unwrap();
        shell.wait().unwrap();
        there(0);
    }

    /// This is what a stop by Ctrl-Z looks like.
    #[test]
    fn time_in_which_nobody_looked_does_not_count() {
        let mut patience = Patience::with(u32::MAX);
        patience.set(Duration::from_secs(3600));
        patience.looked -= Duration::from_secs(600);
        let spent = patience.spent();
        assert!((LATE..Duration::from_secs(2)).contains(&spent), "{spent:?}");
    }
}

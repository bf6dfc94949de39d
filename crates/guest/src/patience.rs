//! How long a guest is waited for: by the time in which it could have worked, not by the clock.
//!
//! On a busy machine the emulator waits for a processor again and again. The kernel says how long, thread by
//! thread: the second number of `/proc/PID/task/TID/schedstat`, in nanoseconds (Linux 6.18
//! fs/proc/base.c: proc_pid_schedstat; kernel/sched/stats.h: sched_info_arrive), once a wait is over; a
//! thread that could run and has not run since the last look waits still. That time does not count. All other time does, so a guest that spins is given up, and so is one that sleeps for good.
//! Where the kernel does not tell (no CONFIG_SCHED_INFO) all time counts.

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

/// The longest wait without looking how long the emulator waited.
const LOOK: Duration = Duration::from_millis(250);

/// The shortest time from one look to the next: a thread that runs has a tick in it.
const SHORTEST_LOOK: Duration = Duration::from_millis(20);

/// A limit, and what of it has been used up.
pub struct Patience {
    /// The emulator's guard, whose child the emulator is.
    guard: u32,
    emulator: Option<u32>,
    limit: Duration,
    /// Time that counts since the limit was set.
    spent: Duration,
    looked: Instant,
    /// What each thread had run and waited.
    threads: BTreeMap<u32, Thread>,
}

/// What a thread has run and waited since it began, in nanoseconds; a wait that is not over is in it.
#[derive(Copy, Clone, Default)]
struct Thread {
    ran: u64,
    waited: u64,
    runnable: bool,
}

impl Patience {
    /// Patience with what this guard started; none until a limit is set.
    pub fn with(guard: u32) -> Patience {
        Patience {
            guard,
            emulator: None,
            limit: Duration::ZERO,
            spent: Duration::ZERO,
            looked: Instant::now(),
            threads: BTreeMap::new(),
        }
    }

    /// Begins anew.
    pub fn set(&mut self, limit: Duration) {
        self.look();
        (self.limit, self.spent) = (limit, Duration::ZERO);
    }

    /// How long to wait before asking again; `None` if the limit is reached.
    pub fn left(&mut self) -> Option<Duration> {
        self.look();
        let left = self.limit.saturating_sub(self.spent);
        (!left.is_zero()).then(|| left.min(LOOK))
    }

    /// Counts the time since the last look.
    fn look(&mut self) {
        let now = Instant::now();
        let passed = now.duration_since(self.looked);
        if passed < SHORTEST_LOOK {
            return;
        }
        self.looked = now;
        let waited = self.longest_wait(passed);
        self.spent = (self.spent + passed).saturating_sub(waited);
    }

    /// The longest that any thread has waited for a processor since the last look.
    fn longest_wait(&mut self, passed: Duration) -> Duration {
        self.emulator = self.emulator.or_else(|| child(self.guard));
        let processes = [Some(self.guard), self.emulator];
        let mut longest = 0;
        let mut threads = BTreeMap::new();
        for (id, mut thread) in processes.into_iter().flatten().flat_map(threads_of) {
            let before = self.threads.get(&id).copied().unwrap_or_default();
            let mut waited = before.waited;
            if before.runnable && thread.runnable && thread.ran == before.ran {
                waited += passed.as_nanos() as u64;
            }
            // The kernel's number catches up with it when the wait is over.
            thread.waited = thread.waited.max(waited);
            longest = longest.max(thread.waited - before.waited);
            threads.insert(id, thread);
        }
        self.threads = threads;
        Duration::from_nanos(longest)
    }
}

/// The first child of a process.
fn child(parent: u32) -> Option<u32> {
    let processes = fs::read_dir("/proc").ok()?.flatten();
    let mut pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.find(|pid| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // After the name, which may hold anything: state and parent.
        let rest = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
        rest.split(' ').nth(1).and_then(|text| text.parse().ok()) == Some(parent)
    })
}

/// What each thread of a process has run and waited.
fn threads_of(process: u32) -> Vec<(u32, Thread)> {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let threads = tasks.filter_map(|task| {
        let id = task.file_name().to_str()?.parse().ok()?;
        let text = fs::read_to_string(task.path().join("schedstat")).ok()?;
        let mut numbers = text.split(' ').map_while(|number| number.parse().ok());
        let (ran, waited) = (numbers.next()?, numbers.next()?);
        let stat = fs::read_to_string(task.path().join("stat")).ok()?;
        let runnable = stat.rsplit_once(") ")?.1.starts_with('R');
        Some((id, Thread { ran, waited, runnable }))
    });
    threads.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};
    use std::process::{Child, Command, Stdio};

    /// Spins for good on one CPU, at the lowest priority; killed in the end.
    struct Spinner(Child);

    impl Spinner {
        fn new(nice: &str) -> Spinner {
            let mut command = Command::new("taskset");
            command.args(["-c", "0", "nice", "-n", nice, "sh", "-c", "while :; do :; done"]);
            Spinner(command.spawn().unwrap())
        }
    }

    impl Drop for Spinner {
        fn drop(&mut self) {
            self.0.kill().unwrap();
            self.0.wait().unwrap();
        }
    }

    /// Patience with a process that was started a while ago, and what of it a second uses up.
    fn spent_in_a_second(process: &Spinner) -> Duration {
        let mut patience = Patience::with(process.0.id());
        patience.set(Duration::from_secs(3600));
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(1) {
            std::thread::sleep(patience.left().unwrap());
        }
        patience.left();
        patience.spent
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
        let (starved, _other) = (Spinner::new("19"), Spinner::new("0"));
        std::thread::sleep(Duration::from_millis(200));
        let spent = spent_in_a_second(&starved);
        assert!(spent < Duration::from_millis(700), "{spent:?}");
    }

    #[test]
    fn the_emulator_is_the_guards_child() {
        let mut guard = Command::new("sh");
        guard.args(["-c", "sleep 60 & echo $!; wait"]);
        let mut guard = guard.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(guard.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let sleep = child(guard.id());
        Command::new("kill").arg(line.trim()).status().unwrap();
        guard.wait().unwrap();
        assert_eq!(sleep, line.trim().parse().ok());
        assert_eq!(child(u32::MAX), None);
    }
}

//! Makes the machine busy.

use std::process::{Child, Command};
use std::thread::available_parallelism;

/// A process that spins on one CPU. It ends when this value is dropped, and when the thread that
/// started it ends.
pub struct Spinner(Child);

impl Spinner {
    /// Spins on CPU 0 with this niceness.
    pub fn nice(nice: u8) -> Spinner {
        Spinner::start(0, &["nice", "-n", &nice.to_string()])
    }

    /// Spins on each CPU with the lowest priority, so that no CPU is idle.
    ///
    /// # Panics
    /// Panics if the number of CPUs is not known.
    pub fn on_every_cpu() -> Vec<Spinner> {
        let cpus = available_parallelism().unwrap_or_else(|error| panic!("how many CPUs: {error}"));
        (0..cpus.get()).map(|cpu| Spinner::start(cpu, &["chrt", "--idle", "0"])).collect()
    }

    fn start(cpu: usize, with: &[&str]) -> Spinner {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "taskset", "-c", &cpu.to_string()]).args(with);
        let spinning = command.args(["sh", "-c", "while :; do :; done"]).spawn();
        Spinner(spinning.unwrap_or_else(|error| panic!("{command:?}: {error}")))
    }

    /// The process's ID.
    pub fn id(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        // If it has ended, there is nothing to do.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

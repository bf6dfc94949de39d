//! A busy machine.

use std::process::{Child, Command};
use std::thread::available_parallelism;

/// A process that spins for good on one CPU; it ends with this value, and with the thread that started it.
pub struct Spinner(Child);

impl Spinner {
    /// On CPU 0, so nice.
    pub fn nice(nice: u8) -> Spinner {
        Spinner::start(0, &["nice", "-n", &nice.to_string()])
    }

    /// On each CPU one that takes what nobody else wants: no CPU is idle.
    ///
    /// # Panics
    /// If the number of CPUs is not known.
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

    /// Its process.
    pub fn id(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        // It may have ended: then there is nothing to do.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

//! A busy machine, for tests.

use std::process::{Child, Command};

/// A process that spins for good on CPU 0; killed in the end.
pub struct Spinner(Child);

impl Spinner {
    /// Starts it, so nice.
    pub fn new(nice: u8) -> Spinner {
        let mut command = Command::new("taskset");
        command.args([
            "-c",
            "0",
            "nice",
            "-n",
            &nice.to_string(),
            "sh",
            "-c",
            "while :; do :; done",
        ]);
        Spinner(command.spawn().unwrap())
    }

    pub fn id(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

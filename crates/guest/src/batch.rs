//! Many programs in one boot.

use crate::cache::Kernel;
use crate::error::GuestError;
use crate::guest::Guest;
use crate::kernels;
use crate::options::GuestOptions;
use crate::target::KernelTarget;
use needless_model::program::Program;
use needless_model::run::TargetRun;

/// Boots that a batch may need beyond its first because programs brought the guest down.
const MOST_CRASHES: u32 = 5;

/// A kernel on which one program runs after the other. If the guest ends, the program that ran is
/// given a second chance in a fresh boot, for it may have been another's fault or the emulator's;
/// if it ends again, that is the program's result.
pub struct Batch {
    kernel: Kernel,
    options: GuestOptions,
    guest: Option<Guest>,
    crashes: u32,
}

impl Batch {
    /// Boots the target's kernel, which is fetched if it is not cached.
    ///
    /// # Errors
    /// No kernel, no QEMU, no boot.
    pub fn open(target: &KernelTarget) -> Result<Batch, GuestError> {
        let (kernel, options) = (kernels::ready_for(target)?, target.options.clone());
        let guest = Guest::boot(&kernel, &options)?;
        Ok(Batch { kernel, options, guest: Some(guest), crashes: 0 })
    }

    /// The kernel.
    pub fn kernel(&self) -> &Kernel {
        &self.kernel
    }

    /// Runs one program.
    ///
    /// # Errors
    /// See [`GuestError`]. The batch can be used further.
    pub fn run(&mut self, program: &Program) -> Result<TargetRun, GuestError> {
        let first = self.run_once(program);
        match first {
            Err(error) if error.is_end() && self.crashes <= MOST_CRASHES => self.run_once(program),
            done => done,
        }
    }

    fn run_once(&mut self, program: &Program) -> Result<TargetRun, GuestError> {
        let guest = match &mut self.guest {
            Some(guest) => guest,
            None if self.crashes > MOST_CRASHES => {
                let what =
                    format!("ended {} times in this batch and is not booted again", self.crashes);
                return Err(GuestError::stopped(what, String::new()));
            }
            none => none.insert(Guest::boot(&self.kernel, &self.options)?),
        };
        let result = guest.run(program);
        if result.as_ref().is_err_and(GuestError::is_end) {
            self.crashes += 1;
            self.guest = None;
        }
        result
    }
}

//! Runs many programs in one boot.

use crate::cache::Kernel;
use crate::error::GuestError;
use crate::guest::Guest;
use crate::kernels;
use crate::nodes::Nodes;
use crate::options::GuestOptions;
use crate::target::KernelTarget;
use needless_model::program::{MachineNeeds, Program};
use needless_model::run::TargetRun;
use needless_runner::interrupt;

/// The number of extra boots of a batch after programs crashed the guest.
const MOST_CRASHES: u32 = 5;

/// A kernel that runs one program after the other. If the guest ends, the program gets a second
/// chance in a fresh boot, because another program or the emulator may have caused the end. If the
/// guest ends again, that is the program's result.
pub struct Batch {
    kernel: Kernel,
    options: GuestOptions,
    guest: Option<Guest>,
    /// The NUMA nodes of the guest that runs, or that ran last.
    nodes: Nodes,
    crashes: u32,
}

impl Batch {
    /// Boots the target's kernel, with the NUMA nodes that the first program needs. The kernel is
    /// fetched if it is not cached.
    ///
    /// # Errors
    /// There is no kernel or no QEMU, or the boot fails.
    pub fn open(target: &KernelTarget, first: &MachineNeeds) -> Result<Batch, GuestError> {
        let (kernel, options) = (kernels::ready_for(target)?, target.options.clone());
        let nodes = nodes_for(&options, first);
        let guest =
            Guest::boot(&kernel, &GuestOptions { nodes: nodes.clone(), ..options.clone() })?;
        Ok(Batch { kernel, options, guest: Some(guest), nodes, crashes: 0 })
    }

    /// The kernel of this batch.
    pub fn kernel(&self) -> &Kernel {
        &self.kernel
    }

    /// Runs one program.
    ///
    /// # Errors
    /// See [`GuestError`]. The batch stays usable.
    pub fn run(&mut self, program: &Program) -> Result<TargetRun, GuestError> {
        let first = self.run_once(program);
        match first {
            Err(error) if error.is_end() && self.crashes <= MOST_CRASHES => self.run_once(program),
            done => done,
        }
    }

    fn run_once(&mut self, program: &Program) -> Result<TargetRun, GuestError> {
        interrupt::go_on()?;
        // The target's name has the options that were asked for, not the nodes that a scenario
        // needs.
        let target = format!("kernel:{}{}", self.kernel.manifest.name, self.options);
        let nodes = nodes_for(&self.options, &program.machine);
        if nodes != self.nodes {
            // A guest has its nodes from the boot on.
            self.guest = None;
            self.nodes = nodes;
        }
        let guest = match &mut self.guest {
            Some(guest) => guest,
            None if self.crashes > MOST_CRASHES => {
                let what =
                    format!("ended {} times in this batch and is not booted again", self.crashes);
                return Err(GuestError::stopped(what, String::new()));
            }
            none => {
                let options = GuestOptions { nodes: self.nodes.clone(), ..self.options.clone() };
                none.insert(Guest::boot(&self.kernel, &options)?)
            }
        };
        let result = guest.run(program).map(|run| TargetRun { target, ..run });
        if result.as_ref().is_err_and(GuestError::is_end) {
            self.crashes += 1;
            self.guest = None;
        }
        result
    }
}

/// The NUMA nodes of a guest for a scenario.
fn nodes_for(options: &GuestOptions, needs: &MachineNeeds) -> Nodes {
    options.nodes.for_needs(needs, options.memory_mib, options.cpus)
}

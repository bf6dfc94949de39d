//! Many programs in one boot.

use crate::cache::Kernel;
use crate::error::GuestError;
use crate::guest::Guest;
use crate::kernels;
use crate::nodes::Nodes;
use crate::options::GuestOptions;
use crate::target::KernelTarget;
use needless_model::program::{MachineNeeds, Program};
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
    /// The nodes of the guest that runs, or ran last.
    nodes: Nodes,
    crashes: u32,
}

impl Batch {
    /// Boots the target's kernel, which is fetched if it is not cached, with the NUMA nodes that the first
    /// program needs.
    ///
    /// # Errors
    /// No kernel, no QEMU, no boot.
    pub fn open(target: &KernelTarget, first: &MachineNeeds) -> Result<Batch, GuestError> {
        let (kernel, options) = (kernels::ready_for(target)?, target.options.clone());
        let nodes = nodes_for(&options, first);
        let guest =
            Guest::boot(&kernel, &GuestOptions { nodes: nodes.clone(), ..options.clone() })?;
        Ok(Batch { kernel, options, guest: Some(guest), nodes, crashes: 0 })
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
        // As it was asked for: what a scenario needs is not part of the target's name.
        let target = format!("kernel:{}{}", self.kernel.manifest.name, self.options);
        let nodes = nodes_for(&self.options, &program.machine);
        if nodes != self.nodes {
            // Nodes are there from the boot on.
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

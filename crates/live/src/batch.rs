//! Runs many programs, one after the other, on a machine that is prepared once.
//!
//! To prepare the machine for every run would cost a quarter of a second: for a swap device, the
//! keeper, and the kernel's own preparations for events. A batch keeps all of that between runs
//! with equal needs.

use crate::child::Runner;
use crate::cpus::Chooser;
use crate::error::LiveError;
use crate::machine::Machine;
use crate::{LiveOptions, run_on};
use needless_model::program::{MachineNeeds, Program};
use needless_model::run::TargetRun;
use needless_runner::interrupt;
use std::collections::BTreeMap;

/// A machine that runs one program after the other.
pub struct Batch {
    runner: Runner,
    options: LiveOptions,
    chooser: Chooser,
    ready: Option<Ready>,
}

/// A prepared machine.
struct Ready {
    /// The needs that it was prepared for.
    needs: MachineNeeds,
    machine: Machine,
    /// The environment at the first run.
    environment: BTreeMap<String, String>,
}

impl Batch {
    /// Makes a batch that runs every program with these options.
    ///
    /// # Errors
    /// If the runner is not found.
    pub fn new(options: LiveOptions) -> Result<Batch, LiveError> {
        let chooser = Chooser::new(&options.cpus);
        Ok(Batch { runner: Runner::find()?, options, chooser, ready: None })
    }

    /// Runs `program`, as [`crate::run`] does.
    ///
    /// # Errors
    /// See [`LiveError`]. The batch stays usable.
    pub fn run(&mut self, program: &Program) -> Result<TargetRun, LiveError> {
        interrupt::go_on()?;
        let chosen = self.chooser.choose(program)?;
        // The number of CPUs needs no preparation.
        let needs = MachineNeeds { cpus: 0, ..program.machine.clone() };
        let mut ready = match self.ready.take().filter(|ready| ready.needs == needs) {
            Some(ready) => ready,
            None => {
                let mut machine = Machine::prepare(&self.runner, program)?;
                machine.hold_events()?;
                Ready { needs, machine, environment: self.runner.environment() }
            }
        };
        let environment = ready.environment.clone();
        let machine = &mut ready.machine;
        let result = run_on(&self.runner, machine, program, &self.options, &chosen, environment);
        if !matches!(result, Err(LiveError::KeeperDied { .. })) {
            self.ready = Some(ready);
        }
        result
    }

    /// Restores the machine. Returns what could not be undone.
    pub fn close(mut self) -> Option<String> {
        self.ready.take().and_then(|ready| ready.machine.restore())
    }
}

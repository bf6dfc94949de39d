//! Many runs, one after the other, on a machine that is made ready once.
//!
//! Starting over for every run costs a quarter of a second: a swap device, the keeper, and the
//! kernel's own preparations for events. A batch keeps all of it between runs, as long as they
//! need the same of the machine.

use crate::child::Runner;
use crate::cpus::Chooser;
use crate::error::LiveError;
use crate::machine::Machine;
use crate::{LiveOptions, run_on};
use needless_model::program::{MachineNeeds, Program};
use needless_model::run::TargetRun;
use std::collections::BTreeMap;

/// A machine on which one program runs after the other.
pub struct Batch {
    runner: Runner,
    options: LiveOptions,
    chooser: Chooser,
    ready: Option<Ready>,
}

/// A machine made ready.
struct Ready {
    /// What for.
    needs: MachineNeeds,
    machine: Machine,
    /// As it was at the first run.
    environment: BTreeMap<String, String>,
}

impl Batch {
    /// A batch that runs every program with these options.
    ///
    /// # Errors
    /// If there is no runner.
    pub fn new(options: LiveOptions) -> Result<Batch, LiveError> {
        let chooser = Chooser::new(&options.cpus);
        Ok(Batch { runner: Runner::find()?, options, chooser, ready: None })
    }

    /// Runs `program`, as [`crate::run`] does.
    ///
    /// # Errors
    /// See [`LiveError`]. The batch can be used further.
    pub fn run(&mut self, program: &Program) -> Result<TargetRun, LiveError> {
        let chosen = self.chooser.choose(program)?;
        // Every machine has the CPUs that it has.
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

    /// Makes the machine as it was; what could not be undone is told.
    pub fn close(mut self) -> Option<String> {
        self.ready.take().and_then(|ready| ready.machine.restore())
    }
}

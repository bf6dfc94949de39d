//! The real kernels: the running one, and those that are booted.

use super::{Extent, RealTarget, Refusal, is_for_the_moment};
use crate::targets::{LiveSpec, Spec};
use miette::Diagnostic;
use needless_guest::{Arch, GuestError, KernelTarget, Nodes};
use needless_live::{Batch, LiveError, LiveOptions};
use needless_model::kernels::KernelRow;
use needless_model::program::Program;
use needless_model::run::TargetRun;
use needless_scenario::random::Optional;
use std::path::Path;

/// The number of ring pages for short rounds, enough for some thousand events.
const RING_PAGES: u32 = 128;

/// The number of scenarios that are run at a time. Each costs as much as any other, so few are
/// best: progress is seen, and shrinking makes hardly any run in vain.
const BATCH: usize = 8;

/// The real kernel that a target names. `None` if it names a model row.
pub fn open(spec: &Spec) -> Option<Result<Box<dyn RealTarget>, Refusal>> {
    Some(match spec {
        Spec::Live(how) => {
            Live::open(spec.name(), how).map(|live| Box::new(live) as Box<dyn RealTarget>)
        }
        Spec::Kernel(target) => Ok(Box::new(Booted { target: target.clone(), guests: None })),
        Spec::Model(_) => return None,
    })
}

/// The running kernel.
struct Live {
    name: String,
    batch: Option<Batch>,
}

impl Live {
    fn open(name: String, how: &LiveSpec) -> Result<Live, Refusal> {
        let options = LiveOptions {
            ring_pages: if how.blind { 0 } else { RING_PAGES },
            cycles: false,
            cpus: how.cpus.clone(),
            ..LiveOptions::default()
        };
        Ok(Live {
            name,
            batch: Some(Batch::new(options).map_err(|error| live_refusal(error, None))?),
        })
    }
}

impl RealTarget for Live {
    fn is_live(&self) -> bool {
        true
    }

    fn name(&self) -> String {
        self.name.clone()
    }

    fn release(&self) -> String {
        needless_live::release()
    }

    fn cpus(&self) -> usize {
        std::thread::available_parallelism().map_or(1, usize::from)
    }

    fn without(&self) -> Vec<Optional> {
        let lacks = |feature: &Optional| match feature {
            Optional::SoftDirty => needless_live::has_soft_dirty().is_ok_and(|there| !there),
            Optional::HugePages => !Path::new("/sys/kernel/mm/transparent_hugepage").exists(),
            Optional::Userfaultfd => !Path::new("/proc/sys/vm/unprivileged_userfaultfd").exists(),
            Optional::Nodes => !Path::new("/sys/devices/system/node/node1").exists(),
        };
        Optional::ALL.into_iter().filter(lacks).collect()
    }

    fn batch(&self) -> usize {
        BATCH
    }

    fn run(&mut self, programs: &[Program]) -> Vec<Result<TargetRun, Refusal>> {
        let Some(batch) = &mut self.batch else { return Vec::new() };
        let run = |program: &Program| {
            batch.run(program).map_err(|error| live_refusal(error, Some(program)))
        };
        programs.iter().map(run).collect()
    }

    fn close(&mut self) -> Option<String> {
        self.batch.take().and_then(Batch::close)
    }
}

fn live_refusal(error: LiveError, program: Option<&Program>) -> Refusal {
    let moment = |failure| program.is_some_and(|program| is_for_the_moment(failure, program));
    let extent = match &error {
        LiveError::ProgramFailed(failure) if moment(failure) => Extent::Moment,
        LiveError::ProgramFailed(failure) if failure.is_the_programs() => Extent::Operation,
        LiveError::Unsupported { .. } => Extent::EveryRun,
        LiveError::ProgramFailed(_) | LiveError::EventsLost { .. } => Extent::ThisRun,
        _ => Extent::EveryProgram,
    };
    Refusal {
        reason: error.to_string(),
        help: error.help().map(|help| help.to_string()),
        status: error.exit_status(),
        extent,
    }
}

/// A kernel that is booted when the first scenarios run there, and stays up.
struct Booted {
    target: Box<KernelTarget>,
    guests: Option<needless_guest::Batch>,
}

impl RealTarget for Booted {
    fn name(&self) -> String {
        format!("kernel:{}", self.target)
    }

    fn release(&self) -> String {
        self.target.release().to_owned()
    }

    fn named_row(&self) -> Option<&KernelRow> {
        self.target.options.row.as_ref()
    }

    fn cpus(&self) -> usize {
        usize::from(self.target.options.cpus)
    }

    /// An x86-64 guest has the nodes that its first scenario asks for. The model has no nodes of
    /// other guests.
    fn without(&self) -> Vec<Optional> {
        let nodes = &self.target.options.nodes;
        let one = *nodes != Nodes::AsAsked && nodes.count() == 1;
        let lacks = one || self.target.arch() != Arch::X86_64;
        if lacks { vec![Optional::Nodes] } else { Vec::new() }
    }

    fn batch(&self) -> usize {
        BATCH
    }

    fn run(&mut self, programs: &[Program]) -> Vec<Result<TargetRun, Refusal>> {
        let first = programs.first().map(|program| program.machine.clone()).unwrap_or_default();
        let guests = match &mut self.guests {
            Some(guests) => guests,
            none => match needless_guest::Batch::open(&self.target, &first) {
                Ok(guests) => none.insert(guests),
                Err(error) => {
                    return programs
                        .iter()
                        .map(|_| Err(guest_refusal(&error, Extent::EveryProgram)))
                        .collect();
                }
            },
        };
        let extent = |error: &GuestError, program: &Program| match error {
            GuestError::ProgramFailed(failure) if is_for_the_moment(failure, program) => {
                Extent::Moment
            }
            GuestError::ProgramFailed(failure) if failure.is_the_programs() => Extent::Operation,
            GuestError::Unsupported { .. } | GuestError::Lacks { .. } => Extent::EveryRun,
            GuestError::Interrupted(_) => Extent::EveryProgram,
            _ => Extent::ThisRun,
        };
        let mut run = |program: &Program| {
            let refusal = |error| guest_refusal(&error, extent(&error, program));
            guests.run(program).map_err(refusal)
        };
        programs.iter().map(&mut run).collect()
    }

    fn close(&mut self) -> Option<String> {
        self.guests = None;
        None
    }
}

fn guest_refusal(error: &GuestError, extent: Extent) -> Refusal {
    Refusal {
        reason: error.to_string(),
        help: error.help().map(|help| help.to_string()),
        status: error.exit_status(),
        extent,
    }
}

//! Runs a scenario on the running kernel.
//!
//! The library prepares the machine and starts the runner (`needless-runner`, a process of its own)
//! once for counts and once for cycles. It puts the results together. A keeper process makes every
//! change to the machine. It undoes them when this process closes the pipe between them: at the
//! end, after an error, when interrupted, and when killed.
#![warn(clippy::print_stdout, clippy::print_stderr)]

pub mod batch;
pub mod child;
pub mod cpus;
pub mod doctor;
pub mod error;
pub mod leftovers;
pub mod machine;

pub use batch::Batch;
pub use doctor::{Check, State, doctor};
pub use error::LiveError;
pub use needless_runner::environment::{environment, release};
pub use needless_runner::interrupt;
pub use needless_runner::journal::Undone;
pub use needless_runner::limits;
pub use needless_runner::pagemap::has_soft_dirty;
pub use needless_runner::privilege;
pub use needless_runner::wire::{Failure, FailureKind};

use child::{Collected, Runner};
use cpus::{Chooser, Chosen};
use machine::Machine;
use needless_model::kernels::KernelRow;
use needless_model::program::{OpKind, Program};
use needless_model::run::{Round, RunRequest, TargetRun};
use needless_model::sim;
use needless_runner::collect::{self, rounds_asked};
use needless_runner::perf::RING_PAGES;
use needless_runner::wire::Summary;
use std::collections::BTreeMap;

/// A function that is called with the number of rounds so far and the number that was asked for.
pub type Progress = Box<dyn Fn(u32, u32) + Send>;

/// The options of a run.
pub struct LiveOptions {
    /// Pages of each CPU's event ring: a power of two, or 0 for a run without events.
    pub ring_pages: u32,
    /// Whether to run a second time, without events, for the cycles of `measure` blocks.
    pub cycles: bool,
    /// The machine's CPUs for the scenario's CPUs 0, 1, …; if empty, the quietest ones.
    pub cpus: Vec<u16>,
    /// A function that is called after each start of the runner.
    pub progress: Option<Progress>,
}

impl Default for LiveOptions {
    fn default() -> LiveOptions {
        LiveOptions { ring_pages: RING_PAGES, cycles: true, cpus: Vec::new(), progress: None }
    }
}

/// How often the runner is started for missing rounds.
const MOST_PASSES: u32 = 10;

/// The remedy for a run that others disturb.
const QUIETER: &str = "wait for the program that disturbs, or end it, or name CPUs that it does not \
    use (`-t live,cpus=2,5`)";

/// Runs `program` on this machine.
///
/// # Errors
/// See [`LiveError`]. Without the right to see events the run succeeds, with rounds that have no
/// events and with the reason in [`TargetRun::unseen`].
pub fn run(program: &Program, options: &LiveOptions) -> Result<TargetRun, LiveError> {
    let runner = Runner::find()?;
    let chosen = Chooser::new(&options.cpus).choose(program)?;
    let mut machine = Machine::prepare(&runner, program)?;
    let environment = runner.environment();
    let mut result = run_on(&runner, &mut machine, program, options, &chosen, environment)?;
    if let Some(left) = machine.restore() {
        result.environment.insert("left behind".to_owned(), left);
    }
    Ok(result)
}

/// Runs `program` on a machine that is prepared for it.
fn run_on(
    runner: &Runner,
    machine: &mut Machine,
    program: &Program,
    options: &LiveOptions,
    chosen: &Chosen,
    environment: BTreeMap<String, String>,
) -> Result<TargetRun, LiveError> {
    let outcome = both_passes(runner, machine, program, options, chosen, environment);
    match machine.died() {
        Some(died) => Err(died.into()),
        None => outcome,
    }
}

/// Runs the pass that counts, and the timing pass.
fn both_passes(
    runner: &Runner,
    machine: &mut Machine,
    program: &Program,
    options: &LiveOptions,
    chosen: &Chosen,
    mut environment: BTreeMap<String, String>,
) -> Result<TargetRun, LiveError> {
    let numbers: Vec<String> = chosen.cpus.iter().map(u16::to_string).collect();
    let cpus = format!("{}: {}", numbers.join(" "), chosen.how);
    environment.insert("cpus of the scenario".to_owned(), cpus);
    if !machine.undone_before().is_empty() {
        let undone = machine.undone_before().join("; ");
        environment.insert("left behind by a killed run, undone first".to_owned(), undone);
    }
    let (row, _) = KernelRow::of_real(&release(), &environment);
    let mut request = RunRequest {
        program: program.clone(),
        events: true,
        ring_pages: options.ring_pages,
        cpus: chosen.cpus.clone(),
        disk: machine.disk().map(str::to_owned),
        alike_from: sim::alike_from(program, &row),
    };
    let asked = rounds_asked(program);
    let counts = gather(runner, machine, &request, options)?;
    request.events = false;
    let timed = match options.cycles && measures(program) {
        true => Some(gather(runner, machine, &request, options)?),
        false => None,
    };
    let lost = counts.summary.witness.events_lost;
    if counts.rounds.is_empty() && lost > 0 {
        return Err(LiveError::EventsLost { lost });
    }

    let mut result = TargetRun {
        target: "live".to_owned(),
        release: Some(counts.release.clone()),
        environment,
        ..TargetRun::default()
    };
    for (name, value) in &counts.summary.drift {
        result.environment.insert(format!("during the run: {name}"), value.to_string());
    }
    combine(&mut result, counts, timed, asked);
    Ok(result)
}

/// Runs one pass over all rounds. Starts the runner again for missing rounds.
fn gather(
    runner: &Runner,
    machine: &mut Machine,
    request: &RunRequest,
    options: &LiveOptions,
) -> Result<Collected, LiveError> {
    let asked = rounds_asked(&request.program);
    let progress = |rounds| {
        if let Some(progress) = &options.progress {
            progress(rounds, asked);
        }
    };
    collect::gather(request, MOST_PASSES, |request| runner.run(machine, request), progress)
}

/// Puts both passes together. Cycles come only from rounds with equal faults.
fn combine(result: &mut TargetRun, counts: Collected, timed: Option<Collected>, asked: u32) {
    let Summary { final_pages, page_tables, witness, unseen, gave_up, .. } = counts.summary;
    result.rounds = counts.rounds.into_values().collect();
    result.final_pages = final_pages;
    result.page_tables = page_tables;
    result.witness = witness;
    result.unseen = unseen;
    if let Some(timed) = timed {
        let differing = take_cycles(&mut result.rounds, &timed.rounds);
        let Summary { witness, .. } = timed.summary;
        result.environment.insert(
            "cycles pass".to_owned(),
            format!(
                "{} attempts, {} marked, {differing} rounds without cycles because their faults \
                 differ from the counted round's",
                witness.attempted,
                witness.marked_total()
            ),
        );
    }
    let undecided = collect::undecided(&result.witness, result.rounds.len(), asked, gave_up);
    result.invalid = undecided.map(|why| format!("{why}; {QUIETER}"));
}

/// Gives each round the cycles of its counterpart. Returns the number of rounds that got none.
fn take_cycles(rounds: &mut [Round], timed: &BTreeMap<u32, Round>) -> u32 {
    let mut differing = 0;
    for round in rounds {
        let faults = (round.minor_faults, round.major_faults);
        match timed.get(&round.index) {
            Some(twin) if (twin.minor_faults, twin.major_faults) == faults => {
                round.cycles.clone_from(&twin.cycles);
            }
            _ => differing += 1,
        }
    }
    differing
}

fn measures(program: &Program) -> bool {
    program.ops().any(|op| matches!(op.kind, OpKind::Measure { .. }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use needless_model::addr::ProcessId;
    use needless_model::run::{TimedBlock, Witness};

    fn round(index: u32, minor_faults: u64, cycles: Vec<u64>) -> Round {
        let block = |cycles| TimedBlock { process: ProcessId::FIRST, cycles };
        let cycles = cycles.into_iter().map(block).collect();
        Round {
            index,
            minor_faults: Some(minor_faults),
            major_faults: Some(0),
            cycles,
            ..Round::default()
        }
    }

    fn collected(rounds: Vec<Round>, attempted: u32, marked: u32) -> Collected {
        let marked = BTreeMap::from([("events lost".to_owned(), marked)]);
        Collected {
            release: "6.18".to_owned(),
            rounds: rounds.into_iter().map(|round| (round.index, round)).collect(),
            summary: Summary {
                witness: Witness { marked, attempted, ..Witness::default() },
                ..Summary::default()
            },
        }
    }

    #[test]
    fn cycles_come_only_from_rounds_with_the_same_faults() {
        let counts = collected(vec![round(0, 1, vec![]), round(1, 1, vec![])], 2, 0);
        let timed = collected(vec![round(0, 1, vec![77]), round(1, 2, vec![99])], 2, 0);
        let mut result = TargetRun::default();
        combine(&mut result, counts, Some(timed), 2);
        assert_eq!(result.rounds[0].cycles[0].cycles, 77);
        assert!(result.rounds[1].cycles.is_empty());
        assert_eq!(result.invalid, None);
    }

    #[test]
    fn a_short_run_may_repeat_rounds_but_has_to_get_them() {
        let mut result = TargetRun::default();
        combine(&mut result, collected(vec![round(0, 1, vec![])], 10, 1), None, 1);
        assert_eq!(result.invalid, None, "the round was had");
        let mut result = TargetRun::default();
        combine(&mut result, collected(vec![round(0, 1, vec![])], 5, 4), None, 2);
        let why = result.invalid.unwrap();
        assert!(why.contains("1 of 2") && why.contains("4 × events lost"), "{why}");
        assert!(why.contains("cpus=2,5"), "{why}");
    }
}

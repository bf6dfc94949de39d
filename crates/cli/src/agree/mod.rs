//! Agreement at scale: many scenarios on one real kernel, each compared with the kernel's model
//! row.
//!
//! Scenarios run in batches, as large as suits the real kernel. Undecided scenarios run again. A
//! scenario that differs is reported at once. It runs again to see whether it always differs; if
//! so, it is made smaller. Nothing here knows what a real kernel is: [`RealTarget`] is the seam.

mod real;
mod scenarios;
pub mod seeds;

pub use real::open;
pub use scenarios::{Scenario, named, random};

use crate::runs::{Modelled, Runs};
use crate::targets;
use needless_live::{Failure, interrupt};
use needless_model::call::CallExpr;
use needless_model::kernels::KernelRow;
use needless_model::program::{Advice, Op, OpKind, Program};
use needless_model::run::TargetRun;
use needless_model::sim::SimError;
use needless_report::agree::{
    Difference, Found, Minimal, ScenarioAgreement, Standing, TargetAgreement,
};
use needless_report::compare::Ran;
use needless_report::groups::Group;
use needless_scenario::random::Optional;

/// How often an undecided scenario runs again.
const RETRIES: u32 = 3;

/// How often a scenario that differs runs again.
const REPETITIONS: usize = 2;

/// The largest number of runs for making a scenario smaller.
const MOST_REDUCTIONS: usize = 1500;

/// A real kernel.
pub trait RealTarget {
    /// The target's name on the command line.
    fn name(&self) -> String;

    /// Whether it is the running kernel.
    fn is_live(&self) -> bool {
        false
    }

    /// The kernel's release, as far as it is known before anything ran: `6.18.44-amd64`, or `6.12`.
    fn release(&self) -> String;

    /// The model row that was named for the kernel.
    fn named_row(&self) -> Option<&KernelRow> {
        None
    }

    /// The model row that the kernel is compared with, as far as it is known before anything ran,
    /// and whether it is the kernel's own row.
    fn row(&self) -> (KernelRow, bool) {
        match self.named_row() {
            Some(row) => (row.clone(), true),
            None => KernelRow::of_release(&self.release()),
        }
    }

    /// The number of CPUs that a scenario can have.
    fn cpus(&self) -> usize;

    /// The features that the kernel was built without.
    fn without(&self) -> Vec<Optional> {
        Vec::new()
    }

    /// The number of programs that it runs at a time without waste.
    fn batch(&self) -> usize;

    /// Runs programs. Returns one result for each.
    fn run(&mut self, programs: &[Program]) -> Vec<Result<TargetRun, Refusal>>;

    /// Restores everything. Returns a message about what could not be restored.
    fn close(&mut self) -> Option<String>;
}

/// Why a program did not run.
#[derive(Clone, Debug)]
pub struct Refusal {
    /// The reason in words.
    pub reason: String,
    /// What would help.
    pub help: Option<String>,
    /// The exit status for it.
    pub status: u8,
    /// The runs and programs that it holds for.
    pub extent: Extent,
}

/// The runs and programs that a refusal holds for.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Extent {
    /// Every program: any other would be refused, too.
    EveryProgram,
    /// Only this run of this program.
    ThisRun,
    /// Every run of this program: the kernel or the machine lacks what it needs.
    EveryRun,
    /// This program: one of its operations failed.
    Operation,
    /// This program: one of its operations failed, with an error that may pass
    /// ([`is_for_the_moment`]).
    Moment,
}

/// Whether MADV_COLLAPSE was refused because somebody else had one of the pages at that moment:
/// isolated, locked, or with a reference. Kernel threads that look after memory do that for a
/// moment.
///
/// Source: mm/khugepaged.c:madvise_collapse_errno (6.1 to 6.12: EAGAIN, "trying again might
/// succeed").
fn is_for_the_moment(failure: &Failure, program: &Program) -> bool {
    let collapses = |op: &Op| match op.kind {
        OpKind::Call(CallExpr::Advise { advice, .. } | CallExpr::AdviseRanges { advice, .. }) => {
            advice == Advice::Collapse && failure.op == Some(op.id)
        }
        _ => false,
    };
    failure.errno == Some(EAGAIN) && program.ops().any(collapses)
}

/// The number of EAGAIN on every architecture that has a runner.
const EAGAIN: i32 = 11;

/// Runs every scenario on `target`. Calls `done` for each finished one.
pub fn judge(
    target: &mut dyn RealTarget,
    scenarios: &[Scenario],
    runs: &mut Runs<'_>,
    done: &dyn Fn(),
) -> Result<TargetAgreement, Refusal> {
    let (row, own_row) = target.row();
    let mut agreement = TargetAgreement {
        target: target.name(),
        release: None,
        row: format!("model:{}", row.name),
        own_row,
        drawn_without: Vec::new(),
        scenarios: Vec::with_capacity(scenarios.len()),
    };
    let mut judge = Judge { target, kernel: None, runs };
    for batch in scenarios.chunks(judge.target.batch().max(1)) {
        let judged = judge.batch(batch);
        // A signal that asks for an end cuts off what runs, so nothing of that batch counts.
        if interrupt::asked().is_some() {
            break;
        }
        for scenario in judged? {
            agreement.scenarios.push(scenario);
            done();
        }
    }
    if let Some(Kernel { release, row, own_row }) = judge.kernel {
        (agreement.release, agreement.row) = (release, format!("model:{}", row.name));
        agreement.own_row = own_row;
    }
    Ok(agreement)
}

struct Judge<'t, 'r> {
    target: &'t mut dyn RealTarget,
    /// Runs in the model.
    runs: &'t mut Runs<'r>,
    /// What the first run says about the kernel.
    kernel: Option<Kernel>,
}

/// A real kernel that ran something.
struct Kernel {
    /// The release that the kernel itself reports.
    release: Option<String>,
    /// The model's row for the kernel.
    row: KernelRow,
    /// Whether the row is the kernel's own.
    own_row: bool,
}

impl Kernel {
    fn of(run: &TargetRun, named: Option<&KernelRow>) -> Kernel {
        let (row, own_row) = targets::row_of_run(run, named);
        Kernel { release: run.release.clone(), row, own_row }
    }
}

impl Judge<'_, '_> {
    fn batch(&mut self, batch: &[Scenario]) -> Result<Vec<ScenarioAgreement>, Refusal> {
        let all: Vec<&Scenario> = batch.iter().collect();
        let standings = self.standings(&all)?;
        let judged = batch.iter().zip(standings).map(|(scenario, standing)| ScenarioAgreement {
            name: scenario.name.clone(),
            text: scenario.text.clone(),
            groups: Group::of(&scenario.program),
            standing,
            retries: 0,
        });
        let mut judged: Vec<ScenarioAgreement> = judged.collect();
        self.retry(batch, &mut judged)?;
        for (scenario, judged) in batch.iter().zip(&mut judged) {
            if let Standing::Differing(difference) = &mut judged.standing {
                self.look_closer(scenario, difference)?;
            }
        }
        Ok(judged)
    }

    /// Runs each scenario once.
    fn standings(&mut self, scenarios: &[&Scenario]) -> Result<Vec<Standing>, Refusal> {
        let programs: Vec<Program> = scenarios.iter().map(|s| s.program.clone()).collect();
        let mut results = self.target.run(&programs);
        // What was refused for the moment is a difference if it is refused each time.
        for (program, result) in programs.iter().zip(&mut results) {
            for _ in 0..RETRIES {
                if !matches!(result, Err(Refusal { extent: Extent::Moment, .. })) {
                    break;
                }
                let again = self.target.run(std::slice::from_ref(program));
                again.into_iter().for_each(|again| *result = again);
            }
        }
        let judged = scenarios.iter().zip(results).map(|(&scenario, result)| match result {
            Ok(run) => {
                let named = self.target.named_row();
                let kernel = self.kernel.get_or_insert_with(|| Kernel::of(&run, named));
                let row = kernel.row.clone().for_scenario(&scenario.program, &run.environment);
                let kernel = Kernel { release: kernel.release.clone(), row, ..*kernel };
                Ok(standing(scenario, run, &kernel, self.runs))
            }
            Err(refusal) => match refusal.extent {
                Extent::EveryProgram => Err(refusal),
                Extent::ThisRun => Ok(Standing::Undecided(refusal.reason)),
                Extent::EveryRun => Ok(Standing::NotApplicable(refusal.reason)),
                Extent::Operation | Extent::Moment => {
                    Ok(failed(scenario, refusal.reason, self.kernel.as_ref(), self.runs))
                }
            },
        });
        judged.collect()
    }

    /// Runs the undecided scenarios again.
    fn retry(
        &mut self,
        scenarios: &[Scenario],
        judged: &mut [ScenarioAgreement],
    ) -> Result<(), Refusal> {
        for _ in 0..RETRIES {
            let open = judged.iter().enumerate();
            let open = open.filter(|(_, judged)| matches!(judged.standing, Standing::Undecided(_)));
            let open: Vec<usize> = open.map(|(at, _)| at).collect();
            if open.is_empty() {
                break;
            }
            let again: Vec<&Scenario> = open.iter().map(|&at| &scenarios[at]).collect();
            for (at, standing) in open.into_iter().zip(self.standings(&again)?) {
                judged[at].standing = standing;
                judged[at].retries += 1;
            }
        }
        Ok(())
    }

    /// Runs a scenario that differs again. It remains a difference whatever the result is. If it
    /// always differs, it is made smaller. A scenario that differs only sometimes may not differ in
    /// the one run of each smaller scenario, and would take long for nothing.
    fn look_closer(
        &mut self,
        scenario: &Scenario,
        difference: &mut Difference,
    ) -> Result<(), Refusal> {
        for again in self.standings(&[scenario; REPETITIONS])? {
            match again {
                Standing::Differing(_) => difference.repeated.0 += 1,
                Standing::Exact { .. } => {}
                Standing::Undecided(_) | Standing::NotApplicable(_) => continue,
            }
            difference.repeated.1 += 1;
        }
        let (times, runs) = difference.repeated;
        let next = if times == runs { "it is now made smaller" } else { "it is not made smaller" };
        let (target, name) = (self.target.name(), &scenario.name);
        let told = format!("{target}: {name} differs in {times} of {runs} runs; {next}");
        self.runs.progress.tell(&told);
        if times == runs {
            difference.minimal = self.shrink(scenario)?;
        }
        Ok(())
    }

    /// The smallest scenario, reached by single reductions, that still differs. `None` if no
    /// reduction differs.
    fn shrink(&mut self, scenario: &Scenario) -> Result<Option<Minimal>, Refusal> {
        let (mut smallest, mut current, mut runs) = (None, scenario.clone(), 0);
        'smaller: while runs < MOST_REDUCTIONS {
            let candidates = current.smaller();
            for batch in candidates.chunks(self.target.batch().max(1)) {
                runs += batch.len();
                let standings = self.standings(&batch.iter().collect::<Vec<_>>())?;
                for (smaller, standing) in batch.iter().zip(standings) {
                    if let Standing::Differing(difference) = standing {
                        current = smaller.clone();
                        smallest = Some(difference.found);
                        continue 'smaller;
                    }
                }
            }
            break;
        }
        Ok(smallest.map(|found| Minimal { scenario: current.text, found, file: None }))
    }
}

/// The standing of a scenario that ran on a real kernel.
fn standing(scenario: &Scenario, run: TargetRun, kernel: &Kernel, runs: &mut Runs<'_>) -> Standing {
    let Kernel { row, own_row, .. } = kernel;
    match runs.reference(&scenario.program, row) {
        Ok(Modelled { run: model, account }) => {
            let mut ran = Ran::against(&scenario.program, run, &model, account, *own_row);
            ran.forget_events();
            Standing::of(ran)
        }
        Err(error) if error.is_a_bound() => Standing::Undecided(error.to_string()),
        Err(error) => one_sided(None, row, Some(error.to_string())),
    }
}

/// The standing of a scenario that failed on a real kernel.
fn failed(
    scenario: &Scenario,
    reason: String,
    kernel: Option<&Kernel>,
    runs: &mut Runs<'_>,
) -> Standing {
    let Some(Kernel { row, .. }) = kernel else {
        return Standing::Undecided(format!("the kernel's row was not known yet: {reason}"));
    };
    match runs.kinds(&scenario.program, row) {
        Ok(_) => one_sided(Some(reason), row, None),
        Err(SimError::Call { lacks: Some(_), .. } | SimError::Missing { .. }) => {
            Standing::NotApplicable(reason)
        }
        Err(_) => Standing::Undecided(format!("neither can run it: {reason}")),
    }
}

fn one_sided(real: Option<String>, row: &KernelRow, model: Option<String>) -> Standing {
    let row = format!("model:{}", row.name);
    Standing::differing(Found::Failure { real, row, model })
}

#[cfg(test)]
mod tests;

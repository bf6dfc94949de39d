//! Agreement at scale: many scenarios on one real kernel, each held against the kernel's model
//! row.
//!
//! Scenarios run in batches, as large as the real kernel likes them. What was not decided runs
//! again; what differs runs again to see whether it always does, and is made smaller if it was
//! drawn. Nothing here knows what a real kernel is: [`RealTarget`] is the seam.

mod real;
mod scenarios;

pub use real::open;
pub use scenarios::{Scenario, named, random};

use crate::targets;
use needless_model::program::Program;
use needless_model::run::TargetRun;
use needless_report::agree::{Minimal, ScenarioAgreement, Standing, TargetAgreement};
use needless_report::compare::Ran;
use needless_report::groups::Group;

/// Times that an undecided scenario runs again.
const RETRIES: u32 = 3;

/// Times that a scenario that differs runs again.
const REPETITIONS: usize = 2;

/// Runs after which the smallest scenario so far has to do.
const MOST_REDUCTIONS: usize = 1500;

/// A real kernel.
pub trait RealTarget {
    /// Its name on the command line.
    fn name(&self) -> String;

    /// Whether it is the running kernel.
    fn is_live(&self) -> bool {
        false
    }

    /// Its release, as far as known before anything ran: `6.18.44-amd64`, or `6.12`.
    fn release(&self) -> String;

    /// Programs that it takes at a time without waste.
    fn batch(&self) -> usize;

    /// Runs programs; gives as many results.
    fn run(&mut self, programs: &[Program]) -> Vec<Result<TargetRun, Refusal>>;

    /// Puts everything back; what could not be put back is told.
    fn close(&mut self) -> Option<String>;
}

/// Why a program did not run.
#[derive(Clone, Debug)]
pub struct Refusal {
    /// In words.
    pub reason: String,
    /// What would help.
    pub help: Option<String>,
    /// The exit status that tells it.
    pub status: u8,
    /// Whether every other program would be refused, too.
    pub for_good: bool,
}

/// Runs every scenario on `target`; `done` is called for each that is through.
pub fn judge(
    target: &mut dyn RealTarget,
    scenarios: &[Scenario],
    done: &dyn Fn(),
) -> Result<TargetAgreement, Refusal> {
    let (row, own_row) = targets::row_of(Some(&target.release()));
    let mut agreement = TargetAgreement {
        target: target.name(),
        release: None,
        row: format!("model:{}", row.name),
        own_row,
        scenarios: Vec::with_capacity(scenarios.len()),
    };
    let mut judge = Judge { target, ran: None };
    for batch in scenarios.chunks(judge.target.batch().max(1)) {
        for scenario in judge.batch(batch)? {
            agreement.scenarios.push(scenario);
            done();
        }
    }
    if let Some((release, row, own_row)) = judge.ran {
        (agreement.release, agreement.row, agreement.own_row) = (release, row, own_row);
    }
    Ok(agreement)
}

struct Judge<'t> {
    target: &'t mut dyn RealTarget,
    /// The release, as the kernel itself says, the row that the first run was held against, and
    /// whether it is the kernel's own.
    ran: Option<(Option<String>, String, bool)>,
}

impl Judge<'_> {
    fn batch(&mut self, batch: &[Scenario]) -> Result<Vec<ScenarioAgreement>, Refusal> {
        let all: Vec<&Scenario> = batch.iter().collect();
        let standings = self.standings(&all)?;
        let judged = batch.iter().zip(standings).map(|(scenario, standing)| ScenarioAgreement {
            name: scenario.name.clone(),
            groups: Group::of(&scenario.program),
            standing,
            retries: 0,
        });
        let mut judged: Vec<ScenarioAgreement> = judged.collect();
        self.retry(batch, &mut judged)?;
        for (scenario, judged) in batch.iter().zip(&mut judged) {
            self.look_closer(scenario, &mut judged.standing)?;
        }
        Ok(judged)
    }

    /// One run of each scenario.
    fn standings(&mut self, scenarios: &[&Scenario]) -> Result<Vec<Standing>, Refusal> {
        let programs: Vec<Program> = scenarios.iter().map(|s| s.program.clone()).collect();
        let results = self.target.run(&programs);
        let judged = scenarios.iter().zip(results).map(|(scenario, result)| match result {
            Ok(run) => {
                self.ran.get_or_insert_with(|| {
                    let (row, own_row) = targets::row_of_run(&run);
                    (run.release.clone(), format!("model:{}", row.name), own_row)
                });
                Ok(standing(scenario, run))
            }
            Err(refusal) if refusal.for_good => Err(refusal),
            Err(refusal) => Ok(Standing::Undecided(refusal.reason)),
        });
        judged.collect()
    }

    /// Runs what was not decided again.
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

    /// Runs what differs again (it stays a difference whatever comes out), and makes it smaller.
    fn look_closer(&mut self, scenario: &Scenario, standing: &mut Standing) -> Result<(), Refusal> {
        let Standing::Differing(difference) = standing else { return Ok(()) };
        for again in self.standings(&[scenario; REPETITIONS])? {
            match again {
                Standing::Differing(_) => difference.repeated.0 += 1,
                Standing::Exact { .. } => {}
                Standing::Undecided(_) => continue,
            }
            difference.repeated.1 += 1;
        }
        difference.minimal = self.shrink(scenario)?;
        Ok(())
    }

    /// The smallest scenario, reached by single reductions, that still differs; `None` if no
    /// reduction does.
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
                        smallest = Some(difference.ran);
                        continue 'smaller;
                    }
                }
            }
            break;
        }
        Ok(smallest.map(|ran| Minimal { scenario: current.text, ran, file: None }))
    }
}

fn standing(scenario: &Scenario, run: TargetRun) -> Standing {
    match targets::reference(&scenario.program, &run) {
        (Ok(model), own_row) => {
            Standing::of(Ran::real(&scenario.program, run, &model, own_row), &scenario.text)
        }
        (Err(reason), _) => Standing::Undecided(format!("the model could not run it: {reason}")),
    }
}

#[cfg(test)]
mod tests;

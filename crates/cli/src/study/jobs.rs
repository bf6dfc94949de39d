//! What has to run: every scenario of the parts on each of its targets, each pair once. A booted
//! kernel runs all of its scenarios in one boot.

use super::figures::entries;
use super::trouble::{
    is_other_run, passes, patiently, takes_its_place, tell_if_busy, worth_repeating,
};
use super::{LEFT_OUT, Only};
use crate::failure::Failure;
use crate::memory::Memory;
use crate::output::Progress;
use crate::runs::{Keep, Runs};
use crate::targets::{self, Spec};
use needless_model::kernels::KernelRow;
use needless_model::program::Program;
use needless_report::compare::{Outcome, Ran, Target};
use needless_report::style::count;
use needless_scenario::study::{Chosen, From, On, Part, Run, Shown};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

/// The results of every scenario on every target.
pub struct Jobs {
    programs: BTreeMap<String, Program>,
    results: BTreeMap<(String, String), Result<Ran, String>>,
    /// What was wrong the first time, of runs that came out right the second time.
    odd: BTreeMap<(String, String), String>,
    /// Targets that lost runs for a reason that passes; and how many, with the first reason.
    lost: Vec<(String, String)>,
    /// The entries set in page tables, for runs that were asked about.
    set: RefCell<BTreeMap<(String, String), Result<Set, String>>>,
}

/// The number of page-table entries that the kernel sets in a round, by their contents.
pub type Set = BTreeMap<&'static str, u64>;

/// A scenario with its values: `cow-reuse, pages=8, rounds 100`.
pub fn label(chosen: &Chosen) -> String {
    let settings = chosen.settings.0.iter().map(|(name, value)| format!("{name}={value}"));
    let rounds = chosen.rounds.map(|rounds| format!("{rounds} rounds"));
    let thp = chosen.thp.map(|thp| format!("thp \"{}\"", thp.word()));
    let words = std::iter::once(chosen.scenario.clone()).chain(settings).chain(rounds).chain(thp);
    words.collect::<Vec<_>>().join(", ")
}

/// The targets of all runs, each once, in the order of the text.
pub fn targets(parts: &[Part]) -> Vec<String> {
    let mut targets: Vec<String> = Vec::new();
    for On { target, .. } in parts.iter().flat_map(|part| &part.runs).flat_map(|run| &run.targets) {
        if !targets.contains(target) {
            targets.push(target.clone());
        }
    }
    targets
}

impl Jobs {
    /// Runs everything that the parts ask for, on the targets that are not left out.
    pub fn run(
        parts: &[Part],
        only: &Only,
        memory: Memory,
        progress: &Progress,
    ) -> Result<Jobs, Failure> {
        let mut jobs = Jobs {
            programs: BTreeMap::new(),
            results: BTreeMap::new(),
            odd: BTreeMap::new(),
            lost: Vec::new(),
            set: RefCell::default(),
        };
        let all = || parts.iter().flat_map(|part| &part.runs);
        for run in all() {
            let Chosen { scenario, settings, rounds, thp } = &run.chosen;
            let settings: Vec<(String, String)> = settings.0.clone().into_iter().collect();
            let mut program = targets::program(scenario, &settings, *rounds)?;
            program.machine.thp = thp.or(program.machine.thp);
            jobs.programs.insert(label(&run.chosen), program);
        }
        let mut runs =
            Runs { memory, progress, keep: Keep::default(), events: None, tlbs: Vec::new() };
        // A bad target is reported before anything runs.
        let mut specs = Vec::new();
        for name in targets(parts) {
            let spec = match Spec::parse(&name) {
                Ok(spec) => Ok(spec),
                Err(failure) => Err(not_built(&name).ok_or(failure)?),
            };
            specs.push((spec, name));
        }
        let is_live = |(spec, target): &(Result<Spec, String>, String)| {
            matches!(spec, Ok(Spec::Live(_))) && only.has(target)
        };
        if specs.iter().any(is_live) {
            tell_if_busy(progress);
        }
        for (spec, target) in specs {
            let mut labels: Vec<String> =
                all().filter(|run| has(run, &target)).map(|run| label(&run.chosen)).collect();
            labels.sort();
            labels.dedup();
            let why = match spec {
                Ok(spec) if only.has(&target) => {
                    progress.now(&target);
                    jobs.on(&spec, &target, labels, &mut runs)?;
                    continue;
                }
                Err(why) if only.has(&target) => why,
                _ => LEFT_OUT.to_owned(),
            };
            let unused = |label| ((target.clone(), label), Err(why.clone()));
            jobs.results.extend(labels.into_iter().map(unused));
        }
        Ok(jobs)
    }

    /// Runs scenarios on a target.
    fn on(
        &mut self,
        spec: &Spec,
        target: &str,
        labels: Vec<String>,
        runs: &mut Runs<'_>,
    ) -> Result<(), Failure> {
        let mut fit = Vec::new();
        for label in labels {
            match spec.refuse(&self.programs[&label]) {
                Ok(()) => fit.push(label),
                Err(failure) => {
                    self.results.insert((target.to_owned(), label), Err(failure.to_string()));
                }
            }
        }
        let programs: Vec<Program> = fit.iter().map(|label| self.programs[label].clone()).collect();
        let mut results = on_target(spec, &programs, runs)?;
        for (at, what) in repeat(spec, target, &programs, &mut results, runs)? {
            self.odd.insert((target.to_owned(), fit[at].clone()), what);
        }
        self.lost.extend(lost(&results).map(|lost| (target.to_owned(), lost)));
        for (label, result) in fit.into_iter().zip(results) {
            self.results.insert((target.to_owned(), label), usable(result));
        }
        Ok(())
    }

    /// Runs once more what a part times on this kernel. Returns whether anything was measured
    /// again. A result that could not be measured again stays.
    pub fn measure_again(
        &mut self,
        part: &Part,
        only: &Only,
        memory: Memory,
        progress: &Progress,
    ) -> Result<bool, Failure> {
        let mut runs =
            Runs { memory, progress, keep: Keep::default(), events: None, tlbs: Vec::new() };
        let mut measured = false;
        for (run, target) in timed(part).into_iter().filter(|(_, target)| only.has(target)) {
            let spec = match Spec::parse(target) {
                Ok(spec) if matches!(spec, Spec::Live(_)) => spec,
                _ => continue,
            };
            let Some(run) = part.runs.iter().find(|known| known.name == run) else { continue };
            let key = (target.to_owned(), label(&run.chosen));
            if !matches!(self.results.get(&key), Some(Ok(_))) {
                continue;
            }
            progress.now(&format!("{target}: {} again", key.1));
            if let Ok(again) = usable(live(&spec, &self.programs[&key.1], &mut runs)?) {
                self.results.insert(key, Ok(again));
                measured = true;
            }
        }
        Ok(measured)
    }

    /// What was wrong with a run the first time, if a second one took its place.
    pub fn odd(&self, chosen: &Chosen, on: &On) -> Option<&str> {
        self.odd.get(&(on.target.clone(), label(chosen))).map(String::as_str)
    }

    /// The targets that lost runs for a reason that passes; and how many, with the first reason.
    pub fn lost(&self) -> &[(String, String)] {
        &self.lost
    }

    /// The program that runs for a scenario.
    pub fn program(&self, chosen: &Chosen) -> &Program {
        &self.programs[&label(chosen)]
    }

    /// The result of a scenario on one of its targets, or the reason why there is none.
    pub fn result(&self, chosen: &Chosen, on: &On) -> Result<&Ran, String> {
        match self.results.get(&(on.target.clone(), label(chosen))) {
            Some(Ok(ran)) => Ok(ran),
            Some(Err(reason)) => Err(reason.clone()),
            None => Err("it did not run".to_owned()),
        }
    }

    /// What a row of the model sets in page tables. It is computed once.
    pub fn set(&self, chosen: &Chosen, target: &str, row: &KernelRow) -> Result<Set, String> {
        let key = (target.to_owned(), label(chosen));
        if let Some(known) = self.set.borrow().get(&key) {
            return known.clone();
        }
        let set = entries(self.program(chosen), row);
        self.set.borrow_mut().insert(key, set.clone());
        set
    }

    /// The result of a run on the target of this name, or the reason why there is none.
    pub fn on_target(&self, run: &Run, target: &str) -> Result<&Ran, String> {
        let on = run.targets.iter().find(|on| on.target == target);
        self.result(&run.chosen, on.ok_or_else(|| format!("it does not run on {target}"))?)
    }
}

/// The runs of a part, with their targets, whose cycles its figures and prices need. Each is listed
/// once.
fn timed(part: &Part) -> BTreeSet<(&str, &str)> {
    let shown = part.figures.iter().filter_map(|figure| match &figure.from {
        From::Run { run, target, shown: Shown::Cycles(_), .. } => {
            Some((run.as_str(), target.as_str()))
        }
        _ => None,
    });
    let priced = part.costs.iter().flat_map(|costs| {
        costs.samples.iter().map(|sample| (sample.run.as_str(), costs.target.as_str()))
    });
    shown.chain(priced).collect()
}

/// Runs programs on a target, in their order.
fn on_target(
    spec: &Spec,
    programs: &[Program],
    runs: &mut Runs<'_>,
) -> Result<Vec<Target>, Failure> {
    match spec {
        Spec::Live(_) => programs.iter().map(|program| live(spec, program, runs)).collect(),
        _ => spec.targets(programs, runs),
    }
}

/// Repeats once the runs that are worth it, and puts a second run that came out right in the place
/// of the first one. Returns the places, with what was wrong there the first time.
fn repeat(
    spec: &Spec,
    target: &str,
    programs: &[Program],
    results: &mut [Target],
    runs: &mut Runs<'_>,
) -> Result<Vec<(usize, String)>, Failure> {
    let wrong = results.iter().enumerate();
    let mut wrong: Vec<(usize, String)> =
        wrong.filter_map(|(at, result)| Some((at, worth_repeating(result)?))).collect();
    if wrong.is_empty() {
        return Ok(wrong);
    }
    let again: Vec<Program> = wrong.iter().map(|(at, _)| programs[*at].clone()).collect();
    runs.progress.now(&format!("{target}: {} again", again.len()));
    let mut seconds = on_target(spec, &again, runs)?.into_iter();
    wrong.retain(|(at, _)| {
        let right = seconds.next().filter(|second| takes_its_place(&results[*at], second));
        right.map(|second| results[*at] = second).is_some()
    });
    Ok(wrong)
}

/// How many runs of a target showed nothing for a reason that passes, with the first reason: `2 of
/// 9 runs: another live run is going on`.
fn lost(results: &[Target]) -> Option<String> {
    let lost: Vec<&Target> = results.iter().filter(|result| passes(result)).collect();
    let reason = usable((*lost.first()?).clone()).err()?;
    Some(format!("{} of {}: {reason}", lost.len(), count(results.len(), "run")))
}

/// Runs a program on the running kernel. Waits while another live run is going on.
fn live(spec: &Spec, program: &Program, runs: &mut Runs<'_>) -> Result<Target, Failure> {
    let progress = runs.progress;
    let run = || spec.target(program, runs).map(|(target, _)| target);
    let is_busy = |result: &Result<Target, Failure>| match result {
        Ok(Target { outcome: Outcome::Unavailable { reason, .. }, .. }) => is_other_run(reason),
        _ => false,
    };
    patiently(progress, run, is_busy)
}

/// What to do about a target that is a kernel of patches/ and not built yet, such as
/// `kernel:5.10+retry-flush/arm64`.
fn not_built(target: &str) -> Option<String> {
    let name = target.strip_prefix("kernel:")?.split(',').next()?;
    let patched = name.starts_with(|c: char| c.is_ascii_digit()) && name.contains('+');
    patched
        .then(|| format!("the kernel is not built here: `make kernels-own OWN='{name}'` builds it"))
}

fn has(run: &Run, target: &str) -> bool {
    run.targets.iter().any(|on| on.target == target)
}

/// A run that counts, or the reason why there is none.
fn usable(target: Target) -> Result<Ran, String> {
    match target.outcome {
        Outcome::Unavailable { reason, help: None } => Err(reason),
        Outcome::Unavailable { reason, help: Some(help) } => Err(format!("{reason}; {help}")),
        Outcome::Ran(ran) => match &ran.run.invalid {
            Some(reason) => Err(format!("the run counts for nothing: {reason}")),
            None => Ok(*ran),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use needless_live::LiveError;
    use std::slice::from_ref;

    fn unavailable(reason: &str) -> Target {
        let outcome = Outcome::Unavailable { reason: reason.to_owned(), help: None };
        Target { name: "live".to_owned(), remark: None, outcome }
    }

    #[test]
    fn one_lost_run_is_enough_to_be_undecided() {
        let busy = LiveError::Busy { holder: "process 7".to_owned() }.to_string();
        let (passes, stays) = (unavailable(&busy), unavailable("no event can be recorded"));
        assert_eq!(lost(&[]), None);
        assert_eq!(lost(from_ref(&stays)), None);
        assert_eq!(lost(from_ref(&passes)), Some(format!("1 of 1 run: {busy}")));
        let some = [stays.clone(), passes.clone(), stays, passes];
        assert_eq!(lost(&some), Some(format!("2 of 4 runs: {busy}")));
    }
}

//! What has to run: every scenario of the parts on every target that it is asked on, each pair once. A real kernel that
//! is booted runs all of its scenarios in one boot.

use super::figures::entries;
use super::trouble::{is_odd, is_other_run, passes, patiently, tell_if_busy};
use super::{LEFT_OUT, Only};
use crate::failure::Failure;
use crate::memory::Memory;
use crate::output::Progress;
use crate::runs::{Keep, Runs};
use crate::targets::{self, Spec};
use needless_model::kernels::KernelRow;
use needless_model::program::Program;
use needless_report::compare::{Outcome, Ran, Target};
use needless_scenario::study::{Chosen, From, On, Part, Run, Shown};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

/// What came of every scenario on every target.
pub struct Jobs {
    programs: BTreeMap<String, Program>,
    results: BTreeMap<(String, String), Result<Ran, String>>,
    /// What was odd the first time and came out right the second time.
    odd: BTreeMap<(String, String), String>,
    /// Targets that told nothing at all, for a reason that passes.
    lost: Vec<(String, String)>,
    /// What was set in page tables, of what somebody asked about.
    set: RefCell<BTreeMap<(String, String), Result<Set, String>>>,
}

/// Page-table entries that the kernel sets in a round, by what they hold.
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
    /// Runs all that the parts ask for, on the targets that are not left out.
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
        let mut results = match spec {
            Spec::Live(_) => {
                let each = programs.iter().map(|program| live(spec, program, runs));
                each.collect::<Result<Vec<_>, Failure>>()?
            }
            _ => spec.targets(&programs, runs)?,
        };
        let odd = results.iter().enumerate().filter_map(|(at, result)| Some((at, is_odd(result)?)));
        let odd: Vec<(usize, String)> = odd.collect();
        let again: Vec<Program> = odd.iter().map(|(at, _)| programs[*at].clone()).collect();
        if !again.is_empty() {
            runs.progress.now(&format!("{target}: {} once more", again.len()));
            for ((at, what), second) in odd.into_iter().zip(spec.targets(&again, runs)?) {
                if second.ran().is_some_and(|ran| ran.exact() == Some(true)) {
                    self.odd.insert((target.to_owned(), fit[at].clone()), what);
                    results[at] = second;
                }
            }
        }
        if !results.is_empty() && results.iter().all(passes) {
            let reasons = results.iter().cloned().filter_map(|result| usable(result).err());
            self.lost.extend(reasons.map(|reason| (target.to_owned(), reason)).next());
        }
        for (label, result) in fit.into_iter().zip(results) {
            self.results.insert((target.to_owned(), label), usable(result));
        }
        Ok(())
    }

    /// Runs once more what a part times on this kernel; whether anything of it was to be had. What could not be had
    /// again stays as it was.
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
            progress.now(&format!("{target}: {} once more", key.1));
            if let Ok(again) = usable(live(&spec, &self.programs[&key.1], &mut runs)?) {
                self.results.insert(key, Ok(again));
                measured = true;
            }
        }
        Ok(measured)
    }

    /// What was odd about a run the first time, if it was repeated.
    pub fn odd(&self, chosen: &Chosen, on: &On) -> Option<&str> {
        self.odd.get(&(on.target.clone(), label(chosen))).map(String::as_str)
    }

    /// Targets that told nothing at all for a reason that passes, with the reason.
    pub fn lost(&self) -> &[(String, String)] {
        &self.lost
    }

    /// A scenario as it runs.
    pub fn program(&self, chosen: &Chosen) -> &Program {
        &self.programs[&label(chosen)]
    }

    /// What came of it on one of its targets, or why nothing did.
    pub fn result(&self, chosen: &Chosen, on: &On) -> Result<&Ran, String> {
        match self.results.get(&(on.target.clone(), label(chosen))) {
            Some(Ok(ran)) => Ok(ran),
            Some(Err(reason)) => Err(reason.clone()),
            None => Err("it did not run".to_owned()),
        }
    }

    /// What is set in page tables in a row of the model: found out once.
    pub fn set(&self, chosen: &Chosen, target: &str, row: &KernelRow) -> Result<Set, String> {
        let key = (target.to_owned(), label(chosen));
        if let Some(known) = self.set.borrow().get(&key) {
            return known.clone();
        }
        let set = entries(self.program(chosen), row);
        self.set.borrow_mut().insert(key, set.clone());
        set
    }

    /// The same by the target's name.
    pub fn on_target(&self, run: &Run, target: &str) -> Result<&Ran, String> {
        let on = run.targets.iter().find(|on| on.target == target);
        self.result(&run.chosen, on.ok_or_else(|| format!("it does not run on {target}"))?)
    }
}

/// The runs of a part whose cycles its figures and prices rest on, with their targets, each once.
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

/// A program on the running kernel, after any other live run.
fn live(spec: &Spec, program: &Program, runs: &mut Runs<'_>) -> Result<Target, Failure> {
    let progress = runs.progress;
    let run = || spec.target(program, runs).map(|(target, _)| target);
    let is_busy = |result: &Result<Target, Failure>| match result {
        Ok(Target { outcome: Outcome::Unavailable { reason, .. }, .. }) => is_other_run(reason),
        _ => false,
    };
    patiently(progress, run, is_busy)
}

/// Why a target is no kernel yet: it is one of patches/, such as `kernel:5.10+retry-flush/arm64`.
fn not_built(target: &str) -> Option<String> {
    let name = target.strip_prefix("kernel:")?.split(',').next()?;
    let patched = name.starts_with(|c: char| c.is_ascii_digit()) && name.contains('+');
    patched
        .then(|| format!("the kernel is not built here: `make kernels-own OWN='{name}'` builds it"))
}

fn has(run: &Run, target: &str) -> bool {
    run.targets.iter().any(|on| on.target == target)
}

/// A run that counts, or why there is none.
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

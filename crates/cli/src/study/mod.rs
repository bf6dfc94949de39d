//! Runs a study: its scenarios on its targets, its tests in the checker, and the figures of both.

mod aging;
mod checks;
mod contrasts;
mod costs;
mod figures;
mod jobs;
mod margins;
mod standing;
mod tables;
mod tiers;
mod trouble;

use crate::failure::Failure;
use crate::memory::Memory;
use crate::output::Progress;
use crate::targets;
use figures::Figures;
use jobs::Jobs;
use needless_model::program::{Op, OpKind};
use needless_report::study::{
    NOT_DECIDED, PartResult, RelationResult, RunResult, Standing, Studied, TargetResult,
};
use needless_scenario::study::{Part, Run, Study};
use std::time::Instant;
use tiers::Machines;

/// The word for the checker among targets.
const CHECKER: &str = "check";

/// Why a target that was left out has no result.
const LEFT_OUT: &str = "left out by -t";

/// The targets that are asked.
#[derive(Clone, Debug, Default)]
pub struct Only(Vec<String>);

impl Only {
    /// The targets that the words name: `live`, `kernel` for all of its kind, `kernel:6.12`,
    /// `check`. Without words, all targets.
    pub fn new(words: &[String], study: &Study) -> Result<Only, Failure> {
        let only = Only(words.to_vec());
        let known = || jobs::targets(&study.parts).into_iter().chain([CHECKER.to_owned()]);
        for word in words {
            if !known().any(|target| names(word, &target)) {
                return Err(Failure::Usage {
                    message: format!("the study {} has no target `{word}`", study.name),
                    help: "-t takes model, live, kernel, check (the checker), or one of the study's targets"
                        .to_owned(),
                });
            }
        }
        Ok(only)
    }

    fn has(&self, target: &str) -> bool {
        self.0.is_empty() || self.0.iter().any(|word| names(word, target))
    }
}

/// Whether a word names a target: it is the target, or the target's kind.
fn names(word: &str, target: &str) -> bool {
    let rest = target.strip_prefix(word);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with([':', ',']))
}

/// The parts that were asked for.
pub fn parts(study: &Study, part: Option<&str>) -> Result<Vec<Part>, Failure> {
    let Some(name) = part else { return Ok(study.parts.clone()) };
    let parts: Vec<Part> = study.parts.iter().filter(|part| part.name == name).cloned().collect();
    if !parts.is_empty() {
        return Ok(parts);
    }
    let names: Vec<&str> = study.parts.iter().map(|part| part.name.as_str()).collect();
    Err(Failure::Usage {
        message: format!("the study {} has no part `{name}`", study.name),
        help: format!("its parts are {}", names.join(", ")),
    })
}

/// Runs parts of a study.
pub fn run(
    study: Study,
    parts: &[Part],
    only: &Only,
    memory: Memory,
    progress: &Progress,
) -> Result<Studied, Failure> {
    let start = Instant::now();
    let mut jobs = Jobs::run(parts, only, memory, progress)?;
    let mut results = Vec::new();
    for part in parts {
        let first = result(&study, part, &jobs, only, memory, progress)?;
        let fails = first.relations.iter().any(does_not);
        // If another program disturbed a figure, that is no finding.
        results.push(match fails && jobs.measure_again(part, only, memory, progress)? {
            true => twice(&first, result(&study, part, &jobs, only, memory, progress)?),
            false => first,
        });
    }
    let environment = targets::environment();
    let (lost, seconds) = (jobs.lost().to_vec(), start.elapsed().as_secs_f64());
    Ok(Studied { study, parts: results, lost, environment, seconds })
}

fn does_not(relation: &RelationResult) -> bool {
    matches!(relation.standing, Standing::DoesNot(_))
}

/// The second result. What failed in only one of the two is undecided.
fn twice(first: &PartResult, second: PartResult) -> PartResult {
    let relations = first.relations.iter().zip(second.relations).map(|(first, second)| {
        let once = match (does_not(first), does_not(&second)) {
            (false, false) => return second,
            (true, true) => {
                let text = format!("{} (measured twice)", second.text);
                return RelationResult { text, ..second };
            }
            (true, false) => "first",
            (false, true) => "second",
        };
        let reason = format!("{NOT_DECIDED}, it did not hold the {once} time only");
        RelationResult { standing: Standing::NotHere(reason), ..second }
    });
    PartResult { relations: relations.collect(), ..second }
}

/// The result of a part.
fn result(
    study: &Study,
    part: &Part,
    jobs: &Jobs,
    only: &Only,
    memory: Memory,
    progress: &Progress,
) -> Result<PartResult, Failure> {
    let runs: Vec<RunResult> = part.runs.iter().map(|run| of_run(run, jobs)).collect();
    let costs = costs::fitted(part, jobs, memory, progress);
    let machines = Machines::run(part, only, progress);
    let figures = Figures::of(study, part, jobs, (&costs, &machines), (memory, progress));
    let mut relations: Vec<_> =
        part.findings.iter().map(|finding| standing::finding(finding, &runs)).collect();
    relations.extend(part.relations.iter().map(|relation| {
        let margins = margins::of(&figures, part, relation);
        RelationResult { margins, ..figures.relation(relation) }
    }));
    Ok(PartResult {
        name: part.name.clone(),
        doc: part.doc.clone(),
        runs,
        checks: checks::run(&part.checks, only, progress)?,
        tables: tables::all(part, jobs),
        contrasts: contrasts::all(part, jobs, &figures),
        figures: figures.all,
        sweeps: part.sweeps.clone(),
        costs: costs.into_iter().map(|costs| costs.result).collect(),
        relations,
    })
}

fn of_run(run: &Run, jobs: &Jobs) -> RunResult {
    let counters = standing::counters(run);
    let measures = jobs.program(&run.chosen).ops().filter(|op| is_measure(op)).count();
    let target = |on| {
        let result = jobs.result(&run.chosen, on);
        let result = standing::target(on, result, &counters, measures == 1);
        TargetResult { odd: jobs.odd(&run.chosen, on).map(str::to_owned), ..result }
    };
    let targets = run.targets.iter().map(target).collect();
    RunResult { name: run.name.clone(), scenario: jobs::label(&run.chosen), counters, targets }
}

fn is_measure(op: &Op) -> bool {
    matches!(op.kind, OpKind::Measure { .. })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_measured_twice_says_so() {
        let relation = |standing| RelationResult {
            text: "it is cheap".to_owned(),
            formula: "a < b".to_owned(),
            sides: None,
            within: None,
            standing,
            margins: Vec::new(),
            follows: String::new(),
        };
        let part = |standings: [Standing; 4]| PartResult {
            name: "a".to_owned(),
            doc: Vec::new(),
            runs: Vec::new(),
            checks: Vec::new(),
            tables: Vec::new(),
            contrasts: Vec::new(),
            figures: Vec::new(),
            sweeps: Vec::new(),
            costs: Vec::new(),
            relations: standings.into_iter().map(relation).collect(),
        };
        let (holds, fails) = (|| Standing::Holds, || Standing::DoesNot("2 < 1".to_owned()));
        let first = part([holds(), fails(), fails(), holds()]);
        let both = twice(&first, part([holds(), holds(), fails(), fails()]));
        let words: Vec<&str> = both.relations.iter().map(|one| one.standing.word()).collect();
        let (not_here, does_not) = (Standing::NotHere(String::new()), fails());
        assert_eq!(words, ["holds", not_here.word(), does_not.word(), not_here.word()]);
        assert_eq!(both.relations[2].text, "it is cheap (measured twice)");
        let why = "not decided: measured twice, it did not hold the second time only";
        assert_eq!(both.relations[3].standing, Standing::NotHere(why.to_owned()));
    }

    #[test]
    fn words_name_targets_and_kinds_of_them() {
        for (word, target, named) in [
            ("live", "live", true),
            ("model", "model:6.12", true),
            ("model:6.1", "model:6.12", false),
            ("kernel:6.12", "kernel:6.12,cpus=3", true),
            ("kernel", "kernel:6.12", true),
            ("k", "kernel:6.12", false),
            ("kernel:6.12", "kernel:6.12/arm64", false),
        ] {
            assert_eq!(names(word, target), named, "{word} {target}");
        }
    }
}

//! `check`: every interleaving of a scenario in model rows.

use crate::args::{CheckArgs, PageFormat, Reduction};
use crate::failure::{DIFFERENCE, EXPECTED, Failure, INCONCLUSIVE};
use crate::memory::Memory;
use crate::output::{Output, Progress, Sink};
use crate::page::made;
use crate::source::load;
use crate::targets::{LAID_OUT_FOR, Spec};
use needless_check::litmus::{Case, CaseResult, Test, run_all};
use needless_check::{
    CheckError, Checkpoint, Counterexample, Options, Report, Schedule, check as explore, larger,
    replay, scenes,
};
use needless_model::kernels::KernelRow;
use needless_model::program::Program;
use needless_report::check::{
    Checked, Replayed, checked_json, replayed_json, replayed_text, report_text, table,
    verdicts_json,
};
use needless_report::html::{self, Follower, Walk};
use needless_scenario::{Litmus, Settings, builtin, litmus, rehearsed};
use std::num::NonZero;
use std::thread::available_parallelism;
use std::time::Duration;

/// Runs `needless check`.
pub fn check(args: &CheckArgs, output: &Output) -> Result<u8, Failure> {
    let sink = &output.to(args.page.output.as_deref())?;
    let Some(scenario) = &args.scenario else {
        return if args.catalogue { catalogue(args, sink) } else { Err(nothing_named()) };
    };
    let (program, expected) = compile(scenario, args)?;
    let rows = args.targets.iter().map(|name| Ok((name.as_str(), row(name)?)));
    let rows = rows.collect::<Result<Vec<(&str, KernelRow)>, Failure>>()?;
    match (&args.replay, rows.as_slice(), expected) {
        (Some(schedule), [(name, row)], _) => follow(&program, (name, row), schedule, args, sink),
        (Some(_), _, _) => Err(Failure::Usage {
            message: "a schedule belongs to one kernel row".to_owned(),
            help: "give one `-t model:ROW`: the row that printed the schedule".to_owned(),
        }),
        (None, [], Some(litmus)) => {
            litmus_tests(&[Test { name: scenario.clone(), program, litmus }], args, sink)
        }
        (None, [], None) => Err(Failure::Usage {
            message: format!("`{scenario}` has no `litmus` node that names kernel rows"),
            help: "choose a row, as in `-t model:6.12`".to_owned(),
        }),
        (None, rows, _) if args.checkpoint.is_some() && rows.len() > 1 => Err(Failure::Usage {
            message: "a checkpoint belongs to one kernel row".to_owned(),
            help: "give one `-t model:ROW` with --checkpoint".to_owned(),
        }),
        (None, rows, _) => rows_of(&program, rows, args, sink),
    }
}

fn nothing_named() -> Failure {
    Failure::Usage {
        message: "no scenario is named".to_owned(),
        help: "name one that `needless scenario list` shows, or check every litmus test with `needless check --catalogue`"
            .to_owned(),
    }
}

fn row(name: &str) -> Result<KernelRow, Failure> {
    match Spec::parse(name)? {
        Spec::Model(row) => Ok(*row),
        _ => Err(Failure::Usage {
            message: "only a model can be checked: a real kernel runs one interleaving".to_owned(),
            help: "choose a row, as in `-t model:6.12`".to_owned(),
        }),
    }
}

fn compile(name: &str, args: &CheckArgs) -> Result<(Program, Option<Litmus>), Failure> {
    let source = load(name)?;
    let mut settings: Settings = args.settings.iter().cloned().collect();
    if let Some(cpus) = args.cpus {
        let described = needless_scenario::describe(&source)?;
        if !described.parameters.iter().any(|parameter| parameter.name == "cpus") {
            return Err(Failure::Usage {
                message: format!("`{name}` has no parameter `cpus`: its threads have fixed CPUs"),
                help: "leave out --cpus, or give the scenario `param \"cpus\" default=2`"
                    .to_owned(),
            });
        }
        settings.0.insert("cpus".to_owned(), cpus.to_string());
    }
    Ok(rehearsed(&source, &settings, None, &LAID_OUT_FOR)?)
}

/// The shortest time between two checkpoints.
const CHECKPOINTS: Duration = Duration::from_mins(1);

fn options(args: &CheckArgs) -> Options<'static> {
    let cpus = available_parallelism().map_or(1, NonZero::get);
    Options {
        max_states: args.max_states,
        max_memory: Some(Memory::new(args.memory.max_memory).most()),
        deadline: args.deadline,
        workers: args.jobs.map_or(cpus, usize::from),
        key_bits: args.key_bits,
        sleep: !args.without.contains(&Reduction::SleepSets),
        symmetry: !args.without.contains(&Reduction::Symmetry),
        persistent: args.persistent_sets,
        recall: !args.without.contains(&Reduction::Recall),
        checkpoint: args.checkpoint.clone().map(|file| Checkpoint { file, every: CHECKPOINTS }),
        ..Options::default()
    }
}

fn failure(scenario: &str, error: &CheckError) -> Failure {
    Failure::Usage {
        message: format!("`{scenario}` cannot be checked: {error}"),
        help: "the checker takes scenarios with few pages and threads; `needless scenario list` shows litmus tests"
            .to_owned(),
    }
}

/// Checks one scenario on the rows that were asked for.
fn rows_of(
    program: &Program,
    rows: &[(&str, KernelRow)],
    args: &CheckArgs,
    sink: &Sink<'_>,
) -> Result<u8, Failure> {
    let mut checked = Vec::new();
    // A file is written once, when all is known.
    let mut told = String::new();
    for (name, row) in rows {
        let report = with_progress(args, |options| explore(program, row, options))
            .map_err(|error| failure(&program.name, &error))?;
        if args.page.format == PageFormat::Text {
            let text = report_text(&program.name, name, &report, sink.style());
            if sink.is_file() { told += &text } else { sink.result(&text)? }
        }
        checked.push(Checked {
            scenario: program.name.clone(),
            target: (*name).to_owned(),
            report,
        });
    }
    match args.page.format {
        PageFormat::Json => sink.json(&checked_json(&checked))?,
        PageFormat::Html => {
            let found = checked.iter().zip(rows).filter_map(|(checked, (name, row))| {
                Some((program, *name, row, checked.report.counterexample.as_ref()?))
            });
            let walks = walks(found, args)?;
            sink.result(&html::checked(&checked, &walks, &made(&[])))?;
        }
        PageFormat::Text if sink.is_file() => sink.result(&told)?,
        PageFormat::Text => next(&checked, args, sink)?,
    }
    Ok(status(checked.iter().map(|checked| &checked.report)))
}

/// The most counterexamples that a page shows step by step.
const MOST_WALKS: usize = 8;

/// Counterexamples step by step, the first ones.
fn walks<'a>(
    found: impl Iterator<Item = (&'a Program, &'a str, &'a KernelRow, &'a Counterexample)>,
    args: &CheckArgs,
) -> Result<Vec<Walk>, Failure> {
    let walk = |(program, target, row, found): (&Program, &str, &KernelRow, &Counterexample)| {
        let title = format!("{} on {target}, step by step", program.name);
        let follower = Follower::new(title, &found.steps, Some(&found.violation));
        walk(program, row, args, &found.schedule, follower)
    };
    found.take(MOST_WALKS).map(walk).collect()
}

/// What holds after each step of a schedule.
fn walk(
    program: &Program,
    row: &KernelRow,
    args: &CheckArgs,
    schedule: &Schedule,
    mut follower: Follower<'_>,
) -> Result<Walk, Failure> {
    scenes(program, row, &options(args), schedule, &mut |scene| follower.add(&scene))
        .map_err(|error| failure(&program.name, &error))?;
    Ok(follower.finish())
}

/// Prints the command that shows a counterexample again.
fn next(checked: &[Checked], args: &CheckArgs, sink: &Sink<'_>) -> Result<(), Failure> {
    let scenario = args.scenario.as_deref().unwrap_or_default();
    let found = checked.iter().find_map(|c| Some((c, c.report.counterexample.as_ref()?)));
    match found {
        Some((checked, found)) => sink.next(&format!(
            "needless check {scenario} -t {} --replay {}",
            checked.target, found.schedule
        )),
        None => sink.next("needless check --catalogue"),
    }
}

fn status<'a>(mut reports: impl Iterator<Item = &'a Report> + Clone) -> u8 {
    if reports.clone().any(|report| report.counterexample.is_some()) {
        return DIFFERENCE;
    }
    if reports.any(|report| report.bound.is_some()) { INCONCLUSIVE } else { EXPECTED }
}

fn with_progress<T>(args: &CheckArgs, run: impl FnOnce(&Options<'_>) -> T) -> T {
    let bar = Progress::spinner();
    let progress = |now: needless_check::Progress| {
        let rate = now.states as f64 / now.elapsed.as_secs_f64().max(0.001);
        let memory = now.memory.map_or_else(|| "?".to_owned(), |bytes| (bytes >> 20).to_string());
        bar.now(&format!(
            "{} states, {rate:.0}/s, {} in the frontier, {} steps deep, {memory} MiB",
            now.states, now.frontier, now.depth
        ));
    };
    run(&Options { progress: &progress, ..options(args) })
}

/// Follows one schedule, step by step.
fn follow(
    program: &Program,
    (name, row): (&str, &KernelRow),
    schedule: &Schedule,
    args: &CheckArgs,
    sink: &Sink<'_>,
) -> Result<u8, Failure> {
    let (steps, violation) = replay(program, row, &options(args), schedule)
        .map_err(|error| failure(&program.name, &error))?;
    let violated = violation.is_some();
    let replayed = Replayed {
        scenario: program.name.clone(),
        target: name.to_owned(),
        schedule: schedule.to_string(),
        steps,
        violation,
    };
    match args.page.format {
        PageFormat::Json => sink.json(&replayed_json(&replayed))?,
        PageFormat::Html => {
            let title = format!("{} on {name}, step by step", program.name);
            let follower = Follower::new(title, &replayed.steps, replayed.violation.as_ref());
            let walk = walk(program, row, args, schedule, follower)?;
            sink.result(&html::replayed(&replayed, &walk, &made(&[])))?;
        }
        PageFormat::Text => sink.result(&replayed_text(&replayed, sink.style()))?,
    }
    Ok(if violated { DIFFERENCE } else { EXPECTED })
}

fn catalogue(args: &CheckArgs, sink: &Sink<'_>) -> Result<u8, Failure> {
    let mut tests = Vec::new();
    for name in builtin::litmus_names() {
        if let (program, Some(litmus)) = litmus(&load(name)?, &Settings::default())? {
            let test = Test { name: name.to_owned(), program, litmus };
            tests.push(if args.larger { larger(&test) } else { test });
        }
    }
    litmus_tests(&tests, args, sink)
}

fn litmus_tests(tests: &[Test], args: &CheckArgs, sink: &Sink<'_>) -> Result<u8, Failure> {
    let rows = tests.iter().map(|test| needless_check::litmus::cases(&test.litmus).len()).sum();
    let bar = Progress::new("row", rows);
    let verdicts = run_all(tests, &options(args), &|test, case| {
        bar.done();
        bar.now(&format!("{} on {}", test.name, case.row));
    });
    drop(bar);
    let verdicts = verdicts.map_err(|error| failure("the litmus test", &error))?;
    match args.page.format {
        PageFormat::Json => sink.json(&verdicts_json(&verdicts))?,
        PageFormat::Html => {
            let walks = walks_of(tests, &verdicts, args)?;
            sink.result(&html::litmus(&verdicts, &walks, &made(&[])))?;
        }
        PageFormat::Text => {
            sink.result(&table(&verdicts, sink.style()))?;
            if let Some((name, case, _)) =
                verdicts.iter().find(|(_, _, verdict)| has_counterexample(verdict))
            {
                sink.next(&format!("needless check {name} -t model:{}", case.row))?;
            }
        }
    }
    let unexpected = verdicts.iter().map(|(_, _, verdict)| verdict);
    let unexpected: Vec<&CaseResult> = unexpected.filter(|v| !v.unexpected.is_empty()).collect();
    let bounded = |verdict: &&&CaseResult| verdict.report.as_ref().is_ok_and(|r| r.bound.is_some());
    Ok(match (unexpected.len(), unexpected.iter().filter(bounded).count()) {
        (0, _) => EXPECTED,
        (all, bounded) if all == bounded => INCONCLUSIVE,
        _ => DIFFERENCE,
    })
}

/// The counterexamples of one test. A catalogue has too many: its page has the table alone.
fn walks_of(
    tests: &[Test],
    verdicts: &[(String, Case, CaseResult)],
    args: &CheckArgs,
) -> Result<Vec<Walk>, Failure> {
    let [test] = tests else { return Ok(Vec::new()) };
    let row = |case: &Case| row(&format!("model:{}", case.row));
    let failing = verdicts.iter().filter(|(_, _, verdict)| has_counterexample(verdict));
    let rows = failing.map(|(_, case, verdict)| Ok((case, row(case)?, verdict)));
    let rows = rows.collect::<Result<Vec<(&Case, KernelRow, &CaseResult)>, Failure>>()?;
    let found = rows.iter().filter_map(|(case, row, verdict)| {
        let found = verdict.report.as_ref().ok()?.counterexample.as_ref()?;
        Some((&test.program, case.row.as_str(), row, found))
    });
    walks(found, args)
}

fn has_counterexample(verdict: &CaseResult) -> bool {
    verdict.report.as_ref().is_ok_and(|report| report.counterexample.is_some())
}

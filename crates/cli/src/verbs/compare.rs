//! `run` and `compare`: a run is a comparison with one target.

use super::program;
use crate::args::{
    CompareArgs, CompareFormat, MemoryArgs, ResultFormat, RunArgs, ScenarioChoice, StudyArgs,
    StudyFormat,
};
use crate::failure::{DIFFERENCE, EXPECTED, Failure, INCONCLUSIVE, OTHER};
use crate::files::can_write;
use crate::memory::Memory;
use crate::output::{Output, Progress, Sink, tell_failure};
use crate::page::{made, quoted};
use crate::runs::{Keep, Runs};
use crate::spool::Spool;
use crate::targets::{self, Spec};
use needless_model::foreign;
use needless_model::program::Program;
use needless_report::compare::{Comparison, Outcome, Ran, Target};
use needless_report::expect::{self, Case, Expectation, Verdict};
use needless_report::saved::{self, Saved};
use needless_report::stat::{SavedStat, stat_differences, stat_document, stat_text};
use needless_report::{avoided, ci, html, json, notes};
use needless_scenario::{builtin, study};
use std::path::{Path, PathBuf};

/// The largest size of a saved result, in bytes.
const MOST_SAVED: u64 = 1 << 30;

/// Runs `needless run`.
pub fn run(args: &RunArgs, output: &Output) -> Result<u8, Failure> {
    if let Some(study) = study_named(args)? {
        return super::study::study(&study, output);
    }
    let named = args.target.as_deref().unwrap_or("live");
    let spec = Spec::parse(named)?;
    let program = program(&args.choice)?;
    spec.refuse(&program)?;
    args.events.as_deref().map_or(Ok(()), can_write)?;
    let format = args.result.format;
    let sink = output.to_as(args.result.output.as_deref(), format.table())?;
    let figures = format != ResultFormat::Text;
    let with = With { figures, events: &args.events, memory: args.memory };
    let (comparison, spool, status) = compared(program, std::slice::from_ref(&spec), &with)?;
    if let (
        [Target { name, outcome: Outcome::Unavailable { reason, help }, .. }],
        ResultFormat::Text,
    ) = (comparison.targets.as_slice(), format)
    {
        let (target, reason, help) = (name.clone(), reason.clone(), help.clone());
        return Err(Failure::Target { target, reason, help, status });
    }
    let scenario = &args.choice.scenario;
    match (format.table(), format) {
        (Some(format), _) => sink.table(&needless_tables::rounds(&comparison)?, format)?,
        (None, ResultFormat::Json) => sink.json(&json::comparison(&comparison))?,
        (None, ResultFormat::Html) => {
            sink.result(&html::run(&comparison, &made(&[steps(scenario, named)])))?
        }
        (None, _) => {
            let detail = args.detail.detail();
            sink.result(&needless_report::run::text(&comparison, sink.style(), detail))?;
            sink.next(&format!("needless explain {scenario} -t {named}"))?;
        }
    }
    write_events(spool, &comparison)?;
    Ok(status)
}

/// What shows one round step by step.
fn steps(scenario: &str, target: &str) -> (&'static str, String) {
    let [scenario, target] = [scenario, target].map(quoted);
    let command = format!("needless explain {scenario} -t {target} --format html -o explain.html");
    ("One round, step by step", command)
}

/// The study to run, if the name is that of a study and not of a scenario. All of the study runs,
/// on the named target or on all of its targets.
fn study_named(args: &RunArgs) -> Result<Option<StudyArgs>, Failure> {
    let ScenarioChoice { scenario: name, settings, rounds } = &args.choice;
    let is_study = study::ALL.iter().any(|study| study.name == name);
    if !is_study || builtin::find(name).is_some() {
        return Ok(None);
    }
    if !settings.is_empty() || rounds.is_some() || args.events.is_some() {
        return Err(Failure::Usage {
            message: format!("`{name}` is a study, whose runs have their own values"),
            help: "leave out --set, --rounds and --events; `needless study` lists the studies"
                .into(),
        });
    }
    Ok(Some(StudyArgs {
        size: None,
        study: Some(name.clone()),
        verbose: args.detail.verbose,
        part: None,
        targets: args.target.iter().cloned().collect(),
        output: args.result.output.clone(),
        memory: args.memory,
        format: match args.result.format {
            ResultFormat::Text => StudyFormat::Text,
            ResultFormat::Json => StudyFormat::Json,
            ResultFormat::Html => StudyFormat::Html,
            ResultFormat::Parquet | ResultFormat::Arrow => {
                return Err(Failure::Usage {
                    message: format!("`{name}` is a study, whose answer is not a table"),
                    help: "use --format json, or run one of its scenarios".into(),
                });
            }
        },
    }))
}

/// Runs `needless compare`.
pub fn compare(args: &CompareArgs, output: &Output) -> Result<u8, Failure> {
    let outcome = compare_all(args, output);
    if !args.git_bisect {
        return outcome;
    }
    Ok(match outcome {
        Ok(status @ (EXPECTED | DIFFERENCE)) => status,
        Ok(_) => OTHER,
        Err(failure) => {
            tell_failure(failure);
            OTHER
        }
    })
}

/// Compares two saved results.
fn compare_saved(args: &CompareArgs, other: &Path, output: &Output) -> Result<u8, Failure> {
    let paths = [Path::new(&args.choice.scenario), other];
    let sink = output.to(args.output.as_deref())?;
    if let Some(status) = compare_stat(args, paths, &sink)? {
        return Ok(status);
    }
    if args.per.is_some() {
        return Err(Failure::Usage {
            message: "`--per` is for two results of `needless stat`".into(),
            help: "leave out --per: results of scenarios are per round already".into(),
        });
    }
    let [first, second] = [saved(paths[0])?, saved(paths[1])?];
    let differences = saved::differences(&first, &second);
    let names = paths.map(foreign::path);
    let names = [names[0].as_str(), names[1].as_str()];
    match args.format {
        CompareFormat::Json => sink.json(&saved::document(&differences, names))?,
        CompareFormat::Text => sink.result(&saved::text(&differences, names, sink.style()))?,
        CompareFormat::Junit
        | CompareFormat::Tap
        | CompareFormat::Html
        | CompareFormat::Parquet
        | CompareFormat::Arrow => {
            return Err(Failure::Usage {
                message: "saved results are compared as text or as JSON".into(),
                help: "leave out --format, or use --format json".into(),
            });
        }
    }
    Ok(EXPECTED)
}

/// Compares two results of `needless stat`. `None` if they are something else.
fn compare_stat(
    args: &CompareArgs,
    paths: [&Path; 2],
    sink: &Sink<'_>,
) -> Result<Option<u8>, Failure> {
    // A file that cannot be read is reported when it is read as a result of `run` or `compare`.
    let text = |path: &Path| needless_files::read_text(path, MOST_SAVED).unwrap_or_default();
    let read = |path: &Path| SavedStat::read(&text(path));
    let (before, after) = match paths.map(read) {
        [None, None] => return Ok(None),
        [Some(before), Some(after)] => (before, after),
        [before, _] => {
            let odd = foreign::path(paths[usize::from(before.is_some())]);
            return Err(Failure::Usage {
                message: format!("`{odd}` is no result of `needless stat`, but the other file is"),
                help: "save both with `needless stat --format json -o FILE -- COMMAND`".into(),
            });
        }
    };
    let differences = stat_differences(&before, &after, args.per.unwrap_or(1));
    let names = paths.map(foreign::path);
    let names = [names[0].as_str(), names[1].as_str()];
    match args.format {
        CompareFormat::Json => sink.json(&stat_document(&differences, names))?,
        CompareFormat::Text => sink.result(&stat_text(&differences, names, sink.style()))?,
        CompareFormat::Junit
        | CompareFormat::Tap
        | CompareFormat::Html
        | CompareFormat::Parquet
        | CompareFormat::Arrow => {
            return Err(Failure::Usage {
                message: "results of `stat` are compared as text or as JSON".into(),
                help: "leave out --format, or use --format json".into(),
            });
        }
    }
    Ok(Some(EXPECTED))
}

fn saved(path: &Path) -> Result<Saved, Failure> {
    let cannot = |reason: String| Failure::Usage {
        message: format!("cannot compare `{}`: {reason}", foreign::path(path)),
        help: "save results with `needless compare SCENARIO -t live --format json > a.json`".into(),
    };
    let text =
        needless_files::read_text(path, MOST_SAVED).map_err(|error| cannot(error.to_string()))?;
    Saved::read(&text).map_err(|error| cannot(error.to_string()))
}

fn compare_all(args: &CompareArgs, output: &Output) -> Result<u8, Failure> {
    if let Some(other) = &args.other {
        return compare_saved(args, other, output);
    }
    let mut specs: Vec<Spec> = match args.targets.as_slice() {
        [] => Spec::all(),
        names => names.iter().map(|name| Spec::parse(name)).collect::<Result<_, _>>()?,
    };
    if args.expect.contains(&Expectation::Exact) && !specs.iter().any(Spec::is_real) {
        return Err(Failure::Usage {
            message: "`--expect` compares real kernels with model rows, but no target is a real kernel"
                .into(),
            help: "add `-t live` or `-t kernel:6.12`, or name a condition, as in --expect 'shootdowns<=2'"
                .into(),
        });
    }
    let program = program(&args.choice)?;
    if args.targets.is_empty() {
        specs.retain(|spec| spec.refuse(&program).is_ok());
    }
    specs.iter().try_for_each(|spec| spec.refuse(&program))?;
    args.events.as_deref().map_or(Ok(()), can_write)?;
    let table = args.format.table();
    let sink = output.to_as(args.output.as_deref(), table)?;
    let figures =
        matches!(args.format, CompareFormat::Json | CompareFormat::Html) || table.is_some();
    let with = With { figures, events: &args.events, memory: args.memory };
    let (comparison, spool, status) = compared(program, &specs, &with)?;
    let cases = match args.expect.is_empty() && figures {
        true => Vec::new(),
        false => expect::cases(&comparison, &args.expect),
    };
    print(args, &comparison, &cases, &specs, &sink)?;
    write_events(spool, &comparison)?;
    Ok(if status == EXPECTED { standing(&cases) } else { status })
}

fn print(
    args: &CompareArgs,
    comparison: &Comparison,
    cases: &[Case<'_>],
    specs: &[Spec],
    sink: &Sink<'_>,
) -> Result<(), Failure> {
    let name = &comparison.program.name;
    let scenario = &args.choice.scenario;
    let target = || specs.iter().find(|spec| !spec.is_real()).unwrap_or(&specs[0]).name();
    match (args.format.table(), args.format) {
        (Some(format), _) => sink.table(&needless_tables::rounds(comparison)?, format),
        (None, CompareFormat::Json) => sink.json(&json::expected(comparison, cases)),
        (None, CompareFormat::Junit) => sink.result(&ci::junit(name, cases).map_err(no_xml)?),
        (None, CompareFormat::Tap) => sink.result(&ci::tap(name, cases)),
        (None, CompareFormat::Html) => {
            let safe = "Whether what kernels do is safe: every litmus test in every interleaving";
            let next = [steps(scenario, &target()), (safe, "needless check --catalogue".into())];
            sink.result(&html::compare(comparison, cases, &made(&next)))
        }
        (None, _) => {
            let text = notes::text(comparison, sink.style(), args.detail.detail());
            let text = text + &expect::text(cases, sink.style());
            sink.result(&text)?;
            sink.next(&format!("needless explain {scenario} -t {}", target()))
        }
    }
}

fn no_xml(what: String) -> Failure {
    Failure::Stream { stream: "standard output", source: std::io::Error::other(what) }
}

/// The exit status for expectations. One that is not met takes precedence over one that is
/// undecided.
fn standing(cases: &[Case<'_>]) -> u8 {
    let any = |wanted: fn(&Verdict) -> bool| cases.iter().any(|case| wanted(&case.verdict));
    if any(|verdict| matches!(verdict, Verdict::Missed(_))) {
        return DIFFERENCE;
    }
    match any(|verdict| matches!(verdict, Verdict::Undecided(_) | Verdict::NotRun(_))) {
        true => INCONCLUSIVE,
        false => EXPECTED,
    }
}

/// The options of the runs.
struct With<'a> {
    /// Whether every round's figures are printed.
    figures: bool,
    events: &'a Option<PathBuf>,
    memory: MemoryArgs,
}

/// Runs the program on every target. The status is that of the first target that could not run.
fn compared(
    program: Program,
    specs: &[Spec],
    with: &With<'_>,
) -> Result<(Comparison, Option<Spool>, u8), Failure> {
    let progress = Progress::new("target", specs.len());
    let figures = if with.figures { specs.len() as u64 } else { 0 };
    let mut runs = Runs {
        memory: Memory::new(with.memory.max_memory),
        progress: &progress,
        keep: Keep { figures, ..Keep::default() },
        events: with.events.as_deref().map(Spool::new).transpose()?,
        tlbs: Vec::new(),
    };
    let mut status = EXPECTED;
    let mut results = Vec::new();
    for spec in specs {
        progress.now(&spec.name());
        let (target, own) = spec.target(&program, &mut runs)?;
        if let Some(failure) = runs.events.as_mut().and_then(Spool::failure) {
            return Err(failure);
        }
        if status == EXPECTED {
            status = own;
        }
        results.push(target);
        progress.done();
    }
    let steps = targets::steps(&program, specs, &results, &mut runs);
    let avoided = avoided::find(&program, &results, |program, row| runs.kinds(program, row).ok());
    let spool = runs.events;
    Ok((Comparison { program, targets: results, steps, avoided }, spool, status))
}

fn write_events(spool: Option<Spool>, comparison: &Comparison) -> Result<(), Failure> {
    let Some(spool) = spool else { return Ok(()) };
    let ran: Vec<&Ran> = comparison.targets.iter().filter_map(Target::ran).collect();
    spool.finish(&comparison.program, &ran)
}

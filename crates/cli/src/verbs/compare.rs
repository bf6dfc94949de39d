//! `run` and `compare`: a run is a comparison with one target.

use super::program;
use crate::args::{CompareArgs, Format, MemoryArgs, RunArgs};
use crate::failure::{DIFFERENCE, EXPECTED, Failure};
use crate::files::can_write;
use crate::memory::Memory;
use crate::output::{Output, Progress};
use crate::runs::{Keep, Runs};
use crate::spool::Spool;
use crate::targets::{self, Spec};
use needless_model::program::Program;
use needless_report::compare::{Comparison, Outcome, Ran, Target};
use needless_report::{json, notes};
use std::path::PathBuf;

/// `needless run`
pub fn run(args: &RunArgs, output: &Output) -> Result<u8, Failure> {
    let spec = Spec::parse(&args.target)?;
    let program = program(&args.choice)?;
    spec.refuse(&program)?;
    args.events.as_deref().map_or(Ok(()), can_write)?;
    let with = With { format: args.format.format, events: &args.events, memory: args.memory };
    let (comparison, spool, status) = compared(program, std::slice::from_ref(&spec), &with)?;
    if let ([Target { name, outcome: Outcome::Unavailable { reason, help }, .. }], Format::Text) =
        (comparison.targets.as_slice(), args.format.format)
    {
        let (target, reason, help) = (name.clone(), reason.clone(), help.clone());
        return Err(Failure::Target { target, reason, help, status });
    }
    match args.format.format {
        Format::Json => output.json(&json::comparison(&comparison))?,
        Format::Text => {
            output.result(&needless_report::run::text(&comparison, output.style))?;
            output
                .next(&format!("needless explain {} -t {}", args.choice.scenario, args.target))?;
        }
    }
    write_events(spool, &comparison)?;
    Ok(status)
}

/// `needless compare`
pub fn compare(args: &CompareArgs, output: &Output) -> Result<u8, Failure> {
    let mut specs: Vec<Spec> = match args.targets.as_slice() {
        [] => Spec::all(),
        names => names.iter().map(|name| Spec::parse(name)).collect::<Result<_, _>>()?,
    };
    if args.expect && !specs.iter().any(Spec::is_real) {
        return Err(Failure::Usage {
            message: "`--expect` compares real kernels with their model rows, and no target is one"
                .into(),
            help: "add `-t live`, or `-t kernel:6.12`".into(),
        });
    }
    let program = program(&args.choice)?;
    if args.targets.is_empty() {
        specs.retain(|spec| spec.refuse(&program).is_ok());
    }
    specs.iter().try_for_each(|spec| spec.refuse(&program))?;
    args.events.as_deref().map_or(Ok(()), can_write)?;
    let with = With { format: args.format.format, events: &args.events, memory: args.memory };
    let (comparison, spool, status) = compared(program, &specs, &with)?;
    match args.format.format {
        Format::Json => output.json(&json::comparison(&comparison))?,
        Format::Text => {
            output.result(&notes::text(&comparison, output.style))?;
            let target = specs.iter().find(|spec| !spec.is_real()).unwrap_or(&specs[0]);
            output.next(&format!(
                "needless explain {} -t {}",
                args.choice.scenario,
                target.name()
            ))?;
        }
    }
    write_events(spool, &comparison)?;
    let met = comparison.targets.iter().filter_map(Target::ran).filter(|r| r.reference.is_some());
    if status == EXPECTED && args.expect && !met.clone().all(|ran| ran.exact() == Some(true)) {
        return Ok(DIFFERENCE);
    }
    Ok(status)
}

/// How runs are made.
struct With<'a> {
    format: Format,
    events: &'a Option<PathBuf>,
    memory: MemoryArgs,
}

/// Runs the program on every target; the status is that of the first that could not run.
fn compared(
    program: Program,
    specs: &[Spec],
    with: &With<'_>,
) -> Result<(Comparison, Option<Spool>, u8), Failure> {
    let progress = Progress::new(specs.len());
    let figures = if with.format == Format::Json { specs.len() as u64 } else { 0 };
    let mut runs = Runs {
        memory: Memory::new(with.memory.max_memory),
        progress: &progress,
        keep: Keep { figures, round: None },
        events: with.events.as_deref().map(Spool::new).transpose()?,
    };
    let mut status = EXPECTED;
    let mut results = Vec::new();
    for spec in specs {
        progress.now(&spec.name());
        let (target, own) = spec.target(&program, &mut runs)?;
        if status == EXPECTED {
            status = own;
        }
        results.push(target);
        progress.done();
    }
    let steps = targets::steps(&program, specs, &results, &mut runs);
    let spool = runs.events;
    Ok((Comparison { program, targets: results, steps }, spool, status))
}

fn write_events(spool: Option<Spool>, comparison: &Comparison) -> Result<(), Failure> {
    let Some(spool) = spool else { return Ok(()) };
    let ran: Vec<&Ran> = comparison.targets.iter().filter_map(Target::ran).collect();
    spool.finish(&comparison.program.name, &ran)
}

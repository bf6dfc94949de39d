//! `run` and `compare`: a run is a comparison with one target.

use super::program;
use crate::args::{CompareArgs, Format, RunArgs};
use crate::failure::{DIFFERENCE, EXPECTED, Failure};
use crate::output::{Output, Progress, write_whole};
use crate::targets::{self, Spec};
use needless_model::program::Program;
use needless_model::run::TargetRun;
use needless_report::compare::{Comparison, Target};
use needless_report::{json, jsonl, notes};
use std::path::Path;

/// `needless run`
pub fn run(args: &RunArgs, output: &Output) -> Result<u8, Failure> {
    let spec = Spec::parse(&args.target)?;
    let program = program(&args.choice)?;
    spec.refuse_model_only(&program)?;
    let (comparison, status) = compared(program, std::slice::from_ref(&spec))?;
    match args.format.format {
        Format::Json => output.json(&json::comparison(&comparison))?,
        Format::Text => {
            output.result(&needless_report::run::text(&comparison, output.style))?;
            if comparison.targets.iter().any(|target| target.ran().is_some()) {
                output.next(&format!(
                    "needless explain {} -t {}",
                    args.choice.scenario, args.target
                ))?;
            }
        }
    }
    write_events(args.events.as_deref(), &comparison)?;
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
        specs.retain(|spec| spec.refuse_model_only(&program).is_ok());
    }
    specs.iter().try_for_each(|spec| spec.refuse_model_only(&program))?;
    let (comparison, status) = compared(program, &specs)?;
    match args.format.format {
        Format::Json => output.json(&json::comparison(&comparison))?,
        Format::Text => {
            output.result(&notes::text(&comparison, output.style))?;
            let target = specs.iter().find(|spec| !spec.is_real()).unwrap_or(&Spec::Live);
            output.next(&format!(
                "needless explain {} -t {}",
                args.choice.scenario,
                target.name()
            ))?;
        }
    }
    write_events(args.events.as_deref(), &comparison)?;
    let met = comparison.targets.iter().filter_map(Target::ran).filter(|r| r.reference.is_some());
    if status == EXPECTED && args.expect && !met.clone().all(|ran| ran.exact() == Some(true)) {
        return Ok(DIFFERENCE);
    }
    Ok(status)
}

/// Runs the program on every target; the status is that of the first that could not run.
fn compared(program: Program, specs: &[Spec]) -> Result<(Comparison, u8), Failure> {
    let progress = Progress::new(specs.len());
    let mut status = EXPECTED;
    let mut results = Vec::new();
    for spec in specs {
        progress.now(&spec.name());
        let (target, own) = spec.target(&program);
        if status == EXPECTED {
            status = own;
        }
        results.push(target);
        progress.done();
    }
    let steps = targets::steps(&program, specs, &results);
    Ok((Comparison { program, targets: results, steps }, status))
}

fn write_events(path: Option<&Path>, comparison: &Comparison) -> Result<(), Failure> {
    let Some(path) = path else { return Ok(()) };
    let runs: Vec<&TargetRun> =
        comparison.targets.iter().filter_map(Target::ran).map(|ran| &ran.run).collect();
    write_whole(path, |mut out| jsonl::write(&mut out, &comparison.program.name, &runs))
}

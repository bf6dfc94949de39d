//! `agree`: is the model right about real kernels?

use crate::agree::{self, RealTarget, Refusal, Scenario};
use crate::args::{AgreeArgs, Format};
use crate::failure::{DIFFERENCE, EXPECTED, Failure, INCONCLUSIVE};
use crate::output::{Output, Progress, write_whole};
use crate::targets::{self, Spec};
use jiff::Timestamp;
use needless_report::agree::{Minimal, Standing, TargetAgreement, Totals, document, json, text};
use std::path::Path;

/// `needless agree`
pub fn agree(args: &AgreeArgs, output: &Output) -> Result<u8, Failure> {
    let specs = args.targets.iter().map(|name| Spec::parse(name));
    let specs = specs.collect::<Result<Vec<Spec>, Failure>>()?;
    // Before anything is booted: what only the model runs is no difference.
    for name in &args.scenarios {
        let program = targets::program(name, &[], None)?;
        specs.iter().try_for_each(|spec| spec.refuse_model_only(&program))?;
    }
    let mut agreements = Vec::new();
    for name in &args.targets {
        let mut target = open(name)?;
        let outcome = on(&mut *target, args);
        if let Some(left) = target.close() {
            eprintln!("{name}: left behind: {left}");
        }
        agreements.push(outcome?);
    }
    if let Some(path) = &args.report {
        let text = document(&agreements, Timestamp::now());
        write_whole(path, |out| out.write_all(text.as_bytes()))?;
    }
    match args.format.format {
        Format::Json => output.json(&json(&agreements))?,
        Format::Text => {
            output.result(&text(&agreements, output.style))?;
            let named = args.scenarios.first().map_or("cow-reuse", |name| name);
            output.next(&format!("needless compare {named}"))?;
        }
    }
    let totals = Totals::of(agreements.iter().flat_map(|agreement| &agreement.scenarios));
    Ok(match totals.differing {
        0 if totals.is_decided() => EXPECTED,
        0 => INCONCLUSIVE,
        _ => DIFFERENCE,
    })
}

fn open(name: &str) -> Result<Box<dyn RealTarget>, Failure> {
    match agree::open(&Spec::parse(name)?) {
        Some(target) => target.map_err(|refusal| failure(refusal, name)),
        None => Err(Failure::Usage {
            message: format!("`{name}` is no real kernel"),
            help: "hold the model against `live` or `kernel:6.12`; `compare` compares models"
                .into(),
        }),
    }
}

fn failure(refusal: Refusal, target: &str) -> Failure {
    let Refusal { reason, help, status, .. } = refusal;
    Failure::Target { target: target.to_owned(), reason, help, status }
}

/// All scenarios on one real kernel.
fn on(target: &mut dyn RealTarget, args: &AgreeArgs) -> Result<TargetAgreement, Failure> {
    let scenarios = scenarios(target, args)?;
    let progress = Progress::new(scenarios.len());
    progress.now(&target.name());
    let judged = agree::judge(target, &scenarios, &|| progress.done());
    let mut agreement = judged.map_err(|refusal| failure(refusal, &target.name()))?;
    drop(progress);
    if args.targets.len() > 1 {
        let Totals { run, differing, undecided, .. } = Totals::of(&agreement.scenarios);
        eprintln!("{}: {run} run, {differing} differing, {undecided} undecided", target.name());
    }
    if let Some(directory) = &args.keep {
        keep(directory, &mut agreement)?;
    }
    Ok(agreement)
}

/// The scenarios asked for; without any every built-in one.
fn scenarios(target: &dyn RealTarget, args: &AgreeArgs) -> Result<Vec<Scenario>, Failure> {
    let live = args.random_live.filter(|_| target.is_live());
    let count = u64::from(live.or(args.random).unwrap_or(0));
    let mut names = args.scenarios.clone();
    if args.builtin || names.is_empty() && count == 0 {
        names.extend(targets::builtin_names());
    }
    let named = names.iter().map(|name| agree::named(name, args.rounds));
    let (row, _) = targets::row_of(Some(&target.release()));
    let drawn = (0..count).map(|n| agree::random(args.seed.wrapping_add(n), row.release));
    named.chain(drawn).collect()
}

/// Writes the smallest scenario of every difference into `directory`.
fn keep(directory: &Path, agreement: &mut TargetAgreement) -> Result<(), Failure> {
    let failure = |source| Failure::File { path: directory.to_owned(), source };
    std::fs::create_dir_all(directory).map_err(failure)?;
    let release = agreement.release.clone().unwrap_or_default();
    for scenario in &mut agreement.scenarios {
        let Standing::Differing(difference) = &mut scenario.standing else { continue };
        let text = difference.minimal.as_ref().map_or(&difference.scenario, |m| &m.scenario);
        let found = format!("// {}, on {} ({release})\n", scenario.name, agreement.target);
        let text = found + text;
        let path = directory.join(format!("{}.kdl", scenario.name));
        write_whole(&path, |out| out.write_all(text.as_bytes()))?;
        if let Some(Minimal { file, .. }) = &mut difference.minimal {
            *file = Some(path.display().to_string());
        }
    }
    Ok(())
}

//! `agree`: compares the model with real kernels.

use crate::agree::{self, RealTarget, Refusal, Scenario, seeds};
use crate::args::{AgreeArgs, Draw, ResultFormat};
use crate::failure::{DIFFERENCE, EXPECTED, Failure, INCONCLUSIVE};
use crate::files::{Readers, can_write, can_write_into, write_text};
use crate::interrupt;
use crate::memory::Memory;
use crate::output::{Output, Progress, tell, tell_laid_out};
use crate::page::made;
use crate::runs::{Keep, Runs};
use crate::targets::{self, Spec};
use jiff::Timestamp;
use needless_model::foreign;
use needless_model::kernels::KernelRow;
use needless_report::agree::{
    Minimal, Standing, TargetAgreement, Totals, differences, document, json, text,
};
use needless_report::html;
use needless_scenario::random::{Optional, Target};
use std::collections::VecDeque;
use std::io::ErrorKind;
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Mutex;
use std::thread;

/// The largest number of CPUs that a random scenario has.
const MOST_CPUS: usize = 3;

/// Runs `needless agree`.
pub fn agree(args: &AgreeArgs, output: &Output) -> Result<u8, Failure> {
    let specs = args.targets.iter().map(|name| Spec::parse(name));
    let specs = specs.collect::<Result<Vec<Spec>, Failure>>()?;
    // A scenario that only the model can run is refused before anything is booted: it is no
    // difference.
    for name in &args.scenarios {
        let program = targets::program(name, &[], None)?;
        specs.iter().try_for_each(|spec| spec.refuse(&program))?;
    }
    args.report.as_deref().map_or(Ok(()), can_write)?;
    args.keep.as_deref().map_or(Ok(()), can_write_into)?;
    let format = args.result.format;
    let sink = output.to_as(args.result.output.as_deref(), format.table())?;
    let seeds = seeds_of(args)?;
    interrupt::listen();
    let mut agreements = on_all(&specs, args, *seeds.start())?;
    let keeps =
        |directory: &Path| agreements.iter_mut().try_for_each(|found| keep(directory, found));
    let kept = args.keep.as_deref().map_or(Ok(()), keeps);
    match (format.table(), format) {
        (Some(format), _) => sink.table(&needless_tables::scenarios(&agreements)?, format)?,
        (None, ResultFormat::Json) => sink.json(&json(&agreements))?,
        (None, ResultFormat::Html) => sink.result(&html::agree(&agreements, &made(&[])))?,
        (None, _) => {
            sink.result(&text(&agreements, sink.style()))?;
            let named = args.scenarios.first().map_or("cow-reuse", |name| name);
            sink.next(&format!("needless compare {named}"))?;
        }
    }
    if let Some(status) = interrupt::asked() {
        kept?;
        tell(&format!("interrupted: {}", so_far(&agreements, args)));
        return Ok(status);
    }
    // If the report cannot be written after all, that is reported after everything else.
    if let Some(path) = &args.report {
        let seeds = args.seeds.is_some().then_some(seeds);
        let text = document(&agreements, seeds, Timestamp::now());
        write_text(path, Readers::Usual, &text)?;
    }
    kept?;
    let totals = Totals::of(agreements.iter().flat_map(|agreement| &agreement.scenarios));
    Ok(match totals.differing {
        0 if totals.is_decided() => EXPECTED,
        0 => INCONCLUSIVE,
        _ => DIFFERENCE,
    })
}

/// What was found until a signal asked for an end.
fn so_far(agreements: &[TargetAgreement], args: &AgreeArgs) -> String {
    let Totals { run, differing, undecided, .. } =
        Totals::of(agreements.iter().flat_map(|agreement| &agreement.scenarios));
    let report = if args.report.is_some() { "; no report was written" } else { "" };
    let targets = format!("{} of {} targets", agreements.len(), args.targets.len());
    format!("{run} run on {targets}, {differing} differing, {undecided} undecided so far{report}")
}

/// The seeds of the random scenarios: those that were asked for, or the next ones of the file.
fn seeds_of(args: &AgreeArgs) -> Result<RangeInclusive<u64>, Failure> {
    let most = u64::from(args.random.max(args.random_live).unwrap_or(0));
    let Some(path) = &args.seeds else {
        return Ok(args.seed..=args.seed.saturating_add(most.saturating_sub(1)));
    };
    if most == 0 {
        return Err(Failure::Usage {
            message: "--seeds is for random scenarios, but none are asked for".into(),
            help: "add --random N".into(),
        });
    }
    let note = format!("{}\t{}", Timestamp::now().strftime("%F"), args.targets.join(" "));
    let taken = seeds::take(path, most, &note);
    let taken = taken.map_err(|source| match source.kind() {
        ErrorKind::InvalidData | ErrorKind::InvalidInput => Failure::Usage {
            message: format!("`{}` is no file of seeds: {source}", foreign::path(path)),
            help: "--seeds takes a file that `agree` wrote, or the name of a new one".into(),
        },
        _ => Failure::File { path: path.clone(), source },
    })?;
    tell(&format!("seeds {} to {}, noted in {}", taken.start(), taken.end(), foreign::path(path)));
    Ok(taken)
}

/// Runs on every target: the running kernel alone, then the booted ones, several at a time.
fn on_all(specs: &[Spec], args: &AgreeArgs, seed: u64) -> Result<Vec<TargetAgreement>, Failure> {
    let is_live = |at: &usize| matches!(specs[*at], Spec::Live(_));
    let (live, booted): (VecDeque<usize>, VecDeque<usize>) = (0..specs.len()).partition(is_live);
    let done = Mutex::new(Vec::with_capacity(specs.len()));
    for (waiting, jobs) in [(live, 1), (booted, usize::from(args.jobs))] {
        let jobs = jobs.min(waiting.len());
        let waiting = Mutex::new(waiting);
        let next = || waiting.lock().ok()?.pop_front();
        let work = || {
            while let Some(at) = next().filter(|_| interrupt::asked().is_none()) {
                let outcome = on(&args.targets[at], &specs[at], args, seed);
                if let Ok(mut done) = done.lock() {
                    done.push((at, outcome));
                }
            }
        };
        thread::scope(|scope| {
            for _ in 0..jobs {
                scope.spawn(work);
            }
        });
    }
    let mut done = done.into_inner().unwrap_or_default();
    done.sort_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, outcome)| outcome).collect()
}

fn open(name: &str, spec: &Spec) -> Result<Box<dyn RealTarget>, Failure> {
    match agree::open(spec) {
        Some(target) => target.map_err(|refusal| failure(refusal, name)),
        None => Err(Failure::Usage {
            message: format!("`{name}` is no real kernel"),
            help: "name a real kernel, as in `live` or `kernel:6.12`; `compare` takes model rows"
                .into(),
        }),
    }
}

fn failure(refusal: Refusal, target: &str) -> Failure {
    let Refusal { reason, help, status, .. } = refusal;
    Failure::Target { target: target.to_owned(), reason, help, status }
}

/// Runs all scenarios on one real kernel.
fn on(name: &str, spec: &Spec, args: &AgreeArgs, seed: u64) -> Result<TargetAgreement, Failure> {
    let mut target = open(name, spec)?;
    let outcome = judged(&mut *target, args, seed);
    if let Some(left) = target.close() {
        tell(&format!("{name}: left behind: {left}"));
    }
    outcome
}

fn judged(
    target: &mut dyn RealTarget,
    args: &AgreeArgs,
    seed: u64,
) -> Result<TargetAgreement, Failure> {
    let scenarios = scenarios(target, args, seed)?;
    let progress = Progress::new("scenario", scenarios.len());
    progress.now(&target.name());
    let mut runs = Runs {
        memory: Memory::new(args.memory.max_memory).shared_by(args.jobs.into()),
        progress: &progress,
        keep: Keep::default(),
        events: None,
        tlbs: Vec::new(),
    };
    let judged = agree::judge(target, &scenarios, &mut runs, &|| progress.done());
    let mut agreement = judged.map_err(|refusal| failure(refusal, &target.name()))?;
    if args.random.or(args.random_live).is_some() {
        let without = drawn_for(target, args.draw).without;
        agreement.drawn_without = without.iter().map(Optional::to_string).collect();
    }
    drop(progress);
    if args.targets.len() > 1 {
        let Totals { run, differing, undecided, not_applicable, .. } =
            Totals::of(&agreement.scenarios);
        let name = target.name();
        let lacking = match not_applicable {
            0 => String::new(),
            many => format!(", {many} not applicable"),
        };
        tell(&format!("{name}: {run} run, {differing} differing, {undecided} undecided{lacking}"));
        // The results come when all targets are done, which may take an hour or never happen.
        tell_laid_out(|style| differences(&agreement, style));
    }
    Ok(agreement)
}

/// The scenarios that were asked for; without any, every built-in one.
fn scenarios(
    target: &dyn RealTarget,
    args: &AgreeArgs,
    seed: u64,
) -> Result<Vec<Scenario>, Failure> {
    let live = args.random_live.filter(|_| target.is_live());
    let count = u64::from(live.or(args.random).unwrap_or(0));
    let mut names = args.scenarios.clone();
    if args.builtin || names.is_empty() && count == 0 {
        names.extend(targets::builtin_names());
    }
    let named = names.iter().map(|name| agree::named(name, args.rounds));
    let drawn_for = drawn_for(target, args.draw);
    let drawn = |n| agree::random(seed.wrapping_add(n), &drawn_for);
    named.chain((0..count).map(drawn)).collect()
}

/// The kernel and machine that random scenarios are drawn for.
fn drawn_for(target: &dyn RealTarget, draw: Draw) -> Target {
    match draw {
        Draw::There => {
            let (row, _) = target.row();
            Target { without: target.without(), ..Target::new(row.release, target.cpus()) }
        }
        Draw::All => {
            let newest = KernelRow::all().into_iter().map(|row| row.release).max();
            Target::new(newest.unwrap_or_default(), MOST_CPUS)
        }
    }
}

/// Writes the smallest scenario of every difference into `directory`, and each scenario that could
/// not be compared.
fn keep(directory: &Path, agreement: &mut TargetAgreement) -> Result<(), Failure> {
    let failure = |source| Failure::File { path: directory.to_owned(), source };
    std::fs::create_dir_all(directory).map_err(failure)?;
    let release = agreement.release.clone().unwrap_or_default();
    for scenario in &mut agreement.scenarios {
        let text = match &scenario.standing {
            Standing::Differing(difference) => difference.smallest(&scenario.text).1,
            Standing::Undecided(_) => &scenario.text,
            Standing::Exact { .. } | Standing::NotApplicable(_) => continue,
        };
        let (name, word) = (&scenario.name, scenario.standing.word());
        let text = format!("// {name}, {word} on {} ({release})\n{text}", agreement.target);
        let file = format!("{}.{}.kdl", file_name(name), file_name(&agreement.target));
        let path = directory.join(file);
        write_text(&path, Readers::Usual, &text)?;
        if let Standing::Differing(difference) = &mut scenario.standing
            && let Some(Minimal { file, .. }) = &mut difference.minimal
        {
            *file = Some(foreign::path(&path));
        }
    }
    Ok(())
}

/// The name of a target or a scenario, which may be a path, as a part of a file name:
/// `kernel-6.12-cpus-3`.
fn file_name(name: &str) -> String {
    name.replace(|c: char| !c.is_ascii_alphanumeric() && c != '.', "-")
}

#[cfg(test)]
mod tests {
    use super::*;
    use needless_report::agree::ScenarioAgreement;
    use std::collections::BTreeSet;

    #[test]
    fn what_is_kept_stays_in_its_directory_and_says_its_kernel() {
        let folder = tempfile::tempdir().unwrap();
        let undecided = |name: &str| ScenarioAgreement {
            name: name.into(),
            text: "scenario \"one\" {\n}\n".into(),
            groups: BTreeSet::new(),
            standing: Standing::Undecided("no swap device".into()),
            retries: 3,
        };
        let mut agreement = TargetAgreement {
            target: "kernel:6.12,cpus=3".into(),
            release: Some("6.12.118".into()),
            row: "model:6.12".into(),
            own_row: true,
            drawn_without: Vec::new(),
            scenarios: vec![undecided("random-1"), undecided("/etc/one.kdl")],
        };
        keep(&folder.path().join("new"), &mut agreement).unwrap();
        let mut found: Vec<String> = std::fs::read_dir(folder.path().join("new"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        found.sort();
        assert_eq!(
            found,
            ["-etc-one.kdl.kernel-6.12-cpus-3.kdl", "random-1.kernel-6.12-cpus-3.kdl"]
        );
        let text = std::fs::read_to_string(folder.path().join("new").join(&found[1])).unwrap();
        assert!(text.starts_with("// random-1, undecided on kernel:6.12,cpus=3 (6.12.118)\n"));
    }
}

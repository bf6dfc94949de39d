//! `bisect`: finds the two kernels between which something changed, of the archive or of a git
//! tree.

use super::program;
use crate::args::{BisectArgs, Format};
use crate::bisect::judge::Judge;
use crate::bisect::{self, Between};
use crate::failure::{DIFFERENCE, EXPECTED, Failure, OTHER, USAGE};
use crate::output::{Output, tell_failure};
use crate::targets::{Spec, bad_kernel};
use needless_guest::kernels::{self, Candidate};
use needless_guest::{Arch, Choice, KernelTarget, Tree};
use needless_model::foreign;
use needless_model::program::Program;
use needless_report::bisect::{Bisection, Probe, Standing, document, text};
use needless_report::expect::Expectation;
use std::path::Path;

/// Runs `needless bisect`. The status is 125 for anything undecided: `git bisect run` passes over
/// it.
pub fn bisect(args: &BisectArgs, output: &Output) -> Result<u8, Failure> {
    let found = match &args.tree {
        Some(tree) => {
            let program = program(&args.choice)?;
            refuse_model_only(&program)?;
            among_commits(args, &program, tree)
        }
        None => {
            let ends = ends(args)?;
            let program = program(&args.choice)?;
            refuse_model_only(&program)?;
            among_kernels(args, &program, &ends)
        }
    };
    match found {
        Ok(Some(found)) => print(args, &found, output),
        Ok(None) => Ok(DIFFERENCE),
        Err(failure) if failure.status() == USAGE => Err(failure),
        Err(failure) => {
            tell_failure(failure);
            Ok(OTHER)
        }
    }
}

/// Refuses a program that no real kernel can run.
fn refuse_model_only(program: &Program) -> Result<(), Failure> {
    Spec::parse("kernel:6.12")?.refuse(program)
}

fn print(args: &BisectArgs, found: &Bisection, output: &Output) -> Result<u8, Failure> {
    match args.format.format {
        Format::Json => output.json(&document(found))?,
        Format::Text => {
            output.result(&text(found, output.style))?;
            let (good, bad) = (&found.good.name, &found.bad.name);
            output.next(&match &args.tree {
                None => format!("needless compare {} -t {good} -t {bad}", args.choice.scenario),
                Some(tree) => format!("git -C {} show {bad}", foreign::path(tree)),
            })?;
        }
    }
    Ok(if found.is_decided() { EXPECTED } else { OTHER })
}

/// The two ends among the archive's kernels.
fn ends(args: &BisectArgs) -> Result<[KernelTarget; 2], Failure> {
    let (good, bad) = (end(&args.good, "--good")?, end(&args.bad, "--bad")?);
    if good.options == bad.options {
        return Ok([good, bad]);
    }
    Err(Failure::Usage {
        message: "the two kernels would be booted differently".to_owned(),
        help: "give both the same options, as in kernel:6.1,cpus=3 and kernel:6.12,cpus=3"
            .to_owned(),
    })
}

fn end(name: &str, option: &str) -> Result<KernelTarget, Failure> {
    let refused = |what: String| {
        Failure::Usage {
        message: format!("{option} `{name}`: {what}"),
        help: "name a kernel, as in kernel:6.12 (`needless kernels list` shows them); with --tree, name a revision".to_owned(),
    }
    };
    match Spec::parse(name)? {
        Spec::Kernel(target) => match (&target.kernel, target.arch()) {
            (Choice::Named(_), Arch::X86_64) => Ok(*target),
            (Choice::Named(_), arch @ Arch::Arm64) => {
                Err(refused(format!("{arch} kernels show no sequences")))
            }
            (Choice::Own(_), _) => {
                Err(refused("an image has no place among the archive's kernels".to_owned()))
            }
        },
        Spec::Live(_) | Spec::Model(_) => Err(refused("it is no kernel of the archive".to_owned())),
    }
}

/// What the search looks for, in words.
fn expected(args: &BisectArgs) -> String {
    match args.expect.is_empty() {
        true => "sequence".to_owned(),
        false => args.expect.iter().map(Expectation::to_string).collect::<Vec<_>>().join(", "),
    }
}

/// Searches among the archive's kernels. `None` if there is nothing to search for.
fn among_kernels(
    args: &BisectArgs,
    program: &Program,
    ends: &[KernelTarget; 2],
) -> Result<Option<Bisection>, Failure> {
    let mut judge = Judge::new(args, program);
    let [good, bad] = ends;
    let [first, last] = [judge.kernel(good, "")?, judge.kernel(bad, "")?];
    if !are_what_they_are_called(args, &first, &last)? {
        return Ok(None);
    }
    judge.progress.now("reading the archive's lists");
    let candidates = kernels::between(good, bad).map_err(bad_kernel)?;
    let mut probes: Vec<Option<Probe>> = vec![None; candidates.len()];
    let between = bisect::search(candidates.len(), |at| {
        let Candidate { name, version } = &candidates[at];
        let target = KernelTarget::named(name, good.options.clone());
        let probe = judge.kernel(&target, version)?;
        let verdict = probe.verdict;
        probes[at] = Some(probe);
        Ok(verdict)
    })?;
    let Between { good, bad, undecided } = between;
    let probe = |at: usize| probes[at].clone();
    Ok(Some(Bisection {
        scenario: program.name.clone(),
        expected: expected(args),
        between: candidates.len(),
        good: good.and_then(probe).unwrap_or(first),
        bad: bad.and_then(probe).unwrap_or(last),
        undecided: undecided.into_iter().filter_map(probe).collect(),
        runs: judge.runs,
    }))
}

/// Searches among the commits of a git tree, which may have merges. At each step git says which
/// commit tells most.
fn among_commits(
    args: &BisectArgs,
    program: &Program,
    tree: &Path,
) -> Result<Option<Bisection>, Failure> {
    let mut judge = Judge::new(args, program);
    let tree = Tree::open(tree, args.config.as_deref(), &|what| judge.progress.now(what))?;
    let (good, mut bad) = (tree.commit(&args.good)?, tree.commit(&args.bad)?);
    let mut goods = vec![good.clone()];
    let all = tree.between(&goods, &bad)?;
    if !all.contains(&bad) {
        return Err(Failure::Usage {
            message: format!("{} has no commit that {} lacks", args.bad, args.good),
            help: "--bad has to be newer than --good; to find a commit that fixes something, use the opposite condition"
                .to_owned(),
        });
    }
    let [mut last_good, mut first_bad] = [judge.commit(&tree, &good)?, judge.commit(&tree, &bad)?];
    if !are_what_they_are_called(args, &last_good, &first_bad)? {
        return Ok(None);
    }
    let mut silent: Vec<(String, Probe)> = Vec::new();
    loop {
        let open = tree.between(&goods, &bad)?;
        let is_silent = |commit: &String| silent.iter().any(|(known, _)| known == commit);
        let Some(next) = open.iter().find(|commit| **commit != bad && !is_silent(commit)).cloned()
        else {
            silent.retain(|(commit, _)| open.contains(commit));
            break;
        };
        let probe = judge.commit(&tree, &next)?;
        match probe.verdict {
            Standing::Good => {
                goods.push(next);
                last_good = probe;
            }
            Standing::Bad => (bad, first_bad) = (next, probe),
            Standing::Undecided => silent.push((next, probe)),
        }
    }
    Ok(Some(Bisection {
        scenario: program.name.clone(),
        expected: expected(args),
        between: all.len() - 1,
        good: last_good,
        bad: first_bad,
        undecided: silent.into_iter().map(|(_, probe)| probe).collect(),
        runs: judge.runs,
    }))
}

/// Checks that the ends are what the user called them. If not, that is reported. An undecided end
/// is a failure.
fn are_what_they_are_called(args: &BisectArgs, good: &Probe, bad: &Probe) -> Result<bool, Failure> {
    for (end, option, wanted) in [(good, "--good", Standing::Good), (bad, "--bad", Standing::Bad)] {
        if end.verdict == wanted {
            continue;
        }
        let reason = end.reason.clone().unwrap_or_default();
        let (reason, status) = match end.verdict {
            Standing::Undecided => (reason, OTHER),
            Standing::Bad => (format!("it is bad: {reason}"), DIFFERENCE),
            Standing::Good if args.expect.is_empty() => {
                let sequence = end.sequence.as_deref().unwrap_or_default();
                (format!("it has the good kernel's sequence, {sequence}"), DIFFERENCE)
            }
            Standing::Good => (format!("it is good: {}", expected(args)), DIFFERENCE),
        };
        let failure = Failure::Target {
            target: format!("{option} {}", end.name),
            reason,
            help: None,
            status,
        };
        if status == OTHER {
            return Err(failure);
        }
        tell_failure(failure);
        return Ok(false);
    }
    Ok(true)
}

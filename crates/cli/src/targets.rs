//! Targets: where a scenario runs. This file calls the entry points of the model and of real
//! kernels, live and booted.

use crate::failure::{
    EVENTS_LOST, EXPECTED, Failure, INCONCLUSIVE, NOT_PERMITTED, OTHER, UNSUPPORTED,
};
use crate::output::tell;
use crate::runs::{self, Modelled, Runs};
use crate::source;
use miette::Diagnostic;
use needless_guest::{Arch, GuestError, KernelTarget, kernels};
use needless_live::{LiveError, LiveOptions, limits};
use needless_model::account::EVENTS;
use needless_model::arch::{self, X86_64};
use needless_model::foreign;
use needless_model::kernels::KernelRow;
use needless_model::program::Program;
use needless_model::run::{INSTRUCTIONS, TargetRun};
use needless_model::sim::SimError;
use needless_report::compare::{Outcome, Ran, Target};
use needless_report::doctor::{Check, State};
use needless_report::policies::remark;
use needless_report::steps::{self, RowRan, Step};
use needless_scenario::{Settings, builtin};
use needless_watch::Missing;
use std::collections::BTreeMap;
use std::ops::Range;

/// A target as the user asked for it.
#[derive(Clone, Debug, PartialEq)]
pub enum Spec {
    /// The running kernel.
    Live(LiveSpec),
    /// A real kernel that is booted for the run.
    Kernel(Box<KernelTarget>),
    /// A row of the model.
    Model(Box<KernelRow>),
}

/// How the scenario runs on the running kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LiveSpec {
    /// The CPUs to use. If empty, the quietest ones.
    pub cpus: Vec<u16>,
    /// Whether to run without events, by the kernel's counters alone.
    pub blind: bool,
}

impl Spec {
    /// The target that `name` names.
    pub fn parse(name: &str) -> Result<Spec, Failure> {
        if name == "live" {
            return Ok(Spec::Live(LiveSpec::default()));
        }
        if let Some(options) = name.strip_prefix("live,") {
            return live_spec(options).map(Spec::Live).map_err(|what| Failure::Usage {
                message: format!("target `{name}`: {what}"),
                help: "`-t live,cpus=2,5` runs the scenario's CPU 0 on CPU 2, and its CPU 1 on CPU 5; \
                       `-t live,events=off` reads the kernel's own counters only, for runs with \
                       more faults than the event rings can hold"
                    .to_owned(),
            });
        }
        if let Some(kernel) = name.strip_prefix("kernel:") {
            let target = KernelTarget::parse(kernel).map_err(bad_kernel)?;
            kernels::heard_of(&target).map_err(bad_kernel)?;
            return Ok(Spec::Kernel(Box::new(target)));
        }
        let unknown = || Failure::UnknownTarget {
            name: name.to_owned(),
            known: KernelRow::names().join(", "),
        };
        let row = name.strip_prefix("model:").ok_or_else(unknown)?;
        let row = KernelRow::parse(row).map_err(|error| {
            let help = "`needless policies` lists the rows, and the policies that options may set";
            bad_target("model:", row, &error, help.to_owned(), error.place(row))
        })?;
        if let Some(wrong) = row.known_wrong() {
            tell(&format!("warning: {name} is a mutant, known to be wrong: {wrong}"));
        }
        Ok(Spec::Model(Box::new(row)))
    }

    /// Whether the target is a real kernel.
    pub fn is_real(&self) -> bool {
        !matches!(self, Spec::Model(_))
    }

    /// The running kernel and every row of the model.
    pub fn all() -> Vec<Spec> {
        let rows = KernelRow::all().into_iter().map(|row| Spec::Model(Box::new(row)));
        std::iter::once(Spec::Live(LiveSpec::default())).chain(rows).collect()
    }

    /// Refuses a program that only the model can run if this is a real kernel. Also refuses CPUs
    /// that the program cannot run on.
    pub fn refuse(&self, program: &Program) -> Result<(), Failure> {
        if let Some(text) = program.model_only()
            && self.is_real()
        {
            return Err(model_only(&text, &self.name()));
        }
        let Spec::Live(LiveSpec { cpus, .. }) = self else { return Ok(()) };
        if cpus.is_empty() {
            return Ok(());
        }
        needless_live::cpus::check_list(cpus, program).map_err(|error| Failure::Usage {
            message: format!("target `{}`: {error}", self.name()),
            help: error.help().map_or_else(String::new, |help| help.to_string()),
        })
    }

    /// The target's name on the command line.
    pub fn name(&self) -> String {
        match self {
            Spec::Live(LiveSpec { cpus, blind }) => {
                let cpus: Vec<String> = cpus.iter().map(u16::to_string).collect();
                let cpus = (!cpus.is_empty()).then(|| format!(",cpus={}", cpus.join(",")));
                let events = if *blind { ",events=off" } else { "" };
                format!("live{}{events}", cpus.unwrap_or_default())
            }
            Spec::Kernel(target) => format!("kernel:{target}"),
            Spec::Model(row) => format!("model:{}", row.name),
        }
    }

    /// Runs the program on the target. Returns the result and the exit status for it.
    pub fn target(&self, program: &Program, runs: &mut Runs<'_>) -> Result<(Target, u8), Failure> {
        let (outcome, status) = match self {
            Spec::Live(how) => live(program, how, runs)?,
            Spec::Kernel(target) => {
                let results =
                    needless_guest::run_batch(target, std::slice::from_ref(program), &|_| {});
                let result = results
                    .and_then(|mut results| results.pop().unwrap_or_else(|| Err(nothing_ran())));
                booted(program, target, result, runs)?
            }
            Spec::Model(row) => match runs.run(program, row) {
                Ok(Modelled { run, account }) => {
                    let ran = Ran { run, account, reference: None };
                    (Outcome::Ran(Box::new(ran)), EXPECTED)
                }
                Err(error) => {
                    let status = runs.status(program, row, &error)?;
                    let (reason, help) = (error.to_string(), runs::help(&error));
                    (Outcome::Unavailable { reason, help }, status)
                }
            },
        };
        let remark = match self {
            Spec::Live(_) | Spec::Kernel(_) => None,
            Spec::Model(row) => remark(row),
        };
        Ok((Target { name: self.name(), remark, outcome }, status))
    }

    /// Runs programs on the target one after the other. A booted kernel runs them in one boot.
    pub fn targets(
        &self,
        programs: &[Program],
        runs: &mut Runs<'_>,
    ) -> Result<Vec<Target>, Failure> {
        let Spec::Kernel(target) = self else {
            return programs.iter().map(|program| Ok(self.target(program, runs)?.0)).collect();
        };
        let named = |outcome| Target { name: self.name(), remark: None, outcome };
        let of = |done: usize| runs.progress.now(&format!("{}: {done} done", self.name()));
        match needless_guest::run_batch(target, programs, &of) {
            Ok(results) => {
                let results = programs.iter().zip(results);
                results
                    .map(|(program, result)| Ok(named(booted(program, target, result, runs)?.0)))
                    .collect()
            }
            Err(error) => {
                let (reason, help) = (error.to_string(), error.help().map(|help| help.to_string()));
                let outcome =
                    || Outcome::Unavailable { reason: reason.clone(), help: help.clone() };
                Ok(programs.iter().map(|_| named(outcome())).collect())
            }
        }
    }
}

/// Reads options such as `cpus=2,5,events=off`.
fn live_spec(options: &str) -> Result<LiveSpec, String> {
    let (list, blind) = match options.rsplit_once(',') {
        Some((list, "events=off")) => (Some(list), true),
        _ if options == "events=off" => (None, true),
        _ => (Some(options), false),
    };
    let cpus = list.map_or(Ok(Vec::new()), live_cpus)?;
    Ok(LiveSpec { cpus, blind })
}

/// The CPUs that `cpus=2,5` names.
fn live_cpus(options: &str) -> Result<Vec<u16>, String> {
    let list = options.strip_prefix("cpus=").ok_or_else(|| {
        format!("`{options}` is no option of `live`; it has `cpus=` and, last, `events=off`")
    })?;
    let number = |word: &str| word.parse().map_err(|_| format!("`{word}` is no CPU's number"));
    let cpus: Vec<u16> = list.split(',').map(number).collect::<Result<_, _>>()?;
    match needless_live::cpus::twice(&cpus) {
        Some(twice) => Err(format!("CPU {twice} is named twice; name each CPU once")),
        None => Ok(cpus),
    }
}

/// The failure for an operation or a thread that no real kernel can run.
fn model_only(text: &str, target: &str) -> Failure {
    Failure::Usage {
        message: format!(
            "`{text}` cannot run on {target}: only `model:` targets and `needless check` can run it"
        ),
        help: "on a real kernel, madvise \"RANGE\" advice=\"pageout\" is the operation that is \
               nearest to reclaim"
            .to_owned(),
    }
}

/// Runs a program on the running kernel.
fn live(
    program: &Program,
    LiveSpec { cpus, blind }: &LiveSpec,
    runs: &mut Runs<'_>,
) -> Result<(Outcome, u8), Failure> {
    let mut options = LiveOptions { cpus: cpus.clone(), ..LiveOptions::default() };
    if *blind {
        options.ring_pages = 0;
    }
    match needless_live::run(program, &options) {
        Ok(run) => {
            let status = standing(&run, blind_status);
            against_model(program, run, None, status, runs)
        }
        Err(error) => {
            if let LiveError::ProgramFailed(failure) = &error {
                let (row, _) = KernelRow::of_release(&needless_live::release());
                let bad = failure.is_the_programs() && runs.is_bad(program, &row);
                refuse_bad(program, bad, &error)?;
            }
            let (help, status) = (error.help().map(|help| help.to_string()), error.exit_status());
            Ok((Outcome::Unavailable { reason: error.to_string(), help }, status))
        }
    }
}

/// The outcome of a program on a kernel that was booted for it.
fn booted(
    program: &Program,
    target: &KernelTarget,
    result: Result<TargetRun, GuestError>,
    runs: &mut Runs<'_>,
) -> Result<(Outcome, u8), Failure> {
    match result {
        Ok(run) => {
            let counted = !run.unseen.contains_key(INSTRUCTIONS);
            match (standing(&run, || UNSUPPORTED), target.arch()) {
                // Without counted instructions, only totals of faults are left.
                (EXPECTED, Arch::Arm64) if !counted => Ok((alone(program, run, runs), UNSUPPORTED)),
                (status, Arch::X86_64 | Arch::Arm64) => {
                    against_model(program, run, target.options.row.as_ref(), status, runs)
                }
            }
        }
        Err(error) => {
            if let GuestError::ProgramFailed(failure) = &error {
                let (row, _) = target.row();
                let bad = failure.is_the_programs() && runs.is_bad(program, &row);
                refuse_bad(program, bad, &error)?;
            }
            let (help, status) = (error.help().map(|help| help.to_string()), error.exit_status());
            Ok((Outcome::Unavailable { reason: error.to_string(), help }, status))
        }
    }
}

/// Refuses a program that failed on a real kernel and fails on every kernel.
fn refuse_bad(program: &Program, bad: bool, error: &impl ToString) -> Result<(), Failure> {
    if !bad {
        return Ok(());
    }
    Err(Failure::BadScenario { scenario: program.name.clone(), reason: error.to_string() })
}

/// The outcome of a real run that is compared with nothing.
fn alone(program: &Program, run: TargetRun, runs: &mut Runs<'_>) -> Outcome {
    spool(&run, runs);
    finished(Ran::alone(program, run), runs)
}

/// Writes a real run's events to their file.
fn spool(run: &TargetRun, runs: &mut Runs<'_>) {
    if let Some(spool) = &mut runs.events {
        run.rounds.iter().for_each(|round| spool.round(&run.target, round));
    }
}

/// The outcome of a real run with its account. Its events are kept only for `explain`.
fn finished(mut ran: Ran, runs: &Runs<'_>) -> Outcome {
    if runs.keep.round.is_none() {
        ran.forget_events();
    }
    Outcome::Ran(Box::new(ran))
}

fn nothing_ran() -> GuestError {
    GuestError::Confused { what: "gave no result".to_owned() }
}

/// The failure for a kernel that is not understood, as one of the command line.
pub fn bad_kernel(error: GuestError) -> Failure {
    let help = error.help().map_or_else(String::new, |help| help.to_string());
    match &error {
        GuestError::BadTarget { text, what, at, .. } => {
            bad_target("kernel:", text, what, help, at.clone())
        }
        _ => Failure::Usage { message: error.to_string(), help },
    }
}

/// The failure for a target with a mistake at `at` behind its prefix.
fn bad_target(
    prefix: &str,
    text: &str,
    reason: &impl ToString,
    help: String,
    at: Range<usize>,
) -> Failure {
    let name = format!("{prefix}{text}");
    // An option that is missing is missing behind a comma.
    let start = at.start - usize::from(at.is_empty() && at.start > 0);
    let (excerpt, at) = around(&name, start + prefix.len()..at.end + prefix.len());
    let reason = foreign::line(&reason.to_string()).into_owned();
    let reason = format!("target `{}`: {reason}", foreign::short(&name));
    Failure::BadTarget { reason, help, name: excerpt, at: at.into() }
}

/// The part of a text that a message shows: the text around a place, and where the place is in it.
fn around(text: &str, at: Range<usize>) -> (String, Range<usize>) {
    const AROUND: usize = 60;
    let end = text.floor_char_boundary(at.end.min(at.start + AROUND));
    let from = text.floor_char_boundary(at.start.saturating_sub(AROUND));
    let to = text.ceil_char_boundary(end + AROUND);
    let [cut, more] = [from > 0, to < text.len()].map(|cut| if cut { "…" } else { "" });
    let [before, here, after] =
        [from..at.start, at.start..end, end..to].map(|part| foreign::line(&text[part]));
    let start = cut.len() + before.len();
    (format!("{cut}{before}{here}{after}{more}"), start..start + here.len())
}

/// Why a real kernel's run shows nothing, if so.
pub fn why_not(target: &Target) -> Option<String> {
    match &target.outcome {
        Outcome::Unavailable { reason, .. } => Some(reason.clone()),
        Outcome::Ran(ran) => ran.run.invalid.clone(),
    }
}

/// The exit status of a real run. `blind` gives that of a run without events.
fn standing(run: &TargetRun, blind: impl FnOnce() -> u8) -> u8 {
    match &run.invalid {
        Some(_) if run.witness.events_lost > 0 => EVENTS_LOST,
        Some(_) => OTHER,
        None if run.unseen.contains_key(EVENTS) => blind(),
        None => EXPECTED,
    }
}

/// Compares a real run with a model row: the one that was named for it, else the one of its release
/// or of the nearest older release. Returns the outcome and the exit status.
fn against_model(
    program: &Program,
    run: TargetRun,
    named: Option<&KernelRow>,
    status: u8,
    runs: &mut Runs<'_>,
) -> Result<(Outcome, u8), Failure> {
    let (row, own_row) = row_of_run(&run, named);
    let row = row.for_scenario(program, &run.environment);
    match runs.reference(program, &row) {
        Ok(Modelled { run: model, account }) => {
            spool(&run, runs);
            let ran = Ran::against(program, run, &model, account, own_row);
            Ok((finished(ran, runs), status))
        }
        Err(error @ SimError::NotModelled { .. }) => {
            let why = format!("model:{} cannot run the scenario: {error}", row.name);
            let mut run = run;
            run.unseen.insert(VERDICTS.to_owned(), why);
            Ok((alone(program, run, runs), status))
        }
        Err(error) => {
            let reason = format!("the kernel ran it, but model:{} cannot: {error}", row.name);
            let status = if error.is_a_bound() { INCONCLUSIVE } else { OTHER };
            Ok((Outcome::Unavailable { reason, help: runs::help(&error) }, status))
        }
    }
}

/// The name under which a run says why it has no verdicts.
const VERDICTS: &str = "verdicts";

/// The status of a run without events, of which only rusage was compared.
fn blind_status() -> u8 {
    let refused = |check: &needless_live::Check| {
        check.name == "privilege" && check.state != needless_live::State::Ok
    };
    if needless_live::doctor().iter().any(refused) { NOT_PERMITTED } else { UNSUPPORTED }
}

/// The model's row for the kernel of a real run, and whether it is the kernel's own. A row that was
/// named is.
pub fn row_of_run(run: &TargetRun, named: Option<&KernelRow>) -> (KernelRow, bool) {
    KernelRow::held_against(named, run.release.as_deref().unwrap_or_default(), &run.environment)
}

/// What explains each step from one model row to the next, in the order of the targets.
pub fn steps(
    program: &Program,
    specs: &[Spec],
    targets: &[Target],
    runs: &mut Runs<'_>,
) -> Vec<Step> {
    let rows: Vec<RowRan<'_>> = specs
        .iter()
        .zip(targets)
        .filter_map(|(spec, target)| match spec {
            Spec::Model(row) => Some((row.as_ref(), target.name.as_str(), &target.ran()?.account)),
            Spec::Live(_) | Spec::Kernel(_) => None,
        })
        .collect();
    steps::between(&rows, |row| runs.kinds(program, row).ok())
}

/// The architecture that areas are laid out for. Every target so far has pages and page tables of
/// these sizes, including arm64's kernels with pages of 4 KiB.
pub const LAID_OUT_FOR: arch::Arch = X86_64;

/// The program of a scenario, ready to run.
pub fn program(
    name: &str,
    settings: &[(String, String)],
    rounds: Option<u32>,
) -> Result<Program, Failure> {
    let settings: Settings = settings.iter().cloned().collect();
    Ok(needless_scenario::rehearsed(&source::load(name)?, &settings, rounds, &LAID_OUT_FOR)?.0)
}

/// The names of the built-in scenarios.
pub fn builtin_names() -> Vec<String> {
    builtin::names().map(str::to_owned).collect()
}

/// What this machine can show.
pub fn checks() -> Vec<Check> {
    let check = |check: needless_live::Check| Check {
        name: check.name.to_owned(),
        state: match check.state {
            needless_live::State::Ok => State::Ok,
            needless_live::State::Warning => State::Warning,
            needless_live::State::Missing => State::Missing,
        },
        found: check.detail,
        help: check.remedy,
    };
    if !limits::has_proc() {
        let (found, help) = (limits::NO_PROC.0.to_owned(), Some(limits::NO_PROC.1.to_owned()));
        return vec![Check { name: "proc".to_owned(), state: State::Missing, found, help }];
    }
    let mut checks: Vec<Check> = needless_live::doctor().into_iter().map(check).collect();
    let last = checks.len().saturating_sub(1);
    checks.insert(last, watching());
    checks
}

/// What `needless stat` would lack on this machine.
fn watching() -> Check {
    let (state, found, help) = match needless_watch::doctor::missing() {
        Ok(missing) if missing.is_empty() => (State::Ok, "everything".to_owned(), None),
        Ok(missing) => {
            let one = |part: &Missing| format!("{} ({}: {})", part.lacks, part.what, part.why);
            let lacks = missing.iter().map(one).collect::<Vec<_>>().join("; ");
            let helps = missing.iter().find_map(|part| part.remedy.as_deref());
            let helps = helps.unwrap_or("nothing is known to help");
            let help = format!("{helps}; the rest of the report is not affected");
            (State::Warning, format!("without {lacks}"), Some(help))
        }
        Err(error) => {
            let found = format!("counters only, no events: {error}");
            (State::Missing, found, Some("see privilege and tracefs".to_owned()))
        }
    };
    Check { name: "needless stat".to_owned(), state, found, help }
}

/// The environment, as every live result records it.
pub fn environment() -> BTreeMap<String, String> {
    needless_live::environment()
}

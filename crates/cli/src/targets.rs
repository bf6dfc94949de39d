//! Targets: where a scenario runs. The one file that knows the entry points of the model, of real
//! kernels (live and booted) and of the scenario language.

use crate::failure::{EVENTS_LOST, EXPECTED, Failure, NOT_PERMITTED, OTHER, UNSUPPORTED};
use crate::verbs::policies::remark;
use miette::Diagnostic;
use needless_guest::{Arch, GuestError, KernelTarget};
use needless_live::LiveOptions;
use needless_model::account::{Account, EVENTS};
use needless_model::kernels::KernelRow;
use needless_model::policy::POLICIES;
use needless_model::program::{Op, OpKind, Program};
use needless_model::run::{INSTRUCTIONS, TargetRun};
use needless_model::sim::{self, SimOptions};
use needless_report::compare::{Outcome, Ran, Target};
use needless_report::doctor::{Check, State};
use needless_report::steps::{self, Difference, Step};
use needless_scenario::{Settings, builtin};
use needless_watch::Missing;
use std::collections::BTreeMap;

/// A target as it was asked for.
#[derive(Clone, Debug, PartialEq)]
pub enum Spec {
    /// The running kernel.
    Live,
    /// A real kernel, booted for the purpose.
    Kernel(Box<KernelTarget>),
    /// A row of the model.
    Model(Box<KernelRow>),
}

impl Spec {
    /// The target that `name` names.
    pub fn parse(name: &str) -> Result<Spec, Failure> {
        if name == "live" {
            return Ok(Spec::Live);
        }
        if let Some(kernel) = name.strip_prefix("kernel:") {
            let target = KernelTarget::parse(kernel).map_err(bad_kernel)?;
            return Ok(Spec::Kernel(Box::new(target)));
        }
        let unknown = || Failure::UnknownTarget {
            name: name.to_owned(),
            known: KernelRow::names().join(", "),
        };
        let row = name.strip_prefix("model:").ok_or_else(unknown)?;
        let bad = |error: needless_model::kernels::RowError| Failure::BadRow {
            name: name.to_owned(),
            reason: error.to_string(),
        };
        let row = KernelRow::parse(row).map_err(bad)?;
        if let Some(wrong) = row.known_wrong() {
            eprintln!("warning: {name} is a mutant, known to be wrong: {wrong}");
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
        std::iter::once(Spec::Live).chain(rows).collect()
    }

    /// Refuses a program that only the model can run, if this is a real kernel.
    pub fn refuse_model_only(&self, program: &Program) -> Result<(), Failure> {
        match program.model_only() {
            Some(text) if self.is_real() => Err(model_only(&text, &self.name())),
            _ => Ok(()),
        }
    }

    /// The name that names it.
    pub fn name(&self) -> String {
        match self {
            Spec::Live => "live".to_owned(),
            Spec::Kernel(target) => format!("kernel:{target}"),
            Spec::Model(row) => format!("model:{}", row.name),
        }
    }

    /// Runs the program there; gives the result and the exit status that tells it.
    pub fn target(&self, program: &Program) -> (Target, u8) {
        let (outcome, status) = match self {
            Spec::Live => live(program),
            Spec::Kernel(target) => booted(program, target),
            Spec::Model(row) => match model(program, row) {
                Ok(run) => (Outcome::Ran(Box::new(Ran::model(program, run))), EXPECTED),
                Err(reason) => (Outcome::Unavailable { reason, help: None }, UNSUPPORTED),
            },
        };
        let remark = match self {
            Spec::Live | Spec::Kernel(_) => None,
            Spec::Model(row) => remark(row),
        };
        (Target { name: self.name(), remark, outcome }, status)
    }
}

/// An operation, or a thread, that no real kernel can be asked for.
fn model_only(text: &str, target: &str) -> Failure {
    Failure::Usage {
        message: format!(
            "`{text}` cannot run on {target}: only `model:` targets and `needless check` can run it"
        ),
        help: "the nearest to reclaim that a real kernel can be asked for is madvise \"RANGE\" \
               advice=\"pageout\""
            .to_owned(),
    }
}

/// A program in a row of the model.
pub fn model(program: &Program, row: &KernelRow) -> Result<TargetRun, String> {
    sim::run(program, row, &SimOptions::default()).map_err(|error| error.to_string())
}

/// A program on the running kernel.
fn live(program: &Program) -> (Outcome, u8) {
    match needless_live::run(program, &LiveOptions::default()) {
        Ok(run) => {
            let status = standing(&run, blind_status);
            against_model(program, run, status)
        }
        Err(error) => {
            let (help, status) = (error.help().map(|help| help.to_string()), error.exit_status());
            (Outcome::Unavailable { reason: error.to_string(), help }, status)
        }
    }
}

/// A program on a kernel that is booted for it.
fn booted(program: &Program, target: &KernelTarget) -> (Outcome, u8) {
    let programs = std::slice::from_ref(program);
    let results = needless_guest::run_batch(&target.kernel, &target.options, programs, &|_| {});
    let result =
        results.and_then(|mut results| results.pop().unwrap_or_else(|| Err(nothing_ran())));
    match result {
        Ok(run) => {
            let counted = !run.unseen.contains_key(INSTRUCTIONS);
            match (standing(&run, || UNSUPPORTED), target.arch()) {
                (status, Arch::X86_64) => against_model(program, run, status),
                // Faults in all are the rest of what there is.
                (EXPECTED, Arch::Arm64) if !counted => {
                    (Outcome::Ran(Box::new(Ran::alone(program, run))), UNSUPPORTED)
                }
                // The model has no rows for it.
                (status, Arch::Arm64) => (Outcome::Ran(Box::new(Ran::alone(program, run))), status),
            }
        }
        Err(error) => {
            let (help, status) = (error.help().map(|help| help.to_string()), error.exit_status());
            (Outcome::Unavailable { reason: error.to_string(), help }, status)
        }
    }
}

fn nothing_ran() -> GuestError {
    GuestError::Confused { what: "gave no result".to_owned() }
}

/// A target that is not understood, as a failure of the command line.
fn bad_kernel(error: GuestError) -> Failure {
    let help = error.help().map_or_else(String::new, |help| help.to_string());
    Failure::Usage { message: error.to_string(), help }
}

/// The exit status that tells how a real run went; `blind` gives that of a run without events.
fn standing(run: &TargetRun, blind: impl FnOnce() -> u8) -> u8 {
    match &run.invalid {
        Some(_) if run.witness.events_lost > 0 => EVENTS_LOST,
        Some(_) => OTHER,
        None if run.unseen.contains_key(EVENTS) => blind(),
        None => EXPECTED,
    }
}

/// A real run with its exit status, held against the model's row for its release or the nearest
/// older one.
fn against_model(program: &Program, run: TargetRun, status: u8) -> (Outcome, u8) {
    let (row, own_row) = row_of_run(&run);
    match model(program, &row) {
        Ok(model) => {
            let ran = Ran::real(program, run, &model, own_row);
            (Outcome::Ran(Box::new(ran)), status)
        }
        Err(error) => {
            let reason = format!("it ran there, but model:{} cannot run it: {error}", row.name);
            (Outcome::Unavailable { reason, help: None }, OTHER)
        }
    }
}

/// The status of a run without events: rusage is all that was compared.
fn blind_status() -> u8 {
    let refused = |check: &needless_live::Check| {
        check.name == "privilege" && check.state != needless_live::State::Ok
    };
    if needless_live::doctor().iter().any(refused) { NOT_PERMITTED } else { UNSUPPORTED }
}

/// The model's row for the kernel and the processor of a real run, and whether it is the kernel's
/// own.
pub fn row_of_run(run: &TargetRun) -> (KernelRow, bool) {
    let (row, own_row) = row_of(run.release.as_deref());
    let says = |name, value| run.environment.get(name).is_some_and(|found| found == value);
    let row = row.on_la57(says("cpu.flag.la57", "yes"));
    let generations = run.environment.get("vm.lru_gen").map(|on| on.trim_start_matches("0x"));
    let mglru = generations.is_some_and(|on| on.chars().any(|digit| digit != '0'));
    let row = if mglru { row } else { row.without_mglru() };
    let row = if says("config.MEM_SOFT_DIRTY", "n") { row.without_soft_dirty() } else { row };
    (row, own_row)
}

/// The model's row for a release like `6.18.44-amd64`, and whether it is the kernel's own.
pub fn row_of(release: Option<&str>) -> (KernelRow, bool) {
    let mut numbers = release.unwrap_or_default().split(|c: char| !c.is_ascii_digit());
    let mut next = || numbers.next().and_then(|number| number.parse().ok()).unwrap_or(0);
    KernelRow::nearest(next(), next())
}

/// What explains each step from one model row to the next, in the order of the targets.
pub fn steps(program: &Program, specs: &[Spec], targets: &[Target]) -> Vec<Step> {
    let rows: Vec<(&KernelRow, &Target, &Account)> = specs
        .iter()
        .zip(targets)
        .filter_map(|(spec, target)| match spec {
            Spec::Model(row) => Some((row.as_ref(), target, &target.ran()?.account)),
            Spec::Live | Spec::Kernel(_) => None,
        })
        .collect();
    let step = |pair: &[(&KernelRow, &Target, &Account)]| {
        let [(from, before, old), (to, after, new)] = pair else { return None };
        let (numbers, differences) = differences(from, to);
        let run_with = |changed: &[usize]| {
            let mut row = (*from).clone();
            for &at in changed {
                row.policies = row.policies.with_one_from(&to.policies, numbers[at]);
            }
            model(program, &row).ok().map(|run| Account::of(program, &run))
        };
        Some(steps::explain((&before.name, old), (&after.name, new), &differences, run_with))
    };
    rows.windows(2).filter_map(step).collect()
}

/// The policies in which two rows differ: their numbers, and what they are.
fn differences(from: &KernelRow, to: &KernelRow) -> (Vec<usize>, Vec<Difference>) {
    let words = from.policies.words().into_iter().zip(to.policies.words());
    let differing = words.enumerate().filter(|(_, (old, new))| old != new);
    differing
        .map(|(at, (old, new))| {
            let policy = POLICIES[at].name.to_owned();
            (at, Difference { policy, from: old.to_owned(), to: new.to_owned() })
        })
        .unzip()
}

/// The scenario made ready to run.
pub fn program(
    name: &str,
    settings: &[(String, String)],
    rounds: Option<u32>,
) -> Result<Program, Failure> {
    let settings: Settings = settings.iter().cloned().collect();
    let mut program = needless_scenario::compile(&needless_scenario::load(name)?, &settings)?;
    if let (Some(rounds), Some(first)) = (rounds, program.threads.first_mut()) {
        set_rounds(&mut first.body, rounds);
    }
    Ok(program)
}

/// Sets the number of rounds that count; they are the first thread's, wherever they stand.
fn set_rounds(body: &mut [Op], rounds: u32) {
    for op in body {
        match &mut op.kind {
            OpKind::Rounds { count, .. } => *count = rounds,
            OpKind::Repeat { body, .. }
            | OpKind::ForEach { body, .. }
            | OpKind::Measure { body } => set_rounds(body, rounds),
            _ => {}
        }
    }
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
    let mut checks: Vec<Check> = needless_live::doctor().into_iter().map(check).collect();
    let last = checks.len().saturating_sub(1);
    checks.insert(last, watching());
    checks
}

/// What `needless stat` would lack here.
fn watching() -> Check {
    let (state, found, help) = match needless_watch::doctor::missing() {
        Ok(missing) if missing.is_empty() => (State::Ok, "everything".to_owned(), None),
        Ok(missing) => {
            let one = |part: &Missing| format!("{} ({}: {})", part.lacks, part.what, part.why);
            let lacks = missing.iter().map(one).collect::<Vec<_>>().join("; ");
            let helps = missing.iter().find_map(|part| part.remedy.as_deref());
            let helps = helps.unwrap_or("nothing is known to help");
            let help = format!("{helps}; the rest of the report comes all the same");
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

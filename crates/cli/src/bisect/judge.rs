//! Judges a kernel by running the scenario on it.

use crate::args::BisectArgs;
use crate::failure::Failure;
use crate::memory::Memory;
use crate::output::Progress;
use crate::runs::{Keep, Runs};
use crate::targets::{self, Spec, bad_kernel};
use needless_guest::{BuildError, KernelTarget, Tree};
use needless_model::program::Program;
use needless_model::sequence::Sequence;
use needless_report::bisect::{Probe, Standing};
use needless_report::compare::Ran;
use needless_report::expect::{self, Expectation};

/// Runs the scenario on one kernel after the other.
pub struct Judge<'a> {
    args: &'a BisectArgs,
    program: &'a Program,
    /// The report of progress to the user.
    pub progress: Progress,
    /// The good end's sequence.
    wanted: Option<Sequence>,
    /// The results of all kernels so far.
    pub runs: Vec<Probe>,
}

impl Judge<'_> {
    /// A judge that has run nothing yet. What runs first is the good end.
    pub fn new<'a>(args: &'a BisectArgs, program: &'a Program) -> Judge<'a> {
        Judge { args, program, progress: Progress::spinner(), wanted: None, runs: Vec::new() }
    }

    /// Runs the scenario on a kernel of the archive. `version` is that of its package, as far as it
    /// is known.
    pub fn kernel(&mut self, target: &KernelTarget, version: &str) -> Result<Probe, Failure> {
        let name = format!("kernel:{target}");
        self.progress.now(&format!("{name} ({} run)", self.runs.len()));
        let probe = self.run(target, &name, version)?;
        Ok(self.note(probe))
    }

    /// Compiles a commit and runs the scenario there. A commit that does not compile is undecided.
    pub fn commit(&mut self, tree: &Tree, commit: &str) -> Result<Probe, Failure> {
        let (number, subject) = tree.text(commit)?;
        let run = self.runs.len();
        let built =
            tree.build(commit, &|step| self.progress.now(&format!("{number} ({run} run): {step}")));
        let probe = match built {
            Ok(image) => {
                self.progress.now(&format!("{number} ({run} run): booting"));
                let target = KernelTarget::parse(&image.to_string_lossy()).map_err(bad_kernel)?;
                self.run(&target, &number, &subject)?
            }
            Err(
                error @ (BuildError::Compile { .. }
                | BuildError::Lacks { .. }
                | BuildError::Refused { .. }),
            ) => Probe::silent(&number, &subject, error.to_string()),
            Err(error) => return Err(error.into()),
        };
        Ok(self.note(probe))
    }

    fn note(&mut self, probe: Probe) -> Probe {
        self.runs.push(probe.clone());
        probe
    }

    fn run(&mut self, target: &KernelTarget, name: &str, version: &str) -> Result<Probe, Failure> {
        let mut runs = Runs {
            memory: Memory::new(self.args.memory.max_memory),
            progress: &self.progress,
            keep: Keep::default(),
            events: None,
            tlbs: Vec::new(),
        };
        let spec = Spec::Kernel(Box::new(target.clone()));
        let (result, _) = spec.target(self.program, &mut runs)?;
        Ok(match (targets::why_not(&result), result.ran()) {
            (Some(why), _) => Probe::silent(name, version, why),
            (None, None) => Probe::silent(name, version, "it did not run".to_owned()),
            (None, Some(ran)) => {
                let (standing, reason) = match self.args.expect.is_empty() {
                    true => self.by_sequence(ran),
                    false => by_expectation(ran, &self.args.expect),
                };
                let package = ran.run.environment.get("kernel.package");
                let version = package.map_or(version, String::as_str);
                Probe::of(name, version, &ran.account, standing, reason)
            }
        })
    }

    /// Judges whether the most frequent sequence is that of the kernel that ran first, the good
    /// end.
    fn by_sequence(&mut self, ran: &Ran) -> (Standing, Option<String>) {
        let groups = ran.account.sequences();
        let Some(most) = groups.first() else {
            let why =
                ran.account.unknown.get("sequence").map_or("nothing was seen", String::as_str);
            return (Standing::Undecided, Some(format!("its sequence is unknown: {why}")));
        };
        let wanted = self.wanted.get_or_insert_with(|| most.value.clone());
        match wanted == most.value {
            true => (Standing::Good, None),
            false => (Standing::Bad, None),
        }
    }
}

/// Judges whether everything that is expected is met.
fn by_expectation(ran: &Ran, expected: &[Expectation]) -> (Standing, Option<String>) {
    let mut open = None;
    for expectation in expected {
        match expect::judged(ran, expectation) {
            Some(expect::Verdict::Met) => {}
            Some(expect::Verdict::Missed(why)) => {
                return (Standing::Bad, Some(format!("{expectation}: {why}")));
            }
            Some(expect::Verdict::Undecided(why) | expect::Verdict::NotRun(why)) => {
                open.get_or_insert(format!("{expectation}: {why}"));
            }
            None => {
                open.get_or_insert(format!("{expectation}: there is no model row"));
            }
        }
    }
    match open {
        Some(why) => (Standing::Undecided, Some(why)),
        None => (Standing::Good, None),
    }
}

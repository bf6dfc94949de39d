//! Runs the model. Rounds are folded as they end, memory is bounded, and progress is reported.

use crate::failure::{Failure, INCONCLUSIVE, OTHER, UNSUPPORTED};
use crate::memory::Memory;
use crate::output::Progress;
use crate::spool::Spool;
use needless_live::interrupt;
use needless_model::account::Account;
use needless_model::fold::Folding;
use needless_model::kernels::KernelRow;
use needless_model::program::{OpKind, Program};
use needless_model::run::{Round, TargetRun};
use needless_model::sim::{self, Look, SimError, SimOptions, SimWorld, Watch};
use needless_report::html::Held;
use std::time::{Duration, Instant};

/// How often memory is read and progress is reported.
const SELDOM: Duration = Duration::from_millis(20);

/// For rounds with this many events or more, memory is checked whenever asked: folding them takes
/// long.
const MANY: usize = 1 << 16;

/// The bytes that an event takes until its round is folded, in addition to itself.
const FOLDING: u64 = 200;

/// The bytes of one round's figures in a JSON document.
const FIGURES: u64 = 800;

/// What is kept of runs in addition to their accounts.
#[derive(Copy, Clone, Debug, Default)]
pub struct Keep {
    /// The number of targets for which every round's figures are kept at a time. If 0, kinds of
    /// round are enough.
    pub figures: u64,
    /// The round whose events are kept.
    pub round: Option<u32>,
    /// Whether to keep the places where a processor may or may not fault.
    pub choices: bool,
    /// Changes of page-table entries, and what TLBs hold in the round whose events are kept.
    pub shown: bool,
}

/// Runs, and what they have in common.
pub struct Runs<'a> {
    /// The memory that they may take.
    pub memory: Memory,
    /// Where progress is reported.
    pub progress: &'a Progress,
    /// What is kept of them.
    pub keep: Keep,
    /// Where their events go.
    pub events: Option<Spool>,
    /// What TLBs held in the round whose events are kept, if that is shown.
    pub tlbs: Vec<Held>,
}

/// A run of the model.
pub struct Modelled {
    /// The run, with only the rounds that were asked for.
    pub run: TargetRun,
    /// The account of the run.
    pub account: Account,
}

impl Runs<'_> {
    /// Runs a program in a row and keeps what this asks for.
    pub fn run(&mut self, program: &Program, row: &KernelRow) -> Result<Modelled, SimError> {
        let keep = self.keep;
        let name = format!("model:{}", row.name);
        let start = self.events.as_mut().map(Spool::mark);
        let result = self.watched(program, row, keep, Some(name));
        if let (Err(_), Some(spool), Some(start)) = (&result, &mut self.events, start) {
            spool.back_to(start);
        }
        result
    }

    /// Runs a program in a row, as the reference for the rounds of another run.
    pub fn reference(&mut self, program: &Program, row: &KernelRow) -> Result<Modelled, SimError> {
        self.watched(program, row, Keep { figures: 1, choices: true, ..Keep::default() }, None)
    }

    /// The kinds of round of a program in a row.
    pub fn kinds(&mut self, program: &Program, row: &KernelRow) -> Result<Account, SimError> {
        Ok(self.watched(program, row, Keep::default(), None)?.account)
    }

    fn watched(
        &mut self,
        program: &Program,
        row: &KernelRow,
        keep: Keep,
        events_of: Option<String>,
    ) -> Result<Modelled, SimError> {
        let every = keep.figures > 0 || keep.round.is_some();
        let mut watcher = Watcher {
            memory: self.memory,
            progress: self.progress,
            name: format!("model:{}", row.name),
            rounds: rounds(program),
            looked: Instant::now(),
            keep,
            kept: Vec::new(),
            program,
            over: 0,
            tlbs: Vec::new(),
            folding: Folding::new(program, every),
            events: self.events.as_mut().zip(events_of),
        };
        let options = SimOptions {
            memory: self.memory.of_model(),
            choices: keep.choices,
            pte_events: keep.shown,
            shows: keep.shown,
            ..SimOptions::default()
        };
        let mut run = sim::run_with(program, row, &options, &mut watcher)?;
        let Watcher { folding, kept, tlbs, .. } = watcher;
        if keep.shown {
            self.tlbs = tlbs;
        }
        let account = folding.finish(&run.unseen);
        run.witness.attempted = u32::try_from(account.total).unwrap_or(u32::MAX);
        run.rounds = kept;
        Ok(Modelled { run, account })
    }

    /// Whether a program that fails on `row` is a bad scenario, which no kernel runs.
    pub fn is_bad(&mut self, program: &Program, row: &KernelRow) -> bool {
        let newest = KernelRow::all().pop().filter(|newest| newest.name != row.name);
        let failed = |error: SimError| error.is_the_programs();
        newest.is_none_or(|newest| self.kinds(program, &newest).is_err_and(failed))
    }

    /// The exit status for a row that did not run a program.
    pub fn status(
        &mut self,
        program: &Program,
        row: &KernelRow,
        error: &SimError,
    ) -> Result<u8, Failure> {
        if error.is_the_programs() && self.is_bad(program, row) {
            return Err(Failure::BadScenario {
                scenario: program.name.clone(),
                reason: error.to_string(),
            });
        }
        Ok(match error {
            error if error.is_a_bound() => INCONCLUSIVE,
            error if error.is_the_programs() => UNSUPPORTED,
            SimError::NotModelled { .. } | SimError::Missing { .. } => UNSUPPORTED,
            _ => OTHER,
        })
    }
}

/// What would help a run that was not finished.
pub fn help(error: &SimError) -> Option<String> {
    let help = "raise the limit with --max-memory=MIB, or use fewer pages, shorter rounds or fewer \
                rounds";
    match error {
        SimError::Call { lacks: Some(feature), .. } => Some(feature.remedy()),
        error => error.is_a_bound().then(|| help.to_owned()),
    }
}

/// The number of rounds that count, for progress.
fn rounds(program: &Program) -> u32 {
    let all = program.threads.iter().flat_map(|thread| &thread.body);
    let count = all.map(|op| if let OpKind::Rounds { count, .. } = op.kind { count } else { 0 });
    count.max().unwrap_or(0)
}

struct Watcher<'a, 'p> {
    memory: Memory,
    progress: &'a Progress,
    name: String,
    /// The number of rounds that have to run.
    rounds: u32,
    looked: Instant,
    keep: Keep,
    kept: Vec<Round>,
    program: &'p Program,
    /// Rounds that are over.
    over: u32,
    /// What TLBs held in the round that is kept.
    tlbs: Vec<Held>,
    folding: Folding<'p>,
    events: Option<(&'a mut Spool, String)>,
}

impl Watch for Watcher<'_, '_> {
    fn round(&mut self, round: &Round) {
        self.folding.add(round);
        if let Some((spool, target)) = &mut self.events {
            spool.round(target, round);
        }
        if self.keep.round == Some(round.index) {
            self.kept.push(round.clone());
        }
        self.over += 1;
    }

    fn world(&mut self, world: &SimWorld, events: usize) {
        if self.keep.round != Some(self.over) {
            return;
        }
        let held = Held::of(self.program, world, events);
        Held::note(&mut self.tlbs, held);
    }

    fn look(&mut self, at: Look) -> Result<(), String> {
        interrupt::go_on().map_err(|why| why.to_string())?;
        if self.events.as_ref().is_some_and(|(spool, _)| spool.failed()) {
            return Err("the events cannot be written".to_owned());
        }
        if at.events < MANY && self.looked.elapsed() < SELDOM {
            return Ok(());
        }
        self.looked = Instant::now();
        let soon = at.events as u64 * FOLDING + u64::from(at.rounds) * FIGURES * self.keep.figures;
        let used = self.memory.check(soon)?;
        self.progress.now(&format!(
            "{}: round {} of {}, {} MiB",
            self.name,
            at.rounds,
            self.rounds,
            used >> 20
        ));
        Ok(())
    }
}

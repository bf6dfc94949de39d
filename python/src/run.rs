//! Runs of the model, in this process and without the GIL.

use crate::error::{Failure, row_of};
use crate::source::Source;
use crate::table::Table;
use needless_model::account::Account;
use needless_model::event::Event;
use needless_model::fold::Folding;
use needless_model::kernels::KernelRow;
use needless_model::program::Program;
use needless_model::run::{Round, TargetRun};
use needless_model::sim::{self, Look, SimError, SimOptions, Watch};
use needless_report::compare::{Comparison as Compared, Outcome, Ran, Target};
use needless_report::explain::{Explanation, json as explained_json, text as explained_text};
use needless_report::policies::remark;
use needless_report::steps::{self, RowRan};
use needless_report::style::Detail;
use needless_report::{Style, avoided, json, notes, run as one};
use needless_tables::Seen;
use pyo3::prelude::*;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

/// How often Python is asked whether Ctrl-C was pressed.
const SELDOM: Duration = Duration::from_millis(100);

/// The bound where the machine does not tell what it has, in bytes.
const UNKNOWN: u64 = 2 << 30;

/// How texts look.
const STYLE: Style = Style { unicode: true, ..Style::PLAIN };

/// What is kept of a run beside its account.
#[derive(Copy, Clone, Debug)]
pub struct Keep {
    /// Which kind each round is of.
    pub figures: bool,
    /// The events of every round.
    pub events: bool,
    /// The events of this round.
    pub round: Option<u32>,
    /// Where a processor may fault or not.
    pub choices: bool,
}

/// Kinds of round alone.
pub const KINDS: Keep = Keep { figures: false, events: false, round: None, choices: false };

/// Why a run has no result.
pub enum Stop {
    /// The model cannot run it.
    Model(SimError),
    /// Python wants it to end.
    Python(PyErr),
}

struct Watcher<'p> {
    folding: Folding<'p>,
    keep: Keep,
    kept: Vec<Round>,
    /// Events kept, and how many there may be.
    events: (usize, usize),
    looked: Instant,
    ended: Option<PyErr>,
}

impl Watch for Watcher<'_> {
    fn round(&mut self, round: &Round) {
        self.folding.add(round);
        if self.keep.events || self.keep.round == Some(round.index) {
            self.events.0 += round.events.len();
            self.kept.push(round.clone());
        }
    }

    fn look(&mut self, _: Look) -> Result<(), String> {
        if self.events.0 > self.events.1 {
            return Err("more memory is needed for the events than max_memory allows".to_owned());
        }
        if self.looked.elapsed() < SELDOM {
            return Ok(());
        }
        self.looked = Instant::now();
        Python::attach(|py| py.check_signals()).map_err(|error| {
            self.ended = Some(error);
            "it was interrupted".to_owned()
        })
    }
}

/// The bound of memory in bytes, which is asked for in MiB; otherwise half of what the machine has
/// free.
pub fn memory(asked: Option<u64>) -> u64 {
    let free = || {
        let text = fs::read_to_string("/proc/meminfo").ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
        line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
    };
    match asked {
        Some(mib) => mib.saturating_mul(1 << 20),
        None => free().map_or(UNKNOWN, |free| free / 2),
    }
}

/// A program in a row, within so many bytes of memory.
pub fn modelled(
    program: &Program,
    row: &KernelRow,
    memory: u64,
    keep: Keep,
) -> Result<(TargetRun, Account), Stop> {
    let every = keep.figures || keep.round.is_some();
    let most = usize::try_from(memory / size_of::<Event>() as u64).unwrap_or(usize::MAX);
    let mut watcher = Watcher {
        folding: Folding::new(program, every),
        keep,
        kept: Vec::new(),
        events: (0, most),
        looked: Instant::now(),
        ended: None,
    };
    let options = SimOptions { memory, choices: keep.choices, ..SimOptions::default() };
    let result = sim::run_with(program, row, &options, &mut watcher);
    let Watcher { folding, kept, ended, .. } = watcher;
    if let Some(error) = ended {
        return Err(Stop::Python(error));
    }
    let mut run = result.map_err(Stop::Model)?;
    let account = folding.finish(&run.unseen);
    run.witness.attempted = u32::try_from(account.total).unwrap_or(u32::MAX);
    run.rounds = kept;
    Ok((run, account))
}

/// What would help a run that was not finished.
fn help(error: &SimError) -> Option<String> {
    match error {
        SimError::Call { lacks: Some(feature), .. } => Some(feature.remedy()),
        error => error.is_a_bound().then(|| {
            "max_memory, in MiB, sets how much memory a run may take; fewer pages, shorter rounds or \
             fewer of them need less"
                .to_owned()
        }),
    }
}

/// What came of a program in a row.
pub fn target(
    program: &Program,
    row: &KernelRow,
    memory: u64,
    keep: Keep,
) -> Result<Target, Failure> {
    let outcome = match modelled(program, row, memory, keep) {
        Ok((run, account)) => Outcome::Ran(Box::new(Ran { run, account, reference: None })),
        Err(Stop::Python(error)) => return Err(Failure::Python(error)),
        Err(Stop::Model(error)) => {
            Outcome::Unavailable { reason: error.to_string(), help: help(&error) }
        }
    };
    Ok(Target { name: format!("model:{}", row.name), remark: remark(row), outcome })
}

/// Targets side by side.
#[pyclass(module = "needless._needless", frozen)]
pub struct Comparison {
    comparison: Compared,
}

#[pymethods]
impl Comparison {
    /// One row for each round of each target.
    fn rounds(&self, py: Python<'_>) -> PyResult<Table> {
        let table = py.detach(|| needless_tables::rounds(&self.comparison));
        Ok(table.map_err(Failure::from)?.into())
    }

    /// One row for each event of the rounds whose events were kept.
    fn events(&self, py: Python<'_>) -> PyResult<Table> {
        let table = py.detach(|| {
            let ran = self.comparison.targets.iter().filter_map(Target::ran);
            let seen: Vec<Seen<'_>> = ran.flat_map(seen).collect();
            needless_tables::events(&self.comparison.program, &seen)
        });
        Ok(table.map_err(Failure::from)?.into())
    }

    /// The JSON document that the command prints.
    fn document(&self) -> String {
        json::comparison(&self.comparison).to_string()
    }

    /// The text that the command prints.
    fn text(&self) -> String {
        match self.comparison.targets.as_slice() {
            [_] => one::text(&self.comparison, STYLE, Detail::Answer),
            _ => notes::text(&self.comparison, STYLE, Detail::Answer),
        }
    }
}

/// The events that were kept of a run.
fn seen(ran: &Ran) -> Vec<Seen<'_>> {
    let target = ran.run.target.as_str();
    let mut seen = Vec::new();
    for round in &ran.run.rounds {
        let of = |event: &Event| Seen { target, round: round.index, event: *event };
        seen.extend(round.events.iter().map(of));
    }
    seen
}

/// Runs a scenario in rows of the model, and says what explains each step and what avoids what is
/// needless.
#[pyfunction]
pub fn compare(
    py: Python<'_>,
    source: &Source,
    settings: BTreeMap<String, String>,
    rounds: Option<u32>,
    targets: Vec<String>,
    max_memory: Option<u64>,
    events: bool,
) -> PyResult<Comparison> {
    let compared = || -> Result<Compared, Failure> {
        let rows: Vec<KernelRow> =
            targets.iter().map(|name| row_of(name)).collect::<Result<_, _>>()?;
        let (program, _) = source.program(&settings, rounds)?;
        let memory = memory(max_memory);
        let keep = Keep { figures: true, events, ..KINDS };
        let targets: Vec<Target> =
            rows.iter().map(|row| target(&program, row, memory, keep)).collect::<Result<_, _>>()?;
        let ended = RefCell::new(None);
        let kinds = |program: &Program, row: &KernelRow| match modelled(program, row, memory, KINDS)
        {
            Ok((_, account)) => Some(account),
            Err(Stop::Model(_)) => None,
            Err(Stop::Python(error)) => {
                ended.replace(Some(error));
                None
            }
        };
        let ran: Vec<RowRan<'_>> = rows
            .iter()
            .zip(&targets)
            .filter_map(|(row, target)| Some((row, target.name.as_str(), &target.ran()?.account)))
            .collect();
        let steps = steps::between(&ran, |row| kinds(&program, row));
        let avoided = avoided::find(&program, &targets, kinds);
        if let Some(error) = ended.into_inner() {
            return Err(Failure::Python(error));
        }
        Ok(Compared { program, targets, steps, avoided })
    };
    Ok(Comparison { comparison: py.detach(compared)? })
}

/// One round of a row of the model: the JSON document and the text that the command prints, and a
/// table of its events.
#[pyfunction]
pub fn explain(
    py: Python<'_>,
    source: &Source,
    settings: BTreeMap<String, String>,
    target: &str,
    round: u32,
    max_memory: Option<u64>,
) -> PyResult<(String, String, Table)> {
    let row = row_of(target)?;
    let explained = || -> Result<(String, String, Table), Failure> {
        let (program, _) = source.program(&settings, None)?;
        let keep = Keep { round: Some(round), choices: true, ..KINDS };
        let (run, account) = match modelled(&program, &row, memory(max_memory), keep) {
            Ok(modelled) => modelled,
            Err(Stop::Python(error)) => return Err(Failure::Python(error)),
            Err(Stop::Model(error)) => {
                return Err(Failure::other(format!("{target}: {error}"), help(&error)));
            }
        };
        let ran = Ran { run, account, reference: None };
        let at = ran.account.rounds.iter().position(|there| there.index == round);
        let Some(at) = at else {
            let rounds = ran.account.total;
            return Err(Failure::input(
                format!("there is no round {round}: {target} ran {rounds}, counted from 0"),
                format!("take one below {rounds}"),
            ));
        };
        let explanation = Explanation { program: &program, ran: &ran, at };
        let table = needless_tables::events(&program, &seen(&ran))?;
        let document = explained_json(&explanation).to_string();
        Ok((document, explained_text(&explanation, STYLE), table.into()))
    };
    Ok(py.detach(explained)?)
}

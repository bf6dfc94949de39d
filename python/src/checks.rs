//! The checker, without the GIL.

use crate::error::{Failure, row_of};
use crate::run::memory;
use crate::source::Source;
use needless_check::litmus::{self as tests, Test, run_all};
use needless_check::{Options, Schedule, check as explore, replay as follow};
use needless_model::kernels::KernelRow;
use needless_report::Style;
use needless_report::check::{
    Checked, Replayed, checked_json, replayed_json, replayed_text, report_text, verdicts_json,
};
use pyo3::prelude::*;
use std::collections::BTreeMap;
use std::num::NonZero;
use std::thread::available_parallelism;
use std::time::Duration;

/// How far the checker goes: most states, most memory (MiB), most seconds, bits of a key, workers.
type Bounds = (usize, Option<u64>, Option<f64>, u32, Option<usize>);

fn options(
    (max_states, max_memory, deadline, key_bits, jobs): Bounds,
) -> Result<Options<'static>, Failure> {
    let seconds = |seconds: f64| {
        let duration = Duration::try_from_secs_f64(seconds).ok().filter(|d| !d.is_zero());
        let what = format!("{seconds} is no time to stop after");
        duration.ok_or_else(|| Failure::input(what, "a number of seconds above 0, as in 60"))
    };
    if !(16..=128).contains(&key_bits) {
        let what = format!("a key of {key_bits} bits is not to be had");
        return Err(Failure::input(what, "between 16 and 128"));
    }
    Ok(Options {
        max_states,
        max_memory: Some(memory(max_memory)),
        deadline: deadline.map(seconds).transpose()?,
        key_bits,
        workers: jobs.unwrap_or_else(|| available_parallelism().map_or(1, NonZero::get)).max(1),
        ..Options::default()
    })
}

/// Explores a scenario in rows of the model; gives the command's JSON document, and a text for each
/// row.
#[pyfunction]
pub fn check(
    py: Python<'_>,
    source: &Source,
    settings: BTreeMap<String, String>,
    targets: Vec<String>,
    bounds: Bounds,
) -> PyResult<(String, Vec<String>)> {
    let run = || -> Result<(String, Vec<String>), Failure> {
        let rows: Vec<KernelRow> =
            targets.iter().map(|name| row_of(name)).collect::<Result<_, _>>()?;
        let (program, _) = source.program(&settings, None)?;
        let options = options(bounds)?;
        let mut checked = Vec::new();
        for (row, target) in rows.iter().zip(&targets) {
            let report = explore(&program, row, &options);
            let report = report.map_err(|error| Failure::check(&program.name, &error))?;
            checked.push(Checked {
                scenario: program.name.clone(),
                target: target.clone(),
                report,
            });
        }
        let text = |c: &Checked| report_text(&c.scenario, &c.target, &c.report, Style::PLAIN);
        Ok((checked_json(&checked).to_string(), checked.iter().map(text).collect()))
    };
    Ok(py.detach(run)?)
}

/// Runs a litmus test on every row that it names; gives the command's JSON document.
#[pyfunction]
pub fn litmus(
    py: Python<'_>,
    source: &Source,
    settings: BTreeMap<String, String>,
    bounds: Bounds,
) -> PyResult<String> {
    let run = || -> Result<String, Failure> {
        let (program, litmus) = source.program(&settings, None)?;
        let Some(litmus) = litmus else {
            return Err(Failure::input(
                format!("`{}` has no `litmus` node that names kernel rows", program.name),
                "choose one, as in targets=[\"model:6.12\"]",
            ));
        };
        let test = Test { name: program.name.clone(), program, litmus };
        let verdicts = run_all(
            std::slice::from_ref(&test),
            &options(bounds)?,
            &|_: &Test, _: &tests::Case| {},
        );
        let verdicts = verdicts.map_err(|error| Failure::check(&test.name, &error))?;
        Ok(verdicts_json(&verdicts).to_string())
    };
    Ok(py.detach(run)?)
}

/// Follows one schedule; gives the command's JSON document and its text.
#[pyfunction]
pub fn replay(
    py: Python<'_>,
    source: &Source,
    settings: BTreeMap<String, String>,
    target: &str,
    schedule: &str,
) -> PyResult<(String, String)> {
    let run = || -> Result<(String, String), Failure> {
        let row = row_of(target)?;
        let (program, _) = source.program(&settings, None)?;
        let read = schedule.parse::<Schedule>().map_err(|error| {
            Failure::input(
                format!("this is no schedule: {error}"),
                "take one as a counterexample has it",
            )
        })?;
        let followed = follow(&program, &row, &Options::default(), &read);
        let (steps, violation) = followed.map_err(|error| Failure::check(&program.name, &error))?;
        let replayed = Replayed {
            scenario: program.name.clone(),
            target: target.to_owned(),
            schedule: read.to_string(),
            steps,
            violation,
        };
        let text = replayed_text(&replayed, Style::PLAIN);
        Ok((replayed_json(&replayed).to_string(), text))
    };
    Ok(py.detach(run)?)
}

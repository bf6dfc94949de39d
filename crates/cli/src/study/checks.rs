//! Runs a study's litmus tests in the checker.

use super::jobs::label;
use super::{CHECKER, LEFT_OUT, Only};
use crate::failure::Failure;
use crate::output::Progress;
use crate::source::load;
use crate::targets::LAID_OUT_FOR;
use needless_check::Options;
use needless_check::litmus::{Case, Expected, run as explore};
use needless_report::check::found;
use needless_report::study::{CheckResult, Standing};
use needless_scenario::rehearsed;
use needless_scenario::study::Check;
use std::num::NonZero;
use std::thread::available_parallelism;

/// Explores every test on every row that it names.
pub fn run(
    checks: &[Check],
    only: &Only,
    progress: &Progress,
) -> Result<Vec<CheckResult>, Failure> {
    let mut results = Vec::new();
    for check in checks {
        let settings = &check.chosen.settings;
        let source = load(&check.chosen.scenario)?;
        let (program, litmus) = rehearsed(&source, settings, None, &LAID_OUT_FOR)?;
        let litmus = litmus.ok_or_else(|| Failure::Usage {
            message: format!("`{}` is no litmus test", check.chosen.scenario),
            help: "a litmus test has a `litmus` node: see docs/scenarios.md".to_owned(),
        })?;
        for (row, violates) in &check.rows {
            let told = |now: needless_check::Progress| {
                progress.now(&format!("{} on {row}: {} states", check.name, now.states));
            };
            let options = Options {
                workers: available_parallelism().map_or(1, NonZero::get),
                progress: &told,
                ..Options::default()
            };
            let expected = violates.map_or(Expected::Holds, Expected::Violates);
            let case = Case { row: row.clone(), expected, doc: None };
            let outcome = only.has(CHECKER).then(|| explore(&program, &litmus, &case, &options));
            let report = outcome.as_ref().and_then(|outcome| outcome.report.as_ref().ok());
            let standing = match &outcome {
                None => Standing::NotHere(LEFT_OUT.to_owned()),
                Some(outcome) if outcome.unexpected.is_empty() => Standing::Holds,
                Some(outcome) => {
                    let what = outcome.unexpected.join("; ");
                    match report.is_none_or(|report| report.bound.is_some()) {
                        true => Standing::NotHere(what),
                        false => Standing::DoesNot(what),
                    }
                }
            };
            results.push(CheckResult {
                name: check.name.clone(),
                test: label(&check.chosen),
                shown: check.shown.clone(),
                row: row.clone(),
                expected: violates.map_or("holds".to_owned(), |p| p.number().to_owned()),
                found: report.map_or_else(|| "?".to_owned(), found),
                states: report.map(|report| report.states),
                standing,
            });
        }
    }
    Ok(results)
}

//! What the checker found: litmus tests as a table, explorations and schedules as JSON.

use crate::SCHEMA_VERSION;
use crate::style::{Style, count};
use crate::table::plain_table;
use needless_check::litmus::{Case, CaseResult, Expected};
use needless_check::{Counterexample, Property, Report, StepTaken, Violation, write_steps};
use serde_json::{Value, json};

/// The beginning of the line that users copy, and the columns at which lines that are too long go
/// on.
const SCHEDULE: &str = "schedule: ";
const INDENT: usize = "not exercised  ".len();

/// The exploration of a scenario on a row.
#[derive(Clone, Debug)]
pub struct Checked {
    /// The scenario's name.
    pub scenario: String,
    /// The target's name.
    pub target: String,
    /// The checker's report.
    pub report: Report,
}

/// A schedule that was followed.
#[derive(Clone, Debug)]
pub struct Replayed {
    /// The scenario's name.
    pub scenario: String,
    /// The target's name.
    pub target: String,
    /// The schedule as text.
    pub schedule: String,
    /// The schedule's steps.
    pub steps: Vec<StepTaken>,
    /// The property that it violates, if any.
    pub violation: Option<Violation>,
}

/// The columns of the table of litmus tests.
pub(crate) const HEADER: [&str; 6] =
    ["litmus test", "kernel row", "found", "expected", "states", "s"];

/// The rows of the table of litmus tests.
pub(crate) fn rows(verdicts: &[(String, Case, CaseResult)]) -> Vec<Vec<String>> {
    let row = |(name, case, verdict): &(String, Case, CaseResult)| {
        let (found, states) = match &verdict.report {
            Ok(report) => (found(report), report.states.to_string()),
            Err(_) => ("failed".to_owned(), String::new()),
        };
        let expected = if verdict.unexpected.is_empty() { "yes" } else { "NO" };
        let seconds = format!("{:.2}", verdict.took.as_secs_f64());
        vec![name.clone(), case.row.clone(), found, expected.to_owned(), states, seconds]
    };
    verdicts.iter().map(row).collect()
}

/// What came of all litmus tests.
pub(crate) fn closing(verdicts: &[(String, Case, CaseResult)]) -> String {
    let states: usize =
        verdicts.iter().filter_map(|(_, _, v)| Some(v.report.as_ref().ok()?.states)).sum();
    let unexpected = verdicts.iter().filter(|(_, _, v)| !v.unexpected.is_empty()).count();
    format!(
        "{}, {states} states; {}",
        count(verdicts.len(), "case"),
        match unexpected {
            0 => "every verdict is as expected".to_owned(),
            n => format!("{n} NOT as expected"),
        }
    )
}

/// The table of litmus tests: one line for each kernel row; what is unexpected stands under it.
pub fn table(verdicts: &[(String, Case, CaseResult)], style: Style) -> String {
    let mut text = plain_table(&HEADER, rows(verdicts), 0..4, style);
    text.push_str("\n\n");
    for (name, case, verdict) in verdicts {
        for what in &verdict.unexpected {
            let line = format!("{name} on {}: {what}", case.row);
            text += &style.wrap(&style.warn(line), 2);
            text.push('\n');
        }
    }
    text + &closing(verdicts)
}

/// The result on a row, as text.
pub fn report_text(scenario: &str, target: &str, report: &Report, style: Style) -> String {
    let width = usize::from(style.width);
    let text = format!("{scenario} on {target}: {report:width$}");
    let line = |line: &str| match line.starts_with(SCHEDULE) {
        true => line.to_owned() + "\n",
        false => style.wrap(line, INDENT) + "\n",
    };
    text.lines().map(line).collect()
}

/// The result: `holds`, or the violated property and the number of steps.
pub fn found(report: &Report) -> String {
    match (&report.counterexample, report.bound) {
        (Some(found), _) => {
            format!("{}, {} steps", found.violation.property.number(), found.steps.len())
        }
        (None, Some(_)) => "inconclusive".to_owned(),
        (None, None) => "holds".to_owned(),
    }
}

/// A schedule in text.
pub fn replayed_text(replayed: &Replayed, style: Style) -> String {
    let Replayed { scenario, target, steps, violation, .. } = replayed;
    let width = usize::from(style.width);
    let outcome = match violation {
        Some(violation) => format!("{violation:width$}"),
        None => "nothing is violated".to_owned(),
    };
    let cpus = steps.iter().map(|step| step.cpu.index() + 1).max().unwrap_or(1);
    let mut text = format!("{scenario} on {target}: {outcome}\n\n");
    // Writing to a string does not fail.
    _ = write_steps(&mut text, steps, violation.as_ref(), (cpus, width));
    text
}

/// Explorations in JSON (docs/schema/check.schema.json).
pub fn checked_json(checked: &[Checked]) -> Value {
    let reports = checked.iter().map(|c| report_json(&c.scenario, &c.target, &c.report));
    json!({ "schema_version": SCHEMA_VERSION, "reports": reports.collect::<Vec<_>>() })
}

/// Litmus tests in JSON.
pub fn verdicts_json(verdicts: &[(String, Case, CaseResult)]) -> Value {
    let reports = verdicts.iter().map(|(name, case, verdict)| {
        let target = format!("model:{}", case.row);
        let mut report = match &verdict.report {
            Ok(report) => report_json(name, &target, report),
            Err(error) => json!({ "scenario": name, "target": target, "error": error.to_string() }),
        };
        let expected = match case.expected {
            Expected::Holds => "holds".to_owned(),
            Expected::Violates(property) => format!("violates {}", property.number()),
        };
        report["expected"] = json!(expected);
        if let Some(doc) = &case.doc {
            report["doc"] = json!(doc);
        }
        report["unexpected"] = json!(verdict.unexpected);
        report["seconds"] = json!(verdict.took.as_secs_f64());
        report
    });
    json!({ "schema_version": SCHEMA_VERSION, "reports": reports.collect::<Vec<_>>() })
}

fn report_json(scenario: &str, target: &str, report: &Report) -> Value {
    let exercised = Property::ALL.iter().filter(|property| report.exercised.has(**property));
    let exercised: Vec<&str> = exercised.map(|property| property.number()).collect();
    let observations = report.observed.iter().map(|observed| {
        json!({ "name": observed.name, "made": observed.made, "not_made": observed.not_made })
    });
    let verdict = match (&report.counterexample, report.bound) {
        (Some(_), _) => "violated",
        (None, Some(_)) => "inconclusive",
        (None, None) => "holds",
    };
    json!({
        "scenario": scenario,
        "target": target,
        "verdict": verdict,
        "states": report.states,
        "ends": report.ends,
        "steps": report.steps,
        "depth": report.depth,
        "exercised": exercised,
        "observations": observations.collect::<Vec<_>>(),
        "bound": report.bound.map(|bound| bound.to_string()),
        "counterexample": report.counterexample.as_ref().map(counterexample_json),
    })
}

fn counterexample_json(found: &Counterexample) -> Value {
    json!({
        "violation": violation_json(&found.violation),
        "schedule": found.schedule.to_string(),
        "steps": steps_json(&found.steps),
    })
}

fn violation_json(violation: &Violation) -> Value {
    json!({
        "property": violation.property.number(),
        "words": violation.property.words(),
        "what": violation.what,
        "cpu": violation.cpu.map(|cpu| cpu.0),
    })
}

fn steps_json(steps: &[StepTaken]) -> Vec<Value> {
    let step = |step: &StepTaken| {
        let changed = step
            .changed
            .iter()
            .map(|state| json!({ "page": state.page, "pte": state.pte, "cached": state.cached }));
        json!({
            "cpu": step.cpu.0,
            "thread": step.thread,
            "operation": step.operation,
            "label": step.label,
            "changed": changed.collect::<Vec<_>>(),
        })
    };
    steps.iter().map(step).collect()
}

/// A schedule in JSON.
pub fn replayed_json(replayed: &Replayed) -> Value {
    json!({
        "schema_version": SCHEMA_VERSION,
        "scenario": replayed.scenario,
        "target": replayed.target,
        "schedule": replayed.schedule,
        "violation": replayed.violation.as_ref().map(violation_json),
        "steps": steps_json(&replayed.steps),
    })
}

//! A study's report in JSON (docs/schema/study.schema.json).

use super::{
    CheckResult, ContrastResult, CostsResult, FigureResult, MatrixResult, PartResult,
    RelationResult, RunResult, Sentence, Studied, TableResult, TableRow, TargetResult,
};
use crate::SCHEMA_VERSION;
use crate::cost::Price;
use needless_model::verdict::Finding;
use needless_scenario::study::{Column, Given, Missing, Size, Study, Sweep};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// The report as a JSON document.
pub fn document(studied: &Studied) -> Value {
    let study = &studied.study;
    let given = |given: &Given| {
        json!({
            "name": given.name,
            "value": given.value,
            "unit": unit(&given.unit),
            "doc": given.doc,
            "stated": given.stated,
        })
    };
    let missing = |missing: &Missing| json!({ "what": missing.what, "why": missing.why });
    json!({
        "schema_version": SCHEMA_VERSION,
        "study": study.name,
        "doc": study.doc,
        "sources": study.sources,
        "published": study.given.iter().map(given).collect::<Vec<_>>(),
        "size": study.size.as_ref().map(size),
        "answers": studied.answers().iter().map(answer).collect::<Vec<_>>(),
        "matrices": studied.matrices().iter().map(matrix).collect::<Vec<_>>(),
        "parts": studied.parts.iter().map(part).collect::<Vec<_>>(),
        "missing": study.missing.iter().map(missing).collect::<Vec<_>>(),
        "totals": studied.totals(),
        "tested": studied.tested(),
        "lost": studied.lost.iter().map(lost).collect::<Vec<_>>(),
        "seconds": studied.seconds,
        "environment": studied.environment,
    })
}

/// The list of studies.
pub fn list_document(studies: &[Study]) -> Value {
    let study = |study: &Study| {
        let parts: Vec<&str> = study.parts.iter().map(|part| part.name.as_str()).collect();
        json!({
            "name": study.name,
            "doc": study.doc,
            "sources": study.sources,
            "parts": parts,
            "takes": study.takes,
        })
    };
    let studies: Vec<Value> = studies.iter().map(study).collect();
    json!({ "schema_version": SCHEMA_VERSION, "studies": studies })
}

fn lost((target, reason): &(String, String)) -> Value {
    json!({ "target": target, "reason": reason })
}

fn answer(sentence: &Sentence) -> Value {
    json!({
        "question": sentence.question,
        "text": sentence.text.as_ref().ok(),
        "reason": sentence.text.as_ref().err(),
        "but": sentence.but,
    })
}

fn matrix(matrix: &MatrixResult) -> Value {
    json!({ "text": matrix.text, "header": matrix.header, "rows": matrix.rows })
}

fn size(size: &Size) -> Value {
    json!({
        "pages": size.pages,
        "live_pages": size.live,
        "because": (!size.because.is_empty()).then_some(&size.because),
        "asked": size.asked,
    })
}

fn unit(unit: &str) -> Option<&str> {
    (!unit.is_empty()).then_some(unit)
}

fn part(part: &PartResult) -> Value {
    json!({
        "name": part.name,
        "doc": part.doc,
        "runs": part.runs.iter().map(run).collect::<Vec<_>>(),
        "tables": part.tables.iter().map(table).collect::<Vec<_>>(),
        "costs": part.costs.iter().map(costs).collect::<Vec<_>>(),
        "checks": part.checks.iter().map(check).collect::<Vec<_>>(),
        "figures": part.figures.iter().map(figure).collect::<Vec<_>>(),
        "contrasts": part.contrasts.iter().map(ContrastResult::document).collect::<Vec<_>>(),
        "sweeps": part.sweeps.iter().map(sweep).collect::<Vec<_>>(),
        "relations": part.relations.iter().map(relation).collect::<Vec<_>>(),
    })
}

fn run(run: &RunResult) -> Value {
    json!({
        "name": run.name,
        "scenario": run.scenario,
        "targets": run.targets.iter().map(target).collect::<Vec<_>>(),
    })
}

fn table(table: &TableResult) -> Value {
    let row = |row: &TableRow| {
        let counts = row.counts.as_ref().ok();
        let counts = counts.map(|counts| {
            let named = table.counters.iter().zip(counts);
            named.map(|(counter, count)| (counter.name(), *count)).collect::<BTreeMap<_, _>>()
        });
        let reason = row.counts.as_ref().err();
        json!({ "run": row.run, "counts": counts, "reason": reason, "cycles": row.cycles })
    };
    json!({
        "text": table.text,
        "target": table.target,
        "per": table.per,
        "rows": table.rows.iter().map(row).collect::<Vec<_>>(),
    })
}

fn target(target: &TargetResult) -> Value {
    let counts: Map<String, Value> = target
        .counts
        .iter()
        .map(|count| {
            let value = json!({
                "expected": count.expected,
                "found": count.found,
                "transferred": count.transferred,
            });
            (count.counter.name().to_owned(), value)
        })
        .collect();
    let agreement = target
        .agreement
        .as_ref()
        .map(|(equal, rounds, row)| json!({ "equal": equal, "rounds": rounds, "row": row }));
    let finding = |(finding, count): &(Finding, u64)| {
        json!({
            "what": finding.what,
            "function": finding.site.map(|site| site.function()),
            "file": finding.site.map(|site| site.file()),
            "reason": finding.reason,
            "text": finding.reason.text(),
            "count": count,
        })
    };
    json!({
        "target": target.target,
        "release": target.release,
        "rounds": target.rounds,
        "counts": counts,
        "cycles": target.cycles,
        "agreement": agreement,
        "undecided": target.undecided,
        "odd": target.odd,
        "tlbi": target.tlbi,
        "findings": target.findings.iter().map(finding).collect::<Vec<_>>(),
        "outcome": target.standing,
    })
}

fn costs(costs: &CostsResult) -> Value {
    let price = |(name, doc, price): &(String, String, Price)| {
        json!({
            "term": name,
            "doc": doc,
            "cycles": price.cycles,
            "interval_95": [price.interval_95.0, price.interval_95.1],
        })
    };
    let prices = costs.prices.as_ref().ok();
    let prices = prices.map(|prices| prices.iter().map(price).collect::<Vec<_>>());
    let samples = costs.samples.iter().map(|sample| {
        json!({
            "name": sample.name,
            "measured": sample.measured,
            "predicted": sample.predicted,
            "held_out": sample.held_out,
        })
    });
    json!({
        "name": costs.name,
        "target": costs.target,
        "prices": prices,
        "reason": costs.prices.as_ref().err(),
        "samples": samples.collect::<Vec<_>>(),
        "largest_error_fitted": costs.worst(false),
        "largest_error_held_out": costs.worst(true),
    })
}

fn check(check: &CheckResult) -> Value {
    json!({
        "name": check.name,
        "test": check.test,
        "shown": unit(&check.shown),
        "row": check.row,
        "expected": check.expected,
        "found": check.found,
        "states": check.states,
        "outcome": check.standing,
    })
}

fn figure(figure: &FigureResult) -> Value {
    json!({
        "name": figure.name,
        "value": figure.value.as_ref().ok(),
        "reason": figure.value.as_ref().err(),
        "unit": unit(&figure.unit),
        "origin": figure.origin,
        "doc": figure.doc,
    })
}

fn sweep(sweep: &Sweep) -> Value {
    let column = |column: &Column| {
        json!({
            "name": column.name,
            "unit": unit(&column.unit),
            "doc": column.doc,
            "formula": column.formula.to_string(),
        })
    };
    json!({
        "text": sweep.text,
        "over": sweep.over,
        "values": sweep.values,
        "columns": sweep.columns.iter().map(column).collect::<Vec<_>>(),
    })
}

fn relation(relation: &RelationResult) -> Value {
    json!({
        "text": relation.text,
        "formula": relation.formula,
        "left": relation.sides.map(|(left, _)| left),
        "right": relation.sides.map(|(_, right)| right),
        "within": relation.within,
        "outcome": relation.standing,
        "margins": relation.margins,
        "follows": unit(&relation.follows),
    })
}

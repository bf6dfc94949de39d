//! The report as a JSON document: docs/schema/agree.schema.json.

use super::{Difference, Found, ScenarioAgreement, Standing, TargetAgreement, Totals};
use crate::SCHEMA_VERSION;
use crate::compare::Ran;
use crate::json::{AgreementDocument, value};
use needless_model::account::RoundAccount;
use needless_model::agreement::SwapCounts;
use needless_model::counters::Counter;
use serde_json::{Value, json};

/// The report as a JSON document.
pub fn json(targets: &[TargetAgreement]) -> Value {
    json!({
        "schema_version": SCHEMA_VERSION,
        "targets": targets.iter().map(target).collect::<Vec<_>>(),
    })
}

fn target(target: &TargetAgreement) -> Value {
    let groups: serde_json::Map<String, Value> = target
        .by_group()
        .into_iter()
        .map(|(group, totals)| (group.to_owned(), figures(totals)))
        .collect();
    json!({
        "target": target.target,
        "release": target.release,
        "row": target.row,
        "own_row": target.own_row,
        "drawn_without": target.drawn_without,
        "retries": target.retries(),
        "groups": groups,
        "scenarios": target.scenarios.iter().map(scenario).collect::<Vec<_>>(),
    })
}

fn figures(totals: Totals) -> Value {
    json!({
        "run": totals.run,
        "exact": totals.exact,
        "differing": totals.differing,
        "undecided": totals.undecided,
        "not_applicable": totals.not_applicable,
    })
}

fn scenario(scenario: &ScenarioAgreement) -> Value {
    let mut document = json!({
        "scenario": scenario.name,
        "standing": scenario.standing.word(),
        "groups": scenario.groups.iter().map(|group| group.name()).collect::<Vec<_>>(),
        "retries": scenario.retries,
    });
    match &scenario.standing {
        Standing::Exact { rounds, chosen } => {
            document["rounds"] = json!(rounds);
            document["rounds_with_faults_by_choice"] = json!(chosen);
        }
        Standing::Undecided(reason) | Standing::NotApplicable(reason) => {
            document["reason"] = json!(reason);
        }
        Standing::Differing(_) => document["difference"] = json!(difference(scenario)),
    }
    document
}

/// What differs in a scenario, as the document tells it; `None`: nothing does.
pub fn difference(scenario: &ScenarioAgreement) -> Option<Value> {
    match &scenario.standing {
        Standing::Differing(difference) => Some(told(scenario, difference)),
        _ => None,
    }
}

fn told(scenario: &ScenarioAgreement, difference: &Difference) -> Value {
    let minimal = difference.minimal.as_ref().map(|minimal| {
        json!({
            "scenario": minimal.scenario,
            "file": minimal.file,
            "sides": sides(&minimal.found),
        })
    });
    json!({
        "scenario": scenario.text,
        "differed": difference.repeated.0,
        "of_runs": difference.repeated.1,
        "sides": sides(&difference.found),
        "minimal": minimal,
    })
}

fn sides(found: &Found) -> Value {
    match found {
        Found::Runs(ran) => rounds(ran),
        Found::Failure { real, model, .. } => json!({ "failed": { "real": real, "model": model } }),
    }
}

fn rounds(ran: &Ran) -> Value {
    let Some(reference) = &ran.reference else { return Value::Null };
    let side = |(round, swaps): (&RoundAccount, SwapCounts)| {
        let swaps = swaps.named();
        let swaps: serde_json::Map<String, Value> =
            swaps.map(|(name, count)| (name.to_owned(), json!(count))).collect();
        json!({
            "sequence": round.sequence.as_ref().map(ToString::to_string),
            "instructions": round.executed.phases,
            "minor_faults": round.counters.get(Counter::MinorFaults),
            "major_faults": round.counters.get(Counter::MajorFaults),
            "swap": swaps,
        })
    };
    let rounds = reference.agreement.differing.iter().map(|&at| {
        let real = ran.account.round(at).map(|round| side((round, round.counted)));
        let model = reference.account.round(at).map(|round| side((round, round.modelled)));
        json!({ "round": ran.account.rounds[at].index, "real": real, "model": model })
    });
    json!({
        "agreement": value(&AgreementDocument::of(reference)),
        "rounds": rounds.collect::<Vec<_>>(),
    })
}

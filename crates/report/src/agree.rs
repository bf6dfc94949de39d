//! Agreement of a real kernel and the model, scenario by scenario.

use crate::SCHEMA_VERSION;
use crate::compare::{Ran, Reference};
use crate::json::{AgreementDocument, per_round, value};
use crate::style::{Style, count};
use needless_model::account::RoundAccount;
use needless_model::counters::Counter;
use needless_model::sequence::Sequence;
use serde_json::{Value, json};

/// One scenario of an agreement run.
#[derive(Clone, Debug)]
pub struct ScenarioAgreement {
    /// The scenario's name.
    pub name: String,
    /// What came of it.
    pub outcome: Result<Ran, String>,
}

/// How a scenario came out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Every round is equal.
    Exact,
    /// Some round differs.
    Differing,
    /// It could not be compared, with the reason.
    Undecided(String),
}

impl ScenarioAgreement {
    /// How it came out.
    pub fn standing(&self) -> Standing {
        let ran = match &self.outcome {
            Err(reason) => return Standing::Undecided(reason.clone()),
            Ok(ran) => ran,
        };
        if let Some(reason) = &ran.run.invalid {
            return Standing::Undecided(format!("the run is invalid: {reason}"));
        }
        let Some(reference) = &ran.reference else {
            return Standing::Undecided("there is no model row to compare with".to_owned());
        };
        match &reference.agreement.undecided {
            Some(reason) => Standing::Undecided(reason.clone()),
            None if reference.agreement.is_exact() => Standing::Exact,
            None => Standing::Differing,
        }
    }

    fn reference(&self) -> Option<(&Ran, &Reference)> {
        let ran = self.outcome.as_ref().ok()?;
        Some((ran, ran.reference.as_ref()?))
    }
}

/// Scenarios by standing: run, exact, differing, undecided.
pub fn totals(scenarios: &[ScenarioAgreement]) -> (usize, usize, usize, usize) {
    let mut totals = (scenarios.len(), 0, 0, 0);
    for scenario in scenarios {
        match scenario.standing() {
            Standing::Exact => totals.1 += 1,
            Standing::Differing => totals.2 += 1,
            Standing::Undecided(_) => totals.3 += 1,
        }
    }
    totals
}

/// The report as text.
pub fn text(target: &str, scenarios: &[ScenarioAgreement], style: Style) -> String {
    let mut text = String::new();
    let width = scenarios.iter().map(|scenario| scenario.name.len()).max().unwrap_or(0);
    for scenario in scenarios {
        let state = match scenario.standing() {
            Standing::Exact => "exact".to_owned(),
            Standing::Differing => style.warn("DIFFERS"),
            Standing::Undecided(reason) => format!("{}: {reason}", style.warn("undecided")),
        };
        let rounds = scenario.reference().filter(|(_, r)| r.agreement.undecided.is_none());
        let rounds = rounds.map_or_else(String::new, |(_, reference)| {
            format!("{}/{} rounds  ", reference.agreement.equal(), reference.agreement.rounds)
        });
        text += &format!("  {:width$}  {rounds}{state}\n", scenario.name);
    }
    for scenario in scenarios.iter().filter(|s| s.standing() == Standing::Differing) {
        text += &differences(target, scenario, style);
    }
    let (run, exact, differing, undecided) = totals(scenarios);
    let heading = heading(target, scenarios);
    text += &format!(
        "\n{heading}: {} run, {exact} exact, {differing} differing, {undecided} undecided\n",
        count(run, "scenario")
    );
    text
}

/// `live (6.18.44) and model:6.18`.
fn heading(target: &str, scenarios: &[ScenarioAgreement]) -> String {
    let Some((ran, reference)) = scenarios.iter().find_map(ScenarioAgreement::reference) else {
        return target.to_owned();
    };
    let release = ran.run.release.as_deref().unwrap_or("release not known");
    let nearest = if reference.own_row { "" } else { " (nearest row: this kernel has none)" };
    format!("{target} ({release}) and {}{nearest}", reference.row)
}

/// Every differing round, rounds that differ in the same way together, both sides in full.
fn differences(target: &str, scenario: &ScenarioAgreement, style: Style) -> String {
    let Some((ran, reference)) = scenario.reference() else { return String::new() };
    let mut kinds: Vec<(&RoundAccount, &RoundAccount, Vec<u32>)> = Vec::new();
    for &at in &reference.agreement.differing {
        let (real, model) = (&ran.account.rounds[at], &reference.account.rounds[at]);
        let same = kinds.iter_mut().find(|(a, b, _)| same(a, real) && same(b, model));
        match same {
            Some((_, _, rounds)) => rounds.push(real.index),
            None => kinds.push((real, model, vec![real.index])),
        }
    }
    let mut text = format!("\n{}\n", style.bold(&scenario.name));
    for (real, model, rounds) in kinds {
        let list: Vec<String> = rounds.iter().map(u32::to_string).collect();
        text += &style.wrap(&format!("  {}: {}", count(list.len(), "round"), list.join(" ")), 4);
        text.push('\n');
        let width = target.len().max(reference.row.len());
        for (name, round) in [(target, real), (reference.row.as_str(), model)] {
            let sequence = round.sequence.as_ref().map_or("?".to_owned(), Sequence::to_string);
            let faults =
                |counter| round.counters.get(counter).map_or("?".to_owned(), |n| n.to_string());
            text += &format!(
                "    {name:width$}  {}  {}\n",
                style.charset(&sequence),
                style.dim(format!(
                    "minor {} major {}",
                    faults(Counter::MinorFaults),
                    faults(Counter::MajorFaults)
                ))
            );
        }
        text += &first_difference(real, model, style);
    }
    text
}

fn same(a: &RoundAccount, b: &RoundAccount) -> bool {
    let key = |round: &RoundAccount| {
        (round.counters.get(Counter::MinorFaults), round.counters.get(Counter::MajorFaults))
    };
    a.sequence == b.sequence && key(a) == key(b)
}

fn first_difference(real: &RoundAccount, model: &RoundAccount, style: Style) -> String {
    let (Some(real), Some(model)) = (&real.sequence, &model.sequence) else { return String::new() };
    let (real, model) = (real.tokens(), model.tokens());
    let at = real.iter().zip(model).take_while(|(a, b)| a == b).count();
    let token = |tokens: &[needless_model::sequence::Token]| {
        tokens.get(at).map_or("the end".to_owned(), |token| style.charset(&token.to_string()))
    };
    if real == model {
        return "    the sequences are equal; the fault counts differ\n".to_owned();
    }
    format!("    first difference at token {}: {} against {}\n", at + 1, token(real), token(model))
}

/// The report as a JSON document.
pub fn json(target: &str, scenarios: &[ScenarioAgreement]) -> Value {
    let (run, exact, differing, undecided) = totals(scenarios);
    let documents: Vec<Value> = scenarios.iter().map(document).collect();
    let first = scenarios.iter().find_map(ScenarioAgreement::reference);
    json!({
        "schema_version": SCHEMA_VERSION,
        "target": target,
        "release": first.and_then(|(ran, _)| ran.run.release.clone()),
        "row": first.map(|(_, reference)| reference.row.clone()),
        "own_row": first.map(|(_, reference)| reference.own_row),
        "run": run,
        "exact": exact,
        "differing": differing,
        "undecided": undecided,
        "scenarios": documents,
    })
}

fn document(scenario: &ScenarioAgreement) -> Value {
    let (standing, reason) = match scenario.standing() {
        Standing::Exact => ("exact", None),
        Standing::Differing => ("differing", None),
        Standing::Undecided(reason) => ("undecided", Some(reason)),
    };
    let Some((ran, reference)) = scenario.reference() else {
        return json!({ "scenario": scenario.name, "standing": standing, "reason": reason });
    };
    let rounds: Vec<Value> = reference
        .agreement
        .differing
        .iter()
        .map(|&at| {
            let side = |round: &RoundAccount| {
                json!({
                    "sequence": round.sequence.as_ref().map(ToString::to_string),
                    "minor_faults": round.counters.get(Counter::MinorFaults),
                    "major_faults": round.counters.get(Counter::MajorFaults),
                })
            };
            let (real, model) = (&ran.account.rounds[at], &reference.account.rounds[at]);
            json!({ "round": real.index, "real": side(real), "model": side(model) })
        })
        .collect();
    json!({
        "scenario": scenario.name,
        "standing": standing,
        "reason": reason,
        "agreement": value(&AgreementDocument::of(reference)),
        "witness": ran.run.witness,
        "per_round": per_round(&ran.account),
        "unknown": ran.account.unknown,
        "differences": rounds,
    })
}

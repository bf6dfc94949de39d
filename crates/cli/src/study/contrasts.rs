//! Contrasts of a study: the same cases under two conditions.

use super::figures::Figures;
use super::jobs::{Jobs, Set};
use crate::targets::Spec;
use needless_model::counters::Counter;
use needless_report::saved::{Row, Saved, differences};
use needless_report::study::{CaseResult, ContrastResult};
use needless_scenario::study::{Case, Contrast, Part};

/// The part's contrasts.
pub(super) fn all(part: &Part, jobs: &Jobs, figures: &Figures) -> Vec<ContrastResult> {
    part.contrasts.iter().map(|contrast| of(contrast, part, jobs, figures)).collect()
}

fn of(contrast: &Contrast, part: &Part, jobs: &Jobs, figures: &Figures) -> ContrastResult {
    let cases = contrast.cases.iter().map(|case| of_case(case, contrast, part, jobs));
    ContrastResult {
        text: contrast.text.clone(),
        names: contrast.names.clone(),
        target: contrast.target.clone(),
        unit: contrast.unit.clone(),
        orders: [0, 1].map(|side| order(contrast, side, figures)),
        cases: cases.collect(),
    }
}

/// The cases sorted by their costs, the cheapest first.
fn order(
    contrast: &Contrast,
    side: usize,
    figures: &Figures,
) -> Result<Vec<(String, f64)>, String> {
    let cost = |case: &Case| Ok((case.name.clone(), figures.formula(&case.costs[side])?));
    let mut costs = contrast.cases.iter().map(cost).collect::<Result<Vec<_>, String>>()?;
    costs.sort_by(|(_, one), (_, other)| one.total_cmp(other));
    Ok(costs)
}

fn of_case(case: &Case, contrast: &Contrast, part: &Part, jobs: &Jobs) -> CaseResult {
    let name = case.name.clone();
    match compared(case, contrast, part, jobs) {
        Ok((conditions, figures)) => {
            let counted = case.runs.iter().all(|run| counts(run, contrast, part, jobs));
            CaseResult { name, conditions, figures: Ok(figures), counted }
        }
        Err(reason) => {
            CaseResult { name, conditions: Vec::new(), figures: Err(reason), counted: false }
        }
    }
}

/// Whether the target counted the run's faults and flushes, and did not only time it.
fn counts(name: &String, contrast: &Contrast, part: &Part, jobs: &Jobs) -> bool {
    let run = part.runs.iter().find(|run| run.name == *name);
    let ran = run.and_then(|run| jobs.on_target(run, &contrast.target).ok());
    ran.is_some_and(|ran| ran.account.typical(Counter::Flushes).is_some())
}

/// The differences in what was asked for and in the machine, and the differences in what was
/// counted.
fn compared(
    case: &Case,
    contrast: &Contrast,
    part: &Part,
    jobs: &Jobs,
) -> Result<(Vec<Row>, Vec<Row>), String> {
    let target = &contrast.target;
    let side = |name: &String| {
        let run = part.runs.iter().find(|run| run.name == *name);
        let run = run.ok_or_else(|| format!("there is no run {name}"))?;
        let (program, ran) = (jobs.program(&run.chosen), jobs.on_target(run, target)?);
        let saved = Saved::of(program, target, ran).map_err(|error| error.to_string())?;
        // Only the model shows what is set in page tables.
        let set = match Spec::parse(target).map_err(|error| error.to_string())? {
            Spec::Model(row) => jobs.set(&run.chosen, target, &row)?,
            _ => Set::new(),
        };
        Ok::<_, String>((saved, set))
    };
    let (first, second) = (side(&case.runs[0])?, side(&case.runs[1])?);
    let differences = differences(&first.0, &second.0);
    let runs = differences.runs.into_iter().next().ok_or("nothing ran")?;
    // The machine comes before what was asked for, because the machine's settings decide.
    let conditions = runs.environment.into_iter().chain(differences.scenario).collect();
    let counted = runs.figures.into_iter().filter(Row::is_counted);
    let names: Vec<&&str> = first.1.keys().chain(second.1.keys()).collect();
    let mut figures: Vec<Row> = counted.collect();
    for name in names {
        let [one, other] = [&first.1, &second.1].map(|set| set.get(*name).copied().unwrap_or(0));
        if one != other && figures.iter().all(|row| row.name != **name) {
            let [one, other] = [one, other].map(|count| Some(count.to_string()));
            figures.push(Row { name: (*name).to_string(), first: one, second: other });
        }
    }
    Ok((conditions, figures))
}

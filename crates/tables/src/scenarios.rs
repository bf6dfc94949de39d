//! One row for each scenario that was held against a real kernel.

use crate::TableError;
use crate::columns::{Columns, counted, named};
use arrow_array::RecordBatch;
use needless_report::agree::{self, ScenarioAgreement, Standing, TargetAgreement};

struct ScenarioRow<'a> {
    target: &'a TargetAgreement,
    scenario: &'a ScenarioAgreement,
}

fn rows_of(target: &TargetAgreement) -> impl Iterator<Item = ScenarioRow<'_>> {
    target.scenarios.iter().map(move |scenario| ScenarioRow { target, scenario })
}

impl ScenarioRow<'_> {
    /// The seed of a random scenario, which is in its name.
    fn seed(&self) -> Option<u64> {
        self.scenario.name.strip_prefix("random-")?.parse().ok()
    }

    /// Rounds that were equal, and those of them in which the processor took faults that are its
    /// choice.
    fn rounds(&self) -> (Option<u64>, Option<u64>) {
        match self.scenario.standing {
            Standing::Exact { rounds, chosen } => (Some(rounds as u64), Some(chosen as u64)),
            _ => (None, None),
        }
    }

    fn reason(&self) -> Option<&str> {
        match &self.scenario.standing {
            Standing::Undecided(reason) | Standing::NotApplicable(reason) => Some(reason),
            Standing::Exact { .. } | Standing::Differing(_) => None,
        }
    }

    /// Runs that differed, and of how many.
    fn repeated(&self) -> (Option<u64>, Option<u64>) {
        match &self.scenario.standing {
            Standing::Differing(difference) => {
                let (differed, runs) = difference.repeated;
                (Some(u64::from(differed)), Some(u64::from(runs)))
            }
            _ => (None, None),
        }
    }
}

/// All scenarios on all real kernels.
pub fn scenarios(targets: &[TargetAgreement]) -> Result<RecordBatch, TableError> {
    let rows: Vec<ScenarioRow<'_>> = targets.iter().flat_map(rows_of).collect();
    let mut columns = Columns::default();
    columns.texts(
        named("target", "the real kernel as it was asked for"),
        rows.iter().map(|row| Some(&row.target.target)),
    );
    columns.texts(
        named("release", "the release that it gave; null if nothing ran"),
        rows.iter().map(|row| row.target.release.as_ref()),
    );
    columns.texts(
        named("row", "the model's row that it was held against"),
        rows.iter().map(|row| Some(&row.target.row)),
    );
    columns.flags(
        named("own_row", "whether the row is the kernel's own"),
        rows.iter().map(|row| Some(row.target.own_row)),
    );
    columns.texts(
        named("scenario", "the scenario's name"),
        rows.iter().map(|row| Some(&row.scenario.name)),
    );
    columns.numbers(
        named("seed", "the seed of a random scenario"),
        rows.iter().map(ScenarioRow::seed),
    );
    columns.text_lists(
        named("groups", "what the scenario is about"),
        rows.iter().map(|row| row.scenario.groups.iter().map(|group| group.name()).collect()),
    );
    columns.texts(
        named("standing", "exact, differing, undecided or not-applicable"),
        rows.iter().map(|row| Some(row.scenario.standing.word())),
    );
    columns.numbers(
        counted("rounds", "rounds", "rounds that are equal, of an exact one"),
        rows.iter().map(|row| row.rounds().0),
    );
    columns.numbers(
        counted(
            "rounds_by_choice",
            "rounds",
            "of them, those with faults that the processor may take",
        ),
        rows.iter().map(|row| row.rounds().1),
    );
    columns.texts(
        named("reason", "why it is undecided or not applicable"),
        rows.iter().map(ScenarioRow::reason),
    );
    columns.numbers(
        counted("retries", "runs", "runs that were not decided and therefore repeated"),
        rows.iter().map(|row| Some(u64::from(row.scenario.retries))),
    );
    columns.numbers(
        counted("differed", "runs", "runs that differed"),
        rows.iter().map(|row| row.repeated().0),
    );
    columns.numbers(
        counted("of_runs", "runs", "of so many, made to see whether it always does"),
        rows.iter().map(|row| row.repeated().1),
    );
    columns.texts(
        named("difference", "what differs, as JSON, with the smallest scenario that does"),
        rows.iter().map(|row| agree::difference(row.scenario).map(|found| found.to_string())),
    );
    columns.finish("scenarios", None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::Array;
    use arrow_array::cast::AsArray;
    use arrow_array::types::UInt64Type;
    use std::collections::BTreeSet;

    #[test]
    fn a_scenario_is_a_row_with_its_seed() {
        let scenario = |name: &str, standing| ScenarioAgreement {
            name: name.into(),
            text: String::new(),
            groups: BTreeSet::new(),
            standing,
            retries: 1,
        };
        let target = TargetAgreement {
            target: "kernel:6.12".into(),
            release: Some("6.12.94".into()),
            row: "model:6.12".into(),
            own_row: true,
            drawn_without: Vec::new(),
            scenarios: vec![
                scenario("random-17", Standing::Exact { rounds: 8, chosen: 0 }),
                scenario("cow-reuse", Standing::Undecided("no swap".into())),
            ],
        };
        let table = scenarios(&[target]).unwrap();
        let seeds = table.column_by_name("seed").unwrap().as_primitive::<UInt64Type>().clone();
        assert_eq!(seeds.iter().collect::<Vec<_>>(), [Some(17), None]);
        let rounds = table.column_by_name("rounds").unwrap();
        assert!(rounds.is_valid(0) && rounds.is_null(1));
        let reason = table.column_by_name("reason").unwrap().as_string::<i32>();
        assert_eq!(reason.value(1), "no swap");
    }
}

//! One row for each target of each of several comparisons: what one round is like.

use crate::TableError;
use crate::columns::{Columns, counted, named};
use crate::figures::{Row, figures, identify};
use arrow_array::RecordBatch;
use needless_model::counters::Counter;
use needless_model::event::FaultClass;
use needless_model::program::Program;
use needless_report::compare::{Comparison, Target};

struct TargetRow<'a> {
    program: &'a Program,
    target: &'a Target,
}

impl Row for TargetRow<'_> {
    fn program(&self) -> &Program {
        self.program
    }

    fn target(&self) -> &Target {
        self.target
    }

    fn counter(&self, counter: Counter) -> Option<u64> {
        self.ran()?.account.typical(counter)
    }

    fn class(&self, class: FaultClass) -> Option<u64> {
        let (classes, _) = self.ran()?.account.typical_classes()?;
        Some(classes.get(&class).copied().unwrap_or(0))
    }
}

fn rows_of(comparison: &Comparison) -> impl Iterator<Item = TargetRow<'_>> {
    let Comparison { program, targets, .. } = comparison;
    targets.iter().map(move |target| TargetRow { program, target })
}

/// The targets of all comparisons, in their order. A figure is the most frequent one of the rounds.
pub fn summary(comparisons: &[Comparison]) -> Result<RecordBatch, TableError> {
    let rows: Vec<TargetRow<'_>> = comparisons.iter().flat_map(rows_of).collect();
    let mut columns = Columns::default();
    identify(&mut columns, &rows);
    columns.numbers(
        counted("rounds", "rounds", "rounds that count"),
        rows.iter().map(|row| row.ran().map(|ran| ran.account.total as u64)),
    );
    columns.numbers(
        named("kinds", "how many different kinds of round there were: 1 if all are alike"),
        rows.iter().map(|row| row.ran().map(|ran| ran.account.kinds.len() as u64)),
    );
    figures(&mut columns, &rows);
    columns.texts(
        named("sequence", "the most frequent sequence of faults and flushes"),
        rows.iter().map(|row| {
            let sequences = row.ran()?.account.sequences();
            sequences.first().map(|group| group.value.to_string())
        }),
    );
    columns.finish("summary", None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::cast::AsArray;
    use arrow_array::types::{Int64Type, UInt64Type};
    use needless_model::kernels::KernelRow;
    use needless_model::sim::{self, SimOptions};
    use needless_report::compare::{Outcome, Ran};
    use needless_scenario::{Settings, compile, load};

    #[test]
    fn each_target_of_each_point_is_a_row() {
        let point = |pages: &str| {
            let settings: Settings = [("pages", pages), ("rounds", "2")].into_iter().collect();
            let program = compile(&load("cow-reuse").unwrap(), &settings).unwrap();
            let target = |name: &str| {
                let row = KernelRow::parse(name).unwrap();
                let run = sim::run(&program, &row, &SimOptions::default()).unwrap();
                let outcome = Outcome::Ran(Box::new(Ran::model(&program, run)));
                Target { name: format!("model:{name}"), remark: None, outcome }
            };
            let targets = vec![target("5.10"), target("6.12")];
            Comparison { program, targets, steps: Vec::new(), avoided: Vec::new() }
        };
        let table = summary(&[point("1"), point("4")]).unwrap();
        let pages = table.column_by_name("param_pages").unwrap().as_primitive::<Int64Type>();
        assert_eq!(pages.values(), &[1, 1, 4, 4]);
        let copies = table.column_by_name("copies").unwrap().as_primitive::<UInt64Type>();
        assert_eq!(copies.values(), &[1, 0, 4, 0]);
    }
}

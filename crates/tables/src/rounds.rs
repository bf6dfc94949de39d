//! One row for each round of each target.

use crate::TableError;
use crate::columns::{Columns, counted, named};
use crate::figures::{Row, figures, identify};
use arrow_array::RecordBatch;
use needless_model::account::{RoundAccount, RoundAt};
use needless_model::counters::Counter;
use needless_model::event::FaultClass;
use needless_model::program::Program;
use needless_report::compare::{Comparison, Target};
use needless_report::json;
use serde_json::Value;

/// A round, or a target that has none.
struct RoundRow<'a> {
    program: &'a Program,
    target: &'a Target,
    /// The round's position.
    at: Option<usize>,
}

impl RoundRow<'_> {
    fn round(&self) -> Option<&RoundAt> {
        self.ran()?.account.rounds.get(self.at?)
    }

    fn account(&self) -> Option<&RoundAccount> {
        self.ran()?.account.round(self.at?)
    }

    /// Whether the round equals that of the model's row.
    fn agrees(&self) -> Option<bool> {
        let ran = self.ran()?;
        let agreement = &ran.reference.as_ref()?.agreement;
        if agreement.undecided.is_some() || ran.run.invalid.is_some() {
            return None;
        }
        Some(agreement.differing.binary_search(&self.at?).is_err())
    }
}

impl Row for RoundRow<'_> {
    fn program(&self) -> &Program {
        self.program
    }

    fn target(&self) -> &Target {
        self.target
    }

    fn counter(&self, counter: Counter) -> Option<u64> {
        self.ran()?.account.value(self.round()?, counter)
    }

    fn class(&self, class: FaultClass) -> Option<u64> {
        let classes = self.account()?.classes.as_ref()?;
        Some(classes.get(&class).copied().unwrap_or(0))
    }
}

fn rows_of<'a>(program: &'a Program, target: &'a Target) -> Vec<RoundRow<'a>> {
    match target.ran().map_or(0, |ran| ran.account.rounds.len()) {
        0 => vec![RoundRow { program, target, at: None }],
        rounds => (0..rounds).map(|at| RoundRow { program, target, at: Some(at) }).collect(),
    }
}

/// The rounds of all targets. A target without any has one row, whose `round` is null.
///
/// Every round has to have been kept, not only kinds of round.
pub fn rounds(comparison: &Comparison) -> Result<RecordBatch, TableError> {
    let program = &comparison.program;
    let of = |target| rows_of(program, target);
    let rows: Vec<RoundRow<'_>> = comparison.targets.iter().flat_map(of).collect();
    let mut columns = Columns::default();
    identify(&mut columns, &rows);
    columns.numbers(
        named("round", "the round's number, from 0 after the warm-up"),
        rows.iter().map(|row| row.round().map(|round| u64::from(round.index))),
    );
    figures(&mut columns, &rows);
    columns.number_lists(
        counted("cycles_of_blocks", "cycles", "what each measure block of the round took"),
        rows.iter().map(|row| {
            let blocks = &row.round()?.cycles;
            let cycles = || blocks.iter().map(|block| block.cycles).collect();
            (!blocks.is_empty()).then(cycles)
        }),
    );
    columns.texts(
        named("sequence", "faults and flushes in order, in the notation of compare"),
        rows.iter().map(|row| row.account()?.sequence.as_ref().map(ToString::to_string)),
    );
    columns.flags(
        named("agrees", "whether a real kernel's round equals that of its row in the model"),
        rows.iter().map(RoundRow::agrees),
    );
    columns.finish("rounds", Some(&document(comparison)))
}

/// The JSON document of the comparison without every round's figures, which are rows.
pub(crate) fn document(comparison: &Comparison) -> Value {
    let mut document = json::comparison(comparison);
    for target in document["targets"].as_array_mut().into_iter().flatten() {
        if let Some(target) = target.as_object_mut() {
            target.remove("samples");
        }
    }
    document
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::Array;
    use arrow_array::cast::AsArray;
    use arrow_array::types::{Int64Type, UInt64Type};
    use needless_model::kernels::KernelRow;
    use needless_model::sim::{self, SimOptions};
    use needless_report::compare::{Outcome, Ran};
    use needless_scenario::{Settings, compile, load};

    /// cow-reuse in a row of the model, and on a target that is not to be had.
    fn comparison() -> Comparison {
        let settings: Settings = [("rounds", "3")].into_iter().collect();
        let program = compile(&load("cow-reuse").unwrap(), &settings).unwrap();
        let row = KernelRow::parse("5.10").unwrap();
        let run = sim::run(&program, &row, &SimOptions::default()).unwrap();
        let outcome = Outcome::Ran(Box::new(Ran::model(&program, run)));
        let ran = Target { name: "model:5.10".into(), remark: None, outcome };
        let outcome = Outcome::Unavailable { reason: "no root".into(), help: None };
        let lacking = Target { name: "live".into(), remark: None, outcome };
        let targets = vec![ran, lacking];
        Comparison { program, targets, steps: Vec::new(), avoided: Vec::new() }
    }

    #[test]
    fn a_round_is_a_row_and_a_target_without_rounds_says_why() {
        let table = rounds(&comparison()).unwrap();
        assert_eq!(table.num_rows(), 4);
        let column = |name: &str| table.column_by_name(name).unwrap();
        let copies = column("copies").as_primitive::<UInt64Type>();
        assert_eq!(copies.iter().collect::<Vec<_>>(), [Some(1), Some(1), Some(1), None]);
        let status = column("status").as_string::<i32>();
        assert_eq!((status.value(0), status.value(3)), ("ran", "unavailable"));
        let reason = column("reason").as_string::<i32>();
        assert!(reason.is_null(0) && reason.value(3) == "no root");
        assert_eq!(column("param_rounds").as_primitive::<Int64Type>().value(3), 3);
        assert!(column("cycles").is_null(0), "the model has no clock");
    }

    #[test]
    fn units_and_descriptions_are_those_of_the_counters() {
        let table = rounds(&comparison()).unwrap();
        let schema = table.schema();
        for counter in Counter::ALL {
            let metadata = schema.field_with_name(counter.name()).unwrap().metadata().clone();
            assert_eq!(metadata["unit"], counter.unit());
            assert_eq!(metadata["doc"], counter.doc());
        }
        let document: Value =
            serde_json::from_str(&schema.metadata()["needless.document"]).unwrap();
        assert_eq!(document["targets"][0]["unknown"]["cycles"], "the model has no clock");
        assert_eq!(document["targets"][0]["samples"], Value::Null);
    }
}

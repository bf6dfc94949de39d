//! The columns that tables of rounds and of targets have in common.

use crate::columns::{Column, Columns, counted, named};
use needless_model::counters::Counter;
use needless_model::event::FaultClass;
use needless_model::program::Program;
use needless_report::compare::{Ran, Target};
use std::collections::BTreeSet;

/// A row of a target, which may not have run.
pub(crate) trait Row {
    /// What was run.
    fn program(&self) -> &Program;
    /// On what.
    fn target(&self) -> &Target;
    /// A counter's value; `None`: unknown.
    fn counter(&self, counter: Counter) -> Option<u64>;
    /// Faults of a class; `None`: unknown.
    fn class(&self, class: FaultClass) -> Option<u64>;

    /// What came of it, if it ran.
    fn ran(&self) -> Option<&Ran> {
        self.target().ran()
    }
}

/// Which scenario with which parameters on which target, and whether it ran.
pub(crate) fn identify(columns: &mut Columns, rows: &[impl Row]) {
    columns.texts(
        named("scenario", "the scenario's name"),
        rows.iter().map(|row| Some(&row.program().name)),
    );
    let names: BTreeSet<&str> = rows
        .iter()
        .flat_map(|row| row.program().parameters.iter().map(|(name, _)| name.as_str()))
        .collect();
    for name in names {
        let column = format!("param_{name}");
        columns.integers(
            named(&column, "the value of this parameter of the scenario"),
            rows.iter().map(|row| parameter(row.program(), name)),
        );
    }
    columns.texts(
        named("target", "the target as it was asked for: live, kernel:6.12, model:6.12"),
        rows.iter().map(|row| Some(&row.target().name)),
    );
    columns.texts(
        named("release", "the release that a real kernel gave"),
        rows.iter().map(|row| row.ran().and_then(|ran| ran.run.release.as_deref())),
    );
    columns.texts(
        named("status", "ran; invalid: it ran and counts for nothing; unavailable: it did not run"),
        rows.iter().map(|row| Some(row.target().status().0)),
    );
    columns.texts(
        named("reason", "why it counts for nothing, or did not run"),
        rows.iter().map(|row| row.target().status().1),
    );
}

fn parameter(program: &Program, name: &str) -> Option<i64> {
    let (_, value) = program.parameters.iter().find(|(known, _)| known == name)?;
    Some(*value)
}

/// Every counter, then faults by class.
pub(crate) fn figures(columns: &mut Columns, rows: &[impl Row]) {
    for &counter in Counter::ALL {
        let column = Column { unit: Some(counter.unit()), ..named(counter.name(), counter.doc()) };
        columns.numbers(column, rows.iter().map(|row| row.counter(counter)));
    }
    for &class in FaultClass::ALL {
        let name = format!("faults_{}", class.name().replace('-', "_"));
        let doc = format!("faults that turned out to be of class {}", class.name());
        let column = counted(&name, "faults", &doc);
        columns.numbers(column, rows.iter().map(|row| row.class(class)));
    }
}

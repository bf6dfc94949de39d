//! Sweeps: formulas over a number that takes several values. Each cell is a figure by itself, so that relations can name it.

use super::{Figure, Formula, From};

/// Formulas, side by side for each value of a number.
#[derive(Clone, Debug, PartialEq)]
pub struct Sweep {
    /// What it shows.
    pub text: String,
    /// The number's name in its formulas.
    pub over: String,
    /// What it takes.
    pub values: Vec<u64>,
    /// The formulas.
    pub columns: Vec<Column>,
}

/// A formula of a sweep.
#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// Its unit; empty if it is a plain number.
    pub unit: String,
    /// What it is.
    pub doc: String,
    /// It, of the number, of figures, and of the sweep's columns before it.
    pub formula: Formula,
}

impl Sweep {
    /// The figures' name of a cell: `processes_64`.
    pub fn cell(column: &str, value: u64) -> String {
        format!("{column}_{value}")
    }

    /// Its cells as figures: each formula with the number in it, and the cells of its line.
    pub fn figures(&self) -> impl Iterator<Item = Figure> {
        let cell = |value: u64, column: &Column| Figure {
            name: Sweep::cell(&column.name, value),
            unit: column.unit.clone(),
            doc: column.doc.clone(),
            from: From::Formula(column.formula.with(&|name| {
                if name == self.over {
                    return Some(Formula::Number(value as f64));
                }
                let column = self.columns.iter().find(|column| column.name == name)?;
                Some(Formula::Name(Sweep::cell(&column.name, value)))
            })),
        };
        self.values.iter().flat_map(move |value| {
            self.columns.iter().map(move |column| cell(*value, column)).collect::<Vec<_>>()
        })
    }
}

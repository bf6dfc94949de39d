//! Sweeps: formulas over a number that takes several values. Each cell is a figure by itself, so
//! that relations can name it.

use super::{Figure, Formula, From};

/// Formulas, side by side for each value of a number.
#[derive(Clone, Debug, PartialEq)]
pub struct Sweep {
    /// What the sweep shows.
    pub text: String,
    /// The number's name in the formulas.
    pub over: String,
    /// The values that the number takes.
    pub values: Vec<u64>,
    /// The columns of the sweep, a formula each.
    pub columns: Vec<Column>,
}

/// A formula of a sweep.
#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    /// The column's name.
    pub name: String,
    /// The unit of the column's cells. Empty if they are plain numbers.
    pub unit: String,
    /// What the column shows.
    pub doc: String,
    /// The formula: of the number, of figures, and of the sweep's earlier columns.
    pub formula: Formula,
}

impl Sweep {
    /// The name that a cell has as a figure: `processes_64`.
    pub fn cell(column: &str, value: u64) -> String {
        format!("{column}_{value}")
    }

    /// The sweep's cells as figures. In each formula, the number has its value, and names of
    /// earlier columns mean the cells of the same line.
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

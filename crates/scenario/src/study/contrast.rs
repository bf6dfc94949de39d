//! Contrasts: runs that belong together two by two, and differ by what is to be found out.

use super::Formula;

/// The same cases twice, under two conditions.
#[derive(Clone, Debug, PartialEq)]
pub struct Contrast {
    /// What it asks.
    pub text: String,
    /// The two conditions.
    pub names: [String; 2],
    /// The target of all runs.
    pub target: String,
    /// The unit of what cases cost; empty if it is a plain number.
    pub unit: String,
    /// The cases.
    pub cases: Vec<Case>,
}

/// A case under both conditions.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// Its name.
    pub name: String,
    /// The runs.
    pub runs: [String; 2],
    /// What each costs: cases are put in order by it.
    pub costs: [Formula; 2],
}

//! Contrasts: pairs of runs that differ in one condition, whose effect the study asks about.

use super::Formula;

/// A list of cases, each run under two conditions.
#[derive(Clone, Debug, PartialEq)]
pub struct Contrast {
    /// What the contrast asks.
    pub text: String,
    /// The names of the two conditions.
    pub names: [String; 2],
    /// The target of all runs.
    pub target: String,
    /// The unit of the cases' costs. Empty if a cost is a plain number.
    pub unit: String,
    /// The cases of the contrast.
    pub cases: Vec<Case>,
}

/// A case under both conditions.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// The case's name.
    pub name: String,
    /// The names of the two runs.
    pub runs: [String; 2],
    /// The cost under each condition. Cases are sorted by it.
    pub costs: [Formula; 2],
}

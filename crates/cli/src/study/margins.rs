//! How far a stated figure may move before a relation that holds with it fails.

use super::figures::Figures;
use needless_report::study::{Margin, Standing};
use needless_scenario::study::{From, Part, Relation};

/// The factor of one move, and the number of moves. The end is a hundred times as much, or as
/// little.
const STEP: f64 = 1.01;
const STEPS: i32 = 463;

/// How far each figure that the relation names may move, by itself.
pub(super) fn of(figures: &Figures, part: &Part, relation: &Relation) -> Vec<Margin> {
    if figures.relation(relation).standing != Standing::Holds {
        return Vec::new();
    }
    let margin = |name: &String| {
        let value = figures.named(name).ok()?;
        let holds = |value: f64| {
            let moved = moved(figures, part, name, value);
            moved.relation(relation).standing == Standing::Holds
        };
        let fails = |steps: &i32| !holds(value * STEP.powi(*steps));
        let last = |steps: i32| value * STEP.powi(steps);
        Some(Margin {
            name: name.clone(),
            value,
            least: (1..=STEPS).map(|steps| -steps).find(fails).map(|steps| last(steps + 1)),
            most: (1..=STEPS).find(fails).map(|steps| last(steps - 1)),
        })
    };
    relation.moves.iter().filter_map(margin).collect()
}

/// The figures with another value for one of them, and with everything that is computed from it.
fn moved(figures: &Figures, part: &Part, name: &str, value: f64) -> Figures {
    let mut moved = Figures { all: figures.all.clone() };
    moved.set(name, Ok(value));
    for figure in &part.figures {
        if let From::Formula(formula) = &figure.from {
            let value = moved.formula(formula);
            moved.set(&figure.name, value);
        }
    }
    moved
}

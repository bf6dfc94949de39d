//! The page of a run on one target: every counter, with what it means.

use super::compare::{MAY_GO, machines, needless_bars};
use super::frame::{Cell, LINES, Made, Page, list, table};
use crate::compare::{Comparison, Outcome, Target};
use crate::json;
use crate::run::{CounterRow, counter_rows, heading, lines, needless};
use crate::style::Detail;
use maud::{Markup, html};

/// The page of a run: a comparison with one target.
pub fn run(comparison: &Comparison, made: &Made) -> String {
    Page {
        title: format!("{}: what it did in a round", comparison.program.name),
        answer: html! {
            @for target in &comparison.targets { (answer(comparison, target)) }
        },
        picture: needless_bars(&comparison.targets),
        tables: html! {
            @for (at, target) in comparison.targets.iter().enumerate() {
                (counters(at, target))
                @if let Some(ran) = target.ran() {
                    h3 { "What is known about it" }
                    (list(lines(comparison, target, ran, LINES, Detail::Answer)))
                }
            }
        },
        machines: machines(&comparison.targets),
        document: json::comparison(comparison),
        may_go: MAY_GO,
        moves: false,
    }
    .render(made)
}

fn answer(comparison: &Comparison, target: &Target) -> Markup {
    let sentences: Vec<String> = match &target.outcome {
        Outcome::Ran(ran) => {
            let remark = target.remark.iter().map(|remark| format!("{}: {remark}", target.name));
            let head = heading(comparison, target, ran, LINES);
            [head, needless(ran)].into_iter().chain(remark).collect()
        }
        Outcome::Unavailable { reason, help } => {
            let reason = format!("{}: not run: {reason}", target.name);
            std::iter::once(reason).chain(help.clone()).collect()
        }
    };
    list(sentences)
}

fn counters(at: usize, target: &Target) -> Markup {
    let head = ["counter", "value", "what it is"].map(str::to_owned);
    let row = |CounterRow { counter, value, star, range, remark }: CounterRow| {
        let at = format!("/targets/{at}/per_round/{}", counter.name());
        let figure = Cell::Figure { text: value, at, more: star.to_owned() };
        vec![Cell::words(counter.name()), figure, Cell::Words(range + &remark)]
    };
    let rows: Vec<Vec<Cell>> = counter_rows(target, Detail::All).into_iter().map(row).collect();
    table(&format!("Every counter of a round on {}", target.name), &head, &rows)
}

//! The page of a comparison: what each target did needlessly, and which policy makes the difference
//! from row to row.

use super::chart::{Bar, Part, Row, bars};
use super::frame::{Cell, LINES, Made, Page, list, table};
use crate::answer::{self, Share};
use crate::compare::{Comparison, Outcome, Ran, Target};
use crate::expect::{self, Case};
use crate::json;
use crate::notes::{self, change_text};
use crate::steps::Step;
use crate::style::Detail;
use crate::table::{counters, star};
use maud::{Markup, html};
use needless_model::counters::{Counter, FAULTS_BY_CLASS};
use std::collections::BTreeMap;

/// What of the data may be left out, in this order.
pub(super) const MAY_GO: &[&str] =
    &["/targets/*/samples/*", "/targets/*/verdicts/events", "/targets/*/sequences"];

/// The page of a comparison, with what came of what was expected.
pub fn compare(comparison: &Comparison, cases: &[Case<'_>], made: &Made) -> String {
    let expected = expect::lines(cases, LINES);
    let sections = notes::sections(comparison, LINES, Detail::All);
    Page {
        title: format!("{}: needless in each round", comparison.program.name),
        answer: html! {
            (list(answer::lines(comparison, LINES)))
            @if !expected.is_empty() { h2 { "Expected" } (list(expected)) }
        },
        picture: html! {
            (needless_bars(&comparison.targets))
            (steps(&comparison.steps))
        },
        tables: html! {
            (figures(comparison))
            @for (heading, lines) in sections.iter().filter(|(heading, _)| *heading != notes::STEPS) {
                @if !heading.is_empty() { h3 { (heading) } }
                (list(lines))
            }
        },
        machines: machines(&comparison.targets),
        document: json::expected(comparison, cases),
        may_go: MAY_GO,
        moves: false,
    }
    .render(made)
}

/// The machines of real kernels.
pub(super) fn machines(targets: &[Target]) -> Vec<(&str, &BTreeMap<String, String>)> {
    let ran = targets.iter().filter_map(|target| Some((target.name.as_str(), target.ran()?)));
    let machines = ran.map(|(name, ran)| (name, &ran.run.environment));
    machines.filter(|(_, machine)| !machine.is_empty()).collect()
}

/// What each target did in a round: what was needless, what was needed, and what has no verdict.
pub(super) fn needless_bars(targets: &[Target]) -> Markup {
    let row = |target: &Target| Row {
        name: target.name.clone(),
        bars: match &target.outcome {
            Outcome::Ran(ran) => of_run(ran),
            Outcome::Unavailable { reason, .. } => vec![Bar {
                name: "not run".to_owned(),
                parts: Vec::new(),
                empty: reason.clone(),
                quiet: true,
            }],
        },
        most: None,
    };
    let rows: Vec<Row> = targets.iter().map(row).collect();
    bars("In each round: needless, and needed", &answer::kinds(), &rows)
}

fn of_run(ran: &Ran) -> Vec<Bar> {
    let shares = answer::shares(ran);
    let bar = |name: &str, quiet: bool, many: &dyn Fn(&Share) -> Option<u64>| {
        let parts = shares.iter().enumerate().filter_map(|(kind, share)| {
            let many = many(share).filter(|many| *many > 0)?;
            Some(Part { kind, value: many as f64, said: share.counted(many) })
        });
        let parts = parts.collect();
        Bar { name: name.to_owned(), parts, empty: "nothing".to_owned(), quiet }
    };
    let needless = bar("needless", false, &|share| share.needless);
    let needed = bar("needed", true, &|share| Some(share.all?.saturating_sub(share.needless?)));
    let unjudged = bar("no verdict", true, &|share| share.all.filter(|_| share.needless.is_none()));
    let unjudged = (!unjudged.parts.is_empty()).then_some(unjudged);
    [needless, needed].into_iter().chain(unjudged).collect()
}

/// From row to row: what changed, and which policy explains it.
fn steps(steps: &[Step]) -> Markup {
    let arrow = LINES.arrow();
    html! {
        @if !steps.is_empty() {
            figure {
                figcaption { (notes::STEPS) }
                ol class="steps" {
                    @for Step { from, to, changes } in steps {
                        li {
                            b { (from) " " (arrow) " " (to) }
                            @if changes.is_empty() { ": the same counts" }
                            (list(changes.iter().map(|change| change_text(change, arrow))))
                        }
                    }
                }
            }
        }
    }
}

/// Every counter of every target.
fn figures(comparison: &Comparison) -> Markup {
    let counters = counters(comparison, Detail::All);
    let mut head: Vec<String> = ["target", "kernel", "state", "rounds"].map(str::to_owned).into();
    head.extend(counters.iter().map(|counter| counter.name().replace('_', " ")));
    head.push("faults by class".to_owned());
    let row = |(at, target): (usize, &Target)| {
        let place = format!("/targets/{at}");
        let mut row = vec![Cell::words(&target.name)];
        let Some(ran) = target.ran() else {
            row.push(Cell::words("-"));
            row.push(Cell::words("not run"));
            row.resize_with(head.len(), || Cell::words("-"));
            return row;
        };
        row.push(Cell::words(ran.run.release.as_deref().unwrap_or("model")));
        row.push(Cell::words(if ran.run.invalid.is_some() { "INVALID" } else { "ran" }));
        row.push(Cell::figure(Some(ran.account.total as u64), format!("{place}/rounds")));
        row.extend(counters.iter().map(|counter| counter_cell(ran, *counter, &place)));
        row.push(Cell::words(classes(ran)));
        row
    };
    let rows: Vec<Vec<Cell>> = comparison.targets.iter().enumerate().map(row).collect();
    table("Figures of one round (? is unknown, * is the model's)", &head, &rows)
}

/// A counter's value with what marks it and how far rounds differ.
fn counter_cell(ran: &Ran, counter: Counter, place: &str) -> Cell {
    let at = format!("{place}/per_round/{}", counter.name());
    if counter == Counter::Cycles {
        let median = crate::stats::median(&ran.account.cycles());
        return Cell::figure(median.map(|median| median.median), at);
    }
    let text = ran.account.typical(counter).map_or("?".to_owned(), |value| value.to_string());
    let star = star(ran, counter.name());
    let spread = ran.account.spread(counter).filter(|spread| !spread.is_constant());
    let range = spread.map_or_else(String::new, |spread| format!("{}..{}", spread.min, spread.max));
    Cell::Figure { text, at, more: format!("{star}{range}") }
}

fn classes(ran: &Ran) -> String {
    match ran.account.typical_classes() {
        None => "?".to_owned(),
        Some((classes, _)) => {
            let star = star(ran, FAULTS_BY_CLASS);
            let class =
                classes.iter().map(|(class, many)| format!("{many}{star} {}", class.name()));
            class.collect::<Vec<_>>().join(", ")
        }
    }
}

//! The page of an agreement: real kernels and feature groups, and what differs.

use super::frame::{Cell, LAID_OUT, LINES, Made, Page, laid_out, list, step, table};
use crate::agree::{TargetAgreement, Totals, closing, differences, json, remarks};
use maud::{Markup, html};
use std::collections::BTreeSet;

/// What of the data may be left out, in this order.
const MAY_GO: &[&str] = &["/targets/*/scenarios"];

/// The page of an agreement.
pub fn agree(targets: &[TargetAgreement], made: &Made) -> String {
    let remarked: Vec<String> = targets.iter().flat_map(|target| remarks(target, LINES)).collect();
    Page {
        title: "Real kernels and the model: do they agree?".to_owned(),
        answer: list(targets.iter().map(sentence)),
        picture: picture(targets),
        tables: html! {
            (figures(targets))
            @if !remarked.is_empty() {
                h3 { "Not decided, or not applicable" }
                (list(remarked))
            }
            @for target in targets {
                (laid_out(&differences(target, LAID_OUT), &format!("What differs on {}", target.target)))
            }
        },
        machines: Vec::new(),
        document: json(targets),
        may_go: MAY_GO,
        moves: false,
    }
    .render(made)
}

fn sentence(target: &TargetAgreement) -> String {
    let Totals { run, exact, differing, undecided, .. } = Totals::of(&target.scenarios);
    let told = closing(target);
    format!("{told}: {run} run, {exact} exact, {differing} differing, {undecided} undecided")
}

/// Group by kernel: how many scenarios of those that ran are exact.
fn picture(targets: &[TargetAgreement]) -> Markup {
    let by_group: Vec<Vec<(&str, Totals)>> =
        targets.iter().map(TargetAgreement::by_group).collect();
    let groups: BTreeSet<&str> = by_group.iter().flatten().map(|(group, _)| *group).collect();
    // All scenarios together come last.
    let groups = groups.iter().filter(|group| **group != "all").chain([&"all"]);
    let cell = |at: usize, group: &str| by_group[at].iter().find(|(name, _)| *name == group);
    html! {
        figure {
            figcaption {
                "Exact scenarios of those that ran"
                p { "Marked: something differs, or was not decided." }
            }
            div class="scroll" tabindex="0" role="region" aria-label="Exact scenarios by group" {
                table {
                    thead {
                        tr {
                            th scope="col" { "group" }
                            @for target in targets { th scope="col" { (target.target) } }
                        }
                    }
                    tbody {
                        @for group in groups {
                            tr {
                                th scope="row" { (group) }
                                @for at in 0..targets.len() {
                                    @match cell(at, group) {
                                        None => { td { "–" } }
                                        Some((_, totals)) => { (share(*totals)) }
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn share(Totals { run, exact, .. }: Totals) -> Markup {
    let class = if exact == run { "exact" } else { "differs" };
    html! { td class=(class) { (exact) " of " (run) } }
}

/// Kernel and group against run, exact, differing, undecided, not applicable.
fn figures(targets: &[TargetAgreement]) -> Markup {
    let head = ["kernel", "group", "run", "exact", "differing", "undecided", "not applicable"];
    let mut rows = Vec::new();
    for (at, target) in targets.iter().enumerate() {
        for (group, totals) in target.by_group() {
            let Totals { run, exact, differing, undecided, not_applicable } = totals;
            let figure = |name: &str, many: usize| {
                let place = format!("/targets/{at}/groups/{}/{name}", step(group));
                Cell::figure(Some(many as u64), place)
            };
            rows.push(vec![
                Cell::words(&target.target),
                Cell::words(group),
                figure("run", run),
                figure("exact", exact),
                figure("differing", differing),
                figure("undecided", undecided),
                figure("not_applicable", not_applicable),
            ]);
        }
    }
    table("By kernel and group", &head.map(str::to_owned), &rows)
}

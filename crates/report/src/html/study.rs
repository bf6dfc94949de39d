//! The page of a study: its answers, what was published beside ours, what was tested, and every
//! figure part by part.

use super::chart::{Bar, Curve, Part, Row, bars, curves};
use super::frame::{Cell, Made, Page, list, table, words};
use crate::notes::{needless_word, per_round};
use crate::study::{
    Block, PartResult, RelationResult, RunResult, Studied, TargetResult, document, number, sides,
    with_numbers,
};
use maud::{Markup, html};
use needless_model::verdict::Needless;
use needless_scenario::study::{Column, Sweep};
use std::collections::{BTreeMap, BTreeSet};

/// What of the data may be left out, in this order.
const MAY_GO: &[&str] = &["/parts/*/contrasts", "/parts/*/runs/*/targets/*/findings", "/parts"];

/// The page of a study.
pub fn study(studied: &Studied, made: &Made) -> String {
    let mut first = studied.results();
    // What comes before the first caption is the answer.
    let end = first.iter().position(|block| matches!(block, Block::Caption(_)));
    let rest = first.split_off(end.unwrap_or(first.len()));
    let title = format!("{}: published beside ours", studied.study.name);
    Page {
        title,
        answer: laid_out(first.into_iter().map(without_heading).collect()),
        picture: html! {
            (needless(studied))
            (published(studied))
            @for part in &studied.parts {
                @for sweep in &part.sweeps { (curves_of(sweep, part)) }
            }
        },
        tables: html! {
            (laid_out(rest))
            (relations(studied))
            @for part in &studied.parts {
                details {
                    summary { "Every figure of the part " (part.name) }
                    (laid_out(part.blocks()))
                }
            }
        },
        machines: vec![(studied.study.name.as_str(), &studied.environment)],
        document: document(studied),
        may_go: MAY_GO,
        moves: false,
    }
    .render(made)
}

/// The page's title has the study's name already.
fn without_heading(block: Block) -> Block {
    match block {
        Block::Heading(_, question) => Block::Line(question),
        other => other,
    }
}

/// What text and Markdown lay out, in HTML.
fn laid_out(blocks: Vec<Block>) -> Markup {
    let mut pieces = Vec::new();
    let mut caption: Option<String> = None;
    let mut lines: Vec<String> = Vec::new();
    let mut answers: Vec<(String, String)> = Vec::new();
    for block in blocks {
        if !matches!(block, Block::Line(_)) && !lines.is_empty() {
            pieces.push(list(std::mem::take(&mut lines)));
        }
        if !matches!(block, Block::Answer(..)) && !answers.is_empty() {
            pieces.push(answered(&std::mem::take(&mut answers)));
        }
        match block {
            Block::Heading(name, rest) => pieces.push(html! { h2 { (name) } p { (rest) } }),
            Block::Caption(text) => caption = Some(text),
            Block::Answer(question, answer) => answers.push((question, answer)),
            Block::Line(line) => {
                if let Some(text) = caption.take() {
                    pieces.push(html! { h3 { (text) } });
                }
                lines.push(line);
            }
            Block::Table { header, rows, words: _ } => {
                let caption = caption.take().unwrap_or_default();
                pieces.push(words(&caption, &header, &rows));
            }
        }
    }
    html! {
        @for piece in &pieces { (piece) }
        (list(lines))
        (answered(&answers))
    }
}

fn answered(answers: &[(String, String)]) -> Markup {
    html! {
        @if !answers.is_empty() {
            dl class="answers" {
                @for (question, answer) in answers { dt { (question) } dd { (answer) } }
            }
        }
    }
}

/// What was needless in a round, run by run; the first run is open.
fn needless(studied: &Studied) -> Markup {
    let runs = studied.parts.iter().flat_map(|part| &part.runs);
    let found = |run: &&RunResult| run.targets.iter().any(|target| !of_target(target).is_empty());
    html! {
        @for (at, run) in runs.filter(found).enumerate() {
            details open[at == 0] {
                summary { "Needless in a round: " (run.name) " (" (run.scenario) ")" }
                (of_run(run))
            }
        }
    }
}

fn of_run(run: &RunResult) -> Markup {
    let there = || run.targets.iter().filter(|target| target.rounds > 0);
    let kinds: BTreeSet<Needless> =
        there().flat_map(|target| of_target(target).into_keys()).collect();
    let kinds: Vec<Needless> = kinds.into_iter().collect();
    let row = |target: &TargetResult| {
        let of = of_target(target);
        let parts = kinds.iter().enumerate().filter_map(|(kind, what)| {
            let total = *of.get(what)?;
            let often = per_round(total, target.rounds);
            let said = format!("{} {often}", needless_word(*what));
            Some(Part { kind, value: total as f64 / target.rounds as f64, said })
        });
        let bar = Bar {
            name: "needless".to_owned(),
            parts: parts.collect(),
            empty: "nothing that was judged".to_owned(),
            quiet: false,
        };
        Row { name: target.target.clone(), bars: vec![bar], most: None }
    };
    let names: Vec<&str> = kinds.iter().map(|what| needless_word(*what)).collect();
    bars("By target", &names, &there().map(row).collect::<Vec<Row>>())
}

/// What was needless on a target, in all rounds. Interrupts go with their shootdowns.
fn of_target(target: &TargetResult) -> BTreeMap<Needless, u64> {
    let mut totals = BTreeMap::new();
    for (finding, total) in &target.findings {
        if finding.what != Needless::Interrupt {
            *totals.entry(finding.what).or_default() += total;
        }
    }
    totals
}

/// The relations that name a published figure, each with its two sides.
fn published(studied: &Studied) -> Markup {
    let given = studied.study.given.iter().map(|given| given.name.as_str());
    let given: BTreeSet<&str> = given.collect();
    let mut rows = Vec::new();
    for part in &studied.parts {
        // A figure that is computed from a published one is published, too.
        let mut published = given.clone();
        loop {
            let computed = part.figures.iter().filter(|figure| names(&figure.origin, &published));
            let computed: BTreeSet<&str> = computed.map(|figure| figure.name.as_str()).collect();
            if computed.is_subset(&published) {
                break;
            }
            published.extend(computed);
        }
        let told = part.relations.iter().filter(|relation| names(&relation.formula, &published));
        rows.extend(told.filter_map(row));
    }
    html! {
        @if !rows.is_empty() { (bars("Published beside ours, relation by relation", &[], &rows)) }
    }
}

/// Whether a formula has one of these names.
fn names(formula: &str, of: &BTreeSet<&str>) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
    formula.split(|c: char| !is_part(c)).any(|name| of.contains(name))
}

fn row(relation: &RelationResult) -> Option<Row> {
    let (left, right) = relation.sides.filter(|(left, right)| *left >= 0.0 && *right >= 0.0)?;
    let (first, second) = sides(&relation.formula);
    let bar = |kind, name: &str, value: f64| Bar {
        name: name.to_owned(),
        parts: vec![Part { kind, value, said: number(value) }],
        empty: String::new(),
        quiet: false,
    };
    Some(Row {
        name: format!("{}: {}", relation.standing.word(), relation.text),
        bars: vec![bar(0, first, left), bar(1, second, right)],
        most: Some(left.max(right)),
    })
}

/// A sweep as curves, those of one unit together.
fn curves_of(sweep: &Sweep, part: &PartResult) -> Markup {
    let mut units: Vec<&str> = Vec::new();
    for column in &sweep.columns {
        if !units.contains(&column.unit.as_str()) {
            units.push(&column.unit);
        }
    }
    let curve = |column: &Column| {
        let point = |value: &u64| {
            let name = Sweep::cell(&column.name, *value);
            let figure = part.figures.iter().find(|figure| figure.name == name)?;
            Some((*value as f64, *figure.value.as_ref().ok()?))
        };
        let points = sweep.values.iter().filter_map(point).collect();
        Curve { name: column.name.clone(), points }
    };
    html! {
        @for unit in units {
            @let of = sweep.columns.iter().filter(|column| column.unit == *unit);
            (curves(&sweep.text, &sweep.over, unit, &of.map(curve).collect::<Vec<Curve>>()))
        }
    }
}

/// Every relation of every part.
fn relations(studied: &Studied) -> Markup {
    let head = ["relation", "part", "standing", "left", "right", "with its numbers"];
    let mut rows = Vec::new();
    for (at, part) in studied.parts.iter().enumerate() {
        for (number_of, relation) in part.relations.iter().enumerate() {
            let place = format!("/parts/{at}/relations/{number_of}");
            let side = |value: Option<f64>, name: &str| Cell::Rounded {
                text: value.map_or_else(|| "?".to_owned(), number),
                at: format!("{place}/{name}"),
            };
            let sides = relation.sides;
            rows.push(vec![
                Cell::words(&relation.text),
                Cell::words(&part.name),
                Cell::words(relation.standing.word()),
                side(sides.map(|(left, _)| left), "left"),
                side(sides.map(|(_, right)| right), "right"),
                Cell::words(with_numbers(relation)),
            ]);
        }
    }
    html! {
        @if !rows.is_empty() { (table("Every relation", &head.map(str::to_owned), &rows)) }
    }
}

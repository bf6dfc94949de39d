//! The table of a comparison: one row per target, figures per round.
//!
//! `?` is unknown (the reason stands under the table), `*` marks figures transferred from the
//! model, and where rounds differ the most frequent value stands above its range.

use crate::compare::{Comparison, Outcome, Ran, Target};
use crate::stats::median;
use crate::style::Style;
use comfy_table::{
    Attribute, Cell, CellAlignment, ContentArrangement, LineStyle, Table, TableStyle,
};
use needless_model::account::Classes;
use needless_model::counters::{Counter, FAULTS_BY_CLASS};

/// The comparison's table.
pub fn table(comparison: &Comparison, style: Style) -> String {
    let ran = || comparison.targets.iter().filter_map(Target::ran);
    let timed = ran().any(|ran| !ran.account.cycles().is_empty());
    let real = ran().any(|ran| ran.reference.is_some());
    let shown = |counter: &&Counter| timed || **counter != Counter::Cycles;
    let columns: Vec<Counter> = Counter::ALL
        .iter()
        .filter(|counter| counter.column().is_some())
        .filter(shown)
        .copied()
        .collect();

    // Every cell as wide as it needs: a figure broken over two lines would read as another.
    let mut table = Table::new();
    table
        .load_style(rule(style))
        .set_content_arrangement(ContentArrangement::Disabled)
        .force_no_tty();
    if style.color {
        table.enforce_styling();
    }
    let mut header = vec!["target"];
    header.extend(columns.iter().filter_map(|counter| counter.column()));
    header.extend(real.then_some("equal\nto\nmodel"));
    table.set_header(header.iter().map(|name| Cell::new(name).add_attribute(Attribute::Bold)));
    for target in &comparison.targets {
        let mut row = vec![Cell::new(target_cell(target))];
        row.extend(columns.iter().map(|&counter| match &target.outcome {
            Outcome::Ran(ran) => figure(ran, counter),
            Outcome::Unavailable { .. } => Cell::new("?"),
        }));
        if real {
            row.push(Cell::new(target.ran().map_or_else(String::new, agreement_cell)));
        }
        table.add_row(row);
    }
    for (at, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, 0));
        let words = at == 0 || columns.get(at - 1) == Some(&Counter::Faults);
        column.set_cell_alignment(if words { CellAlignment::Left } else { CellAlignment::Right });
    }
    table.trim_fmt()
}

/// A table of words, then from column `left` on of figures, which end at the right.
pub(crate) fn plain_table(
    header: &[&str],
    rows: Vec<Vec<String>>,
    left: usize,
    style: Style,
) -> String {
    let mut table = Table::new();
    table
        .load_style(rule(style))
        .set_content_arrangement(ContentArrangement::Disabled)
        .force_no_tty();
    if style.color {
        table.enforce_styling();
    }
    table.set_header(header.iter().map(|name| Cell::new(name).add_attribute(Attribute::Bold)));
    table.add_rows(rows);
    for (at, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, 2));
        let side = if at < left { CellAlignment::Left } else { CellAlignment::Right };
        column.set_cell_alignment(side);
    }
    table.trim_fmt()
}

/// A rule under the header, and no other line.
fn rule(style: Style) -> TableStyle {
    let line = LineStyle::none();
    let dash = if style.unicode { '─' } else { '-' };
    TableStyle::new().header_separator(line.fill(dash).junction(dash))
}

fn target_cell(target: &Target) -> String {
    let Some(ran) = target.ran() else { return target.name.clone() };
    let release = ran.run.release.as_deref().map(short_release);
    let state = ran.run.invalid.as_ref().map(|_| "INVALID".to_owned());
    [Some(target.name.clone()), release, state].into_iter().flatten().collect::<Vec<_>>().join("\n")
}

/// `6.18.44-fc-v669` as `6.18.44`.
fn short_release(release: &str) -> String {
    release.split(['-', '+']).next().unwrap_or(release).to_owned()
}

fn figure(ran: &Ran, counter: Counter) -> Cell {
    match counter {
        Counter::Faults => Cell::new(faults_cell(ran)),
        Counter::Cycles => Cell::new(cycles_cell(ran)),
        _ => Cell::new(value_cell(ran, counter)),
    }
}

fn star(ran: &Ran, name: &str) -> &'static str {
    let transferred = ran.reference.as_ref().is_some_and(|r| r.transferred.contains(name));
    if transferred { "*" } else { "" }
}

fn value_cell(ran: &Ran, counter: Counter) -> String {
    let Some(spread) = ran.account.spread(counter) else { return "?".to_owned() };
    let value = format!("{}{}", spread.mode, star(ran, counter.name()));
    if spread.is_constant() { value } else { format!("{value}\n{}..{}", spread.min, spread.max) }
}

fn faults_cell(ran: &Ran) -> String {
    let total = value_cell(ran, Counter::Faults);
    match ran.account.typical_classes() {
        Some((classes, _)) if classes.is_empty() => total,
        Some((classes, _)) => {
            let lines = class_lines(classes);
            format!("{}{}", lines.join("\n"), star(ran, FAULTS_BY_CLASS))
        }
        None => total,
    }
}

/// `1 swap-in`, one line per class.
pub(crate) fn class_lines(classes: &Classes) -> Vec<String> {
    classes.iter().map(|(class, count)| format!("{count} {}", class.name())).collect()
}

fn cycles_cell(ran: &Ran) -> String {
    match median(&ran.account.cycles()) {
        None => "?".to_owned(),
        Some(result) => match result.interval_95 {
            Some((low, high)) => format!("{}\n{low}..{high}", result.median),
            None => result.median.to_string(),
        },
    }
}

fn agreement_cell(ran: &Ran) -> String {
    let Some(reference) = &ran.reference else { return String::new() };
    if reference.agreement.undecided.is_some() {
        return "?".to_owned();
    }
    format!("{}/{}", reference.agreement.equal(), reference.agreement.rounds)
}

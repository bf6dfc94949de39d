//! The table of a comparison: one row for each target, with figures per round.
//!
//! `?` means unknown; the reason is under the table. `*` marks figures transferred from the model.
//! Where rounds differ, the most frequent value is above its range.

use crate::answer::counts_needless;
use crate::compare::{Comparison, Outcome, Ran, Target};
use crate::stats::median;
use crate::style::{self, Detail, Style};
use comfy_table::{
    Attribute, Cell, CellAlignment, ColumnConstraint, ContentArrangement, LineStyle, Table,
    TableStyle, Width,
};
use needless_model::account::Classes;
use needless_model::counters::{Counter, FAULTS_BY_CLASS};
use std::ops::Range;

/// In a narrowed table, words up to this share of the text's width (an eighth) are kept whole.
/// Names of functions are not.
const WORD_IS_WHOLE: u16 = 8;

/// The comparison's table. With [`Detail::All`] it has every counter that has a column. Otherwise
/// it has those that tell targets apart or say what happened.
pub fn table(comparison: &Comparison, style: Style, detail: Detail) -> String {
    let real = comparison.targets.iter().filter_map(Target::ran).any(|ran| ran.reference.is_some());
    let rows = || comparison.targets.iter();
    let mut columns = vec![Column::words("target", rows().map(target_cell))];
    for counter in counters(comparison, detail) {
        let Some(head) = counter.column() else { continue };
        let cells = rows().map(|target| match &target.outcome {
            Outcome::Ran(ran) => figure(ran, counter),
            Outcome::Unavailable { .. } => "?".to_owned(),
        });
        columns.push(match counter {
            Counter::Faults => Column::words(head, cells),
            _ => Column::figures(head, cells),
        });
    }
    if real && detail == Detail::All {
        let cells = rows().map(|target| target.ran().map_or_else(String::new, agreement_cell));
        columns.push(Column::figures("equal\nto\nmodel", cells));
    }
    side_by_side(&columns, style)
}

/// The counters that have a column. Cycles have one if anything was timed. Minor and major faults,
/// and retries, have one if targets differ in them. An answer leaves out what its sentences say,
/// and what is 0 on every target.
pub(crate) fn counters(comparison: &Comparison, detail: Detail) -> Vec<Counter> {
    let ran = || comparison.targets.iter().filter_map(Target::ran);
    let differ = |counter| {
        let mut values = ran().filter_map(|ran| ran.account.typical(counter));
        values.next().is_some_and(|first| values.any(|value| value != first))
    };
    let zero = |counter| {
        let never = |ran: &Ran| ran.account.spread(counter).is_some_and(|spread| spread.max == 0);
        ran().all(never)
    };
    let shown = |counter: &Counter| match counter {
        Counter::Cycles => ran().any(|ran| !ran.account.cycles().is_empty()),
        Counter::MinorFaults | Counter::MajorFaults => differ(Counter::MajorFaults),
        Counter::Retries => differ(Counter::Retries),
        counter if counter.column().is_none() => false,
        counter => detail == Detail::All || !(counts_needless(*counter) || zero(*counter)),
    };
    Counter::ALL.iter().copied().filter(shown).collect()
}

/// A column that is as wide as it needs: a figure broken over two lines would read as another
/// figure.
struct Column<'a> {
    head: &'a str,
    cells: Vec<String>,
    side: CellAlignment,
}

impl<'a> Column<'a> {
    fn words(head: &'a str, cells: impl Iterator<Item = String>) -> Column<'a> {
        Column { head, cells: cells.collect(), side: CellAlignment::Left }
    }

    fn figures(head: &'a str, cells: impl Iterator<Item = String>) -> Column<'a> {
        Column { head, cells: cells.collect(), side: CellAlignment::Right }
    }

    fn width(&self) -> usize {
        let cells = self.cells.iter().map(|cell| style::columns(cell));
        cells.max().unwrap_or(0).max(style::columns(self.head))
    }
}

/// Puts as many columns side by side as fit. The others are in further tables below, which also
/// begin with the first column.
fn side_by_side(columns: &[Column<'_>], style: Style) -> String {
    let Some((first, rest)) = columns.split_first() else { return String::new() };
    let mut tables: Vec<(usize, Vec<&Column<'_>>)> = Vec::new();
    for column in rest {
        let width = 1 + column.width();
        match tables.last_mut() {
            Some((used, table)) if *used + width <= usize::from(style.width) => {
                *used += width;
                table.push(column);
            }
            _ => tables.push((first.width() + width, vec![first, column])),
        }
    }
    let tables = tables.iter().map(|(_, columns)| one_table(columns, style));
    tables.collect::<Vec<_>>().join("\n\n")
}

fn one_table(columns: &[&Column<'_>], style: Style) -> String {
    let mut table = empty_table(columns.iter().map(|column| column.head), style);
    for row in 0..columns.first().map_or(0, |column| column.cells.len()) {
        table.add_row(columns.iter().map(|column| &column.cells[row]));
    }
    for (at, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, 0));
        column.set_cell_alignment(columns[at].side);
    }
    table.trim_fmt()
}

/// A table of figures, which are aligned right, except for the columns in `words`. If the table is
/// wider than the text may be, these columns are broken, between words if the words are short.
/// Figures are never broken.
pub(crate) fn plain_table(
    header: &[&str],
    rows: Vec<Vec<String>>,
    words: Range<usize>,
    style: Style,
) -> String {
    let mut table = empty_table(header.iter().copied(), style);
    table.set_content_arrangement(ContentArrangement::Dynamic).set_width(style.width);
    let longest = |at: usize| {
        let cells = rows.iter().filter_map(|row| row.get(at)).map(String::as_str);
        let words = cells.chain([header[at]]).flat_map(str::split_whitespace);
        words.map(style::columns).max().unwrap_or(0)
    };
    let longest: Vec<usize> = (0..header.len()).map(longest).collect();
    table.add_rows(rows);
    for (at, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, 2));
        if words.contains(&at) {
            let whole = style.width / WORD_IS_WHOLE;
            let width = longest[at].min(usize::from(whole)) as u16 + 2;
            column.set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(width)));
            column.set_cell_alignment(CellAlignment::Left);
        } else {
            column.set_cell_alignment(CellAlignment::Right);
            column.set_constraint(ColumnConstraint::ContentWidth);
        }
    }
    table.trim_fmt()
}

/// A table with a rule under its header, and no other line.
fn empty_table<'a>(header: impl Iterator<Item = &'a str>, style: Style) -> Table {
    let line = LineStyle::none();
    let dash = if style.unicode { '─' } else { '-' };
    let mut table = Table::new();
    table
        .load_style(TableStyle::new().header_separator(line.fill(dash).junction(dash)))
        .set_content_arrangement(ContentArrangement::Disabled)
        .force_no_tty();
    if style.color {
        table.enforce_styling();
    }
    table.set_header(header.map(|name| Cell::new(name).add_attribute(Attribute::Bold)));
    table
}

fn target_cell(target: &Target) -> String {
    let Some(ran) = target.ran() else { return target.name.clone() };
    let release = ran.run.release.as_deref().map(short_release);
    let state = ran.run.invalid.as_ref().map(|_| "INVALID".to_owned());
    [Some(target.name.clone()), release, state].into_iter().flatten().collect::<Vec<_>>().join("\n")
}

/// The short release: `6.18.44-fc-v669` becomes `6.18.44`.
fn short_release(release: &str) -> String {
    release.split(['-', '+']).next().unwrap_or(release).to_owned()
}

fn figure(ran: &Ran, counter: Counter) -> String {
    match counter {
        Counter::Faults => faults_cell(ran),
        Counter::Cycles => cycles_cell(ran),
        _ => value_cell(ran, counter),
    }
}

/// The mark of a figure that is the model's.
pub(crate) fn star(ran: &Ran, name: &str) -> &'static str {
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

/// Faults by class, one line each: `1 swap-in`.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_between_figures_are_broken_and_figures_are_not() {
        let row =
            ["1.234 s", "TLB flush, flush_tlb_func", "postgres (12345) in munmap", "34.77 us"];
        let rows = vec![row.map(str::to_owned).to_vec()];
        let header = ["left alone for", "what for", "by", "took"];
        for width in [60, 80] {
            let style = Style { width, ..Style::PLAIN };
            let text = plain_table(&header, rows.clone(), 1..3, style);
            let widest = text.lines().map(style::columns).max();
            assert!(widest <= Some(usize::from(width)), "{text}");
            for whole in ["1.234 s", "34.77 us", "left alone for", "munmap"] {
                assert!(text.contains(whole), "{whole}: {text}");
            }
        }
    }
}

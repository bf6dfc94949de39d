//! The text of one target's run: every counter with its meaning.

use crate::answer;
use crate::compare::{Comparison, Outcome, Ran, Target};
use crate::notes::{
    finding_line, instruction_lines, per_round, real_remarks, sequence_lines, witness,
};
use crate::stats::median;
use crate::style::{Detail, Style, count};
use crate::table::{class_lines, star};
use comfy_table::{
    Attribute, Cell, CellAlignment, ColumnConstraint, ContentArrangement, Table, presets,
};
use needless_model::addr::ProcessId;
use needless_model::counters::{Counter, FAULTS_BY_CLASS, Fold};
use needless_model::program::Process;
use needless_model::verdict::Needless;

/// The text of a run: a comparison with one target.
pub fn text(comparison: &Comparison, style: Style, detail: Detail) -> String {
    comparison.targets.iter().map(|target| target_text(comparison, target, style, detail)).collect()
}

fn target_text(comparison: &Comparison, target: &Target, style: Style, detail: Detail) -> String {
    let ran = match &target.outcome {
        Outcome::Ran(ran) => ran,
        Outcome::Unavailable { reason, help } => {
            let reason = style.wrap(&format!("{}: not run: {reason}", target.name), 6) + "\n";
            let help = help.iter().map(|help| style.wrap(&format!("  {help}"), 2) + "\n");
            return reason + &help.collect::<String>();
        }
    };
    let head = heading(comparison, target, ran, style);
    let mut text = style.wrap(&head, 6) + "\n";
    if let Some(remark) = &target.remark {
        text += &format!("{}: {remark}\n", target.name);
    }
    text += &style.wrap(&needless(ran), 6);
    text += "\n\n";
    text += &counters(target, style, detail);
    text.push('\n');
    for line in lines(comparison, target, ran, style, detail) {
        text += &format!("\n{}", style.wrap(&line, 6));
    }
    text.push('\n');
    text
}

/// What ran where, and how often: `cow-reuse on live (6.18.44), 100 rounds`.
pub(crate) fn heading(comparison: &Comparison, target: &Target, ran: &Ran, style: Style) -> String {
    let name = &comparison.program.name;
    let rounds = count(ran.account.total, "round");
    let release = ran.run.release.as_ref().map(|r| format!(" ({r})")).unwrap_or_default();
    format!("{} on {}{release}, {rounds}", style.bold(name), target.name)
}

/// The answer of a run.
pub(crate) fn needless(ran: &Ran) -> String {
    format!("needless in each round: {}", answer::of_run(ran))
}

/// What is said of a run under its table.
pub(crate) fn lines(
    comparison: &Comparison,
    target: &Target,
    ran: &Ran,
    style: Style,
    detail: Detail,
) -> Vec<String> {
    let mut lines = Vec::new();
    if detail == Detail::Answer {
        lines.extend(zeros(ran));
    }
    lines.extend(process_lines(comparison, ran));
    lines.extend(sequence_lines(&ran.account, style).iter().map(|s| format!("sequence: {s}")));
    let executed = instruction_lines(ran, style);
    lines.extend(executed.iter().map(|line| format!("instructions: {line}")));
    let findings = ran.account.findings();
    let told = findings.iter().filter(|(finding, _)| finding.what != Needless::Interrupt);
    lines.extend(told.map(|(finding, total)| {
        let often = per_round(*total, ran.account.total);
        format!("needless {}", finding_line(finding, &often).trim_start())
    }));
    lines.extend(real_remarks(&target.name, ran));
    lines.extend(ran.run.release.is_some().then(|| witness(target)).flatten());
    lines
}

/// One line for each process, if there are several: everything that it did, and how much was
/// needless.
fn process_lines(comparison: &Comparison, ran: &Ran) -> Vec<String> {
    let processes = &comparison.program.processes;
    if processes.len() < 2 {
        return Vec::new();
    }
    let line = |(number, process): (usize, &Process)| {
        let figure = |counter: &Counter| {
            let spread = ran.account.spread_of(ProcessId(number as u16), *counter);
            let needless = matches!(counter.fold(), Fold::Needless(_));
            if needless && spread.is_none_or(|spread| spread.max == 0) {
                return None;
            }
            let value = spread.map_or("?".to_owned(), |spread| match spread.is_constant() {
                true => spread.mode.to_string(),
                false => format!("{} ({}..{})", spread.mode, spread.min, spread.max),
            });
            let (name, star) = (counter.name(), star(ran, counter.name()));
            Some(format!("{value}{star} {}", name.replace('_', " ")))
        };
        let counters = Counter::ALL.iter().filter(|counter| counter.is_by_process());
        let timed = median(&ran.account.cycles_of(ProcessId(number as u16)));
        let timed = timed.map(|result| format!("{} cycles", result.median));
        let figures: Vec<String> = counters.filter_map(figure).chain(timed).collect();
        format!("process {}: {}", process.name, figures.join(", "))
    };
    processes.iter().enumerate().map(line).collect()
}

/// Whether a counter is 0 in every round.
fn is_zero(ran: &Ran, counter: Counter) -> bool {
    counter != Counter::Cycles && ran.account.spread(counter).is_some_and(|spread| spread.max == 0)
}

/// The counters that are 0 in every round, which an answer does not list one by one.
fn zeros(ran: &Ran) -> Option<String> {
    let zero = Counter::ALL.iter().filter(|counter| is_zero(ran, **counter));
    let names: Vec<&str> = zero.map(|counter| counter.name()).collect();
    (!names.is_empty()).then(|| format!("0 in every round: {}", names.join(", ")))
}

/// A counter of a run: its value, how far rounds differ in it, and what it means.
pub(crate) struct CounterRow {
    /// The counter.
    pub counter: Counter,
    /// Its most frequent value, or its median; `?` if it is unknown.
    pub value: String,
    /// What marks it as the model's.
    pub star: &'static str,
    /// How far rounds differ; empty if they do not.
    pub range: String,
    /// What it counts, or why it is unknown.
    pub remark: String,
}

/// A row for each counter; in an answer, for each counter that is not 0.
pub(crate) fn counter_rows(target: &Target, detail: Detail) -> Vec<CounterRow> {
    let Some(ran) = target.ran() else { return Vec::new() };
    let listed = |counter: &&Counter| detail == Detail::All || !is_zero(ran, **counter);
    let row = |&counter: &Counter| {
        let (value, range) = match ran.account.spread(counter) {
            _ if counter == Counter::Cycles => cycles(&ran.account.cycles()),
            None => ("?".to_owned(), String::new()),
            Some(spread) if spread.is_constant() => (spread.mode.to_string(), String::new()),
            Some(s) => {
                let range = format!("in {} of {}, {}..{}: ", s.equal, s.of, s.min, s.max);
                (s.mode.to_string(), range)
            }
        };
        let unknown = || ran.account.unknown.get(counter.name());
        let mut remark = match (value.as_str(), unknown()) {
            ("?", Some(reason)) => format!("unknown: {reason}"),
            _ => counter.doc().to_owned(),
        };
        if counter == Counter::Faults {
            remark = class_remark(target).unwrap_or(remark);
        }
        CounterRow { counter, value, star: star(ran, counter.name()), range, remark }
    };
    Counter::ALL.iter().filter(listed).map(row).collect()
}

/// The rows of the counters as a table.
fn counters(target: &Target, style: Style, detail: Detail) -> String {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_width(style.width)
        .force_no_tty();
    if style.color {
        table.enforce_styling();
    }
    if target.ran().is_none() {
        return String::new();
    }
    for CounterRow { counter, value, star, range, remark } in counter_rows(target, detail) {
        let value = value + star;
        let remark = Cell::new(range + &remark).add_attribute(Attribute::Dim);
        table.add_row([Cell::new(counter.name()), Cell::new(value), remark]);
    }
    // Only the meaning of a counter may take several lines.
    for column in table.column_iter_mut().take(2) {
        column.set_constraint(ColumnConstraint::ContentWidth);
    }
    if let Some(column) = table.column_mut(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.trim_fmt()
}

fn cycles(samples: &[u64]) -> (String, String) {
    match median(samples) {
        None => ("?".to_owned(), String::new()),
        Some(result) => {
            let range = result.interval_95.map(|(low, high)| format!("95% in {low}..{high}: "));
            (result.median.to_string(), range.unwrap_or_default())
        }
    }
}

fn class_remark(target: &Target) -> Option<String> {
    let ran = target.ran()?;
    match ran.account.typical_classes() {
        Some((classes, _)) if classes.is_empty() => None,
        Some((classes, _)) => Some(class_lines(classes).join(", ")),
        None => {
            let reason = ran.account.unknown.get(FAULTS_BY_CLASS)?;
            Some(format!("classes unknown: {reason}"))
        }
    }
}

//! The text of one target's run: every counter, with what it means.

use crate::compare::{Comparison, Outcome, Target};
use crate::notes::{
    finding_line, instruction_lines, per_round, real_remarks, sequence_lines, witness,
};
use crate::stats::median;
use crate::style::{Style, count};
use crate::table::class_lines;
use comfy_table::{CellAlignment, Table, presets};
use needless_model::counters::{Counter, FAULTS_BY_CLASS};
use needless_model::verdict::Needless;

/// The text of a run: a comparison with one target.
pub fn text(comparison: &Comparison, style: Style) -> String {
    comparison.targets.iter().map(|target| target_text(comparison, target, style)).collect()
}

fn target_text(comparison: &Comparison, target: &Target, style: Style) -> String {
    let name = &comparison.program.name;
    let ran = match &target.outcome {
        Outcome::Ran(ran) => ran,
        Outcome::Unavailable { reason, help } => {
            let help = help.as_ref().map(|help| format!("  {help}\n")).unwrap_or_default();
            return format!("{}: not run: {reason}\n{help}", target.name);
        }
    };
    let rounds = count(ran.run.rounds.len(), "round");
    let release = ran.run.release.as_ref().map(|r| format!(" ({r})")).unwrap_or_default();
    let mut text = format!("{} on {}{release}, {rounds}\n", style.bold(name), target.name);
    if let Some(remark) = &target.remark {
        text += &format!("{}: {remark}\n", target.name);
    }
    text.push('\n');
    text += &counters(target, style);
    text.push('\n');
    let mut lines: Vec<String> =
        sequence_lines(&ran.account, style).iter().map(|s| format!("sequence: {s}")).collect();
    let executed = instruction_lines(&ran.run, style);
    lines.extend(executed.iter().map(|line| format!("instructions: {line}")));
    let findings = ran.account.findings();
    let told = findings.iter().filter(|(finding, _)| finding.what != Needless::Interrupt);
    lines.extend(told.map(|(finding, total)| {
        let often = per_round(*total, ran.account.rounds.len());
        format!("needless {}", finding_line(finding, &often).trim_start())
    }));
    lines.extend(real_remarks(&target.name, ran));
    lines.extend(ran.run.release.is_some().then(|| witness(target)).flatten());
    for line in lines {
        text += &format!("\n{}", style.wrap(&line, 6));
    }
    text.push('\n');
    text
}

/// One line per counter.
fn counters(target: &Target, style: Style) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).force_no_tty();
    let Some(ran) = target.ran() else { return String::new() };
    for &counter in Counter::ALL {
        let (value, range) = match ran.account.spread(counter) {
            _ if counter == Counter::Cycles => cycles(&ran.account.cycles()),
            None => ("?".to_owned(), String::new()),
            Some(spread) if spread.is_constant() => (spread.mode.to_string(), String::new()),
            Some(s) => {
                (s.mode.to_string(), format!("in {} of {}; {}..{}", s.equal, s.of, s.min, s.max))
            }
        };
        let unknown = || ran.account.unknown.get(counter.name());
        let transferred = ran
            .reference
            .as_ref()
            .filter(|reference| reference.transferred.contains(counter.name()));
        let mut remark = match (value.as_str(), unknown(), transferred) {
            ("?", Some(reason), _) => format!("unknown: {reason}"),
            (_, _, Some(reference)) => format!("{} (from {})", counter.doc(), reference.row),
            _ => counter.doc().to_owned(),
        };
        if counter == Counter::Faults {
            remark = class_remark(target).unwrap_or(remark);
        }
        table.add_row([counter.name().to_owned(), value, range, style.dim(remark)]);
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
            let range = result.interval_95.map(|(low, high)| format!("95%: {low}..{high}"));
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

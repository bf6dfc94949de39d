//! The report as text: all differences, then the table.

use super::{Difference, Found, ScenarioAgreement, Standing, TargetAgreement, Totals};
use crate::compare::Ran;
use crate::notes::phases_text;
use crate::style::{Style, count};
use crate::table::plain_table;
use needless_model::account::RoundAccount;
use needless_model::agreement::SwapCounts;
use needless_model::counters::Counter;
use needless_model::sequence::Token;

/// The largest number of inapplicable scenarios that the text names.
const NAMES: usize = 4;

/// The report as text.
pub fn text(targets: &[TargetAgreement], style: Style) -> String {
    let mut text = String::new();
    for target in targets {
        for line in remarks(target, style) {
            text += &(style.wrap(&line, 4) + "\n");
        }
        text += &differences(target, style);
    }
    text += &format!("\n{}\n", table(targets, style));
    for target in targets {
        text += &(style.wrap(&closing(target), 4) + "\n");
    }
    text
}

/// What was not decided, and what is not applicable.
pub(crate) fn remarks(target: &TargetAgreement, style: Style) -> Vec<String> {
    let mut lines = Vec::new();
    for scenario in &target.scenarios {
        if let Standing::Undecided(reason) = &scenario.standing {
            let (name, word) = (&scenario.name, style.warn("undecided"));
            lines.push(format!("{}: {name}: {word}: {reason}", target.target));
        }
    }
    for (reason, names) in target.lacking() {
        let scenarios = count(names.len(), "scenario");
        let line = format!("{}: {scenarios} not applicable: {reason}", target.target);
        lines.push(format!("{line}: {}", some(&names)));
    }
    lines
}

/// Which kernel was held against which row, and how its runs went.
pub(crate) fn closing(target: &TargetAgreement) -> String {
    let retries = match target.retries() {
        0 => String::new(),
        retries => format!("; {} of undecided runs", count(retries as usize, "repetition")),
    };
    let chosen = match target.rounds_by_choice() {
        0 => String::new(),
        rounds => format!(
            "; in {} the processor took faults that are its choice (docs/agreement.md, rule 11)",
            count(rounds, "exact round")
        ),
    };
    let without = match target.drawn_without.as_slice() {
        [] => String::new(),
        lacks => format!("; random scenarios drawn without {}", lacks.join(", ")),
    };
    format!("{}{retries}{chosen}{without}", target.heading())
}

/// The differences on one kernel, in full.
pub fn differences(target: &TargetAgreement, style: Style) -> String {
    let mut text = String::new();
    for (scenario, difference) in target.differences() {
        let word = style.warn("DIFFERS");
        text += &format!("\n{}: {} {word}\n", target.target, style.bold(&scenario.name));
        text += &told(scenario, difference, target, style);
    }
    text
}

/// The first names of a list, and the number of the others.
fn some(names: &[&str]) -> String {
    let shown = &names[..names.len().min(NAMES)];
    match names.len() - shown.len() {
        0 => shown.join(" "),
        more => format!("{} and {more} more", shown.join(" ")),
    }
}

/// The table of agreement: a row for each kernel and feature group; the columns run, exact,
/// differing, undecided, not applicable.
fn table(targets: &[TargetAgreement], style: Style) -> String {
    let header = ["kernel", "group", "run", "exact", "differing", "undecided", "not applicable"];
    let mut rows = Vec::new();
    for target in targets {
        for (group, totals) in target.by_group() {
            let kernel = if group == "all" { &target.target } else { "" };
            let Totals { run, exact, differing, undecided, not_applicable } = totals;
            let figures = [run, exact, differing, undecided, not_applicable];
            let words = [kernel.to_owned(), group.to_owned()].into_iter();
            rows.push(words.chain(figures.map(|figure| figure.to_string())).collect());
        }
    }
    plain_table(&header, rows, 0..2, style)
}

/// A difference in full: how often it occurs, both sides of the smallest scenario, and its text.
fn told(
    scenario: &ScenarioAgreement,
    difference: &Difference,
    target: &TargetAgreement,
    style: Style,
) -> String {
    let (times, of) = difference.repeated;
    let mut text = format!("  differed in {times} of {}\n", count(of as usize, "run"));
    let (found, scenario) = difference.smallest(&scenario.text);
    text += &sides(found, &target.target, style);
    let file = difference.minimal.as_ref().and_then(|minimal| minimal.file.as_deref());
    let title = match (&difference.minimal, file) {
        (_, Some(file)) => format!("the smallest scenario that differs, in {file}:"),
        (Some(_), None) => "the smallest scenario that differs:".to_owned(),
        (None, _) => "the scenario:".to_owned(),
    };
    text += &format!("  {}\n", style.dim(title));
    scenario.lines().for_each(|line| text += &format!("    {line}\n"));
    text
}

/// Both sides of a difference.
pub(super) fn sides(found: &Found, target: &str, style: Style) -> String {
    match found {
        Found::Runs(ran) => rounds(ran, target, style),
        Found::Failure { real, row, model } => {
            let width = target.len().max(row.len());
            [(target, real), (row.as_str(), model)]
                .map(|(name, failed)| {
                    format!("    {name:width$}  {}\n", failed.as_deref().unwrap_or("runs it"))
                })
                .concat()
        }
    }
}

/// Every differing round, with rounds that differ alike in one entry; then the pages.
fn rounds(ran: &Ran, target: &str, style: Style) -> String {
    let Some(reference) = &ran.reference else { return String::new() };
    let mut kinds: Vec<(usize, Vec<u32>)> = Vec::new();
    for &at in &reference.agreement.differing {
        let lines = |at| round_lines(ran, at, target, style);
        let index = ran.account.rounds[at].index;
        match kinds.iter_mut().find(|(other, _)| lines(*other) == lines(at)) {
            Some((_, rounds)) => rounds.push(index),
            None => kinds.push((at, vec![index])),
        }
    }
    let mut text = String::new();
    for (at, rounds) in kinds {
        let list: Vec<String> = rounds.iter().map(u32::to_string).collect();
        text += &style.wrap(&format!("  {}: {}", count(list.len(), "round"), list.join(" ")), 4);
        text.push('\n');
        text += &round_lines(ran, at, target, style);
        if let (Some(real), Some(model)) = (ran.account.round(at), reference.account.round(at)) {
            text += &first_difference(real, model, style);
        }
    }
    let others = &ran.run.witness.others_sent;
    if !others.is_empty() {
        let others: Vec<String> = others.iter().map(|(who, n)| format!("{n} {who}")).collect();
        let line = format!("    others sent shootdowns meanwhile: {}", others.join(", "));
        text += &(style.wrap(&line, 6) + "\n");
    }
    for page in &reference.agreement.final_pages {
        let (real, model, row) = (&page.real, &page.model, &reference.row);
        let line = format!("    at the end {}: {target} {real}, {row} {model}", page.page);
        text += &(style.wrap(&line, 6) + "\n");
    }
    text
}

/// Both sides of a round, one line each.
fn round_lines(ran: &Ran, at: usize, target: &str, style: Style) -> String {
    let Some(reference) = &ran.reference else { return String::new() };
    let width = target.len().max(reference.row.len());
    let mut text = String::new();
    let (real, model) = (ran.account.round(at), reference.account.round(at));
    let sides = [
        (target, real, real.map(|round| round.counted)),
        (reference.row.as_str(), model, model.map(|round| round.modelled)),
    ];
    for (name, round, swaps) in sides {
        let Some(round) = round else { continue };
        let executed = || phases_text(&round.executed.phases);
        let compared = |round: &RoundAccount| round.sequence.is_some();
        let both = real.is_some_and(compared) && model.is_some_and(compared);
        let shown = real.and_then(|real| real.shown_of(round)).filter(|_| both);
        let sequence = shown.map_or_else(executed, |(sequence, _)| sequence.to_string());
        let indent = 4 + width + 2;
        let sequence = format!("    {name:width$}  {}", style.charset(&sequence));
        let figures = format!("{:indent$}{}", "", style.dim(figures(round, swaps)));
        text += &format!("{}\n{}\n", style.wrap(&sequence, indent), style.wrap(&figures, indent));
    }
    text
}

/// Fault counts, and swap counts where there are any.
fn figures(round: &RoundAccount, swaps: Option<SwapCounts>) -> String {
    let known = |value: Option<u64>| value.map_or("?".to_owned(), |n| n.to_string());
    let faults = |counter| known(round.counters.get(counter));
    let (minor, major) = (faults(Counter::MinorFaults), faults(Counter::MajorFaults));
    let swaps = swaps.into_iter().flat_map(SwapCounts::named).filter(|(_, n)| *n != Some(0));
    let swaps = swaps.map(|(name, value)| format!(" {name} {}", known(value)));
    format!("minor {minor} major {major}{}", swaps.collect::<String>())
}

fn first_difference(real: &RoundAccount, model: &RoundAccount, style: Style) -> String {
    let shown = real.shown_of(model);
    let (Some(real), Some((model, _))) = (&real.sequence, &shown) else { return String::new() };
    let (real, model) = (real.tokens(), model.tokens());
    if real == model {
        return "    the sequences are equal; the counts differ\n".to_owned();
    }
    let at = real.iter().zip(model).take_while(|(a, b)| a == b).count();
    let token = |tokens: &[Token]| {
        tokens.get(at).map_or("the end".to_owned(), |token| style.charset(&token.to_string()))
    };
    format!("    first difference at token {}: {} against {}\n", at + 1, token(real), token(model))
}

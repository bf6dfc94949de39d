//! The text below the tables: reasons, findings, steps, sequences, witnesses.

use crate::answer;
use crate::compare::{Comparison, Outcome, Ran, Target};
use crate::steps::{Change, Difference, Explanation, Step};
use crate::style::{Detail, Style, count};
use crate::table::table;
use needless_model::account::Account;
use needless_model::counters::{Counter, FAULTS_BY_CLASS};
use needless_model::kernels::NOT_MODELLED;
use needless_model::run::INSTRUCTIONS;
use needless_model::verdict::{Finding, Needless};
use std::collections::{BTreeMap, BTreeSet};

/// The whole text of a comparison: the answer, the figures, the reasons.
pub fn text(comparison: &Comparison, style: Style, detail: Detail) -> String {
    let program = &comparison.program;
    let mut text = format!("{}: needless in each round\n", style.bold(&program.name));
    for line in answer::lines(comparison, style) {
        text += &style.wrap(&style.charset(&line), 6);
        text.push('\n');
    }
    text.push('\n');
    text += &table(comparison, style, detail);
    text.push('\n');
    for (heading, lines) in &sections(comparison, style, detail) {
        text.push('\n');
        if !heading.is_empty() {
            text += &format!("{}\n", style.bold(heading));
        }
        for line in lines {
            text += &style.wrap(&style.charset(line), 6);
            text.push('\n');
        }
    }
    text
}

/// A heading, which may be empty, and the lines under it.
pub(crate) type Section = (&'static str, Vec<String>);

/// What stands under the tables, as far as there is anything to say.
pub(crate) fn sections(comparison: &Comparison, style: Style, detail: Detail) -> Vec<Section> {
    let sections = [
        remarks(comparison),
        steps(&comparison.steps, style),
        needless(comparison),
        sequences(comparison, style),
        instructions(comparison, style),
        unknown(comparison, detail),
        witnesses(comparison),
    ];
    sections.into_iter().filter(|(_, lines)| !lines.is_empty()).collect()
}

/// What a reader must know about the rows.
fn remarks(comparison: &Comparison) -> Section {
    let mut lines = Vec::new();
    for target in &comparison.targets {
        match &target.outcome {
            Outcome::Unavailable { reason, help } => {
                lines.push(format!("{}: not run: {reason}", target.name));
                lines.extend(help.iter().map(|help| format!("    {help}")));
            }
            Outcome::Ran(ran) => lines.extend(real_remarks(&target.name, ran)),
        }
    }
    let mut remarked: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for target in &comparison.targets {
        if let Some(remark) = &target.remark {
            remarked.entry(remark).or_default().push(&target.name);
        }
    }
    lines.extend(remarked.iter().map(|(remark, names)| format!("{}: {remark}", names.join(", "))));
    ("", lines)
}

/// Remarks about a real kernel's row.
pub(crate) fn real_remarks(name: &str, ran: &Ran) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(reason) = &ran.run.invalid {
        lines.push(format!("{name}: INVALID, counts for nothing: {reason}"));
    }
    let Some(reference) = &ran.reference else { return lines };
    let (row, agreement) = (&reference.row, &reference.agreement);
    if let Some(patches) = ran.run.environment.get(NOT_MODELLED) {
        let kernel = row.trim_start_matches("model:").split([',', '+']).next().unwrap_or_default();
        lines.push(format!(
            "{name}: no row is known to have {patches}; `row={kernel}+NAME` or `row={kernel},POLICY=VALUE` \
             after the target compares it with another (`needless policies` lists both)"
        ));
    }
    if !reference.own_row {
        let release = ran.run.release.as_deref().unwrap_or("this kernel");
        lines.push(format!(
            "{name}: {release} has no row in the model; compared with the nearest, {row}"
        ));
    }
    lines.push(match &agreement.undecided {
        Some(reason) => {
            let (equal, known) = agreement.rusage;
            format!(
                "{name} = {row}: not decided: {reason}; minor and major faults (getrusage) are \
                 equal in {equal} of {}",
                count(known, "round")
            )
        }
        None if agreement.is_exact() => {
            format!("{name} = {row} in every one of {}", count(agreement.rounds, "round"))
        }
        None => format!("{name} = {row} in {} of {} rounds", agreement.equal(), agreement.rounds),
    });
    if !agreement.final_pages.is_empty() {
        let pages = count(agreement.final_pages.len(), "page");
        lines.push(format!("{name}: at the end {pages} in another state than in {row}"));
    }
    if !reference.transferred.is_empty() {
        lines.push(format!("* {row}'s figure, where {name} has the same sequence"));
    }
    lines
}

/// One line per needless finding, with the targets that have it. Interrupts are left to JSON:
/// each is needless for the reason of the shootdown that asked for it.
fn needless(comparison: &Comparison) -> Section {
    // Finding → occurrences per round → targets.
    let mut findings: BTreeMap<Finding, Vec<(String, Vec<&str>)>> = BTreeMap::new();
    for target in &comparison.targets {
        let Some(ran) = target.ran() else { continue };
        for (finding, total) in ran.account.findings() {
            if finding.what == Needless::Interrupt {
                continue;
            }
            let often = per_round(total, ran.account.total);
            let places = findings.entry(finding).or_default();
            match places.iter_mut().find(|(known, _)| *known == often) {
                Some((_, names)) => names.push(&target.name),
                None => places.push((often, vec![&target.name])),
            }
        }
    }
    let line = |(finding, places): (&Finding, &Vec<(String, Vec<&str>)>)| {
        let place =
            |(often, names): &(String, Vec<&str>)| format!("{often} in {}", names.join(", "));
        finding_line(finding, &places.iter().map(place).collect::<Vec<_>>().join("; "))
    };
    ("why it was needless, per round", findings.iter().map(line).collect())
}

/// The occurrences per round: `1`, `0.88`.
pub(crate) fn per_round(total: u64, rounds: usize) -> String {
    let rounds = rounds.max(1) as u64;
    if total.is_multiple_of(rounds) {
        (total / rounds).to_string()
    } else {
        format!("{:.2}", total as f64 / rounds as f64)
    }
}

/// A finding's line: `  shootdown in flush_tlb_batched_pending (mm/rmap.c): why [where]`.
pub(crate) fn finding_line(finding: &Finding, place: &str) -> String {
    let what = needless_word(finding.what);
    let site = finding.site.map_or_else(
        || "function not known".to_owned(),
        |site| format!("{} ({})", site.function(), site.file()),
    );
    format!("  {what} in {site}: {} [{place}]", finding.reason.text())
}

/// The word for a needless thing.
pub(crate) const fn needless_word(what: Needless) -> &'static str {
    match what {
        Needless::Fault => "fault",
        Needless::Copy => "copy",
        Needless::Shootdown => "shootdown",
        Needless::LocalFlush => "local flush",
        Needless::Interrupt => "interrupt",
        Needless::FullFlush => "width of a flush",
        Needless::Split => "split of a huge page",
        Needless::Retry => "second try of a fault",
    }
}

/// The heading of what explains the steps.
pub(crate) const STEPS: &str = "policies that explain the steps (one changed at a time)";

/// The explanations of each step.
fn steps(steps: &[Step], style: Style) -> Section {
    let arrow = style.arrow();
    let mut lines = Vec::new();
    for Step { from, to, changes } in steps {
        let head = format!("  {from} {arrow} {to}:");
        if changes.is_empty() {
            lines.push(format!("{head} the same counts"));
        }
        lines.extend(changes.iter().map(|change| format!("{head} {}", change_text(change, arrow))));
    }
    (STEPS, lines)
}

/// A change with what explains it.
pub(crate) fn change_text(change: &Change, arrow: &str) -> String {
    let counter = |(counter, old, new): &(Counter, u64, u64)| {
        format!("{} {old} {arrow} {new}", counter.name().replace('_', " "))
    };
    let counters: Vec<String> = change.counters.iter().map(counter).collect();
    let names = |set: &[Difference], joint: &str| {
        let name = |d: &Difference| format!("{} ({} {arrow} {})", d.policy, d.from, d.to);
        set.iter().map(name).collect::<Vec<_>>().join(joint)
    };
    let cause = match &change.explanation {
        Explanation::Alone(set) => format!("{} alone", names(set, " alone, or ")),
        Explanation::Together(set) => format!("only together: {}", names(set, " and ")),
        Explanation::Unexplained => "no policy in which the rows differ".to_owned(),
    };
    format!("{}: {cause}", counters.join(", "))
}

/// The sequences. Targets with the same sequences share a line.
fn sequences(comparison: &Comparison, style: Style) -> Section {
    let mut lines: Vec<(String, Vec<&str>)> = Vec::new();
    for target in &comparison.targets {
        let Some(ran) = target.ran() else { continue };
        let line = sequence_lines(&ran.account, style).join("; ");
        if line.is_empty() {
            continue;
        }
        match lines.iter_mut().find(|(known, _)| *known == line) {
            Some((_, names)) => names.push(&target.name),
            None => lines.push((line, vec![&target.name])),
        }
    }
    let lines = lines.iter().map(|(line, names)| format!("  {}: {line}", names.join(", ")));
    ("sequence of one round", lines.collect())
}

/// The largest number of sequences that a line lists.
const MOST_SEQUENCES: usize = 3;

/// The account's sequences, the most frequent first, with the rounds that have each.
pub(crate) fn sequence_lines(account: &Account, style: Style) -> Vec<String> {
    let groups = account.sequences();
    if let [only] = groups.as_slice() {
        return vec![style.charset(&only.value.to_string())];
    }
    let mut lines: Vec<String> = groups
        .iter()
        .take(MOST_SEQUENCES)
        .map(|group| {
            let sequence = style.charset(&group.value.to_string());
            format!("{sequence} ({} of {})", group.rounds, account.total)
        })
        .collect();
    if groups.len() > MOST_SEQUENCES {
        lines.push(format!("and {} more", count(groups.len() - MOST_SEQUENCES, "sequence")));
    }
    lines
}

/// What an emulator saw executed.
fn instructions(comparison: &Comparison, style: Style) -> Section {
    let ran = comparison.targets.iter().filter_map(|target| Some((&target.name, target.ran()?)));
    let line = |(name, lines): (&String, Vec<String>)| format!("  {name}: {}", lines.join("; "));
    let lines = ran.map(|(name, ran)| (name, instruction_lines(ran, style)));
    let lines = lines.filter(|(_, lines)| !lines.is_empty()).map(line).collect();
    ("instructions executed in one round, by phase", lines)
}

/// The instructions of the rounds, the most frequent first, with the rounds that have them. Empty
/// if the target does not count instructions.
pub(crate) fn instruction_lines(ran: &Ran, style: Style) -> Vec<String> {
    if let Some(reason) = ran.run.unseen.get(INSTRUCTIONS) {
        return vec![format!("unknown: {reason}")];
    }
    let groups = instruction_groups(&ran.account);
    let lines = groups.iter().take(MOST_SEQUENCES).map(|(phases, rounds)| {
        let text = style.charset(&phases_text(phases));
        if groups.len() == 1 { text } else { format!("{text} ({rounds} of {})", ran.account.total) }
    });
    let mut lines: Vec<String> = lines.collect();
    if groups.len() > MOST_SEQUENCES {
        lines.push(format!("and {} more", groups.len() - MOST_SEQUENCES));
    }
    lines
}

/// The instructions of a round: `tlbi vale1is=1 ¦ 0`.
pub(crate) fn phases_text(phases: &[BTreeMap<String, u64>]) -> String {
    let phase = |phase: &BTreeMap<String, u64>| {
        let counts = phase.iter().map(|(name, count)| format!("{name}={count}"));
        let counts: Vec<String> = counts.collect();
        if counts.is_empty() { "0".to_owned() } else { counts.join(" ") }
    };
    phases.iter().map(phase).collect::<Vec<_>>().join(" ¦ ")
}

/// The instructions that rounds have in common, with the number of those rounds, the most frequent
/// first. Rounds in which nothing was counted are left out.
pub(crate) fn instruction_groups(account: &Account) -> Vec<(&[BTreeMap<String, u64>], usize)> {
    let mut groups: BTreeMap<&[BTreeMap<String, u64>], usize> = BTreeMap::new();
    let kinds = account.kinds.iter().map(|kind| (&kind.account.instructions, kind.rounds));
    for (phases, rounds) in kinds.filter(|(phases, _)| !phases.is_empty()) {
        *groups.entry(phases).or_default() += rounds;
    }
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_by_key(|(_, rounds)| std::cmp::Reverse(*rounds));
    groups
}

/// Reasons for the columns that are unknown, equal ones together.
fn unknown(comparison: &Comparison, detail: Detail) -> Section {
    let shown: BTreeSet<&str> = crate::table::counters(comparison, detail)
        .into_iter()
        .chain([Counter::Cycles])
        .map(Counter::name)
        .chain([FAULTS_BY_CLASS, "verdicts"])
        .collect();
    let mut reasons: BTreeMap<(&str, Vec<&str>), Vec<&str>> = BTreeMap::new();
    for target in &comparison.targets {
        let Some(ran) = target.ran() else { continue };
        let mut columns: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (name, reason) in &ran.account.unknown {
            if shown.contains(name.as_str()) && !is_model_clock(ran, name) {
                columns.entry(reason).or_default().push(name);
            }
        }
        for (reason, names) in columns {
            reasons.entry((reason, names)).or_default().push(&target.name);
        }
    }
    let line = |((reason, names), targets): (&(&str, Vec<&str>), &Vec<&str>)| {
        format!("  {}: {}: {reason}", targets.join(", "), names.join(", "))
    };
    ("unknown (?)", reasons.iter().map(line).collect())
}

/// A model has no clock; its empty cycles column needs no footnote of its own.
fn is_model_clock(ran: &Ran, name: &str) -> bool {
    ran.run.release.is_none() && name == Counter::Cycles.name()
}

/// How real runs watched over themselves.
fn witnesses(comparison: &Comparison) -> Section {
    let real =
        comparison.targets.iter().filter(|t| t.ran().is_some_and(|r| r.run.release.is_some()));
    ("", real.filter_map(witness).collect())
}

pub(crate) fn witness(target: &Target) -> Option<String> {
    let ran = target.ran()?;
    let witness = &ran.run.witness;
    let mut line = format!(
        "{}: {} counted of {} run, {} marked and repeated, {} lost",
        target.name,
        count(ran.account.total, "round"),
        witness.attempted,
        witness.marked_total(),
        count(usize::try_from(witness.events_lost).unwrap_or(usize::MAX), "event"),
    );
    let reasons: Vec<String> = witness.marked.iter().map(|(why, n)| format!("{n} {why}")).collect();
    if !reasons.is_empty() {
        line += &format!(" ({})", reasons.join(", "));
    }
    Some(line)
}

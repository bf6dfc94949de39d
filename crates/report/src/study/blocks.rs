//! A study's report as headings, sentences and tables. Text and Markdown lay these out.

use super::overview::{checked, lost, of_matrix, sentence, sum};
use super::{
    CheckResult, CostsResult, FigureResult, Margin, PartResult, RelationResult, RunResult,
    SampleResult, Standing, Studied, TOLD, TableResult, TableRow, TargetResult, number,
    with_numbers,
};
use crate::cost::Price;
use crate::notes::{finding_line, per_round};
use crate::style::count;
use needless_model::counters::Counter;
use needless_model::verdict::{Finding, Needless};
use needless_scenario::study::{Column, Size, Sweep};
use std::collections::{BTreeMap, BTreeSet};

/// A piece of the report.
pub(crate) enum Block {
    /// A heading, with the text that follows it on its line.
    Heading(String, String),
    /// A smaller heading.
    Caption(String),
    /// A question with its answer.
    Answer(String, String),
    /// A sentence, or a line of a list.
    Line(String),
    /// A table; its first columns are words.
    Table {
        /// The names of the columns.
        header: Vec<String>,
        /// The rows.
        rows: Vec<Vec<String>>,
        /// The number of columns that are words.
        words: usize,
    },
}

/// The full report, part by part.
pub(super) fn details(studied: &Studied) -> Vec<Block> {
    let study = &studied.study;
    let mut blocks = heading(studied);
    blocks.extend(studied.answers().iter().map(sentence));
    studied.matrices().iter().for_each(|matrix| of_matrix(matrix, &mut blocks));
    blocks.extend(study.size.as_ref().map(|size| Block::Line(sizes(size))));
    for part in &studied.parts {
        of_part(part, &mut blocks);
    }
    checked(studied, &mut blocks);
    if !study.missing.is_empty() {
        blocks.push(Block::Heading("not to be had here".to_owned(), String::new()));
        let line = |missing: &needless_scenario::study::Missing| {
            Block::Line(format!("{}: {}", missing.what, missing.why))
        };
        blocks.extend(study.missing.iter().map(line));
    }
    blocks.push(Block::Heading("environment".to_owned(), String::new()));
    blocks.push(environment(studied));
    blocks.push(Block::Heading("in all".to_owned(), String::new()));
    blocks.push(Block::Line(sum(studied)));
    blocks.extend(lost(studied));
    blocks
}

/// The study's name, its question, and who asked it.
pub(super) fn heading(studied: &Studied) -> Vec<Block> {
    let study = &studied.study;
    let question = study.doc.first().cloned().unwrap_or_default();
    let mut blocks = vec![Block::Heading(study.name.clone(), question)];
    blocks.extend(study.sources.iter().map(|source| Block::Line(format!("asked: {source}"))));
    blocks
}

/// What is known about this machine, in one line.
pub(super) fn environment(studied: &Studied) -> Block {
    let known = |name: &&str| Some(format!("{name} {}", studied.environment.get(*name)?));
    let known: Vec<String> = TOLD.iter().filter_map(known).collect();
    let unknown = "this machine is unknown".to_owned();
    Block::Line(if known.is_empty() { unknown } else { known.join("; ") })
}

/// The size of the study's large areas, in the model and on real kernels.
pub(super) fn sizes(size: &Size) -> String {
    let asked = if size.asked { ", as --size says" } else { "" };
    match size.live {
        None => format!("size: {}{asked}", memory(size.pages)),
        Some(live) if live == size.pages => {
            format!("size: {} in the model and on real kernels{asked}", memory(live))
        }
        Some(live) => format!(
            "size: {} in the model, {} on real kernels ({}); --size sets both",
            memory(size.pages),
            memory(live),
            size.because
        ),
    }
}

/// The size of this many pages of 4 KiB: `4 GiB`.
fn memory(pages: f64) -> String {
    let kib = pages * 4.0;
    let units = [("GiB", 1024.0 * 1024.0), ("MiB", 1024.0), ("KiB", 1.0)];
    let unit = units.into_iter().find(|(_, unit)| kib >= *unit && kib % unit == 0.0);
    let (name, unit) = unit.unwrap_or(("KiB", 1.0));
    format!("{} {name}", number(kib / unit))
}

/// A number with its noun: `1 relation`, `2 relations`, `3 runs on a target`.
pub(super) fn count_of(number: usize, noun: &str) -> String {
    match noun.split_once(' ') {
        Some((first, rest)) if first == "run" => format!("{} {rest}", count(number, first)),
        _ => count(number, noun),
    }
}

pub(super) fn of_part(part: &PartResult, blocks: &mut Vec<Block>) {
    blocks.push(Block::Heading(part.name.clone(), part.doc.join(" ")));
    part.runs.iter().for_each(|run| of_run(run, blocks));
    part.tables.iter().for_each(|table| of_table(table, blocks));
    findings(&part.runs, blocks);
    part.costs.iter().for_each(|costs| of_costs(costs, blocks));
    checks(&part.checks, blocks);
    figures(part, blocks);
    part.sweeps.iter().for_each(|sweep| of_sweep(sweep, part, blocks));
    part.contrasts.iter().for_each(|contrast| contrast.blocks(blocks));
    if !part.relations.is_empty() {
        blocks.push(Block::Caption("relations".to_owned()));
        blocks.extend(part.relations.iter().flat_map(relation).map(Block::Line));
    }
}

fn of_run(run: &RunResult, blocks: &mut Vec<Block>) {
    blocks.push(Block::Caption(format!("run {}: {}, per round", run.name, run.scenario)));
    let (there, not): (Vec<&TargetResult>, Vec<&TargetResult>) =
        run.targets.iter().partition(|target| target.rounds > 0);
    let timed = there.iter().any(|target| target.cycles.is_some());
    let held = there.iter().any(|target| target.agreement.is_some());
    let mut header: Vec<String> = ["target", "as expected"].map(str::to_owned).into();
    header.extend(run.counters.iter().map(|counter| counter.name().replace('_', " ")));
    let counted = there.iter().any(|target| target.tlbi.is_some());
    header.extend(counted.then(|| "TLBI".to_owned()));
    header.extend(timed.then(|| "cycles".to_owned()));
    header.extend(held.then(|| "equal to model".to_owned()));
    let row = |target: &&TargetResult| {
        let mut row = vec![name(target), standing_cell(target)];
        row.extend(target.counts.iter().map(|count| count_cell(count, target.tlbi)));
        row.extend(counted.then(|| target.tlbi.map_or_else(String::new, |n| n.to_string())));
        row.extend(
            timed
                .then(|| target.cycles.map_or_else(|| "?".to_owned(), |cycles| cycles.to_string())),
        );
        row.extend(held.then(|| match &target.agreement {
            Some((equal, rounds, _)) => format!("{equal}/{rounds}"),
            None => String::new(),
        }));
        row
    };
    if !there.is_empty() {
        let rows = there.iter().map(row).collect();
        blocks.push(Block::Table { header, rows, words: 2 });
    }
    for target in &there {
        if let Some(odd) = &target.odd {
            blocks.push(Block::Line(format!("{}: {odd}", target.target)));
        }
        if let Some((_, _, row)) = &target.agreement {
            let undecided = match (&target.undecided, &target.standing) {
                (Some(reason), Some(Standing::Holds)) => {
                    format!("; whether all of it is equal was not decided: {reason}")
                }
                _ => String::new(),
            };
            let line = format!("{} is compared with {row}{undecided}", target.target);
            blocks.push(Block::Line(line));
        }
    }
    let mut reasons: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
    for target in there.iter().chain(&not) {
        let Some(standing) = &target.standing else { continue };
        if let Some(reason) = standing.reason() {
            reasons.entry((standing.word(), reason)).or_default().push(&target.target);
        }
    }
    for ((word, reason), targets) in reasons {
        blocks.push(Block::Line(format!("{}: {word}: {reason}", targets.join(", "))));
    }
}

fn of_table(table: &TableResult, blocks: &mut Vec<Block>) {
    blocks.push(Block::Caption(format!("{}, per round: {}", table.text, table.target)));
    let timed = table.rows.iter().any(|row| row.cycles.is_some());
    let mut header = vec!["run".to_owned()];
    header.extend(table.counters.iter().map(|counter| counter.name().replace('_', " ")));
    header.extend(timed.then(|| match table.per {
        1.0 => "cycles".to_owned(),
        per => format!("cycles / {}", number(per)),
    }));
    let unknown = || "?".to_owned();
    let row = |row: &TableRow| {
        let mut cells = vec![row.run.clone()];
        match &row.counts {
            Ok(counts) => cells
                .extend(counts.iter().map(|n| n.map_or_else(unknown, |count| count.to_string()))),
            Err(_) => cells.extend(table.counters.iter().map(|_| "-".to_owned())),
        }
        let cycles = |cycles: f64| format!("{cycles:.0}");
        let missing = || if row.counts.is_ok() { "?" } else { "-" }.to_owned();
        cells.extend(timed.then(|| row.cycles.map_or_else(missing, cycles)));
        cells
    };
    let rows = table.rows.iter().map(row).collect();
    blocks.push(Block::Table { header, rows, words: 1 });
    let mut reasons: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for row in &table.rows {
        if let Err(reason) = &row.counts {
            reasons.entry(reason).or_default().push(&row.run);
        }
    }
    let line = |(reason, runs): (&str, Vec<&str>)| format!("{}: {reason}", runs.join(", "));
    blocks.extend(reasons.into_iter().map(line).map(Block::Line));
}

fn name(target: &TargetResult) -> String {
    match &target.release {
        Some(release) => format!("{} ({release})", target.target),
        None => target.target.clone(),
    }
}

fn standing_cell(target: &TargetResult) -> String {
    let word = match &target.standing {
        None => "-",
        Some(Standing::Holds) => "yes",
        Some(Standing::DoesNot(_)) => "NO",
        Some(Standing::NotHere(_)) => "?",
    };
    word.to_owned()
}

/// `2`, `2*` if it is the model's, `4 (2)` if 2 was expected. Flushes that nothing counted are
/// empty where an emulator counted invalidations: these have a column of their own.
fn count_cell(count: &super::Count, tlbi: Option<u64>) -> String {
    let is_flush = matches!(count.counter, Counter::Shootdowns | Counter::Flushes);
    if count.found.is_none() && tlbi.is_some() && is_flush {
        return String::new();
    }
    let found = count.found.map_or_else(|| "?".to_owned(), |found| found.to_string());
    let star = if count.transferred { "*" } else { "" };
    match count.expected {
        Some(expected) if count.found.is_some_and(|found| found != expected) => {
            format!("{found}{star} ({expected})")
        }
        _ => format!("{found}{star}"),
    }
}

/// The needless things, with the targets that have them. Interrupts are left to their shootdowns.
fn findings(runs: &[RunResult], blocks: &mut Vec<Block>) {
    // Finding → run, occurrences per round → targets.
    let mut found: BTreeMap<Finding, BTreeMap<(&str, String), Vec<&str>>> = BTreeMap::new();
    for run in runs {
        for target in &run.targets {
            let told = target.findings.iter().filter(|(f, _)| f.what != Needless::Interrupt);
            for (finding, total) in told {
                let often = per_round(*total, target.rounds);
                let places = found.entry(*finding).or_default();
                places.entry((&run.name, often)).or_default().push(&target.target);
            }
        }
    }
    if found.is_empty() {
        return;
    }
    blocks.push(Block::Caption("verdicts: what was needless, per round".to_owned()));
    let line = |(finding, places): (&Finding, &BTreeMap<(&str, String), Vec<&str>>)| {
        let place = |((run, often), targets): (&(&str, String), &Vec<&str>)| {
            format!("{run}: {often} in {}", targets.join(", "))
        };
        let places: Vec<String> = places.iter().map(place).collect();
        Block::Line(finding_line(finding, &places.join("; ")).trim_start().to_owned())
    };
    blocks.extend(found.iter().map(line));
}

fn of_costs(costs: &CostsResult, blocks: &mut Vec<Block>) {
    let caption = format!("costs {}: fitted to {}, in cycles", costs.name, costs.target);
    blocks.push(Block::Caption(caption));
    let prices = match &costs.prices {
        Ok(prices) => prices,
        Err(reason) => {
            return blocks.push(Block::Line(format!("not to be had here: {reason}")));
        }
    };
    let price = |(name, doc, price): &(String, String, Price)| {
        let (low, high) = price.interval_95;
        let interval = format!("{low:.0}..{high:.0}");
        vec![name.clone(), doc.clone(), format!("{:.0}", price.cycles), interval]
    };
    let header = ["term", "what", "price", "95 %"].map(str::to_owned).into();
    blocks.push(Block::Table { header, rows: prices.iter().map(price).collect(), words: 2 });
    let sample = |sample: &SampleResult| {
        let how = if sample.held_out { "held out" } else { "fitted" };
        let error = 100.0 * (sample.predicted / sample.measured - 1.0);
        let predicted = format!("{:.0}", sample.predicted);
        let measured = format!("{:.0}", sample.measured);
        vec![sample.name.clone(), how.to_owned(), measured, predicted, format!("{error:+.1} %")]
    };
    let header = ["block", "use", "measured", "predicted", "error"].map(str::to_owned).into();
    let rows = costs.samples.iter().map(sample).collect();
    blocks.push(Block::Table { header, rows, words: 2 });
    let worst = |held_out| costs.worst(held_out).map(|error| format!("{:.1} %", 100.0 * error));
    let unknown = || "unknown".to_owned();
    blocks.push(Block::Line(format!(
        "largest error of what was fitted: {}; of what was held out: {}",
        worst(false).unwrap_or_else(unknown),
        worst(true).unwrap_or_else(unknown)
    )));
}

fn checks(checks: &[CheckResult], blocks: &mut Vec<Block>) {
    if checks.is_empty() {
        return;
    }
    blocks.push(Block::Caption("checked: every interleaving".to_owned()));
    let row = |check: &CheckResult| {
        let standing = match &check.standing {
            Standing::Holds => "yes".to_owned(),
            Standing::DoesNot(_) => format!("NO: {}", check.expected),
            Standing::NotHere(_) => "not here".to_owned(),
        };
        let states = check.states.map_or_else(|| "?".to_owned(), |states| states.to_string());
        let cells = [&check.name, &check.test, &check.row, &check.found];
        cells.into_iter().cloned().chain([standing, states]).collect()
    };
    let header = ["check", "litmus test", "kernel row", "found", "as expected", "states"];
    let header = header.map(str::to_owned).into();
    blocks.push(Block::Table { header, rows: checks.iter().map(row).collect(), words: 5 });
    let mut said: Vec<String> = checks
        .iter()
        .filter_map(|check| {
            let reason = check.standing.reason()?;
            Some(format!("{} on {}: {}: {reason}", check.name, check.row, check.standing.word()))
        })
        .collect();
    let shown = checks.iter().filter(|check| !check.shown.is_empty());
    said.extend(shown.map(|check| format!("{} is argued in {}", check.name, check.shown)));
    said.dedup();
    blocks.extend(said.into_iter().map(Block::Line));
}

fn figures(part: &PartResult, blocks: &mut Vec<Block>) {
    let cells: BTreeSet<String> =
        part.sweeps.iter().flat_map(|sweep| sweep.figures().map(|figure| figure.name)).collect();
    let listed: Vec<&FigureResult> =
        part.figures.iter().filter(|figure| !cells.contains(&figure.name)).collect();
    if listed.is_empty() {
        return;
    }
    blocks.push(Block::Caption("figures".to_owned()));
    let row = |figure: &&FigureResult| {
        let value = figure.value.as_ref().map_or_else(|_| "?".to_owned(), |value| number(*value));
        let unit = if figure.unit.is_empty() { "" } else { " " };
        let value = format!("{value}{unit}{}", figure.unit);
        vec![figure.name.clone(), figure.doc.clone(), figure.origin.clone(), value]
    };
    let header = ["figure", "what", "from", "value"].map(str::to_owned).into();
    let rows = listed.iter().map(row).collect();
    blocks.push(Block::Table { header, rows, words: 3 });
    let mut reasons: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for figure in &listed {
        if let Err(reason) = &figure.value {
            reasons.entry(reason).or_default().push(&figure.name);
        }
    }
    for (reason, names) in reasons {
        let line = format!("{}: not to be had here: {reason}", names.join(", "));
        blocks.push(Block::Line(line));
    }
}

/// A line for each value of the number, then the meaning of the columns.
fn of_sweep(sweep: &Sweep, part: &PartResult, blocks: &mut Vec<Block>) {
    blocks.push(Block::Caption(sweep.text.clone()));
    let cell = |value: &u64, column: &Column| {
        let name = Sweep::cell(&column.name, *value);
        let figure = part.figures.iter().find(|figure| figure.name == name);
        let value = figure.and_then(|figure| figure.value.as_ref().ok());
        value.map_or_else(|| "?".to_owned(), |value| number(*value))
    };
    let row = |value: &u64| {
        let cells = sweep.columns.iter().map(|column| cell(value, column));
        std::iter::once(value.to_string()).chain(cells).collect()
    };
    let names = sweep.columns.iter().map(|column| column.name.clone());
    let header = std::iter::once(sweep.over.clone()).chain(names).collect();
    blocks.push(Block::Table { header, rows: sweep.values.iter().map(row).collect(), words: 1 });
    let line = |column: &Column| {
        let unit = if column.unit.is_empty() { "" } else { ", " };
        format!("{}: {}{unit}{}: {}", column.name, column.doc, column.unit, column.formula)
    };
    blocks.extend(sweep.columns.iter().map(line).map(Block::Line));
}

/// A relation's line, with the reason if it cannot be decided.
pub(super) fn relation(relation: &RelationResult) -> Vec<String> {
    let standing = relation.standing.word();
    let line = format!("{standing}: {}: {}", relation.text, with_numbers(relation));
    let reason = match &relation.standing {
        Standing::Holds => None,
        Standing::DoesNot(reason) => relation.sides.is_none().then_some(reason),
        Standing::NotHere(reason) => Some(reason),
    };
    let reason = reason.map(|reason| format!("    {reason}"));
    let margins = (!relation.margins.is_empty()).then(|| {
        let margins: Vec<String> = relation.margins.iter().map(margin).collect();
        format!("    it holds with {}", margins.join("; "))
    });
    let follows =
        (!relation.follows.is_empty()).then(|| format!("    follows: {}", relation.follows));
    std::iter::once(line).chain(reason).chain(margins).chain(follows).collect()
}

/// A margin: `sender from 98 (110)`.
fn margin(margin: &Margin) -> String {
    let Margin { name, value, least, most } = margin;
    let value = number(*value);
    match (least.map(number), most.map(number)) {
        (None, None) => format!("any {name} ({value})"),
        (Some(least), None) => format!("{name} from {least} ({value})"),
        (None, Some(most)) => format!("{name} up to {most} ({value})"),
        (Some(least), Some(most)) => format!("{name} from {least} to {most} ({value})"),
    }
}

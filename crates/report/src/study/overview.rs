//! The first screen: the answer, one table, what was tested, what failed, and what could not be
//! decided here.

use super::answer::verdict;
use super::blocks::{Block, count_of, environment, heading, relation, sizes};
use super::{CheckResult, MatrixResult, PartResult, Sentence, Standing, Studied, Tested};
use std::collections::BTreeMap;

/// The largest number of kernel rows that a line about the checker names. The others are counted.
const NAMED_ROWS: usize = 3;

pub(super) fn blocks(studied: &Studied) -> Vec<Block> {
    let mut blocks = results(studied);
    let parts: Vec<&str> = studied.parts.iter().map(|part| part.name.as_str()).collect();
    blocks.push(Block::Line(format!("details: -v, or --part {}", parts.join("|"))));
    blocks.extend(lost(studied));
    blocks
}

/// What the first screen says of the study.
pub(super) fn results(studied: &Studied) -> Vec<Block> {
    let study = &studied.study;
    let mut blocks = heading(studied);
    blocks.extend(studied.answers().iter().map(sentence));
    studied.matrices().iter().for_each(|matrix| of_matrix(matrix, &mut blocks));
    tested(studied, &mut blocks);
    failing(studied, &mut blocks);
    checked(studied, &mut blocks);
    not_here(studied, &mut blocks);
    blocks.push(Block::Caption("conditions".to_owned()));
    blocks.extend(study.size.as_ref().map(|size| Block::Line(sizes(size))));
    blocks.push(environment(studied));
    blocks
}

/// Why the command ends with status 3 although something holds.
pub(super) fn lost(studied: &Studied) -> impl Iterator<Item = Block> {
    let runs = studied.lost.iter().map(|(target, lost)| format!("{target} lost {lost}"));
    let relations = match studied.undecided() {
        0 => None,
        some => Some(format!("{} held only once of two times", count_of(some, "relation"))),
    };
    let line = |what: String| Block::Line(format!("UNDECIDED (status 3): {what}; run it again"));
    runs.chain(relations).map(line)
}

pub(super) fn sentence(sentence: &Sentence) -> Block {
    let text = match &sentence.text {
        Ok(text) => text.clone(),
        Err(reason) => format!("not to be had here ({reason})"),
    };
    let but = match sentence.but.is_empty() {
        true => String::new(),
        false => format!(" BUT what it rests on FAILS: {}.", sentence.but.join(", ")),
    };
    Block::Answer(format!("{}?", sentence.question), format!("{text}{but}"))
}

pub(super) fn of_matrix(matrix: &MatrixResult, blocks: &mut Vec<Block>) {
    let pairs = if matrix.pairs { " (model | real kernel; - not run)" } else { "" };
    blocks.push(Block::Caption(format!("{}{pairs}", matrix.text)));
    let (header, rows) = (matrix.header.clone(), matrix.rows.clone());
    blocks.push(Block::Table { header, rows, words: 1 });
}

/// A line for each part: how many of its statements hold.
fn tested(studied: &Studied, blocks: &mut Vec<Block>) {
    blocks.push(Block::Caption("tested".to_owned()));
    let row = |part: &PartResult| {
        let tested = part.tested();
        let relations = match tested.relations.all() {
            0 => "no relation asks".to_owned(),
            _ => told(tested.relations.hold, tested.relations.all()),
        };
        let others = [tested.targets, tested.checks].map(|totals| match totals.all() {
            0 => "-".to_owned(),
            all => told(totals.hold, all),
        });
        let [targets, checks] = others;
        vec![part.name.clone(), relations, targets, checks]
    };
    let header = ["part", "relations hold", "targets as expected", "checked as expected"];
    let header = header.map(str::to_owned).into();
    let rows = studied.parts.iter().map(row).collect();
    blocks.push(Block::Table { header, rows, words: 1 });
    blocks.push(Block::Line(sum(studied)));
}

fn told(hold: usize, all: usize) -> String {
    format!("{hold} of {all}")
}

/// The totals: `24 relations hold, 0 do not, 3 are not to be had here; …`
pub(super) fn sum(studied: &Studied) -> String {
    let Tested { relations, targets, checks, follow } = studied.tested();
    let asked = match relations.all() {
        0 => "no relation asks".to_owned(),
        _ => format!(
            "{} hold, {} not, {} not to be had here",
            count_of(relations.hold, "relation"),
            match relations.do_not {
                0 => "0 do".to_owned(),
                some => format!("{some} DO"),
            },
            relations.not_here
        ),
    };
    let follow = match follow {
        0 => String::new(),
        some => format!("; {some} more follow from others"),
    };
    format!(
        "{asked}{follow}; {} of {} as expected, {} of {} ({:.0} s)",
        targets.hold,
        count_of(targets.all(), "run on a target"),
        checks.hold,
        count_of(checks.all(), "checked row"),
        studied.seconds
    )
}

/// What does not hold, line by line.
fn failing(studied: &Studied, blocks: &mut Vec<Block>) {
    let fails = |standing: &Standing| matches!(standing, Standing::DoesNot(_));
    let mut lines = Vec::new();
    for part in &studied.parts {
        let name = &part.name;
        for relation_result in part.relations.iter().filter(|r| fails(&r.standing)) {
            let told = relation(relation_result).join(" ");
            lines.push(format!("{name}: {told}"));
        }
        for run in &part.runs {
            for target in &run.targets {
                if let Some(Standing::DoesNot(reason)) = &target.standing {
                    lines.push(format!("{name}: run {} on {}: {reason}", run.name, target.target));
                }
            }
        }
        for check in part.checks.iter().filter(|check| fails(&check.standing)) {
            let reason = check.standing.reason().unwrap_or_default();
            lines.push(format!(
                "{name}: {} ({}) on {}: {reason}",
                check.name, check.test, check.row
            ));
        }
    }
    if !lines.is_empty() {
        blocks.push(Block::Caption("DOES NOT HOLD".to_owned()));
        blocks.extend(lines.into_iter().map(Block::Line));
    }
}

/// The checks: a line for each question and verdict, with the kernel rows.
pub(super) fn checked(studied: &Studied, blocks: &mut Vec<Block>) {
    let explored = || {
        let checks = studied.parts.iter().flat_map(|part| &part.checks);
        checks.filter(|check| check.states.is_some())
    };
    if explored().next().is_none() {
        return;
    }
    let mut lines: Vec<(&CheckResult, String, Vec<&str>)> = Vec::new();
    for check in explored() {
        let verdict = verdict(check);
        let same = lines.iter_mut().find(|(known, told, _)| {
            known.name == check.name && known.test == check.test && *told == verdict
        });
        match same {
            Some((.., rows)) => rows.push(&check.row),
            None => lines.push((check, verdict, vec![&check.row])),
        }
    }
    blocks.push(Block::Caption("checked, in every interleaving".to_owned()));
    let row = |(check, verdict, rows): &(&CheckResult, String, Vec<&str>)| {
        let more = rows.len().saturating_sub(NAMED_ROWS);
        let named = rows[..rows.len() - more].join(", ");
        let more = if more == 0 { String::new() } else { format!(" and {more} more") };
        vec![check.name.clone(), format!("{named}{more}"), verdict.clone(), check.test.clone()]
    };
    let header = ["question", "kernel rows", "verdict", "litmus test"];
    let header = header.map(str::to_owned).into();
    blocks.push(Block::Table { header, rows: lines.iter().map(row).collect(), words: 4 });
}

/// One line for each reason why something could not be decided here.
fn not_here(studied: &Studied, blocks: &mut Vec<Block>) {
    let mut reasons: BTreeMap<&str, Missed<'_>> = BTreeMap::new();
    let known = |target: &str| {
        let mut targets = studied.parts.iter().flat_map(|part| &part.runs);
        targets.any(|run| run.targets.iter().any(|known| known.target == target))
    };
    for part in &studied.parts {
        for target in part.runs.iter().flat_map(|run| &run.targets) {
            if let Some(Standing::NotHere(reason)) = &target.standing {
                reasons.entry(reason).or_default().add(&target.target);
            }
        }
        for check in &part.checks {
            if let Standing::NotHere(reason) = &check.standing {
                reasons.entry(reason).or_default().add("check");
            }
        }
        for relation in &part.relations {
            let Standing::NotHere(reason) = &relation.standing else { continue };
            // In `live: left out by -t`, the reason is the target's.
            match reason.split_once(": ").filter(|(target, _)| known(target)) {
                Some((target, reason)) => {
                    let missed = reasons.entry(reason).or_default();
                    missed.add(target);
                    missed.relations += 1;
                }
                None => reasons.entry(reason).or_default().texts.push(&relation.text),
            }
        }
    }
    if reasons.is_empty() && studied.study.missing.is_empty() {
        return;
    }
    blocks.push(Block::Caption("not to be had here".to_owned()));
    let line = |(reason, missed): (&&str, &Missed<'_>)| Block::Line(missed.line(reason));
    blocks.extend(reasons.iter().map(line));
    let missing = studied.study.missing.iter();
    blocks.extend(missing.map(|m| Block::Line(format!("{}: {}", m.what, m.why))));
}

/// Everything that could not be decided for one reason.
#[derive(Default)]
struct Missed<'a> {
    targets: Vec<&'a str>,
    /// The number of relations that need these targets.
    relations: usize,
    /// Other relations.
    texts: Vec<&'a str>,
}

impl<'a> Missed<'a> {
    fn add(&mut self, target: &'a str) {
        if !self.targets.contains(&target) {
            self.targets.push(target);
        }
    }

    fn line(&self, reason: &str) -> String {
        let kinds = self.targets.iter().map(|target| target.split(':').next().unwrap_or(target));
        let mut of: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (kind, target) in kinds.zip(&self.targets) {
            of.entry(kind).or_default().push(target);
        }
        let kinds = of.into_iter().map(|(kind, targets)| match targets.as_slice() {
            [one] => (*one).to_owned(),
            more => format!("{} {kind} targets", more.len()),
        });
        let mut what: Vec<String> = kinds.collect();
        if self.relations > 0 {
            what.push(format!("with them {}", count_of(self.relations, "relation")));
        }
        what.extend(self.texts.iter().map(|text| format!("\"{text}\"")));
        format!("{}: {reason}", what.join(", "))
    }
}

//! Compares two results of `needless stat`, before and after a change. First come the differences
//! of their machines, then the figures that went and came, per operation if asked, with the
//! significance that several runs give.

use super::{number, time};
use crate::style::Style;
use crate::table::plain_table;
use needless_watch::observation::SCHEMA_VERSION;
use serde::Serialize;
use serde_json::{Value, json};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// From this number of runs of each side on, a difference is tested.
const LEAST_RUNS: usize = 4;

/// A saved result of `stat`.
#[derive(Clone, Debug)]
pub struct SavedStat {
    subject: String,
    environment: BTreeMap<String, String>,
    /// The figures of each run, by what they count.
    runs: Vec<BTreeMap<Figure, u64>>,
}

/// What a figure counts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Figure {
    /// The kind: time, faults, calls, flushes or interrupts.
    pub kind: Kind,
    /// The thing that is counted.
    pub name: String,
}

/// The kind of a figure, in the order of the report.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A time in nanoseconds.
    TimeNs,
    /// A number of faults.
    Faults,
    /// A number of system calls.
    Calls,
    /// A number of flushes.
    Flushes,
    /// A number of interrupts.
    Interrupts,
}

/// One figure on both sides.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Compared {
    /// What the figure counts.
    #[serde(flatten)]
    pub figure: Figure,
    /// The median before the change, per operation.
    pub before: f64,
    /// The median after the change, per operation.
    pub after: f64,
    /// Whether a Mann-Whitney test tells the two apart (5 %). `None` with fewer than four runs of
    /// each.
    pub significant: Option<bool>,
}

/// The differences of two results.
#[derive(Clone, Debug, Serialize)]
pub struct StatDifferences {
    /// The command, or what else was watched.
    pub subjects: [String; 2],
    /// The number of runs of each side.
    pub runs: [usize; 2],
    /// The number of operations that figures are divided by.
    pub per: u64,
    /// The differences of the machines: name, before, after.
    pub environment: Vec<(String, Option<String>, Option<String>)>,
    /// The figures that differ, the largest change of each kind first.
    pub figures: Vec<Compared>,
}

impl SavedStat {
    /// Reads what `needless stat --format json` printed. `None` if the text is something else.
    pub fn read(text: &str) -> Option<SavedStat> {
        let document: Value = serde_json::from_str(text).ok()?;
        let version = document["schema_version"].as_u64()? == u64::from(SCHEMA_VERSION);
        let runs = document["runs"].as_array().filter(|_| version)?;
        runs.first()?.get("events")?;
        let environment = document["environment"].as_object()?.iter();
        let environment = environment
            .filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())));
        Some(SavedStat {
            subject: document["subject"].as_str()?.to_owned(),
            environment: environment.collect(),
            runs: runs.iter().map(figures).collect(),
        })
    }
}

/// The figures of one run.
fn figures(run: &Value) -> BTreeMap<Figure, u64> {
    let mut figures = BTreeMap::new();
    let mut add = |kind, name: String, figure: &Value| {
        *figures.entry(Figure { kind, name }).or_default() += figure.as_u64().unwrap_or(0);
    };
    add(Kind::TimeNs, "from start to end".into(), &run["elapsed_ns"]);
    add(Kind::TimeNs, "in user mode".into(), &run["usage"]["user_ns"]);
    add(Kind::TimeNs, "in the kernel".into(), &run["usage"]["system_ns"]);
    let memory = &run["events"]["memory"];
    let rows = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let at = |table: &str, index: &Value| {
        index.as_u64().map(|at| memory[table][at as usize].clone()).unwrap_or_default()
    };
    for row in rows(&memory["faults"]) {
        let label = row["label"].as_str().unwrap_or_default();
        let name = match (row["starting"].as_bool(), at("taken", &row["taken"])["call"].as_str()) {
            (Some(true), _) => "start of programs".to_owned(),
            (_, Some(call)) => {
                format!("{label}, {}, taken by {call}", mapping(&at("mappings", &row["mapping"])))
            }
            _ => format!("{label}, {}", mapping(&at("mappings", &row["mapping"]))),
        };
        add(Kind::Faults, name, &row["faults"]);
    }
    for row in rows(&memory["calls"]).iter().filter(|row| row["starting"] == false) {
        let call = row["call"].as_str().unwrap_or_default();
        add(Kind::Calls, call.to_owned(), &row["calls"]);
    }
    for row in rows(&run["events"]["flushes"]) {
        let cause = match row["of_start_or_end"].as_bool() {
            Some(true) => super::memory::START,
            _ => row["cause"].as_str().unwrap_or_default(),
        };
        add(Kind::Flushes, format!("{cause}, sent"), &row["sent"]);
        add(Kind::Flushes, format!("{cause}, local"), &row["local"]);
        add(Kind::Interrupts, cause.to_owned(), &row["interrupts"]);
    }
    figures
}

/// The mapping's name without what differs from run to run.
fn mapping(row: &Value) -> String {
    match (row["name"].as_str(), row["bytes"].as_u64()) {
        (Some(name), Some(bytes)) => format!("{name} of {}", super::answer::bytes(bytes)),
        (Some(name), None) => name.to_owned(),
        (None, _) => "unknown memory".to_owned(),
    }
}

/// The differences of two results, per this many operations.
pub fn stat_differences(before: &SavedStat, after: &SavedStat, per: u64) -> StatDifferences {
    let names: BTreeSet<&String> =
        before.environment.keys().chain(after.environment.keys()).collect();
    let environment = names.into_iter().filter_map(|name| {
        let of = |side: &SavedStat| side.environment.get(name).cloned();
        let (before, after) = (of(before), of(after));
        (before != after).then(|| (name.clone(), before, after))
    });
    let all: BTreeSet<&Figure> =
        before.runs.iter().chain(&after.runs).flat_map(BTreeMap::keys).collect();
    let of = |side: &SavedStat, figure: &Figure| -> Vec<u64> {
        side.runs.iter().map(|run| run.get(figure).copied().unwrap_or(0)).collect()
    };
    let compared = all.into_iter().map(|figure| {
        let (before, after) = (of(before, figure), of(after, figure));
        Compared {
            figure: figure.clone(),
            before: middle(&before) / per as f64,
            after: middle(&after) / per as f64,
            significant: differ(&before, &after),
        }
    });
    let mut figures: Vec<Compared> = compared.filter(|row| row.before != row.after).collect();
    let change = |row: &Compared| ((row.after - row.before).abs() * 1000.0) as u64;
    figures.sort_by_key(|row| (row.figure.kind, Reverse(change(row)), row.figure.name.clone()));
    StatDifferences {
        subjects: [before.subject.clone(), after.subject.clone()],
        runs: [before.runs.len(), after.runs.len()],
        per,
        environment: environment.collect(),
        figures,
    }
}

fn middle(values: &[u64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_unstable();
    let at = values.len() / 2;
    match values.len() {
        0 => 0.0,
        length if length % 2 == 1 => values[at] as f64,
        _ => (values[at - 1] as f64 + values[at] as f64) / 2.0,
    }
}

/// Whether the two differ at 5 %. This is a Mann-Whitney test with the normal approximation,
/// corrected for ties and continuity (H. B. Mann, D. R. Whitney, 1947). `None` with too few runs.
fn differ(before: &[u64], after: &[u64]) -> Option<bool> {
    let (first, second) = (before.len(), after.len());
    if first < LEAST_RUNS || second < LEAST_RUNS {
        return None;
    }
    let wins = |one: &u64| {
        let of = |other: &u64| match one.cmp(other) {
            std::cmp::Ordering::Greater => 1.0,
            std::cmp::Ordering::Equal => 0.5,
            std::cmp::Ordering::Less => 0.0,
        };
        after.iter().map(of).sum::<f64>()
    };
    let u: f64 = before.iter().map(wins).sum();
    let (n, m) = (first as f64, second as f64);
    let mut ties: BTreeMap<u64, f64> = BTreeMap::new();
    before.iter().chain(after).for_each(|value| *ties.entry(*value).or_default() += 1.0);
    let tied: f64 = ties.values().map(|t| t * t * t - t).sum();
    let all = n + m;
    let variance = n * m / 12.0 * (all + 1.0 - tied / (all * (all - 1.0)));
    if variance <= 0.0 {
        return Some(false);
    }
    let z = ((u - n * m / 2.0).abs() - 0.5).max(0.0) / variance.sqrt();
    Some(z > 1.96)
}

/// The differences as JSON.
pub fn stat_document(differences: &StatDifferences, names: [&str; 2]) -> Value {
    json!({ "schema_version": SCHEMA_VERSION, "files": names, "differences": differences })
}

/// The differences as text.
pub fn stat_text(differences: &StatDifferences, names: [&str; 2], style: Style) -> String {
    let StatDifferences { subjects, runs, per, environment, figures } = differences;
    let mut text = String::new();
    for (at, side) in ["before", "after"].iter().enumerate() {
        let line = format!("{side}: {} ({}), {} runs", subjects[at], names[at], runs[at]);
        text += &(style.wrap(&line, 2) + "\n");
    }
    for (name, before, after) in environment {
        let of = |value: &Option<String>| value.clone().unwrap_or_else(|| "not there".into());
        let line = format!("machine: {name}: {} {} {}", of(before), style.arrow(), of(after));
        text += &(style.warn(style.wrap(&line, 2)) + "\n");
    }
    if figures.is_empty() {
        return text + "no figure differs\n";
    }
    let show = |kind: Kind, value: f64| match kind {
        Kind::TimeNs => time(value as u64),
        _ if *per == 1 && value.fract() == 0.0 => number(value as u64),
        _ => format!("{value:.2}"),
    };
    let cells = figures.iter().map(|row| {
        let Compared { figure: Figure { kind, name }, before, after, significant } = row;
        let change = match (before, after) {
            (before, _) if *before == 0.0 => "came".to_owned(),
            (_, after) if *after == 0.0 => "went".to_owned(),
            (before, after) => format!("{:+.0} %", 100.0 * (after / before - 1.0)),
        };
        let sure = match significant {
            Some(true) => "",
            Some(false) => " ~",
            None => "",
        };
        let what = match kind {
            Kind::TimeNs => "time",
            Kind::Faults => "faults",
            Kind::Calls => "calls",
            Kind::Flushes => "flushes",
            Kind::Interrupts => "interrupts",
        };
        vec![
            what.to_owned(),
            name.clone(),
            show(*kind, *before),
            show(*kind, *after),
            change + sure,
        ]
    });
    let title = if *per == 1 { "what".to_owned() } else { format!("per 1/{per} of a run") };
    let header = [&*title, "of", "before", "after", "change"];
    text += &(plain_table(&header, cells.collect(), 0..2, style) + "\n");
    let tested = runs.iter().all(|runs| *runs >= LEAST_RUNS);
    let how = match tested {
        true => "medians; ~: a Mann-Whitney test does not tell the two apart (5 %)",
        false => {
            "medians; four runs of each (needless stat -r 4) and more tell whether a difference is chance"
        }
    };
    text + &style.dim(style.wrap(how, 2)) + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn saved(faults: &[u64], kernel: &str) -> SavedStat {
        let run = |faults: &u64| {
            json!({ "elapsed_ns": 5, "usage": { "user_ns": 1, "system_ns": 2 }, "events": {
                "flushes": [{ "cause": "munmap", "of_start_or_end": false, "sent": 2, "local": 0, "interrupts": 1 }],
                "memory": {
                    "mappings": [{ "name": "anonymous memory", "bytes": 8192 }],
                    "taken": [{ "call": "madvise(MADV_DONTNEED)" }],
                    "faults": [{ "label": "first touch", "starting": false, "mapping": 0, "taken": 0, "faults": faults }],
                    "calls": [],
                },
            }})
        };
        let runs: Vec<Value> = faults.iter().map(run).collect();
        let document = json!({ "schema_version": 1, "subject": "prog", "environment": { "kernel": kernel }, "runs": runs });
        SavedStat::read(&document.to_string()).unwrap()
    }

    #[test]
    fn what_went_is_told_per_operation_and_the_machine_comes_first() {
        let (before, after) = (saved(&[800], "6.12"), saved(&[0], "6.18"));
        let differences = stat_differences(&before, &after, 100);
        let [row] = &differences.figures[..] else { panic!("{differences:?}") };
        assert_eq!((row.before, row.after, row.significant), (8.0, 0.0, None));
        let wide = Style { width: 200, ..Style::PLAIN };
        let text = stat_text(&differences, ["a", "b"], wide);
        let machine = text.find("machine: kernel: 6.12 -> 6.18").unwrap();
        assert!(machine < text.find("went").unwrap(), "{text}");
        assert!(text.contains("taken by madvise(MADV_DONTNEED)"), "{text}");
    }

    #[test]
    fn chance_is_told_from_change() {
        assert_eq!(differ(&[1, 2, 3], &[7, 8, 9]), None, "too few");
        assert_eq!(differ(&[1, 2, 3, 4], &[7, 8, 9, 10]), Some(true));
        assert_eq!(differ(&[1, 8, 3, 10], &[2, 7, 4, 9]), Some(false));
        assert_eq!(differ(&[5; 6], &[5; 6]), Some(false), "all the same");
    }

    #[test]
    fn other_texts_are_no_results_of_stat() {
        for text in ["", "{}", "[1]", r#"{"schema_version": 1, "runs": []}"#] {
            assert!(SavedStat::read(text).is_none(), "{text}");
        }
    }
}

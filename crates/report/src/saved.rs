//! Compares two saved results (`needless compare a.json b.json`). What was asked for and the
//! machine come first, because they are mostly the reason for the other differences.

use crate::SCHEMA_VERSION;
use crate::compare::{self, Comparison, Outcome, Ran};
use crate::json::comparison;
use crate::style::Style;
use crate::table::plain_table;
use needless_model::counters::Counter;
use needless_model::foreign;
use needless_model::program::Program;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// The part of a document of `run` or `compare` that is compared.
#[derive(Clone, Debug, Deserialize)]
pub struct Saved {
    scenario: Scenario,
    targets: Vec<Target>,
}

#[derive(Clone, Debug, Deserialize)]
struct Scenario {
    name: String,
    #[serde(default)]
    parameters: BTreeMap<String, i64>,
    #[serde(default)]
    thp: Option<String>,
    cpus: u16,
    areas: Vec<Area>,
}

#[derive(Clone, Debug, Deserialize)]
struct Area {
    name: String,
    pages: u64,
}

#[derive(Clone, Debug, Deserialize)]
struct Target {
    target: String,
    status: String,
    reason: Option<String>,
    #[serde(default)]
    environment: BTreeMap<String, String>,
    #[serde(default)]
    per_round: BTreeMap<String, Value>,
    #[serde(default)]
    kernel_counters: BTreeMap<String, u64>,
    #[serde(default)]
    cycles: Option<Cycles>,
    #[serde(default)]
    sequence: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
struct Cycles {
    interval_95: Option<(u64, u64)>,
}

/// Why a text is not a saved result.
#[derive(Clone, Debug, thiserror::Error)]
pub enum NotSaved {
    /// The text is not JSON, or is another document.
    #[error(
        "it is not what `needless run --format json` or `needless compare --format json` print: {0}"
    )]
    Other(String),
    /// Another version of the program wrote it.
    #[error("its format has version {found}; this is version {SCHEMA_VERSION}")]
    Version {
        /// The version of the text.
        found: u64,
    },
}

impl Saved {
    /// A run as it would be saved.
    ///
    /// # Errors
    /// Returns an error if the document of a run cannot be read here, which is a mistake of this
    /// program.
    pub fn of(program: &Program, target: &str, ran: &Ran) -> Result<Saved, NotSaved> {
        let outcome = Outcome::Ran(Box::new(ran.clone()));
        let target = compare::Target { name: target.to_owned(), remark: None, outcome };
        let program = program.clone();
        let alone =
            Comparison { program, targets: vec![target], steps: Vec::new(), avoided: Vec::new() };
        let other = |error: serde_json::Error| NotSaved::Other(error.to_string());
        serde_json::from_value(comparison(&alone)).map_err(other)
    }

    /// Reads what `--format json` printed.
    pub fn read(text: &str) -> Result<Saved, NotSaved> {
        let other = |error: serde_json::Error| NotSaved::Other(error.to_string());
        let document: Value = serde_json::from_str(text).map_err(other)?;
        let wrong = |what: &str| NotSaved::Other(what.to_owned());
        match document.get("schema_version").map(Value::as_u64) {
            None => return Err(wrong("there is no schema_version")),
            Some(None) => return Err(wrong("its schema_version is no number")),
            Some(Some(found)) if found != u64::from(SCHEMA_VERSION) => {
                return Err(NotSaved::Version { found });
            }
            Some(Some(_)) => {}
        }
        let saved: Saved = serde_json::from_value(shown(document)).map_err(other)?;
        if saved.targets.is_empty() {
            return Err(wrong("it has no targets"));
        }
        match saved.targets.iter().find_map(Target::no_figure) {
            Some(name) => Err(NotSaved::Other(format!("figure `{name}` is no number of things"))),
            None => Ok(saved),
        }
    }
}

/// The document, with each string and key as a name on one visible line: somebody else may have
/// written it.
fn shown(value: Value) -> Value {
    match value {
        Value::String(text) => Value::String(foreign::line(&text).into_owned()),
        Value::Array(all) => all.into_iter().map(shown).collect(),
        Value::Object(all) => all
            .into_iter()
            .map(|(key, value)| (foreign::line(&key).into_owned(), shown(value)))
            .collect(),
        other @ (Value::Null | Value::Bool(_) | Value::Number(_)) => other,
    }
}

/// Something that differs. `None` where a result does not have it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Row {
    /// The name of the thing that differs.
    pub name: String,
    /// The value in the first result.
    pub first: Option<String>,
    /// The value in the second result.
    pub second: Option<String>,
}

impl Row {
    /// Whether the row counts something that happened to this program. Times, text, and counters of
    /// the whole machine that move by themselves do not.
    pub fn is_counted(&self) -> bool {
        let others = [Counter::Cycles.name(), "sequence"].contains(&self.name.as_str());
        !others && !self.name.starts_with("vmstat nr_tlb")
    }
}

/// The differences of two runs.
#[derive(Clone, Debug, Serialize)]
pub struct Runs {
    /// The names of both targets.
    pub targets: [String; 2],
    /// Why one of them shows nothing, if so.
    pub silent: Option<String>,
    /// The differences of their machines and kernels, those with the most influence first.
    pub environment: Vec<Row>,
    /// The differences of the environment that no two runs have the same.
    pub passing: Vec<Row>,
    /// Figures that differ.
    pub figures: Vec<Row>,
    /// Whether the intervals of the cycles' medians overlap. `None` unless both have one.
    pub cycles_overlap: Option<bool>,
}

/// The differences of two saved results.
#[derive(Clone, Debug, Serialize)]
pub struct Differences {
    /// The differences in what was asked for.
    pub scenario: Vec<Row>,
    /// Pairs of runs: on targets of the same name, or the only ones.
    pub runs: Vec<Runs>,
    /// Targets that only one of the results has.
    pub alone: Vec<String>,
}

/// The parts of the environment that come first: they decide what a kernel does with memory.
const FIRST: [&str; 9] =
    ["kernel.release", "thp.", "config.", "vm.", "swap.", "numa.", "cpu.", "tlb", "vulnerability."];

/// The parts of the environment that no two runs have the same.
const PASSING: [&str; 4] = ["load", "pressure.", "cycles pass", "during the run: "];

/// Compares two results.
pub fn differences(first: &Saved, second: &Saved) -> Differences {
    let partner = |target: &Target| match (&first.targets[..], &second.targets[..]) {
        ([_], [only]) => Some(only),
        (_, others) => others.iter().find(|other| other.target == target.target),
    };
    let pairs: Vec<(&Target, &Target)> =
        first.targets.iter().filter_map(|target| Some((target, partner(target)?))).collect();
    let paired: BTreeSet<&str> =
        pairs.iter().flat_map(|(a, b)| [a.target.as_str(), b.target.as_str()]).collect();
    let all = first.targets.iter().chain(&second.targets).map(|target| target.target.as_str());
    Differences {
        scenario: rows(&first.scenario.told(), &second.scenario.told()),
        runs: pairs.iter().map(|(a, b)| runs(a, b)).collect(),
        alone: all.filter(|name| !paired.contains(name)).map(str::to_owned).collect(),
    }
}

impl Scenario {
    fn told(&self) -> BTreeMap<String, String> {
        let parameters = self
            .parameters
            .iter()
            .map(|(name, value)| (format!("parameter {name}"), value.to_string()));
        let areas = self
            .areas
            .iter()
            .map(|area| (format!("pages of {}", area.name), area.pages.to_string()));
        let fixed = [("scenario", self.name.clone()), ("CPUs", self.cpus.to_string())];
        let fixed = fixed.into_iter().map(|(name, value)| (name.to_owned(), value));
        let thp = self.thp.iter().map(|thp| ("thp asked for".to_owned(), thp.clone()));
        fixed.chain(parameters).chain(areas).chain(thp).collect()
    }
}

fn runs(first: &Target, second: &Target) -> Runs {
    let environment = rows(&first.environment, &second.environment);
    let passes = |row: &Row| PASSING.iter().any(|prefix| row.name.starts_with(prefix));
    let (passing, mut environment): (Vec<Row>, Vec<Row>) =
        environment.into_iter().partition(passes);
    environment.sort_by_key(|row| {
        FIRST.iter().position(|prefix| row.name.starts_with(prefix)).unwrap_or(FIRST.len())
    });
    let silent = [first, second].into_iter().find(|target| target.status != "ran").map(|target| {
        let reason = target.reason.as_deref().unwrap_or("no reason is given");
        format!("{} ({}: {reason})", target.target, target.status)
    });
    let figures = rows(&first.figures(), &second.figures());
    let figures = if silent.is_none() { figures } else { Vec::new() };
    let interval = |target: &Target| target.cycles.as_ref().and_then(|cycles| cycles.interval_95);
    let overlap = |(a, b): (u64, u64), (c, d): (u64, u64)| a <= d && c <= b;
    Runs {
        targets: [first.target.clone(), second.target.clone()],
        silent,
        environment,
        passing,
        figures,
        cycles_overlap: interval(first).zip(interval(second)).map(|(a, b)| overlap(a, b)),
    }
}

impl Target {
    /// The name of a figure that is not one. A figure is a number from 0 on, or unknown.
    fn no_figure(&self) -> Option<&str> {
        let is_figure =
            |value: &Value| value.is_null() || value.as_f64().is_some_and(|number| number >= 0.0);
        let wrong = self.per_round.iter().find(|(_, value)| match value {
            Value::Object(classes) => !classes.values().all(is_figure),
            value => !is_figure(value),
        });
        wrong.map(|(name, _)| name.as_str())
    }

    /// The known figures by name.
    fn figures(&self) -> BTreeMap<String, String> {
        let mut figures = BTreeMap::new();
        for (name, value) in &self.per_round {
            match value {
                Value::Object(classes) => figures.extend(
                    classes.iter().map(|(class, n)| (format!("faults: {class}"), n.to_string())),
                ),
                Value::Null => {}
                value => _ = figures.insert(name.clone(), value.to_string()),
            }
        }
        let counted = self.kernel_counters.iter();
        figures.extend(counted.map(|(name, moved)| (format!("vmstat {name}"), moved.to_string())));
        figures.extend(self.sequence.iter().map(|text| ("sequence".to_owned(), text.clone())));
        figures
    }
}

/// The values that differ, by name.
fn rows(first: &BTreeMap<String, String>, second: &BTreeMap<String, String>) -> Vec<Row> {
    let names: BTreeSet<&String> = first.keys().chain(second.keys()).collect();
    let row = |name: &String| Row {
        name: name.clone(),
        first: first.get(name).cloned(),
        second: second.get(name).cloned(),
    };
    names.into_iter().map(row).filter(|row| row.first != row.second).collect()
}

/// The differences as text. `names` are those of the two files.
pub fn text(differences: &Differences, names: [&str; 2], style: Style) -> String {
    let Differences { scenario, runs, alone } = differences;
    let mut parts = Vec::new();
    if !scenario.is_empty() {
        parts.push(section("what was asked for", scenario, names, style));
    }
    for run in runs {
        parts.push(run_text(run, names, style));
    }
    if !alone.is_empty() {
        parts.push(format!("in one of them only: {}", alone.join(", ")));
    }
    parts.join("\n\n") + "\n"
}

fn run_text(run: &Runs, names: [&str; 2], style: Style) -> String {
    let [first, second] = &run.targets;
    let who = if first == second { first.clone() } else { format!("{first}, {second}") };
    let mut parts = Vec::new();
    match run.environment.is_empty() {
        true => parts.push(style.wrap(&format!("{who}: machine and kernel are the same"), 2)),
        false => {
            let heading = format!("{who}: machine and kernel");
            parts.push(section(&heading, &run.environment, names, style));
        }
    }
    if !run.passing.is_empty() {
        let passing: Vec<&str> = run.passing.iter().map(|row| row.name.as_str()).collect();
        let passing = format!("also different, as in any two runs: {}", passing.join(", "));
        parts.push(style.dim(style.wrap(&passing, 2)));
    }
    match &run.silent {
        Some(silent) => parts.push(style.wrap(&format!("no figures to compare: {silent}"), 2)),
        None if run.figures.is_empty() => parts.push(format!("{who}: all figures are the same")),
        None => {
            let heading = format!("{who}: figures per round");
            let (sequences, figures): (Vec<Row>, Vec<Row>) =
                run.figures.iter().cloned().partition(|row| row.name == "sequence");
            parts.push(match figures.is_empty() {
                true => style.bold(&heading),
                false => section(&heading, &figures, names, style),
            });
            for Row { first, second, .. } in sequences {
                for (name, sequence) in names.iter().zip([first, second]) {
                    let sequence = sequence.as_deref().unwrap_or("unknown");
                    parts.push(style.wrap(&style.charset(&format!("{name}: {sequence}")), 2));
                }
            }
        }
    }
    if run.cycles_overlap == Some(true) && run.figures.iter().any(is_cycles) {
        parts.push("the intervals of the cycles overlap: they may be the same".to_owned());
    }
    parts.join("\n\n")
}

fn is_cycles(row: &Row) -> bool {
    row.name == Counter::Cycles.name()
}

fn section(heading: &str, rows: &[Row], names: [&str; 2], style: Style) -> String {
    let cell = |value: &Option<String>| value.clone().unwrap_or_else(|| "-".to_owned());
    let body = rows.iter().map(|row| {
        let number = |value: &Option<String>| value.as_ref()?.parse::<f64>().ok();
        let ratio = match (number(&row.first), number(&row.second)) {
            (Some(first), Some(second)) if first > 0.0 => format!("{:.3}", second / first),
            _ => String::new(),
        };
        vec![row.name.clone(), cell(&row.first), cell(&row.second), ratio]
    });
    let body: Vec<Vec<String>> = body.collect();
    let ratios = body.iter().any(|row| !row[3].is_empty());
    let columns = if ratios { 4 } else { 3 };
    let header = ["", names[0], names[1], "ratio"];
    let body = body.into_iter().map(|row| row.into_iter().take(columns).collect()).collect();
    format!("{}\n{}", style.bold(heading), plain_table(&header[..columns], body, 0..3, style))
}

/// Differences between two saved results, as JSON (docs/schema/differences.schema.json).
pub fn document(differences: &Differences, names: [&str; 2]) -> Value {
    json!({
        "schema_version": SCHEMA_VERSION,
        "files": names,
        "scenario": differences.scenario,
        "runs": differences.runs,
        "alone": differences.alone,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn saved(thp: &str, faults: u64, cycles: u64) -> Saved {
        let document = json!({
            "schema_version": SCHEMA_VERSION,
            "scenario": { "name": "s", "cpus": 1, "threads": [], "areas": [] },
            "targets": [{
                "target": "live", "status": "ran", "reason": null, "remark": null,
                "environment": { "kernel.release": "6.18", "thp.enabled": thp, "aslr": thp, "load": cycles.to_string() },
                "per_round": { "faults": faults, "copies": null, "cycles": cycles, "faults_by_class": { "zero-page": faults } },
                "cycles": { "median": cycles, "interval_95": [cycles - 1, cycles + 1], "samples": 10 },
                "kernel_counters": { "thp_zero_page_alloc": 512 / faults },
                "sequence": "R",
            }],
        });
        Saved::read(&document.to_string()).unwrap()
    }

    #[test]
    fn the_setting_that_decides_comes_first() {
        let found = differences(&saved("never", 512, 900), &saved("always", 1, 100));
        let run = &found.runs[0];
        let names = |rows: &[Row]| rows.iter().map(|row| row.name.clone()).collect::<Vec<_>>();
        assert_eq!(names(&run.environment), ["thp.enabled", "aslr"]);
        assert_eq!(names(&run.passing), ["load"]);
        assert_eq!(
            names(&run.figures),
            ["cycles", "faults", "faults: zero-page", "vmstat thp_zero_page_alloc"]
        );
        assert_eq!((run.cycles_overlap, found.scenario.len()), (Some(false), 0));
        let text = text(&found, ["a.json", "b.json"], Style::PLAIN);
        let at = |what: &str| text.find(what).unwrap();
        assert!(at("thp.enabled") < at("aslr") && at("aslr") < at("faults"), "{text}");
    }

    #[test]
    fn equal_results_are_said_to_be_so() {
        let found = differences(&saved("never", 512, 900), &saved("never", 512, 901));
        let text = text(&found, ["a.json", "b.json"], Style::PLAIN);
        assert!(text.contains("machine and kernel are the same"), "{text}");
        assert!(text.contains("they may be the same"), "{text}");
    }

    #[test]
    fn other_documents_are_refused() {
        for text in ["", "{}", "[1]", "{\"schema_version\": 1, \"title\": \"a study\"}"] {
            assert!(matches!(Saved::read(text), Err(NotSaved::Other(_))), "{text}");
        }
        let good = |figures: Value, version: Value, targets: usize| {
            let target =
                json!({ "target": "live", "status": "ran", "reason": null, "per_round": figures });
            let scenario = json!({ "name": "s", "cpus": 1, "areas": [] });
            let targets = vec![target; targets];
            json!({ "schema_version": version, "scenario": scenario, "targets": targets })
        };
        let read = |document: Value| Saved::read(&document.to_string());
        assert!(
            read(good(json!({ "copies": 1.5, "faults": null }), json!(SCHEMA_VERSION), 1)).is_ok()
        );
        for document in [
            good(json!({ "copies": "many" }), json!(SCHEMA_VERSION), 1),
            good(json!({ "copies": [1] }), json!(SCHEMA_VERSION), 1),
            good(json!({ "copies": -1 }), json!(SCHEMA_VERSION), 1),
            good(json!({ "faults_by_class": { "cow": true } }), json!(SCHEMA_VERSION), 1),
            good(json!({}), json!("1"), 1),
            good(json!({}), Value::Null, 1),
            good(json!({}), json!(SCHEMA_VERSION), 0),
        ] {
            assert!(matches!(read(document.clone()), Err(NotSaved::Other(_))), "{document}");
        }
        let newer = Saved::read("{\"schema_version\": 99}");
        assert!(matches!(newer, Err(NotSaved::Version { found: 99 })));
    }
}

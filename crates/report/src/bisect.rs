//! The place among kernels where something changed, as text and as JSON.

use crate::SCHEMA_VERSION;
use crate::notes::sequence_lines;
use crate::style::{Style, count};
use needless_model::account::Account;
use serde::Serialize;
use serde_json::{Value, json};

/// The result of a search.
#[derive(Clone, Debug)]
pub struct Bisection {
    /// The scenario's name.
    pub scenario: String,
    /// What the search looks for: `sequence`, or the conditions.
    pub expected: String,
    /// The number of kernels between the ends.
    pub between: usize,
    /// The last good kernel.
    pub good: Probe,
    /// The first bad kernel.
    pub bad: Probe,
    /// The undecided kernels between the two.
    pub undecided: Vec<Probe>,
    /// Every kernel that was run, in the order of the runs.
    pub runs: Vec<Probe>,
}

/// A kernel that was run.
#[derive(Clone, Debug, Serialize)]
pub struct Probe {
    /// The target: `kernel:6.12.94+deb13`. With a tree it is the commit.
    pub name: String,
    /// What the kernel was built from: the package with its version, or the commit's subject.
    pub version: String,
    /// The kernel's verdict.
    pub verdict: Standing,
    /// Why the kernel is undecided, or what was not as expected.
    pub reason: Option<String>,
    /// The kernel's sequence in most rounds.
    pub sequence: Option<String>,
    /// All sequences of the kernel, as text.
    #[serde(skip)]
    pub sequences: Vec<String>,
}

/// The verdict on a kernel.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// The kernel does what the good end does.
    Good,
    /// The kernel does what the bad end does.
    Bad,
    /// Nothing was decided.
    Undecided,
}

impl Probe {
    /// A kernel that ran.
    pub fn of(
        name: &str,
        version: &str,
        account: &Account,
        verdict: Standing,
        reason: Option<String>,
    ) -> Probe {
        Probe {
            name: name.to_owned(),
            version: version.to_owned(),
            verdict,
            reason,
            sequence: account.sequences().first().map(|group| group.value.to_string()),
            sequences: sequence_lines(account, Style { unicode: true, ..Style::PLAIN }),
        }
    }

    /// A kernel that did not run.
    pub fn silent(name: &str, version: &str, reason: String) -> Probe {
        Probe {
            name: name.to_owned(),
            version: version.to_owned(),
            verdict: Standing::Undecided,
            reason: Some(reason),
            sequence: None,
            sequences: Vec::new(),
        }
    }
}

impl Bisection {
    /// Whether the two are neighbours, so that the change is found.
    pub fn is_decided(&self) -> bool {
        self.undecided.is_empty()
    }
}

/// The result as text.
pub fn text(found: &Bisection, style: Style) -> String {
    let kernels = |number| count(number, "kernel");
    let mut lines = vec![format!(
        "{}: {} between the two ends, {} run",
        style.bold(&found.scenario),
        kernels(found.between),
        kernels(found.runs.len()),
    )];
    for (title, probe) in [("last good", &found.good), ("first bad", &found.bad)] {
        lines.push(String::new());
        lines.push(format!("{}  {}  {}", style.bold(title), probe.name, style.dim(&probe.version)));
        lines.extend(probe.sequences.iter().map(|line| format!("  {}", style.charset(line))));
        lines.extend(probe.reason.iter().map(|reason| format!("  {reason}")));
    }
    if !found.is_decided() {
        lines.push(String::new());
        lines.push(style.warn("between the two, not decided"));
        let open = found.undecided.iter();
        lines.extend(open.map(|probe| {
            let reason = probe.reason.as_deref().unwrap_or("no reason is known");
            format!("  {}  {}: {reason}", probe.name, probe.version)
        }));
    }
    lines.iter().map(|line| style.wrap(line, 4) + "\n").collect()
}

/// The result as JSON: docs/schema/bisect.schema.json.
pub fn document(found: &Bisection) -> Value {
    json!({
        "schema_version": SCHEMA_VERSION,
        "scenario": found.scenario,
        "expected": found.expected,
        "between": found.between,
        "decided": found.is_decided(),
        "good": found.good,
        "bad": found.bad,
        "undecided": found.undecided,
        "runs": found.runs,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probe(name: &str, verdict: Standing, sequence: &str) -> Probe {
        Probe {
            verdict,
            sequence: Some(sequence.to_owned()),
            sequences: vec![sequence.to_owned()],
            reason: None,
            ..Probe::silent(
                &format!("kernel:{name}"),
                &format!("linux-image-{name} 1"),
                String::new(),
            )
        }
    }

    #[test]
    fn two_neighbours_and_what_lies_between() {
        let (good, bad) =
            (probe("6.1", Standing::Good, "R W ¦ IPI:MM(1)"), probe("6.12", Standing::Bad, "R"));
        let silent = Probe::silent("kernel:6.5", "linux-image-6.5 2", "the guest ended".into());
        let mut found = Bisection {
            scenario: "cow-reuse".into(),
            expected: "sequence".into(),
            between: 3,
            runs: vec![good.clone(), bad.clone(), silent.clone()],
            good,
            bad,
            undecided: vec![silent],
        };
        let open = text(&found, Style::PLAIN);
        found.undecided.clear();
        insta::assert_snapshot!(format!(
            "{open}\n----\n{}\n----\n{:#}",
            text(&found, Style::PLAIN),
            document(&found)
        ));
    }
}

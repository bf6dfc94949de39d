//! What this machine can show, and what would help.

use crate::SCHEMA_VERSION;
use crate::style::Style;
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The result of a check.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// Everything is as it should be.
    Ok,
    /// Something works less well.
    Warning,
    /// Something does not work.
    Missing,
}

/// A check of the machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    /// The thing that was checked.
    pub name: String,
    /// The result of the check.
    pub state: State,
    /// What the check found, and what works without it.
    pub found: String,
    /// The least privilege or change that would help.
    pub help: Option<String>,
}

/// The report as text.
pub fn text(checks: &[Check], environment: &BTreeMap<String, String>, style: Style) -> String {
    let width = checks.iter().map(|check| check.name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for check in checks {
        let state = match check.state {
            State::Ok => "ok     ".to_owned(),
            State::Warning => style.warn("warning"),
            State::Missing => style.warn("missing"),
        };
        let indent = 9 + width + 2;
        let line = format!("{state}  {:width$}  {}", check.name, check.found);
        text += &(style.wrap(&line, indent) + "\n");
        if let Some(help) = &check.help {
            text += &style.wrap(&format!("{}{help}", " ".repeat(indent)), indent);
            text.push('\n');
        }
    }
    if !environment.is_empty() {
        text += &format!("\n{}\n", style.bold("environment"));
        let width = environment.keys().map(String::len).max().unwrap_or(0);
        for (name, value) in environment {
            text += &style.wrap(&format!("  {name:width$}  {value}"), width + 4);
            text.push('\n');
        }
    }
    text
}

/// The report as a JSON document.
pub fn json(checks: &[Check], environment: &BTreeMap<String, String>) -> Value {
    json!({
        "schema_version": SCHEMA_VERSION,
        "checks": checks,
        "environment": environment,
    })
}

//! Parameters: their defaults in the text, and values from the command line.
//!
//! A value comes from `--set`, else from the preset of a built-in alias, else from the default. A
//! problem with one of the first two points into a text `name=value …` that represents the
//! settings.

use crate::Settings;
use crate::compile::Failure;
use crate::describe::Parameter;
use crate::document::{Node, Value};
use crate::error::{Problem, finish, suggest};
use crate::scope::Scope;
use crate::tokens::is_name;
use std::collections::BTreeMap;

/// The parameters of a scenario, with their values decided.
#[derive(Debug, Default)]
pub(crate) struct Parameters {
    /// The parameters as a reader sees them.
    pub described: Vec<Parameter>,
    /// The names and values.
    pub scope: Scope,
}

/// Decides the value of each `param` node.
pub(crate) fn resolve(nodes: &[&Node], given: &Given) -> Result<Parameters, Failure> {
    let mut parameters = Parameters::default();
    let (mut problems, mut wrong_settings) = (Vec::new(), Vec::new());
    for node in nodes {
        if let Err(problem) = parameters.add(node, given, &mut wrong_settings) {
            problems.push(problem);
        }
    }
    let parameters = finish(problems, parameters)?;
    given.check_names(&parameters.described, &mut wrong_settings);
    finish(wrong_settings, parameters).map_err(Failure::Settings)
}

impl Parameters {
    fn add(
        &mut self,
        node: &Node,
        given: &Given,
        wrong_settings: &mut Vec<Problem>,
    ) -> Result<(), Problem> {
        let name = new_name(&node.args[0], "a parameter", &self.scope)?.to_owned();
        let limit = |prop| node.prop(prop).map(|v| self.scope.number(v)).transpose();
        let (min, max) = (limit("min")?, limit("max")?);
        if let (Some(low), Some(high)) = (node.prop("min"), node.prop("max"))
            && min > max
        {
            let message = format!("`{name}` can have no value");
            return Err(Problem::new(high.span, message, "less than min=")
                .also(low.span, "more than max=")
                .help("exchange the two limits, or leave one out"));
        }
        let bounds = min.unwrap_or(i64::MIN)..=max.unwrap_or(i64::MAX);
        let what = format!("`{name}`");
        let Some(written) = node.prop("default") else { return Ok(()) };
        let default = self.scope.number_in(written, &what, bounds.clone())?;
        let value = match given.values.get(&name) {
            None => default,
            Some(written) => match self.scope.number_in(written, &what, bounds) {
                Ok(value) => value,
                Err(problem) => {
                    wrong_settings.push(problem);
                    default
                }
            },
        };
        self.scope.constant(&name, value);
        let doc = node.prop("doc").map(|v| v.text("a sentence")).transpose()?.unwrap_or_default();
        self.described.push(Parameter { name, value, doc: doc.to_owned(), min, max });
        Ok(())
    }
}

/// Reads a name that is well formed, not used yet and not reserved.
pub(crate) fn new_name<'a>(
    value: &'a Value,
    what: &str,
    scope: &Scope,
) -> Result<&'a str, Problem> {
    let name = value.text("a name")?;
    if !is_name(name) || name == "index" {
        return Err(Problem::new(value.span, format!("`{name}` cannot name {what}"), "this name")
            .help("names are letters, digits and `_`, not a digit first; `index` is reserved"));
    }
    if scope.has(name) {
        return Err(Problem::new(value.span, format!("`{name}` is in use already"), "used again")
            .help("choose another name"));
    }
    Ok(name)
}

/// The settings and presets of one compilation, as values with positions.
#[derive(Debug)]
pub(crate) struct Given {
    /// All settings and presets, as one text.
    pub text: String,
    values: BTreeMap<String, Value>,
}

impl Given {
    /// Combines the settings with the presets that they leave open.
    pub fn new(settings: &Settings, presets: &Settings) -> Given {
        let mut given = Given { text: String::new(), values: BTreeMap::new() };
        let mut merged = presets.0.clone();
        merged.extend(settings.0.iter().map(|(k, v)| (k.clone(), v.clone())));
        for (name, value) in merged {
            if !given.text.is_empty() {
                given.text.push(' ');
            }
            given.text += &format!("{name}=");
            let offset = given.text.len();
            given.text += &value;
            given.values.insert(name, Value::bare(&value, offset));
        }
        given
    }

    fn check_names(&self, declared: &[Parameter], problems: &mut Vec<Problem>) {
        for (name, value) in &self.values {
            if !declared.iter().any(|p| p.name == *name) {
                let help = suggest("parameters", name, declared.iter().map(|p| p.name.as_str()));
                let message = format!("the scenario has no parameter `{name}`");
                problems.push(Problem::new(value.span, message, "not a parameter").help(help));
            }
        }
    }
}

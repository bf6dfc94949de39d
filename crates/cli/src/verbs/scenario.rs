//! `scenario`: list, show, check and format scenarios.

use crate::agree;
use crate::args::{Format, FormatArgs, ScenarioVerb};
use crate::failure::{EXPECTED, Failure};
use crate::files::{Readers, write_text};
use crate::output::{Output, tell};
use crate::source::{STANDARD_INPUT, load};
use crate::targets;
use needless_model::foreign;
use needless_model::program::Program;
use needless_report::SCHEMA_VERSION;
use needless_report::style::count;
use needless_scenario::builtin;
use needless_scenario::random::Target;
use serde_json::{Value, json};
use std::path::Path;

/// Runs `needless scenario`.
pub fn scenario(verb: &ScenarioVerb, output: &Output) -> Result<u8, Failure> {
    match verb {
        ScenarioVerb::List(FormatArgs { format }) => list(*format, output)?,
        ScenarioVerb::Show { scenario } => output.result(&load(scenario)?.text)?,
        ScenarioVerb::Random { seed, kernel, cpus, without } => {
            let without = without.clone();
            let target = Target { without, ..Target::new(*kernel, usize::from(*cpus)) };
            output.result(&agree::random(*seed, &target)?.text)?;
        }
        ScenarioVerb::Check { scenarios, settings } => {
            for name in scenarios {
                let program = targets::program(name, settings, None)?;
                output.result(&format!("{}: good: {}", foreign::line(name), size(&program)))?;
            }
        }
        ScenarioVerb::Fmt { scenarios, write } => {
            for name in scenarios {
                format(name, *write, output)?;
            }
        }
    }
    Ok(EXPECTED)
}

fn size(program: &Program) -> String {
    let pages: u64 = program.areas.iter().map(|area| area.range.pages()).sum();
    [
        count(program.threads.len(), "thread"),
        count(usize::from(program.machine.cpus), "CPU"),
        count(program.areas.len(), "area"),
        count(usize::try_from(pages).unwrap_or(usize::MAX), "page"),
    ]
    .join(", ")
}

fn list(format: Format, output: &Output) -> Result<(), Failure> {
    // Nothing is parsed to list scenarios: texts give their first doc line, aliases the text that
    // they name.
    let texts = builtin::ALL
        .iter()
        .chain(builtin::OF_STUDIES)
        .chain(builtin::OF_NODES)
        .map(|text| (text.name, text.doc().to_owned()));
    let aliases = builtin::ALIASES.iter().map(|alias| {
        let set = alias.presets.iter().map(|(name, value)| format!(" --set {name}={value}"));
        (alias.name, format!("{}{}", alias.of, set.collect::<String>()))
    });
    let scenarios: Vec<(&str, String)> = texts.chain(aliases).collect();
    let litmus = builtin::LITMUS.iter().map(|text| (text.name, text.doc().to_owned()));
    let litmus: Vec<(&str, String)> = litmus.collect();
    if format == Format::Json {
        let values = |list: &[(&str, String)]| -> Vec<Value> {
            list.iter().map(|(name, doc)| json!({ "name": name, "doc": doc })).collect()
        };
        return output.json(&json!({
            "schema_version": SCHEMA_VERSION,
            "scenarios": values(&scenarios),
            "litmus": values(&litmus),
        }));
    }
    let width = scenarios.iter().chain(&litmus).map(|(name, _)| name.len()).max().unwrap_or(0);
    let lines = |list: &[(&str, String)]| -> String {
        let line = |(name, doc): &(&str, String)| {
            output.style.wrap(&format!("{name:width$}  {doc}"), width + 2) + "\n"
        };
        list.iter().map(line).collect()
    };
    let heading = "\nLitmus tests, for `needless check`:\n";
    let text = lines(&scenarios) + heading + &lines(&litmus);
    output.result(&text)?;
    output.next("needless scenario show cow-reuse")
}

fn format(name: &str, write: bool, output: &Output) -> Result<(), Failure> {
    let source = load(name)?;
    let formatted = needless_scenario::format(&source)?;
    if !write {
        return output.result(&formatted);
    }
    if name == STANDARD_INPUT {
        return Err(Failure::Usage {
            message: "--write cannot change standard input".to_owned(),
            help: "leave out --write to print the result".to_owned(),
        });
    }
    if builtin::find(name).is_some() {
        return Err(Failure::Usage {
            message: format!("`{name}` is built in: there is no file to write"),
            help: format!("needless scenario fmt {name} > {name}.kdl"),
        });
    }
    if formatted != source.text {
        write_text(Path::new(name), Readers::Usual, &formatted)?;
        tell(&format!("{}: formatted", foreign::line(name)));
    }
    Ok(())
}

//! The language reference: every example compiles, every rule is in it.
#![allow(clippy::unwrap_used)]

use needless_scenario::grammar::{LITMUS, NEEDS, PARTS, operations};
use needless_scenario::{Source, check, format};

const REFERENCE: &str = include_str!("../../../docs/scenarios.md");

/// The texts of the fenced KDL blocks.
fn examples() -> Vec<&'static str> {
    REFERENCE.split("```kdl\n").skip(1).filter_map(|rest| rest.split("```").next()).collect()
}

#[test]
fn examples_compile() {
    assert!(examples().len() >= 10);
    for example in examples() {
        let whole = match example.starts_with("scenario") {
            true => example.to_owned(),
            false => std::format!(
                "scenario \"x\" {{ thread \"t\" cpu=0 {{\n{example}\nrounds 1 {{}}\n}} }}"
            ),
        };
        if let Err(error) = check(&Source::new("example", whole)) {
            panic!("{:?}", miette::Report::new(error));
        }
        assert_eq!(format(&Source::new("example", example)).unwrap(), example);
    }
}

#[test]
fn every_rule_is_described_and_shown() {
    // Line breaks of the text stand where a usage line has spaces.
    let reference = REFERENCE.replace("\n  ", " ").replace('\n', " ");
    for rule in PARTS.iter().chain(NEEDS).chain(LITMUS).chain(operations()) {
        let entry = std::format!("`{}`: {}", rule.usage, rule.doc);
        assert!(reference.contains(&entry), "{entry}");
        let shown = examples().iter().any(|e| {
            e.split(|c: char| c.is_whitespace() || c == '{').any(|word| word == rule.name)
        });
        assert!(shown, "no example of `{}`", rule.name);
    }
}

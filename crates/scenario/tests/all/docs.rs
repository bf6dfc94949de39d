//! The language reference: every example compiles, and every rule is in it.

use needless_model::arch::{AccessedDirty, Flushes};
use needless_model::kernels::KernelRow;
use needless_scenario::grammar::{LITMUS, NEEDS, PARTS, Rule, operations};
use needless_scenario::study::{self, rules};
use needless_scenario::{Source, check, format};

const REFERENCE: &str = include_str!("../../../../docs/scenarios.md");

/// The reference of the language of studies.
const STUDIES: &str = include_str!("../../../../docs/studies.md");

/// The texts of the fenced KDL blocks.
fn examples() -> Vec<&'static str> {
    examples_of(REFERENCE)
}

fn examples_of(text: &'static str) -> Vec<&'static str> {
    text.split("```kdl\n").skip(1).filter_map(|rest| rest.split("```").next()).collect()
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
    let rules = PARTS.iter().chain(NEEDS).chain(LITMUS).chain(operations());
    assert_described(rules, REFERENCE);
}

fn assert_described(rules: impl Iterator<Item = &'static Rule>, text: &'static str) {
    // The reference may break a line where a usage line has a space.
    let reference = text.replace("\n  ", " ").replace('\n', " ");
    for rule in rules {
        let entry = std::format!("`{}`: {}", rule.usage, rule.doc);
        assert!(reference.contains(&entry), "{entry}");
        let shown = examples_of(text).iter().any(|e| {
            e.split(|c: char| c.is_whitespace() || c == '{').any(|word| word == rule.name)
        });
        assert!(shown, "no example of `{}`", rule.name);
    }
}

#[test]
fn studies_are_described_and_shown() {
    for example in examples_of(STUDIES) {
        let source = Source::new("example", example);
        if let Err(error) = study::parse(&source, None) {
            panic!("{:?}", miette::Report::new(error));
        }
        assert_eq!(format(&source).unwrap(), example);
    }
    let tables = [
        rules::TOP,
        rules::STUDY,
        rules::MATRIX,
        rules::PART,
        rules::SWEEP,
        rules::CONTRAST,
        rules::RUN,
        rules::CHECK,
        rules::COSTS,
    ];
    assert_described(tables.into_iter().flatten(), STUDIES);
}

/// The CPUs that a fault makes a kernel flush, by architecture: the table of docs/studies.md shows
/// what the model's rows do.
#[test]
fn the_table_of_flushes_is_the_models() {
    let word = |flushes| match flushes {
        Flushes::Nobody => "-",
        Flushes::Local => "local",
        Flushes::Broadcast | Flushes::BroadcastUnwaited => "broadcast",
    };
    let mut rows = 0;
    let table = STUDIES.lines().skip_while(|line| !line.starts_with("| row | only the accessed"));
    for line in table.skip(2).take_while(|line| line.starts_with('|')) {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        for name in cells[1].split('`').skip(1).step_by(2) {
            let arch = KernelRow::parse(name).unwrap().arch();
            let by_fault = arch.accessed_dirty == AccessedDirty::Fault;
            assert_eq!(!by_fault, cells[2] == "the processor sets it", "{name}: {line}");
            for (cell, flushes) in
                [(cells[3], arch.flushes.granted), (cells[4], arch.flushes.spurious)]
            {
                assert!(cell == word(flushes) || cell == "as above", "{name}: {flushes:?}: {line}");
            }
            rows += 1;
        }
    }
    assert_eq!(rows, 13, "rows of the table");
}

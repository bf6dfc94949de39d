//! Every case compiles, and runs on every model row without error.

use super::operations::{self, LEFT_OUT, OPERATIONS};
use super::*;
use crate::{Settings, Source, compile, grammar, ops};
use needless_model::call::CallKind;
use needless_model::kernels::KernelRow;
use needless_model::program::Advice;
use needless_model::sim::{self, SimOptions};
use strum::IntoEnumIterator;

const NEWEST: (u32, u32) = (u32::MAX, 0);

fn run(case: &Case, row: &KernelRow) {
    let text = case.text().unwrap();
    let program = compile(&Source::new(&case.name, &text), &Settings::default())
        .unwrap_or_else(|error| panic!("{:?}\n{text}", miette::Report::new(error)));
    if let Err(error) = sim::run(&program, row, &SimOptions::default()) {
        panic!("{} on {}: {error}\n{text}", case.name, row.name);
    }
}

#[test]
fn every_case_runs_on_every_row() {
    for row in KernelRow::all() {
        (0..150).for_each(|seed| run(&generate(seed, row.release, 2 + seed as usize % 2), &row));
    }
}

#[test]
fn a_seed_is_one_text() {
    let text = |seed| generate(seed, NEWEST, 3).text();
    assert_eq!(text(7), text(7));
    assert_ne!(text(7), text(8));
}

#[test]
fn every_operation_and_every_company_is_drawn() {
    let texts: Vec<String> = (0..400).filter_map(|seed| generate(seed, NEWEST, 3).text()).collect();
    assert_eq!(texts.len(), 400, "every case can be written");
    for operation in OPERATIONS.iter() {
        let (start, end) = operation.line.split_once("{}").unwrap_or((operation.line, ""));
        let end = end.split('{').next().unwrap();
        let there = |line: &str| line.trim().starts_with(start) && line.contains(end);
        assert!(texts.iter().any(|text| text.lines().any(there)), "{}", operation.line);
    }
    for word in ["spin }", "sleep }", "barrier", "repeat", "for-each", "mark", "shared", "2M -"] {
        assert!(texts.iter().any(|text| text.contains(word)), "{word}");
    }
}

/// An operation of the language, or a word of one, that random scenarios lack needs a row in
/// [`OPERATIONS`].
#[test]
fn the_whole_language_is_drawn() {
    let texts: Vec<String> = (0..600).filter_map(|seed| generate(seed, NEWEST, 3).text()).collect();
    let lines = || texts.iter().flat_map(|text| text.split(['\n', '{'])).map(str::trim);
    let left_out = |name: &str| LEFT_OUT.iter().any(|(other, _)| *other == name);
    let nowhere = CallKind::iter().filter(|kind| operations::call(*kind).is_empty());
    let nowhere: Vec<&str> = nowhere.map(|kind| ops::rule(kind).name).collect();
    let nowhere_drawn = ["reclaim", "switch", "fork", "wait", "exec", "pin", "dma", "unpin"];
    assert_eq!(nowhere, nowhere_drawn, "these run in the model only, or are not drawn yet");
    let drawn = |name: &str| !left_out(name) && !nowhere.contains(&name);
    for rule in grammar::operations().filter(|rule| drawn(rule.name)) {
        let drawn = lines().any(|line| line.split(' ').next() == Some(rule.name));
        assert!(drawn, "`{}` is drawn", rule.name);
    }
    let advice = Advice::ALL.map(|(_, word)| format!("advice=\"{word}\""));
    let words = ops::ACCESSES.map(|(word, _)| format!("access=\"{word}\"")).into_iter();
    let words = words.chain(ops::PROTS.map(|(word, _)| format!("prot=\"{word}\"")));
    for word in words.chain(advice) {
        assert!(lines().any(|line| line.contains(&word)), "{word} is drawn");
    }
}

#[test]
fn old_kernels_are_asked_for_nothing_new() {
    let texts = (0..100).filter_map(|seed| generate(seed, (5, 10), 3).text());
    assert!(texts.into_iter().all(|text| !text.contains("populate")));
}

#[test]
fn smaller_cases_run_and_get_small() {
    let row = KernelRow::nearest(6, 18).0;
    for seed in 0..15 {
        let mut case = generate(seed, row.release, 2 + seed as usize % 2);
        let mut steps = 0;
        while let Some(smaller) = case.smaller().into_iter().next() {
            run(&smaller, &row);
            case = smaller;
            steps += 1;
            assert!(steps < 500, "every reduction makes the case smaller:\n{:?}", case.text());
        }
        assert!(case.setup.is_empty() && case.body.is_empty(), "{:?}", case.text());
    }
}

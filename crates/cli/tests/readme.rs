//! README's output is what the commands print.
#![allow(clippy::unwrap_used)]

use std::process::Command;

/// The line that stands for lines left out.
const LEFT_OUT: &str = "…";

/// The `$ needless …` commands of README's console blocks, each with the lines under it. Commands
/// that need root (`#`) print other figures on each machine.
fn recipes(text: &str) -> Vec<(String, Vec<String>)> {
    let mut recipes: Vec<(String, Vec<String>)> = Vec::new();
    let (mut inside, mut listening) = (false, false);
    for line in text.lines() {
        if let Some(language) = line.strip_prefix("```") {
            inside = language == "console";
            listening = false;
        } else if !inside {
        } else if let Some(command) = line.strip_prefix("$ needless ") {
            listening = true;
            recipes.push((command.to_owned(), Vec::new()));
        } else if line.starts_with("# ") {
            listening = false;
        } else if let Some((_, lines)) = recipes.last_mut().filter(|_| listening) {
            lines.push(line.to_owned());
        }
    }
    recipes
}

/// The first line of README that the output lacks: lines come in order, and only where one is left
/// out may others lie between.
fn missing<'a>(shown: &'a [String], output: &str) -> Option<&'a str> {
    let mut rest = output.lines();
    let mut gap = false;
    for line in shown {
        if line == LEFT_OUT {
            gap = true;
            continue;
        }
        let found = match gap {
            true => rest.any(|printed| printed == line),
            false => rest.next() == Some(line),
        };
        if !found {
            return Some(line);
        }
        gap = false;
    }
    None
}

#[test]
fn readme_shows_what_the_commands_print() {
    let readme = include_str!("../../../README.md");
    let recipes = recipes(readme);
    assert!(recipes.len() >= 2, "{recipes:?}");
    for (command, lines) in recipes {
        let mut needless = Command::new(assert_cmd::cargo::cargo_bin!("needless"));
        needless.args(command.split_whitespace()).env("COLUMNS", "80").env("LC_ALL", "C.UTF-8");
        let output = String::from_utf8(needless.output().unwrap().stdout).unwrap();
        assert_eq!(missing(&lines, &output), None, "{command}:\n{output}");
    }
}

#[test]
fn readme_is_read_in_a_minute() {
    let lines = include_str!("../../../README.md").lines().count();
    assert!(lines <= 90, "{lines} lines");
}

#[test]
fn a_line_that_is_not_printed_is_found() {
    let shown = |lines: &[&str]| lines.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>();
    let output = "one\ntwo\nthree\n";
    assert_eq!(missing(&shown(&["one", "…", "three"]), output), None);
    assert_eq!(missing(&shown(&["one", "three"]), output), Some("three"));
    assert_eq!(missing(&shown(&["three", "…", "one"]), output), Some("three"));
}

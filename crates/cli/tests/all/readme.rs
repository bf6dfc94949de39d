//! The output that README and the tutorials show is what the commands print.

use std::fs;
use std::path::Path;
use std::process::Command;

/// The line that means that lines are left out.
const LEFT_OUT: &str = "…";

/// The `$ needless …` commands of README's console blocks, each with the lines under it. Commands
/// that need root (`#`) are not among them: they print other figures on each machine.
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

/// The first line of README that the output lacks. Lines come in order. Other lines may lie between
/// them only where one is left out.
fn missing<'a>(shown: &'a [String], output: &str) -> Option<&'a str> {
    let mut rest = output.lines();
    let mut gap = false;
    for line in shown {
        if line == LEFT_OUT {
            gap = true;
            continue;
        }
        // The end of a line is left out as well if it differs from run to run, such as a time.
        let same = |printed: &str| match line.strip_suffix(LEFT_OUT) {
            Some(start) => printed.starts_with(start.trim_end()),
            None => printed == line,
        };
        let found = match gap {
            true => rest.any(same),
            false => rest.next().is_some_and(same),
        };
        if !found {
            return Some(line);
        }
        gap = false;
    }
    None
}

/// The scenarios of a document that have a file name: a line "`mine.kdl`:" comes before them.
fn named_scenarios(text: &str) -> Vec<(&str, &str)> {
    let parts = text.split("```kdl\n").collect::<Vec<_>>();
    let pairs = parts.windows(2).filter_map(|pair| {
        let line = pair[0].trim_end().lines().last()?;
        let name = line.rsplit('`').nth(1).filter(|name| name.ends_with(".kdl"))?;
        Some((name, pair[1].split("```").next()?))
    });
    pairs.collect()
}

/// Runs the commands of a document next to the scenarios that it names.
fn assert_shown(name: &str, text: &str) {
    let folder = tempfile::tempdir().unwrap();
    for (name, scenario) in named_scenarios(text) {
        fs::write(folder.path().join(name), scenario).unwrap();
    }
    for (command, lines) in recipes(text) {
        let mut needless = Command::new(assert_cmd::cargo::cargo_bin!("needless"));
        needless.args(command.split_whitespace()).current_dir(folder.path());
        needless.env("COLUMNS", "80").env("LC_ALL", "C.UTF-8");
        let output = String::from_utf8(needless.output().unwrap().stdout).unwrap();
        assert_eq!(missing(&lines, &output), None, "{name}: {command}:\n{output}");
    }
}

#[test]
fn readme_shows_what_the_commands_print() {
    let readme = include_str!("../../../../README.md");
    assert!(recipes(readme).len() >= 2);
    assert_shown("README.md", readme);
}

#[test]
fn tutorials_show_what_the_commands_print() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/tutorials");
    let mut shown = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        shown += recipes(&text).len();
        assert_shown(path.to_str().unwrap(), &text);
    }
    assert!(shown >= 8, "{shown} commands");
}

#[test]
fn readme_is_read_in_a_minute() {
    let words = include_str!("../../../../README.md").split_whitespace().count();
    assert!(words <= 730, "{words} words");
}

#[test]
fn a_line_that_is_not_printed_is_found() {
    let shown = |lines: &[&str]| lines.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>();
    let output = "one\ntwo\nthree\n";
    assert_eq!(missing(&shown(&["one", "…", "three"]), output), None);
    assert_eq!(missing(&shown(&["one", "three"]), output), Some("three"));
    assert_eq!(missing(&shown(&["three", "…", "one"]), output), Some("three"));
    assert_eq!(missing(&shown(&["on…", "two"]), output), None);
    assert_eq!(missing(&shown(&["tw…"]), output), Some("tw…"));
}

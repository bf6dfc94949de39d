//! Habits that make documents and comments hard to read. There are none, and none may come back.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};

const WIDTH: usize = 100;

/// The root of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The files below `folder` whose names end with `end`, by their path from the root.
fn files(folder: &str, end: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.to_str().is_some_and(|path| path.ends_with(end)) {
                let name = path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned();
                found.push((name, fs::read_to_string(path).unwrap()));
            }
        }
    }
    found
}

/// The lines of prose that are too long although they have a place to break, by their number.
/// Tables and printed output may be longer.
fn long_lines(text: &str) -> Vec<usize> {
    let mut fenced = false;
    let prose = text.lines().enumerate().filter(|(_, line)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        !fence && !fenced && !line.trim_start().starts_with('|')
    });
    let long = prose.filter(|(_, line)| line.chars().count() > WIDTH && line.trim().contains(' '));
    long.map(|(at, _)| at + 1).collect()
}

/// The documentation comments of a source file: the number of the first line, and the lines.
fn comments(text: &str) -> Vec<(usize, Vec<&str>)> {
    let mut blocks: Vec<(usize, Vec<&str>)> = Vec::new();
    let mut inside = false;
    for (at, line) in text.lines().enumerate() {
        let line = line.trim_start();
        let words = ["///", "//!"].into_iter().find_map(|start| line.strip_prefix(start));
        match (words, inside) {
            (Some(words), true) => blocks.last_mut().unwrap().1.push(words.trim()),
            (Some(words), false) => blocks.push((at + 1, vec![words.trim()])),
            (None, _) => {}
        }
        inside = words.is_some();
    }
    blocks
}

/// The habits in a source file, each with the number of its line: documentation that begins with
/// "The same" and cannot be read without the item above, documentation of one word, and long lines
/// of comments.
fn habits(text: &str) -> Vec<(usize, &'static str)> {
    let mut found = Vec::new();
    for (at, lines) in comments(text) {
        if lines[0].starts_with("The same") {
            found.push((at, "begins with \"The same\": say what it is"));
        }
        if lines.len() == 1 && !lines[0].contains(' ') {
            found.push((at, "is one word: say what it is, with its unit"));
        }
    }
    let long = text
        .lines()
        .enumerate()
        .filter(|(_, line)| line.trim_start().starts_with("//") && line.chars().count() > WIDTH);
    found.extend(long.map(|(at, _)| (at + 1, "is too long a line of a comment")));
    found
}

#[test]
fn documents_have_lines_that_one_can_read() {
    let mut documents = files("docs", ".md");
    // The reports of `needless agree` are generated.
    documents.retain(|(name, _)| !name.starts_with("docs/agreement"));
    for name in ["README.md", "CONTRIBUTING.md"] {
        documents.push((name.to_owned(), fs::read_to_string(root().join(name)).unwrap()));
    }
    let long = documents.iter().flat_map(|(name, text)| {
        long_lines(text).into_iter().map(move |line| format!("{name}:{line}"))
    });
    let long: Vec<String> = long.collect();
    assert!(long.is_empty(), "more than {WIDTH} columns: {long:#?}");
}

#[test]
fn comments_stand_alone() {
    let sources = files("crates", ".rs");
    assert!(sources.len() > 100, "{}", sources.len());
    let found = sources.iter().flat_map(|(name, text)| {
        habits(text).into_iter().map(move |(line, what)| format!("{name}:{line} {what}"))
    });
    let found: Vec<String> = found.collect();
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn habits_are_found() {
    let source =
        "/// The same.\nfn a() {}\n\n/// What.\nfn b() {}\n\n    /// Twice\n    /// more.\n";
    let lines = |text: &str| habits(text).into_iter().map(|(at, _)| at).collect::<Vec<_>>();
    assert_eq!(lines(source), [1, 4]);
    assert_eq!(lines("//! The same file.\n//!\n//! The same again.\n"), [1]);
    assert_eq!(lines(&format!("\n    // {}", "word ".repeat(30))), [2]);
    let long = "word ".repeat(30);
    assert_eq!(long_lines(&format!("{long}\n| {long} |\n```text\n{long}\n```\n{long}\n")), [1, 6]);
    assert!(long_lines(&"x".repeat(200)).is_empty(), "it cannot be wrapped");
}

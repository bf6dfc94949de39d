//! Habits that make documents and comments hard to read, counted by folder. A count may only go down: the test also
//! fails when one is below its ceiling, so that the ceiling follows.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};

/// Lines of documents over 100 columns that could be wrapped. Tables and printed output may be longer. A row holds
/// for the paths that begin with it and with no longer row. The reports of `needless agree` are no documents of ours.
const LONG_LINES: &[(&str, usize)] = &[
    ("CONTRIBUTING.md", 0),
    ("README.md", 0),
    ("docs/", 0),
    // Its section about NUMA nodes.
    ("docs/kernels.md", 5),
    ("docs/own-kernels.md", 61),
    ("docs/performance.md", 54),
];

/// By crate: documentation comments that begin with "The same", which cannot be read without the item above; those of
/// one word; and lines of comments over 120 columns.
const COMMENTS: &[(&str, [usize; 3])] = &[
    ("check", [0, 0, 0]),
    ("cli", [4, 9, 13]),
    ("files", [0, 0, 0]),
    ("guest", [2, 22, 19]),
    ("live", [0, 4, 1]),
    ("model", [68, 126, 363]),
    ("qemu-plugin", [0, 3, 0]),
    ("report", [0, 0, 0]),
    ("runner", [8, 24, 84]),
    ("scenario", [25, 28, 52]),
    ("tables", [0, 0, 0]),
    ("testing", [0, 0, 1]),
    ("watch", [0, 0, 0]),
    ("workloads", [18, 11, 22]),
];

const HABITS: [&str; 3] = [
    "documentation that begins with \"The same\"",
    "documentation of one word",
    "lines of comments over 120 columns",
];

const WIDTH: usize = 100;
const WIDTH_OF_COMMENTS: usize = 120;

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

/// Lines of prose that are too long and have a place to break.
fn long_lines(text: &str) -> usize {
    let mut fenced = false;
    let prose = text.lines().filter(|line| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        !fence && !fenced && !line.trim_start().starts_with('|')
    });
    prose.filter(|line| line.chars().count() > WIDTH && line.trim().contains(' ')).count()
}

/// The documentation comments of a source file, each with its lines.
fn comments(text: &str) -> Vec<Vec<&str>> {
    let mut blocks: Vec<Vec<&str>> = Vec::new();
    let mut inside = false;
    for line in text.lines() {
        let line = line.trim_start();
        let words = ["///", "//!"].into_iter().find_map(|start| line.strip_prefix(start));
        match (words, inside) {
            (Some(words), true) => blocks.last_mut().unwrap().push(words.trim()),
            (Some(words), false) => blocks.push(vec![words.trim()]),
            (None, _) => {}
        }
        inside = words.is_some();
    }
    blocks
}

/// How often each of [`HABITS`] is in a source file.
fn habits(text: &str) -> [usize; 3] {
    let comments = comments(text);
    let same = comments.iter().filter(|lines| lines[0].starts_with("The same"));
    let one_word = comments.iter().filter(|lines| lines.len() == 1 && !lines[0].contains(' '));
    let long = text.lines().filter(|line| {
        line.trim_start().starts_with("//") && line.chars().count() > WIDTH_OF_COMMENTS
    });
    [same.count(), one_word.count(), long.count()]
}

/// What to do about a count, if anything.
fn complaint(what: &str, count: usize, ceiling: usize) -> Option<String> {
    match count {
        _ if count > ceiling => Some(format!("{what}: {count}, at most {ceiling} are allowed")),
        _ if count < ceiling => {
            Some(format!("{what}: {count} are left: lower the ceiling from {ceiling}"))
        }
        _ => None,
    }
}

#[test]
fn documents_have_lines_that_one_can_read() {
    let mut documents = files("docs", ".md");
    documents.retain(|(name, _)| !name.starts_with("docs/agreement"));
    for name in ["README.md", "CONTRIBUTING.md"] {
        documents.push((name.to_owned(), fs::read_to_string(root().join(name)).unwrap()));
    }
    let mut counts = vec![0; LONG_LINES.len()];
    let mut where_to_look = Vec::new();
    for (name, text) in &documents {
        let rows = LONG_LINES.iter().enumerate().filter(|(_, row)| name.starts_with(row.0));
        let (row, (_, ceiling)) = rows.max_by_key(|(_, row)| row.0.len()).unwrap();
        let long = long_lines(text);
        counts[row] += long;
        if *ceiling == 0 && long > 0 {
            where_to_look.push(name);
        }
    }
    let complaints: Vec<String> = LONG_LINES
        .iter()
        .zip(counts)
        .filter_map(|((row, ceiling), count)| {
            complaint(&format!("{row}: lines over {WIDTH} columns"), count, *ceiling)
        })
        .collect();
    assert!(complaints.is_empty(), "{complaints:#?} {where_to_look:?}");
}

#[test]
fn comments_stand_alone() {
    let crates = fs::read_dir(root().join("crates")).unwrap();
    let mut crates: Vec<String> =
        crates.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    crates.sort();
    let rows: Vec<&str> = COMMENTS.iter().map(|row| row.0).collect();
    assert_eq!(crates, rows, "each crate has a row");
    let mut complaints = Vec::new();
    for (name, ceilings) in COMMENTS {
        let mut counts = [0; HABITS.len()];
        for (_, text) in files(&format!("crates/{name}"), ".rs") {
            habits(&text).iter().zip(&mut counts).for_each(|(of, sum)| *sum += of);
        }
        for ((habit, count), ceiling) in HABITS.iter().zip(counts).zip(ceilings) {
            complaints.extend(complaint(&format!("{name}: {habit}"), count, *ceiling));
        }
    }
    assert!(complaints.is_empty(), "{complaints:#?}");
}

#[test]
fn habits_are_counted() {
    let source =
        "/// The same.\nfn a() {}\n\n/// What.\nfn b() {}\n\n    /// Twice\n    /// more.\n";
    assert_eq!(habits(source), [1, 1, 0]);
    assert_eq!(habits("//! The same file.\n//!\n//! The same again.\n"), [1, 0, 0]);
    assert_eq!(habits(&format!("    // {}", "word ".repeat(30))), [0, 0, 1]);
    let long = "word ".repeat(30);
    assert_eq!(long_lines(&format!("{long}\n| {long} |\n```text\n{long}\n```\n{long}\n")), 2);
    assert_eq!(long_lines(&"x".repeat(200)), 0, "it cannot be wrapped");
    assert!(complaint("lines", 2, 1).unwrap().contains("at most 1"));
    assert!(complaint("lines", 1, 2).unwrap().contains("lower"));
    assert_eq!(complaint("lines", 1, 1), None);
}

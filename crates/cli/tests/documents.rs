//! Checks what the documents say about the repository: their links lead somewhere, the files that
//! they name exist, and the commands that they show are understood.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn read(name: &str) -> String {
    fs::read_to_string(root().join(name)).unwrap()
}

/// The Markdown documents, by their path from the root.
fn documents() -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut folders = vec!["docs".to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root().join(&folder)).unwrap() {
            let entry = entry.unwrap();
            let name = format!("{folder}/{}", entry.file_name().to_str().unwrap());
            if entry.path().is_dir() {
                folders.push(name);
            } else if name.ends_with(".md") {
                found.insert(name.clone(), read(&name));
            }
        }
    }
    for name in ["README.md", "CONTRIBUTING.md", "patches/README.md"] {
        found.insert(name.to_owned(), read(name));
    }
    found
}

/// The text outside of fences.
fn prose(text: &str) -> String {
    let parts = text.split("```").enumerate();
    parts.filter(|(at, _)| at % 2 == 0).map(|(_, part)| part).collect()
}

/// The targets of the links of a text.
fn links(text: &str) -> Vec<String> {
    let text = prose(text);
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    targets.map(|target| target.split_whitespace().collect()).collect()
}

/// The anchors of a document's headings, as GitHub and mdBook make them.
fn anchors(text: &str) -> BTreeSet<String> {
    let text = prose(text);
    let headings = text.lines().filter(|line| line.starts_with('#'));
    headings
        .map(|line| {
            let words = line.trim_start_matches('#').trim().to_lowercase();
            let kept = words.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
            kept.map(|c| if c == ' ' { '-' } else { c }).collect()
        })
        .collect()
}

/// The path from the root that a link of a document leads to, and its anchor.
fn resolved(document: &str, link: &str) -> (String, Option<String>) {
    let (path, anchor) = match link.split_once('#') {
        Some((path, anchor)) => (path, Some(anchor.to_owned())),
        None => (link, None),
    };
    if path.is_empty() {
        return (document.to_owned(), anchor);
    }
    let mut parts: Vec<&str> = document.split('/').collect();
    parts.pop();
    for part in path.split('/') {
        match part {
            "." | "" => {}
            ".." => assert!(parts.pop().is_some(), "{document}: {link}"),
            _ => parts.push(part),
        }
    }
    (parts.join("/"), anchor)
}

/// The link if it leads nowhere.
fn broken(documents: &BTreeMap<String, String>, document: &str, link: &str) -> Option<String> {
    if link.starts_with("http") {
        return None;
    }
    let (path, anchor) = resolved(document, link);
    if !root().join(&path).exists() {
        return Some(format!("{document}: {link}: there is no {path}"));
    }
    let anchor = anchor?;
    let there = documents.get(&path).is_some_and(|text| anchors(text).contains(&anchor));
    (!there).then(|| format!("{document}: {link}: {path} has no such heading"))
}

#[test]
fn links_lead_somewhere() {
    let documents = documents();
    let mut wrong = Vec::new();
    let mut tried = 0;
    for (name, text) in &documents {
        for link in links(text) {
            tried += 1;
            wrong.extend(broken(&documents, name, &link));
        }
    }
    assert!(tried > 100, "{tried} links");
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn a_broken_link_is_found() {
    let documents = documents();
    let broken = |link| broken(&documents, "docs/stat.md", link);
    assert_eq!(broken("live.md#without-root"), None);
    assert_eq!(broken("../README.md"), None);
    assert!(broken("live.md#without-roots").unwrap().contains("no such heading"));
    assert!(broken("lives.md").unwrap().contains("there is no docs/lives.md"));
}

/// The site consists of the documents that its summary names.
#[test]
fn the_summary_names_every_document() {
    let summary: BTreeSet<String> =
        links(&read("docs/SUMMARY.md")).iter().map(|link| format!("docs/{link}")).collect();
    let documents = documents();
    let documents: BTreeSet<String> =
        documents.into_keys().filter(|name| name.starts_with("docs/")).collect();
    let unnamed: Vec<_> =
        documents.difference(&summary).filter(|name| *name != "docs/SUMMARY.md").collect();
    assert!(unnamed.is_empty(), "not in docs/SUMMARY.md: {unnamed:#?}");
}

/// The parts of a text that are between single backticks.
fn quoted(text: &str) -> Vec<String> {
    let text = prose(text);
    text.split('`').skip(1).step_by(2).map(|part| part.replace('\n', " ")).collect()
}

/// The folders of the repository whose files documents name.
const FOLDERS: &[&str] =
    &["crates/", "docs/", "scenarios/", "scripts/", "studies/", "tests/", "patches/"];

/// The file of the repository that a document quotes. `None` if it quotes something else.
fn named_file(quoted: &str) -> Option<&str> {
    let path = quoted.split([' ', ':']).next()?.trim_end_matches('/');
    let ours = FOLDERS.iter().any(|folder| quoted.starts_with(folder));
    let pattern = path.contains(['*', '…', '<']) || path.contains("NAME");
    let of_the_kernel = path.starts_with("scripts/kconfig");
    (ours && !pattern && !of_the_kernel).then_some(path)
}

/// Whether one of the crates has this file.
fn in_a_crate(path: &str) -> bool {
    let mut crates = fs::read_dir(root().join("crates")).unwrap();
    crates.any(|entry| entry.unwrap().path().join(path).exists())
}

#[test]
fn the_files_that_documents_name_exist() {
    let mut missing = Vec::new();
    let mut seen = 0;
    for (name, text) in documents() {
        for part in quoted(&text) {
            let Some(path) = named_file(&part) else { continue };
            seen += 1;
            // Tests are also named by their path in their crate.
            if !root().join(path).exists() && !in_a_crate(path) {
                missing.push(format!("{name}: {path}"));
            }
        }
    }
    assert!(seen > 100, "{seen} files");
    assert!(missing.is_empty(), "{missing:#?}");
}

/// The files that a new call into the kernel touches: those that name each of some calls.
#[test]
fn contributing_names_the_files_that_a_call_touches() {
    const CALLS: [&str; 5] = ["DropFile", "SyncFile", "PagemapScan", "MovePages", "Munlock"];
    let contributing = read("CONTRIBUTING.md");
    let mut folders: Vec<PathBuf> = fs::read_dir(root().join("crates"))
        .unwrap()
        .map(|entry| entry.unwrap().path().join("src"))
        .collect();
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = fs::read_to_string(&path).unwrap_or_default();
            if CALLS.iter().all(|call| text.contains(&format!("::{call}"))) {
                let name = path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned();
                found.push(name);
            }
        }
    }
    assert!(found.len() >= 5, "{found:?}");
    let unnamed: Vec<_> =
        found.iter().filter(|name| !contributing.contains(&format!("`{name}`"))).collect();
    assert!(unnamed.is_empty(), "not in CONTRIBUTING.md: {unnamed:?}");
}

#[test]
fn the_design_counts_the_captures() {
    let captures = read("tests/captures.tsv");
    let rows = captures.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    let workloads: BTreeSet<&str> = rows.filter_map(|line| line.split('\t').next()).collect();
    let said = format!("what five kernels did in {} workloads", workloads.len());
    let design = read("docs/design.md").split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(design.contains(&said), "docs/design.md does not say \"{said}\"");
}

/// The commands of a document's blocks that run in the model alone and end at once.
fn commands_in_the_model(text: &str) -> Vec<String> {
    let blocks = text.split("```").skip(1).step_by(2);
    let lines = blocks.flat_map(str::lines).filter_map(|line| {
        let line = line.trim_start();
        line.strip_prefix("$ ").unwrap_or(line).strip_prefix("needless ")
    });
    let at_once = ["run ", "compare ", "explain "];
    lines
        .map(|line| line.split(" #").next().unwrap().split("   ").next().unwrap().trim())
        .filter(|line| at_once.iter().any(|verb| line.starts_with(verb)))
        .filter(|line| {
            let mut words = line.split(' ').peekable();
            let mut targets = 0;
            while let Some(word) = words.next() {
                if word == "-t" {
                    match words.peek() {
                        Some(target) if target.starts_with("model:") => targets += 1,
                        _ => return false,
                    }
                }
            }
            targets > 0
        })
        .filter(|line| {
            !line.contains([';', '…', '<', '>', '|', '$', '\'']) && !line.contains(".kdl")
        })
        .filter(|line| !line.contains("ROW") && !line.contains(".json") && !line.contains(".html"))
        .map(str::to_owned)
        .collect()
}

/// Each command is understood and runs: its status is no error of usage, of the scenario or of the
/// program.
#[test]
fn commands_in_the_model_run() {
    let mut commands: BTreeMap<String, String> = BTreeMap::new();
    for (name, text) in documents() {
        for command in commands_in_the_model(&text) {
            commands.entry(command).or_insert_with(|| name.clone());
        }
    }
    assert!(commands.len() >= 10, "{commands:#?}");
    let mut wrong = Vec::new();
    for (command, document) in commands {
        let mut needless = Command::new(assert_cmd::cargo::cargo_bin!("needless"));
        let output = needless.args(command.split_whitespace()).output().unwrap();
        if !matches!(output.status.code(), Some(0 | 1 | 3 | 121)) {
            let error = String::from_utf8_lossy(&output.stderr).into_owned();
            wrong.push(format!("{document}: {command}: {} {error}", output.status));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn commands_are_found() {
    let text = "```console\n$ needless run a -t model:6.12    # why\n$ needless run a -t live\n```\n\
        ```\nneedless compare a -t model:6.1 -t model:6.12\nneedless check a -t model:6.1\n```\n";
    assert_eq!(
        commands_in_the_model(text),
        ["run a -t model:6.12", "compare a -t model:6.1 -t model:6.12"]
    );
    assert_eq!(named_file("crates/model/src/policy.rs:5"), Some("crates/model/src/policy.rs"));
    assert_eq!(named_file("crates/model/src/kernel/NAME.rs"), None);
    assert_eq!(anchors("## How it *ends*: a, b\n"), ["how-it-ends-a-b".to_owned()].into());
}

#[test]
fn the_catalogue_describes_every_litmus_test() {
    let catalogue = read("docs/litmus-catalogue.md");
    let rows = catalogue.lines().filter(|line| line.starts_with("| `"));
    let described: BTreeSet<String> =
        rows.flat_map(|row| quoted(row.split(" | ").next().unwrap())).collect();
    let tests = fs::read_dir(root().join("scenarios/litmus")).unwrap();
    let tests: BTreeSet<String> = tests
        .map(|entry| entry.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    assert!(tests.len() > 100);
    assert_eq!(tests.difference(&described).collect::<Vec<_>>(), Vec::<&String>::new());
    assert_eq!(described.difference(&tests).collect::<Vec<_>>(), Vec::<&String>::new());
    let (_, found) = catalogue.split_once("## What it finds").unwrap();
    let silent = tests.iter().filter(|test| !found.contains(&format!("\n| `{test}` |")));
    assert_eq!(
        silent.collect::<Vec<_>>(),
        Vec::<&String>::new(),
        "nothing is said of what they find"
    );
}

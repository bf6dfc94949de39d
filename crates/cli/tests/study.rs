//! `needless study`: what it finds, its statuses, and where its report goes.
#![allow(clippy::unwrap_used)]

use assert_cmd::Command;
use needless_testing::{skip, turn};
use serde_json::Value;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

fn needless(args: &[&str]) -> Command {
    let mut command = Command::cargo_bin("needless").unwrap();
    command.args(args).env("LC_ALL", "C.UTF-8").env("NO_COLOR", "1").env("COLUMNS", "100");
    command
}

/// The standard output of a command that ends with this status.
fn stdout(args: &[&str], status: i32) -> String {
    let output = needless(args).assert().code(status).get_output().clone();
    String::from_utf8(output.stdout).unwrap()
}

fn json(args: &[&str], status: i32) -> Value {
    serde_json::from_str(&stdout(&[args, &["--format", "json"]].concat(), status)).unwrap()
}

/// The standard error of a command that ends with this status and prints no result.
fn refused(args: &[&str], status: i32) -> String {
    let output = needless(args).assert().code(status).get_output().clone();
    assert!(output.stdout.is_empty(), "{args:?}: results only on standard output");
    String::from_utf8(output.stderr).unwrap()
}

/// A study with one part.
fn study(part: &str) -> (TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mine.kdl");
    let text = format!(
        "study \"mine\" {{\n doc \"d\"\n source \"s\"\n takes \"t\"\n part \"a\" {{\n doc \"d\"\n{part}\n}}\n}}\n"
    );
    std::fs::write(&path, text).unwrap();
    let path = path.to_str().unwrap().to_owned();
    (folder, path)
}

fn path(folder: &TempDir, name: &str) -> PathBuf {
    folder.path().join(name)
}

const FIGURE: &str = "run \"r\" scenario=\"cow-reuse\" rounds=5 { on \"model:6.12\" shootdowns=2 }
    figure \"f\" doc=\"d\" run=\"r\" on=\"model:6.12\" counter=\"shootdowns\"";

#[test]
fn studies_are_listed() {
    let list = stdout(&["study"], 0);
    assert!(list.contains("cow-reuse") && list.contains("parts: shootdowns, cost, redundant"));
    let list = json(&["study"], 0);
    assert_eq!(list["studies"][0]["name"], "cow-reuse");
    assert_eq!(list["studies"][1]["name"], "fork-young");
}

#[test]
fn what_does_not_hold_is_status_1_and_what_cannot_be_told_3() {
    for (relation, status, word) in [
        ("relation \"r\" is=\"f = 2\"", 0, "holds: r: 2 = 2"),
        ("relation \"r\" is=\"f = 3\"", 1, "DOES NOT HOLD: r: 2 = 3"),
        (
            "relation \"r\" is=\"f ~ 3\" factor=\"1.5\"",
            0,
            "holds: r: 2 ~ 3 (within a factor of 1.5)",
        ),
        (
            "relation \"r\" is=\"f = 3\" where=\"f > 2\" because=\"they are few\"",
            0,
            "not to be had here: r: 2 = 3 they are few (it would need f > 2; here 2 > 2 is not so)",
        ),
    ] {
        let (_folder, file) = study(&format!("{FIGURE}\n{relation}"));
        let text = stdout(&["study", &file, "-v"], status);
        let words: Vec<&str> = text.split_whitespace().collect();
        assert!(words.join(" ").contains(word), "{text}");
    }
    let (_folder, file) =
        study("run \"r\" scenario=\"cow-reuse\" { on \"model:6.12\" shootdowns=3 }");
    assert!(stdout(&["study", &file], 1).contains("2 shootdowns in a round, not 3"));
    // Nothing at all could be tested.
    let live = "run \"r\" scenario=\"cow-reuse\" { on \"live\"; on \"model:6.12\" }";
    let (_folder, file) = study(live);
    let text = stdout(&["study", &file, "-t", "model", "-v"], 3);
    assert!(text.contains("live: not to be had here: left out by -t"), "{text}");
}

/// Two groups of runs that differ in one thing: the report names it, and says what it changes.
#[test]
fn a_contrast_names_what_differs() {
    let run = |name: &str, scenario: &str, thp: &str, set: &str| {
        format!(
            "run \"{name}\" scenario=\"{scenario}\" rounds=1 {thp} {{ set \"stores\" 0; {set}; on \"model:7.3\" }}\n figure \"{}\" doc=\"d\" run=\"{name}\" on=\"model:7.3\" updates=\"entries\"\n",
            name.replace('-', "_")
        )
    };
    let (never, huge) = ("thp=\"never\"", "set \"thp\" 1");
    let text = [
        run("read", "wp-preread", never, "set \"thp\" 0"),
        run("marker", "wp-unpopulated", never, "set \"thp\" 0"),
        run("read-huge", "wp-preread", "", huge),
        run("marker-huge", "wp-unpopulated", "", huge),
        "contrast \"Why?\" first=\"small\" second=\"huge\" on=\"model:7.3\" {
            case \"read\" first=\"read\" second=\"read-huge\" costs=\"read\" then=\"read_huge\"
            case \"marker\" first=\"marker\" second=\"marker-huge\" costs=\"marker\" then=\"marker_huge\"
        }
        relation \"r\" is=\"read = 1024\""
            .to_owned(),
    ];
    let (_folder, file) = study(&text.concat());
    let report = stdout(&["study", &file, "-v"], 0);
    let words: Vec<&str> = report.split_whitespace().collect();
    let words = words.join(" ");
    for said in [
        "the order is another one; the cause: parameter thp 0 → 1, thp asked for never → madvise; nothing else differs",
        "What is counted differs in read; it is equal in marker; only then there are entries set: the huge zero page (read)",
        "small: marker 512 < read 1024",
        "huge: read 3 < marker 512",
        "read faults: zero-page 512 1",
    ] {
        assert!(words.contains(said), "{said}: {report}");
    }
    let contrast = &json(&["study", &file], 0)["parts"][0]["contrasts"][0];
    assert_eq!(contrast["orders"][1][0]["case"], "read");
    assert_eq!(contrast["cases"][0]["conditions"][0]["name"], "parameter thp");
}

#[test]
fn mistakes_are_told() {
    for (args, said) in [
        (&["study", "cow-resue"][..], "did you mean `cow-reuse`"),
        (&["study", "cow-reuse", "--part", "all"], "its parts are shootdowns, cost, redundant"),
        (&["study", "cow-reuse", "-t", "kernel:4.4"], "has no target `kernel:4.4`"),
        (&["study", "--part", "cost"], "required"),
    ] {
        let message = refused(args, 2);
        assert!(message.contains(said), "{args:?}: {message}");
    }
    let (_folder, file) = study(&format!("{FIGURE}\nrelation \"r\" is=\"f = g\""));
    let message = refused(&["study", &file], 2);
    assert!(message.contains("there is no figure `g`") && message.contains("f = g"), "{message}");
    let (_folder, file) = study("run \"r\" scenario=\"cow-reuse\" { on \"kernel:no-such\" }");
    assert!(refused(&["study", &file], 2).contains("kernel:no-such"));
}

#[test]
fn reports_are_written_whole_or_not_at_all() {
    let (folder, file) = study(FIGURE);
    let report = path(&folder, "report.md");
    let there = |path: &Path| std::fs::read_to_string(path).unwrap();
    let to = report.to_str().unwrap();
    assert_eq!(stdout(&["study", &file, "--format", "md", "-o", to], 0), "");
    assert!(there(&report).starts_with("# mine\n\nd\n"), "{}", there(&report));
    // A report that cannot be written is refused before anything runs; the old report stays.
    let elsewhere = path(&folder, "no/report.md");
    refused(&["study", &file, "-o", elsewhere.to_str().unwrap()], 125);
    let (_other, bad) = study("run \"r\" scenario=\"cow\" { on \"live\" }");
    refused(&["study", &bad, "-o", to], 2);
    assert!(there(&report).starts_with("# mine"));
}

/// The reasons why something that was asked for has no result.
fn not_here(document: &Value) -> Vec<String> {
    let parts = document["parts"].as_array().unwrap().iter();
    let outcomes = parts.flat_map(|part| {
        let runs = part["runs"].as_array().unwrap().iter();
        let targets = runs.flat_map(|run| run["targets"].as_array().unwrap());
        targets
            .chain(part["checks"].as_array().unwrap())
            .chain(part["relations"].as_array().unwrap())
    });
    let reasons = outcomes.filter(|o| o["outcome"]["standing"] == "not_here");
    reasons.map(|o| o["outcome"]["reason"].as_str().unwrap().to_owned()).collect()
}

/// What a study says in the model and on this kernel.
fn quick(name: &str, part: &str) {
    let _turn = turn();
    let args = ["study", name, "--part", part, "-t", "model", "-t", "live", "--format", "json"];
    let output = needless(&args).output().unwrap();
    // A run that is lost for a reason that passes is status 3.
    assert!(matches!(output.status.code(), Some(0 | 3)), "{output:?}");
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["totals"]["do_not"], 0);
    let reasons = not_here(&document);
    let left_out = |reason: &&String| reason.contains("left out by -t");
    if let Some(reason) = reasons.iter().find(|reason| !left_out(reason)) {
        skip!("{name}, {part}: {reason}");
    }
}

#[test]
fn cow_reuse_counts_what_was_published() {
    let document = json(&["study", "cow-reuse", "--part", "shootdowns", "-t", "model"], 0);
    let run = |at: usize| document["parts"][0]["runs"][at]["targets"].as_array().unwrap().clone();
    let counted = |at: usize, name: &str| -> Vec<u64> {
        let models = run(at).into_iter().filter(|target| target["rounds"] != 0);
        models.map(|target| target["counts"][name]["found"].as_u64().unwrap()).collect()
    };
    assert_eq!(counted(0, "shootdowns"), [3, 4, 4, 3, 2, 2, 2]);
    assert_eq!(counted(0, "copies"), [0, 1, 1, 0, 0, 0, 0]);
    assert_eq!(counted(1, "shootdowns"), [10, 17, 17, 10, 9, 9, 9]);
    assert_eq!(counted(1, "copies"), [0, 7, 7, 0, 0, 0, 0]);
    assert_eq!(counted(2, "shootdowns"), [66, 122, 122, 66, 65, 65, 65]);
    assert_eq!(counted(2, "copies"), [0, 56, 56, 0, 0, 0, 0]);
}

#[test]
fn cow_reuse_holds_here() {
    quick("cow-reuse", "shootdowns");
    quick("cow-reuse", "redundant");
}

#[test]
fn fork_young_holds_in_the_model_and_the_checker() {
    let document = json(&["study", "fork-young", "-t", "model", "-t", "check"], 0);
    assert_eq!(document["totals"]["do_not"], 0);
    assert!(not_here(&document).iter().all(|reason| reason.contains("left out by -t")));
    let parts = document["parts"].as_array().unwrap();
    let relations = |at: usize| parts[at]["relations"].as_array().unwrap().len();
    assert_eq!((relations(0), relations(2), relations(3)), (20, 1, 4));
    let flushes = &parts[0]["runs"][1]["targets"][0]["findings"];
    let whats = flushes.as_array().unwrap().iter().map(|finding| &finding["what"]);
    assert!(
        whats.clone().all(|what| what == "fault"),
        "no flush of another architecture: {flushes:#}"
    );
}

/// What a study prints first, in the model alone, at 80 columns, without times and the machine's
/// description.
fn first_screen(name: &str) -> String {
    let args = ["study", name, "-t", "model"];
    let size: &[&str] = match name {
        "wp-unpopulated" => &["--size", "64M"],
        // This size is so small that what its relations need is missing.
        "migration-flush" => &["--size", "4M"],
        _ => &[],
    };
    let mut command = needless(&[&args, size].concat());
    let output = command.env("COLUMNS", "80").assert().code(0).get_output().clone();
    let text = String::from_utf8(output.stdout).unwrap();
    let told = text.split("\nconditions\n").next().unwrap();
    let seconds = told.rfind(" s)").map(|end| (told[..end].rfind('(').unwrap(), end));
    let (start, end) = seconds.unwrap();
    format!("{}(N{}", &told[..start], &told[end..])
}

/// The figures of the model and every question are within the first 25 lines.
#[test]
fn the_answer_is_on_the_first_screen() {
    for builtin in needless_scenario::study::ALL {
        let screen = first_screen(builtin.name);
        insta::assert_snapshot!(format!("first_screen_{}", builtin.name), screen);
        let first: Vec<&str> = screen.lines().take(25).collect();
        let first = first.join("\n");
        let study = needless_scenario::study::load(builtin.name, None).unwrap();
        assert!((4..=9).contains(&study.answers.len()), "{}", builtin.name);
        for answer in &study.answers {
            let asked = format!("{}? ", answer.question);
            assert!(first.contains(&asked), "{}: {asked}: {first}", builtin.name);
        }
    }
}

/// Prices are fitted to this machine, with the error for the blocks that they were not fitted to.
#[test]
fn costs_are_fitted_here() {
    let _turn = turn();
    let args = ["study", "cow-reuse", "--part", "cost", "-t", "model", "-t", "live"];
    let output = needless(&args).args(["--format", "json"]).output().unwrap();
    // Without prices nothing can be tested.
    assert!(matches!(output.status.code(), Some(0 | 3)), "{output:?}");
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let costs = &document["parts"][0]["costs"][0];
    let Some(prices) = costs["prices"].as_array() else {
        skip!("no prices: {}", costs["reason"]);
    };
    let price = |term: &str| {
        let of = prices.iter().find(|price| price["term"] == term).unwrap();
        of["cycles"].as_f64().unwrap()
    };
    // The size of prices depends on the machine, and their accuracy on what else runs on it.
    assert!(price("fault") > 100.0, "{costs:#}");
    assert!(price("shootdown") >= 0.0, "{costs:#}");
    assert!(costs["largest_error_held_out"].as_f64().unwrap().is_finite(), "{costs:#}");
}

//! `needless check`: its exit statuses, its output, and that this output can be used again.

use assert_cmd::Command;
use serde_json::Value;

/// A litmus test of a hundred states, a row on which it is safe, and one on which it fails.
const LITMUS: &str = "gather-early-free";
const SAFE: &str = "model:6.12";
const MUTANT: &str = "model:6.12,mutant=freed-unflushed";

struct Ran {
    status: i32,
    stdout: String,
    stderr: String,
}

fn needless(args: &[&str]) -> Ran {
    with(&[], args)
}

fn with(variables: &[(&str, &str)], args: &[&str]) -> Ran {
    let mut command = Command::cargo_bin("needless").unwrap();
    command.args(args).env_clear().env("LC_ALL", "C.UTF-8").envs(variables.iter().copied());
    let output = command.output().unwrap();
    Ran {
        status: output.status.code().unwrap(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

fn check(args: &[&str]) -> Ran {
    needless(&[&["check"], args].concat())
}

/// The schedule that a counterexample ends with.
fn schedule(text: &str) -> &str {
    text.lines().find_map(|line| line.strip_prefix("schedule: ")).unwrap()
}

/// A scenario that a user wrote, in a file.
fn file(text: &str) -> (tempfile::TempDir, String) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("mine.kdl");
    std::fs::write(&path, text).unwrap();
    let path = path.to_str().unwrap().to_owned();
    (directory, path)
}

#[test]
fn what_holds_ends_with_status_0() {
    let ran = check(&[LITMUS, "-t", SAFE]);
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    assert!(ran.stdout.starts_with("gather-early-free on model:6.12: "), "{}", ran.stdout);
    for line in ["holds          P1 ", "holds          P11 ", "not exercised  P10 "] {
        assert!(ran.stdout.lines().any(|l| l.starts_with(line)), "{line}: {}", ran.stdout);
    }
    assert_eq!(check(&[LITMUS]).status, 0, "each row of a litmus test is as expected");
}

#[test]
fn what_is_violated_ends_with_status_1() {
    let ran = check(&[LITMUS, "-t", SAFE, "-t", MUTANT]);
    assert_eq!(ran.status, 1, "{}", ran.stderr);
    assert!(ran.stdout.contains("\nVIOLATED  P1 "), "{}", ran.stdout);
}

#[test]
fn a_verdict_that_is_not_expected_ends_with_status_1() {
    let shown = needless(&["scenario", "show", LITMUS]).stdout;
    let (_directory, path) = file(&shown.replace("mutant=freed-unflushed", "reuse=page-count"));
    // The path is as long as the folder for temporary files is deep. So the line is wide enough for
    // the rest.
    let ran = with(&[("COLUMNS", "400")], &["check", &path]);
    assert_eq!(ran.status, 1, "{}", ran.stderr);
    assert!(ran.stdout.contains("holds, and was to violate P1"), "{}", ran.stdout);
}

#[test]
fn what_is_not_known_ends_with_status_3() {
    for bound in [&["--max-states", "10"][..], &["--deadline", "0.000001"]] {
        let ran = check(&[&[LITMUS, "-t", SAFE], bound].concat());
        assert_eq!(ran.status, 3, "{bound:?}: {}", ran.stderr);
        assert!(ran.stdout.contains("INCONCLUSIVE"), "{bound:?}: {}", ran.stdout);
        assert!(!ran.stdout.contains("holds  "), "{bound:?}: {}", ran.stdout);
        assert_eq!(check(&[&[LITMUS], bound].concat()).status, 3, "{bound:?}");
    }
    assert_eq!(check(&[LITMUS, "-t", SAFE, "--max-memory", "1"]).status, 3);
}

#[test]
fn what_cannot_be_asked_ends_with_status_2() {
    let (_directory, bad) = file("scenario \"bad\" { thread \"main\" cpu=0 { mapp \"heap\" } }");
    let (_other, large) = file(
        "scenario \"large\" { thread \"main\" cpu=0 { map \"heap\" pages=64\nrounds 1 { read \"heap\" } } }",
    );
    for (args, part) in [
        (&[&bad, "-t", SAFE][..], "mapp"),
        (&[&large, "-t", SAFE], "checked machine"),
        (&["no-such-scenario", "-t", SAFE], "no-such-scenario"),
        (&[LITMUS, "-t", "model:6.13"], "6.13"),
        (&[LITMUS, "-t", "model:6.12,mutant=no-such-mutant"], "no-such-mutant"),
        (&[LITMUS, "-t", "live"], "only a model can be checked"),
        (&[LITMUS, "-t", "kernel:6.12"], "only a model can be checked"),
        (&[LITMUS, "-t", SAFE, "--cpus", "3"], "parameter `cpus`"),
        (&["mprotect-reclaim", "-t", SAFE, "--cpus", "9"], "cpus"),
        (&[LITMUS, "-t", SAFE, "--deadline", "0"], "--deadline"),
        (&[LITMUS, "-t", SAFE, "--replay", "0,1"], "--replay"),
        (&[LITMUS, "--replay", "0x3"], "--target"),
        (&[LITMUS, "-t", SAFE, "-t", MUTANT, "--replay", "0x3"], "one kernel row"),
        (&[LITMUS, "-t", SAFE, "--replay", "0x3.1"], "step 4 of the schedule"),
        (&["z_munmap"], "no `litmus` node"),
        (&[], "needless check --catalogue"),
    ] {
        let ran = check(args);
        assert_eq!(ran.status, 2, "{args:?}: {}", ran.stderr);
        let message: Vec<&str> = ran.stderr.split_whitespace().filter(|w| *w != "│").collect();
        assert!(message.join(" ").contains(part), "{args:?}: {}", ran.stderr);
        assert_eq!(ran.stdout, "", "{args:?}: results only on standard output");
    }
}

/// A counterexample's text, from the property to the last step.
fn violation(text: &str) -> &str {
    let start = text.find("VIOLATED  P").unwrap();
    let end = text.find("\nschedule: ").unwrap_or(text.len());
    text[start..end].trim_end()
}

#[test]
fn a_printed_schedule_can_be_followed() {
    for (name, target) in [
        (LITMUS, MUTANT),
        ("lazy-table-free", "model:5.10,mutant=lazy-spared"),
        ("swapin-race", "model:6.12,mutant=swapin-unchecked"),
    ] {
        let found = check(&[name, "-t", target]);
        let again = check(&[name, "-t", target, "--replay", schedule(&found.stdout)]);
        assert_eq!((found.status, again.status), (1, 1), "{}", again.stderr);
        assert_eq!(violation(&found.stdout), violation(&again.stdout));
    }
    let harmless = check(&[LITMUS, "-t", SAFE, "--replay", "0x3"]);
    assert_eq!(harmless.status, 0, "{}", harmless.stderr);
    assert!(harmless.stdout.contains("nothing is violated"), "{}", harmless.stdout);
}

/// The command that `check` prints last follows the schedule.
#[test]
fn the_next_command_can_be_run() {
    let found = check(&[LITMUS, "-t", MUTANT]);
    let next = found.stdout.lines().find_map(|line| line.strip_prefix("next: needless ")).unwrap();
    let again = needless(&next.split(' ').collect::<Vec<_>>());
    assert_eq!(again.status, 1, "{}", again.stderr);
    assert_eq!(violation(&found.stdout), violation(&again.stdout));
}

fn json(args: &[&str]) -> Value {
    serde_json::from_str(&check(&[args, &["--format", "json"]].concat()).stdout).unwrap()
}

fn wrong(document: &Value) -> Vec<String> {
    let schema = include_str!("../../../../docs/schema/check.schema.json");
    let validator = jsonschema::validator_for(&serde_json::from_str(schema).unwrap()).unwrap();
    let wrong = validator.iter_errors(document);
    wrong.map(|error| format!("{}: {error}", error.instance_path())).collect()
}

#[test]
fn json_follows_the_published_schema() {
    let explored = json(&[LITMUS, "-t", SAFE, "-t", MUTANT]);
    let bounded = json(&[LITMUS, "-t", SAFE, "--max-states", "10"]);
    let table = json(&["zero-cow"]);
    let schedule = explored["reports"][1]["counterexample"]["schedule"].as_str().unwrap();
    let replayed = json(&[LITMUS, "-t", MUTANT, "--replay", schedule]);
    let harmless = json(&[LITMUS, "-t", SAFE, "--replay", "0x3"]);
    for document in [&explored, &bounded, &table, &replayed, &harmless] {
        assert_eq!(wrong(document), Vec::<String>::new(), "{document:#}");
    }
    let verdicts = explored["reports"].as_array().unwrap().iter();
    let verdicts: Vec<&Value> = verdicts.map(|report| &report["verdict"]).collect();
    assert_eq!(verdicts, ["holds", "violated"]);
    assert_eq!(bounded["reports"][0]["verdict"], "inconclusive");
    assert_eq!(table["reports"][0]["observations"][0]["made"], 0);
    assert_eq!(replayed["violation"]["property"], "P1");
    assert_eq!(replayed["steps"], explored["reports"][1]["counterexample"]["steps"]);
    assert!(harmless["violation"].is_null());
    // The schema does not accept everything.
    let mut other = explored.clone();
    other["reports"][0]["verdict"] = "perhaps".into();
    assert_ne!(wrong(&other), Vec::<String>::new());
}

#[test]
fn counterexamples_stay_within_100_columns() {
    for (name, target) in [
        (LITMUS, MUTANT),
        ("pageout-read", "model:6.12,mutant=unmap-not-flushed"),
        ("mremap-move", "model:6.12,unmap-batch=each,mutant=move-unlocked"),
        ("pending-flag", "model:5.10"),
        ("pageout-write", "model:6.12,mutant=written-unflushed"),
        ("lazy-table-free", "model:5.10,mutant=lazy-spared"),
    ] {
        let ran = check(&["--color", "never", name, "-t", target]);
        assert_eq!(ran.status, 1, "{}", ran.stderr);
        assert!(!ran.stdout.contains('\u{1b}'), "{}", ran.stdout);
        // Every line but the schedule, which is one word to be copied.
        let wide = violation(&ran.stdout).lines().find(|line| line.chars().count() > 100);
        assert_eq!(wide, None);
    }
    let table = check(&["--color", "never", LITMUS]).stdout;
    assert!(!table.contains('\u{1b}'), "{table}");
    assert!(check(&["--color", "always", LITMUS]).stdout.contains('\u{1b}'));
}

#[test]
fn a_mutant_is_warned_of() {
    let warning = |ran: &Ran| ran.stderr.contains("freed-unflushed is a mutant, known to be wrong");
    let mutant = check(&[LITMUS, "-t", MUTANT]);
    assert!(warning(&mutant) && !mutant.stdout.contains("warning"), "{}", mutant.stderr);
    assert!(warning(&needless(&["run", "cow-reuse", "-t", MUTANT])));
    assert_eq!(check(&[LITMUS, "-t", SAFE]).stderr, "");
}

/// The number of workers is no part of the result.
#[test]
fn jobs_change_nothing() {
    let text = |jobs| check(&["pageout-write", "-t", "model:5.10", "--jobs", jobs]).stdout;
    assert_eq!(text("1"), text("2"));
}

//! The command as users meet it. Nothing here needs the running kernel.

use assert_cmd::Command;
use serde_json::Value;
use std::path::Path;

fn needless(args: &[&str]) -> Command {
    let mut command = Command::cargo_bin("needless").unwrap();
    command.args(args).env_clear().env("LC_ALL", "C.UTF-8");
    command
}

fn stdout(args: &[&str]) -> String {
    let output = needless(args).assert().success().get_output().clone();
    String::from_utf8(output.stdout).unwrap()
}

fn stderr_of_status(args: &[&str], status: i32) -> String {
    let output = needless(args).assert().code(status).get_output().clone();
    assert!(output.stdout.is_empty(), "results only on standard output");
    String::from_utf8(output.stderr).unwrap()
}

fn json(args: &[&str]) -> Value {
    serde_json::from_str(&stdout(args)).unwrap()
}

const MODELS: [&str; 7] = ["5.8", "5.10", "5.15", "6.1", "6.12", "6.18", "7.3"];

#[test]
fn every_help_starts_with_examples() {
    for verb in [
        &[][..],
        &["run"],
        &["compare"],
        &["bisect"],
        &["kernels", "build"],
        &["explain"],
        &["agree"],
        &["study"],
        &["doctor"],
        &["policies"],
        &["scenario"],
        &["scenario", "list"],
        &["scenario", "show"],
        &["scenario", "check"],
        &["scenario", "fmt"],
    ] {
        let help = stdout(&[verb, &["--help"]].concat());
        assert!(help.starts_with("Examples:\n  needless"), "{verb:?}: {help}");
    }
}

/// The version is `needless 0.1.0 (0123456789ab)`, and says whether the tree was changed.
#[test]
fn the_version_names_the_commit_where_there_is_one() {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let git = |words: &[&str]| {
        let output = std::process::Command::new("git").arg("-C").arg(root).args(words).output();
        output.ok().filter(|output| output.status.success()).map(|output| output.stdout)
    };
    let version = stdout(&["--version"]);
    let version = version.strip_prefix(concat!("needless ", env!("CARGO_PKG_VERSION"))).unwrap();
    let Some(head) = git(&["rev-parse", "HEAD"]).filter(|_| root.join(".git").exists()) else {
        assert_eq!(version, "\n", "neither a clone nor an archive of one");
        return;
    };
    let head = String::from_utf8(head).unwrap();
    let head = head.trim();
    // HEAD may have moved on since the command was built.
    let named = version.strip_prefix(" (").and_then(|rest| rest.trim_end().strip_suffix(')'));
    let commit = named.map(|named| named.strip_suffix(", changed").unwrap_or(named)).unwrap();
    assert!(commit.len() == 12, "{version}");
    assert!(git(&["merge-base", "--is-ancestor", commit, "HEAD"]).is_some(), "{version} of {head}");
    // An archive of the commit has the commit's number in this file (.gitattributes).
    let archive = git(&["archive", "HEAD", "crates/cli/COMMIT"]).unwrap();
    assert!(
        archive.windows(head.len()).any(|part| part == head.as_bytes()),
        "no commit in an archive"
    );
}

#[test]
fn usage_errors_end_with_status_2() {
    for args in [
        &["no-such-verb"][..],
        &["run"],
        &["run", "cow-reuse", "-t", "model:6.13"],
        &["run", "cow-reuse", "-t", "kernel"],
        &["run", "cow-reuse", "-t", "model:6.12,reuse=no-such-rule"],
        &["run", "no-such-scenario", "-t", "model:6.12"],
        &["run", "cow-reuse", "-t", "model:6.12", "--set", "pages"],
        &["run", "cow-reuse", "-t", "model:6.12", "--set", "pagez=3"],
        &["run", "cow-reuse", "-t", "model:6.12", "--rounds", "0"],
        &["explain", "cow-reuse", "-t", "model:6.12", "--rounds", "3", "--round", "3"],
        &["compare", "cow-reuse", "-t", "model:6.12", "--expect"],
        &["scenario", "fmt", "--write", "cow-reuse"],
    ] {
        stderr_of_status(args, 2);
    }
}

#[test]
fn a_bad_scenario_is_pointed_at() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("bad.kdl");
    let text = stdout(&["scenario", "show", "cow-reuse"]).replacen("map ", "mapp ", 1);
    std::fs::write(&path, text).unwrap();
    let message = stderr_of_status(&["scenario", "check", path.to_str().unwrap()], 2);
    assert!(message.contains("bad.kdl") && message.contains("mapp"), "{message}");
}

/// Minor and major faults, and retries, have columns if rows differ in them, and explain steps.
#[test]
fn retries_and_how_faults_count_are_compared() {
    let rows = ["-t", "model:5.8", "-t", "model:5.10", "-t", "model:6.1"];
    let args = [&["compare", "b_pf3_ext4", "--rounds", "2"][..], &rows].concat();
    let document = json(&[&args[..], &["--format", "json"]].concat());
    let column = |name: &str| -> Vec<u64> {
        let targets = document["targets"].as_array().unwrap();
        targets.iter().map(|target| target["per_round"][name].as_u64().unwrap()).collect()
    };
    assert_eq!(column("minor_faults"), [8, 0, 8]);
    assert_eq!(column("major_faults"), [0, 8, 0]);
    assert_eq!(column("retries"), [8, 8, 0]);
    assert_eq!(column("needless_retries"), [8, 8, 0]);
    let text = stdout(&args);
    assert!(text.contains("major") && text.contains("tries"), "{text}");
    assert!(text.contains("retries 8") && text.contains("dirty-retry"), "{text}");
    assert!(!text.contains("the same counts"), "{text}");
    // If rows do not differ in them, they are not shown.
    let text = stdout(&[&["compare", "cow-reuse"][..], &rows].concat());
    assert!(!text.contains("major"), "{text}");
}

#[test]
fn the_study_comes_out_as_published() {
    let targets: Vec<String> = MODELS.iter().map(|kernel| format!("model:{kernel}")).collect();
    let mut args = vec!["compare", "cow-reuse", "--format", "json"];
    args.extend(targets.iter().flat_map(|target| ["-t", target]));
    let document = json(&args);
    let column = |name: &str| -> Vec<u64> {
        let targets = document["targets"].as_array().unwrap();
        targets.iter().map(|target| target["per_round"][name].as_u64().unwrap()).collect()
    };
    assert_eq!(column("shootdowns"), [3, 4, 4, 3, 2, 2, 2]);
    assert_eq!(column("copies"), [0, 1, 1, 0, 0, 0, 0]);
    assert_eq!(column("needless_shootdowns"), [2, 2, 2, 2, 1, 1, 1]);
    assert_eq!(column("needless_copies"), [0, 1, 1, 0, 0, 0, 0]);
    assert_eq!(document["schema_version"], 1);
    assert!(document["targets"][0]["per_round"]["cycles"].is_null());
    assert!(document["targets"][0]["unknown"]["cycles"].is_string());

    let causes: Vec<&Value> = document["steps"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|step| step["changes"].as_array().unwrap())
        .map(|change| {
            assert_eq!(change["explanation"]["kind"], "alone");
            &change["explanation"]["policies"][0]["policy"]
        })
        .collect();
    assert_eq!(causes, ["reuse", "reuse", "swapin-read", "pageout-young"]);
}

#[test]
fn a_single_policy_can_be_set() {
    let args = ["run", "cow-reuse", "--format", "json", "-t"];
    let document = json(&[&args[..], &["model:6.1,reuse=page-count"]].concat());
    assert_eq!(document["targets"][0]["per_round"]["copies"], 1);
}

#[test]
fn rounds_and_parameters_are_obeyed() {
    let document = json(&[
        "run",
        "cow-reuse",
        "-t",
        "model:5.10",
        "--set",
        "pages=8",
        "--rounds",
        "3",
        "--format",
        "json",
    ]);
    let target = &document["targets"][0];
    assert_eq!(target["rounds"], 3);
    assert_eq!(target["samples"]["copies"], serde_json::json!([7, 7, 7]));
}

#[test]
fn the_same_input_gives_the_same_events() {
    let directory = tempfile::tempdir().unwrap();
    let events = |name: &str| {
        let path = directory.path().join(name);
        stdout(&["run", "cow-reuse", "-t", "model:6.12", "--events", path.to_str().unwrap()]);
        std::fs::read(path).unwrap()
    };
    let (first, second) = (events("first"), events("second"));
    assert!(first.starts_with(b"{\"schema_version\":1,\"event_version\":8,"));
    assert!(first.iter().filter(|byte| **byte == b'\n').count() > 100);
    assert_eq!(first, second);
}

#[test]
fn events_that_cannot_be_written_are_told() {
    let args = ["run", "cow-reuse", "-t", "model:6.12", "--events", "/no/such/directory/events"];
    let output = needless(&args).assert().code(125).get_output().clone();
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(message.contains("/no/such/directory/events"), "{message}");
}

#[test]
fn explain_names_functions_and_verdicts() {
    let text = stdout(&["explain", "cow-reuse", "-t", "model:5.10", "--round", "2"]);
    for part in ["wp_page_copy", "flush_tlb_batched_pending", "NEEDLESS: nobody else", "round 2"] {
        assert!(text.contains(part), "no {part} in {text}");
    }
}

#[test]
fn scenarios_are_listed_shown_and_formatted() {
    let list = stdout(&["scenario", "list"]);
    assert!(list.lines().any(|line| line.starts_with("cow-reuse ")), "{list}");
    let names: Vec<String> = json(&["scenario", "list", "--format", "json"])["scenarios"]
        .as_array()
        .unwrap()
        .iter()
        .map(|scenario| scenario["name"].as_str().unwrap().to_owned())
        .collect();
    for name in &names {
        stdout(&["scenario", "check", name]);
        stdout(&["scenario", "show", name]);
    }
    assert!(names.len() > 20);

    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("mine.kdl");
    let text = stdout(&["scenario", "show", "cow-reuse"]);
    std::fs::write(&path, text.replace("    ", "  ")).unwrap();
    stdout(&["scenario", "fmt", "--write", path.to_str().unwrap()]);
    let formatted = std::fs::read_to_string(&path).unwrap();
    assert_eq!(formatted, stdout(&["scenario", "fmt", "cow-reuse"]));
}

#[test]
fn litmus_tests_are_listed_apart() {
    let list = stdout(&["scenario", "list"]);
    let (scenarios, litmus) = list.split_once("\nLitmus tests, for `needless check`:\n").unwrap();
    assert!(litmus.lines().any(|line| line.starts_with("pageout-read ")), "{list}");
    assert!(!scenarios.contains("pageout-read"), "{list}");
    let document = json(&["scenario", "list", "--format", "json"]);
    let litmus = document["litmus"].as_array().unwrap();
    assert!(litmus.iter().any(|test| test["name"] == "pageout-read"), "{document:#}");
    stdout(&["scenario", "check", "pageout-read"]);
}

#[test]
fn what_only_the_model_runs_is_refused_elsewhere() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("mine.kdl");
    let path = path.to_str().unwrap();
    let write = |round: &str, rest: &str| {
        let text = format!(
            "scenario \"mine\" {{ machine {{ cpus 2; swap \"zram\" size=\"1M\" }}
             thread \"t\" cpu=0 {{ map \"heap\" pages=1; rounds 1 {{ write \"heap\"; {round} }} }}
             {rest} }}"
        );
        std::fs::write(path, text).unwrap();
    };
    for (round, rest, text) in [
        ("reclaim \"heap\"", "", "reclaim heap"),
        ("repeat 2 { switch 2 }", "", "switch 2"),
        ("", "kernel-thread \"k\" cpu=1 { reclaim \"heap\" }", "kernel-thread k"),
    ] {
        write(round, rest);
        for args in [
            &["run", path, "-t", "live"][..],
            &["run", path, "-t", "kernel:6.12"],
            &["explain", path, "-t", "live"],
            &["compare", path, "-t", "model:6.12", "-t", "live"],
            &["agree", path, "-t", "live"],
        ] {
            let message = stderr_of_status(args, 2);
            let message = message.split_whitespace().filter(|word| *word != "│");
            let message = message.collect::<Vec<_>>().join(" ");
            for part in [text, "`model:`", "`needless check`", "advice=\"pageout\""] {
                assert!(message.contains(part), "{args:?}: {message}");
            }
        }
        stdout(&["run", path, "-t", "model:6.12"]);
        assert!(!stdout(&["compare", path]).contains("live"), "a table of model rows");
    }
}

#[test]
fn bad_lists_of_cpus_are_usage_errors_with_a_remedy() {
    let told = |target: &str| {
        let message = stderr_of_status(&["run", "cow-reuse", "-t", target], 2);
        let words = message.split_whitespace().filter(|word| *word != "│");
        words.collect::<Vec<_>>().join(" ")
    };
    for (target, what, remedy) in [
        ("live,cpus=1,1", "CPU 1 is named twice", "cpus=2,5"),
        ("live,cpus=0,x", "`x` is no CPU's number", "cpus=2,5"),
        ("live,cpus=", "`` is no CPU's number", "cpus=2,5"),
        ("live,rings=4", "`rings=4` is no option of `live`", "cpus=2,5"),
        ("live,", "`` is no option of `live`", "cpus=2,5"),
        ("live,,events=off", "`` is no option of `live`", "events=off"),
        ("live,cpus=2events=off", "`2events=off` is no CPU's number", "events=off"),
        ("live,events=off,cpus=2", "`events=off,cpus=2` is no option of `live`", "events=off"),
        ("live,cpus=0,60000", "CPU 60000 is not online", "CPUs that can be used here: 0"),
        ("live,cpus=0", "names 1; `cow-reuse` needs 2", "CPUs that can be used here: 0"),
    ] {
        let message = told(target);
        assert!(message.contains(what) && message.contains(remedy), "{target}: {message}");
    }
    stderr_of_status(&["agree", "-t", "live,cpus=0,60000", "cow-reuse"], 2);
    stderr_of_status(&["explain", "cow-reuse", "-t", "live,cpus=0"], 2);
}

#[test]
fn colour_is_off_in_a_pipe_and_on_when_forced() {
    let args = ["compare", "cow-reuse", "-t", "model:6.12"];
    assert!(!stdout(&args).contains('\u{1b}'));
    assert!(stdout(&[&args[..], &["--color", "always"]].concat()).contains('\u{1b}'));
    let mut forced = needless(&args);
    forced.env("CLICOLOR_FORCE", "1");
    let output = forced.assert().success().get_output().clone();
    assert!(output.stdout.contains(&0x1b));
}

#[test]
fn a_locale_without_utf_8_gets_ascii() {
    let mut command = needless(&["compare", "z_munmap_1", "-t", "model:6.12", "-t", "model:7.3"]);
    let output = command.env("LC_ALL", "C").assert().success().get_output().clone();
    assert!(output.stdout.is_ascii(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    use std::process::{Command, Stdio};
    let mut child = Command::new(assert_cmd::cargo::cargo_bin("needless"))
        .args(["policies", "--format", "json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success());
}

#[test]
fn completions_and_manual_pages_are_made() {
    assert!(stdout(&["completions", "bash"]).contains("needless"));
    assert!(stdout(&["man"]).contains(".TH needless 1"));
    let directory = tempfile::tempdir().unwrap();
    stdout(&["man", directory.path().to_str().unwrap()]);
    for page in ["needless", "needless-compare", "needless-completions", "needless-kernels-fetch"] {
        let text = std::fs::read_to_string(directory.path().join(format!("{page}.1"))).unwrap();
        assert!(text.contains(&format!(".TH {page} 1")), "{text}");
        let example = page.replace('-', " ").replace(' ', "\\ ");
        let example = [page.replace('-', " "), example];
        let (_, examples) = text.split_once(".SH EXAMPLES").unwrap();
        assert!(example.iter().any(|words| examples.contains(words)), "{page}: {examples}");
    }
}

#[test]
fn what_explains_the_command_is_shown() {
    let help = stdout(&["--help"]);
    for verb in ["completions", "man", "help"] {
        assert!(help.lines().any(|line| line.trim_start().starts_with(verb)), "{verb}: {help}");
    }
    assert_eq!(stdout(&["help", "run"]), stdout(&["run", "--help"]));
    assert_eq!(stdout(&["help"]), help);
    let readme = include_str!("../../../../README.md");
    for told in ["needless help", "needless man", "needless completions", "violation (`check`)"] {
        assert!(readme.contains(told), "{told}");
    }
}

#[test]
fn policies_name_every_kernel() {
    let text = stdout(&["policies"]);
    for kernel in MODELS {
        assert!(text.contains(kernel));
    }
    let one = stdout(&["policies", "shootdown"]);
    assert!(one.contains("\nshootdown  ") && !one.contains("\nreuse  "), "{one}");
    // Each policy is listed once, below the heading of its subject.
    let policies = json(&["policies", "--format", "json"]);
    for policy in policies["policies"].as_array().unwrap() {
        let name = policy["name"].as_str().unwrap();
        let heading = format!("\n# {}\n", policy["group"].as_str().unwrap());
        let below = text.split_once(&heading).unwrap_or_else(|| panic!("{heading}")).1;
        let below = below.split("\n# ").next().unwrap();
        assert!(below.contains(&format!("\n{name}  ")), "{name} below {heading}");
        assert_eq!(text.matches(&format!("\n{name}  ")).count(), 1, "{name}");
    }
}

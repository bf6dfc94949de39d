//! Text that others chose reaches no output raw: names of files and tasks, and every string of a
//! saved document.
//!
//! Sources that this program does not read by itself are tested where they are read: symbols
//! (crates/watch/src/sites.rs), versions of images, lines of compilers, consoles and git
//! (crates/guest/src).

use needless_testing::foreign::HOSTILE;
use serde_json::{Map, Value};
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

fn needless(args: &[&str]) -> Output {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin("needless"));
    // Colours are on: the output must be harmless on a terminal, too.
    command.args(["--color", "always"]).args(args).env("LC_ALL", "C.UTF-8");
    command.output().unwrap()
}

fn harmless(output: &Output, what: &str) -> String {
    needless_testing::foreign::harmless(&[output.stdout.as_slice(), &output.stderr].concat(), what)
}

/// A document with foreign text in each of its strings, and before each key of a map of figures.
fn hostile(value: &Value, keys: bool) -> Value {
    match value {
        Value::String(text) => Value::String(format!("{text}{HOSTILE}")),
        Value::Array(all) => all.iter().map(|value| hostile(value, keys)).collect(),
        Value::Object(all) => {
            let maps =
                ["parameters", "environment", "per_round", "kernel_counters", "faults_by_class"];
            let renamed = |(key, value): (&String, &Value)| {
                let inside = keys && maps.contains(&key.as_str());
                let value = match value.as_object().filter(|_| inside) {
                    Some(map) => map
                        .iter()
                        .map(|(k, v)| (format!("{k}{HOSTILE}"), hostile(v, keys)))
                        .collect::<Map<_, _>>()
                        .into(),
                    None => hostile(value, keys),
                };
                (key.clone(), value)
            };
            all.iter().map(renamed).collect::<Map<_, _>>().into()
        }
        other => other.clone(),
    }
}

fn saved(folder: &Path, name: &str, document: &Value) -> String {
    let path = folder.join(name);
    fs::write(&path, document.to_string()).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn no_string_of_a_saved_document_steers() {
    let folder = tempfile::tempdir().unwrap();
    let ran = needless(&["compare", "cow-reuse", "-t", "model:6.12", "--format", "json"]);
    let good: Value = serde_json::from_slice(&ran.stdout).unwrap();
    let first = saved(folder.path(), "a.json", &good);
    let mut documents = vec![hostile(&good, false), hostile(&good, true)];
    // A target that did not run is described by other words.
    let mut silent = good.clone();
    silent["targets"][0]["status"] = Value::from(HOSTILE);
    silent["targets"][0]["reason"] = Value::from(HOSTILE);
    documents.push(silent);
    // The status is compared with one word. Without foreign text in it, figures are shown.
    for document in &mut documents[..2] {
        document["targets"][0]["status"] = Value::from("ran");
    }
    for document in documents {
        let second = saved(folder.path(), &format!("b{HOSTILE}.json"), &document);
        for format in ["text", "json"] {
            for pair in [[&first, &second], [&second, &first], [&second, &second]] {
                let output = needless(&["compare", pair[0], pair[1], "--format", format]);
                assert_eq!(output.status.code(), Some(0), "{output:?}");
                let shown = harmless(&output, format);
                assert!(shown.contains("u{1b}") || pair[0] == pair[1], "{shown}");
            }
        }
    }
}

#[test]
fn no_name_of_a_file_steers() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &[u8]| {
        let path = folder.path().join(format!("{name}{HOSTILE}"));
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let thread = "thread \"main\" cpu=0 { map \"a\" pages=1; rounds 2 { read \"a[0]\" } }";
    let good = file("good", format!("scenario \"mine\" {{ {thread} }}\n").as_bytes());
    let bad = file("bad", format!("scenario \"mine\" {{ {thread} nonsense }}\n").as_bytes());
    let text = file("text", b"Dear maintainer\n");
    let missing = format!("{}/none{HOSTILE}", folder.path().to_str().unwrap());
    let image = |path: &str| format!("kernel:{}", path.replace(',', "-"));
    let (image, no_image) = (image(&text), image(&missing));
    let kernel = ["-t", "model:6.12"];
    let model = |verb: &'static str, path| [&[verb, path][..], &kernel].concat();
    let build = |path| vec!["kernels", "build", "6.12", "--patch", path];
    let tree = |path| vec!["bisect", "cow-reuse", "--tree", path, "--good", "a", "--bad", "b"];
    let report = format!("{missing}/report");
    for args in [
        vec!["scenario", "check", &good],
        vec!["scenario", "check", &bad],
        vec!["scenario", "check", &missing],
        vec!["scenario", "show", &good],
        vec!["scenario", "fmt", &good],
        vec!["scenario", "fmt", "--write", &good],
        model("run", &good),
        model("run", &bad),
        model("compare", &good),
        model("explain", &good),
        [&model("run", &good)[..], &["--events", &report]].concat(),
        vec!["check", &good, "-t", "model:6.12"],
        vec!["check", &missing],
        vec!["compare", &good, &missing],
        vec!["compare", &text, &text],
        vec!["run", "cow-reuse", "-t", &image],
        vec!["run", "cow-reuse", "-t", &no_image],
        build(&text),
        build(&missing),
        vec!["kernels", "build", "6.12", "--config", &missing],
        vec!["kernels", "build", "6.12", "--name", &missing],
        tree(&missing),
        tree(folder.path().to_str().unwrap()),
        vec!["stat", "-o", &report, "--", "true"],
        vec!["stat", "--", &missing],
        vec!["study", "cow-reuse", "-o", &report],
        vec!["agree", "-t", "model:6.12", "--report", &report],
        // Cases in which the command line itself has foreign text.
        vec!["run", &good, &missing],
        vec!["no-such-verb\u{1b}[2J"],
        vec!["run", "cow-reuse", "-t", HOSTILE],
        vec!["run", "cow-reuse", "-t", "model:6.12", "--set", HOSTILE],
        vec!["study", HOSTILE],
        vec!["policies", HOSTILE],
    ] {
        harmless(&needless(&args), &format!("{args:?}"));
    }
}

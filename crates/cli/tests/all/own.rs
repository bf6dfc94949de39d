//! A user's own kernels, and expectations. No kernel is booted and none is compiled.

use assert_cmd::Command;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

fn needless(args: &[&str]) -> Command {
    let mut command = Command::cargo_bin("needless").unwrap();
    command.args(args).env_clear().env("LC_ALL", "C.UTF-8").env("NO_COLOR", "1");
    command
}

/// The standard error of a command that ends with this status and prints no result.
fn refused(args: &[&str], status: i32) -> String {
    let output = needless(args).assert().code(status).get_output().clone();
    assert!(output.stdout.is_empty(), "{args:?}: results only on standard output");
    let text = String::from_utf8(output.stderr).unwrap();
    let words = text.split_whitespace().filter(|word| *word != "│");
    words.collect::<Vec<_>>().join(" ")
}

fn stdout(args: &[&str], status: i32) -> String {
    let output = needless(args).assert().code(status).get_output().clone();
    String::from_utf8(output.stdout).unwrap()
}

/// The header of a bzImage that states its own length: this much, and 16 bytes more for each
/// `more`.
pub(super) fn bzimage(more: u32) -> Vec<u8> {
    let mut bytes = vec![0; 1024];
    let mut put = |at: usize, part: &[u8]| bytes[at..at + part.len()].copy_from_slice(part);
    put(0x1f1, &[1]);
    put(0x1f4, &more.to_le_bytes());
    put(0x1fe, &[0x55, 0xaa]);
    put(0x202, b"HdrS");
    put(0x206, &[0x0f, 0x02]);
    put(0x20e, &[0, 1]);
    put(0x211, &[1]);
    put(0x236, &[1]);
    put(0x300, b"6.12.9-mine (me@here) #1\0");
    bytes
}

fn file(folder: &Path, name: &str, bytes: &[u8]) -> PathBuf {
    let path = folder.join(name);
    fs::write(&path, bytes).unwrap();
    path
}

#[test]
fn what_is_no_image_is_refused_before_anything_runs() {
    let folder = tempfile::tempdir().unwrap();
    for (name, bytes, message) in [
        ("script", b"#!/bin/sh\n".to_vec(), "no kernel image"),
        ("empty", Vec::new(), "no kernel image"),
        ("cut", bzimage(4), "truncated"),
        ("vmlinux", b"\x7fELF\x02\x01".to_vec(), "ELF"),
        ("Image.gz", b"\x1f\x8b\x08".to_vec(), "gzip"),
        ("riscv", [vec![0; 0x38], b"RSC\x05".to_vec()].concat(), "RISC-V"),
    ] {
        let path = file(folder.path(), name, &bytes);
        let target = format!("kernel:{},cpus=3", path.to_str().unwrap());
        for verb in ["run", "compare", "explain"] {
            let told = refused(&[verb, "cow-reuse", "-t", &target], 2);
            assert!(told.contains(message) && told.contains("make bzImage"), "{told}");
        }
    }
    for (rest, message) in [
        (",row=6.13", "no kernel row `6.13`"),
        (",row=6.12,cpus=3", "row= takes all that follows"),
        (",modules=/no/such/folder", "no folder"),
        (",cpu=cortex-a72", "cpu, for x86-64, is max"),
    ] {
        let path = file(folder.path(), "bzImage", &bzimage(0));
        let target = format!("kernel:{}{rest}", path.to_str().unwrap());
        let told = refused(&["run", "cow-reuse", "-t", &target], 2);
        assert!(told.contains(message), "{rest}: {told}");
    }
    // The archive is not asked for a name that it cannot have.
    for name in ["kernel:6.12+fix", "kernel:6.12+fix/arm64"] {
        assert!(refused(&["run", "cow-reuse", "-t", name], 2).contains("needless kernels build"));
    }
    let told = refused(&["run", "cow-reuse", "-t", "kernel:mine"], 2);
    assert!(told.contains("needless kernels build"), "{told}");
}

#[test]
fn expectations_are_checked_before_anything_runs() {
    for (condition, message) in [
        ("shootdown<=2", "there are faults, minor_faults,"),
        ("shootdowns<=many", "`many` is no number"),
        ("cow-reuse", "is no condition"),
    ] {
        let told = refused(&["compare", "no-such-scenario", "--expect", condition], 2);
        assert!(told.contains(message), "{told}");
    }
    let told = refused(&["compare", "cow-reuse", "-t", "model:6.12", "--git-bisect"], 2);
    assert!(told.contains("--expect"), "{told}");
}

const ROWS: [&str; 6] = ["compare", "cow-reuse", "-t", "model:6.12", "-t", "model:5.10"];

#[test]
fn expectations_decide_the_exit_status() {
    for (expected, status) in [
        (&["--expect", "shootdowns<=4"][..], 0),
        (&["--expect", "shootdowns<=2"], 1),
        (&["--expect", "shootdowns<=4", "--expect", "copies=0"], 1),
        (&["--expect", "cycles<=900"], 3),
        (&["--expect", "cycles<=900", "--expect", "copies=0"], 1),
        (&["--expect", "cycles<=900", "--git-bisect"], 125),
        (&["--expect", "shootdowns<=2", "--git-bisect"], 1),
        (&["--expect", "shootdowns<=4", "--git-bisect"], 0),
    ] {
        let text = stdout(&[&ROWS[..], expected].concat(), status);
        assert!(text.contains("expected\n"), "{text}");
    }
    // Whatever goes wrong, git has to pass over the commit.
    refused(&["compare", "no-such-scenario", "--expect", "copies=0", "--git-bisect"], 125);
    let image = ["compare", "cow-reuse", "-t", "kernel:./no/bzImage", "--expect", "--git-bisect"];
    refused(&image, 125);
}

#[test]
fn what_is_not_as_expected_is_in_every_format() {
    let with = |format: &str| {
        stdout(&[&ROWS[..], &["--expect", "shootdowns<=2", "--format", format]].concat(), 1)
    };
    let text = with("text");
    assert!(text.contains("model:5.10: shootdowns<=2: no: it is 4 in 100 of 100 rounds"), "{text}");
    assert!(text.contains("model:6.12: shootdowns<=2: yes"), "{text}");
    let junit = with("junit");
    assert!(junit.contains(r#"tests="4""#) && junit.contains(r#"failures="1""#), "{junit}");
    let tap = with("tap");
    assert!(tap.starts_with("TAP version 14\n1..4\n") && tap.contains("\nnot ok 4 - "), "{tap}");
    let document: Value = serde_json::from_str(&with("json")).unwrap();
    let schema = include_str!("../../../../docs/schema/compare.schema.json");
    let validator = jsonschema::validator_for(&serde_json::from_str(schema).unwrap()).unwrap();
    assert!(validator.is_valid(&document), "{:#}", document["expectations"]);
    let verdicts: Vec<&Value> =
        document["expectations"].as_array().unwrap().iter().map(|case| &case["verdict"]).collect();
    assert_eq!(verdicts, ["met", "met", "met", "missed"]);
}

#[test]
fn a_search_needs_two_kernels_of_the_archive() {
    let folder = tempfile::tempdir().unwrap();
    let image = format!("kernel:{}", file(folder.path(), "bzImage", &bzimage(0)).to_str().unwrap());
    for (good, bad, message) in [
        ("model:6.1", "kernel:6.12", "no kernel of the archive"),
        ("kernel:6.1", "live", "no kernel of the archive"),
        ("kernel:6.1", image.as_str(), "no place among"),
        ("kernel:6.1/arm64", "kernel:6.12/arm64", "no sequences"),
        ("kernel:6.1", "kernel:6.12,cpus=3", "booted differently"),
        ("kernel:6.1,", "kernel:6.12", "an option is missing"),
    ] {
        let told = refused(&["bisect", "cow-reuse", "--good", good, "--bad", bad], 2);
        assert!(told.contains(message), "{good} {bad}: {told}");
    }
    let told = refused(&["bisect", "cow-reuse", "--good", "kernel:6.1"], 2);
    assert!(told.contains("--bad"), "{told}");
    let nowhere = folder.path().join("nowhere");
    for (tree, message) in [(folder.path(), "not a git repository"), (&nowhere, "No such file")] {
        let tree = ["--tree", tree.to_str().unwrap()];
        let told = refused(
            &[&["bisect", "cow-reuse", "--good", "a", "--bad", "b"], &tree[..]].concat(),
            2,
        );
        assert!(told.contains(message) && told.contains("--tree names a git tree"), "{told}");
    }
}

#[test]
fn what_cannot_be_built_is_refused_before_anything_is_fetched() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("no.patch");
    let missing = missing.to_str().unwrap();
    let letter = file(folder.path(), "letter", b"Dear maintainer\n");
    for (args, status, message) in [
        (&["6.12.3"][..], 2, "no series"),
        (&["six"], 2, "no series"),
        (&["6.12", "--name", "../6.12"], 2, "cannot be called"),
        (&["6.12", "--name", "6.12"], 2, "cannot be called"),
        (&["6.12", "--patch", missing], 2, "no.patch: No such file"),
        (
            &["6.12", "--patch", letter.to_str().unwrap()],
            2,
            "letter does not apply: it names no file",
        ),
    ] {
        let told = refused(&[&["kernels", "build"], args].concat(), status);
        assert!(told.contains(message) && !told.contains("XDG_CACHE_HOME"), "{args:?}: {told}");
    }
}

/// git refuses it, and says what helps.
#[test]
fn a_repository_of_another_user_is_named_as_such() {
    if !rustix::process::geteuid().is_root() {
        needless_testing::skip!("root gives a repository to another user");
    }
    let folder = tempfile::tempdir().unwrap();
    let tree = folder.path().to_str().unwrap();
    for words in [&["git", "init", "--quiet", tree][..], &["chown", "-R", "65534", tree]] {
        let done = std::process::Command::new(words[0]).args(&words[1..]).status();
        assert!(done.unwrap().success(), "{words:?}");
    }
    let told = refused(&["bisect", "cow-reuse", "--tree", tree, "--good", "a", "--bad", "b"], 2);
    assert!(told.contains("dubious ownership") && told.contains("safe.directory"), "{told}");
}

/// Hooks and wrappers set variables that name another repository. What is staged there stays
/// staged, and HEAD stays where it is.
#[test]
fn no_variable_of_gits_leads_a_search_to_change_a_repository() {
    let needed = ["/usr/include/libelf.h", "/usr/include/openssl/opensslv.h", "/usr/bin/bison"];
    if let Some(missing) = needed.iter().find(|path| !Path::new(path).exists()) {
        needless_testing::skip!("{missing} is missing, without which no kernel is compiled");
    }
    let [folder, cache] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let repository = folder.path().join("repository");
    fs::create_dir(&repository).unwrap();
    let git = |words: &[&str]| {
        let own = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main"];
        let mut command = std::process::Command::new("git");
        command.arg("-C").arg(&repository).args(own).args(words).env_clear();
        let done = command.env("PATH", std::env::var_os("PATH").unwrap()).output().unwrap();
        assert!(done.status.success(), "{words:?}: {}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8(done.stdout).unwrap()
    };
    git(&["init", "--quiet"]);
    for commit in ["1", "2", "3", "4"] {
        file(&repository, "file", commit.as_bytes());
        git(&["add", "file"]);
        git(&["commit", "--quiet", "-m", commit]);
    }
    file(&repository, "staged", b"s");
    git(&["add", "staged"]);
    let state = || git(&["status", "--porcelain", "--branch"]) + &git(&["log", "--oneline", "-1"]);
    let before = state();
    let git_dir = repository.join(".git");
    let path = std::env::var_os("PATH").unwrap();
    for variables in [
        &[("GIT_DIR", git_dir.clone())][..],
        &[("GIT_DIR", git_dir.clone()), ("GIT_WORK_TREE", repository.clone())],
        &[("GIT_INDEX_FILE", git_dir.join("index"))],
    ] {
        let tree = repository.to_str().unwrap();
        let mut command =
            needless(&["bisect", "cow-reuse", "--tree", tree, "--good", "HEAD~3", "--bad", "HEAD"]);
        command.env("PATH", &path).env("XDG_CACHE_HOME", cache.path());
        let output = command.envs(variables.iter().cloned()).output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        // The commit has no makefile: it was checked out and could not be compiled.
        assert!(told.contains("Makefile"), "{told}");
        assert_eq!(state(), before, "{variables:?}");
    }
}

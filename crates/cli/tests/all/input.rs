//! Bad and large input is refused at its place, with status 2 and a message on standard error.

use assert_cmd::Command;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tempfile::TempDir;

fn needless(args: &[&str]) -> Command {
    let mut command = Command::cargo_bin("needless").unwrap();
    command.args(args).env_clear().env("LC_ALL", "C.UTF-8").env("NO_COLOR", "1");
    command
}

/// The standard error of a command that ends with this status and prints no result.
fn refused(args: &[&str], status: i32) -> String {
    let output = needless(args).assert().code(status).get_output().clone();
    assert!(output.stdout.is_empty(), "{args:?}: results only on standard output");
    String::from_utf8(output.stderr).unwrap()
}

struct Folder(TempDir);

impl Folder {
    fn new() -> Folder {
        Folder(tempfile::tempdir().unwrap())
    }

    fn file(&self, name: &str, text: &str) -> String {
        let path = self.path(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}

fn scenario(body: &str, rest: &str) -> String {
    format!("scenario \"mine\" {{\n thread \"main\" cpu=0 {{\n{body}\n}}\n{rest}\n}}\n")
}

#[test]
fn a_bad_scenario_is_refused_by_every_verb_on_every_target() {
    let folder = Folder::new();
    let waits = "thread \"other\" cpu=1 { repeat 2 { barrier \"go\" } }";
    for (name, text, message) in [
        (
            "waits",
            scenario("map \"a\" pages=1\nrounds 3 { barrier \"go\" }", waits),
            "barrier `go`",
        ),
        (
            "outside",
            scenario("map \"a\" pages=2\nrounds 2 as=\"r\" { read \"a[r*r+1]\" }", ""),
            "outside `a`",
        ),
        ("twice", scenario("map \"a\" pages=1\nrounds 2 { map \"a\" }", ""), "EEXIST"),
        (
            "unmapped",
            scenario("map \"a\" pages=1\nrounds 2 { read \"a\"; munmap \"a\" }", ""),
            "SIGSEGV",
        ),
    ] {
        let path = folder.file(name, &text);
        for args in [
            &["scenario", "check"][..],
            &["run", "-t", "model:6.12"],
            &["run", "-t", "live"],
            &["run", "-t", "kernel:6.12"],
            &["run", "-t", "model:6.12", "--format", "json"],
            &["compare"],
            &["compare", "-t", "model:5.10", "-t", "model:7.3"],
            &["explain", "-t", "model:6.12"],
            &["explain", "-t", "live"],
            &["agree", "-t", "live"],
            &["check", "-t", "model:6.12"],
        ] {
            let text = refused(&[args, &[path.as_str()]].concat(), 2);
            let words = text.split_whitespace().filter(|word| *word != "│");
            let words = words.collect::<Vec<_>>().join(" ");
            assert!(words.contains(message), "{args:?}: {text}");
            assert!(text.contains(&format!("{name}:4:")), "{args:?} names the place: {text}");
        }
    }
}

/// 200 forks of a process that forks 200 times, and so on: more lives than 64 bits can count.
#[test]
fn processes_that_begin_too_often_are_refused() {
    let folder = Folder::new();
    let forks = |name: &str| format!("repeat 200 {{ fork \"{name}\"; wait \"{name}\" }}");
    let links = (1..10)
        .map(|n| format!("process \"p{n}\" cpu={n} {{ {} }}\n", forks(&format!("p{}", n + 1))));
    let last = "process \"p10\" cpu=10 { read \"a\" }";
    let rest = links.chain([last.to_owned()]).collect::<String>();
    let body = format!("map \"a\" pages=1\nrounds 1 {{ {} }}", forks("p1"));
    let path = folder.file("chain", &scenario(&body, &rest));
    let message = refused(&["check", &path, "-t", "model:6.12"], 2);
    assert!(message.contains("10000"), "{message}");
}

#[test]
fn a_row_that_lacks_an_operation_is_another_matter() {
    let folder = Folder::new();
    let text =
        scenario("map \"a\" pages=1\nrounds 1 { madvise \"a\" advice=\"populate-read\" }", "");
    let path = folder.file("populate", &text);
    let message = refused(&["run", &path, "-t", "model:5.10"], 121);
    assert!(
        message.contains("MADV_POPULATE_READ") && message.contains("-t model:5.15"),
        "{message}"
    );
    needless(&["run", &path, "-t", "model:6.12"]).assert().success();
}

#[test]
fn mistakes_in_targets_are_pointed_at() {
    let started = Instant::now();
    for (target, place, message) in [
        ("kernel:6.12,", "", "an option is missing"),
        ("kernel:6.12,cpus=2,cpus=3", "cpus=3", "given twice"),
        ("kernel:9.9", "9.9", "kernels fetch 9.9"),
        ("kernel:3.2", "3.2", "not cached"),
        ("model:6.12,reuse=mapcount,reuse=page-count", "reuse=page-count", "given twice"),
        ("model:6.12,mglru=on,mglru=off", "mglru=off", "given twice"),
        ("model:6.12,", "", "not understood"),
    ] {
        let message_of = refused(&["run", "cow-reuse", "-t", target], 2);
        let words = message_of.split_whitespace().filter(|word| *word != "│");
        assert!(words.collect::<Vec<_>>().join(" ").contains(message), "{target}: {message_of}");
        let line = message_of.lines().find(|line| line.starts_with("   ·")).unwrap();
        let marked = line.chars().filter(|c| matches!(c, '─' | '┬' | '▲')).count();
        assert_eq!(marked, place.len().max(1), "{target}: {message_of}");
    }
    let long =
        format!("kernel:6.12{},nonsense=1{}", ",cpus=2".repeat(2500), ",mem=2G".repeat(2500));
    for target in
        [&long, &format!("model:6.12{}", ",reuse=mapcount".repeat(5000)), &"x".repeat(50_000)]
    {
        let told = refused(&["run", "cow-reuse", "-t", target], 2);
        assert!(told.len() < 4000, "{} bytes: {}", told.len(), &told[..1000]);
    }
    assert!(started.elapsed() < Duration::from_secs(20), "nothing is asked of the archive");
}

/// The cause of a failure comes at the end of its message, once.
#[test]
fn a_cause_is_told_once() {
    let folder = Folder::new();
    let nowhere = folder.path("no/such/folder/x");
    let nowhere = nowhere.to_str().unwrap();
    for args in [
        &["run", "cow-reuse", "-t", "model:6.12", "--events", nowhere][..],
        &["scenario", "check", folder.0.path().to_str().unwrap()],
        &["scenario", "check", "/proc/self/mem"],
        &["stat", "-o", nowhere, "--", "true"],
    ] {
        let output = needless(args).output().unwrap();
        let told = String::from_utf8(output.stderr).unwrap();
        let causes = told.matches("os error").count();
        assert!(
            !told.contains("╰─▶") && causes <= 1 && !told.contains("at path"),
            "{args:?}: {told}"
        );
    }
}

#[test]
fn what_is_no_file_is_refused_at_once() {
    let folder = Folder::new();
    let pipe = folder.path("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    let large = folder.path("large");
    std::fs::File::create(&large).unwrap().set_len(1 << 40).unwrap();
    let started = Instant::now();
    for (path, why) in [
        (Path::new("/dev/zero"), "a device"),
        (&pipe, "a pipe"),
        (folder.0.path(), "a directory"),
        (&large, "at most 262144 bytes"),
    ] {
        for verb in
            [&["scenario", "check"][..], &["scenario", "show"], &["run", "-t", "model:6.12"]]
        {
            let message = refused(&[verb, &[path.to_str().unwrap()]].concat(), 2);
            let words = message.split_whitespace().filter(|word| *word != "│");
            assert!(words.collect::<Vec<_>>().join(" ").contains(why), "{message}");
        }
    }
    assert!(started.elapsed() < Duration::from_secs(30), "{:?}", started.elapsed());
}

#[test]
fn nothing_of_a_scenario_steers_the_terminal() {
    let folder = Folder::new();
    for (name, what) in
        [("raw", "\u{1b}]0;title\u{7}"), ("escape", "\\u{1b}[2J"), ("c1", "\u{9b}2J")]
    {
        for text in [
            scenario(&format!("map \"a\" pages=1\nrounds 1 {{ mark \"{what}\" }}"), ""),
            scenario(&format!("doc \"{what}\"\nmap \"a\" pages=1\nrounds 1 {{}}"), ""),
            format!("// {what}\n\"{what}\" \"{what}\""),
        ] {
            let path = folder.file(name, &text);
            for args in [
                &["scenario", "check"][..],
                &["scenario", "show"],
                &["scenario", "fmt"],
                &["run", "-t", "model:6.12"],
            ] {
                let output = needless(&[args, &[path.as_str()]].concat()).output().unwrap();
                let all = [output.stdout, output.stderr].concat();
                let all = String::from_utf8(all).unwrap();
                assert!(!all.contains(|c: char| c != '\n' && c.is_control()), "{args:?}: {all:?}");
            }
        }
    }
}

#[test]
fn memory_does_not_grow_with_rounds() {
    let folder = Folder::new();
    let events = folder.path("events");
    for args in [
        &["run", "z_munmap_34", "-t", "model:6.12", "--rounds", "20000"][..],
        &[
            "run",
            "z_munmap_34",
            "-t",
            "model:5.10",
            "--rounds",
            "3000",
            "--events",
            events.to_str().unwrap(),
        ],
        &["compare", "cow-reuse", "-t", "model:5.10", "-t", "model:6.1", "--rounds", "20000"],
    ] {
        needless(&[args, &["--max-memory", "64"]].concat()).assert().success();
    }
    assert!(
        std::fs::metadata(&events).unwrap().len() > 64 << 20,
        "more than was allowed in memory"
    );
}

#[test]
fn a_run_that_needs_more_memory_than_it_may_have_is_ended() {
    let folder = Folder::new();
    for (name, body) in [
        ("rounds", "map \"a\" pages=99999999\nrounds 1 { write \"a\" }"),
        ("setup", "map \"a\" pages=99999999\nwrite \"a\"\nrounds 1 {}"),
        ("call", "map \"a\" pages=99999999\nrounds 1 { madvise \"a\" advice=\"populate-write\" }"),
    ] {
        let path = folder.file(name, &scenario(body, ""));
        let message = refused(&["run", &path, "-t", "model:6.12", "--max-memory", "100"], 3);
        assert!(message.contains("--max-memory"), "{name}: {message}");
        let args = ["compare", &path, "-t", "model:6.12", "--max-memory", "100"];
        needless(&args).assert().code(3);
    }
}

/// Everything that a call sets (markers, zero pages, page tables, files) is bounded. A run that
/// takes too much ends with a status, not with an abort.
#[test]
fn no_call_takes_more_memory_than_a_run_may_have() {
    let folder = Folder::new();
    let register = |features: &str| {
        format!("uffdio_register \"a\" mode=\"missing-wp\" features=\"{features}\"\n")
    };
    for (name, pages, row, body) in [
        ("guards", "1G", "6.18", "madvise \"a\" advice=\"guard-install\"".to_owned()),
        ("zeros", "1G", "6.18", "madvise \"a\" advice=\"populate-read\"".to_owned()),
        ("most", "3G", "6.18", "madvise \"a\" advice=\"guard-install\"".to_owned()),
        (
            "markers",
            "1G",
            "6.18",
            register("unpopulated") + "uffdio_writeprotect \"a\" mode=\"protect\"",
        ),
        ("filled", "1G", "6.12", register("none") + "uffdio_fill \"a\" by=\"zeropage\""),
        ("apart", "3G", "5.10", "touch \"a\" access=\"read\" stride=512".to_owned()),
    ] {
        let body = format!("map \"a\" pages=\"{pages}\"\nrounds 1 warmup=0 {{ {body} }}");
        let path = folder.file(name, &scenario(&body, ""));
        let limited = |words: &str| {
            let needless = env!("CARGO_BIN_EXE_needless");
            let command = format!("ulimit -v 4000000; exec {needless} {words}");
            std::process::Command::new("sh").args(["-c", &command]).output().unwrap()
        };
        let checked = limited(&format!("scenario check {path}"));
        assert_eq!(checked.status.code(), Some(0), "{name}: {checked:?}");
        let ran = limited(&format!("run {path} -t model:{row} --max-memory 200"));
        let message = String::from_utf8_lossy(&ran.stderr);
        assert_eq!(ran.status.code(), Some(3), "{name}: {message}");
        assert!(message.contains("--max-memory"), "{name}: {message}");
    }
}

/// Without `--max-memory` the process's own limit counts.
#[test]
fn a_limit_of_addresses_is_no_abort() {
    let folder = Folder::new();
    let body = "map \"a\" pages=\"64M\"\nrounds 1 { write \"a\" }";
    let path = folder.file("write", &scenario(body, ""));
    let needless = env!("CARGO_BIN_EXE_needless");
    for (words, bounded) in [
        (format!("run {path} -t model:6.12"), 3),
        ("check pageout-read -t model:6.12 --jobs 2".to_owned(), 0),
    ] {
        let command = format!("ulimit -v 600000; exec {needless} {words}");
        let output = std::process::Command::new("sh").args(["-c", &command]).output().unwrap();
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(bounded), "{words}: {message}");
    }
}

#[test]
fn files_without_an_end_are_refused_wherever_one_is_named() {
    let folder = Folder::new();
    let good = folder.file("a.json", "{}");
    let pipe = folder.path("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let pipe = pipe.to_str().unwrap();
    for (arguments, why) in [
        (&["compare", "/dev/zero", &good][..], "a device"),
        (&["compare", pipe, &good], "a pipe"),
        (&["agree", "-t", "live", "--random", "1", "--seeds", "/dev/full"], "a device"),
        (&["agree", "-t", "live", "--random", "1", "--seeds", &good], "no file of seeds"),
        (&["kernels", "build", "6.12", "--patch", "/dev/zero"], "a device"),
        (&["kernels", "build", "6.12", "--config", pipe], "a pipe"),
    ] {
        let message = refused(arguments, 2);
        let words = message.split_whitespace().filter(|word| *word != "│");
        assert!(words.collect::<Vec<_>>().join(" ").contains(why), "{arguments:?}: {message}");
    }
}

#[test]
fn a_line_of_help_that_cannot_be_written_is_a_failure() {
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let needless = env!("CARGO_BIN_EXE_needless");
    let help = std::process::Command::new(needless).arg("help").stdout(full).status().unwrap();
    assert_eq!(help.code(), Some(125));
    for words in ["scenario list", "help", "--version"] {
        let closed = format!("exec {needless} {words} >&-");
        let output = std::process::Command::new("sh").args(["-c", &closed]).output().unwrap();
        assert_eq!(output.status.code(), Some(125), "{words}: {output:?}");
    }
}

#[test]
fn a_dash_is_no_file_to_write() {
    for arguments in [
        &["run", "cow-reuse", "-t", "model:6.12", "--events", "-"][..],
        &["run", "cow-reuse", "-t", "model:6.12", "-o", "-"],
        &["compare", "cow-reuse", "-t", "model:6.12", "--events", "-"],
        &["check", "pageout-read", "-t", "model:6.12", "-o", "-"],
        &["study", "cow-reuse", "-o", "-"],
        &["agree", "-t", "live", "--report", "-"],
        &["agree", "-t", "live", "--random", "1", "--seeds", "-"],
        &["stat", "-o", "-", "--", "true"],
        &["stat", "--perfetto", "-", "--", "true"],
    ] {
        let message = refused(arguments, 2);
        assert!(message.contains("/dev/stdout"), "{arguments:?}: {message}");
    }
}

/// One of them would replace the other.
#[test]
fn two_results_are_not_written_to_one_file() {
    let folder = Folder::new();
    let (file, roundabout) = (folder.path("x"), folder.0.path().join(".").join("x"));
    let [file, roundabout] = [file, roundabout].map(|path| path.to_str().unwrap().to_owned());
    for arguments in [
        &["run", "cow-reuse", "-t", "model:6.12", "-o", &file, "--events", &roundabout][..],
        &["compare", "cow-reuse", "-t", "model:6.12", "-o", &file, "--events", &file],
        &["agree", "-t", "live", "-o", &file, "--report", &roundabout],
        &["stat", "-o", &file, "--perfetto", &roundabout, "--", "true"],
    ] {
        let message = refused(arguments, 2);
        assert!(message.contains("name the same file"), "{arguments:?}: {message}");
        assert!(!Path::new(&file).exists(), "{arguments:?}: nothing ran");
    }
}

#[test]
fn a_scenarios_path_that_is_no_utf8_is_refused_with_the_way_around_it() {
    use std::os::unix::ffi::OsStrExt;
    let folder = Folder::new();
    let path = folder.path("x").with_file_name(std::ffi::OsStr::from_bytes(b"\xff.kdl"));
    std::fs::write(&path, scenario("map \"a\" pages=1\nrounds 1 { write \"a\" }", "")).unwrap();
    let model = ["-t", "model:6.12"];
    let run = needless(&["run"]).arg(&path).args(model).assert().code(2).get_output().clone();
    let error = String::from_utf8(run.stderr).unwrap();
    assert!(error.contains("has to be UTF-8") && error.contains("- <FILE"), "{error}");
    let handed_over = needless(&["run", "-"]).args(model).pipe_stdin(&path).unwrap().assert();
    handed_over.code(0);
}

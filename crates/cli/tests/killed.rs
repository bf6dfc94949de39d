//! A signal to the command while a process of the scenario runs: nothing of it stays.
#![allow(clippy::unwrap_used)]

use needless_testing::{until, until_true};
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

const SCENARIO: &str = "scenario \"long\" {
    thread \"main\" cpu=0 {
        map \"heap\" pages=1
        rounds 1 {
            write \"heap\"
            fork \"child\"
            wait \"child\"
        }
    }
    process \"child\" cpu=1 { sleep \"600s\" }
}";

/// The parent of a living process, and when the process started.
fn stat(pid: u32) -> Option<(u32, u64)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
    (fields[0] != "Z").then_some((fields[1].parse().ok()?, fields[19].parse().ok()?))
}

/// The descendants of a process, each with its start and its depth.
fn descendants(ancestor: u32) -> Vec<(u32, u64, usize)> {
    let pids = fs::read_dir("/proc").unwrap().flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let all: Vec<(u32, u32, u64)> =
        pids.filter_map(|pid| stat(pid).map(|(parent, start)| (pid, parent, start))).collect();
    let (mut found, mut of, mut depth) = (Vec::new(), vec![ancestor], 0);
    while !of.is_empty() {
        depth += 1;
        let children: Vec<_> = all.iter().filter(|(_, parent, _)| of.contains(parent)).collect();
        of = children.iter().map(|(pid, ..)| *pid).collect();
        found.extend(children.iter().map(|(pid, _, start)| (*pid, *start, depth)));
    }
    found
}

/// `agree` reports what it has when it is asked to end. `run` ends as unhandled signals end it.
#[test]
fn nothing_stays_of_a_run_that_is_ended_while_a_process_lives() {
    let _turn = needless_testing::turn();
    let folder = tempfile::tempdir().unwrap();
    let scenario = folder.path().join("long.kdl");
    fs::write(&scenario, SCENARIO).unwrap();
    for (verb, signal, code) in [
        ("run", "KILL", None),
        ("run", "TERM", None),
        ("agree", "KILL", None),
        ("agree", "TERM", Some(143)),
    ] {
        let mut command = Command::new("env");
        command.arg("--default-signal=TERM").arg(assert_cmd::cargo::cargo_bin!("needless"));
        command.arg(verb).arg(&scenario).args(["-t", "live"]).stdin(Stdio::null());
        let mut needless = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        // The family consists of the command, the runner and the process.
        let family = until("a process is forked", || {
            if let Ok(Some(status)) = needless.try_wait() {
                return Some(Err(status));
            }
            let family = descendants(needless.id());
            family.iter().any(|(.., depth)| *depth >= 2).then_some(Ok(family))
        });
        let Ok(family) = family else {
            return needless_testing::note_skipped("the scenario does not run here");
        };
        let sent = Command::new("kill").args(["-s", signal, &needless.id().to_string()]).status();
        assert!(sent.unwrap().success());
        let status = until(format!("the end of {verb}"), || needless.try_wait().unwrap());
        assert_eq!((status.code(), status.signal().is_some()), (code, code.is_none()), "{verb}");
        until_true("all of them end", || {
            family.iter().all(|(pid, start, _)| stat(*pid).is_none_or(|(_, now)| now != *start))
        });
    }
}

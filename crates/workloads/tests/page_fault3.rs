//! Checks that several tasks with the loop of page_fault3 take the right faults and leave nothing
//! behind.
#![allow(clippy::unwrap_used)]

use needless_testing::{skip, until, until_true};
use serde_json::Value;
use std::fs;
use std::process::{Command, Output, Stdio};

/// The command for two tasks.
fn workload(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_needless-workload"));
    command.args(["page-fault3", "--tasks", "2"]).args(words);
    command
}

/// What the command printed. `None` where temporary files are in memory; the test is then skipped.
fn printed(words: &[&str]) -> Option<Vec<u8>> {
    let Output { status, stdout, stderr } = workload(words).output().unwrap();
    let errors = String::from_utf8_lossy(&stderr);
    if errors.contains("TMPDIR") {
        skip!("{errors}");
    }
    assert!(status.success(), "{status}: {errors}");
    Some(stdout)
}

/// The rounds, and the minor and major faults together, of each task and of all.
fn rounds_and_faults(words: &[&str]) -> Option<Vec<[u64; 2]>> {
    let report: Value = serde_json::from_slice(&printed(words)?).unwrap();
    let all = report["tasks"].as_array().unwrap().iter().chain([&report["total"]]);
    let number = |counts: &Value, of: &str| counts[of].as_u64().unwrap();
    let counted = all.map(|counts| {
        let kinds = ["minor_faults", "major_faults"].map(|kind| number(counts, kind));
        [number(counts, "rounds"), kinds.iter().sum()]
    });
    Some(counted.collect())
}

/// One page table holds the pages of the first case, but not those of the second.
#[test]
fn each_task_takes_a_fault_for_each_page_of_each_round() {
    for tasks_are in ["--processes", "--threads"] {
        for pages in [4, 600] {
            let words = ["--json", tasks_are, "--rounds", "20", "--pages", &pages.to_string()];
            let Some(counted) = rounds_and_faults(&words) else { return };
            let each = [20, 20 * pages];
            assert_eq!(counted, [each, each, each.map(|one| 2 * one)], "{words:?}");
        }
    }
}

#[test]
fn tasks_go_on_for_as_long_as_is_said() {
    let Some(counted) = rounds_and_faults(&["--json", "--threads"]) else { return };
    assert_eq!(counted.len(), 3);
    for [rounds, faults] in counted {
        assert!(rounds > 0 && faults == 8 * rounds, "{rounds} rounds: {faults}");
    }
}

#[test]
fn the_text_has_a_line_for_each_task_and_the_total() {
    let Some(printed) = printed(&["--rounds", "20"]) else { return };
    let text = String::from_utf8(printed).unwrap();
    let begins: Vec<&str> = text.lines().map(|line| line.split(' ').next().unwrap()).collect();
    assert_eq!(begins, ["Linux", "task", "task", "total:"], "{text}");
    assert!(text.contains("\ntotal: 40 rounds, "), "{text}");
}

#[test]
fn what_cannot_be_is_refused() {
    for words in [&["--threads", "--processes"][..], &["--rounds", "1", "--seconds", "1"]] {
        let refused = workload(words).output().unwrap();
        assert_eq!(refused.status.code(), Some(2));
        assert!(String::from_utf8_lossy(&refused.stderr).contains("cannot be used with"));
    }
    let refused = workload(&[]).env("TMPDIR", "/dev/shm").output().unwrap();
    let errors = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(2));
    assert_eq!(
        errors,
        "needless-workload: this needs a TMPDIR on a file system that is not in memory\n"
    );
}

/// The processes whose parent is `id` and that have not ended.
fn children(id: u32) -> Vec<String> {
    let listed = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap_or_default();
    listed.split_whitespace().map(str::to_owned).collect()
}

/// Whether the process has ended. A zombie has: nobody may be left to wait for an orphan.
fn has_ended(id: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_none_or(|(_, state)| state.starts_with(['Z', 'X']))
}

#[test]
fn processes_end_with_their_parent() {
    if printed(&["--rounds", "1"]).is_none() {
        return;
    }
    let mut parent = workload(&["--seconds", "600"]).stdout(Stdio::null()).spawn().unwrap();
    let children = until("two processes", || {
        let children = children(parent.id());
        (children.len() == 2).then_some(children)
    });
    parent.kill().unwrap();
    parent.wait().unwrap();
    for child in children {
        until_true(format!("the end of {child}"), || has_ended(&child));
    }
}

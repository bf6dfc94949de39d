//! Forked processes on the running kernel: they do what the model says, and nothing of them stays,
//! however they end.
#![allow(clippy::unwrap_used)]

mod common;

use common::*;
use needless_model::addr::{CpuId, ProcessId};
use needless_model::call::CallExpr;
use needless_model::program::*;
use needless_testing::{until, until_true};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const CHILD: ProcessId = ProcessId(1);
const FORK: OpKind = OpKind::Call(CallExpr::Fork { process: CHILD });
const WAIT: OpKind = OpKind::Call(CallExpr::Wait { process: CHILD });
const LONG: OpKind = OpKind::Sleep { duration_ns: Some(Expr::Const(60_000_000_000)) };

/// The program of `draft`, with a process on CPU 1 that executes `body`.
fn with_child(draft: Draft, body: Vec<OpKind>) -> Program {
    let mut program = Draft { second: None, ..draft }.program();
    let texts = &mut program.op_texts;
    let ops = body.into_iter().map(|kind| {
        texts.push(format!("{kind:?}"));
        Op { id: texts.len() as u32 - 1, kind }
    });
    let child = Thread { process: CHILD, ..Thread::new("child", CpuId(1), ops.collect()) };
    program.processes.push(Process { name: "child".into() });
    program.threads.push(child);
    program
}

fn forks(body: Vec<OpKind>) -> Program {
    let round = vec![touch(Access::Write, 4), FORK, WAIT, touch(Access::Write, 4)];
    with_child(Draft { warmup: 0, count: 3, ..Draft::new(4, vec![MAP], round) }, body)
}

/// All runner processes that `parent` started, and their children.
fn family(parent: u32) -> Vec<u32> {
    let runners = children_named("needless-runner", parent);
    let more = runners.iter().flat_map(|runner| children_named("needless-runner", *runner));
    runners.iter().copied().chain(more).collect()
}

fn alive(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

/// Waits for the child of a runner that this test started.
fn the_child() -> u32 {
    let me = std::process::id();
    let child = || {
        let runners = children_named("needless-runner", me);
        runners.iter().flat_map(|runner| children_named("needless-runner", *runner)).next()
    };
    until("a process is forked", child)
}

fn parent_of(child: u32) -> u32 {
    let stat = fs::read_to_string(format!("/proc/{child}/stat")).unwrap();
    let (_, rest) = stat.rsplit_once(") ").unwrap();
    rest.split(' ').nth(1).unwrap().parse().unwrap()
}

/// Repeats the run until it is undisturbed. In each round two stores copy pages while both
/// processes live. The four stores after the child's end find pages that no other process maps.
fn copies_two_pages_and_reuses_four(program: &Program) {
    let expected = "loc:MM(ALL) WP loc:MM(1) WP loc:MM(1) WP WP WP WP";
    for _ in 0..8 {
        let run = try_run(program).unwrap();
        for round in &run.rounds {
            let (first, rest) = (if round.index == 0 { "W W W W " } else { "" }, expected);
            assert_eq!(short(program, round), format!("{first}{rest}"), "round {}", round.index);
            let faults = 6 + if round.index == 0 { 4 } else { 0 };
            assert_eq!((round.minor_faults, round.major_faults), (Some(faults), Some(0)));
        }
        if run.rounds.len() == 3 {
            no_process_is_left();
            return;
        }
    }
    needless_testing::note_skipped("every start was disturbed");
}

fn no_process_is_left() {
    let me = std::process::id();
    until_true("the processes end", || !family(me).into_iter().any(alive));
}

#[test]
fn a_child_copies_what_it_writes_and_leaves_its_parent_the_rest() {
    let _turn = turn();
    if !root() || !kernel_at_least(6, 1) {
        return;
    }
    let program = forks(vec![touch(Access::Read, 4), touch(Access::Write, 2)]);
    copies_two_pages_and_reuses_four(&program);
}

/// The child's pages go away without a flush, and the figures include nothing of the other program.
#[test]
fn a_child_goes_on_with_another_program() {
    let _turn = turn();
    if !root() || !kernel_at_least(6, 1) {
        return;
    }
    let program = forks(vec![touch(Access::Write, 2), OpKind::Call(CallExpr::Exec)]);
    copies_two_pages_and_reuses_four(&program);
}

#[test]
fn a_child_that_crashes_ends_the_run_and_says_where() {
    let _turn = turn();
    let unmap = OpKind::Call(CallExpr::Unmap { pages: pages(0, 4) });
    let error = try_run(&forks(vec![unmap, touch(Access::Read, 1)])).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("SIGSEGV at page heap[0]"), "{text}");
    no_process_is_left();
}

#[test]
fn a_call_that_fails_in_a_child_ends_the_run() {
    let _turn = turn();
    let error = try_run(&forks(vec![MAP])).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("thread `child`") && text.contains("File exists"), "{text}");
    no_process_is_left();
}

#[test]
fn a_process_that_runs_already_is_not_forked_again() {
    let _turn = turn();
    let round = vec![FORK, FORK];
    let draft = Draft { warmup: 0, count: 1, ..Draft::new(1, vec![MAP], round) };
    let error = try_run(&with_child(draft, vec![])).unwrap_err();
    assert!(error.to_string().contains("EAGAIN: the process runs already"), "{error}");
    no_process_is_left();
}

/// A control group for one process, which has no room for another task.
struct Full(PathBuf);

impl Full {
    /// Puts the process `pid` into a new group. `None` if control groups do not limit tasks here.
    fn with(pid: u32) -> Option<Full> {
        let alone = Path::new("/sys/fs/cgroup/pids");
        let above = if alone.exists() { alone } else { Path::new("/sys/fs/cgroup") };
        let full = Full(above.join(format!("needless-test-{}", std::process::id())));
        fs::create_dir(&full.0).ok()?;
        fs::metadata(full.0.join("pids.max")).ok()?;
        fs::write(full.0.join("cgroup.procs"), pid.to_string()).ok()?;
        fs::write(full.0.join("pids.max"), "1").ok()?;
        Some(full)
    }
}

impl Drop for Full {
    fn drop(&mut self) {
        until_true("the control group is empty", || fs::remove_dir(&self.0).is_ok());
    }
}

#[test]
fn a_fork_beyond_the_limits_ends_the_run() {
    let _turn = turn();
    if !root() {
        return;
    }
    let nap = OpKind::Sleep { duration_ns: Some(Expr::Const(20_000_000)) };
    let round = (0..500).flat_map(|_| [FORK, WAIT]).collect();
    let draft = Draft { warmup: 0, count: 1, ..Draft::new(4, vec![MAP], round) };
    let run = std::thread::spawn(move || try_run(&with_child(draft, vec![nap])));
    let runners = || children_named("needless-runner", std::process::id()).into_iter();
    let forks = |runner: &u32| !children_named("needless-runner", *runner).is_empty();
    let parent = until("a process is forked", || runners().find(forks));
    let Some(_full) = Full::with(parent) else {
        kill_process(Pid::from_raw(parent as i32).unwrap(), Signal::KILL).unwrap();
        let _ = run.join();
        needless_testing::note_skipped("no control group limits tasks here");
        return;
    };
    let text = run.join().unwrap().unwrap_err().to_string();
    assert!(
        text.contains("Resource temporarily unavailable") && text.contains("pids.max"),
        "{text}"
    );
    no_process_is_left();
}

#[test]
fn a_killed_child_ends_the_run() {
    let _turn = turn();
    let run = std::thread::spawn(|| try_run(&forks(vec![LONG])));
    let child = the_child();
    std::thread::sleep(Duration::from_millis(200));
    let started = Instant::now();
    kill_process(Pid::from_raw(child as i32).unwrap(), Signal::KILL).unwrap();
    let error = run.join().unwrap().unwrap_err();
    assert!(started.elapsed() < Duration::from_secs(30), "noticed soon, not in the end");
    let text = error.to_string();
    assert!(text.contains("process `child` was killed by signal 9 (SIGKILL)"), "{text}");
    no_process_is_left();
}

#[test]
fn a_stopped_child_ends_the_run() {
    let _turn = turn();
    let run = std::thread::spawn(|| try_run(&forks(vec![LONG])));
    let child = the_child();
    std::thread::sleep(Duration::from_millis(200));
    kill_process(Pid::from_raw(child as i32).unwrap(), Signal::STOP).unwrap();
    let error = run.join().unwrap().unwrap_err();
    let text = error.to_string();
    assert!(text.contains("process `child` hangs") && text.contains("state T"), "{text}");
    no_process_is_left();
}

#[test]
fn a_killed_runner_takes_its_processes_along() {
    let _turn = turn();
    let run = std::thread::spawn(|| try_run(&forks(vec![LONG])));
    let child = the_child();
    kill_process(Pid::from_raw(parent_of(child) as i32).unwrap(), Signal::KILL).unwrap();
    assert!(run.join().unwrap().is_err());
    until_true("the child ends", || !alive(child));
    no_process_is_left();
}

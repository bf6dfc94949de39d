//! Tests that a run leaves nothing behind, however it ends.
#![allow(clippy::unwrap_used)]

mod common;

use common::*;
use needless_live::leftovers;
use needless_model::program::*;
use needless_runner::swap::ZramSwap;
use needless_testing::{again, skip, until_true};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

fn zram_devices() -> Vec<String> {
    let entries = fs::read_dir("/sys/block").unwrap().flatten();
    let mut names: Vec<String> = entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| name.starts_with("zram"))
        .collect();
    names.sort();
    names
}

fn swaps() -> Vec<String> {
    let text = fs::read_to_string("/proc/swaps").unwrap();
    text.lines().skip(1).filter_map(|l| l.split_whitespace().next()).map(str::to_owned).collect()
}

/// A process that does not outlive its test.
struct Killed(std::process::Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Swap space of another program, for the duration of a test.
struct Other(Option<ZramSwap>);

impl Other {
    fn new() -> Other {
        Other(ZramSwap::add(32 << 20).ok())
    }

    fn device(&self) -> String {
        self.0.as_ref().unwrap().device()
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        assert!(self.0.take().is_none_or(|swap| swap.remove().is_ok()));
    }
}

fn swapping(round: Vec<OpKind>, count: u32) -> Program {
    let setup = vec![MAP, touch(Access::Write, 1)];
    let draft = Draft { swap: true, count, warmup: 0, ..Draft::new(1, setup, round) };
    let mut program = draft.program();
    program.machine.thp = Some(ThpMode::Never);
    if Path::new(MTHP).exists() {
        program.machine.mthp = Mthp::default().with("64KiB", MthpMode::Always);
    }
    program
}

const THP: &str = "/sys/kernel/mm/transparent_hugepage/enabled";
const MTHP: &str = "/sys/kernel/mm/transparent_hugepage/hugepages-64kB/enabled";

/// The modes of transparent huge pages and of smaller large folios.
fn modes() -> [Option<String>; 2] {
    [THP, MTHP].map(|path| fs::read_to_string(path).ok())
}

/// This is not a test by itself: it is the process that the next test kills.
#[test]
#[ignore = "started by the next test"]
fn a_long_run() {
    let second = OpKind::Sleep { duration_ns: Some(Expr::Const(1_000_000_000)) };
    let _ = try_run(&swapping(vec![advise(Advice::PageOut, 1), second], 60));
}

#[test]
fn a_killed_run_leaves_nothing_behind() {
    let _turn = turn();
    if !root() {
        return;
    }
    let (devices, before, thp) = (zram_devices(), swaps(), modes());
    let mut child =
        Killed(again("a_long_run").stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    until_true("the swap device appears", || swaps().len() == before.len() + 1);
    let runner = || children_named("needless-runner", child.0.id());
    until_true("the runner and the keeper run", || runner().len() == 2);
    let processes = runner();
    child.0.kill().unwrap();
    assert_eq!(child.0.wait().unwrap().signal(), Some(9));
    until_true("the swap device goes", || swaps() == before && zram_devices() == devices);
    until_true("the settings come back", || modes() == thp);
    until_true("the processes end", || !processes.iter().any(|pid| alive(*pid)));
}

/// The keeper among the runner's processes that `parent` started.
fn keeper_of(parent: u32) -> Option<Pid> {
    let is_keeper = |pid: &u32| {
        let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        words.split(|byte| *byte == 0).any(|word| word == b"--watch")
    };
    let pid = children_named("needless-runner", parent).into_iter().find(is_keeper)?;
    Pid::from_raw(i32::try_from(pid).unwrap())
}

#[test]
fn a_killed_keeper_is_noticed_and_its_changes_are_undone() {
    let _turn = turn();
    if !root() {
        return;
    }
    let (devices, before, thp) = (zram_devices(), swaps(), modes());
    let second = OpKind::Sleep { duration_ns: Some(Expr::Const(1_000_000_000)) };
    let program = swapping(vec![advise(Advice::PageOut, 1), second], 60);
    let started = Instant::now();
    let run = std::thread::spawn(move || try_run(&program));
    let me = std::process::id();
    until_true("the runner and the keeper run", || {
        children_named("needless-runner", me).len() == 2
    });
    until_true("the swap device appears", || swaps().len() == before.len() + 1);
    kill_process(keeper_of(me).unwrap(), Signal::KILL).unwrap();
    let error = run.join().unwrap().unwrap_err();
    assert!(started.elapsed() < Duration::from_secs(50), "noticed at once, not in the end");
    assert_eq!(error.exit_status(), 125);
    let text = error.to_string();
    assert!(text.contains("the keeper") && text.contains("swap space on /dev/zram"), "{text}");
    assert_eq!((zram_devices(), swaps()), (devices, before));
    assert_eq!(modes(), thp);
    assert!(leftovers::standing().is_empty());
}

#[test]
fn what_a_killed_run_and_a_killed_keeper_leave_behind_is_named_and_removed() {
    let _turn = turn();
    if !root() {
        return;
    }
    let (devices, before, thp) = (zram_devices(), swaps(), modes());
    let mut child =
        Killed(again("a_long_run").stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    let parent = child.0.id();
    until_true("the runner and the keeper run", || {
        children_named("needless-runner", parent).len() == 2
    });
    until_true("the swap device appears", || swaps().len() == before.len() + 1);
    // It must not notice that its keeper is killed.
    kill_process(Pid::from_child(&child.0), Signal::STOP).unwrap();
    let processes = children_named("needless-runner", parent);
    kill_process(keeper_of(parent).unwrap(), Signal::KILL).unwrap();
    child.0.kill().unwrap();
    child.0.wait().unwrap();
    until_true("the processes end", || !processes.iter().any(|pid| alive(*pid)));
    assert_ne!(swaps(), before, "nothing was left behind");

    let names = needless_live::doctor().into_iter().find(|check| check.name == "left behind");
    let named = names.unwrap();
    assert!(named.detail.contains("swap space on /dev/zram"), "{named:?}");
    assert!(named.remedy.unwrap().contains("--clean"));
    let undone = leftovers::clean();
    assert!(undone.failed.is_empty() && !undone.done.is_empty(), "{undone:?}");
    assert_eq!((zram_devices(), swaps()), (devices, before));
    assert_eq!(modes(), thp);
    assert!(leftovers::standing().is_empty());
}

fn alive(pid: u32) -> bool {
    let stat = fs::read(format!("/proc/{pid}/stat")).unwrap_or_default();
    needless_runner::tracefs::task_state(&stat).is_some_and(|state| state != b'Z')
}

#[test]
fn a_normal_run_leaves_nothing_behind_and_spares_other_swap_space() {
    let _turn = turn();
    if !root() {
        return;
    }
    let thp = modes();
    let tracing = fs::read_dir("/sys/kernel/tracing").map_or(0, Iterator::count);
    // This is another program's swap space. `add` takes the highest priority, which is lowered
    // afterwards.
    let other = Other::new();
    let device = other.device();
    lower_priority(&device);
    let (devices, before) = (zram_devices(), swaps());
    let line = || {
        let text = fs::read_to_string("/proc/swaps").unwrap();
        text.lines().find(|line| line.starts_with(&device)).unwrap().to_owned()
    };
    let its_line = line();

    let round = vec![advise(Advice::PageOut, 1), touch(Access::Read, 1)];
    let run = try_run(&swapping(round, 20)).unwrap();
    assert_eq!(run.environment["thp.enabled"], "never");
    let small = run.environment.get("thp.64kB").map(String::as_str);
    assert_eq!(small, Path::new(MTHP).exists().then_some("always"));
    assert_eq!(run.environment.get("left behind"), None);
    let ours = run.environment.keys().filter(|n| n.starts_with("swap.device.")).count();
    assert_eq!(ours, 4, "two devices, each with its compression");

    assert_eq!((zram_devices(), swaps()), (devices, before));
    assert_eq!(line(), its_line, "the other device was used");
    drop(other);
    assert_eq!(modes(), thp);
    assert_eq!(fs::read_dir("/sys/kernel/tracing").map_or(0, Iterator::count), tracing);
    if run.rounds.len() < 20 {
        skip!("{}", undecided(&run));
    }
}

fn lower_priority(device: &str) {
    for arguments in [vec!["swapoff", device], vec!["swapon", "-p", "5", device]] {
        let status = Command::new(arguments[0]).args(&arguments[1..]).status();
        assert!(status.unwrap().success(), "{arguments:?}");
    }
}

#[test]
fn swap_space_with_the_highest_priority_is_refused_not_shared() {
    let _turn = turn();
    if !root() {
        return;
    }
    let other = Other::new();
    let before = swaps();
    let error = try_run(&swapping(vec![], 1)).unwrap_err();
    assert!(matches!(error, needless_live::LiveError::NeedsSwap { .. }), "{error:?}");
    assert_eq!(swaps(), before);
    drop(other);
}

//! How live runs behave if something prevents them.
#![allow(clippy::unwrap_used)]

mod common;

use common::*;
use needless_live::{LiveError, LiveOptions};
use needless_model::addr::{CpuId, ThreadId};
use needless_model::call::CallExpr;
use needless_model::event::EventKind;
use needless_model::program::*;
use needless_testing::{skip, until_true};

#[test]
fn a_small_ring_reports_loss() {
    let _turn = turn();
    if !root() {
        return;
    }
    let round = vec![touch(Access::Write, 4000), advise(Advice::DontNeed, 4000)];
    let draft = Draft { count: 2, warmup: 1, ..Draft::new(4000, vec![MAP], round) };
    let options = LiveOptions { ring_pages: 4, ..LiveOptions::default() };
    match needless_live::run(&draft.program(), &options) {
        Err(error @ LiveError::EventsLost { lost }) => {
            assert!(lost > 1000, "{lost}");
            assert_eq!(error.exit_status(), 122);
        }
        other => panic!("no loss reported: {other:?}"),
    }
}

#[test]
fn an_access_that_is_not_allowed_ends_the_run_cleanly() {
    let _turn = turn();
    let setup = vec![OpKind::Call(CallExpr::Map { area: 0, prot: Prot::None })];
    let draft = Draft::new(2, setup, vec![touch(Access::Read, 1)]);
    match try_run(&draft.program()) {
        Err(LiveError::ProgramFailed(failure)) => {
            assert!(failure.what.contains("SIGSEGV at page heap[0]"), "{failure}");
            assert_eq!(failure.op, Some(1));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_failing_system_call_names_its_operation() {
    let _turn = turn();
    let draft = Draft::new(2, vec![MAP, MAP], vec![]);
    match try_run(&draft.program()) {
        Err(LiveError::ProgramFailed(failure)) => {
            assert_eq!(failure.op, Some(1));
            assert!(failure.what.contains("thread `main`, `Call(Map"), "{failure}");
            assert!(failure.errno.is_some());
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_missing_cpu_is_said() {
    let _turn = turn();
    let mut program = Draft::new(2, vec![MAP], vec![]).program();
    program.threads[1].cpu = CpuId(999);
    let error = try_run(&program).unwrap_err();
    assert!(matches!(error, LiveError::Unsupported { .. }), "{error:?}");
    assert_eq!(error.exit_status(), 121);
}

/// Two threads that meet twice per round: the second one writes between the first one's marks.
fn ping_pong(rounds: i64) -> Program {
    let draft = Draft::new(1, vec![MAP], vec![]);
    let mut program = Draft { count: rounds as u32, warmup: 2, ..draft }.program();
    let op = |kind| Op { id: 0, kind };
    let barrier = || op(OpKind::Barrier { barrier: 0 });
    let OpKind::Rounds { body, .. } = &mut program.threads[0].body[1].kind else { panic!() };
    *body = vec![
        op(OpKind::Mark { mark: 0 }),
        barrier(),
        op(OpKind::Mark { mark: 0 }),
        op(advise(Advice::DontNeed, 1)),
    ];
    let turn = vec![op(touch(Access::Write, 1)), barrier()];
    program.threads[1].body =
        vec![op(OpKind::Repeat { slot: 1, count: Expr::Const(rounds + 2), body: turn })];
    program.barriers =
        vec![Barrier { name: "meet".into(), threads: vec![ThreadId(0), ThreadId(1)] }];
    program
}

#[test]
fn threads_hand_over_at_barriers() {
    let _turn = turn();
    if !root() || !kernel_at_least(5, 10) {
        return;
    }
    let program = ping_pong(50);
    let run = try_run(&program).unwrap();
    for round in &run.rounds {
        assert_eq!(short(&program, round), "¦ W ¦ IPI:MM(1)", "{:#?}", round.events);
        let fault = round.events.iter().find(|e| matches!(e.kind, EventKind::Fault { .. }));
        assert_eq!(fault.unwrap().thread, Some(ThreadId(1)));
        assert_eq!(fault.unwrap().cpu, CpuId(1));
        assert_eq!(round.minor_faults, Some(1));
    }
    if run.rounds.len() < 50 {
        skip!("{}", undecided(&run));
    }
}

#[test]
fn a_barrier_that_cannot_fill_is_an_error_not_a_hang() {
    let _turn = turn();
    let mut program = ping_pong(5);
    program.threads[1].body.clear();
    match try_run(&program) {
        Err(LiveError::ProgramFailed(failure)) => {
            assert!(failure.what.contains("`meet`"), "{failure}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn two_runs_exclude_each_other() {
    let _turn = turn();
    if !root() {
        return;
    }
    let long = OpKind::Sleep { duration_ns: Some(Expr::Const(3_000_000_000)) };
    // This runs before the round, because a round may be repeated.
    let draft = Draft { count: 1, warmup: 0, ..Draft::new(1, vec![MAP, long], vec![]) };
    let program = draft.program();
    let first = std::thread::spawn(move || try_run(&program));
    let children = || children_named("needless-runner", std::process::id());
    until_true("its keeper and its runner run", || children().len() == 2);
    let error = try_run(&Draft::new(1, vec![MAP], vec![]).program()).unwrap_err();
    assert!(error.to_string().contains(&format!("process {}", std::process::id())), "{error}");
    first.join().unwrap().unwrap();
}

/// Processes with a high priority that take every CPU for a moment now and then, until this is
/// dropped.
struct Nuisance(Vec<std::process::Child>);

impl Nuisance {
    fn begin() -> Nuisance {
        let cpus = std::thread::available_parallelism().unwrap().get();
        let on = |cpu: usize| {
            let words = ["-f", "50", "taskset", "-c", &cpu.to_string(), "sh", "-c"];
            let mut command = std::process::Command::new("chrt");
            command.args(words).arg("while :; do sleep 0.003; done").spawn().unwrap()
        };
        Nuisance((0..cpus).map(on).collect())
    }
}

impl Drop for Nuisance {
    fn drop(&mut self) {
        for child in &mut self.0 {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}

#[test]
fn a_round_that_depends_on_those_before_is_not_repeated_after_others() {
    let _turn = turn();
    if !root() {
        return;
    }
    let _nuisance = Nuisance::begin();
    let nap = OpKind::Sleep { duration_ns: Some(Expr::Const(300_000)) };
    let mut marked = 0;
    for _ in 0..20 {
        // Only the first round has a fault.
        let round = vec![touch(Access::Write, 1), nap.clone()];
        let draft = Draft { warmup: 0, count: 2, ..Draft::new(1, vec![MAP], round) };
        let program = draft.program();
        let run = try_run(&program).unwrap();
        marked += run.witness.marked_total();
        for round in &run.rounds {
            let expected = if round.index == 0 { "W" } else { "" };
            assert_eq!(short(&program, round), expected, "round {}", round.index);
        }
    }
    if marked == 0 {
        skip!("nobody disturbed any round");
    }
}

/// This is not a test by itself: it is what the next test does without privilege.
#[test]
#[ignore = "started by the next test"]
fn an_unprivileged_run() {
    let round = vec![touch(Access::Write, 4), advise(Advice::DontNeed, 4)];
    let draft = Draft { count: 10, ..Draft::new(4, vec![MAP], round) };
    let run = try_run(&draft.program()).unwrap();
    for round in &run.rounds {
        assert!(round.events.is_empty());
        assert_eq!(round.minor_faults, Some(4));
    }
    if run.rounds.len() < 10 {
        println!("undecided: {}", undecided(&run));
    }
    for name in ["events", "flushes", "shootdowns"] {
        assert!(run.unseen.contains_key(name), "{:?}", run.unseen);
    }

    let swapping = Draft { swap: true, ..Draft::new(1, vec![MAP], vec![]) };
    let error = try_run(&swapping.program()).unwrap_err();
    assert_eq!(error.exit_status(), 120, "{error:?}");
}

#[test]
fn without_privilege_there_are_counts_but_no_events() {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;
    let _turn = turn();
    if !root() {
        return;
    }
    // The test uses copies, because the folders of the build may be closed to other users.
    let folder = std::env::temp_dir().join(format!("needless-nobody-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o777)).unwrap();
    let program = std::env::current_exe().unwrap();
    std::fs::copy(&program, folder.join("test")).unwrap();
    std::fs::copy(runner(), folder.join("needless-runner")).unwrap();
    let output = std::process::Command::new(folder.join("test"))
        .args(["--ignored", "--exact", "an_unprivileged_run", "--nocapture"])
        .env_remove("NEEDLESS_RUNNER")
        .env("XDG_RUNTIME_DIR", &folder)
        .current_dir("/")
        .uid(65534)
        .gid(65534)
        .output();
    std::fs::remove_dir_all(&folder).unwrap();
    let output = output.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(stdout.contains("1 passed"));
    if let Some((_, why)) = stdout.split_once("undecided: ") {
        skip!("{}", why.lines().next().unwrap_or_default());
    }
}

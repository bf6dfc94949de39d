//! Boots real kernels: what they do, and what is left of them after a bad end.
//!
//! The kernels are fetched if they are not cached.

use needless_guest::{Guest, GuestError, GuestOptions, KernelTarget, Limits, kernels, run_batch};
use needless_model::account::Account;
use needless_model::kernels::KernelRow;
use needless_model::program::{Expr, OpKind, Program};
use needless_model::run::TargetRun;
use needless_model::sim::{self, SimOptions};
use needless_scenario::{Settings, compile, load};
use needless_testing::{again, turn, until, until_true};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::channel;
use std::time::Duration;

/// The default guest with a static runner: the one that the environment names, or one that was
/// built for it.
pub(super) fn usual() -> GuestOptions {
    static RUNNER: OnceLock<PathBuf> = OnceLock::new();
    let runner = RUNNER.get_or_init(|| {
        if let Some(path) = std::env::var_os("NEEDLESS_RUNNER") {
            return path.into();
        }
        let status = Command::new(env!("CARGO"))
            .args(["build", "--quiet", "-p", "needless-runner"])
            .status();
        assert!(status.unwrap().success(), "the runner does not build");
        // The path of this test is TARGET/PROFILE/deps/long-….
        let test = std::env::current_exe().unwrap();
        test.ancestors().nth(2).unwrap().join("needless-runner")
    });
    GuestOptions { runner: Some(runner.clone()), ..GuestOptions::default() }
}

pub(super) fn program(name: &str, rounds: u32) -> Program {
    let mut program = compile(&load(name).unwrap(), &Settings::default()).unwrap();
    for op in &mut program.threads[0].body {
        if let OpKind::Rounds { count, .. } = &mut op.kind {
            *count = rounds;
        }
    }
    program
}

/// A program that takes hours.
fn endless() -> Program {
    let mut program = program("a_dontneed_w_1", 3);
    for op in &mut program.threads[0].body {
        if let OpKind::Rounds { body, .. } = &mut op.kind {
            let hour = Expr::Const(3_600_000_000_000);
            body[0].kind = OpKind::Sleep { duration_ns: Some(hour) };
        }
    }
    program
}

/// The rounds as text: sequence and faults.
fn rounds(program: &Program, run: &TargetRun) -> Vec<String> {
    let account = Account::of(program, run);
    let rusage = run.rounds.iter().map(|round| (round.minor_faults, round.major_faults));
    let sequence = |at| account.round(at).unwrap().sequence.as_ref().unwrap();
    rusage.enumerate().map(|(at, rusage)| format!("{} {rusage:?}", sequence(at))).collect()
}

/// Processes with `word` in their command line, except this one.
fn processes_with(word: &str) -> Vec<u32> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|&pid| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        pid != std::process::id() && String::from_utf8_lossy(&line).contains(word)
    })
    .collect()
}

/// Options of a guest with a word in its command line that identifies its processes.
fn marked(word: &str) -> GuestOptions {
    GuestOptions { append: format!("needless.test={word}"), ..usual() }
}

#[test]
fn two_kernels_do_what_their_rows_say_in_one_boot_each() {
    let _turn = turn();
    // These need swap, an idle CPU, and an advice that 5.10 does not have.
    let programs = ["a_swap_rw_8", "z_munmap_1_lazy", "z_populate_write_8", "z_mprotect_33"]
        .map(|name| program(name, 5));
    for (series, has_populate) in [("5.10", false), ("6.12", true)] {
        let row = KernelRow::parse(series).unwrap();
        let done = std::cell::Cell::new(0);
        let options = usual();
        let results =
            run_batch(&KernelTarget::named(series, options), &programs, &|at| done.set(at))
                .unwrap();
        assert_eq!((done.get(), results.len()), (4, 4));
        for (program, result) in programs.iter().zip(results) {
            if program.name.starts_with("z_populate") && !has_populate {
                assert!(matches!(result, Err(GuestError::Unsupported { .. })), "{result:?}");
                continue;
            }
            let run = result.unwrap();
            assert_eq!(run.target, format!("kernel:{series}"));
            assert!(run.release.as_ref().unwrap().starts_with(&format!("{series}.")));
            assert!(run.environment["kernel.package"].contains("linux-"));
            assert!(run.unseen.contains_key("cycles"));
            let model = sim::run(program, &row, &SimOptions::default()).unwrap();
            assert_eq!(rounds(program, &run), rounds(program, &model), "{series} {}", program.name);
        }
    }
}

#[test]
fn a_program_that_does_not_end_is_ended_and_the_next_one_runs() {
    let _turn = turn();
    let kernel = kernels::ready("6.12").unwrap();
    let limits = Limits { run_seconds: 3, ..Limits::default() };
    let options = GuestOptions { limits, ..usual() };
    let mut guest = Guest::boot(&kernel, &options).unwrap();
    let ended = guest.run(&endless()).unwrap_err();
    assert!(ended.to_string().contains("longer than 3 s"), "{ended}");
    let mut elsewhere = program("a_dontneed_w_1", 2);
    elsewhere.threads[0].cpu.0 = 2;
    assert!(matches!(guest.run(&elsewhere), Err(GuestError::Unsupported { .. })));
    assert_eq!(guest.run(&program("a_dontneed_w_1", 2)).unwrap().rounds.len(), 2);
}

#[test]
fn a_kernel_that_does_not_come_up_ends_and_shows_its_console() {
    let _turn = turn();
    let kernel = kernels::ready("6.12").unwrap();
    let once = Limits { boots: 1, ..Limits::default() };
    let panics = GuestOptions { append: "rdinit=/none".into(), limits: once, ..usual() };
    let error = Guest::boot(&kernel, &panics).err().unwrap().to_string();
    assert!(error.contains("ended while it booted") && error.contains("Kernel panic"), "{error}");

    let limits = Limits { boot: Duration::from_millis(300), ..Limits::default() };
    let late = GuestOptions { limits, ..marked("late-guest") };
    let error = Guest::boot(&kernel, &late).err().unwrap().to_string();
    assert!(error.contains("did not boot"), "{error}");
    assert!(processes_with("late-guest").is_empty());
}

/// The emulators with this word on their guest's command line.
fn emulators(word: &str) -> Vec<u32> {
    let names = |pid: &u32| fs::read_to_string(format!("/proc/{pid}/comm"));
    let is_emulator = |pid: &u32| names(pid).is_ok_and(|name| name.starts_with("qemu"));
    processes_with(word).into_iter().filter(is_emulator).collect()
}

/// The test stops the first emulator, so that it seems to hang.
#[test]
fn a_guest_that_does_not_come_up_is_booted_once_more() {
    let _turn = turn();
    let kernel = kernels::ready("6.12").unwrap();
    let stopper = std::thread::spawn(|| {
        let pid = until("an emulator", || emulators("stopped-guest").first().copied());
        let stop = Command::new("kill").args(["-STOP", &pid.to_string()]).status();
        assert!(stop.unwrap().success());
    });
    let limits = Limits { boot: Duration::from_secs(20), ..Limits::default() };
    let options = GuestOptions { limits, ..marked("stopped-guest") };
    let mut guest = Guest::boot(&kernel, &options).unwrap();
    stopper.join().unwrap();
    let run = guest.run(&program("a_dontneed_w_1", 2)).unwrap();
    // There are more than two boots if the machine is too busy for the second one.
    let boots: u32 = run.environment["guest.boots"].parse().unwrap();
    assert!(boots >= 2, "{boots}");
    drop(guest);
    assert!(processes_with("stopped-guest").is_empty());
}

#[test]
fn after_a_guest_is_killed_its_program_gets_another_and_the_batch_goes_on() {
    let _turn = turn();
    let limits = Limits { run_seconds: 10, ..Limits::default() };
    let options = GuestOptions { limits, ..marked("killed-guest") };
    let brief = || program("a_dontneed_w_1", 2);
    let programs = [brief(), endless(), brief()];
    let (sender, done) = channel();
    let killer = std::thread::spawn(move || {
        assert_eq!(done.recv(), Ok(1), "the first program is over");
        // This is well before the limit, and long enough for the next program to begin.
        std::thread::sleep(Duration::from_secs(2));
        let first = emulators("killed-guest");
        assert_eq!(first.len(), 1);
        let kill = Command::new("kill").args(["-KILL", &first[0].to_string()]).status();
        assert!(kill.unwrap().success());
        until("another emulator", || {
            emulators("killed-guest").into_iter().find(|pid| *pid != first[0])
        });
    });
    // The test waits only for the first message.
    let progress = |at| {
        let _ = sender.send(at);
    };
    let results = run_batch(&KernelTarget::named("6.12", options), &programs, &progress).unwrap();
    killer.join().unwrap();
    let ended = results[1].as_ref().unwrap_err().to_string();
    assert!(ended.contains("longer than 10 s"), "{ended}");
    for at in [0, 2] {
        assert_eq!(results[at].as_ref().unwrap().rounds.len(), 2);
    }
    assert!(processes_with("killed-guest").is_empty());
}

/// This is not a test by itself: it is the process that the next test kills.
#[test]
#[ignore = "started by the next test"]
fn a_guest_for_good() {
    let kernel = kernels::ready("6.12").unwrap();
    let mut guest = Guest::boot(&kernel, &marked("orphan-guest")).unwrap();
    println!("booted");
    let _ = guest.run(&endless());
}

#[test]
fn kill_9_leaves_no_process_behind() {
    let _turn = turn();
    // The test kills the process during a boot, and while a program runs.
    for wait_for_boot in [false, true] {
        let mut child =
            again("long::boot::a_guest_for_good").stdout(Stdio::piped()).spawn().unwrap();
        if wait_for_boot {
            let lines = BufReader::new(child.stdout.take().unwrap()).lines();
            assert!(lines.map_while(Result::ok).any(|line| line.contains("booted")));
        } else {
            until_true("a guest", || !emulators("orphan-guest").is_empty());
        }
        child.kill().unwrap();
        child.wait().unwrap();
        until_true("nothing left", || processes_with("orphan-guest").is_empty());
    }
}

//! arm64 kernels under QEMU: the faults and the TLB invalidations of tests/captures-arm64.tsv.
//!
//! The tests also need the runner for arm64 and QEMU's plugin. These are built unless the
//! environment names them. If QEMU or the runner is missing and cannot be installed or built, the
//! tests are skipped.

use needless_guest::{GuestError, GuestOptions, KernelTarget, run_batch};
use needless_model::account::Account;
use needless_model::agreement::{Agreement, Side};
use needless_model::event::{Event, EventKind};
use needless_model::instructions::invalidations;
use needless_model::kernels::KernelRow;
use needless_model::program::{OpKind, Program};
use needless_model::run::{Round, TargetRun};
use needless_model::sim::{self, SimOptions};
use needless_scenario::{Settings, Source, compile, load, random};
use needless_testing::{skip, turn};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

const ROUNDS: u32 = 8;

const MACHINES: [(&str, &str); 4] =
    [("6.1", "max"), ("6.1", "cortex-a72"), ("6.12", "max"), ("6.12", "cortex-a72")];

/// A row of the table.
struct Row {
    scenario: &'static str,
    kernel: &'static str,
    processor: &'static str,
    expected: String,
}

fn rows() -> Vec<Row> {
    let text = include_str!("../../../../tests/captures-arm64.tsv");
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let fields: Vec<&str> = line.split('\t').collect();
            let [scenario, kernel, processor, faults, invalidations] = fields[..] else {
                panic!("a row without five fields: {line}");
            };
            Row { scenario, kernel, processor, expected: format!("{faults}; {invalidations}") }
        })
        .collect()
}

/// The runner for arm64, with the plugin and this machine's runner beside these tests. If it cannot
/// be built, returns `None`, and the test is skipped.
pub(super) fn runner() -> Option<PathBuf> {
    let root = user() == Some(0);
    if Command::new("qemu-system-aarch64").arg("--version").output().is_err() && !root {
        skip!("qemu-system-aarch64 is missing, and only root can install it");
    }
    if let Some(path) = std::env::var_os("NEEDLESS_RUNNER_ARM64") {
        return Some(path.into());
    }
    // The path of this test is TARGET/PROFILE/deps/long-….
    let test = std::env::current_exe().unwrap();
    let target = test.ancestors().nth(3).unwrap();
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let run = |command: &mut Command| {
        let status = command.current_dir(workspace).env("CARGO_TARGET_DIR", target).status();
        assert!(status.unwrap().success(), "{command:?}");
    };
    run(Command::new(env!("CARGO")).args(["build", "--quiet", "-p", "needless-runner"]));
    run(Command::new("scripts/arm64.sh").arg("debug"));
    let path = target.join("debug/needless-runner-arm64");
    if !path.exists() {
        skip!("there is no runner for arm64: scripts/arm64.sh says why");
    }
    Some(path)
}

/// The user id of this process.
fn user() -> Option<u32> {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self").ok().map(|found| found.uid())
}

fn program(name: &str) -> Program {
    let mut program = compile(&load(name).unwrap(), &Settings::default()).unwrap();
    for op in &mut program.threads[0].body {
        if let OpKind::Rounds { count, .. } = &mut op.kind {
            *count = ROUNDS;
        }
    }
    program
}

/// What a child does to the pages of a fork; then its parent reads and writes them. The number of
/// faults depends on whether the processor sets accessed bits.
const FORKS: [&str; 4] = [
    "read \"heap\"; read \"heap\"",
    "read \"heap[0..8]\"; write \"heap[8..16]\"; write \"heap[0..8]\"",
    "write \"heap[4..12]\"; read \"heap\"; map \"own\" pages=8; read \"own\"; write \"own\"",
    "mprotect \"heap[0..8]\" prot=\"read\"; read \"heap\"; munmap \"heap[8..16]\"",
];

fn fork(child: &str) -> Program {
    let text = format!(
        "scenario \"fork\" {{ machine {{ cpus 2 }}
         thread \"main\" cpu=0 {{ map \"heap\" pages=16; write \"heap\"
             rounds {ROUNDS} warmup=2 {{ fork \"child\"; wait \"child\"; read \"heap\"; write \"heap\" }} }}
         process \"child\" cpu=1 {{ {child} }} }}"
    );
    compile(&Source::new("fork", text), &Settings::default()).unwrap()
}

/// The most boots until every program has its undisturbed rounds.
const MOST_BOOTS: usize = 3;

/// Runs each program, and runs it again in another boot if all its rounds were disturbed. A guest
/// does not show what disturbed them, and on a busy machine its clock goes on while it waits for a
/// processor.
fn undisturbed(target: &KernelTarget, programs: &[Program]) -> Vec<TargetRun> {
    let runs: Vec<TargetRun> = repeated(target, programs).into_iter().map(Result::unwrap).collect();
    for (program, run) in programs.iter().zip(&runs) {
        assert_eq!(run.invalid, None, "{}", program.name);
    }
    runs
}

/// Runs each program, and runs it again in another boot if its run was invalid. A refused program
/// is not run again.
fn repeated(target: &KernelTarget, programs: &[Program]) -> Vec<Result<TargetRun, GuestError>> {
    let mut runs = run_batch(target, programs, &|_| {}).unwrap();
    for _ in 1..MOST_BOOTS {
        let was = |run: &Result<TargetRun, _>| run.as_ref().is_ok_and(|run| run.invalid.is_some());
        let disturbed: Vec<usize> = (0..runs.len()).filter(|at| was(&runs[*at])).collect();
        if disturbed.is_empty() {
            break;
        }
        let again: Vec<Program> = disturbed.iter().map(|at| programs[*at].clone()).collect();
        let again = run_batch(target, &again, &|_| {}).unwrap();
        disturbed.into_iter().zip(again).for_each(|(at, run)| runs[at] = run);
    }
    runs
}

/// A guest shows only the number of faults.
#[test]
fn faults_after_a_fork_are_those_of_the_model() {
    let _turn = turn();
    let Some(runner) = runner() else { return };
    let mut programs: Vec<Program> = FORKS.iter().map(|child| fork(child)).collect();
    programs.push(program("fork-touch"));
    let mut faults = BTreeMap::new();
    for (kernel, processor) in MACHINES {
        let options = GuestOptions {
            processor: Some(processor.to_owned()),
            runner: Some(runner.clone()),
            ..GuestOptions::default()
        };
        let row = KernelRow::parse(&format!("{kernel}/arm64,cpu={processor}")).unwrap();
        let target = KernelTarget::named(&format!("{kernel}/arm64"), options);
        for (program, real) in programs.iter().zip(undisturbed(&target, &programs)) {
            let modelled = sim::run(program, &row, &SimOptions::default()).unwrap();
            let of = |run: &TargetRun| {
                run.rounds.iter().map(|r| (r.minor_faults, r.major_faults)).collect::<Vec<_>>()
            };
            let (real, modelled) = (of(&real), of(&modelled));
            assert_eq!(real, modelled, "{} on {kernel} {processor}", program.name);
            faults.entry(processor).or_insert_with(Vec::new).push(real[0].0.unwrap());
        }
    }
    // The child reads 64 pages. It takes a fault for each if the processor does not set the bit,
    // and none if it does.
    assert_eq!(faults["max"].last(), Some(&0));
    assert_eq!(faults["cortex-a72"].last(), Some(&64));
}

/// A round as text, such as `1/0; 0 ¦ vale1is=1`.
fn text(round: &Round) -> String {
    let (minor, major) = (round.minor_faults.unwrap(), round.major_faults.unwrap());
    format!("{minor}/{major}; {}", invalidations(&round.instructions))
}

/// Checks what can be seen, and that nothing else counts as seen.
fn check(row: &Row, run: &TargetRun) -> Result<(), String> {
    let name = format!("{} {} {}", row.scenario, row.kernel, row.processor);
    assert_eq!(run.rounds.len(), ROUNDS as usize, "{name}");
    for hidden in ["faults", "flushes"] {
        assert!(run.unseen.contains_key(hidden), "{name}: {hidden}: {:?}", run.unseen);
    }
    for round in &run.rounds {
        let shows =
            |event: &Event| matches!(event.kind, EventKind::Fault { .. } | EventKind::Flush { .. });
        assert!(!round.events.iter().any(shows), "{name}");
        for phase in &round.instructions {
            let invalidates = phase.keys().any(|name| name.starts_with("tlbi "));
            let waits = phase.keys().any(|name| name.starts_with("dsb "));
            assert!(waits || !invalidates, "{name}: no barrier after an invalidation: {phase:?}");
        }
    }
    let other = run.rounds.iter().map(text).find(|text| *text != row.expected);
    other.map_or(Ok(()), |text| Err(format!("{name}: {text}, not {}", row.expected)))
}

#[test]
fn kernels_do_what_was_captured_on_both_processors() {
    let _turn = turn();
    let Some(runner) = runner() else { return };
    let rows = rows();
    let mut differences = Vec::new();
    for boot in rows.chunk_by(|a, b| (a.kernel, a.processor) == (b.kernel, b.processor)) {
        let options = GuestOptions {
            processor: Some(boot[0].processor.to_owned()),
            runner: Some(runner.clone()),
            ..GuestOptions::default()
        };
        let programs: Vec<Program> = boot.iter().map(|row| program(row.scenario)).collect();
        let kernel = format!("{}/arm64", boot[0].kernel);
        let runs = undisturbed(&KernelTarget::named(&kernel, options), &programs);
        for (row, run) in boot.iter().zip(runs) {
            differences.extend(check(row, &run).err());
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

/// Scenarios of one process whose flushes are compared with the model's: built-in ones, and random
/// ones with seeds that draw no processes.
fn compared() -> Vec<Program> {
    let names = ["z_munmap_freept", "z_populate_write", "b_pf3_ext4", "f_truncate", "cow-reuse"];
    let random = (61_000..61_016).map(|seed| {
        let case = random::generate(seed, &random::Target::new((6, 1), 2));
        let source = Source::new(&case.name, case.text().unwrap());
        compile(&source, &Settings::default()).unwrap()
    });
    names.into_iter().map(program).chain(random).collect()
}

#[test]
fn kernels_flush_as_the_model_does() {
    let _turn = turn();
    let Some(runner) = runner() else { return };
    let programs = compared();
    let mut differences = Vec::new();
    for (kernel, processor) in MACHINES {
        let options = GuestOptions {
            processor: Some(processor.to_owned()),
            runner: Some(runner.clone()),
            ..GuestOptions::default()
        };
        let target = KernelTarget::named(&format!("{kernel}/arm64"), options);
        let (row, own_row) = target.row();
        assert!(own_row, "{kernel}");
        let results = repeated(&target, &programs);
        let (mut exact, mut others) = (0, Vec::new());
        for (program, result) in programs.iter().zip(results) {
            let model = sim::run(program, &row, &SimOptions::default());
            // The kernel refuses what it lacks, and so does the model.
            let (Ok(real), Ok(model)) = (&result, &model) else {
                others.push(format!("{}: {:?} {:?}", program.name, result.err(), model.err()));
                continue;
            };
            let accounts = (Account::of(program, real), Account::of(program, model));
            let side = |run, account| Side { run, account };
            let agreement = Agreement::between(side(real, &accounts.0), side(model, &accounts.1));
            exact += usize::from(agreement.is_exact());
            others.extend(real.invalid.iter().map(|why| format!("{}: {why}", program.name)));
            others.extend(agreement.undecided.map(|why| format!("{}: {why}", program.name)));
            if !agreement.differing.is_empty() || !agreement.final_pages.is_empty() {
                differences.push(format!("{} on {kernel} {processor}", program.name));
            }
        }
        let others = others.join("\n");
        assert!(exact > programs.len() / 2, "only {exact} on {kernel} {processor}:\n{others}");
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

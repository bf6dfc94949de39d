//! Helpers of the tests on the live kernel: programs written by hand, and events in short form.
#![allow(dead_code, clippy::unwrap_used)]

use needless_live::{LiveError, LiveOptions};
use needless_model::addr::{CpuId, PageRange, Vpn};
use needless_model::call::CallExpr;
use needless_model::event::{Event, EventKind, FaultCode, FlushReason};
use needless_model::program::*;
use needless_model::run::{Round, TargetRun};
use needless_testing::{note_skipped, skip};
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{MutexGuard, Once};

/// The path of the runner: the one that the environment names, or that of this build.
pub fn runner() -> PathBuf {
    match std::env::var_os("NEEDLESS_RUNNER") {
        Some(path) => path.into(),
        None => {
            let program = std::env::current_exe().unwrap();
            program.ancestors().nth(2).unwrap().join("needless-runner")
        }
    }
}

/// Waits for the turn: live runs exclude each other, so the tests of a binary run one at a time.
/// Builds the runner first if there is none.
pub fn turn() -> MutexGuard<'static, ()> {
    static BUILD: Once = Once::new();
    let guard = needless_testing::turn();
    BUILD.call_once(|| {
        if std::env::var_os("NEEDLESS_RUNNER").is_some() {
            return;
        }
        let status = Command::new(env!("CARGO"))
            .args(["build", "--quiet", "-p", "needless-runner", "--bin", "needless-runner"])
            .status();
        assert!(status.unwrap().success(), "the runner does not build");
    });
    guard
}

/// Whether this process is root. If not, the test is skipped.
pub fn root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        note_skipped("needs root");
    }
    root
}

/// Whether this is x86-64 with a kernel of at least `major.minor`. If not, the test is skipped.
pub fn kernel_at_least(major: u32, minor: u32) -> bool {
    let series = needless_runner::environment::series();
    let good = cfg!(target_arch = "x86_64") && series >= (major, minor);
    if !good {
        let reason = format!("the expectation is for x86-64 kernels from {major}.{minor} on");
        note_skipped(&reason);
    }
    good
}

pub const AREA: Vpn = Vpn(0x7_0000_0000);

pub fn pages(first: i64, count: i64) -> RangeExpr {
    RangeExpr { area: 0, first: Expr::Const(first), pages: Expr::Const(count) }
}

pub fn touch(access: Access, count: i64) -> OpKind {
    let order = Order::Ascending { stride: Expr::Const(1) };
    OpKind::Touch { range: pages(0, count), access, order }
}

pub fn advise(advice: Advice, count: i64) -> OpKind {
    OpKind::Call(CallExpr::Advise { pages: pages(0, count), advice })
}

pub const MAP: OpKind = OpKind::Call(CallExpr::Map { area: 0, prot: Prot::ReadWrite });

/// Maps and writes a page in area 1, next to area 0, which keeps their page table.
pub fn neighbour() -> [OpKind; 2] {
    let range = RangeExpr { area: 1, first: Expr::Const(0), pages: Expr::Const(1) };
    let order = Order::Ascending { stride: Expr::Const(1) };
    [
        OpKind::Call(CallExpr::Map { area: 1, prot: Prot::ReadWrite }),
        OpKind::Touch { range, access: Access::Write, order },
    ]
}

pub struct Draft {
    pub size: u64,
    pub setup: Vec<OpKind>,
    pub round: Vec<OpKind>,
    pub second: Option<OpKind>,
    pub swap: bool,
    pub warmup: u32,
    pub count: u32,
}

impl Draft {
    pub fn new(size: u64, setup: Vec<OpKind>, round: Vec<OpKind>) -> Draft {
        Draft { size, setup, round, second: Some(OpKind::Spin), swap: false, warmup: 6, count: 100 }
    }

    pub fn program(self) -> Program {
        let mut texts = Vec::new();
        let mut ops = |kinds: Vec<OpKind>| -> Vec<Op> {
            let number = |kind| {
                texts.push(format!("{kind:?}"));
                Op { id: texts.len() as u32 - 1, kind }
            };
            kinds.into_iter().map(number).collect()
        };
        let mut body = ops(self.setup);
        let round = ops(self.round);
        body.extend(ops(vec![OpKind::Rounds {
            slot: 0,
            warmup: self.warmup,
            count: self.count,
            body: round,
        }]));
        let mut threads = vec![Thread::new("main", CpuId(0), body)];
        let second = self.second.map(|kind| Thread::new("other", CpuId(1), ops(vec![kind])));
        threads.extend(second);
        let area = |name: &str, start, size| Area::anonymous(name, PageRange::new(start, size));
        Program {
            name: "test".into(),
            machine: MachineNeeds {
                cpus: 2,
                swap: self.swap.then_some(SwapNeed { kind: SwapKind::Zram, size_bytes: 64 << 20 }),
                ..MachineNeeds::default()
            },
            areas: vec![
                area("heap", AREA, self.size),
                area("next", AREA.add(if self.size < 400 { 400 } else { self.size }), 1),
                area("far", AREA.add(if self.size < 100 { 200 } else { 1 << 20 }), self.size),
            ],
            threads,
            marks: vec!["x".into()],
            op_texts: texts,
            slots: 2,
            ..Program::default()
        }
    }

    pub fn run(self) -> TargetRun {
        needless_live::run(&self.program(), &LiveOptions::default()).unwrap()
    }
}

pub fn try_run(program: &Program) -> Result<TargetRun, LiveError> {
    needless_live::run(program, &LiveOptions::default())
}

/// A round in short form: faults, flushes with `IPI:` if they were sent and `loc:` if not, marks as
/// `¦`.
pub fn short(program: &Program, round: &Round) -> String {
    let mut words = Vec::new();
    let mut sent = false;
    for event in &round.events {
        words.extend(word(program, event, &mut sent));
    }
    words.join(" ")
}

fn word(program: &Program, event: &Event, sent: &mut bool) -> Option<String> {
    let count = |pages: Option<u32>| pages.map_or("ALL".to_owned(), |pages| pages.to_string());
    match event.kind {
        EventKind::Fault { page, code } if program.owns(page) => Some(
            match code {
                FaultCode(4) => "R",
                FaultCode(6) => "W",
                FaultCode(7) => "WP",
                _ => "?",
            }
            .to_owned(),
        ),
        EventKind::Flush { reason: FlushReason::RemoteSend, .. } => {
            *sent = true;
            None
        }
        EventKind::Flush { reason, pages, .. } => {
            let kind = match reason {
                FlushReason::LocalMm => "MM",
                FlushReason::LocalBatch => "BATCH",
                _ => return None,
            };
            let how = if std::mem::take(sent) { "IPI" } else { "loc" };
            Some(format!("{how}:{kind}({})", count(pages)))
        }
        EventKind::Mark { .. } => Some("¦".to_owned()),
        _ => None,
    }
}

/// How often a run is started again after one with too many disturbed rounds.
const MORE_STARTS: u32 = 3;

/// Asserts that every round reads `expected`. If some rounds are always disturbed, only the others
/// are checked, and the test is skipped: `None`.
pub fn assert_rounds(draft: Draft, expected: &str, faults: (u64, u64)) -> Option<TargetRun> {
    let count = draft.count;
    let program = draft.program();
    let mut run = try_run(&program).unwrap();
    for start in 0..=MORE_STARTS {
        if start > 0 {
            run = try_run(&program).unwrap();
        }
        for round in &run.rounds {
            let at = round.index;
            assert_eq!(short(&program, round), expected, "round {at}: {:#?}", round.events);
            assert_eq!((round.minor_faults, round.major_faults), (Some(faults.0), Some(faults.1)));
        }
        if run.rounds.len() == count as usize {
            let indices = run.rounds.iter().map(|round| round.index);
            assert!(indices.eq(0..count), "{run:?}");
            return Some(run);
        }
    }
    skip!("{}", undecided(&run))
}

/// Why a run does not have all its rounds, from its witness.
pub fn undecided(run: &TargetRun) -> String {
    let reasons = run.witness.marked.iter().map(|(reason, count)| format!("{reason}: {count}"));
    let reasons: Vec<String> = reasons.collect();
    let what = run.invalid.as_deref().unwrap_or("rounds are missing");
    format!("{what} ({})", reasons.join("; "))
}

/// The children of a process that have this name.
pub fn children_named(name: &str, parent: u32) -> Vec<u32> {
    let pids = fs::read_dir("/proc").unwrap().flatten();
    pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid: &u32| {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            let Some((head, rest)) = stat.rsplit_once(") ") else { return false };
            // The kernel keeps 15 bytes of a name.
            head.ends_with(&name[..name.len().min(15)])
                && rest.split(' ').nth(1) == Some(&parent.to_string())
        })
        .collect()
}

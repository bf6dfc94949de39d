//! Runs made by hand: one page of swap is read and written, as 5.10, 6.1 and 6.18 do it.

use needless_model::addr::{CpuId, PageRange, Pfn, ProcessId, ThreadId, Vpn};
use needless_model::counters::Counter;
use needless_model::event::{Event, EventKind, FaultClass, FaultCode, FlushReason};
use needless_model::program::{Area, MachineNeeds, Program, Thread};
use needless_model::run::{Round, TargetRun, TimedBlock, Witness};
use needless_model::site::Site;
use needless_model::verdict::{Judgement, Reason, Verdict};
use needless_report::answer::{Avoided, Lowered};
use needless_report::compare::{Comparison, Outcome, Ran, Target};
use needless_report::steps::{Change, Difference, Explanation, Step};

const PAGE: Vpn = Vpn(0x7_0000_0000);

/// The program of all these runs.
pub fn program() -> Program {
    let thread = |name, cpu| Thread::new(name, CpuId(cpu), Vec::new());
    Program {
        name: "cow-reuse".into(),
        machine: MachineNeeds { cpus: 2, ..MachineNeeds::default() },
        areas: vec![Area::anonymous("heap", PageRange::new(PAGE, 1))],
        threads: vec![thread("main", 0), thread("spinner", 1)],
        marks: vec!["write".into()],
        op_texts: vec!["madvise heap pageout".into(), "read heap".into(), "write heap".into()],
        ..Program::default()
    }
}

/// A round under construction.
struct Script {
    events: Vec<Event>,
    op: u32,
}

impl Script {
    fn push(&mut self, cpu: u16, site: Site, kind: EventKind) -> &mut Event {
        let seq = 100 + self.events.len() as u64;
        let (thread, op) = (Some(ThreadId(cpu)), (cpu == 0).then_some(self.op));
        let site = Some(site);
        let cpu = CpuId(cpu);
        self.events.push(Event { seq, time_ns: 0, cpu, thread, op, site, kind, verdict: None });
        self.events.last_mut().unwrap()
    }

    fn flush(
        &mut self,
        site: Site,
        reason: FlushReason,
        pages: Option<u32>,
        verdict: (Judgement, Reason),
    ) {
        let kind = |reason| EventKind::Flush { reason, pages, asked: None };
        let verdict = Some(Verdict::new(verdict.0, verdict.1));
        self.push(0, site, kind(FlushReason::RemoteSend)).verdict = verdict;
        self.push(0, site, kind(reason));
        self.push(1, Site::FlushTlbFunc, kind(FlushReason::RemoteShootdown)).verdict = verdict;
    }

    fn fault(
        &mut self,
        code: FaultCode,
        class: FaultClass,
        major: bool,
        verdict: (Judgement, Reason),
    ) {
        self.push(0, Site::ExcPageFault, EventKind::Fault { page: PAGE, code });
        match class {
            FaultClass::SwapIn => {
                self.push(
                    0,
                    Site::DoSwapPage,
                    EventKind::PageIn { page: PAGE, frame: Pfn(7), zero_filled: false },
                );
            }
            FaultClass::CowCopy => {
                let kind = EventKind::Copy { page: PAGE, from: Pfn(7), to: Pfn(8) };
                self.push(0, Site::WpPageCopy, kind).verdict =
                    Some(Verdict::new(Judgement::Needless, Reason::OnlyTransientReference));
                let needed = (Judgement::Needed, Reason::StaleTranslations);
                self.flush(Site::PtepClearFlush, FlushReason::LocalMm, Some(1), needed);
            }
            _ => {}
        }
        let site = if code.present() { Site::DoWpPage } else { Site::DoSwapPage };
        let kind = EventKind::FaultDone { page: PAGE, class, major, exception: true };
        self.push(0, site, kind).verdict = Some(Verdict::new(verdict.0, verdict.1));
    }
}

const PENDING: (Judgement, Reason) = (Judgement::Needless, Reason::PendingAlreadyFlushed);
const STALE: (Judgement, Reason) = (Judgement::Needed, Reason::StaleTranslations);
const FLUSHED: (Judgement, Reason) = (Judgement::Needless, Reason::UnmappedAndFlushed);
const NEW: (Judgement, Reason) = (Judgement::Needed, Reason::NewTranslation);
const LATE: (Judgement, Reason) = (Judgement::Needless, Reason::CouldHaveBeenWritable);

/// One round as `kernel` makes it.
fn round(kernel: &str, index: u32) -> Round {
    let mut script = Script { events: Vec::new(), op: 0 };
    script.flush(Site::FlushTlbBatchedPending, FlushReason::LocalMm, None, PENDING);
    let kind = EventKind::PageOut { page: PAGE, frame: Pfn(7), zero_filled: false };
    script.push(0, Site::Pageout, kind);
    script.flush(Site::ArchTlbbatchFlush, FlushReason::LocalBatch, None, STALE);
    if kernel != "6.18" {
        script.flush(Site::TlbFinishMmu, FlushReason::LocalMm, Some(1), FLUSHED);
    }
    script.op = 1;
    script.fault(FaultCode::user(false, false), FaultClass::SwapIn, true, NEW);
    script.op = 2;
    match kernel {
        "5.10" => script.fault(FaultCode::user(true, true), FaultClass::CowCopy, false, LATE),
        "6.1" => script.fault(FaultCode::user(true, true), FaultClass::Reuse, false, LATE),
        _ => {}
    }
    let minor = u64::from(kernel != "6.18");
    Round {
        index,
        events: script.events,
        minor_faults: Some(minor),
        major_faults: Some(1),
        ..Round::default()
    }
}

/// A run of the model.
pub fn model(kernel: &str, rounds: u32) -> TargetRun {
    TargetRun {
        target: format!("model:{kernel}"),
        rounds: (0..rounds).map(|index| round(kernel, index)).collect(),
        ..TargetRun::default()
    }
}

/// A run of a real 6.18, which shows only exceptions and flushes. Round `odd` has one fault more,
/// if there is such a round.
pub fn live(rounds: u32, odd: Option<u32>) -> TargetRun {
    let mut run = model("6.18", rounds);
    run.target = "live".into();
    run.release = Some("6.18.44-made-up".into());
    for (at, round) in run.rounds.iter_mut().enumerate() {
        let cycles = 1000 + at as u64 * 7 % 40;
        round.cycles = vec![TimedBlock { process: ProcessId::FIRST, cycles }];
        round.events.retain(|event| {
            matches!(event.kind, EventKind::Fault { .. } | EventKind::Flush { .. })
        });
        for event in &mut round.events {
            (event.site, event.verdict, event.op) = (None, None, None);
        }
        if odd == Some(round.index) {
            let mut extra = round.events[0];
            extra.seq = 999;
            extra.kind = EventKind::Fault { page: PAGE, code: FaultCode::user(true, true) };
            round.events.push(extra);
        }
    }
    for (names, reason) in [
        ("copies zeroings pages_in pages_out", "this kernel traces no page copies"),
        (
            "faults_by_class needless_faults needless_copies needless_shootdowns \
             needless_local_flushes needless_interrupts",
            "a real kernel gives no verdicts",
        ),
    ] {
        for name in names.split_whitespace() {
            run.unseen.insert(name.into(), reason.into());
        }
    }
    run.environment.insert("cpu".into(), "made up".into());
    run.witness = Witness { attempted: rounds + 1, ..Witness::default() };
    run.witness.marked.insert("CPU 1 had left the mask".into(), 1);
    run
}

/// A target of the model.
pub fn model_target(kernel: &str) -> Target {
    let ran = Ran::model(&program(), model(kernel, 12));
    Target { name: format!("model:{kernel}"), remark: None, outcome: Outcome::Ran(Box::new(ran)) }
}

/// A real target, compared with model:6.18.
pub fn live_target(run: TargetRun, own_row: bool) -> Target {
    let ran = Ran::real(&program(), run, &model("6.18", 12), own_row);
    Target { name: "live".into(), remark: None, outcome: Outcome::Ran(Box::new(ran)) }
}

/// The remedies for the needless things of 5.10.
fn avoided() -> Vec<Avoided> {
    let lowered = Lowered { target: "model:7.3+pending-cleared".into(), from: 1, to: 0 };
    let avoided = |counter, since: Option<&str>, proposals| Avoided {
        counter,
        since: since.map(str::to_owned),
        proposals,
    };
    vec![
        avoided(Counter::NeedlessFaults, Some("6.12"), Vec::new()),
        avoided(Counter::NeedlessShootdowns, None, vec![lowered]),
        avoided(Counter::NeedlessCopies, None, Vec::new()),
    ]
}

/// The comparison that most snapshots show.
pub fn comparison() -> Comparison {
    let difference = |policy: &str, from: &str, to: &str| Difference {
        policy: policy.into(),
        from: from.into(),
        to: to.into(),
    };
    let step = Step {
        from: "model:5.10".into(),
        to: "model:6.1".into(),
        changes: vec![Change {
            counters: vec![(Counter::Copies, 1, 0), (Counter::Shootdowns, 4, 3)],
            explanation: Explanation::Alone(vec![difference(
                "reuse",
                "page-count",
                "exclusive-drain",
            )]),
        }],
    };
    let unavailable = Target {
        name: "kernel:6.12".into(),
        remark: None,
        outcome: Outcome::Unavailable {
            reason: "there is no such kernel here".into(),
            help: Some("install one".into()),
        },
    };
    let mut first = model_target("5.10");
    first.remark = Some("published figures only".into());
    let targets = vec![
        live_target(live(12, None), true),
        first,
        model_target("6.1"),
        model_target("6.18"),
        unavailable,
    ];
    Comparison { program: program(), targets, steps: vec![step], avoided: avoided() }
}

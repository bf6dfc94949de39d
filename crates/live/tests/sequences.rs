//! Compares real runs with what captures of real kernels show.
#![allow(clippy::unwrap_used)]

mod common;

use common::*;
use needless_model::call::CallExpr;
use needless_model::event::{EventKind, FaultClass};
use needless_model::program::*;

const READ: Access = Access::Read;
const WRITE: Access = Access::Write;
const MARK: OpKind = OpKind::Mark { mark: 0 };

fn setup(more: &[OpKind]) -> Vec<OpKind> {
    neighbour().into_iter().chain([MAP]).chain(more.iter().cloned()).collect()
}

#[test]
fn pageout_read_write_on_one_page() {
    let _turn = turn();
    if !root() || !kernel_at_least(6, 12) {
        return;
    }
    let measure = OpKind::Measure { body: vec![Op { id: 0, kind: touch(WRITE, 1) }] };
    let round = vec![advise(Advice::PageOut, 1), touch(READ, 1), measure];
    let draft = Draft { swap: true, ..Draft::new(1, setup(&[touch(WRITE, 1)]), round) };
    let Some(run) = assert_rounds(draft, "IPI:MM(ALL) IPI:BATCH(ALL) R", (0, 1)) else { return };
    let classes = |round: &needless_model::run::Round| -> Vec<FaultClass> {
        let class = |kind| match kind {
            EventKind::FaultDone { class, .. } => Some(class),
            _ => None,
        };
        round.events.iter().filter_map(|event| class(event.kind)).collect()
    };
    assert!(run.rounds.iter().all(|round| classes(round) == [FaultClass::SwapIn]));
    assert!(run.rounds.iter().all(|round| round.kernel_counters["pswpin"] == 1));
    let timed = run.rounds.iter().filter(|round| round.cycles.len() == 1).count();
    assert!(timed * 2 > run.rounds.len(), "{timed} rounds have cycles");
    assert_eq!(run.final_pages["heap[0]"].split(' ').next(), Some("present"));
}

#[test]
fn pageout_without_a_second_thread_flushes_locally() {
    let _turn = turn();
    if !root() || !kernel_at_least(6, 12) {
        return;
    }
    let round = vec![advise(Advice::PageOut, 1), touch(READ, 1), touch(WRITE, 1)];
    let draft =
        Draft { swap: true, second: None, ..Draft::new(1, setup(&[touch(WRITE, 1)]), round) };
    assert_rounds(draft, "loc:MM(1) R", (0, 1));
}

#[test]
fn zero_page_then_write() {
    let _turn = turn();
    if !root() || !kernel_at_least(5, 10) {
        return;
    }
    let round = vec![advise(Advice::DontNeed, 1), touch(READ, 1), MARK, touch(WRITE, 1)];
    let draft = Draft::new(1, setup(&[touch(WRITE, 1)]), round);
    let Some(run) = assert_rounds(draft, "IPI:MM(1) R ¦ WP IPI:MM(1)", (2, 0)) else { return };
    for round in &run.rounds {
        let upgraded = round.events.iter().any(|event| {
            matches!(event.kind, EventKind::FaultDone { class: FaultClass::ZeroUpgrade, .. })
        });
        assert!(upgraded, "{:#?}", round.events);
    }
}

#[test]
fn munmap_of_one_page() {
    let _turn = turn();
    if !root() || !kernel_at_least(5, 10) {
        return;
    }
    let round =
        vec![MAP, touch(WRITE, 1), MARK, OpKind::Call(CallExpr::Unmap { pages: pages(0, 1) })];
    let draft = Draft::new(1, neighbour().to_vec(), round);
    let Some(run) = assert_rounds(draft, "W ¦ IPI:MM(1)", (1, 0)) else { return };
    assert!(!run.final_pages.contains_key("heap[0]"), "{:?}", run.final_pages);
}

#[test]
fn mprotect_of_33_and_34_pages() {
    let _turn = turn();
    if !root() || !kernel_at_least(6, 1) {
        return;
    }
    for (size, flush) in [(33, "33"), (34, "ALL")] {
        let protect = |prot| OpKind::Call(CallExpr::Protect { pages: pages(0, size), prot });
        let round =
            vec![protect(Prot::Read), MARK, protect(Prot::ReadWrite), MARK, touch(WRITE, size)];
        let draft = Draft::new(size as u64, setup(&[touch(WRITE, size)]), round);
        assert_rounds(draft, &format!("IPI:MM({flush}) ¦ IPI:MM({flush}) ¦"), (0, 0));
    }
}

#[test]
fn cold_twice() {
    let _turn = turn();
    if !root() || !kernel_at_least(5, 10) {
        return;
    }
    let cold = advise(Advice::Cold, 4);
    let round = vec![touch(READ, 4), MARK, cold.clone(), MARK, cold];
    let draft = Draft::new(4, setup(&[touch(WRITE, 4)]), round);
    assert_rounds(draft, "¦ IPI:MM(4) ¦", (0, 0));
}

#[test]
fn mremap_away_and_back() {
    let _turn = turn();
    if !root() || !kernel_at_least(5, 10) {
        return;
    }
    let far = RangeExpr { area: 2, first: Expr::Const(0), pages: Expr::Const(16) };
    let round = vec![
        OpKind::Call(CallExpr::Remap { pages: pages(0, 16), to: 2 }),
        MARK,
        OpKind::Call(CallExpr::Remap { pages: far, to: 0 }),
    ];
    let draft = Draft::new(16, setup(&[touch(WRITE, 16)]), round);
    assert_rounds(draft, "IPI:MM(16) ¦ IPI:MM(16)", (0, 0));
}

#[test]
fn populate_counts_faults_without_exceptions() {
    let _turn = turn();
    if !root() || !kernel_at_least(6, 1) {
        return;
    }
    let round = vec![advise(Advice::PopulateWrite, 8), MARK, advise(Advice::DontNeed, 8)];
    assert_rounds(Draft::new(8, setup(&[]), round), "¦ IPI:MM(8)", (8, 0));
}

#[test]
fn a_sleeping_thread_leaves_its_cpu_lazy() {
    let _turn = turn();
    if !root() || !kernel_at_least(6, 13) {
        return;
    }
    let round =
        vec![MAP, touch(WRITE, 1), MARK, OpKind::Call(CallExpr::Unmap { pages: pages(0, 1) })];
    let sleep = OpKind::Sleep { duration_ns: None };
    let draft =
        Draft { second: Some(sleep), count: 20, ..Draft::new(1, neighbour().to_vec(), round) };
    assert_rounds(draft, "W ¦ IPI:MM(1)", (1, 0));
}

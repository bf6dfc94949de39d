//! Verdicts do what they claim: without the flushes that are called needless nothing breaks, without
//! any single one that is called needed something does.

use crate::catalogue::{LONG, LONGEST};
use crate::simulator::discrete;
use crate::{explore, litmus_test};
use needless_check::litmus::Test;
use needless_check::{Options, check};
use needless_model::addr::CpuId;
use needless_model::kernels::KernelRow;
use needless_model::program::{Access, Expr, Op, OpKind, Order, Program, RangeExpr, Thread};
use needless_scenario::builtin;

/// The litmus tests that are quick to explore.
fn tests() -> impl Iterator<Item = Test> {
    let names = builtin::litmus_names().filter(|name| *name != LONGEST);
    names.map(|name| litmus_test(name, if name == LONG { &[("cpus", "2")] } else { &[] }))
}

#[test]
fn nothing_breaks_without_what_is_called_needless() {
    for test in tests() {
        for row in &test.litmus.safe {
            let report =
                explore(&test.program, &format!("{row},skip=needless"), &Options::default());
            assert!(report.holds(), "{} on {row}: {report}", test.name);
        }
    }
}

/// How many flushes each thread issues, in discrete order, that are called needed.
fn needed(test: &Test, row: &str) -> Vec<u32> {
    // Counted, and none of them left out.
    let counted = |thread: usize| {
        let row = KernelRow::parse(&format!("{row},skip-needed={thread}.{}", u32::MAX)).unwrap();
        discrete(&test.program, &row).world.tasks[thread].needed_flushes
    };
    (0..test.program.threads.len()).map(counted).collect()
}

/// The test with one more thread, on a CPU of its own, that loads from `page` of an area at any time.
fn probed(test: &Test, area: u16, page: u64) -> Program {
    let mut program = test.program.clone();
    let range = RangeExpr { area, first: Expr::Const(page as i64), pages: Expr::Const(1) };
    let order = Order::Ascending { stride: Expr::Const(1) };
    let probe = OpKind::Touch { range, access: Access::Read, order };
    let cpu = CpuId(program.threads.iter().map(|thread| thread.cpu.0 + 1).max().unwrap());
    program.machine.cpus = program.machine.cpus.max(cpu.0 + 1);
    program.threads.push(Thread {
        name: "probe".to_owned(),
        cpu,
        kernel: false,
        body: vec![Op { id: 0, kind: probe }],
    });
    program
}

/// What is not noticed within so many states is taken for unnoticed.
const MOST_STATES: usize = 5_000;

#[test]
fn something_breaks_without_any_that_is_called_needed() {
    let breaks = |program: &Program, row: &str| {
        let row = KernelRow::parse(row).unwrap();
        let options = Options { max_states: MOST_STATES, ..Options::default() };
        // A contradiction in the model's counts is noticed as well.
        check(program, &row, &options).map_or(true, |report| report.counterexample.is_some())
    };
    let (mut left_out, mut unnoticed) = (0, Vec::new());
    for test in tests() {
        for row in &test.litmus.safe {
            for (thread, count) in needed(&test, row).into_iter().enumerate() {
                for nth in 1..=count {
                    let name = format!("{row},skip-needed={thread}.{nth}");
                    left_out += 1;
                    let areas = test.program.areas.iter().enumerate();
                    let mut pages = areas.flat_map(|(index, area)| {
                        (0..area.range.pages()).map(move |page| (index as u16, page))
                    });
                    let probe = |(area, page)| breaks(&probed(&test, area, page), &name);
                    if !breaks(&test.program, &name) && !pages.any(probe) {
                        unnoticed.push(format!("{} on {name}", test.name));
                    }
                }
            }
        }
    }
    assert!(left_out > 100, "only {left_out} flushes were left out");
    // A later flush of the same run covers these before anything can use what they left: which one was not
    // worked out for each.
    unnoticed.insert(0, format!("{} of {left_out} are not noticed", unnoticed.len()));
    insta::assert_snapshot!("unnoticed", unnoticed.join("\n"));
}

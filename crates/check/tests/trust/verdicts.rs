//! Verdicts do what they claim: without the flushes that are called needless nothing breaks,
//! without any single one that is called needed something does.

use crate::catalogue::{LONG, LONGEST};
use crate::simulator::discrete;
use crate::{explore, litmus_test, row};
use needless_check::litmus::Test;
use needless_check::{Options, check};
use needless_model::addr::CpuId;
use needless_model::kernels::KernelRow;
use needless_model::program::{Access, Expr, Op, OpKind, Order, Program, RangeExpr, Thread};
use needless_scenario::builtin;
use rayon::prelude::*;

/// Its first flush, the split's, is covered by that of the unmapped pages, which takes minutes to
/// see.
const COVERED: &str = "huge-pageout";

/// The litmus tests that are quick to explore, on rows whose verdicts on flushes count: elsewhere a
/// flush may be there only so that an access does not fault for ever.
fn tests() -> impl Iterator<Item = Test> {
    let names = builtin::litmus_names().filter(|name| ![LONGEST, COVERED].contains(name));
    names.map(|name| {
        let mut test = litmus_test(name, if name == LONG { &[("cpus", "2")] } else { &[] });
        test.litmus.safe.retain(|name| row(name).config.arch().flushes_are_its_own());
        test
    })
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

/// The test with one more thread, on a CPU of its own, that loads from `page` of an area at any
/// time.
fn probed(test: &Test, area: u16, page: u64) -> Program {
    let mut program = test.program.clone();
    let range = RangeExpr { area, first: Expr::Const(page as i64), pages: Expr::Const(1) };
    let order = Order::Ascending { stride: Expr::Const(1) };
    let probe = OpKind::Touch { range, access: Access::Read, order };
    let cpu = CpuId(program.threads.iter().map(|thread| thread.cpu.0 + 1).max().unwrap());
    program.machine.cpus = program.machine.cpus.max(cpu.0 + 1);
    program.threads.push(Thread::new("probe", cpu, vec![Op { id: 0, kind: probe }]));
    program
}

/// States within which it has to be noticed. Most need few; each next bound is for what is left.
const MOST_STATES: [usize; 3] = [5_000, 40_000, 300_000];

/// Whether `row` lets the test break, or a thread that looks at one of its pages.
fn breaks(test: &Test, row: &str, max_states: usize) -> bool {
    let row = KernelRow::parse(row).unwrap();
    let options = Options { max_states, workers: 1, ..Options::default() };
    let breaks = |program: &Program| {
        // A contradiction in the model's counts is noticed as well.
        check(program, &row, &options).map_or(true, |report| report.counterexample.is_some())
    };
    let areas = test.program.areas.iter().enumerate();
    let mut pages = areas
        .flat_map(|(index, area)| (0..area.range.pages()).map(move |page| (index as u16, page)));
    breaks(&test.program) || pages.any(|(area, page)| breaks(&probed(test, area, page)))
}

/// What becomes of a test without one of its needed flushes.
enum Without {
    Breaks,
    /// A later flush of the same run covers it before anything uses what it left.
    Covered,
    Unnoticed,
}

fn without(test: &Test, name: &str) -> Without {
    if MOST_STATES.into_iter().any(|most| breaks(test, name, most)) {
        return Without::Breaks;
    }
    match breaks(test, &format!("{name}+"), MOST_STATES[2]) {
        true => Without::Covered,
        false => Without::Unnoticed,
    }
}

#[test]
fn something_breaks_without_any_that_is_called_needed() {
    let tests: Vec<Test> = tests().collect();
    let left_out: Vec<(&Test, String)> = tests
        .iter()
        .flat_map(|test| test.litmus.safe.iter().map(move |row| (test, row)))
        .flat_map(|(test, row)| {
            let counts = needed(test, row).into_iter().enumerate();
            let flushes = counts.flat_map(|(thread, count)| (1..=count).map(move |n| (thread, n)));
            flushes.map(move |(thread, nth)| (test, format!("{row},skip-needed={thread}.{nth}")))
        })
        .collect();
    // Most explorations are small: side by side they are quicker than each with many workers.
    let judged: Vec<Without> =
        left_out.par_iter().map(|(test, name)| without(test, name)).collect();
    let (mut covered, mut unnoticed) = (Vec::new(), Vec::new());
    for ((test, name), judged) in left_out.iter().zip(judged) {
        match judged {
            Without::Breaks => {}
            Without::Covered => covered.push(format!("{} on {name}", test.name)),
            Without::Unnoticed => unnoticed.push(format!("{} on {name}", test.name)),
        }
    }
    let left_out = left_out.len();
    assert!(left_out > 100, "only {left_out} flushes were left out");
    assert!(unnoticed.is_empty(), "of {left_out}: {unnoticed:#?}");
    covered.insert(0, format!("{} of {left_out} are covered by a later one", covered.len()));
    insta::assert_snapshot!("covered", covered.join("\n"));
}

//! Litmus tests with one more thread each.

use crate::litmus::Test;
use needless_model::addr::{CpuId, ProcessId, ThreadId};
use needless_model::program::{Access, Expr, Op, OpKind, Order, Program, RangeExpr, Thread};

/// The test with one more thread, on a CPU of its own. It does what the last thread of the first
/// process does, of those beside the main one; where there is none, it loads from a page at any
/// time. Observations are left out: they are about loads that are no longer one thread's.
pub fn larger(test: &Test) -> Test {
    let mut larger = test.clone();
    larger.litmus.observations.clear();
    let program = &mut larger.program;
    let cpu = program.threads.iter().map(|thread| thread.cpu.0 + 1).max().unwrap_or(0);
    program.machine.cpus = program.machine.cpus.max(cpu + 1);
    let first = |thread: &Thread| thread.process == ProcessId::FIRST;
    let last = program.threads.iter().rposition(first).filter(|last| *last > 0);
    let copied = last.filter(|last| !holds_pages(program, &program.threads[*last]));
    let thread = copied.map_or_else(|| probe(program), |last| program.threads[last].clone());
    let new = ThreadId(program.threads.len() as u16);
    for barrier in &mut program.barriers {
        if copied.is_some_and(|last| barrier.threads.contains(&ThreadId(last as u16))) {
            barrier.threads.push(new);
        }
    }
    let name = format!("{}-too", thread.name);
    program.threads.push(Thread { cpu: CpuId(cpu), name, ..thread });
    larger
}

/// Whether it pins pages: two threads cannot hold one pin.
fn holds_pages(program: &Program, thread: &Thread) -> bool {
    let alone = Program { threads: vec![thread.clone()], ..program.clone() };
    alone.pins() > 0
}

/// Loads from the first page of the first area.
fn probe(program: &Program) -> Thread {
    let range = RangeExpr { area: 0, first: Expr::Const(0), pages: Expr::Const(1) };
    let order = Order::Ascending { stride: Expr::Const(1) };
    let kind = OpKind::Touch { range, access: Access::Read, order };
    let cpu = program.threads[0].cpu;
    Thread::new("probe", cpu, vec![Op { id: 0, kind }])
}

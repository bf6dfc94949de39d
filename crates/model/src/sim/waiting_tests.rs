//! Tests of threads that wait in the kernel, at migration entries that the tests make themselves.

use super::env::{NoGhost, SimLog, SimWorld};
use super::interpret::Machine;
use super::{SimError, SimOptions};
use crate::addr::{CpuId, MmId, PageRange, Pfn, ProcessId, ThreadId, Vpn};
use crate::call::CallExpr;
use crate::kernels::KernelRow;
use crate::machine::nodes::Nodes;
use crate::machine::room::Room;
use crate::machine::sim_tlbs::SimTlbs;
use crate::machine::world::{WorldSpec, mm_of};
use crate::program::{
    Access, Advice, Area, Barrier, Expr, MachineNeeds, Op, OpKind, Order, Program, Prot, RangeExpr,
    Thread,
};
use crate::pte::{MigrationPte, MigrationRight, Pte};
use crate::run::Round;

const MM: MmId = mm_of(ProcessId::FIRST);
const HEAP: PageRange = PageRange::new(Vpn(512), 3);

/// A program in which one thread maps three pages and touches them after a barrier. The second
/// thread does `other` after the barrier.
fn program(touch: OpKind, other: Vec<OpKind>) -> Program {
    let barrier = OpKind::Barrier { barrier: 0 };
    let map = OpKind::Call(CallExpr::Map { area: 0, prot: Prot::ReadWrite });
    let mut texts = 0;
    let mut ops = |kinds: Vec<OpKind>| -> Vec<Op> {
        let op = |kind| Op {
            id: {
                texts += 1;
                texts - 1
            },
            kind,
        };
        kinds.into_iter().map(op).collect()
    };
    let first = ops(vec![map, barrier.clone(), touch]);
    let second = ops([barrier].into_iter().chain(other).collect());
    Program {
        name: "waiting".to_owned(),
        machine: MachineNeeds { cpus: 2, ..MachineNeeds::default() },
        areas: vec![Area::anonymous("heap", HEAP)],
        threads: vec![Thread::new("one", CpuId(0), first), Thread::new("two", CpuId(1), second)],
        barriers: vec![Barrier { name: "go".to_owned(), threads: vec![ThreadId(0), ThreadId(1)] }],
        op_texts: vec!["an operation".to_owned(); texts as usize],
        ..Program::default()
    }
}

fn all() -> RangeExpr {
    RangeExpr { area: 0, first: Expr::Const(0), pages: Expr::Const(3) }
}

/// Runs the program. A migration entry is at the second page from the first thread's `map` on.
fn run(program: &Program) -> (SimWorld, Result<(), SimError>) {
    let row = KernelRow::parse("6.12").unwrap();
    let arch = row.arch();
    let spec = WorldSpec {
        policies: row.policies,
        config: row.config,
        arch,
        cpus: 2,
        threads: 2,
        processes: 1,
        others: 0,
        nodes: Nodes::one(64),
        swap_pages: 0,
        pins: 0,
        files: Vec::new(),
        room: Room::UNBOUNDED,
    };
    let options = SimOptions::default();
    let log = SimLog::new(options.pte_events, 1 << 20, Room::UNBOUNDED);
    let mut world = SimWorld::new(&spec, SimTlbs::new(2, spec.slots()), NoGhost, log);
    let mut watch = |_: &Round| {};
    let mut machine = Machine::new(program, &mut world, &options, &mut watch);
    machine.turn_to(0);
    machine.advance().unwrap();
    let migrating = MigrationPte {
        pfn: Pfn(7),
        right: MigrationRight::Write,
        accessed: true,
        dirty: true,
        soft_dirty: false,
        uffd_wp: false,
    };
    let table = &mut machine.world.mms[MM.index()].table;
    table.allocate(HEAP.start, 1, &Room::UNBOUNDED).unwrap();
    table.set(HEAP.start.add(1), Pte::Migration(migrating), 0).unwrap();
    let result = machine.run().map_err(|error| *error);
    (world, result)
}

fn present(world: &SimWorld) -> Vec<bool> {
    HEAP.iter().map(|page| world.pte(MM, page).present().is_some()).collect()
}

#[test]
fn a_touch_waits_and_goes_on_where_it_was() {
    let orders = [
        Order::Ascending { stride: Expr::Const(1) },
        Order::Random { count: Expr::Const(20), seed: 1 },
    ];
    for order in orders {
        let touch = OpKind::Touch { range: all(), access: Access::Write, order };
        let gives_up = OpKind::Call(CallExpr::Advise { pages: all(), advice: Advice::DontNeed });
        let (world, result) = run(&program(touch, vec![gives_up]));
        result.unwrap();
        // The pages touched before the wait were discarded meanwhile.
        assert!(present(&world)[1..].iter().all(|there| *there), "{:?}", present(&world));
        assert!(world.pte(MM, HEAP.start.add(1)).present().is_some_and(|pte| pte.dirty()));
    }
}

#[test]
fn a_call_waits_and_goes_on_where_it_was() {
    let touch = OpKind::Call(CallExpr::Advise { pages: all(), advice: Advice::PopulateWrite });
    let second = RangeExpr { area: 0, first: Expr::Const(1), pages: Expr::Const(1) };
    let gives_up = OpKind::Call(CallExpr::Advise { pages: second, advice: Advice::DontNeed });
    let (world, result) = run(&program(touch, vec![gives_up]));
    result.unwrap();
    assert_eq!(present(&world), [true; 3]);
}

#[test]
fn a_wait_that_nobody_ends_is_told() {
    let order = Order::Ascending { stride: Expr::Const(1) };
    let touch = OpKind::Touch { range: all(), access: Access::Read, order };
    let (_, result) = run(&program(touch, Vec::new()));
    let told = result.unwrap_err().to_string();
    assert!(told.contains("`one` waits for the migration of"), "{told}");
}

//! Tests of NUMA nodes, of the order of LRU lists, and of deferred flushes, on worlds that the
//! tests make themselves.

use super::SimOptions;
use super::env::{NoGhost, SimEnv, SimLog, SimWorld};
use crate::addr::{CpuId, MmId, NodeId, Pfn, ProcessId, ThreadId, Vpn};
use crate::env::Context;
use crate::kernel::alloc::{Request, with_frames};
use crate::kernel::unmap_batch::{set_tlb_ubc_flush_pending, try_to_unmap_flush};
use crate::kernels::KernelRow;
use crate::machine::frames::FrameFlags;
use crate::machine::lru::List;
use crate::machine::nodes::Nodes;
use crate::machine::room::Room;
use crate::machine::sim_tlbs::SimTlbs;
use crate::machine::unmap_batch::Batch;
use crate::machine::world::{WorldSpec, mm_of};
use crate::policy::DeferFlush;
use crate::site::Site;

const MM: MmId = mm_of(ProcessId::FIRST);

fn world(nodes: Nodes, lru_order: bool) -> SimWorld {
    let row = KernelRow::parse("6.12").unwrap();
    let mut config = row.config;
    config.lru_order = lru_order;
    let spec = WorldSpec {
        policies: row.policies,
        config,
        arch: row.arch(),
        cpus: 2,
        threads: 1,
        processes: 1,
        others: 0,
        nodes,
        swap_pages: 0,
        pins: 0,
        files: Vec::new(),
        room: Room::UNBOUNDED,
    };
    let options = SimOptions::default();
    let log = SimLog::new(options.pte_events, 1 << 20, Room::UNBOUNDED);
    SimWorld::new(&spec, SimTlbs::new(2, spec.slots()), NoGhost, log)
}

const fn context(cpu: u16) -> Context {
    Context { cpu: CpuId(cpu), thread: ThreadId(0), mm: Some(MM), op: 0 }
}

fn frame(world: &mut SimWorld, cpu: u16) -> Option<Pfn> {
    let (mut env, request) =
        (SimEnv::new(world, context(cpu)), Request::here(FrameFlags::SWAP_BACKED));
    with_frames(&mut env, Site::DoAnonymousPage, request, |w, at, door| door.take(w, at))
}

#[test]
fn a_cpu_gets_frames_of_its_node_first() {
    let mut world = world(Nodes::new(&[4, 3], 1, vec![NodeId(0), NodeId(1)], &[]), false);
    let node = |world: &mut SimWorld, cpu| {
        let frame = frame(world, cpu)?;
        Some(world.nodes.of_frame(frame))
    };
    assert_eq!(node(&mut world, 1), Some(NodeId(1)));
    assert_eq!(node(&mut world, 0), Some(NodeId(0)));
    let rest: Vec<NodeId> = std::iter::from_fn(|| node(&mut world, 1)).collect();
    let count = |wanted: u16| rest.iter().filter(|node| node.0 == wanted).count();
    // The frames that are left on the CPU's own node come first, then those of the other node.
    assert_eq!((rest.len(), count(1), count(0), rest[1]), (5, 2, 3, NodeId(1)));
}

#[test]
fn a_frame_that_waits_for_a_deferred_flush_is_not_free() {
    let mut world = world(Nodes::one(8), false);
    let kept = frame(&mut world, 0).unwrap();
    world.deferred.keep(kept, None);
    world.policies.defer_flush = DeferFlush::Tiering;
    let mut env = SimEnv::new(&mut world, context(0));
    set_tlb_ubc_flush_pending(&mut env, Batch::Deferred, MM, Vpn(512), false);
    // A task's flush is only about the task's own deferred flushes.
    try_to_unmap_flush(&mut env, Batch::Task, Site::TryToUnmapFlush);
    assert!(world.deferred.batch.flush_required);
    let waiting: Vec<Pfn> = world.deferred.kept().collect();
    assert_eq!((waiting, world.frames.allocated()), (vec![kept], 1));
    let mut env = SimEnv::new(&mut world, context(0));
    try_to_unmap_flush(&mut env, Batch::Deferred, Site::TryToUnmapFlush);
    assert!(!world.deferred.batch.flush_required && world.deferred.kept().len() == 0);
    assert_eq!((world.frames.allocated(), world.inconsistency.is_none()), (0, true));
}

#[test]
fn lists_have_an_order_where_a_scenario_asks_for_it() {
    let mut world = world(Nodes::one(8), true);
    let folios: Vec<Pfn> = (0..3).filter_map(|_| frame(&mut world, 0)).collect();
    folios.iter().for_each(|folio| world.lru_add(*folio, |_| ()));
    let on = |world: &SimWorld, list| world.lru.from_tail(NodeId(0), list).collect::<Vec<Pfn>>();
    assert_eq!(on(&world, List::InactiveAnon), folios);
    let at = context(0).at(Site::FolioPut);
    // An isolated folio is on no list; it is put back on the active list.
    assert!(world.isolate_lru(at, folios[0]) && !world.isolate_lru(at, folios[0]));
    assert_eq!(on(&world, List::InactiveAnon), folios[1..]);
    world.lru_add(folios[0], |flags| flags.set(FrameFlags::ACTIVE, true));
    assert_eq!(on(&world, List::ActiveAnon), folios[..1]);
    // A frame that is freed leaves its list.
    world.put_frame(at, folios[1]);
    assert_eq!(on(&world, List::InactiveAnon), folios[2..]);
}

//! Tests of NUMA nodes, of the order of LRU lists, and of deferred flushes, on worlds that the
//! tests make themselves.

use super::SimOptions;
use super::env::{NoGhost, SimEnv, SimLog, SimWorld};
use crate::addr::{CpuId, MmId, NodeId, Pfn, ProcessId, ThreadId, Vpn};
use crate::env::Context;
use crate::kernel::alloc::{Request, with_frames};
use crate::kernel::deferred::{leave_zapped, swept};
use crate::kernel::unmap_batch::{set_tlb_ubc_flush_pending, try_to_unmap_flush};
use crate::kernels::KernelRow;
use crate::machine::frames::FrameFlags;
use crate::machine::lru::List;
use crate::machine::nodes::Nodes;
use crate::machine::room::Room;
use crate::machine::sim_tlbs::SimTlbs;
use crate::machine::unmap_batch::{Batch, Waiting};
use crate::machine::world::{WorldSpec, mm_of};
use crate::policy::{DeferFlush, DeferZap, Recycle, Shootdown};
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
    world.deferred.keep(Waiting { frame: kept, to: None, of: None });
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
fn a_frame_waits_until_each_cpu_has_flushed_by_itself() {
    let mut world = world(Nodes::one(2), false);
    (world.policies.shootdown, world.policies.defer_zap) = (Shootdown::Latr, DeferZap::Free);
    let at = context(0).at(Site::FolioPut);
    let waits = |world: &mut SimWorld| {
        let frame = frame(world, 0).unwrap();
        world.deferred.batch.put_off(false);
        (0..2).for_each(|cpu| world.deferred.batch.cpus.insert(CpuId(cpu)));
        leave_zapped(world, at, MM, frame);
        frame
    };
    let first = waits(&mut world);
    swept(&mut world, at, CpuId(1));
    assert_eq!(
        (world.deferred.kept().collect::<Vec<_>>(), world.frames.allocated()),
        (vec![first], 1)
    );
    swept(&mut world, at, CpuId(0));
    assert_eq!((world.deferred.kept().len(), world.frames.allocated()), (0, 0));
    // Nobody is asked for memory that is free. When there is no other, CPUs are waited for.
    let frames = [waits(&mut world), waits(&mut world)];
    assert_eq!(world.deferred.kept().len(), 2);
    assert!(frame(&mut world, 0).is_some_and(|frame| frames.contains(&frame)));
    assert_eq!((world.deferred.kept().len(), world.inconsistency.is_none()), (0, true));
}

#[test]
fn the_address_space_that_had_a_frame_gets_it_before_its_flush() {
    let mut world = world(Nodes::one(8), false);
    (world.policies.defer_zap, world.policies.recycle) = (DeferZap::Munmap, Recycle::WithinMm);
    let at = context(0).at(Site::FolioPut);
    let waiting = frame(&mut world, 0).unwrap();
    world.deferred.batch.put_off(false);
    world.deferred.batch.cpus.insert(CpuId(1));
    leave_zapped(&mut world, at, MM, waiting);
    let mut taken = |mm| {
        let request = Request::page(mm, Vpn(512), FrameFlags::SWAP_BACKED);
        let mut env = SimEnv::new(&mut world, context(0));
        with_frames(&mut env, Site::DoAnonymousPage, request, |w, at, door| door.take(w, at))
    };
    let of_other = taken(MmId(0)).unwrap();
    assert_ne!(of_other, waiting);
    assert_eq!(taken(MM), Some(waiting));
    // What the flush was owed for is gone, but the flush is still owed.
    assert_eq!((world.deferred.kept().len(), world.deferred.batch.flush_required), (0, true));
    assert!(world.inconsistency.is_none());
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

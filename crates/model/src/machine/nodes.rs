//! NUMA nodes: the node of each frame and CPU, and the distances between nodes.
//!
//! A frame's number decides its node: frames come in blocks, each as large as a huge page, and
//! consecutive blocks belong to consecutive nodes in turn. So frames stay dense by number, and a
//! folio lies on one node. A machine with one node computes nothing.
//!
//! Source: include/linux/mm.h:page_to_nid; mm/page_alloc.c:build_zonelists, find_next_best_node
//! (5.10 to 7.3).

use super::frames::FrameFlags;
use super::vma::Vma;
use super::world::{At, Ghost, IN_USE, Mode, World};
use crate::addr::{CpuId, MmId, NodeId, Pfn, Vpn};
use crate::numa::{Mempolicy, nodes_of_cpus};
use crate::program::Program;
use std::sync::Arc;

/// How many nodes a policy can name, from node 0 on: a mapping stores them as bits.
pub const MAX_NODES: usize = 32;

/// The default distance of a node to itself (`LOCAL_DISTANCE`) and to another node
/// (`REMOTE_DISTANCE`).
const DISTANCES: (u8, u8) = (10, 20);

/// A set of nodes (`nodemask_t`).
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct NodeSet(u32);

impl NodeSet {
    /// The set of these nodes. Nodes from [`MAX_NODES`] on are left out.
    pub fn of(nodes: impl IntoIterator<Item = NodeId>) -> NodeSet {
        NodeSet(nodes.into_iter().fold(0, |set, node| set | NodeSet::bit(node)))
    }

    fn bit(node: NodeId) -> u32 {
        1u32.checked_shl(node.0.into()).unwrap_or(0)
    }

    /// Whether the node is in the set.
    pub fn has(self, node: NodeId) -> bool {
        self.0 & NodeSet::bit(node) != 0
    }

    /// The set's nodes in ascending order.
    pub fn iter(self) -> impl Iterator<Item = NodeId> + Clone {
        (0..MAX_NODES as u16).map(NodeId).filter(move |node| self.has(*node))
    }
}

/// The nodes that the pages of a mapping, or of a thread, come from (`struct mempolicy`).
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum MemPolicy {
    /// No policy (`MPOL_DEFAULT`): a mapping follows the thread's policy, a thread follows
    /// [`MemPolicy::Local`].
    #[default]
    Default,
    /// The node of the CPU that allocates, then the nearest one that has memory (`MPOL_LOCAL`).
    Local,
    /// This node, then the nearest one that has memory (`MPOL_PREFERRED`).
    Preferred(NodeId),
    /// Only these nodes, the nearest first (`MPOL_BIND`).
    Bind(NodeSet),
    /// These nodes in turn, by the page's index in its mapping (`MPOL_INTERLEAVE`).
    Interleave(NodeSet),
}

impl MemPolicy {
    /// The scenario's policy, on a machine with this many nodes.
    pub fn of(policy: Mempolicy, nodes: usize) -> MemPolicy {
        match policy {
            Mempolicy::Default => MemPolicy::Default,
            Mempolicy::Local => MemPolicy::Local,
            Mempolicy::Bind(node) => MemPolicy::Bind(NodeSet::of([NodeId(node)])),
            Mempolicy::Preferred(node) => MemPolicy::Preferred(NodeId(node)),
            Mempolicy::Interleave => {
                MemPolicy::Interleave(NodeSet::of((0..nodes as u16).map(NodeId)))
            }
        }
    }

    /// This policy, or `other` if this is [`MemPolicy::Default`].
    ///
    /// Source: mm/mempolicy.c:get_vma_policy, get_task_policy (5.10 to 6.12).
    #[must_use]
    pub fn or(self, other: MemPolicy) -> MemPolicy {
        if self == MemPolicy::Default { other } else { self }
    }

    /// Whether a page on that node follows the policy, as `mbind` checks it. For a policy that
    /// names no node, no page does.
    ///
    /// Source: mm/mempolicy.c:queue_pages_required (5.10, 6.1), queue_folio_required (6.12):
    /// `MPOL_MF_INVERT` with the nodes that the caller names.
    pub fn names(self, node: NodeId) -> bool {
        match self {
            MemPolicy::Default | MemPolicy::Local => false,
            MemPolicy::Preferred(named) => named == node,
            MemPolicy::Bind(set) | MemPolicy::Interleave(set) => set.has(node),
        }
    }
}

/// The purpose of an allocation, which decides the allowed nodes.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum Near {
    /// It is for the CPU that allocates. (Kernels apply the thread's policy to a page of a file,
    /// but the model has no files on machines with several nodes.)
    Here,
    /// It is for this page: the policy of its mapping decides, or else that of the thread.
    Page(MmId, Vpn),
    /// It replaces this folio, by this policy.
    By(MemPolicy, Pfn),
    /// It may come from this node only (`__GFP_THISNODE`): the destination of a migration.
    Only(NodeId),
}

/// A node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Node {
    /// The number of the node's frames.
    frames: u32,
    /// All nodes by distance: this node first, and the lower number first among equally near ones.
    nearest: Vec<NodeId>,
}

/// The nodes of a machine.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Nodes {
    nodes: Vec<Node>,
    /// The number of frames in a block, as a power of two.
    block: u8,
    /// The node of each CPU. A CPU that is not listed is on node 0.
    cpus: Vec<NodeId>,
    /// The distance between each two nodes, row by row.
    distances: Vec<u8>,
    /// How many of the nodes are slower memory; they are the last ones.
    slow: u16,
}

impl Nodes {
    /// A single node, with all CPUs and this many frames.
    pub fn one(frames: u32) -> Nodes {
        Nodes::new(&[frames], 0, Vec::new(), &[])
    }

    /// Nodes with these numbers of frames, in blocks of order `block`. `cpus` has the node of each
    /// CPU; a node that does not occur has no CPUs. `distances` are row by row, as in ACPI's SLIT.
    /// Without them, all other nodes are equally far.
    pub fn new(frames: &[u32], block: u8, cpus: Vec<NodeId>, distances: &[u8]) -> Nodes {
        let count = frames.len();
        let default = |of: usize| {
            if of / count == of % count { DISTANCES.0 } else { DISTANCES.1 }
        };
        let distances: Vec<u8> = (0..count * count)
            .map(|of| distances.get(of).copied().unwrap_or_else(|| default(of)))
            .collect();
        let nearest = |from: usize| {
            let mut nodes: Vec<NodeId> = (0..count as u16).map(NodeId).collect();
            nodes.sort_by_key(|to| (to.index() != from, distances[from * count + to.index()]));
            nodes
        };
        let node = |(index, &frames)| Node { frames, nearest: nearest(index) };
        let nodes = frames.iter().enumerate().map(node).collect();
        Nodes { nodes, block, cpus, distances, slow: 0 }
    }

    /// The nodes of the scenario's machine, each with this many frames, in blocks of order `block`.
    pub fn for_program(program: &Program, frames: u32, block: u8) -> Nodes {
        match program.machine.nodes {
            None | Some(..=1) => Nodes::one(frames),
            Some(count) => {
                let slow = program.machine.numa.slow.min(count - 1);
                let cpus = nodes_of_cpus(program.machine.cpus, count - slow);
                let nodes = Nodes::new(&vec![frames; usize::from(count)], block, cpus, &[]);
                nodes.with_slow(slow)
            }
        }
    }

    /// These nodes, of which the last `slow` are slower memory.
    #[must_use]
    pub fn with_slow(self, slow: u16) -> Nodes {
        Nodes { slow, ..self }
    }

    /// The number of frames in a block, as a power of two.
    pub const fn block(&self) -> u8 {
        self.block
    }

    /// The number of nodes.
    #[inline]
    pub fn count(&self) -> usize {
        self.nodes.len()
    }

    /// The node that the frame is on.
    #[inline]
    pub fn of_frame(&self, frame: Pfn) -> NodeId {
        match self.count() {
            1 => NodeId(0),
            count => NodeId(((frame.0 >> self.block) as usize % count) as u16),
        }
    }

    /// The node that the CPU is on (`cpu_to_node`).
    pub fn of_cpu(&self, cpu: CpuId) -> NodeId {
        self.cpus.get(cpu.index()).copied().unwrap_or_default()
    }

    /// Whether the node has a CPU.
    pub fn has_cpus(&self, node: NodeId) -> bool {
        (self.count() == 1) || self.cpus.contains(&node)
    }

    /// Whether no memory is faster than the node's (`node_is_toptier`).
    pub fn is_top_tier(&self, node: NodeId) -> bool {
        node.index() + usize::from(self.slow) < self.count()
    }

    /// The node that this node's pages are demoted to: the nearest slower one. `None` if the node
    /// is slow itself, or no node is slower.
    ///
    /// Source: mm/memory-tiers.c:next_demotion_node (6.12).
    pub fn slower(&self, node: NodeId) -> Option<NodeId> {
        let slower = |other: &&NodeId| !self.is_top_tier(**other);
        self.nearest(node).iter().find(slower).copied().filter(|_| self.is_top_tier(node))
    }

    /// The distance of two nodes (`node_distance`).
    pub fn distance(&self, from: NodeId, to: NodeId) -> u8 {
        self.distances[from.index() * self.count() + to.index()]
    }

    /// All nodes by distance from `from`, which comes first.
    pub fn nearest(&self, from: NodeId) -> &[NodeId] {
        &self.nodes[from.index()].nearest
    }

    /// The number of the node's frames.
    pub fn frames(&self, node: NodeId) -> u32 {
        self.nodes[node.index()].frames
    }

    /// The number of frames of all nodes.
    pub fn all_frames(&self) -> u32 {
        self.nodes.iter().fold(0, |sum, node| sum.saturating_add(node.frames))
    }

    /// The position of this frame among its node's frames, from 0.
    fn turn(&self, frame: Pfn) -> u64 {
        let round = u64::from(frame.0 >> self.block) / self.count() as u64;
        round << self.block | u64::from(frame.0 & ((1 << self.block) - 1))
    }

    /// Whether a frame with this number exists: its node is large enough. (The zero page does not
    /// count.)
    pub fn exists(&self, frame: Pfn) -> bool {
        let node = self.of_frame(frame);
        self.turn(frame) < u64::from(self.frames(node)) + u64::from(node == NodeId(0))
    }

    /// The highest number of an existing frame ([`Nodes::exists`]).
    pub fn last(&self) -> Pfn {
        let count = self.count() as u64;
        let last = |node: u64| {
            // The zero page is one frame of node 0 in addition to the node's own.
            let frames = u64::from(self.frames(NodeId(node as u16))) + u64::from(node == 0);
            let turn = frames.checked_sub(1)?;
            let round = turn >> self.block;
            Some((round * count + node) << self.block | (turn & ((1 << self.block) - 1)))
        };
        let last = (0..count).filter_map(last).max().unwrap_or(0);
        Pfn(u32::try_from(last).unwrap_or(u32::MAX))
    }

    /// The nodes that may serve a request, in the order in which they are tried.
    fn order(&self, policy: MemPolicy, here: NodeId, index: u64) -> Vec<NodeId> {
        let nearest = |from: NodeId| self.nearest(from).iter().copied();
        match policy {
            MemPolicy::Default | MemPolicy::Local => nearest(here).collect(),
            MemPolicy::Preferred(node) => nearest(node).collect(),
            MemPolicy::Bind(set) => nearest(here).filter(|node| set.has(*node)).collect(),
            MemPolicy::Interleave(set) => {
                let turns = set.iter().count() as u64;
                let first = index.checked_rem(turns).and_then(|turn| set.iter().nth(turn as usize));
                nearest(first.unwrap_or(here)).collect()
            }
        }
    }
}

impl<M: Mode> World<M> {
    /// Allocates a folio with one reference; `None` if memory is full, or the run may take no more.
    /// Kernel operations use [`crate::kernel::alloc`] instead.
    #[inline]
    pub fn hand_out(&mut self, at: At, near: Near, order: u8, flags: FrameFlags) -> Option<Pfn> {
        let folio = match order {
            _ if self.nodes.count() > 1 => self.next_free_near(near, at, order)?,
            0 => self.frames.next_free(&self.room)?,
            _ => self.frames.next_free_run(order, &self.room)?,
        };
        let mut frames = (folio.0..folio.0 + (1 << order)).map(Pfn);
        if frames.any(|frame| !self.frames.is_unused(frame)) {
            self.impossible(at, IN_USE);
        }
        match order {
            0 => {
                self.frames.hand_out(folio, flags);
                self.ghost.allocated(folio);
            }
            _ => {
                self.frames.hand_out_large(folio, order, flags);
                let frames = self.frames.pages_of_folio(folio);
                frames.for_each(|frame| self.ghost.allocated(frame));
            }
        }
        Some(folio)
    }

    /// Whether a frame is left for such a page.
    pub fn has_free(&self, at: At, near: Near) -> bool {
        match self.nodes.count() {
            1 => !self.frames.is_full(),
            _ => self.nodes_near(near, 0, at).into_iter().any(|node| self.frames.free_on(node) > 0),
        }
    }

    #[cold]
    fn next_free_near(&mut self, near: Near, at: At, order: u8) -> Option<Pfn> {
        let mut nodes = self.nodes_near(near, order, at);
        if self.tiers.is_some() && nodes.len() > 1 {
            nodes.sort_by_key(|node| self.is_low(*node));
        }
        let frames = &mut self.frames;
        nodes.into_iter().find_map(|node| match order {
            0 => frames.next_free_on(node, &self.room),
            _ => frames.next_free_run_on(node, order, &self.room),
        })
    }

    /// The nodes that may serve an allocation, in the order in which they are tried.
    ///
    /// Source: mm/mempolicy.c:alloc_pages_vma (5.10), vma_alloc_folio, policy_nodemask (6.1 to
    /// 7.3); new_page (5.10, 6.1), alloc_migration_target_by_mpol (6.12); interleave_nid (5.10,
    /// 6.1), get_vma_policy (6.12).
    pub fn nodes_near(&self, near: Near, order: u8, at: At) -> Vec<NodeId> {
        let here = self.nodes.of_cpu(at.cpu);
        match near {
            Near::Only(node) => vec![node],
            Near::Here => self.nodes.order(MemPolicy::Local, here, 0),
            Near::Page(mm, page) => {
                // The pages of a huge page share one turn, counted from the start of their mapping.
                let first = Vpn(page.0 >> order << order);
                let turn = |vma: &Vma| {
                    let before = first.0.saturating_sub(vma.range.start.0);
                    (vma.pgoff >> order) + (before >> order)
                };
                let vma = self.mms[mm.index()].vma(page);
                let (policy, index) =
                    vma.map_or_else(Default::default, |vma| (vma.mempolicy, turn(vma)));
                let policy = policy.or(self.tasks[at.thread.index()].mempolicy);
                self.nodes.order(policy, here, index)
            }
            Near::By(policy, folio) => {
                let (_, index) = self.frames.place(folio);
                self.nodes.order(policy, here, index)
            }
        }
    }
}

/// The nodes of a world, shared by all its copies.
pub type SharedNodes = Arc<Nodes>;

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: NodeId = NodeId(0);
    const FAR: NodeId = NodeId(2);

    /// Two CPUs on node 0, one on node 1, none on node 2, which is the farthest from node 0.
    fn three() -> Nodes {
        let cpus = vec![HERE, HERE, NodeId(1)];
        Nodes::new(&[8, 4, 16], 2, cpus, &[10, 20, 30, 20, 10, 20, 30, 20, 10])
    }

    #[test]
    fn a_frame_is_on_a_node_by_its_number() {
        let nodes = three();
        let of: Vec<u16> = [0, 3, 4, 8, 11, 12, 16].map(|pfn| nodes.of_frame(Pfn(pfn)).0).into();
        assert_eq!(of, [0, 0, 1, 2, 2, 0, 1]);
        let there = |pfn| nodes.exists(Pfn(pfn));
        // The zero page is one frame of node 0 in addition to its eight.
        assert!(there(15) && there(24) && !there(25));
        assert!(there(7) && !there(16), "node 1 has one block");
        let far = (0..100).filter(|pfn| nodes.of_frame(Pfn(*pfn)) == FAR && there(*pfn));
        assert_eq!((far.count(), nodes.last()), (16, Pfn(47)));
        assert!(there(47) && !(48..200).any(there));
        let one = Nodes::one(9);
        assert_eq!(
            (one.of_frame(Pfn(77)), one.exists(Pfn(9)), one.exists(Pfn(10)), one.last()),
            (HERE, true, false, Pfn(9))
        );
    }

    #[test]
    fn who_has_cpus_and_who_is_near() {
        let nodes = three();
        assert_eq!((nodes.of_cpu(CpuId(2)), nodes.of_cpu(CpuId(9))), (NodeId(1), HERE));
        assert_eq!([HERE, NodeId(1), FAR].map(|node| nodes.has_cpus(node)), [true, true, false]);
        assert!(Nodes::one(1).has_cpus(HERE));
        assert_eq!((nodes.distance(HERE, FAR), nodes.distance(FAR, FAR)), (30, 10));
        assert_eq!(nodes.nearest(FAR), [FAR, NodeId(1), HERE]);
        let alike = Nodes::new(&[1, 1], 0, vec![HERE], &[]);
        assert_eq!((alike.distance(HERE, HERE), alike.distance(HERE, NodeId(1))), DISTANCES);
    }

    #[test]
    fn policies_say_which_nodes_are_tried() {
        let nodes = three();
        let order = |policy, index| {
            nodes.order(policy, HERE, index).iter().map(|node| node.0).collect::<Vec<_>>()
        };
        assert_eq!(order(MemPolicy::Local, 0), [0, 1, 2]);
        assert_eq!(order(MemPolicy::Preferred(FAR), 0), [2, 1, 0]);
        let ends = NodeSet::of([HERE, FAR]);
        assert_eq!(order(MemPolicy::Bind(ends), 0), [0, 2]);
        assert_eq!(order(MemPolicy::Bind(NodeSet::of([FAR])), 0), [2]);
        assert_eq!(order(MemPolicy::Interleave(ends), 4), [0, 1, 2]);
        assert_eq!(order(MemPolicy::Interleave(ends), 5), [2, 1, 0]);
        assert_eq!(order(MemPolicy::Interleave(NodeSet::default()), 5), [0, 1, 2]);
        assert_eq!(order(MemPolicy::Default, 0), order(MemPolicy::Local, 0));
    }

    #[test]
    fn a_page_is_in_its_place_on_a_node_that_the_policy_names() {
        let of = |policy| MemPolicy::of(policy, 3);
        let places = |policy: MemPolicy| {
            (0..3).filter(|node| policy.names(NodeId(*node))).collect::<Vec<u16>>()
        };
        for (policy, nodes) in [
            (Mempolicy::Default, &[][..]),
            (Mempolicy::Local, &[]),
            (Mempolicy::Bind(2), &[2]),
            (Mempolicy::Preferred(1), &[1]),
            (Mempolicy::Interleave, &[0, 1, 2]),
        ] {
            assert_eq!(places(of(policy)), nodes, "{policy:?}");
        }
        let (none, local) = (of(Mempolicy::Default), of(Mempolicy::Local));
        assert_eq!((none.or(local), local.or(of(Mempolicy::Bind(0)))), (local, local));
    }
}

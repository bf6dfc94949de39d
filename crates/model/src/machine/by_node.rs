//! Free frames of a machine with several nodes. With one node [`Frames`] keeps them itself.

use super::frames::Frames;
use super::nodes::SharedNodes;
use super::room::Room;
use crate::addr::{NodeId, Pfn};

/// The free frames of each node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ByNode {
    nodes: SharedNodes,
    free: Vec<Vec<Pfn>>,
    /// The number of frame numbers that were passed over and do not exist, because their node is
    /// smaller.
    missing: u64,
}

impl ByNode {
    /// The empty lists of several nodes; `None` for one node.
    pub fn new(nodes: &SharedNodes) -> Option<Box<ByNode>> {
        let free = vec![Vec::new(); nodes.count()];
        let by_node = ByNode { nodes: nodes.clone(), free, missing: 0 };
        (nodes.count() > 1).then(|| Box::new(by_node))
    }

    /// Adds a free frame, if the frame exists.
    pub fn push(&mut self, frame: Pfn) {
        match self.nodes.exists(frame) {
            true => self.free[self.nodes.of_frame(frame).index()].push(frame),
            false => self.missing += 1,
        }
    }

    /// The number of unused frames of the node, if frame numbers up to `end` have been assigned.
    pub fn free_on(&self, node: NodeId, end: u64) -> u64 {
        let (block, count) = (1 << self.nodes.block(), self.nodes.count() as u64);
        let (rounds, rest) = (end / block / count, end % (block * count));
        let numbered = rounds * block + rest.saturating_sub(node.index() as u64 * block).min(block);
        // The zero page is one frame of node 0 in addition to the node's own.
        let own = u64::from(self.nodes.frames(node)) + u64::from(node == NodeId(0));
        let free = self.free[node.index()].len() as u64;
        own - numbered.min(own) + free
    }

    /// The number of unused frame numbers below the end, including those that do not exist.
    pub fn unused(&self) -> u64 {
        self.free.iter().map(|free| free.len() as u64).sum::<u64>() + self.missing
    }
}

impl Frames {
    /// Like [`Frames::next_free`], on one node of several.
    pub(super) fn next_free_on(&mut self, node: NodeId, room: &Room) -> Option<Pfn> {
        let free = &mut self.by_node.as_mut()?.free[node.index()];
        free.pop().or_else(|| self.grow_on(node, 1, room)).or_else(|| {
            let run = self.free_run(|frames, (head, _)| frames.node(head) == Some(node))?;
            Some(self.break_up_run(run))
        })
    }

    /// Like [`Frames::next_free_run`], on one node of several.
    pub(super) fn next_free_run_on(&mut self, node: NodeId, order: u8, room: &Room) -> Option<Pfn> {
        let fits =
            |frames: &Frames, (head, of): (Pfn, u8)| of == order && frames.node(head) == Some(node);
        match self.free_run(fits) {
            Some(run) => Some(self.take_run(run)),
            None => self.grow_on(node, 1 << order, room).or_else(|| {
                let free = &mut self.by_node.as_mut()?.free[node.index()];
                Frames::assemble(free, order)
            }),
        }
    }

    fn node(&self, frame: Pfn) -> Option<NodeId> {
        self.by_node.as_ref().map(|by_node| by_node.nodes.of_frame(frame))
    }

    /// Adds `frames` frames side by side on the node, which were never used before. They begin at a
    /// multiple of their number. The frames that are passed over become free.
    fn grow_on(&mut self, node: NodeId, frames: u32, room: &Room) -> Option<Pfn> {
        let nodes = self.by_node.as_ref()?.nodes.clone();
        let (start, run) = (self.stored.len() as u32, frames as usize);
        // Each node has one block in a round of blocks.
        let mut first = start.next_multiple_of(frames);
        while nodes.of_frame(Pfn(first)) != node {
            first = first.checked_add(frames)?;
        }
        let more = first - start + frames;
        if !nodes.exists(Pfn(first + frames - 1)) || !self.reserve(more, room) {
            return None;
        }
        for frame in start..first {
            self.by_node.as_mut()?.push(Pfn(frame));
        }
        self.stored.resize(first as usize + run, [0; 3]);
        Some(Pfn(first))
    }
}

#[cfg(test)]
mod tests {
    use super::super::frames::FrameFlags;
    use super::super::nodes::Nodes;
    use super::*;
    use std::sync::Arc;

    const NONE: FrameFlags = FrameFlags::SWAP_BACKED;

    fn single(frames: &mut Frames, node: u16) -> Option<Pfn> {
        let frame = frames.next_free_on(NodeId(node), &Room::UNBOUNDED)?;
        frames.hand_out(frame, NONE);
        Some(frame)
    }

    /// Two nodes of 8 and 12 frames, in blocks of 4.
    fn frames() -> Frames {
        Frames::new(&Arc::new(Nodes::new(&[8, 12], 2, Vec::new(), &[])))
    }

    #[test]
    fn a_node_hands_out_its_own_frames_until_it_has_none() {
        let mut frames = frames();
        let on = |frames: &mut Frames, node| single(frames, node).map(|frame| frame.0);
        assert_eq!((on(&mut frames, 1), on(&mut frames, 0)), (Some(4), Some(3)));
        assert_eq!((frames.allocated(), on(&mut frames, 1)), (2, Some(5)));
        let far: Vec<u32> = std::iter::from_fn(|| on(&mut frames, 1)).collect();
        assert_eq!(far, [6, 7, 12, 13, 14, 15, 20, 21, 22, 23]);
        let near: Vec<u32> = std::iter::from_fn(|| on(&mut frames, 0)).collect();
        assert_eq!((near.len(), frames.allocated(), frames.is_full()), (7, 20, true));
        frames.release(Pfn(13));
        assert_eq!((on(&mut frames, 0), frames.is_full()), (None, false));
        assert_eq!((on(&mut frames, 1), frames.allocated()), (Some(13), 20));
    }

    #[test]
    fn a_large_folio_lies_on_one_node() {
        let mut frames = frames();
        let on = |frames: &mut Frames, node| {
            let folio = frames.next_free_run_on(NodeId(node), 2, &Room::UNBOUNDED)?;
            frames.hand_out_large(folio, 2, NONE);
            Some(folio)
        };
        let far: Vec<Pfn> = std::iter::from_fn(|| on(&mut frames, 1)).collect();
        assert_eq!(far, [Pfn(4), Pfn(12), Pfn(20)]);
        // Block 0 has the zero page, so only one block of node 0 is complete.
        assert_eq!((on(&mut frames, 0), on(&mut frames, 0)), (Some(Pfn(8)), None));
        frames.release(Pfn(12));
        let singles: Vec<Pfn> = std::iter::from_fn(|| single(&mut frames, 1)).collect();
        assert_eq!(singles, [Pfn(12), Pfn(13), Pfn(14), Pfn(15)]);
        singles.into_iter().for_each(|frame| frames.release(frame));
        assert_eq!(on(&mut frames, 1), Some(Pfn(12)));
    }
}

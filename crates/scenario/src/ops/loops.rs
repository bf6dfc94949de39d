//! Blocks: loops, whose variables have slots, and `measure`.

use super::{Block, Lowering, MAX_COUNT};
use crate::document::{Node, Value as Written};
use crate::error::Problem;
use crate::params::new_name;
use needless_model::addr::ProcessId;
use needless_model::program::{Op, OpKind};

impl Lowering<'_> {
    pub(super) fn repeat(&mut self, node: &Node) -> Result<OpKind, Problem> {
        let count = self.value(&node.args[0], "the count", 0)?;
        if let Some(count) = count.known().filter(|c| *c > MAX_COUNT) {
            let message = format!("the count is {count}");
            return Err(Problem::new(node.args[0].span, message, "too many")
                .help(format!("at most {MAX_COUNT}")));
        }
        let bounds = count.known().map(|c| (0, c - 1));
        let (slot, body) = self.block(node, Block::Loop, node.prop("as"), bounds)?;
        Ok(OpKind::Repeat { slot, count: count.expr, body })
    }

    pub(super) fn for_each(&mut self, node: &Node) -> Result<OpKind, Problem> {
        let Some(written) = node.prop("in") else {
            return Err(
                Problem::new(node.span, "which pages?", "in= is missing").help("add in=\"RANGE\"")
            );
        };
        let pages = self.pages(written)?;
        let stride = self.stride(node)?;
        // If the start depends on outer variables, this variable is not independent of them.
        let bounds = match (pages.first.known(), pages.count, stride.known()) {
            (Some(first), Some(0), _) => Some((first, first - 1)),
            (Some(first), Some(count), Some(s)) => Some((first, first + (count - 1) / s * s)),
            _ => None,
        };
        let (slot, body) = self.block(node, Block::Loop, Some(&node.args[0]), bounds)?;
        Ok(OpKind::ForEach { slot, range: pages.expr, stride: stride.expr, body })
    }

    pub(super) fn rounds(&mut self, node: &Node) -> Result<OpKind, Problem> {
        if let Some(first) = self.rounds.replace(node.span) {
            return Err(Problem::new(node.span, "`rounds` is given twice", "again here")
                .also(first, "first here")
                .help("a scenario has one `rounds` block"));
        }
        if self.thread.0 != 0 || !self.blocks.is_empty() {
            return Err(Problem::new(node.span, "`rounds` is in the wrong place", "here")
                .help("put it into the first thread, outside other blocks"));
        }
        let count = self.scope.number_in(&node.args[0], "the number of rounds", 1..=MAX_COUNT)?;
        let warmup = match node.prop("warmup") {
            Some(value) => self.scope.number_in(value, "the warm-up", 0..=MAX_COUNT)?,
            None => 0,
        };
        let bounds = Some((0, warmup + count - 1));
        let (slot, body) = self.block(node, Block::Rounds, node.prop("as"), bounds)?;
        Ok(OpKind::Rounds { slot, warmup: warmup as u32, count: count as u32, body })
    }

    pub(super) fn measure(&mut self, node: &Node) -> Result<OpKind, Problem> {
        let counts = self.blocks.contains(&Block::Rounds) || self.own_process != ProcessId::FIRST;
        if !counts || self.blocks.contains(&Block::Measure) {
            return Err(Problem::new(node.span, "`measure` is in the wrong place", "here")
                .help("put it into `rounds` or into a process, outside other `measure` blocks"));
        }
        self.blocks.push(Block::Measure);
        let body = self.body(node.children());
        self.blocks.pop();
        Ok(OpKind::Measure { body })
    }

    /// Lowers the body of a loop. If the loop has a variable, its values lie within `bounds`.
    fn block(
        &mut self,
        node: &Node,
        kind: Block,
        variable: Option<&Written>,
        bounds: Option<(i64, i64)>,
    ) -> Result<(u8, Vec<Op>), Problem> {
        let name = variable.map(|v| new_name(v, "a variable", &self.scope)).transpose()?;
        let slot = self.blocks.iter().filter(|b| **b != Block::Measure).count() as u8;
        self.slots = self.slots.max(slot + 1);
        if let Some(name) = name {
            self.scope.slot(name, slot, bounds);
        }
        self.blocks.push(kind);
        let body = self.body(node.children());
        self.blocks.pop();
        if name.is_some() {
            self.scope.pop();
        }
        Ok((slot, body))
    }
}

//! Calls about NUMA nodes.

use super::Lowering;
use crate::document::Node;
use crate::error::{Problem, suggest};
use needless_model::call::{CallExpr, MOST_MOVED, RECLAIMED};
use needless_model::numa::{Balancing, Mempolicy};

impl Lowering<'_> {
    pub(super) fn move_pages(&self, node: &Node) -> Result<CallExpr, Problem> {
        let pages = self.some_pages(&node.args[0])?;
        let count = pages.count.unwrap_or_else(|| self.size(pages.expr.area));
        if count > MOST_MOVED {
            let message = format!("move_pages is asked to move {count} pages");
            return Err(Problem::new(pages.span, message, "too many")
                .help(format!("at most {MOST_MOVED} in one call: move them in parts")));
        }
        let pages = pages.expr;
        Ok(CallExpr::MovePages { pages, node: self.numa_node(node, "node")? })
    }

    pub(super) fn mbind(&self, node: &Node) -> Result<CallExpr, Problem> {
        let pages = self.some_pages(&node.args[0])?.expr;
        let moves = match node.prop("then") {
            Some(_) => super::word(node, "then", &[("move", true)])?,
            None => false,
        };
        Ok(CallExpr::Mbind { pages, policy: self.mempolicy(node)?, moves })
    }

    pub(super) fn migrate_pages(&self, node: &Node) -> Result<CallExpr, Problem> {
        let (from, to) = (self.numa_node(node, "from")?, self.numa_node(node, "to")?);
        Ok(CallExpr::MigratePages { from, to })
    }

    pub(super) fn set_mempolicy(&self, node: &Node) -> Result<CallExpr, Problem> {
        Ok(CallExpr::SetMempolicy { policy: self.mempolicy(node)? })
    }

    pub(super) fn reclaim_memory(&self, node: &Node) -> Result<CallExpr, Problem> {
        let written = &node.args[0];
        let pages = self.value(written, RECLAIMED.what, RECLAIMED.least)?;
        match pages.extremes() {
            Some((_, most)) if most > i128::from(RECLAIMED.most) => {
                let message = format!("{} is {most}", RECLAIMED.what);
                Err(Problem::new(written.span, message, "too many")
                    .help(format!("at most {}", RECLAIMED.most)))
            }
            _ => Ok(CallExpr::ReclaimMemory { pages: pages.expr }),
        }
    }

    pub(super) fn numa_scan(&self, node: &Node) -> Result<CallExpr, Problem> {
        let pages = self.some_pages(&node.args[0])?.expr;
        if matches!(self.machine.numa.balancing, None | Some(Balancing::Off)) {
            let message = "NUMA balancing samples no pages on this machine";
            return Err(Problem::new(node.span, message, "it is not switched on")
                .help("add numa-balancing \"on\" (or \"tiering\") to `machine`"));
        }
        Ok(CallExpr::NumaScan { pages })
    }

    /// The memory policy that `policy=` names, with its node.
    fn mempolicy(&self, node: &Node) -> Result<Mempolicy, Problem> {
        let words = Mempolicy::WORDS.map(|(word, names)| (word, (word, names)));
        let (word, names) = super::word(node, "policy", &words)?;
        let number = match (names, node.prop("node")) {
            (true, _) => self.numa_node(node, "node")?,
            (false, None) => 0,
            (false, Some(written)) => {
                let message = format!("policy \"{word}\" names no node");
                return Err(Problem::new(written.span, message, "not used")
                    .help("leave node= out, or write policy=\"bind\" or \"preferred\""));
            }
        };
        Mempolicy::named(word, number).ok_or_else(|| {
            let known = Mempolicy::WORDS.iter().map(|(word, _)| *word);
            Problem::new(node.span, "no such policy", "this one")
                .help(suggest("policies", word, known))
        })
    }

    /// The NUMA node that a property names. The scenario's machine must have it.
    fn numa_node(&self, node: &Node, name: &str) -> Result<u16, Problem> {
        let Some(written) = node.prop(name) else {
            let message = format!("`{}` needs a NUMA node", node.name);
            return Err(Problem::new(node.span, message, "which one?")
                .help(format!("add {name}=N; the first node is 0")));
        };
        let number = self.scope.number(written)?;
        let nodes = self.machine.nodes.unwrap_or(1);
        if (0..i64::from(nodes)).contains(&number) {
            return Ok(number as u16);
        }
        let message = format!("there is no NUMA node {number}");
        let label = if number < 0 { "too low" } else { "too high" };
        Err(Problem::new(written.span, message, label).help(match nodes {
            1 => "the scenario has one node, 0; ask for more in `machine`: nodes 2".to_owned(),
            nodes => format!("`machine` asks for {nodes}: nodes are numbered 0..{nodes}"),
        }))
    }
}

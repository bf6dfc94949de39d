//! Lowers the operations of threads.
//!
//! Loop variables get slots by nesting depth, each thread from 0. Operations are numbered in the
//! order of the text, a block before its body. This stage refuses operations that could not run and
//! operations that would never end.

mod answers;
mod calls;
mod loops;
mod names;
mod nodes;
mod pins;
mod ranges;

#[cfg(test)]
pub(crate) use calls::PROTS;
pub(crate) use calls::rule;
pub(crate) use names::{Named, ZERO};

use pins::Pins;

use crate::areas::Areas;
use crate::document::{Node, Value as Written};
use crate::error::{Problem, suggest};
use crate::expr::{self, Suffixes};
use crate::mapped_files::Files;
use crate::scope::{Scope, Value};
use miette::SourceSpan;
use needless_model::addr::{ProcessId, ThreadId};
use needless_model::call::CallExpr;
use needless_model::program::{
    Access, Barrier, Expr, MachineNeeds, Op, OpKind, Order, Prot, RangeExpr,
};
use needless_model::userfaultfd::Features;

/// The largest number of operations in a scenario, of all threads together.
const MAX_OPS: usize = 60_000;
/// The largest number of rounds, and of repetitions by a constant.
const MAX_COUNT: i64 = 1_000_000_000;

/// The state that lowering gathers from all threads.
pub(crate) struct Lowering<'a> {
    areas: &'a Areas,
    files: &'a Files,
    /// What the scenario asks of the machine.
    machine: &'a MachineNeeds,
    /// The names of the forked processes. The first name belongs to process 1.
    processes: &'a [String],
    /// The process of the thread that is being lowered.
    own_process: ProcessId,
    /// The parameters, then the names that are visible at the current place.
    scope: Scope,
    thread: ThreadId,
    /// The blocks around the current place.
    blocks: Vec<Block>,
    /// The `rounds` node, once it is found.
    pub rounds: Option<SourceSpan>,
    /// The program's texts (see [`needless_model::program::Program`]).
    pub texts: Vec<String>,
    /// The places of the operations that these texts belong to.
    pub places: Vec<SourceSpan>,
    /// The program's marks (see [`needless_model::program::Program`]).
    pub marks: Vec<String>,
    /// The program's barriers (see [`needless_model::program::Program`]).
    pub barriers: Vec<Barrier>,
    /// The program's number of slots (see [`needless_model::program::Program`]).
    pub slots: u8,
    /// The loads and stores that have names.
    pub named: Vec<Named>,
    /// The features of the current userfaultfd, and where the scenario named them first.
    uffd: Option<(Features, SourceSpan)>,
    /// Where other features were named first, and where the features before them were named.
    other_features: Option<(SourceSpan, SourceSpan)>,
    /// Where the userfaultfd is served.
    serves: Option<SourceSpan>,
    /// The pins, and where they are used.
    pins: Pins,
    /// The problems found so far.
    pub problems: Vec<Problem>,
}

/// A block that may be around operations.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Block {
    Loop,
    Rounds,
    Measure,
}

impl<'a> Lowering<'a> {
    pub fn new(
        (areas, files): (&'a Areas, &'a Files),
        machine: &'a MachineNeeds,
        processes: &'a [String],
    ) -> Lowering<'a> {
        Lowering {
            areas,
            files,
            machine,
            processes,
            own_process: ProcessId::FIRST,
            scope: Scope::default(),
            thread: ThreadId(0),
            blocks: Vec::new(),
            rounds: None,
            texts: Vec::new(),
            places: Vec::new(),
            marks: Vec::new(),
            barriers: Vec::new(),
            slots: 0,
            named: Vec::new(),
            uffd: None,
            other_features: None,
            serves: None,
            pins: Pins::default(),
            problems: Vec::new(),
        }
    }

    /// Lowers one thread of this process. The names of `scope` are visible in it.
    pub fn thread(
        &mut self,
        (thread, process): (ThreadId, ProcessId),
        body: &[Node],
        scope: Scope,
    ) -> Vec<Op> {
        (self.thread, self.own_process, self.scope) = (thread, process, scope);
        let mut ops = if thread.0 == 0 { self.neighbours() } else { Vec::new() };
        ops.extend(self.body(body));
        ops
    }

    /// Maps and writes the neighbours. This comes before everything else.
    fn neighbours(&mut self) -> Vec<Op> {
        let areas = self.areas;
        let mut ops = Vec::new();
        for (i, area) in areas.list.iter().enumerate().skip(areas.named) {
            let area_index = i as u16;
            let (zero, one) = (Expr::Const(0), Expr::Const(1));
            let range = RangeExpr { area: area_index, first: zero, pages: one.clone() };
            let order = Order::Ascending { stride: one };
            for (text, kind) in [
                ("map", OpKind::Call(CallExpr::Map { area: area_index, prot: Prot::ReadWrite })),
                ("write", OpKind::Touch { range, access: Access::Write, order }),
            ] {
                ops.push(Op { id: self.texts.len() as u32, kind });
                self.texts.push(format!("{text} {}", area.name));
                self.places.push((0..0).into());
            }
        }
        ops
    }

    fn body(&mut self, nodes: &[Node]) -> Vec<Op> {
        let mut ops = Vec::new();
        for (i, node) in nodes.iter().enumerate().filter(|(_, n)| n.name != "doc") {
            if self.texts.len() >= MAX_OPS {
                self.problems.push(
                    Problem::new(node.span, "the scenario has too many operations", "from here on")
                        .help(format!("at most {MAX_OPS}, all threads together")),
                );
                break;
            }
            let id = self.texts.len() as u32;
            self.texts.push(node.summary_without(names::prop(node)));
            self.places.push(node.args.first().map_or(node.span, |arg| arg.span));
            let named = self.name_access(node, id);
            match named.and_then(|()| self.op(node, i + 1 == nodes.len())) {
                Ok(Some(kind)) => ops.push(Op { id, kind }),
                Ok(None) => {}
                Err(problem) => self.problems.push(problem),
            }
        }
        ops
    }

    /// Lowers one operation. Returns `None` if there is nothing to do.
    fn op(&mut self, node: &Node, last: bool) -> Result<Option<OpKind>, Problem> {
        if let Some(kind) = calls::named(&node.name) {
            return Ok(Some(OpKind::Call(self.call(kind, node, last)?)));
        }
        Ok(Some(match node.name.as_str() {
            "read" => return self.touch(node, Access::Read),
            "write" => return self.touch(node, write_access(node)?),
            "touch" => return self.touch(node, word(node, "access", &ACCESSES)?),
            "spin" => self.forever(node, last, OpKind::Spin)?,
            "sleep" => self.sleep(node, last)?,
            "uffd-serve" => {
                let answer = self.answer(node)?;
                self.may_serve(node)?;
                self.forever(node, last, OpKind::Serve { answer })?
            }
            "barrier" => self.barrier(node)?,
            "repeat" => self.repeat(node)?,
            "for-each" => self.for_each(node)?,
            "rounds" => self.rounds(node)?,
            "measure" => self.measure(node)?,
            "mark" => self.mark(node)?,
            other => {
                let message = format!("`{other}` is not an operation");
                return Err(Problem::new(node.span, message, "this node")
                    .help("the language reference lists the operations"));
            }
        }))
    }

    fn touch(&self, node: &Node, access: Access) -> Result<Option<OpKind>, Problem> {
        let pages = self.pages(&node.args[0])?;
        let order = self.order(node)?;
        let nothing = pages.count == Some(0);
        let touch = OpKind::Touch { range: pages.expr, access, order };
        Ok((!nothing).then_some(touch))
    }

    fn order(&self, node: &Node) -> Result<Order, Problem> {
        let random = match node.prop("order") {
            None => false,
            Some(value) if value.text("an order")? == "random" => true,
            Some(value) => {
                return Err(Problem::new(value.span, "unknown order", "this word")
                    .help("the order is ascending unless order=\"random\""));
            }
        };
        let (needed, refused): (&[_], &[_]) =
            if random { (&["seed", "count"], &["stride"]) } else { (&[], &["seed", "count"]) };
        if let Some(prop) = node.props.iter().find(|p| refused.contains(&p.name.as_str())) {
            return Err(Problem::new(
                prop.span,
                format!("`{}` is not used here", prop.name),
                "this one",
            )
            .help(
                "stride= belongs to ascending order, seed= and count= belong to order=\"random\"",
            ));
        }
        if let Some(name) = needed.iter().find(|name| node.prop(name).is_none()) {
            return Err(Problem::new(node.span, format!("random order needs {name}="), "this one")
                .help("order=\"random\" seed=1 count=1000"));
        }
        match (node.prop("seed"), node.prop("count")) {
            (Some(seed), Some(count)) => Ok(Order::Random {
                count: self.value(count, "the count", 0)?.expr,
                seed: self.scope.number_in(seed, "the seed", 0..=i64::MAX)? as u64,
            }),
            _ => Ok(Order::Ascending { stride: self.stride(node)?.expr }),
        }
    }

    fn stride(&self, node: &Node) -> Result<Value, Problem> {
        node.prop("stride").map_or(Ok(Value::constant(1)), |v| self.value(v, "the stride", 1))
    }

    fn sleep(&self, node: &Node, last: bool) -> Result<OpKind, Problem> {
        let Some(written) = node.args.first() else {
            return self.forever(node, last, OpKind::Sleep { duration_ns: None });
        };
        let ast = expr::parse_number(written, Suffixes::Times)?;
        let duration = self.at_least(&ast, "the duration", 0)?;
        Ok(OpKind::Sleep { duration_ns: Some(duration.expr) })
    }

    /// Checks the features. Naming other ones closes the userfaultfd and makes another one. That is
    /// refused if a thread serves the first one, or if a forked process has it as well.
    pub(crate) fn check_userfaultfd(&mut self) {
        let Some((place, first)) = self.other_features else { return };
        let help = match self.serves {
            Some(_) => {
                "a thread serves it (`uffd-serve`): name the same features in every uffdio_register"
            }
            None if !self.processes.is_empty() => {
                "a forked process has it, too: name the same features in every uffdio_register"
            }
            None => return,
        };
        let problem = Problem::new(place, "the userfaultfd has other features", "here");
        self.problems.push(problem.also(first, "first here").help(help));
    }

    /// Checks that the node may serve userfaultfd: one thread of the first process may.
    fn may_serve(&mut self, node: &Node) -> Result<(), Problem> {
        if self.own_process != ProcessId::FIRST {
            return Err(Problem::new(
                node.span,
                "only the first process has a userfaultfd",
                "here",
            )
            .help("make it a thread of the first process"));
        }
        match self.serves.replace(node.span) {
            None => Ok(()),
            Some(first) => Err(Problem::new(node.span, "another thread serves already", "here")
                .also(first, "first here")
                .help("one thread answers all accesses")),
        }
    }

    /// Checks the place of an operation that lasts until the scenario ends.
    fn forever(&self, node: &Node, last: bool, kind: OpKind) -> Result<OpKind, Problem> {
        let (label, help) = if self.thread.0 == 0 {
            ("in the first thread", "the scenario ends with its first thread; use another one")
        } else if !self.blocks.is_empty() {
            ("inside a block", "make it the last operation of the thread")
        } else if !last {
            ("more follows", "what follows is never reached: make this the last operation")
        } else {
            return Ok(kind);
        };
        Err(Problem::new(node.span, format!("`{}` would never end here", node.name), label)
            .help(help))
    }

    fn barrier(&mut self, node: &Node) -> Result<OpKind, Problem> {
        let name = node.args[0].text("a barrier's name")?;
        let index = match self.barriers.iter().position(|b| b.name == name) {
            Some(index) => index,
            None => {
                self.barriers.push(Barrier { name: name.to_owned(), threads: Vec::new() });
                self.barriers.len() - 1
            }
        };
        let threads = &mut self.barriers[index].threads;
        if threads.last() != Some(&self.thread) {
            threads.push(self.thread);
        }
        Ok(OpKind::Barrier { barrier: index as u16 })
    }

    fn mark(&mut self, node: &Node) -> Result<OpKind, Problem> {
        let name = node.args[0].text("a mark's name")?;
        let known = self.marks.iter().position(|m| m == name);
        let mark = known.unwrap_or(self.marks.len());
        if known.is_none() {
            self.marks.push(name.to_owned());
        }
        Ok(OpKind::Mark { mark: mark as u16 })
    }
}

/// The words for ways to touch pages.
pub(crate) const ACCESSES: [(&str, Access); 3] =
    [("read", Access::Read), ("write", Access::Write), ("write-zero", Access::WriteZero)];
fn write_access(node: &Node) -> Result<Access, Problem> {
    let zero = node.prop("value").map(|_| word(node, "value", &[("zero", Access::WriteZero)]));
    zero.unwrap_or(Ok(Access::Write))
}

/// Reads a property whose value is one word of a closed set.
pub(crate) fn word<T: Copy>(node: &Node, prop: &str, words: &[(&str, T)]) -> Result<T, Problem> {
    match node.prop(prop) {
        Some(value) => word_of(value, prop, words),
        None => Err(Problem::new(node.span, format!("`{prop}` is missing"), "here")
            .help(format!("add {prop}="))),
    }
}

/// Reads a value that is one word of a closed set.
pub(crate) fn word_of<T: Copy>(
    value: &Written,
    what: &str,
    words: &[(&str, T)],
) -> Result<T, Problem> {
    let text = value.text("a word")?;
    words.iter().find(|(word, _)| *word == text).map(|(_, meaning)| *meaning).ok_or_else(|| {
        Problem::new(value.span, format!("unknown {what} `{text}`"), "this word").help(suggest(
            "words",
            text,
            words.iter().map(|(word, _)| *word),
        ))
    })
}

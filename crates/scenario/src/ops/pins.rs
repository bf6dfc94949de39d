//! Pins: which pins there are, and whether each is used in a way that it was made for.

use super::{Lowering, word};
use crate::document::{Node, Value as Written};
use crate::error::{Problem, suggest};
use crate::tokens::is_name;
use miette::SourceSpan;
use needless_model::addr::{PinId, ProcessId};
use needless_model::call::{CallExpr, Gup, PinAccess};
use needless_model::program::Access;

/// The pins named so far. A use may come before the operation that makes the pin.
#[derive(Debug, Default)]
pub(super) struct Pins(Vec<Named>);

#[derive(Debug)]
struct Named {
    name: String,
    made: Option<Made>,
    uses: Vec<Use>,
}

/// The first operation that makes the pin.
#[derive(Debug)]
struct Made {
    by: ProcessId,
    write: bool,
    span: SourceSpan,
}

#[derive(Debug)]
struct Use {
    by: ProcessId,
    stores: bool,
    span: SourceSpan,
}

impl Pins {
    fn named(&mut self, name: &str) -> (PinId, &mut Named) {
        let at = self.0.iter().position(|pin| pin.name == name).unwrap_or_else(|| {
            self.0.push(Named { name: name.to_owned(), made: None, uses: Vec::new() });
            self.0.len() - 1
        });
        (PinId(at as u16), &mut self.0[at])
    }

    /// The problems with the uses of pins.
    pub(super) fn problems(&self) -> Vec<Problem> {
        let made = || self.0.iter().filter(|pin| pin.made.is_some());
        let uses = self.0.iter().flat_map(|pin| pin.uses.iter().map(move |used| (pin, used)));
        let problem = |(pin, used): (&Named, &Use)| {
            let Named { name, made: Some(first), .. } = pin else {
                let message = format!("nothing is pinned as `{}`", pin.name);
                let problem = Problem::new(used.span, message, "this pin");
                let known: Vec<&str> = made().map(|pin| pin.name.as_str()).collect();
                return Some(problem.help(if known.is_empty() {
                    format!("pin a page first: pin \"heap[0]\" as=\"{}\" access=\"read\"", pin.name)
                } else {
                    suggest("pins", &pin.name, known.into_iter())
                }));
            };
            let (message, help) = if used.by != first.by {
                let message = format!("`{name}` belongs to another process");
                (message, "a pin is used by the process that holds it")
            } else if used.stores && !first.write {
                (format!("`{name}` is for loads only"), "pin the page with access=\"write\"")
            } else {
                return None;
            };
            let problem = Problem::new(used.span, message, "this pin");
            Some(problem.also(first.span, "made here").help(help))
        };
        uses.filter_map(problem).collect()
    }
}

impl Lowering<'_> {
    /// Records the problems with the uses of pins, once all threads are lowered.
    pub(crate) fn check_pins(&mut self) {
        self.problems.extend(self.pins.problems());
    }

    /// Reads `pin`, which holds one page.
    pub(super) fn pin(&mut self, node: &Node) -> Result<CallExpr, Problem> {
        let pages = self.some_pages(&node.args[0])?;
        if pages.count != Some(1) {
            return Err(Problem::new(pages.span, "a pin holds one page", "these pages")
                .help("name one page: heap[0]"));
        }
        let Some(written) = node.prop("as") else {
            return Err(
                Problem::new(node.span, "as which pin?", "as= is missing").help("add as=\"NAME\"")
            );
        };
        let name = pin_name(written)?;
        let access = word(node, "access", &PinAccess::ALL)?;
        let write = access.is_write();
        let gup = if node.prop("by").is_some() { word(node, "by", &Gup::ALL)? } else { Gup::Pin };
        let by = self.own_process;
        let (pin, named) = self.pins.named(name);
        match &named.made {
            Some(first) if (first.by, first.write) != (by, write) => {
                let message = format!("`{name}` is pinned differently elsewhere");
                return Err(Problem::new(written.span, message, "this pin")
                    .also(first.span, "first here")
                    .help("choose another name"));
            }
            Some(_) => {}
            None => named.made = Some(Made { by, write, span: written.span }),
        }
        Ok(CallExpr::Pin { pages: pages.expr, pin, gup, access })
    }

    /// Reads `dma`: a device uses the page that a pin holds.
    pub(super) fn dma(&mut self, node: &Node) -> Result<CallExpr, Problem> {
        let access = word(node, "access", &[("read", Access::Read), ("write", Access::Write)])?;
        let pin = self.used(&node.args[0], access.is_write())?;
        Ok(CallExpr::Dma { pin, access })
    }

    /// Reads `unpin`, which releases the page.
    pub(super) fn unpin(&mut self, node: &Node) -> Result<CallExpr, Problem> {
        Ok(CallExpr::Unpin { pin: self.used(&node.args[0], false)? })
    }

    fn used(&mut self, written: &Written, stores: bool) -> Result<PinId, Problem> {
        let (name, by, span) = (pin_name(written)?, self.own_process, written.span);
        let (pin, named) = self.pins.named(name);
        named.uses.push(Use { by, stores, span });
        Ok(pin)
    }
}

fn pin_name(written: &Written) -> Result<&str, Problem> {
    let name = written.text("a pin's name")?;
    if is_name(name) {
        return Ok(name);
    }
    Err(Problem::new(written.span, format!("`{name}` cannot name a pin"), "this name")
        .help("names are letters, digits and `_`, not a digit first"))
}

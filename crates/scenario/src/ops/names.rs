//! Names of loads and stores. A `litmus` node refers to operations by these names. They are not
//! part of the program.

use super::Lowering;
use crate::document::Node;
use crate::error::Problem;
use crate::tokens::is_name;
use miette::SourceSpan;

/// The word for the value of a page that nobody has stored to.
pub(crate) const ZERO: &str = "zero";

/// A load or store that has a name.
#[derive(Clone, Debug)]
pub(crate) struct Named {
    /// The name that the text gives it.
    pub name: String,
    /// Where the name is given.
    pub span: SourceSpan,
    /// The operation's number.
    pub op: u32,
    /// Whether the operation is a store.
    pub store: bool,
}

/// The property that names an operation, where it has that meaning. `as=` of a loop does not.
pub(super) fn prop(node: &Node) -> Option<&'static str> {
    matches!(node.name.as_str(), "read" | "write" | "dma").then_some("as")
}

impl Lowering<'_> {
    /// Records the name of operation `op`, if it has one.
    pub(super) fn name_access(&mut self, node: &Node, op: u32) -> Result<(), Problem> {
        let Some(written) = prop(node).and_then(|name| node.prop(name)) else { return Ok(()) };
        let name = written.text("a name")?;
        if !is_name(name) || name == ZERO {
            let message = format!("`{name}` cannot name a load or store");
            return Err(Problem::new(written.span, message, "this name")
                .help("names are letters, digits and `_`, not a digit first; `zero` is reserved"));
        }
        if let Some(before) = self.named.iter().find(|named| named.name == name) {
            return Err(twice(name, written.span, before));
        }
        if node.name == "dma" {
            let store = node
                .prop("access")
                .is_some_and(|access| access.text("").is_ok_and(|word| word != "read"));
            self.named.push(Named { name: name.to_owned(), span: written.span, op, store });
            return Ok(());
        }
        let pages = self.pages(&node.args[0])?;
        if pages.count != Some(1) || pages.first.known().is_none() {
            let message = format!("`{name}` does not name an access to one page");
            return Err(Problem::new(written.span, message, "this name")
                .also(pages.span, "these pages")
                .help(
                    "only an access to exactly one page, known before the run, has a name: heap[0]",
                ));
        }
        let store = node.name == "write";
        self.named.push(Named { name: name.to_owned(), span: written.span, op, store });
        Ok(())
    }
}

fn twice(name: &str, span: SourceSpan, before: &Named) -> Problem {
    if before.span == span {
        return Problem::new(span, format!("each of several threads names `{name}`"), "this name")
            .help("give the access that has a name a thread without count=");
    }
    Problem::new(span, format!("`{name}` is given twice"), "again here")
        .also(before.span, "first here")
        .help("choose another name")
}

//! The strict layer over KDL: a tree in which every value is an integer or a quoted string.
//!
//! This layer refuses type annotations, duplicate properties, bare words, floats and keywords. So
//! later stages see only what a reader of the text sees. Positions are byte offsets in the text. A
//! string value knows where each of its bytes is.

use crate::error::{Problem, finish};
use crate::excerpt::is_plain;
use crate::lex;
use kdl::{KdlDocument, KdlEntry, KdlNode, KdlValue};
use miette::SourceSpan;
use std::ops::Range;

/// A node of the tree.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    /// The word that the node begins with.
    pub name: String,
    /// Where the name is.
    pub span: SourceSpan,
    /// The arguments, in order.
    pub args: Vec<Value>,
    /// The properties, in order.
    pub props: Vec<Property>,
    /// The nodes between the braces. `None` if there are no braces.
    pub body: Option<Vec<Node>>,
}

/// A property of a node: `name=value`.
#[derive(Clone, Debug)]
pub(crate) struct Property {
    /// The word before the `=`.
    pub name: String,
    /// Where the name is.
    pub span: SourceSpan,
    /// What is behind the `=`.
    pub value: Value,
}

/// An argument or a property's value.
#[derive(Clone, Debug)]
pub(crate) struct Value {
    /// The integer or the string.
    pub kind: ValueKind,
    /// Where the value is, quotes included.
    pub span: SourceSpan,
    /// Where the string's first byte is. `None` if the text writes some of its bytes as escapes.
    inside: Option<usize>,
}

/// The kinds of value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ValueKind {
    /// A bare integer.
    Integer(i64),
    /// A quoted string.
    Text(String),
}

impl Node {
    /// The value of the property with this name.
    pub fn prop(&self, name: &str) -> Option<&Value> {
        self.props.iter().find(|p| p.name == name).map(|p| &p.value)
    }

    /// The nodes between the braces. Empty if there are no braces.
    pub fn children(&self) -> &[Node] {
        self.body.as_deref().unwrap_or_default()
    }

    /// Writes the node on one line as a reader would, without quotes.
    pub fn summary(&self) -> String {
        self.summary_without(None)
    }

    /// Writes the node on one line like [`Node::summary`], without the property of this name.
    pub fn summary_without(&self, prop: Option<&str>) -> String {
        let mut line = self.name.clone();
        for arg in &self.args {
            line += &format!(" {}", arg.plain());
        }
        for prop in self.props.iter().filter(|p| Some(p.name.as_str()) != prop) {
            line += &format!(" {}={}", prop.name, prop.value.plain());
        }
        line
    }
}

impl Value {
    /// A value without a scenario around it, as in `--set name=value`. It begins at byte `offset`
    /// of its text.
    pub fn bare(text: &str, offset: usize) -> Value {
        let span = (offset..offset + text.len()).into();
        Value { kind: ValueKind::Text(text.to_owned()), span, inside: Some(offset) }
    }

    /// The string, or a problem that asks for `what`.
    pub fn text(&self, what: &str) -> Result<&str, Problem> {
        match &self.kind {
            ValueKind::Text(text) => Ok(text),
            ValueKind::Integer(_) => {
                Err(Problem::new(self.span, format!("{what} is expected here"), "a number")
                    .help("write it as a quoted string"))
            }
        }
    }

    /// The place in the text of bytes `range` of the string.
    pub fn at(&self, range: Range<usize>) -> SourceSpan {
        match self.inside {
            Some(start) => (start + range.start..start + range.end).into(),
            None => self.span,
        }
    }

    fn plain(&self) -> String {
        match &self.kind {
            ValueKind::Integer(value) => value.to_string(),
            ValueKind::Text(text) => text.clone(),
        }
    }
}

/// Reads a text into nodes.
pub(crate) fn read(text: &str) -> Result<Vec<Node>, Vec<Problem>> {
    lex::lex(text).map_err(|p| vec![p])?;
    let document = KdlDocument::parse_v2(text).map_err(|e| kdl_problems(text, &e))?;
    let mut reader = Reader { text, problems: Vec::new() };
    let nodes = reader.nodes(&document);
    finish(reader.problems, nodes)
}

/// Turns what the KDL parser found into our form. The parser often reports consequences of the
/// first error too, so only the first error is used.
fn kdl_problems(text: &str, error: &kdl::KdlError) -> Vec<Problem> {
    let Some(found) = error.diagnostics.iter().min_by_key(|d| d.span.offset()) else {
        return vec![Problem::new((0..0).into(), "this is not KDL", "somewhere from here on")];
    };
    let start = text.floor_char_boundary(found.span.offset().min(text.len()));
    let end = text.ceil_char_boundary((start + found.span.len()).min(text.len()));
    let message = found.message.clone().unwrap_or_else(|| "this is not KDL".to_owned());
    let label = found.label.as_deref().unwrap_or("here");
    vec![
        Problem::new((start..end).into(), message, label)
            .help("a line is: name \"argument\" … property=value … { children }"),
    ]
}

struct Reader<'a> {
    text: &'a str,
    problems: Vec<Problem>,
}

impl Reader<'_> {
    fn nodes(&mut self, document: &KdlDocument) -> Vec<Node> {
        document.nodes().iter().map(|n| self.node(n)).collect()
    }

    fn node(&mut self, node: &KdlNode) -> Node {
        let name = node.name();
        if let Some(ty) = node.ty() {
            self.problems.push(annotation(ty.span()));
        }
        let mut result = Node {
            name: name.value().to_owned(),
            span: name.span(),
            args: Vec::new(),
            props: Vec::new(),
            body: None,
        };
        for entry in node.entries() {
            if let Err(problem) = self.entry(entry, &mut result) {
                self.problems.push(problem);
            }
        }
        result.body = node.children().map(|c| self.nodes(c));
        result
    }

    fn entry(&self, entry: &KdlEntry, node: &mut Node) -> Result<(), Problem> {
        if let Some(ty) = entry.ty() {
            return Err(annotation(ty.span()));
        }
        let value = self.value(entry)?;
        let Some(name) = entry.name() else {
            node.args.push(value);
            return Ok(());
        };
        if let Some(before) = node.props.iter().find(|p| p.name == name.value()) {
            let message = format!("`{}` is given twice", name.value());
            return Err(Problem::new(name.span(), message, "given again")
                .also(before.span, "given first")
                .help("remove one of them"));
        }
        node.props.push(Property { name: name.value().to_owned(), span: name.span(), value });
        Ok(())
    }

    fn value(&self, entry: &KdlEntry) -> Result<Value, Problem> {
        let written = entry.format().map_or("", |f| f.value_repr.as_str());
        let end = entry.span().offset() + entry.span().len();
        let span = SourceSpan::from(end - written.len().min(end)..end);
        let inside = (span.offset() + 1)..end.saturating_sub(1);
        let kind = match entry.value() {
            KdlValue::Integer(value) => {
                i64::try_from(*value).map(ValueKind::Integer).map_err(|_| {
                    Problem::new(span, "this number is too large", "does not fit in 64 bits")
                        .help("the largest number is 9223372036854775807")
                })?
            }
            // Strings may be names and sentences, which are printed.
            KdlValue::String(text) if !text.chars().all(is_plain) => {
                return Err(Problem::new(span, "a control character in a string", "in here")
                    .help("leave out the escape that stands for it"));
            }
            KdlValue::String(text) if written.starts_with('"') => ValueKind::Text(text.clone()),
            KdlValue::String(text) => {
                return Err(Problem::new(span, "a bare word", "needs quotes")
                    .help(format!("write \"{text}\"")));
            }
            _ => {
                return Err(Problem::new(span, "a value of a kind that is not used", "this value")
                    .help("values are integers and quoted strings"));
            }
        };
        let exact = matches!(&kind, ValueKind::Text(t) if self.text.get(inside.clone()) == Some(t));
        Ok(Value { kind, span, inside: exact.then_some(inside.start) })
    }
}

fn annotation(span: SourceSpan) -> Problem {
    Problem::new(span, "a type annotation", "not allowed")
        .help("expressions are quoted strings: pages=\"(threads+1)*2\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_point_inside_strings() {
        let text = "// é\nmap \"heap\" pages=\"a+b\" at=\"x\\ty\"";
        let nodes = read(text).unwrap();
        let pages = nodes[0].prop("pages").unwrap();
        let span = pages.at(2..3);
        assert_eq!(&text[span.offset()..span.offset() + span.len()], "b");
        let at = nodes[0].prop("at").unwrap();
        assert_eq!(at.at(0..1), at.span, "an escaped string is pointed at as a whole");
        assert_eq!(nodes[0].summary(), "map heap pages=a+b at=x\ty");
    }

    #[test]
    fn strict() {
        for bad in [
            "a b=1 b=2",
            "a bare",
            "a 1.5",
            "a #true",
            "a #null",
            "a 9223372036854775808",
            "a b=bare",
            "a b=",
            "= 1",
            "a [x]",
            "a \"\\u{1b}[31m\"",
            "a b=\"\\u{9b}\"",
        ] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn several_problems_at_once() {
        assert_eq!(read("a b\nc d\n").unwrap_err().len(), 2);
    }
}

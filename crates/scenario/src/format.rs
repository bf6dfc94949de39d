//! `scenario fmt`: writes the same tokens in a uniform layout.
//!
//! KDL's own printer drops comments, so this one works on tokens. It changes white space, line
//! breaks and semicolons, and nothing else. A block that was written on one line stays on one line
//! if it fits. At most one empty line is kept between two nodes.

use crate::document::{self, Node};
use crate::error::Problem;
use crate::lex::{self, Token, TokenKind};

/// The widest line on which a block is kept whole.
const WIDTH: usize = 100;
const INDENT: &str = "    ";

/// Formats a text that the strict layer accepts.
pub(crate) fn format(text: &str) -> Result<String, Vec<Problem>> {
    let before = document::read(text)?;
    let tokens = lex::lex(text).map_err(|p| vec![p])?;
    let block = Reader { text, tokens: &tokens, at: 0 }.block();
    let mut out = String::new();
    print_lines(&block, 0, &mut out);
    match document::read(&out) {
        Ok(after) if same(&before, &after) => Ok(out),
        _ => Err(vec![
            Problem::new((0..0).into(), "this layout cannot be kept while formatting", "this text")
                .help("put comments on lines of their own"),
        ]),
    }
}

/// Whether two trees have the same content.
fn same(left: &[Node], right: &[Node]) -> bool {
    left.len() == right.len()
        && left.iter().zip(right).all(|(l, r)| {
            l.summary() == r.summary()
                && l.body.is_some() == r.body.is_some()
                && same(l.children(), r.children())
        })
}

/// A node, or a comment on a line of its own.
#[derive(Default)]
struct Item {
    /// The words of the node's line.
    line: String,
    /// The node's block.
    block: Option<Block>,
    /// The `//` comment at the end of the line.
    comment: Option<String>,
    /// Whether an empty line comes before the item.
    spaced: bool,
}

struct Block {
    items: Vec<Item>,
    /// Whether the block was written on one line.
    inline: bool,
}

struct Reader<'a> {
    text: &'a str,
    tokens: &'a [Token],
    at: usize,
}

impl Reader<'_> {
    /// Reads items up to the closing brace, which it consumes, or to the end.
    fn block(&mut self) -> Block {
        let mut items: Vec<Item> = Vec::new();
        let (mut inline, mut lines) = (true, 0);
        while let Some(token) = self.tokens.get(self.at) {
            match token.kind {
                TokenKind::Close => break,
                TokenKind::Semicolon => self.at += 1,
                TokenKind::Newline => {
                    (inline, lines) = (false, lines + 1);
                    self.at += 1;
                }
                // A comment behind `a;` belongs to `a`; behind `{` it becomes the first line.
                TokenKind::LineComment if lines == 0 && !items.is_empty() => {
                    let comment = self.comment();
                    if let Some(item) = items.last_mut() {
                        item.comment = Some(comment);
                    }
                    inline = false;
                }
                _ => {
                    let spaced = lines > 1 && !items.is_empty();
                    let item = Item { spaced, ..self.item() };
                    inline &= item.comment.is_none();
                    items.push(item);
                    lines = 0;
                }
            }
        }
        self.at += 1;
        Block { items, inline }
    }

    /// Reads one node up to the end of its line.
    fn item(&mut self) -> Item {
        let mut item = Item::default();
        while let Some(token) = self.tokens.get(self.at) {
            match token.kind {
                TokenKind::Newline | TokenKind::Semicolon | TokenKind::Close => break,
                TokenKind::LineComment => {
                    item.comment = Some(self.comment());
                    break;
                }
                TokenKind::Open => {
                    self.at += 1;
                    item.block = Some(self.block());
                }
                kind => {
                    let glued = kind == TokenKind::Equals
                        || self.at > 0 && self.tokens[self.at - 1].kind == TokenKind::Equals;
                    if !item.line.is_empty() && !glued {
                        item.line.push(' ');
                    }
                    item.line += &self.text[token.range.clone()];
                    self.at += 1;
                }
            }
        }
        item
    }

    fn comment(&mut self) -> String {
        let comment = self.text[self.tokens[self.at].range.clone()].trim_end().to_owned();
        self.at += 1;
        comment
    }
}

fn print_lines(block: &Block, depth: usize, out: &mut String) {
    for item in &block.items {
        if item.spaced {
            out.push('\n');
        }
        let start = out.len();
        *out += &INDENT.repeat(depth);
        *out += &item.line;
        if let Some(inner) = &item.block {
            print_block(inner, depth, start, out);
        }
        if let Some(comment) = &item.comment {
            if out.len() > start + depth * INDENT.len() {
                out.push(' ');
            }
            *out += comment;
        }
        out.push('\n');
    }
}

/// Prints a block behind the line that begins at `start`.
fn print_block(block: &Block, depth: usize, start: usize, out: &mut String) {
    if let Some(inline) = inline(block)
        && out[start..].chars().count() + 1 + inline.chars().count() <= WIDTH
    {
        out.push(' ');
        *out += &inline;
        return;
    }
    *out += " {\n";
    print_lines(block, depth + 1, out);
    *out += &INDENT.repeat(depth);
    out.push('}');
}

/// The block on one line, if it was written on one.
fn inline(block: &Block) -> Option<String> {
    if !block.inline {
        return None;
    }
    let mut items = Vec::new();
    for item in &block.items {
        items.push(match &item.block {
            Some(inner) => format!("{} {}", item.line, inline(inner)?),
            None => item.line.clone(),
        });
    }
    Some(if items.is_empty() { "{}".to_owned() } else { format!("{{ {} }}", items.join("; ")) })
}

#[cfg(test)]
mod tests {
    use super::format;

    #[test]
    fn layout() {
        let text = "// head\n\n\n\nscenario   \"x\"{ // first\n  param \"a\" default = 1;  param \
                    \"b\" // b's\n\n\n  /* c */ thread \"t\"   cpu=0 { spin;spin }\n}// end";
        let expected = "// head\n\nscenario \"x\" {\n    // first\n    param \"a\" default=1\n    \
                        param \"b\" // b's\n\n    /* c */ thread \"t\" cpu=0 { spin; spin }\n} // end\n";
        assert_eq!(format(text).unwrap(), expected);
        assert_eq!(format(expected).unwrap(), expected);
    }

    #[test]
    fn a_long_inline_block_is_broken() {
        let text = format!("a {{ {} }}\n", "b \"cccccccc\"; ".repeat(12));
        let once = format(&text).unwrap();
        assert!(once.lines().count() > 12, "{once}");
        assert_eq!(format(&once).unwrap(), once);
    }

    #[test]
    fn block_comments_and_empty_blocks() {
        let text = "a {}\nb {\n\n}\n/* x\n   y */\nc /* z */ 1 /* w */\n";
        let once = format(text).unwrap();
        assert_eq!(once, "a {}\nb {\n}\n/* x\n   y */\nc /* z */ 1 /* w */\n");
        assert_eq!(format(&once).unwrap(), once);
    }
}

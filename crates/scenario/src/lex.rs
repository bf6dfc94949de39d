//! Splits a scenario's text into tokens.
//!
//! Scenarios are a strict subset of KDL 2. The lexer runs before the KDL parser. It refuses what
//! that parser would misread silently (type annotations), what it would not survive (deep nesting),
//! and what the formatter could not keep (slash-dash, raw and multi-line strings). An accepted text
//! has balanced braces, so every token belongs to a known block.

use crate::error::Problem;
use crate::excerpt::is_plain;
use std::ops::Range;

/// The longest text that is read, in bytes.
pub(crate) const MAX_TEXT_BYTES: usize = 256 * 1024;

/// The deepest nesting of braces and of block comments.
pub(crate) const MAX_DEPTH: usize = 32;

/// The kinds of token.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum TokenKind {
    /// A bare word or number.
    Word,
    /// A quoted string, quotes included.
    Text,
    /// The sign `=`.
    Equals,
    /// An opening brace, `{`.
    Open,
    /// A closing brace, `}`.
    Close,
    /// The sign `;`.
    Semicolon,
    /// A line break.
    Newline,
    /// A line comment, `// …`, without its line break.
    LineComment,
    /// A block comment, `/* … */`.
    BlockComment,
}

/// A token and the bytes that it takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Token {
    /// The kind of token.
    pub kind: TokenKind,
    /// Where the token is, in bytes.
    pub range: Range<usize>,
}

/// Splits `text` into tokens and drops white space.
pub(crate) fn lex(text: &str) -> Result<Vec<Token>, Problem> {
    if text.len() > MAX_TEXT_BYTES {
        let message = format!("the text has {} bytes", text.len());
        return Err(Problem::new((0..0).into(), message, "starts here")
            .help(format!("a scenario may have at most {MAX_TEXT_BYTES} bytes")));
    }
    if let Some(problem) = control_character(text) {
        return Err(problem);
    }
    let mut lexer = Lexer { text, at: 0 };
    let mut tokens = Vec::new();
    let mut open = Vec::new();
    while let Some(token) = lexer.next()? {
        match token.kind {
            TokenKind::Open if open.len() == MAX_DEPTH => return Err(too_deep(token.range)),
            TokenKind::Open => open.push(token.range.clone()),
            TokenKind::Close if open.pop().is_none() => {
                return Err(Problem::new(token.range.into(), "a `}` without its `{`", "this one")
                    .help("remove it, or add the `{` that opens the block"));
            }
            _ => {}
        }
        tokens.push(token);
    }
    match open.pop() {
        Some(range) => Err(Problem::new(range.into(), "this block is not closed", "opened here")
            .help("add the `}` that closes it")),
        None => Ok(tokens),
    }
}

/// The problem with a text that could steer the terminal on which it is shown.
pub(crate) fn control_character(text: &str) -> Option<Problem> {
    let steers = |(at, c): &(usize, char)| {
        let line_end = *c == '\r' && text[at + 1..].starts_with('\n');
        !is_plain(*c) && !line_end
    };
    let (at, c) = text.char_indices().find(steers)?;
    let message = format!("a control character, U+{:04X}", u32::from(c));
    let problem = Problem::new((at..at + c.len_utf8()).into(), message, "here");
    Some(problem.help("remove it: a scenario is plain text, with tabs and line ends"))
}

/// Whether `c` ends a line in KDL.
pub(crate) fn is_newline(c: char) -> bool {
    matches!(c, '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

fn too_deep(range: Range<usize>) -> Problem {
    Problem::new(range.into(), "nested too deeply", "one level too many")
        .help(format!("at most {MAX_DEPTH} levels may be nested"))
}

struct Lexer<'a> {
    text: &'a str,
    at: usize,
}

impl Lexer<'_> {
    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    /// Takes the next `bytes` bytes as a token.
    fn take(&mut self, kind: TokenKind, bytes: usize) -> Option<Token> {
        let range = self.at..self.at + bytes;
        self.at = range.end;
        Some(Token { kind, range })
    }

    fn next(&mut self) -> Result<Option<Token>, Problem> {
        self.skip_spaces();
        let Some(c) = self.rest().chars().next() else { return Ok(None) };
        let here = self.at..self.at + c.len_utf8();
        Ok(match c {
            c if is_newline(c) => {
                let bytes = if self.rest().starts_with("\r\n") { 2 } else { c.len_utf8() };
                self.take(TokenKind::Newline, bytes)
            }
            '{' => self.take(TokenKind::Open, 1),
            '}' => self.take(TokenKind::Close, 1),
            ';' => self.take(TokenKind::Semicolon, 1),
            '=' => self.take(TokenKind::Equals, 1),
            '"' => self.quoted()?,
            '/' => self.comment()?,
            '(' | ')' => return Err(parenthesis(here)),
            '\\' => {
                return Err(Problem::new(here.into(), "a line continuation", "not allowed")
                    .help("write the whole operation on one line"));
            }
            '#' if self.rest().trim_start_matches('#').starts_with('"') => {
                return Err(Problem::new(here.into(), "a raw string", "starts here")
                    .help("use an ordinary string in double quotes"));
            }
            _ => self.word(),
        })
    }

    fn skip_spaces(&mut self) {
        let rest =
            if self.at == 0 { self.rest().trim_start_matches('\u{feff}') } else { self.rest() };
        let rest = rest.trim_start_matches(|c: char| c.is_whitespace() && !is_newline(c));
        self.at = self.text.len() - rest.len();
    }

    fn word(&mut self) -> Option<Token> {
        let ends = |c: char| c.is_whitespace() || "\"(){};=/\\".contains(c);
        let bytes = self.rest().find(ends).unwrap_or(self.rest().len());
        self.take(TokenKind::Word, bytes)
    }

    fn quoted(&mut self) -> Result<Option<Token>, Problem> {
        let start = self.at;
        if self.rest().starts_with("\"\"\"") {
            return Err(Problem::new(
                (start..start + 3).into(),
                "a multi-line string",
                "starts here",
            )
            .help("use one `doc` line per sentence"));
        }
        let mut escaped = false;
        for (i, c) in self.rest().char_indices().skip(1) {
            match c {
                c if is_newline(c) => break,
                '"' if !escaped => return Ok(self.take(TokenKind::Text, i + 1)),
                c => escaped = c == '\\' && !escaped,
            }
        }
        Err(Problem::new((start..start + 1).into(), "this string is not closed", "opened here")
            .help("close it with `\"` on the same line"))
    }

    fn comment(&mut self) -> Result<Option<Token>, Problem> {
        let start = self.at;
        let rest = self.rest();
        if rest.starts_with("//") {
            let bytes = rest.find(is_newline).unwrap_or(rest.len());
            return Ok(self.take(TokenKind::LineComment, bytes));
        }
        if rest.starts_with("/-") {
            return Err(Problem::new(
                (start..start + 2).into(),
                "a slash-dash comment",
                "not allowed",
            )
            .help("comment lines out with `//`, or a passage with `/* */`"));
        }
        if !rest.starts_with("/*") {
            return Err(Problem::new(
                (start..start + 1).into(),
                "a stray `/`",
                "not expected here",
            )
            .help("expressions are quoted strings: pages=\"total/2\""));
        }
        self.block_comment(start)
    }

    fn block_comment(&mut self, start: usize) -> Result<Option<Token>, Problem> {
        let bytes = self.rest().as_bytes();
        let (mut depth, mut i) = (0, 0);
        while i + 1 < bytes.len() {
            match &bytes[i..i + 2] {
                b"/*" if depth == MAX_DEPTH => return Err(too_deep(start + i..start + i + 2)),
                b"/*" => (depth, i) = (depth + 1, i + 2),
                b"*/" if depth == 1 => return Ok(self.take(TokenKind::BlockComment, i + 2)),
                b"*/" => (depth, i) = (depth - 1, i + 2),
                _ => i += 1,
            }
        }
        Err(Problem::new((start..start + 2).into(), "this comment is not closed", "opened here")
            .help("close it with `*/`"))
    }
}

/// The problem with a parenthesis outside a string: KDL reads `(x)` as a type annotation and drops
/// it from the value.
fn parenthesis(range: Range<usize>) -> Problem {
    Problem::new(
        range.into(),
        "a parenthesis outside a string",
        "KDL reads this as a type annotation",
    )
    .help("expressions are quoted strings: pages=\"(threads+1)*2\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(text: &str) -> Vec<TokenKind> {
        lex(text).unwrap().into_iter().map(|t| t.kind).collect()
    }

    #[test]
    fn tokens_of_a_line() {
        use TokenKind::*;
        assert_eq!(
            kinds("a b=\"c \\\" d\" { /* e /* f */ */ g; } // h"),
            [Word, Word, Equals, Text, Open, BlockComment, Word, Semicolon, Close, LineComment]
        );
        assert_eq!(kinds("\u{feff}a\r\nb"), [Word, Newline, Word]);
    }

    #[test]
    fn refused() {
        let deep = "a{".repeat(MAX_DEPTH + 1);
        let comments = "/*".repeat(MAX_DEPTH + 1);
        let long = " ".repeat(MAX_TEXT_BYTES + 1);
        for bad in [
            "a (b)c",
            "a \"b",
            "a \"b\nc\"",
            "/- a",
            "a \\\n b",
            "a #\"b\"#",
            "a \"\"\"\nb\n\"\"\"",
            "a { b",
            "a }",
            "a /* b",
            "a / b",
            "a \"\u{1b}[31m\"",
            "a // \u{9b}2J",
            "a\rb",
            "a \"\u{202e}\"",
            "a\u{7f}",
            &deep,
            &comments,
            &long,
        ] {
            assert!(lex(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn depth_limit_is_inclusive() {
        let text = "a{".repeat(MAX_DEPTH) + &"}".repeat(MAX_DEPTH);
        assert!(lex(&text).is_ok());
    }
}

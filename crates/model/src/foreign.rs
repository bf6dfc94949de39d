//! Text from outside: names of tasks, symbols and files, output of compilers and consoles, strings
//! of saved documents.
//!
//! A terminal obeys some characters: escape sequences set its title, move its cursor or type for
//! the user, and bidi controls reorder what a reader sees. A newline in a name splits a table row
//! in two. So text passes two checks:
//!
//! - **In**: [`line()`], [`lossy`], [`said`] and [`path`] turn a name into one visible line where
//!   the name is read. From then on it is harmless in every format: text, JSON, TAP, JUnit,
//!   OpenMetrics, Perfetto. A newline in a name can only be recognized here. In a finished report
//!   it looks like any other.
//! - **Out**: [`output`] and [`json`] check everything again that is printed or written as text.
//!   Only `crates/cli/src/output.rs` and `files.rs` write, and lints forbid printing anywhere else,
//!   so every new report passes this check.
//!
//! A separate type for foreign text could do the work of the first check, but each crate between a
//! record and its report would have to carry it. Instead, text is escaped where it is read, so no
//! later step can forget it.

use serde::{Deserialize, Deserializer};
use std::borrow::Cow;
use std::ffi::OsStr;
use std::fmt::Write;

/// Whether a terminal or a text renderer obeys this character instead of showing it: C0 and C1
/// control characters, line and paragraph separators, and characters that change the direction of
/// writing (Unicode Standard Annex 9, table 3).
pub fn steers(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{61c}'
                | '\u{200e}'
                | '\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2066}'..='\u{2069}'
        )
}

/// A name as one visible line. Characters that [steer](steers()) are shown as escapes: `\n` or
/// `\u{1b}`.
pub fn line(text: &str) -> Cow<'_, str> {
    escaped(text, |_| 0, |out, c| out.extend(c.escape_default()))
}

/// A quote of the user's own words for a message: one visible line, shortened if it is long.
pub fn short(text: &str) -> String {
    const LONGEST: usize = 200;
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", line(&text[..end])),
        None => line(text).into_owned(),
    }
}

/// A name that may be invalid UTF-8, as one visible line.
pub fn lossy(bytes: &[u8]) -> String {
    line(&String::from_utf8_lossy(bytes)).into_owned()
}

/// A file name, or another string from the system, as one visible line. It cannot be used to open
/// the file.
pub fn path(name: impl AsRef<OsStr>) -> String {
    lossy(name.as_ref().as_encoded_bytes())
}

/// A line of a program's output, without its line end. Tabs stay, because they are layout.
pub fn said(line: &[u8]) -> String {
    output(&String::from_utf8_lossy(line), false).into_owned()
}

/// A string of a document that others may have written, as one visible line. For
/// `#[serde(deserialize_with)]`.
pub fn deserialize<'de, D: Deserializer<'de>>(document: D) -> Result<String, D::Error> {
    String::deserialize(document).map(|text| line(&text).into_owned())
}

/// Text for printing. It may have several lines and, if `styled`, colours and weights (SGR
/// sequences).
pub fn output(text: &str, styled: bool) -> Cow<'_, str> {
    let kept = |rest: &str| {
        let line_end = if rest.starts_with("\r\n") { 2 } else { 0 };
        let plain = usize::from(rest.starts_with(['\n', '\t']));
        let style = if styled { sgr(rest).unwrap_or(0) } else { 0 };
        line_end.max(plain).max(style)
    };
    escaped(text, kept, |out, c| out.extend(c.escape_default()))
}

/// A JSON document for printing. Characters that steer become JSON escapes, so the document keeps
/// its meaning.
pub fn json(document: &str) -> Cow<'_, str> {
    let kept = |rest: &str| usize::from(rest.starts_with('\n'));
    escaped(document, kept, |out, c| {
        // No character that steers is beyond the basic multilingual plane.
        let _ = write!(out, "\\u{:04x}", u32::from(c));
    })
}

/// `text` with every character that steers replaced by `escape`. `kept` says how many bytes at a
/// place stay as they are.
fn escaped(
    text: &str,
    kept: impl Fn(&str) -> usize,
    escape: impl Fn(&mut String, char),
) -> Cow<'_, str> {
    if !text.contains(steers) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(steers) {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let stays = kept(rest);
        if stays > 0 {
            out.push_str(&rest[..stays]);
            rest = &rest[stays..];
        } else if let Some(c) = rest.chars().next() {
            escape(&mut out, c);
            rest = &rest[c.len_utf8()..];
        }
    }
    out.push_str(rest);
    Cow::Owned(out)
}

/// The length of the SGR sequence that `text` begins with: `ESC [ 1 ; 33 m`.
fn sgr(text: &str) -> Option<usize> {
    let parameters = text.strip_prefix("\u{1b}[")?;
    let end = parameters.find(|c: char| !(c.is_ascii_digit() || c == ';'))?;
    parameters[end..].starts_with('m').then_some("\u{1b}[".len() + end + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOSTILE: &str =
        "a\u{1b}]0;t\u{7}\u{1b}[2J\u{1b}[31m\u{9b}1m\0\r\nb\t\u{202e}c\u{2066}\u{2028}\u{85}";

    #[test]
    fn a_name_becomes_one_visible_line() {
        let shown = line(HOSTILE);
        assert!(!shown.contains(steers), "{shown}");
        let start = "a\\u{1b}]0;t\\u{7}\\u{1b}[2J\\u{1b}[31m\\u{9b}1m\\u{0}\\r\\nb\\t\\u{202e}c";
        assert!(shown.starts_with(start), "{shown}");
        assert!(matches!(line("näme → ☃"), Cow::Borrowed("näme → ☃")));
        assert_eq!(lossy(b"\xff\x9b2J"), "\u{fffd}\u{fffd}2J");
        assert_eq!(path("a\nb"), "a\\nb");
        assert_eq!(short(&"é\n".repeat(200)), format!("{}…", "é\\n".repeat(100)));
    }

    #[test]
    fn output_keeps_lines_and_our_own_styles_only() {
        let text = "\u{1b}[1mone\u{1b}[0m\r\n\ttwo\n\u{1b}[1;33mthree\u{1b}[m";
        assert_eq!(output(text, true), text);
        assert!(!output(text, false).contains('\u{1b}'));
        let shown = output(HOSTILE, true);
        let left: String = shown.chars().filter(|c| steers(*c)).collect();
        assert_eq!(left, "\u{1b}\r\n\t", "a colour, and the ends of lines: {shown:?}");
        for cut in ["\u{1b}", "\u{1b}[", "\u{1b}[3", "\u{1b}[3J", "\u{1b}[?25l"] {
            assert!(!output(cut, true).contains('\u{1b}'), "{cut:?}");
        }
    }

    #[test]
    fn json_means_what_it_meant() {
        let document = "{\n \"a\": \"\u{9b}\u{202e}\u{7f}\"\n}";
        assert_eq!(json(document), "{\n \"a\": \"\\u009b\\u202e\\u007f\"\n}");
    }
}

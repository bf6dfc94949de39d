//! The look of text: colour, character set, width. Colour never carries meaning alone.

use std::fmt::Display;
use textwrap::{Options, WordSeparator, WordSplitter, WrapAlgorithm};

/// The look of text.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Style {
    /// Whether to use colour.
    pub color: bool,
    /// Whether characters outside ASCII may be used.
    pub unicode: bool,
    /// The largest number of columns to fill.
    pub width: u16,
}

/// How detailed a text is.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Detail {
    /// The answer, and the figures that support it.
    Answer,
    /// Every counter.
    All,
}

impl Style {
    /// No colour, ASCII only, 100 columns.
    pub const PLAIN: Style = Style { color: false, unicode: false, width: 100 };

    fn paint(self, style: anstyle::Style, text: impl Display) -> String {
        if self.color { format!("{style}{text}{style:#}") } else { text.to_string() }
    }

    /// Paints a heading.
    pub fn bold(self, text: impl Display) -> String {
        self.paint(anstyle::Style::new().bold(), text)
    }

    /// Paints what readers may skip.
    pub fn dim(self, text: impl Display) -> String {
        self.paint(anstyle::Style::new().dimmed(), text)
    }

    /// Paints what needs attention.
    pub fn warn(self, text: impl Display) -> String {
        self.paint(anstyle::AnsiColor::Yellow.on_default(), text)
    }

    /// An arrow from old to new.
    pub const fn arrow(self) -> &'static str {
        if self.unicode { "→" } else { "->" }
    }

    /// The text in the character set.
    pub fn charset(self, text: &str) -> String {
        if self.unicode { text.to_owned() } else { text.replace('¦', "|").replace('→', "->") }
    }

    /// Breaks `text` at spaces and indents continuation lines by `indent`. A word that is too long
    /// stays whole.
    pub fn wrap(self, text: &str, indent: usize) -> String {
        let indent = " ".repeat(indent);
        let options = Options::new(self.width.into())
            .subsequent_indent(&indent)
            .break_words(false)
            .word_separator(WordSeparator::AsciiSpace)
            .word_splitter(WordSplitter::NoHyphenation)
            .wrap_algorithm(WrapAlgorithm::FirstFit);
        textwrap::fill(text, options)
    }
}

/// The width of a text's widest line, in columns.
pub fn columns(text: &str) -> usize {
    text.lines().map(textwrap::core::display_width).max().unwrap_or(0)
}

/// A number with its noun: `1 round`, `2,000 rounds`.
pub fn count(amount: usize, noun: &str) -> String {
    let plural = if amount == 1 { "" } else { "s" };
    format!("{} {noun}{plural}", number(amount as u64))
}

/// A number in a sentence: `1,234,567`.
pub fn number(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrapping_keeps_words_and_width() {
        let narrow = Style { width: 12, ..Style::PLAIN };
        assert_eq!(narrow.wrap("  one two three four", 4), "  one two\n    three\n    four");
        assert_eq!(narrow.wrap("", 4), "");
        assert_eq!(narrow.wrap("averyveryverylongword", 2), "averyveryverylongword");
        assert_eq!(narrow.wrap("one  two      three", 2), "one  two\n  three");
        let color = Style { color: true, ..narrow };
        let wrapped = color.wrap(&color.warn("one two three"), 0);
        assert_eq!(columns(&wrapped), "one two".len(), "escapes take no columns");
    }

    #[test]
    fn numbers_have_separators() {
        let texts = [0, 999, 1000, 1_234_567].map(number);
        assert_eq!(texts, ["0", "999", "1,000", "1,234,567"]);
        assert_eq!(
            (count(1, "round"), count(2000, "round")),
            ("1 round".into(), "2,000 rounds".into())
        );
    }

    #[test]
    fn plain_text_has_no_escapes_and_no_unicode() {
        assert_eq!(Style::PLAIN.bold("x"), "x");
        assert_eq!(Style::PLAIN.charset("¦ w: R"), "| w: R");
        assert!(Style { color: true, ..Style::PLAIN }.bold("x").contains('\u{1b}'));
    }
}

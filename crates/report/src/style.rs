//! How text looks: colour, character set, width. Colour never carries meaning alone.

use std::fmt::Display;

/// How text looks.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Style {
    /// Whether to use colour.
    pub color: bool,
    /// Whether characters outside ASCII may be used.
    pub unicode: bool,
    /// Columns to fill at most.
    pub width: u16,
}

impl Style {
    /// No colour, ASCII only, 100 columns.
    pub const PLAIN: Style = Style { color: false, unicode: false, width: 100 };

    fn paint(self, style: anstyle::Style, text: impl Display) -> String {
        if self.color { format!("{style}{text}{style:#}") } else { text.to_string() }
    }

    /// Headings.
    pub fn bold(self, text: impl Display) -> String {
        self.paint(anstyle::Style::new().bold(), text)
    }

    /// What may be skipped.
    pub fn dim(self, text: impl Display) -> String {
        self.paint(anstyle::Style::new().dimmed(), text)
    }

    /// What needs attention.
    pub fn warn(self, text: impl Display) -> String {
        self.paint(anstyle::AnsiColor::Yellow.on_default(), text)
    }

    /// An arrow from old to new.
    pub const fn arrow(self) -> &'static str {
        if self.unicode { "→" } else { "->" }
    }

    /// `text` in the character set.
    pub fn charset(self, text: &str) -> String {
        if self.unicode { text.to_owned() } else { text.replace('¦', "|").replace('→', "->") }
    }

    /// `text` broken at spaces, continuation lines indented by `indent`.
    pub fn wrap(self, text: &str, indent: usize) -> String {
        let (mut wrapped, mut used) = (String::new(), 0);
        for (at, word) in text.split(' ').enumerate() {
            let length = word.chars().count();
            if at > 0 && used > indent && used + 1 + length > usize::from(self.width) {
                wrapped.push('\n');
                wrapped.extend(std::iter::repeat_n(' ', indent));
                used = indent;
            } else if at > 0 {
                wrapped.push(' ');
                used += 1;
            }
            wrapped.push_str(word);
            used += length;
        }
        wrapped
    }
}

/// `1 round`, `2 rounds`.
pub fn count(number: usize, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
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
    }

    #[test]
    fn plain_text_has_no_escapes_and_no_unicode() {
        assert_eq!(Style::PLAIN.bold("x"), "x");
        assert_eq!(Style::PLAIN.charset("¦ w: R"), "| w: R");
        assert!(Style { color: true, ..Style::PLAIN }.bold("x").contains('\u{1b}'));
    }
}

//! Hostile text, and what an output may contain of it.

use needless_model::foreign::steers;

/// A name with escape sequences of all kinds, C1 and bidi controls, line ends, and forged lines
/// behind them. It has no slash and no NUL, so a file can have this name.
pub const HOSTILE: &str =
    "x\u{1b}]0;t\u{7}\u{1b}[2J\u{1b}[31m\u{9b}1m\u{202e}\u{2066}\u{2028}\u{85}\t\r\nforged\nforged";

/// Removes our own colours from what was printed. Nothing else in it may steer a terminal, and no
/// foreign text may begin a line.
///
/// # Panics
/// Panics if something does.
pub fn harmless(printed: &[u8], what: &str) -> String {
    let text = String::from_utf8_lossy(printed);
    let mut plain = String::new();
    for (at, part) in text.split("\u{1b}[").enumerate() {
        let end = part.find(|c: char| !(c.is_ascii_digit() || c == ';'));
        match end.filter(|end| part[*end..].starts_with('m')) {
            _ if at == 0 => plain += part,
            Some(end) => plain += &part[end + 1..],
            None => panic!("{what}: an escape that is no style: {text:?}"),
        }
    }
    assert!(!plain.contains(|c| c != '\n' && steers(c)), "{what}: {plain:?}");
    let starts = |line: &str| line.trim_start_matches([' ', '│']).starts_with("forged");
    assert!(!plain.lines().any(starts), "{what}: a line is forged:\n{plain}");
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_steers_is_noticed() {
        assert_eq!(harmless(b"\x1b[1mone\x1b[0m\n  two forged\n", "styled"), "one\n  two forged\n");
        let raw =
            ["\u{1b}[2J", "\u{1b}]0;t\u{7}", "a\u{9b}", "\u{202e}", "a\rb", "\n  forged", HOSTILE];
        for raw in raw {
            let noticed = std::panic::catch_unwind(|| harmless(raw.as_bytes(), "raw"));
            assert!(noticed.is_err(), "{raw:?}");
        }
    }
}

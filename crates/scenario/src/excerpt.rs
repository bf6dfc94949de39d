//! Limits what a text may send to a terminal: no control characters, and of a long line only the
//! part that a problem points at.

use crate::error::Problem;
use miette::{LabeledSpan, SourceSpan};
use std::ops::Range;

/// Lines of up to this many bytes are shown whole.
const WIDEST: usize = 240;

/// The number of bytes that are shown of a place in a longer line, and on each side of it.
const AROUND: usize = 60;

/// The largest number of characters in a message.
const LONGEST: usize = 400;

/// Whether a character is allowed in a text: it neither steers the terminal nor turns the direction
/// of writing.
pub(crate) fn is_plain(c: char) -> bool {
    let turns =
        matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    matches!(c, '\n' | '\t') || !(c.is_control() || turns)
}

/// A message without control characters, cut if it is long.
pub(crate) fn message(text: &str) -> String {
    let mut plain = String::new();
    for (at, c) in text.chars().enumerate() {
        if at == LONGEST {
            plain.push('…');
            break;
        }
        if is_plain(c) { plain.push(c) } else { plain.extend(c.escape_unicode()) }
    }
    plain
}

/// The part of the text that problems show. Moves the problems' places to where they are in it.
pub(crate) fn excerpt(text: &str, problems: &mut [Problem]) -> String {
    let places: Vec<Range<usize>> =
        problems.iter().flat_map(Problem::places).map(|span| range(&span, text.len())).collect();
    let mut shown = Shown::default();
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        shown.line(text, at..at + line.len(), &places);
        at += line.len();
    }
    for problem in problems {
        problem.move_places(|span| shown.find(range(span, text.len())));
    }
    shown.text
}

fn range(span: &SourceSpan, length: usize) -> Range<usize> {
    let start = span.offset().min(length);
    start..start.saturating_add(span.len()).min(length)
}

#[derive(Default)]
struct Shown {
    text: String,
    /// Parts of the original that are shown, and where each begins in the shown text.
    pieces: Vec<(Range<usize>, usize)>,
}

impl Shown {
    fn line(&mut self, text: &str, line: Range<usize>, places: &[Range<usize>]) {
        if line.len() <= WIDEST {
            return self.piece(text, line);
        }
        let start = line.start..line.start + AROUND;
        let mut windows = vec![start];
        for place in places.iter().filter(|p| p.start < line.end && p.end >= line.start) {
            let start = place.start.max(line.start);
            let end = place.end.min(start + AROUND);
            windows
                .push(start.saturating_sub(AROUND).max(line.start)..(end + AROUND).min(line.end));
        }
        windows.sort_by_key(|window| window.start);
        let mut end = line.start;
        for window in windows {
            let start = text.floor_char_boundary(window.start).max(end);
            let stop = text.ceil_char_boundary(window.end);
            if start > end {
                self.text.push('…');
            }
            if stop > start {
                self.piece(text, start..stop);
                end = stop;
            }
        }
        if end < line.end {
            self.text.push('…');
            if text[line].ends_with('\n') {
                self.text.push('\n');
            }
        }
    }

    /// Shows a part of the text, and keeps the number of bytes of each character.
    fn piece(&mut self, text: &str, part: Range<usize>) {
        self.pieces.push((part.clone(), self.text.len()));
        for c in text[part].chars() {
            match is_plain(c) {
                true => self.text.push(c),
                false => self.text.extend(std::iter::repeat_n('?', c.len_utf8())),
            }
        }
    }

    /// Where a place of the original is in the shown text.
    fn find(&self, place: Range<usize>) -> SourceSpan {
        let last = self.pieces.partition_point(|(part, _)| part.start <= place.start);
        let Some((part, at)) = self.pieces.get(last.saturating_sub(1)) else {
            return (0..0).into();
        };
        let start = at + (place.start.min(part.end) - part.start);
        let length = place.end.min(part.end).saturating_sub(place.start);
        (start..start + length).into()
    }
}

/// The label, moved to another place.
pub(crate) fn moved(label: &LabeledSpan, span: SourceSpan) -> LabeledSpan {
    let text = label.label().map(str::to_owned);
    match label.primary() {
        true => LabeledSpan::new_primary_with_span(text, span),
        false => LabeledSpan::new_with_span(text, span),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(at: Range<usize>) -> Problem {
        Problem::new(at.into(), "x", "here")
    }

    fn shown(text: &str, at: Range<usize>) -> (String, String) {
        let mut problems = [problem(at)];
        let excerpt = excerpt(text, &mut problems);
        let place = range(&problems[0].places().next().unwrap(), excerpt.len());
        let place = excerpt[place].to_owned();
        (excerpt, place)
    }

    #[test]
    fn short_lines_stay() {
        let text = "a é\nbad \"line\"\n";
        assert_eq!(shown(text, 9..15), (text.to_owned(), "\"line\"".to_owned()));
    }

    #[test]
    fn of_long_lines_the_place_is_shown() {
        let text = format!("first\n{}BAD{}\nlast\n", "é".repeat(5000), "x".repeat(1 << 20));
        let at = text.find("BAD").unwrap();
        let (excerpt, place) = shown(&text, at..at + 3);
        assert_eq!(place, "BAD");
        assert!(excerpt.len() < 400 && excerpt.starts_with("first\n"), "{excerpt}");
        assert!(excerpt.ends_with("…\nlast\n"), "{excerpt}");
        let (excerpt, place) = shown(&text, at..text.len() - 6);
        assert!(place.starts_with("BADxxx") && excerpt.len() < 500, "{place}");
        assert_eq!(shown(&text, 0..0).1, "");
        assert_eq!(shown("", 0..0), (String::new(), String::new()));
    }

    #[test]
    fn control_characters_are_not_shown() {
        let (excerpt, place) = shown("a \u{1b}[31m\u{9b}2J \u{202e} b\r\n", 2..7);
        assert!(excerpt.chars().all(is_plain), "{excerpt:?}");
        assert_eq!(place, "?[31m");
        assert_eq!(message("a\u{1b}]0;x\u{7}b\tc"), "a\\u{1b}]0;x\\u{7}b\tc");
        assert_eq!(message(&"y".repeat(1000)).chars().count(), LONGEST + 1);
    }
}

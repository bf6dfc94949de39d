//! The common part of the expressions of scenarios and the formulas of studies: numbers, names and
//! signs, errors that point at one of them, and operators that bind to the left.

use crate::document::Value;
use crate::error::Problem;
use std::ops::Range;

/// The largest number of tokens in one text. It bounds the depth of the tree, and so every
/// recursion over the tree.
pub(crate) const MAX_TOKENS: usize = 200;

/// The rules for the tokens of one kind of text.
pub(crate) struct Syntax {
    /// What this kind of text is called, with its article.
    pub what: &'static str,
    /// What the text may consist of, for an error about anything else.
    pub parts: &'static str,
    /// An example of such a text.
    pub example: &'static str,
    /// The signs, longer ones first.
    pub signs: &'static [&'static str],
    /// The characters that a number may have besides letters, digits and `_`.
    pub in_numbers: &'static [char],
}

/// A token of an expression or formula.
#[derive(Copy, Clone, Debug, PartialEq)]
pub(crate) enum Token<'a> {
    /// A word that begins with a digit.
    Number(&'a str),
    /// A name, which begins with a letter or `_`.
    Name(&'a str),
    /// One of the signs.
    Sign(&'static str),
}

/// The tokens of a text, and how many of them were read.
pub(crate) struct Tokens<'a> {
    value: &'a Value,
    syntax: &'static Syntax,
    tokens: Vec<(Token<'a>, Range<usize>)>,
    at: usize,
    /// The text's length, where "something is missing" points.
    length: usize,
}

/// Operators and their meaning, grouped by how strongly they bind, the weakest first.
pub(crate) type Operators<O> = &'static [&'static [(&'static str, O)]];

/// Whether expressions can use `name`.
pub(crate) fn is_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

impl<'a> Tokens<'a> {
    /// Splits `text`, which is the string of `value`.
    pub fn new(
        text: &'a str,
        value: &'a Value,
        syntax: &'static Syntax,
    ) -> Result<Tokens<'a>, Problem> {
        let (mut tokens, mut at) = (Vec::new(), 0);
        while let Some(c) = text[at..].chars().next() {
            if c == ' ' {
                at += 1;
                continue;
            }
            let Some((token, length)) = token(&text[at..], syntax) else {
                let place = value.at(at..at + c.len_utf8());
                let problem = format!("not part of {}", syntax.what);
                return Err(Problem::new(place, problem, "this character").help(syntax.parts));
            };
            if tokens.len() == MAX_TOKENS {
                let problem = format!("{} is too long", syntax.what);
                return Err(Problem::new(value.span, problem, "this one")
                    .help(format!("at most {MAX_TOKENS} numbers, names and signs")));
            }
            tokens.push((token, at..at + length));
            at += length;
        }
        Ok(Tokens { value, syntax, tokens, at: 0, length: text.len() })
    }

    /// The next token with its place. The token counts as read if `read` returns something for it.
    pub fn next<T>(
        &mut self,
        read: impl FnOnce(Token<'a>) -> Option<T>,
    ) -> Option<(T, Range<usize>)> {
        let (token, place) = self.tokens.get(self.at)?;
        let found = (read(*token)?, place.clone());
        self.at += 1;
        Some(found)
    }

    /// Reads this sign if it comes next.
    pub fn accept(&mut self, sign: &str) -> bool {
        let found = |token| matches!(token, Token::Sign(found) if found == sign).then_some(());
        self.next(found).is_some()
    }

    /// Reads this sign, which has to come next.
    pub fn expect(&mut self, sign: &str) -> Result<(), Problem> {
        if self.accept(sign) { Ok(()) } else { Err(self.unexpected(&format!("`{sign}`"))) }
    }

    /// Checks that nothing comes next.
    pub fn end(&self) -> Result<(), Problem> {
        match self.at == self.tokens.len() {
            true => Ok(()),
            false => Err(self.unexpected("the end or an operator")),
        }
    }

    /// The end of the token that was read last.
    pub fn read_to(&self) -> usize {
        self.at.checked_sub(1).map_or(0, |last| self.tokens[last].1.end)
    }

    /// The problem that the next token is not what is `wanted`.
    pub fn unexpected(&self, wanted: &str) -> Problem {
        let (place, label) = match self.tokens.get(self.at) {
            Some((_, place)) => (place.clone(), "instead of this"),
            None => (self.length..self.length, "before the end"),
        };
        Problem::new(self.value.at(place), format!("{wanted} is expected"), label)
            .help(self.syntax.example)
    }

    /// Reads one of these operators if it comes next.
    pub fn operator<O: Copy>(&mut self, operators: &[(&str, O)]) -> Option<O> {
        let (operator, _) = self.next(|token| {
            let found =
                operators.iter().find(|(sign, _)| matches!(token, Token::Sign(s) if s == *sign));
            found.map(|(_, operator)| *operator)
        })?;
        Some(operator)
    }
}

/// The first token of a text that is not empty, and its length.
fn token<'a>(text: &'a str, syntax: &Syntax) -> Option<(Token<'a>, usize)> {
    let word = |more: &[char]| {
        let ends = |c: char| !c.is_ascii_alphanumeric() && c != '_' && !more.contains(&c);
        &text[..text.find(ends).unwrap_or(text.len())]
    };
    if text.starts_with(|c: char| c.is_ascii_digit()) {
        let number = word(syntax.in_numbers);
        return Some((Token::Number(number), number.len()));
    }
    let name = word(&[]);
    if is_name(name) {
        return Some((Token::Name(name), name.len()));
    }
    let sign = syntax.signs.iter().find(|sign| text.starts_with(**sign))?;
    Some((Token::Sign(sign), sign.len()))
}

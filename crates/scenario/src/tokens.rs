//! What expressions of scenarios and formulas of studies have in common: numbers, names and signs, errors that
//! point at one of them, and operators that bind to the left.

use crate::document::Value;
use crate::error::Problem;
use std::ops::Range;

/// The most tokens that one text may have. It bounds the depth of the tree and with it every recursion over it.
pub(crate) const MAX_TOKENS: usize = 200;

/// What a kind of text is made of.
pub(crate) struct Syntax {
    /// What it is called, with its article.
    pub what: &'static str,
    /// What it may have, for who wrote something else.
    pub parts: &'static str,
    /// What it may look like.
    pub example: &'static str,
    /// The signs, the longer ones first.
    pub signs: &'static [&'static str],
    /// What a number may have beside letters, digits and `_`.
    pub in_numbers: &'static [char],
}

/// A token.
#[derive(Copy, Clone, Debug, PartialEq)]
pub(crate) enum Token<'a> {
    /// What begins with a digit.
    Number(&'a str),
    /// A name.
    Name(&'a str),
    /// One of the signs.
    Sign(&'static str),
}

/// The tokens of a text, and how far it was read.
pub(crate) struct Tokens<'a> {
    value: &'a Value,
    syntax: &'static Syntax,
    tokens: Vec<(Token<'a>, Range<usize>)>,
    at: usize,
    /// Where the text ends, for "something is missing".
    length: usize,
}

/// Operators with what they stand for, by how they bind, the weakest first.
pub(crate) type Operators<O> = &'static [&'static [(&'static str, O)]];

/// Whether `name` can be used in expressions.
pub(crate) fn is_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

impl<'a> Tokens<'a> {
    /// Those of `text`, which is what `value` says.
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

    /// The next one and where it is, which is read with that if `read` makes something of it.
    pub fn next<T>(
        &mut self,
        read: impl FnOnce(Token<'a>) -> Option<T>,
    ) -> Option<(T, Range<usize>)> {
        let (token, place) = self.tokens.get(self.at)?;
        let found = (read(*token)?, place.clone());
        self.at += 1;
        Some(found)
    }

    /// Reads that sign if it comes next.
    pub fn accept(&mut self, sign: &str) -> bool {
        let found = |token| matches!(token, Token::Sign(found) if found == sign).then_some(());
        self.next(found).is_some()
    }

    /// Reads that sign, which has to come next.
    pub fn expect(&mut self, sign: &str) -> Result<(), Problem> {
        if self.accept(sign) { Ok(()) } else { Err(self.unexpected(&format!("`{sign}`"))) }
    }

    /// Nothing may come next.
    pub fn end(&self) -> Result<(), Problem> {
        match self.at == self.tokens.len() {
            true => Ok(()),
            false => Err(self.unexpected("the end or an operator")),
        }
    }

    /// Where what was read last ends.
    pub fn read_to(&self) -> usize {
        self.at.checked_sub(1).map_or(0, |last| self.tokens[last].1.end)
    }

    /// Something else should come next.
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

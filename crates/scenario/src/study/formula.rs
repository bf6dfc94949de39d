//! Formulas over figures: numbers, names, `+ - * /`, parentheses; and what relates two of them.
//!
//! ```text
//! relation = sum ("=" | "!=" | "<" | "<=" | ">" | ">=" | "~") sum
//! sum      = product { ("+" | "-") product }
//! product  = atom { ("*" | "/") atom }
//! atom     = number | name | "(" sum ")"
//! ```

use super::Equation;
use crate::document::{Value, ValueKind};
use crate::error::Problem;
use crate::expr::is_name;
use std::fmt;
use std::ops::Range;

/// The most tokens that one formula may have.
const MAX_TOKENS: usize = 200;

/// Of how much two numbers may differ that are called equal: what rounding leaves.
const ROUNDING: f64 = 1e-9;

/// A formula.
#[derive(Clone, Debug, PartialEq)]
pub enum Formula {
    /// A number.
    Number(f64),
    /// A figure.
    Name(String),
    /// `left op right`
    Binary(Operator, Box<Formula>, Box<Formula>),
}

/// What joins two formulas.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Operator {
    /// `+`
    Plus,
    /// `-`
    Minus,
    /// `*`
    Times,
    /// `/`
    Over,
}

/// How two numbers compare.
#[derive(Copy, Clone, Debug, PartialEq)]
pub enum Comparison {
    /// `=`
    Same,
    /// `!=`
    Other,
    /// `<`
    Less,
    /// `<=`
    AtMost,
    /// `>`
    More,
    /// `>=`
    AtLeast,
    /// `~`: neither is more than so many times the other.
    Within(f64),
}

impl Comparison {
    /// Whether it holds.
    pub fn holds(self, left: f64, right: f64) -> bool {
        let same = (left - right).abs() <= ROUNDING * left.abs().max(right.abs());
        match self {
            Comparison::Same => same,
            Comparison::Other => !same,
            Comparison::Less => left < right && !same,
            Comparison::AtMost => left < right || same,
            Comparison::More => left > right && !same,
            Comparison::AtLeast => left > right || same,
            Comparison::Within(factor) => {
                left > 0.0 && right > 0.0 && (left / right).max(right / left) <= factor + ROUNDING
            }
        }
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Comparison::Same => "=",
            Comparison::Other => "!=",
            Comparison::Less => "<",
            Comparison::AtMost => "<=",
            Comparison::More => ">",
            Comparison::AtLeast => ">=",
            Comparison::Within(_) => "~",
        })
    }
}

impl Formula {
    /// Its value; `figure` gives the values of names, or why there is none.
    pub fn value<E: From<String>>(
        &self,
        figure: &impl Fn(&str) -> Result<f64, E>,
    ) -> Result<f64, E> {
        let value = match self {
            Formula::Number(number) => *number,
            Formula::Name(name) => return figure(name),
            Formula::Binary(operator, left, right) => {
                let (left, right) = (left.value(figure)?, right.value(figure)?);
                match operator {
                    Operator::Plus => left + right,
                    Operator::Minus => left - right,
                    Operator::Times => left * right,
                    Operator::Over => left / right,
                }
            }
        };
        match value.is_finite() {
            true => Ok(value),
            false => Err(E::from(format!("`{self}` divides by zero"))),
        }
    }

    /// The figures that it names.
    pub fn names(&self) -> Vec<&str> {
        match self {
            Formula::Number(_) => Vec::new(),
            Formula::Name(name) => vec![name],
            Formula::Binary(_, left, right) => [left.names(), right.names()].concat(),
        }
    }

    /// Whether it has parentheses around it, within a product.
    fn in_product(&self) -> bool {
        matches!(self, Formula::Binary(Operator::Plus | Operator::Minus, ..))
    }
}

impl fmt::Display for Formula {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (operator, left, right) = match self {
            Formula::Number(number) => return write!(f, "{number}"),
            Formula::Name(name) => return f.write_str(name),
            Formula::Binary(operator, left, right) => (operator, left, right),
        };
        let side = |formula: &Formula, parentheses: bool| match parentheses {
            true => format!("({formula})"),
            false => formula.to_string(),
        };
        let nested = matches!(**right, Formula::Binary(..));
        let (sign, left, right) = match operator {
            Operator::Plus => ('+', side(left, false), side(right, false)),
            Operator::Minus => ('-', side(left, false), side(right, right.in_product())),
            Operator::Times => {
                ('*', side(left, left.in_product()), side(right, right.in_product()))
            }
            Operator::Over => ('/', side(left, left.in_product()), side(right, nested)),
        };
        write!(f, "{left} {sign} {right}")
    }
}

/// A number as studies write it: bare, or with a decimal point in quotes.
pub(super) fn number(value: &Value) -> Result<f64, Problem> {
    let formula = formula(value)?;
    formula.value(&|name: &str| Err(format!("`{name}` is no number"))).map_err(|what| {
        Problem::new(value.span, what, "a number is expected here")
            .help("for instance 300000, or \"6.56\"")
    })
}

/// A formula.
pub(super) fn formula(value: &Value) -> Result<Formula, Problem> {
    let text = match &value.kind {
        ValueKind::Integer(number) => return Ok(Formula::Number(*number as f64)),
        ValueKind::Text(text) => text,
    };
    let mut parser = Parser::new(text, value)?;
    let formula = parser.sum()?;
    match parser.tokens.len() == parser.at {
        true => Ok(formula),
        false => Err(parser.unexpected("the end or an operator")),
    }
}

/// Two formulas and how they compare; `within`: how far from each other they may be with `~`.
pub(super) fn equation(value: &Value, within: Option<f64>) -> Result<Equation, Problem> {
    let mut parser = Parser::new(value.text("a relation")?, value)?;
    let left = parser.sum()?;
    let comparison = match (parser.sign(), within) {
        (Some("="), _) => Comparison::Same,
        (Some("!="), _) => Comparison::Other,
        (Some("<"), _) => Comparison::Less,
        (Some("<="), _) => Comparison::AtMost,
        (Some(">"), _) => Comparison::More,
        (Some(">="), _) => Comparison::AtLeast,
        (Some("~"), Some(factor)) => Comparison::Within(factor),
        (Some("~"), None) => {
            return Err(Problem::new(value.span, "how far from each other?", "`~` in here")
                .help("add factor=\"1.3\" or percent=5"));
        }
        _ => return Err(parser.unexpected("one of = != < <= > >= ~")),
    };
    if let (Some(_), false) = (within, matches!(comparison, Comparison::Within(_))) {
        return Err(Problem::new(value.span, "a tolerance belongs to `~`", "no `~` in here")
            .help("write ~ for the sign, or leave out factor= and percent="));
    }
    parser.at += 1;
    let right = parser.sum()?;
    match parser.tokens.len() == parser.at {
        true => Ok(Equation { left, comparison, right }),
        false => Err(parser.unexpected("the end or an operator")),
    }
}

#[derive(Clone, Debug, PartialEq)]
enum Token {
    Number(f64),
    Name(String),
    Sign(&'static str),
}

/// The signs, the longer ones first.
const SIGNS: [&str; 13] = ["!=", "<=", ">=", "+", "-", "*", "/", "(", ")", "=", "<", ">", "~"];

struct Parser<'a> {
    value: &'a Value,
    tokens: Vec<(Token, Range<usize>)>,
    at: usize,
    length: usize,
}

impl<'a> Parser<'a> {
    fn new(text: &str, value: &'a Value) -> Result<Parser<'a>, Problem> {
        let (mut tokens, mut at) = (Vec::new(), 0);
        while let Some(c) = text[at..].chars().next() {
            if c == ' ' {
                at += 1;
                continue;
            }
            let (token, length) = token(&text[at..]).ok_or_else(|| {
                Problem::new(value.at(at..at + c.len_utf8()), "not part of a formula", "this")
                    .help("formulas have numbers, names of figures, + - * / and parentheses")
            })?;
            if tokens.len() == MAX_TOKENS {
                return Err(Problem::new(value.span, "the formula is too long", "this one")
                    .help(format!("at most {MAX_TOKENS} numbers, names and signs")));
            }
            tokens.push((token, at..at + length));
            at += length;
        }
        Ok(Parser { value, tokens, at: 0, length: text.len() })
    }

    fn sign(&self) -> Option<&'static str> {
        match self.tokens.get(self.at) {
            Some((Token::Sign(sign), _)) => Some(sign),
            _ => None,
        }
    }

    fn unexpected(&self, wanted: &str) -> Problem {
        let message = format!("{wanted} is expected");
        let end = self.length..self.length;
        let (place, label) = match self.tokens.get(self.at) {
            Some((_, place)) => (place.clone(), "instead of this"),
            None => (end, "before the end"),
        };
        Problem::new(self.value.at(place), message, label)
            .help("for instance \"old / new ~ published\"")
    }

    fn sum(&mut self) -> Result<Formula, Problem> {
        let mut left = self.product()?;
        loop {
            let operator = match self.sign() {
                Some("+") => Operator::Plus,
                Some("-") => Operator::Minus,
                _ => return Ok(left),
            };
            self.at += 1;
            left = Formula::Binary(operator, Box::new(left), Box::new(self.product()?));
        }
    }

    fn product(&mut self) -> Result<Formula, Problem> {
        let mut left = self.atom()?;
        loop {
            let operator = match self.sign() {
                Some("*") => Operator::Times,
                Some("/") => Operator::Over,
                _ => return Ok(left),
            };
            self.at += 1;
            left = Formula::Binary(operator, Box::new(left), Box::new(self.atom()?));
        }
    }

    fn atom(&mut self) -> Result<Formula, Problem> {
        let formula = match self.tokens.get(self.at).map(|(token, _)| token.clone()) {
            Some(Token::Number(number)) => Formula::Number(number),
            Some(Token::Name(name)) => Formula::Name(name),
            Some(Token::Sign("(")) => {
                self.at += 1;
                let inner = self.sum()?;
                if self.sign() != Some(")") {
                    return Err(self.unexpected("`)`"));
                }
                inner
            }
            Some(Token::Sign(_)) | None => return Err(self.unexpected("a number or a figure")),
        };
        self.at += 1;
        Ok(formula)
    }
}

/// The first token of a text that is not empty, and its length.
fn token(text: &str) -> Option<(Token, usize)> {
    let word = |inside: fn(char) -> bool| {
        let end = text.find(|c| !inside(c)).unwrap_or(text.len());
        &text[..end]
    };
    if text.starts_with(|c: char| c.is_ascii_digit()) {
        let number = word(|c| c.is_ascii_digit() || c == '.');
        return Some((Token::Number(number.parse().ok()?), number.len()));
    }
    let name = word(|c| c.is_ascii_alphanumeric() || c == '_');
    if is_name(name) {
        return Some((Token::Name(name.to_owned()), name.len()));
    }
    let sign = SIGNS.iter().find(|sign| text.starts_with(**sign))?;
    Some((Token::Sign(sign), sign.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> Result<f64, String> {
        let formula = formula(&Value::bare(text, 0)).map_err(|problem| problem.to_string())?;
        let again = formula.to_string();
        let figure = |name: &str| match name {
            "ten" => Ok(10.0),
            _ => Err(format!("no {name}")),
        };
        let found = formula.value::<String>(&figure);
        let printed = super::formula(&Value::bare(&again, 0)).unwrap();
        assert_eq!(found, printed.value(&figure), "{text} is printed as {again}");
        found
    }

    #[test]
    fn formulas() {
        for (text, expected) in [
            ("1 + 2*3", 7.0),
            ("(1 + 2) * 3", 9.0),
            ("ten - 3 - 2", 5.0),
            ("ten - (3 - 2)", 9.0),
            ("ten / (5 / 2.5)", 5.0),
            ("ten * (3 + 1) / 4", 10.0),
        ] {
            assert_eq!(value(text), Ok(expected), "{text}");
        }
        assert_eq!(value("1 / (ten - 10)"), Err("`1 / (ten - 10)` divides by zero".to_owned()));
        assert_eq!(value("eleven + 1"), Err("no eleven".to_owned()));
        for bad in ["", "1 +", "(1", "1)", "1 2", "1.2.3", "é", "a = b", "%", &"(".repeat(5000)] {
            assert!(formula(&Value::bare(bad, 0)).is_err(), "{bad}");
        }
    }

    #[test]
    fn relations() {
        let holds = |text: &str, within| {
            let Equation { left, comparison, right } =
                equation(&Value::bare(text, 0), within).ok()?;
            let number = |formula: Formula| formula.value(&|name: &str| Err(name.to_owned()));
            Some(comparison.holds(number(left).unwrap(), number(right).unwrap()))
        };
        for (text, expected) in [
            ("0.1 + 0.2 = 0.3", true),
            ("0.1 + 0.2 > 0.3", false),
            ("0.1 + 0.2 >= 0.3", true),
            ("0.1 + 0.2 < 0.3", false),
            ("3 <= 3", true),
            ("3 < 4", true),
            ("3 != 3", false),
            ("4 = 3", false),
        ] {
            assert_eq!(holds(text, None), Some(expected), "{text}");
        }
        assert_eq!(holds("5 ~ 6.5", Some(1.3)), Some(true));
        assert_eq!(holds("6.5 ~ 5", Some(1.3)), Some(true));
        assert_eq!(holds("5 ~ 6.6", Some(1.3)), Some(false));
        assert_eq!(holds("0 ~ 0", Some(1.3)), Some(false), "nothing is compared with nothing");
        for bad in ["1", "1 ~ 2", "1 = 2 = 3", "= 1", "1 ="] {
            assert_eq!(holds(bad, None), None, "{bad}");
        }
        assert_eq!(holds("1 = 2", Some(1.3)), None);
    }
}

//! Formulas over figures: numbers, names, `+ - * /` and parentheses; and relations of two formulas.
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
use crate::tokens::{Operators, Syntax, Token, Tokens};
use std::fmt;

const SYNTAX: Syntax = Syntax {
    what: "a formula",
    parts: "formulas have numbers, names of figures, + - * / and parentheses",
    example: "for instance \"old / new ~ published\"",
    signs: &["!=", "<=", ">=", "+", "-", "*", "/", "(", ")", "=", "<", ">", "~"],
    in_numbers: &['.'],
};

const OPERATORS: Operators<Operator> = &[
    &[("+", Operator::Plus), ("-", Operator::Minus)],
    &[("*", Operator::Times), ("/", Operator::Over)],
];

/// The signs that compare two formulas. `~` also needs to know how far apart they may be.
const COMPARISONS: [(&str, Comparison); 7] = [
    ("=", Comparison::Same),
    ("!=", Comparison::Other),
    ("<", Comparison::Less),
    ("<=", Comparison::AtMost),
    (">", Comparison::More),
    (">=", Comparison::AtLeast),
    ("~", Comparison::Within(1.0)),
];

/// The share by which two equal numbers may differ: what rounding leaves.
const ROUNDING: f64 = 1e-9;

/// A formula over figures.
#[derive(Clone, Debug, PartialEq)]
pub enum Formula {
    /// A plain number.
    Number(f64),
    /// The name of a figure.
    Name(String),
    /// Two formulas and their operator: `left op right`.
    Binary(Operator, Box<Formula>, Box<Formula>),
}

/// What joins two formulas.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Operator {
    /// Addition, `+`.
    Plus,
    /// Subtraction, `-`.
    Minus,
    /// Multiplication, `*`.
    Times,
    /// Division, `/`.
    Over,
}

/// How two numbers compare.
#[derive(Copy, Clone, Debug, PartialEq)]
pub enum Comparison {
    /// They are equal, `=`.
    Same,
    /// They differ, `!=`.
    Other,
    /// The left one is less, `<`.
    Less,
    /// The left one is at most the right one, `<=`.
    AtMost,
    /// The left one is more, `>`.
    More,
    /// The left one is at least the right one, `>=`.
    AtLeast,
    /// Neither is more than this many times the other, `~`.
    Within(f64),
}

impl Comparison {
    /// Whether the comparison holds.
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
        let same = |other| std::mem::discriminant(&other) == std::mem::discriminant(self);
        COMPARISONS.iter().filter(|(_, c)| same(*c)).try_for_each(|(sign, _)| f.write_str(sign))
    }
}

impl Formula {
    /// The formula's value. `figure` gives the value of a name, or the reason why there is none.
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
        match (value.is_finite(), self) {
            (true, _) => Ok(value),
            (false, Formula::Binary(Operator::Over, _, right)) if right.value(figure)? == 0.0 => {
                Err(E::from(format!("`{self}` divides by zero")))
            }
            (false, _) => Err(E::from(format!("`{self}` is too large a number"))),
        }
    }

    /// The figures that the formula names.
    pub fn names(&self) -> Vec<&str> {
        match self {
            Formula::Number(_) => Vec::new(),
            Formula::Name(name) => vec![name],
            Formula::Binary(_, left, right) => [left.names(), right.names()].concat(),
        }
    }

    /// The formula with other formulas in place of the names for which `other` has one.
    #[must_use]
    pub fn with(&self, other: &impl Fn(&str) -> Option<Formula>) -> Formula {
        match self {
            Formula::Number(_) => self.clone(),
            Formula::Name(name) => other(name).unwrap_or_else(|| self.clone()),
            Formula::Binary(operator, left, right) => {
                let (left, right) = (left.with(other), right.with(other));
                Formula::Binary(*operator, Box::new(left), Box::new(right))
            }
        }
    }

    /// Whether the formula needs parentheses within a product.
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
    formula.value(&|name: &str| Err(format!("`{name}` is not a number"))).map_err(|what| {
        Problem::new(value.span, what, "a number is expected here")
            .help("for instance 300000, or \"6.56\"")
    })
}

/// Reads a formula.
pub(super) fn formula(value: &Value) -> Result<Formula, Problem> {
    let text = match &value.kind {
        ValueKind::Integer(number) => return Ok(Formula::Number(*number as f64)),
        ValueKind::Text(text) => text,
    };
    let mut tokens = Tokens::new(text, value, &SYNTAX)?;
    let formula = sum(&mut tokens, OPERATORS)?;
    tokens.end()?;
    Ok(formula)
}

/// Reads two formulas and their comparison. `within` is how far apart they may be with `~`.
pub(super) fn equation(value: &Value, within: Option<f64>) -> Result<Equation, Problem> {
    let mut tokens = Tokens::new(value.text("a relation")?, value, &SYNTAX)?;
    let left = sum(&mut tokens, OPERATORS)?;
    let comparison = match (tokens.operator(&COMPARISONS), within) {
        (Some(Comparison::Within(_)), Some(factor)) => Comparison::Within(factor),
        (Some(Comparison::Within(_)), None) => {
            return Err(Problem::new(value.span, "how far apart may they be?", "`~` in here")
                .help("add factor=\"1.3\" or percent=5"));
        }
        (Some(_), Some(_)) => {
            return Err(Problem::new(value.span, "a tolerance belongs to `~`", "no `~` in here")
                .help("write ~ for the sign, or leave out factor= and percent="));
        }
        (Some(comparison), None) => comparison,
        (None, _) => return Err(tokens.unexpected("one of = != < <= > >= ~")),
    };
    let right = sum(&mut tokens, OPERATORS)?;
    tokens.end()?;
    Ok(Equation { left, comparison, right })
}

fn sum(tokens: &mut Tokens<'_>, operators: Operators<Operator>) -> Result<Formula, Problem> {
    let Some((weakest, stronger)) = operators.split_first() else { return atom(tokens) };
    let mut left = sum(tokens, stronger)?;
    while let Some(operator) = tokens.operator(weakest) {
        left = Formula::Binary(operator, Box::new(left), Box::new(sum(tokens, stronger)?));
    }
    Ok(left)
}

fn atom(tokens: &mut Tokens<'_>) -> Result<Formula, Problem> {
    if tokens.accept("(") {
        let inner = sum(tokens, OPERATORS)?;
        tokens.expect(")")?;
        return Ok(inner);
    }
    let read = |token: Token<'_>| match token {
        Token::Number(number) => decimal(number).map(Formula::Number),
        Token::Name(name) => Some(Formula::Name(name.to_owned())),
        Token::Sign(_) => None,
    };
    match tokens.next(read) {
        Some((formula, _)) => Ok(formula),
        None => Err(tokens.unexpected("a number or a figure")),
    }
}

/// Reads digits, with or without a decimal point.
fn decimal(number: &str) -> Option<f64> {
    let plain = number.chars().all(|c| c.is_ascii_digit() || c == '.');
    plain.then(|| number.parse().ok()).flatten()
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
        let large = format!("{0} * {0}", "9".repeat(300));
        assert!(value(&large).unwrap_err().ends_with("is too large a number"));
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

//! The one parser of expressions: numbers, ranges of pages, durations.
//!
//! ```text
//! sum     = product { ("+" | "-") product }
//! product = unary { ("*" | "/" | "%") unary }
//! unary   = { "-" } atom
//! atom    = number [suffix] | name | "(" sum ")"
//! range   = name [ "[" sum [ ".." sum ] "]" ]
//! ```
//!
//! Suffixes are K, M, G, T (powers of 1024) and, for durations, ns, us, ms, s. Every part of the
//! tree knows its place in the scenario's text.

use crate::document::{Value, ValueKind};
use crate::error::Problem;
use crate::tokens::{Operators, Syntax, Token, Tokens};
use miette::SourceSpan;
use needless_model::program::BinaryOp;

const SYNTAX: Syntax = Syntax {
    what: "an expression",
    parts: "expressions have numbers, names, + - * / % and parentheses",
    example: "for instance \"pages/2\", \"heap[p]\", \"heap[0..8]\"",
    signs: &["..", "+", "-", "*", "/", "%", "(", ")", "[", "]"],
    in_numbers: &[],
};

const OPERATORS: Operators<BinaryOp> = &[
    &[("+", BinaryOp::Add), ("-", BinaryOp::Sub)],
    &[("*", BinaryOp::Mul), ("/", BinaryOp::Div), ("%", BinaryOp::Rem)],
];

/// An expression with its place.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Ast {
    /// The expression itself.
    pub kind: AstKind,
    /// Where the expression is.
    pub span: SourceSpan,
}

/// The kinds of expression.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum AstKind {
    /// A number with its suffix applied.
    Number(i64),
    /// The name of a parameter or loop variable.
    Name(String),
    /// A binary operation: `left op right`.
    Binary(BinaryOp, Box<Ast>, Box<Ast>),
}

/// A range of pages.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RangeAst {
    /// The area's name.
    pub area: String,
    /// Where the name is.
    pub area_span: SourceSpan,
    /// The pages of the area.
    pub pages: PagesAst,
    /// Where the range is.
    pub span: SourceSpan,
}

/// Which pages of an area.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum PagesAst {
    /// All pages of the area: `heap`.
    All,
    /// One page: `heap[3]`.
    One(Ast),
    /// Pages from a first one up to an end: `heap[0..8]`.
    Span(Ast, Ast),
}

/// Which suffixes a number may have.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Suffixes {
    /// K, M, G and T.
    Sizes,
    /// ns, us, ms and s. At least one number must have one.
    Times,
}

const SIZES: [(&str, i64); 4] = [("K", 1 << 10), ("M", 1 << 20), ("G", 1 << 30), ("T", 1 << 40)];
const TIMES: [(&str, i64); 4] = [("ns", 1), ("us", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000)];

/// Parses a number: a bare integer or an expression in a string.
pub(crate) fn parse_number(value: &Value, suffixes: Suffixes) -> Result<Ast, Problem> {
    match &value.kind {
        ValueKind::Integer(_) if suffixes == Suffixes::Times => Err(no_unit(value)),
        ValueKind::Integer(n) => Ok(Ast { kind: AstKind::Number(*n), span: value.span }),
        ValueKind::Text(text) => {
            let mut parser = Parser::new(text, value, suffixes)?;
            let ast = parser.sum()?;
            parser.tokens.end()?;
            if suffixes == Suffixes::Times && !parser.saw_time {
                return Err(no_unit(value));
            }
            Ok(ast)
        }
    }
}

/// Parses a range of pages.
pub(crate) fn parse_range(value: &Value) -> Result<RangeAst, Problem> {
    let text = value.text("a range of pages")?;
    let mut parser = Parser::new(text, value, Suffixes::Sizes)?;
    let range = parser.range()?;
    parser.tokens.end()?;
    Ok(range)
}

fn no_unit(value: &Value) -> Problem {
    Problem::new(value.span, "a duration without a unit", "which unit?")
        .help("write for instance \"10ms\"; the units are ns, us, ms, s")
}

struct Parser<'a> {
    value: &'a Value,
    tokens: Tokens<'a>,
    suffixes: Suffixes,
    saw_time: bool,
}

impl<'a> Parser<'a> {
    fn new(text: &'a str, value: &'a Value, suffixes: Suffixes) -> Result<Parser<'a>, Problem> {
        let tokens = Tokens::new(text, value, &SYNTAX)?;
        Ok(Parser { value, tokens, suffixes, saw_time: false })
    }

    fn sum(&mut self) -> Result<Ast, Problem> {
        self.joined(OPERATORS)
    }

    fn joined(&mut self, operators: Operators<BinaryOp>) -> Result<Ast, Problem> {
        let Some((weakest, stronger)) = operators.split_first() else { return self.unary() };
        let mut left = self.joined(stronger)?;
        while let Some(op) = self.tokens.operator(weakest) {
            left = binary(op, left, self.joined(stronger)?);
        }
        Ok(left)
    }

    fn unary(&mut self) -> Result<Ast, Problem> {
        let Some((token, place)) = self.tokens.next(|token| match token {
            Token::Sign(sign) => ["-", "("].contains(&sign).then_some(token),
            Token::Number(_) | Token::Name(_) => Some(token),
        }) else {
            return Err(self.tokens.unexpected("a number or a name"));
        };
        let span = self.value.at(place);
        let kind = match token {
            Token::Number(word) => AstKind::Number(self.number(word).map_err(|e| e.at(span))?),
            Token::Name(name) => AstKind::Name(name.to_owned()),
            Token::Sign("-") => {
                let zero = Ast { kind: AstKind::Number(0), span };
                return Ok(binary(BinaryOp::Sub, zero, self.unary()?));
            }
            Token::Sign(_) => {
                let inner = self.sum()?;
                self.tokens.expect(")")?;
                return Ok(inner);
            }
        };
        Ok(Ast { kind, span })
    }

    fn number(&mut self, word: &str) -> Result<i64, NumberError> {
        let suffix = word.trim_start_matches(|c: char| c.is_ascii_digit() || c == '_');
        self.saw_time |= self.suffixes == Suffixes::Times && !suffix.is_empty();
        number(word, suffix, self.suffixes)
    }

    fn range(&mut self) -> Result<RangeAst, Problem> {
        let name = |token| if let Token::Name(name) = token { Some(name) } else { None };
        let Some((area, place)) = self.tokens.next(name) else {
            return Err(self.tokens.unexpected("an area's name"));
        };
        let pages = if self.tokens.accept("[") { self.bounds()? } else { PagesAst::All };
        Ok(RangeAst {
            area: area.to_owned(),
            area_span: self.value.at(place.clone()),
            pages,
            span: self.value.at(place.start..self.tokens.read_to()),
        })
    }

    fn bounds(&mut self) -> Result<PagesAst, Problem> {
        let first = self.sum()?;
        let pages = if self.tokens.accept("..") {
            PagesAst::Span(first, self.sum()?)
        } else {
            PagesAst::One(first)
        };
        self.tokens.expect("]")?;
        Ok(pages)
    }
}

fn binary(op: BinaryOp, left: Ast, right: Ast) -> Ast {
    let (start, end) = (left.span.offset(), right.span.offset() + right.span.len());
    let span = (start..end.max(start)).into();
    Ast { kind: AstKind::Binary(op, Box::new(left), Box::new(right)), span }
}

/// Why a text is not a number.
struct NumberError(&'static str, &'static str);

impl NumberError {
    fn at(self, span: SourceSpan) -> Problem {
        Problem::new(span, self.0, "this number").help(self.1)
    }
}

fn number(word: &str, suffix: &str, suffixes: Suffixes) -> Result<i64, NumberError> {
    let (units, help) = match suffixes {
        Suffixes::Sizes => (SIZES, "the suffixes are K, M, G and T (powers of 1024)"),
        Suffixes::Times => (TIMES, "the units are ns, us, ms and s"),
    };
    if let Some(digits) = word.strip_prefix("0x") {
        return i64::from_str_radix(&digits.replace('_', ""), 16).map_err(|_| {
            NumberError("not a hexadecimal number of 63 bits", "for instance 0x7f00")
        });
    }
    let factor = match suffix {
        "" => 1,
        s => units
            .iter()
            .find(|(name, _)| *name == s)
            .map(|(_, factor)| *factor)
            .ok_or(NumberError("unknown suffix", help))?,
    };
    let digits = word[..word.len() - suffix.len()].replace('_', "");
    digits
        .parse::<i64>()
        .ok()
        .and_then(|n| n.checked_mul(factor))
        .ok_or(NumberError("this number is too large", "it must fit in 64 bits"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokens::MAX_TOKENS;

    fn eval(ast: &Ast) -> i64 {
        match &ast.kind {
            AstKind::Number(n) => *n,
            AstKind::Name(_) => 10,
            AstKind::Binary(op, l, r) => op.apply(eval(l), eval(r)).unwrap(),
        }
    }

    fn number(text: &str) -> Result<i64, Problem> {
        parse_number(&Value::bare(text, 0), Suffixes::Sizes).map(|a| eval(&a))
    }

    #[test]
    fn numbers() {
        for (text, value) in [
            ("1+2*3", 7),
            ("(1+2)*3", 9),
            ("10-3-2", 5),
            ("-2*-3", 6),
            ("--4", 4),
            ("7%4 + n/3", 6),
            ("64K", 65536),
            ("0x10 + 1_000", 1016),
        ] {
            assert_eq!(number(text).unwrap(), value, "{text}");
        }
    }

    #[test]
    fn refused() {
        let long = "1+".repeat(MAX_TOKENS) + "1";
        let nested = "(".repeat(5000);
        for bad in [
            "",
            "1+",
            "(1",
            "1)",
            "1 2",
            "a b",
            "9999999999999999999",
            "9G1",
            "8388608T",
            "1x",
            "é",
            "a..b",
            "1.5",
            "0xg",
            "a[1]",
            "10ms",
            &long,
            &nested,
        ] {
            assert!(number(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn durations_have_units() {
        let parse = |text| parse_number(&Value::bare(text, 0), Suffixes::Times).map(|a| eval(&a));
        assert_eq!(parse("10ms+n*1us").unwrap(), 10_010_000);
        assert!(parse("10").is_err());
        assert!(parse("1K").is_err());
    }

    #[test]
    fn ranges() {
        let parse = |text| parse_range(&Value::bare(text, 0));
        assert_eq!(parse("heap").unwrap().pages, PagesAst::All);
        assert!(matches!(parse("heap[p+1]").unwrap().pages, PagesAst::One(_)));
        assert!(matches!(parse("heap[p..p+4]").unwrap().pages, PagesAst::Span(..)));
        for bad in
            ["", "1", "heap[", "heap[]", "heap[1..]", "heap[..1]", "heap[1]x", "heap[1..2..3]"]
        {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn spans() {
        let error = parse_number(&Value::bare("1+*2", 100), Suffixes::Sizes).unwrap_err();
        let label = miette::Diagnostic::labels(&error).unwrap().next().unwrap();
        assert_eq!((label.offset(), label.len()), (102, 1));
    }
}

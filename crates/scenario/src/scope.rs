//! The meaning of names, and the values that expressions have before the scenario runs.
//!
//! Parameters are constants; loop variables live in slots. A value has the expression that
//! executors evaluate. If the value is linear in loop variables with known bounds, it also has its
//! exact extremes. So a range that leaves its area is an error of the text, not of the run.

use crate::document::Value as Written;
use crate::error::{Problem, suggest};
use crate::expr::{Ast, AstKind, Suffixes, parse_number};
use needless_model::program::{BinaryOp, Expr, ExprError};

/// The meaning of a name.
#[derive(Copy, Clone, Debug, PartialEq)]
enum Binding {
    Constant(i64),
    /// A slot, with its least and its greatest value if they are known.
    Slot(u8, Option<(i64, i64)>),
}

/// The names that are visible at one place.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scope {
    bindings: Vec<(String, Binding)>,
}

/// An expression whose names are resolved.
#[derive(Clone, Debug)]
pub(crate) struct Value {
    /// The expression that executors evaluate.
    pub expr: Expr,
    /// The expression as a sum, if it is linear.
    linear: Option<Linear>,
}

/// A sum `constant + Σ factor · slot`, with the bounds of each slot.
#[derive(Clone, Debug, PartialEq)]
struct Linear {
    constant: i128,
    terms: Vec<Term>,
}

#[derive(Clone, Debug, PartialEq)]
struct Term {
    slot: u8,
    bounds: Option<(i64, i64)>,
    factor: i128,
}

impl Scope {
    /// Binds a name to a number.
    pub fn constant(&mut self, name: &str, value: i64) {
        self.bindings.push((name.to_owned(), Binding::Constant(value)));
    }

    /// Binds a name to a slot whose values lie in `bounds` (least, greatest).
    pub fn slot(&mut self, name: &str, slot: u8, bounds: Option<(i64, i64)>) {
        self.bindings.push((name.to_owned(), Binding::Slot(slot, bounds)));
    }

    /// Removes the name that was bound last.
    pub fn pop(&mut self) {
        self.bindings.pop();
    }

    /// Whether the name is bound.
    pub fn has(&self, name: &str) -> bool {
        self.bindings.iter().any(|(n, _)| n == name)
    }

    /// Resolves an expression.
    pub fn fold(&self, ast: &Ast) -> Result<Value, Problem> {
        match &ast.kind {
            AstKind::Number(n) => Ok(Value::constant(*n)),
            AstKind::Name(name) => self.name(name, ast),
            AstKind::Binary(op, left, right) => {
                let (l, r) = (self.fold(left)?, self.fold(right)?);
                if let (Expr::Const(l), Expr::Const(r)) = (&l.expr, &r.expr) {
                    let value = op.apply(*l, *r).map_err(|e| arithmetic(&e, ast, right))?;
                    return Ok(Value::constant(value));
                }
                if matches!(op, BinaryOp::Div | BinaryOp::Rem) && r.expr == Expr::Const(0) {
                    return Err(arithmetic(&ExprError::DivisionByZero, ast, right));
                }
                Ok(combine(*op, l, r))
            }
        }
    }

    /// The value of an expression that may not depend on loop variables.
    pub fn number(&self, written: &Written) -> Result<i64, Problem> {
        let ast = parse_number(written, Suffixes::Sizes)?;
        self.fold(&ast)?.known().ok_or_else(|| {
            Problem::new(
                ast.span,
                "this must be known before the scenario runs",
                "depends on a loop",
            )
            .help("use parameters and numbers only")
        })
    }

    /// The value of an expression that may not depend on loop variables and must lie in `range`.
    pub fn number_in(
        &self,
        written: &Written,
        what: &str,
        range: std::ops::RangeInclusive<i64>,
    ) -> Result<i64, Problem> {
        let value = self.number(written)?;
        if range.contains(&value) {
            return Ok(value);
        }
        let (least, most) = range.into_inner();
        let help = match (least, most) {
            (least, i64::MAX) => format!("it must be at least {least}"),
            (i64::MIN, most) => format!("it must be at most {most}"),
            (least, most) => format!("it must be between {least} and {most}"),
        };
        Err(Problem::new(written.span, format!("{what} is {value}"), "out of bounds").help(help))
    }

    fn name(&self, name: &str, ast: &Ast) -> Result<Value, Problem> {
        match self.bindings.iter().rev().find(|(n, _)| n == name) {
            Some((_, Binding::Constant(value))) => Ok(Value::constant(*value)),
            Some((_, Binding::Slot(slot, bounds))) => {
                let term = Term { slot: *slot, bounds: *bounds, factor: 1 };
                let linear = Linear { constant: 0, terms: vec![term] };
                Ok(Value { expr: Expr::Slot(*slot), linear: Some(linear) })
            }
            None => {
                let names = self.bindings.iter().map(|(n, _)| n.as_str());
                Err(Problem::new(ast.span, format!("unknown name `{name}`"), "not known here")
                    .help(suggest("names", name, names)))
            }
        }
    }
}

impl Value {
    /// A constant value.
    pub fn constant(value: i64) -> Value {
        let linear = Linear { constant: i128::from(value), terms: Vec::new() };
        Value { expr: Expr::Const(value), linear: Some(linear) }
    }

    /// The difference `self − right`.
    pub fn minus(self, right: Value) -> Value {
        combine(BinaryOp::Sub, self, right)
    }

    /// The number, if the value is constant.
    pub fn known(&self) -> Option<i64> {
        match self.expr {
            Expr::Const(value) => Some(value),
            _ => None,
        }
    }

    /// The value's minimum and maximum, both of which are reached. `None` if they are not known.
    pub fn extremes(&self) -> Option<(i128, i128)> {
        let linear = self.linear.as_ref()?;
        let (mut low, mut high) = (linear.constant, linear.constant);
        for term in &linear.terms {
            let (least, greatest) = term.bounds?;
            if least > greatest {
                return None;
            }
            let a = term.factor.checked_mul(i128::from(least))?;
            let b = term.factor.checked_mul(i128::from(greatest))?;
            (low, high) = (low.checked_add(a.min(b))?, high.checked_add(a.max(b))?);
        }
        Some((low, high))
    }
}

fn combine(op: BinaryOp, left: Value, right: Value) -> Value {
    let linear = match (left.linear, right.linear) {
        (Some(l), Some(r)) => match op {
            BinaryOp::Add => l.add(&r, 1),
            BinaryOp::Sub => l.add(&r, -1),
            BinaryOp::Mul if l.terms.is_empty() => r.scale(l.constant),
            BinaryOp::Mul if r.terms.is_empty() => l.scale(r.constant),
            _ => None,
        },
        _ => None,
    };
    if let Some(Linear { constant, terms }) = &linear
        && terms.is_empty()
        && let Ok(value) = i64::try_from(*constant)
    {
        return Value::constant(value);
    }
    let expr = Expr::Binary(op, Box::new(left.expr), Box::new(right.expr));
    Value { expr, linear }
}

impl Linear {
    fn add(mut self, other: &Linear, sign: i128) -> Option<Linear> {
        self.constant = self.constant.checked_add(other.constant.checked_mul(sign)?)?;
        for term in &other.terms {
            let factor = term.factor.checked_mul(sign)?;
            match self.terms.iter_mut().find(|t| t.slot == term.slot) {
                Some(mine) => mine.factor = mine.factor.checked_add(factor)?,
                None => self.terms.push(Term { factor, ..term.clone() }),
            }
        }
        self.terms.retain(|t| t.factor != 0);
        Some(self)
    }

    fn scale(mut self, by: i128) -> Option<Linear> {
        self.constant = self.constant.checked_mul(by)?;
        for term in &mut self.terms {
            term.factor = term.factor.checked_mul(by)?;
        }
        self.terms.retain(|t| t.factor != 0);
        Some(self)
    }
}

fn arithmetic(error: &ExprError, whole: &Ast, right: &Ast) -> Problem {
    match error {
        ExprError::DivisionByZero => Problem::new(right.span, "division by zero", "this is 0")
            .help("divide by something that cannot be 0"),
        _ => Problem::new(whole.span, error.to_string(), "too large")
            .help("values lie between -2^63 and 2^63-1"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope() -> Scope {
        let mut scope = Scope::default();
        scope.constant("n", 8);
        scope.slot("p", 0, Some((0, 7)));
        scope.slot("q", 1, None);
        scope
    }

    fn fold(text: &str) -> Result<Value, Problem> {
        scope().fold(&parse_number(&Written::bare(text, 0), Suffixes::Sizes)?)
    }

    #[test]
    fn constants_fold() {
        assert_eq!(fold("n*2-1").unwrap().known(), Some(15));
        assert_eq!(fold("(p+4)-p").unwrap().known(), Some(4));
        assert_eq!(fold("p*0").unwrap().known(), Some(0));
        assert_eq!(fold("p").unwrap().known(), None);
    }

    #[test]
    fn extremes_are_exact() {
        assert_eq!(fold("7-p").unwrap().extremes(), Some((0, 7)));
        assert_eq!(fold("2*p+n").unwrap().extremes(), Some((8, 22)));
        assert_eq!(fold("p-p+3").unwrap().extremes(), Some((3, 3)));
        assert_eq!(fold("q").unwrap().extremes(), None);
        assert_eq!(fold("p*p").unwrap().extremes(), None);
    }

    #[test]
    fn bad_arithmetic() {
        for bad in ["n/0", "p/0", "n%(n-8)", "9223372036854775807+1", "m"] {
            assert!(fold(bad).is_err(), "{bad}");
        }
    }
}

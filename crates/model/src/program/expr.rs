//! Numbers and runs of pages that depend on loop variables.

use super::Area;
use crate::addr::PageRange;
use crate::call::Bounds;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A run of pages inside an area, with bounds that may depend on loop variables.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RangeExpr {
    /// Index into [`Program::areas`].
    pub area: u16,
    /// First page, counted from the area's start.
    pub first: Expr,
    /// Number of pages.
    pub pages: Expr,
}

impl RangeExpr {
    /// The pages that the range names now, checked against the area.
    #[inline(always)]
    pub fn resolve(&self, areas: &[Area], slots: &[i64]) -> Result<PageRange, Box<ExprError>> {
        let area = &areas[self.area as usize];
        let (first, pages) = (self.first.eval(slots)?, self.pages.eval(slots)?);
        let size = area.range.pages() as i64;
        if first < 0 || pages < 0 || first > size || pages > size - first {
            return Err(area.outside(first, pages));
        }
        Ok(PageRange::new(area.range.start.add(first as u64), pages as u64))
    }
}

/// An integer expression over loop slots. Sums overflow to an error, never silently.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Expr {
    /// A number.
    Const(i64),
    /// The value of a loop slot.
    Slot(u8),
    /// `left op right`
    Binary(BinaryOp, Box<Expr>, Box<Expr>),
}

/// Operators of [`Expr`].
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum BinaryOp {
    /// `+`
    Add,
    /// `-`
    Sub,
    /// `*`
    Mul,
    /// `/`, rounding towards zero
    Div,
    /// `%`
    Rem,
}

/// Why an expression has no value.
#[derive(Clone, Debug, PartialEq, Eq, Error, Serialize, Deserialize)]
pub enum ExprError {
    /// The value does not fit in 64 bits.
    #[error("the value does not fit in 64 bits")]
    Overflow,
    /// A division by zero.
    #[error("division by zero")]
    DivisionByZero,
    /// A range that leaves its area.
    #[error("pages {first}..{} are outside `{area}`, which has {size} pages", first + pages)]
    OutsideArea {
        /// The area's name.
        area: String,
        /// First page asked for.
        first: i64,
        /// Pages asked for.
        pages: i64,
        /// The area's size in pages.
        size: i64,
    },
    /// Pages that a file was not declared with.
    #[error("pages {first}..{} are outside the file, which was declared with {size}", first + pages)]
    OutsideFile {
        /// First page asked for.
        first: i64,
        /// Pages asked for.
        pages: i64,
        /// The file's size in pages.
        size: i64,
    },
    /// A stride or count that makes no sense.
    #[error("{what} is {value}; it must be at least {least}")]
    TooSmall {
        /// What is too small.
        what: String,
        /// Its value.
        value: i64,
        /// The least that would do.
        least: i64,
    },
    /// A count that is more than there can be.
    #[error("{what} is {value}; it must be at most {most}")]
    TooLarge {
        /// What is too large.
        what: String,
        /// Its value.
        value: i64,
        /// The most that would do.
        most: i64,
    },
}

impl BinaryOp {
    /// `left op right`.
    pub fn apply(self, left: i64, right: i64) -> Result<i64, Box<ExprError>> {
        let value = match self {
            BinaryOp::Add => left.checked_add(right),
            BinaryOp::Sub => left.checked_sub(right),
            BinaryOp::Mul => left.checked_mul(right),
            BinaryOp::Div | BinaryOp::Rem if right == 0 => {
                return Err(ExprError::DivisionByZero.into());
            }
            BinaryOp::Div => left.checked_div(right),
            BinaryOp::Rem => left.checked_rem(right),
        };
        value.ok_or_else(|| Box::new(ExprError::Overflow))
    }
}

impl Expr {
    /// The value now.
    #[inline]
    pub fn eval(&self, slots: &[i64]) -> Result<i64, Box<ExprError>> {
        match self {
            Expr::Const(value) => Ok(*value),
            Expr::Slot(slot) => Ok(slots[*slot as usize]),
            Expr::Binary(op, left, right) => apply(*op, left, right, slots),
        }
    }

    /// The value now, which must be at least `least`.
    #[inline]
    pub fn eval_at_least(
        &self,
        slots: &[i64],
        what: &str,
        least: i64,
    ) -> Result<u64, Box<ExprError>> {
        let value = self.eval(slots)?;
        if value < least {
            return Err(too_small(what, value, least));
        }
        Ok(value as u64)
    }

    /// The value now, which must lie within bounds.
    pub fn eval_within(&self, slots: &[i64], bounds: Bounds) -> Result<u64, Box<ExprError>> {
        let Bounds { what, least, most } = bounds;
        let value = self.eval_at_least(slots, what, least)?;
        if value > most as u64 {
            let (what, value) = (what.to_owned(), value as i64);
            return Err(Box::new(ExprError::TooLarge { what, value, most }));
        }
        Ok(value)
    }
}

#[cold]
fn too_small(what: &str, value: i64, least: i64) -> Box<ExprError> {
    Box::new(ExprError::TooSmall { what: what.to_owned(), value, least })
}

/// Operators are out of the way of the constants and slots that most expressions are.
#[inline(never)]
fn apply(op: BinaryOp, left: &Expr, right: &Expr, slots: &[i64]) -> Result<i64, Box<ExprError>> {
    op.apply(left.eval(slots)?, right.eval(slots)?)
}

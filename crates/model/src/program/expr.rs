//! Numbers and ranges of pages that depend on loop variables.

use super::Area;
use crate::addr::PageRange;
use crate::call::Bounds;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A range of pages inside an area, whose bounds may depend on loop variables.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RangeExpr {
    /// The area's index in [`Program::areas`].
    pub area: u16,
    /// The first page, counted from the area's start.
    pub first: Expr,
    /// The number of pages.
    pub pages: Expr,
}

impl RangeExpr {
    /// The pages that the range has now, checked against the area.
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

/// An integer expression over loop slots. An overflow is an error, never silent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Expr {
    /// A number.
    Const(i64),
    /// The value of a loop slot.
    Slot(u8),
    /// An operator with a left and a right operand.
    Binary(BinaryOp, Box<Expr>, Box<Expr>),
}

/// Operators of [`Expr`].
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum BinaryOp {
    /// Addition (`+`).
    Add,
    /// Subtraction (`-`).
    Sub,
    /// Multiplication (`*`).
    Mul,
    /// Division (`/`), rounding towards zero.
    Div,
    /// Remainder (`%`).
    Rem,
}

/// Why an expression has no value.
#[derive(Clone, Debug, PartialEq, Eq, Error, Serialize, Deserialize)]
pub enum ExprError {
    /// The value does not fit in 64 bits.
    #[error("the value does not fit in 64 bits")]
    Overflow,
    /// The expression divides by zero.
    #[error("division by zero")]
    DivisionByZero,
    /// The range leaves its area.
    #[error("pages {first}..{} are outside `{area}`, which has {size} pages", first + pages)]
    OutsideArea {
        /// The area's name.
        area: String,
        /// The first requested page.
        first: i64,
        /// The number of requested pages.
        pages: i64,
        /// The area's size in pages.
        size: i64,
    },
    /// The pages lie outside the declared size of a file.
    #[error("pages {first}..{} are outside the file, which was declared with {size}", first + pages)]
    OutsideFile {
        /// The first requested page.
        first: i64,
        /// The number of requested pages.
        pages: i64,
        /// The file's size in pages.
        size: i64,
    },
    /// A stride or count is too small.
    #[error("{what} is {value}; it must be at least {least}")]
    TooSmall {
        /// The name of the number.
        what: String,
        /// The number's value.
        value: i64,
        /// The smallest allowed value.
        least: i64,
    },
    /// A count is too large.
    #[error("{what} is {value}; it must be at most {most}")]
    TooLarge {
        /// The name of the number.
        what: String,
        /// The number's value.
        value: i64,
        /// The largest allowed value.
        most: i64,
    },
}

impl BinaryOp {
    /// The operator's result for these operands.
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

/// Operators are kept out of the fast path, since most expressions are constants and slots.
#[inline(never)]
fn apply(op: BinaryOp, left: &Expr, right: &Expr, slots: &[i64]) -> Result<i64, Box<ExprError>> {
    op.apply(left.eval(slots)?, right.eval(slots)?)
}

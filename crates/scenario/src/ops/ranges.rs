//! Ranges of pages. Their bounds are checked as far as they are known before the run.

use super::Lowering;
use crate::document::Value as Written;
use crate::error::{Problem, suggest};
use crate::expr::{self, Ast, PagesAst, RangeAst, Suffixes};
use crate::scope::Value;
use miette::SourceSpan;
use needless_model::program::RangeExpr;

/// A range of pages, and what is known about it.
pub(super) struct Pages {
    /// The expression that executors resolve.
    pub expr: RangeExpr,
    /// The first page.
    pub first: Value,
    /// The number of pages, if it does not depend on a loop.
    pub count: Option<i64>,
    /// Where the range is written.
    pub span: SourceSpan,
}

/// The first page of a range, and the number of its pages.
pub(super) struct Bounds {
    /// The first page.
    pub first: Value,
    /// The number of pages.
    pub count: Value,
}

/// The thing that a range is a part of.
#[derive(Copy, Clone)]
pub(super) struct Whole<'a> {
    /// What it is, in one word.
    pub what: &'static str,
    /// The name that the scenario gives it.
    pub name: &'a str,
    /// Its size in pages.
    pub size: i64,
}

impl Whole<'_> {
    /// Checks that a page index lies in `0..=most`.
    fn holds(self, page: &Value, span: SourceSpan, most: i64) -> Result<(), Problem> {
        let Some((low, high)) = page.extremes() else { return Ok(()) };
        if low >= 0 && high <= i128::from(most) {
            return Ok(());
        }
        let Whole { what, name, size } = self;
        let page = if low < 0 { low } else { high };
        Err(Problem::new(
            span,
            format!("page {page} is outside `{name}`"),
            &format!("leaves the {what}"),
        )
        .help(format!("`{name}` has {size} pages: {name}[0..{size}]")))
    }
}

impl Lowering<'_> {
    /// Reads a number that may depend on loops. It must be at least `least` where that is known.
    pub(super) fn value(
        &self,
        written: &Written,
        what: &str,
        least: i64,
    ) -> Result<Value, Problem> {
        self.at_least(&expr::parse_number(written, Suffixes::Sizes)?, what, least)
    }

    pub(super) fn at_least(&self, ast: &Ast, what: &str, least: i64) -> Result<Value, Problem> {
        let value = self.scope.fold(ast)?;
        match value.extremes() {
            Some((low, _)) if low < i128::from(least) => {
                Err(Problem::new(ast.span, format!("{what} is {low}"), "too small")
                    .help(format!("it must be at least {least}")))
            }
            _ => Ok(value),
        }
    }

    /// Reads a range that has at least one page: system calls refuse an empty range.
    pub(super) fn some_pages(&self, written: &Written) -> Result<Pages, Problem> {
        let pages = self.pages(written)?;
        if pages.count != Some(0) {
            return Ok(pages);
        }
        Err(Problem::new(pages.span, "the range is empty", "no pages")
            .help("system calls need at least one page"))
    }

    /// Resolves a range and checks it as far as its bounds are known.
    pub(super) fn pages(&self, written: &Written) -> Result<Pages, Problem> {
        let range = expr::parse_range(written)?;
        let area = self.area(&range.area, range.area_span)?;
        let whole = Whole { what: "area", name: self.name(area), size: self.size(area) };
        let Bounds { first, count } = self.bounds(&range, whole)?;
        let expr = RangeExpr { area, first: first.expr.clone(), pages: count.expr.clone() };
        Ok(Pages { expr, first, count: count.known(), span: range.span })
    }

    /// The pages of the whole that a range names.
    pub(super) fn bounds(&self, range: &RangeAst, whole: Whole<'_>) -> Result<Bounds, Problem> {
        let (first, count) = match &range.pages {
            PagesAst::All => (Value::constant(0), Value::constant(whole.size)),
            PagesAst::One(page) => {
                let first = self.scope.fold(page)?;
                whole.holds(&first, page.span, whole.size - 1)?;
                (first, Value::constant(1))
            }
            PagesAst::Span(start, end) => {
                let (first, past) = (self.scope.fold(start)?, self.scope.fold(end)?);
                whole.holds(&first, start.span, whole.size)?;
                whole.holds(&past, end.span, whole.size)?;
                let count = past.minus(first.clone());
                if count.extremes().is_some_and(|(low, _)| low < 0) {
                    return Err(Problem::new(
                        end.span,
                        "the range ends before it starts",
                        "its end",
                    )
                    .also(start.span, "its start")
                    .help("write heap[first..end], where `end` is the page after the last one"));
                }
                (first, count)
            }
        };
        Ok(Bounds { first, count })
    }

    pub(super) fn area(&self, name: &str, span: SourceSpan) -> Result<u16, Problem> {
        self.areas.index(name).ok_or_else(|| {
            Problem::new(span, format!("unknown area `{name}`"), "never mapped").help(suggest(
                "areas",
                name,
                self.areas.names(),
            ))
        })
    }

    pub(super) fn name(&self, area: u16) -> &str {
        &self.areas.list[usize::from(area)].name
    }

    pub(super) fn size(&self, area: u16) -> i64 {
        self.areas.list[usize::from(area)].range.pages() as i64
    }
}

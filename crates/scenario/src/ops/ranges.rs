//! Ranges of pages, checked as far as their bounds are known before the run.

use super::Lowering;
use crate::document::Value as Written;
use crate::error::{Problem, suggest};
use crate::expr::{self, Ast, PagesAst, Suffixes};
use crate::scope::Value;
use miette::SourceSpan;
use needless_model::program::RangeExpr;

/// A range of pages and what is known of it.
pub(super) struct Pages {
    /// What executors resolve.
    pub expr: RangeExpr,
    /// First page.
    pub first: Value,
    /// Number of pages, if it does not depend on a loop.
    pub count: Option<i64>,
    /// Where it is written.
    pub span: SourceSpan,
}

impl Lowering<'_> {
    /// A number that may depend on loops, at least `least` where that is known.
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

    /// A range that holds at least one page: system calls refuse an empty one.
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
        let size = self.size(area);
        let (first, count) = match &range.pages {
            PagesAst::All => (Value::constant(0), Value::constant(size)),
            PagesAst::One(page) => {
                let first = self.scope.fold(page)?;
                self.inside(&first, page.span, area, size - 1)?;
                (first, Value::constant(1))
            }
            PagesAst::Span(start, end) => {
                let (first, past) = (self.scope.fold(start)?, self.scope.fold(end)?);
                self.inside(&first, start.span, area, size)?;
                self.inside(&past, end.span, area, size)?;
                let count = past.minus(first.clone());
                if count.extremes().is_some_and(|(low, _)| low < 0) {
                    return Err(Problem::new(
                        end.span,
                        "the range ends before it starts",
                        "its end",
                    )
                    .also(start.span, "its start")
                    .help("write heap[first..end], where the end is the page behind the last"));
                }
                (first, count)
            }
        };
        let expr = RangeExpr { area, first: first.expr.clone(), pages: count.expr.clone() };
        Ok(Pages { expr, first, count: count.known(), span: range.span })
    }

    /// Checks that a page index lies in `0..=most`.
    fn inside(&self, page: &Value, span: SourceSpan, area: u16, most: i64) -> Result<(), Problem> {
        let Some((low, high)) = page.extremes() else { return Ok(()) };
        if low >= 0 && high <= i128::from(most) {
            return Ok(());
        }
        let (name, size) = (self.name(area), self.size(area));
        let page = if low < 0 { low } else { high };
        Err(Problem::new(span, format!("page {page} is outside `{name}`"), "leaves the area")
            .help(format!("`{name}` has {size} pages: {name}[0..{size}]")))
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

//! A resolved operation: one whose turn has come, so that its expressions have values and its
//! ranges are pages.
//!
//! The simulator, the checker and the runner each carry it out, and each names every case. An
//! operation that one of them lacks does not compile.

use crate::addr::PageRange;
use crate::call::{Call, CallExpr, EACH, RANGES, ranges};
use crate::program::{Access, Area, ExprError, Hold, Op, OpKind, Order, RangeExpr};

/// The order in which pages are visited.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum Visit {
    /// Ascending, from the first page.
    Ascending {
        /// The number of pages from one visit to the next.
        stride: u64,
    },
    /// In a random order.
    Random {
        /// The number of visits.
        count: u64,
        /// The seed of the generator.
        seed: u64,
    },
}

/// An operation whose turn has come.
#[derive(Copy, Clone, Debug, PartialEq)]
pub enum Resolved<'p> {
    /// It makes a system call.
    Call(Call),
    /// It accesses memory.
    Touch {
        /// The pages.
        pages: PageRange,
        /// Whether it loads or stores.
        access: Access,
        /// The order of the accesses.
        visit: Visit,
    },
    /// It does nothing, because it is about no pages.
    Nothing,
    /// It holds its CPU until the scenario ends.
    Hold(Hold),
    /// It sleeps this many nanoseconds.
    Nap(u64),
    /// It waits for the other threads of the barrier with this index.
    Barrier(u16),
    /// It is the phase mark with this index.
    Mark(u16),
    /// It executes its body repeatedly.
    Loop {
        /// The slot that counts the repetitions.
        slot: u8,
        /// The slot's first value.
        first: i64,
        /// The difference from one value to the next.
        step: i64,
        /// The number of repetitions.
        turns: u64,
        /// The repeated operations.
        body: &'p [Op],
    },
    /// It runs the scenario's rounds.
    Rounds {
        /// The slot that counts the rounds.
        slot: u8,
        /// The number of warm-up rounds.
        warmup: u32,
        /// The number of rounds that count.
        count: u32,
        /// The operations of one round.
        body: &'p [Op],
    },
    /// It executes its body, and the time is measured.
    Measure(&'p [Op]),
}

impl OpKind {
    /// The operation with values, for the current values of the loop slots.
    #[inline(always)]
    pub fn resolve(&self, areas: &[Area], slots: &[i64]) -> Result<Resolved<'_>, Box<ExprError>> {
        let pages = |range: &RangeExpr| range.resolve(areas, slots);
        Ok(match self {
            OpKind::Touch { range, access, order } => {
                return touch(pages(range)?, *access, order, slots);
            }
            OpKind::Call(call) => return call.resolve(areas, slots),
            OpKind::Spin => Resolved::Hold(Hold::Spin),
            OpKind::Sleep { duration_ns: None } => Resolved::Hold(Hold::Sleep),
            OpKind::Serve { answer } => Resolved::Hold(Hold::Serve(*answer)),
            OpKind::Sleep { duration_ns: Some(duration) } => {
                Resolved::Nap(duration.eval_at_least(slots, "the duration", 0)?)
            }
            OpKind::Barrier { barrier } => Resolved::Barrier(*barrier),
            OpKind::Mark { mark } => Resolved::Mark(*mark),
            OpKind::Repeat { slot, count, body } => {
                let turns = count.eval_at_least(slots, "the count", 0)?;
                Resolved::Loop { slot: *slot, first: 0, step: 1, turns, body }
            }
            OpKind::ForEach { slot, range, stride, body } => {
                let stride = stride.eval_at_least(slots, "the stride", 1)?;
                let pages = pages(range)?;
                let first = pages.start.since(areas[usize::from(range.area)].range.start) as i64;
                let turns = pages.pages().div_ceil(stride);
                Resolved::Loop { slot: *slot, first, step: stride as i64, turns, body }
            }
            OpKind::Rounds { slot, warmup, count, body } => {
                Resolved::Rounds { slot: *slot, warmup: *warmup, count: *count, body }
            }
            OpKind::Measure { body } => Resolved::Measure(body),
        })
    }
}

#[inline(always)]
fn touch<'p>(
    pages: PageRange,
    access: Access,
    order: &Order,
    slots: &[i64],
) -> Result<Resolved<'p>, Box<ExprError>> {
    let visit = match order {
        Order::Ascending { stride } => {
            Visit::Ascending { stride: stride.eval_at_least(slots, "the stride", 1)? }
        }
        Order::Random { count, seed } => {
            Visit::Random { count: count.eval_at_least(slots, "the count", 0)?, seed: *seed }
        }
    };
    let touched = Resolved::Touch { pages, access, visit };
    Ok(if pages.is_empty() { Resolved::Nothing } else { touched })
}

impl CallExpr {
    /// The call with values; [`Resolved::Nothing`] if it is about no pages.
    #[inline(always)]
    fn resolve<'p>(&self, areas: &[Area], slots: &[i64]) -> Result<Resolved<'p>, Box<ExprError>> {
        let call: Call = self.try_map(
            |range| range.resolve(areas, slots),
            |area| Ok(areas[usize::from(*area)].extent()),
            |number, bounds| number.eval_within(slots, bounds),
        )?;
        if let (CallExpr::Remap { to: area, .. }, Call::Remap { pages, to }) = (self, call)
            && pages.pages() > to.pages.pages()
        {
            return Err(areas[usize::from(*area)].outside(0, pages.pages() as i64));
        }
        if let Some((file, first, pages)) = call.file_pages()
            && first + pages > file.pages
        {
            let (first, pages, size) = (first as i64, pages as i64, file.pages as i64);
            return Err(Box::new(ExprError::OutsideFile { first, pages, size }));
        }
        if let Call::AdviseRanges { pages, each, stride, .. } = call {
            let count = ranges(pages, each, stride, 0).len() as u64;
            for (what, value, most) in
                [(EACH.what, each, stride), (RANGES.what, count, RANGES.most as u64)]
            {
                if value > most {
                    let (value, most) = (value as i64, most as i64);
                    let what = what.to_owned();
                    return Err(Box::new(ExprError::TooLarge { what, value, most }));
                }
            }
        }
        let of_file =
            matches!(call, Call::WriteFile { pages: 0, .. } | Call::DropFile { pages: 0, .. });
        let none = of_file || call.pages().is_some_and(PageRange::is_empty);
        Ok(if none { Resolved::Nothing } else { Resolved::Call(call) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addr::Vpn;
    use crate::program::{Advice, Expr};

    fn area(name: &str, start: u64, pages: u64) -> Area {
        Area::anonymous(name, PageRange::new(Vpn(start), pages))
    }

    fn range(first: i64, pages: i64) -> RangeExpr {
        RangeExpr { area: 0, first: Expr::Const(first), pages: Expr::Const(pages) }
    }

    #[test]
    fn calls_on_no_pages_are_nothing() {
        let areas = [area("heap", 64, 4), area("away", 128, 2)];
        let resolve = |kind: &OpKind| format!("{:?}", kind.resolve(&areas, &[]));
        let unmap = |pages| resolve(&OpKind::Call(CallExpr::Unmap { pages: range(1, pages) }));
        assert_eq!(unmap(0), "Ok(Nothing)");
        assert!(unmap(2).contains("Unmap"), "{}", unmap(2));
        assert!(unmap(4).contains("OutsideArea"), "{}", unmap(4));
        let remap =
            |pages| resolve(&OpKind::Call(CallExpr::Remap { pages: range(0, pages), to: 1 }));
        assert!(remap(2).contains("Remap"), "{}", remap(2));
        assert!(remap(3).contains("OutsideArea { area: \"away\""), "{}", remap(3));
    }

    #[test]
    fn vectored_calls_have_bounds() {
        let areas = [area("heap", 64, 4096)];
        let resolve = |pages, each, stride| {
            let (each, stride) = (Expr::Const(each), Expr::Const(stride));
            let advice = Advice::DontNeed;
            let call =
                CallExpr::AdviseRanges { pages: range(0, pages), each, stride, done: 0, advice };
            OpKind::Call(call).resolve(&areas, &[]).map_err(|error| error.to_string()).err()
        };
        assert_eq!(resolve(2048, 2, 2), None);
        assert_eq!(resolve(0, 1, 1), None, "it is nothing");
        let of =
            |what: &str, value, most| Some(format!("{what} is {value}; it must be at most {most}"));
        assert_eq!(resolve(2050, 2, 2), of("the number of ranges", 1025, 1024));
        assert_eq!(resolve(8, 3, 2), of("the pages of a range", 3, 2));
        assert!(resolve(8, 0, 2).unwrap().contains("at least 1"));
    }

    #[test]
    fn loops_have_bounds() {
        let areas = [area("heap", 64, 10)];
        let stride = |stride| OpKind::ForEach {
            slot: 0,
            range: range(2, 7),
            stride: Expr::Const(stride),
            body: Vec::new(),
        };
        let turns = |kind: &OpKind| match kind.resolve(&areas, &[]) {
            Ok(Resolved::Loop { first, step, turns, .. }) => Some((first, step, turns)),
            _ => None,
        };
        assert_eq!(turns(&stride(3)), Some((2, 3, 3)));
        assert_eq!(turns(&stride(0)), None);
    }
}

//! The cost of events in cycles: a price for each kind of event, fitted to the cycles that a
//! machine took.
//!
//! Prices are not negative. Errors count in proportion to what was measured, so that short blocks
//! weigh as much as long ones. The fit is deterministic: the same samples give the same prices.

use needless_model::counters::{Counter, Counters, observe};
use needless_model::event::{Event, EventKind};
use needless_model::program::Program;
use needless_model::rng::SplitMix64;
use needless_model::run::Round;
use needless_model::sequence::TraceOrder;
use std::collections::BTreeMap;

/// The number of sweeps over the prices after which they no longer change, for any table of a few
/// terms.
const MOST_SWEEPS: usize = 200_000;

/// A smaller change of a price, in proportion to it, counts as none.
const SETTLED: f64 = 1e-12;

/// The share of a column that has to be independent of the others.
const INDEPENDENT: f64 = 1e-6;

/// The number of resamples for an interval.
const RESAMPLES: usize = 200;

/// A block that was timed: how often each term occurs in it, and its cycles in every round.
#[derive(Clone, Debug, PartialEq)]
pub struct Timed {
    /// The number of occurrences of each term.
    pub counts: Vec<f64>,
    /// The cycles of each round. There is at least one, and none is 0.
    pub cycles: Vec<u64>,
}

/// A price, with the interval that holds it with 95 % confidence as far as noise goes.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Price {
    /// The cycles of one occurrence.
    pub cycles: f64,
    /// The interval, from resampled rounds.
    pub interval_95: (f64, f64),
}

/// The fitted prices.
#[derive(Clone, Debug, PartialEq)]
pub struct Fitted {
    /// The price of each term.
    pub prices: Vec<Price>,
    /// For each block of the fit: the predicted cycles, divided by the median of the measured ones.
    pub residuals: Vec<f64>,
}

/// Why there are no prices.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoFit {
    /// The term occurs in no timed block, or only together with the others.
    #[error("the samples do not tell the price of term {0} from those of the others")]
    Undetermined(usize),
}

impl Fitted {
    /// The cycles of a block in which the terms occur this often.
    pub fn predict(&self, counts: &[f64]) -> f64 {
        self.prices.iter().zip(counts).map(|(price, count)| price.cycles * count).sum()
    }
}

/// The median of the cycles.
pub fn median(cycles: &[u64]) -> f64 {
    let mut sorted = cycles.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).map_or(0.0, |cycles| *cycles as f64)
}

/// Fits prices of `terms` terms to blocks.
///
/// # Errors
/// Returns an error if a price is not determined.
pub fn fit(terms: usize, blocks: &[Timed]) -> Result<Fitted, NoFit> {
    let medians: Vec<f64> = blocks.iter().map(|block| median(&block.cycles)).collect();
    if let Some(term) = dependent(terms, &weighed(blocks, &medians)) {
        return Err(NoFit::Undetermined(term));
    }
    let prices = least_squares(terms, &weighed(blocks, &medians));
    let intervals = intervals(terms, blocks);
    let priced = prices.iter().zip(intervals);
    let prices = priced.map(|(&cycles, interval_95)| Price { cycles, interval_95 }).collect();
    let mut fitted = Fitted { prices, residuals: Vec::new() };
    let residual = |(block, median): (&Timed, &f64)| fitted.predict(&block.counts) / median;
    fitted.residuals = blocks.iter().zip(&medians).map(residual).collect();
    Ok(fitted)
}

/// A row for each block, in proportion to its cycles, so that each right-hand side is 1.
fn weighed(blocks: &[Timed], medians: &[f64]) -> Vec<Vec<f64>> {
    let row = |(block, median): (&Timed, &f64)| {
        block.counts.iter().map(|count| count / median.max(1.0)).collect()
    };
    blocks.iter().zip(medians).map(row).collect()
}

/// The first term whose column depends on the columns before it (Gram-Schmidt).
fn dependent(terms: usize, rows: &[Vec<f64>]) -> Option<usize> {
    let mut basis: Vec<Vec<f64>> = Vec::new();
    for term in 0..terms {
        let mut column: Vec<f64> = rows.iter().map(|row| row[term]).collect();
        let before = norm(&column);
        for other in &basis {
            let along: f64 = column.iter().zip(other).map(|(a, b)| a * b).sum();
            column.iter_mut().zip(other).for_each(|(a, b)| *a -= along * b);
        }
        let after = norm(&column);
        if after <= INDEPENDENT * before || before == 0.0 {
            return Some(term);
        }
        column.iter_mut().for_each(|a| *a /= after);
        basis.push(column);
    }
    None
}

fn norm(column: &[f64]) -> f64 {
    column.iter().map(|a| a * a).sum::<f64>().sqrt()
}

/// Non-negative least squares, price by price until none changes.
fn least_squares(terms: usize, rows: &[Vec<f64>]) -> Vec<f64> {
    let sum = |of: &dyn Fn(&Vec<f64>) -> f64| rows.iter().map(of).sum::<f64>();
    let squares: Vec<f64> = (0..terms).map(|a| sum(&|row| row[a] * row[a])).collect();
    let mut prices = vec![0.0; terms];
    let mut errors = vec![-1.0; rows.len()];
    for _ in 0..MOST_SWEEPS {
        let mut moved = 0.0_f64;
        for term in 0..terms {
            let slope: f64 = rows.iter().zip(&errors).map(|(row, error)| row[term] * error).sum();
            let price = (prices[term] - slope / squares[term]).max(0.0);
            let change = price - prices[term];
            for (row, error) in rows.iter().zip(&mut errors) {
                *error += change * row[term];
            }
            moved = moved.max(change.abs() / price.max(1.0));
            prices[term] = price;
        }
        if moved < SETTLED {
            break;
        }
    }
    prices
}

/// The middle 95 % of the prices that resampled rounds give.
fn intervals(terms: usize, blocks: &[Timed]) -> Vec<(f64, f64)> {
    let mut random = SplitMix64::new(0x636f_7374);
    let mut draws: Vec<Vec<f64>> = vec![Vec::new(); terms];
    for _ in 0..RESAMPLES {
        let mut resampled = |block: &Timed| {
            let draw = |_| block.cycles[random.below(block.cycles.len() as u64) as usize];
            median(&(0..block.cycles.len()).map(draw).collect::<Vec<u64>>())
        };
        let medians: Vec<f64> = blocks.iter().map(&mut resampled).collect();
        let prices = least_squares(terms, &weighed(blocks, &medians));
        draws.iter_mut().zip(prices).for_each(|(draws, price)| draws.push(price));
    }
    let interval = |draws: &mut Vec<f64>| {
        draws.sort_unstable_by(f64::total_cmp);
        (draws[RESAMPLES * 25 / 1000], draws[RESAMPLES * 975 / 1000 - 1])
    };
    draws.iter_mut().map(interval).collect()
}

/// The counters of each `measure` block of a round, in the order in which the blocks end. Events of
/// other threads are included, as their time is.
pub fn measured(program: &Program, round: &Round) -> Vec<Counters> {
    let order = TraceOrder::of([round.events.as_slice()]);
    let mut blocks = Vec::new();
    let mut starts = BTreeMap::new();
    for (at, event) in round.events.iter().enumerate() {
        if event.kind == EventKind::MeasureStart {
            starts.insert(event.thread, at);
        }
        if event.kind != EventKind::MeasureEnd {
            continue;
        }
        if let Some(from) = starts.remove(&event.thread) {
            let events: &[Event] = &round.events[from..=at];
            let seen = observe(program, events, order);
            let round = Round { events: events.to_vec(), ..Round::default() };
            blocks.push(Counters::of(&round, &seen));
        }
    }
    blocks
}

/// Events that take time. Each needs a term where it occurs.
const TAKE_TIME: [Counter; 7] = [
    Counter::Faults,
    Counter::Copies,
    Counter::Zeroings,
    Counter::PagesIn,
    Counter::PagesOut,
    Counter::Shootdowns,
    Counter::LocalFlushes,
];

/// How often each term occurs in a block: the sum of its counters, or 1 for the block itself if the
/// term has none.
///
/// # Errors
/// Returns an error if a counter is not known, or if something occurs that no term prices.
pub fn occurrences(terms: &[&[Counter]], block: &Counters) -> Result<Vec<f64>, Unpriced> {
    let known = |counter: Counter| {
        block.get(counter).map(|count| count as f64).ok_or(Unpriced::Unknown(counter))
    };
    for counter in TAKE_TIME {
        let priced = terms.iter().any(|term| term.contains(&counter));
        if !priced && known(counter)? > 0.0 {
            return Err(Unpriced::NoTerm(counter));
        }
    }
    let occurs = |term: &&[Counter]| match term {
        [] => Ok(1.0),
        counters => counters.iter().map(|counter| known(*counter)).sum(),
    };
    terms.iter().map(occurs).collect()
}

/// Why a block has no price.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unpriced {
    /// It is not known how often something occurs.
    #[error("{} are not known", .0.name())]
    Unknown(Counter),
    /// Something occurs that has no price.
    #[error("no term has a price for {}", .0.name())]
    NoTerm(Counter),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timed(counts: &[f64], cycles: &[u64]) -> Timed {
        Timed { counts: counts.to_vec(), cycles: cycles.to_vec() }
    }

    fn close(found: f64, expected: f64) -> bool {
        (found - expected).abs() <= 1e-6 * expected.abs().max(1.0)
    }

    #[test]
    fn exact_prices_are_found() {
        let blocks = [
            timed(&[1.0, 0.0, 0.0], &[40, 40, 40]),
            timed(&[1.0, 8.0, 0.0], &[40 + 8 * 700; 3]),
            timed(&[1.0, 8.0, 8.0], &[40 + 8 * 700 + 8 * 3000; 3]),
            timed(&[1.0, 1.0, 1.0], &[3740; 3]),
        ];
        let fitted = fit(3, &blocks).unwrap();
        for (price, expected) in fitted.prices.iter().zip([40.0, 700.0, 3000.0]) {
            assert!(close(price.cycles, expected), "{fitted:?}");
            assert!(close(price.interval_95.0, expected) && close(price.interval_95.1, expected));
        }
        assert!(fitted.residuals.iter().all(|residual| close(*residual, 1.0)));
        assert!(close(fitted.predict(&[1.0, 2.0, 0.0]), 1440.0));
    }

    #[test]
    fn prices_are_not_negative() {
        // Without the bound, the second price would be -100.
        let blocks = [timed(&[1.0, 0.0], &[1000]), timed(&[1.0, 1.0], &[900])];
        let fitted = fit(2, &blocks).unwrap();
        assert_eq!(fitted.prices[1].cycles, 0.0);
        let first = fitted.prices[0].cycles;
        assert!(900.0 < first && first < 1000.0, "{first}");
    }

    #[test]
    fn what_is_not_determined_is_told() {
        let both = [timed(&[1.0, 1.0], &[1000]), timed(&[2.0, 2.0], &[2100])];
        assert_eq!(fit(2, &both), Err(NoFit::Undetermined(1)));
        let never = [timed(&[1.0, 0.0], &[1000])];
        assert_eq!(fit(2, &never), Err(NoFit::Undetermined(1)));
        assert_eq!(fit(1, &[]), Err(NoFit::Undetermined(0)));
    }

    #[test]
    fn nothing_is_for_nothing() {
        let mut block = Counters::default();
        for &counter in Counter::ALL {
            block.set(counter, Some(0));
        }
        block.set(Counter::Faults, Some(2));
        block.set(Counter::Copies, Some(1));
        let (faults, pages) = ([Counter::Faults], [Counter::Copies, Counter::Zeroings]);
        assert_eq!(occurrences(&[&[], &faults, &pages], &block), Ok(vec![1.0, 2.0, 1.0]));
        assert_eq!(occurrences(&[&faults], &block), Err(Unpriced::NoTerm(Counter::Copies)));
        block.set(Counter::Shootdowns, None);
        let unknown = Unpriced::Unknown(Counter::Shootdowns);
        assert_eq!(occurrences(&[&faults, &pages], &block), Err(unknown));
    }

    #[test]
    fn noise_widens_the_interval() {
        let noisy: Vec<u64> = (0..99).map(|i| 900 + (i * 37) % 200).collect();
        let fitted = fit(1, &[timed(&[1.0], &noisy)]).unwrap();
        let (low, high) = fitted.prices[0].interval_95;
        assert!(low < 1000.0 && 1000.0 < high && low > 940.0 && high < 1060.0, "{low}..{high}");
    }
}

//! The median with its bootstrap interval. Every sample counts; none is deleted.

use needless_model::rng::SplitMix64;
use serde::Serialize;

/// The number of resamples for an interval.
const RESAMPLES: usize = 1000;

/// The fewest samples for which an interval is given.
const LEAST_SAMPLES: usize = 10;

/// The number of samples used for the interval. If there are more, every n-th is taken.
const MOST_SAMPLES: usize = 2000;

/// A median and the interval that holds it with 95% confidence.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Median {
    /// The median.
    pub median: u64,
    /// The interval's ends. `None` with fewer than ten samples.
    pub interval_95: Option<(u64, u64)>,
    /// The number of samples.
    pub samples: usize,
}

/// The median of `samples`, with a percentile-bootstrap interval. `None` without samples. The same
/// samples give the same interval.
pub fn median(samples: &[u64]) -> Option<Median> {
    let median = middle(&mut samples.to_vec())?;
    Some(Median { median, interval_95: interval(samples), samples: samples.len() })
}

fn middle(values: &mut [u64]) -> Option<u64> {
    let at = values.len() / 2;
    (at < values.len()).then(|| *values.select_nth_unstable(at).1)
}

fn interval(samples: &[u64]) -> Option<(u64, u64)> {
    if samples.len() < LEAST_SAMPLES {
        return None;
    }
    let step = samples.len().div_ceil(MOST_SAMPLES);
    let base: Vec<u64> = samples.iter().copied().step_by(step).collect();
    let mut random = SplitMix64::new(0x6e65_6564_6c65_7373);
    let mut resample = vec![0; base.len()];
    let mut medians: Vec<u64> = (0..RESAMPLES)
        .filter_map(|_| {
            resample.fill_with(|| base[random.below(base.len() as u64) as usize]);
            middle(&mut resample)
        })
        .collect();
    medians.sort_unstable();
    Some((medians[RESAMPLES * 25 / 1000], medians[RESAMPLES * 975 / 1000 - 1]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_holds_the_median() {
        let samples: Vec<u64> = (0..101).map(|i| 1000 + (i * 37) % 101).collect();
        let result = median(&samples).unwrap();
        let (low, high) = result.interval_95.unwrap();
        assert_eq!(result.median, 1050);
        assert!(low < 1050 && 1050 < high && low > 1030 && high < 1070, "{low}..{high}");
        assert_eq!(median(&samples), Some(result), "reproducible");
    }

    #[test]
    fn few_samples_have_no_interval() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3]), Some(Median { median: 3, interval_95: None, samples: 1 }));
    }
}

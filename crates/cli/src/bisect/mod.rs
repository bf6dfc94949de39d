//! Searches for the place where something changes in a row of candidates, some of which may be
//! undecided.

pub mod judge;

use crate::failure::Failure;
use needless_report::bisect::Standing;

/// The two neighbours between which the change lies. `None` is the end itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Between {
    /// The last good candidate.
    pub good: Option<usize>,
    /// The first bad candidate.
    pub bad: Option<usize>,
    /// The undecided candidates between the two.
    pub undecided: Vec<usize>,
}

/// Searches between a good and a bad end. They come before the first and after the last of `count`
/// candidates. An undecided candidate is passed over, and its neighbours are judged.
pub fn search(
    count: usize,
    mut judge: impl FnMut(usize) -> Result<Standing, Failure>,
) -> Result<Between, Failure> {
    // Positions are counted from 1; the ends are 0 and `count + 1`.
    let (mut good, mut bad) = (0, count + 1);
    let mut undecided: Vec<usize> = Vec::new();
    while let Some(next) = nearest_to_middle(good, bad, &undecided) {
        match judge(next - 1)? {
            Standing::Good => good = next,
            Standing::Bad => bad = next,
            Standing::Undecided => undecided.push(next),
        }
    }
    undecided.retain(|at| (good..bad).contains(at));
    undecided.sort_unstable();
    Ok(Between {
        good: good.checked_sub(1),
        bad: (bad <= count).then(|| bad - 1),
        undecided: undecided.into_iter().map(|at| at - 1).collect(),
    })
}

/// The open position between two positions that is nearest to the middle.
fn nearest_to_middle(good: usize, bad: usize, undecided: &[usize]) -> Option<usize> {
    let middle = good + (bad - good) / 2;
    (good + 1..bad).filter(|at| !undecided.contains(at)).min_by_key(|at| at.abs_diff(middle))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The place where a change at `first_bad` is found, and the number of candidates that were
    /// judged.
    fn found(count: usize, first_bad: usize, silent: &[usize]) -> (Between, usize) {
        let mut asked = Vec::new();
        let between = search(count, |at| {
            assert!(!asked.contains(&at), "{at} is asked once");
            asked.push(at);
            Ok(match () {
                () if silent.contains(&at) => Standing::Undecided,
                () if at < first_bad => Standing::Good,
                () => Standing::Bad,
            })
        });
        (between.unwrap(), asked.len())
    }

    #[test]
    fn the_change_is_found_wherever_it_is() {
        for count in 0..40 {
            for first_bad in 0..=count {
                let (between, asked) = found(count, first_bad, &[]);
                assert_eq!(between.good, first_bad.checked_sub(1));
                assert_eq!(between.bad, (first_bad < count).then_some(first_bad));
                assert!(between.undecided.is_empty());
                assert!(asked <= 6, "{asked} of {count}");
            }
        }
    }

    #[test]
    fn what_does_not_tell_is_named_only_where_it_matters() {
        let (between, _) = found(9, 6, &[2, 4, 5]);
        assert_eq!(between, Between { good: Some(3), bad: Some(6), undecided: vec![4, 5] });
        let (between, _) = found(9, 6, &[2]);
        assert_eq!(between, Between { good: Some(5), bad: Some(6), undecided: vec![] });
        let (between, asked) = found(3, 0, &[0, 1, 2]);
        assert_eq!(between, Between { good: None, bad: None, undecided: vec![0, 1, 2] });
        assert_eq!(asked, 3);
    }
}

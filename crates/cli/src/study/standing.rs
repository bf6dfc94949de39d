//! Whether a target shows what is expected of it, and whether it finds what it has to find.

use needless_model::counters::Counter;
use needless_model::run::Round;
use needless_report::compare::Ran;
use needless_report::stats::median;
use needless_report::study::{Count, RelationResult, RunResult, Standing, TargetResult};
use needless_scenario::study::{Finding, On, Run};

/// The counters for which some target has an expectation.
pub fn counters(run: &Run) -> Vec<Counter> {
    let expected = run.targets.iter().flat_map(|on| &on.expected);
    let expected: Vec<Counter> =
        expected.flat_map(|expected| &expected.counts).map(|(counter, _)| *counter).collect();
    Counter::ALL.iter().copied().filter(|counter| expected.contains(counter)).collect()
}

/// The result of a target. `timed` says whether its cycles are those of one `measure` block.
pub fn target(
    on: &On,
    result: Result<&Ran, String>,
    counters: &[Counter],
    timed: bool,
) -> TargetResult {
    let (target, none) = (on.target.clone(), Vec::new());
    let ran = match result {
        Ok(ran) => ran,
        Err(reason) => {
            return TargetResult {
                target,
                release: None,
                counts: counters.iter().map(|counter| count(*counter, None, None)).collect(),
                cycles: None,
                agreement: None,
                undecided: None,
                odd: None,
                tlbi: None,
                findings: Vec::new(),
                rounds: 0,
                standing: Some(Standing::NotHere(reason)),
            };
        }
    };
    let release = ran.run.release.as_deref();
    let expected = on.expected(release.map(series)).map_or(&none, |expected| &expected.counts);
    let of = |counter: Counter| {
        let expected = expected.iter().find(|(known, _)| *known == counter);
        count(counter, expected.map(|(_, expected)| *expected), Some(ran))
    };
    let agreement = ran.reference.as_ref().map(|reference| {
        let agreement = &reference.agreement;
        (agreement.equal(), agreement.rounds, reference.row.clone())
    });
    TargetResult {
        target,
        release: ran.run.release.clone(),
        counts: counters.iter().map(|counter| of(*counter)).collect(),
        cycles: median(&ran.account.cycles()).map(|median| median.median).filter(|_| timed),
        agreement,
        odd: None,
        tlbi: tlbi(ran),
        undecided: ran.reference.as_ref().and_then(|r| r.agreement.undecided.clone()),
        findings: ran.account.findings(),
        rounds: ran.account.total,
        standing: standing(ran, expected),
    }
}

fn count(counter: Counter, expected: Option<u64>, ran: Option<&Ran>) -> Count {
    let reference = ran.and_then(|ran| ran.reference.as_ref());
    Count {
        counter,
        expected,
        found: ran.and_then(|ran| ran.account.typical(counter)),
        transferred: reference.is_some_and(|r| r.transferred.contains(counter.name())),
    }
}

/// The TLB invalidations that an emulator saw in most rounds, of all forms. `None` if nothing
/// counted them.
pub fn tlbi(ran: &Ran) -> Option<u64> {
    let executed = |round: &Round| {
        let phases = round.instructions.iter().flatten();
        phases.filter(|(name, _)| name.starts_with("tlbi ")).map(|(_, count)| count).sum::<u64>()
    };
    let rounds = ran.run.rounds.iter().filter(|round| !round.instructions.is_empty());
    let mut counts: Vec<u64> = rounds.map(executed).collect();
    counts.sort_unstable();
    let often = |count: &u64| counts.iter().filter(|other| *other == count).count();
    counts.iter().copied().max_by_key(|count| often(count))
}

/// The series of a release: `(6, 18)` of `6.18.44-amd64`.
fn series(release: &str) -> (u32, u32) {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    let mut next = || numbers.next().and_then(|number| number.parse().ok()).unwrap_or(0);
    (next(), next())
}

/// Judges a run. A model row has to count what is expected; a real kernel also has to equal its own
/// row.
fn standing(ran: &Ran, expected: &[(Counter, u64)]) -> Option<Standing> {
    if let Some(reason) = expected.iter().find_map(|(counter, n)| differs(ran, *counter, *n)) {
        return Some(reason);
    }
    let Some(reference) = &ran.reference else {
        return (!expected.is_empty()).then_some(Standing::Holds);
    };
    let agreement = &reference.agreement;
    Some(match (ran.exact(), &agreement.undecided) {
        (Some(true), _) => Standing::Holds,
        (Some(false), _) => Standing::DoesNot(format!(
            "{} of {} rounds, and {} pages at the end, are not as in {}",
            agreement.differing.len(),
            agreement.rounds,
            agreement.final_pages.len(),
            reference.row
        )),
        // Every expectation was counted in every round.
        (None, _) if !expected.is_empty() => Standing::Holds,
        (None, Some(reason)) => Standing::NotHere(format!("not decided: {reason}")),
        (None, None) => Standing::NotHere(format!(
            "the model has no row of its own for this kernel; the nearest is {}",
            reference.row
        )),
    })
}

/// Why a counter is not as expected in every round, or is not known.
fn differs(ran: &Ran, counter: Counter, expected: u64) -> Option<Standing> {
    let name = counter.name().replace('_', " ");
    let spread = ran.account.spread(counter).filter(|spread| spread.of == ran.account.total);
    let Some(spread) = spread else {
        let reason = ran.account.unknown.get(counter.name()).map_or("", String::as_str);
        return Some(Standing::NotHere(format!("{name} not known: {reason}")));
    };
    let found = match spread.is_constant() {
        true => spread.mode.to_string(),
        false => format!("{} to {}", spread.min, spread.max),
    };
    let differs = !spread.is_constant() || spread.mode != expected;
    differs.then(|| Standing::DoesNot(format!("{found} {name} in a round, not {expected}")))
}

/// Whether something needless was found where it has to be.
pub fn finding(finding: &Finding, runs: &[RunResult]) -> RelationResult {
    let Finding { text, what, function, run, target, times } = finding;
    let result = runs.iter().find(|result| result.name == *run);
    let result = result.and_then(|run| run.targets.iter().find(|known| known.target == *target));
    let standing = match result {
        Some(TargetResult { standing: Some(Standing::NotHere(reason)), .. }) => {
            Standing::NotHere(format!("{target}: {reason}"))
        }
        None => Standing::NotHere(format!("{target} did not run")),
        Some(result) => {
            let those = result.findings.iter().filter(|(found, _)| {
                found.what == *what && found.site.is_some_and(|site| site.function() == function)
            });
            let found: u64 = those.map(|(_, count)| count).sum();
            match found == times * result.rounds as u64 {
                true => Standing::Holds,
                false => {
                    Standing::DoesNot(format!("found {found} times in {} rounds", result.rounds))
                }
            }
        }
    };
    RelationResult {
        text: text.clone(),
        formula: format!("{times} needless {} in {function} a round on {target}", what.name()),
        sides: None,
        within: None,
        standing,
        margins: Vec::new(),
        follows: String::new(),
    }
}

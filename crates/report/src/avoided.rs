//! Finds what avoids the needless things that targets did: a later kernel, or a proposed policy.
//!
//! It tries: the model runs the scenario's first rounds on every kernel row, and on the newest row
//! with each proposal.

use crate::answer::{Avoided, Lowered, needless_counters};
use crate::compare::{Ran, Target};
use needless_model::account::Account;
use needless_model::counters::Counter;
use needless_model::kernels::{KernelRow, PROPOSALS};
use needless_model::program::{OpKind, Program};

/// The number of rounds that are tried on each row.
const ROUNDS: u32 = 4;

/// Scenarios with longer rounds are not tried: each row would take as long as the target.
const MOST_THINGS_IN_A_ROUND: usize = 10_000;

/// What avoids each kind of needless thing that a target did. Nothing is returned for targets of
/// several architectures. `run` gives the kinds of round of a program in a row (`None`: the program
/// cannot run there).
pub fn find(
    program: &Program,
    targets: &[Target],
    mut run: impl FnMut(&Program, &KernelRow) -> Option<Account>,
) -> Vec<Avoided> {
    let ran: Vec<(&str, &Ran)> =
        targets.iter().filter_map(|t| Some((row_of(t)?, t.ran()?))).collect();
    let did =
        |counter: &Counter| ran.iter().any(|(_, ran)| ran.account.typical(*counter) > Some(0));
    let counters: Vec<Counter> = needless_counters().filter(did).collect();
    let long = ran.iter().any(|(_, ran)| longest_round(&ran.account) > MOST_THINGS_IN_A_ROUND);
    let Some(arch) = one_arch(ran.iter().map(|(name, _)| *name)) else { return Vec::new() };
    if counters.is_empty() || long {
        return Vec::new();
    }
    let program = first_rounds(program);
    let mut account = |row: &str| {
        let row = KernelRow::parse(row).ok()?;
        run(&program, &row)
    };
    let names = KernelRow::names();
    let rows: Vec<Option<Account>> =
        names.iter().map(|name| account(&format!("{name}{arch}"))).collect();
    let (Some(newest), Some(Some(now))) = (names.last(), rows.last()) else { return Vec::new() };
    // Another processor is no rule of a kernel.
    let rules = PROPOSALS
        .iter()
        .filter(|proposal| proposal.changes.iter().all(|(policy, _)| *policy != "shootdown"));
    let proposals: Vec<(String, Account)> = rules
        .map(|proposal| format!("{newest}{arch}+{}", proposal.name))
        .filter_map(|row| Some((format!("model:{row}"), account(&row)?)))
        .collect();
    let avoided = |counter: Counter| {
        let zero = |row: &Option<Account>| {
            row.as_ref().and_then(|account| account.typical(counter)) == Some(0)
        };
        let since = rows.iter().rposition(|row| !zero(row)).map(|at| at + 1)?;
        let from = now.typical(counter)?;
        let lowered = |(target, account): &(String, Account)| {
            let to = account.typical(counter).filter(|to| *to < from)?;
            Some(Lowered { target: target.clone(), from, to })
        };
        Some(Avoided {
            counter,
            since: names.get(since).map(|name| (*name).to_owned()),
            proposals: proposals.iter().filter_map(lowered).collect(),
        })
    };
    counters.into_iter().filter_map(avoided).collect()
}

fn longest_round(account: &Account) -> usize {
    account.kinds.iter().map(|kind| kind.account.seen.len()).max().unwrap_or(0)
}

/// The model's row for a target.
fn row_of(target: &Target) -> Option<&str> {
    let reference = target.ran()?.reference.as_ref();
    reference.map_or(target.name.as_str(), |reference| &reference.row).strip_prefix("model:")
}

/// The architecture that all rows name, as it is written in a row's name: `/arm64`, or nothing.
fn one_arch<'a>(mut rows: impl Iterator<Item = &'a str>) -> Option<String> {
    let arch = |row: &str| {
        let named = row.split([',', '+']).next().unwrap_or("");
        named.find('/').map_or(String::new(), |at| named[at..].to_owned())
    };
    let first = arch(rows.next()?);
    rows.all(|row| arch(row) == first).then_some(first)
}

/// The program with only as many rounds as are tried.
fn first_rounds(program: &Program) -> Program {
    let mut program = program.clone();
    for op in program.threads.iter_mut().flat_map(|thread| &mut thread.body) {
        if let OpKind::Rounds { count, .. } = &mut op.kind {
            *count = (*count).min(ROUNDS);
        }
    }
    program
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_of_two_architectures_have_no_common_row() {
        let arch = |rows: &[&str]| one_arch(rows.iter().copied());
        assert_eq!(arch(&["6.18", "6.12,mglru=off"]), Some(String::new()));
        assert_eq!(arch(&["6.12/arm64,cpu=max"]), Some("/arm64".to_owned()));
        assert_eq!(arch(&["6.12/arm64", "6.12"]), None);
    }
}

//! A run in words: all that a real kernel's run is compared by, round by round, and the pages at
//! the end.
//!
//! `tests/agreed.tsv` and the tables of random sweeps hold hashes of this text, so it changes only
//! together with them.

use crate::agreement::SwapCounts;
use crate::program::Program;
use crate::run::{Round, TargetRun};
use crate::sequence::{Sequence, TraceOrder};

/// The longest group that is looked for.
const MAX_PERIOD: usize = 64;

/// The items with repeats folded, `(a b)x3`: at each place the group that covers most.
pub fn fold(items: &[String]) -> String {
    let mut parts = Vec::new();
    let mut at = 0;
    while at < items.len() {
        let rest = &items[at..];
        let repeats = |period: usize| {
            let same = |chunk: &&[String]| *chunk == &rest[..period];
            (period, 1 + rest[period..].chunks_exact(period).take_while(same).count())
        };
        let groups = (1..=MAX_PERIOD.min(rest.len() / 2)).map(repeats).filter(|(_, n)| *n > 1);
        let (period, count) =
            groups.rev().max_by_key(|(period, count)| period * count).unwrap_or((1, 1));
        let group = &rest[..period];
        parts.push(match (group, count) {
            ([item], 1) => item.clone(),
            ([item], _) => format!("{item}x{count}"),
            _ => format!("({})x{count}", fold(group)),
        });
        at += period * count;
    }
    parts.join(" ")
}

/// Faults (minor/major), sequence and swap counts of a round.
fn round(round: &Round, sequence: &str) -> String {
    let swapped = SwapCounts::modelled(round).named();
    let swapped = swapped.filter_map(|(name, count)| Some((name, count.filter(|n| *n > 0)?)));
    let swapped: String = swapped.map(|(name, count)| format!(" {name}={count}")).collect();
    let known = |count: Option<u64>| count.map_or("?".to_owned(), |count| count.to_string());
    let (minor, major) = (known(round.minor_faults), known(round.major_faults));
    format!("[{minor}/{major} {sequence}{swapped}]")
}

/// The run in words.
pub fn told(program: &Program, run: &TargetRun) -> String {
    let order = TraceOrder::of(run.rounds.iter().map(|round| &round.events[..]));
    let sequence = |round: &Round| Sequence::of(program, &round.events, order).to_string();
    let rounds: Vec<String> = run.rounds.iter().map(|r| round(r, &sequence(r))).collect();
    let pages = run.final_pages.iter().map(|(page, state)| format!(" {page}:{state}"));
    fold(&rounds) + &pages.collect::<String>()
}

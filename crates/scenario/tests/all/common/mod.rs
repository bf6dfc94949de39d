//! What several tests use: the reference captures, and a fold of repeats for readers.

use needless_model::agreement::SwapCounts;
use needless_model::program::Program;
use needless_model::run::{Round, TargetRun};
use needless_model::sequence::{Sequence, TraceOrder};

/// One line of the table: a scenario with its settings, on some kernels.
pub struct Capture {
    pub scenario: &'static str,
    pub kernels: Vec<&'static str>,
    pub faults: &'static str,
    pub sequence: &'static str,
}

/// The captures of x86-64 kernels.
pub fn captures() -> impl Iterator<Item = Capture> {
    lines(include_str!("../../../../../tests/captures.tsv"))
}

/// The captures of machines with several NUMA nodes.
pub fn captures_of_nodes() -> impl Iterator<Item = Capture> {
    lines(include_str!("../../../../../tests/captures-nodes.tsv"))
}

fn lines(table: &'static str) -> impl Iterator<Item = Capture> {
    table.lines().filter(|line| !line.starts_with('#')).map(|line| {
        let mut fields = line.split('\t');
        let mut field = || fields.next().expect("four fields");
        Capture {
            scenario: field(),
            kernels: field().split(' ').collect(),
            faults: field(),
            sequence: field(),
        }
    })
}

/// The longest group that the fold looks for.
const MAX_PERIOD: usize = 64;

/// The items with repeats folded, as in `(a b)x3`. At each place it takes the group that covers
/// most.
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
    let swapped = SwapCounts::modelled(round).named().filter(|(_, count)| *count != Some(0));
    let swapped = swapped.map(|(name, count)| format!(" {name}={}", count.unwrap()));
    let (minor, major) = (round.minor_faults.unwrap(), round.major_faults.unwrap());
    format!("[{minor}/{major} {sequence}{}]", swapped.collect::<String>())
}

/// Everything about a run that is compared with a real kernel: each round, then the pages at the
/// end.
pub fn told(program: &Program, run: &TargetRun) -> String {
    let order = TraceOrder::of(run.rounds.iter().map(|round| &round.events[..]));
    let sequence = |round: &Round| Sequence::of(program, &round.events, order).to_string();
    let rounds: Vec<String> = run.rounds.iter().map(|r| round(r, &sequence(r))).collect();
    let pages = run.final_pages.iter().map(|(page, state)| format!(" {page}:{state}"));
    fold(&rounds) + &pages.collect::<String>()
}

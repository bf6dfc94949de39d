//! What several tests need: the reference captures, and repeats folded for people.
#![allow(dead_code)]

/// One line of the table: a scenario on some kernels.
pub struct Capture {
    pub scenario: &'static str,
    pub kernels: Vec<&'static str>,
    pub faults: &'static str,
    pub sequence: &'static str,
}

/// The captures of x86-64 kernels.
pub fn captures() -> impl Iterator<Item = Capture> {
    let table = include_str!("../../../../tests/captures.tsv");
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

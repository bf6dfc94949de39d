//! What several tests use: the reference captures, and runs in words.

pub use needless_model::compared::{fold, told};

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

//! Draws scenarios with sizes up to the largest that are allowed. No run of them may take more
//! memory than it is given, or go on forever. This is the body of the fuzz target `sizes`, and of a
//! test.

use crate::{Settings, Source, rehearsed};
use needless_model::arch::X86_64;
use needless_model::kernels::KernelRow;
use needless_model::run::Round;
use needless_model::sim::{self, Look, SimError, SimOptions, Watch};
use std::fmt::Write;

/// Operations that fill page tables, frames, swap space or logs. `R` is a range of the first area,
/// `S` a range of the second.
const OPERATIONS: [&str; 26] = [
    "madvise \"R\" advice=\"guard-install\"",
    "madvise \"R\" advice=\"guard-remove\"",
    "madvise \"R\" advice=\"populate-read\"",
    "madvise \"R\" advice=\"populate-write\"",
    "madvise \"R\" advice=\"dontneed\"",
    "madvise \"R\" advice=\"free\"",
    "madvise \"R\" advice=\"pageout\"",
    "madvise \"R\" advice=\"hugepage\"",
    "madvise \"R\" advice=\"collapse\"",
    "process_madvise \"R\" advice=\"cold\" stride=2",
    "uffdio_register \"R\" mode=\"missing-wp\" features=\"unpopulated\"",
    "uffdio_writeprotect \"R\" mode=\"protect\"",
    "uffdio_fill \"R\" by=\"zeropage\"",
    "uffdio_fill \"R\" by=\"copy\"",
    "uffdio_fill \"R\" by=\"poison\"",
    "pagemap_scan \"R\" then=\"protect\"",
    "pagemap \"R\"",
    "clear-refs of=\"soft-dirty\"",
    "mlock \"R\"",
    "mprotect \"R\" prot=\"read\"",
    "mprotect \"R\" prot=\"read-write\"",
    "mremap \"R\" to=\"away\"",
    "fork \"child\"",
    "read \"R\"",
    "touch \"R\" access=\"write\" stride=512",
    "write \"S\"",
];

/// The bytes of memory that a run may take, and the number of looks that it may last.
const MEMORY: u64 = 16 << 20;
const LOOKS: u32 = 24;

/// Takes bytes one after the other, and zeros when none are left.
struct Drawn<'a>(&'a [u8]);

impl Drawn<'_> {
    fn below(&mut self, most: usize) -> usize {
        let byte = self.0.split_first().map_or(0, |(first, rest)| {
            self.0 = rest;
            *first
        });
        usize::from(byte) % most
    }

    /// A number of pages that is a power of two, or close to one.
    fn size(&mut self) -> u64 {
        let (order, more) = (self.below(36), self.below(4) as u64);
        (1_u64 << order).saturating_add(more).saturating_sub(1).clamp(1, 1 << 35)
    }
}

/// A text with drawn sizes, and the row that it runs on.
fn text(drawn: &mut Drawn<'_>) -> (String, KernelRow) {
    let rows = KernelRow::all();
    let row = rows[drawn.below(rows.len())].clone();
    let (pages, other) = (drawn.size(), drawn.size());
    let swap = ["", "swap \"zram\" size=\"1G\";"][drawn.below(2)];
    let backing = ["", " backing=\"shared\""][drawn.below(2)];
    let (mut setup, mut round) = (String::new(), String::new());
    for part in [&mut setup, &mut round] {
        for _ in 0..drawn.below(3) {
            let first = if drawn.below(2) == 0 { 0 } else { drawn.size() % pages };
            let operation = OPERATIONS[drawn.below(OPERATIONS.len())];
            let range = format!("heap[{first}..{pages}]");
            let operation = operation.replace("\"R\"", &format!("\"{range}\""));
            let _ = writeln!(part, "{}", operation.replace("\"S\"", "\"other\""));
        }
    }
    let text = format!(
        "scenario \"sizes\" {{\n machine {{ {swap} }}\n thread \"main\" cpu=0 {{\n map \"heap\" pages={pages}{backing}\n \
         map \"other\" pages={other}\n {setup} rounds 2 warmup=0 {{\n {round} }}\n }}\n process \"child\" cpu=1 {{ read \"heap[0]\" }}\n}}\n"
    );
    (text, row)
}

/// Ends a run after the given number of looks.
struct While(u32);

impl Watch for While {
    fn round(&mut self, _: &Round) {}

    fn look(&mut self, _: Look) -> Result<(), String> {
        self.0 -= 1;
        if self.0 == 0 { Err("enough is seen".to_owned()) } else { Ok(()) }
    }
}

/// Draws a scenario from these bytes and runs it in the model with little memory. Returns whether
/// it ran.
///
/// # Panics
/// Panics if the model contradicts itself for want of memory.
#[doc(hidden)]
pub fn exercise_sizes(bytes: &[u8]) -> bool {
    let (text, row) = text(&mut Drawn(bytes));
    let source = Source::new("sizes", &text);
    let Ok((program, _)) = rehearsed(&source, &Settings::default(), None, &X86_64) else {
        return false;
    };
    let options = SimOptions { memory: MEMORY, ..SimOptions::default() };
    match sim::run_with(&program, &row, &options, &mut While(LOOKS)) {
        Err(error @ (SimError::Inconsistent { .. } | SimError::NoProgress { .. })) => {
            panic!("{error}: {text}")
        }
        _ => true,
    }
}

//! The round from which on all rounds of a program are alike. Only such rounds of real kernels can
//! be repeated after a disturbance.
//!
//! A round that depends on those before it (by a first touch, a page table that stays, a batch that
//! fills) changes when it runs a second time in one process.

use super::{Look, SimOptions, Watch, run_with};
use crate::addr::{CpuId, Pfn};
use crate::event::{EventKind, FlushReason};
use crate::kernels::KernelRow;
use crate::program::Program;
use crate::run::Round;

/// The number of warm-up rounds after each of which a restart is tried.
const RENEWALS: u32 = 4;

/// The number of rounds to look at: at least `FEWEST`, since a short run may need many attempts,
/// and at most `MOST`.
const FEWEST: u32 = 32;
const MOST: u32 = 64;

/// `SOME` rounds are enough after `LONG` looks (see [`Watch::look`]), because the rounds are long.
/// After `TOO_LONG` looks the run stops in any case.
const SOME: u32 = 8;
const LONG: u32 = 4;
const TOO_LONG: u32 = 64;

/// The number of bytes that the model may take: enough for 65,536 pages, and 262,144 events of a
/// round.
const MEMORY: u64 = 96 << 20;

/// The first of `program`'s rounds that count from which on all rounds are alike on `row`, repeated
/// ones included; `u32::MAX` if they never are. If the model cannot run long enough to decide this,
/// the rounds count as alike.
pub fn alike_from(program: &Program, row: &KernelRow) -> u32 {
    let mut program = program.clone();
    let mut first = First { kinds: Vec::new(), numbers: Vec::new(), rounds: 0, looks: 0 };
    if !program.only_first_acts() {
        // Other acting threads count their turns themselves, so nothing is restarted.
        let from = first.settled(&program, row, Again::Never);
        return from.map_or(u32::MAX, |(from, _)| from as u32);
    }
    program.change_rounds(|count| count.max(FEWEST));
    let straight = first.settled(&program, row, Again::Never);
    let begins = first.numbers.first().copied();
    let repeated = first.settled(&program, row, Again::EachRound);
    let (Some((from, kind)), Some((from_repeated, same))) = (straight, repeated) else {
        return u32::MAX;
    };
    if kind != same {
        return u32::MAX;
    }
    // A warm-up that restarts after some of its rounds may lead to other rounds than one without a
    // break.
    program.change_rounds(|_| 1);
    let mut elsewhere = |after: u32| {
        first.settled(&program, row, Again::WarmUp(after));
        first.numbers.first().copied() != begins
    };
    let renewed = (1..=program.warmup().min(RENEWALS)).any(&mut elsewhere);
    u32::from(renewed).max(from.max(from_repeated) as u32)
}

/// The rounds that a run restarts.
#[derive(Copy, Clone)]
enum Again {
    Never,
    EachRound,
    /// The warm-up, after this many of its rounds.
    WarmUp(u32),
}

/// The events of a round that alike rounds have in common: what real kernels show, and on which
/// pages.
fn visible(round: &Round) -> Kind {
    let frame = Pfn(0);
    let shown = round.events.iter().filter_map(|event| {
        let kind = match event.kind {
            EventKind::Copy { page, .. } => EventKind::Copy { page, from: frame, to: frame },
            EventKind::PageIn { page, zero_filled, .. } => {
                EventKind::PageIn { page, frame, zero_filled }
            }
            EventKind::PageOut { page, zero_filled, .. } => {
                EventKind::PageOut { page, frame, zero_filled }
            }
            // The address-space identifier that a CPU assigns depends on everything that ran on it,
            // even on unrelated tasks: every sixth child flushes once more or less. No sequence
            // contains it.
            EventKind::Flush { reason: reason @ FlushReason::TaskSwitch, asked, .. } => {
                EventKind::Flush { reason, pages: None, asked }
            }
            // Batches free pages in some later round, when they are full.
            EventKind::Free { .. } | EventKind::Zero { .. } | EventKind::Pte { .. } => return None,
            EventKind::Split { .. } => return None,
            EventKind::RoundStart { .. } | EventKind::RoundEnd { .. } => return None,
            kind => kind,
        };
        Some((event.cpu, kind))
    });
    shown.collect()
}

/// The start and the kind of a run of equal kinds at the end, if it makes up at least half of all
/// rounds.
fn settled(kinds: &[usize]) -> Option<(usize, Option<usize>)> {
    let last = kinds.last();
    let alike = kinds.iter().rev().take_while(|&kind| Some(kind) == last).count();
    (alike * 2 >= kinds.len()).then(|| (kinds.len() - alike, last.copied()))
}

/// The visible events of rounds of one kind.
type Kind = Vec<(CpuId, EventKind)>;

/// The first rounds of a run, which ends after them.
struct First {
    kinds: Vec<Kind>,
    /// The number of each round's kind.
    numbers: Vec<usize>,
    rounds: u32,
    looks: u32,
}

impl First {
    /// Runs the first rounds. Returns the round from which on they are alike, and its kind.
    fn settled(
        &mut self,
        program: &Program,
        row: &KernelRow,
        again: Again,
    ) -> Option<(usize, Option<usize>)> {
        self.numbers.clear();
        (self.rounds, self.looks) = (0, 0);
        let (repeats, renews_after) = match again {
            Again::Never => (false, 0),
            Again::EachRound => (true, 0),
            Again::WarmUp(after) => (false, after),
        };
        let sizes = SimOptions { memory: MEMORY, ..SimOptions::default() };
        let options = SimOptions { repeats, renews_after, ..sizes };
        match run_with(program, row, &options, self) {
            // A round that fails is like no other round.
            Err(error) if !error.is_a_bound() => None,
            _ => settled(&self.numbers),
        }
    }
}

impl Watch for First {
    fn round(&mut self, round: &Round) {
        if self.rounds < MOST {
            let kind = visible(round);
            let known = self.kinds.iter().position(|known| *known == kind);
            self.numbers.push(known.unwrap_or(self.kinds.len()));
            if known.is_none() {
                self.kinds.push(kind);
            }
        }
        self.rounds += 1;
    }

    fn look(&mut self, _: Look) -> Result<(), String> {
        self.looks += 1;
        let enough = match self.rounds {
            rounds if rounds >= MOST => true,
            rounds if rounds >= SOME => self.looks >= LONG,
            _ => self.looks >= TOO_LONG,
        };
        if enough { Err("enough is seen".to_owned()) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lasts_for_half_is_settled() {
        assert_eq!(settled(&[0, 0, 0]), Some((0, Some(0))));
        assert_eq!(settled(&[0, 1, 1, 1]), Some((1, Some(1))));
        assert_eq!(settled(&[0, 1, 0, 1, 0, 1]), None);
        assert_eq!(settled(&[0, 1, 2, 3]), None);
        assert_eq!(settled(&[]), Some((0, None)));
    }
}

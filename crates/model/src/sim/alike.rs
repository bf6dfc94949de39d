//! From which round on rounds are alike: those of real kernels that were disturbed can then be repeated.
//!
//! A round that depends on those before it (a first touch, a page table that stays, a batch that fills)
//! is another one when it runs a second time in the same process.

use super::{Look, SimOptions, Watch, run_with};
use crate::addr::{CpuId, Pfn};
use crate::event::{EventKind, FlushReason};
use crate::kernels::KernelRow;
use crate::program::Program;
use crate::run::Round;

/// Rounds of a warm-up after each of which it is tried to begin again.
const RENEWALS: u32 = 4;

/// Rounds that are looked at: at least, since a short run may need many attempts, and at most.
const FEWEST: u32 = 32;
const MOST: u32 = 64;

/// Rounds that are enough where they are long, looks (see [`Watch::look`]) after which they are, and
/// after which nothing more is waited for.
const SOME: u32 = 8;
const LONG: u32 = 4;
const TOO_LONG: u32 = 64;

/// Bytes of memory that it may take: enough for 65,536 pages and 262,144 events of a round.
const MEMORY: u64 = 96 << 20;

/// The first of `program`'s rounds that count from which on all are alike on `row`, repeated ones too;
/// `u32::MAX` if they never are. What the model cannot run long enough to tell is taken for alike from
/// the start.
pub fn alike_from(program: &Program, row: &KernelRow) -> u32 {
    let mut program = program.clone();
    let mut first = First { kinds: Vec::new(), numbers: Vec::new(), rounds: 0, looks: 0 };
    if !program.only_first_acts() {
        // Others that act count their turns themselves; nothing is begun again.
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
    // A warm-up that begins again after some of its rounds may lead elsewhere than one without a break.
    program.change_rounds(|_| 1);
    let mut elsewhere = |after: u32| {
        first.settled(&program, row, Again::WarmUp(after));
        first.numbers.first().copied() != begins
    };
    let renewed = (1..=program.warmup().min(RENEWALS)).any(&mut elsewhere);
    u32::from(renewed).max(from.max(from_repeated) as u32)
}

/// Which rounds a run begins again.
#[derive(Copy, Clone)]
enum Again {
    Never,
    EachRound,
    /// The warm-up, after so many of its rounds.
    WarmUp(u32),
}

/// What of a round another one has to have, too: what real kernels show, and on which pages.
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
            // Which of its identifiers a CPU has for an address space follows from all that ran on it,
            // strangers too: every sixth child flushes once more or less. No sequence has it.
            EventKind::Flush { reason: reason @ FlushReason::TaskSwitch, asked, .. } => {
                EventKind::Flush { reason, pages: None, asked }
            }
            // Batches give pages back in some later round, as they fill.
            EventKind::Free { .. } | EventKind::Zero { .. } | EventKind::Pte { .. } => return None,
            EventKind::Split { .. } => return None,
            EventKind::RoundStart { .. } | EventKind::RoundEnd { .. } => return None,
            kind => kind,
        };
        Some((event.cpu, kind))
    });
    shown.collect()
}

/// Where a row of equal kinds begins that lasts for half of all, and the kind.
fn settled(kinds: &[usize]) -> Option<(usize, Option<usize>)> {
    let last = kinds.last();
    let alike = kinds.iter().rev().take_while(|&kind| Some(kind) == last).count();
    (alike * 2 >= kinds.len()).then(|| (kinds.len() - alike, last.copied()))
}

/// What rounds of one kind show.
type Kind = Vec<(CpuId, EventKind)>;

/// The first rounds of a run, which ends after them.
struct First {
    kinds: Vec<Kind>,
    /// Of each round, its kind's number.
    numbers: Vec<usize>,
    rounds: u32,
    looks: u32,
}

impl First {
    /// Runs the first rounds: where they settle, and on which kind.
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
            // A round that fails is like none before it.
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

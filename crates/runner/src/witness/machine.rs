//! Checks the machine's counters around rounds: did pages move that are not the scenario's, or that
//! the scenario did not move?

use super::reasons::{KERNELS_OWN, MINDED};
use crate::minders::Minders;
use crate::numa;
use crate::swapping::{self, Majors};
use crate::vmstat::{self, Counters};
use needless_model::program::{Advice, Program};
use std::collections::BTreeMap;

/// The counters of the machine at several times.
pub(super) struct Machine {
    counters: Counters,
    /// Whether the counters are read around each round. They are not in the timing pass.
    around_rounds: bool,
    /// Whether the scenario itself makes huge pages of small ones.
    collapses: bool,
    /// Whether the scenario itself moves pages between nodes.
    migrates: bool,
    /// The counters when the process began.
    start: Vec<u64>,
    /// The counters before the first round.
    first: Vec<u64>,
    first_interrupts: BTreeMap<String, u64>,
    /// The counters before this round.
    round: Vec<u64>,
    /// The counters at the end of the previous round, or when the state was last restored.
    since: Vec<u64>,
    minders: Minders,
}

impl Machine {
    /// Starts to watch. `minders` are the kernel threads that disturb a round if they run.
    pub(super) fn new(around_rounds: bool, program: &Program, minders: Minders) -> Machine {
        let mut counters = Counters::open();
        let start = if around_rounds { counters.read() } else { Vec::new() };
        Machine {
            collapses: program.advises(&[Advice::Collapse]),
            migrates: numa::migrates(program),
            start,
            counters,
            around_rounds,
            first: Vec::new(),
            first_interrupts: BTreeMap::new(),
            round: Vec::new(),
            since: Vec::new(),
            minders,
        }
    }

    /// The names of the counters.
    pub(super) fn names(&self) -> &[&'static str] {
        self.counters.names()
    }

    /// Called before the first round. Reads the counters.
    pub(super) fn first_round(&mut self) {
        self.first = self.counters.read();
        self.first_interrupts = vmstat::tlb_interrupts();
    }

    /// Called before each round. Reads the counters.
    pub(super) fn before(&mut self) {
        if self.around_rounds {
            self.round = self.counters.read();
            if self.since.is_empty() {
                self.since.clone_from(&self.round);
            }
        }
    }

    /// Called when the state is restored. Forgets how the counters have moved up to now.
    pub(super) fn forget(&mut self) {
        self.since.clear();
        self.minders.ran();
    }

    /// Called after each round, before anything else is checked. Returns the counters, and how they
    /// moved in the round.
    pub(super) fn after(&mut self) -> (Vec<u64>, Vec<u64>) {
        let now = if self.around_rounds { self.counters.read() } else { Vec::new() };
        let moved = vmstat::difference(&self.round, &now);
        (now, moved)
    }

    /// The reason if pages moved that are not the scenario's. `now` and `moved` come from
    /// [`Machine::after`]; `majors` are the round's major faults, and `written` is the number of
    /// pages that it wrote to swap, if known.
    pub(super) fn others_memory(
        &mut self,
        now: Vec<u64>,
        moved: &[u64],
        majors: Majors,
        written: Option<u64>,
    ) -> Option<String> {
        let since = std::mem::replace(&mut self.since, now);
        if !self.around_rounds {
            return None;
        }
        let names = self.counters.names();
        let swapped = swapping::strangers(names, moved, majors, written);
        let own =
            vmstat::kernels_own(names, &vmstat::difference(&since, &self.since), self.migrates);
        // A huge page that khugepaged made stays for all later rounds.
        let collapsed = vmstat::collapsed(names, &vmstat::difference(&self.start, &self.since));
        let own = own.or(collapsed.filter(|_| !self.collapses));
        let own = own.map(|counter| format!("{KERNELS_OWN} ({counter})"));
        let minder = self.minders.ran().map(|name| format!("{MINDED}: {name}"));
        swapped.map(str::to_owned).or(own).or(minder)
    }

    /// How much the counters have moved since the first round.
    pub(super) fn drift(&mut self) -> BTreeMap<String, u64> {
        let moved = vmstat::difference(&self.first, &self.counters.read());
        let names = self.counters.names().iter().map(|name| (*name).to_owned());
        let interrupts = vmstat::tlb_interrupts().into_iter().map(|(name, count)| {
            let before = self.first_interrupts.get(&name).copied().unwrap_or(count);
            (name, count.saturating_sub(before))
        });
        names.zip(moved).chain(interrupts).collect()
    }
}

//! What a round executed of the instructions that flush: on arm64, where no event of a real kernel tells of flushes.
//!
//! The model tells by its events, an emulator by counting ([`Round::instructions`]): by phase, and by the assembler's
//! name with what it is in front of it (`tlbi vale1is`, `dsb ish`).

use crate::event::{Event, EventKind};
use crate::program::Program;
use crate::run::Round;
use std::collections::BTreeMap;

/// Counts by name, for each phase of a round.
pub type Phases = Vec<BTreeMap<String, u64>>;

/// Barriers that flushes are made of. Others have reasons of their own, such as devices.
const BARRIERS: [&str; 4] = ["dsb ishst", "dsb ish", "dsb nshst", "dsb nsh"];

/// What each switch of a CPU to another thread executes (arch/arm64/kernel/process.c:__switch_to).
const SWITCH: &str = "dsb ish";

/// What the events of a round executed.
pub fn executed(events: &[Event]) -> Phases {
    let mut phases = vec![BTreeMap::new()];
    for event in events {
        let mut add = |name: String, times: u32| {
            let last = phases.last_mut().filter(|_| times > 0);
            if let Some(phase) = last {
                *phase.entry(name).or_default() += u64::from(times);
            }
        };
        match event.kind {
            EventKind::Tlbi { operation, single, ranged, .. } => {
                add(format!("tlbi {}", operation.name()), single);
                add(format!("tlbi r{}", operation.name()), ranged);
            }
            EventKind::Dsb { barrier, times } => add(format!("dsb {}", barrier.name()), times),
            EventKind::Switch { .. } => add(SWITCH.to_owned(), 1),
            EventKind::Mark { .. } => phases.push(BTreeMap::new()),
            _ => {}
        }
    }
    phases
}

/// What a round executed for the scenario's sake: without barriers of other kinds, and without those of the switches
/// that were seen. (A device's thread runs now and then on a CPU of the scenario, which disturbs nothing.) Where there are
/// several processes barriers are left out: their programs have page tables, too, which a fork makes and an exit frees.
pub fn of_the_scenario(program: &Program, round: &Round) -> Phases {
    let mut phases = round.instructions.clone();
    let alone = program.processes.len() < 2;
    let flushes =
        |name: &String| name.starts_with("tlbi ") || alone && BARRIERS.contains(&name.as_str());
    phases.iter_mut().for_each(|phase| phase.retain(|name, _| flushes(name)));
    let mut at = 0;
    for event in &round.events {
        match event.kind {
            EventKind::Mark { .. } => at += 1,
            EventKind::Switch { .. } => {
                let Some(phase) = phases.get_mut(at) else { continue };
                if let Some(left) = phase.remove(SWITCH).map(|times| times - 1)
                    && left > 0
                {
                    phase.insert(SWITCH.to_owned(), left);
                }
            }
            _ => {}
        }
    }
    phases
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::account::tests::program;
    use crate::addr::CpuId;
    use crate::event::{Dsb, Tlbi};

    fn event(kind: EventKind) -> Event {
        let (cpu, thread, op, site, verdict) = (CpuId(0), None, None, None, None);
        Event { seq: 0, time_ns: 0, cpu, thread, op, site, kind, verdict }
    }

    fn counts(of: &[(&str, u64)]) -> BTreeMap<String, u64> {
        of.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
    }

    #[test]
    fn events_and_counts_tell_the_same() {
        let flush =
            EventKind::Tlbi { operation: Tlbi::Vale1is, pages: Some(3), single: 1, ranged: 1 };
        let wait = EventKind::Dsb { barrier: Dsb::Ish, times: 1 };
        let events = [EventKind::Mark { mark: 0 }, flush, wait].map(event);
        let told = executed(&events);
        let flushes = [("tlbi vale1is", 1), ("tlbi rvale1is", 1), ("dsb ish", 1)];
        assert_eq!(told, [counts(&[]), counts(&flushes)]);

        // A device's barrier, and two switches, of which one falls into the first phase.
        let switch = EventKind::Switch { to: None };
        let events = [switch, EventKind::Mark { mark: 0 }, switch].map(event).to_vec();
        let instructions = vec![
            counts(&[("dsb ish", 1), ("dsb st", 4)]),
            counts(&[("tlbi vale1is", 1), ("tlbi rvale1is", 1), ("dsb ish", 2)]),
        ];
        let round = Round { events, instructions, ..Round::default() };
        assert_eq!(of_the_scenario(&program(), &round), told);
    }
}

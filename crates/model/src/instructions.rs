//! The flush instructions that a round executed. They are compared on arm64, where a real kernel
//! has no flush events.
//!
//! The model derives them from its events; an emulator counts them ([`Round::instructions`]). They
//! are listed by phase and by the assembler's name, mnemonic included (`tlbi vale1is`, `dsb ish`).

use crate::event::{Event, EventKind};
use crate::program::Program;
use crate::run::Round;
use std::collections::BTreeMap;

/// Counts by name, for each phase of a round.
pub type Phases = Vec<BTreeMap<String, u64>>;

/// The barriers that flushes use. Other barriers have other reasons, such as devices.
const BARRIERS: [&str; 4] = ["dsb ishst", "dsb ish", "dsb nshst", "dsb nsh"];

/// The barrier that a CPU executes when it switches to another thread
/// (arch/arm64/kernel/process.c:__switch_to).
const SWITCH: &str = "dsb ish";

/// The instructions that the events of a round stand for.
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
            EventKind::Mark { .. } => phases.push(BTreeMap::new()),
            _ => {}
        }
    }
    phases
}

/// The invalidations of each phase, as in `0 ¦ vale1is=1`.
pub fn invalidations(phases: &[BTreeMap<String, u64>]) -> String {
    let phase = |phase: &BTreeMap<String, u64>| {
        let counts = phase.iter().filter_map(|(name, count)| {
            name.strip_prefix("tlbi ").map(|name| format!("{name}={count}"))
        });
        let counts: Vec<String> = counts.collect();
        if counts.is_empty() { "0".to_owned() } else { counts.join(" ") }
    };
    phases.iter().map(phase).collect::<Vec<_>>().join(" ¦ ")
}

/// The flush instructions of a round, as far as the target shows them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Executed {
    /// The counts by phase, without unrelated barriers. With several processes no barriers are
    /// counted, because a fork also makes, and an exit also frees, the page tables of the process's
    /// own program. Empty where nothing is counted, and where a process continues with another
    /// program, whose flushes would be included.
    pub phases: Phases,
    /// The number of switches on the scenario's CPUs. (A device's thread runs there now and then,
    /// which changes nothing else.)
    switches: u64,
}

impl Executed {
    /// The flush instructions that a round of `program` shows.
    pub fn of(program: &Program, round: &Round) -> Executed {
        let alone = program.processes.len() < 2;
        let flushes =
            |name: &String| name.starts_with("tlbi ") || alone && BARRIERS.contains(&name.as_str());
        let mut phases =
            if program.executes() { Phases::new() } else { round.instructions.clone() };
        phases.iter_mut().for_each(|phase| phase.retain(|name, _| flushes(name)));
        let switch = |event: &&Event| matches!(event.kind, EventKind::Switch { .. });
        let switches = round.events.iter().filter(switch).count() as u64;
        Executed { phases, switches }
    }

    /// Whether a real round executed the model's instructions; `None` if one side does not show
    /// them. A switch adds one barrier to the phase in which it falls, or none if it falls between
    /// two rounds.
    pub fn agrees(&self, model: &Executed) -> Option<bool> {
        if self.phases.is_empty() || model.phases.is_empty() {
            return None;
        }
        let without = |phase: &BTreeMap<String, u64>| {
            let mut phase = phase.clone();
            (phase.remove(SWITCH).unwrap_or(0), phase)
        };
        let equal = |(real, model): (&BTreeMap<String, u64>, &BTreeMap<String, u64>)| {
            let ((waits, real), (expected, model)) = (without(real), without(model));
            real == model && (expected..=expected + self.switches).contains(&waits)
        };
        let phases = self.phases.iter().zip(&model.phases);
        Some(self.phases.len() == model.phases.len() && phases.into_iter().all(equal))
    }
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

        // A device adds a barrier, and a switch occurs.
        let of = |events: &[Event], phases: Phases| {
            let (events, instructions) = (events.to_vec(), phases);
            Executed::of(&program(), &Round { events, instructions, ..Round::default() })
        };
        let switch = event(EventKind::Switch { to: None });
        let counted = vec![
            counts(&[("dsb ish", 1), ("dsb st", 4)]),
            counts(&[("tlbi vale1is", 1), ("tlbi rvale1is", 1), ("dsb ish", 1)]),
        ];
        let model = of(&events, told);
        assert_eq!(of(&[switch], counted.clone()).agrees(&model), Some(true));
        assert_eq!(of(&[], counted.clone()).agrees(&model), Some(false), "a barrier nobody knows");
        let fewer = vec![counted[0].clone(), counts(&[("tlbi vale1is", 1), ("dsb ish", 1)])];
        assert_eq!(of(&[switch], fewer).agrees(&model), Some(false));
        assert_eq!(of(&[], Vec::new()).agrees(&model), None);
    }
}

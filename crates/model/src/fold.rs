//! Folding: rounds become kinds as they come, so that equal rounds are counted and not stored.
//!
//! Two rounds are of one kind if no account can distinguish them. Accounts ignore frame numbers,
//! times, and the page within an area, so the events of a kind leave these out. Event numbers of a
//! kind count from the round's first event.

use crate::account::{Account, Kind, RoundAt};
use crate::addr::{Pfn, Vpn};
use crate::event::{Event, EventKind};
use crate::program::Program;
use crate::run::Round;
use crate::sequence;
use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

/// The page that replaces every page outside the scenario's areas.
const STRANGE: Vpn = Vpn(u64::MAX);

/// Folds the rounds of a program into an account.
#[derive(Debug)]
pub struct Folding<'p> {
    program: &'p Program,
    kinds: Vec<Folded>,
    /// Kinds by the hash of their events.
    known: HashMap<u64, Vec<u32>, BuildHasherDefault<DefaultHasher>>,
    /// The kind of the last round.
    last: Option<u32>,
    total: usize,
    /// Every round with its kind; `None` if the kinds are enough.
    rounds: Option<Vec<RoundAt>>,
}

/// A kind of round.
#[derive(Debug)]
pub(crate) struct Folded {
    /// What the kind's rounds have in common.
    pub round: Round,
    /// The number of rounds, and which is the first.
    pub place: Kind<()>,
    /// The kind of the round that followed the last round of this kind.
    next: u32,
}

impl<'p> Folding<'p> {
    /// Begins to fold rounds of `program`. `every`: whether the kind of each round is kept as well.
    pub fn new(program: &'p Program, every: bool) -> Folding<'p> {
        Folding {
            program,
            kinds: Vec::new(),
            known: HashMap::default(),
            last: None,
            total: 0,
            rounds: every.then(Vec::new),
        }
    }

    /// Takes the next round.
    pub fn add(&mut self, round: &Round) {
        let first_seq = round.events.first().map_or(0, |event| event.seq);
        // Most rounds are like the previous one. Where kinds alternate, they do so repeatedly.
        let guess = self.last.map(|last| self.kinds[last as usize].next);
        let kind = match guess.filter(|&kind| self.is_of(kind, round, first_seq)) {
            Some(kind) => kind,
            None => self.kind_of(round, first_seq),
        };
        if let Some(last) = self.last.replace(kind) {
            self.kinds[last as usize].next = kind;
        }
        self.kinds[kind as usize].place.rounds += 1;
        if let Some(rounds) = &mut self.rounds {
            let (kind, cycles) = (kind as usize, round.cycles.clone());
            rounds.push(RoundAt { index: round.index, kind, first_seq, cycles });
        }
        self.total += 1;
    }

    /// The account of all rounds. `unseen` lists what the target cannot show.
    pub fn finish(self, unseen: &BTreeMap<String, String>) -> Account {
        Account::of_kinds(
            self.program,
            self.kinds,
            self.rounds.unwrap_or_default(),
            self.total,
            unseen,
        )
    }

    /// Whether `round`, whose first event is `first_seq`, is of this kind.
    fn is_of(&self, kind: u32, round: &Round, first_seq: u64) -> bool {
        let known = &self.kinds[kind as usize].round;
        let equal = |(known, event): (&Event, &Event)| self.is_plain(known, event, first_seq);
        known.events.len() == round.events.len()
            && (known.minor_faults, known.major_faults) == (round.minor_faults, round.major_faults)
            && known.kernel_counters == round.kernel_counters
            && known.instructions == round.instructions
            && known.events.iter().zip(&round.events).all(equal)
    }

    /// The kind of a round whose kind was not guessed correctly.
    fn kind_of(&mut self, round: &Round, first_seq: u64) -> u32 {
        let events: Vec<Event> =
            round.events.iter().map(|event| self.plain(event, first_seq)).collect();
        let hash = self.known.hasher().hash_one(&events);
        let same = self.known.get(&hash).into_iter().flatten().copied();
        if let Some(kind) = same.into_iter().find(|&kind| self.is_of(kind, round, first_seq)) {
            return kind;
        }
        let kind = self.kinds.len() as u32;
        let place =
            Kind { account: (), rounds: 0, first: self.total, index: round.index, first_seq };
        let round = Round {
            index: 0,
            events,
            cycles: Vec::new(),
            instructions: round.instructions.clone(),
            kernel_counters: round.kernel_counters.clone(),
            ..*round
        };
        self.kinds.push(Folded { round, place, next: kind });
        self.known.entry(hash).or_default().push(kind);
        kind
    }

    /// The event without the details that may differ between equal rounds.
    fn plain(&self, event: &Event, first_seq: u64) -> Event {
        let kind = self.plain_kind(event.kind);
        let verdict = event.verdict.map(|verdict| verdict.counted_from(first_seq));
        let seq = event.seq.wrapping_sub(first_seq);
        Event { seq, time_ns: 0, op: sequence::operation_of(event), kind, verdict, ..*event }
    }

    /// Whether `known` equals [`Folding::plain`] of the event. The plain event is not built for
    /// this.
    fn is_plain(&self, known: &Event, event: &Event, first_seq: u64) -> bool {
        let Event { seq, time_ns: _, cpu, thread, op: _, site, kind, verdict } = *event;
        known.seq == seq.wrapping_sub(first_seq)
            && known.op == sequence::operation_of(event)
            && (known.cpu, known.thread, known.site) == (cpu, thread, site)
            && known.verdict == verdict.map(|verdict| verdict.counted_from(first_seq))
            && known.kind == self.plain_kind(kind)
    }

    #[inline]
    fn plain_kind(&self, kind: EventKind) -> EventKind {
        let frame = Pfn(0);
        let page = |page| self.area_of(page);
        match kind {
            EventKind::Fault { page: at, code } => EventKind::Fault { page: page(at), code },
            EventKind::FaultDone { page: at, class, major, exception } => {
                EventKind::FaultDone { page: page(at), class, major, exception }
            }
            EventKind::Copy { page: at, .. } => {
                EventKind::Copy { page: page(at), from: frame, to: frame }
            }
            EventKind::FaultRetry { page: at, mapped } => {
                EventKind::FaultRetry { page: page(at), mapped }
            }
            EventKind::FaultAgain { page: at, tried } => {
                EventKind::FaultAgain { page: page(at), tried }
            }
            EventKind::FaultCompleted { page: at } => EventKind::FaultCompleted { page: page(at) },
            EventKind::MayFault { page: at } => EventKind::MayFault { page: page(at) },
            EventKind::Told { page: at, pages } => EventKind::Told { page: page(at), pages },
            EventKind::PageStatus { page: at, status } => {
                EventKind::PageStatus { page: page(at), status }
            }
            EventKind::Zero { page: at, .. } => EventKind::Zero { page: page(at), frame },
            EventKind::Split { page: at, shared, .. } => {
                EventKind::Split { page: page(at), frame, shared }
            }
            EventKind::PageIn { page: at, zero_filled, .. } => {
                EventKind::PageIn { page: page(at), frame, zero_filled }
            }
            EventKind::PageOut { page: at, zero_filled, .. } => {
                EventKind::PageOut { page: page(at), frame, zero_filled }
            }
            // Nothing counts these events. They only separate others.
            EventKind::Free { .. } | EventKind::Pte { .. } => EventKind::Free { frame },
            EventKind::Flush { reason, pages, .. } => {
                EventKind::Flush { reason, pages, asked: None }
            }
            EventKind::Switch { .. } => EventKind::Switch { to: None },
            EventKind::RoundStart { .. } => EventKind::RoundStart { round: 0 },
            EventKind::RoundEnd { .. } => EventKind::RoundEnd { round: 0 },
            kind @ (EventKind::Mark { .. }
            | EventKind::MeasureStart
            | EventKind::MeasureEnd
            | EventKind::TableSync { .. }
            | EventKind::Tlbi { .. }
            | EventKind::Dsb { .. }) => kind,
        }
    }

    /// The first page of the area that contains `page`.
    fn area_of(&self, page: Vpn) -> Vpn {
        let area = self.program.areas.iter().find(|area| area.range.contains(page));
        area.map_or(STRANGE, |area| area.range.start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::account::tests::{events, finding_round, program};

    /// The round, `by` events later, with other frames and at another time.
    fn later(round: &Round, index: u32, by: u64) -> Round {
        let mut round = Round { index, ..round.clone() };
        for event in &mut round.events {
            (event.seq, event.time_ns) = (event.seq + by, by);
        }
        round
    }

    #[test]
    fn equal_rounds_are_one_kind_whatever_their_numbers() {
        let (a, b) = (finding_round(), Round { events: events("0 P 0 4"), ..Round::default() });
        let program = program();
        let mut folding = Folding::new(&program, true);
        for number in 0..9 {
            let round = if number % 3 == 2 { &b } else { &a };
            folding.add(&later(round, number, u64::from(number) * 100));
        }
        let account = folding.finish(&BTreeMap::new());
        assert_eq!((account.total, account.kinds.len()), (9, 2));
        assert_eq!(account.kinds.iter().map(|kind| kind.rounds).collect::<Vec<_>>(), [6, 3]);
        assert_eq!((account.kinds[1].first, account.kinds[1].first_seq), (2, 200));
        let kinds: Vec<usize> = account.rounds.iter().map(|round| round.kind).collect();
        assert_eq!(kinds, [0, 0, 1, 0, 0, 1, 0, 0, 1]);
    }

    #[test]
    fn what_an_account_tells_apart_is_another_kind() {
        let program = program();
        let round = finding_round();
        let mut others = vec![Round { minor_faults: Some(1), ..round.clone() }];
        others.push(Round { kernel_counters: [("pswpin".into(), 1)].into(), ..round.clone() });
        for change in [
            |event: &mut Event| event.verdict = None,
            |event: &mut Event| event.thread = None,
            |event: &mut Event| event.cpu.0 += 1,
            |event: &mut Event| event.seq -= 1,
        ] {
            let mut other = round.clone();
            change(&mut other.events[1]);
            others.push(other);
        }
        let page = |page| {
            let mut other = Round { events: events("0 P 0 4"), ..Round::default() };
            if let EventKind::Fault { page: at, .. } = &mut other.events[0].kind {
                *at = Vpn(page);
            }
            other
        };
        others.extend([page(0), page(1 << 40)]);
        let mut folding = Folding::new(&program, false);
        others.iter().chain([&round, &page(63), &page(1 << 41)]).for_each(|r| folding.add(r));
        let account = folding.finish(&BTreeMap::new());
        assert_eq!((account.kinds.len(), account.total), (others.len() + 1, others.len() + 3));
        assert!(account.rounds.is_empty(), "nobody asked for every round");
    }
}

//! The canonical sequence of a round, by which targets are compared.
//!
//! It contains what a race-free scenario determines on every kernel, and nothing else: the faults
//! on the scenario's pages, the flushes that its threads issue, and its phase marks. A flush is one
//! token, which combines the send with the initiator's own part, in whichever order the kernel
//! traced them. Receives are left out, because it is not determined when another CPU answers.
//!
//! Notation: `R`, `W`, `WP` are faults (read and write of an absent page, write to a present one).
//! `IPI:MM(4)` is a shootdown of 4 pages of one address space, `IPI:BATCH(ALL)` the full flush of a
//! batched unmap, `loc:MM(1)` a flush that was not sent. `IPI:MM(1/send512)` is a flush whose two
//! parts have different page counts, `send(4)` one without a local part. `TLBI:vale1is(4)` is a
//! flush on arm64, by its operation (only the model shows it). `SYNC` is an interrupt of a CPU that
//! might be walking a page table without a lock. `to(1)` is a page that `move_pages` found on or
//! moved to node 1, `to(EBUSY)` one that it did not move. `¦ name:` is a phase mark. `x8` repeats a
//! token or a group in brackets.

use crate::addr::CpuId;
use crate::event::{Event, EventKind, FaultCode, FlushReason, Tlbi};
use crate::numa::PageStatus;
use crate::program::Program;
use std::fmt;

pub use crate::notation::NotationError;

/// One element of a [`Sequence`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Token {
    /// A fault.
    Fault(FaultToken),
    /// A flush that was sent to other CPUs.
    Shootdown {
        /// The number of pages in the send event; `None`: all.
        send: Option<u32>,
        /// The initiator's own part, if there is one.
        local: Option<LocalPart>,
    },
    /// A flush on the initiator only.
    Local(LocalPart),
    /// A flush on arm64: the operation, and the number of pages (`None`: all).
    Tlbi(Tlbi, Option<u32>),
    /// An interrupt of a CPU that might be walking a page table without a lock.
    TableSync,
    /// The status that `move_pages` returns for a page.
    PageStatus(PageStatus),
    /// A phase mark, by name.
    Mark(String),
}

/// The notation of [`Token::TableSync`].
pub(crate) const SYNC: &str = "SYNC";

/// Faults, as the error code distinguishes them.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FaultToken {
    /// A read of an absent page.
    R,
    /// A write to an absent page.
    W,
    /// A write to a present page without permission.
    Wp,
    /// A read of a present page without permission.
    Rp,
}

/// The initiator's part of a flush.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LocalPart {
    /// Whether it belongs to a batched unmap (`arch_tlbbatch_flush`).
    pub batch: bool,
    /// The number of pages; `None`: all.
    pub pages: Option<u32>,
}

impl From<FaultCode> for FaultToken {
    fn from(code: FaultCode) -> FaultToken {
        match (code.present(), code.write()) {
            (false, false) => FaultToken::R,
            (false, true) => FaultToken::W,
            (true, true) => FaultToken::Wp,
            (true, false) => FaultToken::Rp,
        }
    }
}

/// The order in which a kernel traces the two parts of a flush. It is constant for one kernel.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum TraceOrder {
    /// The send, then the initiator's part (6.1 and later).
    SendFirst,
    /// The initiator's part, then the send (5.10).
    LocalFirst,
}

impl TraceOrder {
    /// The order that leaves the fewest events without their other part. If both orders leave
    /// equally many, it is the one whose parts have equal page counts more often.
    pub fn of<'a>(rounds: impl IntoIterator<Item = &'a [Event]> + Clone) -> TraceOrder {
        TraceOrder::weighed(rounds.into_iter().map(|events| (events, 1)).collect::<Vec<_>>())
    }

    /// The trace order, as [`TraceOrder::of`] finds it, of rounds that each stand for a number of
    /// equal ones.
    pub(crate) fn weighed<'a>(
        rounds: impl IntoIterator<Item = (&'a [Event], usize)> + Clone,
    ) -> TraceOrder {
        let misfits = |order: TraceOrder| {
            let all = rounds.clone().into_iter();
            all.fold((0_usize, 0_usize), |(alone, unequal), (events, times)| {
                let (a, u) = misfits(events, order);
                (alone + a * times, unequal + u * times)
            })
        };
        if misfits(TraceOrder::LocalFirst) < misfits(TraceOrder::SendFirst) {
            TraceOrder::LocalFirst
        } else {
            TraceOrder::SendFirst
        }
    }
}

/// The number of flushes without one of their parts, and of flushes whose parts have unequal page
/// counts.
fn misfits(events: &[Event], order: TraceOrder) -> (usize, usize) {
    let parts = pair(events, order);
    parts.iter().fold((0, 0), |(alone, unequal), part| match part {
        FlushPart::Tlbi { .. } => (alone, unequal),
        FlushPart::Sent { send, local: Some(local) } => {
            (alone, unequal + usize::from(flush_pages(send) != flush_pages(local)))
        }
        _ => (alone + 1, unequal),
    })
}

/// A flush with its parts.
#[derive(Copy, Clone, Debug)]
pub enum FlushPart<'a> {
    /// The flush was sent to other CPUs.
    Sent {
        /// The send event.
        send: &'a Event,
        /// The initiator's part, unless the initiator did not have the address space loaded.
        local: Option<&'a Event>,
    },
    /// The flush was not sent.
    Local {
        /// The initiator's part.
        local: &'a Event,
    },
    /// The flush is one on arm64.
    Tlbi {
        /// The event of its instructions.
        tlbi: &'a Event,
        /// The `TLBI` operation.
        operation: Tlbi,
    },
}

impl FlushPart<'_> {
    /// The number of the flush's first event, which decides its position in the sequence.
    pub fn seq(&self) -> u64 {
        match self {
            FlushPart::Sent { send, local } => local.map_or(send.seq, |l| l.seq.min(send.seq)),
            FlushPart::Local { local } => local.seq,
            FlushPart::Tlbi { tlbi, .. } => tlbi.seq,
        }
    }

    fn operation(&self) -> Option<u32> {
        match self {
            FlushPart::Sent { send: part, .. }
            | FlushPart::Local { local: part }
            | FlushPart::Tlbi { tlbi: part, .. } => part.op,
        }
    }

    fn token(&self) -> Token {
        match self {
            FlushPart::Sent { send, local } => {
                Token::Shootdown { send: flush_pages(send), local: local.map(local_part) }
            }
            FlushPart::Local { local } => Token::Local(local_part(local)),
            FlushPart::Tlbi { tlbi, operation } => Token::Tlbi(*operation, flush_pages(tlbi)),
        }
    }
}

/// Whether one of the scenario's threads sends a shootdown.
pub(crate) fn is_send(event: &Event) -> bool {
    event.thread.is_some()
        && matches!(event.kind, EventKind::Flush { reason: FlushReason::RemoteSend, .. })
}

fn is_local(event: &Event) -> bool {
    event.thread.is_some()
        && matches!(
            event.kind,
            EventKind::Flush { reason: FlushReason::LocalBatch | FlushReason::LocalMm, .. }
        )
}

fn flush_pages(event: &Event) -> Option<u32> {
    match event.kind {
        EventKind::Flush { pages, .. } | EventKind::Tlbi { pages, .. } => pages,
        _ => None,
    }
}

fn local_part(event: &Event) -> LocalPart {
    let batch = matches!(event.kind, EventKind::Flush { reason: FlushReason::LocalBatch, .. });
    LocalPart { batch, pages: flush_pages(event) }
}

/// The operation in which a flush was sent or begun; it shows which parts belong together. `None`
/// for other events, where it does not matter.
pub(crate) fn operation_of(event: &Event) -> Option<u32> {
    event.op.filter(|_| is_send(event) || is_local(event))
}

/// The flushes of the scenario's threads, each send with its local part. Two parts belong together
/// if they are adjacent on one CPU in one operation, without a fault or a mark in between.
fn pair(events: &[Event], order: TraceOrder) -> Vec<FlushPart<'_>> {
    let mut flushes: Vec<FlushPart<'_>> = Vec::new();
    let mut open: Vec<(CpuId, usize)> = Vec::new();
    for event in events {
        let half = open.iter().position(|(cpu, _)| *cpu == event.cpu);
        let half = half.map(|at| open.swap_remove(at).1);
        let keep_open = match (half.map(|at| &mut flushes[at]), order) {
            (Some(FlushPart::Sent { local, send }), TraceOrder::SendFirst)
                if is_local(event) && send.op == event.op =>
            {
                *local = Some(event);
                continue;
            }
            (Some(part @ FlushPart::Local { .. }), TraceOrder::LocalFirst)
                if is_send(event) && part.operation() == event.op =>
            {
                if let FlushPart::Local { local } = *part {
                    *part = FlushPart::Sent { send: event, local: Some(local) };
                }
                continue;
            }
            // Receives and switches between the two parts do not separate them. Neither do freed
            // pages, which no real kernel shows.
            _ => matches!(
                event.kind,
                EventKind::Flush { .. } | EventKind::Switch { .. } | EventKind::Free { .. }
            ),
        };
        let opens = match order {
            TraceOrder::SendFirst => is_send(event),
            TraceOrder::LocalFirst => is_local(event),
        };
        if is_send(event) {
            flushes.push(FlushPart::Sent { send: event, local: None });
        } else if is_local(event) {
            flushes.push(FlushPart::Local { local: event });
        } else if let (Some(_), EventKind::Tlbi { operation, .. }) = (event.thread, event.kind) {
            flushes.push(FlushPart::Tlbi { tlbi: event, operation });
        } else if let (Some(at), true) = (half, keep_open) {
            open.push((event.cpu, at));
        }
        if opens {
            open.push((event.cpu, flushes.len() - 1));
        }
    }
    flushes
}

/// An element of a sequence, with its events.
#[derive(Copy, Clone, Debug)]
pub enum Operation<'a> {
    /// A fault on one of the scenario's pages.
    Fault(&'a Event, FaultCode),
    /// A flush.
    Flush(FlushPart<'a>),
    /// An interrupt of a CPU that might be walking a page table without a lock.
    TableSync(&'a Event),
    /// The status that `move_pages` returns for a page.
    PageStatus(&'a Event, PageStatus),
    /// A phase mark.
    Mark(&'a Event, u16),
}

impl Operation<'_> {
    /// The number of the first event.
    pub fn seq(&self) -> u64 {
        match self {
            Operation::Fault(event, _)
            | Operation::TableSync(event)
            | Operation::PageStatus(event, _)
            | Operation::Mark(event, _) => event.seq,
            Operation::Flush(flush) => flush.seq(),
        }
    }
}

/// The faults, flushes, marks and other elements of one round, in order.
pub fn operations<'a>(
    program: &Program,
    events: &'a [Event],
    order: TraceOrder,
) -> Vec<Operation<'a>> {
    let mut all: Vec<Operation<'a>> =
        pair(events, order).into_iter().map(Operation::Flush).collect();
    all.extend(events.iter().filter_map(|event| match event.kind {
        EventKind::Fault { page, code } if event.thread.is_some() && program.owns(page) => {
            Some(Operation::Fault(event, code))
        }
        EventKind::TableSync { .. } if event.thread.is_some() => Some(Operation::TableSync(event)),
        EventKind::PageStatus { status, .. } => Some(Operation::PageStatus(event, status)),
        EventKind::Mark { mark } => Some(Operation::Mark(event, mark)),
        _ => None,
    }));
    all.sort_by_key(Operation::seq);
    all
}

/// The canonical sequence of one round. Sequences are equal if their token lists are. The text form
/// is for people.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sequence(pub Vec<Token>);

impl Sequence {
    /// The sequence of one round's events.
    pub fn of(program: &Program, events: &[Event], order: TraceOrder) -> Sequence {
        let token = |operation: Operation<'_>| match operation {
            Operation::Fault(_, code) => Token::Fault(code.into()),
            Operation::Flush(flush) => flush.token(),
            Operation::TableSync(_) => Token::TableSync,
            Operation::PageStatus(_, status) => Token::PageStatus(status),
            Operation::Mark(_, mark) => {
                Token::Mark(program.marks.get(usize::from(mark)).cloned().unwrap_or_default())
            }
        };
        Sequence(operations(program, events, order).into_iter().map(token).collect())
    }

    /// The number of additional faults compared with `model`: writes to present pages that a
    /// processor may choose to take, before the tokens `may_fault` of the model's sequence. `None`
    /// if the sequences differ in any other way.
    ///
    /// It may be ambiguous which of these faults were taken, so all possibilities are tried.
    pub fn more_than(&self, model: &Sequence, may_fault: &[usize]) -> Option<u64> {
        let (real, model) = (self.0.as_slice(), model.0.as_slice());
        let alike = |from: usize, to: usize, more: usize| {
            real.get(from + more..to + more) == Some(&model[from..to])
        };
        let faults = |at: usize| real.get(at) == Some(&Token::Fault(FaultToken::Wp));
        let (mut at, mut taken) = (0, vec![0]);
        for &next in may_fault {
            taken.retain(|more| alike(at, next, *more));
            at = next;
            let more = taken.iter().filter(|more| faults(at + **more)).map(|more| more + 1);
            let more: Vec<usize> = more.collect();
            taken.extend(more);
            taken.sort_unstable();
            taken.dedup();
        }
        taken.retain(|more| alike(at, model.len(), *more));
        let whole = |more: &usize| model.len() + more == real.len();
        taken.into_iter().find(whole).map(|more| more as u64)
    }

    /// The sequence without [`Token::TableSync`], for a kernel that does not show these interrupts,
    /// and the new positions of `tokens`.
    pub fn without_syncs(&self, tokens: &[usize]) -> (Sequence, Vec<usize>) {
        let shown = |token: &&Token| **token != Token::TableSync;
        let before = |at: &usize| self.0[..*at].iter().filter(shown).count();
        (
            Sequence(self.0.iter().filter(shown).cloned().collect()),
            tokens.iter().map(before).collect(),
        )
    }

    /// All tokens of the sequence, for a side-by-side view.
    pub fn tokens(&self) -> &[Token] {
        &self.0
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Token::Fault(FaultToken::R) => f.write_str("R"),
            Token::Fault(FaultToken::W) => f.write_str("W"),
            Token::Fault(FaultToken::Wp) => f.write_str("WP"),
            Token::Fault(FaultToken::Rp) => f.write_str("RP"),
            Token::Shootdown { send, local: None } => write!(f, "send({})", Pages(*send)),
            Token::Shootdown { send, local: Some(local) } if *send == local.pages => {
                write!(f, "IPI:{}({})", path(local.batch), Pages(*send))
            }
            Token::Shootdown { send, local: Some(local) } => {
                write!(f, "IPI:{}({}/send{})", path(local.batch), Pages(local.pages), Pages(*send))
            }
            Token::Local(local) => write!(f, "loc:{}({})", path(local.batch), Pages(local.pages)),
            Token::Tlbi(operation, pages) => {
                write!(f, "TLBI:{}({})", operation.name(), Pages(*pages))
            }
            Token::TableSync => f.write_str(SYNC),
            Token::PageStatus(status) => write!(f, "to({status})"),
            Token::Mark(name) if name.is_empty() => f.write_str("¦"),
            Token::Mark(name) => write!(f, "¦ {name}:"),
        }
    }
}

struct Pages(Option<u32>);

impl fmt::Display for Pages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(pages) => pages.fmt(f),
            None => f.write_str("ALL"),
        }
    }
}

const fn path(batch: bool) -> &'static str {
    if batch { "BATCH" } else { "MM" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::account::tests::{events, program};

    #[test]
    fn a_fault_that_may_be_is_no_difference_where_it_may_be() {
        use FaultToken::{R, W, Wp};
        let sequence = |faults: &[FaultToken]| {
            Sequence(faults.iter().map(|fault| Token::Fault(*fault)).collect())
        };
        let model = sequence(&[R, Wp, W]);
        let more = |faults: &[FaultToken], may: &[usize]| sequence(faults).more_than(&model, may);
        assert_eq!(more(&[R, Wp, W], &[]), Some(0));
        assert_eq!(more(&[R, Wp, W], &[1, 2]), Some(0));
        assert_eq!(more(&[R, Wp, Wp, W], &[]), None);
        assert_eq!(more(&[R, Wp, Wp, W], &[1]), Some(1));
        assert_eq!(more(&[R, Wp, Wp, W], &[2]), Some(1));
        assert_eq!(more(&[R, Wp, Wp, W], &[3]), None, "behind the W");
        assert_eq!(more(&[R, Wp, Wp, Wp, W], &[1]), None, "each once");
        assert_eq!(more(&[R, Wp, Wp, Wp, W], &[1, 2]), Some(2));
        assert_eq!(more(&[R, Wp, W, Wp], &[3]), Some(1));
        assert_eq!(more(&[R, Wp, W, Wp], &[]), None);
        assert_eq!(more(&[R, R, Wp, W], &[1]), None, "only a write to a present page");
        assert_eq!(more(&[R, Wp], &[1]), None);
    }

    /// Checks the sequence of raw events, in the notation of the captures (`cpu F reason pages`,
    /// `cpu P page code`, `cpu M mark`).
    fn check(raw: &str, expected: &str) {
        let program = program();
        let events = events(raw);
        let order = TraceOrder::of([events.as_slice()]);
        let sequence = Sequence::of(&program, &events, order);
        assert_eq!(sequence.to_string(), expected);
        assert_eq!(expected.parse(), Ok(sequence), "the text reads back");
    }

    #[test]
    fn swap_in_and_copy_on_5_10() {
        check(
            "0 F 3 -1, 0 F 4 -1, 1 F 1 -1, 0 F 2 -1, 0 F 4 -1, 1 F 1 -1, 0 F 1 0, 0 F 3 1, \
             0 F 4 1, 1 F 1 1, 0 F 1 0, 0 P 0 4, 0 P 0 7, 0 F 3 1, 0 F 4 1, 1 F 1 1, 0 F 1 0",
            "IPI:MM(ALL) IPI:BATCH(ALL) IPI:MM(1) R WP IPI:MM(1)",
        );
    }

    #[test]
    fn swap_in_and_reuse_on_6_1() {
        check(
            "0 F 4 -1, 0 F 3 -1, 1 F 1 -1, 0 F 4 -1, 0 F 2 -1, 1 F 1 -1, 0 F 4 -1, 0 F 2 -1, \
             1 F 1 -1, 0 F 4 2, 0 F 3 2, 1 F 1 2, 0 P 0 4, 0 P 0 7, 0 P 1 4, 0 P 1 7",
            "IPI:MM(ALL) IPI:BATCH(ALL)x2 IPI:MM(2) (R WP)x2",
        );
    }

    #[test]
    fn a_receive_before_the_local_part_does_not_part_them() {
        check("0 F 4 -1, 1 F 1 -1, 0 F 3 -1, 0 P 0 4", "IPI:MM(ALL) R");
    }

    #[test]
    fn marks_and_local_flushes() {
        check("0 P 0 6, 0 M 0, 0 F 3 1", "W ¦ unmap: loc:MM(1)");
        check("0 F 4 1, 0 F 3 1, 0 M 1, 0 F 4 1, 0 F 3 1, 0 M 2", "IPI:MM(1) ¦ rw: IPI:MM(1) ¦ w:");
        check("0 M 0", "¦ unmap:");
        check("", "(none)");
    }

    #[test]
    fn local_flushes_alone_stay_alone() {
        check("0 F 3 1, 0 F 3 1, 0 P 0 4, 0 P 0 7, 0 F 3 1", "loc:MM(1)x2 R WP loc:MM(1)");
    }

    #[test]
    fn a_huge_page_counts_differently_in_the_two_parts() {
        check("0 P 0 6, 0 M 0, 0 F 4 512, 0 F 3 1", "W ¦ unmap: IPI:MM(1/send512)");
        check("0 F 4 8", "send(8)");
    }

    #[test]
    fn strangers_and_foreign_pages_are_left_out() {
        check("0 P 99999 6, 0 f 3 -1, 0 P 0 4, 0 F 0 -1", "R");
    }

    #[test]
    fn the_order_of_one_run_is_one() {
        let program = program();
        let rounds = [events("0 F 3 1, 0 F 4 1"), events("0 F 3 -1, 0 F 3 1, 0 F 4 1")];
        let order = TraceOrder::of(rounds.iter().map(Vec::as_slice));
        assert_eq!(order, TraceOrder::LocalFirst);
        let second = Sequence::of(&program, &rounds[1], order);
        assert_eq!(second.to_string(), "loc:MM(ALL) IPI:MM(1)");
    }
}

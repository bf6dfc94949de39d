//! Turns the log of a run into rounds of events.
//!
//! Records are put in order of time. Records of equal time are put in causal order ([`Raw::rank`]).
//! The whole log is read, set-up and warm-up included, because it shows where pages came from.
//! Events are made only for rounds that count.

use crate::classify::{History, Seen};
use crate::log::{Attempt, Kind, Log, Raw};
use crate::tids::Tids;
use crate::vmstat;
use needless_model::addr::{CpuId, ProcessId, ThreadId, Vpn};
use needless_model::event::{Event, EventKind, FaultClass, FaultCode, FlushReason};
use needless_model::numa::PageStatus;
use needless_model::program::Program;
use needless_model::run::Round;

/// A fault whose end has not been seen yet.
#[derive(Copy, Clone)]
struct Open {
    page: Vpn,
    code: FaultCode,
    flushed_page: bool,
    /// Whether userfaultfd reported it.
    asked: bool,
}

/// What the decoder knows about one thread.
#[derive(Copy, Clone, Default)]
struct ThreadState {
    op: Option<u32>,
    fault: Option<Open>,
    /// Whether its process called `exec`.
    execs: bool,
}

struct Decoder<'a> {
    program: &'a Program,
    tids: Tids,
    sees_flushes: bool,
    threads: Vec<ThreadState>,
    history: History,
    seq: u64,
}

/// Decodes the rounds that count, in order. `tids` are the threads of the first process of
/// `program`; `counters` has the names of the kernel counters.
pub fn rounds(
    program: &Program,
    log: &mut Log,
    tids: &[i32],
    sees_flushes: bool,
    counters: &[&'static str],
) -> Vec<Round> {
    log.records.sort_by_key(|record| (record.time, record.rank()));
    let mut decoder = Decoder {
        program,
        tids: Tids::new(tids),
        sees_flushes,
        threads: vec![ThreadState::default(); program.threads.len()],
        history: History::new(program),
        seq: 0,
    };
    let mut rounds: Vec<Round> = Vec::new();
    let mut events = None;
    if log.records.is_empty() {
        let kept = log.attempts.iter().filter(|attempt| attempt.kept);
        return kept.map(|attempt| round(attempt, log, counters, Vec::new())).collect();
    }
    for record in &log.records {
        let attempt = log.attempts.get(record.value as usize);
        match (record.kind, attempt) {
            (Kind::RoundStart, Some(attempt)) => {
                let start = EventKind::RoundStart { round: attempt.index };
                events = attempt.kept.then(|| vec![decoder.event(record, None, start)]);
            }
            (Kind::RoundEnd, Some(attempt)) => {
                if let Some(mut events) = events.take() {
                    let end = EventKind::RoundEnd { round: attempt.index };
                    events.push(decoder.event(record, None, end));
                    rounds.push(round(attempt, log, counters, events));
                }
            }
            _ => decoder.record(record, events.as_mut()),
        }
    }
    rounds
}

fn round(attempt: &Attempt, log: &Log, names: &[&'static str], events: Vec<Event>) -> Round {
    let counted = names.iter().zip(attempt.counters.iter().copied());
    let counted = counted.filter(|(name, _)| vmstat::is_of_rounds(name));
    Round {
        index: u32::try_from(attempt.index).unwrap_or(0),
        events,
        minor_faults: Some(attempt.minor_faults),
        major_faults: Some(attempt.major_faults),
        cycles: log.cycles[attempt.cycles_from..attempt.cycles_to].to_vec(),
        kernel_counters: counted.map(|(name, moved)| ((*name).to_owned(), moved)).collect(),
        // Only the emulator of a guest knows the instructions.
        instructions: Vec::new(),
    }
}

impl Decoder<'_> {
    fn thread(&self, tid: i32) -> Option<usize> {
        self.tids.thread(tid)
    }

    fn event(&mut self, record: &Raw, op: Option<u32>, kind: EventKind) -> Event {
        self.seq += 1;
        Event {
            seq: self.seq,
            time_ns: record.time,
            cpu: CpuId(record.cpu),
            thread: self.thread(record.tid).map(|index| ThreadId(index as u16)),
            op,
            site: None,
            kind,
            verdict: None,
        }
    }

    /// Handles one record: updates the state, and writes an event where events are wanted.
    fn record(&mut self, record: &Raw, events: Option<&mut Vec<Event>>) {
        let thread = self.thread(record.tid);
        let kind = match record.kind {
            Kind::Lost => {
                self.history.forget();
                self.threads.iter_mut().for_each(|state| state.fault = None);
                None
            }
            Kind::Op => {
                if record.extra == 1 {
                    self.history.forget();
                }
                if let Some(thread) = thread {
                    self.threads[thread].op = Some(record.value as u32);
                }
                None
            }
            Kind::Forked => {
                self.forked(thread, record);
                None
            }
            Kind::Exec => {
                if let Some(thread) = thread {
                    self.threads[thread].execs = true;
                }
                None
            }
            Kind::Fault => self.in_scenario(thread).map(|thread| self.fault(thread, record)),
            Kind::FaultDone => thread.and_then(|thread| self.fault_done(thread, record)),
            Kind::Flush => self.flush(thread, record),
            Kind::Told => {
                let page = Vpn::containing(record.value);
                Some(EventKind::Told { page, pages: record.extra as u32 })
            }
            Kind::PageStatus => {
                let status = PageStatus(record.extra as i32);
                Some(EventKind::PageStatus { page: Vpn::containing(record.value), status })
            }
            Kind::Asked => {
                let page = Vpn::containing(record.value);
                let open = self.threads.iter_mut().filter_map(|state| state.fault.as_mut());
                open.filter(|open| open.page == page).for_each(|open| open.asked = true);
                (record.extra == 1).then_some(EventKind::Told { page, pages: 1 })
            }
            Kind::Signal => return self.signalled(thread, record, events),
            Kind::SwitchIn => {
                let to = self.thread(record.value as i32).map(|index| ThreadId(index as u16));
                Some(EventKind::Switch { to })
            }
            Kind::TableSync => self
                .in_scenario(thread)
                .map(|_| EventKind::TableSync { to: CpuId(record.value as u16) }),
            Kind::Mark => Some(EventKind::Mark { mark: record.value as u16 }),
            Kind::MeasureStart => Some(EventKind::MeasureStart),
            Kind::MeasureEnd => Some(EventKind::MeasureEnd),
            Kind::RoundStart
            | Kind::RoundEnd
            | Kind::SwitchOut
            | Kind::Write
            | Kind::Drained
            | Kind::Charged
            | Kind::WentOn => None,
        };
        if let (Some(kind), Some(events)) = (kind, events) {
            let op = thread.and_then(|thread| self.threads[thread].op);
            events.push(self.event(record, op, kind));
        }
    }

    /// A fault that ended in a signal. No kernel traces such an end; the signal handler reports it.
    fn signalled(&mut self, thread: Option<usize>, record: &Raw, events: Option<&mut Vec<Event>>) {
        let page = Vpn::containing(record.value);
        let open = thread.and_then(|thread| self.threads[thread].fault.take());
        let op = thread.and_then(|thread| self.threads[thread].op);
        let Some(events) = events else { return };
        if open.is_some_and(|open| open.page == page) {
            let class = FaultClass::Signal;
            let done = EventKind::FaultDone { page, class, major: false, exception: true };
            events.push(self.event(record, op, done));
        }
        events.push(self.event(record, op, EventKind::Told { page, pages: 1 }));
    }

    /// A process begins, with its parent's pages.
    fn forked(&mut self, parent: Option<usize>, record: &Raw) {
        self.tids.learn(std::slice::from_ref(record));
        let child = record.extra as usize;
        if let (Some(parent), true) = (parent, child < self.threads.len()) {
            self.threads[child] = ThreadState::default();
            self.history.fork(self.process(parent), self.process(child));
        }
    }

    fn process(&self, thread: usize) -> ProcessId {
        self.program.threads[thread].process
    }

    /// The thread, unless its process has called `exec`: then its actions are not the scenario's.
    fn in_scenario(&self, thread: Option<usize>) -> Option<usize> {
        thread.filter(|thread| !self.threads[*thread].execs)
    }

    fn fault(&mut self, thread: usize, record: &Raw) -> EventKind {
        let page = Vpn::containing(record.value);
        let code = FaultCode(record.extra as u8);
        self.threads[thread].fault = Some(Open { page, code, flushed_page: false, asked: false });
        EventKind::Fault { page, code }
    }

    /// The end of a fault that took an exception from user mode. Faults without an exception give
    /// nothing.
    fn fault_done(&mut self, thread: usize, record: &Raw) -> Option<EventKind> {
        let open = self.threads[thread].fault.take()?;
        if open.page != Vpn::containing(record.value) {
            return None;
        }
        let major = record.extra == 1;
        let class: FaultClass = self.history.classify(Seen {
            process: self.process(thread),
            page: open.page,
            code: Some(open.code),
            backing: self.program.backing_of(open.page),
            major,
            flushed_page: self.sees_flushes.then_some(open.flushed_page),
            asked: open.asked,
        });
        Some(EventKind::FaultDone { page: open.page, class, major, exception: true })
    }

    /// Flushes that the scenario's threads issue, and everything that its CPUs receive. After
    /// `exec` a process counts only as a sender. Its new program runs on one CPU alone, so it sends
    /// flushes only for the memory that it had before.
    fn flush(&mut self, thread: Option<usize>, record: &Raw) -> Option<EventKind> {
        let reason = record.flush_reason()?;
        if reason.is_initiators() {
            let thread = match reason {
                FlushReason::RemoteSend => thread?,
                _ => self.in_scenario(thread)?,
            };
            let state = &mut self.threads[thread];
            if let Some(fault) = &mut state.fault {
                fault.flushed_page |= reason == FlushReason::LocalMm && record.value == 1;
            }
        }
        let pages = u32::try_from(record.value).ok();
        Some(EventKind::Flush { reason, pages, asked: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use needless_model::program::Thread;

    fn raw(time: u64, kind: Kind, value: u64, extra: u64, tid: i32, cpu: u16) -> Raw {
        Raw { time, value, extra, tid, cpu, kind }
    }

    fn log(records: Vec<Raw>, kept: bool) -> Log {
        let attempt = Attempt {
            index: 0,
            kept,
            minor_faults: 1,
            major_faults: 0,
            cycles_from: 0,
            cycles_to: 0,
            counters: vec![],
        };
        let mut log = Log::new(true, 1);
        (log.records, log.attempts) = (records, vec![attempt]);
        log
    }

    fn kinds(mut log: Log) -> Vec<EventKind> {
        let thread = |cpu| Thread::new("t", CpuId(cpu), Vec::new());
        let mut threads = vec![thread(0), thread(1), thread(2)];
        threads[2].process = ProcessId(1);
        let program = Program { threads, ..Program::default() };
        let rounds = rounds(&program, &mut log, &[10, 11, 0], true, &[]);
        rounds.into_iter().flat_map(|round| round.events).map(|event| event.kind).collect()
    }

    #[test]
    fn equal_times_are_ordered_as_causes_are() {
        let records = vec![
            raw(5, Kind::RoundEnd, 0, 0, 10, 0),
            raw(5, Kind::Flush, u64::MAX, 1, 11, 1),
            raw(5, Kind::Flush, u64::MAX, 4, 10, 0),
            raw(5, Kind::Fault, 0x7000, 6, 10, 0),
            raw(5, Kind::FaultDone, 0x7000, 0, 10, 0),
            raw(5, Kind::RoundStart, 0, 0, 10, 0),
        ];
        let flush = |reason| EventKind::Flush { reason, pages: None, asked: None };
        let (page, class) = (Vpn(7), FaultClass::FirstTouch);
        assert_eq!(
            kinds(log(records, true)),
            [
                EventKind::RoundStart { round: 0 },
                EventKind::Fault { page, code: FaultCode(6) },
                flush(FlushReason::RemoteSend),
                flush(FlushReason::RemoteShootdown),
                EventKind::FaultDone { page, class, major: false, exception: true },
                EventKind::RoundEnd { round: 0 },
            ]
        );
    }

    #[test]
    fn strangers_sends_are_left_out_and_set_up_tells_where_pages_came_from() {
        let records = vec![
            raw(1, Kind::Fault, 0x7000, 4, 10, 0),
            raw(2, Kind::FaultDone, 0x7000, 0, 10, 0),
            raw(3, Kind::RoundStart, 0, 0, 10, 0),
            raw(4, Kind::Flush, 1, 4, 99, 0),
            raw(5, Kind::Fault, 0x7000, 7, 10, 0),
            raw(6, Kind::Flush, 1, 3, 10, 0),
            raw(7, Kind::FaultDone, 0x7000, 0, 10, 0),
            raw(8, Kind::RoundEnd, 0, 0, 10, 0),
        ];
        let kinds = kinds(log(records, true));
        assert_eq!(kinds.len(), 5, "{kinds:?}");
        let class = FaultClass::ZeroUpgrade;
        let done = EventKind::FaultDone { page: Vpn(7), class, major: false, exception: true };
        assert_eq!(kinds[3], done);
    }

    #[test]
    fn a_child_knows_where_its_parents_pages_came_from() {
        let write = |time, tid, cpu| {
            [
                raw(time, Kind::Fault, 0x7000, 7, tid, cpu),
                raw(time + 1, Kind::Flush, 1, 3, tid, cpu),
                raw(time + 2, Kind::FaultDone, 0x7000, 0, tid, cpu),
            ]
        };
        let mut records = vec![
            raw(1, Kind::Fault, 0x7000, 4, 10, 0),
            raw(2, Kind::FaultDone, 0x7000, 0, 10, 0),
            raw(3, Kind::RoundStart, 0, 0, 10, 0),
            raw(4, Kind::Fault, 0x9000, 4, 77, 2),
            raw(5, Kind::Forked, 77, 2, 10, 0),
        ];
        records.extend(write(6, 77, 2));
        records.extend(write(9, 10, 0));
        records.extend(write(12, 10, 0));
        records.push(raw(15, Kind::RoundEnd, 0, 0, 10, 0));
        let classes: Vec<FaultClass> = kinds(log(records, true))
            .iter()
            .filter_map(|kind| match kind {
                EventKind::FaultDone { class, .. } => Some(*class),
                _ => None,
            })
            .collect();
        let (zero, copy) = (FaultClass::ZeroUpgrade, FaultClass::CowCopy);
        assert_eq!(classes, [zero, zero, copy], "each has the zero page");
    }

    #[test]
    fn marked_rounds_are_left_out() {
        let records =
            vec![raw(1, Kind::RoundStart, 0, 0, 10, 0), raw(2, Kind::RoundEnd, 0, 0, 10, 0)];
        assert!(kinds(log(records, false)).is_empty());
    }
}

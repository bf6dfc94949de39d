//! What the records of switches and flushes show about one round: which tasks came to a CPU, which
//! threads were away from it and when, and whether a flush of ours fell into that time.

use super::Observed;
use crate::log::{Kind, Raw};
use crate::tids::Tids;
use needless_model::event::FlushReason;
use needless_model::order::Rank;
use std::collections::{BTreeMap, BTreeSet};

/// Whether a record names the next task. Both records of a switch are looked at, because kernels
/// were seen to leave out one of the two.
pub(super) fn is_switch(record: &Raw) -> bool {
    matches!(record.kind, Kind::SwitchOut | Kind::SwitchIn)
}

/// A stretch of time, both ends included.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Span {
    from: u64,
    to: u64,
}

impl Span {
    pub(super) fn overlaps(self, other: Span) -> bool {
        self.from <= other.to && other.from <= self.to
    }

    pub(super) fn contains(self, time: u64) -> bool {
        (self.from..=self.to).contains(&time)
    }

    pub(super) fn start(self) -> u64 {
        self.from
    }

    /// Whether this span begins before the other one.
    pub(super) fn begins_before(self, other: Span) -> bool {
        self.from < other.from
    }

    pub(super) fn with_end(self, to: u64) -> Span {
        Span { to, ..self }
    }
}

/// The last stranger that came to a CPU before the round's end, and the last one that came after
/// it.
pub(super) fn strangers_on<'a>(
    records: impl Iterator<Item = &'a Raw>,
    cpu: u16,
    round: Observed,
    mut stranger: impl FnMut(i32) -> bool,
) -> (Option<i32>, Option<i32>) {
    let (mut came, mut came_later) = (None, None);
    for record in records.filter(|r| is_switch(r) && r.cpu == cpu) {
        let next = record.value as i32;
        let last = if record.time <= round.end_ns { &mut came } else { &mut came_later };
        if stranger(next) {
            *last = Some(next);
        }
    }
    (came, came_later)
}

/// The spans in which the threads `tids` were away from a CPU, and the tasks that came in their
/// place. A span begins when one of the threads is pushed out in the round, and ends when one of
/// them is back. `held`: whether one of them was there before the records. If the record of leaving
/// is missing, the record of the next task's coming takes its place.
pub(super) fn absences_of(
    records: &[Raw],
    cpu: u16,
    round: Observed,
    tids: &Tids,
    mut held: bool,
) -> Vec<(Span, i32)> {
    let mut absences = Vec::new();
    let mut open: Option<(Span, i32)> = None;
    for record in records.iter().filter(|r| is_switch(r) && r.cpu == cpu) {
        let next = record.value as i32;
        let ours_comes = tids.ours(next);
        let pushed_out = record.extra == 1 && tids.ours(record.tid);
        let came_unannounced = record.kind == Kind::SwitchIn && held;
        if ours_comes {
            let back = |(gone, who)| (Span { to: record.time, ..gone }, who);
            absences.extend(open.take().map(back));
        } else if round.contains(record.time) && (pushed_out || came_unannounced) {
            open = open.or(Some((Span { from: record.time, to: u64::MAX }, next)));
        }
        held = ours_comes;
    }
    absences.extend(open);
    absences
}

/// The time when the absent thread was back. One record of the switch comes before the CPU flushes
/// for the thread, if it has to, and one comes after.
pub(super) fn came_back(records: &[Raw], cpu: u16, gone: Span, tids: &Tids) -> u64 {
    let came = |r: &&Raw| r.kind == Kind::SwitchIn && r.cpu == cpu && tids.ours(r.tid);
    let times = records.iter().filter(came).map(|r| r.time);
    times.filter(|time| *time >= gone.to).min().unwrap_or(gone.to)
}

/// The spans in which the threads `tids` flushed, each from the record of a flush to the next
/// action of its thread. All records of a thread come from one ring, so they are in order.
pub(super) fn flushes_of(records: &[Raw], tids: &Tids) -> Vec<Span> {
    let mut open: BTreeMap<i32, Span> = BTreeMap::new();
    let mut spans = Vec::new();
    let own = |r: &&Raw| tids.ours(r.tid) && !is_switch(r) && r.kind != Kind::Lost;
    for record in records.iter().filter(own) {
        spans.extend(open.remove(&record.tid).map(|span| Span { to: record.time, ..span }));
        let flush = record.flush_reason().filter(|_| record.kind == Kind::Flush);
        if flush.is_some_and(FlushReason::is_initiators) {
            open.insert(record.tid, Span { from: record.time, to: u64::MAX });
        }
    }
    spans.extend(open.into_values());
    spans
}

/// The spans in which the threads `tids` were in one of the operations `ops`, with the thread. Each
/// goes from the record of the operation to that of the thread's next one. The records of each
/// thread are in order.
pub(super) fn spans_of(records: &[Raw], tids: &Tids, ops: &BTreeSet<u64>) -> Vec<(i32, Span)> {
    let mut open: BTreeMap<i32, u64> = BTreeMap::new();
    let mut spans = Vec::new();
    let written = |r: &&Raw| {
        tids.ours(r.tid) && matches!(r.rank(), Rank::OpStart | Rank::RoundEnd | Rank::MeasureEnd)
    };
    for record in records.iter().filter(written) {
        let ended = open.remove(&record.tid).map(|from| Span { from, to: record.time });
        spans.extend(ended.map(|span| (record.tid, span)));
        if record.kind == Kind::Op && ops.contains(&record.value) {
            open.insert(record.tid, record.time);
        }
    }
    spans.extend(open.into_iter().map(|(tid, from)| (tid, Span { from, to: u64::MAX })));
    spans
}

/// The task that took the place of a thread which was pushed out of a CPU in the round, during one
/// of `calls`.
pub(super) fn pushed_out_amid(
    calls: &[(i32, Span)],
    records: &[Raw],
    cpu: u16,
    round: Observed,
) -> Option<i32> {
    let amid = |r: &Raw| calls.iter().any(|(tid, call)| *tid == r.tid && call.contains(r.time));
    let left = |r: &&Raw| r.kind == Kind::SwitchOut && r.extra == 1 && r.cpu == cpu;
    let mut left = records.iter().filter(left).filter(|r| round.contains(r.time));
    left.find(|r| amid(r)).map(|r| r.value as i32)
}

/// Whether a thread looked for another task to run during one of `calls`, between two of its
/// flushes, and went on itself. No switch shows that. The scheduler charges a thread for its time
/// at each tick of the clock, and when it looks for the next task (kernel/sched/fair.c:update_curr,
/// pick_next_task_fair, 5.10 to 7.2). Ticks come `tick_ns` apart. So a charge that follows another
/// one sooner does not come from a tick.
pub(super) fn went_on_amid(calls: &[(i32, Span)], records: &[Raw], cpu: u16, tick_ns: u64) -> bool {
    calls.iter().any(|(tid, call)| {
        let amid = |r: &&Raw| r.cpu == cpu && r.tid == *tid && call.contains(r.time);
        let charges = records.iter().filter(amid).filter(|r| r.kind == Kind::Charged);
        let charges: Vec<u64> = charges.map(|r| r.time).collect();
        let Some(&first) = charges.first() else { return false };
        let flushes = records.iter().filter(amid).filter(|r| {
            r.kind == Kind::Flush && r.flush_reason().is_some_and(FlushReason::is_initiators)
        });
        let flushes: Vec<u64> = flushes.map(|r| r.time).collect();
        charges.windows(2).any(|pair| {
            let soon = pair[1] - pair[0] < tick_ns / 4 * 3;
            let flushed = |from: u64, to: u64| flushes.iter().any(|at| (from..to).contains(at));
            soon && flushed(first, pair[1]) && flushed(pair[1], u64::MAX)
        })
    })
}

/// Whether a switch of tasks flushed this CPU during the round. It does so if the CPU's slot of the
/// TLB has missed flushes. These flushes then find nothing left to do.
pub(super) fn flushed_by_switch(record: &Raw, cpu: u16, round: Observed) -> bool {
    let switch = record.flush_reason() == Some(FlushReason::TaskSwitch);
    let flushed = record.kind == Kind::Flush && switch && record.value != 0;
    flushed && record.cpu == cpu && round.contains(record.time)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::Usage;

    #[test]
    fn a_flush_lasts_until_its_thread_goes_on() {
        let raw =
            |time, kind, reason: u64, tid| Raw { time, value: 1, extra: reason, tid, cpu: 0, kind };
        let send = FlushReason::RemoteSend as u64;
        let records = [
            raw(1, Kind::Op, 0, 7),
            raw(2, Kind::Flush, send, 7),
            raw(3, Kind::Flush, send, 99),
            raw(4, Kind::SwitchOut, 1, 7),
            raw(5, Kind::Flush, FlushReason::LocalMm as u64, 7),
            raw(6, Kind::Op, 0, 7),
            raw(8, Kind::Flush, FlushReason::RemoteShootdown as u64, 7),
            raw(9, Kind::Flush, FlushReason::LocalMm as u64, 8),
        ];
        let spans = flushes_of(&records, &Tids::new(&[7, 8]));
        let span = |from, to| Span { from, to };
        assert_eq!(spans, [span(2, 5), span(5, 6), span(9, u64::MAX)]);
        let overlaps = |from, to| spans.iter().any(|flush| flush.overlaps(span(from, to)));
        assert!(overlaps(0, 2) && overlaps(4, 4) && overlaps(8, 20));
        assert!(!overlaps(0, 1) && !overlaps(7, 8));
    }

    #[test]
    fn who_looks_for_others_between_two_flushes_has_parted_them() {
        let raw = |time, kind, extra| Raw { time, value: 1, extra, tid: 7, cpu: 0, kind };
        let (send, local) = (FlushReason::RemoteSend as u64, FlushReason::LocalMm as u64);
        let flush = |time| [raw(time, Kind::Flush, send), raw(time + 1, Kind::Flush, local)];
        let calls = [(7, Span { from: 1, to: 200 })];
        let parted = |charges: &[u64], flushes: &[u64]| {
            let mut records: Vec<Raw> = flushes.iter().flat_map(|time| flush(*time)).collect();
            records.extend(charges.iter().map(|time| raw(*time, Kind::Charged, 0)));
            records.sort_by_key(|record| record.time);
            went_on_amid(&calls, &records, 0, 40)
        };
        assert!(parted(&[2, 6], &[4, 8]), "tick, part, look, part");
        assert!(parted(&[2, 42, 46], &[4, 80]), "the next tick came before it looked");
        // Only ticks, only one flush, and charges before the first or after the last flush.
        assert!(!parted(&[2, 42, 82], &[4, 50, 90]));
        assert!(!parted(&[2], &[4, 8]) && !parted(&[2, 6], &[4]));
        assert!(!parted(&[2, 3], &[4, 8]) && !parted(&[12, 16], &[4, 8]));
        // Records of another call.
        assert!(!parted(&[202, 206], &[204, 208]) && !parted(&[2, 6], &[4, 204]));
    }

    #[test]
    fn a_call_lasts_until_its_thread_goes_on() {
        let raw = |time, kind, value, tid| Raw { time, value, extra: 0, tid, cpu: 0, kind };
        let records = [
            raw(1, Kind::Op, 4, 7),
            raw(2, Kind::Op, 5, 7),
            raw(3, Kind::Flush, 1, 7),
            raw(4, Kind::Op, 4, 8),
            raw(6, Kind::Mark, 0, 7),
            raw(7, Kind::Op, 5, 8),
            raw(8, Kind::Op, 5, 99),
        ];
        let spans = spans_of(&records, &Tids::new(&[7, 8]), &BTreeSet::from([5]));
        let [first, last] = [Span { from: 2, to: 6 }, Span { from: 7, to: u64::MAX }];
        assert_eq!(spans, [(7, first), (8, last)]);
        assert!(first.begins_before(last) && !first.begins_before(first));
    }

    #[test]
    fn who_is_pushed_out_amid_a_call_is_noticed() {
        let used = Usage { minor_faults: 0, major_faults: 0, involuntary_switches: 0 };
        let round = Observed { start_ns: 10, end_ns: 20, used, counts: true, resampled: false };
        let calls = [(7, Span { from: 12, to: 15 })];
        let amid = |time, tid, extra, cpu| {
            let record = Raw { time, value: 30, extra, tid, cpu, kind: Kind::SwitchOut };
            pushed_out_amid(&calls, &[record], 0, round)
        };
        assert_eq!(amid(13, 7, 1, 0), Some(30));
        assert_eq!(amid(16, 7, 1, 0), None, "after it");
        assert_eq!(amid(13, 8, 1, 0), None, "another thread's call");
        assert_eq!(amid(13, 7, 0, 0), None, "it went by itself");
        assert_eq!(amid(13, 7, 1, 1), None, "on another CPU");
        let early = Observed { end_ns: 12, ..round };
        let record = Raw { time: 13, value: 30, extra: 1, tid: 7, cpu: 0, kind: Kind::SwitchOut };
        assert_eq!(pushed_out_amid(&calls, &[record], 0, early), None, "after the round");
    }

    #[test]
    fn who_was_pushed_out_is_absent_until_one_of_ours_is_back() {
        let used = Usage { minor_faults: 0, major_faults: 0, involuntary_switches: 0 };
        let round = Observed { start_ns: 10, end_ns: 20, used, counts: true, resampled: false };
        let switch = |time, kind, tid, next: u64, pushed| Raw {
            time,
            value: next,
            extra: pushed,
            tid,
            cpu: 0,
            kind,
        };
        let out = |time, tid, next, pushed| switch(time, Kind::SwitchOut, tid, next, pushed);
        let back = |time, tid: i32| switch(time, Kind::SwitchIn, tid, tid as u64, 0);
        let absent_if = |held, records: &[Raw]| -> Vec<(u64, u64, i32)> {
            let all = absences_of(records, 0, round, &Tids::new(&[7, 8]), held).into_iter();
            all.map(|(gone, who)| (gone.from, gone.to, who)).collect()
        };
        let absent = |records: &[Raw]| absent_if(true, records);
        // Two kernel threads take the place of thread 7, one after the other.
        let two = [out(11, 7, 30, 1), out(12, 30, 31, 1), out(14, 31, 7, 0), back(14, 7)];
        assert_eq!(absent(&two), [(11, 14, 30)]);
        let gone = Span { from: 11, to: 14 };
        let ours = Tids::new(&[7, 8]);
        assert_eq!(came_back(&[two[2], back(16, 7)], 0, gone, &ours), 16, "it flushes before");
        assert_eq!(came_back(&two[..3], 0, gone, &ours), 14, "a record is missing");
        assert_eq!(absent(&two[..2]), [(11, u64::MAX, 30)], "it did not come back");
        assert_eq!(absent(&[out(11, 7, 30, 0)]), [], "it went by itself");
        assert_eq!(absent(&[out(11, 7, 8, 1)]), [], "to one of ours");
        assert_eq!(absent(&[out(9, 7, 30, 1)]), [], "before the round");
        let came = back;
        assert_eq!(absent(&[came(12, 30), back(15, 7)]), [(12, 15, 30)], "leaving was left out");
        assert_eq!(absent(&[out(11, 7, 30, 0), came(11, 30)]), [], "it went by itself");
        assert_eq!(absent_if(false, &[came(12, 30)]), [], "nobody was there");
    }

    /// A task may come between the end of a round and the look at its records.
    #[test]
    fn who_comes_after_the_end_is_not_forgotten() {
        let used = Usage { minor_faults: 0, major_faults: 0, involuntary_switches: 0 };
        let round = Observed { start_ns: 10, end_ns: 20, used, counts: true, resampled: false };
        let switch = |time, next, cpu| Raw {
            time,
            value: next,
            extra: 0,
            tid: 0,
            cpu,
            kind: Kind::SwitchOut,
        };
        let on = |records: &[Raw]| strangers_on(records.iter(), 1, round, |tid| tid > 100);
        assert_eq!(on(&[switch(12, 500, 1), switch(13, 7, 1)]), (Some(500), None));
        assert_eq!(
            on(&[switch(20, 7, 1), switch(21, 500, 1), switch(22, 7, 1)]),
            (None, Some(500))
        );
        assert_eq!(on(&[switch(5, 400, 1), switch(25, 500, 1)]), (Some(400), Some(500)));
        assert_eq!(on(&[switch(12, 500, 0), switch(22, 500, 0)]), (None, None));
    }

    #[test]
    fn a_flush_by_a_switch_counts_on_its_cpu_in_its_round_if_it_flushed() {
        let used = Usage { minor_faults: 0, major_faults: 0, involuntary_switches: 0 };
        let round = Observed { start_ns: 10, end_ns: 20, used, counts: true, resampled: false };
        let flush = |time, value, reason: FlushReason, cpu| {
            let raw = Raw { time, value, extra: reason as u64, tid: 1, cpu, kind: Kind::Flush };
            flushed_by_switch(&raw, 0, round)
        };
        assert!(flush(15, u64::MAX, FlushReason::TaskSwitch, 0));
        assert!(!flush(15, 0, FlushReason::TaskSwitch, 0), "the slot was up to date");
        assert!(!flush(15, u64::MAX, FlushReason::LocalMm, 0));
        assert!(!flush(15, u64::MAX, FlushReason::TaskSwitch, 1));
        assert!(!flush(25, u64::MAX, FlushReason::TaskSwitch, 0));
    }
}

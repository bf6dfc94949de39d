//! Sends single events on, if anybody wants them.

use super::calls::Running;
use super::victims::Pair;
use super::{Fold, Open, Reason};
use crate::record::Record;
use crate::timeline::Moment;

impl Fold {
    fn send(&self, moment: Moment) {
        if let Some(timeline) = &self.timeline {
            // Who has gone wants no more.
            let _ = timeline.send(moment);
        }
    }

    /// A fault is over.
    pub(super) fn tell_fault(&self, record: &Record, open: &Open, reason: Reason) {
        let rule = reason.rule();
        self.send(Moment::Fault {
            tid: record.tid,
            pid: record.pid,
            begin: open.start,
            end: record.time,
            label: rule.label,
            confidence: rule.confidence,
            address: open.address,
        });
    }

    /// Something reached a CPU: when it was over, and whether it was an interrupt; when it was
    /// sent.
    pub(super) fn tell(
        &self,
        (cpu, begin): (u16, u64),
        pair: &Pair,
        (end, interrupted): (Option<u64>, bool),
        sent: Option<u64>,
    ) {
        if self.timeline.is_none() {
            return;
        }
        self.send(Moment::Reached {
            cpu,
            begin,
            end,
            asked: pair.asked.title(),
            interrupted,
            to: pair.to.clone(),
            from: pair.from.clone(),
            cause: pair.cause.name(),
            sent,
        });
    }

    /// A function that a CPU called, if it is anybody's who is watched.
    pub(super) fn tell_call(&self, cpu: u16, running: &Running, end: Option<u64>) {
        if let Some(pair) = &running.counted {
            let interrupted = running.one.interrupts > 0;
            self.tell((cpu, running.begin), pair, (end, interrupted), running.sender.sent());
        }
    }

    /// What has not ended, and the names of all.
    pub(super) fn tell_the_rest(&self) {
        if self.timeline.is_none() {
            return;
        }
        for (cpu, running) in self.calls.open() {
            self.tell_call(cpu, running, None);
        }
        for (tid, pid, name) in self.victims.all() {
            self.send(Moment::Thread { tid, pid, name: name.to_owned() });
        }
    }
}

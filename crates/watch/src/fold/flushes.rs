//! Flushes: which events belong together, what caused them, and which were needless.
//!
//! One flush is a send event, a local event or both. From 6.1 on the send comes first, before
//! that the local part does (arch/x86/mm/tlb.c: flush_tlb_mm_range, 5.10 and 6.1).

use super::memory::CallKey;
use super::rules::classify;
use super::victims::{Pair, PairCount, Task};
use super::{Cause, Fold, How, Needless, Reclaim, Thread};
use crate::functions::Asked;
use crate::record::Record;
use needless_model::event::FlushReason;

/// Flushes of one cause.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct FlushCount {
    /// Flushes that asked other CPUs (shootdowns).
    pub sent: u64,
    /// Flushes of this CPU alone.
    pub local: u64,
    /// Of all these, flushes of everything.
    pub full: u64,
    /// Pages of the others, all together.
    pub pages: u64,
    /// Interrupts that they caused.
    pub interrupts: u64,
}

impl FlushCount {
    fn add(&mut self, issue: Issue) {
        let Issue { sent, pages, completes_local } = issue;
        if completes_local {
            self.local = self.local.saturating_sub(1);
            self.sent += 1;
            return;
        }
        *(if sent { &mut self.sent } else { &mut self.local }) += 1;
        match u64::try_from(pages) {
            Ok(pages) => self.pages += pages,
            Err(_) => self.full += 1,
        }
    }
}

/// One flush as it is issued.
#[derive(Copy, Clone, Debug)]
pub struct Issue {
    sent: bool,
    pages: i64,
    /// Whether it counts, or changes a local flush that was counted into one that was sent.
    completes_local: bool,
}

/// Which half of a flush has been seen.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Half {
    #[default]
    None,
    Sent,
    Local,
}

/// What is known of a process's batched unmaps.
#[derive(Copy, Clone, Debug, Default)]
pub struct Batch {
    /// One was flushed, and no walk has flushed for it again.
    pending: bool,
    /// Somebody else may have unmapped since.
    disturbed: bool,
}

/// What makes an interrupt needless in which a CPU answered a flush.
///
/// A batched flush names no address space, so a CPU that runs another one says that it is up to
/// date (arch/x86/mm/tlb.c: flush_tlb_func, 5.10 to 7.3). Every command starts and ends its own
/// processes, which is no finding about it.
pub(super) fn needless_interrupt(
    record: &Record,
    (reason, pages): (FlushReason, i64),
    cause: &Cause,
    sender: Option<i32>,
) -> Option<Needless> {
    let elsewhere = sender.is_some_and(|pid| pid != record.pid);
    match (reason, pages) {
        _ if cause.starts_or_ends() => None,
        (FlushReason::RemoteWrongCpu, _) => Some(Needless::WrongCpu),
        (_, 0) if elsewhere => Some(Needless::BatchElsewhere),
        (_, 0) => Some(Needless::EmptyInterrupt),
        _ => None,
    }
}

impl Fold {
    /// One event of `tlb:tlb_flush`.
    pub(super) fn flush(&mut self, record: &Record, reason: FlushReason, pages: i64) {
        match reason {
            FlushReason::RemoteSend | FlushReason::LocalBatch | FlushReason::LocalMm => {
                self.totals.flush_events += 1;
                self.initiated(record, reason, pages);
            }
            FlushReason::RemoteShootdown | FlushReason::RemoteWrongCpu => {
                self.receive(record, reason, pages);
            }
            FlushReason::TaskSwitch => {
                self.totals.flush_events += 1;
                self.victims.goes_on(record.cpu);
                if self.watches(record.tid) {
                    let (flushed, kept) = &mut self.totals.switches;
                    *(if pages == 0 { kept } else { flushed }) += 1;
                }
            }
        }
    }

    fn initiated(&mut self, record: &Record, reason: FlushReason, pages: i64) {
        if reason == FlushReason::RemoteSend {
            self.victims.sent(record);
            self.victims.meets(record.tid);
            if self.victims.is_kernels(record.tid) {
                *self.totals.sent_by_kernel_threads.entry(record.tid).or_default() += 1;
            }
        }
        if reason != FlushReason::RemoteSend {
            self.victims.own_part(record);
        }
        if self.watches(record.tid) {
            self.issue(record, reason, pages);
        } else if reason == FlushReason::LocalBatch {
            // Reclaim by others: of which address spaces is not visible.
            self.processes.values_mut().for_each(|process| process.batch.disturbed = true);
        }
    }

    /// From 6.14 on whoever flushes tells the same as those it interrupts if its own CPU has left
    /// the address space, as that of a process that has ended or executes another program
    /// (arch/x86/mm/tlb.c: flush_tlb_func): nobody was interrupted, and the kernel does not count
    /// it.
    fn own_part_elsewhere(&mut self, record: &Record) -> bool {
        let named = self.calls.asked_itself(record.cpu);
        let own = named.unwrap_or_else(|| self.victims.own_part(record));
        if own && let Some(thread) = self.threads.get_mut(&record.tid) {
            thread.half = Half::None;
        }
        own
    }

    fn receive(&mut self, record: &Record, reason: FlushReason, pages: i64) {
        if reason == FlushReason::RemoteWrongCpu && self.own_part_elsewhere(record) {
            return;
        }
        self.tallies.answered(record);
        if self.received_by_call(record, reason, pages) {
            return;
        }
        self.received_unnamed(record.cpu);
        // 5.10 also calls the sender itself when it keeps page tables (kernel/smp.c).
        if self.local_first && self.victims.sender_on(record.cpu) == Some(record.tid) {
            return;
        }
        let (sender, guessed) = self.victims.sender_of(record);
        let sent_by = sender.map(|send| send.tid);
        if !self.watches(record.tid) && !sent_by.is_some_and(|tid| self.watches(tid)) {
            return;
        }
        if self.guard.as_ref().is_some_and(|guard| !guard.guards(record.cpu, record.time)) {
            return;
        }
        let cause = self.cause_now(sent_by.unwrap_or(0));
        let sender_pid = sender.map(|send| send.pid);
        let needless = needless_interrupt(record, (reason, pages), &cause, sender_pid);
        for tid in [Some(record.tid), sent_by].into_iter().flatten() {
            if !self.threads.contains_key(&tid) {
                self.victims.meets(tid);
            }
        }
        let (asked, function, site) = (Asked::TlbFlush, 0, 0);
        let from = sent_by.map_or(Task::Unknown, Task::Thread);
        let to = Task::of(record);
        let empty = u64::from(pages == 0 || reason == FlushReason::RemoteWrongCpu);
        let one =
            PairCount { interrupts: 1, empty, guessed: u64::from(guessed), ..PairCount::default() };
        let pair = Pair { asked, function, site, cause: cause.clone(), from, to };
        if let Some(guard) = &mut self.guard {
            guard.reached(record.cpu, record.time, pair.clone(), How::Interrupt);
        }
        let at = (record.cpu, record.time);
        self.tell(at, &pair, (None, true), sender.map(|send| send.time));
        self.victims.count(pair, one);
        if sent_by.is_some_and(|tid| self.watches(tid)) {
            self.totals.flushes.entry(cause.clone()).or_default().interrupts += 1;
            self.toggle_interrupts(sent_by, 1);
        }
        if let Some(needless) = needless {
            self.needless_of(sent_by, needless, cause, needless != Needless::BatchElsewhere);
        }
    }

    /// What a thread is doing, as far as it is known now: a fault's class is known at its end.
    pub(super) fn cause_now(&self, tid: i32) -> Cause {
        let Some(thread) = self.threads.get(&tid) else {
            return if tid == 0 || self.all { Cause::Unknown } else { Cause::Stranger };
        };
        match (&thread.fault, &thread.call) {
            _ if thread.ended => Cause::Exit,
            _ if thread.reclaiming.is_some() => {
                Cause::Reclaim(thread.reclaiming.unwrap_or(Reclaim::Machine))
            }
            (Some(open), _) => Cause::Fault(classify(&open.seen, self.context).rule().class),
            (None, Some(call)) => call.cause(),
            (None, None) => Cause::Elsewhere,
        }
    }

    fn issue(&mut self, record: &Record, reason: FlushReason, pages: i64) {
        let thread = self.threads.entry(record.tid).or_default();
        if let Some(call) = &mut thread.call {
            call.flushed_all |= pages < 0;
        }
        let (sent, half) = (reason == FlushReason::RemoteSend, thread.half);
        let issue = match (sent, half) {
            // The second half of a flush that has been counted.
            (false, Half::Sent) => None,
            (true, Half::Local) if self.local_first => {
                Some(Issue { sent, pages, completes_local: true })
            }
            _ => Some(Issue { sent, pages, completes_local: false }),
        };
        thread.half = match (sent, half) {
            (true, Half::Local) if self.local_first => Half::None,
            (true, _) => Half::Sent,
            (false, Half::Sent) => Half::None,
            (false, _) => Half::Local,
        };
        if let (Some(issue), Some(open), false) =
            (issue, &mut thread.fault, thread.reclaiming.is_some())
        {
            open.flushes.push(issue);
        } else if let Some(issue) = issue {
            let cause = self.cause_now(record.tid);
            if let Some(key) = self.alone(record.tid) {
                self.toggles.flushed(key, issue.sent, issue.completes_local);
            }
            if self.grants(record.tid) && !issue.completes_local {
                self.needless_of(Some(record.tid), Needless::Grant, cause.clone(), true);
            }
            if let Some(key) = self.call_now(record.tid) {
                self.memories.called(&key).flushes.add(issue);
            }
            self.issued(vec![issue], cause);
        }
        if reason != FlushReason::RemoteSend {
            self.judge(record, reason, pages);
        }
    }

    /// Counts flushes whose cause is known.
    pub(super) fn issued(&mut self, flushes: Vec<Issue>, cause: Cause) {
        if flushes.is_empty() {
            return;
        }
        let count = self.totals.flushes.entry(cause).or_default();
        flushes.into_iter().for_each(|issue| count.add(issue));
    }

    /// Whether a thread is in a call that only allows more than was allowed before.
    fn grants(&self, tid: i32) -> bool {
        let Some(thread) = self.threads.get(&tid) else { return false };
        let protected = thread.call.as_ref().and_then(|call| call.protects());
        let process = self.processes.get(&thread.pid);
        protected.zip(process).is_some_and(|((range, new), process)| {
            process.protections.all(&range, |old| old & !new == 0 && *old != new)
        })
    }

    /// The call that a thread is in, if what it does now is the call's.
    pub(super) fn call_now(&self, tid: i32) -> Option<CallKey> {
        let thread = self.threads.get(&tid)?;
        let call = thread.call.as_ref()?;
        (thread.fault.is_none() && thread.reclaiming.is_none() && !thread.ended)
            .then(|| call.key.clone())
    }

    /// Whether the local half of a flush shows that the flush was needless.
    ///
    /// After a batched unmap has been flushed the address space keeps its mark, and the next walk
    /// over page tables flushes everything once more (mm/rmap.c: flush_tlb_batched_pending, 5.10
    /// to 7.3). Up to 6.1 MADV_PAGEOUT then flushes accessed bits of pages that are gone
    /// (mm/madvise.c: madvise_cold_or_pageout_pte_range).
    fn judge(&mut self, record: &Record, reason: FlushReason, pages: i64) {
        let thread: &mut Thread = self.threads.entry(record.tid).or_default();
        let Some(process) = self.processes.get_mut(&thread.pid) else { return };
        if reason == FlushReason::LocalBatch {
            process.batch = Batch { pending: true, disturbed: false };
            thread.call.iter_mut().for_each(|call| call.batch_flushed = true);
            return;
        }
        let (Some(call), None, false) = (&thread.call, &thread.fault, thread.reclaiming.is_some())
        else {
            return;
        };
        let cause = call.cause();
        if call.batch_flushed && call.pages_out() {
            self.needless(Needless::GatherAfterPageout, cause, false);
        } else if process.batch.pending && pages < 0 && call.walks() {
            let certain = !process.batch.disturbed && !self.context.flushes_hidden;
            process.batch = Batch::default();
            self.needless_of(Some(record.tid), Needless::PendingFlush, cause, certain);
        }
    }
}

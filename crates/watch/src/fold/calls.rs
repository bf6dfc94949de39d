//! What CPUs ask of each other: functions to call, and interrupts that call none.

use super::flushes::needless_interrupt;
use super::memory::CallKey;
use super::victims::{Pair, PairCount, Task};
use super::{Cause, Fold, How, Needless};
use crate::functions::Asked;
use crate::record::{Record, Vector, What};
use needless_model::event::FlushReason;
use rustc_hash::{FxHashMap, FxHashSet};

/// Who asked for something, where, and doing what.
#[derive(Clone, Debug)]
pub(super) struct Sender {
    task: Task,
    /// The thread that is behind it, and its process.
    thread: Option<(i32, i32)>,
    site: u64,
    function: u64,
    cause: Cause,
    /// The call that it is in.
    call: Option<CallKey>,
    /// When; 0 if that is not seen.
    time: u64,
}

impl Sender {
    /// When it was sent.
    pub(super) fn sent(&self) -> Option<u64> {
        Some(self.time).filter(|time| *time != 0)
    }

    fn unknown() -> Sender {
        let (task, cause) = (Task::Unknown, Cause::Unknown);
        Sender { task, thread: None, site: 0, function: 0, cause, call: None, time: 0 }
    }
}

/// A function that a CPU calls, or called last.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) begin: u64,
    function: u64,
    asked: Asked,
    pub(super) sender: Sender,
    pub(super) one: PairCount,
    /// Where it was counted, if it was anybody's who is watched.
    pub(super) counted: Option<Pair>,
    /// Its end has not been seen.
    open: bool,
    /// It has told what it flushed: it does so once.
    answered: bool,
}

/// An interrupt whose functions this kernel does not name.
#[derive(Debug)]
struct Unnamed {
    begin: u64,
    task: Task,
    tid: i32,
    flushed: bool,
}

/// What is under way.
#[derive(Debug, Default)]
pub struct Calls {
    /// By the call's pointer.
    queued: FxHashMap<u64, Sender>,
    running: FxHashMap<u16, Running>,
    /// CPUs that call what they asked themselves for.
    by_itself: FxHashSet<u16>,
    unnamed: FxHashMap<u16, Unnamed>,
    /// Rescheduling interrupts that were sent and have not come, by CPU.
    sent: FxHashMap<u16, Vec<Sender>>,
    /// What put off work on its CPU last.
    put_off: FxHashMap<u16, Sender>,
    /// Drains by their work.
    drains: FxHashMap<u64, Sender>,
    /// Whether this kernel names functions.
    named: bool,
}

/// More calls than this are not under way at once, but where their ends were not seen.
const MOST_QUEUED: usize = 1 << 16;

/// More interrupts than this do not wait for a CPU.
const MOST_SENT: usize = 64;

impl Calls {
    /// What is under way is not known any more.
    pub(super) fn forget(&mut self) {
        *self = Calls { named: self.named, ..Calls::default() };
    }

    /// Functions whose end has not been seen.
    pub(super) fn open(&self) -> impl Iterator<Item = (u16, &Running)> {
        let open = self.running.iter().filter(|(_, running)| running.open);
        open.map(|(cpu, running)| (*cpu, running))
    }

    /// The function that a CPU was asked to call and that may tell now what it flushes.
    fn answering(&mut self, cpu: u16) -> Option<&mut Running> {
        let running = self.running.get_mut(&cpu)?;
        (running.open && !running.answered).then_some(running)
    }

    /// A CPU tells that it had left the address space that is to be flushed: whether it had asked
    /// itself, where functions are named. The call that it was asked for may lack its end.
    pub(super) fn asked_itself(&mut self, cpu: u16) -> Option<bool> {
        let itself = self.by_itself.contains(&cpu) || self.answering(cpu).is_none();
        self.named.then_some(itself)
    }

    fn queue(&mut self, call: u64, sender: Sender) {
        if self.queued.len() >= MOST_QUEUED {
            self.queued.clear();
        }
        self.queued.insert(call, sender);
    }
}

impl Fold {
    /// The kernel names the functions that CPUs are made to call.
    pub fn functions_are_named(&mut self, named: bool) {
        self.calls.named = named;
    }

    /// One record about interrupts.
    pub(super) fn interrupt(&mut self, record: &Record) {
        match record.what {
            What::Queue { function, site, call, by_interrupt } => {
                let sender = self.sender(record, by_interrupt, function, site);
                self.calls.queue(call, sender);
            }
            // A CPU that asks itself is not interrupted for it.
            What::Call { call: 0, begins: true, .. } => {
                self.calls.by_itself.insert(record.cpu);
            }
            What::Call { call: 0, begins: false, .. } => {
                self.calls.by_itself.remove(&record.cpu);
            }
            What::Call { begins: true, function, call, in_interrupt } => {
                self.called(record, function, call, in_interrupt);
            }
            What::Call { begins: false, .. } => self.call_ends(record),
            What::Interrupt { vector, begins } => self.vector(record, vector, begins),
            What::Send { cpu, function, site, by_interrupt } => {
                let sender = self.sender(record, by_interrupt, function, site);
                self.sends(record, cpu, sender);
            }
            What::DrainQueued { work, by_interrupt } => {
                let sender = self.sender(record, by_interrupt, 0, 0);
                self.calls.drains.insert(work, sender);
            }
            What::Drain { work } => self.drain(record, work),
            _ => {}
        }
    }

    fn sender(&self, record: &Record, by_interrupt: bool, function: u64, site: u64) -> Sender {
        let (task, cause) = match by_interrupt {
            true => (Task::Interrupt, Cause::Unknown),
            false => (Task::of(record), self.cause_now(record.tid)),
        };
        let thread = matches!(task, Task::Thread(_)).then_some((record.tid, record.pid));
        let call = thread.and_then(|(tid, _)| self.call_now(tid));
        Sender { task, thread, site, function, cause, call, time: record.time }
    }

    /// Whether the sender or whom it interrupts is watched; where CPUs are guarded, whether this
    /// one is, now.
    fn matters(&self, sender: &Sender, record: &Record) -> bool {
        if let Some(guard) = &self.guard {
            return guard.guards(record.cpu, record.time);
        }
        self.watches(record.tid) && record.tid != 0
            || self.all
            || sender.thread.is_some_and(|(tid, _)| self.watches(tid))
    }

    /// Counts what reached a task, if it is anybody's who is watched.
    fn reached(
        &mut self,
        record: &Record,
        asked: Asked,
        sender: &Sender,
        one: PairCount,
    ) -> Option<Pair> {
        if !self.matters(sender, record) {
            return None;
        }
        for tid in [Some(record.tid), sender.thread.map(|(tid, _)| tid)].into_iter().flatten() {
            if self.all || !self.threads.contains_key(&tid) {
                self.victims.meets(tid);
            }
        }
        let pair = Pair {
            asked,
            function: sender.function,
            site: sender.site,
            cause: sender.cause.clone(),
            from: sender.task.clone(),
            to: Task::of(record),
        };
        if let Some(guard) = &mut self.guard {
            let how = match asked {
                _ if one.interrupts > 0 => How::Interrupt,
                Asked::LruDrain => How::KernelThread,
                _ => How::Polled,
            };
            guard.reached(record.cpu, record.time, pair.clone(), how);
        }
        Some(self.victims.count(pair, one))
    }

    /// Counts what reached a CPU without calling a function: its end is not followed.
    fn comes(&mut self, record: &Record, asked: Asked, sender: &Sender, one: PairCount) {
        if let Some(pair) = self.reached(record, asked, sender, one) {
            let how = (None, one.interrupts > 0);
            self.tell((record.cpu, record.time), &pair, how, sender.sent());
        }
    }

    fn called(&mut self, record: &Record, function: u64, call: u64, in_interrupt: bool) {
        let asked = self.functions.at(function).asked;
        let found = self.calls.queued.remove(&call);
        let one = PairCount {
            interrupts: u64::from(in_interrupt),
            uninterrupted: u64::from(!in_interrupt),
            exact: u64::from(found.is_some()),
            ..PairCount::default()
        };
        let sender = found.unwrap_or_else(|| Sender { function, ..Sender::unknown() });
        self.tallies.called(record, asked, in_interrupt);
        let counted = self.reached(record, asked, &sender, one);
        if asked == Asked::TlbFlush && counted.is_some() {
            self.flush_interrupts(&sender, one.interrupts);
        }
        if asked == Asked::TableSync && counted.is_some() {
            self.synchronised(record, &sender);
        }
        let (begin, open, answered) = (record.time, true, false);
        let running = Running { begin, function, asked, sender, one, counted, open, answered };
        self.calls.by_itself.remove(&record.cpu);
        let before = self.calls.running.insert(record.cpu, running);
        if let Some(before) = before.filter(|before| before.open) {
            self.tell_call(record.cpu, &before, None);
        }
    }

    /// Adds interrupts to the flushes of a cause.
    fn flush_interrupts(&mut self, sender: &Sender, interrupts: u64) {
        if sender.thread.is_some_and(|(tid, _)| self.watches(tid)) {
            self.totals.flushes.entry(sender.cause.clone()).or_default().interrupts += interrupts;
            if let Some(key) = &sender.call {
                self.memories.called(key).flushes.interrupts += interrupts;
            }
            self.toggle_interrupts(sender.thread.map(|(tid, _)| tid), interrupts);
        }
    }

    /// Whoever runs nothing of the address space cannot be walking its tables: walks without locks
    /// are over the current address space's only (mm/gup.c: gup_fast, 5.10 to 7.3).
    fn synchronised(&mut self, record: &Record, sender: &Sender) {
        let Some((tid, pid)) = sender.thread else { return };
        // For whom a kernel thread collapses is not visible; a CPU without a task walks nobody's.
        let certain = record.tid == 0;
        if certain || !self.victims.is_kernels(tid) && record.pid != pid {
            self.needless(Needless::TableSync, sender.cause.clone(), certain);
        }
    }

    fn call_ends(&mut self, record: &Record) {
        let Some(mut running) = self.calls.running.remove(&record.cpu) else { return };
        if std::mem::take(&mut running.open) {
            if running.counted.is_some() && record.tid != 0 {
                self.victims.timed(running.asked, record.time.saturating_sub(running.begin));
            }
            self.tell_call(record.cpu, &running, Some(record.time));
        }
        self.calls.running.insert(record.cpu, running);
    }

    /// A CPU answers a flush: whether a function does that the kernel shows, and that it was asked
    /// to call. A CPU that looked for it itself was disturbed by nothing, whatever it found.
    pub(super) fn received_by_call(
        &mut self,
        record: &Record,
        reason: FlushReason,
        pages: i64,
    ) -> bool {
        if self.calls.answering(record.cpu).is_none() {
            return false;
        }
        let Some(mut running) = self.calls.running.remove(&record.cpu) else { return false };
        running.answered = true;
        if running.asked == Asked::Unnamed && self.functions.flushes(running.function) {
            running.asked = Asked::TlbFlush;
            if let Some(pair) = running.counted.take() {
                let moved = self.victims.recount(&pair, running.one, Asked::TlbFlush);
                running.counted = Some(moved);
                self.flush_interrupts(&running.sender, running.one.interrupts);
            }
        }
        let sender_pid = running.sender.thread.map(|(_, pid)| pid);
        let needless =
            needless_interrupt(record, (reason, pages), &running.sender.cause, sender_pid);
        let interrupted = running.one.interrupts > 0;
        let empty = pages == 0 || reason == FlushReason::RemoteWrongCpu;
        if let (Some(pair), true, true) = (&running.counted, empty, interrupted) {
            self.victims.was_empty(pair);
        }
        if let (Some(_), Some(needless), true) = (&running.counted, needless, interrupted) {
            let sent_by = running.sender.thread.map(|(tid, _)| tid);
            let certain = needless != Needless::BatchElsewhere;
            self.needless_of(sent_by, needless, running.sender.cause.clone(), certain);
        }
        self.calls.running.insert(record.cpu, running);
        true
    }

    /// Notes that a CPU flushed in a function that the kernel does not show.
    pub(super) fn received_unnamed(&mut self, cpu: u16) {
        if let Some(unnamed) = self.calls.unnamed.get_mut(&cpu) {
            unnamed.flushed = true;
        }
    }

    fn vector(&mut self, record: &Record, vector: Vector, begins: bool) {
        if begins {
            self.tallies.interrupted(record, vector);
        }
        match &mut self.guard {
            Some(guard) if begins => guard.enters(record.cpu, record.time, Task::of(record)),
            Some(guard) => guard.leaves(record.cpu, record.time),
            None => {}
        }
        match (vector, begins) {
            (Vector::Calls, true) if !self.calls.named => {
                self.settle(record.cpu);
                let (begin, task, tid) = (record.time, Task::of(record), record.tid);
                let unnamed = Unnamed { begin, task, tid, flushed: false };
                self.calls.unnamed.insert(record.cpu, unnamed);
            }
            (Vector::Calls, false) if !self.calls.named => {
                if let Some(unnamed) = self.calls.unnamed.get(&record.cpu)
                    && unnamed.flushed
                    && record.tid != 0
                    && self.watches(record.tid)
                {
                    let time = record.time.saturating_sub(unnamed.begin);
                    self.victims.timed(Asked::TlbFlush, time);
                }
            }
            (Vector::Reschedule, true) => {
                let sent = self.calls.sent.remove(&record.cpu).unwrap_or_default();
                let one = PairCount {
                    interrupts: 1,
                    guessed: u64::from(sent.len() > 1),
                    ..PairCount::default()
                };
                let sender = sent.into_iter().next().unwrap_or_else(Sender::unknown);
                self.comes(record, Asked::Reschedule, &sender, one);
            }
            (Vector::IrqWork, true) => {
                let one = PairCount { interrupts: 1, ..PairCount::default() };
                let sender = self.calls.put_off.remove(&record.cpu);
                let sender = sender.unwrap_or_else(Sender::unknown);
                self.comes(record, Asked::IrqWork, &sender, one);
            }
            (Vector::Timer, true) => self.hardware(record, Asked::Timer, Task::Timer),
            (Vector::Device(number), true) => {
                self.hardware(record, Asked::Device, Task::Device(number));
            }
            (Vector::Calls | Vector::Reschedule | Vector::IrqWork, _)
            | (Vector::Timer | Vector::Device(_), false) => {}
        }
    }

    /// No CPU asked for it.
    fn hardware(&mut self, record: &Record, asked: Asked, task: Task) {
        let one = PairCount { interrupts: 1, ..PairCount::default() };
        let sender = Sender { task, ..Sender::unknown() };
        self.comes(record, asked, &sender, one);
    }

    /// An interrupt for function calls is over: in which nothing was flushed, it was for something
    /// else.
    fn settle(&mut self, cpu: u16) {
        let Some(unnamed) = self.calls.unnamed.remove(&cpu) else { return };
        if unnamed.flushed || !self.watches(unnamed.tid) {
            return;
        }
        let Sender { function, site, cause, task: from, .. } = Sender::unknown();
        let pair = Pair { asked: Asked::Unnamed, function, site, cause, from, to: unnamed.task };
        self.victims.count(pair, PairCount { interrupts: 1, ..PairCount::default() });
    }

    /// Settles the calls of all CPUs whose function the kernel does not show.
    pub(super) fn settle_all(&mut self) {
        let cpus: Vec<u16> = self.calls.unnamed.keys().copied().collect();
        cpus.into_iter().for_each(|cpu| self.settle(cpu));
    }

    /// kernel/smp.c tells of functions to call with `csd:csd_queue_cpu` as well; what remains is
    /// without a function (include/linux/smp.h: smp_send_reschedule), or for the CPU itself
    /// (kernel/irq_work.c).
    fn sends(&mut self, record: &Record, cpu: u16, sender: Sender) {
        if sender.function == 0 {
            let sent = self.calls.sent.entry(cpu).or_default();
            if sent.len() < MOST_SENT {
                sent.push(sender);
            }
        } else if cpu == record.cpu {
            self.calls.put_off.insert(cpu, sender);
        }
    }

    /// A kernel thread drains its CPU's batches.
    fn drain(&mut self, record: &Record, work: u64) {
        let found = self.calls.drains.remove(&work);
        let exact = u64::from(found.is_some());
        let one = PairCount { uninterrupted: 1, exact, ..PairCount::default() };
        let sender = found.unwrap_or_else(Sender::unknown);
        self.comes(record, Asked::LruDrain, &sender, one);
    }
}

//! One of the scenario's CPUs: which tasks run there, and which of them disturb a round.

use super::Observed;
use super::reasons::{CPU_USED, LOST_CPU, LRU_EMPTIED, LRU_SHARED, NOT_ON_CPU, OURSELVES, WENT_ON};
use super::switches::{
    Span, absences_of, came_back, flushed_by_switch, is_switch, pushed_out_amid, strangers_on,
    went_on_amid,
};
use super::tasks::{Tasks, name};
use crate::log::{Kind, Raw};
use crate::sys;
use crate::team::{Rest, Team};
use needless_model::addr::ProcessId;
use needless_model::program::Program;

/// A CPU with threads of the scenario.
pub(super) struct Cpu {
    /// The scenario's number of the CPU.
    pub(super) number: u16,
    /// The scenario's threads on it.
    threads: Vec<usize>,
    /// The task that runs there, once it is known.
    running: Option<i32>,
    /// Whether a thread there does more than hold the CPU.
    acts: bool,
    /// Whether all threads there belong to forked processes. Then it does not matter what strangers
    /// did before these began.
    forked: bool,
    /// Whether one of these processes lived when this was last checked.
    lived: bool,
    /// The name of a stranger's user task that has run there since [`Cpu::forget`].
    used: Option<String>,
    /// Whether a kernel thread has drained its LRU batches since [`Cpu::forget`].
    drained: bool,
}

/// A round that is over, and its records.
pub(super) struct Seen<'a> {
    /// The records since the previous round.
    pub(super) records: &'a [Raw],
    /// The round itself.
    pub(super) round: Observed,
    /// The scenario's threads.
    pub(super) team: &'a Team,
    /// When the scenario's threads flushed.
    pub(super) flushes: &'a [Span],
    /// When the scenario's threads were in a call that makes all CPUs drain their LRU batches.
    pub(super) draining: &'a [(i32, Span)],
    /// When the scenario's threads were in a call that may have to flush before its end.
    pub(super) gathering: &'a [(i32, Span)],
}

/// The CPUs of a program.
pub(super) fn cpus(program: &Program) -> Vec<Cpu> {
    let mut cpus: Vec<Cpu> = Vec::new();
    for (index, thread) in program.threads.iter().enumerate() {
        let acts = index == 0 || !thread.only_holds();
        let forked = thread.process != ProcessId::FIRST;
        match cpus.iter_mut().find(|cpu| cpu.number == thread.cpu.0) {
            Some(cpu) => {
                cpu.threads.push(index);
                cpu.acts |= acts;
                cpu.forked &= forked;
            }
            None => cpus.push(Cpu {
                number: thread.cpu.0,
                threads: vec![index],
                running: None,
                acts,
                forked,
                lived: false,
                used: None,
                drained: false,
            }),
        }
    }
    cpus
}

impl Cpu {
    /// Whether the LRU batches of an acting thread may contain pages that are not the scenario's,
    /// or were drained by others.
    pub(super) fn lru_shared(&self) -> bool {
        self.acts && (!self.forked || self.lived) && (self.used.is_some() || self.drained)
    }

    /// Forgets which tasks ran there up to now.
    pub(super) fn forget(&mut self) {
        (self.used, self.drained) = (None, false);
    }

    /// Follows a record from between rounds.
    pub(super) fn between_rounds(&mut self, record: &Raw, tasks: &mut Tasks) {
        if self.bears(record) && !self.lived {
            self.lived = true;
            self.forget();
        }
        if record.cpu != self.number {
            return;
        }
        self.drained |= record.kind == Kind::Drained;
        if tasks.fills_own_page(record) {
            self.used = Some(OURSELVES.to_owned());
        }
        if is_switch(record) {
            let next = record.value as i32;
            self.running = Some(next);
            if !tasks.harmless(next) {
                self.used = Some(name(next));
            }
        }
    }

    /// Follows which tasks ran since the last round, and returns what disturbed this one. `left`:
    /// why the CPU no longer has the address space loaded.
    pub(super) fn disturbance(
        &mut self,
        seen: &Seen<'_>,
        tasks: &mut Tasks,
        left: Option<&'static str>,
    ) -> Option<String> {
        let Seen { records, round, .. } = *seen;
        let since = self.since(records);
        if since > 0 {
            self.forget();
        }
        let asked = |r: &Raw| seen.draining.iter().any(|(_, call)| call.contains(r.time));
        let here = |r: &&Raw| r.kind == Kind::Drained && r.cpu == self.number && r.time >= since;
        self.drained |= records.iter().filter(here).any(|r| !asked(r));
        let later = records.iter().filter(|record| record.time >= since);
        let (came, came_later) =
            strangers_on(later, self.number, round, |tid| !tasks.harmless(tid));
        let fills = |r: &&Raw| r.cpu == self.number && r.time >= since && tasks.fills_own_page(r);
        let own = records.iter().any(|r| fills(&r)).then(|| OURSELVES.to_owned());
        self.used = came.map(name).or(own).or(self.used.take());
        let held = self.running.is_some_and(|tid| tasks.ours(tid));
        let at_start = self.follow(records, round);
        let reason = self
            .taken(seen, since, tasks)
            .or_else(|| self.missed_a_flush(seen, tasks, held))
            .or_else(|| self.parted_a_gather(seen))
            .or_else(|| self.taken_at_start(at_start, seen.team, tasks))
            .or_else(|| self.not_lazy(seen.team, left))
            .or_else(|| self.shares_lru());
        // A task that came after the end of the round disturbs the next one.
        self.used = came_later.map(name).or(self.used.take());
        self.lived = self.threads.iter().any(|&thread| seen.team.lives(thread));
        reason
    }

    /// Whether a process begins on this CPU, by this record.
    fn bears(&self, record: &Raw) -> bool {
        record.kind == Kind::Forked && self.threads.contains(&(record.extra as usize))
    }

    /// The time from which on it matters which tasks run there. This is 0, except on a CPU that
    /// only forked processes use: there it is the beginning of the first one.
    fn since(&self, records: &[Raw]) -> u64 {
        if !self.forked || self.lived {
            return 0;
        }
        let births = records.iter().filter(|record| self.bears(record));
        births.map(|record| record.time).min().unwrap_or(u64::MAX)
    }

    /// The task that ran there when the round started, if it is known.
    fn follow(&mut self, records: &[Raw], round: Observed) -> Option<i32> {
        let mut at_start = self.running;
        for record in records.iter().filter(|r| is_switch(r) && r.cpu == self.number) {
            self.running = Some(record.value as i32);
            if record.time < round.start_ns {
                at_start = self.running;
            }
        }
        at_start
    }

    /// The reason if a task that may do harm took the CPU of a thread that runs or spins.
    fn taken(&self, seen: &Seen<'_>, since: u64, tasks: &mut Tasks) -> Option<String> {
        let ought_to_run = self.ought_to_run(seen.team);
        let intruder = |record: &&Raw| {
            let next = record.value as i32;
            let pushed_out = record.extra == 1 && tasks.ours(record.tid) && !tasks.ours(next);
            let came = record.kind == Kind::SwitchIn && ought_to_run;
            seen.round.contains(record.time) && (came || pushed_out) && !tasks.harmless(next)
        };
        let here = |r: &&Raw| is_switch(r) && r.cpu == self.number && r.time >= since;
        let mut switches = seen.records.iter().filter(here);
        let record = switches.find(intruder)?;
        Some(format!("{LOST_CPU} to {}", name(record.value as i32)))
    }

    /// The reason if a thread of the scenario flushed while a thread was away, or if that thread's
    /// return flushed. `held`: whether one was on the CPU before the records.
    fn missed_a_flush(&self, seen: &Seen<'_>, tasks: &Tasks, held: bool) -> Option<String> {
        let Seen { records, round, flushes, draining, .. } = *seen;
        let absences = absences_of(records, self.number, round, &tasks.tids, held);
        // A call that drains the batches flushes first. A thread that is pushed out for the drain
        // misses no flush that began before.
        let asked = |gone: Span| draining.iter().any(|(_, call)| call.contains(gone.start()));
        let misses = |flush: &Span, gone: Span| {
            flush.overlaps(gone) && !(asked(gone) && flush.begins_before(gone))
        };
        let missed = |(gone, _): &&(Span, i32)| flushes.iter().any(|flush| misses(flush, *gone));
        if let Some((_, who)) = absences.iter().find(missed) {
            return Some(format!("{LOST_CPU} to {}", name(*who)));
        }
        let flushed = |gone: Span| {
            let back = came_back(records, self.number, gone, &tasks.tids);
            let on_return = |r: &Raw| gone.with_end(back).contains(r.time);
            let flushed = |r: &Raw| flushed_by_switch(r, self.number, round);
            records.iter().any(|r| on_return(r) && flushed(r))
        };
        let gone = absences.iter().find(|(gone, _)| flushed(*gone));
        gone.map(|(_, who)| format!("{LOST_CPU} to {}", name(*who)))
    }

    /// The reason if a call's flush was parted in two: one for the pages that were taken away
    /// before the thread gave up its CPU, one for the rest. A thread need not be pushed out for
    /// that: the call stops to let others run, and there may be no other task that is ready. RCU
    /// asks for that at a tick (kernel/rcu/tree.c:rcu_sched_clock_irq, 5.10 to 7.3).
    fn parted_a_gather(&self, seen: &Seen<'_>) -> Option<String> {
        let pushed_out = pushed_out_amid(seen.gathering, seen.records, self.number, seen.round);
        if let Some(who) = pushed_out {
            return Some(format!("{LOST_CPU} to {} during a call", name(who)));
        }
        let went_on = went_on_amid(seen.gathering, seen.records, self.number, sys::tick_ns());
        went_on.then(|| WENT_ON.to_owned())
    }

    /// The reason if another task was there when the round started.
    fn taken_at_start(&self, at_start: Option<i32>, team: &Team, tasks: &Tasks) -> Option<String> {
        let stranger = at_start.filter(|tid| self.ought_to_run(team) && !tasks.ours(*tid))?;
        Some(format!("{NOT_ON_CPU}, {} was", name(stranger)))
    }

    /// The reason if the CPU of sleepers may have loaded another address space.
    fn not_lazy(&self, team: &Team, left: Option<&'static str>) -> Option<String> {
        if !self.ought_to_be_lazy(team) {
            return None;
        }
        let used = self.used.as_ref().map(|who| format!("{CPU_USED}: {who}"));
        used.or_else(|| left.map(str::to_owned))
    }

    /// The reason if the LRU batches are not the scenario's alone.
    fn shares_lru(&self) -> Option<String> {
        if !self.lru_shared() {
            return None;
        }
        let drained = self.drained.then(|| LRU_EMPTIED.to_owned());
        drained.or_else(|| Some(format!("{LRU_SHARED}: {}", self.used.as_ref()?)))
    }

    /// Whether one of its threads runs or spins.
    fn ought_to_run(&self, team: &Team) -> bool {
        self.threads.iter().any(|&thread| team.rest(thread) == Rest::Running)
    }

    /// Whether its threads sleep, so that it should have the address space loaded lazily.
    fn ought_to_be_lazy(&self, team: &Team) -> bool {
        !self.ought_to_run(team)
            && self.threads.iter().any(|&thread| team.rest(thread) == Rest::Sleeping)
    }
}

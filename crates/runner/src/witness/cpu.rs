//! One of the scenario's CPUs: who runs there, and what of it disturbs a round.

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
    /// As the scenario numbers it.
    pub(super) number: u16,
    /// The threads on it.
    threads: Vec<usize>,
    /// Who runs there, once it is known.
    running: Option<i32>,
    /// Whether a thread there does more than hold it.
    acts: bool,
    /// Whether all of them are of processes that are forked: what strangers did before they began does not matter.
    forked: bool,
    /// Whether one of these lived when this was last looked at.
    lived: bool,
    /// The stranger's user task that ran there since [`Cpu::forget`].
    used: Option<String>,
    /// Whether a kernel thread has emptied its LRU batches since then.
    drained: bool,
}

/// A round that is over, as its records show it.
pub(super) struct Seen<'a> {
    /// The records since the round before.
    pub(super) records: &'a [Raw],
    /// The round.
    pub(super) round: Observed,
    /// The scenario's threads.
    pub(super) team: &'a Team,
    /// When they flushed.
    pub(super) flushes: &'a [Span],
    /// When they were in a call that has all CPUs empty their LRU batches.
    pub(super) draining: &'a [(i32, Span)],
    /// When they were in a call that may take pages away whose flush cannot wait for its end.
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
    /// Whether the LRU batches of an acting thread may hold what is not the scenario's, or have
    /// been emptied by others.
    pub(super) fn lru_shared(&self) -> bool {
        self.acts && (!self.forked || self.lived) && (self.used.is_some() || self.drained)
    }

    /// Who ran there up to now does not matter any more.
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

    /// Follows who ran since the last round; tells what disturbed this one. `left`: why the CPU does
    /// not hold the address space any more.
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
        // Whoever came after the round's end is the next one's concern.
        self.used = came_later.map(name).or(self.used.take());
        self.lived = self.threads.iter().any(|&thread| seen.team.lives(thread));
        reason
    }

    /// Whether a process begins on this CPU.
    fn bears(&self, record: &Raw) -> bool {
        record.kind == Kind::Forked && self.threads.contains(&(record.extra as usize))
    }

    /// From when on it matters who runs there: always, but on a CPU that only processes use which are forked, from the
    /// first one's birth on.
    fn since(&self, records: &[Raw]) -> u64 {
        if !self.forked || self.lived {
            return 0;
        }
        let births = records.iter().filter(|record| self.bears(record));
        births.map(|record| record.time).min().unwrap_or(u64::MAX)
    }

    /// Who ran there when the round started, as far as it is known.
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

    /// Whether a task that may do harm came in the place of a thread that runs or spins.
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

    /// Whether a flush fell into the time in which a thread was away, or coming back flushed. `held`: whether one was there
    /// before the records.
    fn missed_a_flush(&self, seen: &Seen<'_>, tasks: &Tasks, held: bool) -> Option<String> {
        let Seen { records, round, flushes, draining, .. } = *seen;
        let absences = absences_of(records, self.number, round, &tasks.tids, held);
        // Who has batches emptied has flushed before: the thread that comes for that misses nothing of it.
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

    /// Whether a thread was pushed out amid a call whose flush is two then: one for what was taken away before it went, one
    /// for the rest. It need not have been: the call stops to let others run, and nobody else may be ready. RCU asks for that
    /// at a tick (kernel/rcu/tree.c:rcu_sched_clock_irq, 5.10 to 7.3).
    fn parted_a_gather(&self, seen: &Seen<'_>) -> Option<String> {
        let pushed_out = pushed_out_amid(seen.gathering, seen.records, self.number, seen.round);
        if let Some(who) = pushed_out {
            return Some(format!("{LOST_CPU} to {} during a call", name(who)));
        }
        let went_on = went_on_amid(seen.gathering, seen.records, self.number, sys::tick_ns());
        went_on.then(|| WENT_ON.to_owned())
    }

    /// Whether somebody else was there when the round started.
    fn taken_at_start(&self, at_start: Option<i32>, team: &Team, tasks: &Tasks) -> Option<String> {
        let stranger = at_start.filter(|tid| self.ought_to_run(team) && !tasks.ours(*tid))?;
        Some(format!("{NOT_ON_CPU}, {} was", name(stranger)))
    }

    /// Whether the CPU of sleepers may have loaded another address space.
    fn not_lazy(&self, team: &Team, left: Option<&'static str>) -> Option<String> {
        if !self.ought_to_be_lazy(team) {
            return None;
        }
        let used = self.used.as_ref().map(|who| format!("{CPU_USED}: {who}"));
        used.or_else(|| left.map(str::to_owned))
    }

    /// Whether the LRU batches are not the scenario's alone.
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

    /// Whether its threads sleep, so that it ought to hold the address space lazily.
    fn ought_to_be_lazy(&self, team: &Team) -> bool {
        !self.ought_to_run(team)
            && self.threads.iter().any(|&thread| team.rest(thread) == Rest::Sleeping)
    }
}

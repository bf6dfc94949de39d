//! The page of one round, event by event.
//!
//! Events tell what a CPU runs, what becomes of page-table entries and frames, and which flushes
//! are asked for and done. They do not tell what a TLB holds. The model shows that after each
//! operation and fault; of a real kernel the last flush is shown instead.

use super::frame::{LINES, Made, Page, list};
use super::stepper::{MOST_STEPS, Mark, Part, Place, Recorder, Step, Walk};
use crate::answer;
use crate::explain::{
    Explanation, borrowed_line, json, no_events, operation, pte, sequence_line, verdict_text, what,
};
use maud::html;
use needless_model::account::thread_name;
use needless_model::addr::{Pfn, Vpn};
use needless_model::event::{Event, EventKind, FlushReason};
use needless_model::program::{Area, Program};
use needless_model::sim::SimWorld;
use std::collections::BTreeMap;

/// What of the data may be left out.
const MAY_GO: &[&str] = &["/events"];

/// How to read what is shown.
const TLBS: &str = "What a TLB holds is shown as it is when an operation or a fault is over.";
const NO_TLBS: &str = "Events do not tell what a TLB holds: its last flush is shown instead.";
const FIRST: &str = "Page-table entries and frames are shown from their first event on.";

/// The most pages of an area that are looked for in TLBs.
const MOST_PAGES: usize = 512;

/// What the TLBs of the model hold when an operation or a fault is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// How many events the round has by then.
    pub events: usize,
    /// By CPU: runs of pages whose translations it holds, of the address space that it has loaded.
    pub cpus: Vec<Vec<String>>,
}

impl Held {
    /// What they hold now.
    pub fn of(program: &Program, world: &SimWorld, events: usize) -> Held {
        let cpus = world.tlbs.cpus.iter().zip(world.cpus.iter());
        let held = cpus.map(|(tlb, cpu)| {
            let epoch = tlb.epoch(cpu.asid);
            let of_area = |area: &Area| {
                let pages: Vec<Vpn> = area.range.iter().take(MOST_PAGES).collect();
                let held = pages.chunk_by(|a, b| tlb.holds(*a, epoch) == tlb.holds(*b, epoch));
                let held = held.filter(|run| tlb.holds(run[0], epoch));
                held.map(|run| name(program, run)).collect::<Vec<String>>()
            };
            program.areas.iter().flat_map(of_area).collect::<Vec<String>>()
        });
        Held { events, cpus: held.collect() }
    }

    /// Adds what they hold now to what they held before. Where the number of events went back, a
    /// round began: what they held by then is what it began with.
    pub fn note(all: &mut Vec<Held>, now: Held) {
        let began = all.last().is_some_and(|last| last.events > now.events);
        if began && let Some(last) = all.pop() {
            *all = vec![Held { events: 0, ..last }];
        }
        match all.last_mut() {
            Some(last) if last.cpus == now.cpus => {}
            Some(last) if last.events == now.events => *last = now,
            _ => all.push(now),
        }
    }
}

/// Pages that follow each other: `heap[3]`, `heap[0] to heap[7]`.
fn name(program: &Program, run: &[Vpn]) -> String {
    let name = |page: &Vpn| program.page_name(*page).unwrap_or_else(|| page.to_string());
    match run {
        [] => String::new(),
        [one] => name(one),
        [first, .., last] => format!("{} to {}", name(first), name(last)),
    }
}

/// The page of a round; `tlbs` is what the model showed, in order, or nothing.
pub fn explain(explanation: &Explanation<'_>, tlbs: &[Held], made: &Made) -> String {
    let Explanation { program, ran, at } = *explanation;
    let walk = walk(explanation, tlbs);
    let mut sentences = vec![format!("needless in each round: {}", answer::of_run(ran))];
    if explanation.events().is_empty() {
        sentences.push(no_events(ran));
    }
    sentences.extend(sequence_line(explanation, LINES));
    sentences.extend(borrowed_line(explanation));
    let needless = needless(explanation);
    Page {
        title: format!("{} on {}, round {at}", program.name, ran.run.target),
        answer: html! {
            (list(sentences))
            @if !needless.is_empty() {
                h2 { "Needless in this round" }
                ul class="lines" {
                    @for (step, sentence) in &needless {
                        li {
                            @match step {
                                Some(step) => { a href=(format!("#{step}")) { "Step " (step) } }
                                None => { "A later step" }
                            }
                            ": " (sentence)
                        }
                    }
                }
            }
        },
        picture: html! { @if !walk.is_empty() { (walk.markup(0)) } },
        tables: html! {},
        machines: Vec::new(),
        document: json(explanation),
        may_go: MAY_GO,
        moves: !walk.is_empty(),
    }
    .render(made)
}

/// The most sentences on what was needless.
const MOST_NEEDLESS: usize = 20;

/// What was needless in the round, with the number of its step, if that is shown.
fn needless(explanation: &Explanation<'_>) -> Vec<(Option<usize>, String)> {
    let events = explanation.events().iter().enumerate();
    let needless = events.filter_map(|(at, event)| {
        let verdict = explanation.verdict(event).filter(|verdict| verdict.is_needless())?;
        let step = (at < MOST_STEPS).then_some(at + 1);
        let said = what(explanation.program, event, LINES);
        Some((step, format!("{said}: {}", verdict_text(verdict))))
    });
    needless.take(MOST_NEEDLESS).collect()
}

/// The events as steps.
fn walk(explanation: &Explanation<'_>, tlbs: &[Held]) -> Walk {
    let Explanation { program, ran, at } = *explanation;
    let title = format!("Round {at} on {}, event by event", ran.run.target);
    let events = explanation.events();
    let hints = [if tlbs.is_empty() { NO_TLBS } else { TLBS }, FIRST];
    let mut round = Round {
        recorder: Recorder::new(title, hints.map(str::to_owned).into()),
        program,
        tlbs,
        waits: BTreeMap::new(),
    };
    let most = events.iter().map(|event| event.cpu.index() + 1).max().unwrap_or(0);
    for cpu in 0..most.max(program.machine.cpus.into()) {
        for part in [Part::Task, Part::Tlb, Part::Pending] {
            round.recorder.set(Place::of_cpu(part, cpu), String::new());
        }
    }
    round.hold(0);
    round.recorder.begin();
    for (at, event) in events.iter().take(MOST_STEPS).enumerate() {
        round.happens(event);
        round.hold(at + 1);
        let verdict = explanation.verdict(event);
        let needless = verdict.is_some_and(|verdict| verdict.is_needless());
        round.recorder.step(Step {
            cpu: event.cpu.index(),
            thread: event.thread.map_or("", |_| thread_name(program, event.thread)).to_owned(),
            operation: operation(program, event).to_owned(),
            what: what(program, event, LINES),
            function: event.site.map_or("", |site| site.function()).to_owned(),
            file: event.site.map_or("", |site| site.file()).to_owned(),
            note: verdict.map_or_else(String::new, verdict_text),
            mark: if needless { Mark::Needless } else { Mark::None },
            ..Step::default()
        });
    }
    let more = events.len() - round.recorder.len();
    round.recorder.finish(more)
}

/// What events say of a round so far.
struct Round<'a> {
    recorder: Recorder,
    program: &'a Program,
    /// What TLBs hold; nothing if that is not known.
    tlbs: &'a [Held],
    /// By CPU that waits for others: how many of them have yet to answer, if that is known.
    waits: BTreeMap<usize, Option<u64>>,
}

impl Round<'_> {
    /// After so many events TLBs hold this.
    fn hold(&mut self, events: usize) {
        let Some(held) = self.tlbs.iter().find(|held| held.events == events) else { return };
        for (cpu, pages) in held.cpus.iter().enumerate() {
            self.recorder.set(Place::of_cpu(Part::Tlb, cpu), pages.join("\n"));
        }
    }

    fn happens(&mut self, event: &Event) {
        let cpu = event.cpu.index();
        let runs = match event.kind {
            EventKind::Switch { to: None } => Some("idle, or a stranger".to_owned()),
            EventKind::Switch { to } => Some(thread_name(self.program, to).to_owned()),
            _ => event.thread.map(|_| thread_name(self.program, event.thread).to_owned()),
        };
        // A CPU that waits for others does nothing else but flush.
        if !matches!(event.kind, EventKind::Flush { .. }) && self.waits.remove(&cpu).is_some() {
            self.pending(cpu);
        }
        if let Some(runs) = runs {
            self.recorder.set(Place::of_cpu(Part::Task, cpu), runs);
        }
        match event.kind {
            EventKind::Pte { page, old: _, new } => self.page(page, pte(new)),
            EventKind::Zero { page, frame } => {
                self.frame(frame, format!("{}, zeroed", self.name(page)));
            }
            EventKind::Copy { page, from, to } => {
                self.frame(to, format!("{}, copied from frame {}", self.name(page), from.0));
            }
            EventKind::PageIn { page, frame, .. } => {
                self.frame(frame, format!("{}, read from swap", self.name(page)));
            }
            EventKind::PageOut { page, frame, .. } => {
                self.frame(frame, format!("{}, written to swap", self.name(page)));
            }
            EventKind::Free { frame } => self.frame(frame, "free".to_owned()),
            EventKind::Flush { reason: FlushReason::RemoteSend, asked: Some(0), .. } => {}
            EventKind::Flush { reason: FlushReason::RemoteSend, asked, .. } => {
                self.waits.insert(cpu, asked.map(u64::from));
                self.pending(cpu);
            }
            EventKind::Flush { reason, .. } => {
                if self.tlbs.is_empty() {
                    let said = what(self.program, event, LINES);
                    self.recorder.set(Place::of_cpu(Part::Tlb, cpu), said);
                }
                if matches!(reason, FlushReason::RemoteShootdown | FlushReason::RemoteWrongCpu) {
                    self.answered(cpu);
                }
            }
            _ => {}
        }
    }

    /// A CPU has flushed because another one asked it to. Events do not tell which one: where
    /// several wait, it is no longer known for how many CPUs each of them waits.
    fn answered(&mut self, cpu: usize) {
        let from: Vec<usize> = self.waits.keys().copied().filter(|from| *from != cpu).collect();
        for waiting in &from {
            let left = self.waits.get(waiting).copied().flatten().filter(|_| from.len() == 1);
            match left {
                Some(0 | 1) => self.waits.remove(waiting),
                left => self.waits.insert(*waiting, left.map(|left| left - 1)),
            };
            self.pending(*waiting);
        }
    }

    fn pending(&mut self, cpu: usize) {
        let said = match self.waits.get(&cpu) {
            None => String::new(),
            Some(None) => "waits for other CPUs".to_owned(),
            Some(Some(1)) => "waits for 1 CPU".to_owned(),
            Some(Some(left)) => format!("waits for {left} CPUs"),
        };
        self.recorder.set(Place::of_cpu(Part::Pending, cpu), said);
    }

    fn page(&mut self, page: Vpn, entry: String) {
        self.recorder.set(Place::named(Part::Page, self.name(page)), entry);
    }

    fn frame(&mut self, frame: Pfn, what: String) {
        self.recorder.set(Place::named(Part::Frame, format!("frame {}", frame.0)), what);
    }

    fn name(&self, page: Vpn) -> String {
        self.program.page_name(page).unwrap_or_else(|| page.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_begins_with_what_the_one_before_left() {
        let held = |events, pages: &str| Held { events, cpus: vec![vec![pages.to_owned()]] };
        let mut all = Vec::new();
        for (events, pages) in [(3, "a"), (9, "b"), (1, "b"), (4, "c"), (4, "d"), (5, "d")] {
            Held::note(&mut all, held(events, pages));
        }
        assert_eq!(all, [held(0, "b"), held(4, "d")]);
    }
}

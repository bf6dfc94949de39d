//! The page of one round, event by event.
//!
//! Events tell what a CPU runs, what becomes of page-table entries and frames, and which flushes are asked for and done.
//! They do not tell what a TLB holds: instead of that its last flush is shown.

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
use needless_model::program::Program;
use std::collections::BTreeMap;

/// What of the data may be left out.
const MAY_GO: &[&str] = &["/events"];

/// How to read what is shown.
const HINTS: [&str; 2] = [
    "Events do not tell what a TLB holds: its last flush is shown instead.",
    "Page-table entries and frames are shown from their first event on.",
];

/// The page of a round.
pub fn explain(explanation: &Explanation<'_>, made: &Made) -> String {
    let Explanation { program, ran, at } = *explanation;
    let walk = walk(explanation);
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
fn walk(explanation: &Explanation<'_>) -> Walk {
    let Explanation { program, ran, at } = *explanation;
    let title = format!("Round {at} on {}, event by event", ran.run.target);
    let events = explanation.events();
    let mut round = Round {
        recorder: Recorder::new(title, HINTS.map(str::to_owned).into()),
        program,
        waits: BTreeMap::new(),
    };
    let most = events.iter().map(|event| event.cpu.index() + 1).max().unwrap_or(0);
    for cpu in 0..most.max(program.machine.cpus.into()) {
        for part in [Part::Task, Part::Tlb, Part::Pending] {
            round.recorder.set(Place::of_cpu(part, cpu), String::new());
        }
    }
    round.recorder.begin();
    for event in events.iter().take(MOST_STEPS) {
        round.happens(event);
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
    /// By CPU that asked: how many CPUs have yet to answer it.
    waits: BTreeMap<usize, u64>,
}

impl Round<'_> {
    fn happens(&mut self, event: &Event) {
        let cpu = event.cpu.index();
        let runs = match event.kind {
            EventKind::Switch { to: None } => Some("idle, or a stranger".to_owned()),
            EventKind::Switch { to } => Some(thread_name(self.program, to).to_owned()),
            _ => event.thread.map(|_| thread_name(self.program, event.thread).to_owned()),
        };
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
            EventKind::Flush { reason: FlushReason::RemoteSend, asked, .. } => {
                self.waits.insert(cpu, asked.map_or(0, u64::from));
                self.pending(cpu);
            }
            EventKind::Flush { reason, .. } => {
                let said = what(self.program, event, LINES);
                self.recorder.set(Place::of_cpu(Part::Tlb, cpu), said);
                if matches!(reason, FlushReason::RemoteShootdown | FlushReason::RemoteWrongCpu) {
                    self.answered(cpu);
                }
            }
            _ => {}
        }
    }

    /// A CPU has flushed because another one asked it to.
    fn answered(&mut self, cpu: usize) {
        let waiting = self.waits.iter_mut().find(|(from, left)| **from != cpu && **left > 0);
        let Some((from, left)) = waiting else { return };
        let from = *from;
        *left -= 1;
        self.pending(from);
    }

    fn pending(&mut self, cpu: usize) {
        let said = match self.waits.get(&cpu) {
            None | Some(0) => String::new(),
            Some(1) => "waits for 1 CPU".to_owned(),
            Some(left) => format!("waits for {left} CPUs"),
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

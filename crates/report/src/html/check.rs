//! The page of what the checker found: the verdict in words, and each counterexample step by step.

use super::frame::{LINES, Made, Page, list, words};
use super::stepper::{Mark, Part, Place, Recorder, Step, Walk};
use crate::check::{
    Checked, Replayed, checked_json, found, replayed_json, report_text, verdicts_json,
};
use maud::{Markup, html};
use needless_check::litmus::{Case, CaseResult};
use needless_check::{CpuScene, Property, Report, Scene, StepTaken, Violation};
use std::collections::BTreeMap;

/// What of the data may be left out, in this order.
const MAY_GO: &[&str] = &["/steps", "/reports/*/counterexample/steps"];

/// How to read what is shown.
const HINTS: [&str; 2] = [
    "A TLB may hold what it could have cached since its last flush; none has to be there.",
    "A frame is shown from its first use on. What it holds is the last store to it.",
];

/// Makes a walk of the steps of a schedule and of what holds after each of them.
pub struct Follower<'a> {
    recorder: Recorder,
    steps: &'a [StepTaken],
    violation: Option<&'a Violation>,
    /// Scenes so far: the first one is the start.
    scenes: usize,
    /// The operation that each thread is in.
    operations: BTreeMap<&'a str, &'a str>,
}

impl<'a> Follower<'a> {
    /// A walk of these steps, at whose end this is violated.
    pub fn new(
        title: String,
        steps: &'a [StepTaken],
        violation: Option<&'a Violation>,
    ) -> Follower<'a> {
        let hints = HINTS.map(str::to_owned).into();
        let recorder = Recorder::new(title, hints);
        Follower { recorder, steps, violation, scenes: 0, operations: BTreeMap::new() }
    }

    /// What holds at the start, or after the next step.
    pub fn add(&mut self, scene: &Scene) {
        for (cpu, CpuScene { tasks, cached, pending }) in scene.cpus.iter().enumerate() {
            for (part, lines) in
                [(Part::Task, tasks), (Part::Tlb, cached), (Part::Pending, pending)]
            {
                self.recorder.set(Place::of_cpu(part, cpu), lines.join("\n"));
            }
        }
        for (name, pte) in &scene.pages {
            self.recorder.set(Place::named(Part::Page, name), pte.clone());
        }
        for (frame, what) in &scene.frames {
            self.recorder.set(Place::named(Part::Frame, format!("f{}", frame.0)), what.clone());
        }
        self.recorder.frames_are(&scene.frames.iter().map(|(frame, _)| frame.0).collect());
        match self.scenes.checked_sub(1).and_then(|at| self.steps.get(at)) {
            None => self.recorder.begin(),
            Some(step) => self.step(step, scene),
        }
        self.scenes += 1;
    }

    fn step(&mut self, step: &'a StepTaken, scene: &Scene) {
        let thread = step.thread.as_deref().unwrap_or("");
        if let Some(operation) = &step.operation {
            self.operations.insert(thread, operation);
        }
        let last = self.scenes == self.steps.len();
        let violation = self.violation.filter(|_| last);
        self.recorder.step(Step {
            cpu: step.cpu.index(),
            thread: thread.to_owned(),
            operation: self.operations.get(thread).copied().unwrap_or("").to_owned(),
            what: step.label.clone(),
            function: scene.site.map_or("", |site| site.function()).to_owned(),
            file: scene.site.map_or("", |site| site.file()).to_owned(),
            note: violation.map_or_else(String::new, in_words),
            mark: if violation.is_some() { Mark::Violation } else { Mark::None },
            ..Step::default()
        });
    }

    /// The walk.
    pub fn finish(self) -> Walk {
        self.recorder.finish(0)
    }
}

/// A violation with its property: `VIOLATED P1 …: what happened`.
fn in_words(violation: &Violation) -> String {
    format!("VIOLATED {}: {}", violation.property, violation.what)
}

/// The page of a scenario on kernel rows; the walks are those of its counterexamples.
pub fn checked(checked: &[Checked], walks: &[Walk], made: &Made) -> String {
    let name = checked.first().map_or("", |checked| checked.scenario.as_str());
    let rows = checked.iter().map(|checked| {
        let Checked { scenario, target, report } = checked;
        figures(scenario, target, report)
    });
    Page {
        title: format!("{name}: every interleaving"),
        answer: html! {
            @for Checked { scenario, target, report } in checked {
                (sentences(scenario, target, report))
            }
        },
        picture: pictures(walks),
        tables: words("What was explored", &HEAD.map(str::to_owned), &rows.collect::<Vec<_>>()),
        machines: Vec::new(),
        document: checked_json(checked),
        may_go: MAY_GO,
        moves: moves(walks),
    }
    .render(made)
}

/// The page of a schedule.
pub fn replayed(replayed: &Replayed, walk: &Walk, made: &Made) -> String {
    let Replayed { scenario, target, schedule, violation, .. } = replayed;
    let outcome = violation.as_ref().map_or("nothing is violated".to_owned(), in_words);
    let walks = std::slice::from_ref(walk);
    Page {
        title: format!("{scenario}: one schedule"),
        answer: html! {
            p { (scenario) " on " (target) ": " (outcome) }
            p { "Schedule: " code { (schedule) } }
        },
        picture: pictures(walks),
        tables: html! {},
        machines: Vec::new(),
        document: replayed_json(replayed),
        may_go: MAY_GO,
        moves: moves(walks),
    }
    .render(made)
}

/// The page of litmus tests; the walks are those of some counterexamples.
pub fn litmus(verdicts: &[(String, Case, CaseResult)], walks: &[Walk], made: &Made) -> String {
    let names: Vec<&str> = verdicts.iter().map(|(name, ..)| name.as_str()).collect();
    let title = match names.as_slice() {
        [first, rest @ ..] if rest.iter().all(|name| name == first) => {
            format!("{first}: every interleaving")
        }
        _ => "Litmus tests: every interleaving".to_owned(),
    };
    let mut sentences = Vec::new();
    for (name, case, verdict) in verdicts {
        sentences.extend(
            verdict.unexpected.iter().map(|what| format!("{name} on {}: {what}", case.row)),
        );
        if let Some(doc) = &case.doc {
            sentences.push(format!("{name} on {}: {doc}", case.row));
        }
    }
    Page {
        title,
        answer: html! {
            p { (crate::check::closing(verdicts)) }
            (list(sentences))
        },
        picture: pictures(walks),
        tables: words(
            "Every test on every kernel row",
            &crate::check::HEADER.map(str::to_owned),
            &crate::check::rows(verdicts),
        ),
        machines: Vec::new(),
        document: verdicts_json(verdicts),
        may_go: MAY_GO,
        moves: moves(walks),
    }
    .render(made)
}

const HEAD: [&str; 7] =
    ["scenario", "kernel row", "found", "states", "final states", "deepest", "exercised"];

fn figures(scenario: &str, target: &str, report: &Report) -> Vec<String> {
    let exercised = Property::ALL.iter().filter(|property| report.exercised.has(**property));
    let exercised: Vec<&str> = exercised.map(|property| property.number()).collect();
    let words = [scenario.to_owned(), target.to_owned(), found(report)].into_iter();
    let counts = [report.states, report.ends, report.depth].map(|count| count.to_string());
    words.chain(counts).chain([exercised.join(" ")]).collect()
}

/// What the text says of an exploration, up to the steps of a counterexample.
fn sentences(scenario: &str, target: &str, report: &Report) -> Markup {
    let mut told = Report { counterexample: None, ..report.clone() };
    let Some(found) = &report.counterexample else {
        return list(report_text(scenario, target, &told, LINES).lines());
    };
    // Nothing is said to hold where something is violated.
    told.bound = None;
    let first = report_text(scenario, target, &told, LINES);
    let first = first.lines().next().unwrap_or_default().to_owned();
    let schedule = format!("schedule: {}", found.schedule);
    list([first, in_words(&found.violation), schedule])
}

fn pictures(walks: &[Walk]) -> Markup {
    html! { @for (number, walk) in walks.iter().enumerate() { (walk.markup(number)) } }
}

fn moves(walks: &[Walk]) -> bool {
    walks.iter().any(|walk| !walk.is_empty())
}

//! A walk through steps: of a schedule that the checker found, or of a round. What is shown has
//! places: what a CPU runs, what its TLB may hold, which flushes it has yet to do, page-table
//! entries, frames. A step gives some of them other values. The script shows one step at a time;
//! the table below has all of them.

use super::embed;
use super::frame::list;
use maud::{Markup, PreEscaped, html};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The most steps that a page has. Of longer walks some are left out.
pub(super) const MOST_STEPS: usize = 2_000;

/// What a place is of.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Part {
    /// What a CPU runs.
    Task,
    /// What its TLB may hold.
    Tlb,
    /// Flushes that it has yet to do.
    Pending,
    /// A page-table entry.
    Page,
    /// A frame.
    Frame,
}

/// Something that has a value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(super) struct Place {
    /// What it is of.
    pub part: Part,
    /// The CPU, for the first three parts.
    pub cpu: Option<usize>,
    /// Its name, for the others.
    pub name: String,
}

impl Place {
    /// A place of a CPU.
    pub(super) const fn of_cpu(part: Part, cpu: usize) -> Place {
        Place { part, cpu: Some(cpu), name: String::new() }
    }

    /// A page or a frame.
    pub(super) fn named(part: Part, name: impl Into<String>) -> Place {
        Place { part, cpu: None, name: name.into() }
    }
}

/// What marks a step.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Mark {
    /// Nothing marks it.
    #[default]
    None,
    /// It was needless.
    Needless,
    /// It violates the property.
    Violation,
}

/// A step.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Step {
    /// Where it happens.
    pub cpu: usize,
    /// The thread; empty if it is none's.
    pub thread: String,
    /// The operation of the scenario that it belongs to or begins.
    pub operation: String,
    /// What it is.
    pub what: String,
    /// The kernel function; empty if it is none.
    pub function: String,
    /// The function's file in Linux.
    pub file: String,
    /// What is to be said of it: a verdict, or the violation.
    pub note: String,
    /// What marks it.
    pub mark: Mark,
    /// The places that it changed, by number, with their values; [`Recorder::step`] fills it.
    pub set: Vec<(usize, String)>,
}

/// A walk that is being recorded.
pub(super) struct Recorder {
    walk: Walk,
    numbers: BTreeMap<Place, usize>,
    now: Vec<String>,
    /// Changes since the last step.
    set: Vec<(usize, String)>,
    steps: VecDeque<Step>,
}

/// A walk.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Walk {
    #[serde(skip)]
    title: String,
    /// What has to be known to read it.
    #[serde(skip)]
    hints: Vec<String>,
    cpus: usize,
    places: Vec<Place>,
    /// The values before the first step that is shown.
    start: Vec<String>,
    steps: Vec<Step>,
    /// The number of the first step that is shown.
    first: usize,
    /// Steps behind the last one that is shown.
    #[serde(skip)]
    more: usize,
}

impl Recorder {
    /// A walk before its first step.
    pub(super) fn new(title: String, hints: Vec<String>) -> Recorder {
        let walk = Walk { title, hints, first: 1, ..Walk::default() };
        let (numbers, steps) = (BTreeMap::new(), VecDeque::new());
        Recorder { walk, numbers, now: Vec::new(), set: Vec::new(), steps }
    }

    /// A place has this value from the next step on; at the start before any.
    pub(super) fn set(&mut self, place: Place, value: String) {
        let number = match self.numbers.get(&place) {
            Some(number) => *number,
            None => {
                let number = self.walk.places.len();
                self.walk.cpus = self.walk.cpus.max(place.cpu.map_or(0, |cpu| cpu + 1));
                self.walk.places.push(place.clone());
                self.numbers.insert(place, number);
                self.now.push(String::new());
                self.walk.start.push(String::new());
                number
            }
        };
        if self.now[number] == value {
            return;
        }
        self.now[number].clone_from(&value);
        match self.set.iter_mut().find(|(known, _)| *known == number) {
            Some((_, known)) => *known = value,
            None => self.set.push((number, value)),
        }
    }

    /// The numbers of the frames that are in use: others that were are free.
    pub(super) fn frames_are(&mut self, used: &BTreeSet<u32>) {
        let free = |place: &&Place| {
            let number = place.name.strip_prefix('f').and_then(|number| number.parse().ok());
            place.part == Part::Frame && number.is_some_and(|number| !used.contains(&number))
        };
        let free: Vec<Place> = self.walk.places.iter().filter(free).cloned().collect();
        free.into_iter().for_each(|place| self.set(place, "free".to_owned()));
    }

    /// What was set until now holds at the start.
    pub(super) fn begin(&mut self) {
        self.set.clear();
        self.walk.start.clone_from(&self.now);
    }

    /// A step with what was set since the last one. Of too many steps the last ones are kept.
    pub(super) fn step(&mut self, step: Step) {
        let set = std::mem::take(&mut self.set);
        self.steps.push_back(Step { set, ..step });
        if self.steps.len() > MOST_STEPS
            && let Some(gone) = self.steps.pop_front()
        {
            self.walk.first += 1;
            for (number, value) in gone.set {
                self.walk.start[number] = value;
            }
        }
    }

    /// How many steps there are.
    pub(super) fn len(&self) -> usize {
        self.steps.len()
    }

    /// So many steps more were not recorded.
    pub(super) fn finish(self, more: usize) -> Walk {
        Walk { steps: self.steps.into(), more, ..self.walk }
    }
}

impl Walk {
    /// Whether there is nothing to see.
    pub(super) fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// Number `number` of the walks on a page, from 0: the steps one by one, then all of them.
    pub(super) fn markup(&self, number: usize) -> Markup {
        let id = format!("walk-{number}");
        let data = format!("{id}-data");
        let last = self.first + self.steps.len() - usize::from(!self.steps.is_empty());
        html! {
            figure class="stepper" id=(id) data-walk=(data) data-number=(number) tabindex="-1"
                aria-label=(self.title) {
                figcaption {
                    (self.title)
                    p class="hint" {
                        "Arrow keys, Home and End go from step to step. A step's number is a link to it."
                    }
                    (list(&self.hints))
                }
                div class="controls" {
                    button type="button" data-go="first" { "First" }
                    button type="button" data-go="back" { "Back" }
                    button type="button" data-go="on" { "Next" }
                    button type="button" data-go="last" { "Last" }
                    label {
                        "Step "
                        input type="range" min=(self.first - 1) max=(last) step="1"
                            value=(self.first - 1);
                    }
                }
                div class="now" aria-live="polite" {
                    noscript { p { "Without scripts: the table below has every step." } }
                }
                div class="stage" {}
                script type="application/json" id=(data) {
                    (PreEscaped(embed::script(&crate::json::value(self))))
                }
            }
            (self.table(number))
        }
    }

    /// Every step, with what it changed.
    fn table(&self, number: usize) -> Markup {
        let head = ["step", "CPU", "thread", "what", "function", "changed"];
        let changed = |step: &Step| {
            let place = |(number, value): &(usize, String)| self.told(*number, value);
            step.set.iter().map(place).collect::<Vec<String>>()
        };
        html! {
            @if self.first > 1 {
                p { "The first " (self.first - 1) " steps are left out." }
            }
            div class="scroll" tabindex="0" role="region" aria-label=(format!("Steps: {}", self.title)) {
                table {
                    caption { "Every step" }
                    thead { tr { @for name in head { th scope="col" { (name) } } } }
                    tbody {
                        @for (at, step) in self.steps.iter().enumerate() {
                            tr id=(anchor(number, self.first + at)) {
                                th scope="row" {
                                    a href=(format!("#{}", anchor(number, self.first + at))) {
                                        (self.first + at)
                                    }
                                }
                                td { (step.cpu) }
                                td { (step.thread) }
                                td {
                                    @if !step.operation.is_empty() { b { (step.operation) } br; }
                                    (step.what)
                                    @if !step.note.is_empty() {
                                        br;
                                        span class=(class(step.mark)) { (step.note) }
                                    }
                                }
                                td {
                                    (step.function)
                                    @if !step.file.is_empty() { br; (step.file) }
                                }
                                td { @for line in changed(step) { p { (line) } } }
                            }
                        }
                    }
                }
            }
            @if self.more > 0 { p { (self.more) " more steps are left out." } }
        }
    }

    /// A place with its value.
    fn told(&self, number: usize, value: &str) -> String {
        let value = if value.is_empty() { "nothing" } else { &value.replace('\n', "; ") };
        match self.places.get(number) {
            Some(Place { part, cpu: Some(cpu), .. }) => {
                let what = match part {
                    Part::Task => "runs",
                    Part::Tlb => "TLB",
                    _ => "pending",
                };
                format!("CPU {cpu}, {what}: {value}")
            }
            Some(Place { name, .. }) => format!("{name}: {value}"),
            None => value.to_owned(),
        }
    }
}

/// The name of a step in a link: `12`, and `w1-12` for the second walk of a page.
fn anchor(walk: usize, step: usize) -> String {
    if walk == 0 { step.to_string() } else { format!("w{walk}-{step}") }
}

const fn class(mark: Mark) -> &'static str {
    match mark {
        Mark::None => "more",
        Mark::Needless => "needless",
        Mark::Violation => "violation",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn step(what: &str) -> Step {
        Step { what: what.to_owned(), ..Step::default() }
    }

    fn page(name: &str) -> Place {
        Place::named(Part::Page, name)
    }

    #[test]
    fn a_step_has_what_changed_and_nothing_else() {
        let mut recorder = Recorder::new("title".into(), Vec::new());
        recorder.set(page("a"), "f1".into());
        recorder.set(page("b"), "none".into());
        recorder.begin();
        recorder.set(page("a"), "f1".into());
        recorder.set(page("b"), "f2".into());
        recorder.set(page("b"), "f3".into());
        recorder.step(step("one"));
        recorder.set(Place::named(Part::Frame, "f3"), "new".into());
        recorder.step(step("two"));
        let walk = recorder.finish(0);
        assert_eq!(walk.start, ["f1", "none", ""]);
        assert_eq!(walk.steps[0].set, [(1, "f3".to_owned())]);
        assert_eq!(walk.steps[1].set, [(2, "new".to_owned())]);
    }

    #[test]
    fn of_a_long_walk_the_last_steps_are_kept_with_what_held_before_them() {
        let mut recorder = Recorder::new("title".into(), Vec::new());
        recorder.begin();
        for at in 0..MOST_STEPS + 3 {
            recorder.set(page("a"), at.to_string());
            recorder.step(step("same"));
        }
        let walk = recorder.finish(5);
        assert_eq!((walk.first, walk.steps.len(), walk.start[0].as_str()), (4, MOST_STEPS, "2"));
        let page = walk.markup(0).into_string();
        assert!(page.contains("id=\"2003\"") && !page.contains("id=\"3\""));
        assert!(page.contains("first 3 steps are left out") && page.contains("5 more steps"));
    }

    #[test]
    fn names_are_text_and_the_data_is_what_is_shown() {
        let hostile = "<b>\"a\"</script>";
        let mut recorder = Recorder::new(hostile.into(), vec![hostile.into()]);
        recorder.begin();
        recorder.set(page(hostile), hostile.into());
        recorder.step(Step { note: hostile.into(), thread: hostile.into(), ..step(hostile) });
        let page = recorder.finish(0).markup(1).into_string();
        assert!(!page.contains("<b>\"") && page.contains("&lt;b&gt;"), "{page}");
        assert_eq!(page.matches("</script>").count(), 1, "{page}");
        assert!(page.contains("id=\"w1-1\"") && page.contains("href=\"#w1-1\""), "{page}");
        let data = page.split("id=\"walk-1-data\">").nth(1).unwrap();
        let data: Value = serde_json::from_str(data.split("</script>").next().unwrap()).unwrap();
        assert_eq!(data["steps"][0]["note"], hostile);
        assert_eq!(data["places"][0]["name"], hostile);
    }
}

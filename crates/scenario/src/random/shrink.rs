//! Smaller cases, for finding the smallest one that still shows something.
//!
//! [`Case::smaller`] gives every case that is one reduction away, the largest reductions first.
//! Whoever looks for the smallest case takes the first that still shows it and asks again, until
//! none does (delta debugging, on the generator's structure instead of on text).

use super::state::Pages;
use super::{AreaPlan, Case, Company, Idle, Place, Step};
use std::ops::Range;

impl Case {
    /// Cases that are one reduction smaller, the largest reductions first. Each can be written.
    pub fn smaller(&self) -> Vec<Case> {
        let mut all = Vec::new();
        self.fewer_rounds(&mut all);
        self.less_company(&mut all);
        self.fewer_steps(&mut all);
        self.smaller_areas(&mut all);
        self.simpler_steps(&mut all);
        if self.swap {
            all.push(Case { swap: false, ..self.clone() });
        }
        all.retain(|case| case.text().is_some());
        all
    }

    fn fewer_rounds(&self, all: &mut Vec<Case>) {
        let (warmup, rounds) = (self.warmup, self.rounds);
        let counts = [(0, 1), (0, 2), (1, 1), (warmup, rounds / 2), (warmup / 2, rounds)];
        for (warmup, rounds) in counts {
            if rounds > 0 && (warmup + rounds, rounds) < (self.warmup + self.rounds, self.rounds) {
                all.push(Case { warmup, rounds, ..self.clone() });
            }
        }
    }

    fn less_company(&self, all: &mut Vec<Case>) {
        let Company { acting, idle } = self.company;
        let mut fewer = Vec::new();
        if self.company != Company::NOBODY {
            fewer.push(Company::NOBODY);
        }
        if acting > 0 {
            fewer.push(Company { acting: acting - 1, idle: idle.or(Some(Idle::Spinner)) });
        }
        match idle {
            Some(Idle::Sleeper) => fewer.push(Company { acting, idle: Some(Idle::Spinner) }),
            Some(Idle::Spinner) if acting > 0 => fewer.push(Company { acting, idle: None }),
            _ => {}
        }
        for company in fewer {
            let mut case = Case { company, ..self.clone() };
            case.body = case.body.into_iter().flat_map(|s| with_actors(s, company)).collect();
            all.push(case);
        }
    }

    /// Without half of the steps, a quarter, … one.
    fn fewer_steps(&self, all: &mut Vec<Case>) {
        for part in [Part::Setup, Part::Body] {
            let steps = self.part(part);
            let mut size = steps.len();
            while size > 0 {
                for start in (0..steps.len()).step_by(size) {
                    let mut left = steps.to_vec();
                    left.drain(start..(start + size).min(steps.len()));
                    all.push(self.with(part, left));
                }
                size /= 2;
            }
        }
    }

    fn smaller_areas(&self, all: &mut Vec<Case>) {
        if self.areas.len() > 1 {
            let areas = self.areas[..1].to_vec();
            all.push(Case { areas, ..self.clone() });
        }
        for (number, area) in self.areas.iter().enumerate() {
            let resized = |pages: usize| {
                let place = match area.place {
                    Place::Across(before) if before >= pages => Place::Alone,
                    place => place,
                };
                self.with_area(number, AreaPlan { pages, place })
            };
            let pages = area.pages;
            let sizes = [1, pages / 2, pages - pages / 4, pages - 1];
            all.extend(sizes.into_iter().filter(|&size| 0 < size && size < pages).map(resized));
            if area.place != Place::Alone {
                all.push(self.with_area(number, AreaPlan { place: Place::Alone, ..area.clone() }));
            }
        }
    }

    fn simpler_steps(&self, all: &mut Vec<Case>) {
        for part in [Part::Setup, Part::Body] {
            let steps = self.part(part);
            for (at, step) in steps.iter().enumerate() {
                for simpler in simpler(step) {
                    let mut changed = steps.to_vec();
                    changed.splice(at..=at, simpler);
                    all.push(self.with(part, changed));
                }
            }
        }
    }

    fn part(&self, part: Part) -> &[Step] {
        match part {
            Part::Setup => &self.setup,
            Part::Body => &self.body,
        }
    }

    fn with(&self, part: Part, steps: Vec<Step>) -> Case {
        match part {
            Part::Setup => Case { setup: steps, ..self.clone() },
            Part::Body => Case { body: steps, ..self.clone() },
        }
    }

    /// The case with another plan for an area; ranges that leave it are cut.
    fn with_area(&self, number: usize, area: AreaPlan) -> Case {
        let size = area.pages;
        let mut case = self.clone();
        case.areas[number] = area;
        for steps in [&mut case.setup, &mut case.body] {
            steps.iter_mut().for_each(|step| cut(step, number, size));
        }
        case
    }
}

/// What may stand in place of a step: the insides of a block, fewer of them, fewer pages.
fn simpler(step: &Step) -> Vec<Vec<Step>> {
    match step {
        Step::Mark => Vec::new(),
        Step::Do(operation, pages) => {
            let fewer = fewer_pages(pages).into_iter();
            fewer.map(|pages| vec![Step::Do(operation, pages)]).collect()
        }
        Step::Each(pages, stride, operations) => {
            let mut all = vec![operations.iter().map(|op| Step::Do(op, pages.clone())).collect()];
            for at in 0..operations.len() {
                let mut left = operations.clone();
                left.remove(at);
                all.push(vec![Step::Each(pages.clone(), *stride, left)]);
            }
            let fewer = fewer_pages(pages).into_iter();
            all.extend(fewer.map(|p| vec![Step::Each(p, *stride, operations.clone())]));
            all
        }
        Step::Repeat(count, body) => {
            let mut all = vec![body.clone()];
            all.extend((*count > 2).then(|| vec![Step::Repeat(2, body.clone())]));
            all.extend(inside(body).into_iter().map(|b| vec![Step::Repeat(*count, b)]));
            all
        }
        Step::Turn(actor, body) => {
            let mut all = vec![body.clone()];
            all.extend(inside(body).into_iter().map(|b| vec![Step::Turn(*actor, b)]));
            all
        }
    }
}

/// A block's steps without one of them, or with one of them simpler.
fn inside(body: &[Step]) -> Vec<Vec<Step>> {
    let mut all = Vec::new();
    for (at, step) in body.iter().enumerate() {
        let replacements = std::iter::once(Vec::new()).chain(simpler(step));
        for replacement in replacements {
            let mut left = body.to_vec();
            left.splice(at..=at, replacement);
            all.push(left);
        }
    }
    all
}

fn fewer_pages(pages: &Pages) -> Vec<Pages> {
    let Range { start, end } = pages.range.clone();
    let size = end - start;
    let ranges = [
        start..start + 1,
        start..start + size / 2,
        start + size / 2..end,
        start..end - 1,
        start + 1..end,
    ];
    let mut ranges: Vec<_> =
        ranges.into_iter().filter(|r| !r.is_empty() && r.len() < size).collect();
    ranges.dedup();
    ranges.into_iter().map(|range| Pages { area: pages.area, range }).collect()
}

#[derive(Copy, Clone)]
enum Part {
    Setup,
    Body,
}

/// The step; turns of a thread that is not there are done by the first one.
fn with_actors(step: Step, company: Company) -> Vec<Step> {
    match step {
        Step::Turn(actor, body) if actor >= company.acting => body,
        step => vec![step],
    }
}

fn cut(step: &mut Step, area: usize, size: usize) {
    match step {
        Step::Do(_, pages) | Step::Each(pages, _, _) if pages.area == area => {
            pages.range.end = pages.range.end.min(size);
            pages.range.start = pages.range.start.min(pages.range.end.saturating_sub(1));
        }
        Step::Repeat(_, body) | Step::Turn(_, body) => {
            body.iter_mut().for_each(|step| cut(step, area, size));
        }
        Step::Do(..) | Step::Each(..) | Step::Mark => {}
    }
}

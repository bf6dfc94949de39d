//! Smaller cases, for finding the smallest one that still shows something.
//!
//! [`Case::smaller`] gives every case that is one reduction away, the largest reductions first. A
//! search for the smallest case takes the first one that still shows the thing and asks again,
//! until none does (delta debugging, on the generator's structure instead of on text).

use super::state::Pages;
use super::{AreaPlan, Case, Company, Idle, Life, Memory, Place, Step};
use needless_model::program::{Mthp, MthpMode, ThpMode};
use std::ops::Range;

impl Case {
    /// Cases that are one reduction smaller, the largest reductions first. Each can be written as
    /// text.
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
        if self.thp == ThpMode::Always {
            all.push(Case { thp: ThpMode::Madvise, ..self.clone() });
        }
        if let Some(mthp) = self.mthp {
            let sizes = mthp.orders().filter(|(_, mode)| *mode != MthpMode::Never);
            let less = sizes.filter_map(|(order, _)| {
                let mthp = mthp.with(Mthp::size_of(order), MthpMode::Never)?;
                Some(Case { mthp: Some(mthp), ..self.clone() })
            });
            all.extend(less);
        }
        if self.holes {
            all.push(Case { holes: false, ..self.clone() });
        }
        if self.write_pages > 1 {
            let pages = [1, self.write_pages / 2].map(|pages| pages.max(1));
            all.extend(pages.map(|write_pages| Case { write_pages, ..self.clone() }));
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
        let Company { acting, processes, idle } = self.company;
        let mut fewer = Vec::new();
        // The thread that answers userfaultfd stays: without it, faulting threads would wait
        // forever.
        let nobody =
            Company { idle: idle.filter(|idle| *idle == Idle::Handler), ..Company::NOBODY };
        if self.company != nobody {
            fewer.push(nobody);
        }
        if acting > 0 {
            let idle = idle.or(Some(Idle::Spinner));
            fewer.push(Company { acting: acting - 1, idle, ..self.company });
        }
        if processes > 0 {
            fewer.push(Company { processes: processes - 1, ..self.company });
        }
        match idle {
            Some(Idle::Sleeper) => {
                fewer.push(Company { idle: Some(Idle::Spinner), ..self.company });
            }
            Some(Idle::Spinner) if acting > 0 => fewer.push(Company { idle: None, ..self.company }),
            _ => {}
        }
        for company in fewer {
            let mut case = Case { company, ..self.clone() };
            case.body = with_company(case.body, company, company.processes);
            all.push(case);
        }
    }

    /// Cases without half of the steps, without a quarter, and so on down to one step.
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
                self.with_area(number, AreaPlan { pages, place, ..area.clone() })
            };
            let pages = area.pages;
            let sizes = [1, pages / 2, pages - pages / 4, pages - 1];
            all.extend(sizes.into_iter().filter(|&size| 0 < size && size < pages).map(resized));
            if area.place != Place::Alone {
                all.push(self.with_area(number, AreaPlan { place: Place::Alone, ..area.clone() }));
            }
            let simpler = match area.memory {
                Memory::Private => None,
                Memory::Shared | Memory::File { first: 0, .. } => Some(Memory::Private),
                Memory::File { shared, disk, .. } => Some(Memory::File { first: 0, shared, disk }),
            };
            let plan = |memory| AreaPlan { memory, ..area.clone() };
            all.extend(simpler.map(|memory| self.with_area(number, plan(memory))));
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

    /// The case with another plan for an area. Ranges that leave the area are cut.
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

/// What can replace a step: the inside of a block, fewer of its steps, or fewer pages.
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
        Step::Fork(life) => simpler_lives(life),
        Step::Child(body) => inside(body).into_iter().map(|b| vec![Step::Child(b)]).collect(),
        Step::Turn(actor, body) => {
            let mut all = vec![body.clone()];
            all.extend(inside(body).into_iter().map(|b| vec![Step::Turn(*actor, b)]));
            all
        }
    }
}

/// What can replace the life of a process.
fn simpler_lives(life: &Life) -> Vec<Vec<Step>> {
    let mut all = vec![life.clone().without()];
    let mut push = |life: Life| all.push(vec![Step::Fork(life)]);
    if life.exec {
        push(Life { exec: false, ..life.clone() });
    }
    inside(&life.first).into_iter().for_each(|first| push(Life { first, ..life.clone() }));
    inside(&life.last).into_iter().for_each(|last| push(Life { last, ..life.clone() }));
    let meanwhile = inside(&life.meanwhile).into_iter();
    meanwhile.for_each(|meanwhile| push(Life { meanwhile, ..life.clone() }));
    all
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

/// Adapts steps to a smaller company. The first thread takes over the turns of a thread that is
/// gone. The steps of a process that is gone are dropped. `processes` is the number of processes
/// from here on.
fn with_company(steps: Vec<Step>, company: Company, processes: usize) -> Vec<Step> {
    let within = |steps, processes| with_company(steps, company, processes);
    let each = |step| match step {
        Step::Turn(actor, body) => {
            let body = within(body, processes);
            if actor < company.acting { vec![Step::Turn(actor, body)] } else { body }
        }
        Step::Fork(life) if processes == 0 => within(life.without(), 0),
        Step::Fork(life) => vec![Step::Fork(Life {
            first: within(life.first, processes - 1),
            meanwhile: within(life.meanwhile, processes),
            last: within(life.last, processes - 1),
            exec: life.exec,
        })],
        Step::Child(body) => vec![Step::Child(within(body, processes.saturating_sub(1)))],
        Step::Do(..) | Step::Each(..) | Step::Repeat(..) | Step::Mark => vec![step],
    };
    steps.into_iter().flat_map(each).collect()
}

fn cut(step: &mut Step, area: usize, size: usize) {
    match step {
        Step::Do(_, pages) | Step::Each(pages, _, _) if pages.area == area => {
            pages.range.end = pages.range.end.min(size);
            pages.range.start = pages.range.start.min(pages.range.end.saturating_sub(1));
        }
        Step::Repeat(_, body) | Step::Turn(_, body) | Step::Child(body) => {
            body.iter_mut().for_each(|step| cut(step, area, size));
        }
        Step::Fork(life) => {
            let steps = life.first.iter_mut().chain(&mut life.meanwhile).chain(&mut life.last);
            steps.for_each(|step| cut(step, area, size));
        }
        Step::Do(..) | Step::Each(..) | Step::Mark => {}
    }
}

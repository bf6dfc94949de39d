//! Figures, which are published, stated, shown by runs or computed from others, and the relations
//! between them.

use super::aging::{self, Pass};
use super::costs::Table;
use super::jobs::{Jobs, Set};
use super::standing;
use super::tiers::Machines;
use crate::memory::Memory;
use crate::output::Progress;
use crate::targets::Spec;
use needless_model::event::EventKind;
use needless_model::kernels::KernelRow;
use needless_model::machine::frames::ZERO_PAGE;
use needless_model::machine::mm::Mm;
use needless_model::program::{Area, Program};
use needless_model::pte::{PresentPte, Pte};
use needless_model::run::{INSTRUCTIONS, Round};
use needless_model::sim::{self, SimOptions, end_state};
use needless_model::site::Site;
use needless_report::compare::Ran;
use needless_report::cost::median;
use needless_report::study::{FigureResult, RelationResult, Standing, number};
use needless_scenario::study::{
    Comparison, Equation, Figure, Formula, From, Given, Part, Relation, Run, Shown, Study,
};
use std::collections::BTreeSet;

/// The figures of a part.
pub struct Figures {
    /// The published and stated figures that the part uses, then the part's own.
    pub all: Vec<FigureResult>,
}

impl Figures {
    /// Computes the figures, in the order of the text.
    pub fn of(
        study: &Study,
        part: &Part,
        jobs: &Jobs,
        from: (&[Table], &Machines),
        with: (Memory, &Progress),
    ) -> Figures {
        let used = |given: &&Given| names(part).contains(&given.name.as_str());
        let mut figures =
            Figures { all: study.given.iter().filter(used).map(given_result).collect() };
        for figure in &part.figures {
            let value = figures.value(figure, part, jobs, from, with);
            figures.all.push(FigureResult {
                name: figure.name.clone(),
                value,
                unit: figure.unit.clone(),
                origin: origin(&figure.from),
                doc: figure.doc.clone(),
            });
        }
        figures
    }

    /// Gives a figure another value.
    pub fn set(&mut self, name: &str, value: Result<f64, String>) {
        if let Some(figure) = self.all.iter_mut().find(|figure| figure.name == name) {
            figure.value = value;
        }
    }

    /// The value of a figure.
    pub fn named(&self, name: &str) -> Result<f64, String> {
        let figure = self.all.iter().find(|figure| figure.name == name);
        let figure = figure.ok_or_else(|| format!("there is no figure {name}"))?;
        figure.value.clone()
    }

    /// The value of a formula.
    pub fn formula(&self, formula: &Formula) -> Result<f64, String> {
        formula.value(&|name: &str| self.named(name))
    }

    fn value(
        &self,
        figure: &Figure,
        part: &Part,
        jobs: &Jobs,
        from: (&[Table], &Machines),
        with: (Memory, &Progress),
    ) -> Result<f64, String> {
        let run_of = |name: &String| {
            let run = part.runs.iter().find(|run| run.name == *name);
            run.ok_or_else(|| format!("there is no run {name}"))
        };
        let (costs, machines) = from;
        match &figure.from {
            From::Formula(formula) => self.formula(formula),
            From::Run { run, target, shown: what, per } => {
                let run: &Run = run_of(run)?;
                if let Some(value) = in_model(*what, run, target, jobs)? {
                    return Ok(value / per);
                }
                let ran = jobs.on_target(run, target).map_err(|why| format!("{target}: {why}"))?;
                Ok(shown(ran, *what).map_err(|why| format!("{target}: {why}"))? / per)
            }
            From::Tiers { tiers, rate } => machines.rate(tiers, *rate),
            From::Price { costs: name, term } => table_of(costs, name)?.price(term),
            From::Costs { costs: name, run, target, per } => {
                let table = table_of(costs, name)?;
                let Spec::Model(row) = Spec::parse(target).map_err(|error| error.to_string())?
                else {
                    return Err(format!("{target} is no row of the model"));
                };
                let program = jobs.program(&run_of(run)?.chosen);
                Ok(table.predict(program, &row, with)? / per)
            }
        }
    }

    /// Whether a relation holds.
    pub fn relation(&self, relation: &Relation) -> RelationResult {
        let Relation { text, is, only, follows, moves: _ } = relation;
        let sides = self.sides(is);
        let comparison = is.comparison;
        let elsewhere = only.as_ref().and_then(|(condition, because)| {
            let sides = self.sides(condition).ok()?;
            let holds = condition.comparison.holds(sides.0, sides.1);
            (!holds).then(|| {
                let (left, sign, right) = (number(sides.0), condition.comparison, number(sides.1));
                format!(
                    "{because} (it would need {condition}; here {left} {sign} {right} is not so)"
                )
            })
        });
        let standing = match (&sides, elsewhere) {
            (Err(reason), _) => Standing::NotHere(reason.clone()),
            (Ok(_), Some(because)) => Standing::NotHere(because),
            (Ok((left, right)), None) if comparison.holds(*left, *right) => Standing::Holds,
            (Ok((left, right)), None) => Standing::DoesNot(format!(
                "{} {comparison} {} is not so",
                number(*left),
                number(*right)
            )),
        };
        RelationResult {
            text: text.clone(),
            formula: is.to_string(),
            sides: sides.ok(),
            within: match comparison {
                Comparison::Within(factor) => Some(factor),
                _ => None,
            },
            standing,
            margins: Vec::new(),
            follows: follows.clone(),
        }
    }

    /// The values of both sides.
    fn sides(&self, equation: &Equation) -> Result<(f64, f64), String> {
        Ok((self.formula(&equation.left)?, self.formula(&equation.right)?))
    }
}

fn table_of<'a>(costs: &'a [Table], name: &str) -> Result<&'a Table, String> {
    let table = costs.iter().find(|table| table.result.name == name);
    table.ok_or_else(|| format!("there is no cost table {name}"))
}

/// The figures that a part's formulas name.
fn names(part: &Part) -> Vec<&str> {
    let figures = part.figures.iter().filter_map(|figure| match &figure.from {
        From::Formula(formula) => Some(formula.names()),
        From::Run { .. } | From::Costs { .. } | From::Price { .. } | From::Tiers { .. } => None,
    });
    let relations = part.relations.iter().flat_map(|relation| {
        let only = relation.only.iter().map(|(condition, _)| condition);
        std::iter::once(&relation.is).chain(only)
    });
    let relations = relations.map(|is| [is.left.names(), is.right.names()].concat());
    figures.chain(relations).flatten().collect()
}

fn given_result(given: &Given) -> FigureResult {
    let origin = match &given.stated {
        None => "published".to_owned(),
        Some(source) => format!("stated: {source}"),
    };
    FigureResult {
        name: given.name.clone(),
        value: Ok(given.value),
        unit: given.unit.clone(),
        origin,
        doc: given.doc.clone(),
    }
}

fn origin(from: &From) -> String {
    match from {
        From::Formula(formula) => formula.to_string(),
        From::Run { target, .. } => target.clone(),
        From::Costs { costs, target, .. } => format!("costs {costs}, {target}"),
        From::Price { costs, .. } => format!("costs {costs}"),
        From::Tiers { tiers, .. } => format!("tiers {tiers}"),
    }
}

/// A value that only the model shows, for a run on a row of the model. `None` if `what` is
/// something else.
fn in_model(what: Shown, run: &Run, target: &str, jobs: &Jobs) -> Result<Option<f64>, String> {
    let pass = match what {
        Shown::Updates
        | Shown::DirtyUpdates
        | Shown::Entries
        | Shown::MarkersSet
        | Shown::Tables
        | Shown::Markers => 0,
        Shown::Active(pass) | Shown::Resident(pass) => pass,
        Shown::Counter(_)
        | Shown::Class(_)
        | Shown::Cycles(_)
        | Shown::Protected
        | Shown::Tlbi
        | Shown::PageTables => return Ok(None),
    };
    jobs.on_target(run, target).map_err(|why| format!("{target}: {why}"))?;
    let Spec::Model(row) = Spec::parse(target).map_err(|error| error.to_string())? else {
        return Err(format!("{target} is no row of the model"));
    };
    let program = jobs.program(&run.chosen);
    match what {
        Shown::Updates => return Ok(Some(updates(program, &row, PresentPte::accessed)?)),
        Shown::DirtyUpdates => return Ok(Some(updates(program, &row, PresentPte::dirty)?)),
        Shown::Entries => {
            let set = jobs.set(&run.chosen, target, &row)?;
            return Ok(Some(set.values().sum::<u64>() as f64));
        }
        Shown::MarkersSet => {
            let set = jobs.set(&run.chosen, target, &row)?;
            return Ok(Some(set.get(MARKERS).copied().unwrap_or(0) as f64));
        }
        _ => {}
    }
    let options = SimOptions::default();
    let world = end_state(program, &row, row.arch(), &options);
    let mut world = world.map_err(|error| error.to_string())?;
    let of_all =
        |count: fn(&Mm) -> u64| Some(world.mms.iter().map(|mm| count(mm)).sum::<u64>() as f64);
    match what {
        Shown::Tables => return Ok(of_all(Mm::page_tables)),
        Shown::Markers => return Ok(of_all(Mm::markers)),
        _ => {}
    }
    let of_area = |area: &Area| aging::passes(&mut world, area.range, pass).pop();
    let last: Vec<Pass> = program.areas.iter().filter_map(of_area).collect();
    let count = |pass: &Pass| match what {
        Shown::Active(_) => pass.active,
        _ => pass.resident,
    };
    Ok(Some(last.iter().map(count).sum::<u64>() as f64))
}

/// The entries in which processors set a bit in the first round that counts. Bits set while a fault
/// is handled do not count.
fn updates(program: &Program, row: &KernelRow, bit: fn(PresentPte) -> bool) -> Result<f64, String> {
    let options = SimOptions { pte_events: true, ..SimOptions::default() };
    let run = sim::run(program, row, &options).map_err(|error| error.to_string())?;
    let round = run.rounds.first().ok_or("there is no round")?;
    let (mut faulting, mut updates) = (BTreeSet::new(), 0);
    for event in &round.events {
        match event.kind {
            EventKind::Fault { .. } => _ = faulting.insert(event.cpu),
            EventKind::FaultDone { .. } => _ = faulting.remove(&event.cpu),
            EventKind::Pte { old: Pte::Present(old), new: Pte::Present(new), .. }
                if !faulting.contains(&event.cpu) && !bit(old) && bit(new) =>
            {
                updates += 1;
            }
            _ => {}
        }
    }
    Ok(f64::from(updates))
}

/// The entries that the kernel set in the first round that counts, by their contents. The round is
/// read in place, because it may have millions of events.
pub(super) fn entries(program: &Program, row: &KernelRow) -> Result<Set, String> {
    let options = SimOptions { pte_events: true, ..SimOptions::default() };
    let mut set: Option<Set> = None;
    let mut watch = |round: &Round| {
        if set.is_none() {
            let events = round.events.iter().filter(|event| event.site != Some(Site::HardwareWalk));
            let mut counts = Set::new();
            for kind in events.filter_map(|event| entry(&event.kind)) {
                *counts.entry(kind).or_insert(0) += 1;
            }
            set = Some(counts);
        }
    };
    sim::run_with(program, row, &options, &mut watch).map_err(|error| error.to_string())?;
    set.ok_or_else(|| "there is no round".to_owned())
}

/// The name of markers among the entries that were set.
const MARKERS: &str = "entries set: markers";

/// The contents of an entry that was set. `None` if it was cleared, or if the event is something
/// else.
fn entry(kind: &EventKind) -> Option<&'static str> {
    let EventKind::Pte { new, .. } = kind else { return None };
    match new {
        Pte::None => None,
        Pte::Marker(_) => Some(MARKERS),
        Pte::Present(pte) if pte.pfn == ZERO_PAGE => Some("entries set: the zero page"),
        Pte::Present(pte) if pte.special() => Some("entries set: the huge zero page"),
        Pte::Present(_) => Some("entries set: pages"),
        Pte::Swap(_) | Pte::Migration(_) | Pte::Table(_) => Some("entries set: others"),
    }
}

/// The value that a run shows.
fn shown(ran: &Ran, shown: Shown) -> Result<f64, String> {
    let unknown = |name: &str| {
        let reason = ran.account.unknown.get(name).map_or("not shown", String::as_str);
        format!("{name}: {reason}")
    };
    match shown {
        Shown::Counter(counter) => {
            let known = ran.account.typical(counter);
            known.map(|value| value as f64).ok_or_else(|| unknown(counter.name()))
        }
        Shown::Class(class) => {
            let classes = ran.account.typical_classes();
            let (classes, _) = classes.ok_or_else(|| unknown("faults_by_class"))?;
            Ok(classes.get(&class).copied().unwrap_or(0) as f64)
        }
        Shown::Tlbi => {
            let executed = standing::tlbi(ran).map(|count| count as f64);
            executed.ok_or_else(|| unknown(INSTRUCTIONS))
        }
        Shown::PageTables => {
            let tables = ran.run.page_tables;
            tables.map(|tables| tables as f64).ok_or_else(|| unknown("page_tables"))
        }
        Shown::Protected => {
            let pages = &ran.run.final_pages;
            if pages.is_empty() {
                return Err(unknown("final_pages"));
            }
            let protected = pages.values().filter(|state| state.contains("uffd-wp"));
            Ok(protected.count() as f64)
        }
        Shown::Updates
        | Shown::DirtyUpdates
        | Shown::Entries
        | Shown::MarkersSet
        | Shown::Active(_)
        | Shown::Resident(_)
        | Shown::Tables
        | Shown::Markers => Err("only the model shows it".to_owned()),
        Shown::Cycles(block) => {
            let cycles: Vec<u64> = match block {
                None => ran.account.cycles(),
                Some(block) => {
                    let rounds = ran.account.rounds.iter();
                    rounds.filter_map(|round| Some(round.cycles.get(block)?.cycles)).collect()
                }
            };
            match cycles.is_empty() {
                true => Err(unknown("cycles")),
                false => Ok(median(&cycles)),
            }
        }
    }
}

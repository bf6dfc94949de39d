//! A report in text: one column per CPU, one line per step. The width of a format says how many
//! columns it may take: `{report:80}`; without it they are 100.

use crate::property::{Property, Violation};
use crate::report::{Bound, Counterexample, Report};
use crate::trace::{PageState, StepTaken};
use std::fmt;

/// Most columns of a line, unless told otherwise, and those that the step's number takes.
const WIDTH: usize = 100;
const NUMBER: usize = 6;

/// Where the words on a violation begin.
const INDENT: usize = "VIOLATED  ".len();

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        #[rustfmt::skip]
        let Report {
            states, ends, depth, exercised, asked, counterexample, bound, observed, steps: _, key_bits,
        } = self;
        writeln!(f, "{states} states, {ends} of them final, at most {depth} steps deep")?;
        if let Some(counterexample) = counterexample {
            return write!(f, "\n{counterexample:width$}", width = width(f));
        }
        if let Some(bound) = bound {
            writeln!(f, "INCONCLUSIVE: {bound}; nothing was violated so far")?;
        }
        let verb = if bound.is_some() { "held so far  " } else { "holds        " };
        let judged = |p: &Property| p.is_always_judged() || asked.has(*p);
        for property in Property::ALL.iter().filter(|property| judged(property)) {
            match exercised.has(*property) {
                true => writeln!(f, "{verb}  {property}")?,
                false => {
                    writeln!(f, "not exercised  {property}:")?;
                    writeln!(f, "               it never happened that {}", property.twin())?;
                }
            }
        }
        if *key_bits < u128::BITS {
            let missed = self.missed();
            writeln!(
                f,
                "{key_bits} bits of each key: a state was missed with a probability of at most {missed:.1e}"
            )?;
        }
        for made in observed {
            let often = if made.made > 0 { "Sometimes" } else { "Never" };
            writeln!(f, "Observation {} {often} {} {}", made.name, made.made, made.not_made)?;
        }
        Ok(())
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Bound::States(most) => write!(f, "there are more than {most} states"),
            Bound::Time(limit) => write!(f, "not done after {} s", limit.as_secs_f64()),
            Bound::Memory(limit) => write!(f, "it takes more than {} MiB of memory", limit >> 20),
        }
    }
}

impl fmt::Display for Counterexample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counterexample { violation, steps, schedule, cpus } = self;
        let width = width(f);
        writeln!(f, "{violation:width$}\n")?;
        write_steps(f, steps, Some(violation), (*cpus, width))?;
        writeln!(f, "\nschedule: {schedule}")
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VIOLATED  {}", self.property)?;
        let width = width(f);
        let mut column = width;
        for word in self.what.split(' ') {
            column += 1 + word.chars().count();
            if column > width {
                write!(f, "\n{:INDENT$}{word}", "")?;
                column = INDENT + word.chars().count();
            } else {
                write!(f, " {word}")?;
            }
        }
        Ok(())
    }
}

/// Columns that a line may take.
fn width(f: &fmt::Formatter<'_>) -> usize {
    f.width().unwrap_or(WIDTH)
}

/// The steps, with what they did to the page of the violation (or to every page), for so many CPUs
/// in so many columns.
pub fn write_steps(
    f: &mut dyn fmt::Write,
    steps: &[StepTaken],
    violation: Option<&Violation>,
    (cpus, width): (usize, usize),
) -> fmt::Result {
    let column = (width.saturating_sub(NUMBER)) / cpus.max(1);
    let heads: String = (0..cpus).map(|cpu| format!("{:<column$}", format!("cpu{cpu}"))).collect();
    writeln!(f, "{:NUMBER$}{}", "", heads.trim_end())?;
    for (index, step) in steps.iter().enumerate() {
        let indent = column * step.cpu.index();
        if let Some(operation) = &step.operation {
            let text =
                cut(&format!("{}: {operation}", step.thread.as_deref().unwrap_or("")), column);
            writeln!(f, "{:NUMBER$}{:indent$}{text}", "", "")?;
        }
        let last = violation.is_some() && index + 1 == steps.len();
        let mark = if last { ">" } else { " " };
        let label = cut(&format!("  {}", step.label), column);
        writeln!(f, "{mark}{:>4} {:indent$}{label}", index + 1, "")?;
        for state in &step.changed {
            write_state(f, state, width)?;
        }
    }
    Ok(())
}

/// One line: the PTE, and what each CPU may use for the page.
fn write_state(f: &mut dyn fmt::Write, state: &PageState, width: usize) -> fmt::Result {
    let caches = state.cached.iter().enumerate().filter(|(_, entries)| !entries.is_empty());
    let caches: Vec<String> =
        caches.map(|(cpu, entries)| format!("cpu{cpu}: {}", entries.join(", "))).collect();
    let caches = if caches.is_empty() { "none".to_owned() } else { caches.join("; ") };
    let text = format!("| {}: PTE {} | TLBs may hold {caches}", state.page, state.pte);
    writeln!(f, "{:NUMBER$}{}", "", cut(&text, width.saturating_sub(NUMBER)))
}

/// `text`, at most `width` characters of it.
fn cut(text: &str, width: usize) -> String {
    let width = width.saturating_sub(1);
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let kept: String = text.chars().take(width.saturating_sub(2)).collect();
    format!("{kept}..")
}

//! A report in text: one column per CPU, one line per step.

use crate::explore::{Bound, Counterexample, Report};
use crate::property::Property;
use std::fmt;

/// Width of a CPU's column.
const COLUMN: usize = 44;

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { states, ends, depth, exercised, counterexample, bound } = self;
        writeln!(f, "{states} states, {ends} of them final, at most {depth} steps deep")?;
        if let Some(counterexample) = counterexample {
            return write!(f, "{counterexample}");
        }
        match bound {
            Some(Bound::States(most)) => {
                return writeln!(f, "INCONCLUSIVE: there are more than {most} states");
            }
            Some(Bound::Time(limit)) => {
                return writeln!(f, "INCONCLUSIVE: not done after {} s", limit.as_secs());
            }
            None => {}
        }
        for property in Property::ALL {
            match exercised.has(*property) {
                true => writeln!(f, "holds          {property}")?,
                false => writeln!(
                    f,
                    "not exercised  {property}: it never happened that {}",
                    property.twin()
                )?,
            }
        }
        Ok(())
    }
}

impl fmt::Display for Counterexample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counterexample { violation, steps } = self;
        writeln!(f, "VIOLATED  {}\n", violation.property)?;
        let cpus = steps.iter().map(|step| step.cpu.index() + 1).max().unwrap_or(0);
        let heads: String =
            (0..cpus).map(|cpu| format!("{:<COLUMN$}", format!("cpu{cpu}"))).collect();
        writeln!(f, "     {}", heads.trim_end())?;
        for (number, step) in steps.iter().enumerate() {
            let indent = COLUMN * step.cpu.index();
            writeln!(f, "{:>3}  {:indent$}{}", number + 1, "", step.label)?;
        }
        writeln!(f, "\n{}", violation.what)
    }
}

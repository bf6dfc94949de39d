//! Cost tables: the cycles of timed blocks of a real kernel, and what the model's own row counts in
//! them.

use super::jobs::Jobs;
use crate::memory::Memory;
use crate::output::Progress;
use crate::runs::{Keep, Runs};
use crate::targets::row_of_run;
use needless_model::counters::{Counter, Counters};
use needless_model::kernels::KernelRow;
use needless_model::program::Program;
use needless_report::cost::{self, Fitted, NoFit, Timed};
use needless_report::study::{CostsResult, SampleResult};
use needless_scenario::study::{Costs, Part, Run, Sample, Term};

/// A cost table with its report.
pub struct Table {
    /// The work that has a price.
    terms: Vec<Term>,
    /// The prices, if there are any.
    fitted: Option<Fitted>,
    /// The report on the table.
    pub result: CostsResult,
}

/// The cost tables of a part.
pub fn fitted(part: &Part, jobs: &Jobs, memory: Memory, progress: &Progress) -> Vec<Table> {
    let table = |costs: &Costs| {
        let fitted = fit(costs, part, jobs, memory, progress);
        let (fitted, samples, prices) = match fitted {
            Ok((fitted, samples)) => {
                let prices = costs.terms.iter().zip(&fitted.prices);
                let price = prices.map(|(term, p)| (term.name.clone(), term.doc.clone(), *p));
                let price = price.collect();
                (Some(fitted), samples, Ok(price))
            }
            Err(reason) => (None, Vec::new(), Err(reason)),
        };
        let (name, target) = (costs.name.clone(), costs.target.clone());
        let result = CostsResult { name, target, prices, samples };
        Table { terms: costs.terms.clone(), fitted, result }
    };
    part.costs.iter().map(table).collect()
}

impl Table {
    /// The price of a term.
    pub fn price(&self, term: &str) -> Result<f64, String> {
        let prices = self.prices()?.prices.iter().zip(&self.terms);
        let mut prices = prices.filter(|(_, known)| known.name == term);
        let (price, _) = prices.next().ok_or_else(|| format!("there is no term {term}"))?;
        Ok(price.cycles)
    }

    fn prices(&self) -> Result<&Fitted, String> {
        self.fitted.as_ref().ok_or_else(|| {
            let reason = self.result.prices.as_ref().err();
            format!("no prices: {}", reason.map_or("", String::as_str))
        })
    }

    /// The cycles of the timed blocks of a run's typical round, in a row of the model.
    pub fn predict(
        &self,
        program: &Program,
        row: &KernelRow,
        (memory, progress): (Memory, &Progress),
    ) -> Result<f64, String> {
        let fitted = self.prices()?;
        let blocks = blocks(program, row, memory, progress)?;
        let cycles = blocks.iter().map(|counters| {
            let counts = counts(&self.terms, counters)?;
            Ok(fitted.predict(&counts))
        });
        cycles.sum()
    }
}

/// Fits the prices, and computes what they give for each sample.
fn fit(
    costs: &Costs,
    part: &Part,
    jobs: &Jobs,
    memory: Memory,
    progress: &Progress,
) -> Result<(Fitted, Vec<SampleResult>), String> {
    let timed = costs.samples.iter().map(|sample| {
        let run = part.runs.iter().find(|run| run.name == sample.run);
        let run = run.ok_or_else(|| format!("there is no run {}", sample.run))?;
        let timed = timed(costs, sample, run, jobs, memory, progress);
        timed.map_err(|reason| format!("{}, {}: {reason}", costs.target, sample.name))
    });
    let timed: Vec<Timed> = timed.collect::<Result<_, String>>()?;
    let fitted_ones = costs.samples.iter().zip(&timed).filter(|(sample, _)| !sample.held_out);
    let fitted_ones: Vec<Timed> = fitted_ones.map(|(_, timed)| timed.clone()).collect();
    let fitted = cost::fit(costs.terms.len(), &fitted_ones).map_err(|error| {
        let NoFit::Undetermined(term) = error;
        let name = costs.terms.get(term).map_or("", |term| term.name.as_str());
        format!("the blocks do not separate the price of `{name}` from the others")
    })?;
    let result = |(sample, timed): (&Sample, &Timed)| SampleResult {
        name: sample.name.clone(),
        measured: cost::median(&timed.cycles),
        predicted: fitted.predict(&timed.counts),
        held_out: sample.held_out,
    };
    let samples = costs.samples.iter().zip(&timed).map(result).collect();
    Ok((fitted, samples))
}

/// A block with its cycles, and what the model's own row for the kernel counts in it. Only a run
/// that equals that row in every round can be split up like this.
fn timed(
    costs: &Costs,
    sample: &Sample,
    run: &Run,
    jobs: &Jobs,
    memory: Memory,
    progress: &Progress,
) -> Result<Timed, String> {
    let ran = jobs.on_target(run, &costs.target)?;
    if ran.exact() != Some(true) {
        return Err("the run is not known to equal the model's row in every round".to_owned());
    }
    let (row, _) = row_of_run(&ran.run, None);
    let blocks = blocks(jobs.program(&run.chosen), &row, memory, progress)?;
    let counters = blocks.get(sample.block);
    let counters = counters.ok_or_else(|| format!("a round has {} blocks", blocks.len()))?;
    let rounds = ran.account.rounds.iter();
    let cycles: Option<Vec<u64>> = rounds
        .map(|round| Some(round.cycles.get(sample.block)?.cycles).filter(|c| *c > 0))
        .collect();
    let cycles = cycles.filter(|cycles| !cycles.is_empty());
    let cycles = cycles.ok_or_else(|| match ran.account.unknown.get("cycles") {
        Some(reason) => format!("no cycles: {reason}"),
        None => "no cycles in some rounds".to_owned(),
    })?;
    Ok(Timed { counts: counts(&costs.terms, counters)?, cycles })
}

/// How often each term occurs.
fn counts(terms: &[Term], counters: &Counters) -> Result<Vec<f64>, String> {
    let terms: Vec<&[Counter]> = terms.iter().map(|term| term.counters.as_slice()).collect();
    cost::occurrences(&terms, counters).map_err(|error| error.to_string())
}

/// What the timed blocks of a row's typical round count.
fn blocks(
    program: &Program,
    row: &KernelRow,
    memory: Memory,
    progress: &Progress,
) -> Result<Vec<Counters>, String> {
    let mut runs = Runs { memory, progress, keep: Keep::default(), events: None, tlbs: Vec::new() };
    let account = runs.kinds(program, row).map_err(|error| error.to_string())?;
    let typical = account.typical_kind().map_or(0, |kind| kind.index);
    runs.keep.round = Some(typical);
    let modelled = runs.run(program, row).map_err(|error| error.to_string())?;
    let round = modelled.run.rounds.first();
    let blocks = round.map(|round| cost::measured(program, round)).unwrap_or_default();
    match blocks.is_empty() {
        true => Err("the scenario has no `measure` block".to_owned()),
        false => Ok(blocks),
    }
}

//! Runs every built-in scenario on each of these kernels, and prints where the model differs.
//!
//! `cargo run -p needless-guest --example captures -- 5.10 6.12`

use needless_guest::{KernelTarget, run_batch};
use needless_model::account::{Account, RoundAccount};
use needless_model::counters::Counter;
use needless_model::kernels::KernelRow;
use needless_model::run::TargetRun;
use needless_model::sim::{self, SimOptions};
use needless_scenario::{Settings, builtin, compile, load};
use std::collections::BTreeMap;
use std::time::Instant;

fn text(round: &RoundAccount) -> String {
    let count = |counter| round.counters.get(counter).map_or("?".into(), |n| n.to_string());
    let sequence = round.sequence.as_ref().map_or("?".into(), ToString::to_string);
    format!("{sequence}  {}/{}", count(Counter::MinorFaults), count(Counter::MajorFaults))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let names: Vec<&str> = builtin::names().collect();
    let mut programs = Vec::new();
    for name in &names {
        let mut program = compile(&load(name)?, &Settings::default())?;
        if let Ok(rounds) = std::env::var("ROUNDS") {
            for op in &mut program.threads[0].body {
                if let needless_model::program::OpKind::Rounds { count, .. } = &mut op.kind {
                    *count = rounds.parse()?;
                }
            }
        }
        programs.push(program);
    }
    for kernel in std::env::args().skip(1) {
        let target = KernelTarget::parse(&kernel)?;
        let start = Instant::now();
        let times = std::cell::RefCell::new(Vec::new());
        let progress = |_: usize| times.borrow_mut().push(start.elapsed().as_secs_f64());
        let results = run_batch(&target, &programs, &progress)?;
        let row = KernelRow::parse(target.release())?;
        println!("{kernel}: {} programs", names.len());
        let (mut exact, mut marked, mut attempted) = (0, 0, 0);
        for ((name, program), result) in names.iter().zip(&programs).zip(results) {
            match result {
                Ok(run) => {
                    marked += run.witness.marked_total();
                    attempted += run.witness.attempted;
                    let model = sim::run(program, &row, &SimOptions::default())?;
                    exact += u32::from(compare(name, program, &run, &model));
                }
                Err(error) => println!("  {name}: {error}"),
            }
        }
        let times = times.into_inner();
        println!(
            "{kernel}: {exact} exact, {marked} of {attempted} rounds marked, first after {:.1} s, all after {:.1} s",
            times[0],
            times[times.len() - 1]
        );
    }
    Ok(())
}

fn compare(
    name: &str,
    program: &needless_model::program::Program,
    run: &TargetRun,
    model: &TargetRun,
) -> bool {
    if let Some(why) = &run.invalid {
        println!("  {name}: invalid: {why} {:?}", run.witness.marked);
    }
    let (real, model) = (Account::of(program, run), Account::of(program, model));
    let mut differences: BTreeMap<(String, String), u32> = BTreeMap::new();
    let rounds = (0..real.total).map_while(|at| Some((real.round(at)?, model.round(at)?)));
    for (real, model) in rounds {
        let pair = (text(real), text(model));
        if pair.0 != pair.1 {
            *differences.entry(pair).or_default() += 1;
        }
    }
    for ((real, model), count) in &differences {
        println!(
            "  {name}: {count} of {} rounds\n      kernel {real}\n      model  {model}",
            run.rounds.len()
        );
    }
    differences.is_empty() && !run.rounds.is_empty() && run.invalid.is_none()
}

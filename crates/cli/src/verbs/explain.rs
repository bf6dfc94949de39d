//! `explain`: one round, event by event.

use super::program;
use crate::args::{ExplainArgs, PageFormat};
use crate::failure::Failure;
use crate::memory::Memory;
use crate::output::{Output, Progress};
use crate::page::{made, quoted};
use crate::runs::{Keep, Runs};
use crate::targets::Spec;
use needless_report::compare::Outcome;
use needless_report::explain::{Explanation, json, text};
use needless_report::html;

/// Runs `needless explain`.
pub fn explain(args: &ExplainArgs, output: &Output) -> Result<u8, Failure> {
    let spec = Spec::parse(&args.target)?;
    let program = program(&args.choice)?;
    spec.refuse(&program)?;
    let sink = output.to(args.page.output.as_deref())?;
    let shown = args.page.format == PageFormat::Html;
    let progress = Progress::spinner();
    let mut runs = Runs {
        memory: Memory::new(args.memory.max_memory),
        progress: &progress,
        keep: Keep { figures: 0, round: Some(args.round), choices: true, shown },
        events: None,
        tlbs: Vec::new(),
    };
    let (target, status) = spec.target(&program, &mut runs)?;
    let tlbs = std::mem::take(&mut runs.tlbs);
    drop(progress);
    let ran = match target.outcome {
        Outcome::Ran(ran) => ran,
        Outcome::Unavailable { reason, help } => {
            return Err(Failure::Target { target: args.target.clone(), reason, help, status });
        }
    };
    let at = ran.account.rounds.iter().position(|round| round.index == args.round);
    let at = at.ok_or_else(|| Failure::NoSuchRound {
        round: args.round,
        target: args.target.clone(),
        rounds: ran.account.total,
    })?;
    let explanation = Explanation { program: &program, ran: &ran, at };
    let scenario = &args.choice.scenario;
    match args.page.format {
        PageFormat::Json => sink.json(&json(&explanation))?,
        PageFormat::Html => {
            let scenario = quoted(scenario);
            let command = format!("needless compare {scenario} --format html -o compare.html");
            let next = [("The same scenario on other kernels", command)];
            sink.result(&html::explain(&explanation, &tlbs, &made(&next)))?;
        }
        PageFormat::Text => {
            sink.result(&text(&explanation, sink.style()))?;
            sink.next(&format!("needless compare {scenario}"))?;
        }
    }
    Ok(status)
}

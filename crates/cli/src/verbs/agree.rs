//! `agree`: is the model right about this kernel?

use crate::args::{AgreeArgs, Format};
use crate::failure::{DIFFERENCE, EXPECTED, Failure, INCONCLUSIVE};
use crate::output::{Output, Progress};
use crate::targets::{self, Spec};
use needless_report::agree::{ScenarioAgreement, json, text, totals};
use needless_report::compare::Outcome;

/// `needless agree`
pub fn agree(args: &AgreeArgs, output: &Output) -> Result<u8, Failure> {
    let names = match args.scenarios.as_slice() {
        [] => targets::builtin_names(),
        names => names.to_vec(),
    };
    let spec = Spec::parse(&args.target)?;
    let progress = Progress::new(names.len());
    let mut scenarios = Vec::new();
    let mut refused = EXPECTED;
    for name in names {
        progress.now(&name);
        let program = targets::program(&name, &[], args.rounds)?;
        let (target, status) = spec.target(&program);
        refused = if refused == EXPECTED { status } else { refused };
        let outcome = match target.outcome {
            Outcome::Ran(ran) => Ok(*ran),
            Outcome::Unavailable { reason, .. } => Err(reason),
        };
        scenarios.push(ScenarioAgreement { name, outcome });
        progress.done();
    }
    drop(progress);
    match args.format.format {
        Format::Json => output.json(&json(&args.target, &scenarios))?,
        Format::Text => {
            output.result(&text(&args.target, &scenarios, output.style))?;
            let next = scenarios.first().map_or("cow-reuse", |scenario| scenario.name.as_str());
            output.next(&format!("needless compare {next}"))?;
        }
    }
    let (_, _, differing, undecided) = totals(&scenarios);
    Ok(match (differing, undecided) {
        (0, 0) => EXPECTED,
        (0, _) if refused != EXPECTED => refused,
        (0, _) => INCONCLUSIVE,
        _ => DIFFERENCE,
    })
}

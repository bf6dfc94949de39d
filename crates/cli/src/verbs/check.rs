//! `check`: every interleaving of a scenario in one model row.

use crate::args::CheckArgs;
use crate::failure::{DIFFERENCE, EXPECTED, Failure};
use crate::output::Output;
use crate::targets::Spec;
use needless_check::Options;
use needless_scenario::{Settings, compile, load};

/// `needless check`
pub fn check(args: &CheckArgs, output: &Output) -> Result<u8, Failure> {
    let Spec::Model(row) = Spec::parse(&args.target)? else {
        return Err(Failure::Usage {
            message: "only a model can be checked: a real kernel runs one interleaving".to_owned(),
            help: "choose a row, as in `-t model:6.12`".to_owned(),
        });
    };
    let program = compile(&load(&args.scenario)?, &Settings::default())?;
    let report = needless_check::check(&program, &row, &Options::default()).map_err(|error| {
        Failure::Usage {
            message: format!("`{}` cannot be checked: {error}", args.scenario),
            help: "the checker takes scenarios of a few pages; see scenarios/litmus".to_owned(),
        }
    })?;
    output.result(&format!("{} on {}: {report}", args.scenario, args.target))?;
    Ok(if report.counterexample.is_some() { DIFFERENCE } else { EXPECTED })
}

//! `doctor`: what this machine can show, and what would help.

use crate::args::Format;
use crate::failure::{EXPECTED, Failure};
use crate::output::Output;
use crate::targets;
use needless_report::doctor::{json, text};

/// `needless doctor`
pub fn doctor(format: Format, output: &Output) -> Result<u8, Failure> {
    let (checks, environment) = (targets::checks(), targets::environment());
    match format {
        Format::Json => output.json(&json(&checks, &environment))?,
        Format::Text => {
            output.result(&text(&checks, &environment, output.style))?;
            output.next("needless compare cow-reuse")?;
        }
    }
    Ok(EXPECTED)
}

//! `doctor`: what this machine can show, and what would help.

use crate::args::{DoctorArgs, Format};
use crate::failure::{EXPECTED, Failure, NOT_PERMITTED, OTHER};
use crate::output::Output;
use crate::targets;
use needless_live::{Undone, leftovers};
use needless_report::SCHEMA_VERSION;
use needless_report::doctor::{json as document, text};
use serde_json::json;

/// Runs `needless doctor`.
pub fn doctor(args: &DoctorArgs, output: &Output) -> Result<u8, Failure> {
    if args.clean {
        return clean(args.format.format, output);
    }
    let (checks, environment) = (targets::checks(), targets::environment());
    match args.format.format {
        Format::Json => output.json(&document(&checks, &environment))?,
        Format::Text => {
            output.result(&text(&checks, &environment, output.style))?;
            output.next("needless compare cow-reuse")?;
        }
    }
    Ok(EXPECTED)
}

/// Runs `needless doctor --clean`.
fn clean(format: Format, output: &Output) -> Result<u8, Failure> {
    let Undone { done, failed } = leftovers::clean();
    let lines = match format {
        Format::Json => {
            let failed: Vec<String> =
                failed.iter().map(|(what, error)| format!("{what}: {error}")).collect();
            let undone =
                json!({ "schema_version": SCHEMA_VERSION, "undone": done, "failed": failed });
            return output.json(&undone).map(|()| status(failed.is_empty()));
        }
        Format::Text if done.is_empty() && failed.is_empty() => {
            "nothing was left behind\n".to_owned()
        }
        Format::Text => done.iter().map(|what| format!("undone: {what}\n")).collect(),
    };
    output.result(&lines)?;
    let Some((what, error)) = failed.into_iter().next() else { return Ok(EXPECTED) };
    let refused = error.kind() == std::io::ErrorKind::PermissionDenied;
    Err(Failure::Target {
        target: "live".to_owned(),
        reason: format!("still there: {what}: {error}"),
        help: Some(match refused {
            true => "run the command as root".to_owned(),
            false => "try again when nothing uses it".to_owned(),
        }),
        status: if refused { NOT_PERMITTED } else { OTHER },
    })
}

fn status(clean: bool) -> u8 {
    if clean { EXPECTED } else { OTHER }
}

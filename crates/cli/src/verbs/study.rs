//! `study`: a published question, answered here.

use crate::args::{StudyArgs, StudyFormat};
use crate::failure::{DIFFERENCE, EXPECTED, Failure, INCONCLUSIVE};
use crate::files::{Readers, can_write, write_text};
use crate::memory::Memory;
use crate::output::{Output, Progress, json_text};
use crate::page::made;
use crate::study::{self, Only};
use needless_report::Style;
use needless_report::html;
use needless_report::study::{
    Studied, Totals, View, document, list_document, list_text, markdown, text,
};
use needless_scenario::study::{ALL, load};
use std::path::Path;

/// Runs `needless study`.
pub fn study(args: &StudyArgs, output: &Output) -> Result<u8, Failure> {
    let Some(name) = &args.study else { return list(args, output) };
    let study = load(name, args.size)?;
    if args.size.is_some() && study.size.is_none() {
        return Err(no_size(&study.name)?);
    }
    let parts = study::parts(&study, args.part.as_deref())?;
    let only = Only::new(&args.targets, &study)?;
    args.output.as_deref().map_or(Ok(()), can_write)?;
    let progress = Progress::spinner();
    let memory = Memory::new(args.memory.max_memory);
    let studied = study::run(study, &parts, &only, memory, &progress)?;
    drop(progress);
    match &args.output {
        Some(path) => write(path, &rendered(&studied, args, plain(output)))?,
        None => {
            output.result(&rendered(&studied, args, output.style))?;
            if args.format == StudyFormat::Text {
                output.next("needless study")?;
            }
        }
    }
    Ok(status(&studied))
}

/// The failure for `--size` with a study that has no size.
fn no_size(name: &str) -> Result<Failure, Failure> {
    let known = ALL.iter().map(|builtin| load(builtin.name, None));
    let known = known.collect::<Result<Vec<_>, _>>()?.into_iter();
    let known = known.filter(|study| study.size.is_some());
    let names: Vec<String> = known.map(|study| study.name).collect();
    let help = format!("--size is for the studies {}", names.join(", "));
    Ok(Failure::Usage { message: format!("the study {name} has no size"), help })
}

/// The style of a file: no colours, and the usual width.
fn plain(output: &Output) -> Style {
    Style { unicode: output.style.unicode, ..Style::PLAIN }
}

fn rendered(studied: &Studied, args: &StudyArgs, style: Style) -> String {
    let view = match args.verbose || args.part.is_some() {
        true => View::Details,
        false => View::Overview,
    };
    match args.format {
        StudyFormat::Text => text(studied, view, style),
        StudyFormat::Json => json_text(&document(studied)),
        StudyFormat::Md => markdown(studied, view),
        StudyFormat::Html => html::study(studied, &made(&[])),
    }
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    write_text(path, Readers::Usual, text)
}

/// The status: a relation that does not hold takes precedence. A study is undecided if nothing
/// could be tested, if it lost a run for a reason that passes, or if a relation that was measured
/// twice held only once.
fn status(studied: &Studied) -> u8 {
    match studied.totals() {
        Totals { do_not: 1.., .. } => DIFFERENCE,
        Totals { hold: 0, .. } => INCONCLUSIVE,
        Totals { .. } if !studied.lost.is_empty() || studied.undecided() > 0 => INCONCLUSIVE,
        Totals { .. } => EXPECTED,
    }
}

fn list(args: &StudyArgs, output: &Output) -> Result<u8, Failure> {
    let studies = ALL.iter().map(|builtin| load(builtin.name, None));
    let studies = studies.collect::<Result<Vec<_>, _>>()?;
    let text = match args.format {
        StudyFormat::Json => json_text(&list_document(&studies)),
        StudyFormat::Text | StudyFormat::Md => list_text(&studies, output.style),
        StudyFormat::Html => {
            return Err(Failure::Usage {
                message: "the list of studies is no page".into(),
                help: "name a study, as in `needless study cow-reuse --format html -o study.html`"
                    .into(),
            });
        }
    };
    match &args.output {
        Some(path) => write(path, &text)?,
        None => output.result(&text)?,
    }
    if args.format == StudyFormat::Text && args.output.is_none() {
        output.next("needless study cow-reuse -t model -t live")?;
    }
    Ok(EXPECTED)
}

#[cfg(test)]
mod tests {
    use super::*;
    use needless_report::study::{NOT_DECIDED, PartResult, RelationResult, Standing};
    use needless_scenario::Source;
    use needless_scenario::study::parse;

    /// A study that has relations of these standings and lost these runs.
    fn studied(standings: &[Standing], lost: &[(&str, &str)]) -> Studied {
        let text = "study \"s\" { doc \"d\"; source \"s\"; takes \"t\"
            part \"p\" { figure \"all\" is=\"2\" doc=\"d\" } }";
        let relation = |standing: &Standing| RelationResult {
            text: "r".to_owned(),
            formula: "all > 1".to_owned(),
            sides: None,
            within: None,
            standing: standing.clone(),
            margins: Vec::new(),
            follows: String::new(),
        };
        let relations = standings.iter().map(relation).collect();
        let owned = |(target, lost): &(&str, &str)| ((*target).to_owned(), (*lost).to_owned());
        Studied {
            study: parse(&Source::new("s", text), None).unwrap(),
            parts: vec![PartResult { name: "p".to_owned(), relations, ..PartResult::default() }],
            lost: lost.iter().map(owned).collect(),
            environment: std::collections::BTreeMap::new(),
            seconds: 0.0,
        }
    }

    #[test]
    fn what_is_lost_or_not_decided_is_status_3() {
        let not_here = |reason: &str| Standing::NotHere(reason.to_owned());
        let once = not_here(&format!("{NOT_DECIDED}, it did not hold the first time only"));
        let left_out = not_here("live: left out by -t");
        let fails = Standing::DoesNot("2 < 1".to_owned());
        let lost = [("live", "1 of 9 runs: another live run is going on")];
        for (standings, lost, expected) in [
            (vec![Standing::Holds, left_out.clone()], &[][..], EXPECTED),
            (vec![Standing::Holds, once.clone()], &[], INCONCLUSIVE),
            (vec![Standing::Holds], &lost, INCONCLUSIVE),
            (vec![left_out], &[], INCONCLUSIVE),
            (vec![once, fails, Standing::Holds], &lost, DIFFERENCE),
        ] {
            assert_eq!(status(&studied(&standings, lost)), expected, "{standings:?} {lost:?}");
        }
    }
}

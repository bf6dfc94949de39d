//! `policies`: the kernel rows and the policies in which they differ.

use crate::args::Format;
use crate::failure::{EXPECTED, Failure};
use crate::output::Output;
use needless_model::kernels::KernelRow;
use needless_model::policy::{GROUPS, POLICIES, PolicyInfo};
use needless_report::policies::json;

/// Runs `needless policies`, for the policies with these names, or for all.
pub fn policies(names: &[String], format: Format, output: &Output) -> Result<u8, Failure> {
    let asked = asked(names)?;
    let (series, stable) = (KernelRow::all(), KernelRow::stable());
    match format {
        Format::Json => output.json(&json(&[series, stable].concat(), &asked))?,
        Format::Text => output.result(&text(&series, &stable, &asked, output))?,
    }
    Ok(EXPECTED)
}

/// The numbers of the policies that were asked for, in the order of [`POLICIES`].
fn asked(names: &[String]) -> Result<Vec<usize>, Failure> {
    let known = |name: &String| POLICIES.iter().any(|policy| policy.name == name);
    if let Some(name) = names.iter().find(|name| !known(name)) {
        return Err(Failure::Usage {
            message: format!("there is no policy `{name}`"),
            help: "`needless policies` lists all policies".to_owned(),
        });
    }
    let of = |(_, policy): &(usize, &PolicyInfo)| {
        names.is_empty() || names.iter().any(|name| name == policy.name)
    };
    Ok(POLICIES.iter().enumerate().filter(of).map(|(at, _)| at).collect())
}

fn text(series: &[KernelRow], stable: &[KernelRow], asked: &[usize], output: &Output) -> String {
    let names = |rows: &[KernelRow]| {
        let names: Vec<&str> = rows.iter().map(|row| row.name.as_str()).collect();
        names.join(" ")
    };
    let heading = output.style.bold("kernel rows");
    let rows =
        format!("{heading} {}, and stable releases that differ: {}", names(series), names(stable));
    let mut text = output.style.wrap(&rows, 12) + "\n";
    for group in GROUPS {
        let of_group = asked.iter().copied().filter(|at| POLICIES[*at].group == *group);
        for (nth, at) in of_group.enumerate() {
            if nth == 0 {
                text += &format!("\n{}\n", output.style.bold(format!("# {group}")));
            }
            let policy = &POLICIES[at];
            let name = output.style.bold(policy.name);
            let summary = format!("{name}  {}", policy.summary);
            text += &format!("\n{}\n", output.style.wrap(&summary, 4));
            for (word, meaning) in policy.values {
                let kernels: Vec<KernelRow> = having(series, stable, at, word);
                let kernels = if kernels.is_empty() { "none".to_owned() } else { names(&kernels) };
                text += &output.style.wrap(&format!("  {word}: {meaning} [{kernels}]"), 6);
                text.push('\n');
            }
            text += &output.style.wrap(&format!("  source: {}", policy.source), 6);
            text.push('\n');
        }
    }
    text
}

/// The rows that have this value of a policy. A stable release is listed if its series has another
/// value now.
fn having(series: &[KernelRow], stable: &[KernelRow], at: usize, word: &str) -> Vec<KernelRow> {
    let has = |row: &&KernelRow| row.policies.words().get(at).is_some_and(|of| *of == word);
    let now = |row: &&KernelRow| series.iter().filter(has).any(|of| of.release == row.release);
    let mut rows: Vec<KernelRow> = series.iter().filter(has).cloned().collect();
    rows.extend(stable.iter().filter(has).filter(|row| !now(row)).cloned());
    rows.sort_by_key(|row| row.release);
    rows
}

//! `policies`: the kernel rows and what tells them apart.

use crate::args::Format;
use crate::failure::{EXPECTED, Failure};
use crate::output::Output;
use needless_model::kernels::KernelRow;
use needless_model::policy::POLICIES;
use needless_report::policies::json;

/// `needless policies`
pub fn policies(format: Format, output: &Output) -> Result<u8, Failure> {
    let (series, stable) = (KernelRow::all(), KernelRow::stable());
    match format {
        Format::Json => output.json(&json(&[series, stable].concat()))?,
        Format::Text => output.result(&text(&series, &stable, output))?,
    }
    Ok(EXPECTED)
}

fn text(series: &[KernelRow], stable: &[KernelRow], output: &Output) -> String {
    let names = |rows: &[KernelRow]| {
        let names: Vec<&str> = rows.iter().map(|row| row.name.as_str()).collect();
        names.join(" ")
    };
    let heading = output.style.bold("kernel rows");
    let rows =
        format!("{heading} {}, and stable releases that differ: {}", names(series), names(stable));
    let mut text = output.style.wrap(&rows, 12) + "\n";
    for (at, policy) in POLICIES.iter().enumerate() {
        let name = output.style.bold(policy.name);
        text += &format!("\n{}\n", output.style.wrap(&format!("{name}  {}", policy.summary), 4));
        for (word, meaning) in policy.values {
            let kernels: Vec<KernelRow> = having(series, stable, at, word);
            let kernels = if kernels.is_empty() { "none".to_owned() } else { names(&kernels) };
            text += &output.style.wrap(&format!("  {word}: {meaning} [{kernels}]"), 6);
            text.push('\n');
        }
        text += &output.style.wrap(&format!("  source: {}", policy.source), 6);
        text.push('\n');
    }
    text
}

/// The rows with this word for a policy; of stable releases those whose series has another one now.
fn having(series: &[KernelRow], stable: &[KernelRow], at: usize, word: &str) -> Vec<KernelRow> {
    let has = |row: &&KernelRow| row.policies.words().get(at).is_some_and(|of| *of == word);
    let now = |row: &&KernelRow| series.iter().filter(has).any(|of| of.release == row.release);
    let mut rows: Vec<KernelRow> = series.iter().filter(has).cloned().collect();
    rows.extend(stable.iter().filter(has).filter(|row| !now(row)).cloned());
    rows.sort_by_key(|row| row.release);
    rows
}

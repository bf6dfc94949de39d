//! `kernels`: the real kernels that `kernel:` targets boot.

use crate::args::{Format, KernelsVerb};
use crate::failure::{EXPECTED, Failure};
use crate::output::{Output, Progress, tell};
use needless_guest::kernels::{self, Fetchable, Listing, USUAL};
use needless_guest::{Arch, BuildOrder, Built, FetchError, Kernel};
use needless_report::SCHEMA_VERSION;
use serde_json::{Value, json};

/// Runs `needless kernels`.
pub fn kernels(verb: &KernelsVerb, output: &Output) -> Result<u8, Failure> {
    match verb {
        KernelsVerb::List { arch, format } => list(*arch, format.format, output)?,
        KernelsVerb::Fetch { kernels } => fetch(kernels, output)?,
        KernelsVerb::Build { series, patches, config, name } => {
            let (series, patches) = (series.clone(), patches.clone());
            let order = BuildOrder { series, patches, config: config.clone(), name: name.clone() };
            build(&order, output)?;
        }
        KernelsVerb::Remove { kernels } => kernels::remove(kernels)?,
    }
    Ok(EXPECTED)
}

fn build(order: &BuildOrder, output: &Output) -> Result<(), Failure> {
    let progress = Progress::spinner();
    let Built { kernel, told } = needless_guest::build(order, &|what| progress.now(what))?;
    drop(progress);
    told.iter().for_each(|line| tell(&format!("note: {line}")));
    output.result(&cached_line(&kernel, output))?;
    output.next(&format!(
        "needless compare cow-reuse -t kernel:{} -t kernel:{}",
        order.series, kernel.manifest.name
    ))
}

fn fetch(wanted: &[String], output: &Output) -> Result<(), Failure> {
    let wanted = match wanted {
        [] => USUAL.map(str::to_owned).into(),
        wanted => wanted.to_vec(),
    };
    let progress = Progress::new("kernel", wanted.len());
    let fetched = kernels::fetch(&wanted, &|what| progress.now(what))?;
    drop(progress);
    let lines: Vec<String> = fetched.iter().map(|kernel| cached_line(kernel, output)).collect();
    output.result(&lines.concat())?;
    let first = wanted.first().map_or("6.12", String::as_str);
    output.next(&format!("needless run cow-reuse -t kernel:{first}"))
}

fn list(arch: Arch, format: Format, output: &Output) -> Result<(), Failure> {
    let listing = kernels::list(arch)?;
    match format {
        Format::Json => output.json(&document(&listing)),
        Format::Text => output.result(&text(&listing, output)),
    }
}

fn text(listing: &Listing, output: &Output) -> String {
    let mut text = format!("{}\n", output.style.bold("cached"));
    if listing.cached.is_empty() {
        text += "  none\n";
    }
    for kernel in &listing.cached {
        text += &cached_line(kernel, output);
    }
    text += &format!("\n{}\n", output.style.bold("in Debian's archive"));
    match &listing.fetchable {
        Ok(series) => {
            for series in series {
                let line = format!("  {:10} {}", series.series, series.builds.join(" "));
                text += &output.style.wrap(&line, 13);
                text.push('\n');
            }
        }
        Err(error) => {
            let line = format!("  {}: {error}", output.style.warn("not known"));
            text += &(output.style.wrap(&line, 4) + "\n");
        }
    }
    text
}

fn cached_line(kernel: &Kernel, output: &Output) -> String {
    let manifest = &kernel.manifest;
    let packages = output.style.dim(manifest.packages_text());
    let unchecked = match kernel.is_checkable() {
        true => String::new(),
        false => output.style.warn("; cannot be checked for damage: fetch it again"),
    };
    let line = format!("  {:10} {}  {packages}{unchecked}", manifest.name, manifest.release);
    output.style.wrap(&line, 13) + "\n"
}

fn document(listing: &Listing) -> Value {
    let cached: Vec<Value> = listing.cached.iter().map(|kernel| json!(kernel.manifest)).collect();
    let series = |series: &Fetchable| json!({ "series": series.series, "builds": series.builds, "version": series.version });
    let (fetchable, reason) = match &listing.fetchable {
        Ok(known) => (Some(known.iter().map(series).collect::<Vec<_>>()), None),
        Err(error) => (None, Some(FetchError::to_string(error))),
    };
    json!({
        "schema_version": SCHEMA_VERSION,
        "cached": cached,
        "fetchable": fetchable,
        "fetchable_unknown": reason,
    })
}

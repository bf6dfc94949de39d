//! Machines with fast and slow memory, as a study sets them up.

use super::words::{given, named, whole, word};
use super::{From, Part, Tiers};
use crate::document::Node;
use crate::error::Problem;
use needless_model::kernels::KernelRow;
use needless_model::tiering::{Rate, Setup, StreamKind};

/// The largest factor by which a machine is scaled down.
const MOST: u64 = 256;

/// Reads a machine with fast and slow memory. `size` is the number of pages of fast memory that are
/// simulated at scale 1, if the study has such a size.
pub(super) fn tiers(node: &Node, size: Option<f64>) -> Result<Tiers, Problem> {
    let row = given(node, "row")?;
    let kernel = KernelRow::parse(&word(row)?);
    let kernel = kernel.map_err(|error| Problem::new(row.span, error.to_string(), "this row"))?;
    let number = |name: &str, otherwise: u64, most: u64| match node.prop(name) {
        None => Ok(otherwise),
        Some(value) => {
            let number = whole(value)?;
            match (1..=most).contains(&number) {
                true => Ok(number),
                false => {
                    Err(Problem::new(value.span, format!("`{name}` is {number}"), "this number")
                        .help(format!("1 to {most}")))
                }
            }
        }
    };
    let stream = match node.prop("stream") {
        None => StreamKind::XsBench,
        Some(value) => {
            let name = word(value)?;
            let known = StreamKind::ALL.iter().find(|(known, ..)| *known == name);
            let known = known.map(|(_, stream, _)| *stream);
            known.ok_or_else(|| {
                let names: Vec<&str> = StreamKind::ALL.iter().map(|(name, ..)| *name).collect();
                Problem::new(value.span, format!("there is no stream `{name}`"), "this word")
                    .help(format!("there are {}", names.join(", ")))
            })?
        }
    };
    let pass_us = match node.prop("pass-us") {
        None => 0,
        Some(_) => number("pass-us", 0, 1_000_000)? as u32,
    };
    let fast_mib = number("fast", 1024, 65_536)?;
    let by_size = size.map(|pages| ((fast_mib * 256) as f64 / pages).round().max(1.0) as u64);
    let scale = number("scale", by_size.map_or(16, |_| 1), MOST)?;
    let setup = Setup {
        row: kernel,
        cpus: number("cpus", 16, 128)? as u16,
        stream,
        scale: (scale * by_size.unwrap_or(1)).min(MOST) as u32,
        fast_mib,
        per_second: number("per-second", 1_754_778, 1_000_000_000)?,
        warm_ms: 1000 * number("warm", 63, 3600)? as u32,
        counted_ms: 1000 * number("seconds", 20, 3600)? as u32,
        pass_us,
        seed: 1,
    };
    Ok(Tiers { name: word(&node.args[0])?, setup })
}

/// Reads a figure that a machine with tiers produces.
pub(super) fn of_tiers(node: &Node, part: &Part) -> Result<From, Problem> {
    let value = given(node, "tiers")?;
    let name = word(value)?;
    named(&part.tiers, &name, "machine with tiers", value)?;
    let counter = given(node, "counter")?;
    let wanted = word(counter)?;
    let known = Rate::ALL.iter().find(|(known, ..)| *known == wanted).map(|(_, rate, _)| *rate);
    let rate = known.ok_or_else(|| {
        let names: Vec<&str> = Rate::ALL.iter().map(|(name, ..)| *name).collect();
        Problem::new(counter.span, format!("nothing counts `{wanted}`"), "this word")
            .help(format!("there are {}", names.join(", ")))
    })?;
    Ok(From::Tiers { tiers: name, rate })
}

//! Reads single nodes and words of a study that need nothing but the part that they are in.

use super::formula::number;
use super::{Check, Costs, Expected, Finding, From, Part, Run, Sample, Shown, Term, Tiers};
use crate::document::{Node, Value};
use crate::error::{Problem, suggest};
use miette::SourceSpan;
use needless_model::counters::Counter;
use needless_model::event::FaultClass;
use needless_model::kernels::KernelRow;
use needless_model::program::ThpMode;
use needless_model::property::Property;
use needless_model::verdict::Needless;

/// Items with a name that is unique in their list.
pub(super) trait Named {
    fn name(&self) -> &str;
}

macro_rules! named {
    ($($kind:ident)*) => {
        $(impl Named for $kind {
            fn name(&self) -> &str {
                &self.name
            }
        })*
    };
}

named! { Run Check Costs Term Sample Tiers }

/// Adds an item to a list in which nothing has its name yet.
pub(super) fn add<T: Named>(list: &mut Vec<T>, new: T, node: &Node) -> Result<(), Problem> {
    if list.iter().any(|known| known.name() == new.name()) {
        let span = node.args[0].span;
        return Err(Problem::new(span, format!("`{}` is given already", new.name()), "again here")
            .help("give it another name"));
    }
    list.push(new);
    Ok(())
}

pub(super) fn already(name: &str, again: SourceSpan, first: SourceSpan) -> Problem {
    Problem::new(again, format!("`{name}` is given already"), "again here")
        .also(first, "first here")
        .help("give it another name")
}

/// The item of a list that has this name.
pub(super) fn named<'a, T: Named>(
    list: &'a [T],
    name: &str,
    what: &str,
    value: &Value,
) -> Result<&'a T, Problem> {
    list.iter().find(|known| known.name() == name).ok_or_else(|| {
        let names = || list.iter().map(Named::name);
        Problem::new(value.span, format!("there is no {what} `{name}`"), "not in this part")
            .help(suggest(&format!("{what}s"), name, names()))
    })
}

pub(super) fn word(value: &Value) -> Result<String, Problem> {
    value.text("a word or sentence").map(str::to_owned)
}

/// A required property. The table of nodes requires it already; if it is missing all the same, that
/// is a problem.
pub(super) fn given<'a>(node: &'a Node, name: &str) -> Result<&'a Value, Problem> {
    node.prop(name).ok_or_else(|| {
        Problem::new(node.span, format!("`{name}=` is missing"), "here")
            .help(format!("add {name}=\"…\""))
    })
}

pub(super) fn prop(node: &Node, name: &str) -> Result<String, Problem> {
    word(given(node, name)?)
}

pub(super) fn optional(node: &Node, name: &str) -> Result<String, Problem> {
    node.prop(name).map_or(Ok(String::new()), word)
}

/// A number from 0 on, without a fraction.
pub(super) fn whole(value: &Value) -> Result<u64, Problem> {
    let number = number(value)?;
    let fits = (0.0..=9e15).contains(&number) && number.fract() == 0.0;
    fits.then_some(number as u64).ok_or_else(|| {
        Problem::new(value.span, "a whole number of at least 0 is expected here", "this is not one")
            .help("for instance 3")
    })
}

/// Reads a target. If it is a row of the model, the row must exist.
pub(super) fn target(value: &Value) -> Result<String, Problem> {
    let name = word(value)?;
    let row = match name.split_once(':') {
        None if name == "live" || name == "live,events=off" => return Ok(name),
        Some(("kernel", _)) => return Ok(name),
        Some(("model", row)) => row,
        _ => {
            return Err(Problem::new(value.span, format!("`{name}` is not a target"), "here")
                .help("targets are live, kernel:RELEASE and model:ROW"));
        }
    };
    match KernelRow::parse(row) {
        Ok(_) => Ok(name),
        Err(error) => {
            let start = 1 + "model:".len();
            let place = error.place(row);
            let end = value.span.len().saturating_sub(1);
            let start = value.span.offset() + (start + place.start).min(end);
            let span = (start..start + place.len()).into();
            Err(Problem::new(span, error.to_string(), "here")
                .help("`needless policies` lists the rows"))
        }
    }
}

/// A mode of transparent huge pages.
pub(super) fn thp(value: &Value) -> Result<ThpMode, Problem> {
    let mode = word(value)?;
    ThpMode::named(&mode).ok_or_else(|| {
        Problem::new(value.span, format!("`{mode}` is not a mode of huge pages"), "here")
            .help("always, madvise or never")
    })
}

pub(super) fn expected(node: &Node) -> Result<Expected, Problem> {
    let mut expected = Expected::default();
    for property in &node.props {
        match property.name.as_str() {
            "since" => expected.since = Some(release(&property.value)?),
            name => {
                let counter = counter(name, property.span)?;
                expected.counts.push((counter, whole(&property.value)?));
            }
        }
    }
    Ok(expected)
}

pub(super) fn release(value: &Value) -> Result<(u32, u32), Problem> {
    let text = word(value)?;
    let numbers = text.split_once('.').map(|(major, minor)| (major.parse(), minor.parse()));
    match numbers {
        Some((Ok(major), Ok(minor))) => Ok((major, minor)),
        _ => Err(Problem::new(value.span, format!("`{text}` is not a release"), "here")
            .help("two numbers, as in 6.12")),
    }
}

pub(super) fn counter(name: &str, span: SourceSpan) -> Result<Counter, Problem> {
    Counter::by_name(name).ok_or_else(|| {
        let names = Counter::ALL.iter().map(|counter| counter.name());
        Problem::new(span, format!("there is no counter `{name}`"), "here")
            .help(suggest("counters", name, names))
    })
}

pub(super) fn term(node: &Node) -> Result<Term, Problem> {
    let (name, value) = (word(&node.args[0])?, given(node, "counts")?);
    let counts = word(value)?;
    let names = counts.split(' ').filter(|name| *name != "blocks");
    let counters = names.map(|name| counter(name, value.span)).collect::<Result<_, _>>()?;
    Ok(Term { name, counters, doc: prop(node, "doc")? })
}

/// Reads the price of a term.
pub(super) fn price(node: &Node, value: &Value, part: &Part) -> Result<From, Problem> {
    let costs = word(value)?;
    let table = named(&part.costs, &costs, "cost table", value)?;
    let (value, term) = (given(node, "term")?, prop(node, "term")?);
    named(&table.terms, &term, "term", value)?;
    Ok(From::Price { costs, term })
}

pub(super) fn costs(node: &Node, part: &Part) -> Result<Costs, Problem> {
    let name = word(&node.args[0])?;
    let (on, target) = (given(node, "on")?, prop(node, "on")?);
    if target != "live" && !target.starts_with("kernel:") {
        return Err(Problem::new(on.span, format!("`{target}` is not a real kernel"), "here")
            .help("cycles are measured on live, or kernel:RELEASE"));
    }
    let (mut terms, mut samples): (Vec<Term>, Vec<Sample>) = (Vec::new(), Vec::new());
    for line in node.children() {
        match line.name.as_str() {
            "term" => add(&mut terms, term(line)?, line)?,
            _ => add(&mut samples, sample(line, &target, part)?, line)?,
        }
    }
    Ok(Costs { name, target, terms, samples })
}

pub(super) fn sample(node: &Node, target: &str, part: &Part) -> Result<Sample, Problem> {
    let held_out = match node.prop("held-out") {
        None => false,
        Some(value) if word(value)? == "yes" => true,
        Some(value) => {
            return Err(Problem::new(value.span, "held-out is \"yes\" or left out", "here")
                .help("held-out=\"yes\""));
        }
    };
    let (value, run) = (given(node, "run")?, prop(node, "run")?);
    runs_on(named(&part.runs, &run, "run", value)?, target, value)?;
    let block = block(given(node, "block")?)?;
    Ok(Sample { name: word(&node.args[0])?, run, block, held_out })
}

/// The number of a `measure` block, from 0. It is written from 1.
pub(super) fn block(value: &Value) -> Result<usize, Problem> {
    let number = whole(value)? as usize;
    number.checked_sub(1).ok_or_else(|| {
        Problem::new(value.span, "blocks are counted from 1", "here").help("for instance block=1")
    })
}

pub(super) fn property(number: &str, value: &Value) -> Result<Property, Problem> {
    Property::ALL.iter().copied().find(|property| property.number() == number).ok_or_else(|| {
        let names: Vec<&str> = Property::ALL.iter().map(|property| property.number()).collect();
        Problem::new(value.span, format!("there is no property `{number}`"), "here")
            .help(format!("holds, or one of {}", names.join(", ")))
    })
}

/// The run and the target that a node names. The run must have the target.
pub(super) fn run_on(node: &Node, part: &Part) -> Result<(String, String), Problem> {
    let (value, name) = (given(node, "run")?, prop(node, "run")?);
    let run = named(&part.runs, &name, "run", value)?;
    let (value, target) = (given(node, "on")?, prop(node, "on")?);
    runs_on(run, &target, value)?;
    Ok((name, target))
}

/// Checks that a run has the target.
pub(super) fn runs_on(run: &Run, target: &str, value: &Value) -> Result<(), Problem> {
    let targets = || run.targets.iter().map(|on| on.target.as_str());
    if targets().any(|known| known == target) {
        return Ok(());
    }
    let message = format!("`{}` does not run on `{target}`", run.name);
    Err(Problem::new(value.span, message, "not there").help(suggest("targets", target, targets())))
}

pub(super) fn shown(node: &Node) -> Result<Shown, Problem> {
    if let Some(value) = node.prop("updates").or(node.prop("ages")).or(node.prop("left")) {
        return in_model(node, value);
    }
    if let Some(value) = node.prop("executes") {
        return match word(value)?.as_str() {
            "tlbi" => Ok(Shown::Tlbi),
            _ => Err(Problem::new(value.span, "such instructions are not counted", "here")
                .help("executes=\"tlbi\"")),
        };
    }
    if let Some(value) = node.prop("ends") {
        return match word(value)?.as_str() {
            "protected" => Ok(Shown::Protected),
            "tables" => Ok(Shown::PageTables),
            _ => Err(Problem::new(value.span, "pages do not end like this", "here")
                .help("ends=\"protected\" or \"tables\"")),
        };
    }
    let block = node.prop("block").map(block).transpose()?;
    match (node.prop("counter"), node.prop("class")) {
        (Some(value), None) => match counter(&word(value)?, value.span)? {
            Counter::Cycles => Ok(Shown::Cycles(block)),
            counter => Ok(Shown::Counter(counter)),
        },
        (None, Some(value)) => {
            let name = word(value)?;
            let class = FaultClass::ALL.iter().copied().find(|class| class.name() == name);
            class.map(Shown::Class).ok_or_else(|| {
                let names = FaultClass::ALL.iter().map(|class| class.name());
                let message = format!("there is no class of faults `{name}`");
                Problem::new(value.span, message, "here").help(suggest("classes", &name, names))
            })
        }
        _ => Err(Problem::new(node.span, "a figure shows exactly one thing", "this one does not")
            .help("counter=\"COUNTER\" or class=\"CLASS\"")),
    }
}

/// Reads a value that only the model shows.
pub(super) fn in_model(node: &Node, value: &Value) -> Result<Shown, Problem> {
    let (on, target) = (given(node, "on")?, prop(node, "on")?);
    if !target.starts_with("model:") {
        return Err(Problem::new(on.span, "only the model shows this", "not a row of the model")
            .help("on=\"model:7.3\""));
    }
    let pass = node.prop("pass").map(whole).transpose()?.unwrap_or(1).clamp(1, 1000) as usize;
    let of = ["updates", "ages", "left"].into_iter().find(|name| node.prop(name).is_some());
    match (of, word(value)?.as_str()) {
        (Some("updates"), "accessed") => Ok(Shown::Updates),
        (Some("updates"), "dirty") => Ok(Shown::DirtyUpdates),
        (Some("updates"), "entries") => Ok(Shown::Entries),
        (Some("updates"), "markers") => Ok(Shown::MarkersSet),
        (Some("ages"), "active") => Ok(Shown::Active(pass)),
        (Some("ages"), "resident") => Ok(Shown::Resident(pass)),
        (Some("left"), "tables") => Ok(Shown::Tables),
        (Some("left"), "markers") => Ok(Shown::Markers),
        _ => Err(Problem::new(value.span, "the model does not show this", "here").help(
            "updates=\"accessed\", \"dirty\", \"entries\" or \"markers\", ages=\"active\", ages=\"resident\", left=\"tables\" or left=\"markers\"",
        )),
    }
}

pub(super) fn finding(node: &Node, part: &Part) -> Result<Finding, Problem> {
    let value = given(node, "what")?;
    let word_of = word(value)?;
    let what = Needless::ALL.iter().copied().find(|what| what.name() == word_of);
    let what = what.ok_or_else(|| {
        let names: Vec<&str> = Needless::ALL.iter().map(|what| what.name()).collect();
        Problem::new(value.span, format!("nothing needless is called `{word_of}`"), "here")
            .help(names.join(", "))
    })?;
    let (run, target) = run_on(node, part)?;
    let (text, function) = (word(&node.args[0])?, prop(node, "function")?);
    Ok(Finding { text, what, function, run, target, times: whole(given(node, "times")?)? })
}

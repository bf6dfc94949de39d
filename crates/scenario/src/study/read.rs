//! From a text to a [`Study`]: syntax, the table of nodes, then what the nodes say.

use super::formula::{equation, formula, number};
use super::{
    Check, Chosen, Column, Costs, Equation, Expected, Figure, Finding, Formula, From, Given,
    Missing, On, Part, Relation, Run, SIZE, Sample, Shown, Study, Sweep, Table, Term, rules,
};
use crate::document::{self, Node, Value};
use crate::error::{Problem, finish, suggest};
use crate::tokens::is_name;
use crate::{Settings, grammar};
use miette::SourceSpan;
use needless_model::counters::Counter;
use needless_model::event::FaultClass;
use needless_model::kernels::KernelRow;
use needless_model::property::Property;
use needless_model::verdict::Needless;

/// The study in a text, of its own size unless another one is given.
pub(super) fn study(text: &str, size: Option<u64>) -> Result<Study, Vec<Problem>> {
    let nodes = document::read(text)?;
    let mut problems = Vec::new();
    grammar::check_by(&nodes, rules::TOP, &mut problems);
    finish(problems, ())?;
    let study = match nodes.as_slice() {
        [study] => study,
        [] => {
            return Err(vec![
                Problem::new((0..0).into(), "there is no study here", "here")
                    .help("study \"NAME\" { … }"),
            ]);
        }
        [_, second, ..] => {
            return Err(vec![
                Problem::new(second.span, "a second study", "here").help("a file holds one"),
            ]);
        }
    };
    let mut reader = Reader { size: size.map(|pages| pages as f64), ..Reader::default() };
    let study = reader.study(study);
    finish(reader.problems, study)
}

#[derive(Default)]
struct Reader {
    problems: Vec<Problem>,
    /// The figures so far, and where they are.
    figures: Vec<(String, SourceSpan)>,
    /// The pages of what is large in it: as asked for, else as it says; `None`: it does not.
    size: Option<f64>,
}

impl Reader {
    fn keep<T>(&mut self, result: Result<T, Problem>) -> Option<T> {
        result.map_err(|problem| self.problems.push(problem)).ok()
    }

    fn study(&mut self, node: &Node) -> Study {
        let given = self.given(node);
        let stated = given.iter().filter(|given| given.stated.is_some() && given.name != SIZE);
        let stated: Vec<String> = stated.map(|given| given.name.clone()).collect();
        let study = Study {
            name: self.keep(word(&node.args[0])).unwrap_or_default(),
            doc: self.sentences(node, "doc"),
            sources: self.sentences(node, "source"),
            takes: self.sentences(node, "takes").join(" "),
            given,
            missing: self.missing(node),
            parts: self.parts(node, &stated),
        };
        for (name, there) in [
            ("doc", study.doc.is_empty()),
            ("source", study.sources.is_empty()),
            ("takes", study.takes.is_empty()),
            ("part", study.parts.is_empty()),
        ] {
            if there {
                self.problems.push(
                    Problem::new(node.span, format!("the study has no `{name}`"), "in here")
                        .help(format!("add a line: {name} \"…\"")),
                );
            }
        }
        study
    }

    fn sentences(&mut self, node: &Node, name: &str) -> Vec<String> {
        let lines = node.children().iter().filter(|line| line.name == name);
        lines.filter_map(|line| self.keep(word(&line.args[0]))).collect()
    }

    fn missing(&mut self, node: &Node) -> Vec<Missing> {
        let lines = node.children().iter().filter(|line| line.name == "missing");
        let missing = lines.filter_map(|line| {
            let (what, why) = (word(&line.args[0]), prop(line, "why"));
            Some(Missing { what: self.keep(what)?, why: self.keep(why)? })
        });
        missing.collect()
    }

    fn given(&mut self, node: &Node) -> Vec<Given> {
        let mut given = Vec::new();
        for line in node.children() {
            let stated = match line.name.as_str() {
                "size" => {
                    let size = self.of_size(line);
                    given.extend(self.keep(size));
                    continue;
                }
                "published" => None,
                "stated" => self.keep(prop(line, "source")),
                _ => continue,
            };
            let read = |reader: &mut Reader| {
                let name = reader.figure_name(&line.args[0])?;
                let value = number(&line.args[1])?;
                let (unit, doc) = (optional(line, "unit")?, prop(line, "doc")?);
                Ok(Given { name, value, unit, doc, stated: stated.clone() })
            };
            let result = read(self);
            given.extend(self.keep(result));
        }
        given
    }

    /// The size, as a figure of that name.
    fn of_size(&mut self, line: &Node) -> Result<Given, Problem> {
        let written = whole(&line.args[0])? as f64;
        let value = *self.size.get_or_insert(written);
        if let Some((_, first)) = self.figures.iter().find(|(known, _)| known == SIZE) {
            return Err(already(SIZE, line.span, *first));
        }
        self.figures.push((SIZE.to_owned(), line.span));
        let (unit, doc) = ("pages".to_owned(), prop(line, "doc")?);
        Ok(Given { name: SIZE.to_owned(), value, unit, doc, stated: Some("--size".to_owned()) })
    }

    /// A number, or the size.
    fn sized(&self, value: &Value) -> Result<f64, Problem> {
        if value.text("a number").is_ok_and(|word| word == SIZE) {
            return self.size.ok_or_else(|| {
                Problem::new(value.span, "the study has no size", "here")
                    .help("add a line to the study: size N doc=\"…\"")
            });
        }
        number(value)
    }

    /// The same without a fraction.
    fn whole(&self, value: &Value) -> Result<u64, Problem> {
        match value.text("a number") {
            Ok(SIZE) => Ok(self.sized(value)? as u64),
            _ => whole(value),
        }
    }

    /// Runs of the part side by side.
    fn table(&self, node: &Node, part: &Part) -> Result<Table, Problem> {
        let listed = given(node, "runs")?;
        let words = word(listed)?;
        let run = |name: &str| named(&part.runs, name, "run", listed).map(|run| run.name.clone());
        let runs = words.split_whitespace().map(run).collect::<Result<_, _>>()?;
        let counted = given(node, "counters")?;
        let names = word(counted)?;
        let known = names.split_whitespace().map(|name| counter(name, counted.span));
        let counters = known.collect::<Result<_, _>>()?;
        let per = node.prop("per").map_or(Ok(1.0), |per| self.sized(per))?;
        Ok(Table { text: word(&node.args[0])?, runs, counters, per })
    }

    /// The scenario that a node names, with its values, which compiles.
    fn chosen(&self, node: &Node, property: &str) -> Result<Chosen, Problem> {
        let value = given(node, property)?;
        let scenario = word(value)?;
        let rounds = match node.prop("rounds") {
            None => None,
            Some(rounds) => match u32::try_from(whole(rounds)?) {
                Ok(number) if number > 0 => Some(number),
                _ => {
                    return Err(Problem::new(rounds.span, "no number of rounds", "here")
                        .help("a number from 1 on"));
                }
            },
        };
        let sets = node.children().iter().filter(|line| line.name == "set");
        let setting = |line: &Node| self.whole(&line.args[1]);
        let sets = sets.map(|line| Ok((word(&line.args[0])?, setting(line)?.to_string())));
        let settings: Settings = sets.collect::<Result<Vec<_>, Problem>>()?.into_iter().collect();
        let compiled = crate::load(&scenario).and_then(|source| crate::compile(&source, &settings));
        let told = |error: crate::ScenarioError| {
            let help = miette::Diagnostic::help(&error).map(|help| help.to_string());
            let problem = Problem::new(value.span, error.to_string(), "this scenario");
            problem.help(help.unwrap_or_else(|| "`needless scenario list` lists them".to_owned()))
        };
        compiled.map_err(told)?;
        Ok(Chosen { scenario, settings, rounds })
    }

    fn check(&self, node: &Node) -> Result<Check, Problem> {
        let mut rows = Vec::new();
        for line in node.children().iter().filter(|line| line.name == "on") {
            let (value, row) = (&line.args[0], word(&line.args[0])?);
            if let Err(error) = KernelRow::parse(&row) {
                return Err(Problem::new(value.span, error.to_string(), "here")
                    .help("`needless policies` lists the rows"));
            }
            let (value, finds) = (given(line, "finds")?, prop(line, "finds")?);
            let property = match finds.as_str() {
                "holds" => None,
                number => Some(property(number, value)?),
            };
            rows.push((row, property));
        }
        let (name, chosen) = (word(&node.args[0])?, self.chosen(node, "test")?);
        Ok(Check { name, chosen, shown: optional(node, "shown")?, rows })
    }

    /// A figure's name, which is not there yet.
    fn figure_name(&mut self, value: &Value) -> Result<String, Problem> {
        let name = word(value)?;
        self.declare(name.clone(), value)?;
        Ok(name)
    }

    fn declare(&mut self, name: String, value: &Value) -> Result<(), Problem> {
        if !is_name(&name) {
            return Err(Problem::new(value.span, format!("`{name}` is no name"), "this word")
                .help("letters, digits and _, a letter first"));
        }
        if let Some((_, first)) = self.figures.iter().find(|(known, _)| *known == name) {
            return Err(already(&name, value.span, *first));
        }
        self.figures.push((name, value.span));
        Ok(())
    }

    /// Formulas over a number, whose cells are figures afterwards.
    fn sweep(&mut self, node: &Node) -> Result<Sweep, Problem> {
        let listed = given(node, "values")?;
        let words = word(listed)?;
        let value = |word: &str| {
            word.parse::<u64>().map_err(|_| {
                let message = format!("`{word}` is no whole number");
                Problem::new(listed.span, message, "in here").help("values=\"1 2 4\"")
            })
        };
        let values = words.split_whitespace().map(value).collect::<Result<Vec<_>, _>>()?;
        let before = self.figures.len();
        let over = self.figure_name(given(node, "over")?)?;
        let mut columns: Vec<(Column, &Value)> = Vec::new();
        for line in node.children() {
            let (is, doc, unit) = (given(line, "is")?, prop(line, "doc")?, optional(line, "unit")?);
            let formula = self.formula(is)?;
            let name = self.figure_name(&line.args[0])?;
            columns.push((Column { name, unit, doc, formula }, &line.args[0]));
        }
        // From here on, only the cells have names.
        self.figures.truncate(before);
        for value in &values {
            for (column, at) in &columns {
                self.declare(Sweep::cell(&column.name, *value), at)?;
            }
        }
        let columns = columns.into_iter().map(|(column, _)| column).collect();
        Ok(Sweep { text: word(&node.args[0])?, over, values, columns })
    }

    fn parts(&mut self, node: &Node, stated: &[String]) -> Vec<Part> {
        let shared = self.figures.len();
        let mut parts: Vec<Part> = Vec::new();
        for line in node.children().iter().filter(|line| line.name == "part") {
            self.figures.truncate(shared);
            let part = self.part(line, stated);
            if parts.iter().any(|known| known.name == part.name) {
                self.problems.push(already(&part.name, line.span, node.span));
            }
            parts.push(part);
        }
        parts
    }

    fn part(&mut self, node: &Node, stated: &[String]) -> Part {
        let mut part = Part {
            name: self.keep(word(&node.args[0])).unwrap_or_default(),
            doc: self.sentences(node, "doc"),
            ..Part::default()
        };
        // What others name comes first, wherever it stands.
        for line in node.children() {
            let result = match line.name.as_str() {
                "run" => self.run(line).and_then(|run| add(&mut part.runs, run, line)),
                "check" => self.check(line).and_then(|check| add(&mut part.checks, check, line)),
                _ => Ok(()),
            };
            self.keep(result);
        }
        for line in node.children().iter().filter(|line| line.name == "costs") {
            let result = costs(line, &part).and_then(|costs| add(&mut part.costs, costs, line));
            self.keep(result);
        }
        for line in node.children() {
            let result = match line.name.as_str() {
                "figure" => self.figure(line, &part).map(|figure| part.figures.push(figure)),
                "sweep" => self.sweep(line).map(|sweep| {
                    part.figures.extend(sweep.figures());
                    part.sweeps.push(sweep);
                }),
                "table" => self.table(line, &part).map(|table| part.tables.push(table)),
                "finding" => finding(line, &part).map(|finding| part.findings.push(finding)),
                "relation" => {
                    self.relation(line, stated).map(|relation| part.relations.push(relation))
                }
                _ => Ok(()),
            };
            self.keep(result);
        }
        part
    }

    fn run(&mut self, node: &Node) -> Result<Run, Problem> {
        let (name, chosen) = (word(&node.args[0])?, self.chosen(node, "scenario")?);
        let mut targets: Vec<On> = Vec::new();
        for line in node.children().iter().filter(|line| line.name == "on") {
            let target = target(&line.args[0])?;
            let (expected, bare) = (expected(line)?, line.props.is_empty());
            let at = match targets.iter().position(|on| on.target == target) {
                Some(at) => at,
                None => {
                    targets.push(On { target, expected: Vec::new() });
                    targets.len() - 1
                }
            };
            let known = &mut targets[at].expected;
            let again = known.iter().any(|other| other.since == expected.since);
            if again || (bare && !known.is_empty()) {
                return Err(Problem::new(line.span, "the target is there already", "given again")
                    .help("give each another release: since=\"6.12\""));
            }
            known.push(expected);
        }
        Ok(Run { name, chosen, targets })
    }

    fn figure(&mut self, node: &Node, part: &Part) -> Result<Figure, Problem> {
        let from = match (node.prop("is"), node.prop("costs")) {
            (Some(is), None) if node.prop("run").is_none() => From::Formula(self.formula(is)?),
            (None, costs) if node.prop("run").is_some() => {
                let (run, target) = run_on(node, part)?;
                let per = node.prop("per").map_or(Ok(1.0), |per| self.sized(per))?;
                match costs {
                    None => From::Run { run, target, shown: shown(node)?, per },
                    Some(value) => {
                        let costs = word(value)?;
                        named(&part.costs, &costs, "cost table", value)?;
                        From::Costs { costs, run, target, per }
                    }
                }
            }
            (None, Some(value)) if node.prop("term").is_some() => price(node, value, part)?,
            _ => {
                let message = "a figure comes from one thing";
                return Err(Problem::new(node.span, message, "this one does not")
                    .help("is=\"FORMULA\"; run= and on= with counter=, class= or costs=; or costs= and term="));
            }
        };
        let (unit, doc) = (optional(node, "unit")?, prop(node, "doc")?);
        Ok(Figure { name: self.figure_name(&node.args[0])?, unit, doc, from })
    }

    fn formula(&self, value: &Value) -> Result<Formula, Problem> {
        let formula = formula(value)?;
        self.known(&formula, value)?;
        Ok(formula)
    }

    fn known(&self, formula: &Formula, value: &Value) -> Result<(), Problem> {
        let names = || self.figures.iter().map(|(name, _)| name.as_str());
        for name in formula.names() {
            if !names().any(|known| known == name) {
                let message = format!("there is no figure `{name}` before this");
                return Err(Problem::new(value.span, message, "in here").help(suggest(
                    "figures",
                    name,
                    names(),
                )));
            }
        }
        Ok(())
    }

    fn relation(&mut self, node: &Node, stated: &[String]) -> Result<Relation, Problem> {
        let within = match (node.prop("factor"), node.prop("percent")) {
            (Some(factor), None) => Some(number(factor)?),
            (None, Some(percent)) => Some(1.0 + number(percent)? / 100.0),
            (None, None) => None,
            (Some(_), Some(second)) => {
                return Err(Problem::new(second.span, "two tolerances", "the second one")
                    .help("leave one out"));
            }
        };
        let is = self.equation(given(node, "is")?, within)?;
        let only = match (node.prop("where"), node.prop("because")) {
            (None, None) => None,
            (Some(value), Some(because)) => Some((self.equation(value, None)?, word(because)?)),
            (Some(value), None) => {
                return Err(Problem::new(value.span, "where= without because=", "this condition")
                    .help("say why it is not to be had elsewhere: because=\"…\""));
            }
            (None, Some(value)) => {
                return Err(Problem::new(value.span, "because= without where=", "this reason")
                    .help("say where it must hold: where=\"FORMULA <= FORMULA\""));
            }
        };
        let moves = match node.prop("moves") {
            None => Vec::new(),
            Some(value) => {
                let words = word(value)?;
                let known = |name: &str| match stated.iter().any(|stated| stated == name) {
                    true => Ok(name.to_owned()),
                    false => {
                        let message = format!("`{name}` is no stated figure");
                        let names = stated.iter().map(String::as_str);
                        Err(Problem::new(value.span, message, "in here").help(suggest(
                            "stated figures",
                            name,
                            names,
                        )))
                    }
                };
                words.split_whitespace().map(known).collect::<Result<_, _>>()?
            }
        };
        Ok(Relation { text: word(&node.args[0])?, is, only, moves })
    }

    fn equation(&self, value: &Value, within: Option<f64>) -> Result<Equation, Problem> {
        let equation = equation(value, within)?;
        self.known(&equation.left, value)?;
        self.known(&equation.right, value)?;
        Ok(equation)
    }
}

/// What has a name of its own within a list.
trait Named {
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

named! { Run Check Costs Term Sample }

/// Adds to a list in which nothing has its name yet.
fn add<T: Named>(list: &mut Vec<T>, new: T, node: &Node) -> Result<(), Problem> {
    if list.iter().any(|known| known.name() == new.name()) {
        let span = node.args[0].span;
        return Err(Problem::new(span, format!("`{}` is there already", new.name()), "again here")
            .help("give it another name"));
    }
    list.push(new);
    Ok(())
}

fn already(name: &str, again: SourceSpan, first: SourceSpan) -> Problem {
    Problem::new(again, format!("`{name}` is there already"), "again here")
        .also(first, "first here")
        .help("give it another name")
}

/// What a list has by that name.
fn named<'a, T: Named>(
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

fn word(value: &Value) -> Result<String, Problem> {
    value.text("a word or sentence").map(str::to_owned)
}

/// A property that the table of nodes requires, or that is missing all the same.
fn given<'a>(node: &'a Node, name: &str) -> Result<&'a Value, Problem> {
    node.prop(name).ok_or_else(|| {
        Problem::new(node.span, format!("`{name}=` is missing"), "here")
            .help(format!("add {name}=\"…\""))
    })
}

fn prop(node: &Node, name: &str) -> Result<String, Problem> {
    word(given(node, name)?)
}

fn optional(node: &Node, name: &str) -> Result<String, Problem> {
    node.prop(name).map_or(Ok(String::new()), word)
}

/// A number from 0 on, without a fraction.
fn whole(value: &Value) -> Result<u64, Problem> {
    let number = number(value)?;
    let fits = (0.0..=9e15).contains(&number) && number.fract() == 0.0;
    fits.then_some(number as u64).ok_or_else(|| {
        Problem::new(value.span, "a whole number from 0 on is expected here", "this is none")
            .help("for instance 3")
    })
}

/// A target; a model's row has to be one.
fn target(value: &Value) -> Result<String, Problem> {
    let name = word(value)?;
    let row = match name.split_once(':') {
        None if name == "live" || name == "live,events=off" => return Ok(name),
        Some(("kernel", _)) => return Ok(name),
        Some(("model", row)) => row,
        _ => {
            return Err(Problem::new(value.span, format!("`{name}` is no target"), "here")
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

fn expected(node: &Node) -> Result<Expected, Problem> {
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

fn release(value: &Value) -> Result<(u32, u32), Problem> {
    let text = word(value)?;
    let numbers = text.split_once('.').map(|(major, minor)| (major.parse(), minor.parse()));
    match numbers {
        Some((Ok(major), Ok(minor))) => Ok((major, minor)),
        _ => Err(Problem::new(value.span, format!("`{text}` is no release"), "here")
            .help("two numbers, as in 6.12")),
    }
}

fn counter(name: &str, span: SourceSpan) -> Result<Counter, Problem> {
    Counter::by_name(name).ok_or_else(|| {
        let names = Counter::ALL.iter().map(|counter| counter.name());
        Problem::new(span, format!("there is no counter `{name}`"), "here")
            .help(suggest("counters", name, names))
    })
}

fn term(node: &Node) -> Result<Term, Problem> {
    let (name, value) = (word(&node.args[0])?, given(node, "counts")?);
    let counts = word(value)?;
    let names = counts.split(' ').filter(|name| *name != "blocks");
    let counters = names.map(|name| counter(name, value.span)).collect::<Result<_, _>>()?;
    Ok(Term { name, counters, doc: prop(node, "doc")? })
}

/// The price of a term.
fn price(node: &Node, value: &Value, part: &Part) -> Result<From, Problem> {
    let costs = word(value)?;
    let table = named(&part.costs, &costs, "cost table", value)?;
    let (value, term) = (given(node, "term")?, prop(node, "term")?);
    named(&table.terms, &term, "term", value)?;
    Ok(From::Price { costs, term })
}

fn costs(node: &Node, part: &Part) -> Result<Costs, Problem> {
    let name = word(&node.args[0])?;
    let (on, target) = (given(node, "on")?, prop(node, "on")?);
    if target != "live" && !target.starts_with("kernel:") {
        return Err(Problem::new(on.span, format!("`{target}` is no real kernel"), "here")
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

fn sample(node: &Node, target: &str, part: &Part) -> Result<Sample, Problem> {
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

/// The number of a `measure` block, from 0; written from 1.
fn block(value: &Value) -> Result<usize, Problem> {
    let number = whole(value)? as usize;
    number.checked_sub(1).ok_or_else(|| {
        Problem::new(value.span, "blocks are counted from 1", "here").help("for instance block=1")
    })
}

fn property(number: &str, value: &Value) -> Result<Property, Problem> {
    Property::ALL.iter().copied().find(|property| property.number() == number).ok_or_else(|| {
        let names: Vec<&str> = Property::ALL.iter().map(|property| property.number()).collect();
        Problem::new(value.span, format!("there is no property `{number}`"), "here")
            .help(format!("holds, or one of {}", names.join(", ")))
    })
}

/// The run and the target that a node names; the run has it.
fn run_on(node: &Node, part: &Part) -> Result<(String, String), Problem> {
    let (value, name) = (given(node, "run")?, prop(node, "run")?);
    let run = named(&part.runs, &name, "run", value)?;
    let (value, target) = (given(node, "on")?, prop(node, "on")?);
    runs_on(run, &target, value)?;
    Ok((name, target))
}

/// A run has the target.
fn runs_on(run: &Run, target: &str, value: &Value) -> Result<(), Problem> {
    let targets = || run.targets.iter().map(|on| on.target.as_str());
    if targets().any(|known| known == target) {
        return Ok(());
    }
    let message = format!("`{}` does not run on `{target}`", run.name);
    Err(Problem::new(value.span, message, "not there").help(suggest("targets", target, targets())))
}

fn shown(node: &Node) -> Result<Shown, Problem> {
    if let Some(value) = node.prop("updates").or(node.prop("ages")) {
        return in_model(node, value);
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
        _ => Err(Problem::new(node.span, "a figure shows one thing", "this one does not")
            .help("counter=\"COUNTER\" or class=\"CLASS\"")),
    }
}

/// What only the model shows.
fn in_model(node: &Node, value: &Value) -> Result<Shown, Problem> {
    let (on, target) = (given(node, "on")?, prop(node, "on")?);
    if !target.starts_with("model:") {
        return Err(Problem::new(on.span, "only the model shows this", "no row of the model")
            .help("on=\"model:7.3\""));
    }
    let pass = node.prop("pass").map(whole).transpose()?.unwrap_or(1).clamp(1, 1000) as usize;
    match (node.prop("updates").is_some(), word(value)?.as_str()) {
        (true, "accessed") => Ok(Shown::Updates),
        (true, "entries") => Ok(Shown::Entries),
        (false, "active") => Ok(Shown::Active(pass)),
        (false, "resident") => Ok(Shown::Resident(pass)),
        _ => Err(Problem::new(value.span, "nothing that the model shows", "here").help(
            "updates=\"accessed\", updates=\"entries\", ages=\"active\" or ages=\"resident\"",
        )),
    }
}

fn finding(node: &Node, part: &Part) -> Result<Finding, Problem> {
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

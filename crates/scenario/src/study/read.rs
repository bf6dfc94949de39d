//! Reads a text as a [`Study`]: syntax, the table of nodes, then the nodes' contents.

use super::formula::{equation, formula, number};
use super::tiers::{of_tiers, tiers};
use super::words::{
    add, already, costs, counter, expected, finding, given, named, optional, price, prop, property,
    run_on, runs_on, shown, target, thp, whole, word,
};
use super::{
    Answer, Case, Check, Chosen, Column, Contrast, Equation, Figure, Formula, From, Given,
    LIVE_SIZE, Matrix, MatrixColumn, MatrixRow, Missing, On, Part, Relation, Run, RunOf, SIZE,
    Size, Study, Sweep, Table, Template, rules,
};
use crate::document::{self, Node, Value};
use crate::error::{Problem, finish, suggest};
use crate::tokens::is_name;
use crate::{Settings, grammar};
use miette::SourceSpan;
use needless_model::kernels::KernelRow;

/// The study in a text, in its own size unless another one is given.
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
    let mut reader = Reader { asked: size.map(|pages| pages as f64), ..Reader::default() };
    let study = reader.study(study);
    finish(reader.problems, study)
}

#[derive(Default)]
struct Reader {
    problems: Vec<Problem>,
    /// The figures so far, and where they are.
    figures: Vec<(String, SourceSpan)>,
    /// The number of pages that the user asked for.
    asked: Option<f64>,
    /// The study's size. `None` if it does not say one.
    size: Option<Size>,
}

impl Reader {
    fn keep<T>(&mut self, result: Result<T, Problem>) -> Option<T> {
        result.map_err(|problem| self.problems.push(problem)).ok()
    }

    fn study(&mut self, node: &Node) -> Study {
        let given = self.given(node);
        let own = |given: &&Given| given.name != SIZE && given.name != LIVE_SIZE;
        let stated = given.iter().filter(|given| given.stated.is_some()).filter(own);
        let stated: Vec<String> = stated.map(|given| given.name.clone()).collect();
        let mut study = Study {
            name: self.keep(word(&node.args[0])).unwrap_or_default(),
            doc: self.sentences(node, "doc"),
            sources: self.sentences(node, "source"),
            takes: self.sentences(node, "takes").join(" "),
            given,
            missing: self.missing(node),
            answers: Vec::new(),
            matrices: Vec::new(),
            parts: self.parts(node, &stated),
            size: self.size.clone(),
        };
        // Answers and matrices name things of the parts, so they are read after them.
        for line in node.children() {
            match line.name.as_str() {
                "answer" => {
                    let answer = answer(line, &study);
                    study.answers.extend(self.keep(answer));
                }
                "matrix" => {
                    let matrix = matrix(line, &study);
                    study.matrices.extend(self.keep(matrix));
                }
                _ => {}
            }
        }
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
                    given.extend(self.keep(size).into_iter().flatten());
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

    /// The size, as figures: the size in the model, and the size on real kernels if that is another
    /// one.
    fn of_size(&mut self, line: &Node) -> Result<Vec<Given>, Problem> {
        if let Some((_, first)) = self.figures.iter().find(|(known, _)| known == SIZE) {
            return Err(already(SIZE, line.span, *first));
        }
        let own = whole(&line.args[0])? as f64;
        let live = line.prop("live").map(whole).transpose()?.map(|pages| pages as f64);
        let because = optional(line, "because")?;
        if live.is_some() == because.is_empty() {
            let problem = Problem::new(line.span, "live= and because= go together", "here");
            return Err(problem.help("live=8192 because=\"larger ones are disturbed\""));
        }
        let pages = self.asked.unwrap_or(own);
        let live = live.map(|own| self.asked.unwrap_or(own));
        self.size = Some(Size { pages, live, because, asked: self.asked.is_some() });
        let doc = prop(line, "doc")?;
        let sizes = [(SIZE, Some(pages)), (LIVE_SIZE, live)].into_iter();
        let sizes: Vec<(&str, f64)> =
            sizes.filter_map(|(name, pages)| Some((name, pages?))).collect();
        self.figures.extend(sizes.iter().map(|(name, _)| ((*name).to_owned(), line.span)));
        let figure = |(name, value): (&str, f64)| Given {
            name: name.to_owned(),
            value,
            unit: "pages".to_owned(),
            doc: if name == SIZE { doc.clone() } else { format!("{doc}, on real kernels") },
            stated: Some("--size".to_owned()),
        };
        Ok(sizes.into_iter().map(figure).collect())
    }

    /// A number, or the study's size.
    fn sized(&self, value: &Value) -> Result<f64, Problem> {
        let size = match value.text("a number") {
            Ok(SIZE) => self.size.as_ref().map(|size| size.pages),
            Ok(LIVE_SIZE) => self.size.as_ref().and_then(|size| size.live),
            _ => return number(value),
        };
        size.ok_or_else(|| {
            Problem::new(value.span, "the study has no such size", "here")
                .help("add a line to the study: size N doc=\"…\" live=N because=\"…\"")
        })
    }

    /// A number or the study's size, without a fraction.
    fn whole(&self, value: &Value) -> Result<u64, Problem> {
        match value.text("a number") {
            Ok(SIZE | LIVE_SIZE) => Ok(self.sized(value)? as u64),
            _ => whole(value),
        }
    }

    /// Reads a table of runs of the part.
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

    /// The scenario that a node names, with its values. The scenario must compile.
    fn chosen(&self, node: &Node, property: &str) -> Result<Chosen, Problem> {
        let value = given(node, property)?;
        let scenario = word(value)?;
        let rounds = match node.prop("rounds") {
            None => None,
            Some(rounds) => match u32::try_from(whole(rounds)?) {
                Ok(number) if number > 0 => Some(number),
                _ => {
                    return Err(Problem::new(rounds.span, "not a number of rounds", "here")
                        .help("a number of at least 1"));
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
        let thp = node.prop("thp").map(thp).transpose()?;
        Ok(Chosen { scenario, settings, rounds, thp })
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

    /// A new figure's name.
    fn figure_name(&mut self, value: &Value) -> Result<String, Problem> {
        let name = word(value)?;
        self.declare(name.clone(), value)?;
        Ok(name)
    }

    fn declare(&mut self, name: String, value: &Value) -> Result<(), Problem> {
        if !is_name(&name) {
            return Err(Problem::new(value.span, format!("`{name}` is not a name"), "this word")
                .help("letters, digits and _, a letter first"));
        }
        if let Some((_, first)) = self.figures.iter().find(|(known, _)| *known == name) {
            return Err(already(&name, value.span, *first));
        }
        self.figures.push((name, value.span));
        Ok(())
    }

    /// Reads a sweep. Its cells are figures from then on.
    fn sweep(&mut self, node: &Node) -> Result<Sweep, Problem> {
        let listed = given(node, "values")?;
        let words = word(listed)?;
        let value = |word: &str| {
            word.parse::<u64>().map_err(|_| {
                let message = format!("`{word}` is not a whole number");
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
        // Nodes that other nodes name are read first, wherever they are in the text.
        for line in node.children() {
            let result = match line.name.as_str() {
                "run" => self.run(line).and_then(|run| add(&mut part.runs, run, line)),
                "check" => self.check(line).and_then(|check| add(&mut part.checks, check, line)),
                "tiers" => tiers(line, self.size.as_ref().map(|size| size.pages))
                    .and_then(|tiers| add(&mut part.tiers, tiers, line)),
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
                "contrast" => {
                    self.contrast(line, &part).map(|contrast| part.contrasts.push(contrast))
                }
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
                return Err(Problem::new(line.span, "the target is given already", "given again")
                    .help("give each another release: since=\"6.12\""));
            }
            known.push(expected);
        }
        Ok(Run { name, chosen, targets })
    }

    fn figure(&mut self, node: &Node, part: &Part) -> Result<Figure, Problem> {
        let from = match (node.prop("is"), node.prop("costs")) {
            (None, None) if node.prop("tiers").is_some() => of_tiers(node, part)?,
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
                let message = "a figure comes from exactly one source";
                return Err(Problem::new(node.span, message, "this one does not")
                    .help("is=\"FORMULA\"; tiers= with counter=; run= and on= with counter=, class= or costs=; or costs= and term="));
            }
        };
        let (unit, doc) = (optional(node, "unit")?, prop(node, "doc")?);
        Ok(Figure { name: self.figure_name(&node.args[0])?, unit, doc, from })
    }

    /// Reads a contrast: two groups of runs that form pairs.
    fn contrast(&self, node: &Node, part: &Part) -> Result<Contrast, Problem> {
        let on = given(node, "on")?;
        let target = word(on)?;
        let run = |line: &Node, name: &str| {
            let value = given(line, name)?;
            let run = named(&part.runs, &word(value)?, "run", value)?;
            runs_on(run, &target, value)?;
            Ok(run.name.clone())
        };
        let case = |line: &Node| {
            let runs = [run(line, "first")?, run(line, "second")?];
            let costs = [self.formula(given(line, "costs")?)?, self.formula(given(line, "then")?)?];
            Ok(Case { name: word(&line.args[0])?, runs, costs })
        };
        let cases = node.children().iter().map(case).collect::<Result<Vec<_>, Problem>>()?;
        if cases.len() < 2 {
            return Err(Problem::new(
                node.span,
                "a contrast has two cases or more",
                "this one has fewer",
            )
            .help(
                "case \"NAME\" first=\"RUN\" second=\"RUN\" costs=\"FORMULA\" then=\"FORMULA\"",
            ));
        }
        Ok(Contrast {
            text: word(&node.args[0])?,
            names: [prop(node, "first")?, prop(node, "second")?],
            unit: optional(node, "unit")?,
            target,
            cases,
        })
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
                    .help("say why the condition does not hold elsewhere: because=\"…\""));
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
                        let message = format!("`{name}` is not a stated figure");
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
        let follows = optional(node, "follows")?;
        Ok(Relation { text: word(&node.args[0])?, is, only, moves, follows })
    }

    fn equation(&self, value: &Value, within: Option<f64>) -> Result<Equation, Problem> {
        let equation = equation(value, within)?;
        self.known(&equation.left, value)?;
        self.known(&equation.right, value)?;
        Ok(equation)
    }
}

/// Reads a template. It may only name things that the study has.
fn template(value: &Value, study: &Study) -> Result<Template, Problem> {
    let problem = |message: String| {
        Problem::new(value.span, message, "in here")
            .help("{PART.FIGURE}, {PART.FIGURE:1}, {FIGURE} or {PART/TEST~WORD}")
    };
    let template = Template::parse(&word(value)?).map_err(problem)?;
    match template.unknown(study) {
        Some(message) => Err(problem(message)),
        None => Ok(template),
    }
}

fn answer(node: &Node, study: &Study) -> Result<Answer, Problem> {
    let text = template(given(node, "is")?, study)?;
    let of = optional(node, "of")?;
    let of: Vec<String> = of.split_whitespace().map(str::to_owned).collect();
    let known = |name: &str| study.parts.iter().any(|part| part.name == name);
    if let Some(name) = of.iter().find(|name| !known(name)) {
        let span = given(node, "of")?.span;
        return Err(Problem::new(span, format!("there is no part `{name}`"), "in here")
            .help("of= names parts of the study"));
    }
    Ok(Answer { question: word(&node.args[0])?, text, of })
}

fn matrix(node: &Node, study: &Study) -> Result<Matrix, Problem> {
    let lines = |name: &'static str| node.children().iter().filter(move |line| line.name == name);
    let columns = lines("column").map(|line| matrix_column(line, study));
    let columns: Vec<MatrixColumn> = columns.collect::<Result<_, _>>()?;
    let rows = lines("row").map(|line| matrix_row(line, &columns, study));
    Ok(Matrix { text: word(&node.args[0])?, rows: rows.collect::<Result<_, _>>()?, columns })
}

fn matrix_column(node: &Node, study: &Study) -> Result<MatrixColumn, Problem> {
    let name = word(&node.args[0])?;
    let (Some(value), Some(counted)) = (node.prop("run"), node.prop("counter")) else {
        let odd = node.prop("run").or_else(|| node.prop("counter"));
        return match odd {
            None => Ok(MatrixColumn { name, shows: None }),
            Some(value) => Err(Problem::new(value.span, "run= and counter= go together", "here")
                .help("run=\"PART.RUN\" counter=\"COUNTER\"")),
        };
    };
    let named_run = word(value)?;
    let run = named_run.split_once('.').and_then(|(part, run)| {
        let known = study.parts.iter().find(|known| known.name == part)?;
        known.runs.iter().find(|known| known.name == run)?;
        Some(RunOf { part: part.to_owned(), run: run.to_owned() })
    });
    let run = run.ok_or_else(|| {
        Problem::new(value.span, format!("there is no run `{named_run}`"), "here")
            .help("run=\"PART.RUN\"")
    })?;
    Ok(MatrixColumn { name, shows: Some((run, counter(&word(counted)?, counted.span)?)) })
}

fn matrix_row(node: &Node, columns: &[MatrixColumn], study: &Study) -> Result<MatrixRow, Problem> {
    let published = node.prop("published").map(|value| template(value, study)).transpose()?;
    let on = |name: &str| node.prop(name).map(target).transpose();
    let (model, real) = (on("model")?, on("real")?);
    let texts = &node.args[1..];
    let wanted = columns.iter().filter(|column| column.shows.is_none()).count();
    if texts.len() != wanted {
        let message = format!("{} cells, but {wanted} columns without run=", texts.len());
        return Err(Problem::new(node.span, message, "this row").help("a template for each"));
    }
    let texts = texts.iter().map(|text| template(text, study)).collect::<Result<_, _>>()?;
    let published = published.unwrap_or_default();
    Ok(MatrixRow { name: word(&node.args[0])?, published, model, real, texts })
}
